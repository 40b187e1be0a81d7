//! Event metadata: every event records its actor, its request and its cause.

use rewards_ledger::delivery::replay::Replayer;
use rewards_ledger::ledger::FIRST_SHARD;
use serde_json::{Value, json};
use sqlx::types::Json;
use uuid::Uuid;

use crate::support::node::Node;

#[derive(Debug, ledger_database::FromRow)]
struct Stored {
    event_id: Uuid,
    r#type: String,
    metadata: Json<Value>,
}

impl Stored {
    fn id(&self, name: &str) -> Option<Uuid> {
        self.metadata[name].as_str().map(|id| id.parse().unwrap())
    }
}

async fn after(node: &Node, head: i64) -> Vec<Stored> {
    sqlx::query_as("SELECT event_id, type, metadata FROM events WHERE position > $1 ORDER BY position")
        .bind(head)
        .fetch_all(node.ledger.pool())
        .await
        .unwrap()
}

#[tokio::test]
async fn an_event_records_actor_account_request_correlation_and_cause() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let head = node.head().await;
    // Three of the four units are in stock, so the order is partially delivered and then cancelled.
    let body = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 4});
    let request = |path: &str, id: &str, key: &str, body: &Value| {
        let request = node.by(client, "POST", path).header("X-Request-ID", id).header("Idempotency-Key", key);
        request.header("Content-Type", "application/json").body(body.to_string())
    };
    let order = node.send(request("/orders", "place.1", "key-1", &body)).await.data(201)["id"].as_i64().unwrap();
    node.fulfil(order).await;
    let path = format!("/orders/{order}");
    node.send(node.by(client, "GET", &format!("{path}/vouchers")).header("X-Request-ID", "read.1")).await.data(200);
    node.send(request(&format!("{path}/cancel"), "cancel.1", "key-1", &json!({}))).await.data(200);

    let events = after(&node, head).await;
    let credential = json!({"credential": client.credential_id});
    let place = [("OrderPlaced", &credential, "place.1"), ("WalletDebited", &credential, "place.1")];
    let fulfilment = json!("fulfilment");
    let fulfil = [("OrderQueued", &fulfilment, "fulfilment"), ("OrderPartiallyDelivered", &fulfilment, "fulfilment")];
    let read = [("VouchersRevealed", &credential, "read.1")];
    let cancel = [("OrderCancelled", &credential, "cancel.1"), ("WalletRefunded", &credential, "cancel.1")];
    let expected = [&place[..], &fulfil, &read, &cancel].concat();
    let found: Vec<_> = events
        .iter()
        .map(|e| (&*e.r#type, &e.metadata["actor"], e.metadata["request_id"].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(found, expected);
    let placed = events[0].event_id;
    for event in &events {
        assert_eq!(event.metadata["account_id"], client.account_id, "{event:?}");
        assert_eq!(event.id("correlation_id"), Some(placed), "{event:?}");
    }
    // Each event is caused by the event before it in the order's history. A movement of money is caused by the event
    // that it pays for.
    let causes: Vec<Option<usize>> = events
        .iter()
        .map(|e| e.id("causation_id").map(|cause| events.iter().position(|e| e.event_id == cause).unwrap()))
        .collect();
    assert_eq!(causes[..4], [None, Some(0), Some(0), Some(2)]);
    assert_eq!(causes[6], Some(5), "the cancellation causes the refund");
    assert!(causes[1..].iter().zip(1..).all(|(cause, at)| cause.is_some_and(|cause| cause < at)), "{causes:?}");

    // The key is hashed together with its scope, so the same key on another path has another hash.
    let hash = |n: usize| events[n].metadata["idempotency_key_hash"].as_str().unwrap_or_default().to_owned();
    assert_eq!((hash(0).len(), hash(0)), (64, hash(1)));
    assert_eq!((hash(5).len(), hash(5)), (64, hash(6)));
    assert_ne!(hash(0), hash(5));
    assert_eq!((hash(2), hash(4)), (String::new(), String::new()));
}

#[tokio::test]
async fn the_history_of_a_payout_begins_with_its_request() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let person =
        json!({"name": "Ada", "type": "BANK", "country": "DE", "currency": "EUR", "account_number": "DE89370400440532013000"});
    let to = node.client(&setup.client, "POST", "/beneficiaries", person).await.data(201)["id"].take();
    let head = node.head().await;
    let asked = json!({"beneficiary_id": to, "wallet_id": setup.wallet_id, "amount": "5.00"});
    let id = node.client(&setup.client, "POST", "/payouts", asked).await.data(201)["id"].take();
    node.operator("PUT", &format!("/payouts/{id}"), json!({"status": "FAILED"})).await.data(200);
    let events = after(&node, head).await;
    let (client, operator) = (json!({"credential": setup.client.credential_id}), json!({"operator": 0}));
    let found: Vec<_> = events
        .iter()
        .map(|e| {
            let cause = e.id("causation_id").map(|cause| events.iter().position(|e| e.event_id == cause).unwrap());
            (&*e.r#type, &e.metadata["actor"], cause)
        })
        .collect();
    let expected = [
        ("PayoutRequested", &client, None),
        ("WalletDebited", &client, Some(0)),
        ("PayoutFailed", &operator, Some(0)),
        ("WalletRefunded", &operator, Some(2)),
    ];
    assert_eq!(found, expected);
    for event in &events {
        assert_eq!(event.metadata["account_id"], setup.client.account_id, "{event:?}");
        assert_eq!(event.id("correlation_id"), Some(events[0].event_id), "{event:?}");
    }
}

/// Returns the types of the events after a position, each with the index of its cause. All of them share one
/// correlation id.
async fn story(node: &Node, head: i64) -> Vec<(String, Option<usize>)> {
    let events = after(node, head).await;
    for event in &events {
        assert_eq!(event.id("correlation_id"), Some(events[0].event_id), "{event:?}");
    }
    let cause = |event: &Stored| event.id("causation_id").map(|cause| events.iter().position(|e| e.event_id == cause).unwrap());
    events.iter().map(|event| (event.r#type.clone(), cause(event))).collect()
}

fn told(story: &[(&str, Option<usize>)]) -> Vec<(String, Option<usize>)> {
    story.iter().map(|(name, cause)| ((*name).to_owned(), *cause)).collect()
}

#[tokio::test]
async fn all_effects_of_one_command_share_one_correlation_id() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let user = node.user(client.account_id, "viewer").await;
    let head = node.head().await;
    let linked = json!({"name": "a", "url": "https://example.com/hook", "events": ["order.created"], "credential_id": client.credential_id});
    let answer = node.client(client, "POST", "/webhooks", linked).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    assert_eq!(story(&node, head).await, told(&[("SigningSecretRotated", None), ("WebhookRegistered", Some(0))]));

    let other = node.credential(client.account_id).await;
    let head = node.head().await;
    node.operator("PUT", &format!("/credentials/{}", other.credential_id), json!({"hmac_required": true})).await.data(200);
    assert_eq!(story(&node, head).await, told(&[("SigningSecretRotated", None), ("HmacRequirementChanged", Some(0))]));

    let head = node.head().await;
    let change = json!({"role": "operator", "password": "another correct horse"});
    node.operator("PUT", &format!("/users/{}", user.id), change).await.data(200);
    assert_eq!(story(&node, head).await, told(&[("UserRoleChanged", None), ("UserPasswordReset", Some(0))]));
}

#[tokio::test]
async fn the_history_of_a_replay_begins_with_its_request() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let hook = json!({"name": "a", "url": "https://example.com/hook", "events": ["order.created"]});
    let hook = node.client(&setup.client, "POST", "/webhooks", hook).await.json()["id"].take();
    let body = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    node.client(&setup.client, "POST", "/orders", body).await.data(201);
    let replayer = Replayer { ledger: node.ledger.clone(), pool: node.ledger.pool().clone() };
    let start = json!({"kind": "deliveries", "from_position": 1});
    let path = format!("/webhooks/{hook}/replays");

    let head = node.head().await;
    node.operator("POST", &path, start.clone()).await.data(201);
    node.project().await;
    assert_eq!(replayer.once(FIRST_SHARD).await.unwrap(), 1);
    let ended = [("WebhookReplayRequested", None), ("WebhookReplayAdvanced", Some(0)), ("WebhookReplayCompleted", Some(1))];
    assert_eq!(story(&node, head).await, told(&ended));

    let head = node.head().await;
    let replay = node.operator("POST", &path, start).await.data(201)["replay"]["id"].clone();
    node.operator("POST", &format!("/replays/{replay}/cancel"), Value::Null).await.data(200);
    assert_eq!(story(&node, head).await, told(&[("WebhookReplayRequested", None), ("WebhookReplayCancelled", Some(0))]));
}

#[tokio::test]
async fn every_event_has_complete_metadata() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let hook = json!({"name": "a", "url": "https://example.com/hook", "events": ["order.created"]});
    assert_eq!(node.client(&setup.client, "POST", "/webhooks", hook).await.status, 201);
    let adjusted = json!({"type": "DEBIT", "amount": "1.00", "reason": "r"});
    node.operator("POST", &format!("/wallets/{}/adjust", setup.wallet_id), adjusted).await.data(201);
    let events = after(&node, 0).await;
    assert!(events.len() > 5);
    for event in &events {
        let operator = json!({"operator": 0});
        let is_webhook = event.r#type == "WebhookRegistered";
        let actor = if is_webhook { json!({"credential": setup.client.credential_id}) } else { operator };
        assert_eq!(event.metadata["actor"], actor, "{event:?}");
        assert!(!event.metadata["request_id"].as_str().unwrap().is_empty(), "{event:?}");
        assert!(event.id("correlation_id").is_some(), "{event:?}");
        // Events of the catalogue belong to no account.
        let is_catalogue = event.r#type.starts_with("Product") || event.r#type == "VoucherStockLoaded";
        let account = if is_catalogue { Value::Null } else { json!(setup.client.account_id) };
        assert_eq!(event.metadata["account_id"], account, "{event:?}");
    }
}
