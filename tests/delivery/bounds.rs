//! Limits of a running worker from its receiver's point of view. They concern the deliveries in flight, their order,
//! and how much of each response is stored.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ledger_events::webhook::WebhookEventType;
use serde_json::json;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use webhook_client::receiver::{Received, ReceiverResponse};

use super::{count, run_until_none};
use crate::support::postgres;
use crate::support::program::Program;
use crate::support::relay::Relay;
use crate::support::shop::{DEADLINE, Shop, receiver};
use crate::support::wait::until;

const PENDING: &str = "SELECT count(*) FROM delivery_state WHERE status = 'pending'";

/// Answers each request after a pause, and counts requests in flight. No sender has its answer before, so the count
/// is never higher than the true number.
#[derive(Clone, Debug)]
pub struct Counting {
    pause: Duration,
    counts: Arc<Mutex<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    under_way: Vec<(Instant, String)>,
    most: usize,
    most_of: HashMap<String, usize>,
}

impl Counting {
    pub fn answering_after(pause: Duration) -> Counting {
        Counting { pause, counts: Arc::default() }
    }

    pub fn answer(&self, received: &Received) -> ReceiverResponse {
        let mut counts = self.counts.lock().unwrap();
        let (now, webhook) = (Instant::now(), received.webhook_id().unwrap().to_owned());
        counts.under_way.retain(|(since, _)| now - *since < self.pause);
        counts.under_way.push((now, webhook.clone()));
        counts.most = counts.most.max(counts.under_way.len());
        let of_it = counts.under_way.iter().filter(|(_, of)| *of == webhook).count();
        let most_of_it = counts.most_of.entry(webhook).or_default();
        *most_of_it = of_it.max(*most_of_it);
        ReceiverResponse::Delayed(self.pause, 200)
    }

    /// Returns the maximum number of requests in flight: in total, and for one webhook.
    pub fn most(&self) -> (usize, usize) {
        let counts = self.counts.lock().unwrap();
        (counts.most, counts.most_of.values().copied().max().unwrap_or_default())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_in_flight_stay_within_the_total_limit_and_the_limit_per_webhook() {
    let shop = Shop::open().await;
    let counting = Counting::answering_after(Duration::from_millis(300));
    let counted = counting.clone();
    let (receiver, _arrived) = receiver(move |r| counted.answer(r)).await;
    for _ in 0..3 {
        shop.webhook(&receiver.url()).await;
    }
    let (other, _) = shop.account("other").await;
    shop.webhook_for(other, &receiver.url(), &[WebhookEventType::OrderCreated]).await;
    shop.orders(shop.customer.account_id, 16).await;
    shop.orders(other, 16).await;
    shop.project().await;
    let mut worker = shop.worker(&receiver, DEADLINE);
    worker.settings.max_in_flight = 10;
    worker.settings.max_in_flight_per_webhook = 4;
    let stop = CancellationToken::new();
    let running = tokio::spawn(worker.run(stop.clone()));
    // A machine that pauses may need further deliveries.
    until("the limits are used, and everything is delivered", async || {
        if count(shop.pool(), PENDING).await > 0 {
            return false;
        }
        let (in_all, of_one) = counting.most();
        let are_used = in_all > 5 && of_one > 2;
        if !are_used {
            shop.orders(shop.customer.account_id, 16).await;
            shop.orders(other, 16).await;
            shop.project().await;
        }
        are_used
    })
    .await;
    stop.cancel();
    running.await.unwrap();
    let (in_all, of_one) = counting.most();
    assert!(in_all <= 10 && of_one <= 4, "{in_all} in total, {of_one} of one webhook");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_flags_limit_concurrent_sends_and_connections_of_a_node() {
    let database = postgres::database().await;
    let counting = Counting::answering_after(Duration::from_millis(300));
    let counted = counting.clone();
    let (receiver, _arrived) = receiver(move |r| counted.answer(r)).await;
    let relay = Relay::before(receiver.address()).await;
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), receiver.ca_pem()).unwrap();
    let reach = ["--webhook-ca-file", ca.path().to_str().unwrap(), "--webhook-allow-nets", "127.0.0.0/8,::1/128"];
    let bounds = ["--delivery-in-flight", "6", "--delivery-in-flight-per-webhook", "4"];
    let program = Program::start(&database.url, &[&reach[..], &bounds].concat()).await;
    let client = program.client("100000.00").await;
    let product = program.product(0).await;
    let pool = PgPool::connect(&database.url).await.unwrap();
    // One webhook alone may have less in flight than the node. Three together would need more.
    let delivered = "SELECT count(*) FROM delivery_state WHERE status = 'delivered'";
    let (mut webhooks, mut deliveries) = (0, 0);
    for (more, in_all) in [(1, 3), (2, 5)] {
        webhooks += more;
        for _ in 0..more {
            let webhook = json!({"name": "a", "url": relay.url(), "events": ["order.created"]});
            assert_eq!(program.call(&client, "POST", "/webhooks", None, &webhook).await.unwrap().0, 201);
        }
        // A machine that pauses may need further deliveries until the limits are used.
        until("the limits are used", async || {
            let order = json!({"product_id": product, "denomination": 10, "quantity": 1});
            let orders = (0..20).map(|_| program.call(&client, "POST", "/orders", None, &order));
            for placed in futures::future::join_all(orders).await {
                assert_eq!(placed.unwrap().0, 201);
            }
            deliveries += 20 * webhooks;
            until("all are delivered", async || count(&pool, delivered).await >= deliveries).await;
            let most = counting.most();
            most.0 >= in_all && most.1 > 2
        })
        .await;
    }
    let (in_all, of_one) = counting.most();
    assert!(in_all <= 6 && of_one <= 4, "{in_all} in total, {of_one} of one webhook");
    assert!(relay.accepted() <= 6, "{} connections for {deliveries} deliveries", relay.accepted());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_deliveries_share_few_connections() {
    let shop = Shop::open().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::StatusWithBody(200, "thanks".to_owned())).await;
    let relay = Relay::before(receiver.address()).await;
    for _ in 0..3 {
        shop.webhook(&relay.url()).await;
    }
    shop.orders(shop.customer.account_id, 400).await;
    shop.project().await;
    let mut worker = shop.worker(&receiver, DEADLINE);
    worker.settings.max_in_flight = 16;
    worker.settings.max_in_flight_per_webhook = 8;
    run_until_none(worker, PENDING).await;
    let requests = std::iter::from_fn(|| arrived.try_recv().ok()).count();
    assert_eq!(requests, 1_200);
    let connections = relay.accepted();
    assert!((1..=16).contains(&connections), "{connections} connections for {requests} requests");
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_sent_one_at_a_time_arrive_in_log_order_byte_for_byte() {
    let shop = Shop::open().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    shop.webhook(&receiver.url()).await;
    let stop = CancellationToken::new();
    let mut worker = shop.worker(&receiver, DEADLINE);
    worker.settings.max_in_flight_per_webhook = 1;
    // A pause of the machine does not make it give back any of them, which would come later then.
    worker.settings.fresh = DEADLINE;
    // Some deliveries are due at the start, others become due while the worker runs.
    shop.orders(shop.customer.account_id, 60).await;
    shop.project().await;
    let running = tokio::spawn(worker.run(stop.clone()));
    for _ in 0..5 {
        shop.orders(shop.customer.account_id, 10).await;
        shop.project().await;
    }
    let of_the_log: Vec<(String, String)> =
        sqlx::query_as("SELECT event_id::text, payload FROM webhook_envelopes ORDER BY position")
            .fetch_all(shop.pool())
            .await
            .unwrap();
    assert_eq!(of_the_log.len(), 110);
    for (at, (event_id, payload)) in of_the_log.iter().enumerate() {
        let received = tokio::time::timeout(DEADLINE, arrived.recv()).await.expect("all arrive").unwrap();
        assert_eq!(received.event_id(), Some(&**event_id), "delivery {at} of the log");
        assert_eq!(received.body, payload.as_bytes(), "delivery {at} of the log");
    }
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_response_bodies_stay_within_their_quota() {
    let shop = Shop::open().await;
    // Every other attempt fails, and stores its body twice.
    let is_failure = AtomicBool::new(false);
    let (receiver, _arrived) = receiver(move |_| {
        let status = if is_failure.fetch_xor(true, Ordering::Relaxed) { 500 } else { 200 };
        ReceiverResponse::StatusWithBody(status, "x".repeat(60_000))
    })
    .await;
    shop.webhook(&receiver.url()).await;
    shop.orders(shop.customer.account_id, 100).await;
    shop.project().await;
    let mut worker = shop.worker(&receiver, DEADLINE);
    worker.settings.response_bodies = 256 * 1024;
    // 9 MB are stored. What remains is the quota, and what a worker may store before it checks.
    let too_much = "SELECT count(*) FILTER (WHERE attempt_count = 0) + (coalesce(sum(octet_length(response_body)), 0)
            + (SELECT coalesce(sum(octet_length(response_body)), 0) FROM delivery_attempts) > 1280 * 1024)::int FROM delivery_state";
    run_until_none(worker, too_much).await;
    let newest: bool =
        sqlx::query_scalar("SELECT response_body IS NOT NULL FROM delivery_state ORDER BY delivery_id DESC LIMIT 1")
            .fetch_one(shop.pool())
            .await
            .unwrap();
    assert!(newest, "the newest bodies are kept");
}
