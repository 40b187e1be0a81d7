//! Socket of a client: plain, or under TLS. It reports what the client takes to the connection's activity.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

use super::activity::Activity;

/// TCP connection whose writes count as progress of the client. Under TLS, the layer above has a buffer: what it accepts is
/// not yet on its way.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    activity: Arc<Activity>,
}

/// Socket of a client, as the HTTP library reads and writes it: plain, or under TLS.
pub type Socket = Either<Wire, Box<TlsStream<Wire>>>;

/// Prepares a new connection for HTTP, with the TLS handshake if the listener speaks TLS. The deadline of the first request
/// head includes the handshake. Returns none if it fails, or if the connection is cut or the server stops meanwhile.
pub async fn open(
    stream: TcpStream,
    activity: Arc<Activity>,
    tls: Option<TlsAcceptor>,
    stop: &CancellationToken,
) -> Option<Socket> {
    let wire = Wire { stream, activity: activity.clone() };
    match tls {
        None => Some(Either::Left(wire)),
        // On the heap: a handshake needs much more memory than a connection without one.
        Some(tls) => Box::pin(handshake(wire, activity, tls, stop)).await,
    }
}

async fn handshake(wire: Wire, activity: Arc<Activity>, tls: TlsAcceptor, stop: &CancellationToken) -> Option<Socket> {
    let cut = std::future::poll_fn(|cx| if activity.is_cut(cx) { Poll::Ready(()) } else { Poll::Pending });
    tokio::select! {
        biased;
        () = cut => None,
        () = stop.cancelled() => None,
        // An error is the client's: it disconnected, or speaks no TLS that the node speaks.
        accepted = tls.accept(wire) => accepted.ok().map(|stream| Either::Right(Box::new(stream))),
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.activity.wrote(&outcome);
        outcome
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.activity.wrote(&outcome);
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
