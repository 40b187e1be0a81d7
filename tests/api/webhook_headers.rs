//! Custom headers of webhooks.

use rewards_ledger::audit::verify_with;
use serde_json::{Value, json};
use webhook_client::receiver::{Received, ReceiverResponse};

use super::at_rest::readable_in;
use crate::support::ledger::keyring;
use crate::support::node::{Client, Node};
use crate::support::shop::{DEADLINE, receiver, worker};

/// A value that is nowhere else.
const SECRET: &str = "Bearer 7f3d-headers-are-secret";

fn hook(url: &str, headers: Value) -> Value {
    json!({"name": "a", "url": url, "events": ["order.created"], "headers": headers})
}

fn header(name: &str, value: &str) -> Value {
    json!({"name": name, "value": value})
}

/// Sends a test delivery. Returns its request.
async fn tested(
    node: &Node,
    client: &Client,
    (webhook, url): (&Value, &webhook_client::receiver::Receiver),
    arrived: &mut tokio::sync::mpsc::UnboundedReceiver<Received>,
) -> Received {
    node.client(client, "POST", &format!("/webhooks/{webhook}/test"), Value::Null).await.data(200);
    node.project().await;
    assert_eq!(worker(&node.options, url, DEADLINE).once().await.unwrap().delivered, 1);
    arrived.recv().await.unwrap()
}

fn values<'a>(received: &'a Received, name: &str) -> Vec<&'a str> {
    received.headers.iter().filter(|(header, _)| header == name).map(|(_, value)| value.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_delivery_carries_the_headers_and_nobody_sees_their_values() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let headers = json!([header("Authorization", SECRET), header("X-Shop", "7")]);
    let made = node.client(&client, "POST", "/webhooks", hook(&receiver.url(), headers)).await;
    assert_eq!(made.status, 201, "{}", made.text);
    assert!(!made.text.contains(SECRET));
    let id = made.json()["id"].clone();
    let path = format!("/webhooks/{id}");
    let shown = node.client(&client, "GET", &path, Value::Null).await;
    assert_eq!(shown.data(200)["header_names"], json!(["authorization", "x-shop"]));
    assert!(!shown.text.contains(SECRET));
    assert_eq!(readable_in(&node, SECRET).await, Vec::<String>::new());

    let first = tested(&node, &client, (&id, &receiver), &mut arrived).await;
    assert_eq!((values(&first, "authorization"), values(&first, "x-shop")), (vec![SECRET], vec!["7"]));
    first.verify(made.json()["token"].as_str().unwrap(), chrono::Utc::now().timestamp()).unwrap();

    // A change applies to the next delivery. Other changes keep the headers.
    let changed = node.client(&client, "PUT", &path, json!({"headers": [header("X-Shop", "8")]})).await.data(200);
    assert_eq!(changed["header_names"], json!(["x-shop"]));
    let renamed = node.client(&client, "PUT", &path, json!({"name": "b"})).await.data(200);
    assert_eq!(renamed["header_names"], json!(["x-shop"]));
    let second = tested(&node, &client, (&id, &receiver), &mut arrived).await;
    assert_eq!((values(&second, "authorization"), values(&second, "x-shop")), (vec![], vec!["8"]));
    let report = verify_with(&node.options, Some(&keyring()), |_| {}).await.unwrap();
    assert!(report.is_clean(), "{report}: {:?}", report.differences);

    node.client(&client, "PUT", &path, json!({"headers": []})).await.data(200);
    let third = tested(&node, &client, (&id, &receiver), &mut arrived).await;
    assert_eq!(values(&third, "x-shop"), Vec::<&str>::new());
}

#[tokio::test]
async fn headers_of_http_and_of_the_service_are_refused() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let head = node.head().await;
    let many: Vec<Value> = (0..=10).map(|n| header(&format!("x-{n}"), "v")).collect();
    for (headers, field) in [
        (json!([header("Host", "example.com")]), "headers[0].name"),
        (json!([header("X-Shop", "7"), header("Transfer-Encoding", "chunked")]), "headers[1].name"),
        (json!([header("X-Signature", "0")]), "headers[0].name"),
        (json!([header("X-SERVICE-Webhook-Token", "0")]), "headers[0].name"),
        (json!([header("a b", "0")]), "headers[0].name"),
        (json!([header("X-Shop", "a\r\nX-Evil: 1")]), "headers[0].value"),
        (json!([header("X-Shop", "")]), "headers[0].value"),
        (json!([header("X-Shop", &"v".repeat(1_025))]), "headers[0].value"),
        (json!([header("X-Shop", "1"), header("x-shop", "2")]), "headers"),
        (json!(many), "headers"),
        (json!({"X-Shop": "7"}), "headers"),
    ] {
        let error = node.client(&client, "POST", "/webhooks", hook("https://example.com/hook", headers)).await;
        let error = error.refused(400, "E_VALIDATION_FAILURE");
        assert!(error["messages"][field].is_array(), "{field}: {error}");
    }
    assert_eq!(node.head().await, head);
}

#[tokio::test]
async fn a_new_url_needs_the_headers_again() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let url = "https://example.com/hook";
    let made = node.client(&client, "POST", "/webhooks", hook(url, json!([header("Authorization", SECRET)]))).await.json();
    let path = format!("/webhooks/{}", made["id"]);
    let elsewhere = json!({"url": "https://example.org/elsewhere"});
    let error = node.client(&client, "PUT", &path, elsewhere.clone()).await.refused(400, "E_VALIDATION_FAILURE");
    assert!(error["messages"]["headers"].is_array(), "{error}");
    node.client(&client, "PUT", &path, json!({"url": url, "name": "b"})).await.data(200);
    let mut both = elsewhere.clone();
    both["headers"] = json!([]);
    assert_eq!(node.client(&client, "PUT", &path, both).await.data(200)["header_names"], json!([]));
    node.client(&client, "PUT", &path, json!({"url": url})).await.data(200);
}
