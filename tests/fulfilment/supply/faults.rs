//! A supplier that fails in every way, and nodes that die beside it.

use ledger_events::order::OrderStatus;
use ledger_events::purchase::{PurchaseAnswer, PurchaseRefused, PurchaseStatus};
use rewards_ledger::fulfilment::supply::{self, Answer, Purchaser};
use rewards_ledger::ledger::commands;
use webhook_client::receiver::Certificate;

use super::World;
use crate::support::lines::Logged;
use crate::support::shop::SHARD;
use crate::support::supplier::{ACCESS_TOKEN, CLIENT_SECRET, Fault, Simulator};

/// Returns the logged problems of calls whose outcome is unknown. Checks that no line has a secret or a code.
fn problems(logged: &Logged) -> Vec<String> {
    let (lines, text) = logged.take();
    for hidden in [CLIENT_SECRET, ACCESS_TOKEN, "bought-"] {
        assert!(!text.contains(hidden), "{hidden} is in the log");
    }
    let unknown = lines.iter().filter(|line| line["fields"]["message"] == "the outcome of a purchase is unknown; asking again");
    unknown.map(|line| line["fields"]["problem"].as_str().unwrap().to_owned()).collect()
}

/// After each fault the supplier is asked about the key. The order is sent again only if it does not know the key. Without a
/// token, the first attempt sends no order. A redirect is not followed. The deadline is one of the whole answer.
#[tokio::test]
async fn after_a_fault_the_supplier_is_asked_and_nothing_is_bought_twice() {
    let (failed, busy) = ("the supplier failed", "the supplier has too many requests");
    let (late, broken) = ("the supplier did not answer in time", "the connection to the supplier broke");
    let (unexpected, no_json) = ("the supplier answered with an unexpected status", "the answer is not JSON");
    let mut world = World::open().await;
    let logged = Logged::begin("debug");
    let mut units = 0;
    for (fault, problem, asked) in [
        (Fault::Status(500), failed, &["POST", "GET", "POST"][..]),
        (Fault::Status(429), busy, &["POST", "GET", "POST"]),
        (Fault::Status(401), "the supplier refused the access token", &["POST", "GET", "POST"]),
        (Fault::TokenStatus(500), "the supplier gave no access token", &["GET", "POST"]),
        (Fault::Redirect(302), unexpected, &["POST", "GET", "POST"]),
        (Fault::Redirect(307), unexpected, &["POST", "GET", "POST"]),
        (Fault::Hang, late, &["POST", "GET"]),
        (Fault::Trickle, late, &["POST", "GET"]),
        (Fault::Drop, broken, &["POST", "GET"]),
        (Fault::CutOff, broken, &["POST", "GET"]),
        (Fault::SoldAndStatus(500), failed, &["POST", "GET"]),
        (Fault::SoldAndStatus(429), busy, &["POST", "GET"]),
        (Fault::SoldAndStatus(404), unexpected, &["POST", "GET"]),
        (Fault::Garbage, no_json, &["POST", "GET"]),
        (Fault::InvalidUtf8, no_json, &["POST", "GET"]),
        (Fault::TooMuch, "the answer is too large", &["POST", "GET"]),
    ] {
        // A new client has no token and no connection.
        world.supplier = world.simulator.supplier();
        let (requests, tokens) = (world.simulator.requests().len(), world.simulator.tokens());
        let order = world.order(2).await;
        assert_eq!(world.purchaser().request(SHARD).await.unwrap(), 1, "{fault:?}");
        world.simulator.fail(&[fault]);
        assert!(world.work().await);
        let purchase = world.purchases().await.pop().unwrap();
        assert_eq!(purchase.status, PurchaseStatus::Requested, "{fault:?}: the outcome is unknown");
        assert_eq!(world.problem().await, problem, "{fault:?}");
        assert_eq!(world.purchaser().request(SHARD).await.unwrap(), 0, "{fault:?}: nothing is bought meanwhile");
        assert!(world.work().await);
        world.fulfil().await;
        assert_eq!(world.status(order).await, OrderStatus::Delivered, "{fault:?}");
        assert_eq!(world.simulator.requests()[requests..], *asked, "{fault:?}");
        assert_eq!(world.simulator.tokens() - tokens, if fault == Fault::Status(401) { 2 } else { 1 }, "{fault:?}");
        assert_eq!(problems(&logged), [problem], "{fault:?}");
        units += 2;
        assert_eq!(world.simulator.units(), units, "{fault:?}: nothing is bought twice");
    }
    world.is_sound(units).await;
}

/// A server whose certificate is not trusted, or is one for another name, gets neither a secret nor an order.
#[tokio::test]
async fn a_supplier_that_cannot_be_reached_or_trusted_gets_the_order_later() {
    let world = World::open().await;
    let order = world.order(1).await;
    world.purchaser().request(SHARD).await.unwrap();
    let away = Simulator::start().await;
    let gone = away.supplier();
    away.stop().await;
    let other_name = Certificate::generate_for(&["supplier.example"], 2020, 2050).unwrap();
    let namesake = Simulator::presenting(other_name.clone(), other_name.ca_pem()).await;
    let stranger = Simulator::presenting(Certificate::generate().unwrap(), other_name.ca_pem()).await;
    let no_token = "the supplier gave no access token";
    let logged = Logged::begin("debug");
    for (supplier, problem, what) in [
        (gone, no_token, "no connection"),
        (namesake.supplier(), no_token, "a certificate for another name"),
        (stranger.supplier(), no_token, "a certificate of another authority"),
        (world.simulator.supplier_with_orders_at(&stranger), "the supplier could not be reached", "orders at a stranger"),
    ] {
        world.due().await;
        let purchaser = Purchaser::new(world.shop.ledger.clone(), supplier, world.shop.metrics.clone());
        assert!(purchaser.work(SHARD).await, "{what}");
        assert_eq!(world.purchases().await[0].status, PurchaseStatus::Requested, "{what}");
        assert_eq!(world.problem().await, problem, "{what}");
        assert_eq!(problems(&logged), [problem], "{what}");
    }
    for impostor in [&namesake, &stranger] {
        assert_eq!((impostor.requests(), impostor.tokens()), (vec![], 0));
    }
    assert!(world.work().await);
    world.fulfil().await;
    assert_eq!(world.status(order).await, OrderStatus::Delivered);
    assert_eq!(world.simulator.requests(), ["GET", "POST"]);
    world.is_sound(1).await;
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
