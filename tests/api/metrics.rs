//! What `/metrics` tells.

use serde_json::{Value, json};

use crate::support::node::Node;

const NAMES: [&str; 25] = [
    "ledger_http_requests_total{",
    "ledger_http_request_seconds_count ",
    "ledger_commands_total ",
    "ledger_events_total ",
    "ledger_batch_commands_count ",
    "ledger_head_lock_seconds_count ",
    "ledger_projection_events_total ",
    "ledger_delivery_attempt_seconds_count ",
    "ledger_deliveries_in_flight ",
    "ledger_orders_taken_up_total ",
    r#"ledger_writer_queue_depth{shard="1"} 0"#,
    r#"ledger_log_head_position{shard="1"} "#,
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
async fn what_is_counted_and_what_waits() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = |denomination| json!({"product_id": setup.product_id, "denomination": denomination, "quantity": 1});
    node.client(&setup.client, "POST", "/orders", order(10)).await.data(201);
    let waiting = node.client(&setup.client, "POST", "/orders", order(25)).await.data(201);
    node.fulfil(waiting["id"].as_i64().unwrap()).await;
    // Three states of which one is due now.
    sqlx::raw_sql(
        "INSERT INTO delivery_state (shard_id, delivery_id, webhook_id, next_attempt_at, leased_until)
         VALUES (1, 1, 1, now(), NULL), (1, 2, 1, now() + interval '1 hour', NULL), (1, 3, 1, now(), now() + interval '1 hour')",
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
}
