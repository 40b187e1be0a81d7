//! What an order would cost.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::support::node::{Node, product};

#[tokio::test]
async fn a_quote_says_what_an_order_would_cost_and_changes_nothing() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let path = format!("/accounts/{}/discounts", client.account_id);
    node.operator("PUT", &path, json!({"discount": "2.50", "product_id": setup.product_id})).await.data(200);
    let head = node.head().await;
    let body = json!({"product_id": setup.product_id, "denomination": 25.0, "quantity": 3});
    let quote = node.client(client, "POST", "/charges", body.clone()).await.data(200);
    let expected = json!({
        "product_id": setup.product_id, "denomination": "25.00", "quantity": 3, "currency": "EUR", "face_value": "75.00",
        "discount": "2.50", "discount_amount": "1.87", "amount": "73.13", "wallet_balance": "1000.00",
        "sufficient_balance": true, "quoted_at": quote["quoted_at"],
    });
    assert_eq!(quote, expected);
    assert_eq!(node.head().await, head);

    let poor = node.account("Poor").await;
    let path = format!("/accounts/{}/wallets", poor.account_id);
    node.operator("POST", &path, json!({"currency": "EUR"})).await.data(201);
    let quote = node.client(&poor, "POST", "/charges", body.clone()).await.data(200);
    assert_eq!((&quote["wallet_balance"], &quote["sufficient_balance"]), (&json!("0.00"), &json!(false)));

    // A suspended account can read, and this is no change.
    let suspended = json!({"status": "SUSPENDED"});
    node.operator("PUT", &format!("/accounts/{}", client.account_id), suspended).await.data(200);
    node.client(client, "POST", "/charges", body.clone()).await.data(200);
    node.client(client, "POST", "/orders", body).await.refused(403, "E_ACCOUNT_SUSPENDED");
}

#[tokio::test]
async fn a_quote_is_refused_as_the_order_is() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let mut dollars = product("Dollar Card");
    dollars["currency"] = json!("USD");
    let dollars = node.operator("POST", "/products", dollars).await.data(201)["id"].clone();
    let id = setup.product_id;
    let head = node.head().await;
    for (product, denomination, quantity, status, code) in [
        (json!(999_999), json!(10), json!(1), 422, "E_PRODUCT_UNAVAILABLE"),
        (json!(id), json!(11), json!(9), 422, "E_INVALID_DENOMINATION"),
        (json!(id), json!(10), json!(6), 422, "E_QUANTITY_LIMIT_EXCEEDED"),
        (dollars, json!(10), json!(1), 422, "E_CURRENCY_MISMATCH"),
        (json!(id), json!(10.001), json!(1), 400, "E_VALIDATION_FAILURE"),
        (json!(id), json!("10"), json!(1), 400, "E_VALIDATION_FAILURE"),
        (json!(id), json!(10), json!(0), 400, "E_VALIDATION_FAILURE"),
        (json!("x"), json!(10), json!(1), 400, "E_VALIDATION_FAILURE"),
    ] {
        let body = json!({"product_id": product, "denomination": denomination, "quantity": quantity});
        for path in ["/charges", "/orders"] {
            node.client(client, "POST", path, body.clone()).await.refused(status, code);
        }
    }
    let reference = json!({"product_id": id, "denomination": 10, "quantity": 1, "client_reference": "x"});
    let error = node.client(client, "POST", "/charges", reference).await.refused(400, "E_VALIDATION_FAILURE");
    assert!(error["messages"]["client_reference"].is_array(), "{error}");
    assert_eq!(node.head().await, head);
}

#[tokio::test]
async fn a_quote_under_an_idempotency_key_is_the_first_one_again() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let body = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let first = node.keyed(&setup.client, "/charges", "q", &body).await;
    node.client(&setup.client, "POST", "/orders", body.clone()).await.data(201);
    let again = node.keyed(&setup.client, "/charges", "q", &body).await;
    assert_eq!((again.status, &again.text), (200, &first.text));
    assert_eq!(again.header("idempotent-replayed"), "true");
    let fresh = node.client(&setup.client, "POST", "/charges", body).await.data(200);
    assert_eq!((&first.data(200)["wallet_balance"], &fresh["wallet_balance"]), (&json!("1000.00"), &json!("990.00")));
    let other = json!({"product_id": setup.product_id, "denomination": 25, "quantity": 1});
    node.keyed(&setup.client, "/charges", "q", &other).await.refused(422, "E_IDEMPOTENCY_KEY_REUSED");
}

/// Over whatever prices and discounts: what was quoted is what is debited.
#[tokio::test]
async fn the_quote_equals_the_charge() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let range = json!({
        "name": "Any Sum", "brand": "Sum", "country": "DE", "currency": "EUR", "denomination_type": "RANGE",
        "min_denomination": "0.01", "max_denomination": "500.00", "max_quantity": 100,
    });
    let id = node.operator("POST", "/products", range).await.data(201)["id"].clone();
    let mut runner = TestRunner::default();
    let cases = prop::collection::vec((1i64..=5_000, 1i64..=20, 0i64..10_000), 12);
    for (cents, quantity, discount) in cases.new_tree(&mut runner).unwrap().current() {
        let percent = format!("{}.{:02}", discount / 100, discount % 100);
        let path = format!("/accounts/{}/discounts", client.account_id);
        node.operator("PUT", &path, json!({"discount": percent, "product_id": id})).await.data(200);
        let denomination = cents as f64 / 100.0;
        let body = json!({"product_id": id, "denomination": denomination, "quantity": quantity});
        let quote = node.client(client, "POST", "/charges", body.clone()).await.data(200);
        let answer = node.client(client, "POST", "/orders", body).await;
        let case = format!("{cents} × {quantity} at {percent} %: {quote} {}", answer.text);
        if quote["sufficient_balance"] == false {
            answer.refused(402, "E_INSUFFICIENT_BALANCE");
            continue;
        }
        let order = answer.data(201);
        for field in ["product_id", "denomination", "quantity", "currency", "face_value", "discount", "discount_amount", "amount"]
        {
            assert_eq!(quote[field], order[field], "{field}: {case}");
        }
        let path = format!("/transactions/{}", order["transaction_id"]);
        let debit = node.client(client, "GET", &path, Value::Null).await.data(200);
        assert_eq!(debit["amount"], quote["amount"], "{case}");
    }
}
