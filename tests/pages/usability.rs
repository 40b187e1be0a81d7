//! Help of scripts and style for people: local times, the keyboard, copying, filters, and print.

use serde_json::{Value, json};

use super::in_browser;
use super::portal_orders::enter;
use crate::support::browser::Browser;
use crate::support::node::{Node, User};

/// A node with two orders, one of which is cancelled, and their owner. Returns the order that is not cancelled, too.
async fn with_orders() -> (Node, User, Value) {
    let node = Node::start().await;
    let setup = node.setup().await;
    let owner = node.user(setup.client.account_id, "owner").await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let cancelled = node.client(&setup.client, "POST", "/orders", order.clone()).await.data(201)["id"].clone();
    node.client(&setup.client, "POST", &format!("/orders/{cancelled}/cancel"), json!({})).await.data(200);
    let order = node.client(&setup.client, "POST", "/orders", order).await.data(201);
    (node, owner, order)
}

#[tokio::test(flavor = "multi_thread")]
async fn times_are_those_of_the_viewer_with_utc_on_hover() {
    let (node, owner, order) = with_orders().await;
    in_browser((1440, 1_600), true, |browser| async move {
        browser.move_to("Asia/Tokyo").await;
        enter(&browser, &node, &owner, &format!("/portal/orders/{}", order["id"])).await;
        browser.find("//main//time").await;
        let script = "const time = document.querySelector('main time'), at = new Date(time.dateTime);
            const format = (timeZone) => new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium', timeZone }).format(at);
            return [time.textContent, format('Asia/Tokyo'), format('UTC'), time.title, time.dateTime]";
        let found = browser.run(script).await;
        let [shown, tokyo, utc, title, exact] = [0, 1, 2, 3, 4].map(|index| found[index].as_str().unwrap());
        assert_eq!(shown, tokyo);
        assert_ne!(shown, utc);
        assert_eq!(title, format!("{} UTC", exact[..19].replace('T', " ")), "{exact}");
        assert_eq!(exact, order["created_at"]);
    })
    .await;
}

/// Opens and numbers all controls of the page that was just opened, in their order. Returns how many there are.
async fn number_controls(browser: &Browser) -> u64 {
    let script = "for (const details of document.querySelectorAll('main details')) details.open = true;
        const controls = 'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex=\"0\"]';
        const shown = [...document.querySelectorAll(controls)].filter((one) => one.checkVisibility() && !one.disabled);
        shown.forEach((one, index) => { one.dataset.number = index; });
        return shown.length";
    browser.run(script).await.as_u64().unwrap()
}

/// Presses the tabulator through the page that is open. Each control comes in its place, with a frame around it.
async fn tab_through(browser: &Browser, page: &str) {
    let controls = number_controls(browser).await;
    assert!(controls > 10, "{page} has {controls} controls");
    let at = "const one = document.activeElement, style = getComputedStyle(one);
        return [one.dataset.number, one.matches(':focus-visible'), style.outlineStyle, parseFloat(style.outlineWidth), one.outerHTML.slice(0, 200)]";
    browser.tab().await;
    for number in 0..controls {
        let focus = browser.run(at).await;
        assert_eq!(focus[0], number.to_string(), "{page}: the focus is on {focus}");
        assert!(
            focus[1] == true && focus[2] == "solid" && focus[3].as_f64().unwrap() >= 2.0,
            "{page}: no visible focus: {focus}"
        );
        browser.tab().await;
        // A date has several places for the focus.
        let is_same =
            format!("return document.activeElement.dataset.number === '{number}' && document.activeElement.type === 'date'");
        while browser.run(&is_same).await == true {
            browser.tab().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keyboard_reaches_every_control_and_shows_where_it_is() {
    let (node, owner, order) = with_orders().await;
    let admin = node.console_user(rewards_ledger::access::Role::Admin).await;
    in_browser((1440, 2_400), true, |browser| async move {
        enter(&browser, &node, &owner, &format!("/portal/orders/{}", order["id"])).await;
        browser.sees("Cancel this order").await;
        tab_through(&browser, "an order").await;
        browser.open(&format!("{}/portal/orders", node.url())).await;
        tab_through(&browser, "the orders").await;
        browser.open(&format!("{}/console", node.url())).await;
        super::console::sign_in(&browser, &admin.email, "").await;
        browser.find("//h1[text()='Overview']").await;
        browser.open(&format!("{}/console/orders/{}", node.url(), order["id"])).await;
        tab_through(&browser, "an order in the console").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_is_copied_and_filters_apply_without_a_reload() {
    let (node, owner, order) = with_orders().await;
    in_browser((1440, 1_600), true, |browser| async move {
        browser.allow_clipboard().await;
        enter(&browser, &node, &owner, &format!("/portal/orders/{}", order["id"])).await;
        browser.click("(//button[text()='Copy'])[1]").await;
        browser.find("//button[text()='Copied']").await;
        let copied =
            browser.run_until_done("navigator.clipboard.readText().then(arguments[0], (error) => arguments[0](String(error)))");
        assert_eq!(copied.await, order["reference_code"]);

        browser.press("Orders").await;
        browser.find("//tbody/tr[2]").await;
        browser.run("window.opened = 'once'").await;
        browser.type_into("//select[@id='status']", "Cancelled").await;
        browser.find("//table[count(.//tbody/tr)=1]//span[text()='Cancelled']").await;
        let at = browser.run("return [window.opened, location.pathname + location.search, document.activeElement.id]").await;
        assert_eq!(at, json!(["once", "/portal/orders?status=CANCELLED", "status"]), "the address and the focus stay right");
        browser.fill("Reference", "none of these").await;
        browser.sees("No order matches these filters.").await;
        assert_eq!(browser.run("return window.opened").await, "once");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_prints_without_what_is_for_the_screen() {
    let (node, owner, _) = with_orders().await;
    let wallet: i64 = sqlx::query_scalar("SELECT id FROM wallets").fetch_one(node.ledger.pool()).await.unwrap();
    in_browser((1440, 1_600), true, |browser| async move {
        enter(&browser, &node, &owner, &format!("/portal/wallets/{wallet}/statement")).await;
        browser.find("//button[text()='Print']").await;
        let shown = "return ['.top', '.side', '.filters', '.actions', 'h1', '.facts', 'table'].filter(
            (one) => document.querySelector(one).checkVisibility())";
        assert_eq!(browser.run(shown).await.as_array().unwrap().len(), 7);
        browser.run("window.print = () => { window.printed = true }").await;
        browser.press("Print").await;
        assert_eq!(browser.run("return window.printed").await, true);
        browser.show_on("print").await;
        assert_eq!(browser.run(shown).await, json!(["h1", ".facts", "table"]));
        // A4 without its margins.
        browser.resize((718, 1_047)).await;
        super::fits(&browser, "a printed statement").await;
        let cut = "const table = document.querySelector('div.table'); return table.scrollWidth - table.clientWidth";
        assert_eq!(browser.run(cut).await, 0, "the table is cut off on paper");
        browser.show_on("").await;
    })
    .await;
}
