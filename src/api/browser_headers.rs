//! Headers for browsers: a content security policy for the service's pages, and no caching of responses that concern an
//! account.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use poem::Response;
use poem::http::{HeaderMap, HeaderName, HeaderValue, header};
use sha2::{Digest, Sha256};

use crate::access::limits::is_under;

/// Returns whether the responses of a path concern an account or operators.
pub(super) fn is_private(path: &str) -> bool {
    let prefixes = ["/api/v1", "/auth", "/client/api", "/admin/v1", "/admin/auth", "/portal", "/console"];
    prefixes.into_iter().any(|prefix| is_under(path, prefix))
}

/// Forbids caching of a response that concerns an account, unless the response sets its own `Cache-Control`.
pub(super) fn forbid_storing(path: &str, headers: &mut HeaderMap) {
    if is_private(path) {
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    }
}

/// Adds the headers of public content. A page with a policy may load and run only its own content.
pub(super) fn protect(policy: Option<&HeaderValue>, response: &mut Response) {
    const X_FRAME_OPTIONS: HeaderName = HeaderName::from_static("x-frame-options");
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(policy) = policy {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy.clone());
        headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    }
}

/// Builds the policy of a page (CSP level 3). It allows the page's own scripts and styles by hash, and requests to this
/// service if the page has scripts. No other page may frame it.
pub(super) fn policy(page: &str) -> HeaderValue {
    let (scripts, styles) = (sources(page, "script"), sources(page, "style"));
    let connect = if scripts == "'none'" { "'none'" } else { "'self'" };
    let policy = format!(
        "default-src 'none'; script-src {scripts}; style-src {styles}; img-src data: blob:; connect-src {connect}; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"))
}

/// Returns the hashes of a page's elements of this kind. As in a browser, a script or style ends at the first end tag.
/// Text within it that looks like a tag is not one.
fn sources(page: &str, kind: &str) -> String {
    let mut hashes = vec![];
    let mut rest = page;
    while let Some((at, found)) =
        ["script", "style"].into_iter().filter_map(|tag| Some((rest.find(&format!("<{tag}"))?, tag))).min()
    {
        let Some((_, content)) = rest[at..].split_once('>') else { break };
        let (content, after) = content.split_once(&format!("</{found}")).unwrap_or((content, ""));
        if found == kind {
            hashes.push(format!("'sha256-{}'", STANDARD.encode(Sha256::digest(content))));
        }
        rest = after;
    }
    if hashes.is_empty() { "'none'".to_owned() } else { hashes.join(" ") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_script_and_style_of_a_page_has_its_hash() {
        let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
        let page =
            "<html><style charset=\"UTF-8\">a{}</style><script>let a = '<style>x</style>';</script><script>b</script></html>";
        let policy = policy(page);
        let policy = policy.to_str().unwrap();
        let scripts = format!("script-src {} {};", hash("let a = '<style>x</style>';"), hash("b"));
        assert!(policy.contains(&scripts), "{policy}");
        assert!(policy.contains(&format!("style-src {};", hash("a{}"))), "{policy}");
        assert!(policy.contains("connect-src 'self'") && !policy.contains("unsafe"), "{policy}");
    }

    #[test]
    fn a_page_without_scripts_runs_none() {
        let policy = policy("<html><body>text</body></html>");
        let policy = policy.to_str().unwrap();
        assert!(policy.contains("script-src 'none'; style-src 'none'") && policy.contains("connect-src 'none'"), "{policy}");
    }

    #[test]
    fn responses_that_concern_an_account_are_not_cached() {
        let stored = |path: &str, own: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.extend(own.map(|own| (header::CACHE_CONTROL, HeaderValue::from_static(own))));
            forbid_storing(path, &mut headers);
            headers.get(header::CACHE_CONTROL).map(|value| value.to_str().unwrap().to_owned())
        };
        for path in ["/api/v1/orders", "/auth/login", "/client/api/api-keys/", "/admin/v1/accounts"] {
            assert_eq!(stored(path, None).as_deref(), Some("no-store"), "{path}");
            assert_eq!(stored(path, Some("private, max-age=86400")).as_deref(), Some("private, max-age=86400"), "{path}");
        }
        for path in ["/docs", "/openapi.json", "/log/1/checkpoint", "/api/v10", "/healthz"] {
            assert_eq!(stored(path, None), None, "{path}");
        }
    }
}
