//! How fast a backlog of deliveries is drained to a receiver over TLS, by one node:
//!
//! ```text
//! cargo bench --bench deliveries
//! ```

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rewards_ledger::receiver::{Answer, Certificate, Receiver, ReceiverSettings};
use serde_json::json;
use sqlx::PgPool;
use support::load::{Client, Connection};
use support::table::{self, thousands};
use support::{Serve, machine};

const DELIVERIES: u64 = 20_000;
const CONNECTIONS: u64 = 16;
/// Most that one webhook count may take.
const PATIENCE: Duration = Duration::from_secs(300);

#[tokio::main]
async fn main() -> Result<()> {
    println!("{}", machine());
    let server = support::postgres().await?;
    let mut rows = Vec::new();
    for webhooks in [1, 20, 1_000] {
        let name = format!("deliveries_{webhooks}");
        support::database(&server, &name).await?;
        let per_second = drain(&server.url_of(&name), webhooks).await?;
        rows.push(vec![thousands(webhooks as f64), thousands(DELIVERIES as f64), thousands(per_second)]);
    }
    table::print("A backlog drained over TLS", &["webhooks", "deliveries", "deliveries/s"], &rows);
    server.stop().await?;
    Ok(())
}

/// Makes a backlog, and drains it; deliveries per second from the first arrival to the last.
async fn drain(url: &str, webhooks: usize) -> Result<f64> {
    let arrived = Arc::new((AtomicU64::new(0), Mutex::new(None)));
    let counter = arrived.clone();
    let settings = ReceiverSettings {
        listen: "127.0.0.1:0".parse()?,
        service_name: "SERVICE".to_owned(),
        certificate: Certificate::generate()?,
        respond: Arc::new(move |_| {
            if counter.0.fetch_add(1, Ordering::Relaxed) == 0
                && let Ok(mut first) = counter.1.lock()
            {
                *first = Some(Instant::now());
            }
            Answer::Status(200)
        }),
    };
    let (receiver, channel) = Receiver::start(settings).await?;
    drop(channel);
    let ca = std::env::temp_dir().join(format!("rewards-ledger-bench-ca-{}.pem", std::process::id()));
    std::fs::write(&ca, receiver.ca_pem())?;

    let serve = Serve::start(url, "api,projector", &[]).await?;
    let product = serve.product().await?;
    let clients = serve.clients(webhooks).await?;
    for client in clients.iter() {
        let webhook = json!({"name": "bench", "url": receiver.url(), "events": ["order.created"]});
        serve.client(client, "/webhooks", webhook).await?;
    }
    let lanes: Vec<_> =
        (0..CONNECTIONS).map(|lane| tokio::spawn(place(lane, serve.address.clone(), clients.clone(), product))).collect();
    for lane in lanes {
        lane.await??;
    }
    let pool = PgPool::connect(url).await?;
    let started = Instant::now();
    while pending(&pool).await? < DELIVERIES as i64 {
        ensure!(started.elapsed() < PATIENCE, "the backlog was not made");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(serve);

    let ca_file = ca.to_string_lossy();
    let more = ["--webhook-ca-file", &*ca_file, "--webhook-allow-nets", "127.0.0.0/8"];
    let serve = Serve::start(url, "api,delivery", &more).await?;
    let started = Instant::now();
    while arrived.0.load(Ordering::Relaxed) < DELIVERIES {
        ensure!(started.elapsed() < PATIENCE, "not everything was delivered");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let ended = Instant::now();
    while pending(&pool).await? > 0 {
        ensure!(started.elapsed() < PATIENCE, "not everything was recorded");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(serve);
    receiver.stop().await;
    _ = std::fs::remove_file(&ca);
    let first = arrived.1.lock().ok().and_then(|first| *first).unwrap_or(started);
    Ok(DELIVERIES as f64 / ended.duration_since(first).as_secs_f64())
}

async fn pending(pool: &PgPool) -> Result<i64> {
    Ok(sqlx::query_scalar("SELECT count(*) FROM delivery_state WHERE status = 'pending'").fetch_one(pool).await?)
}

async fn place(lane: u64, address: String, clients: Arc<Vec<Client>>, product: i64) -> Result<()> {
    let mut connection = Connection::open(&address).await?;
    for n in (lane..DELIVERIES).step_by(CONNECTIONS as usize) {
        let client = &clients[n as usize % clients.len()];
        connection.place_order(client, product, &format!("backlog-{n}")).await?;
    }
    Ok(())
}
