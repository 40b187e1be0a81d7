//! Countries, currencies and categories.

use serde_json::{Value, json};

use crate::support::node::Node;

#[tokio::test]
async fn reference_data_may_be_cached_for_a_day() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let parent = node.operator("POST", "/categories", json!({"name": "Travel"})).await.data(201);
    let child = json!({"name": "Airlines", "parent_id": parent["id"]});
    let child = node.operator("POST", "/categories", child).await.data(201);
    for (path, plural, entry) in [
        ("/countries", "countries", json!({"code": "DE", "name": "Germany"})),
        ("/currencies", "currencies", json!({"code": "JPY", "name": "Japanese yen", "decimals": 0})),
        ("/categories", "categories", child),
    ] {
        let answer = node.client(&setup.client, "GET", path, Value::Null).await;
        assert_eq!(answer.header("cache-control"), "private, max-age=86400", "{path}");
        let data = answer.data(200);
        let entries = data[plural].as_array().unwrap();
        assert!(entries.contains(&entry), "{path}: {data}");
        let total = entries.len().to_string();
        assert_eq!((answer.header("x-page"), answer.header("x-total-pages")), ("1", "1"));
        assert_eq!((answer.header("x-total-count"), answer.header("x-page-size")), (&*total, &*total));

        let etag = answer.header("etag");
        assert!(etag.starts_with('"') && etag.ends_with('"') && etag.len() > 10, "{etag}");
        let again = node.by(&setup.client, "GET", path).header("If-None-Match", etag);
        let again = node.send(again).await;
        assert_eq!((again.status, &*again.text, again.header("etag")), (304, "", etag));
        assert_eq!(again.header("cache-control"), "private, max-age=86400");
        let other = node.send(node.by(&setup.client, "GET", path).header("If-None-Match", "\"other\"")).await;
        assert_eq!(other.text, answer.text);
        node.send(node.request("GET", &format!("/api/v1{path}"))).await.refused(401, "E_UNAUTHORIZED");
    }
    let before = node.client(&setup.client, "GET", "/categories", Value::Null).await;
    assert_eq!(before.data(200)["categories"][0]["name"], "Airlines");
    node.operator("POST", "/categories", json!({"name": "Books"})).await.data(201);
    let changed = node.by(&setup.client, "GET", "/categories").header("If-None-Match", before.header("etag"));
    assert_eq!(node.send(changed).await.data(200)["categories"][1]["name"], "Books");
}

#[tokio::test]
async fn listed_codes_are_accepted_and_other_codes_are_refused() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let currencies = node.client(&setup.client, "GET", "/currencies", Value::Null).await.data(200);
    let codes: Vec<&str> = currencies["currencies"].as_array().unwrap().iter().map(|c| c["code"].as_str().unwrap()).collect();
    assert!(codes.contains(&"USD") && !codes.contains(&"KWD") && !codes.contains(&"XAU"));
    let path = format!("/accounts/{}/wallets", setup.client.account_id);
    for code in codes.iter().filter(|code| **code != "EUR") {
        node.operator("POST", &path, json!({"currency": code})).await.data(201);
    }
    for code in ["ZZZ", "KWD", "XAU"] {
        node.operator("POST", &path, json!({"currency": code})).await.refused(400, "E_VALIDATION_FAILURE");
    }
    let mut product = crate::support::node::product("Card");
    product["country"] = json!("ZZ");
    let error = node.operator("POST", "/products", product).await.refused(400, "E_VALIDATION_FAILURE");
    assert!(error["messages"]["country"].is_array(), "{error}");
}
