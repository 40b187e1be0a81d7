//! Voucher stock: voiding, expiry, transfers and thresholds.

use rewards_ledger::audit::verify;
use rewards_ledger::ledger::{FIRST_SHARD, stock};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Row};

use crate::support::node::{Node, Setup, product};

/// Returns the stock of the first face value. Each of its numbers is that of the list of these vouchers.
async fn level(node: &Node, setup: &Setup) -> Value {
    let stock = node.operator("GET", &format!("/products/{}/stock", setup.product_id), Value::Null).await.data(200);
    for status in ["available", "allocated", "expired", "voided"] {
        let filter = format!("status={}&denomination=10&limit=100", status.to_uppercase());
        let listed = vouchers(node, setup, &filter).await;
        assert_eq!(json!(listed.len()), stock["stock"][0][status], "{status}");
        assert!(listed.iter().all(|voucher| voucher["order_id"].is_null() == (status != "allocated")), "{listed:?}");
    }
    stock["stock"][0].clone()
}

/// Lists vouchers of the product.
async fn vouchers(node: &Node, setup: &Setup, filter: &str) -> Vec<Value> {
    let path = format!("/products/{}/vouchers?{filter}", setup.product_id);
    let listed = node.operator("GET", &path, Value::Null).await.data(200);
    listed["vouchers"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_voided_voucher_is_given_to_no_order() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let path = format!("/products/{}/vouchers", setup.product_id);
    let load = json!({"denomination": "10.00", "vouchers": [
        {"card_number": "a", "voucher_reference_number": "VCH-a"},
        {"card_number": "b", "voucher_reference_number": "VCH-b", "expires_on": "2001-01-01"},
    ]});
    node.operator("POST", &path, load).await.data(200);
    let order = async |quantity: i64| {
        let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": quantity});
        let id = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap();
        node.fulfil(id).await;
        node.client(&setup.client, "GET", &format!("/orders/{id}"), Value::Null).await.data(200)
    };
    // The writer has the stock in memory from now on.
    let first = order(1).await;
    let given = first["order_items"][0]["vouchers"][0]["voucher_reference_number"].as_str().unwrap();
    let void = json!({"vouchers": ["VCH-a", given, "VCH-unknown", "VCH-b"], "reason": "stolen"});
    let voided = node.operator("POST", &format!("{path}/void"), void.clone()).await.data(200);
    assert_eq!((&voided["voided"], &voided["already_voided"]), (&json!(2), &json!(0)));
    assert_eq!(voided["refused"].as_array().unwrap().len(), 2, "{voided}");
    let head = node.head().await;
    let again = node.operator("POST", &format!("{path}/void"), void).await.data(200);
    assert_eq!((&again["voided"], &again["already_voided"], node.head().await), (&json!(0), &json!(2), head));

    let second = order(3).await;
    assert_eq!((&second["status"], &second["delivered_quantity"]), (&json!("PARTIALLY_DELIVERED"), &json!(2)));
    assert!(!second.to_string().contains("VCH-a"));
    let expected = json!({"denomination": "10.00", "available": 0, "allocated": 3, "expired": 0, "voided": 2, "threshold": null, "is_low": false});
    assert_eq!(level(&node, &setup).await, expected);
    assert_eq!(vouchers(&node, &setup, "denomination=20").await, Vec::<Value>::new());
    let stolen = json!({"voucher_reference_number": "VCH-a", "denomination": "10.00", "status": "VOIDED", "expires_on": null, "order_id": null});
    assert!(vouchers(&node, &setup, "status=VOIDED").await.contains(&stolen));
    let paths = ["vouchers?denomination=x", "vouchers?status=LOST"].map(|list| format!("/products/{}/{list}", setup.product_id));
    for path in paths {
        node.operator("GET", &path, Value::Null).await.refused(400, "E_VALIDATION_FAILURE");
    }
    node.operator("GET", "/products/999/vouchers", Value::Null).await.refused(404, "E_NOT_FOUND");
    // Another node, whose writer has never seen the voucher, does not give it away either.
    let beside = node.beside("orders=1000/60s,general=1000/60s".parse().unwrap()).await;
    beside.fulfil(second["id"].as_i64().unwrap()).await;
    assert_eq!(level(&node, &setup).await, expected);
    node.project().await;
    let report = verify(&node.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{report:#?}");
}

#[tokio::test]
async fn an_expired_voucher_is_given_to_no_order() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let path = format!("/products/{}/vouchers", setup.product_id);
    let load = json!({"denomination": "10.00", "vouchers": [
        {"card_number": "a", "voucher_reference_number": "VCH-a"},
        {"card_number": "b", "voucher_reference_number": "VCH-b", "expires_on": "2001-01-01"},
        {"card_number": "c", "voucher_reference_number": "VCH-c", "expires_on": "2100-01-01"},
        {"card_number": "d", "voucher_reference_number": "VCH-d"},
        {"card_number": "e", "voucher_reference_number": "VCH-e"},
    ]});
    node.operator("POST", &path, load).await.data(200);
    let order = async |quantity: i64| {
        let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": quantity});
        let id = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap();
        node.fulfil(id).await;
        node.client(&setup.client, "GET", &format!("/orders/{id}"), Value::Null).await.data(200)
    };
    // The writer has the stock in memory from now on.
    let first = order(1).await;
    let given = first["order_items"][0]["vouchers"][0]["voucher_reference_number"].clone();
    node.operator("POST", &format!("{path}/void"), json!({"vouchers": ["VCH-d"], "reason": "stolen"})).await.data(200);
    let expire = async |vouchers: Value, day: &str| {
        let body = json!({"vouchers": vouchers, "expires_on": day});
        node.operator("POST", &format!("{path}/expiry"), body).await.data(200)
    };
    let expired = expire(json!(["VCH-a", "VCH-b", "VCH-c", "VCH-d", "VCH-x", given]), "2020-02-29").await;
    let refused = json!([
        {"voucher_reference_number": given, "reason": "is allocated to an order"},
        {"voucher_reference_number": "VCH-b", "reason": "already expires on 2001-01-01"},
        {"voucher_reference_number": "VCH-d", "reason": "is voided"},
        {"voucher_reference_number": "VCH-x", "reason": "is not in the stock of this product"},
    ]);
    let mut seen = expired["refused"].as_array().unwrap().clone();
    seen.sort_by_key(|refused| refused["reason"].to_string());
    let mut expected = refused.as_array().unwrap().clone();
    expected.sort_by_key(|refused| refused["reason"].to_string());
    assert_eq!((&expired["changed"], &expired["unchanged"], seen), (&json!(2), &json!(0), expected));
    let head = node.head().await;
    let again = expire(json!(["VCH-a", "VCH-c"]), "2020-02-29").await;
    assert_eq!((&again["changed"], &again["unchanged"], node.head().await), (&json!(0), &json!(2), head));
    let later = expire(json!(["VCH-a"]), "2100-01-01").await;
    assert_eq!((&later["refused"][0]["reason"], node.head().await), (&json!("already expires on 2020-02-29"), head));
    // Its last day is yet to come, so an order still gets it.
    assert_eq!(expire(json!(["VCH-e"]), "2100-01-01").await["changed"], 1);

    let second = order(4).await;
    assert_eq!((&second["status"], &second["delivered_quantity"]), (&json!("PARTIALLY_DELIVERED"), &json!(3)));
    assert!(second.to_string().contains("VCH-e"));
    let expected = json!({"denomination": "10.00", "available": 0, "allocated": 4, "expired": 3, "voided": 1, "threshold": null, "is_low": false});
    assert_eq!(level(&node, &setup).await, expected);
    // Another node, whose writer has never seen the vouchers, does not give them away either.
    let beside = node.beside("orders=1000/60s,general=1000/60s".parse().unwrap()).await;
    beside.fulfil(second["id"].as_i64().unwrap()).await;
    assert_eq!(level(&node, &setup).await, expected);
    node.project().await;
    let report = verify(&node.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{report:#?}");

    for wrong in [json!("2026-02-30"), json!("soon"), Value::Null] {
        let body = json!({"vouchers": ["VCH-a"], "expires_on": wrong});
        node.operator("POST", &format!("{path}/expiry"), body).await.refused(400, "E_VALIDATION_FAILURE");
    }
    let body = json!({"vouchers": ["VCH-a"], "expires_on": "2020-01-01"});
    node.operator("POST", "/products/999/vouchers/expiry", body).await.refused(404, "E_NOT_FOUND");
}

#[tokio::test]
async fn vouchers_move_to_another_product_whose_orders_get_them() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let path = format!("/products/{}/vouchers", setup.product_id);
    let voucher = |name: &str| json!({"card_number": name, "voucher_reference_number": name});
    let stock =
        |names: &[&str]| json!({"denomination": "10.00", "vouchers": names.iter().map(|name| voucher(name)).collect::<Vec<_>>()});
    node.operator("POST", &path, stock(&["a", "b", "void"])).await.data(200);
    let coarse = json!({"denomination": "25.00", "vouchers": [voucher("coarse")]});
    node.operator("POST", &path, coarse).await.data(200);
    node.operator("POST", &format!("{path}/void"), json!({"vouchers": ["void"], "reason": "stolen"})).await.data(200);
    let add = async |name: &str, currency: &str| {
        let mut new = product(name);
        (new["currency"], new["denominations"]) = (json!(currency), json!(["10.00"]));
        node.operator("POST", "/products", new).await.data(201)["id"].as_i64().unwrap()
    };
    let (successor, foreign) = (add("Successor", "EUR").await, add("Foreign", "USD").await);
    node.operator(
        "POST",
        &format!("/products/{successor}/vouchers"),
        json!({"denomination": "10.00",
        "vouchers": [{"card_number": "b", "voucher_reference_number": "the same card"}]}),
    )
    .await
    .data(200);

    // An order takes the voucher that the successor has. The next one waits, and gets the one that comes.
    let order = async || {
        let order = json!({"product_id": successor, "denomination": 10, "quantity": 1});
        let id = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap();
        node.fulfil(id).await;
        id
    };
    order().await;
    let waiting = order().await;
    let transfer = async |vouchers: Value| {
        let body = json!({"vouchers": vouchers, "to_product_id": successor, "reason": "a new product"});
        node.operator("POST", &format!("{path}/transfer"), body).await.data(200)
    };
    let moved = transfer(json!(["b", "void", "a", "coarse", "unknown", "a"])).await;
    let refused = json!([
        {"voucher_reference_number": "b", "reason": "has a card number that the other product has"},
        {"voucher_reference_number": "void", "reason": "is voided"},
        {"voucher_reference_number": "coarse", "reason": "has a face value that the other product lacks"},
        {"voucher_reference_number": "unknown", "reason": "is not in the stock of this product"},
    ]);
    assert_eq!(moved, json!({"transferred": 1, "already_there": 0, "refused": refused}));
    let head = node.head().await;
    assert_eq!(transfer(json!(["a"])).await, json!({"transferred": 0, "already_there": 1, "refused": []}));
    assert_eq!(node.head().await, head, "a transfer that is sent again appends nothing");
    let again = node.operator("POST", &path, stock(&["a", "b"])).await.data(200);
    let told = (&again["accepted"], &again["duplicates"]);
    assert_eq!(told, (&json!(0), &json!(2)), "the same file brings no voucher a second time, although one has moved");
    node.fulfil(waiting).await;
    let given = node.client(&setup.client, "GET", &format!("/orders/{waiting}"), Value::Null).await.data(200);
    assert_eq!(given["order_items"][0]["vouchers"][0]["voucher_reference_number"], "a");
    // Its codes are sealed under its own id, so they open as before.
    let codes = node.client(&setup.client, "GET", &format!("/orders/{waiting}/vouchers"), Value::Null).await.text;
    assert!(codes.contains("\"card_number\":\"a\""), "{codes}");

    let refused = async |to: i64, vouchers: Value| {
        let body = json!({"vouchers": vouchers, "to_product_id": to, "reason": "r"});
        let answer = node.operator("POST", &format!("{path}/transfer"), body).await;
        answer.refused(400, "E_VALIDATION_FAILURE").to_string()
    };
    assert!(refused(foreign, json!(["b"])).await.contains("another currency"));
    for to in [setup.product_id, 999] {
        assert!(refused(to, json!(["b"])).await.contains("names no other product"), "{to}");
    }
    refused(successor, json!([])).await;
    node.project().await;
    let report = verify(&node.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{report:#?}");
}

#[tokio::test]
async fn stock_below_its_threshold_is_low() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let path = format!("/products/{}/stock-threshold", setup.product_id);
    let set = async |threshold: Value| {
        let body = json!({"denomination": "10.00", "threshold": threshold});
        assert_eq!(node.operator("PUT", &path, body.clone()).await.data(200), body);
    };
    let low = async || stock::low(node.ledger.pool(), &[FIRST_SHARD]).await.unwrap().len();
    assert_eq!(low().await, 0);
    set(json!(3)).await;
    let three = level(&node, &setup).await;
    assert_eq!((&three["available"], &three["threshold"], &three["is_low"]), (&json!(3), &json!(3), &json!(false)));
    assert_eq!(low().await, 0);
    set(json!(4)).await;
    assert_eq!((level(&node, &setup).await["is_low"].clone(), low().await), (json!(true), 1));
    let head = node.head().await;
    set(json!(4)).await;
    assert_eq!(node.head().await, head, "the same threshold is no event");
    // A change of the product keeps the threshold.
    node.operator("PUT", &format!("/products/{}", setup.product_id), json!({"name": "New"})).await.data(200);
    assert_eq!(low().await, 1);
    let path_of_other = json!({"denomination": "11.00", "threshold": 4});
    node.operator("PUT", &path, path_of_other).await.refused(422, "E_INVALID_DENOMINATION");
    let never_loaded = json!({"denomination": "25.00", "threshold": 1});
    node.operator("PUT", &path, never_loaded).await.data(200);
    let stock = node.operator("GET", &format!("/products/{}/stock", setup.product_id), Value::Null).await.data(200);
    assert_eq!((&stock["stock"][1]["available"], &stock["stock"][1]["is_low"]), (&json!(0), &json!(true)));
    set(Value::Null).await;
    assert_eq!((level(&node, &setup).await["threshold"].clone(), low().await), (Value::Null, 1));
    let report = verify(&node.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{report:#?}");
}

/// The first upload comes before the database has statistics of the table.
#[tokio::test]
async fn an_upload_looks_each_card_number_up_by_itself_however_many_the_stock_has() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let cards: Vec<Value> = (0..4_000).map(|n| json!({"card_number": format!("c{n}")})).collect();
    let load = json!({"denomination": "10.00", "vouchers": cards});
    node.operator("POST", &format!("/products/{}/vouchers", setup.product_id), load).await.data(200);
    let mut admin = node.admin().await;
    let wanted = 100;
    let explain = format!(
        "PREPARE known (bigint[], bytea[]) AS {};
         EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE known (array_fill({}, ARRAY[{wanted}]),
            array_fill(sha256('unknown'), ARRAY[{wanted}]))",
        stock::KNOWN,
        setup.product_id
    );
    let rows = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(&mut admin).await.unwrap();
    let plan: Value = rows[0].get(0);
    let blocks = plan[0]["Plan"]["Shared Hit Blocks"].as_i64().unwrap() + plan[0]["Plan"]["Shared Read Blocks"].as_i64().unwrap();
    // A look-up reads the three levels of the index.
    assert!(blocks < 10 * wanted, "{blocks} blocks for {wanted} card numbers: {plan:#}");
}
