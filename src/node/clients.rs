//! Clients' connections: no more than there are places for, and closed when nothing has moved on them for long.
//!
//! The server's own idle time-out has a task for each connection that every read and write wakes. Here what moves stores
//! the time, and one task looks after all of them.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::task::AtomicWaker;
use poem::http::uri::Scheme;
use poem::listener::{Acceptor, TcpAcceptor};
use poem::web::{LocalAddr, RemoteAddr};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::AbortOnDropHandle;

/// After the system refused a connection: there may be no descriptor, and there is none the moment after.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);
/// How often idle connections are looked for: the unit of time here.
const TICK: Duration = Duration::from_secs(1);
/// No request is worked on for so many ticks: a connection on which nothing moved for longer may make room.
const REQUEST: u64 = 20;

/// Accepts clients.
pub struct Clients {
    inner: TcpAcceptor,
    places: Arc<Semaphore>,
    open: Arc<Open>,
    _looking: AbortOnDropHandle<()>,
}

/// The connections there are, and the time in ticks.
#[derive(Debug, Default)]
struct Open {
    now: AtomicU64,
    connections: Mutex<Vec<Weak<Activity>>>,
}

#[derive(Debug)]
struct Activity {
    open: Arc<Open>,
    moved_at: AtomicU64,
    is_closed: AtomicBool,
    reader: AtomicWaker,
}

/// A client's connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    activity: Arc<Activity>,
    _place: OwnedSemaphorePermit,
}

impl Clients {
    /// For so many connections at once, each closed after `idle` without a byte.
    pub fn new(inner: TcpAcceptor, most: usize, idle: Duration) -> Clients {
        let open = Arc::new(Open::default());
        let looking = {
            let (open, idle) = (open.clone(), idle.as_secs().max(1));
            async move {
                let mut ticks = tokio::time::interval(TICK);
                loop {
                    ticks.tick().await;
                    open.now.fetch_add(1, Ordering::Relaxed);
                    open.close_all_idle_for(idle);
                }
            }
        };
        Clients { inner, places: Arc::new(Semaphore::new(most)), open, _looking: AbortOnDropHandle::new(tokio::spawn(looking)) }
    }

    /// A place for one more; if all are taken, who has been idle for longest loses theirs.
    async fn place(&self) -> io::Result<OwnedSemaphorePermit> {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Ok(place);
        }
        tracing::warn!("all places for clients' connections are taken");
        let waiting = self.places.clone().acquire_owned();
        let making_room = async {
            loop {
                self.open.close_longest_idle();
                tokio::time::sleep(TICK).await;
            }
        };
        tokio::select! {
            place = waiting => place.map_err(io::Error::other),
            () = making_room => Err(io::ErrorKind::ConnectionRefused.into()),
        }
    }
}

impl Acceptor for Clients {
    type Io = Connection;

    fn local_addr(&self) -> Vec<LocalAddr> {
        self.inner.local_addr()
    }

    async fn accept(&mut self) -> io::Result<(Connection, LocalAddr, RemoteAddr, Scheme)> {
        let accepted = async {
            let (stream, local, remote, scheme) = self.inner.accept().await?;
            let place = self.place().await?;
            // Answers are written whole: none waits for the one before it to be acknowledged.
            stream.set_nodelay(true)?;
            Ok((Connection { stream, activity: self.open.begin(), _place: place }, local, remote, scheme))
        };
        let accepted = accepted.await;
        if accepted.is_err() {
            tokio::time::sleep(REFUSED_PAUSE).await;
        }
        accepted
    }
}

impl Open {
    fn begin(self: &Arc<Self>) -> Arc<Activity> {
        let activity = Arc::new(Activity {
            open: self.clone(),
            moved_at: AtomicU64::new(self.now.load(Ordering::Relaxed)),
            is_closed: AtomicBool::new(false),
            reader: AtomicWaker::new(),
        });
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&activity));
        activity
    }

    /// Those that are there, each with how long nothing has moved on it.
    fn idle(&self) -> Vec<(u64, Arc<Activity>)> {
        let now = self.now.load(Ordering::Relaxed);
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|connection| connection.strong_count() > 0);
        let idle = |activity: Arc<Activity>| (now.saturating_sub(activity.moved_at.load(Ordering::Relaxed)), activity);
        connections.iter().filter_map(Weak::upgrade).map(idle).collect()
    }

    fn close_all_idle_for(&self, limit: u64) {
        self.idle().iter().filter(|(idle, _)| *idle > limit).for_each(|(_, activity)| activity.close());
    }

    fn close_longest_idle(&self) {
        let is_open = |activity: &Activity| !activity.is_closed.load(Ordering::Relaxed);
        let longest = self.idle().into_iter().filter(|(idle, activity)| *idle > REQUEST && is_open(activity));
        if let Some((_, activity)) = longest.max_by_key(|(idle, _)| *idle) {
            activity.close();
        }
    }
}

impl Activity {
    fn moved(&self) {
        self.moved_at.store(self.open.now.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The server reads the end of what the client sends, and ends the connection.
    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.reader.wake();
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.activity.reader.register(cx.waker());
        if self.activity.is_closed.load(Ordering::Acquire) {
            return Poll::Ready(Ok(()));
        }
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if read.is_ready() {
            self.activity.moved();
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        if written.is_ready() {
            self.activity.moved();
        }
        written
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        if written.is_ready() {
            self.activity.moved();
        }
        written
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

#[cfg(test)]
mod tests {
    use poem::listener::{Listener, TcpListener};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn clients(most: usize, idle: u64) -> (Clients, std::net::SocketAddr) {
        let inner = TcpListener::bind("127.0.0.1:0").into_acceptor().await.unwrap();
        let address = *inner.local_addr()[0].as_socket_addr().unwrap();
        (Clients::new(inner, most, Duration::from_secs(idle)), address)
    }

    /// A connection as both sides have it.
    async fn open(clients: &mut Clients, address: std::net::SocketAddr) -> (TcpStream, Connection) {
        let (theirs, ours) = tokio::join!(TcpStream::connect(address), clients.accept());
        (theirs.unwrap(), ours.unwrap().0)
    }

    #[tokio::test]
    async fn what_nothing_moves_on_is_closed_and_nothing_else() {
        let (mut clients, address) = clients(10, 3).await;
        let (_idle, mut ours) = open(&mut clients, address).await;
        let (mut busy, mut read) = open(&mut clients, address).await;
        let talking = tokio::spawn(async move {
            loop {
                busy.write_u8(1).await.unwrap();
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        let mut bytes = [0; 1];
        let reading = tokio::spawn(async move {
            let mut count = 0;
            while read.read(&mut bytes).await.unwrap() > 0 {
                count += 1;
            }
            count
        });
        assert_eq!(ours.read(&mut [0; 1]).await.unwrap(), 0, "it ends by itself");
        assert!(!reading.is_finished());
        talking.abort();
        assert!(reading.await.unwrap() > 3, "and so does the other one, when nothing moves on it any more");
    }

    /// A place is free again when its connection ends, and the one that is idle for longest makes room.
    #[tokio::test]
    async fn there_are_no_more_than_there_are_places_for() {
        let (mut clients, address) = clients(2, 600).await;
        let (_first, mut oldest) = open(&mut clients, address).await;
        let (second, other) = open(&mut clients, address).await;
        let mut third = Box::pin(clients.accept());
        let waiting = TcpStream::connect(address).await.unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(300), &mut third).await.is_err(), "it waits");
        drop((second, other));
        let (third, ..) = third.await.unwrap();
        // As after a while.
        clients.open.now.fetch_add(REQUEST + 5, Ordering::Relaxed);
        third.activity.moved();
        let mut fourth = Box::pin(clients.accept());
        let also_waiting = TcpStream::connect(address).await.unwrap();
        let served = async {
            assert_eq!(oldest.read(&mut [0; 1]).await.unwrap(), 0);
            drop(oldest);
        };
        let (fourth, ()) = tokio::join!(&mut fourth, served);
        fourth.unwrap();
        assert!(!third.activity.is_closed.load(Ordering::Relaxed));
        drop((waiting, also_waiting));
    }
}
