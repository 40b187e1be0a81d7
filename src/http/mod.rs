//! HTTP/1.1 server, plain or under TLS, that limits the resources one client can take from the others.
//!
//! HTTP/2 is left to the reverse proxy. A connection carries one request at a time. So the limits on connections, in total
//! and per source address ([`slots`]), also limit the requests in flight. The size of a head limits their memory.

mod activity;
mod body;
mod connection;
mod refusal;
mod slots;
mod socket;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::{CONNECTION, EXPECT, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use nix::errno::Errno;
use poem::http::uri::Scheme;
use poem::web::{LocalAddr, RemoteAddr};
use poem::{Addr, Endpoint, Request, Response};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::telemetry::Metrics;
use activity::Activity;
use body::{RequestBody, ResponseBody};
use connection::Connection;
use slots::ConnectionSlots;

/// Maximum size of a request head, in bytes. A longer one gets 431, or 414 if its request line alone is longer.
pub const HEAD_LIMIT: usize = 16 * 1024;
/// Pause after a failed accept, for example for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Minimum time between two warnings about failed accepts.
const WARN_EVERY: Duration = Duration::from_secs(10);
/// Time for requests in flight to finish once the server stops.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// Connection limits of one listener.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum number of connections in total.
    pub connections: usize,
    /// Maximum number of connections from one IPv4 address or one IPv6 /64.
    pub per_address: usize,
    /// Networks of trusted proxies, which have no limit per address.
    pub trusted_proxies: Arc<[IpNet]>,
}

/// Listener, with the configuration of TLS if it speaks TLS.
#[derive(Debug)]
pub struct Listener {
    pub tcp: TcpListener,
    pub tls: Option<Arc<ServerConfig>>,
}

impl From<TcpListener> for Listener {
    /// Returns a listener that speaks plain HTTP.
    fn from(tcp: TcpListener) -> Listener {
        Listener { tcp, tls: None }
    }
}

/// Serves an application until `stop` is cancelled, then finishes the requests in flight.
///
/// # Errors
/// If the listener has no local address.
pub async fn serve<E>(listener: Listener, limits: Limits, app: E, metrics: Metrics, stop: CancellationToken) -> io::Result<()>
where
    E: Endpoint<Output = Response> + 'static,
{
    let Listener { tcp: listener, tls } = listener;
    let tls = tls.map(TlsAcceptor::from);
    let app = Arc::new(app);
    let local = listener.local_addr()?;
    let slots = ConnectionSlots::new(limits, metrics.clone());
    let (connections, cut) = (TaskTracker::new(), CancellationToken::new());
    let mut warned_at: Option<Instant> = None;
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if warned_at.is_none_or(|warned_at| warned_at.elapsed() >= WARN_EVERY) {
                    tracing::warn!(%error, "failed to accept a connection; retrying");
                    warned_at = Some(Instant::now());
                }
                if is_out_of_descriptors(&error) {
                    slots.evict_one();
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Responses are written whole, so none should wait for the acknowledgement of the previous one (Nagle).
        let Ok(()) = stream.set_nodelay(true) else { continue };
        let Some(mut slot) = slots.admit(peer.ip()) else { continue };
        let (app, metrics, stop, cut, tls) = (app.clone(), metrics.clone(), stop.clone(), cut.clone(), tls.clone());
        let scheme = if tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        let served = async move {
            if !slot.is_free().await {
                return;
            }
            let Some(socket) = socket::open(stream, slot.activity.clone(), tls, &stop).await else { return };
            serve_connection(Connection::new(socket, slot, metrics), app, (local, peer, scheme), stop).await;
        };
        connections.spawn(async move { cut.run_until_cancelled_owned(served).await });
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(STOP_WITHIN, connections.wait()).await.is_err() {
        tracing::warn!(connections = connections.len(), "requests did not finish in time; closing their connections");
        cut.cancel();
        connections.wait().await;
    }
    Ok(())
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| matches!(Errno::from_raw(code), Errno::EMFILE | Errno::ENFILE))
}

async fn serve_connection<E>(connection: Connection, app: Arc<E>, ends: (SocketAddr, SocketAddr, Scheme), stop: CancellationToken)
where
    E: Endpoint<Output = Response> + 'static,
{
    let activity = connection.activity().clone();
    let service = service_fn(|request| answer(app.clone(), request, ends.clone(), activity.clone()));
    let served = http1::Builder::new().max_buf_size(HEAD_LIMIT).serve_connection(TokioIo::new(connection), service);
    let mut served = pin!(served);
    let mut stopping = pin!(stop.cancelled());
    let mut is_stopping = false;
    std::future::poll_fn(|cx| {
        if activity.is_cut(cx) {
            return Poll::Ready(());
        }
        if !is_stopping && stopping.as_mut().poll(cx).is_ready() {
            is_stopping = true;
            served.as_mut().graceful_shutdown();
        }
        // An error is the client's: it disconnected, or sent malformed HTTP and got its error response.
        served.as_mut().poll(cx).map(|_| ())
    })
    .await;
}

/// Answers one request and drains the rest of its body, so that the connection can be reused.
async fn answer<E: Endpoint<Output = Response>>(
    app: Arc<E>,
    request: hyper::Request<Incoming>,
    (local, peer, scheme): (SocketAddr, SocketAddr, Scheme),
    activity: Arc<Activity>,
) -> Result<hyper::Response<ResponseBody>, Infallible> {
    if !activity.begin_answer() {
        // The connection was cut a moment ago. Its task ends before it polls this again.
        std::future::pending::<()>().await;
    }
    let (parts, body) = request.into_parts();
    let expects_continue = parts.headers.contains_key(EXPECT);
    let body = RequestBody::new(body, activity.clone());
    let (local, peer) = (LocalAddr(Addr::SocketAddr(local)), RemoteAddr(Addr::SocketAddr(peer)));
    let request = Request::from_parts((parts, local, peer, scheme).into(), body.for_application());
    let response = app.get_response(request).await;
    let mut response: hyper::Response<_> = response.into();
    let has_ended = body.drain(expects_continue).await;
    activity.wait_for_body(false); // also after a timeout
    if !has_ended {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        activity.linger();
    }
    Ok(response.map(|body| ResponseBody::new(body, activity)))
}
