//! Two nodes on one database share the work, and one takes over the leases of the other.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;
use sqlx::PgPool;
use webhook_client::receiver::{Certificate, Received, Receiver, ReceiverResponse, ReceiverSettings};

use crate::support::postgres;
use crate::support::program::{NODE_LISTEN, Program};
use crate::support::relay::Relay;
use crate::support::wait::{until, until_true};

const WEBHOOKS: usize = 4;

/// Number of arrivals for each webhook and event.
type Counts = Arc<Mutex<HashMap<(String, String), usize>>>;

async fn receiver(
    respond: impl Fn(&Received) -> ReceiverResponse + Send + Sync + 'static,
) -> (Receiver, Counts, tempfile::NamedTempFile) {
    let counts = Counts::default();
    let kept = counts.clone();
    let settings = ReceiverSettings {
        listen: "127.0.0.1:0".parse().unwrap(),
        service_name: "SERVICE".into(),
        certificate: Certificate::generate().unwrap(),
        respond: Arc::new(move |received| {
            let key = (received.webhook_id().unwrap().to_owned(), received.event_id().unwrap().to_owned());
            *kept.lock().unwrap().entry(key).or_default() += 1;
            respond(received)
        }),
    };
    let (receiver, channel) = Receiver::start(settings).await.unwrap();
    drop(channel);
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), receiver.ca_pem()).unwrap();
    (receiver, counts, ca)
}

/// Creates webhooks for orders, and this many orders whose deliveries are projected but not sent.
async fn backlog(database_url: &str, url: &str, orders: usize) {
    let maker = Program::start(database_url, &["--roles", "api,projector"]).await;
    let client = maker.client("1000000.00").await;
    let product = maker.product(0).await;
    for _ in 0..WEBHOOKS {
        let webhook = json!({"name": "a", "url": url, "events": ["order.created"]});
        assert_eq!(maker.call(&client, "POST", "/webhooks", None, &webhook).await.unwrap().0, 201);
    }
    let body = json!({"product_id": product, "denomination": 10, "quantity": 1});
    for from in (0..orders).step_by(20) {
        let placing = (from..orders.min(from + 20)).map(|_| maker.call(&client, "POST", "/orders", None, &body));
        for placed in futures::future::join_all(placing).await {
            assert_eq!(placed.unwrap().0, 201);
        }
    }
    let pool = PgPool::connect(database_url).await.unwrap();
    let projected =
        "SELECT (SELECT position FROM projection_checkpoints WHERE projection = 'deliveries') = (SELECT position FROM log_head)";
    until_true("everything is projected", &pool, projected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_share_the_work_and_send_nothing_twice() {
    let database = postgres::database().await;
    let (receiver, counts, ca) = receiver(|_| ReceiverResponse::Delayed(Duration::from_millis(10), 200)).await;
    let relay = Relay::before(receiver.address()).await;
    backlog(&database.url, &relay.url(), 90).await;
    let arguments = ["--webhook-ca-file", ca.path().to_str().unwrap(), "--webhook-allow-nets", "127.0.0.0/8,::1/128"];
    let few = ["--roles", "api,delivery", "--delivery-in-flight", "8", "--delivery-in-flight-per-webhook", "4"];
    // Neither node starts before the other one is ready.
    relay.hold(true);
    let nodes = [
        Program::start(&database.url, &[&arguments[..], &few, &NODE_LISTEN].concat()).await,
        Program::start(&database.url, &[&arguments[..], &few, &NODE_LISTEN].concat()).await,
    ];
    let pool = PgPool::connect(&database.url).await.unwrap();
    // While nothing is answered, one node alone holds one delivery of each webhook at most.
    let both = format!("SELECT count(leased_until) > {WEBHOOKS} FROM delivery_state");
    until_true("both nodes have claimed", &pool, &both).await;
    relay.hold(false);
    until_true("everything is delivered", &pool, "SELECT bool_and(status = 'delivered') FROM delivery_state").await;
    {
        let counts = counts.lock().unwrap();
        assert_eq!(counts.len(), 90 * WEBHOOKS);
        assert!(counts.values().all(|times| *times == 1), "nothing was sent twice");
    }
    let mut sent = vec![];
    for node in &nodes {
        let metrics = reqwest::get(format!("{}/metrics", node.url())).await.unwrap().text().await.unwrap();
        let line = metrics.lines().find_map(|line| line.strip_prefix(r#"ledger_delivery_attempts_total{outcome="delivered"} "#));
        sent.push(line.unwrap().parse::<usize>().unwrap());
    }
    assert_eq!(sent.iter().sum::<usize>(), 90 * WEBHOOKS);
    // The scheduler decides how much each node gets.
    assert!(sent.iter().all(|sent| *sent > 0), "both worked: {sent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_surviving_node_takes_over_the_leases_of_a_dead_one_when_they_end() {
    let database = postgres::database().await;
    let hangs = Arc::new(AtomicBool::new(true));
    let is_hanging = hangs.clone();
    let (receiver, counts, ca) =
        receiver(move |_| if is_hanging.load(Ordering::SeqCst) { ReceiverResponse::Hang } else { ReceiverResponse::Status(200) })
            .await;
    // One delivery each, which is what an endpoint without a history gets.
    backlog(&database.url, &receiver.url(), 1).await;
    let arguments = ["--webhook-ca-file", ca.path().to_str().unwrap(), "--webhook-allow-nets", "127.0.0.0/8,::1/128"];
    let delivery = [&arguments[..], &["--roles", "delivery", "--delivery-timeout", "15s"], &NODE_LISTEN].concat();
    let first = Program::start(&database.url, &delivery).await;
    let pool = PgPool::connect(&database.url).await.unwrap();
    let all = WEBHOOKS;
    until("all are in flight", async || counts.lock().unwrap().len() >= all).await;
    // Before any of the sends times out.
    first.signal(Signal::SIGKILL);
    hangs.store(false, Ordering::SeqCst);
    let other = Program::start(&database.url, &delivery).await;
    until_true("everything is delivered", &pool, "SELECT bool_and(status = 'delivered') FROM delivery_state").await;
    drop((first, other));

    let attempts: Vec<(i64, i16, bool, f64)> = sqlx::query_as(
        "SELECT delivery_id, attempt, finished_at IS NOT NULL,
            extract(epoch FROM started_at - min(started_at) OVER (PARTITION BY delivery_id))::float8
         FROM delivery_attempts ORDER BY delivery_id, started_at",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    let deliveries: HashSet<i64> = attempts.iter().map(|a| a.0).collect();
    assert_eq!((deliveries.len(), attempts.len()), (all, 2 * all), "each delivery was lost once and repeated once");
    for pair in attempts.chunks(2) {
        assert_eq!(
            (pair[0].1, pair[0].2, pair[1].1, pair[1].2),
            (1, false, 1, true),
            "the repetition has the same number: {pair:?}"
        );
        // The deadline of 15 s and a margin of 15 s.
        assert!(pair[1].3 >= 30.0, "not before its lease had ended: {pair:?}");
    }
    assert!(counts.lock().unwrap().values().all(|times| *times == 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_node_gives_back_unsent_deliveries() {
    let database = postgres::database().await;
    let (receiver, counts, ca) = receiver(|_| ReceiverResponse::Delayed(Duration::from_millis(500), 200)).await;
    // Sending all of it takes more than a minute.
    backlog(&database.url, &receiver.url(), 300).await;
    let arguments = ["--webhook-ca-file", ca.path().to_str().unwrap(), "--webhook-allow-nets", "127.0.0.0/8,::1/128"];
    let few = ["--roles", "delivery", "--delivery-in-flight", "8", "--delivery-in-flight-per-webhook", "4"];
    let mut node = Program::start(&database.url, &[&arguments[..], &few].concat()).await;
    let pool = PgPool::connect(&database.url).await.unwrap();
    // More deliveries than the node may have in flight.
    let claimed = "SELECT count(*) FILTER (WHERE leased_until IS NOT NULL) > 8 FROM delivery_state";
    until_true("something is claimed and not sent", &pool, claimed).await;
    node.signal(Signal::SIGTERM);
    assert!(node.ended().await.success());
    let left: (i64, i64, i64) = sqlx::query_as(
        "SELECT count(*) FILTER (WHERE leased_until IS NOT NULL), count(*) FILTER (WHERE status = 'delivered'),
            (SELECT count(*) FROM delivery_attempts WHERE finished_at IS NULL) FROM delivery_state",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    let arrived = counts.lock().unwrap().len();
    assert!(arrived < 300 * WEBHOOKS, "the node had not sent everything");
    assert_eq!(left, (0, arrived as i64, 0), "no leases, all delivered, no attempt without a result");
}
