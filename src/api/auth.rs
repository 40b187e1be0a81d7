//! Authentication, before anything is parsed: the principal goes into the request's extensions,
//! where [`super::principal::Caller`] finds it.

use poem::http::header;
use poem::{Endpoint, Middleware, Request, Result};

use super::error::{ApiError, Code};
use crate::access::{AccessError, Credentials, Operators};

impl From<AccessError> for ApiError {
    fn from(error: AccessError) -> ApiError {
        match error {
            AccessError::Unknown => ApiError::new(Code::Unauthorized),
            AccessError::Unavailable => ApiError::new(Code::Unavailable),
        }
    }
}

/// Lets in clients: `X-API-Key` and `X-API-Secret`.
#[derive(Clone, Debug)]
pub struct ClientAuth(pub Credentials);

/// Lets in operators: `Authorization: Bearer <token>`.
#[derive(Clone, Debug)]
pub struct OperatorAuth(pub Operators);

#[derive(Debug)]
pub struct Authenticated<A, E> {
    auth: A,
    inner: E,
}

impl<E: Endpoint> Middleware<E> for ClientAuth {
    type Output = Authenticated<ClientAuth, E>;

    fn transform(&self, inner: E) -> Self::Output {
        Authenticated { auth: self.clone(), inner }
    }
}

impl<E: Endpoint> Middleware<E> for OperatorAuth {
    type Output = Authenticated<OperatorAuth, E>;

    fn transform(&self, inner: E) -> Self::Output {
        Authenticated { auth: self.clone(), inner }
    }
}

impl<E: Endpoint> Endpoint for Authenticated<ClientAuth, E> {
    type Output = E::Output;

    async fn call(&self, mut request: Request) -> Result<E::Output> {
        let (Some(key), Some(secret)) = (request.header("x-api-key"), request.header("x-api-secret")) else {
            return Err(ApiError::from(AccessError::Unknown).into());
        };
        let principal = self.auth.0.authenticate(key, secret).await.map_err(ApiError::from)?;
        request.extensions_mut().insert(principal);
        self.inner.call(request).await
    }
}

impl<E: Endpoint> Endpoint for Authenticated<OperatorAuth, E> {
    type Output = E::Output;

    async fn call(&self, mut request: Request) -> Result<E::Output> {
        let authorization = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let refused = |error| match error {
            AccessError::Unknown => ApiError::from(error).message("The operator token is missing or wrong."),
            AccessError::Unavailable => error.into(),
        };
        let Some(token) = authorization.and_then(|value| value.strip_prefix("Bearer ")) else {
            return Err(refused(AccessError::Unknown).into());
        };
        let operator = self.auth.0.authenticate(token).await.map_err(refused)?;
        request.extensions_mut().insert(operator);
        self.inner.call(request).await
    }
}
