//! Ids tell their shard, ids that are older than this are still found, and an import keeps both.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use ledger_database::PgConnectOptions;
use ledger_events::catalogue::ProductSupplier;
use ledger_events::{
    AccountId, Actor, BeneficiaryId, IDS_PER_SHARD, Id, OrderId, ProductId, ShardId, StatementId, UserId, WalletId, id_base,
};
use rewards_ledger::audit::{Rebuild, rebuild};
use rewards_ledger::export::{import, page};
use rewards_ledger::fulfilment::supply::Notices;
use rewards_ledger::ledger::commands::MoneyChange;
use rewards_ledger::ledger::eraser::{self, EraseError};
use rewards_ledger::ledger::erasure::Subject;
use rewards_ledger::ledger::projector::{ProjectionStep, Projector};
use rewards_ledger::ledger::{Command, CommandResult, FIRST_SHARD, Origin, commands, reader};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::support::ledger::money;
use crate::support::node::{Client, Node, TestResponse};
use crate::support::postgres::{TestDatabase, database};
use crate::support::tampering::tamper;

const SECOND: ShardId = 2;
/// Tables whose ids clients or operators see. All but the last one have them from the log.
const TABLES: [&str; 13] = [
    "accounts",
    "credentials",
    "users",
    "wallets",
    "wallet_transactions",
    "orders",
    "webhooks",
    "beneficiaries",
    "payouts",
    "approvals",
    "purchases",
    "webhook_replays",
    "deliveries",
];
/// Tables, and the paths below which operators find their rows by id alone.
const FOUND: [(&str, &str); 11] = [
    ("accounts", "/accounts"),
    ("wallets", "/wallets"),
    ("wallet_transactions", "/transactions"),
    ("orders", "/orders"),
    ("payouts", "/payouts"),
    ("webhooks", "/webhooks"),
    ("deliveries", "/deliveries"),
    ("approvals", "/approvals"),
    ("purchases", "/purchases"),
    ("webhook_replays", "/replays"),
    ("credentials", "/credentials"),
];

/// A ledger whose second shard has a row in each table.
struct TwoShards {
    /// Owns the database.
    _first: Node,
    node: Node,
    /// Clients of an account in each shard.
    clients: [Client; 2],
    product: i64,
}

impl TwoShards {
    async fn start() -> TwoShards {
        let first = Node::start().await;
        let setup = first.setup().await;
        let node = first.beside_with_two_shards().await;
        let client = node.credential(account(&node, SECOND).await).await;
        let shards = TwoShards { _first: first, node, clients: [setup.client, client], product: setup.product_id };
        shards.fill().await;
        shards
    }

    /// Makes a row of each table in the second shard.
    async fn fill(&self) {
        let TwoShards { node, clients: [_, client], .. } = self;
        let wallet = node.wallet(client.account_id).await;
        node.user(client.account_id, "owner").await;
        let hook = json!({"name": "a", "url": "https://example.com/hook", "events": ["order.created"]});
        let hook = node.client(client, "POST", "/webhooks", hook).await.json();
        node.client(client, "POST", &format!("/webhooks/{}/test", hook["id"]), Value::Null).await.data(200);
        let order = self.order(SECOND).await;
        self.buy(order).await;
        self.wait_for_approval(wallet).await;
        let person = json!({"name": "Ada", "type": "BANK", "country": "DE", "currency": "EUR",
            "account_number": "DE89370400440532013000", "bank_code": "COBADEFFXXX"});
        let person = node.client(client, "POST", "/beneficiaries", person).await.data(201);
        let payout = json!({"beneficiary_id": person["id"], "wallet_id": wallet, "amount": "5.00"});
        node.client(client, "POST", "/payouts", payout).await.data(201);
        node.project().await;
        let projector = Projector::new(&node.ledger, &node.options, node.metrics.clone());
        while projector.step(SECOND).await.unwrap() != ProjectionStep::Idle {}
        let replay = json!({"kind": "missed"});
        node.operator("POST", &format!("/webhooks/{}/replays", hook["id"]), replay).await.data(201);
    }

    /// Requests a purchase for an order of the second shard.
    async fn buy(&self, order: i64) {
        let (order_id, product_id) = (OrderId(order), ProductId(self.product));
        let supplier = ProductSupplier { name: "acme".to_owned(), sku: "SKU-25".to_owned() };
        let named = commands::SetProductSupplier { product_id, supplier: Some(supplier.clone()) };
        execute(&self.node, FIRST_SHARD, named).await;
        execute(&self.node, SECOND, commands::FulfilOrder { order_id }).await;
        let request = commands::RequestPurchase {
            order_id,
            product_id,
            denomination: money("25.00"),
            currency: "EUR".parse().unwrap(),
            supplier: supplier.name,
            sku: supplier.sku,
            budget: money("1000.00"),
        };
        let bought = execute(&self.node, SECOND, request).await;
        assert!(matches!(bought, CommandResult::Purchase(Some(_))), "{bought:?}");
    }

    /// Requests a funding of a wallet of the second shard that a second operator must approve.
    async fn wait_for_approval(&self, wallet: i64) {
        let (wallet_id, amount, reference) = (WalletId(wallet), money("2.00"), "large".to_owned());
        let fund = commands::FundWallet { account_id: None, wallet_id, amount, reference, note: None };
        let limits = Arc::new("1.00".parse().unwrap());
        let asked = execute(&self.node, SECOND, commands::Supervise { change: MoneyChange::Fund(fund), limits }).await;
        assert!(matches!(asked, CommandResult::Approval(_)), "{asked:?}");
    }

    /// Places an order in a shard. Returns its id.
    async fn order(&self, shard: ShardId) -> i64 {
        place(&self.node, &self.clients[usize::try_from(shard - 1).unwrap()], self.product).await
    }

    /// Imports the logs of both shards into a new database, each after a change. Returns a node on it.
    async fn imported(&self, change: impl Fn(String) -> String) -> (TestDatabase, Node) {
        let directory = tempfile::tempdir().unwrap();
        let database = database().await;
        let options: PgConnectOptions = database.url.parse().unwrap();
        let head = "INSERT INTO log_head (shard_id) VALUES (2) ON CONFLICT DO NOTHING";
        sqlx::raw_sql(head).execute(&mut options.connect().await.unwrap()).await.unwrap();
        for shard in [FIRST_SHARD, SECOND] {
            let path = directory.path().join(format!("{shard}.ndjson"));
            self.export(shard, &path, &change).await;
            import(&options, &path, |_| {}).await.unwrap();
        }
        let node = Node::accepting(&options, Notices::default()).await;
        (database, node)
    }

    async fn export(&self, shard: ShardId, path: &Path, change: impl Fn(String) -> String) {
        let events = reader::stored_after(self.node.ledger.pool(), shard, 0, i64::MAX).await.unwrap();
        let text = String::from_utf8(page(&events, false).unwrap()).unwrap();
        std::fs::write(path, change(text)).unwrap();
    }
}

async fn execute(node: &Node, shard: ShardId, command: impl Into<Command>) -> CommandResult {
    let origin = Origin { actor: Actor::Operator(0), request_id: "test".to_owned() };
    node.ledger.execute(shard, command, origin).await.unwrap()
}

/// Creates an account in a shard. Returns its id.
async fn account(node: &Node, shard: ShardId) -> i64 {
    let command = commands::CreateAccount { name: "Acme".to_owned() };
    let CommandResult::Account(account) = execute(node, shard, command).await else { panic!() };
    account.id.0
}

/// Places an order for a voucher that is out of stock.
async fn place(node: &Node, client: &Client, product: i64) -> i64 {
    let order = json!({"product_id": product, "denomination": 25, "quantity": 1});
    node.client(client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap()
}

/// Returns the ids of a table's rows in a shard.
async fn ids(node: &Node, table: &str, shard: ShardId) -> Vec<i64> {
    let sql = AssertSqlSafe(format!("SELECT id FROM {table} WHERE shard_id = $1 ORDER BY id"));
    sqlx::query_scalar(sql).bind(shard).fetch_all(node.ledger.pool()).await.unwrap()
}

/// Looks a row up as an operator, by its id alone. API keys can only be changed so.
async fn look_up(node: &Node, path: &str, id: i64) -> TestResponse {
    let (method, body) = match path {
        "/credentials" => ("PUT", json!({"hmac_required": false})),
        _ => ("GET", Value::Null),
    };
    node.operator(method, &format!("{path}/{id}"), body).await
}

/// Checks that operators find every row of a table by its id.
async fn check_found(node: &Node, (table, path): (&str, &str)) {
    let ids = ids(node, table, SECOND).await;
    assert!(!ids.is_empty(), "{table}");
    for id in ids {
        assert_eq!(look_up(node, path, id).await.data(200)["id"], id, "{path}");
    }
}

/// Makes the ids of the second shard in an export those of a release whose ids did not tell their shard.
fn with_plain_ids(export: String) -> String {
    let mut plain = String::with_capacity(export.len());
    for part in export.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = part.trim_end_matches(|c: char| !c.is_ascii_digit());
        match digits.parse::<i64>() {
            // Few ids have been drawn. A hash can have more digits in a row.
            Ok(id) if id.shard() == Some(SECOND) && id.sequence_number() < 1_000_000 => {
                let width = if plain.ends_with("ORD-") || plain.ends_with("PAY-") { 10 } else { 0 };
                write!(plain, "{:0width$}{}", id.sequence_number(), &part[digits.len()..]).unwrap();
            }
            _ => plain.push_str(part),
        }
    }
    plain
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_shard_draws_ids_that_tell_it_and_the_first_one_plain_ids() {
    let shards = TwoShards::start().await;
    let node = &shards.node;
    shards.order(FIRST_SHARD).await;
    for table in TABLES {
        let [first, second] = [ids(node, table, FIRST_SHARD).await, ids(node, table, SECOND).await];
        assert!(!second.is_empty() && second.iter().all(|id| id.shard() == Some(SECOND)), "{table}: {second:?}");
        assert!(first.iter().all(|id| *id < IDS_PER_SHARD), "{table}: {first:?}");
        let is_number_new = |id: &i64| !first.contains(&id.sequence_number());
        assert!(second.iter().all(is_number_new), "{table}: one sequence for all shards: {first:?}, {second:?}");
    }
    let newest = account(node, FIRST_SHARD).await;
    let listed = node.operator("GET", "/accounts?limit=2", Value::Null).await.data(200);
    let listed: Vec<_> = listed["accounts"].as_array().unwrap().iter().map(|account| account["id"].as_i64().unwrap()).collect();
    assert_eq!(listed, [newest, shards.clients[1].account_id], "accounts of all shards are in the order of time");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_is_looked_up_in_the_shard_that_it_tells() {
    let shards = TwoShards::start().await;
    let node = &shards.node;
    for thing in FOUND {
        check_found(node, thing).await;
        let (table, path) = thing;
        let known = ids(node, table, SECOND).await[0].sequence_number();
        // The same number of the first shard, of the second shard without a row, and of a shard that does not exist.
        for id in [known, id_base(SECOND) + 999_999, id_base(3) + known] {
            look_up(node, path, id).await.refused(404, "E_NOT_FOUND");
        }
    }
    let order = ids(node, "orders", SECOND).await[0];
    for term in [order.to_string(), format!("ORD-{order}")] {
        let results = node.operator("GET", &format!("/search?q={term}"), Value::Null).await.data(200);
        assert_eq!((&results["results"][0]["kind"], &results["results"][0]["id"]), (&json!("order"), &json!(order)), "{results}");
    }
    // A row under an id of another shard is not looked for where it is.
    tamper(&mut node.admin().await, &format!("UPDATE payouts SET id = id + {IDS_PER_SHARD} WHERE shard_id = {SECOND}")).await;
    let moved = ids(node, "payouts", SECOND).await[0];
    node.operator("GET", &format!("/payouts/{moved}"), Value::Null).await.refused(404, "E_NOT_FOUND");
}

/// Makes the subject of an erasure from an id.
type MakeSubject = fn(i64) -> Subject;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_to_be_erased_is_looked_for_in_the_shard_that_its_id_tells() {
    let shards = TwoShards::start().await;
    let node = &shards.node;
    let statement = "INSERT INTO bank_statements
            (shard_id, id, version, format, fingerprint, lines, first_day, last_day, decisions, created_at, updated_at)
        VALUES (2, $1, 1, 'csv', 'test', 1, current_date, current_date, '{}', now(), now())";
    sqlx::query(statement).bind(id_base(SECOND) + 7).execute(&mut node.admin().await).await.unwrap();
    let subjects: [(&str, MakeSubject); 5] = [
        ("accounts", |id| Subject::Account(AccountId(id))),
        ("orders", |id| Subject::Order(OrderId(id))),
        ("users", |id| Subject::User(UserId(id))),
        ("beneficiaries", |id| Subject::Beneficiary(BeneficiaryId(id))),
        ("bank_statements", |id| Subject::Statement { id: StatementId(id), line: None }),
    ];
    for (table, subject) in subjects {
        let id = ids(node, table, SECOND).await[0];
        assert_eq!(eraser::shard_of(&node.ledger, subject(id)).await.unwrap(), SECOND, "{table}");
        for id in [id.sequence_number(), id_base(3) + id.sequence_number()] {
            let unknown = eraser::shard_of(&node.ledger, subject(id)).await;
            assert!(matches!(unknown, Err(EraseError::Unknown(..))), "{table}: {unknown:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_a_rebuild_makes_again_has_an_id_of_its_shard() {
    let shards = TwoShards::start().await;
    let node = &shards.node;
    let before = ids(node, "deliveries", SECOND).await;
    let lost = "WITH lost AS (DELETE FROM deliveries WHERE shard_id = 2 AND order_id > 0 RETURNING id)
        DELETE FROM delivery_state USING lost WHERE shard_id = 2 AND delivery_id = lost.id";
    tamper(&mut node.admin().await, lost).await;
    let kept = ids(node, "deliveries", SECOND).await;
    assert_eq!(kept.len() + 1, before.len(), "the order's delivery is lost, and the test's is there");
    rebuild(&node.options, Rebuild::Deliveries, |_| {}).await.unwrap();
    let after = ids(node, "deliveries", SECOND).await;
    let made: Vec<i64> = after.iter().copied().filter(|id| !kept.contains(id)).collect();
    assert!(made.len() == 1 && made[0].shard() == Some(SECOND) && !before.contains(&made[0]), "{before:?}, {after:?}");
    let recorded = "SELECT count(*) FROM delivery_state WHERE shard_id = 2 AND delivery_id = ANY ($1)";
    let recorded: i64 = sqlx::query_scalar(recorded).bind(&after).fetch_one(node.ledger.pool()).await.unwrap();
    assert_eq!(recorded, 2, "the worker has a record of each delivery");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_of_both_shards_keeps_ids_and_continues_after_them() {
    let shards = TwoShards::start().await;
    shards.order(FIRST_SHARD).await;
    let (_database, node) = shards.imported(|export| export).await;
    let (deliveries, of_log) = TABLES.split_last().unwrap();
    for table in of_log {
        for shard in [FIRST_SHARD, SECOND] {
            assert_eq!(ids(&node, table, shard).await, ids(&shards.node, table, shard).await, "{table}");
        }
    }
    let delivered = ids(&node, deliveries, SECOND).await;
    assert!(delivered.len() == 2 && delivered.iter().all(|id| id.shard() == Some(SECOND)), "{delivered:?}");
    check_next(&node, shards.product).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_that_are_older_than_the_rule_are_found_in_their_shard() {
    let shards = TwoShards::start().await;
    let (_database, node) = shards.imported(with_plain_ids).await;
    for thing in FOUND.into_iter().filter(|(table, _)| !["webhooks", "deliveries"].contains(table)) {
        check_found(&node, thing).await;
        let old = ids(&node, thing.0, SECOND).await;
        assert!(old.iter().all(|id| id.shard().is_none()), "{}: {old:?}", thing.0);
    }
    check_next(&node, shards.product).await;
}

/// Checks that the next order of each shard on an imported ledger has a new number.
async fn check_next(node: &Node, product: i64) {
    for shard in [FIRST_SHARD, SECOND] {
        let known = [ids(node, "orders", FIRST_SHARD).await, ids(node, "orders", SECOND).await].concat();
        let newest = known.iter().map(|id| id.sequence_number()).max();
        // The keys of clients are not in the log.
        let client = node.credential(ids(node, "accounts", shard).await[0]).await;
        let order = place(node, &client, product).await;
        assert_eq!(order.shard(), (shard == SECOND).then_some(SECOND), "{order}");
        assert!(Some(order.sequence_number()) > newest, "{order} after {known:?}");
        let found = node.operator("GET", &format!("/orders/{order}"), Value::Null).await.data(200);
        assert_eq!(found["account_id"], client.account_id);
    }
}
