//! Pages that show the state of things: their plots, and the texts that tell what is wrong.

use std::time::Duration;

use rewards_ledger::access::Role;
use rewards_ledger::delivery::worker::Worker;
use rewards_ledger::ledger::nodes;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use webhook_client::receiver::ReceiverResponse;

use super::console::enter;
use super::furnished::Furnished;
use super::{check, in_browser, place};
use crate::support::node::Node;
use crate::support::shop::{DEADLINE, receiver, worker};
use crate::support::wait::until_true;

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

/// Returns the rows in the table of a plot.
fn rows<'a>(page: &'a str, caption: &str) -> Vec<&'a str> {
    let plot = between(page, &format!("<figcaption>{caption}</figcaption>"), "</figure>");
    between(plot, "<tbody>", "</tbody>").split("<tr>").skip(1).collect()
}

/// Returns the figures in a row of the table of a plot. Some are links.
fn figures(row: &str) -> Vec<usize> {
    let cells = row.split("<td class=\"number\"").skip(1).map(|cell| cell.split("</td>").next().unwrap());
    let text = |cell: &str| {
        let mut texts = cell.split('>').skip(1).map(|text| text.split('<').next().unwrap());
        texts.find(|text| !text.is_empty()).unwrap().parse().unwrap()
    };
    cells.map(text).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_attempts_of_a_worker_are_plotted_by_minute() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let (receiver, _arrived) =
        receiver(|received| ReceiverResponse::Status(if received.path == "/bad" { 500 } else { 200 })).await;
    for path in ["good", "bad"] {
        let hook = json!({"name": path, "url": format!("{}/{path}", receiver.url()), "events": ["order.created"]});
        assert_eq!(node.client(&setup.client, "POST", "/webhooks", hook).await.status, 201);
        place(&node, &setup).await;
    }
    node.project().await;
    // The first order has one webhook, and the second one has two.
    let worker = Worker { metrics: node.metrics.clone(), ..worker(&node.options, &receiver, DEADLINE) };
    let round = worker.once().await.unwrap();
    assert_eq!((round.delivered, round.failed), (2, 1));
    // The first heartbeat of the node has all minutes up to now.
    let stop = CancellationToken::new();
    let me = nodes::Me::starting(vec!["worker".to_owned()]);
    let beats = tokio::spawn(nodes::run(me, node.ledger.clone(), node.metrics.clone(), stop.clone()));
    until_true("the node has beaten", node.ledger.pool(), "SELECT EXISTS (SELECT FROM nodes)").await;
    stop.cancel();
    beats.await.unwrap();

    let auditor = node.console_user(Role::Auditor).await;
    let request = reqwest::Client::new().get(format!("{}/console/operations", node.url())).header("Cookie", &auditor.cookie);
    let page = request.send().await.unwrap().text().await.unwrap();
    let (attempts, times) = ("Delivery attempts by minute", "Response time by minute, in milliseconds");
    assert!(plots(&page).starts_with(&["Requests and events by minute", attempts, times]), "{page}");
    let [delivered, failed] = [0, 1].map(|column| rows(&page, attempts).iter().map(|row| figures(row)[column]).sum::<usize>());
    assert_eq!((delivered, failed), (2, 1));
    // The API has the same times, of the minutes in which something was counted.
    let minutes = node.operator("GET", "/operations", Value::Null).await.data(200)["minutes"].take();
    let count = |minute: &Value, name: &str| minute[name].as_u64().unwrap_or_default() as usize;
    let expected =
        minutes.as_array().unwrap().iter().map(|minute| ["average_ms", "longest_ms"].map(|name| count(minute, name)).to_vec());
    let shown = rows(&page, times).into_iter().map(figures);
    assert_eq!(shown.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
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
    let row = rows(&operations, "Delivery attempts of all nodes by day")[0];
    let figures = figures(row);
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
