//! A closed-loop load generator over plain TCP. It is lean, so that the measurement reflects the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A client that places orders.
#[derive(Clone, Debug)]
pub struct Client {
    pub api_key: String,
    pub api_secret: String,
}

/// Result of one run.
#[derive(Clone, Debug)]
pub struct Measured {
    pub per_second: f64,
    pub p50: Duration,
    pub p90: Duration,
    pub p99: Duration,
    pub p999: Duration,
}

impl Measured {
    pub fn of(mut latencies: Vec<Duration>, elapsed: Duration) -> Measured {
        latencies.sort_unstable();
        let at = |share: f64| latencies.get(((latencies.len() as f64 - 1.0) * share) as usize).copied().unwrap_or_default();
        let per_second = latencies.len() as f64 / elapsed.as_secs_f64();
        Measured { per_second, p50: at(0.50), p90: at(0.90), p99: at(0.99), p999: at(0.999) }
    }
}

/// Number of the next run, which is a part of its idempotency keys.
static NEXT_RUN: AtomicU64 = AtomicU64::new(0);

/// Places orders at one address. See [`orders_over`].
pub async fn orders(
    address: &str,
    clients: &Arc<Vec<Client>>,
    product_id: i64,
    connections: usize,
    period: Duration,
) -> Result<Measured> {
    let (measured, _) = orders_over(&[address.to_owned()], clients, product_id, connections, period).await?;
    Ok(measured)
}

/// Places orders from `connections` connections for `period`. The addresses share the connections equally. Each
/// connection places the next order when the last one is answered, under a new idempotency key. Fails on any status but
/// 201. Also returns the number of all orders, including those of the warm-up.
pub async fn orders_over(
    addresses: &[String],
    clients: &Arc<Vec<Client>>,
    product_id: i64,
    connections: usize,
    period: Duration,
) -> Result<(Measured, u64)> {
    let run = NEXT_RUN.fetch_add(1, Ordering::Relaxed);
    let warm_up = period / 5;
    let start = Instant::now();
    let mut tasks = Vec::new();
    for lane in 0..connections {
        // Each address gets neighbouring lanes. If two addresses took turns, each would get every other wallet.
        let address = addresses.get(lane * addresses.len() / connections).context("an address")?.clone();
        let clients = clients.clone();
        tasks.push(tokio::spawn(async move {
            let mut connection = Connection::open(&address).await?;
            let mut latencies = Vec::with_capacity(100_000);
            let (mut n, mut placed) = (lane, 0_u64);
            while start.elapsed() < warm_up + period {
                // A stride over the wallets, so that each batch contains different ones.
                let client = &clients[n.wrapping_mul(7_919) % clients.len()];
                let begun = Instant::now();
                connection.place_order(client, product_id, &format!("run-{run}-{lane}-{n}")).await?;
                if begun.duration_since(start) > warm_up {
                    latencies.push(begun.elapsed());
                }
                n += connections;
                placed += 1;
            }
            anyhow::Ok((latencies, placed))
        }));
    }
    let (mut latencies, mut all) = (Vec::new(), 0);
    for task in tasks {
        let (of_lane, placed) = task.await??;
        latencies.extend(of_lane);
        all += placed;
    }
    Ok((Measured::of(latencies, period), all))
}

/// Number of connections that place orders at a steady rate.
const STEADY_CONNECTIONS: u64 = 64;

/// Places this many orders over this many connections, as fast as possible.
pub async fn orders_at_once(
    address: &str,
    clients: &Arc<Vec<Client>>,
    product: i64,
    orders: u64,
    connections: u64,
) -> Result<()> {
    let run = NEXT_RUN.fetch_add(1, Ordering::Relaxed);
    let lanes = (0..connections).map(|lane| {
        let (address, clients) = (address.to_owned(), clients.clone());
        tokio::spawn(async move {
            let mut connection = Connection::open(&address).await?;
            for n in (lane..orders).step_by(connections as usize) {
                connection.place_order(&clients[n as usize % clients.len()], product, &format!("run-{run}-{n}")).await?;
            }
            anyhow::Ok(())
        })
    });
    for lane in futures::future::join_all(lanes).await {
        lane??;
    }
    Ok(())
}

/// Places orders at this rate per second, whatever happens to them. Returns how many it placed.
pub async fn orders_steadily(
    address: &str,
    clients: &Arc<Vec<Client>>,
    product: i64,
    per_second: u32,
    period: Duration,
    run: &'static str,
) -> Result<u64> {
    let orders = (f64::from(per_second) * period.as_secs_f64()) as u64;
    let start = Instant::now();
    let lanes = (0..STEADY_CONNECTIONS).map(|lane| {
        let (address, clients) = (address.to_owned(), clients.clone());
        tokio::spawn(async move {
            let mut connection = Connection::open(&address).await?;
            for n in (lane..orders).step_by(STEADY_CONNECTIONS as usize) {
                tokio::time::sleep_until((start + Duration::from_secs(1) * n as u32 / per_second).into()).await;
                connection.place_order(&clients[n as usize % clients.len()], product, &format!("{run}-{n}")).await?;
            }
            anyhow::Ok(())
        })
    });
    for lane in futures::future::join_all(lanes).await {
        lane??;
    }
    Ok(orders)
}

/// A keep-alive connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Connection {
    pub async fn open(address: &str) -> Result<Connection> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, request: Vec::with_capacity(1024), answer: Vec::with_capacity(4096) })
    }

    /// Sends one order and reads the whole response.
    pub async fn place_order(&mut self, client: &Client, product_id: i64, key: &str) -> Result<()> {
        use std::io::Write;
        let body = format!(r#"{{"product_id":{product_id},"denomination":10.00,"quantity":1}}"#);
        self.request.clear();
        write!(
            self.request,
            "POST /api/v1/orders HTTP/1.1\r\nHost: bench\r\nX-API-Key: {}\r\nX-API-Secret: {}\r\nIdempotency-Key: {key}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            client.api_key,
            client.api_secret,
            body.len()
        )?;
        self.stream.write_all(&self.request).await?;
        self.answer.clear();
        loop {
            if self.stream.read_buf(&mut self.answer).await? == 0 {
                bail!("the server closed the connection");
            }
            let Some(head) = find(&self.answer, b"\r\n\r\n") else { continue };
            let length = content_length(&self.answer[..head]).context("an answer without Content-Length")?;
            if self.answer.len() >= head + 4 + length {
                break;
            }
        }
        if !self.answer.starts_with(b"HTTP/1.1 201") {
            bail!("not 201: {}", String::from_utf8_lossy(&self.answer));
        }
        Ok(())
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn content_length(head: &[u8]) -> Option<usize> {
    let head = std::str::from_utf8(head).ok()?;
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    })
}
