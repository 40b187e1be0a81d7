//! The client portal.

use serde_json::{Value, json};

use super::crawl::{attack_forms, crawl};
use super::{check, in_browser};
use crate::support::node::{Node, PASSWORD};

/// A script that tells on itself, in every text that a client can store.
const ATTACK: &str = "<script>window.injected = true</script>\"><img src=x onerror=\"window.injected = true\">";

/// An account with an owner, orders in several states and hostile texts.
async fn populated(node: &Node) -> (i64, crate::support::node::User) {
    let setup = node.setup().await;
    let owner = node.user(setup.client.account_id, "owner").await;
    for (number, quantity) in [(1, 1), (2, 2), (3, 50)] {
        let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": quantity,
            "client_reference": format!("{number} {}", &ATTACK[..60]), "metadata": {"note": ATTACK}});
        node.client(&setup.client, "POST", "/orders", order).await;
    }
    (setup.client.account_id, owner)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_of_the_portal_answers_and_every_form_refuses_foreign_pages() {
    let node = Node::start().await;
    let (_, owner) = populated(&node).await;
    let crawled = crawl(&node, &owner.cookie, "/portal").await;
    assert!(crawled.pages.len() > 3, "{:?}", crawled.pages.keys());
    for (path, page) in &crawled.pages {
        assert!(!page.contains("<script>window") && !page.contains("<img src=x"), "{path} shows a script");
    }
    attack_forms(&node, &owner.cookie, &crawled.forms).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_signs_in_and_sees_the_orders() {
    let node = Node::start().await;
    let (_, owner) = populated(&node).await;
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
        assert_eq!(browser.run("return window.injected === undefined").await, true);
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
    let (_, owner) = populated(&node).await;
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
