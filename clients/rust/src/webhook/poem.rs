//! Extractor for poem.

use poem::error::ResponseError;
use poem::http::StatusCode;
use poem::{FromRequest, Request, RequestBody, Result};

use super::{Verifier, Webhook, WebhookError};

/// Longest body. Envelopes are much smaller.
const BODY_LIMIT: usize = 1 << 20;

/// Verifies the request with the [`Verifier`] that `EndpointExt::data` has added.
impl<'a> FromRequest<'a> for Webhook {
    async fn from_request(request: &'a Request, body: &mut RequestBody) -> Result<Webhook> {
        let no_verifier = || poem::Error::from_string("no webhook verifier is configured", StatusCode::INTERNAL_SERVER_ERROR);
        let verifier = request.data::<Verifier>().ok_or_else(no_verifier)?;
        let body = body.take()?.into_bytes_limit(BODY_LIMIT).await?;
        Ok(Webhook(verifier.verify(request.headers(), &body)?))
    }
}

impl ResponseError for WebhookError {
    fn status(&self) -> StatusCode {
        match self {
            WebhookError::Body(_) => StatusCode::BAD_REQUEST,
            _ => StatusCode::UNAUTHORIZED,
        }
    }
}
