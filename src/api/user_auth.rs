//! Which user a request is from: `Authorization: Bearer <access token>`, or the portal cookie.

use poem::Request;
use poem::http::header;

use super::error::{ApiError, Code};
use super::principal::PORTAL_COOKIE;
use super::state::ApiState;
use crate::access::{AccessError, Principal};

/// Who calls the portal. A token wins over a cookie, and needs no `Origin`: no page can make a
/// browser send one.
///
/// # Errors
/// 401 `E_INVALID_TOKEN`; 403 for a change by a cookie from elsewhere.
pub async fn portal_user(state: &ApiState, request: &Request) -> Result<Principal, ApiError> {
    if let Some(token) = bearer(request) {
        return Ok(state.sessions.by_access_token(token).await?);
    }
    let cookie = cookie(request, PORTAL_COOKIE).ok_or(AccessError::InvalidToken)?;
    let principal = state.sessions.by_portal_cookie(cookie).await?;
    if !request.method().is_safe() && !is_from(&state.public_url, request) {
        return Err(ApiError::new(Code::Forbidden).message("The header Origin is not the service's."));
    }
    Ok(principal)
}

/// The token of `Authorization: Bearer <token>`. Of two such headers neither is believed.
pub fn bearer(request: &Request) -> Option<&str> {
    let mut values = request.headers().get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    (values.next().is_none() && scheme.eq_ignore_ascii_case("bearer")).then(|| token.trim())
}

/// A cookie's value. Of several with one name, the first: the one with the longest path (RFC 6265, 5.4).
fn cookie<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    let lines = request.headers().get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find_map(|(key, value)| (key == name).then_some(value))
}

/// Whether a page of the service itself made the request.
fn is_from(public_url: &str, request: &Request) -> bool {
    let origin = |text: &str| url::Url::parse(text).ok().map(|url| url.origin()).filter(url::Origin::is_tuple);
    let given = request.header(header::ORIGIN.as_str()).and_then(origin);
    given.is_some() && given == origin(public_url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_found_among_others() {
        let request = |line: &'static str| Request::builder().header("cookie", line).finish();
        for (line, found) in [
            ("portal=1.ab", Some("1.ab")),
            ("a=b; portal=1.ab; portal=2", Some("1.ab")),
            ("xportal=1; Portal=2", None),
            ("portal", None),
            ("", None),
        ] {
            assert_eq!(cookie(&request(line), "portal"), found, "{line}");
        }
    }

    #[test]
    fn a_bearer_token_is_read_whatever_the_schemes_case() {
        let request = |line: &'static str| Request::builder().header("authorization", line).finish();
        for (line, found) in [("Bearer abc", Some("abc")), ("bearer abc", Some("abc")), ("Basic abc", None), ("Bearer", None)] {
            assert_eq!(bearer(&request(line)), found, "{line}");
        }
    }

    #[test]
    fn an_origin_is_compared_as_a_whole() {
        let from = |origin: &'static str| is_from("https://pay.example", &Request::builder().header("origin", origin).finish());
        assert!(from("https://pay.example") && from("https://pay.example:443"));
        for origin in
            ["http://pay.example", "https://pay.example:8443", "https://pay.example.net", "https://a.pay.example", "null", ""]
        {
            assert!(!from(origin), "{origin}");
        }
    }
}
