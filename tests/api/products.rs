//! The product catalogue.

use serde_json::{Value, json};

use crate::support::node::{Node, product};

#[tokio::test]
async fn a_client_with_a_copy_of_the_catalogue_learns_of_deactivated_products() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let list = async |query: &str| {
        let answer = node.client(&setup.client, "GET", &format!("/products{query}"), Value::Null).await;
        let products = answer.data(200)["products"].as_array().unwrap().clone();
        products.iter().map(|p| (p["id"].as_i64().unwrap(), p["is_active"] == true)).collect::<Vec<_>>()
    };
    let id = setup.product_id;
    assert_eq!(list("").await, [(id, true)]);
    let mut off = product("Acme Card");
    off["is_active"] = json!(false);
    node.operator("PUT", &format!("/products/{id}"), off).await.data(200);
    assert_eq!(list("").await, []);
    assert_eq!(list("?updated_since=2020-01-01T00:00:00Z").await, [(id, false)]);
    assert_eq!(list("?updated_since=2999-01-01T00:00:00Z").await, []);
}

#[tokio::test]
async fn a_client_lists_the_products_that_it_names() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let mut ids = vec![];
    for name in ["A", "B", "C"] {
        ids.push(node.operator("POST", "/products", product(name)).await.data(201)["id"].as_i64().unwrap());
    }
    let path = format!("/products?ids={},{},999999", ids[2], ids[0]);
    let found = node.client(&client, "GET", &path, Value::Null).await.data(200);
    let found: Vec<_> = found["products"].as_array().unwrap().iter().map(|product| product["id"].as_i64().unwrap()).collect();
    assert_eq!(found, [ids[2], ids[0]]);
    let refused = node.client(&client, "GET", "/products?ids=1,x", Value::Null).await;
    assert_eq!((refused.status, refused.json()["error"]["messages"]["ids"].is_array()), (400, true));
}

/// A list copies stored texts into the response without parsing them. The response must not differ because of that.
#[tokio::test]
async fn a_product_has_the_same_bytes_in_a_list_and_alone() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let mut full = product("Karte \"Gold\"");
    full["description"] = json!("\"quoted\" \\ back / slash\n\ttab \u{7f} é € \u{1f381} \u{2028}");
    full["terms"] = json!("");
    let range = json!({
        "name": "Range", "brand": "Acme", "country": "DE", "currency": "EUR", "denomination_type": "RANGE",
        "min_denomination": "5.00", "max_denomination": "9.00", "max_quantity": 5, "terms": "Ünverkäuflich.\r\n".repeat(1000)
    });
    let mut found = vec![];
    for body in [range, full] {
        let added = node.operator("POST", "/products", body.clone()).await.data(201);
        let path = format!("/products/{}", added["id"]);
        let answer = node.client(&client, "GET", &path, Value::Null).await;
        let data = answer.data(200);
        for field in ["description", "terms"] {
            assert_eq!(data[field], *body.get(field).unwrap_or(&json!("")), "{field}");
        }
        let item = answer.text.strip_prefix(r#"{"success":true,"data":"#).and_then(|text| text.strip_suffix('}'));
        found.insert(0, item.unwrap().to_owned());
    }
    let expected = format!(r#"{{"success":true,"data":{{"products":[{}]}}}}"#, found.join(","));
    assert_eq!(node.client(&client, "GET", "/products", Value::Null).await.text, expected);
    assert_eq!(node.operator("GET", "/products", Value::Null).await.text, expected);
}

#[tokio::test]
async fn a_change_keeps_what_it_does_not_name() {
    let node = Node::start().await;
    let category = node.operator("POST", "/categories", json!({"name": "Games"})).await.data(201)["id"].clone();
    let mut full = product("Card");
    full["category_id"] = category.clone();
    full["description"] = json!("A card.");
    full["terms"] = json!("No refunds.");
    let mut known = node.operator("POST", "/products", full).await.data(201);
    let path = format!("/products/{}", known["id"]);
    let range =
        json!({"denomination_type": "RANGE", "denominations": [], "min_denomination": "5.00", "max_denomination": "9.00"});
    let fixed =
        json!({"denomination_type": "FIXED", "denominations": ["3.00"], "min_denomination": null, "max_denomination": null});
    for change in [
        json!({"name": "Other"}),
        json!({"brand": "Other", "country": "FR"}),
        json!({"max_quantity": 7}),
        json!({"terms": "", "description": "Another card."}),
        json!({"is_active": false}),
        json!({"category_id": null}),
        json!({"category_id": category}),
        range,
        fixed,
        json!({"currency": "EUR", "is_active": true}),
    ] {
        let changed = node.operator("PUT", &path, change.clone()).await.data(200);
        for (field, value) in change.as_object().unwrap() {
            known[field] = value.clone();
        }
        known["updated_at"] = changed["updated_at"].clone();
        assert_eq!(changed, known, "{change}");
    }
    let head = node.head().await;
    for (change, field) in [
        (json!({}), "body"),
        (json!({"name": ""}), "name"),
        (json!({"currency": "USD"}), "currency"),
        (json!({"category_id": 99}), "category_id"),
        (json!({"denominations": ["1.00"]}), "denominations"),
        (json!({"min_denomination": "1.00"}), "min_denomination"),
        (json!({"denomination_type": "FIXED"}), "denominations"),
        (json!({"denomination_type": "RANGE", "min_denomination": "2.00", "max_denomination": "1.00"}), "max_denomination"),
        (json!({"id": 5}), "id"),
    ] {
        let error = node.operator("PUT", &path, change.clone()).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(error["messages"][field].is_array(), "{change}: {error}");
    }
    assert_eq!(node.head().await, head);
}

#[tokio::test]
async fn operators_filter_all_products() {
    let node = Node::start().await;
    let first = node.operator("POST", "/products", product("First")).await.data(201)["id"].clone();
    let mut second = product("Second");
    second["country"] = json!("FR");
    second["currency"] = json!("USD");
    second["is_active"] = json!(false);
    second["brand"] = json!("Äpfel & Öl");
    let second = node.operator("POST", "/products", second).await.data(201)["id"].clone();
    for (query, expected) in [
        ("", vec![&second, &first]),
        ("?is_active=true", vec![&first]),
        ("?is_active=false", vec![&second]),
        ("?country=DE", vec![&first]),
        ("?currency=USD", vec![&second]),
        ("?search=fir", vec![&first]),
        // A database with the locale C knows no other letters than those of ASCII.
        ("?search=%C3%A4PFEL%20%26%20%C3%B6l", vec![&second]),
        ("?search=.", vec![]),
        ("?updated_since=2999-01-01T00:00:00Z", vec![]),
        ("?category_id=7", vec![]),
        ("?per_page=1&page=2", vec![&first]),
        ("?per_page=1&page=3", vec![]),
    ] {
        let answer = node.operator("GET", &format!("/products{query}"), Value::Null).await;
        let data = answer.data(200);
        let ids: Vec<&Value> = data["products"].as_array().unwrap().iter().map(|product| &product["id"]).collect();
        assert_eq!(ids, expected, "{query}");
        let total = if query.contains("page") { 2 } else { ids.len() };
        assert_eq!(answer.header("x-total-count"), total.to_string(), "{query}");
    }
}

#[tokio::test]
async fn one_page_holds_a_catalogue() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let more: Vec<Value> = (0..300).map(|n| product(&format!("Card {n}"))).collect();
    futures::future::join_all(more.into_iter().map(|body| async { node.operator("POST", "/products", body).await.data(201) }))
        .await;
    let page = node.client(&setup.client, "GET", "/products?limit=10000", Value::Null).await;
    assert_eq!((page.header("x-total-count"), page.header("x-total-pages")), ("301", "1"));
    let data = page.data(200);
    let ids: Vec<i64> = data["products"].as_array().unwrap().iter().map(|product| product["id"].as_i64().unwrap()).collect();
    assert!(ids.len() == 301 && ids.windows(2).all(|pair| pair[0] > pair[1]));
}
