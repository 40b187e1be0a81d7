//! Purchases that go well, or that are refused.

use ledger_events::order::OrderStatus;
use ledger_events::purchase::PurchaseStatus;
use rewards_ledger::audit::{Rebuild, rebuild, verify};
use rewards_ledger::fulfilment::supply::Purchaser;
use rewards_ledger::ledger::{CommandResult, commands};

use super::World;
use crate::support::shop::SHARD;
use crate::support::supplier::{CLIENT_SECRET, Fault};

#[tokio::test]
async fn an_order_without_stock_is_bought_and_delivered_and_its_cost_is_in_the_margin() {
    let world = World::open().await;
    world.shop.load("stock", 1, None).await;
    let served = world.order(1).await;
    assert_eq!(world.status(served).await, OrderStatus::Delivered, "the stock comes first");
    let order = world.order(3).await;
    let mut purchaser = world.purchaser();
    assert_eq!(purchaser.request(SHARD).await.unwrap(), 1);
    assert_eq!(purchaser.request(SHARD).await.unwrap(), 0, "an order has one open purchase");
    assert!(purchaser.work(SHARD).await);
    world.fulfil().await;
    assert_eq!(world.status(order).await, OrderStatus::Delivered);
    let purchase = world.purchases().await.remove(0);
    let requested = &purchase.requested;
    assert_eq!(
        (purchase.status, requested.quantity, requested.reserved.to_string()),
        (PurchaseStatus::Fulfilled, 3, "30.00".into())
    );
    assert_eq!(
        (purchase.spent.to_string(), purchase.supplier_reference.unwrap()),
        ("28.50".into(), format!("S-{}", purchase.key))
    );
    assert_eq!(world.simulator.sold().keys().cloned().collect::<Vec<_>>(), [purchase.key.to_string()]);
    assert_eq!((world.simulator.requests(), world.simulator.tokens()), (vec!["POST".to_owned()], 1));
    // The type of an answer says nothing. A cost in another currency is left out, and what was set aside counts as spent.
    for (fault, spent) in [(Fault::ContentType("text/html; charset=utf-16"), "9.50"), (Fault::Currency("USD"), "10.00")] {
        let order = world.order(1).await;
        assert_eq!(purchaser.request(SHARD).await.unwrap(), 1, "{fault:?}");
        world.simulator.fail(&[fault]);
        assert!(world.work().await);
        world.fulfil().await;
        assert_eq!(world.status(order).await, OrderStatus::Delivered, "{fault:?}");
        let purchase = world.purchases().await.pop().unwrap();
        assert_eq!((purchase.status, purchase.spent.to_string()), (PurchaseStatus::Fulfilled, spent.into()), "{fault:?}");
    }
    world.shop.project().await;
    let margin = "SELECT allocated, allocated_unpriced, allocated_cost::text, sales::text FROM stock_days";
    let margin: (i64, i64, String, String) = sqlx::query_as(margin).fetch_one(world.shop.pool()).await.unwrap();
    assert_eq!(margin, (6, 2, "38.00".into(), "60.00".into()));
    let events: Vec<String> = sqlx::query_scalar("SELECT data::text FROM events").fetch_all(world.shop.pool()).await.unwrap();
    assert!(events.iter().all(|data| !data.contains("bought-") && !data.contains(CLIENT_SECRET)), "no code is in an event");
    let report = verify(&world.shop.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.differences);
    assert!(rebuild(&world.shop.options, Rebuild::parse("purchases").unwrap(), |_| {}).await.unwrap().was_clean());
}

#[tokio::test]
async fn a_pending_purchase_is_asked_about_until_its_codes_arrive() {
    let world = World::open().await;
    let order = world.order(2).await;
    world.purchaser().request(SHARD).await.unwrap();
    world.simulator.fail(&[Fault::Pending]);
    for _ in 0..3 {
        assert!(world.work().await);
        assert_eq!(world.purchases().await[0].status, PurchaseStatus::Pending);
    }
    assert_eq!(world.purchases().await[0].version, 2, "the same answer again is no event");
    world.simulator.deliver();
    assert!(world.work().await);
    world.fulfil().await;
    assert_eq!(world.status(order).await, OrderStatus::Delivered);
    assert_eq!(world.simulator.requests(), ["POST", "GET", "GET", "GET"]);
    world.is_sound(2).await;
}

#[tokio::test]
async fn a_refusal_buys_nothing_and_is_tried_again_under_another_key_only_later() {
    let world = World::open().await;
    let order = world.order(1).await;
    for (reason, code, later, pause) in
        [("OUT_OF_STOCK", "OUT_OF_STOCK", true, "10 minutes"), ("no, because", "OTHER", false, "1 day")]
    {
        world.purchaser().request(SHARD).await.unwrap();
        world.simulator.fail(&[Fault::Refuse(reason)]);
        assert!(world.work().await);
        let refused = world.purchases().await.pop().unwrap();
        assert_eq!((refused.status, refused.spent.to_string()), (PurchaseStatus::Refused, "0.00".into()));
        assert_eq!((refused.refusal.as_deref(), refused.may_succeed_later), (Some(code), later));
        assert_eq!(world.purchaser().request(SHARD).await.unwrap(), 0);
        let passes = format!("UPDATE purchases SET updated_at = updated_at - interval '{pause}'");
        sqlx::raw_sql(sqlx::AssertSqlSafe(passes)).execute(&mut world.shop.admin().await).await.unwrap();
    }
    assert_eq!(world.purchaser().request(SHARD).await.unwrap(), 1);
    assert!(world.work().await);
    world.fulfil().await;
    assert_eq!(world.status(order).await, OrderStatus::Delivered);
    assert_eq!(world.simulator.units(), 1);
}

#[tokio::test]
async fn a_wrong_number_of_codes_is_kept_and_the_rest_is_bought() {
    let world = World::open().await;
    let order = world.order(3).await;
    let mut purchaser = world.purchaser();
    purchaser.request(SHARD).await.unwrap();
    world.simulator.fail(&[Fault::Codes(1)]);
    assert!(world.work().await);
    world.fulfil().await;
    assert_eq!(world.status(order).await, OrderStatus::PartiallyDelivered);
    assert_eq!(purchaser.request(SHARD).await.unwrap(), 1);
    world.simulator.fail(&[Fault::Codes(5)]);
    assert!(world.work().await);
    world.fulfil().await;
    assert_eq!(world.status(order).await, OrderStatus::Delivered);
    let bought: Vec<_> =
        world.purchases().await.iter().map(|p| (p.requested.quantity, p.vouchers, p.spent.to_string())).collect();
    assert_eq!(bought, [(3, 1, "9.50".to_owned()), (2, 5, "47.50".to_owned())]);
    // The rest serves the next order without a purchase.
    let next = world.order(3).await;
    assert_eq!(world.status(next).await, OrderStatus::Delivered);
    world.is_sound(5).await;
}

#[tokio::test]
async fn codes_of_a_cancelled_order_stay_in_the_stock() {
    let world = World::open().await;
    let order = world.order(2).await;
    world.purchaser().request(SHARD).await.unwrap();
    world.shop.cancel(order).await;
    assert!(world.work().await);
    let next = world.order(2).await;
    assert_eq!(world.status(next).await, OrderStatus::Delivered);
    assert_eq!(world.purchaser().request(SHARD).await.unwrap(), 0);
    world.is_sound(2).await;
}

/// Codes go to the oldest order that waits, so the purchase of one order may serve another. That buys nothing twice.
#[tokio::test]
async fn open_purchases_of_other_orders_count() {
    let world = World::open().await;
    let (first, second) = (world.order(1).await, world.order(1).await);
    let mut purchaser = world.purchaser();
    assert_eq!(purchaser.request(SHARD).await.unwrap(), 2);
    world.simulator.fail(&[Fault::Pending]);
    assert!(world.work().await);
    let is_due = world.purchaser().work(SHARD).await;
    assert!(is_due, "the purchase of the second order");
    world.fulfil().await;
    assert_eq!((world.status(first).await, world.status(second).await), (OrderStatus::Delivered, OrderStatus::Delayed));
    assert_eq!(world.purchases().await.iter().filter(|purchase| purchase.status.is_open()).count(), 1);
    assert_eq!(purchaser.request(SHARD).await.unwrap(), 0, "the open purchase of the first order is enough");
    world.simulator.deliver();
    while world.purchases().await.iter().any(|purchase| purchase.status.is_open()) {
        world.work().await;
    }
    world.fulfil().await;
    assert_eq!(world.status(second).await, OrderStatus::Delivered);
    world.is_sound(2).await;
}

#[tokio::test]
async fn the_budget_of_a_day_is_not_exceeded_by_any_number_of_nodes() {
    let mut world = World::open().await;
    world.supplier = world.simulator.supplier_with("daily_budget = { EUR = \"50.00\" }");
    for _ in 0..4 {
        world.order(2).await;
    }
    let (mut one, mut other) = (world.purchaser(), world.purchaser());
    let (a, b) = tokio::join!(one.request(SHARD), other.request(SHARD));
    assert_eq!(a.unwrap() + b.unwrap(), 3, "two purchases of 20.00 fit, and half of a third one");
    while world.work().await {}
    // They have cost 47.50, and another voucher would be above the budget.
    assert_eq!(world.purchaser().request(SHARD).await.unwrap(), 0);
    let without = world.simulator.supplier_with("");
    let mut unfunded = Purchaser::new(world.shop.ledger.clone(), without, world.shop.metrics.clone());
    assert_eq!(unfunded.request(SHARD).await.unwrap(), 0, "a currency without a budget buys nothing");
    world.is_sound(5).await;
}

#[tokio::test]
async fn a_supplier_that_delivers_nothing_usable_gets_no_further_order_that_day() {
    let world = World::open().await;
    let first = world.order(1).await;
    let mut purchaser = world.purchaser();
    purchaser.request(SHARD).await.unwrap();
    assert!(world.work().await);
    world.fulfil().await;
    assert_eq!(world.status(first).await, OrderStatus::Delivered);
    let second = world.order(1).await;
    purchaser.request(SHARD).await.unwrap();
    world.simulator.fail(&[Fault::SameCodes]);
    assert!(world.work().await);
    world.fulfil().await;
    assert_eq!(world.status(second).await, OrderStatus::Delayed);
    let latest = world.purchases().await.pop().unwrap();
    assert_eq!((latest.status, latest.vouchers, latest.usable), (PurchaseStatus::Fulfilled, 1, 0));
    assert_eq!(purchaser.request(SHARD).await.unwrap(), 0);
    world.days_pass(1).await;
    assert_eq!(purchaser.request(SHARD).await.unwrap(), 1);
}

#[tokio::test]
async fn nothing_is_bought_from_a_supplier_that_the_product_names_no_more() {
    let world = World::open().await;
    let order_id = world.order(1).await;
    let request = commands::RequestPurchase {
        order_id,
        product_id: world.shop.customer.product_id,
        denomination: "10.00".parse().unwrap(),
        currency: "EUR".parse().unwrap(),
        supplier: "acme".to_owned(),
        sku: "SKU-10".to_owned(),
        budget: "1000.00".parse().unwrap(),
    };
    world.shop.run(commands::SetProductSupplier { product_id: world.shop.customer.product_id, supplier: None }).await;
    let CommandResult::Purchase(made) = world.shop.run(request).await else { panic!() };
    assert!(made.is_none(), "{made:?}");
    assert_eq!(world.purchaser().request(SHARD).await.unwrap(), 0);
}
