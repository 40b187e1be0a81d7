//! Fulfilment: who gets the stock.

use ledger_events::order::OrderStatus;
use rewards_ledger::fulfilment::Fulfilment;
use rewards_ledger::ledger::projector::Step;

use crate::support::shop::{SHARD, Shop};

fn fulfilment(shop: &Shop) -> Fulfilment {
    Fulfilment::new(shop.ledger.clone(), shop.metrics.clone())
}

#[tokio::test]
async fn stock_that_arrives_goes_to_the_oldest_waiting_order_partly_then_wholly() {
    let shop = Shop::open().await;
    let mut fulfilment = fulfilment(&shop);
    let (first, second) = (shop.order(3).await, shop.order(1).await);
    assert_eq!(fulfilment.step(SHARD).await.unwrap().taken_up, 2);
    assert_eq!(shop.find(first).await.status, OrderStatus::Delayed);

    shop.load("a", 2, None).await;
    fulfilment.step(SHARD).await.unwrap();
    assert_eq!(shop.find(first).await.status, OrderStatus::PartiallyDelivered);
    assert_eq!(shop.find(second).await.status, OrderStatus::Delayed);

    // A younger order does not overtake those that wait.
    let third = shop.order(1).await;
    shop.load("b", 2, None).await;
    fulfilment.step(SHARD).await.unwrap();
    fulfilment.step(SHARD).await.unwrap();
    let first = shop.find(first).await;
    assert_eq!((first.status, first.delivered_quantity, first.items.len()), (OrderStatus::Delivered, 3, 2));
    assert_eq!(shop.find(second).await.status, OrderStatus::Delivered);
    assert_eq!(shop.find(third).await.status, OrderStatus::Delayed);

    let idle = fulfilment.step(SHARD).await.unwrap();
    assert_eq!((idle.taken_up, idle.restocked, idle.is_hindered), (0, 0, false));
}

#[tokio::test]
async fn two_fulfilments_never_give_one_voucher_to_two_orders() {
    let shop = Shop::open().await;
    shop.load("a", 150, None).await;
    shop.orders(shop.customer.account_id, 300).await;
    let (mut one, mut other) = (fulfilment(&shop), fulfilment(&shop));
    for _ in 0..3 {
        let (a, b) = tokio::join!(one.step(SHARD), other.step(SHARD));
        a.unwrap();
        b.unwrap();
    }
    shop.load("b", 100, None).await;
    for _ in 0..3 {
        let (a, b) = tokio::join!(one.step(SHARD), other.step(SHARD));
        a.unwrap();
        b.unwrap();
    }
    let (delivered, units, given): (i64, i64, i64) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM orders WHERE status = 'DELIVERED'), (SELECT sum(delivered_quantity) FROM orders),
                (SELECT count(DISTINCT order_id) FROM vault.vouchers WHERE order_id IS NOT NULL)",
    )
    .fetch_one(shop.pool())
    .await
    .unwrap();
    assert_eq!((delivered, units, given), (250, 250, 250));
    let out_of_turn: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM orders WHERE status = 'DELIVERED' AND id > (SELECT min(id) FROM orders WHERE status <> 'DELIVERED'))",
    )
    .fetch_one(shop.pool())
    .await
    .unwrap();
    assert!(!out_of_turn);
    let events: i64 =
        sqlx::query_scalar("SELECT count(*) FROM events WHERE type = 'OrderQueued'").fetch_one(shop.pool()).await.unwrap();
    assert_eq!(events, 300);
}

#[tokio::test]
async fn cancelled_orders_are_left_alone() {
    let shop = Shop::open().await;
    let mut fulfilment = fulfilment(&shop);
    let untouched = shop.order(1).await;
    shop.cancel(untouched).await;
    let delayed = shop.order(1).await;
    assert_eq!(fulfilment.step(SHARD).await.unwrap().taken_up, 1);
    shop.cancel(delayed).await;
    shop.load("a", 2, None).await;
    fulfilment.step(SHARD).await.unwrap();
    for id in [untouched, delayed] {
        let order = shop.find(id).await;
        assert_eq!((order.status, order.delivered_quantity), (OrderStatus::Cancelled, 0));
    }
    assert!(!shop.find(untouched).await.is_queued);
}

#[tokio::test]
async fn expired_vouchers_are_never_allocated() {
    let shop = Shop::open().await;
    let mut fulfilment = fulfilment(&shop);
    let today = chrono::Utc::now().date_naive();
    let order = shop.order(2).await;
    shop.load("old", 5, Some(today - chrono::Days::new(2))).await;
    fulfilment.step(SHARD).await.unwrap();
    assert_eq!(shop.find(order).await.status, OrderStatus::Delayed);
    shop.load("good", 2, Some(today + chrono::Days::new(2))).await;
    fulfilment.step(SHARD).await.unwrap();
    assert_eq!(shop.find(order).await.status, OrderStatus::Delivered);
    let expired_given: i64 =
        sqlx::query_scalar("SELECT count(*) FROM vault.vouchers WHERE order_id IS NOT NULL AND expires_on < current_date")
            .fetch_one(shop.pool())
            .await
            .unwrap();
    assert_eq!(expired_given, 0);
}

#[tokio::test]
async fn running_fulfilment_takes_up_more_than_a_batch_and_ends_when_told() {
    let shop = Shop::open().await;
    shop.load("a", 1_500, None).await;
    let stop = tokio_util::sync::CancellationToken::new();
    let running = tokio::spawn(fulfilment(&shop).run(stop.clone()));
    shop.orders(shop.customer.account_id, 1_500).await;
    let mut grown = shop.ledger.wake().subscribe();
    loop {
        let open: i64 =
            sqlx::query_scalar("SELECT count(*) FROM orders WHERE status <> 'DELIVERED'").fetch_one(shop.pool()).await.unwrap();
        if open == 0 {
            break;
        }
        grown.changed().await.unwrap();
    }
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn stock_that_arrives_wakes_it() {
    let shop = Shop::open().await;
    let stop = tokio_util::sync::CancellationToken::new();
    let running = tokio::spawn(fulfilment(&shop).run(stop.clone()));
    let order = shop.order(1).await;
    let becomes = async |status: OrderStatus| {
        // Less than the time after which stock is looked at anyway.
        let waited = tokio::time::timeout(std::time::Duration::from_secs(4), async {
            while shop.find(order).await.status != status {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("{status:?}"));
    };
    becomes(OrderStatus::Delayed).await;
    shop.load("a", 1, None).await;
    becomes(OrderStatus::Delivered).await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn two_projectors_make_each_delivery_once() {
    let shop = Shop::open().await;
    shop.webhook("https://localhost/a").await;
    shop.webhook("https://localhost/b").await;
    shop.orders(shop.customer.account_id, 700).await;
    let (one, other) = (shop.projector(), shop.projector());
    let mut idle = 0;
    while idle < 3 {
        let (a, b) = tokio::join!(one.step(SHARD), other.step(SHARD));
        let steps = [a.unwrap(), b.unwrap()];
        idle = if steps.iter().any(|s| matches!(s, Step::Applied { .. })) { 0 } else { idle + 1 };
    }
    let (deliveries, distinct, due): (i64, i64, i64) = sqlx::query_as(
        "SELECT count(*), count(DISTINCT (event_id, webhook_id)), (SELECT count(*) FROM delivery_state WHERE status = 'pending') FROM deliveries",
    )
    .fetch_one(shop.pool())
    .await
    .unwrap();
    assert_eq!((deliveries, distinct, due), (1_400, 1_400, 1_400));
}
