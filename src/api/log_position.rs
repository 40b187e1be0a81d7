//! `X-Log-Position`: the position that the log has reached after a change. A client that sends it with a read sees the change,
//! whichever server serves the read.
//!
//! It is sealed, because positions tell how many events all accounts together have. A node that cannot open it reads
//! everything that the primary has committed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ledger_database::PgPool;
use poem::http::{self, HeaderName, HeaderValue};
use poem::{Body, Endpoint, IntoResponse, Middleware, Request, Response, Result};

use crate::ledger::Ledger;
use crate::ledger::log_position::LogPosition;
use crate::secrets::LOG_POSITION;
use crate::secrets::seal::Keyring;

/// Header of the position, optional in requests and present in responses to changes.
pub const X_LOG_POSITION: HeaderName = HeaderName::from_static("x-log-position");

tokio::task_local! {
    /// Pool for the reads of the request that the current task handles, if a standby may serve them.
    static READ_POOL: PgPool;
}

/// Returns the pool for the reads of the request that the current task handles.
pub(super) fn read_pool(ledger: &Ledger) -> PgPool {
    READ_POOL.try_with(Clone::clone).unwrap_or_else(|_| ledger.pool().clone())
}

/// Encodes a position as the header's value.
fn seal(keyring: &Keyring, position: &LogPosition) -> Option<HeaderValue> {
    let sealed = keyring.seal(LOG_POSITION, 0, &position.to_bytes()).ok()?;
    HeaderValue::from_str(&URL_SAFE_NO_PAD.encode(sealed)).ok()
}

/// Decodes the header's value, if this service has made it.
fn open(keyring: &Keyring, value: &HeaderValue) -> Option<LogPosition> {
    let sealed = URL_SAFE_NO_PAD.decode(value).ok()?;
    LogPosition::from_bytes(&keyring.open(LOG_POSITION, 0, &sealed).ok()?)
}

/// Middleware that lets the standby serve reads, and gives clients the log's position with each change. A read that fails on
/// the standby is repeated on the primary.
#[derive(Debug, Clone)]
pub struct ReadYourWrites {
    pub ledger: Ledger,
    pub keyring: Arc<Keyring>,
}

impl<E: Endpoint> Middleware<E> for ReadYourWrites {
    type Output = ReadYourWritesEndpoint<E>;

    fn transform(&self, inner: E) -> Self::Output {
        ReadYourWritesEndpoint { inner, ledger: self.ledger.clone(), keyring: self.keyring.clone() }
    }
}

/// An endpoint wrapped by [`ReadYourWrites`].
#[derive(Debug)]
pub struct ReadYourWritesEndpoint<E> {
    inner: E,
    ledger: Ledger,
    keyring: Arc<Keyring>,
}

impl<E: Endpoint> Endpoint for ReadYourWritesEndpoint<E> {
    type Output = Response;

    async fn call(&self, request: Request) -> Result<Response> {
        let known = request.headers().get(X_LOG_POSITION).and_then(|value| open(&self.keyring, value));
        if !request.method().is_safe() {
            return self.change(request, known).await;
        }
        let Some(standby) = self.ledger.standby() else {
            return self.inner.call(request).await.map(IntoResponse::into_response);
        };
        let (is_on_standby, again) = (Arc::new(AtomicBool::new(false)), copy(&request));
        let pool = standby.read_pool(self.ledger.pool(), known, is_on_standby.clone());
        let response = READ_POOL.scope(pool, self.inner.call(request)).await.map(IntoResponse::into_response);
        let status = response.as_ref().map_or_else(|error| error.status(), Response::status);
        if status.is_server_error() && is_on_standby.load(Ordering::Relaxed) {
            tracing::warn!(status = status.as_u16(), "a read has failed on the standby; repeating it on the primary");
            return self.inner.call(again).await.map(IntoResponse::into_response);
        }
        response
    }
}

impl<E: Endpoint> ReadYourWritesEndpoint<E> {
    /// Handles a change. The position in its response includes the one in the request, which another node may have given.
    async fn change(&self, request: Request, known: Option<LogPosition>) -> Result<Response> {
        let mut response = self.inner.call(request).await?.into_response();
        let position = self.ledger.answered_at().later(known.unwrap_or_default());
        if response.status().is_success()
            && !position.is_empty()
            && let Some(value) = seal(&self.keyring, &position)
        {
            response.headers_mut().insert(X_LOG_POSITION, value);
        }
        Ok(response)
    }
}

/// Copies a request without a body.
fn copy(request: &Request) -> Request {
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.method = request.method().clone();
    parts.uri = request.uri().clone();
    parts.version = request.version();
    parts.headers = request.headers().clone();
    parts.extensions = request.extensions().clone();
    let ends = (request.local_addr().clone(), request.remote_addr().clone(), request.scheme().clone());
    Request::from_parts((parts, ends.0, ends.1, ends.2).into(), Body::empty())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_client_learns_nothing_from_a_position_and_cannot_make_one() {
        let keyring = Keyring::from_base64(&Keyring::generate()).unwrap();
        let [small, large]: [LogPosition; 2] =
            [1, i64::MAX].map(|position| [(1, position, Uuid::from_u128(7))].into_iter().collect());
        let values = [&small, &small, &large].map(|position| seal(&keyring, position).unwrap());
        assert_eq!(open(&keyring, &values[0]), Some(small));
        assert_eq!(open(&keyring, &values[2]), Some(large));
        assert_ne!(values[0], values[1], "equal positions cannot be told from different ones");
        assert_eq!(values[0].len(), values[2].len());
        let other = Keyring::from_base64(&Keyring::generate()).unwrap();
        assert_eq!(open(&other, &values[0]), None);
        for wrong in ["", "1:1042", "latest", "AAAA"] {
            assert_eq!(open(&keyring, &HeaderValue::from_static(wrong)), None, "{wrong}");
        }
    }
}
