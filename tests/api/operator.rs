//! The operator API.

use serde_json::{Value, json};

use crate::support::node::{Node, product};

#[tokio::test]
async fn accounts_wallets_and_funding() {
    let node = Node::start().await;
    let account = node.operator("POST", "/accounts", json!({"name": "Acme"})).await.data(201);
    let fields =
        json!({"id": account["id"], "name": "Acme", "status": "ACTIVE", "shard_id": 1, "created_at": account["created_at"]});
    assert_eq!(account, fields);
    assert_eq!(node.operator("GET", "/accounts", Value::Null).await.data(200), json!({"accounts": [account]}));
    node.operator("PUT", "/accounts/999", json!({"status": "ACTIVE"})).await.refused(404, "E_NOT_FOUND");

    let path = format!("/accounts/{}/credentials", account["id"]);
    let issued = node.operator("POST", &path, json!({"name": "main"})).await;
    assert_eq!(issued.header("cache-control"), "no-store");
    let issued = issued.data(201);
    assert_eq!((issued["api_key"].as_str().unwrap().len(), issued["api_secret"].as_str().unwrap().len()), (32, 64));

    let path = format!("/accounts/{}/wallets", account["id"]);
    let wallet = node.operator("POST", &path, json!({"currency": "EUR"})).await.data(201);
    assert_eq!((&wallet["balance"], &wallet["currency"]), (&json!("0.00"), &json!("EUR")));
    node.operator("POST", &path, json!({"currency": "EUR"})).await.refused(409, "E_CONFLICT");
    for currency in ["eur", "KWD", "EURO", ""] {
        node.operator("POST", &path, json!({"currency": currency})).await.refused(400, "E_VALIDATION_FAILURE");
    }

    let path = format!("/wallets/{}/fund", wallet["id"]);
    let funding = json!({"amount": "100.00", "reference": "bank 1", "note": "thanks"});
    let funded = node.operator("POST", &path, funding.clone()).await.data(201);
    let expected = json!({
        "id": funded["id"], "wallet_id": wallet["id"], "type": "CREDIT", "category": "FUNDING", "amount": "100.00",
        "balance_after": "100.00", "currency": "EUR", "order_id": null, "reference": "bank 1", "description": "Funding bank 1",
        "created_at": funded["created_at"],
    });
    assert_eq!(funded, expected);
    let head = node.head().await;
    assert_eq!(node.operator("POST", &path, funding).await.data(200), funded);
    node.operator("POST", &path, json!({"amount": "1.00", "reference": "bank 1"})).await.refused(409, "E_CONFLICT");
    node.operator("POST", "/wallets/999/fund", json!({"amount": "1.00", "reference": "x"})).await.refused(404, "E_NOT_FOUND");
    let path = format!("/wallets/{}/adjust", wallet["id"]);
    let too_much = json!({"type": "DEBIT", "amount": "100.01", "reason": "r"});
    node.operator("POST", &path, too_much).await.refused(402, "E_INSUFFICIENT_BALANCE");
    let overflow = json!({"type": "CREDIT", "amount": "9999999999999999.99", "reason": "r"});
    node.operator("POST", &path, overflow).await.refused(409, "E_CONFLICT");
    assert_eq!(node.head().await, head);
    let adjusted = node.operator("POST", &path, json!({"type": "DEBIT", "amount": 0.5, "reason": "a fee"})).await.data(201);
    assert_eq!((&adjusted["balance_after"], &adjusted["category"]), (&json!("99.50"), &json!("ADJUSTMENT")));
    let logged: Vec<String> = sqlx::query_scalar("SELECT data::text FROM events").fetch_all(node.ledger.pool()).await.unwrap();
    assert!(logged.iter().all(|data| !data.contains("thanks") && !data.contains("a fee")));
}

#[tokio::test]
async fn operators_maintain_the_catalogue() {
    let node = Node::start().await;
    let parent = node.operator("POST", "/categories", json!({"name": "All"})).await.data(201);
    let child = json!({"name": "Games", "parent_id": parent["id"]});
    let child = node.operator("POST", "/categories", child).await.data(201);
    assert_eq!(child["parent_id"], parent["id"]);
    assert_eq!(node.operator("GET", "/categories", Value::Null).await.data(200), json!({"categories": [child, parent]}));
    let error =
        node.operator("POST", "/categories", json!({"name": "x", "parent_id": 99})).await.refused(400, "E_VALIDATION_FAILURE");
    assert!(error["messages"]["parent_id"].is_array());

    let added = node.operator("POST", "/products", product("One")).await.data(201);
    let path = format!("/products/{}", added["id"]);
    let mut change = product("Two");
    change["category_id"] = child["id"].clone();
    change["is_active"] = json!(false);
    let changed = node.operator("PUT", &path, change).await.data(200);
    assert_eq!((&changed["name"], &changed["category_id"], &changed["is_active"]), (&json!("Two"), &child["id"], &json!(false)));
    assert_eq!(node.operator("GET", "/products", Value::Null).await.data(200), json!({"products": [changed]}));
    node.operator("PUT", "/products/999", product("x")).await.refused(404, "E_NOT_FOUND");

    let head = node.head().await;
    for (field, value, named) in [
        ("currency", json!("USD"), "currency"),
        ("country", json!("de"), "country"),
        ("category_id", json!(99), "category_id"),
        ("denominations", json!([]), "denominations"),
        ("denominations", json!(["10.00", 10]), "denominations"),
        ("denominations", json!(["0.00"]), "denominations[0]"),
        ("min_denomination", json!("1.00"), "min_denomination"),
        ("denomination_type", json!("RANGE"), "denominations"),
        ("max_quantity", json!(0), "max_quantity"),
        ("colour", json!("red"), "colour"),
    ] {
        let mut body = product("Three");
        body[field] = value;
        let error = node.operator("PUT", &path, body).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(error["messages"][named].is_array(), "{field}: {error}");
    }
    assert_eq!(node.head().await, head);
}

#[tokio::test]
async fn stock_is_loaded_as_json_and_as_csv() {
    let node = Node::start().await;
    let id = node.operator("POST", "/products", product("Card")).await.data(201)["id"].clone();
    let path = format!("/products/{id}/vouchers");
    let vouchers: Vec<Value> = (0..2_500).map(|n| json!({"card_number": format!("c{n}")})).collect();
    let loaded = node.operator("POST", &path, json!({"denomination": 10, "vouchers": vouchers})).await.data(200);
    assert_eq!(loaded, json!({"accepted": 2_500, "duplicates": 0, "duplicate_rows": [], "rejected": []}));

    let load = async |query: &str, text: &str| {
        let request = node.by_operator("POST", &format!("{path}{query}")).header("Content-Type", "text/csv; charset=utf-8");
        node.send(request.body(text.to_owned())).await
    };
    let text = "\u{feff}card_number,pin,voucher_reference_number,claim_url,expires_on\r\n\
        c1,,,,\r\nnew-1,1111,REF-1,https://example.com/a,2099-12-31\nnew-2,,REF-1,,\n,,,,\nnew-3,,,http://example.com,\nnew-4,,,,31.12.2099\nnew-5\n";
    let loaded = load("?denomination=25", text).await.data(200);
    assert_eq!((&loaded["accepted"], &loaded["duplicates"], &loaded["duplicate_rows"]), (&json!(1), &json!(1), &json!([1])));
    let rejected = loaded["rejected"].as_array().unwrap();
    let rows: Vec<i64> = rejected.iter().map(|row| row["row"].as_i64().unwrap()).collect();
    assert_eq!(rows, [3, 4, 5, 6, 7], "{loaded}");
    let mixed = load("", "card_number,denomination\nm1,10\nm2,25.00\nm3,11\nm4,x\n").await.data(200);
    assert_eq!((&mixed["accepted"], mixed["rejected"].as_array().unwrap().len()), (&json!(2), 2));

    let stock = node.operator("GET", &format!("/products/{id}/stock"), Value::Null).await.data(200);
    let level = |denomination: &str, available: i64| {
        json!({
            "denomination": denomination, "available": available, "allocated": 0, "expired": 0, "voided": 0, "threshold": null,
            "is_low": false,
        })
    };
    assert_eq!(stock, json!({"stock": [level("10.00", 2_501), level("25.00", 2)]}));

    let head = node.head().await;
    load("", "card_number\nx\n").await.refused(400, "E_VALIDATION_FAILURE");
    load("?denomination=10", "number\nx\n").await.refused(400, "E_VALIDATION_FAILURE");
    let twice = load("?denomination=10", "card_number,pin,card_number\nx,1,y\n").await.refused(400, "E_VALIDATION_FAILURE");
    assert_eq!(twice["messages"], json!({"body": ["must name each column once"]}));
    let no_names = load("?denomination=10", "6006491234567890\n").await;
    no_names.refused(400, "E_VALIDATION_FAILURE");
    assert!(!no_names.text.contains("6006491234567890"));
    load("?denomination=x", "card_number\nx\n").await.refused(400, "E_VALIDATION_FAILURE");
    load("?denomination=11", "card_number\nx\n").await.refused(422, "E_INVALID_DENOMINATION");
    let bad = json!({"denomination": 10, "vouchers": [{"card_number": "ok"}, {"pin": "1"}]});
    let error = node.operator("POST", &path, bad).await.refused(400, "E_VALIDATION_FAILURE");
    assert!(error["messages"]["vouchers[1].card_number"].is_array(), "{error}");
    let request = node.by_operator("POST", &path).header("Content-Type", "text/plain").body("x");
    node.send(request).await.refused(415, "E_UNSUPPORTED_MEDIA_TYPE");
    let huge = format!("card_number\n{}", "x".repeat(16 << 20));
    load("?denomination=10", &huge).await.refused(413, "E_PAYLOAD_TOO_LARGE");
    node.operator("POST", "/products/999/vouchers", json!({"denomination": 10, "vouchers": [{"card_number": "x"}]}))
        .await
        .refused(404, "E_NOT_FOUND");
    assert_eq!(node.head().await, head);
}

#[tokio::test]
async fn orders_of_any_account_are_found_and_cancelled() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let body = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1, "metadata": {"a": 1}});
    let order = node.client(&setup.client, "POST", "/orders", body).await.data(201);
    let path = format!("/orders/{}", order["id"]);
    let mut expected = order.clone();
    expected["account_id"] = json!(setup.client.account_id);
    let mut shown = expected.clone();
    shown["as_of_position"] = Value::Null; // the current state has no position
    assert_eq!(node.operator("GET", &path, Value::Null).await.data(200), shown);
    let listed = node.operator("GET", "/orders?limit=1", Value::Null).await;
    assert_eq!(listed.header("x-total-count"), "1");
    assert_eq!(listed.data(200), json!({"orders": [expected]}));
    for (query, count) in [("account_id=999", 0), ("status=PENDING", 1), ("client_reference=x", 0)] {
        let page = node.operator("GET", &format!("/orders?{query}"), Value::Null).await.data(200);
        assert_eq!(page["orders"].as_array().unwrap().len(), count, "{query}");
    }
    let cancelled = node.operator("POST", &format!("{path}/cancel"), json!({"reason": "fraud"})).await.data(200);
    assert_eq!((&cancelled["sub_status"], &cancelled["cancel_reason"]), (&json!("CANCELLED_BY_OPERATOR"), &json!("fraud")));
    node.operator("POST", &format!("{path}/cancel"), Value::Null).await.refused(409, "E_ORDER_NOT_CANCELLABLE");
    node.operator("GET", "/orders/999999", Value::Null).await.refused(404, "E_NOT_FOUND");
}

#[tokio::test]
async fn a_page_of_all_orders_begins_before_an_order() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let body = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let mut placed = vec![];
    for _ in 0..3 {
        placed.push(node.client(&setup.client, "POST", "/orders", body.clone()).await.data(201)["id"].as_i64().unwrap());
    }
    let listed = async |query: &str| {
        let answer = node.operator("GET", &format!("/orders?limit=2{query}"), Value::Null).await;
        assert_eq!(answer.header("x-total-count"), "3", "{query}");
        let orders = answer.data(200)["orders"].as_array().unwrap().clone();
        orders.iter().map(|order| order["id"].as_i64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(listed("").await, [placed[2], placed[1]]);
    assert_eq!(listed(&format!("&before={}", placed[1])).await, [placed[0]]);
    assert_eq!(listed(&format!("&before={}", placed[0])).await, [0; 0]);
    for query in ["before=999999", "before=1&page=1", "before=1&account_id=1", "before=1&client_reference=a"] {
        node.operator("GET", &format!("/orders?{query}"), Value::Null).await.refused(400, "E_VALIDATION_FAILURE");
    }
}
