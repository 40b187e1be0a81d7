//! Invalid request bodies are refused with the contract's error and leave nothing in the log.

use rewards_ledger::access::Role;
use rewards_ledger::access::limits::Rule;
use rewards_ledger::api;
use serde_json::{Value, json};

use super::routes::{path, world};
use crate::support::node::{Node, Setup};

/// Posts a text unchanged.
async fn post(node: &Node, setup: &Setup, path: &str, body: &str) -> crate::support::node::TestResponse {
    let request = node.by(&setup.client, "POST", path).header("Content-Type", "application/json");
    node.send(request.body(body.to_owned())).await
}

#[tokio::test]
async fn an_invalid_order_is_refused_with_a_reason_and_appends_nothing() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let id = setup.product_id;
    let head = node.head().await;
    let refused = async |body: &str, code: &str| post(&node, &setup, "/orders", body).await.refused(400, code);
    for body in ["", "{", "nul", "{\"a\":1,}", "{'a':1}", "\u{0}", &"[".repeat(40_000)] {
        let error = refused(body, "E_MALFORMED_JSON").await;
        assert!(!error.to_string().contains("column"), "{error}");
    }
    for body in ["[]", "1", "null", "\"x\""] {
        assert!(refused(body, "E_VALIDATION_FAILURE").await["messages"]["body"].is_array());
    }
    for (fields, named) in [
        (r#""denomination":10,"quantity":1"#.to_owned(), "product_id"),
        (format!(r#""product_id":{id},"quantity":1"#), "denomination"),
        (format!(r#""product_id":{id},"denomination":10"#), "quantity"),
        (format!(r#""product_id":{id},"denomination":10,"quantity":null"#), "quantity"),
        (format!(r#""product_id":"{id}","denomination":10,"quantity":1"#), "product_id"),
        (format!(r#""product_id":{id}.5,"denomination":10,"quantity":1"#), "product_id"),
        (r#""product_id":0,"denomination":10,"quantity":1"#.to_owned(), "product_id"),
        (r#""product_id":99999999999999999999,"denomination":10,"quantity":1"#.to_owned(), "product_id"),
        (format!(r#""product_id":{id},"denomination":"10","quantity":1"#), "denomination"),
        (format!(r#""product_id":{id},"denomination":10.001,"quantity":1"#), "denomination"),
        (format!(r#""product_id":{id},"denomination":0,"quantity":1"#), "denomination"),
        (format!(r#""product_id":{id},"denomination":-10,"quantity":1"#), "denomination"),
        (format!(r#""product_id":{id},"denomination":1e400,"quantity":1"#), "denomination"),
        (format!(r#""product_id":{id},"denomination":99999999999999999,"quantity":1"#), "denomination"),
        (format!(r#""product_id":{id},"denomination":10,"quantity":0"#), "quantity"),
        (format!(r#""product_id":{id},"denomination":10,"quantity":-1"#), "quantity"),
        (format!(r#""product_id":{id},"denomination":10,"quantity":1.5"#), "quantity"),
        (format!(r#""product_id":{id},"denomination":10,"quantity":2147483648"#), "quantity"),
        (format!(r#""product_id":{id},"denomination":10,"quantity":1,"quantity":1"#), "quantity"),
        (format!(r#""product_id":{id},"denomination":10,"quantity":1,"quantitee":1"#), "quantitee"),
        (format!(r#""product_id":{id},"denomination":10,"quantity":1,"client_reference":"""#), "client_reference"),
        (
            format!(r#""product_id":{id},"denomination":10,"quantity":1,"client_reference":"{}""#, "x".repeat(101)),
            "client_reference",
        ),
        (format!(r#""product_id":{id},"denomination":10,"quantity":1,"client_reference":"a\u0000""#), "client_reference"),
        (format!(r#""product_id":{id},"denomination":10,"quantity":1,"client_reference":"\ud800""#), "client_reference"),
        (format!(r#""product_id":{id},"denomination":10,"quantity":1,"metadata":[]"#), "metadata"),
        (format!(r#""product_id":{id},"denomination":10,"quantity":1,"metadata":{{"a":"{}"}}"#, "x".repeat(4_096)), "metadata"),
        (format!(r#""product_id":{id},"denomination":10,"quantity":1,"metadata":{{"a":1,"a":2}}"#), "metadata.a"),
        (format!(r#""product_id":{id},"denomination":10,"quantity":1,"metadata":{{"a":"\u0000"}}"#), "metadata.a"),
    ] {
        let error = refused(&format!("{{{fields}}}"), "E_VALIDATION_FAILURE").await;
        assert!(error["messages"][named].is_array(), "{fields}: {error}");
    }
    let long = format!("{{\"client_reference\":\"{}\"}}", "x".repeat(1 << 20));
    post(&node, &setup, "/orders", &long).await.refused(413, "E_PAYLOAD_TOO_LARGE");
    let request = node.by(&setup.client, "POST", "/orders").header("Content-Type", "text/plain").body("{}");
    node.send(request).await.refused(415, "E_UNSUPPORTED_MEDIA_TYPE");
    assert_eq!(node.head().await, head);
}

#[tokio::test]
async fn an_invalid_webhook_is_refused_with_a_reason_and_appends_nothing() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let head = node.head().await;
    let long_url = format!("https://example.com/{}", "x".repeat(2_048));
    for (name, url, events, named) in [
        (json!(""), json!("https://example.com"), json!(["order.created"]), "name"),
        (json!("x".repeat(101)), json!("https://example.com"), json!(["order.created"]), "name"),
        (json!(7), json!("https://example.com"), json!(["order.created"]), "name"),
        (json!("a"), json!("http://example.com"), json!(["order.created"]), "url"),
        (json!("a"), json!("https://me:pw@example.com"), json!(["order.created"]), "url"),
        (json!("a"), json!("example.com"), json!(["order.created"]), "url"),
        (json!("a"), json!(format!("https://{}.example", "x".repeat(64))), json!(["order.created"]), "url"),
        (json!("a"), json!(long_url), json!(["order.created"]), "url"),
        (json!("a"), json!(null), json!(["order.created"]), "url"),
        (json!("a"), json!("https://example.com"), json!([]), "events"),
        (json!("a"), json!("https://example.com"), json!("order.created"), "events"),
        (json!("a"), json!("https://example.com"), json!(["order.lost"]), "events[0]"),
        (json!("a"), json!("https://example.com"), json!(["order.created", "order.created"]), "events"),
    ] {
        let body = json!({"name": name, "url": url, "events": events}).to_string();
        let error = post(&node, &setup, "/webhooks", &body).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(error["messages"][named].is_array(), "{body}: {error}");
    }
    assert_eq!(node.head().await, head);
}

#[tokio::test]
async fn an_invalid_body_from_an_operator_appends_nothing() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let head = node.head().await;
    let (account, wallet) = (setup.client.account_id, setup.wallet_id);
    for (method, path, body, named) in [
        ("POST", "/accounts".to_owned(), json!({"name": ""}), "name"),
        ("POST", "/accounts".to_owned(), json!({"name": "a\nb"}), "name"),
        ("POST", "/accounts".to_owned(), json!({"name": "a", "status": "ACTIVE"}), "status"),
        ("PUT", format!("/accounts/{account}"), json!({"status": "LOST"}), "status"),
        ("POST", format!("/accounts/{account}/credentials"), json!({}), "name"),
        ("POST", format!("/wallets/{wallet}/fund"), json!({"amount": "0.00", "reference": "r"}), "amount"),
        ("POST", format!("/wallets/{wallet}/fund"), json!({"amount": "-1.00", "reference": "r"}), "amount"),
        ("POST", format!("/wallets/{wallet}/fund"), json!({"amount": "1.001", "reference": "r"}), "amount"),
        ("POST", format!("/wallets/{wallet}/fund"), json!({"amount": "1e3", "reference": "r"}), "amount"),
        ("POST", format!("/wallets/{wallet}/fund"), json!({"amount": "99999999999999999.00", "reference": "r"}), "amount"),
        ("POST", format!("/wallets/{wallet}/fund"), json!({"amount": "1.00"}), "reference"),
        ("POST", format!("/wallets/{wallet}/adjust"), json!({"type": "UP", "amount": "1.00", "reason": "r"}), "type"),
        ("POST", format!("/wallets/{wallet}/adjust"), json!({"type": "DEBIT", "amount": "1.00"}), "reason"),
        ("PUT", format!("/accounts/{account}/discounts"), json!({"discount": "100.00"}), "discount"),
        ("PUT", format!("/accounts/{account}/discounts"), json!({"discount": "-0.01"}), "discount"),
        ("PUT", format!("/accounts/{account}/discounts"), json!({"discount": "1.00", "product_id": 999}), "product_id"),
        (
            "PUT",
            format!("/accounts/{account}/discounts"),
            json!({"discount": 1, "product_id": 1, "category_id": 1}),
            "category_id",
        ),
    ] {
        let error = node.operator(method, &path, body).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(error["messages"][named].is_array(), "{path}: {error}");
    }
    assert_eq!(node.head().await, head);
}

/// An operation without fields accepts no body. Every operation limits the size of its body, even where none is
/// expected.
#[tokio::test]
async fn a_body_where_none_is_expected_is_refused_and_did_nothing() {
    let node = Node::start().await;
    let world = world(&node).await;
    let (owner, huge) = (&world.users[2], " ".repeat((1 << 20) + 1));
    let operator = node.console_user(Role::Admin).await;
    let head = node.head().await;
    let (mut refused, mut walked) = (0, 0);
    for (_, text) in api::documents() {
        let document: Value = serde_json::from_str(&text).unwrap();
        for (route, item) in document["paths"].as_object().unwrap() {
            for (method, _) in item.as_object().unwrap().iter().filter(|(_, o)| o.get("requestBody").is_none()) {
                let path = path(route, &world.things);
                let send = |body: &str| {
                    let request = match route.split('/').nth(1).unwrap() {
                        "admin" if path.starts_with("/admin/auth/") => node
                            .request(&method.to_uppercase(), &path)
                            .header("Cookie", &operator.cookie)
                            .header("Origin", node.url()),
                        "admin" => node.by_operator(&method.to_uppercase(), path.strip_prefix("/admin/v1").unwrap()),
                        "api" => node.by(&world.key, &method.to_uppercase(), path.strip_prefix("/api/v1").unwrap()),
                        _ => node.request(&method.to_uppercase(), &path).bearer_auth(&owner.access_token),
                    };
                    node.send(request.header("Content-Type", "application/json").body(body.to_owned()))
                };
                let takes_none = matches!(method.as_str(), "post" | "delete");
                if takes_none {
                    let error = send(r#"{"x":1}"#).await.refused(400, "E_VALIDATION_FAILURE");
                    assert!(error["messages"]["x"].is_array(), "{route}: {error}");
                    send("{").await.refused(400, "E_MALFORMED_JSON");
                    refused += 1;
                }
                // Where a rate limit rule applies, the gate reads the body.
                if takes_none || Rule::of(&method.to_uppercase(), &path).is_some() {
                    send(&huge).await.refused(413, "E_PAYLOAD_TOO_LARGE");
                    walked += 1;
                }
            }
        }
    }
    assert!(refused >= 13 && walked > 30, "{refused}, {walked}");
    assert_eq!(node.head().await, head);
    let still_in = node.bearer(&owner.access_token, "GET", "/client/api/api-keys", Value::Null).await;
    assert_eq!(still_in.status, 200, "the session has not ended");
}
