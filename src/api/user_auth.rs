//! Authentication of users, by `Authorization: Bearer <access token>` or by the portal cookie.

use poem::Request;
use poem::http::header;

use super::error::ApiError;
use super::principal::PORTAL_COOKIE;
use super::state::ApiState;
use crate::access::{AccessError, Principal};

/// Authenticates a user of the portal. A token takes precedence over a cookie. [`super::cross_site`] has already rejected
/// requests with the cookie that a page of another site sent.
///
/// # Errors
/// 401 `E_INVALID_TOKEN` if there is no valid token or cookie.
pub async fn portal_user(state: &ApiState, request: &Request) -> Result<Principal, ApiError> {
    if let Some(token) = bearer(request) {
        return Ok(state.sessions.by_access_token(token).await?);
    }
    let cookie = cookie(request, PORTAL_COOKIE).ok_or(AccessError::InvalidToken)?;
    Ok(state.sessions.by_portal_cookie(cookie).await?)
}

/// Returns the token of `Authorization: Bearer <token>`. With more than one such header, it accepts none.
pub fn bearer(request: &Request) -> Option<&str> {
    let mut values = request.headers().get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    (values.next().is_none() && scheme.eq_ignore_ascii_case("bearer")).then(|| token.trim())
}

/// Returns the value of a cookie. If several have the same name, the first counts: it has the longest path (RFC 6265, 5.4).
pub fn cookie<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    let lines = request.headers().get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find_map(|(key, value)| (key == name).then_some(value))
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
    fn the_bearer_scheme_is_case_insensitive() {
        let request = |line: &'static str| Request::builder().header("authorization", line).finish();
        for (line, found) in [("Bearer abc", Some("abc")), ("bearer abc", Some("abc")), ("Basic abc", None), ("Bearer", None)] {
            assert_eq!(bearer(&request(line)), found, "{line}");
        }
    }
}
