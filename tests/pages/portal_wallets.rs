//! Wallets, payouts, beneficiaries and events in the portal.

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::join_all;
use ledger_events::WalletId;
use rewards_ledger::ledger::commands::FundWallet;
use serde_json::json;

use super::filters::read;
use super::{check, in_browser, place, portal_orders};
use crate::support::ledger::{money, run};
use crate::support::node::{Node, PASSWORD};
use crate::support::wait::until;

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
        // The debit and its refund.
        browser.find("//tbody[count(.//td/a[starts-with(@href, '/portal/payouts/')])=2]").await;
        browser.press("Statement").await;
        browser.sees("Closing balance").await;
        browser.sees("Payout refund").await;
        check(&browser, "a statement").await;
        // Nothing moved in a period of the past, and its closing balance is that of its opening.
        browser
            .run("document.getElementById('from').value = '2020-01-01'; document.getElementById('to').value = '2020-01-31';")
            .await;
        browser.press("Filter").await;
        browser.sees("2020-01-01 to 2020-01-31").await;
        browser.sees("Nothing moved in this period.").await;
        check(&browser, "a statement of a period").await;
    })
    .await;
}

#[tokio::test]
async fn a_statement_of_more_movements_than_a_page_has_shows_them_in_parts() {
    // With the opening of the wallet, one more than a page has.
    const FUNDINGS: usize = 100;
    let node = Node::start().await;
    let setup = node.setup().await;
    let viewer = node.user(setup.client.account_id, "viewer").await;
    let fund = |number: usize| {
        let (wallet_id, reference) = (WalletId(setup.wallet_id), format!("FUND-{number}"));
        run(&node.ledger, FundWallet { account_id: None, wallet_id, amount: money("1.00"), reference, note: None })
    };
    join_all((0..FUNDINGS).map(fund)).await;
    let (opening, rows) = (format!("opening of {}", setup.wallet_id), |page: &str| page.matches("data-name=\"Balance\"").count());
    let last = read(&node, &viewer.cookie, &format!("/portal/wallets/{}/statement?from=2020-01-01", setup.wallet_id)).await;
    assert!(last.contains("Part 2 of 2: movements 2 to 101 of 101."), "{last}");
    assert!(rows(&last) == FUNDINGS && !last.contains(&opening), "{last}");
    let link = last.split("<a class=\"button\" href=\"").find(|rest| rest.contains("\">Part 1<")).unwrap();
    let link = link.split('"').next().unwrap().replace("&amp;", "&");
    let first = read(&node, &viewer.cookie, &link).await;
    assert!(first.contains("Part 1 of 2: movement 1 of 101.") && first.contains(">Part 2<"), "{first}");
    assert!(rows(&first) == 1 && first.contains(&opening), "{first}");
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

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_reads_later_events_returns_to_the_beginning_and_reads_on_from_now() {
    // One more than a page has.
    const ORDERS: usize = 21;
    let node = Node::start().await;
    let setup = node.setup().await;
    let viewer = node.user(setup.client.account_id, "viewer").await;
    let mut orders = vec![];
    for _ in 0..ORDERS {
        orders.push(place(&node, &setup).await);
    }
    let link = |order: i64| format!("//main//td//a[@href='/portal/orders/{order}']");
    let (first, last) = (link(orders[0]), link(orders[ORDERS - 1]));
    in_browser((390, 2_400), true, |browser| async move {
        portal_orders::enter(&browser, &node, &viewer, "/portal/events?types=order.created").await;
        browser.find(&first).await;
        browser.press("Later events").await;
        browser.find(&last).await;
        browser.sees("This is the end of the log.").await;
        check(&browser, "the last events").await;
        browser.press("From the beginning").await;
        browser.find(&first).await;
        browser.press("From now on").await;
        browser.sees("There is no such event yet.").await;
        let new = place(&node, &setup).await;
        let new = format!("//td//a[@href='/portal/orders/{new}']");
        browser.find(&format!("//main//tbody[not(.{})]{new}", first.trim_start_matches("//main"))).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_reads_the_events_since_a_time() {
    // One more than a page has.
    const ORDERS: usize = 21;
    let node = Node::start().await;
    let setup = node.setup().await;
    let viewer = node.user(setup.client.account_id, "viewer").await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let earlier = node.client(&setup.client, "POST", "/orders", order).await.data(201);
    let placed: DateTime<Utc> = earlier["created_at"].as_str().unwrap().parse().unwrap();
    let since = placed + TimeDelta::milliseconds(1);
    until("the time has passed", async || Utc::now() > since + TimeDelta::milliseconds(10)).await;
    let mut orders = vec![];
    for _ in 0..ORDERS {
        orders.push(place(&node, &setup).await);
    }
    let link = |order: i64| format!("//main//td//a[@href='/portal/orders/{order}']");
    let (earlier, first, last) = (link(earlier["id"].as_i64().unwrap()), link(orders[0]), link(orders[ORDERS - 1]));
    let since = since.format("%Y-%m-%dT%H:%M:%S%.3fZ");
    in_browser((390, 2_400), true, |browser| async move {
        portal_orders::enter(&browser, &node, &viewer, &format!("/portal/events?types=order.created&since={since}")).await;
        // The list begins with the first order of that time.
        browser.find(&format!("//tbody/tr[1][.{}]", first.trim_start_matches("//main"))).await;
        browser.press("Later events").await;
        browser.find(&last).await;
        assert_eq!(browser.run("return new URLSearchParams(location.search).get('since')").await, json!(null));
        // A field for a time takes the keys in the order of the browser's language.
        let type_since = "const field = document.querySelector('main input[name=since]'); field.value = '2999-01-01T00:00';";
        browser.run(type_since).await;
        browser.press("Filter").await;
        browser.sees("Since cannot be combined with a cursor").await;
        browser.logs_refusal(400).await;
        browser.press("From the beginning").await;
        browser.find(&earlier).await;
        browser.run(type_since).await;
        browser.press("Filter").await;
        browser.sees("There is no such event yet.").await;
        check(&browser, "no events since a time").await;
        browser.open(&format!("{}/portal/events?since=soon", node.url())).await;
        browser.sees("Since is not valid").await;
        browser.logs_refusal(400).await;
        check(&browser, "a wrong time").await;
    })
    .await;
}
