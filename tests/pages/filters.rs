//! Filters of lists: each one is offered, and narrows the list.

use std::collections::BTreeSet;

use chrono::{Days, Utc};
use ledger_events::order::OrderStatus;
use ledger_events::{OrderId, ProductId};
use ledger_projections::deliveries::AttemptOutcome;
use rewards_ledger::access::Role;
use serde_json::{Value, json};
use webhook_client::receiver::ReceiverResponse;

use super::crawl::attributes;
use crate::support::ledger;
use crate::support::node::{Node, product};
use crate::support::shop::{DEADLINE, receiver, worker};

pub async fn read(node: &Node, cookie: &str, path: &str) -> String {
    let response = reqwest::Client::new().get(format!("{}{path}", node.url())).header("Cookie", cookie).send().await.unwrap();
    assert_eq!(response.status().as_u16(), 200, "{path}");
    response.text().await.unwrap()
}

/// Returns the form of filters of a page.
pub fn form(page: &str) -> &str {
    page.split("<form class=\"filters\"").nth(1).and_then(|rest| rest.split("</form>").next()).unwrap()
}

/// Returns the choices of the select with this name.
pub fn choices(form: &str, name: &str) -> Vec<String> {
    let select = form.split("<select").skip(1).find(|select| attributes(select.split('>').next().unwrap(), "name") == [name]);
    attributes(select.unwrap().split("</select>").next().unwrap(), "value")
}

/// Returns a day in the past, as a field for a date has it.
pub fn day(before: u64) -> String {
    Utc::now().date_naive().checked_sub_days(Days::new(before)).unwrap().to_string()
}

/// Moves rows of a projection ten days into the past.
pub async fn make_earlier(node: &Node, table: &str, column: &str, id: i64) {
    let earlier = format!("UPDATE {table} SET {column} = {column} - interval '10 days' WHERE id = $1");
    let moved = sqlx::query(sqlx::AssertSqlSafe(earlier)).bind(id).execute(&mut node.admin().await).await.unwrap();
    assert_eq!(moved.rows_affected(), 1);
}

/// Creates three active products and an inactive one, in this order. Returns their ids, and the category of the last two.
pub async fn catalogue(node: &Node) -> (Vec<i64>, i64) {
    let category = node.operator("POST", "/categories", json!({"name": "Games"})).await.data(201)["id"].as_i64().unwrap();
    let mut ids = vec![];
    for details in [
        json!({"name": "First Card"}),
        json!({"name": "Second Card", "brand": "Zenith", "country": "US", "currency": "USD"}),
        json!({"name": "Third Card", "category_id": category}),
        json!({"name": "Fourth Card", "category_id": category, "currency": "USD", "is_active": false}),
    ] {
        let mut added = product("Card");
        added.as_object_mut().unwrap().extend(details.as_object().unwrap().clone());
        ids.push(node.operator("POST", "/products", added).await.data(201)["id"].as_i64().unwrap());
    }
    (ids, category)
}

/// Checks that a list offers exactly these filters. Returns its page.
pub async fn offers(node: &Node, cookie: &str, path: &str, names: &[&str]) -> String {
    let page = read(node, cookie, path).await;
    let offered: BTreeSet<String> = attributes(form(&page), "name").into_iter().collect();
    assert_eq!(offered, names.iter().map(|name| (*name).to_owned()).collect(), "{path}");
    page
}

/// Checks that a list with a query shows exactly these of all entries, whose pages are at `entries`, and that its form
/// keeps the query.
pub async fn narrows(node: &Node, cookie: &str, path: &str, query: &str, entries: &str, all: &[i64], shown: &[i64]) {
    let page = read(node, cookie, &format!("{path}?{query}")).await;
    let found: Vec<i64> = all.iter().copied().filter(|id| page.contains(&format!("href=\"{entries}/{id}\""))).collect();
    assert_eq!(found, shown, "{path}?{query}: {page}");
    keeps(&page, query);
}

/// Checks that the form of a page's filters keeps the query.
pub fn keeps(page: &str, query: &str) {
    let form = form(page);
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()).filter(|(_, value)| !value.is_empty()) {
        let is_kept = form.contains(&format!("value=\"{value}\" selected"))
            || form.split("<input").any(|input| {
                let tag = input.split('>').next().unwrap();
                attributes(tag, "name") == [&*name] && attributes(tag, "value") == [&*value]
            });
        assert!(is_kept, "{query}: the form forgets {name}: {form}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_filter_of_the_deliveries_is_offered_and_narrows_the_list() {
    let (yesterday, between, before_all) = (day(1), day(5), day(20));
    let node = Node::start().await;
    let setup = node.setup().await;
    let account = setup.client.account_id;
    let (viewer, auditor) = (node.user(account, "viewer").await, node.console_user(Role::Auditor).await);
    let mut webhooks = vec![];
    for events in [json!(["order.created"]), json!(["order.created", "order.cancelled"])] {
        let webhook = json!({"name": "a", "url": "https://example.com/hook", "events": events});
        let webhook = node.client(&setup.client, "POST", "/webhooks", webhook).await.json();
        webhooks.push(webhook["id"].as_i64().unwrap());
    }
    let mut orders = vec![];
    for _ in 0..2 {
        let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
        orders.push(node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap());
    }
    node.client(&setup.client, "POST", &format!("/orders/{}/cancel", orders[1]), json!({})).await.data(200);
    node.project().await;
    let made = "SELECT array_agg(id ORDER BY order_id, event_type DESC, webhook_id) FROM deliveries";
    let ids: Vec<i64> = sqlx::query_scalar(made).fetch_one(node.ledger.pool()).await.unwrap();
    assert_eq!(ids.len(), 5, "created, twice, to both webhooks; and cancelled");
    let fail = "UPDATE delivery_state SET status = 'failed' WHERE delivery_id = ANY ($1)";
    sqlx::query(fail).bind(&ids[..3]).execute(&mut node.admin().await).await.unwrap();
    // The ids of deliveries follow their times, so it is the first one.
    make_earlier(&node, "deliveries", "created_at", *ids.iter().min().unwrap()).await;
    assert_eq!(ids.iter().min(), Some(&ids[0]));

    let (portal, console) = ("/portal/webhooks/deliveries", format!("/console/accounts/{account}/deliveries"));
    let names = ["status", "event_type", "webhook_url_id", "order_id", "replay_id", "from", "to", "zone"];
    for (cookie, path, entries) in [(&viewer.cookie, portal, portal), (&auditor.cookie, console.as_str(), "/console/deliveries")]
    {
        offers(&node, cookie, path, &names).await;
        for (query, shown) in [
            ("status=failed".to_owned(), &ids[..3]),
            ("event_type=order.cancelled".to_owned(), &ids[4..]),
            (format!("webhook_url_id={}&event_type=order.created", webhooks[1]), &[ids[1], ids[3]][..]),
            (format!("order_id={}", orders[0]), &ids[..2]),
            ("replay_id=1".to_owned(), &[]),
            (format!("from={yesterday}T00:00"), &ids[1..]),
            (format!("to={yesterday}T23:59"), &ids[..1]),
            (format!("status=failed&from={yesterday}T00:00"), &ids[1..3]),
            (format!("order_id={}&to={between}T00:00", orders[0]), &ids[..1]),
        ] {
            narrows(&node, cookie, path, &query, entries, &ids, shown).await;
        }
        let page = read(&node, cookie, &format!("{path}?from={before_all}T00:00&to={before_all}T00:00")).await;
        assert!(page.contains("No delivery matches these filters."), "{page}");
    }
    // The number on the overview leads to exactly those deliveries.
    let overview = read(&node, &viewer.cookie, "/portal").await;
    assert!(overview.contains("2 deliveries of the last 24 hours failed. "), "{overview}");
    let link = attributes(&overview, "href").into_iter().find(|link| link.contains("status=failed")).unwrap();
    let (path, query) = link.split_once('?').unwrap();
    narrows(&node, &viewer.cookie, path, query, portal, &ids, &ids[1..3]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_filter_of_the_orders_is_offered_and_narrows_the_list() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let viewer = node.user(setup.client.account_id, "viewer").await;
    let other = node.operator("POST", "/products", product("Other Card")).await.data(201)["id"].as_i64().unwrap();
    let mut orders = vec![];
    for (product, reference) in [(setup.product_id, "first"), (other, "second"), (setup.product_id, "third")] {
        let order = json!({"product_id": product, "denomination": 10, "quantity": 1, "client_reference": reference});
        orders.push(node.client(&setup.client, "POST", "/orders", order).await.data(201));
    }
    let ids: Vec<i64> = orders.iter().map(|order| order["id"].as_i64().unwrap()).collect();
    node.client(&setup.client, "POST", &format!("/orders/{}/cancel", ids[2]), json!({})).await.data(200);
    make_earlier(&node, "orders", "created_at", ids[0]).await;

    let names = ["status", "product_id", "reference_code", "client_reference", "from", "to", "zone"];
    let page = offers(&node, &viewer.cookie, "/portal/orders", &names).await;
    let statuses: BTreeSet<String> = choices(form(&page), "status").into_iter().collect();
    let expected = [""].into_iter().chain(OrderStatus::ALL.map(OrderStatus::as_str));
    assert_eq!(statuses, expected.map(str::to_owned).collect::<BTreeSet<_>>());

    let text = |value: &Value| value.as_str().unwrap().to_owned();
    for (query, shown) in [
        ("status=".to_owned(), vec![ids[0], ids[1], ids[2]]),
        ("status=CANCELLED".to_owned(), vec![ids[2]]),
        (format!("product_id={other}"), vec![ids[1]]),
        (format!("reference_code={}", text(&orders[1]["reference_code"])), vec![ids[1]]),
        ("client_reference=third".to_owned(), vec![ids[2]]),
        (format!("from={}", day(5)), vec![ids[1], ids[2]]),
        (format!("to={}", day(5)), vec![ids[0]]),
        (format!("from={}&to={}", day(11), day(9)), vec![ids[0]]),
        (format!("from={}&zone=Asia/Tokyo", day(5)), vec![ids[1], ids[2]]),
        (format!("product_id={}&status=PENDING&from={}", setup.product_id, day(20)), vec![ids[0]]),
        (format!("product_id={other}&client_reference=third"), vec![]),
    ] {
        narrows(&node, &viewer.cookie, "/portal/orders", &query, "/portal/orders", &ids, &shown).await;
        // The file has the same orders.
        let csv = read(&node, &viewer.cookie, &format!("/portal/orders.csv?{query}")).await;
        let mut rows: Vec<i64> = csv.lines().skip(1).map(|row| row.split(',').next().unwrap().parse().unwrap()).collect();
        rows.sort_unstable();
        assert_eq!(rows, shown, "{query}: {csv}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_filter_of_the_payouts_is_offered_and_narrows_both_lists() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let viewer = node.user(setup.client.account_id, "viewer").await;
    let auditor = node.console_user(Role::Auditor).await;
    let mut beneficiaries = vec![];
    for name in ["Ada", "Bob"] {
        let details =
            json!({"name": name, "type": "BANK", "country": "DE", "currency": "EUR", "account_number": "DE89370400440532013000"});
        let created = node.client(&setup.client, "POST", "/beneficiaries", details).await.data(201);
        beneficiaries.push(created["id"].as_i64().unwrap());
    }
    let mut ids = vec![];
    for (beneficiary, reference) in [(beneficiaries[0], "first"), (beneficiaries[1], "second"), (beneficiaries[0], "third")] {
        let payout = json!({
            "beneficiary_id": beneficiary, "wallet_id": setup.wallet_id, "amount": "1.00", "client_reference": reference
        });
        let payout = node.client(&setup.client, "POST", "/payouts", payout).await.data(201);
        ids.push(payout["id"].as_i64().unwrap());
    }
    node.client(&setup.client, "POST", &format!("/payouts/{}/cancel", ids[2]), json!({})).await.data(200);
    make_earlier(&node, "payouts", "created_at", ids[0]).await;

    let names = ["status", "beneficiary_id", "wallet_id", "client_reference", "from", "to", "zone"];
    offers(&node, &viewer.cookie, "/portal/payouts", &names).await;
    offers(&node, &auditor.cookie, "/console/payouts", &[&names[..], &["account_id"]].concat()).await;
    for (query, shown) in [
        (format!("status=PENDING&wallet_id={}", setup.wallet_id), vec![ids[0], ids[1]]),
        ("status=CANCELLED".to_owned(), vec![ids[2]]),
        (format!("beneficiary_id={}", beneficiaries[1]), vec![ids[1]]),
        (format!("wallet_id={}", setup.wallet_id + 1_000), vec![]),
        ("client_reference=third".to_owned(), vec![ids[2]]),
        (format!("from={}", day(5)), vec![ids[1], ids[2]]),
        (format!("to={}", day(5)), vec![ids[0]]),
    ] {
        narrows(&node, &viewer.cookie, "/portal/payouts", &query, "/portal/payouts", &ids, &shown).await;
        narrows(&node, &auditor.cookie, "/console/payouts", &query, "/console/payouts", &ids, &shown).await;
    }
    let account = setup.client.account_id;
    for (query, shown) in [(format!("account_id={account}"), &ids[..]), (format!("account_id={}", account + 1_000), &[])] {
        narrows(&node, &auditor.cookie, "/console/payouts", &query, "/console/payouts", &ids, shown).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_filter_of_the_movements_is_offered_and_narrows_both_lists() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let viewer = node.user(setup.client.account_id, "viewer").await;
    let auditor = node.console_user(Role::Auditor).await;
    let orders = [super::place(&node, &setup).await, super::place(&node, &setup).await];
    node.client(&setup.client, "POST", &format!("/orders/{}/cancel", orders[1]), json!({})).await.data(200);
    let (portal, console) = (format!("/portal/wallets/{}", setup.wallet_id), format!("/console/wallets/{}", setup.wallet_id));
    // A funding may have the reference of an order.
    let taken = json!({"amount": "1.00", "reference": "ORD-0000000001"});
    node.operator("POST", &format!("/wallets/{}/fund", setup.wallet_id), taken).await.data(201);
    let listed = node.client(&setup.client, "GET", &format!("/transactions?wallet_id={}", setup.wallet_id), Value::Null).await;
    let listed = listed.data(200)["transactions"].as_array().unwrap().clone();
    let kinds: Vec<&str> = listed.iter().map(|one| one["category"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["FUNDING", "ORDER_REFUND", "ORDER", "ORDER", "FUNDING"]);
    let ids: Vec<i64> = listed.iter().map(|one| one["id"].as_i64().unwrap()).collect();
    let (taken, refund, second, first, funding) = (ids[0], ids[1], ids[2], ids[3], ids[4]);

    let names = ["type", "category", "order_id", "reference", "from", "to", "zone"];
    offers(&node, &viewer.cookie, &portal, &names).await;
    offers(&node, &auditor.cookie, &console, &names).await;
    assert_eq!(listed[3]["reference"], "ORD-0000000001");
    for (query, shown) in [
        ("type=DEBIT".to_owned(), vec![second, first]),
        ("type=CREDIT".to_owned(), vec![taken, refund, funding]),
        ("category=ORDER_REFUND".to_owned(), vec![refund]),
        (format!("order_id={}", orders[1]), vec![refund, second]),
        (format!("order_id={}&type=DEBIT", orders[1]), vec![second]),
        ("reference=ORD-0000000001".to_owned(), vec![taken, first]),
        (format!("reference=opening+of+{}", setup.wallet_id), vec![funding]),
        (format!("from={}", day(5)), vec![taken, refund, second, first, funding]),
        (format!("to={}", day(5)), vec![]),
    ] {
        narrows(&node, &viewer.cookie, &portal, &query, "/portal/transactions", &ids, &shown).await;
        narrows(&node, &auditor.cookie, &console, &query, "/console/transactions", &ids, &shown).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_filter_of_the_portals_catalogue_is_offered_and_narrows_the_list() {
    let node = Node::start().await;
    let account = node.account("Acme").await.account_id;
    let viewer = node.user(account, "viewer").await;
    for currency in ["EUR", "USD"] {
        node.operator("POST", &format!("/accounts/{account}/wallets"), json!({"currency": currency})).await.data(201);
    }
    let (ids, category) = catalogue(&node).await;

    let path = "/portal/products";
    let page = offers(&node, &viewer.cookie, path, &["search", "category_id", "country", "currency"]).await;
    assert_eq!(choices(form(&page), "category_id"), [String::new(), category.to_string()]);
    let currencies: BTreeSet<String> = choices(form(&page), "currency").into_iter().collect();
    assert_eq!(currencies, BTreeSet::from(["", "EUR", "USD"].map(str::to_owned)), "those of the wallets");
    for (query, shown) in [
        // Inactive products cannot be ordered.
        ("search=".to_owned(), vec![ids[0], ids[1], ids[2]]),
        ("search=third".to_owned(), vec![ids[2]]),
        ("search=zenith".to_owned(), vec![ids[1]]),
        ("country=US".to_owned(), vec![ids[1]]),
        ("currency=EUR".to_owned(), vec![ids[0], ids[2]]),
        ("currency=USD".to_owned(), vec![ids[1]]),
        (format!("category_id={category}"), vec![ids[2]]),
        (format!("category_id={category}&currency=EUR"), vec![ids[2]]),
        (format!("category_id={category}&currency=USD"), vec![]),
    ] {
        narrows(&node, &viewer.cookie, path, &query, path, &ids, &shown).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_filter_of_the_purchases_is_offered_and_narrows_the_list() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let auditor = node.console_user(Role::Auditor).await;
    let (mut products, mut orders, mut ids) = (vec![], vec![], vec![]);
    for name in ["First Card", "Second Card"] {
        let product = node.operator("POST", "/products", product(name)).await.data(201)["id"].as_i64().unwrap();
        let order = json!({"product_id": product, "denomination": 10, "quantity": 1});
        let order = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap();
        node.fulfil(order).await;
        ids.push(ledger::buy(&node.ledger, OrderId(order), ProductId(product), "A-10").await.0);
        products.push(product);
        orders.push(order);
    }
    node.operator("POST", &format!("/purchases/{}/close", ids[1]), json!({})).await.data(200);
    let path = "/console/purchases";
    offers(&node, &auditor.cookie, path, &["status", "supplier", "product_id", "order_id"]).await;
    for (query, shown) in [
        ("supplier=acme".to_owned(), vec![ids[0], ids[1]]),
        ("supplier=other".to_owned(), vec![]),
        ("status=REQUESTED".to_owned(), vec![ids[0]]),
        ("status=REFUSED".to_owned(), vec![ids[1]]),
        (format!("product_id={}", products[1]), vec![ids[1]]),
        (format!("order_id={}", orders[0]), vec![ids[0]]),
    ] {
        narrows(&node, &auditor.cookie, path, &query, path, &ids, &shown).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_outcome_of_an_attempt_is_offered() {
    let node = Node::start().await;
    let auditor = node.console_user(Role::Auditor).await;
    let setup = node.setup().await;
    let viewer = node.user(setup.client.account_id, "viewer").await;
    let hook = json!({"name": "a", "url": "https://shop.example/hooks", "events": ["order.created"]});
    let webhook = node.client(&setup.client, "POST", "/webhooks", hook).await.json()["id"].clone();
    let expected: Vec<&str> = [""].into_iter().chain(AttemptOutcome::ALL.map(AttemptOutcome::as_str)).collect();
    for (cookie, path) in
        [(&auditor.cookie, "/console/attempts"), (&viewer.cookie, &*format!("/portal/webhooks/{webhook}/attempts"))]
    {
        let page = read(&node, cookie, path).await;
        assert_eq!(choices(form(&page), "outcome"), expected, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_day_of_a_webhooks_plot_leads_to_the_attempts_that_ended_on_it() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let (viewer, auditor) = (node.user(setup.client.account_id, "viewer").await, node.console_user(Role::Auditor).await);
    let (receiver, _arrived) =
        receiver(|received| ReceiverResponse::Status(if received.path == "/bad" { 500 } else { 200 })).await;
    let mut webhooks = vec![];
    for path in ["good", "bad"] {
        let hook = json!({"name": path, "url": format!("{}/{path}", receiver.url()), "events": ["order.created"]});
        webhooks.push(node.client(&setup.client, "POST", "/webhooks", hook).await.json()["id"].clone());
    }
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    node.client(&setup.client, "POST", "/orders", order).await.data(201);
    node.project().await;
    worker(&node.options, &receiver, DEADLINE).once().await.unwrap();
    for (webhook, outcome) in webhooks.iter().zip(["badge good", "badge bad"]) {
        let portal = (format!("/portal/webhooks/{webhook}"), format!("/portal/webhooks/{webhook}/attempts?from="));
        let console = (format!("/console/webhooks/{webhook}"), format!("/console/attempts?webhook_url_id={webhook}&from="));
        for ((page, list), cookie, deliveries) in [
            (portal, &viewer.cookie, "href=\"/portal/webhooks/deliveries/"),
            (console, &auditor.cookie, "href=\"/console/deliveries/"),
        ] {
            let page = read(&node, cookie, &page).await;
            let links = attributes(&page, "href").into_iter().filter(|href| href.starts_with(&list));
            // The figures of a day lead to the attempts of the day with their outcome.
            let (figures, days): (BTreeSet<String>, BTreeSet<String>) = links.partition(|href| href.contains("&outcome="));
            assert_eq!((figures.len(), days.len()), (1, 30), "{figures:?} {days:?}");
            for figure in &figures {
                let page = read(&node, cookie, figure).await;
                assert_eq!((page.matches(deliveries).count(), page.matches(outcome).count()), (1, 1), "{figure}: {page}");
            }
            let mut listed = 0;
            // The attempt ended today, or yesterday if midnight has passed since.
            for day in days.iter().rev().take(3) {
                let page = read(&node, cookie, day).await;
                let attempts = page.matches(deliveries).count();
                assert_eq!(page.matches(outcome).count(), attempts, "{day}: {page}");
                listed += attempts;
            }
            assert_eq!(listed, 1, "{days:?}");
        }
    }
    // The list of all webhooks offers the number of one, and keeps it.
    offers(&node, &auditor.cookie, "/console/attempts", &["webhook_url_id", "outcome", "from", "to", "zone"]).await;
    let of_one = format!("/console/attempts?webhook_url_id={}", webhooks[0]);
    assert!(form(&read(&node, &auditor.cookie, &of_one).await).contains(&format!("value=\"{}\"", webhooks[0])));
}
