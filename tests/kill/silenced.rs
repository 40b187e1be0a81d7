//! A network that goes silent: the bytes of some connections are acknowledged but not forwarded. Each part of a node
//! closes such a connection, logs it, and works again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::{ConnectOptions, PgPool};
use webhook_client::receiver::Receiver;

use super::{Arrivals, receiver};
use crate::support::node::PASSWORD;
use crate::support::postgres::{self, TestDatabase};
use crate::support::program::{Client, OPERATOR_TOKEN, Program};
use crate::support::proxy::Proxy;
use crate::support::tree;
use crate::support::wait::{until, until_true};
use crate::transparency::witnesses::witness;

/// Longest time from the silence of a connection until its part works again.
const PROMISE: Duration = Duration::from_secs(15);
/// Number of tries to show the promise. A machine that is busy with other work may break it.
const TRIES: usize = 3;

/// An effect by which one sees that a part of a node works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// An order is placed.
    Placed,
    /// The holder of an access token sees it.
    Seen,
    /// A request that waits for events gets the order's.
    Pulled,
    /// The order is delivered.
    Delivered,
    /// Its webhook is called.
    Announced,
    /// The call is recorded.
    Recorded,
    /// The order is in the daily totals.
    AddedUp,
    /// The order is in a signed tree.
    InTree,
    /// A witness has cosigned that tree.
    Witnessed,
    /// Its events are delivered again on request.
    Replayed,
}

/// Connections of a node by their `application_name`, each with the effects of the loops and requests that use it.
type Parts = &'static [(&'static str, &'static [Effect])];

const OF_REQUESTS: Parts = &[
    ("rewards-ledger", &[Effect::Seen, Effect::Pulled]),
    ("rewards-ledger access", &[Effect::Seen]),
    ("rewards-ledger gate", &[Effect::Placed]),
    ("rewards-ledger writer", &[Effect::Placed]),
    ("rewards-ledger writer reads", &[Effect::Placed]),
];
const OF_THE_LOG: Parts = &[
    ("rewards-ledger fulfilment", &[Effect::Delivered]),
    ("rewards-ledger projector", &[Effect::Announced]),
    ("rewards-ledger totals", &[Effect::AddedUp]),
    ("rewards-ledger tree", &[Effect::InTree]),
    ("rewards-ledger maintenance", &[Effect::Replayed, Effect::Witnessed]),
];
const OF_DELIVERIES: Parts = &[
    ("rewards-ledger delivery", &[Effect::Recorded]),
    ("rewards-ledger claims", &[Effect::Announced]),
    ("rewards-ledger results", &[Effect::Recorded]),
    ("rewards-ledger notifier", &[Effect::Announced]),
    ("rewards-ledger listener", &[Effect::Announced]),
];

/// Loops of a node with every role, and with a witness.
const LOOPS: [&str; 27] = [
    "clock",
    "delivery",
    "delivery health",
    "delivery results",
    "expiry of vouchers",
    "fulfilment",
    "gate",
    "key uses",
    "listener",
    "lists and totals",
    "low stock",
    "mail",
    "master keys",
    "moves of vouchers",
    "new shards",
    "notifier ledger_deliveries",
    "notifier ledger_log",
    "projector",
    "purge",
    "replays",
    "retention",
    "sessions",
    "tree",
    "trims",
    "waiting requests",
    "witnesses",
    "writer 1",
];

/// A node behind a proxy, and its users.
struct Scene {
    program: Program,
    proxy: Proxy,
    pool: PgPool,
    client: Client,
    product: i64,
    webhook: i64,
    access_token: String,
    http: reqwest::Client,
    arrivals: Arrivals,
}

impl Scene {
    /// Retries a request until it succeeds. Any response except a temporary refusal is a fault.
    async fn insist(&self, request: impl Fn() -> reqwest::RequestBuilder) -> Value {
        loop {
            if let Ok(answer) = request().send().await {
                let status = answer.status().as_u16();
                let body: Value = answer.json().await.unwrap_or_default();
                match status {
                    200 | 201 => return body["data"].clone(),
                    503 | 504 | 409 => {}
                    _ => panic!("{status} {body}"),
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await; // the pause of a client before it retries
        }
    }

    async fn order(&self, key: &str) -> i64 {
        let body = json!({"product_id": self.product, "denomination": 10, "quantity": 1}).to_string();
        let placed = self
            .insist(|| {
                let request = self.http.post(format!("{}/api/v1/orders", self.program.url()));
                let request = request.header("X-API-Key", &self.client.key).header("X-API-Secret", &self.client.secret);
                request.header("Idempotency-Key", key).header("Content-Type", "application/json").body(body.clone())
            })
            .await;
        placed["id"].as_i64().unwrap()
    }

    /// Returns an order as the holder of an access token sees it.
    async fn seen(&self, order: i64) -> Value {
        let url = format!("{}/api/v1/orders/{order}", self.program.url());
        self.insist(|| self.http.get(&url).bearer_auth(&self.access_token)).await
    }

    /// Places an order, and waits until one sees this effect of it.
    async fn shows(&self, effect: Effect, key: &str) {
        if effect == Effect::Pulled {
            return self.pull(key).await;
        }
        let order = self.order(key).await;
        let what = format!("{key}: {effect:?}");
        match effect {
            Effect::Placed | Effect::Pulled => return,
            Effect::Seen => return drop(self.seen(order).await),
            _ => until(&what, async || self.seen(order).await["status"] == "DELIVERED").await,
        }
        let event: String = sqlx::query_scalar(
            "SELECT event_id::text FROM events WHERE stream_type = 'order' AND stream_id = $1 AND type = 'OrderDelivered'",
        )
        .bind(order)
        .fetch_one(&self.pool)
        .await
        .unwrap();
        let times = || self.arrivals.lock().unwrap().keys().filter(|(_, id)| *id == event).count();
        let reaches = |reached: &str| {
            format!("SELECT coalesce(({reached}), 0) >= (SELECT position FROM events WHERE event_id = '{event}')")
        };
        let told = match effect {
            Effect::Announced => return until(&what, async || times() > 0).await,
            Effect::Replayed => return self.replay(&what).await,
            Effect::Recorded => format!(
                "SELECT coalesce(bool_and(s.status = 'delivered'), false) FROM deliveries d JOIN delivery_state s ON s.delivery_id = d.id
                 WHERE d.event_id = '{event}'"
            ),
            Effect::AddedUp => reaches("SELECT position FROM projection_checkpoints WHERE projection = 'daily_totals'"),
            Effect::InTree => reaches("SELECT max(size) FROM log_checkpoints"),
            Effect::Witnessed => reaches("SELECT max(size) FROM log_cosignatures"),
            Effect::Placed | Effect::Seen | Effect::Pulled | Effect::Delivered => return,
        };
        until_true(&what, &self.pool, &told).await;
    }

    /// Waits for an event of an order that is placed meanwhile.
    async fn pull(&self, key: &str) {
        let url = |query: &str| format!("{}/api/v1/events?after={query}", self.program.url());
        let latest = self.insist(|| self.http.get(url("latest")).bearer_auth(&self.access_token)).await;
        let query = format!("{}&wait=30&types=order.created", latest["cursor"].as_str().unwrap());
        let pulls = self.insist(|| self.http.get(url(&query)).bearer_auth(&self.access_token));
        let (pulled, _) = tokio::join!(pulls, self.order(key));
        assert_ne!(pulled["events"], json!([]), "{pulled}");
    }

    /// Replays what the webhook missed in the last minute, which is nothing, to the end.
    async fn replay(&self, what: &str) {
        let url = format!("{}/api/v1/webhooks/{}/replays", self.program.url(), self.webhook);
        let body = json!({"since": chrono::Utc::now() - chrono::TimeDelta::minutes(1)}).to_string();
        let started = self
            .insist(|| {
                let request = self.http.post(&url).header("Content-Type", "application/json").body(body.clone());
                request.bearer_auth(&self.access_token)
            })
            .await;
        until(what, async || {
            let listed = self.insist(|| self.http.get(&url).bearer_auth(&self.access_token)).await;
            let replays = listed["replays"].as_array().unwrap();
            replays.iter().any(|replay| replay["id"] == started["replay"]["id"] && replay["status"] == "COMPLETED")
        })
        .await;
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let answer = self.http.get(format!("{}{path}", self.program.url())).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }
}

impl Scene {
    /// Starts a node behind a proxy with an account, a product, a webhook, a user who has logged in, and a witness.
    async fn start(database: &TestDatabase) -> (Arc<Scene>, Beside) {
        let (receiver, arrivals, ca) = receiver(Arc::default()).await;
        let (proxy, through) = Proxy::before(&database.url).await;
        let (_, witness_url) = witness().await;
        let key = tree::witness(1).to_string();
        let arguments = [
            ["--webhook-ca-file", ca.path().to_str().unwrap()],
            ["--webhook-allow-nets", "127.0.0.0/8,::1/128"],
            ["--log-origin", tree::ORIGIN],
            ["--log-witnesses", &key],
            ["--log-witness-urls", &witness_url],
        ];
        let program = Program::start(through.hosts()[0].to_url_lossy().as_str(), arguments.as_flattened()).await;
        let client = program.client("1000000.00").await;
        let product = program.product(100_000).await;
        let webhook = json!({"name": "a", "url": receiver.url(), "events": ["order.delivered"]});
        let (status, webhook) = program.call(&client, "POST", "/webhooks", None, &webhook).await.unwrap();
        assert_eq!(status, 201, "{webhook}");
        let user = json!({"email": "reader@example.com", "password": PASSWORD, "role": "owner"});
        program.operator(&format!("/accounts/{}/users", client.account_id), user).await;
        let http = reqwest::Client::builder().timeout(Duration::from_secs(60)).build().unwrap();
        let login = http.post(format!("{}/auth/login", program.url())).header("Content-Type", "application/json");
        let login = login.body(json!({"email": "reader@example.com", "password": PASSWORD}).to_string()).send().await.unwrap();
        let login: Value = login.json().await.unwrap();
        let access_token = login["data"]["access_token"].as_str().unwrap_or_else(|| panic!("{login}")).to_owned();
        let pool = PgPool::connect(&database.url).await.unwrap();
        let webhook = webhook["id"].as_i64().unwrap();
        let scene = Scene { program, proxy, pool, client, product, webhook, access_token, http, arrivals };
        (Arc::new(scene), Beside { _receiver: receiver, _ca: ca })
    }

    /// Silences the connections of one name. Returns the time until the node shows the effect again.
    async fn recovers(&self, name: &str, effect: Effect, key: &str) -> Duration {
        until(&format!("{name} is connected"), async || self.proxy.heard(name) > 0).await;
        let silenced = self.proxy.silence(name);
        let since = Instant::now();
        self.shows(effect, key).await;
        let took = since.elapsed();
        for connection in silenced {
            until(&format!("{name} is closed by the node"), async || connection.has_ended()).await;
        }
        let says = format!("\"connection\":\"{name}\"");
        until(&format!("{name} is named in the log"), async || {
            self.program.log().lines().any(|line| line.contains(&says) && line.contains("within the deadline"))
        })
        .await;
        took
    }

    /// Checks that the node is ready, and that each of its loops goes on and is shown.
    async fn is_well(&self) {
        let mut ready = String::new();
        until("the node is ready", async || {
            let (status, text) = self.get("/readyz").await;
            ready = text;
            status == 200
        })
        .await;
        let ready: Value = serde_json::from_str(&ready).unwrap();
        let (_, metrics) = self.get("/metrics").await;
        for name in LOOPS {
            let shown = ready["data"]["loops"].as_array().unwrap().iter().find(|state| state["name"] == name);
            assert_eq!(shown.map(|state| &state["is_stalled"]), Some(&json!(false)), "{name}: {ready}");
            assert!(metrics.contains(&format!("ledger_loop_heartbeat_age_seconds{{loop=\"{name}\"}}")), "{name}: {metrics}");
        }
    }
}

/// Parts beside a scene, which live as long as it.
struct Beside {
    _receiver: Receiver,
    _ca: tempfile::NamedTempFile,
}

/// Silences the connections one name after another, under load. Each part of the node shows its effect again in time.
async fn each_works_again(parts: Parts) {
    let database = postgres::database().await;
    let (scene, _beside) = Scene::start(&database).await;
    scene.shows(Effect::Recorded, "first").await;
    // Some clients keep placing and reading orders, so that every part has work.
    let stop = Arc::new(AtomicBool::new(false));
    let load: Vec<_> = (0..2)
        .map(|lane| {
            let (scene, stop) = (scene.clone(), stop.clone());
            tokio::spawn(async move {
                let mut placed = 0;
                while !stop.load(Ordering::SeqCst) {
                    let order = scene.order(&format!("load-{lane}-{placed}")).await;
                    scene.seen(order).await;
                    placed += 1;
                    tokio::time::sleep(Duration::from_millis(20)).await; // leaves the processor to the node's other parts
                }
                placed
            })
        })
        .collect();
    for (name, effects) in parts {
        for effect in *effects {
            let mut took = vec![];
            while took.len() < TRIES && took.last().is_none_or(|took| *took > PROMISE) {
                took.push(scene.recovers(name, *effect, &format!("{name} {effect:?} {}", took.len())).await);
            }
            assert!(took.last().is_some_and(|took| *took <= PROMISE), "{name}, {effect:?}: {took:?}");
        }
    }
    stop.store(true, Ordering::SeqCst);
    for lane in load {
        assert!(lane.await.unwrap() > 0, "orders were placed all the while");
    }
    scene.is_well().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_part_that_answers_requests_closes_a_silent_connection_says_so_and_works_again() {
    each_works_again(OF_REQUESTS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_part_that_follows_the_log_closes_a_silent_connection_says_so_and_works_again() {
    each_works_again(OF_THE_LOG).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_part_of_the_delivery_closes_a_silent_connection_says_so_and_works_again() {
    each_works_again(OF_DELIVERIES).await;
}

/// Work that is due every minute or every ten minutes is repeated soon after it has failed.
#[tokio::test(flavor = "multi_thread")]
async fn purge_retention_and_low_stock_work_again_soon_after_a_silence() {
    const MAINTENANCE: &str = "rewards-ledger maintenance";
    let database = postgres::database().await;
    let (proxy, through) = Proxy::before(&database.url).await;
    let mut program = Program::start(through.hosts()[0].to_url_lossy().as_str(), &["--roles", "api,fulfilment,delivery"]).await;
    let product = program.product(0).await;
    let threshold = json!({"denomination": "10.00", "threshold": 5});
    let url = format!("{}/admin/v1/products/{product}/stock-threshold", program.url());
    let set = reqwest::Client::new().put(url).bearer_auth(OPERATOR_TOKEN).header("Content-Type", "application/json");
    assert!(set.body(threshold.to_string()).send().await.unwrap().status().is_success());
    let pool = PgPool::connect(&database.url).await.unwrap();
    let rows = "SELECT (SELECT count(*) FROM vault.password_resets) + (SELECT count(*) FROM delivery_attempts) = 0";
    let mut took = vec![];
    while took.len() < TRIES && took.last().is_none_or(|took| *took > PROMISE) {
        sqlx::raw_sql(
            "INSERT INTO vault.password_resets (token_hash, expires_at, mac) VALUES (sha256('old'), now() - interval '1 hour', sha256('mac'));
             INSERT INTO delivery_attempts (shard_id, delivery_id, request_id, attempt, started_at, url_hash, secret_hash)
             VALUES (1, 1, gen_random_uuid(), 1, now() - interval '2 years', '', '')",
        )
        .execute(&pool)
        .await
        .unwrap();
        proxy.silence_new(Some(MAINTENANCE));
        let before = program.log().lines().count();
        program.restart().await;
        let says = |text: &str| program.log().lines().skip(before).any(|line| line.contains(text));
        for failed in ["failed to delete expired rows", "retention pass failed", "failed to check the stock"] {
            until(failed, async || says(failed)).await;
        }
        proxy.silence_new(None);
        let since = Instant::now();
        until_true("the old rows are gone", &pool, rows).await;
        until("the low stock is told", async || says("the stock is low")).await;
        took.push(since.elapsed());
    }
    assert!(took.last().is_some_and(|took| *took <= PROMISE), "{took:?}");
}

/// A sandbox delivers on a connection of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_delivers_again_soon_after_a_silence() {
    const WORK: &str = "rewards-ledger fulfilment";
    let database = postgres::database().await;
    let (proxy, through) = Proxy::before(&database.url).await;
    let program = Program::start(through.hosts()[0].to_url_lossy().as_str(), &["--sandbox"]).await;
    let client = program.client("10.00").await;
    let wallet = program.operator(&format!("/accounts/{}/wallets", client.account_id), json!({"currency": "USD"})).await;
    let funding = json!({"amount": "1000.00", "reference": "dollars"});
    program.operator(&format!("/wallets/{}/fund", wallet["id"]), funding).await;
    let products = program.call(&client, "GET", "/products", None, &Value::Null).await.unwrap().1;
    let product = products["products"].as_array().unwrap().iter().find(|product| product["name"] == "Coffee Card").unwrap();
    let denomination: Value = serde_json::from_str(product["denominations"][0].as_str().unwrap()).unwrap();
    let body = json!({"product_id": product["id"], "denomination": denomination, "quantity": 1});
    let is_delivered = async |key: &str| {
        let (status, placed) = program.call(&client, "POST", "/orders", Some(key), &body).await.unwrap();
        assert_eq!(status, 201, "{placed}");
        let path = format!("/orders/{}", placed["id"]);
        until(key, async || program.call(&client, "GET", &path, None, &Value::Null).await.unwrap().1["status"] == "DELIVERED")
            .await;
    };
    is_delivered("before").await;
    let mut took = vec![];
    while took.len() < TRIES && took.last().is_none_or(|took| *took > PROMISE) {
        until("it is connected", async || proxy.heard(WORK) > 0).await;
        proxy.silence(WORK);
        let since = Instant::now();
        is_delivered(&format!("after {}", took.len())).await;
        took.push(since.elapsed());
    }
    assert!(took.last().is_some_and(|took| *took <= PROMISE), "{took:?}");
}
