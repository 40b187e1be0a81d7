//! Calls of the API, in this process, as the user who is signed in.

use std::collections::BTreeMap;

use poem::http::{HeaderMap, StatusCode, header};
use poem::{Body, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// An error response of the API.
#[derive(Debug, Clone)]
pub struct Refusal {
    pub status: StatusCode,
    pub code: String,
    pub message: String,
    /// Problems by the name of the field.
    pub messages: BTreeMap<String, Vec<String>>,
    /// Seconds to wait before a further attempt.
    pub retry_after: Option<u32>,
}

/// The envelope of an error.
#[derive(Deserialize)]
struct Envelope {
    error: Detail,
}

#[derive(Deserialize)]
struct Detail {
    code: String,
    message: String,
    #[serde(default)]
    messages: Option<BTreeMap<String, Vec<String>>>,
}

/// Body of a response to a request above a rate limit.
#[derive(Deserialize)]
struct Limited {
    error: String,
    message: String,
}

impl Refusal {
    pub fn new(status: StatusCode, code: &str, message: &str) -> Refusal {
        Refusal { status, code: code.to_owned(), message: message.to_owned(), messages: BTreeMap::new(), retry_after: None }
    }

    /// Creates the refusal of a form whose field is wrong.
    pub fn of_field(field: &str, problem: &str) -> Refusal {
        let mut refusal = Refusal::new(StatusCode::BAD_REQUEST, "E_VALIDATION_FAILURE", "Some fields are not valid.");
        refusal.messages.insert(field.to_owned(), vec![problem.to_owned()]);
        refusal
    }

    /// Returns whether a form can show the refusal, so that its user can correct it: any error of the request.
    pub fn is_correctable(&self) -> bool {
        self.status.is_client_error() && !matches!(self.status, StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND)
    }

    /// Returns whether the change may still take effect, so that only a repetition under the same key is safe.
    pub fn is_undecided(&self) -> bool {
        matches!(self.code.as_str(), "E_OUTCOME_UNKNOWN" | "E_IDEMPOTENCY_IN_PROGRESS")
    }

    /// Says in plain words what became of a form that was sent under a key.
    #[must_use]
    pub fn of_keyed_form(mut self) -> Refusal {
        if self.is_undecided() {
            self.message = "It is not known yet whether this took effect. Send the form again: it takes effect once.".to_owned();
        } else if self.code == "E_IDEMPOTENCY_KEY_REUSED" {
            self.message =
                "This form was already sent, with other values, and took effect. Check what it did before you send it \
                again."
                    .to_owned();
        }
        self
    }

    /// Returns the refusal in the form of the envelope's `error`.
    pub fn as_error(&self) -> Value {
        json!({ "code": self.code, "message": self.message, "messages": self.messages })
    }

    /// Reads the response to a request that was refused.
    async fn read(mut response: Response) -> Refusal {
        let body = response.take_body().into_bytes().await.unwrap_or_default();
        Refusal::of(response.status(), response.headers(), &body)
    }

    fn of(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Refusal {
        let retry_after = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        if let Ok(Limited { error, message }) = serde_json::from_slice(body) {
            return Refusal { retry_after, ..Refusal::new(status, &error, &message) };
        }
        let Ok(Envelope { error }) = serde_json::from_slice(body) else {
            return Refusal::new(status, "E_INTERNAL", "The service failed. Try again.");
        };
        Refusal { status, code: error.code, message: error.message, messages: error.messages.unwrap_or_default(), retry_after }
    }
}

/// A page of a list.
#[derive(Debug)]
pub struct List<T> {
    pub items: Vec<T>,
    /// Number of the page, from 1.
    pub page: u64,
    pub pages: u64,
    /// Number of items on all pages.
    pub total: u64,
}

/// A successful response of the API.
#[derive(Debug)]
pub struct Answered {
    pub headers: HeaderMap,
    body: Vec<u8>,
}

#[derive(Deserialize)]
struct Wrapper<T> {
    data: T,
}

impl Answered {
    /// Reads a response.
    ///
    /// # Errors
    /// The refusal, for any status but a success.
    pub async fn read(mut response: Response) -> Result<Answered, Refusal> {
        let body = response.take_body().into_bytes().await;
        let body = body.map_err(|_| Refusal::new(StatusCode::BAD_GATEWAY, "E_INTERNAL", "The service failed. Try again."))?;
        match response.status().is_success() {
            true => Ok(Answered { headers: response.headers().clone(), body: body.to_vec() }),
            false => Err(Refusal::of(response.status(), response.headers(), &body)),
        }
    }

    /// Returns the body of a response as it arrives, however long it is.
    ///
    /// # Errors
    /// The refusal, for any status but a success.
    pub async fn body_of(mut response: Response) -> Result<Body, Refusal> {
        match response.status().is_success() {
            true => Ok(response.take_body()),
            false => Err(Refusal::read(response).await),
        }
    }

    /// Returns the whole body, for responses that are not JSON.
    pub fn into_bytes(self) -> Vec<u8> {
        self.body
    }

    /// Returns `data`.
    ///
    /// # Errors
    /// If it does not have this shape. That is a fault of the page.
    pub fn data<T: DeserializeOwned>(self) -> Result<T, Refusal> {
        let wrapper: Wrapper<T> = self.json()?;
        Ok(wrapper.data)
    }

    /// Returns the whole JSON body.
    ///
    /// # Errors
    /// If it does not have this shape. That is a fault of the page.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        serde_json::from_slice(&self.body).map_err(|error| {
            tracing::error!(%error, "a page cannot read a response of the API");
            Refusal::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "E_INTERNAL",
                "The page failed. The operators of the service can see why.",
            )
        })
    }

    /// Returns a list: `data.<plural>`, with the page from the headers.
    ///
    /// # Errors
    /// If it does not have this shape. That is a fault of the page.
    pub fn list<T: DeserializeOwned>(self, plural: &str) -> Result<List<T>, Refusal> {
        let number = |name: &str| self.headers.get(name).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        let (page, pages, total) = (number("x-page"), number("x-total-pages"), number("x-total-count"));
        let mut data: BTreeMap<String, Vec<T>> = self.data()?;
        let items = data.remove(plural).unwrap_or_default();
        let total = total.unwrap_or(items.len() as u64);
        Ok(List { items, page: page.unwrap_or(1), pages: pages.unwrap_or(1), total })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io;

    use futures::{StreamExt, stream};

    use super::*;

    #[tokio::test]
    async fn a_body_is_passed_on_before_it_ends() {
        let endless = stream::iter([Ok::<_, io::Error>("first")]).chain(stream::pending());
        let response = Response::builder().body(Body::from_bytes_stream(endless));
        let mut parts = std::pin::pin!(Answered::body_of(response).await.unwrap().into_bytes_stream());
        assert_eq!(parts.next().await.unwrap().unwrap(), "first");
        let refused = Response::builder().status(StatusCode::NOT_FOUND).body("<html>");
        assert_eq!(Answered::body_of(refused).await.unwrap_err().status, StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn a_list_has_its_page_from_the_headers() {
        let body = r#"{"success":true,"data":{"orders":[1,2]}}"#;
        let response = Response::builder().header("X-Page", 2).header("X-Total-Pages", 3).header("X-Total-Count", 6).body(body);
        let list: List<i64> = Answered::read(response).await.unwrap().list("orders").unwrap();
        assert_eq!((list.items, list.page, list.pages, list.total), (vec![1, 2], 2, 3, 6));
    }

    #[tokio::test]
    async fn a_refusal_has_its_problems_by_field() {
        let body = r#"{"success":false,"error":{"name":"x","code":"E_VALIDATION_FAILURE","message":"No.","messages":{"quantity":["is required"]}}}"#;
        let response = Response::builder().status(StatusCode::BAD_REQUEST).header("Retry-After", 7).body(body);
        let refusal = Answered::read(response).await.unwrap_err();
        assert_eq!((refusal.code.as_str(), refusal.retry_after), ("E_VALIDATION_FAILURE", Some(7)));
        assert_eq!(refusal.messages["quantity"], ["is required"]);
        let limited = r#"{"error":"rate_limit_exceeded","message":"Too many logins.","retry_after":9}"#;
        let limited = Response::builder().status(StatusCode::TOO_MANY_REQUESTS).header("Retry-After", 9).body(limited);
        let refusal = Answered::read(limited).await.unwrap_err();
        assert_eq!((refusal.message.as_str(), refusal.retry_after), ("Too many logins.", Some(9)));
        let broken = Response::builder().status(StatusCode::BAD_GATEWAY).body("<html>");
        assert_eq!(Answered::read(broken).await.unwrap_err().code, "E_INTERNAL");
    }
}
