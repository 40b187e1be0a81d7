//! Fulfilment: allocation of the stock to orders.

mod clocks;
mod supply;

use std::time::Duration;

use ledger_events::order::OrderStatus;
use rewards_ledger::fulfilment::Fulfilment;
use rewards_ledger::ledger::projector::ProjectionStep;
use rewards_ledger::ledger::{Ledger, commands};

use crate::support::ledger;
use crate::support::shop::{DEADLINE, SHARD, Shop};
use crate::support::wait::{until, until_true};

fn fulfilment(shop: &Shop) -> Fulfilment {
    Fulfilment::new(shop.ledger.clone(), shop.metrics.clone())
}

#[tokio::test]
async fn new_stock_goes_to_the_oldest_waiting_order_in_part_or_in_full() {
    let shop = Shop::open().await;
    let mut fulfilment = fulfilment(&shop);
    let (first, second) = (shop.order(3).await, shop.order(1).await);
    assert_eq!(fulfilment.step(SHARD).await.unwrap().taken_up, 2);
    assert_eq!(shop.find(first).await.status, OrderStatus::Delayed);

    shop.load("a", 2, None).await;
    fulfilment.step(SHARD).await.unwrap();
    assert_eq!(shop.find(first).await.status, OrderStatus::PartiallyDelivered);
    assert_eq!(shop.find(second).await.status, OrderStatus::Delayed);

    // A newer order does not overtake the orders that wait.
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
async fn fulfilment_processes_more_than_one_batch_and_stops_on_request() {
    let shop = Shop::open().await;
    shop.load("a", 1_500, None).await;
    let stop = tokio_util::sync::CancellationToken::new();
    let running = tokio::spawn(fulfilment(&shop).run(stop.clone()));
    shop.orders(shop.customer.account_id, 1_500).await;
    until_true("all are delivered", shop.pool(), "SELECT count(*) = 0 FROM orders WHERE status <> 'DELIVERED'").await;
    stop.cancel();
    running.await.unwrap();
}

/// Adds stock at a node for orders that wait. Fulfilment runs on the shop's node, and none of its timers fires in
/// time.
async fn wakes_at_stock_from(shop: &Shop, node: &Ledger) {
    const NEVER: Duration = Duration::from_secs(3_600);
    let stop = tokio_util::sync::CancellationToken::new();
    let running = tokio::spawn(fulfilment(shop).idling(NEVER).run(stop.clone()));
    let (first, second) = (shop.order(1).await, shop.order(1).await);
    let becomes = async |order, status: OrderStatus| {
        until(&format!("{status:?}"), async || shop.find(order).await.status == status).await;
    };
    becomes(second, OrderStatus::Delayed).await;
    for (order, card) in [(first, "one"), (second, "other")] {
        ledger::run(node, shop.stock(card, 1, None)).await;
        becomes(order, OrderStatus::Delivered).await;
    }
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn new_stock_wakes_fulfilment() {
    let shop = Shop::open().await;
    wakes_at_stock_from(&shop, &shop.ledger).await;
}

#[tokio::test]
async fn new_stock_at_another_node_wakes_fulfilment() {
    let shop = Shop::open().await;
    let other = ledger::open(&shop.options).await;
    // It takes a moment until the node listens.
    let mut grown = shop.ledger.wake().subscribe();
    let heard = tokio::time::timeout(DEADLINE, async {
        loop {
            ledger::run(&other, commands::CreateAccount { name: "Heard of".to_owned() }).await;
            if tokio::time::timeout(Duration::from_millis(200), grown.changed()).await.is_ok() {
                return;
            }
        }
    });
    heard.await.expect("the node hears of the other node's commits");
    wakes_at_stock_from(&shop, &other).await;
}

#[tokio::test]
async fn many_units_are_given_out_oldest_first_in_several_batches() {
    let shop = Shop::open().await;
    // More than one batch asks for, and less than the orders need.
    for part in ["a", "b", "c", "d", "e"] {
        shop.load(part, 810, None).await;
    }
    let mut placed = vec![];
    for _ in 0..45 {
        placed.push(shop.order(100).await);
    }
    let mut fulfilment = fulfilment(&shop);
    while fulfilment.step(SHARD).await.unwrap().taken_up > 0 {}
    let mut delivered = vec![];
    for id in placed {
        delivered.push(shop.find(id).await.delivered_quantity);
    }
    let expected = [[100; 40].as_slice(), &[50, 0, 0, 0, 0]].concat();
    assert_eq!(delivered, expected);
    let most: i64 = sqlx::query_scalar(
        "SELECT max(units) FROM (SELECT sum(json_array_length(data -> 'vouchers'))::bigint AS units FROM events
            WHERE type IN ('OrderDelivered', 'OrderPartiallyDelivered') GROUP BY recorded_at) AS batch",
    )
    .fetch_one(shop.pool())
    .await
    .unwrap();
    assert!(most <= 2_500, "{most} vouchers in one transaction");
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
        idle = if steps.iter().any(|s| matches!(s, ProjectionStep::Applied { .. })) { 0 } else { idle + 1 };
    }
    let (deliveries, distinct, due): (i64, i64, i64) = sqlx::query_as(
        "SELECT count(*), count(DISTINCT (event_id, webhook_id)), (SELECT count(*) FROM delivery_state WHERE status = 'pending') FROM deliveries",
    )
    .fetch_one(shop.pool())
    .await
    .unwrap();
    assert_eq!((deliveries, distinct, due), (1_400, 1_400, 1_400));
}
