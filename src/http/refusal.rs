//! Error envelope for input that the HTTP library refuses before there is a request.

use std::sync::Arc;
use std::time::Duration;

use super::HEAD_LIMIT;
use crate::api::error::{ApiError, Code, JSON};
use crate::api::request_id::{RequestId, X_REQUEST_ID};
use crate::telemetry::Metrics;

/// Rewrites the library's error response, with the envelope as its body and an `X-Request-ID`. Returns `None` if `head` is
/// no such response.
///
/// For a request line over the limit, the library reports a head over the limit. The length of the last line that was read
/// tells the two apart.
pub fn replace(head: &[u8], line: usize, metrics: &Metrics) -> Option<Vec<u8>> {
    let head = std::str::from_utf8(head).ok()?.strip_suffix("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.split(' ').next()?;
    let code = match status {
        "400" => Code::MalformedRequest,
        "431" if line < HEAD_LIMIT => Code::HeadersTooLarge,
        "431" | "414" => Code::UriTooLong,
        _ => return None,
    };
    let (id, body) = (RequestId::random(), ApiError::new(code).body().to_string());
    let status = poem::http::StatusCode::from_u16(code.status()).ok()?;
    // The response's other headers, such as Date, stay.
    let fields = lines.filter(|line| !line.to_ascii_lowercase().starts_with("content-length:"));
    let fields: String = fields.map(|line| format!("{line}\r\n")).collect();
    metrics.answered("other", "other", Arc::default(), status.as_u16(), Duration::ZERO);
    tracing::info!(target: "access", status = status.as_u16(), request_id = id.as_str(), "refused a malformed request");
    let length = body.len();
    Some(
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: {JSON}\r\ncontent-length: {length}\r\n{X_REQUEST_ID}: {id}\r\n{fields}\r\n{body}"
        )
        .into_bytes(),
    )
}
