//! Rebuilds of the deliveries while a worker sends them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ledger_events::WebhookId;
use rewards_ledger::audit::{Rebuild, rebuild, verify};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use webhook_client::receiver::ReceiverResponse;

use crate::support::shop::{DEADLINE, Shop, receiver};
use crate::support::wait::{until, until_true};

/// Identity of a delivery: its event and its webhook.
type Made = (Uuid, WebhookId);

/// Returns every delivery with its id.
async fn ids(shop: &Shop) -> BTreeMap<Made, i64> {
    let rows: Vec<(Uuid, WebhookId, i64)> =
        sqlx::query_as("SELECT event_id, webhook_id, id FROM deliveries").fetch_all(shop.pool()).await.unwrap();
    rows.into_iter().map(|(event, webhook, id)| ((event, webhook), id)).collect()
}

/// Returns how many deliveries are being sent, and how many wait for a retry after one failure.
async fn under_way(shop: &Shop) -> (i64, i64) {
    sqlx::query_as(
        "SELECT count(*) FILTER (WHERE leased_until > now()),
                count(*) FILTER (WHERE attempt_count = 1 AND (leased_until IS NULL OR leased_until < now()))
         FROM delivery_state WHERE status = 'pending'",
    )
    .fetch_one(shop.pool())
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_rebuilt_while_a_worker_sends_and_retries_them() {
    let shop = Arc::new(Shop::open().await);
    // The first attempt of each delivery to `/again` fails, and `/slow` always answers late.
    let seen: Mutex<HashSet<String>> = Mutex::default();
    let (receiver, mut arrived) = receiver(move |received| match &*received.path {
        "/quick" => ReceiverResponse::Status(200),
        "/slow" => ReceiverResponse::Delayed(Duration::from_secs(2), 200),
        _ if seen.lock().unwrap().insert(received.event_id().unwrap().to_owned()) => ReceiverResponse::Status(500),
        _ => ReceiverResponse::Status(200),
    })
    .await;
    let mut webhooks = BTreeMap::new();
    for (path, attempts) in [("/quick", 1), ("/slow", 1), ("/again", 2)] {
        webhooks.insert(shop.webhook(&format!("{}{path}", receiver.url())).await.0, attempts);
    }
    let mut worker = shop.worker(&receiver, DEADLINE);
    // Retries come due continuously.
    worker.settings.retry_base = Duration::from_secs(1);
    let (stop, written) = (CancellationToken::new(), CancellationToken::new());
    let running = tokio::spawn(worker.run(stop.clone()));
    let writer = tokio::spawn({
        let (shop, written) = (shop.clone(), written.clone());
        async move {
            while !written.is_cancelled() {
                shop.orders(shop.customer.account_id, 3).await;
                shop.project().await;
                tokio::time::sleep(Duration::from_millis(50)).await; // the pace of the load
            }
        }
    });

    for _ in 0..4 {
        until("some are being sent, and some wait for another attempt", async || matches!(under_way(&shop).await, (1.., 1..)))
            .await;
        let before = ids(&shop).await;
        let rebuilt = rebuild(&shop.options, Rebuild::Deliveries, |_| {}).await.unwrap();
        assert!(rebuilt.was_clean(), "{:#?}", rebuilt.differences);
        let after = ids(&shop).await;
        assert!(before.iter().all(|(made, id)| after.get(made) == Some(id)), "a delivery keeps its id");
    }
    written.cancel();
    writer.await.unwrap();
    // The swap of a rebuild's tables keeps the projector out for a moment, so project once more.
    shop.project().await;

    let all = ids(&shop).await;
    until_true("all are delivered", shop.pool(), "SELECT bool_and(status = 'delivered') FROM delivery_state").await;
    stop.cancel();
    running.await.unwrap();

    // Each webhook received every order, in exactly as many attempts as that took.
    let placed: BTreeSet<Uuid> = sqlx::query_scalar("SELECT event_id FROM events WHERE type = 'OrderPlaced'")
        .fetch_all(shop.pool())
        .await
        .unwrap()
        .into_iter()
        .collect();
    let expected: BTreeMap<Made, i32> =
        placed.iter().flat_map(|event| webhooks.iter().map(|(webhook, attempts)| ((*event, *webhook), *attempts))).collect();
    assert!(all.keys().eq(expected.keys()), "{} deliveries for {} orders", all.len(), placed.len());
    let mut sent: BTreeMap<Made, i32> = BTreeMap::new();
    while let Ok(received) = arrived.try_recv() {
        let made = (received.event_id().unwrap().parse().unwrap(), received.webhook_id().unwrap().parse().unwrap());
        *sent.entry(made).or_default() += 1;
    }
    assert_eq!(sent, expected);
    let report = verify(&shop.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.differences);
    assert_eq!(report.delivery_health.missing(), 0);
}
