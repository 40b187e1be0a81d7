//! The transport: credentials, signatures, and retries.

use std::time::Duration;

use chrono::Utc;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, StatusCode};
use url::Url;

use crate::error::{ApiError, Error};
use crate::models::ErrorCode;
use crate::retry::{Outcome, RetryPolicy};
use crate::secret::Secret;
use crate::signing;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const X_API_SECRET: HeaderName = HeaderName::from_static("x-api-secret");
const X_SIGNATURE: HeaderName = HeaderName::from_static("x-signature");

/// Timeout of one attempt; longer than the service's own deadlines and the wait for events.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Credentials that every request is sent with. `Debug` does not show the secrets.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Credentials {
    /// None, for operations such as a login.
    Anonymous,
    /// An API key. With a signing secret, every request is signed.
    ApiKey { key: String, secret: Secret, signing_secret: Option<Secret> },
    /// The access token of a person.
    AccessToken(Secret),
}

impl Credentials {
    pub fn api_key(key: impl Into<String>, secret: impl Into<Secret>) -> Credentials {
        Credentials::ApiKey { key: key.into(), secret: secret.into(), signing_secret: None }
    }

    /// Creates the credentials of an API key that requires signed requests.
    pub fn signed(key: impl Into<String>, secret: impl Into<Secret>, signing_secret: impl Into<Secret>) -> Credentials {
        Credentials::ApiKey { key: key.into(), secret: secret.into(), signing_secret: Some(signing_secret.into()) }
    }

    pub fn access_token(token: impl Into<Secret>) -> Credentials {
        Credentials::AccessToken(token.into())
    }
}

/// A client of one service with one caller's credentials. It pools its connections; a clone shares them.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    credentials: Credentials,
    retries: RetryPolicy,
    timeout: Duration,
}

/// A request as it goes onto the wire, without the headers that authenticate the caller.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: Method,
    /// Path and query, from the first slash. They are sent as they are.
    pub target: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// A response of any status.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Request {
    pub fn new(method: Method, target: impl Into<String>) -> Request {
        Request { method, target: target.into(), headers: HeaderMap::new(), body: vec![] }
    }

    /// Sets the body with its content type.
    pub fn body(mut self, content_type: &'static str, bytes: Vec<u8>) -> Request {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        self.body = bytes;
        self
    }

    /// Sets the idempotency key, which makes it safe to repeat a POST that takes one.
    ///
    /// # Errors
    /// If the key has characters that are not allowed in a header.
    pub fn idempotency_key(mut self, key: &str) -> Result<Request, Error> {
        let value = HeaderValue::from_str(key).map_err(|_| Error::Invalid("the idempotency key is not ASCII".into()))?;
        self.headers.insert(IDEMPOTENCY_KEY, value);
        Ok(self)
    }

    /// Returns whether repeating the request cannot make its effect happen twice.
    fn is_repeatable(&self) -> bool {
        self.method.is_idempotent() || self.headers.contains_key(IDEMPOTENCY_KEY)
    }
}

impl Reply {
    /// Returns the ID of the request, or an empty text if the response has none.
    pub fn request_id(&self) -> String {
        self.headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned()
    }

    /// Returns the reply.
    ///
    /// # Errors
    /// If its status is not a success.
    pub fn success(self) -> Result<Reply, Error> {
        match self.status.is_success() {
            true => Ok(self),
            false => Err(ApiError::read(self.status, self.request_id(), self.retry_after(), &self.body).into()),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        let seconds = self.headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
        Some(Duration::from_secs(seconds))
    }
}

impl Client {
    /// Creates a client of the service at `base`, for example `https://rewards.example.com`.
    ///
    /// # Errors
    /// If `base` is not a URL.
    pub fn new(base: &str, credentials: Credentials) -> Result<Client, Error> {
        let base: Url = base.parse().map_err(|problem| Error::Invalid(format!("{base:?} is not a URL: {problem}")))?;
        // A redirect could lead the credentials to another host.
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build();
        let http = http.map_err(|source| Error::Connection { base: base.clone(), source })?;
        Ok(Client { http, base, credentials, retries: RetryPolicy::default(), timeout: TIMEOUT })
    }

    /// Changes when requests are repeated.
    pub fn with_retries(self, retries: RetryPolicy) -> Client {
        Client { retries, ..self }
    }

    /// Changes the timeout of one attempt. The default is a minute.
    pub fn with_timeout(self, timeout: Duration) -> Client {
        Client { timeout, ..self }
    }

    /// Sends requests through another HTTP client, for example behind a proxy. It must not follow redirects.
    pub fn with_http(self, http: reqwest::Client) -> Client {
        Client { http, ..self }
    }

    /// Sends a request, and repeats it by the client's policy. The operations do this; it is public for paths that this
    /// version of the library does not know.
    ///
    /// # Errors
    /// If no response arrives. A response of any status is not an error.
    pub async fn send(&self, request: &Request) -> Result<Reply, Error> {
        let url = self.url(&request.target)?;
        let mut attempt = 1;
        loop {
            let result = self.attempt(request, &url).await;
            let pause = outcome(&result)
                .and_then(|outcome| self.retries.pause(attempt, outcome, request.is_repeatable(), rand::random_range(0.0..1.0)));
            match pause {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return result,
            }
            attempt += 1;
        }
    }

    async fn attempt(&self, request: &Request, url: &Url) -> Result<Reply, Error> {
        let mut attempt = self.http.request(request.method.clone(), url.clone()).timeout(self.timeout);
        attempt = attempt.headers(request.headers.clone());
        // Each attempt has a signature of its own: it contains the time.
        for (name, value) in self.authentication(&request.method, url, &request.body)? {
            attempt = attempt.header(name, value);
        }
        if request.headers.contains_key(CONTENT_TYPE) {
            attempt = attempt.body(request.body.clone());
        }
        let no_response = |error: reqwest::Error| Error::Connection { base: self.base.clone(), source: error.without_url() };
        let response = attempt.send().await.map_err(no_response)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await.map_err(no_response)?.into();
        Ok(Reply { status, headers, body })
    }

    /// Appends a path and query to the base URL, as they are.
    ///
    /// # Errors
    /// If the target does not begin with a slash, or is not one.
    pub fn url(&self, target: &str) -> Result<Url, Error> {
        if !target.starts_with('/') {
            return Err(Error::Invalid(format!("the path {target:?} must start with a slash")));
        }
        let text = format!("{}{target}", self.base.as_str().trim_end_matches('/'));
        text.parse().map_err(|problem| Error::Invalid(format!("{target:?} is not a path: {problem}")))
    }

    /// Returns the headers that authenticate the caller, including a signature if there is a signing secret.
    ///
    /// # Errors
    /// If a key, secret or token has characters that are not allowed in a header.
    pub fn authentication(&self, method: &Method, url: &Url, body: &[u8]) -> Result<Vec<(HeaderName, HeaderValue)>, Error> {
        let value = |text: &str| {
            let problem = "a key, secret or token has characters that are not allowed in a header";
            let mut value = HeaderValue::from_str(text).map_err(|_| Error::Invalid(problem.to_owned()))?;
            value.set_sensitive(true);
            Ok::<_, Error>(value)
        };
        let mut headers = vec![];
        match &self.credentials {
            Credentials::Anonymous => {}
            Credentials::AccessToken(token) => headers.push((AUTHORIZATION, value(&format!("Bearer {}", token.expose()))?)),
            Credentials::ApiKey { key, secret, signing_secret } => {
                headers.push((X_API_KEY, value(key)?));
                headers.push((X_API_SECRET, value(secret.expose())?));
                if let Some(secret) = signing_secret {
                    let now = Utc::now().timestamp();
                    let canonical = signing::canonical_string(method.as_str(), url.path(), url.query(), body, now);
                    headers.push((X_SIGNATURE, value(&signing::header(now, &signing::sign(secret.expose(), &canonical)))?));
                }
            }
        }
        Ok(headers)
    }
}

/// Returns the part of a result that decides on a retry, or none for a request that cannot be sent.
fn outcome(result: &Result<Reply, Error>) -> Option<Outcome> {
    match result {
        Ok(reply) => {
            let retry_after = reply.retry_after();
            let in_progress = reply.status == StatusCode::CONFLICT
                && ApiError::read(reply.status, String::new(), None, &reply.body).code == ErrorCode::IdempotencyInProgress;
            Some(Outcome::Response { status: reply.status, in_progress, retry_after })
        }
        Err(Error::Connection { source, .. }) if source.is_connect() => Some(Outcome::NoConnection),
        Err(Error::Connection { .. }) => Some(Outcome::NoResponse),
        Err(_) => None,
    }
}
