//! Suppliers of products and purchases in the console.

use ledger_events::{OrderId, ProductId};
use rewards_ledger::access::Role;
use serde_json::json;

use super::console::enter;
use super::{check, in_browser};
use crate::support::ledger;
use crate::support::node::{Node, product};

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_names_a_supplier() {
    let node = Node::start().await;
    let product = node.operator("POST", "/products", product("Acme Card")).await.data(201)["id"].as_i64().unwrap();
    in_browser((390, 2_000), true, |browser| async move {
        enter(&node, &browser, Role::Admin).await;
        browser.open(&format!("{}/console/products/{product}", node.url())).await;
        browser.press("Supplier").await;
        browser.fill("Supplier", "Acme Ltd.").await;
        browser.press("Save the supplier").await;
        browser.sees("must have only a-z, 0-9, - and _").await;
        browser.find("//input[@id='supplier'][@aria-invalid='true']").await;
        browser.logs_refusal(400).await;
        check(&browser, "a supplier with a wrong name").await;
        browser.fill("Supplier", "acme").await;
        browser.fill("SKU", "A-10").await;
        browser.press("Save the supplier").await;
        browser.sees("The change is saved.").await;
        browser.find("//input[@id='sku'][@value='A-10']").await;
        browser.press("Purchases of this product").await;
        browser.sees("No purchase matches these filters.").await;
        check(&browser, "no purchases of a product").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_closes_a_purchase_about_which_the_supplier_says_nothing_more() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let product = node.operator("POST", "/products", product("Acme Card")).await.data(201)["id"].as_i64().unwrap();
    let order = json!({"product_id": product, "denomination": 10, "quantity": 1});
    let order = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap();
    node.fulfil(order).await;
    let purchase = ledger::buy(&node.ledger, OrderId(order), ProductId(product), "A-10").await;
    in_browser((1440, 1_400), true, |browser| async move {
        enter(&node, &browser, Role::Admin).await;
        browser.press("Purchases").await;
        browser.press(&format!("Purchase {purchase}")).await;
        browser.find("//dd//span[text()='Requested']").await;
        check(&browser, "a purchase").await;
        browser.press("Close this purchase").await;
        browser.press("Close the purchase").await;
        browser.sees("The purchase is closed.").await;
        browser.find("//dd[.='CLOSED_BY_OPERATOR']").await;
        browser.press(&format!("Order {order}")).await;
        browser.sees(&order.to_string()).await;
        let shown = node.operator("GET", &format!("/purchases/{purchase}"), json!(null)).await.data(200);
        assert_eq!((&shown["status"], &shown["order_id"]), (&json!("REFUSED"), &json!(order)));
    })
    .await;
}
