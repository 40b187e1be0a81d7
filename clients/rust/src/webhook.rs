//! Verification of webhooks.
//!
//! Verify the raw bytes of the body, before anything parses them. With the features `axum` and `poem`, [`Webhook`] is an
//! extractor that does so.

#[cfg(feature = "axum")]
mod axum;
#[cfg(feature = "poem")]
mod poem;

use std::time::Duration;

use chrono::Utc;
use reqwest::header::HeaderMap;
use subtle::{Choice, ConstantTimeEq};

use crate::models::WebhookEnvelope;
use crate::secret::Secret;
use crate::signing::hmac_hex;

/// Header with a second signature, made with the token before a rotation.
const PREVIOUS: &str = "x-signature-previous";

/// A genuine webhook, as an argument of a handler.
///
/// Deduplicate on `event_id`, answer quickly, and answer 200 to event types that you do not act on.
#[derive(Clone, Debug, PartialEq)]
pub struct Webhook(pub WebhookEnvelope);

/// Reason that a webhook is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookError {
    #[error("the header {0} is missing")]
    Missing(&'static str),
    #[error("the timestamp is not valid, or too far from this machine's time")]
    Timestamp,
    #[error("the signature does not match")]
    Signature,
    #[error("the body is not an event")]
    Body(#[source] serde_json::Error),
}

/// Verifies webhooks with the token of the webhook. `Debug` does not show the token.
#[derive(Clone, Debug)]
pub struct Verifier {
    tokens: Vec<Secret>,
    tolerance: Duration,
}

/// Verifies a webhook, and returns its event.
///
/// # Errors
/// If it is not genuine, too old, or not an event.
pub fn verify(token: &str, headers: &HeaderMap, body: &[u8]) -> Result<WebhookEnvelope, WebhookError> {
    Verifier::new(token).verify(headers, body)
}

impl Verifier {
    /// Creates a verifier. An empty token, such as that of an unset variable, verifies nothing.
    pub fn new(token: impl Into<Secret>) -> Verifier {
        Verifier { tokens: vec![token.into()], tolerance: Duration::from_secs(300) }
    }

    /// Accepts another token, too, for example the one before a rotation.
    pub fn or(mut self, token: impl Into<Secret>) -> Verifier {
        self.tokens.push(token.into());
        self
    }

    /// Changes how far the timestamp may be from this machine's time. The default is 300 seconds.
    pub fn with_tolerance(self, tolerance: Duration) -> Verifier {
        Verifier { tolerance, ..self }
    }

    /// Verifies a webhook, and returns its event.
    ///
    /// # Errors
    /// If it is not genuine, too old, or not an event.
    pub fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<WebhookEnvelope, WebhookError> {
        self.verify_bytes(headers, body)?;
        serde_json::from_slice(body).map_err(WebhookError::Body)
    }

    /// Verifies any signed body, such as a page of events that was pulled with signed requests. The token is then the signing
    /// secret.
    ///
    /// # Errors
    /// If it is not genuine, or too old.
    pub fn verify_bytes(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), WebhookError> {
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).ok_or(WebhookError::Missing(name));
        let (timestamp, signature, now) = (header("x-timestamp")?, header("x-signature")?, Utc::now().timestamp());
        match (self.check(timestamp, signature, body, now), header(PREVIOUS)) {
            // After a rotation, the service can sign with the replaced token, too.
            (Err(WebhookError::Signature), Ok(previous)) => self.check(timestamp, previous, body, now),
            (checked, _) => checked,
        }
    }

    /// Verifies the values of `X-Timestamp` and `X-Signature`, for frameworks with other header types. `now` is in Unix
    /// seconds. If the signature does not match, `X-Signature-Previous` may: a rotation can ask for it.
    ///
    /// # Errors
    /// If the timestamp is too far from `now`, or the signature does not match.
    pub fn check(&self, timestamp: &str, signature: &str, body: &[u8], now: i64) -> Result<(), WebhookError> {
        let is_number = timestamp.bytes().all(|byte| byte.is_ascii_digit());
        let is_fresh = timestamp.parse().is_ok_and(|sent: i64| now.abs_diff(sent) <= self.tolerance.as_secs());
        if !is_number || !is_fresh {
            return Err(WebhookError::Timestamp);
        }
        let matches = self.tokens.iter().filter(|token| !token.expose().is_empty()).fold(Choice::from(0), |matches, token| {
            let expected = hmac_hex(token.expose(), &[timestamp.as_bytes(), b".", body]);
            matches | expected.as_bytes().ct_eq(signature.as_bytes())
        });
        if bool::from(matches) { Ok(()) } else { Err(WebhookError::Signature) }
    }
}
