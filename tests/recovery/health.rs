//! The figure that says whether every event has its delivery.

use std::time::{Duration, Instant};

use rewards_ledger::audit::{Rebuild, rebuild, verify};
use rewards_ledger::ledger::health::Watch;
use serde_json::{Value, json};

use super::{order, switch, webhook};
use crate::support::history::tamper;
use crate::support::node::Node;
use crate::support::postgres;
use crate::support::program::Program;
use crate::support::shop::SHARD;

#[tokio::test]
async fn it_is_computed_from_the_log_and_follows_it() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let mut watch = Watch::new(node.ledger.pool().clone(), SHARD);
    let mut figure = async || {
        while watch.once().await.unwrap() {}
        (watch.expected(), watch.missing())
    };
    assert_eq!(figure().await, (0, 0));
    order(&node, &setup).await; // nobody hears it
    let (first, _) = webhook(&node, client, "https://example.com/one", &["order.created", "order.cancelled"]).await;
    webhook(&node, client, "https://example.com/two", &["order.created"]).await;
    let id = order(&node, &setup).await;
    node.client(client, "POST", &format!("/orders/{id}/cancel"), Value::Null).await.data(200);
    assert_eq!(figure().await, (0, 0), "not projected yet");
    node.project().await;
    assert_eq!(figure().await, (3, 0));
    switch(&node, client, first, false).await;
    order(&node, &setup).await;
    node.project().await;
    assert_eq!(figure().await, (4, 0), "who was subscribed at the event's position");

    // One is lost, another one stuck.
    sqlx::raw_sql(
        "DELETE FROM deliveries WHERE id = (SELECT min(id) FROM deliveries);
         UPDATE delivery_state SET status = 'pending', attempt_count = 5 WHERE delivery_id = (SELECT max(delivery_id) FROM delivery_state)",
    )
    .execute(node.ledger.pool())
    .await
    .unwrap();
    assert_eq!(figure().await, (4, 2), "what was there when it was looked at first");
    let report = verify(&node.options, |_| {}).await.unwrap();
    assert!(!report.is_clean());
    assert_eq!((report.delivery_health.expected, report.delivery_health.missing()), (4, 2));
    sqlx::raw_sql("UPDATE delivery_state SET status = 'failed' WHERE status = 'pending' AND attempt_count = 5")
        .execute(node.ledger.pool())
        .await
        .unwrap();
    rebuild(&node.options, Rebuild::Deliveries, |_| {}).await.unwrap();
    figure().await;
    assert_eq!(figure().await, (4, 0), "what was missing is looked for again");
    assert_eq!(verify(&node.options, |_| {}).await.unwrap().delivery_health.missing(), 0);

    // What is scheduled and cannot be sent, for there is nothing to send, is as good as lost.
    let pending: i64 = sqlx::query_scalar("SELECT count(*) FROM delivery_state WHERE status = 'pending'")
        .fetch_one(node.ledger.pool())
        .await
        .unwrap();
    assert!(pending > 0);
    sqlx::raw_sql("UPDATE webhook_envelopes SET payload = NULL").execute(node.ledger.pool()).await.unwrap();
    figure().await;
    assert_eq!(figure().await, (4, pending));
    assert_eq!(verify(&node.options, |_| {}).await.unwrap().delivery_health.missing(), pending);
}

#[tokio::test]
async fn a_projection_that_stands_still_shows() {
    let node = Node::start().await;
    let setup = node.setup().await;
    webhook(&node, &setup.client, "https://example.com/hook", &["order.created"]).await;
    order(&node, &setup).await;
    node.project().await;
    let mut watch = Watch::new(node.ledger.pool().clone(), SHARD);
    let mut figures = async || {
        while watch.once().await.unwrap() {}
        let verified = verify(&node.options, |_| {}).await.unwrap().delivery_health;
        [(watch.expected(), watch.missing()), (verified.expected, verified.missing())]
    };
    order(&node, &setup).await;
    order(&node, &setup).await;
    assert_eq!(figures().await, [(1, 0); 2], "they are on their way");
    let age = "UPDATE events SET recorded_at = recorded_at - interval '61 seconds'
        WHERE position < (SELECT max(position) FROM events WHERE type = 'OrderPlaced')";
    tamper(&mut node.admin().await, age).await;
    assert_eq!(figures().await, [(2, 1); 2], "one for more than a minute");
    node.project().await;
    assert_eq!(figures().await, [(3, 0); 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_shows_it() {
    let database = postgres::database().await;
    let program = Program::start(&database.url, &["--roles", "api,projector,fulfilment"]).await;
    let client = program.client("100.00").await;
    let product = program.product(1).await;
    let hook = json!({"name": "all", "url": "https://example.com/hook", "events": ["order.created", "order.delivered"]});
    assert_eq!(program.call(&client, "POST", "/webhooks", None, &hook).await.unwrap().0, 201);
    let body = json!({"product_id": product, "denomination": 10, "quantity": 1});
    assert_eq!(program.call(&client, "POST", "/orders", None, &body).await.unwrap().0, 201);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let metrics = reqwest::get(format!("{}/metrics", program.url())).await.unwrap().text().await.unwrap();
        let shows = |line: &str| metrics.lines().any(|l| l == line);
        if shows("ledger_delivery_health_expected{shard=\"1\"} 2") {
            assert!(shows("ledger_delivery_health_missing{shard=\"1\"} 0"), "{metrics}");
            break;
        }
        assert!(Instant::now() < deadline, "{metrics}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
