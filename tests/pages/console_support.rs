//! Support in the console: the search, orders, accounts, blocked addresses, operators and the audit.

use std::collections::BTreeSet;
use std::net::IpAddr;

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use rewards_ledger::access::{Role, blocks};
use rewards_ledger::ledger::commands;
use serde_json::{Value, json};

use super::console::enter;
use super::{check, in_browser, place};
use crate::support::browser::Browser;
use crate::support::ledger::run;
use crate::support::node::{Node, PASSWORD, Setup};
use crate::support::wait::until;

/// An account with a webhook, a delivered order whose codes were read, and an order that waits. Returns the waiting one.
pub async fn populated(node: &Node) -> (Setup, Value) {
    let setup = node.setup().await;
    let hook = json!({"name": "Shop", "url": "https://shop.example/hooks", "events": ["order.created"]});
    node.client(&setup.client, "POST", "/webhooks", hook).await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let delivered = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap();
    node.fulfil(delivered).await;
    node.client(&setup.client, "GET", &format!("/orders/{delivered}/vouchers"), Value::Null).await.data(200);
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 2});
    let waiting = node.client(&setup.client, "POST", "/orders", order).await.data(201);
    node.project().await;
    (setup, waiting)
}

/// Opens a part of the account whose page is open.
async fn part(browser: &Browser, name: &str, title: &str) {
    browser.click(&format!("//nav[@aria-label='Parts of the account']//a[text()='{name}']")).await;
    browser.find(&format!("//h1[text()='{title}']")).await;
    check(browser, title).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn support_finds_an_order_looks_back_and_cancels_it() {
    let node = Node::start().await;
    let (_, order) = populated(&node).await;
    let reference = order["reference_code"].as_str().unwrap();
    in_browser((1440, 2_000), true, |browser| async move {
        enter(&node, &browser, Role::Admin).await;
        browser.fill("Search for", "no such thing").await;
        browser.click("//main//button[text()='Search']").await;
        browser.sees("Nothing has the number, name or ID").await;
        check(&browser, "a search without results").await;
        browser.fill("Search for", reference).await;
        browser.click("//main//button[text()='Search']").await;
        browser.find(&format!("//h1[text()='Order {reference}']")).await;
        check(&browser, "an order in the console").await;
        browser.press("Show a past time").await;
        browser.fill("As of", "1").await;
        browser.press("Show the order then").await;
        browser.sees("is before the order").await;
        browser.logs_refusal(400).await;
        browser.click("(//a[starts-with(text(), 'the order at position')])[1]").await;
        browser.sees("This is the order as it was at position").await;
        check(&browser, "a past order").await;
        browser.press("Show the order as it is now").await;
        browser.click("//ol[@aria-label='What happened']//a[starts-with(text(), 'Delivery')]").await;
        browser.sees("order.created").await;
        check(&browser, "a delivery in the console").await;
        browser.click("//dd//a[starts-with(text(), 'Webhook')]").await;
        browser.find("//h1[text()='Shop']").await;
        check(&browser, "a webhook in the console").await;
        browser.press("Orders").await;
        browser.press(reference).await;
        browser.press("Cancel this order").await;
        browser.sees("return to the wallet for 2 units").await;
        browser.fill("Reason", "ordered twice").await;
        browser.press("Cancel the order").await;
        browser.sees("The order is cancelled.").await;
        browser.sees("“ordered twice”").await;
        check(&browser, "a cancelled order in the console").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn support_sees_an_order_as_of_a_time() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(&setup.client, "POST", "/orders", order).await.data(201);
    let placed: DateTime<Utc> = order["created_at"].as_str().unwrap().parse().unwrap();
    // The first whole second after the order, with the cancellation after it.
    let then = placed.trunc_subsecs(0) + TimeDelta::seconds(1);
    until("the second has passed", async || Utc::now() > then + TimeDelta::milliseconds(10)).await;
    let cancel = json!({"reason": "ordered twice"});
    node.client(&setup.client, "POST", &format!("/orders/{}/cancel", order["id"]), cancel).await.data(200);
    in_browser((390, 2_400), true, |browser| async move {
        enter(&node, &browser, Role::Auditor).await;
        browser.open(&format!("{}/console/orders/{}", node.url(), order["id"])).await;
        browser.find("//dd//span[text()='Cancelled']").await;
        browser.press("Show a past time").await;
        browser.fill("As of", &then.format("%Y-%m-%d %H:%M:%S").to_string()).await;
        browser.press("Show the order then").await;
        browser.sees("This is the order as it was at position").await;
        browser.find("//dd//span[text()='Pending']").await;
        check(&browser, "an order as of a time").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_sets_up_an_account_and_suspends_it() {
    let node = Node::start().await;
    in_browser((1440, 2_000), true, |browser| async move {
        enter(&node, &browser, Role::Admin).await;
        browser.press("Accounts").await;
        browser.sees("There is no account yet.").await;
        check(&browser, "no accounts").await;
        browser.fill("Name", "Birch & Sons").await;
        browser.press("Create the account").await;
        browser.sees("Created.").await;
        browser.find("//h1[text()='Birch & Sons']").await;
        check(&browser, "an account").await;
        part(&browser, "Wallets", "Wallets of Birch & Sons").await;
        browser.fill("Currency", "eur").await;
        browser.press("Open the wallet").await;
        browser.sees("Created.").await;
        part(&browser, "Discounts", "Discounts of Birch & Sons").await;
        browser.press("Set a discount").await;
        browser.fill("Discount in percent", "120").await;
        browser.press("Set the discount").await;
        browser.find("//*[@role='alert']").await;
        browser.logs_refusal(400).await;
        check(&browser, "a refused discount").await;
        browser.fill("Discount in percent", "2.50").await;
        browser.press("Set the discount").await;
        browser.sees("The change is saved.").await;
        browser.sees("Everything").await;
        key(&browser).await;
        user(&browser).await;
        part(&browser, "Webhooks", "Webhooks of Birch & Sons").await;
        part(&browser, "Deliveries", "Deliveries of Birch & Sons").await;
        part(&browser, "Limits in use", "Limits in use by Birch & Sons").await;
        part(&browser, "Overview", "Birch & Sons").await;
        browser.press("Suspend this account").await;
        browser.press("Suspend the account").await;
        browser.sees("The account is suspended").await;
        check(&browser, "a suspended account").await;
        browser.press("Activate the account").await;
        browser.press("Suspend this account").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_has_its_limits_in_use_and_the_blocks_of_its_users() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let user = node.user(setup.client.account_id, "viewer").await;
    let login = node.request("POST", "/auth/login").header("X-Forwarded-For", "203.0.113.7");
    node.send(login.json(&json!({"email": user.email, "password": PASSWORD}))).await.data(200);
    blocks::start(node.ledger.pool(), IpAddr::from([203, 0, 113, 7])).await.unwrap();
    in_browser((1440, 2_000), true, |browser| async move {
        enter(&node, &browser, Role::Auditor).await;
        let client = &setup.client;
        let read = async || node.client(client, "GET", "/wallets", Value::Null).await.data(200);
        read().await;
        browser.open(&format!("{}/console/accounts/{}", node.url(), client.account_id)).await;
        part(&browser, "Limits in use", "Limits in use by Acme").await;
        let key = format!("//a[@href='/console/accounts/{}/credentials/{}']", client.account_id, client.credential_id);
        let used = |number: i32| format!("//tr[td[1]='general'][td[@data-name='Used']='{number} of 1000000'][.{key}]");
        browser.find(&used(1)).await;
        read().await;
        browser.press("Count again").await;
        browser.find(&used(2)).await;
        browser.click("//nav[@aria-label='Parts of the account']//a[text()='Overview']").await;
        browser.find("//main//tr[contains(., '203.0.113.7')]").await;
        check(&browser, "an account with a blocked address").await;
        browser.press("All blocked addresses").await;
        browser.find("//h1[text()='Blocked addresses']").await;
        browser.find("//main//tr[contains(., '203.0.113.7')]").await;
        check(&browser, "the blocks as an auditor sees them").await;
    })
    .await;
}

/// Creates an API key of the account, and revokes it.
async fn key(browser: &Browser) {
    part(browser, "API keys", "API keys of Birch & Sons").await;
    browser.fill("Name", "Shop").await;
    browser.click("//input[@value='read']").await;
    browser.fill("Allowed networks", "203.0.113.0/24").await;
    browser.press("Create the API key").await;
    browser.sees("it is never shown again").await;
    check(browser, "the secret of a key").await;
    browser.press("To the API key").await;
    browser.sees("203.0.113.0/24").await;
    browser.press("Require signatures").await;
    browser.press("Refuse unsigned requests").await;
    browser.sees("must now be signed").await;
    check(browser, "the signing secret of a key").await;
    browser.press("To the API key").await;
    browser.press("Waive signatures").await;
    check(browser, "a key that takes signatures").await;
    browser.press("Accept unsigned requests").await;
    browser.sees("The change is saved.").await;
    browser.find("//dd[normalize-space()='Optional']").await;
    browser.press("Revoke this API key").await;
    check(browser, "a key").await;
    browser.press("Revoke the key").await;
    browser.sees("The key is revoked.").await;
}

/// Creates a user of the account, sets a password, ends the sessions, and removes the user.
async fn user(browser: &Browser) {
    part(browser, "Users", "Users of Birch & Sons").await;
    browser.fill("Email", "kim@birch.example").await;
    browser.fill("Password", "password1").await;
    browser.press("Create the user").await;
    browser.sees("is a common password").await;
    browser.logs_refusal(400).await;
    browser.fill("Password", PASSWORD).await;
    browser.press("Create the user").await;
    browser.find("//h1[text()='kim@birch.example']").await;
    browser.press("Set a password").await;
    check(browser, "a user").await;
    browser.fill("New password", "another battery staple").await;
    browser.press("Set the password").await;
    browser.sees("The change is saved.").await;
    browser.press("Change the role").await;
    browser.click("//option[@value='operator']").await;
    browser.click("//button[text()='Change the role']").await;
    browser.sees("The change is saved.").await;
    browser.press("End the sessions").await;
    browser.press("End all sessions").await;
    browser.sees("All sessions of the user have ended.").await;
    browser.press("Remove this user").await;
    browser.press("Remove the user").await;
    browser.sees("Removed.").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_manages_operators_and_reads_the_audit() {
    let node = Node::start().await;
    populated(&node).await;
    blocks::start(node.ledger.pool(), IpAddr::from([203, 0, 113, 7])).await.unwrap();
    in_browser((1440, 2_000), true, |browser| async move {
        enter(&node, &browser, Role::Admin).await;
        browser.press("Blocked addresses").await;
        browser.press("Lift the block").await;
        check(&browser, "the blocks").await;
        browser.press("Lift it now").await;
        browser.sees("The block is lifted.").await;
        browser.sees("No address is blocked.").await;
        browser.press("Operators").await;
        browser.press("New operator").await;
        check(&browser, "the operators").await;
        browser.fill("Email", "kim@example.com").await;
        browser.fill("Password", PASSWORD).await;
        browser.press("Create the operator").await;
        browser.find("//h1[text()='kim@example.com']").await;
        browser.press("Change the role").await;
        check(&browser, "an operator").await;
        browser.click("//option[@value='finance']").await;
        browser.click("//button[text()='Change the role']").await;
        browser.sees("The change is saved.").await;
        browser.press("Remove this operator").await;
        browser.press("Remove the operator").await;
        browser.sees("Removed.").await;
        browser.press("Tokens of programs").await;
        browser.press("New token").await;
        browser.fill("Name", "Nightly report").await;
        browser.press("Create the token").await;
        browser.sees("Authorization: Bearer").await;
        check(&browser, "the secret of a token").await;
        browser.press("All tokens").await;
        browser.click("//td//summary").await;
        check(&browser, "the tokens").await;
        browser.press("Revoke the token").await;
        browser.sees("The token is revoked.").await;
        browser.press("Audit").await;
        browser.sees("OperatorTokenRevoked").await;
        check(&browser, "the audit").await;
        browser.press("Readings of voucher codes").await;
        browser.find("//table//a[text()='VouchersRevealed']").await;
        browser.find("//td//a[text()='API key main']").await;
        browser.press("VouchersRevealed").await;
        browser.sees("VouchersRevealed at position").await;
        check(&browser, "an event").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_auditor_reads_everything_and_changes_nothing() {
    let node = Node::start().await;
    let (setup, order) = populated(&node).await;
    let auditor = node.console_user(Role::Auditor).await;
    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let read = async |path: &str| {
        let response = http.get(format!("{}{path}", node.url())).header("Cookie", &auditor.cookie).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    let account = format!("/console/accounts/{}", setup.client.account_id);
    let order = format!("/console/orders/{}", order["id"]);
    for path in ["/console/accounts", &account, &format!("{account}/users"), &format!("{account}/credentials"), &order] {
        let (status, page) = read(path).await;
        assert!(status == 200 && page.contains("you need the role admin"), "{path}: {status} {page}");
        let forms = page.matches("method=\"post\"").count();
        assert_eq!(forms, 1, "{path} has a form beside the sign-out: {page}");
    }
    let (_, csv) = read("/console/audit.csv?type=VouchersRevealed").await;
    assert!(csv.starts_with("position,") && csv.contains("VouchersRevealed") && csv.lines().count() == 2, "{csv}");
    let (status, _) = read(&format!("/console/search?q={}", setup.client.account_id)).await;
    assert!(status == 200 || status == 303, "{status}");
    for form in ["/console/accounts", &format!("{order}/cancel"), "/console/operator-tokens", &format!("{account}/users")] {
        let request = http.post(format!("{}{form}", node.url())).header("Cookie", &auditor.cookie).header("Origin", node.url());
        let body = "name=a&role=admin&email=a@example.com&password=another+battery+staple";
        let response = request.header("Content-Type", "application/x-www-form-urlencoded").body(body).send().await.unwrap();
        assert_eq!(response.status().as_u16(), 403, "{form}");
    }
    let (status, page) = read("/console/events/1/999999").await;
    assert!(status == 404 && page.contains("There is nothing at this address."), "{status} {page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_as_csv_has_every_action_that_matches() {
    const ACTIONS: usize = 1_050;
    let node = Node::start().await;
    let auditor = node.console_user(Role::Auditor).await;
    for names in (0..ACTIONS).collect::<Vec<_>>().chunks(150) {
        let add = |number: &usize| commands::AddCategory { name: format!("Category {number}"), parent_id: None };
        futures::future::join_all(names.iter().map(|number| run(&node.ledger, add(number)))).await;
    }
    let path = format!("{}/console/audit.csv?type=CategoryAdded", node.url());
    let csv = reqwest::Client::new().get(path).header("Cookie", &auditor.cookie).send().await.unwrap().text().await.unwrap();
    let rows: Vec<&str> = csv.lines().skip(1).collect();
    let positions: BTreeSet<&str> = rows.iter().map(|row| row.split(',').next().unwrap()).collect();
    assert_eq!((rows.len(), positions.len()), (ACTIONS, ACTIONS));
    assert!(rows.iter().all(|row| row.contains(",CategoryAdded,")), "{csv}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_is_downloaded_from_the_page_of_its_order() {
    let node = Node::start().await;
    let (_, order) = populated(&node).await;
    node.publish().await;
    let auditor = node.console_user(Role::Auditor).await;
    let path = format!("{}/console/orders/{}/receipt", node.url(), order["id"]);
    let response = reqwest::Client::new().get(path).header("Cookie", &auditor.cookie).send().await.unwrap();
    assert_eq!(response.status().as_u16(), 200);
    assert!(response.headers()["content-disposition"].to_str().unwrap().contains("receipt-"));
    let receipt: Value = response.json().await.unwrap();
    let direct = node.operator("GET", &format!("/orders/{}/receipt", order["id"]), Value::Null).await.data(200);
    assert_eq!(receipt["events"], direct["events"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn support_staff_page_through_the_orders_of_all_accounts() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let mut placed = vec![];
    for _ in 0..21 {
        placed.push(place(&node, &setup).await);
    }
    in_browser((1440, 2_000), true, |browser| async move {
        enter(&node, &browser, Role::Admin).await;
        browser.press("Orders").await;
        let link = |order: i64| format!("//main//td//a[@href='/console/orders/{order}']");
        browser.find(&link(placed[20])).await;
        browser.press("Older").await;
        browser.find(&link(placed[0])).await;
        browser.sees("21 entries").await;
        check(&browser, "the oldest orders").await;
        browser.press("Newest").await;
        browser.find(&link(placed[20])).await;
    })
    .await;
}
