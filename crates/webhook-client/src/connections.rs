//! Connection pool of the sender: keeps open connections for the next request to the same origin.
//!
//! The whole process has one pool with a total limit, so that no number of webhooks exhausts the file descriptors.

use std::collections::{HashMap, VecDeque};
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, select_all};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;
use url::Host;

use super::resolver::Resolver;

/// Lifetime of an idle connection. Common servers close one after a minute; closing earlier avoids sending a request on a
/// connection that the receiver is about to close.
const IDLE_LIFETIME: Duration = Duration::from_secs(45);
/// Interval at which expired idle connections are closed.
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// Time after which the next address is dialled in parallel (RFC 8305, section 5).
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// Time that a dial gets before it gives way to the next address, if no further dial may run in parallel. It is long enough
/// for the retransmission of a lost packet.
const GIVES_WAY_AFTER: Duration = Duration::from_secs(1);
/// Longest time that a connection may stay busy with its request after the response is complete.
const FREE_WITHIN: Duration = Duration::from_secs(1);
/// Maximum size of a response's headers, in bytes.
const MAX_HEADER_BYTES: usize = 64 * 1024;
/// Maximum number of informational responses (1xx) before the final one.
const MAX_INFORMATIONAL: usize = 16;

/// Host and port that a connection belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    pub host: Host<String>,
    pub port: u16,
}

/// Reason that a request got no response.
#[derive(Debug)]
pub enum Trouble {
    /// Connecting failed. Nothing was sent.
    Connecting(Box<dyn StdError + Send + Sync>),
    /// The exchange failed. The request may have arrived.
    Exchanging(hyper::Error),
    /// Too many informational responses (1xx), and no final one.
    Informed,
    /// The deadline passed. The text names the step that did not finish.
    Late(&'static str),
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for Trouble {
    fn from(error: E) -> Trouble {
        Trouble::Connecting(error.into())
    }
}

/// Connection whose response is being read. [`Connections::give_back`] keeps it for reuse; dropping it closes it.
#[derive(Debug)]
pub struct Lent {
    origin: Origin,
    open: Open,
}

/// Connection in use. Dropping it aborts the connection: a receiver that stops reading could otherwise hold the unsent
/// bytes, and with them the connection, for ever.
#[derive(Debug)]
struct Open {
    sender: SendRequest<Full<Bytes>>,
    task: AbortOnDropHandle<()>,
    since: Instant,
}

/// Counter of the informational responses to one request.
#[derive(Debug, Default)]
struct Flood {
    seen: AtomicUsize,
    is_too_much: Notify,
}

impl Flood {
    fn count(&self) {
        if self.seen.fetch_add(1, Ordering::Relaxed) == MAX_INFORMATIONAL {
            self.is_too_much.notify_one();
        }
    }
}

/// Idle connection. Dropping it closes it with an orderly TLS shutdown.
struct Idle {
    sender: SendRequest<Full<Bytes>>,
    task: JoinHandle<()>,
    opened: Instant,
    since: Instant,
}

impl Idle {
    /// Returns whether the connection may be reused for another request.
    fn is_fresh(&self, lifetime: Duration) -> bool {
        self.since.elapsed() < IDLE_LIFETIME && self.opened.elapsed() < lifetime && !self.sender.is_closed()
    }
}

/// Pool of connections to all origins.
pub struct Connections {
    resolver: Resolver,
    tls: TlsConnector,
    open: Arc<Semaphore>,
    /// Longest time that a connection is reused.
    lifetime: Duration,
    idle: Mutex<HashMap<Origin, Vec<Idle>>>,
    /// Number of sends that wait for a permit. While it is not zero, finished connections are closed instead of kept.
    waiting: AtomicUsize,
    is_swept: AtomicBool,
}

/// Guard that counts a waiting send until it is dropped, however the send ends.
struct Waiting<'c>(&'c AtomicUsize);

impl Waiting<'_> {
    fn on(count: &AtomicUsize) -> Waiting<'_> {
        count.fetch_add(1, Ordering::SeqCst);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("resolver", &self.resolver).finish_non_exhaustive()
    }
}

impl Connections {
    /// Creates a pool with at most `most` open connections, each reused for up to `lifetime`. A send that needs another
    /// connection waits.
    pub fn new(resolver: Resolver, tls: Arc<rustls::ClientConfig>, most: usize, lifetime: Duration) -> Connections {
        let open = Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS)));
        Connections {
            resolver,
            tls: tls.into(),
            open,
            lifetime,
            idle: Mutex::default(),
            waiting: AtomicUsize::new(0),
            is_swept: AtomicBool::new(false),
        }
    }

    /// Sends a request over an idle connection or a new one, by one deadline.
    ///
    /// Returns the response head, and the connection to give back after its body has been read. An idle connection may turn
    /// out to be closed. If no byte of the request was written, the receiver cannot have processed it, and the request is
    /// repeated on another connection.
    pub async fn exchange(
        &self,
        origin: &Origin,
        mut request: Request<Full<Bytes>>,
        ends_at: Instant,
    ) -> Result<(Response<Incoming>, Lent), Trouble> {
        let flood = Arc::new(Flood::default());
        let seen = flood.clone();
        hyper::ext::on_informational(&mut request, move |_| seen.count());
        loop {
            // The runtime polls the sockets before it continues here, so a connection that the receiver has closed is known
            // as closed. Otherwise the request could be written to it, and would cost an attempt.
            tokio::task::yield_now().await;
            let (mut open, is_kept) = match self.kept(origin) {
                Some(open) => (open, true),
                None => (self.open(origin, ends_at).await?, false),
            };
            let answered = tokio::select! {
                answered = open.sender.try_send_request(request) => answered,
                () = flood.is_too_much.notified() => return Err(Trouble::Informed),
                () = sleep_until(ends_at) => return Err(Trouble::Late("no answer")),
            };
            let mut error = match answered {
                Ok(response) => return Ok((response, Lent { origin: origin.clone(), open })),
                Err(error) => error,
            };
            match error.take_message() {
                Some(unsent) if is_kept => request = unsent,
                _ => return Err(Trouble::Exchanging(error.into_error())),
            }
        }
    }

    /// Keeps a connection whose response has been read to its end, as soon as it is free. It is free at once, unless the
    /// receiver has responded without reading the whole request.
    pub async fn give_back(self: &Arc<Self>, mut lent: Lent, ends_at: Instant) {
        let latest = ends_at.min(Instant::now() + FREE_WITHIN);
        if let Ok(Ok(())) = timeout_at(latest, lent.open.sender.ready()).await {
            self.keep(lent);
        }
    }

    fn keep(self: &Arc<Self>, lent: Lent) {
        let mut idle = self.idle();
        let Open { sender, task, since: opened } = lent.open;
        let unused = Idle { sender, task: task.detach(), opened, since: Instant::now() };
        if !unused.is_fresh(self.lifetime) || self.waiting.load(Ordering::SeqCst) > 0 {
            return;
        }
        idle.entry(lent.origin).or_default().push(unused);
        drop(idle);
        if !self.is_swept.swap(true, Ordering::Relaxed) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Takes the idle connection to this origin that was used most recently.
    fn kept(&self, origin: &Origin) -> Option<Open> {
        let mut idle = self.idle();
        let kept = idle.get_mut(origin)?;
        while let Some(idle) = kept.pop() {
            if idle.is_fresh(self.lifetime) && idle.sender.is_ready() {
                let Idle { sender, task, opened, .. } = idle;
                return Some(Open { sender, task: AbortOnDropHandle::new(task), since: opened });
            }
        }
        idle.remove(origin);
        None
    }

    async fn open(&self, origin: &Origin, ends_at: Instant) -> Result<Open, Trouble> {
        let permit = match self.open.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let _waiting = Waiting::on(&self.waiting);
                self.close_oldest();
                in_time(ends_at, "no connection of this service was free", self.open.clone().acquire_owned()).await??
            }
        };
        let name = match &origin.host {
            Host::Domain(name) => ServerName::try_from(name.clone())?,
            Host::Ipv4(v4) => ServerName::from(std::net::IpAddr::from(*v4)),
            Host::Ipv6(v6) => ServerName::from(std::net::IpAddr::from(*v6)),
        };
        let resolved = self.resolver.resolve(&origin.host, origin.port);
        let addresses = in_time(ends_at, "the name could not be resolved", resolved).await??;
        let stream = in_time(ends_at, "no connection", self.dial(addresses)).await??;
        stream.set_nodelay(true)?;
        let stream = in_time(ends_at, "no TLS handshake", self.tls.connect(name, stream)).await??;
        let (sender, connection) = Builder::new().max_buf_size(MAX_HEADER_BYTES).handshake(TokioIo::new(stream)).await?;
        let task = tokio::spawn(async move {
            let _permit = permit;
            // The sender of the request gets the error.
            _ = connection.await;
        });
        Ok(Open { sender, task: AbortOnDropHandle::new(task), since: Instant::now() })
    }

    /// Connects to the first address that answers. The next address is dialled in parallel after a short delay. At most two
    /// dials run at once: one under the caller's permit, the other under a second permit if one is free.
    async fn dial(&self, addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
        let mut rest = addresses.into_iter();
        let mut dials: VecDeque<BoxFuture<'static, io::Result<TcpStream>>> = VecDeque::new();
        let mut beside = None;
        let mut refused = io::Error::from(io::ErrorKind::AddrNotAvailable);
        loop {
            match rest.next() {
                Some(address) => {
                    let most = if beside.is_some() { 2 } else { 1 };
                    if dials.len() == most {
                        dials.pop_front();
                    }
                    dials.push_back(TcpStream::connect(address).boxed());
                }
                None if dials.is_empty() => return Err(refused),
                None => {}
            }
            if rest.len() > 0 && beside.is_none() {
                beside = self.open.clone().try_acquire_owned().ok();
            }
            let pause = match (rest.len(), dials.len()) {
                (0, _) => Duration::MAX,
                (_, 1) if beside.is_some() => NEXT_ADDRESS_AFTER,
                _ => GIVES_WAY_AFTER,
            };
            match tokio::time::timeout(pause, select_all(dials.iter_mut())).await {
                Ok((Ok(stream), ..)) => return Ok(stream),
                Ok((Err(error), index, _)) => {
                    refused = error;
                    dials.remove(index);
                }
                Err(_) => {}
            }
        }
    }

    /// Closes the connection that has been idle longest, to make room for another origin.
    fn close_oldest(&self) {
        let mut idle = self.idle();
        let oldest = idle.iter().filter_map(|(origin, kept)| Some((kept.first()?.since, origin))).min_by_key(|(since, _)| *since);
        if let Some((_, origin)) = oldest {
            let origin = origin.clone();
            if let Some(kept) = idle.get_mut(&origin) {
                kept.remove(0);
                if kept.is_empty() {
                    idle.remove(&origin);
                }
            }
        }
    }

    fn close_old(&self) {
        self.idle().retain(|_, kept| {
            kept.retain(|idle| idle.is_fresh(self.lifetime));
            !kept.is_empty()
        });
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<Origin, Vec<Idle>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes expired idle connections periodically, until the pool is dropped.
async fn sweep(pool: Weak<Connections>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        match pool.upgrade() {
            Some(pool) => pool.close_old(),
            None => return,
        }
    }
}

/// Runs `work` until the deadline. On timeout the error names the missing step (`what`).
async fn in_time<T>(ends_at: Instant, what: &'static str, work: impl Future<Output = T>) -> Result<T, Trouble> {
    timeout_at(ends_at, work).await.map_err(|_| Trouble::Late(what))
}
