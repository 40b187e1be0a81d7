//! The filters of the audit in the console, each of them used once.

use chrono::{TimeDelta, Utc};
use rewards_ledger::access::Role;

use super::console::enter;
use super::console_support::populated;
use super::in_browser;
use crate::support::browser::Browser;
use crate::support::node::Node;
use crate::support::wait::until;

/// Opens the audit without filters.
async fn open(node: &Node, browser: &Browser) {
    browser.open(&format!("{}/console/audit", node.url())).await;
    browser.find("//main//tbody/tr").await;
}

/// Waits until the page has this filter, and nothing else in its address.
async fn is_filtered(browser: &Browser, name: &str, value: &str) {
    let query: String = url::form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish();
    let expected = format!("?{query}");
    until(&format!("the audit has the filter {query}"), async || browser.run("return location.search").await == *expected).await;
}

/// Gives a field a value, as a person does who picks it. A field for a time takes typed keys in the order of the browser's
/// language, and WebDriver's choice of an option fires no `input`.
async fn choose(browser: &Browser, name: &str, value: &str) {
    let script = format!(
        "const field = document.querySelector('main #{name}'); field.value = '{value}';
        field.dispatchEvent(new Event('input', {{ bubbles: true }}))"
    );
    browser.run(&script).await;
}

/// Returns the cells of a column.
async fn column(browser: &Browser, name: &str) -> Vec<String> {
    let cells = format!("return [...document.querySelectorAll('main tbody td[data-name={name}]')].map((cell) => cell.innerText)");
    serde_json::from_value(browser.run(&cells).await).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_auditor_narrows_the_audit_by_each_filter() {
    let node = Node::start().await;
    let (setup, waiting) = populated(&node).await;
    let [actor, subject] = [format!("credential/{}", setup.client.credential_id), format!("order/{}", waiting["id"])];
    let (account, named) = (setup.client.account_id.to_string(), format!("Account {}", setup.client.account_id));
    in_browser((1440, 4_000), true, |browser| async move {
        enter(&node, &browser, Role::Auditor).await;
        for (name, value, shown, expected) in [
            ("actor", &*actor, "Actor", "API key main"),
            ("subject", &*subject, "Subject", &*subject),
            ("type", "OrderPlaced", "Event", "OrderPlaced"),
            ("account_id", &*account, "Account", &*named),
        ] {
            open(&node, &browser).await;
            browser.type_into(&format!("//main//input[@id='{name}']"), value).await;
            is_filtered(&browser, name, value).await;
            let cells = column(&browser, shown).await;
            assert!(!cells.is_empty() && cells.iter().all(|cell| cell == expected), "{name}={value}: {cells:?}");
        }

        open(&node, &browser).await;
        choose(&browser, "reveals", "true").await;
        is_filtered(&browser, "reveals", "true").await;
        let events = column(&browser, "Event").await;
        let has = |name: &str| events.iter().any(|event| event == name);
        assert!(has("VouchersRevealed") && !has("OrderPlaced"), "{events:?}");

        let hour = TimeDelta::hours(1);
        for (name, at, has_rows) in [
            ("from", Utc::now() - hour, true),
            ("from", Utc::now() + hour, false),
            ("to", Utc::now() + hour, true),
            ("to", Utc::now() - hour, false),
        ] {
            open(&node, &browser).await;
            let minute = at.format("%Y-%m-%dT%H:%M").to_string();
            choose(&browser, name, &minute).await;
            is_filtered(&browser, name, &minute).await;
            assert_eq!(!column(&browser, "Event").await.is_empty(), has_rows, "{name}={minute}");
        }
        browser.sees("The log has no such action.").await;

        open(&node, &browser).await;
        browser.type_into("//main//input[@id='shard_id']", "1").await;
        is_filtered(&browser, "shard_id", "1").await;
        assert!(!column(&browser, "Event").await.is_empty());
    })
    .await;
}
