//! Several nodes at once, and nodes that find the leftovers of another one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rewards_ledger::delivery::record;
use rewards_ledger::delivery::worker::Worker;
use sqlx::AssertSqlSafe;
use tokio_util::sync::CancellationToken;
use webhook_client::receiver::ReceiverResponse;

use super::{count, run_until_none};
use crate::support::relay::Relay;
use crate::support::shop::{DEADLINE, SHARD, Shop, receiver, worker};
use crate::support::wait::until;

/// Polling interval so long that no worker polls twice. A worker that mistook deliveries leased by others for the end
/// of the backlog would do nothing more.
const NEVER: Duration = Duration::from_secs(3_600);

/// Leases these deliveries as another node would, for longer than the test takes.
async fn held_elsewhere(shop: &Shop, which: &str) {
    let sql = format!("UPDATE delivery_state SET fence = fence + 1, leased_until = now() + interval '1 hour' WHERE {which}");
    sqlx::query(AssertSqlSafe(sql)).execute(shop.pool()).await.unwrap();
}

async fn delivered_by(shop: &Shop, worker: &Worker) -> usize {
    let text = worker.metrics.scrape(rewards_ledger::ledger::backlog::query(shop.pool())).await.unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(r#"ledger_delivery_attempts_total{outcome="delivered"} "#));
    line.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_share_the_deliveries_of_one_webhook() {
    let shop = Shop::open().await;
    // All of it takes longer than a machine that pauses keeps one of the nodes from working.
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Delayed(Duration::from_millis(100), 200)).await;
    let relay = Relay::before(receiver.address()).await;
    shop.webhook(&relay.url()).await;
    shop.orders(shop.customer.account_id, 3_000).await;
    shop.project().await;
    let stop = CancellationToken::new();
    let workers = [(); 2].map(|()| {
        let mut worker = worker(&shop.options, &receiver, DEADLINE);
        worker.settings.idle = NEVER;
        worker.settings.max_in_flight = 16;
        worker.settings.max_in_flight_per_webhook = 16;
        worker
    });
    // Neither worker starts before the other one is ready.
    relay.hold(true);
    let running = workers.clone().map(|worker| tokio::spawn(worker.run(stop.clone())));
    until("each node sends one delivery", async || relay.accepted() >= 2).await;
    relay.hold(false);
    let left = "SELECT count(*) FROM delivery_state WHERE status <> 'delivered'";
    until("everything is delivered", async || count(shop.pool(), left).await == 0).await;
    stop.cancel();
    for running in running {
        running.await.unwrap();
    }
    let sent = [delivered_by(&shop, &workers[0]).await, delivered_by(&shop, &workers[1]).await];
    assert_eq!(sent.iter().sum::<usize>(), 3_000, "nothing is sent twice");
    // More than a node claims before it has looked for deliveries beside the other one.
    assert!(sent.iter().all(|sent| *sent > 100), "both nodes go on: {sent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_nodes_send_each_attempt_once_whatever_the_response() {
    let shop = Shop::open().await;
    let seen: Arc<Mutex<HashMap<String, i64>>> = Arc::default();
    let counted = seen.clone();
    // A third of the events fail twice, and some are answered late.
    let (receiver, _arrived) = receiver(move |received| {
        let event_id = received.event_id().unwrap().to_owned();
        let kind: usize = event_id.bytes().map(usize::from).sum();
        let mut counted = counted.lock().unwrap();
        let times = counted.entry(event_id).or_default();
        *times += 1;
        match kind {
            _ if kind.is_multiple_of(3) && *times <= 2 => ReceiverResponse::Status(500),
            _ if kind.is_multiple_of(7) => ReceiverResponse::Delayed(Duration::from_millis(700), 200),
            _ => ReceiverResponse::Status(200),
        }
    })
    .await;
    shop.webhook(&receiver.url()).await;
    let stop = CancellationToken::new();
    let running = [(); 2].map(|()| {
        let mut worker = worker(&shop.options, &receiver, DEADLINE);
        worker.settings.idle = Duration::from_millis(50);
        worker.settings.retry_base = Duration::from_millis(300);
        worker.settings.max_in_flight_per_webhook = 16;
        tokio::spawn(worker.run(stop.clone()))
    });
    for _ in 0..10 {
        shop.orders(shop.customer.account_id, 30).await;
        shop.project().await;
    }
    let left = "SELECT count(*) FROM delivery_state WHERE status <> 'delivered'";
    until("everything is delivered", async || count(shop.pool(), left).await == 0).await;
    stop.cancel();
    for running in running {
        running.await.unwrap();
    }
    let attempts =
        "SELECT d.event_id::text, s.attempt_count::bigint FROM deliveries d JOIN delivery_state s ON s.delivery_id = d.id";
    let attempts: HashMap<String, i64> = sqlx::query_as(attempts).fetch_all(shop.pool()).await.unwrap().into_iter().collect();
    assert_eq!(attempts.len(), 300);
    assert!(attempts.values().any(|attempts| *attempts == 3), "some deliveries were repeated");
    assert_eq!(*seen.lock().unwrap(), attempts);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leases_of_a_dead_node_do_not_delay_new_deliveries() {
    for (pause, orders) in [(Duration::ZERO, 200), (Duration::from_millis(1_100), 5)] {
        let shop = Shop::open().await;
        let (receiver, _arrived) = receiver(move |_| ReceiverResponse::Delayed(pause, 200)).await;
        shop.webhook(&receiver.url()).await;
        shop.orders(shop.customer.account_id, 300).await;
        shop.project().await;
        held_elsewhere(&shop, "true").await;
        shop.orders(shop.customer.account_id, orders).await;
        shop.project().await;
        let mut worker = worker(&shop.options, &receiver, DEADLINE);
        worker.settings.idle = NEVER;
        run_until_none(worker, "SELECT count(*) FROM delivery_state WHERE status = 'pending' AND delivery_id > 300").await;
        let early = "SELECT count(*) FROM delivery_state WHERE status <> 'pending' AND delivery_id <= 300";
        assert_eq!(count(shop.pool(), early).await, 0, "no worker takes leased deliveries");
    }
}

#[tokio::test]
async fn retries_do_not_take_all_the_room_that_other_nodes_leave() {
    let shop = Shop::open().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    shop.webhook(&receiver.url()).await;
    shop.orders(shop.customer.account_id, 400).await;
    shop.project().await;
    sqlx::query(
        "UPDATE delivery_state SET attempt_count = 1, next_attempt_at = now() - interval '1 hour' WHERE delivery_id <= 200",
    )
    .execute(shop.pool())
    .await
    .unwrap();
    let worker = shop.worker(&receiver, DEADLINE);
    let claim = async || {
        let claimed = worker.claim_once(SHARD, 200).await.unwrap();
        record::give_back(shop.pool(), SHARD, &claimed).await.unwrap();
        let retries = claimed.iter().filter(|claimed| claimed.attempt > 1).count();
        (claimed.len() - retries, retries)
    };
    assert_eq!(claim().await, (48, 16));
    held_elsewhere(&shop, "delivery_id <= 56").await;
    assert_eq!(claim().await, (6, 2), "with room for eight");
    held_elsewhere(&shop, "delivery_id <= 63").await;
    let (mut first_attempts, mut retries) = (0, 0);
    for _ in 0..100 {
        let claimed = claim().await;
        assert_eq!(claimed.0 + claimed.1, 1);
        first_attempts += claimed.0;
        retries += claimed.1;
    }
    // The choice is random. The probability that one kind is never chosen is 3 in 10,000,000,000,000.
    assert!(first_attempts > 0 && retries > 0, "with room for one: {first_attempts} and {retries}");
    held_elsewhere(&shop, "delivery_id <= 64").await;
    assert_eq!(claim().await, (0, 0));
}
