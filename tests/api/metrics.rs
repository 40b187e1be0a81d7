//! The metrics at `/metrics`.

use std::collections::BTreeSet;

use ledger_events::Actor;
use rewards_ledger::delivery::worker::Worker;
use rewards_ledger::ledger::{FIRST_SHARD, Origin, commands, health};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use webhook_client::receiver::ReceiverResponse;

use crate::support::node::Node;
use crate::support::shop::{DEADLINE, receiver, worker};
use crate::support::wait::until;

const NAMES: [&str; 35] = [
    "ledger_http_requests_total{",
    r#"ledger_http_request_seconds_count{method="POST",route="orders",path="/api/v1/orders"} "#,
    r#"ledger_build_info{version=""#,
    r#"ledger_pool_size{pool="rewards-ledger"} "#,
    r#"ledger_pool_in_use{pool="rewards-ledger"} "#,
    r#"ledger_pool_idle{pool="rewards-ledger maintenance"} "#,
    "process_cpu_seconds_total ",
    "process_resident_memory_bytes ",
    "process_open_fds ",
    "ledger_commands_total ",
    "ledger_events_total ",
    "ledger_batch_commands_count ",
    "ledger_head_lock_seconds_count ",
    "ledger_projection_events_total ",
    "ledger_delivery_attempt_seconds_count ",
    "ledger_deliveries_in_flight ",
    "ledger_webhooks_deactivated_total 0",
    "ledger_orders_taken_up_total ",
    r#"ledger_writer_queue_depth{shard="1"} 0"#,
    r#"ledger_log_head_position{shard="1"} "#,
    r#"ledger_log_head_ahead_seconds{shard="1"} 0"#,
    r#"ledger_clock_ahead_seconds{shard="1"} "#,
    r#"ledger_projection_position{projection="deliveries",shard="1"} 0"#,
    r#"ledger_projection_lag_positions{projection="deliveries",shard="1"} "#,
    r#"ledger_projection_lag_positions{projection="daily_totals",shard="1"} "#,
    r#"ledger_projection_lag_seconds{projection="deliveries",shard="1"} "#,
    r#"ledger_projection_position{projection="transparency",shard="1"} 0"#,
    r#"ledger_projection_lag_seconds{projection="transparency",shard="1"} "#,
    "ledger_transparency_refusals_total 0",
    r#"ledger_orders_unqueued{shard="1"} 1"#,
    r#"ledger_orders_out_of_stock{shard="1"} 1"#,
    r#"ledger_deliveries_due{shard="1"} 1"#,
    r#"ledger_delivery_attempts_total{outcome="delivered"} 0"#,
    r#"ledger_delivery_attempts_total{outcome="failed"} 0"#,
    "# EOF",
];

#[tokio::test]
async fn metrics_show_counters_and_backlogs() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = |denomination| json!({"product_id": setup.product_id, "denomination": denomination, "quantity": 1});
    node.client(&setup.client, "POST", "/orders", order(10)).await.data(201);
    let waiting = node.client(&setup.client, "POST", "/orders", order(25)).await.data(201);
    node.fulfil(waiting["id"].as_i64().unwrap()).await;
    // Three delivery states, one of which is due now.
    sqlx::raw_sql(
        "INSERT INTO delivery_state (shard_id, delivery_id, webhook_id, event_type, next_attempt_at, leased_until)
         SELECT 1, id, 1, 'order.created', next_attempt_at, leased_until FROM (VALUES
            (1, now(), NULL), (2, now() + interval '1 hour', NULL), (3, now(), now() + interval '1 hour')) AS s (id, next_attempt_at, leased_until)",
    )
    .execute(node.ledger.pool())
    .await
    .unwrap();
    node.client(&setup.client, "GET", "/orders", Value::Null).await.data(200);

    let text = node.send(node.request("GET", "/metrics")).await.text;
    for name in NAMES {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name} is missing in:\n{text}");
    }
    let value = |name: &str| -> f64 {
        text.lines().find(|line| line.starts_with(name)).unwrap().rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    let head = node.head().await as f64;
    assert_eq!(value("ledger_log_head_position{"), head);
    assert_eq!(value("ledger_projection_lag_positions{"), head);
    assert!(value("ledger_projection_lag_seconds{") > 0.0);

    node.project().await;
    let lags = ["positions", "seconds"].map(|what| {
        ["deliveries", "daily_totals"]
            .map(|projection| format!(r#"ledger_projection_lag_{what}{{projection="{projection}",shard="1"}}"#))
    });
    let lags = lags.as_flattened();
    // The gauges are sampled, so the values shown may be a moment old.
    until("all projections have caught up", async || {
        let text = node.send(node.request("GET", "/metrics")).await.text;
        let shown: Vec<f64> = text
            .lines()
            .filter_map(|line| line.rsplit_once(' ').filter(|(name, _)| lags.iter().any(|lag| lag == name)))
            .map(|(_, value)| value.parse().unwrap())
            .collect();
        shown == [0.0; 4]
    })
    .await;
}

/// Returns every metric name in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("ledger_")).collect()
}

#[tokio::test]
async fn alerts_and_the_dashboard_query_existing_metrics() {
    let node = Node::start().await;
    let setup = node.setup().await;
    node.client(&setup.client, "GET", "/orders", Value::Null).await.data(200);
    sqlx::raw_sql("INSERT INTO supplier_calls (supplier) VALUES ('acme')").execute(node.ledger.pool()).await.unwrap();
    node.metrics.show_supplier("acme");
    let (euro, amounts) = ("EUR".parse().unwrap(), (1.into(), 2.into()));
    node.metrics.supplier_spent("acme", euro, FIRST_SHARD, amounts);
    node.metrics.supplier_exhausted("acme", euro, false);
    node.metrics.leads(FIRST_SHARD, true);
    let stop = CancellationToken::new();
    let watching = health::run(node.ledger.pool().clone(), node.ledger.shard_watch().clone(), node.metrics.clone(), stop.clone());
    let mut told = String::new();
    let scraping = async {
        until("the figure is shown", async || {
            told = node.send(node.request("GET", "/metrics")).await.text;
            told.contains("ledger_delivery_health_missing{")
        })
        .await;
        stop.cancel();
    };
    tokio::join!(scraping, watching);
    let told: BTreeSet<&str> = told.lines().filter_map(|line| line.split(['{', ' ']).next()).collect();
    let (alerts, dashboard) = (include_str!("../../deploy/alerts.yml"), include_str!("../../deploy/dashboard.json"));
    let runbook = include_str!("../../deploy/runbook.md");
    serde_json::from_str::<Value>(dashboard).unwrap();
    for (file, text) in [("alerts.yml", alerts), ("dashboard.json", dashboard), ("runbook.md", runbook)] {
        let asked = names(text);
        assert!(asked.len() > 5, "{file}: {asked:?}");
        let unknown: Vec<_> = asked.difference(&told).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
}

/// Returns the values of these counters and gauges, each added up over all labels that the name leaves open.
pub async fn counted<const N: usize>(node: &Node, names: [&str; N]) -> [f64; N] {
    let text = node.send(node.request("GET", "/metrics")).await.text;
    names.map(|name| {
        let values = text.lines().filter(|line| line.starts_with(name)).map(|line| line.rsplit_once(' ').unwrap().1);
        let values: Vec<f64> = values.map(|value| value.parse().unwrap()).collect();
        assert!(!values.is_empty(), "{name} is missing in:\n{text}");
        values.iter().sum()
    })
}

#[tokio::test]
async fn every_counter_counts_what_happened() {
    let node = Node::start().await;
    let (receiver, _arrived) = receiver(|r| ReceiverResponse::Status(if r.path == "/good" { 200 } else { 500 })).await;
    let setup = node.setup().await;
    for path in ["good", "bad"] {
        let hook = json!({"name": path, "url": format!("{}/{path}", receiver.url()), "events": ["order.created"]});
        assert_eq!(node.client(&setup.client, "POST", "/webhooks", hook).await.status, 201);
    }
    node.project().await;
    let names = [
        "ledger_commands_total ",
        "ledger_events_total ",
        "ledger_batch_commands_sum ",
        "ledger_batch_commands_count ",
        "ledger_head_lock_seconds_count ",
        "ledger_head_lock_seconds_sum ",
        "ledger_projection_events_total ",
        "ledger_delivery_attempt_seconds_count ",
        r#"ledger_delivery_attempts_total{outcome="delivered"}"#,
        r#"ledger_delivery_attempts_total{outcome="failed"}"#,
        "ledger_http_request_seconds_count{",
    ];
    let before = counted(&node, names).await;
    assert_eq!(before[1], node.head().await as f64, "every event in the log is counted");
    for _ in 0..3 {
        let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
        node.client(&setup.client, "POST", "/orders", order).await.data(201);
    }
    node.project().await;
    let worker = Worker { metrics: node.metrics.clone(), ..worker(&node.options, &receiver, DEADLINE) };
    assert_eq!(worker.once().await.unwrap().claimed, 6);
    let after = counted(&node, names).await;
    let grown: Vec<f64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    // Three orders one after the other, each with its own event and a debit, and each sent to two webhooks.
    assert_eq!(grown[..5], [3.0, 6.0, 3.0, 3.0, 3.0]);
    assert!(grown[5] > 0.0, "{grown:?}");
    assert_eq!(grown[6..10], [6.0, 6.0, 3.0, 3.0]);
    assert_eq!(grown[10], 4.0, "the orders, and the look before them");
}

#[tokio::test]
async fn commands_behind_one_that_waits_for_the_head_count_as_queued() {
    let node = Node::start().await;
    let mut holder = node.admin().await;
    sqlx::raw_sql("BEGIN; SELECT position FROM log_head FOR UPDATE").execute(&mut holder).await.unwrap();
    let put = |name: &str| {
        let origin = Origin { actor: Actor::Operator(0), request_id: name.to_owned() };
        node.ledger.enqueue(FIRST_SHARD, commands::CreateAccount { name: name.to_owned() }, origin, None).unwrap()
    };
    let mut waiting = vec![put("first")];
    // The writer takes the command and waits for the head.
    let depth = [r#"ledger_writer_queue_depth{shard="1"}"#];
    until("the writer takes the command", async || counted(&node, depth).await == [0.0]).await;
    waiting.extend((0..5).map(|n| put(&n.to_string())));
    assert_eq!(counted(&node, depth).await, [5.0]);
    sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
    for reply in waiting {
        reply.await.unwrap().unwrap();
    }
    assert_eq!(counted(&node, depth).await, [0.0]);
}
