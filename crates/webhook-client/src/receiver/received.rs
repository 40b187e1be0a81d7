//! Received webhook request.

use std::fmt;
use std::time::SystemTime;

use hyper::body::Bytes;

use crate::signature::{VerifyError, token_header_name, verify};

/// Webhook request as it arrived.
#[derive(Clone)]
pub struct Received {
    /// HTTP method, `POST` for a delivery.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers in the order of arrival, with names in lower case. Bytes that are not UTF-8 are replaced.
    pub headers: Vec<(String, String)>,
    /// Raw body, which the signature covers.
    pub body: Bytes,
    /// Time when the whole body had arrived.
    pub received_at: SystemTime,
    pub(super) token_header: String,
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The headers stay out, because the token is among them.
        f.debug_struct("Received")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("event_id", &self.event_id())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

impl Received {
    /// Returns the first header of this name. The name must be in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Returns `X-Webhook-ID`.
    pub fn webhook_id(&self) -> Option<&str> {
        self.header("x-webhook-id")
    }

    /// Returns `X-Event-ID`. It is the same in every attempt, so receivers deduplicate on it.
    pub fn event_id(&self) -> Option<&str> {
        self.header("x-event-id")
    }

    /// Returns `X-Event-Type`.
    pub fn event_type(&self) -> Option<&str> {
        self.header("x-event-type")
    }

    /// Returns `X-Event-Sequence`, which grows with every event of the same object.
    pub fn sequence(&self) -> Option<i64> {
        self.header("x-event-sequence")?.parse().ok()
    }

    /// Returns `X-Request-ID`, which differs in every attempt.
    pub fn request_id(&self) -> Option<&str> {
        self.header("x-request-id")
    }

    /// Returns `X-Timestamp`, as the text that was signed.
    pub fn timestamp(&self) -> Option<&str> {
        self.header("x-timestamp")
    }

    /// Returns `X-Signature`.
    pub fn signature(&self) -> Option<&str> {
        self.header("x-signature")
    }

    /// Returns `X-<NAME>-WEBHOOK-TOKEN`.
    pub fn token(&self) -> Option<&str> {
        self.header(&self.token_header)
    }

    /// Verifies the timestamp and the signature over the raw body. `now` is in Unix seconds. A missing header fails like a
    /// wrong one.
    pub fn verify(&self, secret: &str, now: i64) -> Result<(), VerifyError> {
        let timestamp = self.timestamp().ok_or(VerifyError::Timestamp)?;
        let signature = self.signature().ok_or(VerifyError::Signature)?;
        verify(secret, timestamp, &self.body, signature, now)
    }

    pub(super) fn new(head: hyper::http::request::Parts, body: Bytes, service_name: &str) -> Received {
        let headers = head.headers.iter().map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.as_str().to_owned(), value)
        });
        Received {
            method: head.method.as_str().to_owned(),
            path: head.uri.to_string(),
            headers: headers.collect(),
            body,
            received_at: SystemTime::now(),
            token_header: token_header_name(service_name),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_0123456789";

    #[test]
    fn debug_output_shows_no_token() {
        let request = hyper::Request::post("/hook").header("x-service-webhook-token", SECRET);
        let (head, ()) = request.body(()).unwrap().into_parts();
        let received = Received::new(head, Bytes::new(), "SERVICE");
        assert_eq!(received.token(), Some(SECRET));
        assert!(!format!("{received:?}").contains(SECRET));
    }
}
