//! Protection from cross-site request forgery. A page of another site can make a visitor's browser send requests to
//! `/auth`, `/client/api` and `/admin`, which the service's own pages use, and to the pages themselves. They are refused
//! before any rate limit is charged.
//! Otherwise such a page would use up the rate limits of its visitor's address, and six logins would block the address.

use poem::Request;
use poem::http::{HeaderName, header};

use super::body;
use super::error::{ApiError, Code};
use super::principal::{CONSOLE_COOKIE, PORTAL_COOKIE};
use super::state::Origins;
use super::user_auth::{bearer, cookie};
use crate::access::limits::is_under;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Returns the error for a request that is refused outright. That is 403 for a request from another site's page. It is
/// 415 for a request under `/auth` or a login of the console with a body, or for a new API key, whose Content-Type is not
/// JSON's.
pub fn refusal(own: Origins<'_>, request: &Request) -> Option<ApiError> {
    let path = request.uri().path();
    let is_of_console = ["/admin", "/console"].into_iter().any(|prefix| is_under(path, prefix));
    let is_of_portal = ["/auth", "/client/api", "/portal"].into_iter().any(|prefix| is_under(path, prefix));
    if request.method().is_safe() || !(is_of_console || is_of_portal) {
        return None;
    }
    let (public_url, session) = match is_of_console {
        true => (own.console, CONSOLE_COOKIE),
        false => (own.portal, PORTAL_COOKIE),
    };
    let is_of_login = is_under(path, "/auth") && !is_under(path, "/auth/logout");
    let needs_no_token = is_of_login || is_under(path, "/admin/auth/login");
    // No page of another site can make a browser send a token.
    let has_token = !needs_no_token && bearer(request).is_some();
    if !has_token && !is_own(public_url, session, request) {
        return Some(ApiError::new(Code::Forbidden).message("The request comes from a page of another site."));
    }
    // A form, and a `fetch` without CORS, can send any Content-Type but this one.
    let takes_json = needs_no_token || (path == "/client/api/api-keys" && request.method() == "POST");
    let is_json = request.content_type().is_some_and(body::is_json);
    (takes_json && !is_json).then(|| ApiError::new(Code::UnsupportedMediaType))
}

/// Returns whether the request comes from a page of the service or from no page at all. Browsers state the source in
/// `Sec-Fetch-Site` (but not over plain HTTP) and, on every request that changes something, in `Origin`. `Origin` is
/// compared with the public URL, not with `Host`. After DNS rebinding, a foreign page has the same `Host` as the service.
fn is_own(public_url: &str, session: &str, request: &Request) -> bool {
    let mut sites = request.headers().get_all(SEC_FETCH_SITE).iter();
    let mut origins = request.headers().get_all(header::ORIGIN).iter().peekable();
    // A browser always sends `Origin` with a cookie that a script's request carries.
    let is_named = origins.peek().is_some() || cookie(request, session).is_none();
    let own = origin(public_url);
    is_named
        && sites.all(|site| site == "same-origin" || site == "none")
        && origins.all(|given| given.to_str().ok().and_then(origin).is_some_and(|given| Some(given) == own))
}

fn origin(text: &str) -> Option<url::Origin> {
    url::Url::parse(text).ok().map(|url| url.origin()).filter(url::Origin::is_tuple)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &str, headers: &[(&'static str, &str)]) -> Option<Code> {
        let mut request = Request::builder().method(poem::http::Method::POST).uri_str(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let own = Origins { portal: "https://pay.example", console: "https://console.example" };
        refusal(own, &request.finish()).map(|error| error.code)
    }

    const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");

    #[test]
    fn an_origin_is_compared_as_a_whole() {
        let from = |origin: &str| refused("/auth/login", &[JSON, ("origin", origin)]);
        for origin in ["https://pay.example", "https://pay.example:443"] {
            assert_eq!(from(origin), None, "{origin}");
        }
        for origin in
            ["http://pay.example", "https://pay.example:8443", "https://pay.example.net", "https://a.pay.example", "null", ""]
        {
            assert_eq!(from(origin), Some(Code::Forbidden), "{origin}");
        }
        let twice = [JSON, ("origin", "https://pay.example"), ("origin", "https://elsewhere.example")];
        assert_eq!(refused("/auth/login", &twice), Some(Code::Forbidden));
    }

    #[test]
    fn requests_from_other_sites_are_refused() {
        for (site, expected) in [
            ("same-origin", None),
            ("none", None),
            ("same-site", Some(Code::Forbidden)),
            ("cross-site", Some(Code::Forbidden)),
            ("", Some(Code::Forbidden)),
        ] {
            for path in ["/auth/login", "/auth/login/x", "/auth/refresh", "/client/api/api-keys"] {
                assert_eq!(refused(path, &[JSON, ("sec-fetch-site", site)]), expected, "{site} {path}");
            }
        }
        // If the two headers disagree, the request is refused.
        let both = [JSON, ("sec-fetch-site", "same-origin"), ("origin", "https://elsewhere.example")];
        assert_eq!(refused("/auth/login", &both), Some(Code::Forbidden));
    }

    #[test]
    fn programs_outside_a_browser_are_not_refused() {
        assert_eq!(refused("/auth/login", &[JSON]), None);
        assert_eq!(refused("/client/api/api-keys", &[JSON]), None);
        let token = [JSON, ("authorization", "Bearer x"), ("origin", "https://elsewhere.example")];
        assert_eq!(refused("/client/api/api-keys", &token), None);
        assert_eq!(refused("/auth/login", &token), Some(Code::Forbidden), "a login needs no token, so a token exempts nothing");
        let cookie = ("cookie", "__Host-portal=1.ab");
        assert_eq!(refused("/client/api/api-keys", &[JSON, cookie]), Some(Code::Forbidden));
        assert_eq!(refused("/auth/logout", &[cookie, ("origin", "https://pay.example")]), None);
        assert_eq!(refused("/api/v1/orders", &[("origin", "https://elsewhere.example")]), None);
    }

    #[test]
    fn the_console_has_an_origin_of_its_own() {
        let cookie = ("cookie", "__Host-console=1.ab");
        for path in ["/admin/auth/logout", "/admin/v1/accounts", "/console/accounts"] {
            assert_eq!(refused(path, &[cookie, ("origin", "https://console.example")]), None, "{path}");
            assert_eq!(refused(path, &[cookie, ("origin", "https://pay.example")]), Some(Code::Forbidden), "{path}");
            assert_eq!(refused(path, &[cookie]), Some(Code::Forbidden), "{path}");
        }
        let token = [("authorization", "Bearer x"), ("origin", "https://elsewhere.example")];
        assert_eq!(refused("/admin/v1/accounts", &token), None, "a page of another site has no token");
        assert_eq!(refused("/admin/auth/login", &[JSON, ("origin", "https://pay.example")]), Some(Code::Forbidden));
        assert_eq!(refused("/admin/auth/login", &[("content-type", "text/plain")]), Some(Code::UnsupportedMediaType));
    }

    #[test]
    fn forms_cannot_send_json() {
        for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp"] {
            for path in ["/auth/login", "/auth/refresh", "/client/api/api-keys"] {
                assert_eq!(refused(path, &[("content-type", kind)]), Some(Code::UnsupportedMediaType), "{kind} {path}");
            }
            assert_eq!(refused("/client/api/api-keys/7/rotate-signing-secret", &[("content-type", kind)]), None);
        }
        assert_eq!(refused("/auth/login", &[]), Some(Code::UnsupportedMediaType));
    }
}
