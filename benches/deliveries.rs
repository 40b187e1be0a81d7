//! Throughput of deliveries, over TLS with certificate verification and over reused connections. In the same run, a
//! bare loop of the same sender against the same receiver gives the comparison:
//!
//! ```text
//! cargo bench --bench deliveries                # 200,000 deliveries per backlog, two minutes end to end
//! cargo bench --bench deliveries -- quick       # a twentieth of that
//! cargo bench --bench deliveries -- quick drain # only the named parts: drain, cost, latency, fair, whole
//! cargo bench --bench deliveries -- drain 10    # only the drain and latency scenarios with this number of endpoints
//! ```

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sqlx::PgPool;
use support::arrivals::{Arrivals, Behaviour};
use support::latency::{BACKLOG_CONNECTIONS, Beside, IN_FLIGHT, latency};
use support::load::{self, Client, Measured};
use support::plot::{Bars, Lines};
use support::report::Report;
use support::table::{self, in_millis, millis, thousands};
use support::traffic::Traffic;
use support::{Holdings, PATIENCE, Serve, arguments, count, until_made};
use webhook_client::custom::CustomHeaders;
use webhook_client::sender::{CONNECTION_LIFETIME, Delivery, Sender, SenderSettings};

/// Default limit of deliveries that a worker has in flight to one webhook. The bare loop sends as many at once.
const IN_FLIGHT_TO_ONE: usize = 64;

/// Number of endpoints, and their behaviour, in each scenario.
const SCENARIOS: [(&str, usize, Behaviour); 4] = [
    ("1 endpoint", 1, Behaviour::Well),
    ("10 endpoints", 10, Behaviour::Well),
    ("1,000 endpoints", 1_000, Behaviour::Well),
    ("1,000 endpoints, 5 % failing, 1 % hanging", 1_000, Behaviour::SomeFailSomeHang),
];

const DRAIN: &str = "\
    A node sends the deliveries over TLS with certificate verification, over reused connections. The bare loop is the node's own \
    sender against the same receiver, without a database. Node, Postgres, receiver and load share the processors. The target is \
    4,000 deliveries a second.";
const COST: &str = "\
    A projector makes the deliveries and a worker sends them. The projector's figures include all of its work, not only making \
    deliveries.";
const LATENCY: &str = "\
    The time from the order's commit to the receiver's first byte, at 500 deliveries a second. The target is a p99 under 100 ms.";
const FAIR: &str = "\
    Ten endpoints get 200 deliveries a second together, beside other load on the same machine. Two programs that only compute show \
    the cost of sharing the machine. Fifty accounts show the cost of the same load from many. A backlog has 20,000 deliveries for \
    each second of the measurement. The target: less than twice the latency beside an endpoint that hangs, and no delay of one \
    account by another one's flood.";

#[derive(Clone, Copy)]
struct Size {
    backlog: u64,
    period: Duration,
    whole: Duration,
}

#[tokio::main]
async fn main() -> Result<()> {
    let (endpoints, words): (Vec<String>, Vec<String>) = arguments().into_iter().partition(|word| word.parse::<usize>().is_ok());
    let is_quick = words.iter().any(|word| word == "quick");
    let named = |word: &str| words.iter().all(|w| w == "quick") || words.iter().any(|w| w == word);
    let scenarios =
        SCENARIOS.into_iter().filter(|(_, webhooks, _)| endpoints.is_empty() || endpoints.contains(&webhooks.to_string()));
    let size = match is_quick {
        true => Size { backlog: 10_000, period: Duration::from_secs(6), whole: Duration::from_secs(20) },
        false => Size { backlog: 200_000, period: Duration::from_secs(30), whole: Duration::from_secs(120) },
    };
    let mut report = Report::start("deliveries");
    let server = support::postgres().await?;
    let database = async |name: &str| -> Result<String> {
        support::database(&server, name).await?;
        Ok(server.url_of(name))
    };

    if named("drain") {
        let (mut rows, mut lines) = (vec![], vec![]);
        for (name, webhooks, behaviour) in scenarios.clone() {
            let url = database(&format!("drain_{}", rows.len())).await?;
            let backlog = make_backlog(&url, webhooks, size.backlog, behaviour).await?;
            // The bare loop runs before and after the drain, because the speed of a machine varies over time.
            let before = bare_loop(size.period / 3, webhooks).await?;
            let drained = drain(&url, &url, backlog).await?;
            let bare = (before + bare_loop(size.period / 3, webhooks).await?) / 2.0;
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
            lines.push((name.to_owned(), drained.left));
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
        report.table("A backlog drained", DRAIN, &header, &rows);
        let title = "Deliveries left while a backlog is drained";
        report.plot("backlog", title, Lines { title, x: "seconds", is_doubling: false, y: "deliveries", series: lines }.svg()?);
    }
    if named("cost") {
        let mut rows = Vec::new();
        for webhooks in [1, 10, 1_000] {
            let url = database(&format!("cost_{webhooks}")).await?;
            let pool = PgPool::connect(&url).await?;
            let (making, sending) = (Traffic::before(&url).await?, Traffic::before(&url).await?);
            let arrivals = Arrivals::start(Behaviour::Well, webhooks).await?;
            let deliveries = size.backlog.min(20_000);
            place_backlog(&url, "api", &arrivals, deliveries).await?;
            let before = count(&pool, WAL).await?;
            let projector = Serve::start(&making.url, "api,projector", &[]).await?;
            until_made(&pool, deliveries).await?;
            let made_wal = count(&pool, WAL).await? - before;
            drop(projector);
            let drained = drain(&url, &sending.url, Backlog { arrivals, expected: deliveries }).await?;
            for (what, traffic, wal) in [("made", &making, made_wal), ("sent", &sending, drained.wal_bytes)] {
                let each = |count: u64| count as f64 / deliveries as f64;
                rows.push(vec![
                    thousands(webhooks as f64),
                    what.to_owned(),
                    format!("{:.3}", each(traffic.round_trips())),
                    thousands(each(traffic.bytes_to_database())),
                    thousands(each(traffic.bytes_from_database())),
                    thousands(each(wal)),
                ]);
            }
        }
        let header = ["endpoints", "", "round trips", "bytes to Postgres", "bytes from it", "bytes of WAL"];
        report.table("Cost of a delivery for the database", COST, &header, &rows);
    }
    if named("latency") {
        let (mut rows, mut bars) = (vec![], vec![]);
        for (name, webhooks, behaviour) in scenarios.clone() {
            let url = database(&format!("latency_{}", rows.len())).await?;
            let (measured, _) = latency(&url, webhooks, behaviour, 500, size.period, Beside::Nobody).await?;
            let percentiles = [measured.p50, measured.p90, measured.p99, measured.p999];
            let figures = [thousands(measured.per_second)].into_iter().chain(percentiles.map(millis));
            rows.push([name.to_owned()].into_iter().chain(figures).collect());
            bars.push((name.to_owned(), percentiles.map(in_millis).to_vec()));
        }
        let header = ["", "deliveries/s", "p50", "p90", "p99", "p99.9"];
        report.table("Latency of a delivery", LATENCY, &header, &rows);
        let title = "From the order's commit to the receiver's first byte, at 500 deliveries a second";
        report.plot("latency", title, Bars { title, series: &header[2..], rows: bars }.svg()?);
    }
    if named("fair") {
        let ratio = |a: Duration, b: Duration| format!("{:.2}×", a.as_secs_f64() / b.as_secs_f64());
        let (mut rows, mut bars, mut alone) = (vec![], vec![], None);
        for beside in Beside::ALL {
            let url = database(&format!("fair_{}", rows.len())).await?;
            let (measured, others) = latency(&url, 10, Behaviour::Well, 200, size.period, beside).await?;
            let alone = alone.get_or_insert_with(|| measured.clone());
            rows.push(vec![
                beside.name().to_owned(),
                millis(measured.p50),
                ratio(measured.p50, alone.p50),
                millis(measured.p99),
                ratio(measured.p99, alone.p99),
                thousands(others),
            ]);
            bars.push((beside.name().to_owned(), vec![in_millis(measured.p50), in_millis(measured.p99)]));
        }
        let header = ["", "p50", "of alone", "p99", "of alone", "others' deliveries/s"];
        report.table("Latency beside other load", FAIR, &header, &rows);
        let title = "Latency of deliveries beside other load";
        report.plot("fairness", title, Bars { title, series: &["p50", "p99"], rows: bars }.svg()?);
    }
    if named("whole") {
        let before = bare_loop(size.period / 3, 10).await?;
        let (placed, measured, lag) = whole(&database("whole").await?, 1_500, size.whole).await?;
        let bare = (before + bare_loop(size.period / 3, 10).await?) / 2.0;
        let rows = vec![
            vec!["orders placed, delivered and announced a second".to_owned(), thousands(placed)],
            vec!["a bare loop's deliveries a second".to_owned(), thousands(bare)],
            vec!["from OrderDelivered to first byte, p50".to_owned(), millis(measured.p50)],
            vec!["p99".to_owned(), millis(measured.p99)],
            vec!["longest, first and second half".to_owned(), format!("{}, {}", millis(lag.0), millis(lag.1))],
        ];
        let note = format!("Orders are placed at 1,500 a second for {} seconds and fulfilled from stock.", size.whole.as_secs());
        report.table("End to end from stock", &note, &["", "value"], &rows);
    }
    report.end(&server).await?;
    server.stop().await?;
    Ok(())
}

/// Runs the sender alone, as fast as it can, against this many endpoints. Returns deliveries per second.
async fn bare_loop(period: Duration, endpoints: usize) -> Result<f64> {
    let arrivals = Arrivals::start(Behaviour::Well, endpoints).await?;
    let in_flight = IN_FLIGHT.min(endpoints * IN_FLIGHT_TO_ONE);
    let settings = SenderSettings {
        service_name: "SERVICE".to_owned(),
        deadline: Duration::from_secs(30),
        ca_pem: Some(arrivals.ca_pem().as_bytes().to_vec()),
        allowed_nets: vec!["127.0.0.0/8".parse()?],
        max_connections: in_flight + 1_024,
        connection_lifetime: CONNECTION_LIFETIME,
    };
    let sender = Arc::new(Sender::new(settings)?);
    let urls: Arc<Vec<String>> = Arc::new((0..endpoints).map(|n| arrivals.url(n)).collect());
    let body = hyper::body::Bytes::from(vec![b'.'; 700]); // about as long as an envelope
    let (sent, start) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let warm_up = period / 5;
    let lanes: Vec<_> = (0..in_flight)
        .map(|lane| {
            let (sender, urls, body, sent) = (sender.clone(), urls.clone(), body.clone(), sent.clone());
            tokio::spawn(async move {
                let mut next = (lane..).step_by(in_flight);
                while start.elapsed() < warm_up + period {
                    let delivery = Delivery {
                        url: &urls[next.next().unwrap_or_default() % urls.len()],
                        webhook_id: 1,
                        event_id: "0190a000-0000-7000-8000-000000000000",
                        event_type: "order.created",
                        sequence: Some(1),
                        request_id: "0190a000-0000-7000-8000-000000000000",
                        secret: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                        previous_secret: None,
                        timestamp: 1_800_000_000,
                        traceparent: None,
                        custom_headers: CustomHeaders::none(),
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
    /// Deliveries not yet received, by the seconds since the node started.
    left: Vec<(f64, f64)>,
    /// Resources held by the node when a tenth was delivered; `most` is the maximum at any time.
    early: Holdings,
    most: Holdings,
}

/// Pending deliveries and the receivers that they go to.
struct Backlog {
    arrivals: Arrivals,
    /// Number of deliveries whose endpoint answers with a success.
    expected: u64,
}

async fn make_backlog(url: &str, webhooks: usize, deliveries: u64, behaviour: Behaviour) -> Result<Backlog> {
    let arrivals = Arrivals::start(behaviour, webhooks).await?;
    let _serve = place_backlog(url, "api,projector", &arrivals, deliveries).await?;
    until_made(&PgPool::connect(url).await?, deliveries).await?;
    let expected = arrivals.answered_of(deliveries);
    Ok(Backlog { arrivals, expected })
}

/// Places orders for this many deliveries through a node with these roles. The node runs until the returned value is
/// dropped.
async fn place_backlog(url: &str, roles: &str, arrivals: &Arrivals, deliveries: u64) -> Result<Serve> {
    let serve = Serve::start(url, roles, &[]).await?;
    let (product, clients) = prepare(&serve, arrivals, "order.created").await?;
    load::orders_at_once(&serve.address, &clients, product, deliveries, BACKLOG_CONNECTIONS).await?;
    Ok(serve)
}

/// Drains a backlog through a node that reaches its database at `worker_url`.
async fn drain(url: &str, worker_url: &str, backlog: Backlog) -> Result<Drained> {
    let Backlog { arrivals, expected } = backlog;
    let pool = PgPool::connect(url).await?;
    let wal_before = count(&pool, WAL).await?;
    let serve = Serve::start(worker_url, "api,delivery", &arrivals.reach()).await?;
    let started = Instant::now();
    let (mut early, mut most, mut left) = (Holdings::default(), Holdings::default(), vec![]);
    while arrivals.good() < expected {
        ensure!(started.elapsed() < PATIENCE, "not everything was delivered: {} of {expected}", arrivals.good());
        most = most.max(serve.holdings()?);
        left.push((started.elapsed().as_secs_f64(), (expected - arrivals.good()) as f64));
        if arrivals.good() <= expected / 10 {
            early = most;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    left.push((started.elapsed().as_secs_f64(), 0.0));
    let took = arrivals.since_first().context("something arrived")?;
    let is_done = "SELECT count(*) FROM delivery_state WHERE status = 'delivered'";
    while count(&pool, is_done).await? < expected {
        ensure!(started.elapsed() < PATIENCE, "not everything was recorded");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let cpu = serve.cpu();
    let wal_bytes = count(&pool, WAL).await? - wal_before;
    let per_second = expected as f64 / took.as_secs_f64();
    Ok(Drained { delivered: expected, per_second, cpu, wal_bytes, left, early, most })
}

/// Number of bytes of WAL written so far.
const WAL: &str = "SELECT (pg_current_wal_lsn() - '0/0')::bigint";

/// Creates a product without stock, and for each endpoint an account with a webhook that subscribes to this event.
async fn prepare(serve: &Serve, arrivals: &Arrivals, event: &str) -> Result<(i64, Arc<Vec<Client>>)> {
    let product = serve.product().await?;
    let clients = serve.clients(arrivals.endpoints()).await?;
    serve.listen(&clients, |n| arrivals.url(n), event).await?;
    Ok((product, clients))
}

/// Runs a node with all roles: orders are placed at this rate per second and fulfilled from stock, and the
/// `order.delivered` of each one arrives. Returns orders per second, latencies, and the longest latency of each half.
async fn whole(url: &str, per_second: u32, period: Duration) -> Result<(f64, Measured, (Duration, Duration))> {
    let arrivals = Arrivals::start(Behaviour::Well, 10).await?;
    let serve = Serve::start(url, "api,projector,fulfilment,delivery", &arrivals.reach()).await?;
    let (product, clients) = prepare(&serve, &arrivals, "order.delivered").await?;
    serve.stock(product, (f64::from(per_second) * period.as_secs_f64()) as u64).await?;
    let start = Instant::now();
    let orders = load::orders_steadily(&serve.address, &clients, product, per_second, period, "steady").await?;
    arrivals.until(orders, PATIENCE).await?;
    let took = start.elapsed();
    let latencies = arrivals.latencies();
    let (first, second) = latencies.split_at(latencies.len() / 2);
    let longest = |half: &[Duration]| half.iter().max().copied().unwrap_or_default();
    let lag = (longest(first), longest(second));
    Ok((orders as f64 / took.as_secs_f64(), Measured::of(latencies, took), lag))
}
