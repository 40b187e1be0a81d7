//! The client portal.

use serde_json::{Value, json};

use super::{check, in_browser};
use crate::support::node::{AMPLE_LIMITS, Node, PASSWORD, User};

/// An account with an owner, orders in several states, and a wallet below the amount of its notice.
async fn populated(node: &Node) -> User {
    let setup = node.setup().await;
    let owner = node.user(setup.client.account_id, "owner").await;
    for quantity in [1, 2, 50] {
        let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": quantity});
        node.client(&setup.client, "POST", "/orders", order).await;
    }
    let notice = format!("/client/api/wallets/{}/notice", setup.wallet_id);
    node.bearer(&owner.access_token, "PUT", &notice, json!({"below": "5000.00"})).await.data(200);
    node.project().await;
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
        browser.find("//p[contains(., '1 wallet is below the amount that was set for a notice')]/a[starts-with(., 'EUR')]").await;
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
        browser.click("//h2[.='Latest orders']/following::table//a").await;
        browser.press("Cancel this order").await;
        let refund = browser.text("//details[summary='Cancel this order']//form/p").await;
        assert!(refund.starts_with("20.00 EUR return to the wallet for 2 units"), "{refund}");
        browser.fill("Reason", "no longer needed").await;
        browser.press("Cancel the order").await;
        browser.sees("The order is cancelled.").await;
        browser.sees("no longer needed").await;
        assert_eq!(browser.complaints().await, Vec::<Value>::new());
    })
    .await;
}

#[tokio::test]
async fn a_visitor_above_a_limit_reads_why_and_until_when() {
    let limits = format!("{AMPLE_LIMITS},user-login=1/1h,login=3/60s");
    let node = Node::with_limits(limits.parse().unwrap()).await;
    let user = node.user(node.account("Acme").await.account_id, "viewer").await;
    let sign_in = async || {
        let form = reqwest::Client::new().post(format!("{}/portal/login", node.url())).header("Origin", node.url());
        let form = form.header("Content-Type", "application/x-www-form-urlencoded");
        let answer = form.body(format!("email={}&password=x", user.email)).send().await.unwrap();
        let retry_after = answer.headers().get("retry-after").map(|value| value.to_str().unwrap().parse::<u32>().unwrap());
        (answer.status().as_u16(), retry_after, answer.text().await.unwrap())
    };
    let mut refused = sign_in().await;
    while refused.0 != 429 {
        assert_eq!(refused.0, 401);
        refused = sign_in().await;
    }
    let (_, retry_after, page) = refused;
    assert!(retry_after.is_some_and(|seconds| seconds > 0), "{retry_after:?}");
    assert!(page.contains("Too many") && page.contains("Try again in"), "{page}");
}
