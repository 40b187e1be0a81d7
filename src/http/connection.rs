//! Client connection: a layer between the socket and the HTTP library.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::activity::Activity;
use super::refusal;
use super::slots::ConnectionSlot;
use super::socket::Socket;
use crate::telemetry::Metrics;

/// Time for a client that is still sending to read its last response. Closing a socket with unread data resets it, and the
/// client may lose the response.
const LINGER: Duration = Duration::from_secs(5);

/// Client connection. Dropping it frees its slot.
#[derive(Debug)]
pub struct Connection {
    stream: Socket,
    slot: ConnectionSlot,
    metrics: Metrics,
    /// Unwritten part of the response that replaces the library's own.
    refusal: Vec<u8>,
    /// Bytes read since the last line feed, not counting bodies.
    line: usize,
    lingering: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    pub fn new(stream: Socket, slot: ConnectionSlot, metrics: Metrics) -> Connection {
        Connection { stream, slot, metrics, refusal: vec![], line: 0, lingering: None }
    }

    pub fn activity(&self) -> &Arc<Activity> {
        &self.slot.activity
    }

    /// Replaces a response that the library produced by itself with the error envelope. Returns whether it did. Between
    /// requests the library writes nothing else.
    fn replaces(&mut self, head: &[u8]) -> bool {
        if !self.activity().is_between_requests() {
            return false;
        }
        let Some(refusal) = refusal::replace(head, self.line, &self.metrics) else { return false };
        self.refusal = refusal;
        self.activity().linger();
        true
    }

    fn poll_write_refusal(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.refusal.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.refusal))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.refusal.drain(..written);
        }
        Poll::Ready(Ok(()))
    }

    /// Reads and discards until the client has closed its side, or [`LINGER`] has passed.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.lingering.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        if timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let mut discarded = [0; 8_192];
        loop {
            let mut buffer = ReadBuf::new(&mut discarded);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {}
                _ => return Poll::Ready(()),
            }
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.activity().is_reading_ended() {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let read = &buffer.filled()[before..];
        self.line = match read.iter().rposition(|byte| *byte == b'\n') {
            _ if self.activity().waits_for_body() => 0,
            Some(end) => read.len() - end - 1,
            None => self.line + read.len(),
        };
        self.activity().read(read.len());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.replaces(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if slices.first().is_some_and(|head| self.replaces(head)) {
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_refusal(cx))?;
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.activity().flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            ready!(self.poll_write_refusal(cx))?;
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            self.activity().close();
        }
        if self.activity().lingers() {
            ready!(self.poll_linger(cx));
        }
        Poll::Ready(Ok(()))
    }
}
