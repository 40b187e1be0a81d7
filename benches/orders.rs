//! Orders per second through HTTP, compared with plain SQL on the same Postgres in the same run:
//!
//! ```text
//! cargo bench --bench orders
//! cargo bench --bench orders -- quick      # fewer rounds, no two-minute pipeline
//! cargo bench --bench orders -- pipeline   # only plain SQL and the pipeline
//! cargo bench --bench orders -- costs      # only the cost of an order
//! ```

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use embedded_postgres::Server;
use ledger_database::PgConnectOptions;
use serde_json::json;
use sqlx::PgPool;
use support::costs::{Cost, Meter};
use support::load::{Client, Connection, Measured};
use support::plot::{Bars, Lines};
use support::report::Report;
use support::table::{in_millis, median, millis, of_rounds, thousands};
use support::{Serve, arguments, baseline, load};
use webhook_client::receiver::{Certificate, Receiver, ReceiverResponse, ReceiverSettings};

const WALLETS: usize = 10_000;
/// Time for which each number of connections is measured in each round. A warm-up of a fifth of it comes first.
const PERIOD: Duration = Duration::from_secs(2);

const BASELINE_CONNECTIONS: [usize; 3] = [1, 8, 32];
const CONNECTIONS: [usize; 5] = [1, 16, 64, 256, 512];

#[tokio::main]
async fn main() -> Result<()> {
    let mode = arguments().into_iter().next().unwrap_or_default();
    let (rounds, sustained) = match mode.as_str() {
        "quick" => (2, Duration::from_secs(20)),
        "pipeline" => (0, Duration::from_secs(120)),
        _ => (6, Duration::from_secs(120)),
    };
    let mut report = Report::start("orders");
    let server = support::postgres().await?;
    costs(&mut report, &server, if mode.is_empty() { 5 } else { 3 }).await?;
    if mode == "costs" {
        report.end(&server).await?;
        return Ok(server.stop().await?);
    }
    let plain = support::database(&server, "baseline").await?;
    baseline::prepare(&plain, WALLETS as i64).await?;
    if rounds > 0 {
        sides(&mut report, &server, &plain, rounds).await?;
    }

    support::database(&server, "ledger_all").await?;
    pipeline(&mut report, &server.url_of("ledger_all"), &plain, sustained).await?;
    report.end(&server).await?;
    server.stop().await?;
    Ok(())
}

/// Measures what an order costs on a hot wallet and over many wallets.
async fn costs(report: &mut Report, server: &Server, rounds: usize) -> Result<()> {
    support::database(server, "ledger_costs").await?;
    let serve = Serve::start(&server.url_of("ledger_costs"), "api", &[]).await?;
    let product = serve.product().await?;
    let many = serve.clients(COST_WALLETS).await?;
    let one = Arc::new(many[..1].to_vec());
    let mut rows = Vec::new();
    for (name, clients) in [("one hot wallet", &one), ("2,000 wallets", &many)] {
        let mut costs = Vec::new();
        load::orders_at_once(&serve.address, clients, product, COST_ORDERS, COST_CONNECTIONS).await?;
        for _ in 0..rounds {
            let meter = Meter::start(server, std::slice::from_ref(&serve)).await?;
            load::orders_at_once(&serve.address, clients, product, COST_ORDERS, COST_CONNECTIONS).await?;
            costs.push(meter.end(std::slice::from_ref(&serve)).await?);
        }
        let of = |value: &dyn Fn(&Cost) -> f64| median(costs.iter().map(|cost| value(cost) / COST_ORDERS as f64));
        let micros = |value: f64| format!("{value:.0} µs");
        rows.push(vec![
            name.to_owned(),
            micros(of(&|cost| (cost.program + cost.postgres).as_secs_f64() * 1e6)),
            micros(of(&|cost| cost.program.as_secs_f64() * 1e6)),
            micros(of(&|cost| cost.postgres.as_secs_f64() * 1e6)),
            thousands(of(&|cost| cost.wal_bytes)),
            thousands(of(&|cost| cost.page_bytes)),
            format!("{:.1}", of(&|cost| cost.rows)),
            format!("{:.1}", of(&|cost| cost.index_entries)),
        ]);
    }
    let columns = [
        "wallets",
        "processor time",
        "of the service",
        "of Postgres",
        "bytes of WAL",
        "bytes of full-page images",
        "row versions",
        "index entries",
    ];
    let note = format!(
        "{COST_CONNECTIONS} connections place {} orders. A row is the median of {rounds} rounds, per order. Processor time is user \
         and system time from the processes' own accounting, without the load generator.",
        thousands(COST_ORDERS as f64)
    );
    report.table("Cost of an order", &note, &columns, &rows);
    Ok(())
}

const COST_WALLETS: usize = 2_000;
const COST_ORDERS: u64 = 40_000;
const COST_CONNECTIONS: u64 = 256;

/// Measurements of one side with one number of connections, one per round.
struct Series {
    side: &'static str,
    wallets: &'static str,
    connections: usize,
    measured: Vec<Measured>,
}

impl Series {
    fn is_plain(&self) -> bool {
        self.side == "plain SQL"
    }

    fn per_second(&self) -> f64 {
        median(self.measured.iter().map(|m| m.per_second))
    }

    fn time(&self, of: fn(&Measured) -> Duration) -> Duration {
        Duration::from_secs_f64(median(self.measured.iter().map(|m| of(m).as_secs_f64())))
    }
}

/// Measures both sides alternately, so that a slow phase of the machine affects both. A row shows the median of its
/// rounds, and a ratio the median of the rounds' ratios.
async fn sides(report: &mut Report, server: &Server, plain: &PgConnectOptions, rounds: usize) -> Result<()> {
    support::database(server, "ledger_api").await?;
    let serve = Serve::start(&server.url_of("ledger_api"), "api", &[]).await?;
    let product = serve.product().await?;
    let many = serve.clients(WALLETS).await?;
    let one = Arc::new(many[..1].to_vec());

    let mut series: Vec<Series> = Vec::new();
    for round in 0..rounds {
        let mut at = 0;
        let mut keep = |side, wallets, connections, measured: Measured| {
            if round == 0 {
                series.push(Series { side, wallets, connections, measured: vec![] });
            }
            series[at].measured.push(measured);
            at += 1;
        };
        for (name, wallets, clients) in [("one hot wallet", 1, &one), ("10,000 wallets", WALLETS as i64, &many)] {
            for connections in BASELINE_CONNECTIONS {
                keep("plain SQL", name, connections, baseline::orders(plain, wallets, connections, PERIOD).await?);
            }
            for connections in CONNECTIONS {
                let measured = load::orders(&serve.address, clients, product, connections, PERIOD).await?;
                keep("ledger, HTTP", name, connections, measured);
            }
        }
    }
    let best_in = |round: usize, wallets: &str| {
        let of_round = series.iter().filter(|s| s.is_plain() && s.wallets == wallets).map(|s| s.measured[round].per_second);
        of_round.fold(0.0, f64::max)
    };
    let rows: Vec<_> = series
        .iter()
        .map(|one| {
            let ratios = |ratio: &dyn Fn(usize, &Measured) -> f64| {
                if one.is_plain() { String::new() } else { of_rounds(one.measured.iter().enumerate().map(|(n, m)| ratio(n, m))) }
            };
            let single = |round: usize| series[0].measured[round].p50.as_secs_f64();
            vec![
                one.side.to_owned(),
                one.wallets.to_owned(),
                one.connections.to_string(),
                thousands(one.per_second()),
                millis(one.time(|m| m.p50)),
                millis(one.time(|m| m.p99)),
                ratios(&|round, m| m.per_second / best_in(round, one.wallets)),
                ratios(&|round, m| m.p50.as_secs_f64() / single(round)),
                ratios(&|round, m| m.p99.as_secs_f64() / single(round)),
            ]
        })
        .collect();
    let columns = [
        "side",
        "wallets",
        "connections",
        "orders/s",
        "p50",
        "p99",
        "orders/s, of plain SQL's best",
        "p50, of plain SQL's single p50",
        "p99, of the same",
    ];
    report.table("Orders beside plain SQL", &format!("A row is the median of {rounds} rounds. {NOTE}"), &columns, &rows);
    draw(report, &series)
}

/// Meaning of the columns and the targets.
const NOTE: &str = "\
    The two sides take turns within a round. A ratio is the median of the rounds' ratios, with the lowest and the highest. Plain \
    SQL's best is its highest rate on the same wallets. Its single p50 is the p50 of one connection on one hot wallet.\n\n\
    Every request is authenticated, counted by the rate limits, and under an idempotency key of its own. The targets: 8× plain \
    SQL's rate on one hot wallet, 2× over 10,000 wallets, and at 16 connections a p50 under 6× and a p99 under 12×.";

/// Plots throughput over connections, and latency.
fn draw(report: &mut Report, series: &[Series]) -> Result<()> {
    let (mut lines, mut bars) = (BTreeMap::<String, Vec<(f64, f64)>>::new(), vec![]);
    for one in series {
        let line = lines.entry(format!("{}, {}", one.side, one.wallets)).or_default();
        line.push((one.connections as f64, one.per_second()));
        let label = format!("{}, {}, connections: {}", one.side, one.wallets, one.connections);
        bars.push((label, vec![in_millis(one.time(|m| m.p50)), in_millis(one.time(|m| m.p99))]));
    }
    let title = "Orders per second over the number of connections";
    let series = lines.into_iter().collect();
    report.plot("throughput", title, Lines { title, x: "connections", is_doubling: true, y: "orders/s", series }.svg()?);
    let title = "Latency of an order";
    report.plot("latency", title, Bars { title, series: &["p50", "p99"], rows: bars }.svg()?);
    Ok(())
}

/// Measures the best rate of plain SQL on one hot wallet at this moment.
async fn best_of_plain(plain: &PgConnectOptions) -> Result<f64> {
    let mut best = 0.0_f64;
    for connections in BASELINE_CONNECTIONS {
        best = best.max(baseline::orders(plain, 1, connections, 2 * PERIOD).await?.per_second);
    }
    Ok(best)
}

/// Lag of each projection behind the log head, in positions.
const LAGS: &str = "SELECT c.projection, greatest(h.position - c.position, 0) FROM log_head h JOIN (
        SELECT shard_id, projection, position FROM projection_checkpoints
        UNION ALL SELECT shard_id, 'counts of lists', position FROM list_checkpoints
        UNION ALL SELECT shard_id, 'tree', max(size) FROM log_checkpoints GROUP BY shard_id) AS c USING (shard_id)";

/// Most orders that may be placed and not yet received. This bound makes the load a closed loop.
const OUTSTANDING: u64 = 1_500;

/// Runs a node with all roles: every order is fulfilled from stock, and its `order.delivered` is received. The load
/// generator places an order only while fewer than [`OUTSTANDING`] are on their way. The result is therefore the rate
/// that the whole pipeline sustains.
async fn pipeline(report: &mut Report, url: &str, plain: &PgConnectOptions, period: Duration) -> Result<()> {
    let received = Arc::new(AtomicU64::new(0));
    let counter = received.clone();
    let settings = ReceiverSettings {
        listen: "127.0.0.1:0".parse()?,
        service_name: "SERVICE".to_owned(),
        certificate: Certificate::generate()?,
        respond: Arc::new(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            ReceiverResponse::Status(200)
        }),
    };
    let (receiver, arrivals) = Receiver::start(settings).await?;
    drop(arrivals);
    let ca = std::env::temp_dir().join(format!("rewards-ledger-bench-ca-{}.pem", std::process::id()));
    std::fs::write(&ca, receiver.ca_pem())?;
    let more = ["--webhook-ca-file", ca.to_str().context("a path")?, "--webhook-allow-nets", "127.0.0.0/8"];
    let serve = Serve::start(url, "api,projector,fulfilment,delivery", &more).await?;
    let product = serve.product().await?;
    let clients = serve.clients(1).await?;
    let client = clients[0].clone();
    serve.client(&client, "/webhooks", json!({"name": "bench", "url": receiver.url(), "events": ["order.delivered"]})).await?;

    let pool = PgPool::connect(url).await?;
    let before = best_of_plain(plain).await?;
    serve.stock(product, (before * 3.0 * period.as_secs_f64()) as u64).await?;
    let start = Instant::now();
    let placed = Arc::new(AtomicU64::new(0));
    let lanes: Vec<_> = (0..64)
        .map(|lane| {
            tokio::spawn(place(
                lane,
                serve.address.clone(),
                client.clone(),
                product,
                placed.clone(),
                received.clone(),
                start,
                period,
            ))
        })
        .collect();
    let mut behind: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    let mut halfway = 0;
    while start.elapsed() < period {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let lags: Vec<(String, i64)> = sqlx::query_as(LAGS).fetch_all(&pool).await?;
        let second = start.elapsed().as_secs_f64();
        for (projection, lag) in lags {
            behind.entry(projection).or_default().push((second, lag as f64));
        }
        if halfway == 0 && start.elapsed() > period / 2 {
            halfway = received.load(Ordering::Relaxed);
        }
    }
    let in_period = received.load(Ordering::Relaxed);
    let elapsed = start.elapsed();
    for lane in lanes {
        lane.await??;
    }
    let total = placed.load(Ordering::Relaxed);
    while received.load(Ordering::Relaxed) < total && start.elapsed() < period + Duration::from_secs(30) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let all = received.load(Ordering::Relaxed);
    receiver.stop().await;
    _ = std::fs::remove_file(&ca);
    let after = best_of_plain(plain).await?;
    let baseline = (before + after) / 2.0;
    let per_second = in_period as f64 / elapsed.as_secs_f64();
    let second_half = (in_period - halfway) as f64 / (elapsed.as_secs_f64() - period.as_secs_f64() / 2.0);
    let mut rows = vec![
        vec!["sustained for".into(), format!("{} s", elapsed.as_secs())],
        vec!["delivered orders/s".into(), thousands(per_second)],
        vec!["of which in the second half".into(), format!("{}/s", thousands(second_half))],
        vec![
            "plain SQL's best on one hot wallet, before and after".into(),
            format!("{}/s, {}/s", thousands(before), thousands(after)),
        ],
        vec!["of its mean".into(), format!("{:.2}×", per_second / baseline)],
        vec!["placed, received".into(), format!("{}, {}", thousands(total as f64), thousands(all as f64))],
    ];
    for (projection, lags) in &behind {
        let (first, second) = lags.split_at(lags.len() / 2);
        let most = |half: &[(f64, f64)]| thousands(half.iter().map(|(_, lag)| *lag).fold(0.0, f64::max));
        rows.push(vec![
            format!("{projection} behind the log in positions: median, most in the first half and in the second"),
            format!("{}, {}, {}", thousands(median(lags.iter().map(|(_, lag)| *lag))), most(first), most(second)),
        ]);
    }
    report.table(
        "The whole pipeline",
        &format!("{PIPELINE} At most {OUTSTANDING} orders are on their way."),
        &["", "value"],
        &rows,
    );
    let title = "Lag of each projection behind the log head";
    let series = behind.into_iter().collect();
    report.plot("lag", title, Lines { title, x: "seconds", is_doubling: false, y: "positions", series }.svg()?);
    Ok(())
}

const PIPELINE: &str = "\
    One client places orders on one hot wallet, the node fulfils them from stock, and a receiver gets `order.delivered` over TLS. \
    The node also keeps the transparency log and the daily totals. The target is 1× plain SQL's best.";

#[allow(clippy::too_many_arguments)]
async fn place(
    lane: u64,
    address: String,
    client: Client,
    product: i64,
    placed: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
    start: Instant,
    period: Duration,
) -> Result<()> {
    let mut connection = Connection::open(&address).await?;
    let mut n = 0;
    while start.elapsed() < period {
        if placed.load(Ordering::Relaxed) > received.load(Ordering::Relaxed) + OUTSTANDING {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        connection.place_order(&client, product, &format!("pipeline-{lane}-{n}")).await?;
        placed.fetch_add(1, Ordering::Relaxed);
        n += 1;
    }
    Ok(())
}
