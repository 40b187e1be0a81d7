//! Errors of calls.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::Value;
use url::Url;

use crate::models::ErrorCode;

/// Reason that a call failed, after its retries.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The service refused the request.
    #[error("{0}")]
    Api(Box<ApiError>),
    /// No response arrived. A change that was requested may have happened.
    #[error("no response from {base}")]
    Connection {
        base: Url,
        #[source]
        source: reqwest::Error,
    },
    /// The response was a success, but not one that this version of the library can read.
    #[error("unreadable response to request {request_id}")]
    Unreadable {
        request_id: String,
        #[source]
        source: serde_json::Error,
    },
    /// The request cannot be sent as it is. It never left the program.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// Returns the code of a refusal.
    pub fn code(&self) -> Option<&ErrorCode> {
        match self {
            Error::Api(refusal) => Some(&refusal.code),
            _ => None,
        }
    }
}

/// A refusal by the service. Branch on `code`; for a code that you do not know, on the class of `status`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApiError {
    pub status: StatusCode,
    /// Stable code. `Other("rate_limit_exceeded")` is a rate limit.
    pub code: ErrorCode,
    /// Explanation for people. Its wording may change.
    pub message: String,
    /// Problems of each field, if the error is about fields.
    pub messages: BTreeMap<String, Vec<String>>,
    /// ID of the request, to quote to support.
    pub request_id: String,
    /// Time after which the request may be repeated.
    pub retry_after: Option<Duration>,
}

impl ApiError {
    /// Reads a response that is not a success. The body may be that of a proxy.
    pub(crate) fn read(status: StatusCode, request_id: String, retry_after: Option<Duration>, body: &[u8]) -> ApiError {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        // The refusal of a rate limit is flat: its code is the text of `error`.
        let (code, detail) = match &body["error"] {
            Value::String(code) => (code.clone(), &body),
            detail => (detail["code"].as_str().unwrap_or_default().to_owned(), detail),
        };
        let code = serde_json::from_value(Value::from(code.as_str())).unwrap_or(ErrorCode::Other(code));
        let message = detail["message"].as_str().or(status.canonical_reason()).unwrap_or_default().to_owned();
        let messages = serde_json::from_value(detail["messages"].clone()).unwrap_or_default();
        ApiError { status, code, message, messages, request_id, retry_after }
    }

    /// Returns whether a rate limit refused the request.
    pub fn is_rate_limit(&self) -> bool {
        self.status == StatusCode::TOO_MANY_REQUESTS
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.status.as_u16(), self.code, self.message.trim_end_matches('.'))?;
        for (field, problems) in &self.messages {
            write!(f, "; {field}: {}", problems.join(", "))?;
        }
        match self.request_id.as_str() {
            "" => Ok(()),
            id => write!(f, " (request {id})"),
        }
    }
}

impl std::error::Error for ApiError {}

impl From<ApiError> for Error {
    fn from(refusal: ApiError) -> Error {
        Error::Api(Box::new(refusal))
    }
}
