//! The sandbox: the effect of its four products on orders. The tests run over HTTP with a node in a separate process,
//! and step by step with a controlled clock.

use chrono::{DateTime, TimeDelta, Utc};
use ledger_database::PgConnectOptions;
use ledger_events::order::{Order, OrderStatus};
use ledger_events::{AccountId, OrderId, WalletId};
use ledger_projections::orders;
use rewards_ledger::fulfilment::Fulfilment;
use rewards_ledger::ledger::commands::PlaceOrder;
use rewards_ledger::ledger::{Command, CommandResult, Ledger, WriteError, commands, stock};
use rewards_ledger::sandbox::cards::Course;
use rewards_ledger::sandbox::{Delays, Sandbox, SandboxError, open as open_if};
use rewards_ledger::telemetry::Metrics;
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::support::ledger::{Customer, SHARD, money, open, origin, run};
use crate::support::postgres::{self, TestDatabase};
use crate::support::program::{Client, DEADLINE, Program};
use crate::support::wait::until;

/// A sandbox whose fulfilment and clock the test controls.
struct Stage {
    ledger: Ledger,
    sandbox: Sandbox,
    fulfilment: Fulfilment,
    account_id: AccountId,
    options: PgConnectOptions,
    _database: TestDatabase,
}

const PACE: Delays = Delays { rest_after: TimeDelta::seconds(60), late_after: TimeDelta::seconds(600) };

/// Runs an action of the sandbox. Repeats it if the machine paused for longer than a command waits, or than the database keeps
/// an idle transaction.
async fn done<T>(action: impl AsyncFn() -> Result<T, SandboxError>) -> T {
    let taken = tokio::time::timeout(DEADLINE, async {
        loop {
            match action().await {
                Err(SandboxError::Write(WriteError::Unavailable) | SandboxError::Database(sqlx::Error::Io(_))) => {}
                outcome => return outcome,
            }
        }
    });
    taken.await.expect("in time").unwrap()
}

async fn opened(ledger: &Ledger) -> Sandbox {
    done(|| Sandbox::open(ledger, ledger.pool().clone(), PACE)).await
}

impl Stage {
    async fn open() -> Stage {
        let database = postgres::database().await;
        let options: PgConnectOptions = database.url.parse().unwrap();
        let ledger = open(&options).await;
        let sandbox = opened(&ledger).await;
        let CommandResult::Account(account) = run(&ledger, commands::CreateAccount { name: "Tester".into() }).await else {
            panic!()
        };
        let open = commands::OpenWallet { account_id: account.id, currency: "USD".parse().unwrap() };
        let CommandResult::Wallet(wallet) = run(&ledger, open).await else { panic!() };
        let amount = money("1000000.00");
        run(&ledger, commands::FundWallet { account_id: None, wallet_id: wallet.id, amount, reference: "f".into(), note: None })
            .await;
        let fulfilment = Fulfilment::new(ledger.clone(), Metrics::default());
        Stage { ledger, sandbox, fulfilment, account_id: account.id, options, _database: database }
    }

    async fn order(&self, course: Course, quantity: i32) -> OrderId {
        let (product_id, card) = self.sandbox.products().iter().find(|(_, card)| card.course == course).unwrap();
        let order = PlaceOrder {
            account_id: self.account_id,
            product_id: *product_id,
            denomination: card.face_value().unwrap(),
            quantity,
            client_reference: None,
            metadata: None,
        };
        let CommandResult::Order(view) = run(&self.ledger, Command::PlaceOrder(order)).await else { panic!() };
        view.order.id
    }

    /// Runs fulfilment, then the sandbox at a time, then fulfilment again.
    async fn at(&mut self, now: DateTime<Utc>) {
        self.fulfilment.step(SHARD).await.unwrap();
        done(|| self.sandbox.step(now)).await;
        self.fulfilment.step(SHARD).await.unwrap();
    }

    async fn see(&self, id: OrderId) -> (OrderStatus, i32) {
        let order: Order = orders::find(self.ledger.pool(), SHARD, id, None).await.unwrap().unwrap();
        (order.status, order.delivered_quantity)
    }

    async fn available(&self, course: Course) -> i64 {
        let (product_id, card) = self.sandbox.products().iter().find(|(_, card)| card.course == course).unwrap();
        let pair = [(*product_id, card.face_value().unwrap().decimal())];
        let found = stock::available_pairs(self.ledger.pool(), &[SHARD], &pair, 10_000).await.unwrap();
        found.first().map_or(0, |(.., vouchers)| *vouchers)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_product_goes_its_course() {
    let mut stage = Stage::open().await;
    let start = Utc::now();
    let at_once = stage.order(Course::AtOnce, 10).await;
    let in_parts = [stage.order(Course::InParts, 3).await, stage.order(Course::InParts, 2).await];
    let late = stage.order(Course::Late, 4).await;
    let never = stage.order(Course::Never, 1).await;

    stage.fulfilment.step(SHARD).await.unwrap();
    assert_eq!(stage.see(at_once).await, (OrderStatus::Delivered, 10));
    assert_eq!(stage.see(in_parts[0]).await, (OrderStatus::PartiallyDelivered, 1));
    assert_eq!(stage.see(in_parts[1]).await, (OrderStatus::Delayed, 0));
    for waiting in [late, never] {
        assert_eq!(stage.see(waiting).await, (OrderStatus::Delayed, 0));
    }
    // Nothing more arrives before its time.
    stage.at(start + TimeDelta::seconds(30)).await;
    assert_eq!(stage.see(in_parts[0]).await, (OrderStatus::PartiallyDelivered, 1));
    // The first order gets the rest. Then it is the second one's turn, partially at first.
    stage.at(start + TimeDelta::seconds(90)).await;
    assert_eq!(stage.see(in_parts[0]).await, (OrderStatus::Delivered, 3));
    stage.at(start + TimeDelta::seconds(91)).await;
    assert_eq!(stage.see(in_parts[1]).await, (OrderStatus::PartiallyDelivered, 1));
    assert_eq!(stage.see(late).await, (OrderStatus::Delayed, 0));
    stage.at(start + TimeDelta::seconds(700)).await;
    assert_eq!(stage.see(in_parts[1]).await, (OrderStatus::Delivered, 2));
    assert_eq!(stage.see(late).await, (OrderStatus::Delivered, 4));
    assert_eq!(stage.see(never).await, (OrderStatus::Delayed, 0));

    // One voucher is left for the next order in parts, and none for the others.
    stage.at(start + TimeDelta::days(1)).await;
    let left =
        [stage.available(Course::InParts).await, stage.available(Course::Late).await, stage.available(Course::Never).await];
    assert_eq!(left, [1, 0, 0]);
    let next = stage.order(Course::InParts, 2).await;
    stage.fulfilment.step(SHARD).await.unwrap();
    assert_eq!(stage.see(next).await, (OrderStatus::PartiallyDelivered, 1));
    assert_eq!(stage.see(never).await, (OrderStatus::Delayed, 0));
    let report = rewards_ledger::audit::verify(&stage.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:?}", report.differences);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_product_delivered_at_once_never_runs_out() {
    let mut stage = Stage::open().await;
    for _ in 0..3 {
        // As many as one key may order in two minutes, all at once.
        let mut placed = vec![];
        for _ in 0..200 {
            placed.push(stage.order(Course::AtOnce, 10).await);
        }
        stage.fulfilment.step(SHARD).await.unwrap();
        for id in placed {
            assert_eq!(stage.see(id).await, (OrderStatus::Delivered, 10));
        }
        done(|| stage.sandbox.step(Utc::now())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_add_no_more_stock_than_one() {
    let stage = Stage::open().await;
    // An opening that was repeated after a lost connection may have added less, but enough.
    let seeded = stage.available(Course::AtOnce).await;
    assert!(seeded <= 4_000, "{seeded}");
    let other = open(&stage.options).await;
    let second = opened(&other).await;
    assert_eq!(second.products().len(), 4, "the products are seeded once");
    let ids = |sandbox: &Sandbox| sandbox.products().iter().map(|(id, _)| *id).collect::<Vec<_>>();
    assert_eq!(ids(&second), ids(&stage.sandbox));
    for _ in 0..20 {
        let now = Utc::now();
        let (a, b) = tokio::join!(stage.sandbox.step(now), second.step(now));
        assert_eq!((a.unwrap(), b.unwrap()), (0, 0));
    }
    assert_eq!((stage.available(Course::AtOnce).await, stage.available(Course::InParts).await), (seeded, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_has_a_database_of_its_own() {
    let database = postgres::database().await;
    let ledger = open(&database.url.parse().unwrap()).await;
    assert!(open_if(false, &ledger, ledger.pool()).await.unwrap().is_none(), "an empty log can become either kind of ledger");
    Customer::with(&ledger, "10.00").await;
    let refused = Sandbox::open(&ledger, ledger.pool().clone(), PACE).await;
    assert!(matches!(refused, Err(SandboxError::NotASandbox)));
    let stage = Stage::open().await;
    let refused = open_if(false, &stage.ledger, stage.ledger.pool()).await;
    assert!(matches!(refused, Err(SandboxError::IsASandbox)));
    // A suspended account cannot fund itself, and no account can fund the wallet of another.
    let fund = |account_id, wallet_id| commands::FundWallet {
        account_id: Some(account_id),
        wallet_id,
        amount: money("1.00"),
        reference: uuid::Uuid::new_v4().to_string(),
        note: None,
    };
    let CommandResult::Account(other) = run(&stage.ledger, commands::CreateAccount { name: "Other".into() }).await else {
        panic!()
    };
    let refused = stage.ledger.execute(SHARD, fund(other.id, WalletId(1)), origin()).await.unwrap_err();
    assert_eq!(refused.to_string(), "not found");
    let status = ledger_events::account::AccountStatus::Suspended;
    run(&stage.ledger, commands::SetAccountStatus { account_id: stage.account_id, status }).await;
    let refused = stage.ledger.execute(SHARD, fund(stage.account_id, WalletId(1)), origin()).await.unwrap_err();
    assert_eq!(refused.to_string(), "the account is suspended");
}

/// Waits until an order has a status. Returns all statuses that it had, from the log, because polling could miss one.
async fn becomes(node: &Program, pool: &PgPool, client: &Client, id: &Value, wanted: &str) -> Vec<&'static str> {
    until(&format!("order {id} is {wanted}"), async || {
        let (_, order) = node.call(client, "GET", &format!("/orders/{id}"), None, &Value::Null).await.unwrap();
        order["status"] == wanted
    })
    .await;
    let types: Vec<String> =
        sqlx::query_scalar("SELECT type FROM events WHERE stream_id = $1 AND type LIKE 'Order%' ORDER BY position")
            .bind(id.as_i64().unwrap())
            .fetch_all(pool)
            .await
            .unwrap();
    let status = |kind: &String| match kind.as_str() {
        "OrderPlaced" => Some("PENDING"),
        "OrderDelayed" => Some("DELAYED"),
        "OrderPartiallyDelivered" => Some("PARTIALLY_DELIVERED"),
        "OrderDelivered" => Some("DELIVERED"),
        _ => None,
    };
    types.iter().filter_map(status).collect()
}

/// Returns products with the path alone of each image: a node that starts again has another port.
fn without_port(products: &Value) -> Value {
    let mut products = products.clone();
    for product in products.as_array_mut().unwrap() {
        let url: reqwest::Url = product["image_url"].as_str().unwrap().parse().unwrap();
        product["image_url"] = url.path().into();
    }
    products
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_funds_itself_and_sees_each_outcome() {
    let database = postgres::database().await;
    let mut node = Program::start(&database.url, &["--sandbox"]).await;
    let account_id = node.operator("/accounts", json!({"name": "Tester"})).await["id"].as_i64().unwrap();
    let credential = node.operator(&format!("/accounts/{account_id}/credentials"), json!({"name": "test"})).await;
    let wallet = node.operator(&format!("/accounts/{account_id}/wallets"), json!({"currency": "USD"})).await["id"].take();
    let text = |name: &str| credential[name].as_str().unwrap().to_owned();
    let client = Client { account_id, credential_id: 0, key: text("api_key"), secret: text("api_secret") };
    let call = async |method: &str, path: &str, body: Value| node.call(&client, method, path, None, &body).await.unwrap();

    let fund = format!("/sandbox/wallets/{wallet}/fund");
    let (status, funded) = call("POST", &fund, json!({"amount": "2000.00"})).await;
    assert_eq!((status, &funded["category"], &funded["balance_after"]), (201, &json!("FUNDING"), &json!("2000.00")));
    // A repeated key funds once. Without a key, each request funds.
    let key = Some("pocket money");
    let keyed = async || node.call(&client, "POST", &fund, key, &json!({"amount": "1.00"})).await.unwrap();
    let (first, again) = tokio::join!(keyed(), keyed());
    assert_eq!((first.0, &first.1), (201, &again.1));
    assert_eq!(call("POST", &fund, json!({"amount": "1.00"})).await.1["balance_after"], "2002.00");
    for (path, body, status, code) in [
        (fund.as_str(), json!({"amount": "0.00"}), 400, "E_VALIDATION_FAILURE"),
        (fund.as_str(), json!({"amount": "1.00", "reference": "mine"}), 400, "E_VALIDATION_FAILURE"),
        ("/sandbox/wallets/999/fund", json!({"amount": "1.00"}), 404, "E_NOT_FOUND"),
    ] {
        let (found, answer) = call("POST", path, body).await;
        assert_eq!((found, &answer["error"]["code"]), (status, &json!(code)), "{answer}");
    }

    let products = call("GET", "/products", Value::Null).await.1["products"].take();
    let mut placed = vec![];
    for name in ["Coffee Card", "Book Card", "Game Card", "Travel Card"] {
        let product = products.as_array().unwrap().iter().find(|product| product["name"] == name).unwrap();
        // The amount as it appears in JSON, as a number.
        let denomination: Value = serde_json::from_str(product["denominations"][0].as_str().unwrap()).unwrap();
        let order = json!({"product_id": product["id"], "denomination": denomination, "quantity": 2});
        let (status, order) = call("POST", "/orders", order).await;
        assert_eq!(status, 201, "{order}");
        placed.push(order["id"].clone());
    }
    let pool = PgPool::connect(&database.url).await.unwrap();
    let [at_once, in_parts, late, never] = &placed[..] else { panic!() };
    let (at_once, in_parts, late, never) = tokio::join!(
        becomes(&node, &pool, &client, at_once, "DELIVERED"),
        becomes(&node, &pool, &client, in_parts, "DELIVERED"),
        becomes(&node, &pool, &client, late, "DELIVERED"),
        becomes(&node, &pool, &client, never, "DELAYED"),
    );
    assert_eq!(at_once, ["PENDING", "DELIVERED"]);
    assert_eq!(in_parts, ["PENDING", "PARTIALLY_DELIVERED", "DELIVERED"]);
    assert_eq!(late, ["PENDING", "DELAYED", "DELIVERED"]);
    assert_eq!(never, ["PENDING", "DELAYED"]);
    let path = format!("/orders/{}", placed[3]);
    assert_eq!(
        call("GET", &path, Value::Null).await.1["status"],
        "DELAYED",
        "the late order is delivered, the never-delivered one is not"
    );
    let (_, cancelled) = call("POST", &format!("{path}/cancel"), json!({})).await;
    assert_eq!((&cancelled["status"], &cancelled["refunded_amount"]), (&json!("CANCELLED"), &json!("200.00")));
    let (_, codes) = call("GET", &format!("/orders/{}/vouchers", placed[0]), Value::Null).await;
    assert!(codes["vouchers"][0]["card_number"].as_str().unwrap().starts_with("SANDBOX-"), "{codes}");

    // The database can be served as a sandbox again, and not as anything else.
    node.restart().await;
    let (_, listed) = node.call(&client, "GET", "/products", None, &Value::Null).await.unwrap();
    assert_eq!(without_port(&listed["products"]), without_port(&products));
    let mut refused = node.command();
    let refused = refused.args(["serve", "--listen", "127.0.0.1:0"]).output().await.unwrap();
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("this database belongs to a sandbox"), "{told}");
}
