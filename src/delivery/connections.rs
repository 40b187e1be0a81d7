//! Open connections, kept for the next request to the same origin: one pool for the whole process,
//! bounded in all, so that no number of webhooks exhausts the descriptors.

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

/// How long an unused connection is kept. Below the minute after which common
/// receivers hang up, so that few requests meet a connection as it is closed.
const IDLE_LIFETIME: Duration = Duration::from_secs(45);
/// How often it is looked for unused connections that are older.
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// How long one address may take before the next is tried beside it (RFC 8305, 5).
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// How long one may take when two are dialled, before it gives way to the next one: long enough for a lost packet.
const GIVES_WAY_AFTER: Duration = Duration::from_secs(1);
/// How long a connection may still be busy with a request that was answered.
const FREE_WITHIN: Duration = Duration::from_millis(100);
/// The most of an answer's headers, in bytes.
const MAX_HEADER_BYTES: usize = 64 * 1024;
/// The most informational answers (1xx) before the one that counts.
const MAX_INFORMATIONAL: usize = 16;

/// Whom a connection is with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    pub host: Host<String>,
    pub port: u16,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Trouble {
    /// Before anything was sent.
    Connecting(Box<dyn StdError + Send + Sync>),
    /// What was sent may have arrived.
    Exchanging(hyper::Error),
    /// Informational answers (1xx) and no other.
    Informed,
    /// The deadline came first; what there was not until then.
    Late(&'static str),
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for Trouble {
    fn from(error: E) -> Trouble {
        Trouble::Connecting(error.into())
    }
}

/// A connection while its answer is read. Given back it is kept, else it is closed.
#[derive(Debug)]
pub struct Lent {
    origin: Origin,
    open: Open,
}

/// A connection in use. It is cut when this goes: a receiver that takes nothing could hold what is
/// still to be written, and with it the connection, for ever.
#[derive(Debug)]
struct Open {
    sender: SendRequest<Full<Bytes>>,
    task: AbortOnDropHandle<()>,
    since: Instant,
}

/// Counts the informational answers to one request.
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

/// One that nobody uses. When it goes it is closed in the order of TLS.
struct Idle {
    sender: SendRequest<Full<Bytes>>,
    task: JoinHandle<()>,
    opened: Instant,
    since: Instant,
}

impl Idle {
    /// Whether it may be used for another request.
    fn is_fresh(&self, lifetime: Duration) -> bool {
        self.since.elapsed() < IDLE_LIFETIME && self.opened.elapsed() < lifetime && !self.sender.is_closed()
    }
}

/// The pool.
pub struct Connections {
    resolver: Resolver,
    tls: TlsConnector,
    open: Arc<Semaphore>,
    /// How long one is used.
    lifetime: Duration,
    idle: Mutex<HashMap<Origin, Vec<Idle>>>,
    /// Who needs a new connection and may not open one: nothing is kept as long as there are any.
    waiting: AtomicUsize,
    is_swept: AtomicBool,
}

/// Counted for as long as it is there, however its send ends.
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
    /// At most `most` connections are open at once, and whoever needs another one waits; each is used for `lifetime`.
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

    /// Sends a request over a kept connection or a new one; the answer's headers, and the
    /// connection to be given back when its body has been read. All of it by one deadline.
    ///
    /// A kept connection may turn out to be closed. As long as nothing of the request was written,
    /// nothing of it can have been processed, and it goes over another one.
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

    /// Keeps a connection whose answer has been read to its end, once it is free: that is soon, unless
    /// the receiver has answered what it does not take.
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

    /// The connection to this origin that was used last.
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
            // Whoever sends over it is told how it ended.
            _ = connection.await;
        });
        Ok(Open { sender, task: AbortOnDropHandle::new(task), since: Instant::now() })
    }

    /// Connects to the first address that answers. Each gets a moment before the next is tried beside it, and two at
    /// most are tried at once: with the caller's permit, and with another one if there is one.
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

    /// Makes room for another origin.
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

/// Closes what nobody uses, for as long as the pool is there.
async fn sweep(pool: Weak<Connections>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        match pool.upgrade() {
            Some(pool) => pool.close_old(),
            None => return,
        }
    }
}

/// What is done by the deadline; else what there was not until then.
async fn in_time<T>(ends_at: Instant, what: &'static str, work: impl Future<Output = T>) -> Result<T, Trouble> {
    timeout_at(ends_at, work).await.map_err(|_| Trouble::Late(what))
}
