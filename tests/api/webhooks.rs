//! Webhooks and their deliveries.

use rewards_ledger::audit::verify;
use rewards_ledger::ledger::FIRST_SHARD;
use rewards_ledger::ledger::projector::{ProjectionStep, Projector};
use serde_json::{Value, json};
use webhook_client::receiver::ReceiverResponse as Received;

use super::at_rest::readable_in;
use crate::support::node::Node;
use crate::support::shop::{DEADLINE, receiver, worker};

async fn project(node: &Node) {
    let projector = Projector::new(&node.ledger, &node.options, node.metrics.clone());
    while projector.step(FIRST_SHARD).await.unwrap() != ProjectionStep::Idle {}
}

#[tokio::test]
async fn a_webhook_is_created_changed_and_deleted() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let body = json!({"name": "Shop", "url": "https://example.com/hook", "events": ["order.delivered", "order.created"]});
    let answer = node.client(&client, "POST", "/webhooks", body).await;
    assert_eq!((answer.status, answer.header("cache-control")), (201, "no-store"));
    let created = answer.json();
    let mut fields: Vec<&str> = created.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["created_at", "events", "id", "is_active", "name", "token", "url"], "a flat object with seven fields");
    assert_eq!(created["token"].as_str().unwrap().len(), 64);
    assert_eq!(created["events"], json!(["order.delivered", "order.created"]));

    let path = format!("/webhooks/{}", created["id"]);
    let view = node.client(&client, "GET", &path, Value::Null).await.data(200);
    let expected = json!({
        "id": created["id"], "name": "Shop", "url": "https://example.com/hook", "events": ["order.delivered", "order.created"],
        "credential_id": null, "header_names": [], "is_active": true, "deactivation": null, "created_at": created["created_at"],
        "updated_at": created["created_at"],
    });
    assert_eq!(view, expected);
    let list = node.client(&client, "GET", "/webhooks", Value::Null).await;
    assert_eq!(list.data(200), json!({"webhooks": [view]}));
    assert_eq!(list.header("x-total-count"), "1");

    let changed = node.client(&client, "PUT", &path, json!({"name": "New", "is_active": false})).await.data(200);
    assert_eq!((&changed["name"], &changed["is_active"], &changed["url"]), (&json!("New"), &json!(false), &view["url"]));
    assert_eq!(node.client(&client, "GET", &path, Value::Null).await.data(200), changed);
    let head = node.head().await;
    let unknown = json!({"credential_id": 999_999});
    for body in [json!({}), json!({"name": null}), json!({"credential_id": null}), unknown, json!({"events": []})] {
        node.client(&client, "PUT", &path, body).await.refused(400, "E_VALIDATION_FAILURE");
    }
    assert_eq!(node.head().await, head);

    let deleted = node.client(&client, "DELETE", &path, Value::Null).await.data(200);
    assert_eq!(deleted["webhook_id"], created["id"]);
    for (method, body) in [("GET", Value::Null), ("PUT", json!({"name": "x"})), ("DELETE", Value::Null)] {
        node.client(&client, method, &path, body).await.refused(404, "E_NOT_FOUND");
    }
    assert_eq!(node.client(&client, "GET", "/webhooks", Value::Null).await.data(200), json!({"webhooks": []}));
}

#[tokio::test]
async fn a_webhook_can_use_a_credentials_secret() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let other = node.account("Other").await;
    let body = |credential: i64| json!({"name": "a", "url": "https://example.com", "events": ["order.created"], "credential_id": credential});
    let first = node.client(&client, "POST", "/webhooks", body(client.credential_id)).await.json();
    let second = node.client(&client, "POST", "/webhooks", body(client.credential_id)).await.json();
    assert_eq!(first["token"], second["token"], "both webhooks use the credential's secret");
    let path = format!("/webhooks/{}", first["id"]);
    assert_eq!(node.client(&client, "GET", &path, Value::Null).await.data(200)["credential_id"], client.credential_id);
    let head = node.head().await;
    for credential in [other.credential_id, 999_999] {
        let error = node.client(&client, "POST", "/webhooks", body(credential)).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(error["messages"]["credential_id"].is_array(), "{error}");
    }
    assert_eq!(node.head().await, head);
    for _ in 2..20 {
        assert_eq!(node.client(&client, "POST", "/webhooks", body(client.credential_id)).await.status, 201);
    }
    node.client(&client, "POST", "/webhooks", body(client.credential_id)).await.refused(409, "E_WEBHOOK_LIMIT_REACHED");
}

#[tokio::test]
async fn only_an_owner_or_the_credential_itself_links_a_webhook() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let (other, foreign) = (node.credential(client.account_id).await, node.account("Other").await);
    let (operator, owner) = (node.user(client.account_id, "operator").await, node.user(client.account_id, "owner").await);
    let hook = json!({"name": "a", "url": "https://example.com/hook", "events": ["order.created"]});
    let made = node.client(&client, "POST", "/webhooks", hook.clone()).await.json();
    let path = format!("/webhooks/{}", made["id"]);
    let with = |credential: i64| {
        let mut body = hook.clone();
        body["credential_id"] = json!(credential);
        body
    };
    let link = |credential: i64| json!({"credential_id": credential});

    let head = node.head().await;
    let full = format!("/api/v1{path}");
    node.client(&other, "POST", "/webhooks", with(client.credential_id)).await.refused(403, "E_FORBIDDEN");
    node.client(&other, "PUT", &path, link(client.credential_id)).await.refused(403, "E_FORBIDDEN");
    let by_operator = node.bearer(&operator.access_token, "POST", "/api/v1/webhooks", with(client.credential_id)).await;
    by_operator.refused(403, "E_FORBIDDEN");
    node.bearer(&operator.access_token, "PUT", &full, link(client.credential_id)).await.refused(403, "E_FORBIDDEN");
    // A credential of another account is unknown to every caller.
    for caller in [&operator, &owner] {
        for credential in [foreign.credential_id, 999_999] {
            let created = node.bearer(&caller.access_token, "POST", "/api/v1/webhooks", with(credential)).await;
            assert!(created.refused(400, "E_VALIDATION_FAILURE")["messages"]["credential_id"].is_array());
            let changed = node.bearer(&caller.access_token, "PUT", &full, link(credential)).await;
            assert!(changed.refused(400, "E_VALIDATION_FAILURE")["messages"]["credential_id"].is_array());
        }
    }
    let revoked = node.credential(client.account_id).await.credential_id;
    node.operator("DELETE", &format!("/credentials/{revoked}"), Value::Null).await.data(200);
    let error = node.bearer(&owner.access_token, "PUT", &full, link(revoked)).await.refused(400, "E_VALIDATION_FAILURE");
    assert!(error["messages"]["credential_id"].is_array(), "{error}");
    assert_eq!(node.head().await, head + 2, "a credential was issued and revoked, and nothing else happened");

    // A credential may link itself. The owner may then link the webhook to another credential.
    let linked = node.client(&client, "PUT", &path, link(client.credential_id)).await.data(200);
    assert_eq!(linked["credential_id"], client.credential_id);
    assert!(linked.get("token").is_none(), "{linked}");
    let token = node.client(&client, "POST", "/webhooks", with(client.credential_id)).await.json()["token"].clone();
    assert_eq!(token.as_str().unwrap().len(), 64);
    let linked = node.bearer(&owner.access_token, "PUT", &full, link(other.credential_id)).await.data(200);
    assert_eq!(linked["credential_id"], other.credential_id);
    // Requests to a linked webhook's URL carry the secret, so changing the URL requires the same permission as
    // linking.
    let elsewhere = json!({"url": "https://example.com/elsewhere"});
    node.bearer(&operator.access_token, "PUT", &full, elsewhere.clone()).await.refused(403, "E_FORBIDDEN");
    node.client(&client, "PUT", &path, elsewhere.clone()).await.refused(403, "E_FORBIDDEN");
    node.client(&other, "PUT", &path, elsewhere).await.data(200);
    let renamed = node.bearer(&operator.access_token, "PUT", &full, json!({"name": "b"})).await.data(200);
    assert_eq!(renamed["credential_id"], other.credential_id, "omitted fields stay unchanged");
    project(&node).await;
    assert!(verify(&node.options, |_| {}).await.unwrap().is_clean());
}

#[tokio::test]
async fn a_webhooks_own_token_is_rotated_and_shown_once() {
    let node = Node::start().await;
    let (receiver, mut arrived) = receiver(|_| Received::Status(200)).await;
    let setup = node.setup().await;
    let client = &setup.client;
    let hook = json!({"name": "a", "url": receiver.url(), "events": ["order.created"]});
    let made = node.client(client, "POST", "/webhooks", hook.clone()).await.json();
    let path = format!("/webhooks/{}/rotate-token", made["id"]);
    // The delivery is made before the rotation and sent after it, with the token that is current then.
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    node.client(client, "POST", "/orders", order).await.data(201);
    project(&node).await;

    let answer = node.keyed(client, &path, "rotation", &Value::Null).await;
    let rotated = answer.data(200);
    assert_eq!(answer.header("cache-control"), "no-store");
    let token = rotated["token"].as_str().unwrap();
    assert_eq!((&rotated["webhook_id"], token.len(), rotated.as_object().unwrap().len()), (&made["id"], 64, 4), "{rotated}");
    assert_ne!(made["token"], rotated["token"]);
    let replayed = node.keyed(client, &path, "rotation", &Value::Null).await;
    assert_eq!((replayed.header("idempotent-replayed"), &replayed.text), ("true", &answer.text));
    assert_eq!(readable_in(&node, token).await, Vec::<String>::new(), "the stored response is sealed as well");
    let view = node.client(client, "GET", &format!("/webhooks/{}", made["id"]), Value::Null).await.data(200);
    assert_eq!(view["updated_at"], rotated["rotated_at"]);
    assert!(view.get("token").is_none(), "{view}");

    let worker = worker(&node.options, &receiver, DEADLINE);
    assert_eq!(worker.once().await.unwrap().delivered, 1);
    let received = arrived.recv().await.unwrap();
    assert_eq!(received.token(), Some(token));
    received.verify(token, chrono::Utc::now().timestamp()).unwrap();

    // A linked webhook uses its credential's signing secret, which is rotated with the credential.
    let link = json!({"credential_id": client.credential_id});
    node.client(client, "PUT", &format!("/webhooks/{}", made["id"]), link).await.data(200);
    let head = node.head().await;
    let error = node.client(client, "POST", &path, Value::Null).await.refused(409, "E_CONFLICT");
    assert!(error["message"].as_str().unwrap().contains("signing secret of its credential"), "{error}");
    node.client(client, "POST", "/webhooks/999999/rotate-token", Value::Null).await.refused(404, "E_NOT_FOUND");
    let other = node.account("Other").await;
    node.client(&other, "POST", &path, Value::Null).await.refused(404, "E_NOT_FOUND");
    assert_eq!(node.head().await, head + 2, "another account was created, and nothing else happened");

    let second = node.client(client, "POST", "/webhooks", hook).await.json();
    let path = format!("/webhooks/{}", second["id"]);
    node.client(client, "DELETE", &path, Value::Null).await.data(200);
    node.client(client, "POST", &format!("{path}/rotate-token"), Value::Null).await.refused(404, "E_NOT_FOUND");
    project(&node).await;
    assert!(verify(&node.options, |_| {}).await.unwrap().is_clean());
}

#[tokio::test]
async fn deliveries_are_listed_and_found() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let hook = json!({"name": "a", "url": "https://example.com/hook", "events": ["order.created", "order.cancelled"]});
    let webhook = node.client(client, "POST", "/webhooks", hook).await.json();
    let body = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(client, "POST", "/orders", body).await.data(201);
    node.client(client, "POST", &format!("/orders/{}/cancel", order["id"]), Value::Null).await.data(200);
    project(&node).await;

    let answer = node.client(client, "GET", "/webhooks/deliveries", Value::Null).await;
    assert_eq!((answer.header("x-total-count"), answer.header("x-page-size")), ("2", "20"));
    let deliveries = answer.data(200)["deliveries"].clone();
    assert_eq!(deliveries[0]["event_type"], "order.cancelled");
    let created = &deliveries[1];
    let expected = json!({
        "id": created["id"], "webhook_url_id": webhook["id"], "order_id": order["id"], "event_type": "order.created",
        "event_id": created["event_id"], "sequence": created["sequence"], "payload": created["payload"], "status": "pending", "attempt_count": 0, "max_attempts": 5,
        "response_status": null, "response_time_ms": null, "delivered_at": null, "created_at": created["created_at"],
    });
    assert_eq!(created, &expected);
    assert!(deliveries[0]["sequence"].as_i64() > created["sequence"].as_i64(), "{deliveries}");
    assert_eq!(created["payload"]["event_id"], created["event_id"]);
    assert_eq!(created["payload"]["data"]["amount"], "10.00");

    for (query, total) in [
        ("status=pending", "2"),
        ("status=failed", "0"),
        ("event_type=order.created", "1"),
        (&format!("order_id={}", order["id"]), "2"),
        (&format!("webhook_url_id={}", webhook["id"]), "2"),
        ("webhook_url_id=999", "0"),
        ("limit=1&page=2", "2"),
    ] {
        let page = node.client(client, "GET", &format!("/webhooks/deliveries?{query}"), Value::Null).await;
        assert_eq!((page.status, page.header("x-total-count")), (200, total), "{query}");
    }
    for query in ["status=lost", "event_type=order.lost", "limit=101"] {
        let page = node.client(client, "GET", &format!("/webhooks/deliveries?{query}"), Value::Null).await;
        page.refused(400, "E_VALIDATION_FAILURE");
    }
    let path = format!("/webhooks/deliveries/{}", created["id"]);
    let detail = node.client(client, "GET", &path, Value::Null).await.data(200);
    assert_eq!((&detail["id"], &detail["payload"]), (&created["id"], &created["payload"]));
    assert_eq!((&detail["response_body"], &detail["attempts"]), (&Value::Null, &json!([])));
    assert!(detail["next_attempt_at"].is_string());
    assert_eq!(detail.as_object().unwrap().len(), 17);
    // A name is not accepted in place of an id.
    node.client(client, "PUT", "/webhooks/deliveries", json!({"name": "x"})).await.refused(405, "E_METHOD_NOT_ALLOWED");
}

#[tokio::test]
async fn a_test_delivery_has_sample_data_of_the_requested_type() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let body = json!({"name": "a", "url": "https://example.com", "events": ["order.created", "order.partially_delivered", "order.delivered"]});
    let webhook = node.client(&client, "POST", "/webhooks", body).await.json();
    let path = format!("/webhooks/{}/test", webhook["id"]);
    for (event_type, status, items) in [
        ("order.created", "PENDING", 0),
        ("order.partially_delivered", "PARTIALLY_DELIVERED", 1),
        ("order.delivered", "DELIVERED", 1),
    ] {
        let test = node.client(&client, "POST", &path, json!({"event_type": event_type})).await.data(200);
        project(&node).await;
        let delivery =
            node.client(&client, "GET", &format!("/webhooks/deliveries/{}", test["delivery_id"]), Value::Null).await.data(200);
        let data = &delivery["payload"]["data"];
        assert_eq!((&delivery["event_type"], &data["status"]), (&json!(event_type), &json!(status)), "{delivery}");
        assert_eq!((&data["id"], &data["reference_code"]), (&json!(0), &json!("TEST")));
        assert_eq!((&data["denomination"], &data["quantity"], &data["amount"]), (&json!("25.00"), &json!(3), &json!("75.00")));
        assert_eq!(data["order_items"].as_array().map_or(0, Vec::len), items, "{data}");
        assert_eq!(data["delivered_on"].is_null(), event_type != "order.delivered", "{data}");
    }
    let head = node.head().await;
    for event_type in [json!("order.cancelled"), json!("order.unknown"), json!(7)] {
        let error =
            node.client(&client, "POST", &path, json!({"event_type": event_type})).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(error["messages"]["event_type"].is_array(), "{error}");
    }
    assert_eq!(node.head().await, head);
    // Requests of clients that know no fields stay as they were, whatever their Content-Type is.
    let plain = node.by(&client, "POST", &path).header("Content-Type", "text/plain").body("{}");
    node.send(plain).await.data(200);
}
