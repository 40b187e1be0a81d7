//! HTTPS server that receives webhooks, for development, tests and benchmarks.

mod certificate;
mod received;

use std::convert::Infallible;
use std::fmt;
use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
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
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use certificate::Certificate;
pub use received::Received;

/// Maximum size of an accepted body, in bytes.
pub const MAX_BODY_BYTES: usize = 1024 * 1024;

const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(60);
/// Time for a request to arrive, and for an idle connection to be reused.
const REQUEST_DEADLINE: Duration = Duration::from_secs(75);
/// Time for responses in progress when the receiver stops.
const STOP_DEADLINE: Duration = Duration::from_secs(1);

/// Function that chooses the response to a request.
pub type Respond = Arc<dyn Fn(&Received) -> ReceiverResponse + Send + Sync>;

/// Handler of a connection in place of the HTTP server, so that a test receiver can break any rule of HTTP. It ends when the
/// receiver stops.
#[derive(Clone)]
pub struct Takeover {
    name: String,
    run: Arc<dyn Fn(TlsStream<TcpStream>) -> BoxFuture<'static, io::Result<()>> + Send + Sync>,
}

impl Takeover {
    /// Creates a handler. The name is for debug output.
    pub fn new<F: Future<Output = io::Result<()>> + Send + 'static>(
        name: impl Into<String>,
        run: impl Fn(TlsStream<TcpStream>) -> F + Send + Sync + 'static,
    ) -> Takeover {
        Takeover { name: name.into(), run: Arc::new(move |stream| run(stream).boxed()) }
    }
}

impl fmt::Debug for Takeover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Settings of a [`Receiver`].
#[derive(Clone)]
pub struct ReceiverSettings {
    /// Address to listen on. Port 0 selects a free port.
    pub listen: SocketAddr,
    /// Service name in the name of the token header.
    pub service_name: String,
    /// Certificate that the receiver presents to senders.
    pub certificate: Certificate,
    /// Function that chooses the response to each request.
    pub respond: Respond,
}

impl fmt::Debug for ReceiverSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiverSettings").field("listen", &self.listen).finish_non_exhaustive()
    }
}

/// Response of a receiver.
#[derive(Debug, Clone)]
pub enum ReceiverResponse {
    /// A status with an empty body.
    Status(u16),
    /// A status with a body.
    StatusWithBody(u16, String),
    /// A status after a delay.
    Delayed(Duration, u16),
    /// A status once the token is cancelled.
    When(CancellationToken, u16),
    /// 302 with this `Location`.
    Redirect(String),
    /// No response, ever.
    Hang,
    /// Bytes that the handler writes to the connection once the request has arrived.
    TakeOver(Takeover),
}

/// Reason that a receiver does not start.
#[derive(Debug, thiserror::Error)]
pub enum ReceiverError {
    /// The address cannot be bound, or a file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The certificate cannot be generated.
    #[error("failed to generate the certificate")]
    Generate(#[from] rcgen::Error),
    /// The certificate's files are damaged.
    #[error("the receiver's certificate files are damaged; delete them to generate new ones")]
    CertificateFile,
    /// TLS does not accept the certificate and its key.
    #[error("the certificate and its key cannot be used")]
    Tls(#[from] rustls::Error),
}

/// A running receiver. Dropping it stops it.
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
    /// Starts to listen. The channel gets every request as it arrives, before the response. A caller that does not need the
    /// requests may drop the channel.
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

    /// Returns the base URL, with the name `localhost` if that resolves to this receiver.
    pub fn url(&self) -> String {
        let (ip, port) = (self.address.ip(), self.address.port());
        if ip.is_unspecified() || ip == Ipv4Addr::LOCALHOST {
            format!("https://localhost:{port}")
        } else {
            format!("https://{}", self.address)
        }
    }

    /// Returns the address that the receiver listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the certificate authority that senders have to trust, as PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Stops the receiver. It accepts no new connections, and responses in progress get a second to finish.
    pub async fn stop(self) {
        self.stopping.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// State shared by all connections.
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
                // Most likely the process is out of file descriptors: wait for some to become free.
                tracing::warn!(%error, "failed to accept a connection; retrying");
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

    // A takeover takes the connection away from hyper.
    let (take_over, mut takeovers) = mpsc::channel(1);
    let service = service_fn(|request| answer(request, shared, take_over.clone()));
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_DEADLINE)
        .serve_connection(TokioIo::new(stream), service);

    let takeover: Takeover = tokio::select! {
        result = &mut connection => return Ok(result?),
        Some(takeover) = takeovers.recv() => takeover,
        () = shared.stopping.cancelled() => {
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            return Ok(connection.await?);
        }
    };
    let stream = connection.into_parts().io.into_inner();
    tokio::select! {
        result = (takeover.run)(stream) => Ok(result?),
        () = shared.stopping.cancelled() => Ok(()),
    }
}

async fn answer(
    request: Request<Incoming>,
    shared: &Shared,
    take_over: mpsc::Sender<Takeover>,
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
    // The caller may have dropped the channel.
    let _ = shared.arrivals.send(received);

    Ok(match answer {
        ReceiverResponse::Status(status) => with_status(status, String::new()),
        ReceiverResponse::StatusWithBody(status, body) => with_status(status, body),
        ReceiverResponse::Delayed(pause, status) => {
            tokio::time::sleep(pause).await;
            with_status(status, String::new())
        }
        ReceiverResponse::When(token, status) => {
            token.cancelled().await;
            with_status(status, String::new())
        }
        ReceiverResponse::Redirect(target) => {
            let mut response = with_status(302, String::new());
            if let Ok(target) = HeaderValue::from_str(&target) {
                response.headers_mut().insert(LOCATION, target);
            }
            response
        }
        ReceiverResponse::Hang => pending().await,
        ReceiverResponse::TakeOver(takeover) => {
            let _ = take_over.send(takeover).await;
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
