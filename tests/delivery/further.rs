//! Events of payouts and wallets: what webhooks and the event feed receive of them.

use ledger_events::webhook::WebhookEventType;
use rewards_ledger::ledger::commands::{self, WebhookChange};
use rewards_ledger::ledger::low_balance::announce;
use rewards_ledger::ledger::projector::ProjectionStep;
use rewards_ledger::ledger::{FIRST_SHARD, reader};
use serde_json::{Value, json};
use webhook_client::receiver::{Received, ReceiverResponse};

use super::send_all;
use crate::support::node::{Node, Setup};
use crate::support::shop::{DEADLINE, SHARD, Shop, receiver, worker};

async fn beneficiary(node: &Node, setup: &Setup) -> i64 {
    let fields =
        json!({"type": "BANK", "name": "Ada", "country": "DE", "currency": "EUR", "account_number": "DE89370400440532013000"});
    node.client(&setup.client, "POST", "/beneficiaries", fields).await.data(201)["id"].as_i64().unwrap()
}

async fn payout(node: &Node, setup: &Setup, beneficiary: i64) -> i64 {
    let body = json!({"beneficiary_id": beneficiary, "wallet_id": setup.wallet_id, "amount": "5.00"});
    node.client(&setup.client, "POST", "/payouts", body).await.data(201)["id"].as_i64().unwrap()
}

async fn register(node: &Node, setup: &Setup, url: &str, events: &[&str]) -> Value {
    let body = json!({"name": "a", "url": url, "events": events});
    let registered = node.client(&setup.client, "POST", "/webhooks", body).await;
    assert_eq!(registered.status, 201, "{}", registered.text);
    registered.json()
}

fn envelope(received: &Received) -> Value {
    serde_json::from_slice(&received.body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn payouts_arrive_in_every_state_and_the_feed_has_the_same_bytes() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let types = ["payout.requested", "payout.paid", "payout.failed", "payout.cancelled"];
    let webhook = register(&node, &setup, &receiver.url(), &types).await;
    assert_eq!(webhook["events"], json!(types));
    let to = beneficiary(&node, &setup).await;
    let [paid, failed, cancelled] =
        [payout(&node, &setup, to).await, payout(&node, &setup, to).await, payout(&node, &setup, to).await];
    // The history of these payouts begins before the batch that ends them.
    node.project().await;
    node.operator("PUT", &format!("/payouts/{paid}"), json!({"status": "PAID"})).await.data(200);
    let body = json!({"status": "FAILED", "failure_reason": "closed"});
    node.operator("PUT", &format!("/payouts/{failed}"), body).await.data(200);
    node.client(&setup.client, "POST", &format!("/payouts/{cancelled}/cancel"), Value::Null).await.data(200);
    node.project().await;

    let worker = worker(&node.options, &receiver, DEADLINE);
    while send_all(&worker).await.claimed > 0 {}
    let mut told = vec![];
    while let Ok(received) = arrived.try_recv() {
        received.verify(webhook["token"].as_str().unwrap(), chrono::Utc::now().timestamp()).unwrap();
        told.push(received);
    }
    let mut states: Vec<(String, i64, String, bool)> = told
        .iter()
        .map(envelope)
        .map(|event| {
            let data = &event["data"];
            assert_eq!((&data["amount"], &data["beneficiary_id"]), (&json!("5.00"), &json!(to)));
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&event["event_type"]), data["id"].as_i64().unwrap(), text(&data["status"]), data["settled_at"].is_string())
        })
        .collect();
    states.sort_unstable();
    let state = |event: &str, id, status: &str| (event.to_owned(), id, status.to_owned(), status != "PENDING");
    let mut expected: Vec<_> = [paid, failed, cancelled].map(|id| state("payout.requested", id, "PENDING")).into();
    expected.extend([
        state("payout.cancelled", cancelled, "CANCELLED"),
        state("payout.failed", failed, "FAILED"),
        state("payout.paid", paid, "PAID"),
    ]);
    expected.sort_unstable();
    assert_eq!(states, expected);

    // The feed has them, too, with the same bytes, before and after retention.
    let mut sent: Vec<String> = told.iter().map(|received| String::from_utf8(received.body.to_vec()).unwrap()).collect();
    sent.sort_unstable();
    for query in ["UPDATE webhook_envelopes SET payload = payload", "UPDATE webhook_envelopes SET payload = NULL"] {
        sqlx::query(query).execute(node.ledger.pool()).await.unwrap();
        let feed = node.client(&setup.client, "GET", &format!("/events?types={}", types.join(",")), Value::Null).await;
        let events: Vec<&serde_json::value::RawValue> = serde_json::from_str::<Feed<'_>>(&feed.text).unwrap().data.events;
        let mut texts: Vec<&str> = events.iter().map(|event| event.get()).collect();
        texts.sort_unstable();
        assert_eq!(texts, sent, "{query}");
    }
    let listed = node.client(&setup.client, "GET", "/webhooks/deliveries?event_type=payout.paid", Value::Null).await.data(200);
    assert_eq!(listed["deliveries"][0]["order_id"], 0);
    assert_eq!(listed["deliveries"].as_array().unwrap().len(), 1);
}

#[derive(serde::Deserialize)]
struct Feed<'a> {
    #[serde(borrow)]
    data: FeedData<'a>,
}

#[derive(serde::Deserialize)]
struct FeedData<'a> {
    #[serde(borrow)]
    events: Vec<&'a serde_json::value::RawValue>,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_low_balance_arrives_once_for_each_fall() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    register(&node, &setup, &receiver.url(), &["order.created", "wallet.low_balance"]).await;
    let owner = node.user(setup.client.account_id, "owner").await;
    let path = format!("/client/api/wallets/{}/notice", setup.wallet_id);
    node.bearer(&owner.access_token, "PUT", &path, json!({"below": "900.00"})).await.data(200);
    let adjust = async |direction: &str, amount: &str| {
        let body = json!({"type": direction, "amount": amount, "reason": "r"});
        node.operator("POST", &format!("/wallets/{}/adjust", setup.wallet_id), body).await.data(201);
        node.project().await;
        // Two nodes, and one that has crashed before it recorded the first announcement.
        let (first, second) = tokio::join!(announce(&node.ledger, FIRST_SHARD), announce(&node.ledger, FIRST_SHARD));
        for done in [first, second] {
            done.unwrap();
        }
        sqlx::query("UPDATE low_balance_notices SET is_unannounced = true").execute(node.ledger.pool()).await.unwrap();
        announce(&node.ledger, FIRST_SHARD).await.unwrap();
        assert_eq!(announce(&node.ledger, FIRST_SHARD).await.unwrap(), 0);
        node.project().await;
    };
    let worker = worker(&node.options, &receiver, DEADLINE);
    let mut told = async || {
        while send_all(&worker).await.claimed > 0 {}
        let mut told = vec![];
        while let Ok(received) = arrived.try_recv() {
            told.push(envelope(&received));
        }
        told
    };
    adjust("DEBIT", "100.00").await; // 900.00, which is not below
    assert_eq!(told().await, [Value::Null; 0]);
    adjust("DEBIT", "0.01").await;
    let fallen = told().await;
    let [event] = &*fallen else { panic!("{fallen:?}") };
    assert_eq!(event["event_type"], "wallet.low_balance");
    let fell_at = event["data"]["fell_at"].clone();
    let data =
        json!({"wallet_id": setup.wallet_id, "currency": "EUR", "balance": "899.99", "below": "900.00", "fell_at": fell_at});
    assert_eq!(event["data"], data);
    adjust("DEBIT", "1.00").await;
    assert_eq!(told().await, [Value::Null; 0], "still below");
    adjust("CREDIT", "500.00").await;
    adjust("DEBIT", "600.00").await;
    assert_eq!(told().await.len(), 1, "a second fall");
    let feed = node.client(&setup.client, "GET", "/events?types=wallet.low_balance", Value::Null).await.data(200);
    assert_eq!(feed["events"].as_array().unwrap().len(), 2);
    assert_eq!(feed["events"][0], *event);

    // A node that derives the notices again, such as after an import, learns from the log that they are announced.
    let head = node.head().await;
    let mut admin = node.admin().await;
    let forget = "TRUNCATE idempotency_keys, low_balance_watches, low_balance_notices;
        UPDATE projection_checkpoints SET position = 0 WHERE projection = 'low_balance'";
    sqlx::raw_sql(forget).execute(&mut admin).await.unwrap();
    node.project().await;
    let notices: i64 = sqlx::query_scalar("SELECT count(*) FROM low_balance_notices").fetch_one(&mut admin).await.unwrap();
    assert_eq!(notices, 2);
    assert_eq!(announce(&node.ledger, FIRST_SHARD).await.unwrap(), 0);
    assert_eq!(node.head().await, head);
}

#[tokio::test]
async fn a_test_of_each_further_type_is_delivered() {
    let shop = Shop::open().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let (webhook_id, _) = shop.webhook_for(shop.customer.account_id, &receiver.url(), &WebhookEventType::ALL).await;
    let account_id = shop.customer.account_id;
    for event_type in WebhookEventType::ALL {
        let event_type = Some(event_type);
        shop.run(rewards_ledger::ledger::commands::TestWebhook { account_id, webhook_id, event_type }).await;
    }
    shop.project().await;
    let worker = shop.worker(&receiver, DEADLINE);
    while send_all(&worker).await.claimed > 0 {}
    let mut types = vec![];
    while let Ok(received) = arrived.try_recv() {
        let event = envelope(&received);
        assert_eq!(event["data"].get("id").unwrap_or(&event["data"]["wallet_id"]), 0, "{event}");
        types.push(event["event_type"].as_str().unwrap().to_owned());
    }
    types.sort_unstable();
    let mut expected = WebhookEventType::ALL.map(|event_type| event_type.as_str().to_owned());
    expected.sort_unstable();
    assert_eq!(types, expected);
}

/// A projector of the last release advances its checkpoint without the setting that later nodes make.
#[tokio::test]
async fn a_projector_that_does_not_know_a_type_does_not_pass_by_its_events() {
    let shop = Shop::open().await;
    let advance = "UPDATE projection_checkpoints SET position = $1 WHERE projection = 'deliveries' AND shard_id = 1";
    let old = async |to: i64| sqlx::query(advance).bind(to).execute(shop.pool()).await.map(|done| done.rows_affected());
    let head = async || reader::head(shop.pool(), SHARD).await.unwrap();
    shop.project().await;
    let to = shop.beneficiary().await;
    shop.payout(to, "1.00").await;
    assert_eq!(old(head().await).await.unwrap(), 1, "no webhook hears of payouts");
    let (webhook_id, _) =
        shop.webhook_for(shop.customer.account_id, "https://example.com/hook", &[WebhookEventType::PayoutRequested]).await;
    let refused = old(head().await).await.unwrap_err().to_string();
    assert!(refused.contains("event types that this node does not know"), "{refused}");
    shop.project().await;
    shop.order(1).await;
    assert_eq!(old(head().await).await.unwrap(), 1, "an order's events are known");
    shop.payout(to, "1.00").await;
    assert!(old(head().await).await.is_err());
    // The payout came before the webhook ceased to hear of payouts.
    let payout = head().await;
    let change = WebhookChange { events: Some(vec![WebhookEventType::OrderCreated]), ..WebhookChange::default() };
    shop.run(commands::UpdateWebhook { account_id: shop.customer.account_id, webhook_id, change }).await;
    assert!(old(payout).await.is_err());
    while shop.projector().step(SHARD).await.unwrap() != ProjectionStep::Idle {}
    let made: i64 = sqlx::query_scalar("SELECT count(*) FROM deliveries").fetch_one(shop.pool()).await.unwrap();
    assert_eq!(made, 1);
}
