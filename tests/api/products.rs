//! What can be ordered.

use serde_json::{Value, json};

use crate::support::node::{Node, product};

#[tokio::test]
async fn whoever_keeps_a_copy_learns_what_was_switched_off() {
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
