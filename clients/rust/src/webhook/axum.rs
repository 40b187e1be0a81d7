//! Extractor for axum.

use axum_core::extract::{FromRef, FromRequest, Request};
use axum_core::response::{IntoResponse, Response};
use bytes::Bytes;
use reqwest::StatusCode;

use super::{Verifier, Webhook, WebhookError};

/// Verifies the request with the [`Verifier`] in the router's state. The router's limit of bodies applies.
impl<S> FromRequest<S> for Webhook
where
    Verifier: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Webhook, Response> {
        let headers = request.headers().clone();
        let body = Bytes::from_request(request, state).await.map_err(IntoResponse::into_response)?;
        let event = Verifier::from_ref(state).verify(&headers, &body);
        event.map(Webhook).map_err(IntoResponse::into_response)
    }
}

impl IntoResponse for WebhookError {
    fn into_response(self) -> Response {
        let status = match &self {
            WebhookError::Body(_) => StatusCode::BAD_REQUEST,
            _ => StatusCode::UNAUTHORIZED,
        };
        (status, self.to_string()).into_response()
    }
}
