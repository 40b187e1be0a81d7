//! The program, and in another run Postgres, killed with SIGKILL again and again under load:
//! every acknowledged order is there exactly once, a retried key makes no second one, and every
//! event of every subscribed webhook arrives.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rewards_ledger::receiver::{Answer, Certificate, Receiver, ReceiverSettings};
use serde_json::json;
use sqlx::PgPool;
use tokio::sync::RwLock;

use crate::support::postgres;
use crate::support::program::{Client, Program};

type Arrivals = Arc<Mutex<HashMap<String, usize>>>;

/// A receiver that counts by `event_id`, and the arguments that let the program reach it.
async fn receiver() -> (Receiver, Arrivals, tempfile::NamedTempFile) {
    let arrivals = Arrivals::default();
    let counted = arrivals.clone();
    let settings = ReceiverSettings {
        listen: "127.0.0.1:0".parse().unwrap(),
        service_name: "SERVICE".into(),
        certificate: Certificate::generate().unwrap(),
        respond: Arc::new(move |received| {
            *counted.lock().unwrap().entry(received.event_id().unwrap().to_owned()).or_default() += 1;
            Answer::Status(200)
        }),
    };
    let (receiver, channel) = Receiver::start(settings).await.unwrap();
    drop(channel);
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), receiver.ca_pem()).unwrap();
    (receiver, arrivals, ca)
}

/// Places orders under keys of its own, each again and again until it is acknowledged.
async fn place(
    program: Arc<RwLock<Program>>,
    client: Client,
    product: i64,
    lane: usize,
    stop: Arc<AtomicBool>,
    retries: Arc<AtomicI64>,
) -> Vec<(String, i64)> {
    let mut acknowledged = Vec::new();
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("{lane}-{n}");
        let body = json!({"product_id": product, "denomination": 10, "quantity": 1});
        loop {
            let answer = program.read().await.call(&client, "POST", "/orders", Some(&key), &body).await;
            match answer {
                Ok((201, order)) => {
                    acknowledged.push((key, order["id"].as_i64().unwrap()));
                    break;
                }
                Ok((500 | 503 | 504, _)) | Err(_) => {
                    retries.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Ok((status, body)) => panic!("{status} {body}"),
            }
        }
    }
    acknowledged
}

async fn check(program: &Program, client: &Client, product: i64, acknowledged: Vec<(String, i64)>, arrivals: &Arrivals) {
    let pool = PgPool::connect(&program.database_url).await.unwrap();
    let ids: HashSet<i64> = acknowledged.iter().map(|(_, id)| *id).collect();
    assert_eq!(ids.len(), acknowledged.len(), "no two keys got the same order");
    let placed: Vec<i64> =
        sqlx::query_scalar("SELECT stream_id FROM events WHERE type = 'OrderPlaced'").fetch_all(&pool).await.unwrap();
    assert_eq!(placed.len(), ids.len(), "a retried key made no second order");
    assert_eq!(placed.into_iter().collect::<HashSet<_>>(), ids, "every acknowledged order is there");
    // A key asked once more answers the same order, and nothing is debited.
    let (key, id) = acknowledged.last().unwrap();
    let body = json!({"product_id": product, "denomination": 10, "quantity": 1});
    let (status, again) = program.call(client, "POST", "/orders", Some(key), &body).await.unwrap();
    assert_eq!((status, again["id"].as_i64()), (201, Some(*id)));
    let balance: rust_decimal::Decimal = sqlx::query_scalar("SELECT balance FROM wallets").fetch_one(&pool).await.unwrap();
    assert_eq!(balance, rust_decimal::Decimal::from(1_000_000 - 10 * ids.len() as i64));

    // order.created and order.delivered of each, by the event ids of the log.
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        let expected: Vec<uuid::Uuid> =
            sqlx::query_scalar("SELECT event_id FROM events WHERE type IN ('OrderPlaced', 'OrderDelivered')")
                .fetch_all(&pool)
                .await
                .unwrap();
        let missing = {
            let arrivals = arrivals.lock().unwrap();
            expected.iter().filter(|id| !arrivals.contains_key(&id.to_string())).count()
        };
        let all_settled: bool = sqlx::query_scalar("SELECT NOT EXISTS (SELECT FROM delivery_state WHERE status = 'pending')")
            .fetch_one(&pool)
            .await
            .unwrap();
        if expected.len() == 2 * ids.len() && missing == 0 && all_settled {
            break;
        }
        assert!(Instant::now() < deadline, "{} of {} events expected, {missing} not received", expected.len(), 2 * ids.len());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let doubled: i64 = sqlx::query_scalar("SELECT count(*) - count(DISTINCT (event_id, webhook_id)) FROM deliveries")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(doubled, 0, "no delivery row is doubled");
    let verified = program.run(&["verify"]);
    assert!(
        verified.status.success(),
        "{}{}",
        String::from_utf8_lossy(&verified.stdout),
        String::from_utf8_lossy(&verified.stderr)
    );
}

/// Under load from four clients, does `harm` so many times, then checks everything.
async fn survives(database_url: &str, times: usize, mut harm: impl AsyncFnMut(&RwLock<Program>)) {
    let (receiver, arrivals, ca) = receiver().await;
    let arguments = [
        "--webhook-ca-file",
        ca.path().to_str().unwrap(),
        "--webhook-allow-nets",
        "127.0.0.0/8",
        "--delivery-timeout",
        "2s",
        "--retry-base",
        "1s",
    ];
    let program = Program::start(database_url, &arguments).await;
    let client = program.client("1000000.00").await;
    let product = program.product(20_000).await;
    let webhook = json!({"name": "count", "url": receiver.url(), "events": ["order.created", "order.delivered"]});
    let (status, answer) = program.call(&client, "POST", "/webhooks", None, &webhook).await.unwrap();
    assert_eq!(status, 201, "{answer}");

    let program = Arc::new(RwLock::new(program));
    let (stop, retries) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
    let lanes: Vec<_> = (0..4)
        .map(|lane| tokio::spawn(place(program.clone(), client.clone(), product, lane, stop.clone(), retries.clone())))
        .collect();
    for _ in 0..times {
        tokio::time::sleep(Duration::from_millis(600)).await;
        harm(&program).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged = Vec::new();
    for lane in lanes {
        acknowledged.extend(lane.await.unwrap());
    }
    assert!(acknowledged.len() > 20, "the clients got somewhere: {}", acknowledged.len());
    assert!(retries.load(Ordering::Relaxed) > 0, "the harm was felt");
    check(&*program.read().await, &client, product, acknowledged, &arrivals).await;
    receiver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_is_killed_again_and_again() {
    let database = postgres::database().await;
    survives(&database.url, 6, async |program| {
        // Requests in flight hold the read lock; SIGKILL does not wait for them.
        let pid = program.read().await.pid();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), nix::sys::signal::Signal::SIGKILL).unwrap();
        program.write().await.restart().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_is_killed_again_and_again() {
    let server = postgres::own_server(true).await;
    survives(&server.url(), 4, async |_| {
        let pid = server.pid();
        if pid != 0 {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), nix::sys::signal::Signal::SIGKILL).unwrap();
        }
        // Until it is back.
        let options: sqlx::postgres::PgConnectOptions = server.url().parse().unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while sqlx::ConnectOptions::connect(&options).await.is_err() {
            assert!(Instant::now() < deadline, "Postgres did not come back");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    server.stop().await.unwrap();
}
