//! Shards that are added to nodes that run, and shards that go on while another one waits.

use chrono::{DateTime, Utc};
use ledger_database::PgConnectOptions;
use ledger_events::webhook::WebhookEventType;
use ledger_events::{OrderId, ShardId, WebhookId};
use rewards_ledger::delivery::worker::Worker;
use rewards_ledger::fulfilment::Fulfilment;
use rewards_ledger::ledger::commands::{self, RegisterWebhook};
use rewards_ledger::ledger::projector::ProjectionStep;
use rewards_ledger::ledger::{Command, CommandResult, Ledger};
use rewards_ledger::secrets::seal::{Secret, random_secret};
use rewards_ledger::telemetry::Metrics;
use serde_json::{Value, json};
use sqlx::{PgConnection, PgPool};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use webhook_client::receiver::ReceiverResponse;

use crate::support::ledger::{self, Customer, money, origin};
use crate::support::postgres;
use crate::support::program::{Client, Program};
use crate::support::shop::{DEADLINE, SHARD, Shop, receiver};
use crate::support::wait::{until, until_locked_out, until_true};

const SECOND: ShardId = 2;
/// Number of tries to see a step of one shard beside a statement of another that waits. A machine that pauses lets the
/// statement reach its timeout.
const TRIES: usize = 5;
/// Key of the advisory lock that allows one claim per shard at a time.
const CLAIM_LOCK: i32 = 0x0077_6864;

/// Adds the second shard, and waits until a node knows it.
async fn add_second(ledger: &Ledger) {
    ledger::run(ledger, commands::AddShard { shard_id: SECOND }).await;
    until("the node knows the new shard", async || ledger.shards() == [SHARD, SECOND]).await;
}

/// A shop with a customer in each of two shards. The second shard was added after the ledger was opened.
struct TwoShards {
    shop: Shop,
    second: Customer,
}

impl TwoShards {
    async fn open() -> TwoShards {
        let shop = Shop::open().await;
        add_second(&shop.ledger).await;
        let second = shop.customer;
        let mut shards = TwoShards { shop, second };
        let create = commands::CreateAccount { name: "Second".to_owned() };
        let CommandResult::Account(account) = shards.run(SECOND, create).await else { panic!("no account") };
        let open = commands::OpenWallet { account_id: account.id, currency: "EUR".parse().unwrap() };
        let CommandResult::Wallet(wallet) = shards.run(SECOND, open).await else { panic!("no wallet") };
        let (amount, reference) = (money("1000.00"), "opening".to_owned());
        let fund = commands::FundWallet { account_id: None, wallet_id: wallet.id, amount, reference, note: None };
        shards.run(SECOND, fund).await;
        (shards.second.account_id, shards.second.wallet_id) = (account.id, wallet.id);
        shards
    }

    async fn run(&self, shard: ShardId, command: impl Into<Command>) -> CommandResult {
        self.shop.ledger.execute(shard, command, origin()).await.unwrap()
    }

    fn customer(&self, shard: ShardId) -> &Customer {
        if shard == SHARD { &self.shop.customer } else { &self.second }
    }

    /// Places an order for one unit of 10.00.
    async fn order(&self, shard: ShardId) -> OrderId {
        let order = self.customer(shard).order("10.00", 1);
        let CommandResult::Order(view) = self.run(shard, order).await else { panic!("no order") };
        view.order.id
    }

    /// Registers a webhook for `order.created`.
    async fn webhook(&self, shard: ShardId, url: &str) -> WebhookId {
        let command = RegisterWebhook {
            account_id: self.customer(shard).account_id,
            name: Secret::new("test"),
            url: Secret::new(url),
            events: vec![WebhookEventType::OrderCreated],
            headers: None,
            credential_id: None,
            new_secret: random_secret(),
        };
        let CommandResult::Webhook(view) = self.run(shard, command).await else { panic!("no webhook") };
        view.webhook.id
    }

    /// Places an order and makes the deliveries of its shard.
    async fn announced(&self, shard: ShardId) {
        self.order(shard).await;
        let projector = self.shop.projector();
        until("nothing is left to project", async || projector.step(shard).await.unwrap() == ProjectionStep::Idle).await;
    }

    /// Waits until every delivery of a shard has its result.
    async fn recorded(&self, shard: ShardId) {
        let all = format!("SELECT coalesce(bool_and(status = 'delivered'), false) FROM delivery_state WHERE shard_id = {shard}");
        until_true("the results are recorded", self.shop.pool(), &all).await;
    }

    /// Checks that a worker delivers in the first shard while a statement on the connection of this name waits in the second one.
    async fn deliver_beside(name: &str, hold: impl AsyncFnOnce(&mut PgConnection, WebhookId)) {
        let shards = TwoShards::open().await;
        let (receiver, _arrivals) = receiver(|_| ReceiverResponse::Status(200)).await;
        shards.webhook(SHARD, &receiver.url()).await;
        let webhook = shards.webhook(SECOND, &receiver.url()).await;
        shards.announced(SECOND).await;
        let mut holder = shards.shop.admin().await;
        sqlx::raw_sql("BEGIN").execute(&mut holder).await.unwrap();
        hold(&mut holder, webhook).await;
        let watch = shards.shop.ledger.shard_watch().clone();
        let worker = Worker { shards: watch, ..shards.shop.worker(&receiver, DEADLINE) };
        let stop = CancellationToken::new();
        let running = tokio::spawn(worker.run(stop.clone()));
        goes_on_beside(&shards.shop.options, name, async || {
            shards.announced(SHARD).await;
            shards.recorded(SHARD).await;
        })
        .await;
        sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
        shards.recorded(SECOND).await;
        stop.cancel();
        running.await.unwrap();
    }
}

/// Returns the backend on a connection of this name that waits for a lock, and the start of its statement.
async fn waiting(admin: &mut PgConnection, name: &str) -> Option<(i32, DateTime<Utc>)> {
    let waits = "SELECT pid, query_start FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = $1 AND wait_event_type = 'Lock'";
    sqlx::query_as(waits).bind(name).fetch_optional(admin).await.unwrap()
}

/// Checks that a step is done while a single statement on a connection of this name waits for a lock.
async fn goes_on_beside(options: &PgConnectOptions, name: &str, mut step: impl AsyncFnMut()) {
    let mut admin = options.connect().await.unwrap();
    for _ in 0..TRIES {
        until_locked_out(options, name).await;
        let Some(before) = waiting(&mut admin, name).await else { continue };
        step().await;
        if waiting(&mut admin, name).await == Some(before) {
            return;
        }
    }
    panic!("nothing was done while a statement of {name} waited");
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_made_while_those_of_another_shard_wait() {
    let shards = TwoShards::open().await;
    shards.webhook(SHARD, "https://example.com/first").await;
    let webhook = shards.webhook(SECOND, "https://example.com/second").await;
    let mut holder = shards.shop.admin().await;
    sqlx::raw_sql("BEGIN").execute(&mut holder).await.unwrap();
    let count = "INSERT INTO delivery_counts (shard_id, account_id, webhook_id, event_type, deliveries)
        VALUES ($1, $2, $3, 'order.created', 0)";
    let count = sqlx::query(count).bind(SECOND).bind(shards.second.account_id).bind(webhook);
    count.execute(&mut holder).await.unwrap();
    shards.order(SECOND).await;
    let stop = CancellationToken::new();
    let running = tokio::spawn(shards.shop.projector().run(stop.clone()));
    goes_on_beside(&shards.shop.options, "rewards-ledger projector", async || {
        let order = shards.order(SHARD).await;
        let made = format!("SELECT EXISTS (SELECT FROM deliveries WHERE shard_id = {SHARD} AND order_id = {order})");
        until_true("the delivery is made", shards.shop.pool(), &made).await;
    })
    .await;
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn totals_are_added_up_while_those_of_another_shard_wait() {
    let shards = TwoShards::open().await;
    let mut holder = shards.shop.admin().await;
    sqlx::raw_sql("BEGIN").execute(&mut holder).await.unwrap();
    let count = "INSERT INTO order_counts (shard_id, account_id, product_id, status, orders) VALUES ($1, $2, $3, 'PENDING', 0)";
    let count = sqlx::query(count).bind(SECOND).bind(shards.second.account_id).bind(shards.second.product_id);
    count.execute(&mut holder).await.unwrap();
    shards.order(SECOND).await;
    let stop = CancellationToken::new();
    let running = tokio::spawn(shards.shop.projector().run(stop.clone()));
    goes_on_beside(&shards.shop.options, "rewards-ledger totals", async || {
        shards.order(SHARD).await;
        let added_up = format!(
            "SELECT EXISTS (SELECT FROM projection_checkpoints c JOIN log_head h USING (shard_id, position)
             WHERE shard_id = {SHARD} AND projection = 'daily_totals')"
        );
        until_true("the order is added up", shards.shop.pool(), &added_up).await;
    })
    .await;
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_claimed_while_a_claim_of_another_shard_waits() {
    TwoShards::deliver_beside("rewards-ledger claims", async |holder, _| {
        let lock = sqlx::query("SELECT pg_advisory_xact_lock($1, $2)").bind(CLAIM_LOCK).bind(i32::from(SECOND));
        lock.execute(holder).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_recorded_while_those_of_another_shard_wait() {
    TwoShards::deliver_beside("rewards-ledger results", async |holder, webhook| {
        let days = "INSERT INTO delivery_days (shard_id, webhook_id, day, attempts, delivered, total_ms, longest_ms)
            SELECT $1, $2, (clock_timestamp() AT TIME ZONE 'UTC')::date + ahead, 0, 0, 0, 0 FROM generate_series(0, 1) AS ahead";
        sqlx::query(days).bind(SECOND).bind(webhook).execute(holder).await.unwrap();
    })
    .await;
}

/// Statements that wait for locks could hold all connections of a pool.
#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_sent_while_those_of_another_shard_hold_all_connections_of_their_pool() {
    let shards = TwoShards::open().await;
    let (receiver, _arrivals) = receiver(|_| ReceiverResponse::Status(200)).await;
    shards.webhook(SECOND, &receiver.url()).await;
    shards.announced(SECOND).await;
    let watch = shards.shop.ledger.shard_watch().clone();
    let worker = Worker { shards: watch, ..shards.shop.worker(&receiver, DEADLINE) };
    let pool = worker.database.separate(SHARD).pool;
    let mut held = vec![];
    for _ in 0..pool.size() {
        held.push(pool.acquire().await.unwrap());
    }
    let stop = CancellationToken::new();
    let running = tokio::spawn(worker.run(stop.clone()));
    shards.recorded(SECOND).await;
    drop(held);
    stop.cancel();
    running.await.unwrap();
}

/// A loop for both shards would wait for the writer of the second one as long as a command may take.
#[tokio::test(flavor = "multi_thread")]
async fn orders_are_fulfilled_while_the_head_of_another_shard_is_locked() {
    let shards = TwoShards::open().await;
    let shop = &shards.shop;
    shop.load("a", 100, None).await;
    for _ in 0..TRIES {
        shards.order(SECOND).await;
        let mut holder = shop.admin().await;
        sqlx::raw_sql("BEGIN").execute(&mut holder).await.unwrap();
        let head = sqlx::query("SELECT FROM log_head WHERE shard_id = $1 FOR UPDATE").bind(SECOND);
        head.execute(&mut holder).await.unwrap();
        // It gets its reply before any command of fulfilment in the same shard.
        let command = commands::CreateAccount { name: "Waits".to_owned() };
        let mut earlier = shop.ledger.enqueue(SECOND, command, origin(), None).unwrap();
        let stop = CancellationToken::new();
        let running = tokio::spawn(Fulfilment::new(shop.ledger.clone(), shop.metrics.clone()).run(stop.clone()));
        // The loop would turn only twice before it waits.
        for _ in 0..4 {
            let order = shop.order(1).await;
            until("the order is delivered", async || shop.find(order).await.delivered_quantity == 1).await;
        }
        let has_waited = earlier.try_recv().is_err();
        sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
        stop.cancel();
        running.await.unwrap();
        if has_waited {
            return;
        }
    }
    panic!("no orders were delivered while the writer of the other shard waited");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_writer_of_an_added_shard_ends_with_the_ledger() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let tasks = TaskTracker::new();
    let ledger = Ledger::open(&options, ledger::keyring(), Metrics::default(), &tasks).await.unwrap();
    add_second(&ledger).await;
    let command = commands::CreateAccount { name: "Accepted".to_owned() };
    let accepted = ledger.enqueue(SECOND, command, origin(), None).unwrap();
    let (wake, running) = (ledger.wake().clone(), tasks.len());
    drop(ledger);
    // Two writers, and the task that looks for new shards. Nothing has stopped them but the end of the ledger.
    until("the writers end", async || tasks.len() == running - 3).await;
    accepted.await.unwrap().unwrap();
    wake.stop();
    tasks.close();
    tokio::time::timeout(DEADLINE, tasks.wait()).await.expect("all tasks end");
}

/// Creates an account in the second shard, with a credential and a funded wallet, as soon as the node knows the shard.
async fn client_in_second(node: &Program) -> Client {
    let mut account = Value::Null;
    until("the node writes the new shard", async || {
        let (status, answer) = node.try_operator("/accounts", &json!({"name": "Second", "shard_id": SECOND})).await.unwrap();
        account = answer;
        assert!([201, 503].contains(&status), "{status} {account}");
        status == 201
    })
    .await;
    let account_id = account["id"].as_i64().unwrap();
    let credential = node.operator(&format!("/accounts/{account_id}/credentials"), json!({"name": "test"})).await;
    let wallet = node.operator(&format!("/accounts/{account_id}/wallets"), json!({"currency": "EUR"})).await;
    let funding = json!({"amount": "100.00", "reference": "opening"});
    node.operator(&format!("/wallets/{}/fund", wallet["id"]), funding).await;
    let text = |name: &str| credential[name].as_str().unwrap().to_owned();
    Client { account_id, credential_id: credential["id"].as_i64().unwrap(), key: text("api_key"), secret: text("api_secret") }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_is_added_works_on_every_node_that_runs() {
    let database = postgres::database().await;
    let (receiver, mut arrivals) = receiver(|_| ReceiverResponse::Status(200)).await;
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), receiver.ca_pem()).unwrap();
    let trust = ["--webhook-ca-file", ca.path().to_str().unwrap(), "--webhook-allow-nets", "127.0.0.0/8,::1/128"];
    let node = Program::start(&database.url, &trust).await;
    let other = Program::start(&database.url, &["--roles", "api"]).await;
    let product = node.product(1).await;
    let added = other.operator("/shards", json!({"shard_id": 2})).await;
    assert_eq!(added["id"], SECOND, "{added}");
    let client = client_in_second(&node).await;
    let webhook = json!({"name": "a", "url": receiver.url(), "events": ["order.delivered"]});
    until("the other node writes the new shard", async || {
        let (status, answer) = other.call(&client, "POST", "/webhooks", None, &webhook).await.unwrap();
        assert!([201, 503].contains(&status), "{status} {answer}");
        status == 201
    })
    .await;
    let order = json!({"product_id": product, "denomination": 10, "quantity": 1});
    let (status, order) = other.call(&client, "POST", "/orders", Some("first"), &order).await.unwrap();
    assert_eq!(status, 201, "{order}");
    let arrived = tokio::time::timeout(DEADLINE, arrivals.recv()).await.expect("the webhook is called").unwrap();
    assert_eq!(arrived.event_type(), Some("order.delivered"));
    let pool = PgPool::connect(&database.url).await.unwrap();
    let recorded = "SELECT coalesce(bool_and(status = 'delivered'), false) FROM delivery_state WHERE shard_id = 2";
    until_true("the result is recorded", &pool, recorded).await;
    for (what, table) in [
        ("the totals", "projection_checkpoints c ON c.position = h.position AND c.projection = 'daily_totals'"),
        ("the counts of lists", "list_checkpoints c ON c.position = h.position"),
        ("the signed tree", "log_checkpoints c ON c.size = h.position"),
    ] {
        let reaches =
            format!("SELECT EXISTS (SELECT FROM log_head h JOIN {table} AND c.shard_id = h.shard_id WHERE h.shard_id = 2)");
        until_true(&format!("{what} reach the end of the log"), &pool, &reaches).await;
    }
    let shown = ["ledger_log_head_position", "ledger_writer_queue_depth", "ledger_delivery_health_position"];
    until("the shard has its metrics", async || {
        let metrics = reqwest::get(format!("{}/metrics", node.url())).await.unwrap().text().await.unwrap();
        shown.iter().all(|name| metrics.contains(&format!("{name}{{shard=\"2\"}}")))
    })
    .await;
}
