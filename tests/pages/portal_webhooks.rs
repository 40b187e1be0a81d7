//! Webhooks, deliveries and API keys in the portal.

use serde_json::json;

use super::{check, in_browser};
use crate::support::node::{Node, PASSWORD};

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_sets_up_a_webhook_and_finds_out_why_an_event_is_missing() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let owner = node.user(setup.client.account_id, "owner").await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].clone();
    in_browser((1440, 1_400), true, |browser| async move {
        browser.open(&format!("{}/portal/webhooks", node.url())).await;
        browser.fill("Email", &owner.email).await;
        browser.fill("Password", PASSWORD).await;
        browser.press("Sign in").await;
        browser.sees("You have no webhook yet.").await;
        check(&browser, "no webhooks").await;
        browser.press("Set up a webhook").await;
        browser.find("//h1[text()='New webhook']").await;
        browser.fill("Name", "Shop").await;
        browser.fill("URL", "https://shop.example/hooks").await;
        browser.press("Create the webhook").await;
        browser.find("//*[@role='alert']").await;
        browser.logs_refusal(400).await;
        check(&browser, "a webhook without events").await;
        browser.click("//input[@value='order.delivered']").await;
        browser.press("Create the webhook").await;
        browser.sees("it is never shown again").await;
        check(&browser, "the token of a webhook").await;
        browser.press("To the webhook").await;
        browser.find("//h1[text()='Shop']").await;
        check(&browser, "a webhook").await;
        browser.press("Why did (didn't) I get this?").await;
        browser.fill("Order", &order.to_string()).await;
        browser.press("Explain").await;
        browser.sees("order.created").await;
        check(&browser, "an explanation").await;
        browser.press("Shop").await;
        browser.press("Send a test").await;
        browser.sees("Sent.").await;
        check(&browser, "a delivery").await;
        browser.press("Webhooks").await;
        browser.press("Shop").await;
        browser.press("Delete").await;
        browser.press("Delete the webhook").await;
        browser.sees("Deleted.").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_creates_and_revokes_an_api_key_without_scripts_on_a_phone() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let owner = node.user(setup.client.account_id, "owner").await;
    in_browser((390, 2_000), false, |browser| async move {
        browser.open(&format!("{}/portal/api-keys", node.url())).await;
        browser.fill("Email", &owner.email).await;
        browser.fill("Password", PASSWORD).await;
        browser.press("Sign in").await;
        browser.find("//h1[text()='API keys']").await;
        browser.press("New API key").await;
        browser.fill("Name", "Warehouse").await;
        browser.press("Create the API key").await;
        browser.sees("X-API-Secret").await;
        browser.press("All API keys").await;
        browser.click("//a[@aria-label='Revoke Warehouse']").await;
        browser.sees("This cannot be undone.").await;
        browser.press("Revoke the key").await;
        browser.sees("The key is revoked.").await;
        browser.sees("Revoked").await;
    })
    .await;
}
