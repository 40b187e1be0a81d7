//! Filters of lists: each one is offered, and narrows the list.

use std::collections::BTreeSet;

use chrono::{Days, Utc};
use ledger_events::order::OrderStatus;
use ledger_projections::deliveries::AttemptOutcome;
use rewards_ledger::access::Role;
use serde_json::{Value, json};
use webhook_client::receiver::ReceiverResponse;

use super::crawl::attributes;
use crate::support::node::{Node, product};
use crate::support::shop::{DEADLINE, receiver, worker};

pub async fn read(node: &Node, cookie: &str, path: &str) -> String {
    let response = reqwest::Client::new().get(format!("{}{path}", node.url())).header("Cookie", cookie).send().await.unwrap();
    assert_eq!(response.status().as_u16(), 200, "{path}");
    response.text().await.unwrap()
}

/// Returns the form of filters of a page.
fn form(page: &str) -> &str {
    page.split("<form class=\"filters\"").nth(1).and_then(|rest| rest.split("</form>").next()).unwrap()
}

/// Returns the choices of the select with this name.
fn choices(form: &str, name: &str) -> Vec<String> {
    let select = form.split("<select").skip(1).find(|select| attributes(select.split('>').next().unwrap(), "name") == [name]);
    attributes(select.unwrap().split("</select>").next().unwrap(), "value")
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
    let earlier = "UPDATE orders SET created_at = created_at - interval '10 days' WHERE id = $1";
    sqlx::query(earlier).bind(ids[0]).execute(&mut node.admin().await).await.unwrap();

    let page = read(&node, &viewer.cookie, "/portal/orders").await;
    let form = form(&page);
    let offered: BTreeSet<String> = attributes(form, "name").into_iter().collect();
    let names = ["status", "product_id", "reference_code", "client_reference", "from", "to"];
    assert_eq!(offered, BTreeSet::from(names.map(str::to_owned)));
    let statuses: BTreeSet<String> = choices(form, "status").into_iter().collect();
    let expected = [""].into_iter().chain(OrderStatus::ALL.map(OrderStatus::as_str));
    assert_eq!(statuses, expected.map(str::to_owned).collect::<BTreeSet<_>>());

    let day = |before: u64| Utc::now().date_naive().checked_sub_days(Days::new(before)).unwrap().to_string();
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
        (format!("product_id={}&status=PENDING&from={}", setup.product_id, day(20)), vec![ids[0]]),
        (format!("product_id={other}&client_reference=third"), vec![]),
    ] {
        let page = read(&node, &viewer.cookie, &format!("/portal/orders?{query}")).await;
        let found: Vec<i64> = ids.iter().copied().filter(|id| page.contains(&format!("href=\"/portal/orders/{id}\""))).collect();
        assert_eq!(found, shown, "{query}: {page}");
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()).filter(|(_, value)| !value.is_empty()) {
            let form = self::form(&page);
            let is_kept = form.contains(&format!("value=\"{value}\" selected"))
                || form.split("<input").any(|input| {
                    let tag = input.split('>').next().unwrap();
                    attributes(tag, "name") == [&*name] && attributes(tag, "value") == [&*value]
                });
            assert!(is_kept, "{query}: the form forgets {name}: {form}");
        }
        // The file has the same orders.
        let csv = read(&node, &viewer.cookie, &format!("/portal/orders.csv?{query}")).await;
        let mut rows: Vec<i64> = csv.lines().skip(1).map(|row| row.split(',').next().unwrap().parse().unwrap()).collect();
        rows.sort_unstable();
        assert_eq!(rows, shown, "{query}: {csv}");
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
    let viewer = node.user(setup.client.account_id, "viewer").await;
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
        let list = format!("/portal/webhooks/{webhook}/attempts");
        let page = read(&node, &viewer.cookie, &format!("/portal/webhooks/{webhook}")).await;
        let days: BTreeSet<String> =
            attributes(&page, "href").into_iter().filter(|href| href.starts_with(&format!("{list}?"))).collect();
        assert_eq!(days.len(), 30, "{days:?}");
        let mut listed = 0;
        for day in &days {
            let page = read(&node, &viewer.cookie, &day.replace("&amp;", "&")).await;
            let attempts = page.matches("href=\"/portal/webhooks/deliveries/").count();
            assert_eq!(page.matches(outcome).count(), attempts, "{day}: {page}");
            listed += attempts;
        }
        assert_eq!(listed, 1, "{days:?}");
    }
}
