//! Calls of operations.

use std::collections::HashMap;
use std::fmt;
use std::future::IntoFuture;

use futures::future::BoxFuture;
use futures::stream::{self, Stream};
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use url::form_urlencoded::{Serializer, byte_serialize};
use uuid::Uuid;

use crate::client::{Client, Reply, Request};
use crate::error::Error;

/// A call of one operation. Await it to send it; `send` also returns the response's headers.
///
/// A POST has one idempotency key, which all attempts share. It is random unless you set one.
#[must_use = "a call is sent when it is awaited"]
pub struct Call<T> {
    client: Client,
    method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
    body: Option<Result<Vec<u8>, String>>,
    key: Option<String>,
    read: fn(&Reply, &'static str) -> Result<T, serde_json::Error>,
    /// Field of `data` that contains the list.
    field: &'static str,
}

/// A success with the headers of its response.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Response<T> {
    pub data: T,
    pub headers: HeaderMap,
    /// ID of the request, to quote to support.
    pub request_id: String,
    /// Whether this is the response to an earlier request with the same idempotency key.
    pub is_replayed: bool,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Number of the page, from 1.
    pub page: u64,
    /// Number of pages.
    pub total_pages: u64,
    /// Number of items on all pages.
    pub total_count: u64,
}

#[derive(serde::Deserialize)]
struct Data<T> {
    data: T,
}

impl<T: DeserializeOwned> Call<T> {
    /// A call whose reply wraps the object in `data`.
    pub(crate) fn data(client: &Client, method: Method, path: String) -> Call<T> {
        Call::new(client, method, path, "", |reply, _| serde_json::from_slice::<Data<T>>(&reply.body).map(|reply| reply.data))
    }

    /// A call whose reply is the object.
    pub(crate) fn bare(client: &Client, method: Method, path: String) -> Call<T> {
        Call::new(client, method, path, "", |reply, _| serde_json::from_slice(&reply.body))
    }
}

impl<T: DeserializeOwned> Call<Vec<T>> {
    /// A call of a list without pages.
    pub(crate) fn list(client: &Client, method: Method, path: String, field: &'static str) -> Call<Vec<T>> {
        Call::new(client, method, path, field, list)
    }
}

impl<T: DeserializeOwned> Call<Page<T>> {
    /// A call of a list with pages.
    pub(crate) fn page(client: &Client, method: Method, path: String, field: &'static str) -> Call<Page<T>> {
        Call::new(client, method, path, field, |reply, field| {
            let number = |name: &str| reply.headers.get(name).and_then(|value| value.to_str().ok()?.parse().ok());
            Ok(Page {
                items: list(reply, field)?,
                page: number("x-page").unwrap_or(1),
                total_pages: number("x-total-pages").unwrap_or(1),
                total_count: number("x-total-count").unwrap_or_default(),
            })
        })
    }

    /// Returns the items of this page and all that follow. Each page is requested when its first item is.
    ///
    /// The stream ends after an error.
    pub fn items(self) -> impl Stream<Item = Result<T, Error>> + Send
    where
        T: Send + 'static,
    {
        let begin = (Some(self), vec![].into_iter());
        stream::try_unfold(begin, |(mut next, mut items)| async move {
            loop {
                if let Some(item) = items.next() {
                    return Ok(Some((item, (next, items))));
                }
                let Some(call) = next else { return Ok(None) };
                let page = call.fetch().await?.data;
                next = (page.page < page.total_pages).then(|| call.at_page(page.page + 1));
                items = page.items.into_iter();
            }
        })
    }

    fn at_page(mut self, page: u64) -> Call<Page<T>> {
        self.query.retain(|(name, _)| *name != "page");
        self.query.push(("page", page.to_string()));
        self
    }
}

impl Call<Vec<u8>> {
    /// A call that returns bytes.
    pub(crate) fn bytes(client: &Client, method: Method, path: String) -> Call<Vec<u8>> {
        Call::new(client, method, path, "", |reply, _| Ok(reply.body.clone()))
    }
}

impl<T> Call<T> {
    fn new(
        client: &Client,
        method: Method,
        path: String,
        field: &'static str,
        read: fn(&Reply, &'static str) -> Result<T, serde_json::Error>,
    ) -> Call<T> {
        Call { client: client.clone(), method, path, query: vec![], body: None, key: None, read, field }
    }

    pub(crate) fn query(self, query: Vec<(&'static str, String)>) -> Call<T> {
        Call { query, ..self }
    }

    pub(crate) fn json(self, body: Option<&impl Serialize>) -> Call<T> {
        let body = body.map(|body| serde_json::to_vec(body).map_err(|problem| problem.to_string()));
        Call { body, ..self }
    }

    /// Gives the call a random idempotency key.
    pub(crate) fn keyed(self) -> Call<T> {
        self.idempotency_key(Uuid::new_v4())
    }

    /// Sets the idempotency key: 1 to 255 printable ASCII characters. Use the same key for each call that means the same
    /// thing, for example after your program was restarted. Put no personal data into it.
    pub fn idempotency_key(self, key: impl Into<String>) -> Call<T> {
        Call { key: Some(key.into()), ..self }
    }

    /// Sends the call.
    ///
    /// # Errors
    /// If the service refuses it, or after the last attempt without a response.
    pub async fn send(self) -> Result<Response<T>, Error> {
        self.fetch().await
    }

    /// Sends the call, and returns the success as it arrived, for example to keep the bytes of events.
    ///
    /// # Errors
    /// If the service refuses it, or after the last attempt without a response.
    pub async fn reply(self) -> Result<Reply, Error> {
        self.exchange().await
    }

    async fn exchange(&self) -> Result<Reply, Error> {
        self.client.send(&self.request()?).await?.success()
    }

    async fn fetch(&self) -> Result<Response<T>, Error> {
        let reply = self.exchange().await?;
        let request_id = reply.request_id();
        let data = match (self.read)(&reply, self.field) {
            Ok(data) => data,
            Err(source) => return Err(Error::Unreadable { request_id, source }),
        };
        let is_replayed = reply.headers.get("idempotent-replayed").is_some_and(|value| value == "true");
        Ok(Response { data, headers: reply.headers, request_id, is_replayed })
    }

    fn request(&self) -> Result<Request, Error> {
        let mut target = self.path.clone();
        if !self.query.is_empty() {
            target.push('?');
            target.push_str(&Serializer::new(String::new()).extend_pairs(&self.query).finish());
        }
        let mut request = Request::new(self.method.clone(), target);
        if let Some(body) = self.body.clone() {
            request = request.body("application/json", body.map_err(Error::Invalid)?);
        }
        match &self.key {
            Some(key) => request.idempotency_key(key),
            None => Ok(request),
        }
    }
}

impl<T: 'static> IntoFuture for Call<T> {
    type Output = Result<T, Error>;
    type IntoFuture = BoxFuture<'static, Result<T, Error>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.send().await?.data) })
    }
}

impl<T> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The body may contain a password.
        f.debug_struct("Call").field("method", &self.method).field("path", &self.path).finish_non_exhaustive()
    }
}

/// Reads the list in the field of `data`, and ignores other fields.
fn list<T: DeserializeOwned>(reply: &Reply, field: &'static str) -> Result<Vec<T>, serde_json::Error> {
    let mut reply: Data<HashMap<String, Box<RawValue>>> = serde_json::from_slice(&reply.body)?;
    match reply.data.remove(field) {
        Some(items) => serde_json::from_str(items.get()),
        None => Err(serde::de::Error::missing_field(field)),
    }
}

/// Encodes a text as one segment of a path.
pub(crate) fn segment(text: &str) -> String {
    // In a path, a plus is a plus.
    byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}
