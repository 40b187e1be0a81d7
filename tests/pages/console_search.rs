//! The search box of the console: each thing that support staff get from clients is found and opened.

use rewards_ledger::access::Role;
use serde_json::{Value, json};

use super::console::enter;
use super::{check, in_browser};
use crate::support::browser::Browser;
use crate::support::node::Node;

/// Searches for a term, and opens the result of this kind. A single result is opened by the page itself.
async fn find(node: &Node, browser: &Browser, term: &str, (kind, id): (&str, i64), heading: &str) {
    browser.open(&format!("{}/console/search", node.url())).await;
    browser.fill("Search for", term).await;
    browser.click("//main//button[text()='Search']").await;
    let query: String = url::form_urlencoded::byte_serialize(term.as_bytes()).collect();
    let found = node.operator("GET", &format!("/search?q={query}"), Value::Null).await.data(200);
    let found = found["results"].as_array().unwrap();
    let result = found.iter().find(|one| one["kind"] == kind && one["id"] == id);
    let title = result.unwrap_or_else(|| panic!("{term}: {found:?}"))["title"].as_str().unwrap();
    if found.len() > 1 {
        let shown = if kind == "event" { format!("{title} at {id}") } else { title.to_owned() };
        browser.find(&format!("//main//td/a[text()='{shown}']")).await;
        check(browser, "the results of a search").await;
        browser.press(&shown).await;
    }
    browser.find(&format!("//h1[text()='{heading}']")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn support_finds_each_thing_by_what_a_client_names() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let viewer = node.user(client.account_id, "viewer").await;
    let hook = json!({"name": "Shop", "url": "https://shop.example/hooks", "events": ["order.created"]});
    let webhook = node.client(client, "POST", "/webhooks", hook).await.json()["id"].as_i64().unwrap();
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1, "client_reference": "cart 7/B"});
    let request = node.by(client, "POST", "/orders").header("X-Request-ID", "from.the-client_1").json(&order);
    let order = node.send(request).await.data(201);
    let (order, code) = (order["id"].as_i64().unwrap(), order["reference_code"].as_str().unwrap().to_owned());
    let fund = json!({"amount": "5.00", "reference": "SEPA 4711"});
    let funded = node.operator("POST", &format!("/wallets/{}/fund", setup.wallet_id), fund).await.data(201);
    let funded = funded["id"].as_i64().unwrap();
    let ada =
        json!({"name": "Ada", "type": "BANK", "country": "DE", "currency": "EUR", "account_number": "DE89370400440532013000"});
    let ada = node.client(client, "POST", "/beneficiaries", ada).await.data(201)["id"].clone();
    let payout = json!({"beneficiary_id": ada, "wallet_id": setup.wallet_id, "amount": "1.00", "client_reference": "salary-3"});
    let payout = node.client(client, "POST", "/payouts", payout).await.data(201)["id"].as_i64().unwrap();
    let placed = "SELECT position, event_id::text FROM events WHERE type = 'OrderPlaced'";
    let (position, event): (i64, String) = sqlx::query_as(placed).fetch_one(&mut node.admin().await).await.unwrap();
    let [of_order, of_event] = [format!("Order {code}"), format!("OrderPlaced at position {position}")];
    let terms = [
        (order.to_string(), ("order", order), of_order.clone()),
        (code, ("order", order), of_order.clone()),
        ("cart 7/B".to_owned(), ("order", order), of_order),
        (client.account_id.to_string(), ("account", client.account_id), "Acme".to_owned()),
        ("acm".to_owned(), ("account", client.account_id), "Acme".to_owned()),
        (client.key[..8].to_owned(), ("credential", client.credential_id), "API key main".to_owned()),
        (viewer.email.to_uppercase(), ("user", viewer.id), viewer.email.clone()),
        (webhook.to_string(), ("webhook", webhook), "Shop".to_owned()),
        ("salary-3".to_owned(), ("payout", payout), format!("Payout {payout}")),
        ("SEPA 4711".to_owned(), ("transaction", funded), format!("Transaction {funded}")),
        ("from.the-client_1".to_owned(), ("event", position), of_event.clone()),
        (event, ("event", position), of_event),
    ];
    in_browser((1440, 2_000), true, |browser| async move {
        enter(&node, &browser, Role::Auditor).await;
        for (term, result, heading) in terms {
            find(&node, &browser, &term, result, &heading).await;
        }
    })
    .await;
}
