//! What is forgotten after its time, and what that takes from nobody.

use std::time::Duration;

use rewards_ledger::audit::{Rebuild, rebuild};
use rewards_ledger::delivery::replay::Replayer;
use rewards_ledger::delivery::retention::{Forgotten, Retention, RetentionSettings};
use rewards_ledger::ledger::FIRST_SHARD;
use rewards_ledger::receiver::Answer;
use serde_json::{Value, json};

use super::{order, send, sound, switch, webhook};
use crate::support::node::{Client, Node};
use crate::support::shop::receiver;

const DAY: Duration = Duration::from_secs(86_400);

fn retention(node: &Node, attempts: Duration, payloads: Duration, response_bodies: u64) -> Retention {
    Retention::new(node.ledger.pool().clone(), RetentionSettings { attempts, payloads, response_bodies })
}

/// So that everything that is there now is past its time.
const AT_ONCE: Duration = Duration::from_millis(1);

async fn list(node: &Node, client: &Client) -> Vec<Value> {
    let listed = node.client(client, "GET", "/webhooks/deliveries", Value::Null).await.data(200);
    listed["deliveries"].as_array().unwrap().clone()
}

async fn full_payloads(node: &Node) -> i64 {
    sqlx::query_scalar("SELECT count(payload) FROM webhook_envelopes").fetch_one(node.ledger.pool()).await.unwrap()
}

#[tokio::test]
async fn payloads_are_forgotten_and_made_again_byte_for_byte() {
    let node = Node::start().await;
    let (receiver, mut arrived) = receiver(|_| Answer::Status(200)).await;
    let setup = node.setup().await;
    let client = &setup.client;
    let (id, _) = webhook(&node, client, &receiver.url(), &["order.created", "order.delivered"]).await;
    node.client(client, "POST", &format!("/webhooks/{id}/test"), Value::Null).await.data(200);
    let first = order(&node, &setup).await;
    node.fulfil(first).await;
    node.project().await;
    let mut long = retention(&node, DAY, DAY, 1 << 20);
    assert_eq!(long.once(FIRST_SHARD).await.unwrap(), Forgotten::default(), "nothing is old");
    // Somebody is still to be told.
    assert_eq!(retention(&node, DAY, AT_ONCE, 1 << 20).once(FIRST_SHARD).await.unwrap(), Forgotten::default());
    assert_eq!(send(&node, &receiver).await, 3);
    let (shown, bytes) = (list(&node, client).await, payloads(&node).await);

    let mut short = retention(&node, DAY, AT_ONCE, 1 << 20);
    assert_eq!(short.once(FIRST_SHARD).await.unwrap(), Forgotten { payloads: 3, ..Forgotten::default() });
    assert_eq!(full_payloads(&node).await, 0);
    assert_eq!(list(&node, client).await, shown, "a list shows what was sent");
    for delivery in &shown {
        let path = format!("/webhooks/deliveries/{}", delivery["id"]);
        assert_eq!(node.client(client, "GET", &path, Value::Null).await.data(200)["payload"], delivery["payload"]);
    }
    sound(&node).await;

    // A replay sends the same bytes, and they are kept until they are delivered.
    let replay = json!({"kind": "deliveries", "from_position": 1});
    node.operator("POST", &format!("/webhooks/{id}/replays"), replay).await.data(201);
    node.project().await;
    let replayer = Replayer { ledger: node.ledger.clone(), pool: node.ledger.pool().clone() };
    assert_eq!(replayer.once(FIRST_SHARD).await.unwrap(), 1);
    node.project().await;
    assert_eq!(full_payloads(&node).await, 2, "the order's two, not the test's");
    assert_eq!(retention(&node, DAY, AT_ONCE, 1 << 20).once(FIRST_SHARD).await.unwrap().payloads, 0);
    assert_eq!(send(&node, &receiver).await, 2);
    let mut sent: Vec<(String, String)> = vec![];
    while let Ok(one) = arrived.try_recv() {
        sent.push((one.event_id().unwrap().to_owned(), String::from_utf8(one.body.to_vec()).unwrap()));
    }
    assert_eq!(sent.len(), 5);
    for (event_id, body) in &sent {
        assert!(bytes.contains(&(event_id.clone(), body.clone())), "{body}");
    }
    sound(&node).await;

    // A rebuild brings them all back; the walk that begins anew takes them again.
    let rebuilt = rebuild(&node.options, Rebuild::Deliveries, |_| {}).await.unwrap();
    assert!(rebuilt.was_clean(), "{:#?}", rebuilt.differences);
    assert_eq!(payloads(&node).await, bytes);
    assert_eq!(retention(&node, DAY, AT_ONCE, 1 << 20).once(FIRST_SHARD).await.unwrap().payloads, 3);
}

async fn payloads(node: &Node) -> Vec<(String, String)> {
    sqlx::query_as("SELECT event_id::text, payload FROM webhook_envelopes ORDER BY event_id")
        .fetch_all(node.ledger.pool())
        .await
        .unwrap()
}

#[tokio::test]
async fn a_retry_after_the_payload_is_gone_sends_the_same_bytes() {
    let node = Node::start().await;
    let (receiver, mut arrived) = receiver(|r| Answer::Status(if r.path == "/later" { 200 } else { 500 })).await;
    let setup = node.setup().await;
    let client = &setup.client;
    let (id, _) = webhook(&node, client, &receiver.url(), &["order.created"]).await;
    order(&node, &setup).await;
    node.project().await;
    send(&node, &receiver).await;
    switch(&node, client, id, false).await;
    assert_eq!(retention(&node, DAY, AT_ONCE, 0).once(FIRST_SHARD).await.unwrap().payloads, 1);
    node.client(client, "PUT", &format!("/webhooks/{id}"), json!({"url": format!("{}/later", receiver.url())})).await.data(200);
    switch(&node, client, id, true).await;
    let delivery = list(&node, client).await[0]["id"].clone();
    node.client(client, "POST", &format!("/webhooks/deliveries/{delivery}/retry"), Value::Null).await.data(200);
    node.project().await;
    assert_eq!(send(&node, &receiver).await, 1);
    assert_eq!(arrived.recv().await.unwrap().body, arrived.recv().await.unwrap().body);
    assert_eq!(list(&node, client).await[0]["status"], "delivered");
    sound(&node).await;
}

#[tokio::test]
async fn attempts_are_forgotten_with_the_body_of_the_latest_one() {
    let node = Node::start().await;
    let (receiver, _arrived) = receiver(|r| {
        let status = if r.path == "/good" { 200 } else { 500 };
        Answer::StatusWithBody(status, "an answer".to_owned())
    })
    .await;
    let setup = node.setup().await;
    let client = &setup.client;
    webhook(&node, client, &format!("{}/good", receiver.url()), &["order.created"]).await;
    let (bad, _) = webhook(&node, client, &format!("{}/bad", receiver.url()), &["order.created"]).await;
    order(&node, &setup).await;
    node.project().await;
    assert_eq!(send(&node, &receiver).await, 2);
    assert_eq!(retention(&node, DAY, DAY, 1 << 20).once(FIRST_SHARD).await.unwrap(), Forgotten::default());
    let mut short = retention(&node, AT_ONCE, DAY, 1 << 20);
    assert_eq!(short.once(FIRST_SHARD).await.unwrap(), Forgotten { attempts: 1, ..Forgotten::default() }, "one is pending");
    let details = async || {
        let mut shown = vec![];
        for delivery in list(&node, client).await.iter().rev() {
            let path = format!("/webhooks/deliveries/{}", delivery["id"]);
            let one = node.client(client, "GET", &path, Value::Null).await.data(200);
            shown.push((one["attempt_count"].clone(), one["attempts"].as_array().unwrap().len(), one["response_body"].clone()));
        }
        shown
    };
    assert_eq!(details().await, [(json!(1), 0, Value::Null), (json!(1), 1, json!("an answer"))]);
    switch(&node, client, bad, false).await;
    assert_eq!(short.once(FIRST_SHARD).await.unwrap(), Forgotten { attempts: 1, ..Forgotten::default() });
    assert_eq!(details().await, [(json!(1), 0, Value::Null), (json!(1), 0, Value::Null)]);
    sound(&node).await;
}

#[tokio::test]
async fn response_bodies_stay_under_their_quota_the_newest_are_kept() {
    let node = Node::start().await;
    let (receiver, _arrived) = receiver(|_| Answer::StatusWithBody(200, "x".repeat(1_000))).await;
    let setup = node.setup().await;
    let client = &setup.client;
    let (one, _) = webhook(&node, client, &receiver.url(), &["order.created"]).await;
    let (other, _) = webhook(&node, client, &receiver.url(), &["order.cancelled"]).await;
    for n in 0..5 {
        let id = order(&node, &setup).await;
        if n == 0 {
            node.client(client, "POST", &format!("/orders/{id}/cancel"), Value::Null).await.data(200);
        }
    }
    node.project().await;
    assert_eq!(send(&node, &receiver).await, 6);
    assert_eq!(retention(&node, DAY, DAY, 5_000).once(FIRST_SHARD).await.unwrap(), Forgotten::default());
    let trimmed = retention(&node, DAY, DAY, 2_500).once(FIRST_SHARD).await.unwrap();
    assert_eq!(trimmed, Forgotten { response_bodies: 3, ..Forgotten::default() });
    let kept = async |webhook: i64| -> Vec<bool> {
        sqlx::query_scalar("SELECT response_body IS NOT NULL FROM delivery_state WHERE webhook_id = $1 ORDER BY delivery_id")
            .bind(webhook)
            .fetch_all(node.ledger.pool())
            .await
            .unwrap()
    };
    assert_eq!(kept(one).await, [false, false, false, true, true]);
    assert_eq!(kept(other).await, [true], "each webhook has its own");
    // Small ones have a bound, too.
    sqlx::raw_sql("UPDATE delivery_state SET response_body = 'ok'").execute(node.ledger.pool()).await.unwrap();
    assert_eq!(retention(&node, DAY, DAY, 512).once(FIRST_SHARD).await.unwrap().response_bodies, 3);
    sound(&node).await;
}
