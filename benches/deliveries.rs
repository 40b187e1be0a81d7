//! How fast deliveries go, over TLS with verification on and over reused connections, beside a bare
//! loop of the same sender against the same receiver in the same run:
//!
//! ```text
//! cargo bench --bench deliveries                # 200,000 deliveries a backlog, two minutes end to end
//! cargo bench --bench deliveries -- quick       # a twentieth of that
//! cargo bench --bench deliveries -- quick drain # only what the words name: drain, cost, latency, fair, whole
//! ```

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rewards_ledger::delivery::sender::{Delivery, Sender, SenderSettings};
use serde_json::json;
use sqlx::PgPool;
use support::arrivals::{Arrivals, Behaviour};
use support::load::{Client, Connection, Measured};
use support::table::{self, millis, thousands};
use support::traffic::Traffic;
use support::{Holdings, Serve, Stolen, machine};

/// Connections that place orders, steadily or as fast as they go.
const CONNECTIONS: u64 = 16;
const BACKLOG_CONNECTIONS: u64 = 256;
/// Most that one scenario may take beyond its period.
const PATIENCE: Duration = Duration::from_secs(900);
/// Sends at once in the bare loop: what a worker has in flight by default.
const BARE_IN_FLIGHT: usize = 64;

#[derive(Clone, Copy)]
struct Size {
    backlog: u64,
    period: Duration,
    whole: Duration,
}

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let is_quick = words.iter().any(|word| word == "quick");
    let named = |word: &str| words.iter().all(|w| w == "quick") || words.iter().any(|w| w == word);
    let size = match is_quick {
        true => Size { backlog: 10_000, period: Duration::from_secs(6), whole: Duration::from_secs(20) },
        false => Size { backlog: 200_000, period: Duration::from_secs(30), whole: Duration::from_secs(120) },
    };
    println!("{}", machine());
    let stolen = Stolen::since();
    let server = support::postgres().await?;
    let database = async |name: &str| -> Result<String> {
        support::database(&server, name).await?;
        Ok(server.url_of(name))
    };

    if named("drain") {
        let mut rows = vec![];
        for (name, webhooks, behaviour) in [
            ("1 endpoint", 1, Behaviour::Well),
            ("10 endpoints", 10, Behaviour::Well),
            ("1,000 endpoints", 1_000, Behaviour::Well),
            ("1,000 endpoints, 5 % failing, 1 % hanging", 1_000, Behaviour::SomeFailSomeHang),
        ] {
            let url = database(&format!("drain_{}", rows.len())).await?;
            let backlog = make_backlog(&url, webhooks, size.backlog, behaviour).await?;
            // Around it, for a machine is not as fast at all times.
            let before = bare_loop(size.period / 3).await?;
            let drained = drain(&url, &url, backlog).await?;
            let bare = (before + bare_loop(size.period / 3).await?) / 2.0;
            rows.push(vec![
                name.to_owned(),
                thousands(drained.delivered as f64),
                thousands(drained.per_second),
                thousands(bare),
                format!("{:.0} %", 100.0 * drained.per_second / bare),
                format!("{:.0} µs", drained.cpu.as_secs_f64() * 1e6 / drained.delivered as f64),
                table::mebibytes(drained.early.memory_bytes),
                table::mebibytes(drained.most.memory_bytes),
                drained.most.descriptors.to_string(),
            ]);
        }
        let header = [
            "",
            "deliveries",
            "deliveries/s",
            "a bare loop's",
            "of them",
            "node's CPU each",
            "memory after a tenth",
            "most memory",
            "most descriptors",
        ];
        table::print("A backlog drained", &header, &rows);
    }
    if named("cost") {
        let mut rows = Vec::new();
        for webhooks in [1, 10, 1_000] {
            let url = database(&format!("cost_{webhooks}")).await?;
            let traffic = Traffic::before(&url).await?;
            let backlog = size.backlog.min(20_000);
            let backlog = make_backlog(&url, webhooks, backlog, Behaviour::Well).await?;
            let drained = drain(&url, &traffic.url, backlog).await?;
            let each = |count: u64| count as f64 / drained.delivered as f64;
            rows.push(vec![
                thousands(webhooks as f64),
                format!("{:.3}", each(traffic.round_trips())),
                thousands(each(traffic.bytes_to_database())),
                thousands(each(traffic.bytes_from_database())),
                thousands(each(drained.wal_bytes)),
            ]);
        }
        let header = ["endpoints", "round trips", "bytes to Postgres", "bytes from it", "bytes of WAL"];
        table::print("What a delivery costs the database", &header, &rows);
    }
    if named("latency") {
        let mut rows = Vec::new();
        for (name, webhooks) in [("1 endpoint", 1), ("10 endpoints", 10), ("1,000 endpoints", 1_000)] {
            let url = database(&format!("latency_{webhooks}")).await?;
            let measured = latency(&url, webhooks, 500, size.period, false).await?;
            rows.push(vec![name.to_owned(), thousands(measured.per_second), millis(measured.p50), millis(measured.p99)]);
        }
        table::print("From the order's commit to the receiver's first byte", &["", "deliveries/s", "p50", "p99"], &rows);
    }
    if named("fair") {
        let alone = latency(&database("fair_alone").await?, 10, 200, size.period, false).await?;
        let beside = latency(&database("fair_beside").await?, 10, 200, size.period, true).await?;
        let ratio = |a: Duration, b: Duration| format!("{:.2}×", a.as_secs_f64() / b.as_secs_f64());
        let rows = vec![
            vec!["alone".to_owned(), millis(alone.p50), millis(alone.p99)],
            vec!["beside it".to_owned(), millis(beside.p50), millis(beside.p99)],
            vec!["ratio".to_owned(), ratio(beside.p50, alone.p50), ratio(beside.p99, alone.p99)],
        ];
        table::print("Beside an endpoint that hangs, with 1,000 deliveries due to it", &["ten others", "p50", "p99"], &rows);
    }
    if named("whole") {
        let (placed, measured, lag) = whole(&database("whole").await?, 1_500, size.whole).await?;
        let rows = vec![
            vec!["orders placed and delivered a second".to_owned(), thousands(placed)],
            vec!["from commit to first byte, p50".to_owned(), millis(measured.p50)],
            vec!["p99".to_owned(), millis(measured.p99)],
            vec!["longest, first and second half".to_owned(), format!("{}, {}", millis(lag.0), millis(lag.1))],
        ];
        table::print("End to end, at 1,500 orders a second", &["", "value"], &rows);
    }
    println!("\n{stolen}");
    server.stop().await?;
    Ok(())
}

/// The sender alone, as fast as it goes; deliveries a second.
async fn bare_loop(period: Duration) -> Result<f64> {
    let arrivals = Arrivals::start(Behaviour::Well).await?;
    let settings = SenderSettings {
        service_name: "SERVICE".to_owned(),
        deadline: Duration::from_secs(30),
        ca_pem: Some(arrivals.ca_pem().as_bytes().to_vec()),
        allowed_nets: vec!["127.0.0.0/8".parse()?],
        max_connections: 2 * BARE_IN_FLIGHT,
    };
    let sender = Arc::new(Sender::new(settings)?);
    let url: Arc<str> = arrivals.url().into();
    let body = hyper::body::Bytes::from(vec![b'.'; 700]); // as long as an envelope
    let (sent, start) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let warm_up = period / 5;
    let lanes: Vec<_> = (0..BARE_IN_FLIGHT)
        .map(|_| {
            let (sender, url, body, sent) = (sender.clone(), url.clone(), body.clone(), sent.clone());
            tokio::spawn(async move {
                while start.elapsed() < warm_up + period {
                    let delivery = Delivery {
                        url: &url,
                        webhook_id: 1,
                        event_id: "0190a000-0000-7000-8000-000000000000",
                        event_type: "order.created",
                        request_id: "0190a000-0000-7000-8000-000000000000",
                        secret: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                        timestamp: 1_800_000_000,
                        body: body.clone(),
                    };
                    let is_sent = sender.send(delivery).await.succeeded();
                    sent.fetch_add(u64::from(is_sent && start.elapsed() > warm_up), Ordering::Relaxed);
                }
            })
        })
        .collect();
    futures::future::try_join_all(lanes).await?;
    Ok(sent.load(Ordering::Relaxed) as f64 / period.as_secs_f64())
}

struct Drained {
    delivered: u64,
    per_second: f64,
    cpu: Duration,
    wal_bytes: u64,
    /// What the node held when a tenth was delivered, and the most at any time.
    early: Holdings,
    most: Holdings,
}

/// What is due, and to whom.
struct Backlog {
    arrivals: Arrivals,
    /// Deliveries to endpoints that answer with a success.
    expected: u64,
}

async fn make_backlog(url: &str, webhooks: usize, deliveries: u64, behaviour: Behaviour) -> Result<Backlog> {
    let arrivals = Arrivals::start(behaviour).await?;
    let serve = Serve::start(url, "api,projector", &[]).await?;
    let (product, clients) = prepare(&serve, &arrivals, webhooks).await?;
    place_all(&serve.address, &clients, product, deliveries, BACKLOG_CONNECTIONS).await?;
    let pool = PgPool::connect(url).await?;
    let started = Instant::now();
    while count(&pool, "SELECT count(*) FROM delivery_state").await? < deliveries {
        ensure!(started.elapsed() < PATIENCE, "the backlog was not made");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let expected = deliveries - arrivals.not_answered(webhooks) * (deliveries / webhooks as u64);
    Ok(Backlog { arrivals, expected })
}

/// Drains a backlog through a node that reaches its database by `worker_url`.
async fn drain(url: &str, worker_url: &str, backlog: Backlog) -> Result<Drained> {
    let Backlog { arrivals, expected } = backlog;
    let pool = PgPool::connect(url).await?;
    let wal = "SELECT (pg_current_wal_lsn() - '0/0')::bigint";
    let wal_before = count(&pool, wal).await?;
    let serve = Serve::start(worker_url, "api,delivery", &arrivals.reach()).await?;
    let started = Instant::now();
    let (mut early, mut most) = (Holdings::default(), Holdings::default());
    while arrivals.good() < expected {
        ensure!(started.elapsed() < PATIENCE, "not everything was delivered: {} of {expected}", arrivals.good());
        most = most.max(serve.holdings()?);
        if arrivals.good() <= expected / 10 {
            early = most;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let took = arrivals.since_first().context("something arrived")?;
    let is_done = "SELECT count(*) FROM delivery_state WHERE status = 'delivered'";
    while count(&pool, is_done).await? < expected {
        ensure!(started.elapsed() < PATIENCE, "not everything was recorded");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let cpu = serve.cpu();
    let wal_bytes = count(&pool, wal).await? - wal_before;
    Ok(Drained { delivered: expected, per_second: expected as f64 / took.as_secs_f64(), cpu, wal_bytes, early, most })
}

async fn count(pool: &PgPool, sql: &'static str) -> Result<u64> {
    Ok(u64::try_from(sqlx::query_scalar::<_, i64>(sql).fetch_one(pool).await?)?)
}

/// A product without stock, and accounts with a webhook each that hears of new orders.
async fn prepare(serve: &Serve, arrivals: &Arrivals, webhooks: usize) -> Result<(i64, Arc<Vec<Client>>)> {
    let product = serve.product().await?;
    let clients = serve.clients(webhooks).await?;
    for (n, client) in clients.iter().enumerate() {
        let webhook = json!({"name": "bench", "url": format!("{}/{n}", arrivals.url()), "events": ["order.created"]});
        serve.client(client, "/webhooks", webhook).await?;
    }
    Ok((product, clients))
}

/// Places so many orders from so many connections, as fast as they go.
async fn place_all(address: &str, clients: &Arc<Vec<Client>>, product: i64, orders: u64, connections: u64) -> Result<()> {
    let lanes = (0..connections).map(|lane| {
        let (address, clients) = (address.to_owned(), clients.clone());
        tokio::spawn(async move {
            let mut connection = Connection::open(&address).await?;
            for n in (lane..orders).step_by(connections as usize) {
                connection.place_order(&clients[n as usize % clients.len()], product, &format!("backlog-{n}")).await?;
            }
            anyhow::Ok(())
        })
    });
    for lane in futures::future::join_all(lanes).await {
        lane??;
    }
    Ok(())
}

/// Places so many orders a second, whatever becomes of them.
async fn place_steadily(
    address: &str,
    clients: &Arc<Vec<Client>>,
    product: i64,
    per_second: u32,
    period: Duration,
    run: &'static str,
) -> Result<u64> {
    let orders = (f64::from(per_second) * period.as_secs_f64()) as u64;
    let start = Instant::now();
    let lanes = (0..CONNECTIONS).map(|lane| {
        let (address, clients) = (address.to_owned(), clients.clone());
        tokio::spawn(async move {
            let mut connection = Connection::open(&address).await?;
            for n in (lane..orders).step_by(CONNECTIONS as usize) {
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

/// How long deliveries take from the commit to the first byte, at a steady rate; perhaps beside an
/// endpoint that hangs with a thousand due to it.
async fn latency(url: &str, webhooks: usize, per_second: u32, period: Duration, beside_one_that_hangs: bool) -> Result<Measured> {
    let arrivals = Arrivals::start(Behaviour::Well).await?;
    let serve = Serve::start(url, "api,projector,delivery", &arrivals.reach()).await?;
    let (product, clients) = prepare(&serve, &arrivals, webhooks).await?;
    if beside_one_that_hangs {
        let hanging = serve.clients(1).await?;
        let webhook = json!({"name": "bench", "url": format!("{}/hang", arrivals.url()), "events": ["order.created"]});
        serve.client(&hanging[0], "/webhooks", webhook).await?;
        place_all(&serve.address, &hanging, product, 1_000, CONNECTIONS).await?;
    }
    // The first ones open connections.
    let warm_up = place_steadily(&serve.address, &clients, product, per_second, period / 3, "warm").await?;
    arrivals.until(warm_up, PATIENCE).await?;
    arrivals.forget();
    let start = Instant::now();
    let orders = place_steadily(&serve.address, &clients, product, per_second, period, "steady").await?;
    arrivals.until(orders, PATIENCE).await?;
    Ok(Measured::of(arrivals.latencies(), start.elapsed()))
}

/// Every role but fulfilment's stock: so many orders a second are placed, and each one's
/// `order.created` arrives. Orders a second, times, and the longest in either half.
async fn whole(url: &str, per_second: u32, period: Duration) -> Result<(f64, Measured, (Duration, Duration))> {
    let arrivals = Arrivals::start(Behaviour::Well).await?;
    let serve = Serve::start(url, "api,projector,fulfilment,delivery", &arrivals.reach()).await?;
    let (product, clients) = prepare(&serve, &arrivals, 10).await?;
    let start = Instant::now();
    let orders = place_steadily(&serve.address, &clients, product, per_second, period, "steady").await?;
    arrivals.until(orders, PATIENCE).await?;
    let took = start.elapsed();
    let latencies = arrivals.latencies();
    let (first, second) = latencies.split_at(latencies.len() / 2);
    let longest = |half: &[Duration]| half.iter().max().copied().unwrap_or_default();
    let lag = (longest(first), longest(second));
    Ok((orders as f64 / took.as_secs_f64(), Measured::of(latencies, took), lag))
}
