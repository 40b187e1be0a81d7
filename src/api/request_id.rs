//! The id of a request, from the first byte of its answer to the metadata of its events.

use std::fmt;

use poem::http::{HeaderMap, HeaderName, HeaderValue};
use poem::{FromRequest, Request, RequestBody};

/// The header that carries it, on the request (optional) and on every response.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

tokio::task_local! {
    /// Set by the edge for as long as a request is being answered, in its task.
    pub(super) static CURRENT: RequestId;
}

/// 1..128 characters of `[A-Za-z0-9._-]`: the caller's, else a new UUID.
///
/// It is kept as the header value that goes back, so that a clone costs a reference count.
/// A handler takes it as an argument: `request_id: RequestId`.
#[derive(Clone, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// The caller's id if it is a good one, else a new id. Two headers are not a good one.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut given = headers.get_all(X_REQUEST_ID).iter();
        match (given.next(), given.next()) {
            (Some(id), None) if is_good(id.as_bytes()) => Self(id.clone()),
            _ => Self::random(),
        }
    }

    /// A new random (version 4) UUID.
    pub fn random() -> Self {
        let id = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
        let mut text = uuid::Uuid::encode_buffer();
        let text = id.hyphenated().encode_lower(&mut text);
        // A UUID's text is always a header value; nothing here can fail.
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

/// The id of the request that this task is answering, if it is answering one.
/// A task spawned by a handler is another task: hand it the id.
pub fn current() -> Option<RequestId> {
    CURRENT.try_with(Clone::clone).ok()
}

/// The same, as a log field: empty outside a request.
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
    fn a_good_id_of_the_caller_is_kept() {
        for id in ["a", "A.b_c-9", &"x".repeat(128)] {
            assert_eq!(of(&[id]).as_str(), id);
        }
    }

    #[test]
    fn any_other_is_replaced_by_a_uuid() {
        for ids in [&[][..], &[""], &["a b"], &["a/b"], &["é"], &["a", "b"], &[&"x".repeat(129)]] {
            let id = of(ids);
            let uuid = uuid::Uuid::parse_str(id.as_str()).unwrap();
            assert_eq!(uuid.get_version_num(), 4, "{ids:?}");
        }
        assert_ne!(of(&[]), of(&[]));
    }
}
