//! Stock follows demand: vouchers move to the shard whose orders wait for them, and each is in one shard at any time.

use std::time::Duration;

use ledger_events::{ProductId, ShardId};
use rewards_ledger::audit::{Rebuild, rebuild, verify};
use rewards_ledger::fulfilment::moves::Mover;
use rewards_ledger::fulfilment::supply::Purchaser;
use rewards_ledger::fulfilment::{Fulfilment, expiry};
use rewards_ledger::ledger::FIRST_SHARD;
use rewards_ledger::ledger::moves::{Move, MoveError, move_vouchers, pick};
use rewards_ledger::ledger::projector::{ProjectionStep, Projector};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::ledger::{self, keyring, money};
use crate::support::node::{Client, Node};
use crate::support::supplier::Simulator;
use crate::support::tampering::tamper;
use crate::support::wait::{is_true, until};

mod kills;

const SECOND: ShardId = 2;

/// Two shards with an account each, and a product of which the first shard has three vouchers of 10.00.
struct TwoShards {
    /// Owns the database.
    _first: Node,
    node: Node,
    clients: [Client; 2],
    product: i64,
    mover: Mover,
}

impl TwoShards {
    async fn start() -> TwoShards {
        let first = Node::start().await;
        let setup = first.setup().await;
        let node = first.beside_with_two_shards().await;
        let second = node.client_in(SECOND).await;
        let mover = Mover::new(&node.ledger, &node.options, keyring(), node.metrics.clone());
        TwoShards { _first: first, node, clients: [setup.client, second], product: setup.product_id, mover }
    }

    /// Adds vouchers of 10.00 whose references are their card numbers, at a cost of 9.25 each.
    async fn load(&self, names: &[&str]) -> Value {
        let voucher = |name: &&str| json!({"card_number": name, "voucher_reference_number": name});
        let vouchers: Vec<Value> = names.iter().map(voucher).collect();
        self.post("", json!({"denomination": "10.00", "cost": "9.25", "vouchers": vouchers})).await
    }

    /// Changes the stock of the product.
    async fn post(&self, path: &str, body: Value) -> Value {
        self.node.operator("POST", &format!("/products/{}/vouchers{path}", self.product), body).await.data(200)
    }

    /// Adds another product of the same kind.
    async fn successor(&self) -> i64 {
        ledger::product(&self.node.ledger, "Successor").await.0
    }

    /// Places an order in a shard, and lets fulfilment take it up. Returns its id.
    async fn order(&self, shard: ShardId, denomination: i64, quantity: i64) -> i64 {
        let order = json!({"product_id": self.product, "denomination": denomination, "quantity": quantity});
        let id = self.node.client(self.client(shard), "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap();
        self.fulfil(shard).await;
        id
    }

    fn client(&self, shard: ShardId) -> &Client {
        &self.clients[usize::try_from(shard - 1).unwrap()]
    }

    /// Runs fulfilment in a shard once, without what an earlier run has seen.
    async fn fulfil(&self, shard: ShardId) {
        self.fulfilment().step(shard).await.unwrap();
    }

    fn fulfilment(&self) -> Fulfilment {
        Fulfilment::new(self.node.ledger.clone(), self.node.metrics.clone())
    }

    async fn status(&self, order: i64) -> String {
        let order = self.node.operator("GET", &format!("/orders/{order}"), Value::Null).await.data(200);
        order["status"].as_str().unwrap().to_owned()
    }

    /// Makes an order this many minutes older. The row no longer matches the log then.
    async fn age(&self, order: i64, minutes: i32) {
        let age = "UPDATE orders SET created_at = created_at - make_interval(mins => $2) WHERE id = $1";
        sqlx::query(age).bind(order).bind(minutes).execute(&mut self.node.admin().await).await.unwrap();
    }

    /// Moves vouchers of 10.00 between the shards, whether or not orders wait. Returns their number.
    async fn moves(&self, from: ShardId, to: ShardId, vouchers: i64) -> usize {
        ledger::move_vouchers(&self.node.options, &self.to_move(from, to, vouchers)).await
    }

    fn to_move(&self, from: ShardId, to: ShardId, vouchers: i64) -> Move {
        Move { from, to, product_id: ProductId(self.product), denomination: money("10.00"), vouchers }
    }

    /// Derives what follows from both logs.
    async fn project(&self) {
        let projector = Projector::new(&self.node.ledger, &self.node.options, self.node.metrics.clone());
        for shard in [FIRST_SHARD, SECOND] {
            _ = projector.step(shard).await.unwrap(); // the first step creates the checkpoint
            while projector.step(shard).await.unwrap() != ProjectionStep::Idle {}
            _ = projector.stock(shard).await.unwrap();
            while projector.stock(shard).await.unwrap() != ProjectionStep::Idle {}
        }
    }

    /// Returns the differences that `verify` finds.
    async fn differences(&self) -> Vec<String> {
        self.project().await;
        verify(&self.node.options, |_| {}).await.unwrap().differences.iter().map(ToString::to_string).collect()
    }

    async fn is_sound(&self) {
        assert_eq!(self.differences().await, Vec::<String>::new());
    }

    /// Returns the types of the events in the product's stream in the second shard, in their order.
    async fn told_by_the_second(&self) -> Vec<String> {
        let told = "SELECT type FROM events WHERE shard_id = 2 AND stream_type = 'product' AND stream_id = $1 ORDER BY version";
        sqlx::query_scalar(told).bind(self.product).fetch_all(self.node.ledger.pool()).await.unwrap()
    }

    /// Returns the number of vouchers of the product by shard.
    async fn places(&self) -> Vec<(ShardId, i64)> {
        let places = "SELECT shard_id, count(*) FROM vault.vouchers WHERE product_id = $1 GROUP BY 1 ORDER BY 1";
        sqlx::query_as(places).bind(self.product).fetch_all(self.node.ledger.pool()).await.unwrap()
    }
}

fn lot(vouchers: i64, unpriced: i64, cost: &str) -> Value {
    json!({"vouchers": vouchers, "unpriced": unpriced, "cost": cost})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_gets_its_vouchers_from_the_stock_of_another_shard() {
    let shards = TwoShards::start().await;
    shards.load(&["a", "b"]).await;
    let order = shards.order(SECOND, 10, 4).await;
    assert_eq!(shards.status(order).await, "DELAYED");
    assert_eq!(shards.mover.step().await.unwrap(), 4, "the oldest ones, of which one has a cost that nothing has projected yet");
    assert_eq!(shards.mover.step().await.unwrap(), 0);
    shards.fulfil(SECOND).await;
    assert_eq!(shards.status(order).await, "DELIVERED");
    let codes = shards.node.client(shards.client(SECOND), "GET", &format!("/orders/{order}/vouchers"), Value::Null).await.text;
    for card in ["card-1", "card-2", "card-3", "a"] {
        assert!(codes.contains(&format!("\"card_number\":\"{card}\"")), "{card}: {codes}");
    }
    assert_eq!(shards.places().await, [(1, 1), (2, 4)]);
    assert_eq!(shards.told_by_the_second().await, ["VouchersMovedIn"]);
    let level = shards.node.operator("GET", &format!("/products/{}/stock", shards.product), Value::Null).await.data(200);
    assert_eq!((&level["stock"][0]["available"], &level["stock"][0]["allocated"]), (&json!(1), &json!(4)));

    shards.is_sound().await;
    let report = shards.node.operator("GET", "/reconciliation", Value::Null).await.data(200);
    let expected = json!({
        "currency": "EUR", "opening": lot(0, 0, "0.00"), "loaded": lot(5, 3, "18.50"), "allocated": lot(4, 3, "9.25"),
        "voided": lot(0, 0, "0.00"), "expired": lot(0, 0, "0.00"), "closing": lot(1, 0, "9.25"), "transferred": lot(0, 0, "0.00"),
        "sales": "40.00", "margin": "30.75",
    });
    assert_eq!(report["stock"], json!([expected]));
    let rebuilt = rebuild(&shards.node.options, Rebuild::All, |_| {}).await.unwrap();
    assert!(rebuilt.was_clean(), "{:#?}", rebuilt.differences);
    shards.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_order_of_all_shards_gets_scarce_vouchers() {
    let shards = TwoShards::start().await;
    let (first, second) = (shards.order(SECOND, 25, 1).await, shards.order(FIRST_SHARD, 25, 1).await);
    let third = shards.order(SECOND, 25, 2).await;
    for (order, minutes) in [(first, 30), (second, 20), (third, 10)] {
        shards.age(order, minutes).await;
    }
    let cards = json!([{"card_number": "x"}, {"card_number": "y"}]);
    shards.post("", json!({"denomination": "25.00", "vouchers": cards})).await;
    shards.fulfil(FIRST_SHARD).await;
    assert_eq!(shards.status(second).await, "DELAYED", "the mover comes first");
    assert_eq!(shards.mover.step().await.unwrap(), 1);
    for shard in [FIRST_SHARD, SECOND] {
        shards.fulfil(shard).await;
    }
    let statuses = [shards.status(first).await, shards.status(second).await, shards.status(third).await];
    assert_eq!(statuses, ["DELIVERED", "DELIVERED", "DELAYED"]);
    assert_eq!(shards.mover.step().await.unwrap(), 0, "the stock is empty");
}

/// No timer of fulfilment fires in time.
#[tokio::test(flavor = "multi_thread")]
async fn a_move_wakes_fulfilment() {
    const NEVER: Duration = Duration::from_secs(3_600);
    let shards = TwoShards::start().await;
    // The second shard has only the newest voucher. Those that the second order gets are older.
    assert_eq!(shards.moves(FIRST_SHARD, SECOND, 3).await, 3);
    assert_eq!(shards.moves(SECOND, FIRST_SHARD, 2).await, 2);
    let stop = CancellationToken::new();
    let fulfilment = tokio::spawn(shards.fulfilment().idling(NEVER).run(stop.clone()));
    let mover = Mover::new(&shards.node.ledger, &shards.node.options, keyring(), shards.node.metrics.clone());
    let mover = tokio::spawn(mover.run(stop.clone()));
    for quantity in [1, 2] {
        let order = json!({"product_id": shards.product, "denomination": 10, "quantity": quantity});
        let placed = shards.node.client(shards.client(SECOND), "POST", "/orders", order).await.data(201);
        let id = placed["id"].as_i64().unwrap();
        until("the order is delivered", async || shards.status(id).await == "DELIVERED").await;
    }
    stop.cancel();
    fulfilment.await.unwrap();
    mover.await.unwrap();
    shards.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn loads_and_transfers_notice_vouchers_in_another_shard() {
    let shards = TwoShards::start().await;
    shards.load(&["a", "b"]).await;
    assert_eq!(shards.moves(FIRST_SHARD, SECOND, 10).await, 5);
    let again = shards.load(&["a", "b", "c"]).await;
    assert_eq!((&again["accepted"], &again["duplicates"]), (&json!(1), &json!(2)));
    let cards = json!([{"card_number": "new", "voucher_reference_number": "a"}, {"card_number": "card-1"}]);
    let taken = shards.post("", json!({"denomination": "10.00", "vouchers": cards})).await;
    assert_eq!((&taken["accepted"], &taken["duplicates"]), (&json!(0), &json!(1)));
    assert_eq!(taken["rejected"][0]["reason"], "voucher_reference_number is taken");

    // A card that the other product has in the first shard stays where it is, although it is in the second one.
    let successor = shards.successor().await;
    let card = json!({"denomination": "10.00", "vouchers": [{"card_number": "b"}]});
    shards.node.operator("POST", &format!("/products/{successor}/vouchers"), card).await.data(200);
    let transfer = json!({"vouchers": ["a", "b"], "to_product_id": successor, "reason": "a new product"});
    let moved = shards.post("/transfer", transfer).await;
    let refused = json!([{"voucher_reference_number": "b", "reason": "has a card number that the other product has"}]);
    assert_eq!(moved, json!({"transferred": 1, "already_there": 0, "refused": refused}));
    let again = shards.load(&["a"]).await;
    assert_eq!(again["duplicates"], 1, "a card that has moved between shards and products is known all the same");
    shards.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_change_vouchers_in_whichever_shard_they_are() {
    let shards = TwoShards::start().await;
    shards.load(&["a", "b", "c", "d", "e", "f"]).await;
    assert_eq!(shards.moves(FIRST_SHARD, SECOND, 6).await, 6, "a, b and c are among the oldest");
    let void = json!({"vouchers": ["d", "unknown", "a"], "reason": "stolen"});
    let refused = json!([{"voucher_reference_number": "unknown", "reason": "is not in the stock of this product"}]);
    assert_eq!(shards.post("/void", void.clone()).await, json!({"voided": 2, "already_voided": 0, "refused": refused}));
    assert_eq!(shards.post("/void", void).await, json!({"voided": 0, "already_voided": 2, "refused": refused}));
    let successor = shards.successor().await;
    let transfer = json!({"vouchers": ["c", "f"], "to_product_id": successor, "reason": "a new product"});
    assert_eq!(shards.post("/transfer", transfer).await, json!({"transferred": 2, "already_there": 0, "refused": []}));
    let expire = json!({"vouchers": ["b", "a", "e"], "expires_on": "2001-01-01"});
    let refused = json!([{"voucher_reference_number": "a", "reason": "is voided"}]);
    assert_eq!(shards.post("/expiry", expire).await, json!({"changed": 2, "unchanged": 0, "refused": refused}));
    shards.project().await;
    for shard in [FIRST_SHARD, SECOND] {
        assert_eq!(expiry::step(&shards.node.ledger, shard).await.unwrap(), 1, "shard {shard}");
    }
    let told = ["VouchersMovedIn", "VouchersVoided", "VouchersTransferredOut", "VoucherExpirySet", "VouchersExpired"];
    assert_eq!(shards.told_by_the_second().await, told);
    assert_eq!(shards.moves(SECOND, FIRST_SHARD, 10).await, 3, "only those without a cost are free");

    shards.is_sound().await;
    let report = shards.node.operator("GET", "/reconciliation", Value::Null).await.data(200);
    let stock = &report["stock"][0];
    assert_eq!((&stock["voided"], &stock["expired"]), (&lot(2, 0, "18.50"), &lot(2, 0, "18.50")));
    assert_eq!((&stock["transferred"], &stock["closing"]), (&lot(2, 0, "18.50"), &lot(5, 3, "18.50")));
    let rebuilt = rebuild(&shards.node.options, Rebuild::All, |_| {}).await.unwrap();
    assert!(rebuilt.was_clean(), "{:#?}", rebuilt.differences);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_all_shards_lack_is_bought_and_the_rest_moves() {
    let shards = TwoShards::start().await;
    let simulator = Simulator::start().await;
    let named = json!({"supplier": "acme", "sku": "SKU-10"});
    shards.node.operator("PUT", &format!("/products/{}/supplier", shards.product), named).await.data(200);
    let mut purchaser = Purchaser::new(shards.node.ledger.clone(), simulator.supplier(), shards.node.metrics.clone());
    let order = shards.order(SECOND, 10, 2).await;
    assert_eq!(purchaser.request(SECOND).await.unwrap(), 0, "the first shard has three vouchers");
    assert_eq!(shards.mover.step().await.unwrap(), 2);
    shards.fulfil(SECOND).await;
    assert_eq!(shards.status(order).await, "DELIVERED");

    let order = shards.order(SECOND, 10, 3).await;
    assert_eq!(purchaser.request(SECOND).await.unwrap(), 1);
    assert!(purchaser.work(SECOND).await);
    assert_eq!(simulator.units(), 2, "one is left in the first shard");
    assert_eq!(shards.mover.step().await.unwrap(), 1);
    shards.fulfil(SECOND).await;
    assert_eq!(shards.status(order).await, "DELIVERED");
    assert_eq!(shards.told_by_the_second().await, ["VouchersMovedIn", "VoucherStockLoaded", "VouchersMovedIn"]);
    shards.is_sound().await;
}

/// Changes after a move of the vouchers `a` and `b`, each with a line that `verify` must report.
const TAMPERINGS: [(&str, &str); 6] = [
    ("DELETE FROM vault.vouchers WHERE reference = 'a'", "brings voucher a, which is not in the stock of this shard"),
    (
        "INSERT INTO vault.vouchers (shard_id, id, product_id, denomination, reference, fingerprint, sealed)
            SELECT 1, id, product_id, denomination, reference, fingerprint, sealed FROM vault.vouchers WHERE reference = 'b'",
        "takes voucher b away, which is in the stock of this shard",
    ),
    (
        "UPDATE events SET data = replace(data::text, '\"to_shard\":2', '\"to_shard\":3')::json WHERE type = 'VouchersMovedOut'",
        "shard 3 does not tell the same move",
    ),
    (
        "UPDATE events SET data = replace(data::text, '\"b\"', '\"c\"')::json WHERE type = 'VouchersMovedIn'",
        "shard 1 does not tell the same move",
    ),
    (
        "UPDATE events SET data = replace(data::text, '\"9.25\"', '\"9.24\"')::json WHERE type = 'VouchersMovedIn'",
        "stock_costs a: cost is",
    ),
    (
        "UPDATE events SET type = 'StockThresholdSet', data = '{\"denomination\":\"10.00\",\"least\":1}'
            WHERE type = 'VouchersMovedIn'",
        "changes a product in another shard than the first one",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_the_stock_or_one_log_contradicts_is_named() {
    for (tampering, expected) in TAMPERINGS {
        let shards = TwoShards::start().await;
        shards.load(&["a", "b"]).await;
        assert_eq!(shards.moves(FIRST_SHARD, SECOND, 5).await, 5);
        shards.is_sound().await;
        tamper(&mut shards.node.admin().await, tampering).await;
        let found = shards.differences().await;
        assert!(
            found.iter().any(|line| line.contains(expected)),
            "{tampering}\nshould be named as: {expected}\nfound: {found:#?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_mover_at_a_time_looks_for_vouchers_to_move() {
    let shards = TwoShards::start().await;
    shards.order(SECOND, 10, 3).await;
    let mut other = shards.node.admin().await;
    sqlx::raw_sql("SELECT pg_advisory_lock(x'6d6f766573'::bigint)").execute(&mut other).await.unwrap();
    assert_eq!(shards.mover.step().await.unwrap(), 0, "another node looks");
    sqlx::raw_sql("SELECT pg_advisory_unlock(x'6d6f766573'::bigint)").execute(&mut other).await.unwrap();
    assert_eq!(shards.mover.step().await.unwrap(), 3);
    assert_eq!(shards.places().await, [(2, 3)]);
    assert!(is_true(&mut other, "SELECT pg_try_advisory_lock(x'6d6f766573'::bigint)").await, "the lock is released after a look");
    shards.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voucher_that_goes_to_another_product_after_it_was_picked_does_not_move() {
    let shards = TwoShards::start().await;
    shards.load(&["a", "b"]).await;
    let successor = shards.successor().await;
    let pool = shards.node.ledger.pool();
    let wanted = shards.to_move(FIRST_SHARD, SECOND, 5);
    let picked = pick(&mut pool.acquire().await.unwrap(), &wanted).await.unwrap().unwrap();
    let transfer = json!({"vouchers": ["a"], "to_product_id": successor, "reason": "a new product"});
    assert_eq!(shards.post("/transfer", transfer).await["transferred"], 1);
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(move_vouchers(&mut tx, &keyring(), &picked).await.unwrap().vouchers, 4);
    tx.commit().await.unwrap();
    assert_eq!(shards.places().await, [(2, 4)]);
    shards.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vouchers_whose_references_the_other_shard_has_stay_and_the_others_move() {
    let shards = TwoShards::start().await;
    known_in_both(&shards).await;
    shards.load(&["a", "b"]).await;
    shards.order(SECOND, 10, 4).await;
    assert_eq!(shards.mover.step().await.unwrap(), 2);
    assert_eq!(shards.mover.step().await.unwrap(), 0);
    assert_eq!(shards.places().await, [(1, 3), (2, 5)]);
}

/// Makes the second shard have the references and card numbers of all vouchers that are loaded.
async fn known_in_both(shards: &TwoShards) {
    let known =
        "INSERT INTO vault.vouchers (shard_id, id, product_id, denomination, reference, fingerprint, sealed, order_id, voided_at)
        SELECT 2, id, product_id, denomination, reference, fingerprint, sealed, 0, now() FROM vault.vouchers";
    tamper(&mut shards.node.admin().await, known).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vouchers_that_cannot_move_do_not_keep_the_others_from_it() {
    let shards = TwoShards::start().await;
    let node = &shards.node;
    let load = async |name: String| {
        let product = ledger::product(&node.ledger, &name).await.0;
        let voucher = json!({"card_number": name, "voucher_reference_number": name});
        let load = json!({"denomination": "10.00", "vouchers": [voucher]});
        node.operator("POST", &format!("/products/{product}/vouchers"), load).await.data(200);
        product
    };
    // More than a look has plans.
    let mut products = vec![];
    for number in 0..17 {
        products.push(load(format!("stuck-{number}")).await);
    }
    known_in_both(&shards).await;
    products.push(load("free".to_owned()).await);
    for product in products {
        let order = json!({"product_id": product, "denomination": 10, "quantity": 1});
        node.client(shards.client(SECOND), "POST", "/orders", order).await.data(201);
    }
    shards.fulfil(SECOND).await;
    assert_eq!(shards.mover.step().await.unwrap(), 0);
    until("the voucher that can move does", async || shards.mover.step().await.unwrap() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_gives_up_the_first_head_if_it_does_not_get_the_second_one() {
    let shards = TwoShards::start().await;
    shards.order(SECOND, 10, 2).await;
    let mut other = shards.node.admin().await;
    sqlx::raw_sql("BEGIN; SELECT FROM log_head WHERE shard_id = 2 FOR UPDATE").execute(&mut other).await.unwrap();
    let Err(MoveError::Database(refused)) = shards.mover.step().await else { panic!("the second head is locked") };
    assert_eq!(refused.as_database_error().unwrap().code().as_deref(), Some("55P03"));
    shards.order(FIRST_SHARD, 10, 1).await;
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    until("the vouchers move", async || shards.mover.step().await.unwrap() > 0).await;
    shards.is_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_voucher_moves_to_a_shard_that_no_operator_has_added() {
    let shards = TwoShards::start().await;
    let named = json!({"supplier": "acme", "sku": "SKU-10"});
    shards.node.operator("PUT", &format!("/products/{}/supplier", shards.product), named).await.data(200);
    let simulator = Simulator::start().await;
    let mut purchaser = Purchaser::new(shards.node.ledger.clone(), simulator.supplier(), shards.node.metrics.clone());
    shards.order(SECOND, 10, 1).await;
    tamper(&mut shards.node.admin().await, "UPDATE shards SET added_at = NULL WHERE id = 2").await;
    assert_eq!(shards.mover.step().await.unwrap(), 0);
    assert_eq!(purchaser.request(SECOND).await.unwrap(), 1, "the stock of the first shard cannot serve the order");
    tamper(&mut shards.node.admin().await, "UPDATE shards SET added_at = now() WHERE id = 2").await;
    assert_eq!(shards.mover.step().await.unwrap(), 1);
}
