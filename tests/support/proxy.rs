//! A TCP proxy in front of Postgres that can cut a connection around a commit, or silence it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ledger_database::PgConnectOptions;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

use super::statements::Messages;

/// Treatment of the next COMMIT, or of the next statement that commits by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NextCommit {
    Passes = 0,
    /// It reaches the server, and its answer is lost.
    LosesItsAnswer = 1,
    /// It never reaches the server.
    IsLost = 2,
    /// It reaches the server, its answer is lost, and no new connection is accepted.
    LosesItsAnswerForLong = 3,
    /// It never reaches the server, and no new connection is accepted.
    IsLostForLong = 4,
    /// Its client is disconnected at once, and it reaches the server when the test says so.
    IsLate = 5,
}

/// A proxy, which ends with the runtime.
#[derive(Clone, Debug)]
pub struct Proxy {
    pub address: SocketAddr,
    next: Arc<AtomicU8>,
    cuts: Arc<AtomicUsize>,
    takes_none: Arc<AtomicBool>,
    is_away: watch::Sender<bool>,
    is_late_delivered: watch::Sender<bool>,
    open: Arc<Mutex<Vec<Arc<Connection>>>>,
    /// `application_name` whose new connections are silent from the start.
    silent_from_start: Arc<Mutex<Option<String>>>,
}

/// A connection through the proxy.
#[derive(Debug, Default)]
pub struct Connection {
    /// `application_name` of the client, once the client has sent it.
    name: Mutex<String>,
    /// Number of statements that the client has sent.
    statements: AtomicUsize,
    /// While set, bytes are read from both sides and not forwarded.
    is_silent: AtomicBool,
    /// Set when it ends. A silent connection ends only when its client closes it.
    has_ended: AtomicBool,
}

/// Marks a connection as ended, however its relay ends: by the client, by the server, or by a cut.
struct EndsWithRelay(Arc<Connection>);

impl Drop for EndsWithRelay {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::SeqCst);
    }
}

impl Connection {
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::SeqCst)
    }

    /// Reads the name from the startup message.
    fn hear(&self, bytes: &[u8]) {
        const KEY: &[u8] = b"\0application_name\0";
        let mut name = self.name.lock().unwrap();
        if name.is_empty()
            && let Some(at) = bytes.windows(KEY.len()).position(|window| window == KEY)
        {
            let value = bytes[at + KEY.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
            *name = String::from_utf8_lossy(value).into_owned();
        }
    }
}

impl Proxy {
    /// Starts a proxy in front of a database, and returns options for connections through it.
    pub async fn before(url: &str) -> (Proxy, PgConnectOptions) {
        let proxy = Proxy::start(Target::Socket(socket(url))).await;
        let mut through: reqwest::Url = url.parse().unwrap();
        through.set_host(Some("127.0.0.1")).unwrap();
        through.set_port(Some(proxy.address.port())).unwrap();
        (proxy, through.as_str().parse().unwrap())
    }

    /// Starts a proxy in front of a server that listens on a port of this machine.
    pub async fn before_port(port: u16) -> Proxy {
        Proxy::start(Target::Port(port)).await
    }

    async fn start(server: Target) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy {
            address: listener.local_addr().unwrap(),
            next: Arc::default(),
            cuts: Arc::default(),
            takes_none: Arc::default(),
            is_away: watch::Sender::new(false),
            is_late_delivered: watch::Sender::new(false),
            open: Arc::default(),
            silent_from_start: Arc::default(),
        };
        let accepting = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if accepting.takes_none.load(Ordering::SeqCst) {
                    continue;
                }
                // While the server is down, a client loses its connection at once.
                let Ok(server) = server.connect().await else { continue };
                let (relaying, mut away) = (accepting.clone(), accepting.is_away.subscribe());
                tokio::spawn(async move {
                    tokio::select! {
                        () = relaying.relay(client, server) => {}
                        _ = away.wait_for(|is_away| *is_away) => {}
                    }
                });
            }
        });
        proxy
    }

    pub fn set(&self, next: NextCommit) {
        self.next.store(next as u8, Ordering::SeqCst);
    }

    /// Cuts every connection and accepts no new one, or accepts connections again.
    pub fn set_away(&self, is_away: bool) {
        self.takes_none.store(is_away, Ordering::SeqCst);
        self.is_away.send_replace(is_away);
    }

    /// Silences every open connection of this `application_name`: both sides can still send and get acknowledgements,
    /// but receive nothing. Connections opened later work. Returns the silenced ones.
    pub fn silence(&self, name: &str) -> Vec<Arc<Connection>> {
        let open = self.open.lock().unwrap();
        let silenced: Vec<_> = open
            .iter()
            .filter(|connection| !connection.has_ended() && *connection.name.lock().unwrap() == name)
            .cloned()
            .collect();
        silenced.iter().for_each(|connection| connection.is_silent.store(true, Ordering::SeqCst));
        silenced
    }

    /// Silences new connections of this `application_name` from the start, or no more.
    pub fn silence_new(&self, name: Option<&str>) {
        *self.silent_from_start.lock().unwrap() = name.map(str::to_owned);
    }

    /// Returns the number of open connections of this `application_name` that are not silenced.
    pub fn heard(&self, name: &str) -> usize {
        let is_heard = |connection: &&Arc<Connection>| {
            !connection.has_ended() && !connection.is_silent() && *connection.name.lock().unwrap() == name
        };
        self.open.lock().unwrap().iter().filter(is_heard).count()
    }

    /// Returns the number of statements that connections of these names have sent so far.
    pub fn statements(&self, names: &[&str]) -> usize {
        let open = self.open.lock().unwrap();
        let of_names = open.iter().filter(|connection| names.contains(&&**connection.name.lock().unwrap()));
        of_names.map(|connection| connection.statements.load(Ordering::SeqCst)).sum()
    }

    /// Forwards the late bytes to the server. Returns when the server should have processed them.
    pub async fn deliver_late(&self) {
        self.is_late_delivered.send_replace(true);
        // The server answers nobody here, so nothing signals that it has processed them.
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }

    /// Returns the number of connections that were cut.
    pub fn cuts(&self) -> usize {
        self.cuts.load(Ordering::SeqCst)
    }

    async fn relay(self, client: TcpStream, server: Box<dyn Duplex>) {
        let connection = Arc::new(Connection::default());
        let _ends = EndsWithRelay(connection.clone());
        self.open.lock().unwrap().push(connection.clone());
        let answering = connection.clone();
        let (mut client_read, mut client_write) = client.into_split();
        let (mut server_read, mut server_write) = tokio::io::split(server);
        // Ends with this relay.
        let mut answers = tokio::task::JoinSet::new();
        answers.spawn(async move {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(n @ 1..) = server_read.read(&mut buffer).await {
                if answering.is_silent() {
                    continue;
                }
                if client_write.write_all(&buffer[..n]).await.is_err() {
                    return;
                }
            }
            if answering.is_silent() {
                // The client does not learn that the server has closed the connection either.
                std::future::pending::<()>().await;
            }
        });
        let mut buffer = vec![0; 64 * 1024];
        let (mut session, mut messages) = (Session::default(), Messages::default());
        while let Ok(n @ 1..) = client_read.read(&mut buffer).await {
            if connection.is_silent() {
                continue;
            }
            connection.hear(&buffer[..n]);
            connection.statements.fetch_add(messages.statements(&buffer[..n]), Ordering::SeqCst);
            if self.silent_from_start.lock().unwrap().as_ref() == Some(&*connection.name.lock().unwrap()) {
                connection.is_silent.store(true, Ordering::SeqCst);
                continue;
            }
            if session.commits(&buffer[..n]) {
                let next = self.next.swap(NextCommit::Passes as u8, Ordering::SeqCst);
                if next != NextCommit::Passes as u8 {
                    self.cuts.fetch_add(1, Ordering::SeqCst);
                    let is_for_long = [NextCommit::LosesItsAnswerForLong, NextCommit::IsLostForLong].map(|next| next as u8);
                    if is_for_long.contains(&next) {
                        self.takes_none.store(true, Ordering::SeqCst);
                    }
                    answers.shutdown().await; // drops both halves of the client's connection
                    if next == NextCommit::IsLate as u8 {
                        _ = self.is_late_delivered.subscribe().wait_for(|is_delivered| *is_delivered).await;
                    }
                    if ![NextCommit::IsLost, NextCommit::IsLostForLong].map(|next| next as u8).contains(&next) {
                        server_write.write_all(&buffer[..n]).await.unwrap();
                        // Give the server time to commit before it notices that the client is gone.
                        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                    }
                    return;
                }
            }
            if server_write.write_all(&buffer[..n]).await.is_err() {
                return;
            }
        }
    }
}

/// Returns the socket of the server at a URL. Test servers listen only on a socket.
pub fn socket(url: &str) -> PathBuf {
    let options: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
    options.get_socket().expect("the server listens on a socket").join(format!(".s.PGSQL.{}", options.get_port()))
}

/// Address of the server behind a proxy.
#[derive(Debug)]
enum Target {
    Socket(PathBuf),
    Port(u16),
}

/// A connection to a server.
trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

impl Target {
    async fn connect(&self) -> std::io::Result<Box<dyn Duplex>> {
        Ok(match self {
            Target::Socket(path) => Box::new(UnixStream::connect(path).await?),
            Target::Port(port) => Box::new(TcpStream::connect(("127.0.0.1", *port)).await?),
        })
    }
}

/// State of a client's session, as far as it determines whether something commits.
#[derive(Default)]
struct Session {
    is_in_transaction: bool,
    /// Names of the prepared statements that move the head.
    writing: Vec<Vec<u8>>,
}

impl Session {
    const MOVES_HEAD: &[u8] = b"\0WITH head AS (UPDATE log_head";

    /// Returns true if these bytes commit something: a COMMIT, or the writer's single statement outside a
    /// transaction.
    fn commits(&mut self, bytes: &[u8]) -> bool {
        let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
        if has(b"BEGIN;") {
            self.is_in_transaction = true;
        }
        if has(b"COMMIT\0") || has(b"ROLLBACK\0") {
            self.is_in_transaction = false;
            return has(b"COMMIT\0");
        }
        if let Some(at) = bytes.windows(Self::MOVES_HEAD.len()).position(|window| window == Self::MOVES_HEAD) {
            // Parse message: its length, the statement's name, the text.
            let name = (1..32).find(|length| at >= length + 5 && bytes[at - length - 5] == b'P');
            self.writing.extend(name.map(|length| bytes[at - length..at].to_vec()));
        }
        // Bind message: its length, the unnamed portal, the statement.
        let binds = |name: &[u8]| {
            bytes
                .windows(name.len() + 7)
                .any(|w| w[0] == b'B' && w[5] == 0 && &w[6..6 + name.len()] == name && w[6 + name.len()] == 0)
        };
        !self.is_in_transaction && self.writing.iter().any(|name| binds(name))
    }
}
