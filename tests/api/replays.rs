//! Replays that clients request: what failed, what was missed, or both.

use rewards_ledger::delivery::replay::Replayer;
use rewards_ledger::ledger::FIRST_SHARD;
use serde_json::{Value, json};

use crate::support::node::{Node, Setup};

async fn order(node: &Node, setup: &Setup) {
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    node.client(&setup.client, "POST", "/orders", order).await.data(201);
}

/// An account with a webhook that never got its first order, got the second, and failed to get the third.
async fn world() -> (Node, Setup, String) {
    let node = Node::start().await;
    let setup = node.setup().await;
    order(&node, &setup).await;
    let hook = json!({"name": "a", "url": "https://example.com/hook", "events": ["order.created"]});
    let webhook = node.client(&setup.client, "POST", "/webhooks", hook).await.json()["id"].clone();
    for _ in 0..2 {
        order(&node, &setup).await;
    }
    node.project().await;
    let outcomes = "UPDATE delivery_state SET status = 'delivered', delivered_at = now();
         UPDATE delivery_state SET status = 'failed', attempt_count = 5, delivered_at = NULL WHERE delivery_id = (SELECT max(delivery_id) FROM delivery_state)";
    sqlx::raw_sql(outcomes).execute(node.ledger.pool()).await.unwrap();
    (node, setup, format!("/webhooks/{webhook}/replays"))
}

/// Runs the steps of all replays.
async fn run(node: &Node) {
    node.project().await;
    let replayer = Replayer { ledger: node.ledger.clone(), pool: node.ledger.pool().clone() };
    replayer.once(FIRST_SHARD).await.unwrap();
    node.project().await;
}

const SINCE: &str = "2026-01-01T00:00:00Z";

#[tokio::test]
async fn a_client_counts_and_replays_what_failed_or_what_was_missed() {
    let (node, setup, path) = world().await;
    let client = &setup.client;
    let head = node.head().await;
    let found = async |body: Value| {
        let mut body = body;
        body["dry_run"] = json!(true);
        let counted = node.client(client, "POST", &path, body).await.data(200);
        assert_eq!((&counted["is_complete"], &counted["replay"]), (&json!(true), &Value::Null));
        counted["found"].as_i64().unwrap()
    };
    assert_eq!(found(json!({"since": SINCE})).await, 2);
    for only in ["failed", "missed"] {
        assert_eq!(found(json!({"since": SINCE, "only": only})).await, 1, "{only}");
    }
    assert_eq!(found(json!({"since": "2100-01-01T00:00:00Z"})).await, 0);
    assert_eq!(node.head().await, head, "a count leaves no trace");

    for (number, only, oldest) in [(1, "failed", 3), (2, "missed", 1)] {
        let request = json!({"since": SINCE, "only": only});
        let key = format!("replay-{number}");
        let first = node.keyed(client, &path, &key, &request).await;
        let repeated = node.keyed(client, &path, &key, &request).await;
        assert_eq!((first.text.as_str(), repeated.header("idempotent-replayed")), (repeated.text.as_str(), "true"));
        let started = first.data(201);
        assert_eq!((&started["found"], &started["replay"]["status"]), (&Value::Null, &json!("RUNNING")));
        node.client(client, "POST", &path, request).await.refused(409, "E_CONFLICT");
        run(&node).await;
        let replays = node.client(client, "GET", &path, Value::Null).await.data(200)["replays"].clone();
        let newest = &replays[0];
        assert_eq!((&newest["id"], &newest["status"]), (&started["replay"]["id"], &json!("COMPLETED")));
        assert_eq!((&newest["deliveries"], &newest["pending_count"]), (&json!(1), &json!(1)));
        for (status, count) in [("", 1), ("&status=pending", 1), ("&status=failed", 0)] {
            let of_replay = format!("deliveries?replay_id={}{status}", newest["id"]);
            let of_client = node.client(client, "GET", &format!("/webhooks/{of_replay}"), Value::Null).await.data(200);
            assert_eq!(of_client["deliveries"].as_array().unwrap().len(), count, "{of_replay}");
            let of_operator = format!("/accounts/{}/{of_replay}", client.account_id);
            let of_operator = node.operator("GET", &of_operator, Value::Null).await.data(200);
            assert_eq!(of_operator["deliveries"], of_client["deliveries"]);
        }
        let order: i64 = sqlx::query_scalar(
            "SELECT (SELECT count(*) FROM orders o WHERE o.id <= d.order_id) FROM deliveries d WHERE d.replay_id = $1",
        )
        .bind(newest["id"].as_i64().unwrap())
        .fetch_one(node.ledger.pool())
        .await
        .unwrap();
        assert_eq!(order, oldest, "{only}");
    }
    assert_eq!(found(json!({"since": SINCE})).await, 0, "the deliveries of the replays are pending");
}

#[tokio::test]
async fn replays_that_cannot_run_are_refused() {
    let (node, setup, path) = world().await;
    let client = &setup.client;
    let replay = json!({"since": SINCE});
    for (body, field) in [
        (json!({}), "since"),
        (json!({"since": "yesterday"}), "since"),
        (json!({"since": SINCE, "only": "all"}), "only"),
        (json!({"since": SINCE, "kind": "missed"}), "kind"),
    ] {
        let refused = node.client(client, "POST", &path, body).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(refused["messages"][field].is_array(), "{refused}");
    }
    let other = node.account("Other").await;
    node.client(&other, "POST", &path, replay.clone()).await.refused(404, "E_NOT_FOUND");
    node.client(&other, "GET", &path, Value::Null).await.refused(404, "E_NOT_FOUND");
    let webhook = path.trim_end_matches("/replays");
    node.client(client, "PUT", webhook, json!({"is_active": false})).await.data(200);
    for body in [replay.clone(), json!({"since": SINCE, "dry_run": true})] {
        node.client(client, "POST", &path, body).await.refused(409, "E_WEBHOOK_INACTIVE");
    }
    node.client(client, "PUT", webhook, json!({"is_active": true})).await.data(200);
    node.operator("PUT", &format!("/accounts/{}", client.account_id), json!({"status": "SUSPENDED"})).await.data(200);
    node.client(client, "POST", &path, replay).await.refused(403, "E_ACCOUNT_SUSPENDED");
    node.operator("POST", &path, json!({"kind": "missed"})).await.data(201);
}
