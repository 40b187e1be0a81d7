//! The client portal.

use serde_json::{Value, json};

use super::{check, in_browser};
use crate::support::node::{Node, PASSWORD, User};

/// An account with an owner, and orders in several states.
async fn populated(node: &Node) -> User {
    let setup = node.setup().await;
    let owner = node.user(setup.client.account_id, "owner").await;
    for quantity in [1, 2, 50] {
        let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": quantity});
        node.client(&setup.client, "POST", "/orders", order).await;
    }
    owner
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_signs_in_and_sees_the_orders() {
    let node = Node::start().await;
    let owner = populated(&node).await;
    in_browser((1440, 1_000), true, |browser| async move {
        browser.open(&format!("{}/portal/orders?status=PENDING", node.url())).await;
        browser.sees("Sign in").await;
        check(&browser, "the login").await;
        browser.fill("Email", &owner.email).await;
        browser.fill("Password", "not the password").await;
        browser.press("Sign in").await;
        browser.find("//*[@role='alert']").await;
        browser.logs_refusal(401).await;
        browser.fill("Password", PASSWORD).await;
        browser.press("Sign in").await;
        browser.find("//h1[text()='Orders']").await;
        check(&browser, "the orders").await;
        browser.press("Overview").await;
        browser.find("//h1[text()='Overview']").await;
        check(&browser, "the overview").await;
        browser.press("Sign out").await;
        browser.find("//h1[text()='Sign in']").await;
        browser.open(&format!("{}/portal/orders", node.url())).await;
        browser.find("//h1[text()='Sign in']").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_cancelled_without_scripts_on_a_phone() {
    let node = Node::start().await;
    let owner = populated(&node).await;
    in_browser((390, 2_000), false, |browser| async move {
        browser.open(&format!("{}/portal", node.url())).await;
        browser.fill("Email", &owner.email).await;
        browser.fill("Password", PASSWORD).await;
        browser.press("Sign in").await;
        browser.find("//h1[text()='Overview']").await;
        browser.click("//table//a").await;
        browser.press("Cancel this order").await;
        browser.fill("Reason", "no longer needed").await;
        browser.press("Cancel the order").await;
        browser.sees("The order is cancelled.").await;
        browser.sees("no longer needed").await;
        assert_eq!(browser.complaints().await, Vec::<Value>::new());
    })
    .await;
}
