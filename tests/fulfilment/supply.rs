//! Purchases from a supplier that fails in every way.

use std::sync::Arc;

use ledger_events::OrderId;
use ledger_events::catalogue::ProductSupplier;
use ledger_events::order::OrderStatus;
use ledger_events::purchase::{Purchase, PurchaseAnswer, PurchaseRefused, PurchaseStatus};
use ledger_projections::page::Page;
use ledger_projections::purchases::{self, PurchaseFilter};
use rewards_ledger::audit::{Rebuild, rebuild, verify};
use rewards_ledger::fulfilment::Fulfilment;
use rewards_ledger::fulfilment::supply::{self, Answer, Purchaser, Supplier};
use rewards_ledger::ledger::{CommandResult, commands};

use crate::support::shop::{SHARD, Shop};
use crate::support::supplier::{CLIENT_SECRET, Fault, Simulator};

/// A shop whose product names the simulated supplier.
struct World {
    shop: Shop,
    simulator: Simulator,
    supplier: Arc<dyn Supplier>,
}

impl World {
    async fn open() -> World {
        let (shop, simulator) = tokio::join!(Shop::open(), Simulator::start());
        let supplier = simulator.supplier();
        let named = Some(ProductSupplier { name: "acme".to_owned(), sku: "SKU-10".to_owned() });
        shop.run(commands::SetProductSupplier { product_id: shop.customer.product_id, supplier: named }).await;
        World { shop, simulator, supplier }
    }

    fn purchaser(&self) -> Purchaser {
        Purchaser::new(self.shop.ledger.clone(), self.supplier.clone())
    }

    /// Allocates what is in the stock.
    async fn fulfil(&self) {
        let mut fulfilment = Fulfilment::new(self.shop.ledger.clone(), self.shop.metrics.clone());
        fulfilment.step(SHARD).await.unwrap();
        fulfilment.step(SHARD).await.unwrap();
    }

    /// Places an order that the stock does not serve.
    async fn order(&self, quantity: i32) -> OrderId {
        let order = self.shop.order(quantity).await;
        self.fulfil().await;
        order
    }

    /// Lets the next call happen now, whatever pause or breaker there is.
    async fn due(&self) {
        let due = "UPDATE purchase_calls SET due_at = '-infinity', leased_until = '-infinity';
            UPDATE supplier_calls SET next_at = '-infinity', open_until = '-infinity'";
        sqlx::raw_sql(due).execute(&mut self.shop.admin().await).await.unwrap();
    }

    /// Calls the supplier once. Returns whether a purchase was due.
    async fn work(&self) -> bool {
        self.due().await;
        self.purchaser().work(SHARD).await
    }

    async fn purchases(&self) -> Vec<Purchase> {
        let page = Page { number: 1, size: 100 };
        let mut found = purchases::list(self.shop.pool(), SHARD, &PurchaseFilter::default(), page).await.unwrap().rows;
        found.reverse();
        found
    }

    /// Returns the fault of the last call.
    async fn problem(&self) -> String {
        sqlx::query_scalar("SELECT problem FROM purchase_calls").fetch_one(self.shop.pool()).await.unwrap()
    }

    /// Lets purchases become this many days older.
    async fn days_pass(&self, days: i32) {
        let pass = "UPDATE purchases SET updated_at = updated_at - make_interval(days => $1), requested_at = requested_at
            - make_interval(days => $1)";
        sqlx::query(pass).bind(days).execute(&mut self.shop.admin().await).await.unwrap();
    }

    async fn status(&self, order: OrderId) -> OrderStatus {
        self.shop.find(order).await.status
    }

    /// Checks that each unit was bought once, that the stock has each code, and that the tables match the log.
    async fn is_sound(&self, units: usize) {
        assert_eq!(self.simulator.units(), units, "bought: {:?}", self.simulator.sold());
        let codes: i64 = sqlx::query_scalar("SELECT count(*) FROM vault.vouchers").fetch_one(self.shop.pool()).await.unwrap();
        let sold = self.simulator.sold();
        let delivered: usize = sold.values().filter(|sold| !sold.is_pending).map(|sold| sold.codes.len()).sum();
        assert_eq!(usize::try_from(codes).unwrap(), delivered, "no code is lost, and none is there twice");
        self.shop.project().await;
        let report = verify(&self.shop.options, |_| {}).await.unwrap();
        assert!(report.is_clean(), "{:#?}", report.differences);
    }
}

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
    world.shop.project().await;
    let margin: (i64, String, String) = sqlx::query_as("SELECT allocated, allocated_cost::text, sales::text FROM stock_days")
        .fetch_one(world.shop.pool())
        .await
        .unwrap();
    assert_eq!(margin, (4, "28.50".into(), "40.00".into()));
    let events: Vec<String> = sqlx::query_scalar("SELECT data::text FROM events").fetch_all(world.shop.pool()).await.unwrap();
    assert!(events.iter().all(|data| !data.contains("bought-") && !data.contains(CLIENT_SECRET)), "no code is in an event");
    let report = verify(&world.shop.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.differences);
    assert!(rebuild(&world.shop.options, Rebuild::parse("purchases").unwrap(), |_| {}).await.unwrap().was_clean());
}

/// After each fault the supplier is asked about the key. The order is sent again only if it does not know the key.
#[tokio::test]
async fn after_a_fault_the_supplier_is_asked_and_nothing_is_bought_twice() {
    for (fault, asked) in [
        (Fault::Status(500), &["POST", "GET", "POST"][..]),
        (Fault::Status(429), &["POST", "GET", "POST"]),
        (Fault::Status(401), &["POST", "GET", "POST"]),
        (Fault::Hang, &["POST", "GET"]),
        (Fault::Drop, &["POST", "GET"]),
        (Fault::SoldAndStatus(500), &["POST", "GET"]),
        (Fault::SoldAndStatus(429), &["POST", "GET"]),
        (Fault::SoldAndStatus(404), &["POST", "GET"]),
        (Fault::Garbage, &["POST", "GET"]),
        (Fault::TooMuch, &["POST", "GET"]),
    ] {
        let world = World::open().await;
        let order = world.order(2).await;
        world.purchaser().request(SHARD).await.unwrap();
        world.simulator.fail(&[fault]);
        assert!(world.work().await);
        assert_eq!(world.purchases().await[0].status, PurchaseStatus::Requested, "{fault:?}: the outcome is unknown");
        assert_eq!(world.purchaser().request(SHARD).await.unwrap(), 0, "{fault:?}: nothing is bought meanwhile");
        assert!(world.work().await);
        world.fulfil().await;
        assert_eq!(world.status(order).await, OrderStatus::Delivered, "{fault:?}");
        assert_eq!(world.simulator.requests(), asked, "{fault:?}");
        assert_eq!(world.simulator.tokens(), if fault == Fault::Status(401) { 2 } else { 1 }, "{fault:?}");
        world.is_sound(2).await;
    }
}

#[tokio::test]
async fn a_supplier_that_refuses_connections_gets_the_order_later() {
    let world = World::open().await;
    let order = world.order(1).await;
    world.purchaser().request(SHARD).await.unwrap();
    let away = Simulator::start().await;
    let gone = away.supplier();
    away.stop().await;
    world.due().await;
    assert!(Purchaser::new(world.shop.ledger.clone(), gone).work(SHARD).await);
    let problem = world.problem().await;
    assert!(problem.starts_with("the supplier gave no access token"), "{problem}");
    assert!(world.work().await);
    world.fulfil().await;
    assert_eq!(world.status(order).await, OrderStatus::Delivered);
    world.is_sound(1).await;
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
    let mut unfunded = Purchaser::new(world.shop.ledger.clone(), without);
    assert_eq!(unfunded.request(SHARD).await.unwrap(), 0, "a currency without a budget buys nothing");
    world.is_sound(5).await;
}

#[tokio::test]
async fn a_breaker_opens_after_failures_and_one_call_probes_the_supplier() {
    let world = World::open().await;
    world.order(1).await;
    let purchaser = world.purchaser();
    world.purchaser().request(SHARD).await.unwrap();
    world.simulator.fail(&[Fault::Status(503); 20]);
    for _ in 0..5 {
        assert!(world.work().await);
    }
    sqlx::raw_sql("UPDATE purchase_calls SET due_at = '-infinity'").execute(&mut world.shop.admin().await).await.unwrap();
    let called = world.simulator.requests().len();
    assert!(!purchaser.work(SHARD).await, "the breaker is open");
    assert_eq!(world.simulator.requests().len(), called);
    world.simulator.fail(&[]);
    let pass = "UPDATE supplier_calls SET open_until = '-infinity', next_at = '-infinity'";
    sqlx::raw_sql(pass).execute(&mut world.shop.admin().await).await.unwrap();
    assert!(purchaser.work(SHARD).await);
    let failures: i32 = sqlx::query_scalar("SELECT failures FROM supplier_calls").fetch_one(world.shop.pool()).await.unwrap();
    assert_eq!(failures, 0);
    world.is_sound(1).await;
}

#[tokio::test]
async fn the_rate_of_a_supplier_holds_for_all_nodes() {
    let mut world = World::open().await;
    world.supplier = world.simulator.supplier_with("daily_budget = { EUR = \"1000.00\" }\ncalls_per_minute = 1");
    world.order(1).await;
    world.order(1).await;
    let (mut one, other) = (world.purchaser(), world.purchaser());
    assert_eq!(one.request(SHARD).await.unwrap(), 2);
    assert!(one.work(SHARD).await);
    assert!(!other.work(SHARD).await, "the next call is due in a minute");
    assert!(world.work().await);
    world.is_sound(2).await;
}

/// A clock that was a year ahead for a moment stops neither a supplier nor a purchase.
#[tokio::test]
async fn times_that_no_pause_explains_count_as_past() {
    let world = World::open().await;
    let order = world.order(1).await;
    let purchaser = world.purchaser();
    world.purchaser().request(SHARD).await.unwrap();
    world.simulator.fail(&[Fault::Status(500)]);
    assert!(purchaser.work(SHARD).await);
    let jumped = "UPDATE purchase_calls SET due_at = now() + interval '1 year', leased_until = now() + interval '1 year';
        UPDATE supplier_calls SET next_at = now() + interval '1 year', open_until = now() + interval '1 year'";
    sqlx::raw_sql(jumped).execute(&mut world.shop.admin().await).await.unwrap();
    assert!(purchaser.work(SHARD).await);
    world.fulfil().await;
    assert_eq!(world.status(order).await, OrderStatus::Delivered);
    world.is_sound(1).await;
}

/// The first node got a refusal, and was frozen before it recorded it. The second one has bought meanwhile, under the same key.
#[tokio::test]
async fn a_late_refusal_does_not_end_what_another_node_has_bought() {
    for (first_is_last, is_pending) in [(false, false), (true, false), (false, true), (true, true)] {
        let world = World::open().await;
        let order = world.order(2).await;
        world.purchaser().request(SHARD).await.unwrap();
        let (frozen, other) = (world.purchaser(), world.purchaser());
        let first = frozen.claim(SHARD).await.unwrap().unwrap();
        world.simulator.fail(&[Fault::Refuse("OUT_OF_STOCK")]);
        let refused = supply::call(&*world.supplier, &first).await;
        assert!(matches!(refused, Ok(Answer::Refused { .. })));
        world.due().await;
        let second = other.claim(SHARD).await.unwrap().unwrap();
        // The supplier does not remember what it has refused, so the order is sent again.
        world.simulator.fail(&[Fault::Status(404), if is_pending { Fault::Pending } else { Fault::Codes(2) }]);
        let bought = supply::call(&*world.supplier, &second).await;
        if first_is_last {
            other.record(SHARD, &second, bought).await.unwrap();
            frozen.record(SHARD, &first, refused).await.unwrap();
        } else {
            frozen.record(SHARD, &first, refused).await.unwrap();
            other.record(SHARD, &second, bought).await.unwrap();
        }
        world.simulator.deliver();
        assert_eq!(world.work().await, is_pending);
        world.fulfil().await;
        assert_eq!(world.status(order).await, OrderStatus::Delivered, "{first_is_last} {is_pending}");
        assert_eq!(world.purchases().await.len(), 1);
        world.is_sound(2).await;
    }
}

#[tokio::test]
async fn an_order_that_the_supplier_has_accepted_is_never_sent_again() {
    let world = World::open().await;
    let order = world.order(2).await;
    world.purchaser().request(SHARD).await.unwrap();
    world.simulator.fail(&[Fault::Pending]);
    assert!(world.work().await);
    world.simulator.fail(&[Fault::Status(404)]);
    assert!(world.work().await);
    let problem = world.problem().await;
    assert_eq!(problem, "the supplier does not know an order that it has accepted");
    assert_eq!(world.simulator.requests(), ["POST", "GET"]);
    // Without the record of the calls, too, the supplier is asked.
    sqlx::raw_sql("DELETE FROM purchase_calls").execute(&mut world.shop.admin().await).await.unwrap();
    world.simulator.deliver();
    assert!(world.work().await);
    world.fulfil().await;
    assert_eq!(world.status(order).await, OrderStatus::Delivered);
    assert_eq!(world.simulator.requests(), ["POST", "GET", "GET"]);
    world.is_sound(2).await;
}

#[tokio::test]
async fn an_order_that_is_older_than_the_suppliers_keys_is_not_sent_again() {
    let world = World::open().await;
    world.order(1).await;
    world.purchaser().request(SHARD).await.unwrap();
    let old = "UPDATE purchases SET requested_at = requested_at - interval '25 hours'";
    sqlx::raw_sql(old).execute(&mut world.shop.admin().await).await.unwrap();
    assert!(world.work().await);
    assert_eq!((world.simulator.requests(), world.simulator.units()), (vec!["GET".to_owned()], 0));
    // An operator makes sure that nothing was sold, and ends it. The order is bought under another key after a day.
    let refused = PurchaseRefused { reason: "CLOSED_BY_OPERATOR".to_owned(), may_succeed_later: false };
    let (purchase_id, answer) = (world.purchases().await[0].id, PurchaseAnswer::Refused(refused));
    world.shop.run(commands::RecordPurchase { purchase_id, answer, attempt: None }).await;
    assert!(!world.work().await);
    assert_eq!(world.purchaser().request(SHARD).await.unwrap(), 0);
    world.days_pass(1).await;
    assert_eq!(world.purchaser().request(SHARD).await.unwrap(), 1);
}

/// A proxy in between may answer for the supplier.
#[tokio::test]
async fn a_refusal_counts_only_with_a_status_of_refusals() {
    for status in [301, 403, 404, 422] {
        let world = World::open().await;
        world.order(1).await;
        world.purchaser().request(SHARD).await.unwrap();
        world.simulator.fail(&[Fault::RefusalWithStatus(status)]);
        assert!(world.work().await);
        assert_eq!(world.purchases().await[0].status, PurchaseStatus::Requested, "{status}: the order");
        world.simulator.fail(&[Fault::RefusalWithStatus(status), Fault::SoldAndStatus(500)]);
        assert!(world.work().await);
        let is_unknown_key = status == 404;
        assert_eq!(world.simulator.units(), usize::from(is_unknown_key), "{status}: only 404 says that the key is unknown");
        while world.purchases().await[0].status.is_open() {
            world.simulator.fail(&[]);
            assert!(world.work().await);
        }
        world.is_sound(1).await;
    }
    let mut world = World::open().await;
    world.supplier = world.simulator.supplier_with("daily_budget = { EUR = \"1000.00\" }\nrefusal_statuses = [422]");
    world.order(1).await;
    world.purchaser().request(SHARD).await.unwrap();
    world.simulator.fail(&[Fault::RefusalWithStatus(422)]);
    assert!(world.work().await);
    assert_eq!(world.purchases().await[0].status, PurchaseStatus::Refused);
}

#[tokio::test]
async fn a_token_with_an_absurd_lifetime_is_used() {
    for lifetime in [0, u64::MAX] {
        let world = World::open().await;
        world.simulator.set_token_lifetime(lifetime);
        let order = world.order(1).await;
        world.purchaser().request(SHARD).await.unwrap();
        assert!(world.work().await);
        world.fulfil().await;
        assert_eq!(world.status(order).await, OrderStatus::Delivered, "{lifetime}");
    }
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

/// A node that is killed after any step leaves the rest to another one. Here each step is the last one of its node.
#[tokio::test]
async fn a_node_that_dies_between_any_two_steps_buys_nothing_twice_and_loses_no_code() {
    for dies_after in 0..5 {
        let world = World::open().await;
        let order = world.order(2).await;
        // 0: requested. 1: claimed. 2: the supplier has the order, and its answer is lost. 3: answered, and not recorded.
        // 4: recorded, and the claim not given back.
        world.purchaser().request(SHARD).await.unwrap();
        if dies_after > 0 {
            let dying = world.purchaser();
            let claimed = dying.claim(SHARD).await.unwrap().unwrap();
            if dies_after == 2 {
                world.simulator.fail(&[Fault::Drop]);
            }
            if dies_after > 1 {
                let answer = supply::call(&*world.supplier, &claimed).await;
                assert_eq!(answer.is_ok(), dies_after > 2);
                if dies_after == 4 {
                    dying.record(SHARD, &claimed, answer).await.unwrap();
                    let lost = "UPDATE purchase_calls SET leased_until = now() + interval '2 minutes'";
                    sqlx::raw_sql(lost).execute(&mut world.shop.admin().await).await.unwrap();
                }
            }
            drop(dying);
        }
        // The lease keeps other nodes away until it ends.
        if (1..4).contains(&dies_after) {
            assert!(!world.purchaser().work(SHARD).await, "{dies_after}");
        }
        assert_eq!(world.purchaser().request(SHARD).await.unwrap(), 0, "{dies_after}");
        assert_eq!(world.work().await, dies_after < 4, "{dies_after}");
        world.fulfil().await;
        assert_eq!(world.status(order).await, OrderStatus::Delivered, "{dies_after}");
        world.is_sound(2).await;
    }
}

/// A node that was frozen comes back after its lease has ended, beside the node that took over.
#[tokio::test]
async fn two_nodes_that_work_on_one_purchase_buy_once() {
    let world = World::open().await;
    let order = world.order(2).await;
    world.purchaser().request(SHARD).await.unwrap();
    let (frozen, other) = (world.purchaser(), world.purchaser());
    let first = frozen.claim(SHARD).await.unwrap().unwrap();
    world.due().await;
    let second = other.claim(SHARD).await.unwrap().unwrap();
    let answers = tokio::join!(supply::call(&*world.supplier, &first), supply::call(&*world.supplier, &second));
    let (a, b) = tokio::join!(frozen.record(SHARD, &first, answers.0), other.record(SHARD, &second, answers.1));
    a.unwrap();
    b.unwrap();
    world.fulfil().await;
    assert_eq!(world.status(order).await, OrderStatus::Delivered);
    world.is_sound(2).await;
}

#[test]
fn a_file_of_suppliers_with_a_fault_is_refused_without_its_secrets() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("secret"), CLIENT_SECRET).unwrap();
    let good = "[[supplier]]\nname = \"acme\"\norder_url = \"https://supplier.example/orders\"\n\
        status_url = \"https://supplier.example/orders/{key}\"\ntoken_url = \"https://supplier.example/token\"\n\
        client_id = \"ledger\"\nclient_secret_file = \"secret\"\n";
    let read = |text: &str| {
        let path = directory.path().join("suppliers.toml");
        std::fs::write(&path, text).unwrap();
        supply::read(&path)
    };
    let settings = read(good).unwrap();
    assert!(!format!("{settings:?}").contains(CLIENT_SECRET));
    for (from, to, fault) in [
        ("https://supplier.example/token", "http://supplier.example/token", "token_url"),
        ("https://supplier.example/token", "https://10.0.0.1/token", "token_url"),
        ("https://supplier.example/token", "https://user:pw@supplier.example/", "token_url"),
        ("{key}", "key", "status_url"),
        ("\"secret\"", "\"nowhere\"", "client_secret_file"),
        ("\"acme\"", "\"A C M E\"", "name"),
        ("client_id", "client", "client"),
        ("[[supplier]]\n", "[[supplier]]\ncalls_per_minute = 0\n", "calls_per_minute"),
        ("[[supplier]]\n", "[[supplier]]\nrefusal_statuses = [401]\n", "refusal_statuses"),
        ("[[supplier]]\n", "[[supplier]]\nfields = { pin = \"pin\" }\n", "JSON pointers"),
    ] {
        let problem = read(&good.replace(from, to)).unwrap_err().to_string();
        assert!(problem.contains(fault) && !problem.contains("pw"), "{problem}");
    }
    assert!(read(&format!("{good}{good}")).unwrap_err().to_string().contains("twice"));
}
