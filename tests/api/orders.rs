//! Orders, products, wallets and transactions, end to end.

use serde_json::{Value, json};

use crate::support::node::Node;

#[tokio::test]
async fn an_order_is_placed_delivered_and_its_codes_are_read() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let discount = json!({"discount": "2.50", "product_id": setup.product_id});
    let path = format!("/accounts/{}/discounts", client.account_id);
    let rule = node.operator("PUT", &path, discount).await.data(200);
    assert_eq!(rule, json!({"discount": "2.50", "product_id": setup.product_id, "category_id": null}));

    let metadata = json!({"z": 1.10, "a": {"deep": [1, null, "é"]}});
    let body = format!(
        r#"{{"product_id":{},"denomination":10.00,"quantity":3,"client_reference":"PO 1","metadata":{{ "z": 1.10, "a": {{"deep":[1,null,"é"]}}}}}}"#,
        setup.product_id
    );
    let request = node.by(client, "POST", "/orders").header("Content-Type", "application/json").body(body);
    let answer = node.send(request).await;
    // Metadata comes back as it was written, except for the order of its names.
    assert!(answer.text.contains(r#""metadata":{"a":{"deep":[1,null,"é"]},"z":1.10}"#), "{}", answer.text);
    let placed = answer.data(201);
    let id = placed["id"].as_i64().unwrap();
    let expected = json!({
        "id": id, "reference_code": format!("ORD-{id:010}"), "client_reference": "PO 1", "status": "PENDING", "sub_status": "",
        "product_id": setup.product_id, "product_name": "Acme Card", "currency": "EUR", "denomination": "10.00", "quantity": 3,
        "face_value": "30.00", "discount": "2.50", "discount_amount": "0.75", "amount": "29.25", "refunded_amount": "0.00",
        "transaction_id": placed["transaction_id"], "delivered_quantity": 0, "delivered_on": null, "cancelled_on": null,
        "cancel_reason": null, "metadata": metadata, "created_at": placed["created_at"], "updated_at": placed["created_at"],
        "order_items": [],
    });
    assert_eq!(placed, expected);
    let created_at = placed["created_at"].as_str().unwrap();
    assert!(created_at.len() == 24 && created_at.ends_with('Z'), "{created_at}");

    let path = format!("/orders/{id}");
    let found = node.client(client, "GET", &path, Value::Null).await;
    assert_eq!(found.text, answer.text, "the metadata is read back with the same bytes");
    let empty = node.client(client, "GET", &format!("{path}/vouchers"), Value::Null).await.data(200);
    assert_eq!(empty, json!({"vouchers": []}));

    node.fulfil(id).await;
    let delivered = node.client(client, "GET", &path, Value::Null).await.data(200);
    assert_eq!((&delivered["status"], &delivered["delivered_quantity"]), (&json!("DELIVERED"), &json!(3)));
    assert!(delivered["delivered_on"].is_string());
    let item = &delivered["order_items"][0];
    assert_eq!((&item["status"], item["vouchers"].as_array().unwrap().len()), (&json!("DELIVERED"), 3));

    let head = node.head().await;
    let answer = node.client(client, "GET", &format!("{path}/vouchers"), Value::Null).await;
    assert_eq!(answer.header("cache-control"), "no-store");
    let codes = answer.data(200);
    assert_eq!(codes["vouchers"].as_array().unwrap().len(), 3);
    let first = &codes["vouchers"][0];
    let reference = &item["vouchers"][0]["voucher_reference_number"];
    let expected = json!({
        "voucher_reference_number": reference, "card_number": "card-1", "pin": "pin-1", "claim_url": null, "expires_on": null
    });
    assert_eq!(first, &expected);
    assert_eq!(node.head().await, head + 1, "the read of the codes is in the log");

    node.client(client, "POST", &format!("{path}/cancel"), Value::Null).await.refused(409, "E_ORDER_NOT_CANCELLABLE");
    node.client(client, "GET", "/orders/888888", Value::Null).await.refused(404, "E_NOT_FOUND");
}

#[tokio::test]
async fn a_cancelled_order_is_refunded() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let body = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 4});
    let order = node.client(client, "POST", "/orders", body).await.data(201);
    let id = order["id"].as_i64().unwrap();
    node.fulfil(id).await;
    let cancelled = node.client(client, "POST", &format!("/orders/{id}/cancel"), json!({"reason": "too late"})).await.data(200);
    for (field, value) in [
        ("status", json!("CANCELLED")),
        ("sub_status", json!("REMAINDER_CANCELLED")),
        ("refunded_amount", json!("10.00")),
        ("delivered_quantity", json!(3)),
        ("cancel_reason", json!("too late")),
    ] {
        assert_eq!(cancelled[field], value, "{field}");
    }
    assert_eq!(node.client(client, "GET", &format!("/orders/{id}"), Value::Null).await.data(200), cancelled);
    let vouchers = node.client(client, "GET", &format!("/orders/{id}/vouchers"), Value::Null).await.data(200);
    assert_eq!(vouchers["vouchers"].as_array().unwrap().len(), 3, "delivered vouchers stay valid");

    let wallets = node.client(client, "GET", "/wallets", Value::Null).await;
    assert_eq!((wallets.header("x-page"), wallets.header("x-total-count")), ("1", "1"));
    let wallet = &wallets.data(200)["wallets"][0];
    assert_eq!((&wallet["balance"], &wallet["currency"]), (&json!("970.00"), &json!("EUR")));
    assert_eq!(wallet.as_object().unwrap().len(), 4);

    let answer = node.client(client, "GET", "/transactions", Value::Null).await.data(200);
    let movements = answer["transactions"].as_array().unwrap();
    let of = |field: &str| movements.iter().map(|m| m[field].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(of("type"), ["CREDIT", "DEBIT", "CREDIT"]);
    assert_eq!(of("category"), ["ORDER_REFUND", "ORDER", "FUNDING"]);
    assert_eq!(of("amount"), ["10.00", "40.00", "1000.00"]);
    assert_eq!(of("balance_after"), ["970.00", "960.00", "1000.00"]);
    assert_eq!(movements[1]["order_id"], id);
    assert_eq!(movements[1]["reference"], order["reference_code"]);
    let path = format!("/transactions/{}", movements[1]["id"]);
    let mut movement = node.client(client, "GET", &path, Value::Null).await.data(200);
    assert!(movement.as_object_mut().unwrap().remove("event_id").is_some_and(|id| id.is_string()));
    assert_eq!(movement, movements[1], "the one transaction has its event, too");

    for (query, count) in [
        ("type=CREDIT", 2),
        ("category=ORDER", 1),
        (&format!("order_id={id}"), 2),
        ("currency=USD", 0),
        ("reference=none", 0),
        (&format!("wallet_id={}", setup.wallet_id), 3),
        ("created_from=2020-01-01T00:00:00Z", 3),
        ("created_to=2020-01-01T00:00:00Z", 0),
    ] {
        let page = node.client(client, "GET", &format!("/transactions?{query}"), Value::Null).await;
        assert_eq!(page.header("x-total-count"), count.to_string(), "{query}");
    }
}

#[tokio::test]
async fn orders_are_listed_in_pages_and_found_by_filters() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let mut ids = Vec::new();
    for n in 1..=5 {
        let body = json!({"product_id": setup.product_id, "denomination": "10", "quantity": 1});
        node.client(client, "POST", "/orders", body).await.refused(400, "E_VALIDATION_FAILURE");
        let body = json!({
            "product_id": setup.product_id, "denomination": 10, "quantity": 1, "client_reference": format!("r{n}"), "metadata": {"n": n}
        });
        ids.push(node.client(client, "POST", "/orders", body).await.data(201)["id"].as_i64().unwrap());
    }
    node.client(client, "POST", &format!("/orders/{}/cancel", ids[0]), Value::Null).await.data(200);
    let list = async |query: &str| {
        let answer = node.client(client, "GET", &format!("/orders?{query}"), Value::Null).await;
        let orders = answer.data(200)["orders"].as_array().unwrap().clone();
        (answer, orders)
    };
    let (answer, orders) = list("page=2&limit=2").await;
    let header = |name: &str| answer.header(name).to_owned();
    assert_eq!([header("x-page"), header("x-total-count"), header("x-total-pages"), header("x-page-size")], ["2", "5", "3", "2"]);
    assert_eq!(orders.iter().map(|o| o["id"].as_i64().unwrap()).collect::<Vec<_>>(), [ids[2], ids[1]]);
    assert_eq!(orders[0]["metadata"], json!({"n": 3}));
    for (query, found) in [
        ("status=CANCELLED", vec![ids[0]]),
        ("client_reference=r4", vec![ids[3]]),
        (&format!("reference_code=ORD-{:010}", ids[1]), vec![ids[1]]),
        ("product_id=999", vec![]),
        ("created_to=2020-01-01T00:00:00Z", vec![]),
        ("page=9", vec![]),
    ] {
        let (_, orders) = list(query).await;
        assert_eq!(orders.iter().map(|o| o["id"].as_i64().unwrap()).collect::<Vec<_>>(), found, "{query}");
    }
    for (query, field) in [
        ("status=LOST", "status"),
        ("limit=101", "limit"),
        ("page=0", "page"),
        ("product_id=x", "product_id"),
        ("created_from=yesterday", "created_from"),
        ("created_from=-9999-01-01T00:00:00Z", "created_from"),
    ] {
        let error =
            node.client(client, "GET", &format!("/orders?{query}"), Value::Null).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(error["messages"][field].is_array(), "{query}: {error}");
    }
}

#[tokio::test]
async fn an_invalid_order_is_refused_and_leaves_no_trace() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let product_id = setup.product_id;
    let mut dollars = crate::support::node::product("Dollar Card");
    dollars["currency"] = json!("USD");
    let dollars = node.operator("POST", "/products", dollars).await.data(201)["id"].clone();
    let poor = node.account("Poor").await;
    let path = format!("/accounts/{}/wallets", poor.account_id);
    let wallet = node.operator("POST", &path, json!({"currency": "EUR"})).await.data(201)["id"].clone();
    let head = node.head().await;
    for (product_id, denomination, quantity, status, code) in [
        (json!(999_999), json!(10), json!(1), 422, "E_PRODUCT_UNAVAILABLE"),
        (json!(product_id), json!(11), json!(1), 422, "E_INVALID_DENOMINATION"),
        (json!(product_id), json!(9_999_999_999_999_999_i64), json!(1), 422, "E_INVALID_DENOMINATION"),
        (json!(product_id), json!(10), json!(6), 422, "E_QUANTITY_LIMIT_EXCEEDED"),
        (json!(product_id), json!(10), json!(i32::MAX), 422, "E_QUANTITY_LIMIT_EXCEEDED"),
        (dollars, json!(10), json!(1), 422, "E_CURRENCY_MISMATCH"),
    ] {
        let body = json!({"product_id": product_id, "denomination": denomination, "quantity": quantity});
        node.client(client, "POST", "/orders", body).await.refused(status, code);
    }
    let body = json!({"product_id": product_id, "denomination": 10, "quantity": 1});
    node.keyed(&poor, "/orders", "k", &body).await.refused(402, "E_INSUFFICIENT_BALANCE");
    assert_eq!(node.head().await, head);

    // A refusal is not stored under the key: after funding, the same key works.
    node.operator("POST", &format!("/wallets/{wallet}/fund"), json!({"amount": "10.00", "reference": "late"})).await.data(201);
    node.keyed(&poor, "/orders", "k", &body).await.data(201);
}

#[tokio::test]
async fn a_refund_that_would_overflow_the_wallet_is_refused() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(&setup.client, "POST", "/orders", order).await.data(201);
    let ada =
        json!({"name": "Ada", "type": "BANK", "country": "DE", "currency": "EUR", "account_number": "DE89370400440532013000"});
    let ada = node.client(&setup.client, "POST", "/beneficiaries", ada).await.data(201)["id"].clone();
    let payout = json!({"beneficiary_id": ada, "wallet_id": setup.wallet_id, "amount": "10.00"});
    let payout = node.client(&setup.client, "POST", "/payouts", payout).await.data(201);
    let wallet = format!("/wallets/{}", setup.wallet_id);
    let most = json!({"amount": "9999999999999019.99", "reference": "all there is"});
    let full = node.operator("POST", &format!("{wallet}/fund"), most).await.data(201);
    assert_eq!(full["balance_after"], "9999999999999999.99");
    let (order, payout) = (format!("/orders/{}/cancel", order["id"]), format!("/payouts/{}/cancel", payout["id"]));
    for path in [&order, &payout] {
        node.client(&setup.client, "POST", path, Value::Null).await.refused(409, "E_CONFLICT");
    }
    node.operator("POST", &order, Value::Null).await.refused(409, "E_CONFLICT");
    let room = json!({"type": "DEBIT", "amount": "20.00", "reason": "r"});
    node.operator("POST", &format!("{wallet}/adjust"), room).await.data(201);
    for path in [&order, &payout] {
        node.client(&setup.client, "POST", path, Value::Null).await.data(200);
    }
}

#[tokio::test]
async fn products_are_shown_at_the_callers_discount() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let category = node.operator("POST", "/categories", json!({"name": "Games"})).await.data(201)["id"].clone();
    let range = json!({
        "name": "Any Sum", "brand": "ApolloM", "country": "US", "currency": "USD", "denomination_type": "RANGE", "category_id": category,
        "min_denomination": "5.00", "max_denomination": 500, "max_quantity": 10, "description": "d", "terms": "t"
    });
    let range = node.operator("POST", "/products", range).await.data(201);
    let mut hidden = crate::support::node::product("Hidden");
    hidden["is_active"] = json!(false);
    let hidden = node.operator("POST", "/products", hidden).await.data(201);
    let changed = hidden["updated_at"].as_str().unwrap();
    let path = format!("/accounts/{}/discounts", setup.client.account_id);
    node.operator("PUT", &path, json!({"discount": "1.00"})).await.data(200);
    node.operator("PUT", &path, json!({"discount": 5, "category_id": category})).await.data(200);

    let client = &setup.client;
    let answer = node.client(client, "GET", "/products", Value::Null).await;
    assert_eq!((answer.header("x-page-size"), answer.header("x-total-count")), ("50", "2"));
    let products = answer.data(200)["products"].clone();
    let expected = json!({
        "id": range["id"], "name": "Any Sum", "brand": "ApolloM", "category_id": category, "country": "US", "currency": "USD",
        "denomination_type": "RANGE", "denominations": [], "min_denomination": "5.00", "max_denomination": "500.00",
        "discount": "5.00", "max_quantity": 10, "image_url": null, "description": "d", "terms": "t", "is_active": true,
        "updated_at": products[0]["updated_at"],
    });
    assert_eq!(products[0], expected);
    assert_eq!(products[1]["discount"], "1.00");
    assert_eq!(products[1]["denominations"], json!(["10.00", "25.00"]));
    let path = format!("/products/{}", range["id"]);
    assert_eq!(node.client(client, "GET", &path, Value::Null).await.data(200), products[0]);
    node.client(client, "GET", &format!("/products/{}", hidden["id"]), Value::Null).await.refused(404, "E_NOT_FOUND");

    for (query, total, size) in [
        ("per_page=1", "2", "1"),
        ("per_page=1&limit=10000", "2", "10000"),
        ("search=SUM", "1", "50"),
        ("search=any%20s", "1", "50"),
        ("search=olloM", "1", "50"),
        ("search=_", "0", "50"),
        ("search=%5C", "0", "50"),
        (&format!("updated_since={changed}"), "1", "50"),
        ("category_id=999", "0", "50"),
        ("search=%25", "0", "50"),
        ("country=DE", "1", "50"),
        ("currency=USD", "1", "50"),
        (&format!("category_id={category}"), "1", "50"),
        ("updated_since=2999-01-01T00:00:00Z", "0", "50"),
    ] {
        let page = node.client(client, "GET", &format!("/products?{query}"), Value::Null).await;
        assert_eq!((page.header("x-total-count"), page.header("x-page-size")), (total, size), "{query}");
    }
    for name in ["limit", "per_page"] {
        let answer = node.client(client, "GET", &format!("/products?{name}=10001"), Value::Null).await;
        assert!(answer.refused(400, "E_VALIDATION_FAILURE")["messages"][name].is_array(), "{name}");
    }
    let huge = json!({"product_id": range["id"], "denomination": 500, "quantity": 10});
    node.client(client, "POST", "/orders", huge).await.refused(422, "E_CURRENCY_MISMATCH");
}
