//! Erasures and the retention of data, as operators see them.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::node::Node;

#[tokio::test]
async fn erasures_are_listed_with_counts_and_without_what_was_erased() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let nothing = node.operator("GET", "/erasures", Value::Null).await.data(200);
    assert_eq!(nothing, json!({"erasures": [], "next_before": null, "unwiped_tables": []}));
    let (first, second) = (node.user(client.account_id, "viewer").await, node.user(client.account_id, "owner").await);
    for user in [&first, &second] {
        node.erase_user(user.id).await;
    }
    let page = node.operator("GET", "/erasures?limit=1", Value::Null).await;
    assert!(!page.text.contains("example.com"), "{}", page.text);
    let page = page.data(200);
    assert_eq!(page["erasures"][0]["reason"], "they asked for it");
    assert!(page["unwiped_tables"].as_array().unwrap().contains(&json!("vault.users")), "{page}");
    let erased = &page["erasures"][0];
    assert_eq!((&erased["subject"], &erased["account_id"]), (&json!(format!("user/{}", second.id)), &json!(client.account_id)));
    assert_eq!(
        (&erased["actor_type"], &erased["actor_id"], &erased["is_complete"]),
        (&json!("operator"), &json!(0), &json!(true))
    );
    assert_eq!((&erased["texts"], &erased["data_keys"], &erased["line"]), (&json!(1), &json!(1), &Value::Null));
    assert_eq!(page["next_before"], erased["position"]);
    let page = node.operator("GET", &format!("/erasures?limit=1&before={}", page["next_before"]), Value::Null).await.data(200);
    assert_eq!((&page["erasures"][0]["subject"], &page["next_before"]), (&json!(format!("user/{}", first.id)), &Value::Null));
    for wrong in ["before=0", "limit=0", "shard_id=9"] {
        node.operator("GET", &format!("/erasures?{wrong}"), Value::Null).await.refused(400, "E_VALIDATION_FAILURE");
    }
}

#[tokio::test]
async fn the_oldest_payload_is_found_behind_many_without_one() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let oldest = async || {
        let rules = node.operator("GET", "/retention", Value::Null).await.data(200)["rules"].clone();
        let names: Vec<&str> = rules.as_array().unwrap().iter().map(|rule| rule["data"].as_str().unwrap()).collect();
        assert_eq!(names, ["attempts", "payloads", "response_bodies", "stored_responses", "delivery_days"]);
        assert_eq!((&rules[0]["kept_seconds"], &rules[0]["setting"]), (&json!(90 * 86_400), &json!("--attempt-retention")));
        assert_eq!((&rules[2]["kept_seconds"], &rules[2]["quota_bytes"]), (&Value::Null, &json!(16 << 20)));
        assert_eq!(rules[3]["kept_seconds"], 86_400);
        rules[1]["oldest_at"].as_str().map(|at| at.parse::<DateTime<Utc>>().unwrap())
    };
    assert_eq!(oldest().await, None);
    let hook = json!({"name": "Shop", "url": "https://example.com/hook", "events": ["order.created"]});
    node.client(&setup.client, "POST", "/webhooks", hook).await.json();
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    node.client(&setup.client, "POST", "/orders", order).await.data(201);
    node.project().await;
    let newest = oldest().await.expect("the payload of the order");
    let copy = async |days: i64, has_payload: bool| {
        let at = newest - TimeDelta::days(days);
        let id = uuid::Builder::from_unix_timestamp_millis(at.timestamp_millis().unsigned_abs(), &[7; 10]).into_uuid();
        insert(&node, id, at, has_payload).await;
        at
    };
    for days in (40..=400).step_by(20) {
        copy(days, false).await;
    }
    assert_eq!(oldest().await, Some(newest), "only the order has a payload");
    let expected = copy(30, true).await;
    copy(20, true).await;
    assert_eq!(oldest().await, Some(expected));
}

/// Copies the envelope of an order, with another id and time.
async fn insert(node: &Node, id: Uuid, at: DateTime<Utc>, has_payload: bool) {
    let copy = "INSERT INTO webhook_envelopes SELECT (jsonb_populate_record(e, jsonb_build_object(
            'event_id', $1::uuid, 'created_at', $2::timestamptz, 'payload', CASE WHEN $3::boolean THEN e.payload END))).*
        FROM webhook_envelopes e ORDER BY event_id DESC LIMIT 1";
    sqlx::query(copy).bind(id).bind(at).bind(has_payload).execute(node.ledger.pool()).await.unwrap();
}
