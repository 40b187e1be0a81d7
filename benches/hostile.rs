//! Floods against a node, beside regular clients. Measures the node's peak memory, the clients' latency, and the
//! number of client requests that got no answer.
//!
//! Each flood runs against a fresh node. It comes from other loopback addresses than the clients, which open a new
//! connection for every request. Floods, clients, node and Postgres share the processors of this machine.
//!
//! ```text
//! cargo bench --bench hostile            # 15 s per flood
//! cargo bench --bench hostile -- quick   # 4 s per flood
//! ```

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;
use support::load::{Client, Measured};
use support::plot::Bars;
use support::report::Report;
use support::table::{in_millis, mebibytes, millis, thousands};
use support::{Serve, arguments};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// Number of well-behaved clients, each with one request at a time.
const CLIENTS: usize = 8;
/// A client that waits this long without an answer counts as kept out.
const PATIENCE: Duration = Duration::from_secs(5);
/// Number of users whose passwords the flood guesses.
const USERS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flood {
    None,
    Streams,
    SlowHeads,
    SlowBodies,
    Connections,
    RefusedBodies,
    BadLogins,
}

impl Flood {
    const ALL: [Flood; 7] = [
        Flood::None,
        Flood::Streams,
        Flood::SlowHeads,
        Flood::SlowBodies,
        Flood::Connections,
        Flood::RefusedBodies,
        Flood::BadLogins,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Streams => "HTTP/2 streams: 350,000 a connection",
            Self::SlowHeads => "slow heads: a byte a second",
            Self::SlowBodies => "slow bodies: a byte a second, with a good key",
            Self::Connections => "connections of one address",
            Self::RefusedBodies => "1 MiB bodies without a key",
            Self::BadLogins => "wrong passwords, 4 an address",
        }
    }

    /// Number of connections that the flood holds at the same time.
    fn lanes(self) -> usize {
        match self {
            Self::None => 0,
            Self::Streams => 8,
            Self::SlowHeads | Self::SlowBodies => 1_000,
            Self::Connections => 2_000,
            Self::RefusedBodies => 32,
            Self::BadLogins => 90,
        }
    }
}

/// Target of a flood.
#[derive(Debug)]
struct Target {
    address: SocketAddr,
    insider: Client,
    /// Number of connections, requests or logins begun so far.
    begun: AtomicU64,
    /// Counter of the source addresses from which wrong passwords come.
    last_address: AtomicU64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let period = Duration::from_secs(if arguments().contains(&"quick".to_owned()) { 4 } else { 15 });
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(hard.min(16_384)), hard)?;
    let mut report = Report::start("hostile");
    let server = support::postgres().await?;
    support::database(&server, "hostile").await?;
    let mut rows = vec![];
    let mut latency = Bars { title: "Latency of other clients during each flood", series: &["p50", "p99"], rows: vec![] };
    let mut calm: Option<Measured> = None;
    for flood in Flood::ALL {
        let serve = Serve::start(&server.url_of("hostile"), "api", &[]).await?;
        let clients = serve.clients(CLIENTS + 1).await?;
        let (insider, clients) = clients.split_last().context("clients")?;
        let account = serve.operator("/accounts", json!({"name": "Users"})).await?;
        for n in 0..USERS {
            let user = json!({"email": email(flood, n), "password": "a password that nobody guesses", "role": "viewer"});
            serve.operator(&format!("/accounts/{}/users", account["id"]), user).await?;
        }
        let target = Arc::new(Target {
            address: serve.address.parse()?,
            insider: insider.clone(),
            begun: AtomicU64::new(0),
            last_address: AtomicU64::new(0),
        });
        let mut attackers = JoinSet::new();
        for lane in 0..flood.lanes() {
            let target = target.clone();
            attackers.spawn(async move {
                loop {
                    // Errors are expected: the node refuses and closes the flood's connections.
                    _ = attack(flood, lane, &target).await;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            });
        }
        // Gives the flood time to open as many connections as it can.
        tokio::time::sleep(period / 4).await;
        let (latencies, kept_out) = visit(&serve.address, clients, period).await?;
        attackers.shutdown().await;
        let answered = latencies.len();
        ensure!(answered + kept_out > 0, "no client sent a request");
        let measured = Measured::of(latencies, period);
        latency.rows.push((flood.name().to_owned(), vec![in_millis(measured.p50), in_millis(measured.p99)]));
        let beside = calm.get_or_insert_with(|| measured.clone());
        let times = |now: Duration, then: Duration| format!("{:.1}×", now.as_secs_f64() / then.as_secs_f64());
        rows.push(vec![
            flood.name().to_owned(),
            thousands(target.begun.load(Ordering::Relaxed) as f64),
            mebibytes(serve.peak_memory()?),
            millis(measured.p50),
            times(measured.p50, beside.p50),
            millis(measured.p99),
            times(measured.p99, beside.p99),
            format!("{} of {}", thousands(kept_out as f64), thousands((answered + kept_out) as f64)),
        ]);
    }
    report.table(
        "Floods against a node",
        &format!(
            "Each flood lasts {} seconds and runs against a fresh node. Beside it, {CLIENTS} clients read their wallets over new \
             connections. *Begun* counts the flood's connections, requests or logins. *Kept out* counts the clients' requests that \
             got no success within {} seconds. The factors compare with the row without a flood. Flood, clients, node and Postgres share \
             the processors.",
            period.as_secs(),
            PATIENCE.as_secs(),
        ),
        &["flood", "begun", "peak memory", "clients' p50", "of none", "clients' p99", "of none", "kept out"],
        &rows,
    );
    report.plot("latency", "Latency of other clients during each flood", latency.svg()?);
    report.end(&server).await?;
    server.stop().await?;
    Ok(())
}

fn email(flood: Flood, n: usize) -> String {
    format!("user-{n}-{flood:?}@example.com").to_lowercase()
}

/// Reads wallets from [`CLIENTS`] clients for the period, each request over a new connection. Returns the latencies
/// of the requests that got an answer, and the number of those that got none.
async fn visit(address: &str, clients: &[Client], period: Duration) -> Result<(Vec<Duration>, usize)> {
    let start = Instant::now();
    let mut lanes = JoinSet::new();
    for client in clients {
        let (address, client) = (address.parse()?, client.clone());
        lanes.spawn(async move {
            let (mut latencies, mut kept_out) = (vec![], 0);
            while start.elapsed() < period {
                let begun = Instant::now();
                match tokio::time::timeout(PATIENCE, read_wallets(address, &client)).await {
                    Ok(Ok(())) => latencies.push(begun.elapsed()),
                    Ok(Err(_)) | Err(_) => kept_out += 1,
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            (latencies, kept_out)
        });
    }
    let (mut latencies, mut kept_out) = (vec![], 0);
    for (answered, not) in lanes.join_all().await {
        latencies.extend(answered);
        kept_out += not;
    }
    Ok((latencies, kept_out))
}

async fn read_wallets(address: SocketAddr, client: &Client) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let (key, secret) = (&client.api_key, &client.api_secret);
    let head = format!(
        "GET /api/v1/wallets HTTP/1.1\r\nHost: bench\r\nX-API-Key: {key}\r\nX-API-Secret: {secret}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    let mut answer = vec![];
    stream.read_to_end(&mut answer).await?;
    ensure!(answer.starts_with(b"HTTP/1.1 200 "), "not answered");
    Ok(())
}

/// Connects from a loopback address that only attackers use.
async fn connect(target: &Target, source: u64) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    let [.., high, low] = source.to_be_bytes();
    socket.bind(SocketAddr::from(([127, 9, high, low], 0)))?;
    let stream = socket.connect(target.address).await?;
    target.begun.fetch_add(1, Ordering::Relaxed);
    Ok(stream)
}

/// Runs one connection's attack until the node closes the connection.
async fn attack(flood: Flood, lane: usize, target: &Target) -> Result<()> {
    match flood {
        Flood::None => Ok(()),
        Flood::Streams => {
            let mut stream = connect(target, lane as u64 % 4).await?;
            Ok(stream.write_all(&streams(350_000)).await?)
        }
        Flood::SlowHeads => {
            let mut stream = connect(target, lane as u64 % 4).await?;
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: bench\r\nX-Slow: ").await?;
            drip(&mut stream).await
        }
        Flood::SlowBodies => {
            let mut stream = connect(target, lane as u64 % 4).await?;
            let Client { api_key, api_secret } = &target.insider;
            let head = format!(
                "POST /api/v1/orders HTTP/1.1\r\nHost: bench\r\nX-API-Key: {api_key}\r\nX-API-Secret: {api_secret}\r\n\
                 Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await?;
            drip(&mut stream).await
        }
        Flood::Connections => {
            let mut stream = connect(target, 0).await?;
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: bench\r\n\r\n").await?;
            while stream.read(&mut [0; 4_096]).await? > 0 {}
            Ok(())
        }
        Flood::RefusedBodies => {
            let mut stream = connect(target, lane as u64 % 4).await?;
            let body = vec![b' '; 1 << 20];
            loop {
                let head = format!("POST /api/v1/orders HTTP/1.1\r\nHost: bench\r\nContent-Length: {}\r\n\r\n", body.len());
                stream.write_all(head.as_bytes()).await?;
                stream.write_all(&body).await?;
                ensure!(stream.read(&mut [0; 4_096]).await? > 0, "closed");
                target.begun.fetch_add(1, Ordering::Relaxed);
            }
        }
        Flood::BadLogins => {
            let source = target.last_address.fetch_add(1, Ordering::Relaxed) % 60_000;
            let mut stream = connect(target, source).await?;
            for n in 0..4 {
                let body = json!({"email": email(flood, n % USERS), "password": "wrong"}).to_string();
                let head = format!(
                    "POST /auth/login HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                );
                stream.write_all(head.as_bytes()).await?;
                ensure!(stream.read(&mut [0; 4_096]).await? > 0, "closed");
                target.begun.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }
    }
}

/// Sends one byte per second for as long as the node accepts them.
async fn drip(stream: &mut TcpStream) -> Result<()> {
    let (mut reader, mut writer) = stream.split();
    let ended = async {
        while reader.read(&mut [0; 4_096]).await? > 0 {}
        anyhow::Ok(())
    };
    let dripping = async {
        loop {
            writer.write_all(b"a").await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        ended = ended => ended,
        dripping = dripping => dripping,
    }
}

/// Builds an HTTP/2 connection (prior knowledge) with this many requests, each on its own stream.
fn streams(count: u32) -> Vec<u8> {
    // HEADERS block of `GET http://a/readyz`, with END_STREAM.
    let block = [&[0x82, 0x86, 0x44, 0x07][..], b"/readyz", &[0x41, 0x01], b"a"].concat();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    for stream in 0..count {
        bytes.extend([0, 0, block.len() as u8, 1, 5]);
        bytes.extend((2 * stream + 1).to_be_bytes());
        bytes.extend(&block);
    }
    bytes
}
