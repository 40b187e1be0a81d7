//! Restricted API keys, their last use, and the low-balance notice in the portal.

use chrono::Utc;
use rewards_ledger::access::request_signature::{header, sign};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{check, in_browser, lacks, place};
use crate::support::browser::Browser;
use crate::support::node::{Client, Node, PASSWORD, Setup, User};
use crate::support::wait::until;

async fn enter(node: &Node, browser: &Browser, user: &User, path: &str) {
    browser.open(&format!("{}{path}", node.url())).await;
    browser.fill("Email", &user.email).await;
    browser.fill("Password", PASSWORD).await;
    browser.press("Sign in").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_creates_a_restricted_key() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let owner = node.user(setup.client.account_id, "owner").await;
    in_browser((1440, 1_400), true, |browser| async move {
        enter(&node, &browser, &owner, "/portal/api-keys").await;
        browser.find("//h1[text()='API keys']").await;
        browser.press("New API key").await;
        browser.fill("Name", "Reporting").await;
        browser.click("//input[@value='read']").await;
        browser.fill("Expires", "2100-01-31").await;
        browser.fill("Allowed networks", "203.0.113.0/24\nnowhere").await;
        browser.press("Create the API key").await;
        browser.sees("number 2 must be a network").await;
        browser.logs_refusal(400).await;
        check(&browser, "a restricted key that is refused").await;
        browser.fill("Allowed networks", "203.0.113.0/24").await;
        browser.press("Create the API key").await;
        browser.sees("X-API-Secret").await;
        check(&browser, "the secret of a restricted key").await;
        let secret = browser.text("//main//div[dt='API secret']/dd//code").await;
        browser.press("All API keys").await;
        browser.sees("Reporting").await;
        browser.sees("from 203.0.113.0/24").await;
        check(&browser, "the restricted keys").await;
        lacks(&browser, &secret, "the list of API keys").await;
        for (link, title) in [
            ("Rotate the signing secret of Reporting", "Rotate the signing secret?"),
            ("Revoke Reporting", "Revoke this API key?"),
        ] {
            browser.click(&format!("//a[@aria-label='{link}']")).await;
            browser.find(&format!("//h1[text()='{title}']")).await;
            lacks(&browser, &secret, title).await;
            browser.open(&format!("{}/portal/api-keys", node.url())).await;
        }
        browser.press("New API key").await;
        browser.fill("Name", "Twice").await;
        let send = "const done = arguments[0], form = document.querySelector('main form');
            fetch(form.action, { method: 'POST', body: new URLSearchParams(new FormData(form)) }).then((answer) => done(answer.status));";
        assert_eq!(browser.run_until_done(send).await, 200);
        browser.press("Create the API key").await;
        browser.find("//h1[text()='This form was already sent']").await;
        browser.logs_refusal(409).await;
        check(&browser, "a form that was already sent").await;
    })
    .await;
}

/// Creates a key that only reads, until 2100, from one network. Returns it as the page shows it.
async fn create(browser: &Browser, setup: &Setup, network: &str) -> Client {
    browser.press("New API key").await;
    browser.fill("Name", &format!("from {network}")).await;
    browser.click("//input[@value='read']").await;
    browser.fill("Expires", "2100-01-31").await;
    browser.fill("Allowed networks", network).await;
    browser.press("Create the API key").await;
    browser.sees("X-API-Secret").await;
    let shown = async |name: &str| browser.text(&format!("//main//div[dt='{name}']/dd//code")).await;
    let (key, secret) = (shown("API key").await, shown("API secret").await);
    browser.press("All API keys").await;
    browser.find("//h1[text()='API keys']").await;
    Client { key, secret, ..setup.client.clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_the_page_restricts_reads_and_does_not_order() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let owner = node.user(setup.client.account_id, "owner").await;
    let order = place(&node, &setup).await;
    in_browser((1440, 1_400), true, |browser| async move {
        enter(&node, &browser, &owner, "/portal/api-keys").await;
        let here = create(&browser, &setup, "127.0.0.0/8").await;
        let read = node.client(&here, "GET", &format!("/orders/{order}"), Value::Null).await.data(200);
        assert_eq!(read["id"], order);
        let another = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
        node.client(&here, "POST", "/orders", another).await.refused(403, "E_INSUFFICIENT_SCOPE");
        let elsewhere = create(&browser, &setup, "203.0.113.0/24").await;
        node.client(&elsewhere, "GET", "/orders", Value::Null).await.refused(403, "E_NETWORK_NOT_ALLOWED");
        let there = node.by(&elsewhere, "GET", "/orders").header("X-Forwarded-For", "203.0.113.9");
        node.send(there).await.data(200);
        let keys = node.bearer(&owner.access_token, "GET", "/client/api/api-keys", Value::Null).await.data(200);
        let keys = keys["api_keys"].as_array().unwrap();
        let ends: Vec<_> = keys.iter().filter(|key| key["expires_at"] == "2100-01-31T00:00:00.000Z").collect();
        assert_eq!((ends.len(), keys.len()), (2, 3), "{keys:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_has_exactly_the_ticked_scopes_and_shows_when_it_was_last_used() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let owner = node.user(setup.client.account_id, "owner").await;
    in_browser((1440, 1_400), true, |browser| async move {
        enter(&node, &browser, &owner, "/portal/api-keys").await;
        browser.press("New API key").await;
        browser.fill("Name", "Till").await;
        for scope in ["orders", "webhooks"] {
            browser.click(&format!("//input[@name='scopes'][@value='{scope}']")).await;
        }
        browser.press("Create the API key").await;
        browser.sees("X-API-Secret").await;
        let shown = async |name: &str| browser.text(&format!("//main//div[dt='{name}']/dd//code")).await;
        let (key, secret) = (shown("API key").await, shown("API secret").await);
        browser.press("All API keys").await;
        let cell = |column: &str| format!("//tr[starts-with(td[@data-name='Name'], 'Till ')]/td[@data-name='{column}']");
        browser.find(&format!("{}[normalize-space()='orders, webhooks']", cell("Restrictions"))).await;
        browser.find(&format!("{}[normalize-space()='–']", cell("Last used"))).await;
        let keys = node.bearer(&owner.access_token, "GET", "/client/api/api-keys", Value::Null).await.data(200);
        let till = keys["api_keys"].as_array().unwrap().iter().find(|key| key["name"] == "Till").unwrap()["id"].as_i64().unwrap();
        let path = format!("/client/api/api-keys/{till}");
        let read = async || node.bearer(&owner.access_token, "GET", &path, Value::Null).await.data(200);
        let unused = read().await;
        assert_eq!((&unused["scopes"], &unused["last_used_at"]), (&json!(["orders", "webhooks"]), &Value::Null));

        browser.click("//a[@aria-label='Rotate the signing secret of Till']").await;
        browser.press("Replace the signing secret").await;
        browser.find("//h1[text()='The new signing secret']").await;
        let signing_secret = shown("Signing secret").await;
        node.operator("PUT", &format!("/credentials/{till}"), json!({"hmac_required": true})).await.data(200);
        let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1}).to_string();
        let (now, digest) = (Utc::now().timestamp(), hex::encode(Sha256::digest(order.as_bytes())));
        let signature = header(now, &sign(&signing_secret, &format!("POST\n/api/v1/orders\n\n{digest}\n{now}")));
        let client = Client { key, secret, credential_id: till, ..setup.client.clone() };
        let signed = node.by(&client, "POST", "/orders").header("X-Signature", signature);
        node.send(signed.header("Content-Type", "application/json").body(order)).await.data(201);
        until("the use is recorded", async || read().await["last_used_at"].is_string()).await;
        browser.press("All API keys").await;
        browser.find(&format!("{}/time[@datetime]", cell("Last used"))).await;
        lacks(&browser, &signing_secret, "the list of API keys").await;
        browser.find(&format!("{}[normalize-space()='Required']", cell("Signatures"))).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_sets_and_clears_the_notice_of_a_wallet() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let operator = node.user(setup.client.account_id, "operator").await;
    in_browser((390, 2_000), true, |browser| async move {
        enter(&node, &browser, &operator, &format!("/portal/wallets/{}", setup.wallet_id)).await;
        browser.press("Notice of a low balance: none").await;
        browser.fill("Notify below", "-1").await;
        browser.press("Save the notice").await;
        browser.find("//*[@role='alert']").await;
        browser.logs_refusal(400).await;
        check(&browser, "a notice that is refused").await;
        browser.fill("Notify below", "250.00").await;
        browser.press("Save the notice").await;
        browser.sees("The notice is saved.").await;
        node.project().await;
        browser.press("Wallets").await;
        browser.press(&format!("Wallet {}", setup.wallet_id)).await;
        browser.sees("Notice when the balance falls below").await;
        check(&browser, "a wallet with a notice").await;
        browser.press("Notice when the balance falls below 250.00 EUR").await;
        browser.fill("Notify below", "").await;
        browser.press("Save the notice").await;
        browser.sees("The notice is saved.").await;
        node.project().await;
        browser.press("Wallets").await;
        browser.press(&format!("Wallet {}", setup.wallet_id)).await;
        browser.find("//summary[normalize-space()='Notice of a low balance: none']").await;
    })
    .await;
}
