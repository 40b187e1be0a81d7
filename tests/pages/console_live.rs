//! Live updates of the console: open pages show what others do, and leave alone whoever uses them.

use rewards_ledger::access::Role;
use serde_json::{Value, json};

use super::console::enter;
use super::{check, in_browser, place};
use crate::support::browser::Browser;
use crate::support::node::{Node, Setup};
use crate::support::program::DEADLINE;

async fn cancel(node: &Node, setup: &Setup, order: i64) {
    node.client(&setup.client, "POST", &format!("/orders/{order}/cancel"), json!({})).await.data(200);
}

/// Waits until the page's stream has told two changes. After the second, the page has looked for the first, if it looks.
async fn pass_two_ticks(browser: &Browser) {
    let script = "const done = arguments[0], source = new EventSource('/console/live'); let ticks = 0;
        source.addEventListener('changed', () => { ticks += 1; if (ticks === 2) { source.close(); done(ticks); } });";
    assert_eq!(browser.run_until_done(script).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_page_shows_what_others_do_without_a_reload() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = place(&node, &setup).await;
    in_browser((1440, 2_400), true, |browser| async move {
        enter(&node, &browser, Role::Admin).await;
        browser.open(&format!("{}/console/orders/{order}", node.url())).await;
        browser.press("Show a past time").await;
        browser.run("window.opened = 'once'").await;
        cancel(&node, &setup, order).await;
        browser.sees("Cancelled by").await;
        assert_eq!(browser.run("return window.opened").await, "once");
        let kept = "const focused = document.activeElement; return [focused.textContent, focused.parentElement.open]";
        assert_eq!(browser.run(kept).await, json!(["Show a past time", true]), "the focus and what is open stay");
        check(&browser, "an order after a live update").await;
        browser.press("Operations").await;
        assert_eq!(browser.run("return document.querySelector('[data-reload]').hidden").await, json!(true));
        browser.run("window.opened = 'once'").await;
        let wallet = json!({"amount": "5.00", "reference": "live-1"});
        node.operator("POST", &format!("/wallets/{}/fund", setup.wallet_id), wallet).await.data(201);
        let events = node.head().await;
        browser.find(&format!("//span[text()='Events']/following-sibling::strong[normalize-space()='{events}']")).await;
        assert_eq!(browser.run("return window.opened").await, "once");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_hidden_or_in_use_stays_as_it_is() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = place(&node, &setup).await;
    in_browser((1440, 2_400), true, |browser| async move {
        enter(&node, &browser, Role::Admin).await;
        browser.open(&format!("{}/console/orders/{order}", node.url())).await;
        let hide = async |is_hidden: bool| {
            let script = format!(
                "Object.defineProperty(document, 'hidden', {{ configurable: true, get: () => {is_hidden} }});
                 document.dispatchEvent(new Event('visibilitychange'));"
            );
            browser.run(&script).await;
        };
        hide(true).await;
        browser.press("Cancel this order").await;
        browser.fill("Reason", "by hand").await;
        browser.run("document.activeElement.blur()").await;
        cancel(&node, &setup, order).await;
        pass_two_ticks(&browser).await;
        let reads = "return performance.getEntriesByType('resource').filter((one) => one.initiatorType === 'fetch').length";
        assert_eq!(browser.run(reads).await, 0, "a hidden page asks for nothing");
        hide(false).await;
        pass_two_ticks(&browser).await;
        let field = "return document.querySelector('main input[name=reason]').value";
        assert_eq!(browser.run(field).await, "by hand", "a form that someone has filled in stays");
        browser.run("document.querySelector('main input[name=reason]').value = ''").await;
        browser.sees("Cancelled by").await;
    })
    .await;
}

#[tokio::test]
async fn the_stream_ends_with_the_session() {
    let node = Node::start().await;
    let operator = node.console_user(Role::Auditor).await;
    let open = async || {
        let request = reqwest::Client::new().get(format!("{}/console/live", node.url())).header("Cookie", &operator.cookie);
        request.send().await.unwrap()
    };
    let mut stream = open().await;
    assert_eq!((stream.status().as_u16(), stream.headers()["content-type"].to_str().unwrap()), (200, "text/event-stream"));
    let said = tokio::time::timeout(DEADLINE, stream.chunk()).await.unwrap().unwrap().unwrap();
    assert!(String::from_utf8_lossy(&said).contains("event: changed"), "{said:?}");
    let end = reqwest::Client::new().post(format!("{}/admin/auth/logout", node.url())).header("Origin", node.url());
    let ended = end.header("Cookie", &operator.cookie).json(&Value::Object(serde_json::Map::new())).send().await.unwrap();
    assert_eq!(ended.status(), 200);
    let rest = async { while stream.chunk().await.unwrap().is_some() {} };
    tokio::time::timeout(DEADLINE, rest).await.expect("the stream ends");
    assert!(open().await.url().path().ends_with("/console/login"));
}
