//! HTTP client that the commands use to call the service.

use std::time::Duration;

use anyhow::{Context, anyhow};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode, Url};
use rewards_ledger_client::{Credentials, Error, Request, RetryPolicy};
use serde_json::Value;
use uuid::Uuid;

use crate::secrets::seal::Secret;

/// Retries for a person who waits: they take less than a second, unless the service asks for a longer pause.
const RETRIES: RetryPolicy =
    RetryPolicy { attempts: 3, first_pause: Duration::from_millis(200), longest_pause: Duration::from_secs(5) };

/// Credentials that a client sends.
#[derive(Clone, Debug)]
pub enum Caller {
    Operator(Secret),
    Client { api_key: String, api_secret: Secret, signing_secret: Option<Secret> },
}

/// HTTP client for one service and one caller: the library that clients use, with credentials of any kind.
#[derive(Clone, Debug)]
pub struct Client {
    transport: rewards_ledger_client::Client,
    /// Whether every POST gets an idempotency key. Those of the client API take one; others may not.
    is_keyed: bool,
}

/// A response of any status.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
}

/// A request body with its content type.
#[derive(Clone, Debug)]
pub struct Body {
    content_type: &'static str,
    bytes: Vec<u8>,
}

impl Body {
    pub fn json(text: impl Into<String>) -> Body {
        Body { content_type: "application/json", bytes: text.into().into_bytes() }
    }

    pub fn csv(text: String) -> Body {
        Body { content_type: "text/csv", bytes: text.into_bytes() }
    }

    pub fn text(text: String) -> Body {
        Body { content_type: "text/plain", bytes: text.into_bytes() }
    }

    pub fn xml(text: String) -> Body {
        Body { content_type: "application/xml", bytes: text.into_bytes() }
    }

    /// Creates a body of unspecified type (`application/octet-stream`).
    pub fn bytes(bytes: Vec<u8>) -> Body {
        Body { content_type: "application/octet-stream", bytes }
    }
}

impl Client {
    pub fn new(base: &Url, caller: Option<Caller>) -> anyhow::Result<Client> {
        let is_keyed = matches!(caller, Some(Caller::Client { .. }));
        let credentials = match caller {
            None => Credentials::Anonymous,
            Some(Caller::Operator(token)) => Credentials::access_token(token.expose()),
            Some(Caller::Client { api_key, api_secret, signing_secret: None }) => {
                Credentials::api_key(api_key, api_secret.expose())
            }
            Some(Caller::Client { api_key, api_secret, signing_secret: Some(signing_secret) }) => {
                Credentials::signed(api_key, api_secret.expose(), signing_secret.expose())
            }
        };
        let transport = rewards_ledger_client::Client::new(base.as_str(), credentials)?.with_retries(RETRIES);
        Ok(Client { transport, is_keyed })
    }

    /// Returns the client library, whose calls of the client API are typed.
    pub fn calls(&self) -> &rewards_ledger_client::Client {
        &self.transport
    }

    /// Sends a request, and again when that is safe. `path` starts with a slash and may have a query.
    ///
    /// # Errors
    /// If no response arrives. A response of any status is not an error.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Body>,
        further: &[(HeaderName, &str)],
    ) -> anyhow::Result<Reply> {
        let reply = self.exchange(method, path, body, further).await?;
        let body = String::from_utf8_lossy(&reply.body).into_owned();
        Ok(Reply { status: reply.status, headers: reply.headers, body })
    }

    /// Sends a GET request and returns the body, or none for a 404 response.
    ///
    /// # Errors
    /// If no response arrives, or one with a status other than 2xx or 404.
    pub async fn bytes(&self, path: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let reply = self.exchange(Method::GET, path, None, &[]).await?;
        match reply.status {
            StatusCode::NOT_FOUND => Ok(None),
            _ => Ok(Some(reply.success().map_err(failure).with_context(|| format!("cannot fetch {path}"))?.body)),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Body>,
        further: &[(HeaderName, &str)],
    ) -> anyhow::Result<rewards_ledger_client::Reply> {
        let mut request = Request::new(method, path);
        if self.is_keyed && request.method == Method::POST {
            request = request.idempotency_key(&Uuid::new_v4().to_string())?;
        }
        if let Some(body) = body {
            request = request.body(body.content_type, body.bytes);
        }
        for (name, value) in further {
            let value =
                HeaderValue::from_str(value).map_err(|_| anyhow!("the header {name} has characters that are not allowed"))?;
            request.headers.insert(name, value);
        }
        Ok(self.transport.send(&request).await?)
    }

    /// Sends a JSON request and returns the response's `data`, or its whole body if it has no `data`.
    ///
    /// # Errors
    /// If no response arrives, or one with a status other than 2xx. The error has the response's code and message.
    pub async fn json(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        self.send(method, path, body.map(|body| Body::json(body.to_string())), &[]).await?.data()
    }

    /// Appends a path to the base URL. The path goes onto the wire as given.
    pub fn url(&self, path: &str) -> anyhow::Result<Url> {
        Ok(self.transport.url(path)?)
    }

    /// Returns the headers that authenticate the caller, including a signature if the caller has a signing secret.
    pub fn headers(&self, method: &Method, url: &Url, body: &[u8]) -> anyhow::Result<Vec<(HeaderName, HeaderValue)>> {
        Ok(self.transport.authentication(method, url, body)?)
    }
}

impl Reply {
    /// Parses the body as JSON. Returns none if it is not JSON.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_str(&self.body).ok()
    }

    /// Returns the `data` of the response, or its whole body if it has no `data`.
    ///
    /// # Errors
    /// If the status is not 2xx. The error has the response's code, message, and invalid fields.
    pub fn data(self) -> anyhow::Result<Value> {
        let Reply { status, headers, body } = self;
        let reply = rewards_ledger_client::Reply { status, headers, body: body.into_bytes() }.success().map_err(failure)?;
        let mut body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        Ok(match body.get_mut("data") {
            Some(data) => data.take(),
            None => body,
        })
    }
}

/// Describes why a call failed.
pub fn failure(error: Error) -> anyhow::Error {
    match error {
        Error::Api(refusal) => anyhow!("the service answered {refusal}"),
        other => other.into(),
    }
}
