//! Pages that show the state of things: their plots, and the texts that tell what is wrong.

use std::time::Duration;

use rewards_ledger::access::Role;
use serde_json::{Value, json};
use webhook_client::receiver::ReceiverResponse;

use super::console::enter;
use super::furnished::Furnished;
use super::{check, in_browser};
use crate::support::node::Node;
use crate::support::shop::{receiver, worker};

/// A page, the captions of its plots, and texts on it. The ids of the furnished node's things stand in braces.
type Shown = (&'static str, &'static [&'static str], &'static [&'static str]);

/// Captions of the plots of a webhook.
const OF_WEBHOOK: [&str; 2] = ["Attempts by day", "Response time by day, in milliseconds"];

const PORTAL: [Shown; 3] = [
    (
        "/portal",
        &["Orders by day (UTC)", "Spend by day, in EUR", "Attempts by webhook", "Response time by webhook, in milliseconds"],
        &[
            "Balance of wallet",
            "waits for stock",
            "delivered in part",
            "of the last 24 hours failed",
            "Health of webhooks",
            "ended in the last 7 days (UTC)",
            "Latest orders",
        ],
    ),
    ("/portal/webhooks/{webhooks}", &OF_WEBHOOK, &["ended in the last 30 days (UTC)", "Latest deliveries"]),
    ("/portal/api-keys", &[], &["Begins with", "Signatures", "Restrictions", "Last used"]),
];
const CONSOLE: [Shown; 5] = [
    (
        "/console",
        &[],
        &[
            "Approvals that wait",
            "Payouts to settle",
            "Orders that wait for stock",
            "Orders delivered in part",
            "/console/approvals",
            "/console/payouts?status=PENDING",
            "/console/orders?status=DELAYED",
            "/console/orders?status=PARTIALLY_DELIVERED",
        ],
    ),
    (
        "/console/operations",
        &[
            "Requests and events by minute",
            "Delivery attempts of all nodes by day",
            "Response time of all nodes by day, in milliseconds",
        ],
        &[
            "LedgerStockLow",
            "Hanging and failing endpoints",
            "Status 500",
            "Deliveries that failed for good",
            "Shards and their deliveries",
            "Lag of the projections",
            "Running replays",
            "Loops of this node",
            "Connections by task",
            "Signing nodes",
            "Blocked addresses",
            "203.0.113.7",
            "Low stock",
        ],
    ),
    ("/console/webhooks/{webhooks}", &OF_WEBHOOK, &["ended in the last 30 days (UTC)", "All attempts of this webhook"]),
    ("/console/products/{products}/stock", &["Vouchers by face value"], &["Allocated to orders", "Stock by face value"]),
    ("/console/reconciliation", &["Money by day in EUR"], &["Totals by currency", "Totals by day"]),
];

/// Returns the captions of those plots of a page that are drawn and have a table of their figures.
fn plots(page: &str) -> Vec<&str> {
    let figures = page.split("<figure").skip(1).map(|figure| figure.split("</figure>").next().unwrap());
    let whole = figures.filter(|figure| figure.contains("<svg") && figure.contains("<tbody>"));
    whole.filter_map(|figure| figure.split("<figcaption>").nth(1)?.split("</figcaption>").next()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_of_states_show_their_plots_and_what_is_wrong() {
    let furnished = Furnished::start().await;
    for (pages, cookie) in [(&PORTAL[..], &furnished.owner().cookie), (&CONSOLE[..], &furnished.admin().cookie)] {
        for (path, captions, texts) in pages {
            let fill = |path: String, (kind, id): (&&str, &i64)| path.replace(&format!("{{{kind}}}"), &id.to_string());
            let path = furnished.things.iter().fold((*path).to_owned(), fill);
            let request = reqwest::Client::new().get(format!("{}{path}", furnished.node.url())).header("Cookie", cookie);
            let page = request.send().await.unwrap().text().await.unwrap();
            let shown = plots(&page);
            assert_eq!(shown, *captions, "{path} has other plots");
            let missing: Vec<_> = texts.iter().filter(|text| !page.contains(**text)).collect();
            assert!(missing.is_empty(), "{path} does not show {missing:?}: {page}");
        }
    }
}

/// Returns the text between two others.
fn between<'a>(text: &'a str, opening: &str, closing: &str) -> &'a str {
    text.split_once(opening).and_then(|(_, rest)| rest.split_once(closing)).map(|(found, _)| found).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_attempts_of_a_day_lead_to_these_attempts() {
    let furnished = Furnished::start().await;
    let page = async |path: &str| {
        let url = format!("{}{}", furnished.node.url(), path.replace("&amp;", "&"));
        let request = reqwest::Client::new().get(url).header("Cookie", &furnished.admin().cookie);
        request.send().await.unwrap().text().await.unwrap()
    };
    let operations = page("/console/operations").await;
    let row =
        between(between(&operations, "Delivery attempts of all nodes by day</figcaption>", "</figure>"), "<tbody>", "</tr>");
    let figures: Vec<usize> =
        row.split("<td class=\"number\">").skip(1).map(|cell| cell.split('<').next().unwrap().parse().unwrap()).collect();
    assert!(figures.iter().sum::<usize>() > 0, "{row}");
    let target = between(row, "<a href=\"", "\"");
    for (figure, outcome) in figures.iter().zip(["delivered", "failed"]) {
        let attempts = page(&format!("{target}&outcome={outcome}")).await;
        assert_eq!(attempts.matches("href=\"/console/deliveries/").count(), *figure, "{outcome}: {attempts}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_hangs_is_named_as_such() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Hang).await;
    let hook = json!({"name": "Shop", "url": receiver.url(), "events": ["order.created"]});
    let webhook = node.client(&setup.client, "POST", "/webhooks", hook).await.json()["id"].clone();
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    node.client(&setup.client, "POST", "/orders", order).await.data(201);
    node.project().await;
    worker(&node.options, &receiver, Duration::from_millis(500)).once().await.unwrap();
    let endpoint = node.operator("GET", "/operations", Value::Null).await.data(200)["endpoints"][0].clone();
    assert_eq!((&endpoint["webhook_id"], &endpoint["response_status"]), (&webhook, &Value::Null));
    let error = endpoint["error"].as_str().unwrap();
    assert!(error.ends_with(" within 0.5 s"), "{error}");
    in_browser((1440, 2_400), true, |browser| async move {
        enter(&node, &browser, Role::Auditor).await;
        browser.press("Operations").await;
        browser.sees("Hanging and failing endpoints").await;
        let row = format!("//tr[contains(., 'Webhook {webhook}')]");
        browser.find(&format!("{row}//td[contains(., 'within 0.5 s')]/span[text()='Hangs']")).await;
        check(&browser, "operations with an endpoint that hangs").await;
        browser.click(&format!("{row}//a[starts-with(text(), 'Account')]")).await;
        browser.find("//h1[text()='Acme']").await;
    })
    .await;
}
