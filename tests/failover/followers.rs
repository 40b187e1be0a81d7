//! Followers of the log, which keep a position in memory, and the delivery worker.

use ledger_database::PgPool;
use ledger_events::order::OrderStatus;
use rewards_ledger::delivery::record::{self, Lease};
use rewards_ledger::fulfilment::Fulfilment;
use rewards_ledger::ledger::health::{Bounds, Watch};
use webhook_client::receiver::ReceiverResponse;

use crate::support::failover::Standby;
use crate::support::ledger::SHARD;
use crate::support::shop::{DEADLINE, Shop, receiver};
use crate::support::wait::until;

/// Steps until a few steps in a row find nothing. A step that fails on a cut connection does not count.
async fn take_up_all(fulfilment: &mut Fulfilment) -> usize {
    let (mut taken_up, mut idle) = (0, 0);
    until("fulfilment finds no more orders", async || {
        let Ok(outcome) = fulfilment.step(SHARD).await else { return false };
        taken_up += outcome.taken_up;
        idle = if outcome.taken_up == 0 && !outcome.is_hindered { idle + 1 } else { 0 };
        idle == 5
    })
    .await;
    taken_up
}

/// After the failover the log ends before fulfilment's position, or has grown beyond it with other events.
#[tokio::test(flavor = "multi_thread")]
async fn fulfilment_finds_the_orders_of_a_log_that_lost_commits() {
    for again in [1, 8] {
        let shop = Shop::open().await;
        shop.load("a", 100, None).await;
        let mut fulfilment = Fulfilment::new(shop.ledger.clone(), shop.metrics.clone());
        shop.orders(shop.customer.account_id, 2).await;
        assert_eq!(take_up_all(&mut fulfilment).await, 2);
        let standby = Standby::of(&shop.options).await;
        shop.orders(shop.customer.account_id, 5).await;
        assert_eq!(take_up_all(&mut fulfilment).await, 5);

        standby.promote().await;
        for _ in 0..again {
            shop.order(1).await;
        }
        assert_eq!(take_up_all(&mut fulfilment).await, again, "found before the whole queue is read again");
        let waiting: i64 = sqlx::query_scalar("SELECT count(*) FROM orders WHERE status <> $1")
            .bind(OrderStatus::Delivered.as_str())
            .fetch_one(shop.pool())
            .await
            .unwrap();
        assert_eq!(waiting, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_health_check_of_deliveries_follows_the_new_log() {
    let shop = Shop::open().await;
    shop.webhook("https://localhost/a").await;
    shop.orders(shop.customer.account_id, 2).await;
    shop.project().await;
    let mut watch = Watch::new(shop.pool().clone(), SHARD, Bounds::default());
    let figure = async |watch: &mut Watch| {
        // Each check finds only one of the cut connections.
        until("the health check finds nothing new", async || matches!(watch.once().await, Ok(false))).await;
        (watch.expected(), watch.missing())
    };
    assert_eq!(figure(&mut watch).await, (2, 0));
    let standby = Standby::of(&shop.options).await;
    shop.orders(shop.customer.account_id, 5).await;
    shop.project().await;
    assert_eq!(figure(&mut watch).await, (7, 0));

    standby.promote().await;
    for _ in 0..6 {
        shop.order(1).await;
    }
    shop.project().await;
    assert_eq!(figure(&mut watch).await, (8, 0));
}

async fn lease(pool: &PgPool) -> (i64, Option<chrono::DateTime<chrono::Utc>>, String, i16) {
    sqlx::query_as("SELECT fence, leased_until, status, attempt_count FROM delivery_state").fetch_one(pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_claim_records_nothing_under_the_next_fencing_token() {
    let shop = Shop::open().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(500)).await;
    shop.webhook(&receiver.url()).await;
    shop.order(1).await;
    shop.project().await;
    let worker = shop.worker(&receiver, DEADLINE);
    let standby = Standby::of(&shop.options).await;
    let claim = async || {
        let mut claimed = vec![];
        until("the delivery is claimed", async || match worker.claim_once(SHARD, 1).await {
            Ok(found) => {
                claimed = found;
                true
            }
            Err(_) => false, // the connection was cut
        })
        .await;
        claimed.remove(0)
    };
    let lost = claim().await;
    standby.promote().await;
    let next = claim().await;
    assert_eq!((next.delivery_id, next.fence), (lost.delivery_id, lost.fence));
    assert_ne!(next.request_id, lost.request_id);
    let before = lease(shop.pool()).await;

    let ended = worker.send(lost.clone()).await.unwrap();
    let mut recorded = None;
    until("the result is recorded", async || {
        recorded = worker.record(SHARD, std::slice::from_ref(&ended)).await.ok();
        recorded.is_some()
    })
    .await;
    assert_eq!(recorded, Some(0));
    record::give_back(shop.pool(), SHARD, std::slice::from_ref(&lost)).await.unwrap();
    record::end_leases(shop.pool(), &worker.settings.clock, SHARD, &[Lease::of(&lost)]).await.unwrap();
    assert_eq!(lease(shop.pool()).await, before, "the lease belongs to the other worker");

    let ended = worker.send(next).await.unwrap();
    assert_eq!(worker.record(SHARD, &[ended]).await.unwrap(), 1);
    let (_, leased_until, status, attempts) = lease(shop.pool()).await;
    assert_eq!((leased_until, status.as_str(), attempts), (None, "pending", 1));
}
