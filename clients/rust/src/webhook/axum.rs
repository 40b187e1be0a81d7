//! Extractor for axum.

use axum::body::to_bytes;
use axum::extract::{FromRef, FromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::{BODY_LIMIT, Verifier, Webhook, WebhookError};

/// Verifies the request with the [`Verifier`] in the router's state.
impl<S> FromRequest<S> for Webhook
where
    Verifier: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Webhook, Response> {
        let (parts, body) = request.into_parts();
        let body = to_bytes(body, BODY_LIMIT).await.map_err(|_| StatusCode::BAD_REQUEST.into_response())?;
        let event = Verifier::from_ref(state).verify(&parts.headers, &body);
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
