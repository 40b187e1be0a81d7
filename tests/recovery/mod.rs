//! Management of deliveries by clients and operators: tests, statistics, retries, replays, and retention.

mod changes;
mod health;
mod management;
mod processes;
mod replay;
mod retention;
mod retry;
mod silence;
mod weight;

use rewards_ledger::audit::verify;
use serde_json::json;
use webhook_client::receiver::Receiver;

use crate::support::node::{Client, Node, Setup};
use crate::support::shop::{DEADLINE, worker};

/// Registers a webhook for these event types. Returns its id and token.
async fn webhook(node: &Node, client: &Client, url: &str, events: &[&str]) -> (i64, String) {
    let body = json!({"name": "hook", "url": url, "events": events});
    let made = node.client(client, "POST", "/webhooks", body).await.json();
    (made["id"].as_i64().unwrap(), made["token"].as_str().unwrap().to_owned())
}

async fn order(node: &Node, setup: &Setup) -> i64 {
    let body = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    node.client(&setup.client, "POST", "/orders", body).await.data(201)["id"].as_i64().unwrap()
}

async fn switch(node: &Node, client: &Client, webhook: i64, is_active: bool) {
    node.client(client, "PUT", &format!("/webhooks/{webhook}"), json!({"is_active": is_active})).await.data(200);
    node.project().await;
}

async fn send(node: &Node, receiver: &Receiver) -> usize {
    worker(&node.options, receiver, DEADLINE).once().await.unwrap().claimed
}

/// Moves due times back, so that every pending delivery is due.
async fn be_due(node: &Node) {
    sqlx::raw_sql("UPDATE delivery_state SET next_attempt_at = now()").execute(node.ledger.pool()).await.unwrap();
}

async fn sound(node: &Node) {
    let report = verify(&node.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.differences);
    assert_eq!(report.delivery_health.missing(), 0);
}
