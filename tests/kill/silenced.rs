//! A network that goes silent: the bytes of some connections are acknowledged but not forwarded. Each part of a node
//! closes such a connection, logs it, and works again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::PgPool;

use super::{Arrivals, receiver};
use crate::support::node::PASSWORD;
use crate::support::postgres;
use crate::support::program::{Client, Program};
use crate::support::proxy::Proxy;
use crate::support::wait::{until, until_true};

/// Connections of a node by their `application_name`, silenced in waves: first those that answer requests, then those
/// that follow the log, then the rest.
const WAVES: [&[&str]; 3] = [
    &["rewards-ledger", "rewards-ledger access", "rewards-ledger gate", "rewards-ledger writer"],
    &[
        "rewards-ledger fulfilment",
        "rewards-ledger projector",
        "rewards-ledger totals",
        "rewards-ledger tree",
        "rewards-ledger delivery",
        "rewards-ledger claims",
        "rewards-ledger results",
    ],
    &["rewards-ledger writer reads", "rewards-ledger maintenance", "rewards-ledger notifier", "rewards-ledger listener"],
];

/// Loops of a node with every role.
const LOOPS: [&str; 19] = [
    "clock",
    "delivery",
    "delivery health",
    "delivery results",
    "fulfilment",
    "gate",
    "listener",
    "lists and totals",
    "mail",
    "master keys",
    "notifier ledger_deliveries",
    "notifier ledger_log",
    "projector",
    "purge",
    "replays",
    "retention",
    "sessions",
    "tree",
    "writer 1",
];

/// A node behind a proxy, and its users.
struct Scene {
    program: Program,
    proxy: Proxy,
    pool: PgPool,
    client: Client,
    product: i64,
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

    /// Takes an order through all stages: placed, delivered, visible, announced to its webhook, in the totals and in
    /// the tree.
    async fn one_order_goes_its_way(&self, key: &str) {
        let order = self.order(key).await;
        until(&format!("{key} is delivered"), async || self.seen(order).await["status"] == "DELIVERED").await;
        let event: String = sqlx::query_scalar(
            "SELECT event_id::text FROM events WHERE stream_type = 'order' AND stream_id = $1 AND type = 'OrderDelivered'",
        )
        .bind(order)
        .fetch_one(&self.pool)
        .await
        .unwrap();
        until(&format!("{key} is announced"), async || self.arrivals.lock().unwrap().keys().any(|(_, id)| *id == event)).await;
        until_true(
            &format!("{key} is recorded as announced"),
            &self.pool,
            &format!(
                "SELECT bool_and(s.status = 'delivered') FROM deliveries d JOIN delivery_state s ON s.delivery_id = d.id
                 WHERE d.event_id = '{event}'"
            ),
        )
        .await;
        for (what, table) in
            [("added up", "projection_checkpoints WHERE projection = 'daily_totals'"), ("in the tree", "log_checkpoints")]
        {
            let position = if table.starts_with("log_") { "size" } else { "position" };
            let sql = format!(
                "SELECT coalesce((SELECT max({position}) FROM {table}), 0) >= (SELECT position FROM events WHERE event_id = '{event}')"
            );
            until_true(&format!("{key} is {what}"), &self.pool, &sql).await;
        }
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let answer = self.http.get(format!("{}{path}", self.program.url())).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_part_of_a_node_closes_a_silent_connection_says_so_and_works_again() {
    let database = postgres::database().await;
    let (receiver, arrivals, ca) = receiver(Arc::default()).await;
    let (proxy, _) = Proxy::before(&database.url).await;
    let mut through: reqwest::Url = database.url.parse().unwrap();
    through.set_host(Some("127.0.0.1")).unwrap();
    through.set_port(Some(proxy.address.port())).unwrap();
    let arguments = ["--webhook-ca-file", ca.path().to_str().unwrap(), "--webhook-allow-nets", "127.0.0.0/8,::1/128"];
    let program = Program::start(through.as_str(), &arguments).await;
    let client = program.client("1000000.00").await;
    let product = program.product(100_000).await;
    let webhook = json!({"name": "a", "url": receiver.url(), "events": ["order.delivered"]});
    assert_eq!(program.call(&client, "POST", "/webhooks", None, &webhook).await.unwrap().0, 201);
    let user = json!({"email": "reader@example.com", "password": PASSWORD, "role": "owner"});
    program.operator(&format!("/accounts/{}/users", client.account_id), user).await;
    let http = reqwest::Client::builder().timeout(Duration::from_secs(30)).build().unwrap();
    let login = http.post(format!("{}/auth/login", program.url())).header("Content-Type", "application/json");
    let login = login.body(json!({"email": "reader@example.com", "password": PASSWORD}).to_string()).send().await.unwrap();
    let login: Value = login.json().await.unwrap();
    let access_token = login["data"]["access_token"].as_str().unwrap_or_else(|| panic!("{login}")).to_owned();
    let pool = PgPool::connect(&database.url).await.unwrap();
    let scene = Arc::new(Scene { program, proxy, pool, client, product, access_token, http, arrivals });
    scene.one_order_goes_its_way("first").await;

    // Some clients keep placing and reading orders, so that every part has work.
    let stop = Arc::new(AtomicBool::new(false));
    let load: Vec<_> = (0..4)
        .map(|lane| {
            let (scene, stop) = (scene.clone(), stop.clone());
            tokio::spawn(async move {
                let mut placed = 0;
                while !stop.load(Ordering::SeqCst) {
                    let order = scene.order(&format!("load-{lane}-{placed}")).await;
                    scene.seen(order).await;
                    placed += 1;
                }
                placed
            })
        })
        .collect();

    for names in WAVES {
        for name in names {
            until(&format!("{name} is connected"), async || scene.proxy.heard(name) > 0).await;
        }
        let silenced: Vec<_> =
            names.iter().flat_map(|name| scene.proxy.silence(name).into_iter().map(move |one| (name, one))).collect();
        scene.one_order_goes_its_way(names[0]).await;
        for (name, connection) in silenced {
            until(&format!("{name} is closed by the node"), async || connection.is_closed_by_client()).await;
            until(&format!("{name} is connected again"), async || scene.proxy.heard(name) > 0).await;
            let says = format!("\"connection\":\"{name}\"");
            until(&format!("{name} is named in the log"), async || {
                let log = scene.program.log();
                log.lines().any(|line| line.contains(&says) && line.contains("within the deadline"))
            })
            .await;
        }
    }
    stop.store(true, Ordering::SeqCst);
    for lane in load {
        assert!(lane.await.unwrap() > 0, "orders were placed all the while");
    }

    let mut ready = String::new();
    until("the node is ready", async || {
        let (status, text) = scene.get("/readyz").await;
        ready = text;
        status == 200
    })
    .await;
    let ready: Value = serde_json::from_str(&ready).unwrap();
    let (_, metrics) = scene.get("/metrics").await;
    for name in LOOPS {
        let shown = ready["data"]["loops"].as_array().unwrap().iter().find(|state| state["name"] == name);
        assert_eq!(shown.map(|state| &state["is_stalled"]), Some(&json!(false)), "{name}: {ready}");
        assert!(metrics.contains(&format!("ledger_loop_heartbeat_age_seconds{{loop=\"{name}\"}}")), "{name}: {metrics}");
    }
}
