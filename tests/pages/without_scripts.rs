//! The main work of both kinds of pages in a browser that runs no scripts.

use rewards_ledger::access::Role;
use serde_json::{Value, json};

use super::console::sign_in;
use super::in_browser;
use super::portal_orders::{bulk, enter};
use crate::support::browser::Browser;
use crate::support::node::{Node, Setup, User};

/// Places an order at the price that a button shows.
async fn place(browser: &Browser) {
    browser.press("Catalogue").await;
    browser.press("Acme Card").await;
    browser.click("//select[@id='denomination']/option[contains(text(), '10')]").await;
    browser.fill("Units", "2").await;
    browser.press("Show the price").await;
    browser.find("//p[contains(@class, 'price')][contains(., '20.00')]").await;
    browser.press("Place the order").await;
    browser.sees("The order is placed.").await;
    browser.find("//main//time[contains(., 'UTC')]").await;
}

/// Places a bulk order, whose second step a person starts.
async fn place_many(browser: &Browser, file: &str) {
    browser.press("Orders").await;
    browser.press("Order many at once").await;
    browser.type_into("//input[@id='file']", file).await;
    browser.press("Check the orders").await;
    browser.press("Place 60 orders").await;
    browser.sees("50 of 60 lines").await;
    browser.press("Place the next 10 lines").await;
    browser.sees("60 of 60 lines: 60 placed, 0 refused.").await;
    browser.press("Next lines").await;
    browser.sees("Entries 51 to 60 of 60.").await;
}

async fn set_up() -> (Node, Setup, User) {
    let node = Node::start().await;
    let setup = node.setup().await;
    let owner = node.user(setup.client.account_id, "owner").await;
    (node, setup, owner)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_portal_works_without_scripts() {
    let (node, setup, owner) = set_up().await;
    let directory = tempfile::tempdir().unwrap();
    let file = bulk(directory.path(), setup.product_id);
    in_browser((390, 3_000), false, |browser| async move {
        enter(&browser, &node, &owner, "/portal").await;
        browser.find("//h1[text()='Overview']").await;
        place(&browser).await;
        place_many(&browser, &file).await;
        browser.press("To the orders").await;
        browser.click("//select[@id='status']/option[@value='CANCELLED']").await;
        browser.press("Filter").await;
        browser.sees("No order matches these filters.").await;
        browser.press("Webhooks").await;
        browser.press("Set up a webhook").await;
        browser.fill("Name", "Shop").await;
        browser.fill("URL", "https://shop.example/hooks").await;
        browser.click("//input[@value='order.delivered']").await;
        browser.press("Create the webhook").await;
        browser.sees("it is never shown again").await;
        browser.press("To the webhook").await;
        browser.press("Send a test").await;
        browser.sees("Sent.").await;
        browser.press("Wallets").await;
        browser.press(&format!("Statement of wallet {}", setup.wallet_id)).await;
        browser.sees("Closing balance").await;
        browser.press("Team").await;
        browser.fill("Email", "grace@example.com").await;
        browser.press("Send the invitation").await;
        browser.sees("The invitation is sent.").await;
        browser.press("Sign out").await;
        browser.sees("You are signed out.").await;
        assert_eq!(browser.complaints().await, Vec::<Value>::new());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_works_without_scripts() {
    let (node, setup, _) = set_up().await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(&setup.client, "POST", "/orders", order).await.data(201);
    let admin = node.console_user(Role::Admin).await;
    in_browser((390, 3_000), false, |browser| async move {
        browser.open(&format!("{}/console", node.url())).await;
        sign_in(&browser, &admin.email, "").await;
        browser.fill("Search for", order["reference_code"].as_str().unwrap()).await;
        browser.click("//main//button[text()='Search']").await;
        browser.press("Cancel this order").await;
        browser.fill("Reason", "ordered twice").await;
        browser.press("Cancel the order").await;
        browser.sees("The order is cancelled.").await;
        node.publish().await;
        browser.press("Accounts").await;
        browser.press("New account").await;
        browser.fill("Name", "Globex").await;
        browser.press("Create the account").await;
        browser.find("//h1[text()='Globex']").await;
        browser.open(&format!("{}/console/wallets/{}", node.url(), setup.wallet_id)).await;
        browser.press("Fund").await;
        browser.fill("Amount", "500").await;
        browser.fill("Reference of the payment", "wire-1").await;
        browser.press("Fund the wallet").await;
        browser.sees("The wallet is funded.").await;
        browser.press("Transparency log").await;
        browser.fill("Order number", &order["id"].to_string()).await;
        browser.press("Prove the order").await;
        browser.sees("Proven: the receipt of order").await;
        browser.press("Audit").await;
        browser.sees("WalletFunded").await;
        browser.press("Operations").await;
        browser.press("Reload").await;
        browser.sees("Lag of the projections").await;
        browser.press("Sign out").await;
        browser.sees("You are signed out.").await;
        assert_eq!(browser.complaints().await, Vec::<Value>::new());
    })
    .await;
}
