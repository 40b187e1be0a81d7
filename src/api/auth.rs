//! Authentication, before anything is parsed: the principal goes into the request's extensions,
//! where [`super::principal::Caller`] finds it.

use std::sync::Arc;

use poem::http::header;
use poem::{Endpoint, Middleware, Request, Result};

use super::error::{ApiError, Code};
use super::principal::PORTAL_COOKIE;
use crate::access::{AccessError, Credentials, Operators, Principal, Sessions};

impl From<AccessError> for ApiError {
    fn from(error: AccessError) -> ApiError {
        ApiError::new(match error {
            AccessError::Unknown => Code::Unauthorized,
            AccessError::WrongPassword => Code::InvalidCredentials,
            AccessError::InvalidToken => Code::InvalidToken,
            AccessError::Unavailable => Code::Unavailable,
        })
    }
}

/// Lets in clients: `X-API-Key` and `X-API-Secret`, or `Authorization: Bearer <access token>`.
#[derive(Clone, Debug)]
pub struct ClientAuth(pub Credentials, pub Sessions);

/// Lets in users: `Authorization: Bearer <access token>`, or the portal cookie.
#[derive(Clone, Debug)]
pub struct UserAuth {
    pub sessions: Sessions,
    /// Where the portal's own requests come from.
    pub public_url: Arc<str>,
}

/// Lets in operators: `Authorization: Bearer <token>`.
#[derive(Clone, Debug)]
pub struct OperatorAuth(pub Operators);

#[derive(Debug)]
pub struct Authenticated<A, E> {
    auth: A,
    inner: E,
}

macro_rules! middleware {
    ($($auth:ident),*) => {
        $(impl<E: Endpoint> Middleware<E> for $auth {
            type Output = Authenticated<$auth, E>;

            fn transform(&self, inner: E) -> Self::Output {
                Authenticated { auth: self.clone(), inner }
            }
        })*
    };
}

middleware!(ClientAuth, UserAuth, OperatorAuth);

impl ClientAuth {
    /// Who calls. An API key's headers win over a token: it opens no way around signatures.
    async fn identify(&self, request: &Request) -> Result<Principal, AccessError> {
        let ClientAuth(credentials, sessions) = self;
        match (request.header("x-api-key"), request.header("x-api-secret")) {
            (Some(key), Some(secret)) => credentials.authenticate(key, secret).await,
            (None, None) => match bearer(request) {
                Some(token) => sessions.by_access_token(token).await,
                None => Err(AccessError::Unknown),
            },
            _ => Err(AccessError::Unknown),
        }
    }
}

impl UserAuth {
    /// Who calls. A token wins over a cookie, and needs no `Origin`: no page can make a browser send
    /// one.
    ///
    /// # Errors
    /// 401 `E_INVALID_TOKEN`; 403 for a change by a cookie from elsewhere.
    pub async fn identify(&self, request: &Request) -> Result<Principal, ApiError> {
        if let Some(token) = bearer(request) {
            return Ok(self.sessions.by_access_token(token).await?);
        }
        let cookie = cookie(request, PORTAL_COOKIE).ok_or(AccessError::InvalidToken)?;
        let principal = self.sessions.by_portal_cookie(cookie).await?;
        if !request.method().is_safe() && !self.is_own_origin(request) {
            return Err(ApiError::new(Code::Forbidden).message("The header Origin is not the service's."));
        }
        Ok(principal)
    }

    fn is_own_origin(&self, request: &Request) -> bool {
        let origin = |text: &str| url::Url::parse(text).ok().map(|url| url.origin()).filter(url::Origin::is_tuple);
        let given = request.header(header::ORIGIN.as_str()).and_then(origin);
        given.is_some() && given == origin(&self.public_url)
    }
}

impl<E: Endpoint> Endpoint for Authenticated<ClientAuth, E> {
    type Output = E::Output;

    async fn call(&self, mut request: Request) -> Result<E::Output> {
        let principal = self.auth.identify(&request).await.map_err(ApiError::from)?;
        request.extensions_mut().insert(principal);
        self.inner.call(request).await
    }
}

impl<E: Endpoint> Endpoint for Authenticated<UserAuth, E> {
    type Output = E::Output;

    async fn call(&self, mut request: Request) -> Result<E::Output> {
        // Who logs in or refreshes is nobody yet.
        if !matches!(request.uri().path(), "/auth/login" | "/auth/refresh") {
            let principal = self.auth.identify(&request).await?;
            request.extensions_mut().insert(principal);
        }
        self.inner.call(request).await
    }
}

impl<E: Endpoint> Endpoint for Authenticated<OperatorAuth, E> {
    type Output = E::Output;

    async fn call(&self, mut request: Request) -> Result<E::Output> {
        let refused = |error| match error {
            AccessError::Unknown => ApiError::from(error).message("The operator token is missing or wrong."),
            error => error.into(),
        };
        let Some(token) = bearer(&request) else {
            return Err(refused(AccessError::Unknown).into());
        };
        let operator = self.auth.0.authenticate(token).await.map_err(refused)?;
        request.extensions_mut().insert(operator);
        self.inner.call(request).await
    }
}

/// The token of `Authorization: Bearer <token>`.
fn bearer(request: &Request) -> Option<&str> {
    let (scheme, token) = request.header(header::AUTHORIZATION.as_str())?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// A cookie's value. Of several with one name, the first: the one with the longest path (RFC 6265, 5.4).
fn cookie<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    let lines = request.headers().get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.into_iter().find_map(|(key, value)| (key == name).then_some(value))
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
        let two = Request::builder().header("cookie", "a=b").header("cookie", "portal=7").finish();
        assert_eq!(cookie(&two, "portal"), Some("7"));
    }

    #[test]
    fn a_bearer_token_is_read_whatever_the_schemes_case() {
        let request = |line: &'static str| Request::builder().header("authorization", line).finish();
        for (line, found) in [("Bearer abc", Some("abc")), ("bearer abc", Some("abc")), ("Basic abc", None), ("Bearer", None)] {
            assert_eq!(bearer(&request(line)), found, "{line}");
        }
    }
}
