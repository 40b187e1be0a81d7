//! The retry schedule in real time, by the program with a short base. Also: nothing waits for a slow timer when this
//! node or another one can announce new work.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use tokio_util::sync::CancellationToken;
use webhook_client::receiver::{Certificate, Receiver, ReceiverResponse, ReceiverSettings};

use rewards_ledger::ledger::projector::{ProjectionStep, Projector};
use rewards_ledger::telemetry::Metrics;

use crate::support::program::Program;
use crate::support::shop::{DEADLINE, SHARD, Shop, receiver};
use crate::support::wait::{is_true, until, until_true};
use crate::support::{ledger, postgres};

#[tokio::test(flavor = "multi_thread")]
async fn five_attempts_one_two_four_and_eight_bases_apart() {
    const BASE: Duration = Duration::from_millis(400);
    let database = postgres::database().await;
    let arrivals: Arc<Mutex<Vec<(Instant, String)>>> = Arc::default();
    let kept = arrivals.clone();
    let settings = ReceiverSettings {
        listen: "127.0.0.1:0".parse().unwrap(),
        service_name: "SERVICE".into(),
        certificate: Certificate::generate().unwrap(),
        respond: Arc::new(move |received| {
            kept.lock().unwrap().push((Instant::now(), received.request_id().unwrap().to_owned()));
            ReceiverResponse::Status(503)
        }),
    };
    let (receiver, channel) = Receiver::start(settings).await.unwrap();
    drop(channel);
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), receiver.ca_pem()).unwrap();
    let reach = ["--webhook-ca-file", ca.path().to_str().unwrap(), "--webhook-allow-nets", "127.0.0.0/8,::1/128"];
    let program = Program::start(&database.url, &[&reach[..], &["--retry-base", "400ms"]].concat()).await;
    let client = program.client("100.00").await;
    let product = program.product(0).await;
    let webhook = json!({"name": "a", "url": receiver.url(), "events": ["order.created"]});
    assert_eq!(program.call(&client, "POST", "/webhooks", None, &webhook).await.unwrap().0, 201);
    let body = json!({"product_id": product, "denomination": 10, "quantity": 1});
    assert_eq!(program.call(&client, "POST", "/orders", None, &body).await.unwrap().0, 201);

    let get = async |path: &str| program.call(&client, "GET", path, None, &Value::Null).await.unwrap().1;
    let mut failed = None;
    until("the delivery fails for good", async || {
        let list = get("/webhooks/deliveries?status=failed").await;
        failed = list["deliveries"].as_array().unwrap().first().cloned();
        failed.is_some()
    })
    .await;
    let failed = failed.unwrap();
    assert_eq!((&failed["attempt_count"], &failed["response_status"]), (&json!(5), &json!(503)));
    let detail = get(&format!("/webhooks/deliveries/{}", failed["id"])).await;
    let attempts = detail["attempts"].as_array().unwrap();
    let started: Vec<chrono::DateTime<chrono::Utc>> =
        attempts.iter().map(|attempt| attempt["started_at"].as_str().unwrap().parse().unwrap()).collect();
    assert_eq!(attempts.iter().map(|attempt| attempt["attempt"].as_i64().unwrap()).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    for (pair, factor) in started.windows(2).zip([1, 2, 4, 8]) {
        let apart = (pair[1] - pair[0]).to_std().unwrap();
        assert!(apart >= BASE * factor, "{apart:?} between attempts, expected {factor} times the base");
        // The upper limit depends on the machine. The next test shows that nothing waits for the slow timer.
    }
    let arrivals = arrivals.lock().unwrap();
    let requests: Vec<&str> = attempts.iter().map(|attempt| attempt["request_id"].as_str().unwrap()).collect();
    assert_eq!(arrivals.iter().map(|(_, id)| id.as_str()).collect::<Vec<_>>(), requests);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_delivery_does_not_wait_for_the_slow_timer() {
    let shop = Shop::open().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    shop.webhook(&receiver.url()).await;
    let mut worker = shop.worker(&receiver, DEADLINE);
    // Longer than a test may take.
    worker.settings.idle = Duration::from_secs(3_600);
    let stop = tokio_util::sync::CancellationToken::new();
    let running = tokio::spawn(worker.run(stop.clone()));
    for _ in 0..3 {
        shop.order(1).await;
        while shop.projector().step(SHARD).await.unwrap() != ProjectionStep::Idle {}
        tokio::time::timeout(DEADLINE, arrived.recv()).await.expect("the projector wakes the worker").unwrap();
    }
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn another_nodes_commit_is_announced_by_notify() {
    const NEVER: Duration = Duration::from_secs(3_600);
    let shop = Shop::open().await;
    let other = ledger::open(&shop.options).await;
    // Only a NOTIFY of another node changes this. It takes a moment until the node listens.
    let mut grown = other.wake().subscribe();
    let heard = tokio::time::timeout(DEADLINE, async {
        loop {
            shop.order(1).await;
            if tokio::time::timeout(Duration::from_millis(200), grown.changed()).await.is_ok() {
                return;
            }
        }
    });
    heard.await.expect("the other node hears of commits");

    // The projector and the worker therefore react at once, though their timers are too slow.
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    shop.webhook(&receiver.url()).await;
    let stop = tokio_util::sync::CancellationToken::new();
    let projector = Projector::new(&other, &shop.options, Metrics::default()).idling(NEVER);
    let mut worker = shop.worker(&receiver, DEADLINE);
    worker.settings.idle = NEVER; // a NOTIFY also announces the other node's deliveries
    let running = [tokio::spawn(projector.run(stop.clone())), tokio::spawn(worker.run(stop.clone()))];
    for _ in 0..5 {
        shop.order(1).await;
        tokio::time::timeout(DEADLINE, arrived.recv()).await.expect("the delivery arrives without any timer").unwrap();
    }
    stop.cancel();
    for running in running {
        running.await.unwrap();
    }
}

/// The database's clock was set back by a day, so existing retries and leases end a day late.
#[tokio::test]
async fn due_times_and_leases_a_day_too_late_are_corrected() {
    let shop = Shop::open().await;
    let (receiver, _arrived) = receiver(|r| ReceiverResponse::Status(if r.path == "/good" { 200 } else { 500 })).await;
    let (bad, _) = shop.webhook(&format!("{}/bad", receiver.url())).await;
    shop.order(1).await;
    shop.project().await;
    let worker = shop.worker(&receiver, DEADLINE);
    assert_eq!(worker.once().await.unwrap().failed, 1);
    let (good, _) = shop.webhook(&format!("{}/good", receiver.url())).await;
    let (held, _) = shop.webhook(&format!("{}/good", receiver.url())).await;
    shop.order(1).await;
    shop.project().await;
    for (set, of) in
        [("next_attempt_at = now() + interval '1 day'", [bad, good]), ("leased_until = now() + interval '1 day'", [held, held])]
    {
        let set = format!("UPDATE delivery_state SET {set} WHERE webhook_id IN ({}, {})", of[0], of[1]);
        sqlx::raw_sql(AssertSqlSafe(set)).execute(shop.pool()).await.unwrap();
    }
    let stop = CancellationToken::new();
    let running = tokio::spawn(worker.clone().run(stop.clone()));
    let sent = format!("SELECT status = 'delivered' FROM delivery_state WHERE webhook_id = {good}");
    until_true("the first attempt is made now", shop.pool(), &sent).await;
    stop.cancel();
    running.await.unwrap();
    // The retry is due as if the previous attempt had begun now. The leased delivery is free after the length of one
    // lease.
    let soon = format!(
        "SELECT bool_and(CASE WHEN webhook_id = {held} THEN leased_until ELSE next_attempt_at END BETWEEN now() AND now() + interval '3 minutes')
         FROM delivery_state WHERE status = 'pending' AND (webhook_id = {held} OR attempt_count = 1)"
    );
    assert!(is_true(shop.pool(), &soon).await);
    worker.settings.clock.advance(chrono::TimeDelta::minutes(3));
    let round = worker.once().await.unwrap();
    assert_eq!((round.claimed, round.delivered), (3, 1), "both deliveries of the failing webhook are claimed as well");
}

/// Due times within another node's schedule are left alone.
#[tokio::test]
async fn due_times_and_leases_within_the_schedule_are_left_alone() {
    let shop = Shop::open().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    shop.webhook(&receiver.url()).await;
    shop.orders(shop.customer.account_id, 2).await;
    shop.project().await;
    sqlx::raw_sql(
        "UPDATE delivery_state SET attempt_count = 1, next_attempt_at = now() + interval '1 hour';
         UPDATE delivery_state SET leased_until = now() + interval '1 hour' WHERE delivery_id = (SELECT max(delivery_id) FROM delivery_state)",
    )
    .execute(shop.pool())
    .await
    .unwrap();
    let rows = "SELECT array_agg(s::text ORDER BY delivery_id) FROM delivery_state s";
    let before: Vec<String> = sqlx::query_scalar(rows).fetch_one(shop.pool()).await.unwrap();
    shop.worker(&receiver, DEADLINE).once().await.unwrap();
    assert_eq!(sqlx::query_scalar::<_, Vec<String>>(rows).fetch_one(shop.pool()).await.unwrap(), before);
}
