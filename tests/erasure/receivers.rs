//! Response bodies of webhook receivers.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use webhook_client::receiver::{Received, ReceiverResponse};

use super::traces::Traces;
use super::{erase, sound};
use crate::support::node::{Client, Node};
use crate::support::shop::{DEADLINE, receiver, worker};

async fn webhook(node: &Node, client: &Client, url: &str) -> i64 {
    let hook = json!({"name": "hook", "url": url, "events": ["order.created"]});
    node.client(client, "POST", "/webhooks", hook).await.json()["id"].as_i64().unwrap()
}

async fn detail(node: &Node, client: &Client, delivery: &Value) -> Value {
    node.client(client, "GET", &format!("/webhooks/deliveries/{delivery}"), Value::Null).await.data(200)
}

/// A response body may name the person that it is about, so it is erased with its account. The fact of the response
/// stays.
#[tokio::test(flavor = "multi_thread")]
async fn the_response_bodies_of_an_erased_accounts_receivers_are_erased() {
    let node = Node::start().await;
    let (setup, other) = (node.setup().await, node.account("Other").await);
    let asked = AtomicUsize::new(0);
    let answer = move |received: &Received| {
        let webhook = received.webhook_id().unwrap_or_default();
        // The first attempt of both deliveries fails.
        match asked.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => ReceiverResponse::StatusWithBody(503, format!("the customer of webhook {webhook} has to wait")),
            _ => ReceiverResponse::StatusWithBody(200, format!("the customer of webhook {webhook} was told")),
        }
    };
    let (receiver, _arrived) = receiver(answer).await;
    let hook = webhook(&node, &setup.client, &receiver.url()).await;
    let others = webhook(&node, &other, &receiver.url()).await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap();
    node.fulfil(order).await;
    let tested = node.client(&other, "POST", &format!("/webhooks/{others}/test"), Value::Null).await.data(200);
    node.project().await;
    for _ in 0..2 {
        let sent = worker(&node.options, &receiver, DEADLINE).once().await.unwrap();
        assert_eq!((sent.claimed, sent.recorded), (2, 2));
        sqlx::raw_sql("UPDATE delivery_state SET next_attempt_at = now()").execute(node.ledger.pool()).await.unwrap();
    }
    let listed = node.client(&setup.client, "GET", "/webhooks/deliveries", Value::Null).await.data(200);
    let delivery = &listed["deliveries"][0]["id"];
    let before = detail(&node, &setup.client, delivery).await;
    assert_eq!(before["response_body"], format!("the customer of webhook {hook} was told"));

    let bodies = before["attempts"].as_array().unwrap().iter().map(|attempt| attempt["response_body"].as_str().unwrap());
    let bodies: Vec<&str> = bodies.collect();
    assert_eq!(bodies, [&*format!("the customer of webhook {hook} has to wait"), before["response_body"].as_str().unwrap()]);
    let answered = Traces::plain(&bodies);
    answered.are_there(&node).await;
    node.operator("PUT", &format!("/accounts/{}", setup.client.account_id), json!({"status": "SUSPENDED"})).await.data(200);
    let told = erase(&node, "account", setup.client.account_id, &[]).await;
    for table in ["public.delivery_state", "public.delivery_attempts"] {
        assert!(told["rewritten"].as_array().unwrap().contains(&json!(table)), "{told}");
    }
    answered.are_gone(&node).await;
    let mut expected = before.clone();
    expected["response_body"] = Value::Null;
    expected["attempts"].as_array_mut().unwrap().iter_mut().for_each(|attempt| attempt["response_body"] = Value::Null);
    assert_eq!(detail(&node, &setup.client, delivery).await, expected);
    let kept = detail(&node, &other, &tested["delivery_id"]).await;
    assert_eq!(kept["response_body"], format!("the customer of webhook {others} was told"));
    assert_eq!(kept["attempts"][0]["response_body"], format!("the customer of webhook {others} has to wait"));
    node.project().await;
    sound(&node).await;
}
