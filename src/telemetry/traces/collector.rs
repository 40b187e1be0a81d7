//! HTTP client of the collector.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use tokio::runtime::Handle;

/// Maximum size of an answer of the collector that is read, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Client that sends spans to the collector. The exporter calls it on a thread of its own, without a runtime, so requests run as
/// tasks of the node's runtime.
pub(super) struct Collector {
    http: reqwest::Client,
    runtime: Handle,
    /// Whether the last export failed, so that an outage is logged once.
    has_failed: AtomicBool,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector").finish_non_exhaustive()
    }
}

impl Collector {
    /// Creates a client that trusts these authorities in addition to the platform's, and whose requests end by the deadline. It
    /// must be created within a runtime.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn new(authorities: Vec<reqwest::Certificate>, deadline: Duration) -> Result<Collector, reqwest::Error> {
        // A redirect could lead the headers, which may hold a key, to another host.
        let http = reqwest::Client::builder().timeout(deadline).redirect(reqwest::redirect::Policy::none());
        let http = http.tls_certs_merge(authorities).build()?;
        Ok(Collector { http, runtime: Handle::current(), has_failed: AtomicBool::new(false) })
    }

    /// Logs the first failure of an outage, and its end. Errors never show the URL.
    fn note(&self, answer: &Result<Response<Bytes>, HttpError>) {
        let problem = match answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("the collector answered {}", answer.status().as_u16())),
            Err(error) => Some(error.to_string()),
        };
        match problem {
            Some(error) if !self.has_failed.swap(true, Ordering::Relaxed) => {
                tracing::warn!(error, "failed to export spans; they are lost until the collector answers");
            }
            None if self.has_failed.swap(false, Ordering::Relaxed) => tracing::info!("the collector takes spans again"),
            _ => {}
        }
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.runtime.spawn(send(self.http.clone(), request)).await;
        let answer = sent.unwrap_or_else(|error| Err(error.into()));
        self.note(&answer);
        answer
    }
}

async fn send(http: reqwest::Client, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let request = reqwest::Request::try_from(request).map_err(reqwest::Error::without_url)?;
    let mut answer = http.execute(request).await.map_err(reqwest::Error::without_url)?;
    let mut body = vec![];
    while body.len() < MAX_ANSWER_BYTES
        && let Some(chunk) = answer.chunk().await.map_err(reqwest::Error::without_url)?
    {
        body.extend_from_slice(&chunk);
    }
    let mut read = Response::new(Bytes::from(body));
    *read.status_mut() = answer.status();
    Ok(read)
}
