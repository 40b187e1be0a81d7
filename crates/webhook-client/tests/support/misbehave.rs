//! Responses that no HTTP server gives on purpose, written directly to the connection. Tests show with them
//! that the sender survives them.
#![allow(dead_code)] // two test programs include this file, and each leaves out some variants

use std::io;
use std::time::Duration;

use hyper::body::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedSender;
use webhook_client::receiver::{ReceiverResponse, Takeover};

/// Block that long bodies consist of.
const PART: [u8; 0x4000] = [b'.'; 0x4000];

/// Misbehaviour of a receiver.
#[derive(Debug, Clone)]
pub enum Misbehaviour {
    /// Closes the connection without a response.
    Close,
    /// Closes its sending side without a response, and keeps reading.
    HalfClose,
    /// Sends these bytes, then closes the connection.
    Raw(Bytes),
    /// Sends these bytes, then nothing, and keeps the connection open.
    RawThenHang(Bytes),
    /// Sends headers with this status, then one byte of the body at a time, for ever.
    DripBody(u16, Duration),
    /// Sends one byte of the headers at a time, for ever.
    DripHeaders(Duration),
    /// Sends an endless body, as fast as the sender reads it.
    EndlessBody(u16),
    /// Sends a body of this many bytes, as fast as the sender reads it. The channel gets the size of each part that was
    /// written, and closes at the end.
    LongBody(u16, u64, UnboundedSender<u64>),
    /// Sends endless headers.
    HeaderFlood,
    /// Sends endless `100 Continue` responses.
    InformationalFlood,
    /// Starts another misbehaviour after a delay.
    After(Duration, Box<Misbehaviour>),
}

/// Returns an answer that misbehaves.
pub fn misbehave(how: Misbehaviour) -> ReceiverResponse {
    ReceiverResponse::TakeOver(Takeover::new(format!("{how:?}"), move |mut stream| {
        let how = how.clone();
        async move { run(&mut stream, how).await }
    }))
}

/// Misbehaves until it is done or the sender disconnects.
async fn run<S>(stream: &mut S, how: Misbehaviour) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match how {
        Misbehaviour::Close => {}
        Misbehaviour::HalfClose => {
            stream.shutdown().await?;
            return read_to_the_end(stream).await;
        }
        Misbehaviour::Raw(bytes) => {
            stream.write_all(&bytes).await?;
            stream.flush().await?;
        }
        Misbehaviour::RawThenHang(bytes) => {
            stream.write_all(&bytes).await?;
            stream.flush().await?;
            return read_to_the_end(stream).await;
        }
        Misbehaviour::DripBody(status, pause) => {
            stream.write_all(endless_head(status).as_bytes()).await?;
            return repeat(stream, b"1\r\n.\r\n", pause).await;
        }
        Misbehaviour::DripHeaders(pause) => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nX-Drip: ").await?;
            return repeat(stream, b".", pause).await;
        }
        Misbehaviour::EndlessBody(status) => {
            stream.write_all(endless_head(status).as_bytes()).await?;
            return repeat(stream, &[b"4000\r\n", &PART[..], b"\r\n"].concat(), Duration::ZERO).await;
        }
        Misbehaviour::LongBody(status, bytes, written) => {
            stream.write_all(format!("HTTP/1.1 {status} Status\r\nContent-Length: {bytes}\r\n\r\n").as_bytes()).await?;
            let mut left = bytes;
            while left > 0 {
                let part = left.min(PART.len() as u64);
                stream.write_all(&PART[..part as usize]).await?;
                left -= part;
                let _ = written.send(part); // the receiver of the counts may be gone
                tokio::task::yield_now().await;
            }
            stream.flush().await?;
            return read_to_the_end(stream).await;
        }
        Misbehaviour::HeaderFlood => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n").await?;
            return repeat(stream, b"X-Flood: 0123456789\r\n", Duration::ZERO).await;
        }
        Misbehaviour::InformationalFlood => {
            return repeat(stream, b"HTTP/1.1 100 Continue\r\n\r\n", Duration::ZERO).await;
        }
        Misbehaviour::After(pause, how) => {
            tokio::time::sleep(pause).await; // the misbehaviour itself
            return Box::pin(run(stream, *how)).await;
        }
    }
    stream.shutdown().await
}

fn endless_head(status: u16) -> String {
    format!("HTTP/1.1 {status} Status\r\nTransfer-Encoding: chunked\r\n\r\n")
}

/// Writes these bytes repeatedly until writing fails.
async fn repeat<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8], pause: Duration) -> io::Result<()> {
    loop {
        stream.write_all(bytes).await?;
        stream.flush().await?;
        if pause.is_zero() {
            // The writes may never wait, so yield to other tasks.
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(pause).await; // the misbehaviour itself
        }
    }
}

async fn read_to_the_end<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<()> {
    let mut ignored = [0; 1024];
    while stream.read(&mut ignored).await? > 0 {}
    Ok(())
}
