//! Notices of the supplier: it says that an order is ready, long before the node would ask.

use chrono::Utc;
use ledger_events::ShardId;
use ledger_events::order::OrderStatus;
use ledger_events::purchase::PurchaseStatus;
use rewards_ledger::fulfilment::supply::{self, Notices, Unknown};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::World;
use crate::support::node::Node;
use crate::support::shop::SHARD;
use crate::support::supplier::{Fault, NOTICE_SECRET, notice};
use crate::support::wait::{until, until_true};

/// Settings with which no test lives to see the second poll.
const PATIENT: &str = "daily_budget = { EUR = \"1000.00\" }\npoll_seconds = 300";

/// Row of the calls about a purchase: when it is due, the end of its lease, the number of calls, and whether a notice waits.
type Calls = (String, String, i32, bool);

impl World {
    /// Opens a world whose supplier is polled rarely, and a node that accepts its notices.
    async fn with_notices() -> (World, Node) {
        let mut world = World::open().await;
        world.supplier = world.simulator.supplier_with(PATIENT);
        let node = Node::accepting(&world.shop.options, world.simulator.notices()).await;
        (world, node)
    }

    /// Makes a purchase that the supplier accepts, and delivers later. Returns its key.
    async fn pending(&self) -> String {
        self.order(2).await;
        self.purchaser().request(SHARD).await.unwrap();
        self.simulator.fail(&[Fault::Pending]);
        assert!(self.work().await);
        let purchase = self.purchases().await.remove(0);
        assert_eq!(purchase.status, PurchaseStatus::Pending);
        purchase.key.to_string()
    }

    /// Sends a notice, which must be accepted.
    async fn notify(&self, node: &Node, key: &str) {
        let answer = self.simulator.notify(node, key).await;
        assert_eq!((answer.status, answer.text.as_str()), (204, ""));
        assert_eq!(answer.header("x-ratelimit-limit"), "1000000", "the rule of notices counts it");
    }

    /// Works on a purchase that is due, whatever the rate of the supplier says. Returns whether one was.
    async fn work_if_due(&self) -> bool {
        self.may_call().await;
        self.purchaser().work(SHARD).await
    }

    async fn may_call(&self) {
        let may = "UPDATE supplier_calls SET next_at = '-infinity'";
        sqlx::raw_sql(may).execute(&mut self.shop.admin().await).await.unwrap();
    }

    async fn calls(&self) -> Vec<Calls> {
        sqlx::query_as("SELECT due_at::text, leased_until::text, attempts, is_noticed FROM purchase_calls")
            .fetch_all(self.shop.pool())
            .await
            .unwrap()
    }
}

#[tokio::test]
async fn a_notice_brings_the_vouchers_long_before_the_next_poll() {
    let (world, node) = World::with_notices().await;
    let order = world.order(2).await;
    world.simulator.fail(&[Fault::Pending]);
    let stop = CancellationToken::new();
    let buying = tokio::spawn(world.purchaser().run(stop.clone()));
    let accepted = "SELECT EXISTS (SELECT FROM purchases p JOIN purchase_calls c ON c.purchase_id = p.id
        WHERE p.status = 'PENDING' AND c.leased_until = '-infinity')";
    until_true("the supplier has accepted the order", world.shop.pool(), accepted).await;
    world.simulator.deliver();
    let key = world.purchases().await[0].key.to_string();
    world.notify(&node, &key).await;
    until("the vouchers are in the stock", async || world.purchases().await[0].status == PurchaseStatus::Fulfilled).await;
    stop.cancel();
    buying.await.unwrap();
    world.fulfil().await;
    assert_eq!(world.status(order).await, OrderStatus::Delivered);
    assert_eq!(world.simulator.requests(), ["POST", "GET"]);
    world.is_sound(2).await;
}

#[tokio::test]
async fn a_notice_that_is_not_authentic_or_names_nothing_changes_nothing() {
    let (world, node) = World::with_notices().await;
    let key = world.pending().await;
    let (body, now) = (json!({"idempotency_key": key}).to_string(), Utc::now().timestamp());
    let of = |supplier, body: &str, timestamp, secret| notice(&node, supplier, body, timestamp, secret);
    let signed = |body: &str| of("acme", body, now, NOTICE_SECRET);
    let before = world.calls().await;
    for (request, status, code) in [
        (of("acme", &body, now, "the-secret-of-others"), 401, "E_HMAC_SIGNATURE_INVALID"),
        (signed(&body).body(body.replace('{', "{ ")), 401, "E_HMAC_SIGNATURE_INVALID"),
        (of("acme", &body, now - 301, NOTICE_SECRET), 401, "E_HMAC_TIMESTAMP_EXPIRED"),
        (of("acme", &body, now + 3_600, NOTICE_SECRET), 401, "E_HMAC_TIMESTAMP_EXPIRED"),
        (node.request("POST", "/suppliers/acme/notices").body(body.clone()), 401, "E_HMAC_SIGNATURE_REQUIRED"),
        (signed(&body).header("X-Timestamp", now), 401, "E_HMAC_SIGNATURE_REQUIRED"),
        (of("other", &body, now, NOTICE_SECRET), 404, "E_NOT_FOUND"),
        (signed("{}"), 400, "E_VALIDATION_FAILURE"),
        (signed("{\"idempotency_key\": 7}"), 400, "E_VALIDATION_FAILURE"),
        (signed("["), 400, "E_MALFORMED_JSON"),
        (signed(&format!("{body}{}", " ".repeat(64 << 10))), 413, "E_PAYLOAD_TOO_LARGE"),
        (node.request("GET", "/suppliers/acme/notices"), 405, "E_METHOD_NOT_ALLOWED"),
    ] {
        let answer = node.send(request).await;
        answer.refused(status, code);
        assert!(!answer.text.contains(NOTICE_SECRET) && !answer.text.contains(&key), "{}", answer.text);
        if status == 405 {
            assert_eq!(answer.header("allow"), "POST");
        }
    }
    world.notify(&node, "0198c0de-0000-7000-8000-000000000000").await;
    world.notify(&node, "unknown").await;
    // A supplier cannot make another one be asked.
    supply::take_notice(world.shop.pool(), "other", key.parse().unwrap()).await.unwrap();
    let silent = Node::accepting(&world.shop.options, Notices::read(&world.simulator.file("")).unwrap()).await;
    world.simulator.notify(&silent, &key).await.refused(404, "E_NOT_FOUND");
    assert_eq!(world.calls().await, before);

    // Nor does a notice about a purchase that has ended.
    world.simulator.deliver();
    assert!(world.work().await);
    let before = world.calls().await;
    world.notify(&node, &key).await;
    assert_eq!(world.calls().await, before);
    assert!(!world.work_if_due().await);
    world.is_sound(2).await;
}

/// The supplier is ready right after it has answered that it is not, and before the node has recorded that.
#[tokio::test]
async fn a_notice_during_a_call_is_not_lost() {
    let (world, node) = World::with_notices().await;
    world.order(2).await;
    let mut purchaser = world.purchaser();
    purchaser.request(SHARD).await.unwrap();
    let key = world.purchases().await[0].key.to_string();
    let claimed = purchaser.claim(SHARD).await.unwrap().unwrap();
    world.simulator.fail(&[Fault::Pending]);
    let answer = supply::call(&*world.supplier, &claimed).await;
    world.simulator.deliver();
    world.notify(&node, &key).await;
    assert!(!world.work_if_due().await, "the lease still keeps other nodes away");
    purchaser.record(SHARD, &claimed, answer).await.unwrap();
    assert!(world.work_if_due().await);
    assert_eq!(world.purchases().await[0].status, PurchaseStatus::Fulfilled);
    assert_eq!(world.simulator.requests(), ["POST", "GET"]);
    world.is_sound(2).await;
}

#[tokio::test]
async fn any_number_of_notices_bring_one_question_within_the_rate() {
    let (mut world, node) = World::with_notices().await;
    world.supplier = world.simulator.supplier_with(&format!("{PATIENT}\ncalls_per_minute = 1"));
    let key = world.pending().await;
    for _ in 0..3 {
        world.notify(&node, &key).await;
    }
    assert!(!world.purchaser().work(SHARD).await, "the next call is due in a minute");
    assert_eq!(world.simulator.requests(), ["POST"]);
    assert!(world.work_if_due().await);
    assert!(!world.work_if_due().await, "the supplier has answered, so the next poll is far away");
    assert_eq!(world.simulator.requests(), ["POST", "GET"]);
}

#[tokio::test]
async fn a_notice_does_not_shorten_the_pause_after_a_failure() {
    let (world, node) = World::with_notices().await;
    let key = world.pending().await;
    world.simulator.fail(&[Fault::Status(500)]);
    assert!(world.work().await);
    let before = world.calls().await;
    world.notify(&node, &key).await;
    assert_eq!(world.calls().await, before);

    // A notice during a call that fails does not either.
    world.due().await;
    let purchaser = world.purchaser();
    let claimed = purchaser.claim(SHARD).await.unwrap().unwrap();
    world.notify(&node, &key).await;
    assert!(world.calls().await[0].3, "the notice waits");
    let begun: String = sqlx::query_scalar("SELECT clock_timestamp()::text").fetch_one(world.shop.pool()).await.unwrap();
    purchaser.record(SHARD, &claimed, Err(Unknown("the supplier failed"))).await.unwrap();
    let pauses = "SELECT NOT is_noticed AND due_at >= $1::timestamptz + interval '8 seconds' FROM purchase_calls";
    let pauses: bool = sqlx::query_scalar(pauses).bind(begun).fetch_one(world.shop.pool()).await.unwrap();
    assert!(pauses, "the third call in vain is followed by a pause of 8 seconds");
}

#[tokio::test]
async fn a_notice_finds_a_purchase_of_any_shard() {
    const SECOND: ShardId = 2;
    let (world, node) = World::with_notices().await;
    let key = world.pending().await;
    let moved = "UPDATE purchases SET shard_id = 2; UPDATE purchase_calls SET shard_id = 2";
    sqlx::raw_sql(moved).execute(&mut world.shop.admin().await).await.unwrap();
    let purchaser = world.purchaser();
    world.may_call().await;
    assert!(purchaser.claim(SECOND).await.unwrap().is_none());
    world.notify(&node, &key).await;
    assert!(purchaser.claim(SHARD).await.unwrap().is_none());
    assert!(purchaser.claim(SECOND).await.unwrap().is_some());
}
