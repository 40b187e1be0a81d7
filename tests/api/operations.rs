//! The state of operations, as operators see it.

use chrono::{DateTime, TimeDelta, Utc};
use rewards_ledger::access::Role;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use webhook_client::receiver::ReceiverResponse as Received;

use crate::support::node::Node;
use crate::support::shop::{DEADLINE, receiver, worker};

async fn operations(node: &Node) -> Value {
    node.operator("GET", "/operations", Value::Null).await.data(200)
}

fn names(alerts: &Value) -> Vec<&str> {
    alerts.as_array().unwrap().iter().map(|alert| alert["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_idle_node_is_ready_and_nothing_waits() {
    let node = Node::start().await;
    let setup = node.setup().await;
    node.project().await;
    node.publish().await;
    let state = operations(&node).await;
    assert_eq!((&state["node"]["is_ready"], &state["node"]["problem"]), (&json!(true), &Value::Null));
    assert_eq!(state["alerts"], json!([]));
    for list in
        ["endpoints", "due_endpoints", "failed_endpoints", "nodes", "days", "replays", "unwiped_tables", "ip_blocks", "low_stock"]
    {
        assert_eq!(state[list], json!([]), "{list}");
    }
    let loops: Vec<_> = state["node"]["loops"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(loops.iter().any(|name| name.starts_with("writer")), "{loops:?}");
    let minutes = state["node"]["minutes"].as_array().unwrap();
    assert_eq!(minutes.len(), 60);
    let sum = |name: &str| minutes.iter().map(|minute| minute[name].as_i64().unwrap()).sum::<i64>();
    assert_eq!((sum("events"), sum("failed_requests"), sum("failed_attempts")), (node.head().await, 0, 0));
    assert!(sum("requests") > 5);
    let shard = &state["shards"][0];
    assert_eq!(
        (&shard["shard_id"], &shard["head"], &shard["waiting_commands"]),
        (&json!(1), &json!(node.head().await), &json!(0))
    );
    for time in ["appended_at", "projected_at", "signed_at"] {
        assert!(shard[time].is_string(), "{time}: {shard}");
    }
    let behind: Vec<_> = shard["projections"].as_array().unwrap().iter().map(|one| (&one["name"], &one["behind"])).collect();
    assert!(behind.iter().all(|(_, behind)| **behind == json!(0)), "{behind:?}");
    assert!(state["connections"].as_array().unwrap().iter().any(|task| task["name"] == "rewards-ledger writer"));
    assert_eq!(state["signers"][0]["refusal"], Value::Null);
    assert!(setup.wallet_id > 0);
}

#[tokio::test]
async fn failing_endpoints_replays_blocks_and_low_stock_are_named() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let order = async || {
        let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
        node.client(client, "POST", "/orders", order).await.data(201)
    };
    order().await;
    let (receiver, _arrived) = receiver(|_| Received::Status(500)).await;
    let hook = json!({"name": "a", "url": receiver.url(), "events": ["order.created"]});
    let webhook = node.client(client, "POST", "/webhooks", hook).await.json()["id"].clone();
    for _ in 0..2 {
        order().await;
    }
    node.project().await;
    worker(&node.options, &receiver, DEADLINE).once().await.unwrap();
    node.operator("POST", &format!("/webhooks/{webhook}/replays"), json!({"kind": "missed"})).await.data(201);
    let threshold = json!({"denomination": "10.00", "threshold": 9});
    node.operator("PUT", &format!("/products/{}/stock-threshold", setup.product_id), threshold).await.data(200);
    let block = "INSERT INTO ip_blocks (ip, started_at, ends_at) VALUES ('192.0.2.1', now() - interval '1 min', now() + interval '14 min')";
    sqlx::raw_sql(block).execute(node.ledger.pool()).await.unwrap();

    let state = operations(&node).await;
    let endpoint = &state["endpoints"][0];
    assert_eq!((&endpoint["webhook_id"], &endpoint["account_id"]), (&webhook, &json!(client.account_id)));
    assert_eq!((&endpoint["waiting"], &endpoint["attempts"]), (&json!(2), &json!(1)));
    assert_eq!((&state["due_endpoints"], &state["failed_endpoints"]), (&json!([]), &json!([])), "the retries are due later");
    assert_eq!((&endpoint["response_status"], &endpoint["error"]), (&json!(500), &json!("HTTP 500")));
    assert!(endpoint["attempted_at"].is_string() && endpoint["response_time_ms"].is_i64(), "{endpoint}");
    let running = node.operator("GET", "/replays", Value::Null).await.data(200);
    assert_eq!(running["replays"], state["replays"]);
    let day = &state["days"][0];
    assert_eq!((&day["attempts"], &day["delivered"]), (&json!(2), &json!(0)));
    assert_eq!((&state["replays"][0]["webhook_id"], &state["replays"][0]["status"]), (&webhook, &json!("RUNNING")));
    assert_eq!((&state["ip_block_count"], &state["ip_blocks"][0]["ip"]), (&json!(1), &json!("192.0.2.1")));
    assert_eq!(state["low_stock"], json!([{"product_id": setup.product_id, "denomination": "10.00"}]));
    assert_eq!(state["shards"][0]["unqueued_orders"], 3);
    assert!(state["shards"][0]["oldest_attempt_at"].is_string());
    assert_eq!(names(&state["alerts"]), ["LedgerStockLow"]);
    let alerts = node.operator("GET", "/alerts", Value::Null).await.data(200);
    assert_eq!((&alerts["alerts"], &alerts["low_stock"]), (&state["alerts"], &state["low_stock"]));

    // A webhook that is switched off ends a delivery before its next attempt is due.
    let failed = "UPDATE delivery_state SET status = 'failed', attempt_count = 5, next_attempt_at = now() + interval '1 h'";
    sqlx::raw_sql(failed).execute(node.ledger.pool()).await.unwrap();
    let state = operations(&node).await;
    assert_eq!((&state["endpoints"], &state["shards"][0]["dead_deliveries"]), (&json!([]), &json!(2)));
    let failed = &state["failed_endpoints"][0];
    assert_eq!(
        (&failed["webhook_id"], &failed["account_id"], &failed["failed"]),
        (&webhook, &json!(client.account_id), &json!(2))
    );
    assert_eq!(failed["failed_in_all"], 2);
    for part in ["failed", "failed_lately"] {
        assert_eq!(queue(&node, &webhook, part).await.len(), 2, "{part}");
    }
    let failed_at: DateTime<Utc> = serde_json::from_value(failed["failed_at"].clone()).unwrap();
    assert!(failed_at <= Utc::now() + TimeDelta::minutes(1), "{failed_at} is in the future");

    // A failure of another day, and deliveries that are due.
    let earlier = "UPDATE delivery_state SET next_attempt_at = now() - interval '25 h'";
    sqlx::raw_sql(earlier).execute(node.ledger.pool()).await.unwrap();
    let failed = &operations(&node).await["failed_endpoints"][0];
    assert_eq!((&failed["failed"], &failed["failed_in_all"]), (&json!(0), &json!(2)));
    assert_eq!(queue(&node, &webhook, "failed_lately").await, Vec::<Value>::new());
    assert_eq!(queue(&node, &webhook, "failed").await.len(), 2);
    for attempts in [0, 1] {
        let due = format!("UPDATE delivery_state SET status = 'pending', attempt_count = {attempts}");
        sqlx::raw_sql(AssertSqlSafe(due)).execute(node.ledger.pool()).await.unwrap();
        let state = operations(&node).await;
        let endpoint = json!({"webhook_id": webhook, "account_id": client.account_id, "due": 2});
        assert_eq!((&state["due_endpoints"], &state["shards"][0]["due_deliveries"]), (&json!([endpoint]), &json!(2)));
        let due = queue(&node, &webhook, "due").await;
        assert_eq!((in_flight(&due), &due[0]["attempt_count"]), (vec![false, false], &json!(attempts)));
        assert_eq!(queue(&node, &webhook, "retries").await.len(), 2 * attempts);
    }
    sqlx::raw_sql("UPDATE delivery_state SET leased_until = now() + interval '1 min'").execute(node.ledger.pool()).await.unwrap();
    assert_eq!(operations(&node).await["due_endpoints"], json!([]), "they are in flight");
    assert_eq!(queue(&node, &webhook, "due").await, Vec::<Value>::new());
    assert_eq!(in_flight(&queue(&node, &webhook, "retries").await), [true, true]);
    assert_eq!(in_flight(&queue(&node, &webhook, "in_flight").await), [true, true]);
    assert_eq!(queue(&node, &webhook, "without_outcome").await, Vec::<Value>::new());
    counts_what_it_lists(&node).await;
    // The node of one of them has recorded no outcome in time.
    let expired = "UPDATE delivery_state SET leased_until = now() - interval '1 s' WHERE delivery_id = (SELECT min(delivery_id) FROM delivery_state)";
    sqlx::raw_sql(expired).execute(node.ledger.pool()).await.unwrap();
    let [lost] = &*queue(&node, &webhook, "without_outcome").await else { panic!("one lease has expired") };
    assert_eq!((&lost["account_id"], &lost["webhook_url_id"]), (&json!(client.account_id), &webhook));
    let path = format!("/events?from={0}&to={0}", lost["position"]);
    let event = node.operator("GET", &path, Value::Null).await.text;
    assert!(event.contains(lost["event_id"].as_str().unwrap()), "{event}");
    counts_what_it_lists(&node).await;
    // One is due later than the other.
    let later = "UPDATE delivery_state SET leased_until = NULL, next_attempt_at = now() + interval '1 min'
        WHERE delivery_id = (SELECT min(delivery_id) FROM delivery_state)";
    sqlx::raw_sql(later).execute(node.ledger.pool()).await.unwrap();
    let retries = queue(&node, &webhook, "retries").await;
    assert!(retries[0]["delivery_id"].as_i64() > retries[1]["delivery_id"].as_i64(), "{retries:?}");
    let second = node.operator("GET", &format!("/webhooks/{webhook}/queue?part=retries&limit=1&page=2"), Value::Null).await;
    assert_eq!(second.headers["x-total-count"], "2");
    assert_eq!(second.data(200)["deliveries"], json!([retries[1]]));
    let unknown = node.operator("GET", "/webhooks/987654321/queue", Value::Null).await;
    assert_eq!(unknown.status, 404);
    node.operator("GET", "/queue?shard_id=99", Value::Null).await.refused(400, "E_VALIDATION_FAILURE");
}

/// Checks that the numbers of the first shard are those of the lists of its deliveries.
async fn counts_what_it_lists(node: &Node) {
    let shard = operations(node).await["shards"][0].clone();
    let parts = [("due", "due"), ("in_flight", "in_flight"), ("without_outcome", "expired"), ("failed", "dead")];
    for (part, counted) in parts {
        for of_shard in ["", "&shard_id=1"] {
            let listed = node.operator("GET", &format!("/queue?part={part}&limit=1{of_shard}"), Value::Null).await;
            assert_eq!(listed.headers["x-total-count"], shard[format!("{counted}_deliveries")].to_string(), "{part}");
        }
    }
}

/// Reads a part of a webhook's queue.
async fn queue(node: &Node, webhook: &Value, part: &str) -> Vec<Value> {
    let page = node.operator("GET", &format!("/webhooks/{webhook}/queue?part={part}"), Value::Null).await;
    page.data(200)["deliveries"].as_array().unwrap().clone()
}

fn in_flight(queue: &[Value]) -> Vec<bool> {
    queue.iter().map(|delivery| delivery["is_in_flight"].as_bool().unwrap()).collect()
}

#[tokio::test]
async fn the_state_is_read_on_one_connection() {
    let (node, proxy) = Node::behind_a_proxy().await;
    node.setup().await;
    let before = proxy.heard("rewards-ledger");
    operations(&node).await;
    let after = proxy.heard("rewards-ledger");
    assert!(after <= before.max(2), "{after} connections instead of {before}");
}

#[tokio::test]
async fn every_operator_sees_the_state() {
    let node = Node::start().await;
    for role in [Role::Admin, Role::Finance, Role::Auditor] {
        let token = node.token(role).await;
        let answer = node.operator_with(&token, "GET", "/operations", Value::Null).await;
        assert_eq!(answer.header("cache-control"), "no-store");
        answer.data(200);
    }
}
