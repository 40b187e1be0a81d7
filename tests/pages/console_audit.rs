//! The filters of the audit in the console, each of them used once, and the way to it from a long story.

use chrono::{TimeDelta, Utc};
use rewards_ledger::access::Role;

use super::console::enter;
use super::console_support::populated;
use super::filters::read;
use super::{in_browser, place};
use crate::support::browser::Browser;
use crate::support::node::Node;
use crate::support::tampering::{revealed, tamper};
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

#[tokio::test]
async fn a_story_that_leaves_readings_out_leads_to_all_of_them() {
    // With the three events of the delivery, 30 more than a story lists: 1,000 events and the last 100 readings.
    const READINGS: i64 = 1_000 - 3 + 30 + 100;
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = place(&node, &setup).await;
    node.fulfil(order).await;
    tamper(&mut node.admin().await, &revealed(order, READINGS)).await;
    let (viewer, auditor) = (node.user(setup.client.account_id, "viewer").await, node.console_user(Role::Auditor).await);
    let note =
        "The time line has 1\u{202f}100 of 1\u{202f}130 events. 30 further readings of the codes are recorded but not shown";
    let portal = read(&node, &viewer.cookie, &format!("/portal/orders/{order}")).await;
    assert!(portal.contains(note) && portal.contains("The operators of the service can list them all."), "{portal}");
    let console = read(&node, &auditor.cookie, &format!("/console/orders/{order}")).await;
    assert!(console.contains(note), "{console}");
    let link = format!("/console/audit?subject=order%2F{order}&amp;type=VouchersRevealed");
    assert!(console.contains(&format!("<a href=\"{link}\">All readings in the audit</a>")), "{console}");
    let link = link.replace("&amp;", "&");
    assert!(read(&node, &auditor.cookie, &link).await.contains(">VouchersRevealed<"));
    let csv = read(&node, &auditor.cookie, &link.replace("/console/audit?", "/console/audit.csv?")).await;
    assert_eq!(csv.lines().count(), 1 + usize::try_from(READINGS).unwrap());
}
