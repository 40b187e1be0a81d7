//! Quotes: the price of an order before it is placed.

use std::collections::HashMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
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

    // A quote changes nothing, so a suspended account may request it.
    let suspended = json!({"status": "SUSPENDED"});
    node.operator("PUT", &format!("/accounts/{}", client.account_id), suspended).await.data(200);
    node.client(client, "POST", "/charges", body.clone()).await.data(200);
    node.client(client, "POST", "/orders", body).await.refused(403, "E_ACCOUNT_SUSPENDED");
}

#[tokio::test]
async fn a_quote_is_refused_for_the_same_reasons_as_an_order() {
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

/// Both ends of a range are valid face values, and nothing beyond them is.
#[tokio::test]
async fn a_range_has_the_face_values_between_its_ends() {
    let node = Node::start().await;
    let client = node.setup().await.client;
    let range = json!({
        "name": "Any Sum", "brand": "Sum", "country": "DE", "currency": "EUR", "denomination_type": "RANGE",
        "min_denomination": "5.00", "max_denomination": "50.00", "max_quantity": 1,
    });
    let id = node.operator("POST", "/products", range).await.data(201)["id"].clone();
    for (path, status) in [("/charges", 200), ("/orders", 201)] {
        for denomination in [json!(5), json!(5.01), json!(49.99), json!(50)] {
            let body = json!({"product_id": id, "denomination": denomination, "quantity": 1});
            node.client(&client, "POST", path, body).await.data(status);
        }
        let head = node.head().await;
        for denomination in [json!(0.01), json!(4.99), json!(50.01), json!(5000)] {
            let body = json!({"product_id": id, "denomination": denomination, "quantity": 1});
            node.client(&client, "POST", path, body).await.refused(422, "E_INVALID_DENOMINATION");
        }
        assert_eq!(node.head().await, head);
    }
}

/// The body is an order's body without its reference. `metadata` is checked as in an order and has no effect.
#[tokio::test]
async fn a_quote_takes_metadata_and_keeps_none() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let with = |metadata: Value| json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1, "metadata": metadata});
    let head = node.head().await;
    let mut plain = node.client(client, "POST", "/charges", with(Value::Null)).await.data(200);
    let mut quote = node.client(client, "POST", "/charges", with(json!({"po": "secret-7"}))).await.data(200);
    plain["quoted_at"].take();
    quote["quoted_at"].take();
    assert_eq!(quote, plain);
    assert_eq!(node.head().await, head);
    for metadata in [json!([]), json!("x"), json!({"a": "x".repeat(4_096)})] {
        for path in ["/charges", "/orders"] {
            let error = node.client(client, "POST", path, with(metadata.clone())).await.refused(400, "E_VALIDATION_FAILURE");
            assert!(error["messages"]["metadata"].is_array(), "{path} {metadata}: {error}");
        }
    }
    // Metadata is part of the request that an idempotency key identifies.
    node.keyed(client, "/charges", "m", &with(json!({"po": "secret-7"}))).await.data(200);
    node.keyed(client, "/charges", "m", &with(json!({"po": "secret-8"}))).await.refused(422, "E_IDEMPOTENCY_KEY_REUSED");
    let kept = "SELECT (SELECT count(*) FROM vault.texts) + (SELECT count(*) FROM idempotency_keys WHERE position('secret' IN encode(body, 'escape')) > 0)";
    let kept: i64 = sqlx::query_scalar(kept).fetch_one(&mut node.admin().await).await.unwrap();
    assert_eq!(kept, 0);
}

#[tokio::test]
async fn a_repeated_quote_under_an_idempotency_key_returns_the_first_one() {
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

/// Scope of a discount rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum On {
    Everything,
    /// Index of a category of [`products_of`].
    Category(usize),
    /// Index of a product of [`products_of`].
    Product(usize),
}

/// Rules of one account, in hundredths of a percent, and its orders: product index, face value in cents, quantity.
type Case = (Vec<(On, i64)>, Vec<(usize, i64, i64)>);

fn cases() -> impl Strategy<Value = Case> {
    let on = prop_oneof![
        1 => Just(On::Everything),
        2 => (0..2usize).prop_map(On::Category),
        2 => (0..4usize).prop_map(On::Product),
    ];
    // A discount of 0.00 is a rule like any other, and overrides one of a wider scope. A later rule replaces an
    // earlier one of the same scope.
    let percent = prop_oneof![Just(0i64), Just(9_999), 1..9_999i64];
    let orders = prop::collection::vec((0..4usize, prop_oneof![1..=99i64, 100..=50_000i64], 1..=100i64), 3);
    (prop::collection::vec((on, percent), 0..7), orders)
}

/// Creates products whose face value is a range, each with its category, if it has one. The first two share a category.
async fn products_of(node: &Node) -> (Vec<Value>, [Option<usize>; 4], Vec<Value>) {
    let in_category = [Some(0), Some(0), Some(1), None];
    let (mut categories, mut products) = (vec![], vec![]);
    for name in ["Cards", "Games"] {
        categories.push(node.operator("POST", "/categories", json!({"name": name})).await.data(201)["id"].clone());
    }
    for category in in_category {
        let product = json!({
            "name": "Any Sum", "brand": "Sum", "country": "DE", "currency": "EUR", "denomination_type": "RANGE",
            "min_denomination": "0.01", "max_denomination": "500.00", "max_quantity": 100,
            "category_id": category.map(|n: usize| categories[n].clone()),
        });
        products.push(node.operator("POST", "/products", product).await.data(201)["id"].clone());
    }
    (products, in_category, categories)
}

fn cents(money: &Value) -> i64 {
    money.as_str().unwrap().replace('.', "").parse().unwrap()
}

/// For any competing rules and any orders, the debited amount is the quoted amount. It is also the contract's price
/// under the most specific rule.
#[test]
fn the_quote_equals_the_charge() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let node = runtime.block_on(Node::start());
    let (products, in_category, categories) = runtime.block_on(products_of(&node));
    let cases = cases();
    let config = Config { cases: 30, max_shrink_iters: 200, ..Config::with_source_file(file!()) };
    let outcome = TestRunner::new(config).run(&cases, |(rules, orders)| {
        runtime.block_on(async {
            let client = node.account("Acme").await;
            let path = format!("/accounts/{}/wallets", client.account_id);
            let wallet = node.operator("POST", &path, json!({"currency": "EUR"})).await.data(201)["id"].clone();
            let funding = json!({"amount": "1000000.00", "reference": format!("opening of {wallet}")});
            node.operator("POST", &format!("/wallets/{wallet}/fund"), funding).await.data(201);
            for (on, percent) in &rules {
                let mut rule = json!({"discount": format!("{}.{:02}", percent / 100, percent % 100)});
                match on {
                    On::Everything => {}
                    On::Category(n) => rule["category_id"] = categories[*n].clone(),
                    On::Product(n) => rule["product_id"] = products[*n].clone(),
                }
                node.operator("PUT", &format!("/accounts/{}/discounts", client.account_id), rule).await.data(200);
            }
            // The last rule of each scope applies.
            let rules: HashMap<On, i64> = rules.into_iter().collect();
            for (product, denomination, quantity) in orders {
                let candidates = [Some(On::Product(product)), in_category[product].map(On::Category), Some(On::Everything)];
                let percent = candidates.into_iter().flatten().find_map(|on| rules.get(&on).copied()).unwrap_or(0);
                let face_value = denomination * quantity;
                let amount = (face_value * (10_000 - percent) + 5_000) / 10_000;
                let body = json!({
                    "product_id": products[product], "denomination": denomination as f64 / 100.0, "quantity": quantity,
                });
                let quote = node.client(&client, "POST", "/charges", body.clone()).await.data(200);
                let order = node.client(&client, "POST", "/orders", body).await.data(201);
                let said = [&quote["face_value"], &quote["discount"], &quote["amount"]].map(cents);
                prop_assert_eq!(said, [face_value, percent, amount], "{}", quote);
                for field in
                    ["product_id", "denomination", "quantity", "currency", "face_value", "discount", "discount_amount", "amount"]
                {
                    prop_assert_eq!(&quote[field], &order[field], "{}: {} {}", field, quote, order);
                }
                let path = format!("/transactions/{}", order["transaction_id"]);
                let debit = node.client(&client, "GET", &path, Value::Null).await.data(200);
                prop_assert_eq!(&debit["amount"], &quote["amount"], "{}", debit);
                let left = cents(&quote["wallet_balance"]) - amount;
                prop_assert_eq!(cents(&debit["balance_after"]), left, "{} {}", quote, debit);
            }
            Ok(())
        })
    });
    outcome.unwrap();
}
