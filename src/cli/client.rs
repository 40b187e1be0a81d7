//! HTTP client that the commands use to call the service.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use chrono::Utc;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode, Url};
use serde_json::Value;

use crate::access::request_signature::{canonical_string, header, sign};
use crate::secrets::seal::Secret;

/// Timeout of a request; longer than the service's own deadlines.
const DEADLINE: Duration = Duration::from_secs(60);

/// Credentials that a client sends.
#[derive(Clone, Debug)]
pub enum Caller {
    Operator(Secret),
    Client { api_key: String, api_secret: Secret, signing_secret: Option<Secret> },
}

/// HTTP client for one service and one caller.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    caller: Option<Caller>,
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
        let http = reqwest::Client::builder().timeout(DEADLINE).redirect(reqwest::redirect::Policy::none()).build()?;
        Ok(Client { http, base: base.clone(), caller })
    }

    /// Sends one request. `path` starts with a slash and may have a query.
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
        let url = self.url(path)?;
        let mut request = self.http.request(method.clone(), url.clone());
        for (name, value) in self.headers(&method, &url, body.as_ref().map_or(&[], |body| &body.bytes))? {
            request = request.header(name, value);
        }
        for (name, value) in further {
            request = request.header(name, *value);
        }
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, body.content_type).body(body.bytes);
        }
        let no_answer = || format!("no response from {}", self.base);
        let response = request.send().await.map_err(reqwest::Error::without_url).with_context(no_answer)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.text().await.map_err(reqwest::Error::without_url).with_context(no_answer)?;
        Ok(Reply { status, headers, body })
    }

    /// Sends a GET request and returns the body, or none for a 404 response.
    ///
    /// # Errors
    /// If no response arrives, or one with a status other than 2xx or 404.
    pub async fn bytes(&self, path: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let url = self.url(path)?;
        let mut request = self.http.get(url.clone());
        for (name, value) in self.headers(&Method::GET, &url, &[])? {
            request = request.header(name, value);
        }
        let no_answer = || format!("no response from {}", self.base);
        let response = request.send().await.map_err(reqwest::Error::without_url).with_context(no_answer)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = response.bytes().await.map_err(reqwest::Error::without_url).with_context(no_answer)?;
        match status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => Ok(Some(bytes.into())),
            status => {
                let refused = Reply { status, headers, body: String::from_utf8_lossy(&bytes).into_owned() };
                refused.data().with_context(|| format!("cannot fetch {path}"))?;
                Ok(None)
            }
        }
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
        if !path.starts_with('/') {
            bail!("the path {path:?} must start with a slash");
        }
        let text = format!("{}{path}", self.base.as_str().trim_end_matches('/'));
        Url::parse(&text).with_context(|| format!("{path:?} is not a path"))
    }

    /// Returns the headers that authenticate the caller, including a signature if the caller has a signing secret.
    pub fn headers(&self, method: &Method, url: &Url, body: &[u8]) -> anyhow::Result<Vec<(HeaderName, HeaderValue)>> {
        let value = |text: &str| {
            let mut value = HeaderValue::from_str(text)
                .map_err(|_| anyhow!("a key, secret or token has characters that are not allowed in a header"))?;
            value.set_sensitive(true);
            Ok::<_, anyhow::Error>(value)
        };
        let mut headers = Vec::new();
        match &self.caller {
            None => {}
            Some(Caller::Operator(token)) => headers.push((AUTHORIZATION, value(&format!("Bearer {}", token.expose()))?)),
            Some(Caller::Client { api_key, api_secret, signing_secret }) => {
                headers.push((HeaderName::from_static("x-api-key"), value(api_key)?));
                headers.push((HeaderName::from_static("x-api-secret"), value(api_secret.expose())?));
                if let Some(secret) = signing_secret {
                    let now = Utc::now().timestamp();
                    let canonical = canonical_string(method.as_str(), url.path(), url.query(), body, now);
                    let signature = header(now, &sign(secret.expose(), &canonical));
                    headers.push((HeaderName::from_static("x-signature"), value(&signature)?));
                }
            }
        }
        Ok(headers)
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
        let mut body = self.json().unwrap_or_default();
        if self.status.is_success() {
            return Ok(match body.get_mut("data") {
                Some(data) => data.take(),
                None => body,
            });
        }
        let error = body.get("error").cloned().unwrap_or_default();
        let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
        let code = if text("code").is_empty() { error.as_str().unwrap_or_default() } else { text("code") };
        let fields = error.get("messages").and_then(Value::as_object).into_iter().flatten();
        let fields: Vec<String> = fields.map(|(field, problems)| format!("{field} {}", super::output::shown(problems))).collect();
        let details = if fields.is_empty() { String::new() } else { format!(" ({})", fields.join("; ")) };
        bail!("the service answered {} {code}: {}{details}", self.status.as_u16(), text("message").trim_end_matches('.'));
    }
}
