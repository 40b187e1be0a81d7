//! Wallets, payouts, beneficiaries and events in the portal.

use serde_json::json;

use super::{check, in_browser};
use crate::support::node::{Node, PASSWORD};

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_pays_a_new_beneficiary_and_finds_the_payout_in_the_statement() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let owner = node.user(setup.client.account_id, "owner").await;
    in_browser((1440, 1_400), true, |browser| async move {
        browser.open(&format!("{}/portal/beneficiaries", node.url())).await;
        browser.fill("Email", &owner.email).await;
        browser.fill("Password", PASSWORD).await;
        browser.press("Sign in").await;
        browser.find("//h1[text()='Beneficiaries']").await;
        check(&browser, "the beneficiaries").await;
        for (label, text) in
            [("Name", "Ada & Sons"), ("Country", "de"), ("Currency", "eur"), ("Account number", "DE89 3704 0044 0532 0130 00")]
        {
            browser.fill(label, text).await;
        }
        browser.press("Add the beneficiary").await;
        browser.find("//h1[text()='Ada & Sons']").await;
        check(&browser, "a beneficiary").await;
        browser.press("Request a payout").await;
        browser.fill("Amount", "5000").await;
        browser.press("Request the payout").await;
        browser.sees("is too low").await;
        browser.logs_refusal(402).await;
        browser.fill("Amount", "48.75").await;
        check(&browser, "the request of a payout").await;
        browser.press("Request the payout").await;
        browser.sees("The payout is requested.").await;
        check(&browser, "a payout").await;
        browser.press("Cancel this payout").await;
        browser.press("Cancel the payout").await;
        browser.sees("The payout is cancelled.").await;
        browser.press("All payouts").await;
        browser.sees("Ada & Sons").await;
        check(&browser, "the payouts").await;
        browser.press("Wallets").await;
        browser.find("//h1[text()='Wallets']").await;
        check(&browser, "the wallets").await;
        browser.press(&format!("Wallet {}", setup.wallet_id)).await;
        browser.sees("Payout refund").await;
        check(&browser, "a wallet").await;
        browser.press("Statement").await;
        browser.sees("Closing balance").await;
        browser.sees("Payout refund").await;
        check(&browser, "a statement").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_leads_to_its_order_and_a_viewer_moves_no_money() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(&setup.client, "POST", "/orders", order).await.data(201);
    let viewer = node.user(setup.client.account_id, "viewer").await;
    let http = reqwest::Client::new();
    let read = async |path: &str| {
        let response = http.get(format!("{}{path}", node.url())).header("Cookie", &viewer.cookie).send().await.unwrap();
        assert_eq!(response.status().as_u16(), 200, "{path}");
        response.text().await.unwrap()
    };
    let events = read("/portal/events?types=order.created").await;
    assert!(events.contains(&format!("href=\"/portal/orders/{}\"", order["id"])), "{events}");
    for path in ["/portal/payouts/request", "/portal/beneficiaries"] {
        let page = read(path).await;
        assert!(page.contains("you need the role owner") && !page.contains("action=\"/portal/payouts\""), "{page}");
    }
    let csv = read(&format!("/portal/wallets/{}/statement.csv", setup.wallet_id)).await;
    assert!(csv.contains("OPENING_BALANCE") && csv.contains("CLOSING_BALANCE"), "{csv}");
    let request = http.post(format!("{}/portal/payouts", node.url())).header("Cookie", &viewer.cookie);
    let form = request.header("Origin", node.url()).header("Content-Type", "application/x-www-form-urlencoded");
    let refused = form.body("beneficiary_id=1&wallet_id=1&amount=1").send().await.unwrap();
    assert_eq!(refused.status().as_u16(), 403);
}
