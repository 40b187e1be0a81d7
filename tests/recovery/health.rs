//! The health figure: does every event have its deliveries?

use std::time::Duration;

use ledger_database::PgConnectOptions;
use ledger_projections::Inline;
use rewards_ledger::audit::{Rebuild, rebuild, verify};
use rewards_ledger::ledger::health::{self, Bounds, Watch};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{order, switch, webhook};
use crate::support::node::Node;
use crate::support::postgres;
use crate::support::program::{Program, run};
use crate::support::shop::SHARD;
use crate::support::tampering::tamper;
use crate::support::wait::{until, until_true};

#[tokio::test]
async fn the_figure_is_computed_from_the_log_and_follows_it() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let mut watch = Watch::new(node.ledger.pool().clone(), SHARD, Bounds::default());
    let mut figure = async || {
        while watch.once().await.unwrap() {}
        (watch.expected(), watch.missing())
    };
    assert_eq!(figure().await, (0, 0));
    order(&node, &setup).await; // no webhook is subscribed
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
    assert_eq!(figure().await, (4, 0), "the subscriptions at the event's position count");

    // One delivery is lost, and another one is stuck.
    sqlx::raw_sql(
        "DELETE FROM deliveries WHERE id = (SELECT min(id) FROM deliveries);
         UPDATE delivery_state SET status = 'pending', attempt_count = 5 WHERE delivery_id = (SELECT max(delivery_id) FROM delivery_state)",
    )
    .execute(node.ledger.pool())
    .await
    .unwrap();
    assert_eq!(figure().await, (4, 2), "the events were there at the first check");
    let report = verify(&node.options, |_| {}).await.unwrap();
    assert!(!report.is_clean());
    assert_eq!((report.delivery_health.expected, report.delivery_health.missing()), (4, 2));
    sqlx::raw_sql("UPDATE delivery_state SET status = 'failed' WHERE status = 'pending' AND attempt_count = 5")
        .execute(node.ledger.pool())
        .await
        .unwrap();
    rebuild(&node.options, Rebuild::Deliveries, |_| {}).await.unwrap();
    figure().await;
    assert_eq!(figure().await, (4, 0), "missing deliveries are checked again");
    assert_eq!(verify(&node.options, |_| {}).await.unwrap().delivery_health.missing(), 0);

    // A scheduled delivery without a payload cannot be sent, so it counts as missing.
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
async fn a_stalled_projection_is_visible() {
    let node = Node::start().await;
    let setup = node.setup().await;
    webhook(&node, &setup.client, "https://example.com/hook", &["order.created"]).await;
    order(&node, &setup).await;
    node.project().await;
    let mut watch = Watch::new(node.ledger.pool().clone(), SHARD, Bounds::default());
    let mut overdue = vec![];
    let mut figures = async || {
        while watch.once().await.unwrap() {}
        let report = verify(&node.options, |_| {}).await.unwrap();
        overdue.push(report.differences.iter().map(ToString::to_string).find(|line| line.contains("after a minute")));
        assert!(report.is_clean() || overdue.iter().any(Option::is_some), "{:#?}", report.differences);
        let verified = report.delivery_health;
        [(watch.expected(), watch.missing()), (verified.expected, verified.missing())]
    };
    let first = node.head().await + 1;
    order(&node, &setup).await;
    let last = node.head().await;
    order(&node, &setup).await;
    assert_eq!(figures().await, [(1, 0); 2], "the deliveries are on their way");
    let age = "UPDATE events SET recorded_at = recorded_at - interval '61 seconds'
        WHERE position < (SELECT max(position) FROM events WHERE type = 'OrderPlaced')";
    tamper(&mut node.admin().await, age).await;
    assert_eq!(figures().await, [(2, 1); 2], "one for more than a minute");
    node.project().await;
    assert_eq!(figures().await, [(3, 0); 2]);
    let line = format!("shard 1: deliveries of the events in positions {first} to {last} are missing after a minute: 1 in total");
    assert_eq!(overdue, [None, Some(line), None]);
}

#[tokio::test]
async fn missing_deliveries_beyond_the_limit_are_checked_again_once_some_exist() {
    let node = Node::start().await;
    let setup = node.setup().await;
    webhook(&node, &setup.client, "https://example.com/one", &["order.created"]).await;
    webhook(&node, &setup.client, "https://example.com/two", &["order.created"]).await;
    for _ in 0..6 {
        order(&node, &setup).await;
    }
    node.project().await;
    let set = async |state: &str| {
        sqlx::raw_sql(AssertSqlSafe(format!("UPDATE delivery_state SET {state}"))).execute(node.ledger.pool()).await.unwrap();
    };
    set("status = 'pending', attempt_count = 5").await;
    let mut watch = Watch::new(node.ledger.pool().clone(), SHARD, Bounds { events: 3, remembered: 2 });
    let mut figure = async || {
        while watch.once().await.unwrap() {}
        (watch.expected(), watch.missing())
    };
    assert_eq!(figure().await, (12, 12));
    // First some of the deliveries come back, then all.
    set("status = 'failed' WHERE delivery_id < (SELECT min(delivery_id) + 5 FROM delivery_state)").await;
    assert_eq!(figure().await, (12, 7));
    set("status = 'failed'").await;
    assert_eq!(figure().await, (12, 0));
}

/// Checked in the human-readable and in the JSON output.
#[tokio::test(flavor = "multi_thread")]
async fn verify_fails_while_deliveries_are_overdue() {
    let database = postgres::database().await;
    let program = Program::start(&database.url, &["--roles", "api"]).await;
    let client = program.client("100.00").await;
    let product = program.product(0).await;
    let hook = json!({"name": "all", "url": "https://example.com/hook", "events": ["order.created"]});
    assert_eq!(program.call(&client, "POST", "/webhooks", None, &hook).await.unwrap().0, 201);
    let body = json!({"product_id": product, "denomination": 10, "quantity": 1});
    assert_eq!(program.call(&client, "POST", "/orders", None, &body).await.unwrap().0, 201);
    let verified = async |arguments: &[&str]| {
        let done = run(program.command().arg("verify").args(arguments)).await;
        (done.status.code(), String::from_utf8(done.stdout).unwrap())
    };
    let (code, told) = verified(&[]).await;
    assert!(code == Some(0) && told.contains("everything matches the log"), "not a minute has passed: {told}");

    // Let two minutes pass in the log, and in all data derived from it.
    let options: PgConnectOptions = database.url.parse().unwrap();
    tamper(&mut options.connect().await.unwrap(), "UPDATE events SET recorded_at = recorded_at - interval '2 minutes'").await;
    for inline in Inline::ALL {
        rebuild(&options, Rebuild::Inline(inline), |_| {}).await.unwrap();
    }
    let (code, told) = verified(&[]).await;
    assert!(code == Some(1) && told.contains("after a minute: 1 in total") && told.contains("1 differences"), "{told}");
    let (code, told) = verified(&["--json"]).await;
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (code, &told["differences"][0]["kind"], &told["differences"][0]["deliveries"]),
        (Some(1), &json!("overdue"), &json!(1))
    );

    let pool = PgPool::connect(&database.url).await.unwrap();
    let projector = Program::start(&database.url, &["--roles", "projector"]).await;
    until_true("the delivery is made", &pool, "SELECT count(*) = 1 FROM deliveries").await;
    let (code, told) = verified(&[]).await;
    assert!(code == Some(0) && told.contains("everything matches the log"), "{told}");
    drop(projector);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_exports_the_figure() {
    let database = postgres::database().await;
    let program = Program::start(&database.url, &["--roles", "api,projector,fulfilment"]).await;
    let client = program.client("100.00").await;
    let product = program.product(1).await;
    let hook = json!({"name": "all", "url": "https://example.com/hook", "events": ["order.created", "order.delivered"]});
    assert_eq!(program.call(&client, "POST", "/webhooks", None, &hook).await.unwrap().0, 201);
    let body = json!({"product_id": product, "denomination": 10, "quantity": 1});
    assert_eq!(program.call(&client, "POST", "/orders", None, &body).await.unwrap().0, 201);
    let metrics = async || reqwest::get(format!("{}/metrics", program.url())).await.unwrap().text().await.unwrap();
    until("both are expected, and there", async || {
        let told = metrics().await;
        told.contains("ledger_delivery_health_expected{shard=\"1\"} 2\n") && told.contains(&shown(0))
    })
    .await;
    let pool = PgPool::connect(&database.url).await.unwrap();
    sqlx::raw_sql("DELETE FROM deliveries WHERE id = (SELECT min(id) FROM deliveries)").execute(&pool).await.unwrap();
    until("one is missing", async || metrics().await.contains(&shown(1))).await;
}

fn shown(missing: i64) -> String {
    format!("ledger_delivery_health_missing{{shard=\"1\"}} {missing}\n")
}

async fn told(node: &Node) -> String {
    node.send(node.request("GET", "/metrics")).await.text
}

/// Updates the figure as a node does, until it is told to stop.
fn watched(node: &Node) -> (JoinHandle<()>, CancellationToken) {
    let stop = CancellationToken::new();
    let running = health::run(node.ledger.pool().clone(), node.ledger.shard_watch().clone(), node.metrics.clone(), stop.clone());
    (tokio::spawn(running), stop)
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_old_pages_hide_no_new_losses() {
    let node = Node::start().await;
    let setup = node.setup().await;
    webhook(&node, &setup.client, "https://example.com/hook", &["order.created"]).await;
    order(&node, &setup).await;
    node.project().await;
    let (running, stop) = watched(&node);
    until("the figure is shown", async || told(&node).await.contains(&shown(0))).await;
    let unreadable =
        "UPDATE events SET metadata = (metadata::jsonb || '{\"account_id\": \"x\"}')::json WHERE type = 'OrderPlaced'";
    tamper(&mut node.admin().await, unreadable).await;
    until("the lost deliveries are shown", async || {
        order(&node, &setup).await;
        node.project().await;
        let lose = "DELETE FROM deliveries WHERE id = (SELECT max(id) FROM deliveries)";
        sqlx::raw_sql(lose).execute(node.ledger.pool()).await.unwrap();
        // The check gets time for a page. Each turn loses one more delivery.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let told = told(&node).await;
        told.contains("ledger_delivery_health_missing") && !told.contains(&shown(0))
    })
    .await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn a_webhook_with_unreadable_events_hides_no_other_webhook() {
    let node = Node::start().await;
    let setup = node.setup().await;
    webhook(&node, &setup.client, "https://example.com/one", &["order.created"]).await;
    webhook(&node, &setup.client, "https://example.com/two", &["order.created"]).await;
    order(&node, &setup).await;
    node.project().await;
    let first =
        "UPDATE events SET data = '{}' WHERE position = (SELECT min(position) FROM events WHERE type = 'WebhookRegistered')";
    tamper(&mut node.admin().await, first).await;
    sqlx::raw_sql("DELETE FROM deliveries").execute(node.ledger.pool()).await.unwrap();
    let mut watch = Watch::new(node.ledger.pool().clone(), SHARD, Bounds::default());
    while watch.once().await.unwrap() {}
    assert_eq!((watch.expected(), watch.missing()), (1, 1), "the delivery of the other webhook is missing");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_database_the_figure_is_not_exported() {
    let (node, proxy) = Node::behind_a_proxy().await;
    let (running, stop) = watched(&node);
    until("the figure is shown", async || told(&node).await.contains(&shown(0))).await;
    proxy.set_away(true);
    until("the figure is not known", async || !told(&node).await.contains("ledger_delivery_health_missing{")).await;
    assert!(!told(&node).await.contains("ledger_delivery_health_expected{"));
    proxy.set_away(false);
    until("the figure is known again", async || told(&node).await.contains(&shown(0))).await;
    stop.cancel();
    running.await.unwrap();
}

/// Such rows remain after the database's clock was set back.
#[tokio::test]
async fn deliveries_due_or_leased_in_a_day_do_not_count_as_scheduled() {
    let node = Node::start().await;
    let setup = node.setup().await;
    webhook(&node, &setup.client, "https://example.com/one", &["order.created"]).await;
    for _ in 0..3 {
        order(&node, &setup).await;
    }
    node.project().await;
    for (set, missing) in [
        ("next_attempt_at = now() + interval '8 hours', leased_until = now() + interval '1 hour'", 0),
        ("next_attempt_at = now() + interval '1 day' WHERE delivery_id = (SELECT min(delivery_id) FROM delivery_state)", 1),
        ("leased_until = now() + interval '1 day' WHERE delivery_id = (SELECT max(delivery_id) FROM delivery_state)", 2),
        ("next_attempt_at = now(), leased_until = NULL", 0),
    ] {
        let set = format!("UPDATE delivery_state SET {set}");
        sqlx::raw_sql(AssertSqlSafe(set.clone())).execute(node.ledger.pool()).await.unwrap();
        let mut watch = Watch::new(node.ledger.pool().clone(), SHARD, Bounds::default());
        while watch.once().await.unwrap() {}
        let report = verify(&node.options, |_| {}).await.unwrap();
        assert_eq!((watch.missing(), report.delivery_health.missing()), (missing, missing), "{set}");
        let told = report.differences.iter().filter(|line| line.to_string().contains("due or leased much later"));
        assert_eq!(told.count(), usize::try_from(missing).unwrap(), "{set}: {:#?}", report.differences);
    }
}
