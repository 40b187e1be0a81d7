//! Orders per second through HTTP, beside plain SQL on the same Postgres, in one run:
//!
//! ```text
//! cargo bench --bench orders
//! cargo bench --bench orders -- quick      # shorter periods, no two-minute pipeline
//! cargo bench --bench orders -- pipeline   # only plain SQL and the pipeline
//! ```

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rewards_ledger::receiver::{Answer, Certificate, Receiver, ReceiverSettings};
use serde_json::json;
use sqlx::PgPool;
use support::load::{Client, Connection, Measured};
use support::table::{self, millis, thousands};
use support::{Serve, baseline, load};

const WALLETS: usize = 10_000;

#[tokio::main]
async fn main() -> Result<()> {
    let mode = std::env::args().skip(1).find(|a| !a.starts_with("--")).unwrap_or_default();
    let (period, sustained) = if mode == "quick" {
        (Duration::from_secs(3), Duration::from_secs(20))
    } else {
        (Duration::from_secs(10), Duration::from_secs(120))
    };
    println!("{}", support::machine());
    let server = support::postgres().await?;

    let options = support::database(&server, "baseline").await?;
    baseline::prepare(&options, WALLETS as i64).await?;
    let mut rows = Vec::new();
    let mut best_hot = 0.0_f64;
    let mut best_spread = 0.0_f64;
    let mut single = Duration::ZERO;
    for (name, wallets, best) in [("one hot wallet", 1, &mut best_hot), ("10,000 wallets", WALLETS as i64, &mut best_spread)] {
        for connections in [1, 8, 32] {
            let measured = baseline::orders(&options, wallets, connections, period).await?;
            *best = best.max(measured.per_second);
            if connections == 1 && wallets == 1 {
                single = measured.p50;
            }
            rows.push(row("plain SQL", name, connections, &measured, None));
        }
    }

    if mode != "pipeline" {
        support::database(&server, "ledger_api").await?;
        let serve = Serve::start(&server.url_of("ledger_api"), "api", &[]).await?;
        let product = serve.product().await?;
        let many = serve.clients(WALLETS).await?;
        let one = Arc::new(many[..1].to_vec());
        for (name, clients, best) in [("one hot wallet", &one, best_hot), ("10,000 wallets", &many, best_spread)] {
            for connections in [1, 16, 64, 256, 512] {
                let measured = load::orders(&serve.address, clients, product, connections, period).await?;
                rows.push(row("ledger, HTTP", name, connections, &measured, Some((best, single))));
            }
        }
    }
    table::print(
        "Orders per second",
        &[
            "side",
            "wallets",
            "connections",
            "orders/s",
            "p50",
            "p99",
            "of plain SQL's best",
            "p50, p99 of plain SQL's single p50",
        ],
        &rows,
    );

    support::database(&server, "ledger_all").await?;
    let rows = pipeline(&server.url_of("ledger_all"), best_hot, sustained).await?;
    table::print("The whole pipeline: placed, fulfilled from stock, order.delivered received over TLS", &["", "value"], &rows);
    server.stop().await?;
    Ok(())
}

fn row(side: &str, wallets: &str, connections: usize, measured: &Measured, against: Option<(f64, Duration)>) -> Vec<String> {
    let ratio = |time: Duration, single: Duration| format!("{:.1}×", time.as_secs_f64() / single.as_secs_f64());
    vec![
        side.to_owned(),
        wallets.to_owned(),
        connections.to_string(),
        thousands(measured.per_second),
        millis(measured.p50),
        millis(measured.p99),
        against.map_or(String::new(), |(best, _)| format!("{:.1}×", measured.per_second / best)),
        against.map_or(String::new(), |(_, single)| format!("{}, {}", ratio(measured.p50, single), ratio(measured.p99, single))),
    ]
}

/// Orders that may be placed and not yet received: what keeps the load closed.
const OUTSTANDING: u64 = 1_500;

/// All roles; every order is fulfilled from stock and its `order.delivered` received. The load
/// places an order only while fewer than [`OUTSTANDING`] are on their way, so that what is
/// measured is what the whole pipeline sustains.
async fn pipeline(url: &str, baseline: f64, period: Duration) -> Result<Vec<Vec<String>>> {
    let received = Arc::new(AtomicU64::new(0));
    let counter = received.clone();
    let settings = ReceiverSettings {
        listen: "127.0.0.1:0".parse()?,
        service_name: "SERVICE".to_owned(),
        certificate: Certificate::generate()?,
        respond: Arc::new(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            Answer::Status(200)
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
    stock(&serve, product, (baseline * 3.0 * period.as_secs_f64()) as u64).await?;
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
    let mut lags = Vec::new();
    let mut halfway = 0;
    while start.elapsed() < period {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let lag: i64 =
            sqlx::query_scalar("SELECT h.position - c.position FROM log_head h JOIN projection_checkpoints c USING (shard_id) WHERE c.projection = 'deliveries'")
                .fetch_one(&pool)
                .await?;
        lags.push(lag);
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
    lags.sort_unstable();
    let per_second = in_period as f64 / elapsed.as_secs_f64();
    let second_half = (in_period - halfway) as f64 / (elapsed.as_secs_f64() - period.as_secs_f64() / 2.0);
    Ok(vec![
        vec!["sustained for".into(), format!("{} s", elapsed.as_secs())],
        vec!["delivered orders/s".into(), thousands(per_second)],
        vec!["of which in the second half".into(), format!("{}/s", thousands(second_half))],
        vec!["of plain SQL's best on one hot wallet".into(), format!("{:.2}×", per_second / baseline)],
        vec![
            "projection lag in positions, median and most".into(),
            format!("{}, {}", lags[lags.len() / 2], lags[lags.len() - 1]),
        ],
        vec!["placed, received".into(), format!("{}, {}", thousands(total as f64), thousands(all as f64))],
    ])
}

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

async fn stock(serve: &Serve, product: i64, count: u64) -> Result<()> {
    const CHUNK: u64 = 20_000;
    let mut next = 0;
    while next < count {
        let vouchers: Vec<_> = (next..count.min(next + CHUNK)).map(|n| json!({"card_number": format!("card-{n:012}")})).collect();
        serve.operator(&format!("/products/{product}/vouchers"), json!({"denomination": "10.00", "vouchers": vouchers})).await?;
        next += CHUNK;
    }
    Ok(())
}
