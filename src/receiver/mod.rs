//! An HTTPS server that receives webhooks: for the commands `listen` and `demo`,
//! and for tests and benchmarks.

mod certificate;
mod misbehave;
mod received;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::fmt;
use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use certificate::Certificate;
pub use misbehave::Misbehaviour;
pub use received::Received;

/// The longest body that is accepted, in bytes.
pub const MAX_BODY_BYTES: usize = 1024 * 1024;

const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// How long a request may take to arrive, and a kept connection to be used again.
const REQUEST_DEADLINE: Duration = Duration::from_secs(75);
/// How long a stopping receiver waits for the answers under way.
const STOP_DEADLINE: Duration = Duration::from_secs(1);

/// Chooses the answer to a request.
pub type Respond = Arc<dyn Fn(&Received) -> Answer + Send + Sync>;

/// What a [`Receiver`] is made from.
#[derive(Clone)]
pub struct ReceiverSettings {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The name in the token's header.
    pub service_name: String,
    /// What the receiver shows to senders.
    pub certificate: Certificate,
    /// Chooses the answer to each request.
    pub respond: Respond,
}

impl fmt::Debug for ReceiverSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiverSettings").field("listen", &self.listen).finish_non_exhaustive()
    }
}

/// What a receiver answers.
#[derive(Debug, Clone)]
pub enum Answer {
    /// A status with an empty body.
    Status(u16),
    /// A status with a body.
    StatusWithBody(u16, String),
    /// A status after a while.
    Delayed(Duration, u16),
    /// 302 to another place.
    Redirect(String),
    /// No answer, ever.
    Hang,
    /// Something no HTTP server does on purpose.
    Misbehave(Misbehaviour),
}

/// Why a receiver does not start.
#[derive(Debug, thiserror::Error)]
pub enum ReceiverError {
    /// The address cannot be used, or a file not be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// No certificate could be made.
    #[error("the certificate cannot be made")]
    Generate(#[from] rcgen::Error),
    /// The certificate's files are damaged.
    #[error("the certificate's files are damaged")]
    CertificateFile,
    /// The certificate and its key cannot be used.
    #[error("the certificate cannot be used")]
    Tls(#[from] rustls::Error),
}

/// A running receiver. It stops when it is dropped.
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    ca_pem: String,
    stopping: CancellationToken,
    tasks: TaskTracker,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}

impl Receiver {
    /// Starts to listen. Every request is passed on as it arrives, before it is
    /// answered; a caller who does not want them drops the channel.
    pub async fn start(settings: ReceiverSettings) -> Result<(Receiver, mpsc::UnboundedReceiver<Received>), ReceiverError> {
        let acceptor = TlsAcceptor::from(settings.certificate.server_config()?);
        let listener = TcpListener::bind(settings.listen).await?;
        let receiver = Receiver {
            address: listener.local_addr()?,
            ca_pem: settings.certificate.ca_pem().to_owned(),
            stopping: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let (arrivals, arrived) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            acceptor,
            service_name: settings.service_name,
            respond: settings.respond,
            arrivals,
            stopping: receiver.stopping.clone(),
        });
        let tasks = receiver.tasks.clone();
        receiver.tasks.spawn(accept(listener, shared, tasks));
        Ok((receiver, arrived))
    }

    /// The base URL, by the name `localhost` when that leads here.
    pub fn url(&self) -> String {
        let (ip, port) = (self.address.ip(), self.address.port());
        if ip.is_unspecified() || ip == Ipv4Addr::LOCALHOST {
            format!("https://localhost:{port}")
        } else {
            format!("https://{}", self.address)
        }
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The authority that senders have to trust.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Stops: no new connections; answers under way get a second to finish.
    pub async fn stop(self) {
        self.stopping.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// What every connection needs.
struct Shared {
    acceptor: TlsAcceptor,
    service_name: String,
    respond: Respond,
    arrivals: mpsc::UnboundedSender<Received>,
    stopping: CancellationToken,
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, tasks: TaskTracker) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shared.stopping.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                tasks.spawn(serve(stream, shared.clone()));
            }
            Err(error) => {
                // Out of descriptors, most likely: wait for some to come back.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let stopped = async {
        shared.stopping.cancelled().await;
        tokio::time::sleep(STOP_DEADLINE).await;
    };
    tokio::select! {
        result = serve_connection(stream, &shared) => {
            if let Err(error) = result {
                tracing::debug!(%error, "a connection ended early");
            }
        }
        () = stopped => {}
    }
}

async fn serve_connection(stream: TcpStream, shared: &Shared) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    stream.set_nodelay(true)?;
    let stream = tokio::select! {
        accepted = tokio::time::timeout(HANDSHAKE_DEADLINE, shared.acceptor.accept(stream)) => accepted??,
        () = shared.stopping.cancelled() => return Ok(()),
    };

    // A request that is to be treated badly takes the connection away from hyper.
    let (misbehave_as, mut misbehaviour) = mpsc::channel(1);
    let service = service_fn(|request| answer(request, shared, misbehave_as.clone()));
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_DEADLINE)
        .serve_connection(TokioIo::new(stream), service);

    let how = tokio::select! {
        result = &mut connection => return Ok(result?),
        Some(how) = misbehaviour.recv() => how,
        () = shared.stopping.cancelled() => {
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            return Ok(connection.await?);
        }
    };
    let mut stream = connection.into_parts().io.into_inner();
    tokio::select! {
        result = misbehave::misbehave(&mut stream, how) => Ok(result?),
        () = shared.stopping.cancelled() => Ok(()),
    }
}

async fn answer(
    request: Request<Incoming>,
    shared: &Shared,
    misbehave_as: mpsc::Sender<Misbehaviour>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            return Ok(with_status(413, String::new()));
        }
        Err(_) => return Ok(with_status(400, String::new())),
    };
    let received = Received::new(head, body, &shared.service_name);
    let answer = (shared.respond)(&received);
    // Nobody may be listening to them, which is fine.
    let _ = shared.arrivals.send(received);

    Ok(match answer {
        Answer::Status(status) => with_status(status, String::new()),
        Answer::StatusWithBody(status, body) => with_status(status, body),
        Answer::Delayed(pause, status) => {
            tokio::time::sleep(pause).await;
            with_status(status, String::new())
        }
        Answer::Redirect(target) => {
            let mut response = with_status(302, String::new());
            if let Ok(target) = HeaderValue::from_str(&target) {
                response.headers_mut().insert(LOCATION, target);
            }
            response
        }
        Answer::Hang => pending().await,
        Answer::Misbehave(how) => {
            let _ = misbehave_as.send(how).await;
            pending().await
        }
    })
}

fn with_status(status: u16, body: String) -> Response<Full<Bytes>> {
    let has_body = !body.is_empty();
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if has_body {
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, text);
    }
    response
}
