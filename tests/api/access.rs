//! Permissions: the operations allowed to each kind of caller.

use rewards_ledger::access::Role;
use serde_json::{Value, json};

use crate::support::node::{Client, Node};

#[tokio::test]
async fn a_wrong_key_and_a_wrong_secret_get_the_same_answer() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let other = node.account("Other").await;
    let wrong_secret = Client { secret: other.secret.clone(), ..client.clone() };
    let wrong_key = Client { key: "0".repeat(32), ..client.clone() };
    let mut answers = Vec::new();
    for caller in [&wrong_secret, &wrong_key] {
        for (method, path) in [("GET", "/orders"), ("POST", "/orders"), ("GET", "/nowhere")] {
            let answer = node.client(caller, method, path, Value::Null).await;
            answer.refused(401, "E_UNAUTHORIZED");
            answers.push(answer.text);
        }
    }
    answers.push(node.send(node.request("GET", "/api/v1/orders").header("X-API-Key", &client.key)).await.text);
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    node.client(&client, "GET", "/nowhere", Value::Null).await.refused(404, "E_NOT_FOUND");
    node.client(&client, "GET", "/orders/", Value::Null).await.data(200);
}

#[tokio::test]
async fn a_revoked_credential_is_unknown_on_the_next_request() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let path = format!("/credentials/{}", setup.client.credential_id);
    let revoked = node.operator("DELETE", &path, Value::Null).await.data(200);
    assert_eq!(revoked["is_revoked"], true);
    assert_eq!(revoked["key_prefix"], setup.client.key[..8]);
    let head = node.head().await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    node.client(&setup.client, "POST", "/orders", order).await.refused(401, "E_UNAUTHORIZED");
    node.client(&setup.client, "GET", "/orders", Value::Null).await.refused(401, "E_UNAUTHORIZED");
    assert_eq!(node.head().await, head);
    node.operator("DELETE", &path, Value::Null).await.data(200);
    assert_eq!(node.head().await, head, "revoked once");
    node.operator("DELETE", "/credentials/999999", Value::Null).await.refused(404, "E_NOT_FOUND");
}

#[tokio::test]
async fn a_suspended_account_reads_and_changes_nothing() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let body = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(client, "POST", "/orders", body.clone()).await.data(201);
    let hook = json!({"name": "a", "url": "https://example.com/hook", "events": ["order.created"]});
    let webhook = node.client(client, "POST", "/webhooks", hook.clone()).await.json();
    let path = format!("/accounts/{}", client.account_id);
    let account = node.operator("PUT", &path, json!({"status": "SUSPENDED"})).await.data(200);
    assert_eq!(account["status"], "SUSPENDED");

    let head = node.head().await;
    let webhook = format!("/webhooks/{}", webhook["id"]);
    for (method, path, body) in [
        ("POST", "/orders", body.clone()),
        ("POST", &format!("/orders/{}/cancel", order["id"]), Value::Null),
        ("POST", "/webhooks", hook),
        ("PUT", &webhook, json!({"is_active": false})),
        ("DELETE", &webhook, Value::Null),
    ] {
        node.client(client, method, path, body).await.refused(403, "E_ACCOUNT_SUSPENDED");
    }
    assert_eq!(node.head().await, head);
    for path in ["/orders", "/wallets", "/transactions", "/webhooks", "/products", "/webhooks/deliveries"] {
        node.client(client, "GET", path, Value::Null).await.data(200);
    }
    node.operator("PUT", &path, json!({"status": "ACTIVE"})).await.data(200);
    node.client(client, "POST", "/orders", body).await.data(201);
}

#[tokio::test]
async fn the_data_of_another_account_is_not_found() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let other = node.account("Other").await;
    let body = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(&setup.client, "POST", "/orders", body).await.data(201);
    let hook = json!({"name": "a", "url": "https://example.com/hook", "events": ["order.created"]});
    let webhook = node.client(&setup.client, "POST", "/webhooks", hook).await.json();
    let head = node.head().await;
    let order_path = format!("/orders/{}", order["id"]);
    let webhook_path = format!("/webhooks/{}", webhook["id"]);
    for (method, path, body) in [
        ("GET", order_path.clone(), Value::Null),
        ("GET", format!("{order_path}/vouchers"), Value::Null),
        ("POST", format!("{order_path}/cancel"), Value::Null),
        ("GET", format!("/transactions/{}", order["transaction_id"]), Value::Null),
        ("GET", webhook_path.clone(), Value::Null),
        ("PUT", webhook_path.clone(), json!({"is_active": false})),
        ("DELETE", webhook_path.clone(), Value::Null),
        ("GET", "/webhooks/deliveries/1".to_owned(), Value::Null),
    ] {
        let foreign = node.client(&other, method, &path, body.clone()).await;
        foreign.refused(404, "E_NOT_FOUND");
        let digits = path.trim_matches(|c: char| !c.is_ascii_digit()).to_owned();
        for unknown in ["888888", "x", "9999999999999999999999", "-1"] {
            let answer = node.client(&other, method, &path.replace(&digits, unknown), body.clone()).await;
            assert_eq!((answer.status, &answer.text), (404, &foreign.text), "{method} {path} {unknown}");
        }
    }
    assert_eq!(node.head().await, head);
}

#[tokio::test]
async fn operators_do_what_their_role_allows() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let (finance, auditor) = (node.token(Role::Finance).await, node.token(Role::Auditor).await);
    let body = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(&setup.client, "POST", "/orders", body).await.data(201);
    let (account, wallet, product) = (setup.client.account_id, setup.wallet_id, setup.product_id);

    let reads = [
        "/accounts",
        "/products",
        "/categories",
        "/orders",
        &format!("/orders/{}", order["id"]),
        &format!("/products/{product}/stock"),
    ];
    for token in [&finance, &auditor] {
        for path in reads {
            node.operator_with(token, "GET", path, Value::Null).await.data(200);
        }
    }
    let money = [
        (format!("/wallets/{wallet}/fund"), json!({"amount": "1.00", "reference": "by finance"})),
        (format!("/wallets/{wallet}/adjust"), json!({"type": "DEBIT", "amount": "1.00", "reason": "a test"})),
    ];
    for (path, body) in &money {
        node.operator_with(&finance, "POST", path, body.clone()).await.data(201);
    }
    let head = node.head().await;
    for (path, _) in &money {
        // The refusal comes before the body is read.
        node.operator_with(&auditor, "POST", path, json!({})).await.refused(403, "E_FORBIDDEN");
    }
    for (method, path) in [
        ("POST", "/accounts".to_owned()),
        ("PUT", format!("/accounts/{account}")),
        ("POST", format!("/accounts/{account}/credentials")),
        ("PUT", format!("/credentials/{}", setup.client.credential_id)),
        ("DELETE", format!("/credentials/{}", setup.client.credential_id)),
        ("POST", format!("/accounts/{account}/wallets")),
        ("PUT", format!("/accounts/{account}/discounts")),
        ("POST", "/products".to_owned()),
        ("PUT", format!("/products/{product}")),
        ("POST", format!("/products/{product}/vouchers")),
        ("POST", "/categories".to_owned()),
        ("POST", format!("/orders/{}/cancel", order["id"])),
    ] {
        for token in [&finance, &auditor] {
            node.operator_with(token, method, &path, json!({})).await.refused(403, "E_FORBIDDEN");
        }
    }
    assert_eq!(node.head().await, head);
    node.send(node.request("GET", "/admin/v1/orders")).await.refused(401, "E_UNAUTHORIZED");
    node.send(node.request("GET", "/admin/v1/orders").bearer_auth("wrong")).await.refused(401, "E_UNAUTHORIZED");
    node.client(&setup.client, "GET", "/../../admin/v1/orders", Value::Null).await.refused(401, "E_UNAUTHORIZED");
}
