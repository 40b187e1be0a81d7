//! The request ID. It appears in every response, in the logs, and in the metadata of the request's events.

use std::fmt;

use poem::http::{HeaderMap, HeaderName, HeaderValue};
use poem::{FromRequest, Request, RequestBody};

/// Header of the request ID, optional in requests and present in every response.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

tokio::task_local! {
    /// ID of the request that the current task handles. The edge sets it.
    pub(super) static CURRENT: RequestId;
}

/// The ID of a request: 1 to 128 characters of `[A-Za-z0-9._-]`, chosen by the caller, or a new UUID.
///
/// It is stored as the header value of the response, so that a clone only increments a reference count. Handlers take it
/// as an argument: `request_id: RequestId`.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// Returns the caller's ID if it is valid, else a new one. More than one header is not valid.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut given = headers.get_all(X_REQUEST_ID).iter();
        match (given.next(), given.next()) {
            (Some(id), None) if is_good(id.as_bytes()) => Self(id.clone()),
            _ => Self::random(),
        }
    }

    /// Generates a random (version 4) UUID.
    pub fn random() -> Self {
        let id = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
        let mut text = uuid::Uuid::encode_buffer();
        let text = id.hyphenated().encode_lower(&mut text);
        // The text of a UUID is always a valid header value, so this cannot fail.
        Self(HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("-")))
    }

    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    pub fn header(&self) -> &HeaderValue {
        &self.0
    }
}

fn is_good(id: &[u8]) -> bool {
    let good = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=128).contains(&id.len()) && id.iter().all(good)
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestId({self})")
    }
}

impl<'a> FromRequest<'a> for RequestId {
    async fn from_request(request: &'a Request, _: &mut RequestBody) -> poem::Result<Self> {
        let given = request.extensions().get::<Self>().cloned();
        Ok(given.unwrap_or_else(Self::random))
    }
}

/// Returns the ID of the request that the current task handles, if any. A task that a handler spawns does not inherit it,
/// so pass the ID on.
pub fn current() -> Option<RequestId> {
    CURRENT.try_with(Clone::clone).ok()
}

/// Returns the current request ID as a log field; empty outside of a request.
pub(super) fn current_text() -> String {
    current().map(|id| id.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> RequestId {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(X_REQUEST_ID, value.parse().unwrap());
        }
        RequestId::of(&headers)
    }

    #[test]
    fn a_valid_id_of_the_caller_is_kept() {
        for id in ["a", "A.b_c-9", &"x".repeat(128)] {
            assert_eq!(of(&[id]).as_str(), id);
        }
    }

    #[test]
    fn an_invalid_id_is_replaced_by_a_uuid() {
        for ids in [&[][..], &[""], &["a b"], &["a/b"], &["é"], &["a", "b"], &[&"x".repeat(129)]] {
            let id = of(ids);
            let uuid = uuid::Uuid::parse_str(id.as_str()).unwrap();
            assert_eq!(uuid.get_version_num(), 4, "{ids:?}");
        }
        assert_ne!(of(&[]), of(&[]));
    }
}
