//! The pages by keyboard alone.

use serde_json::Value;

use super::in_browser;
use super::portal_orders::enter;
use crate::support::browser::Browser;
use crate::support::node::Node;

const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";

/// Presses the tabulator through the page that is open. Each control comes in its place, with a frame around it. Returns the
/// number of controls.
///
/// The page counts as hidden from now on, so that no live update changes it meanwhile.
pub async fn walk(browser: &Browser, page: &str) -> usize {
    // A date has four places for the focus, and a time of a day has seven.
    let number = "Object.defineProperty(document, 'hidden', { configurable: true, get: () => true });
        document.dispatchEvent(new Event('visibilitychange'));
        for (const details of document.querySelectorAll('main details')) details.open = true;
        const names = 'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex=\"0\"]';
        const shown = [...document.querySelectorAll(names)].filter((one) => one.checkVisibility() && !one.disabled);
        window.controls = new Map(shown.map((one, index) => [one, index]));
        window.walked = [];
        document.addEventListener('focusin', ({ target }) => {
            const style = getComputedStyle(target), width = parseFloat(style.outlineWidth);
            const isFramed = target.matches(':focus-visible') && style.outlineStyle === 'solid' && width >= 2;
            if (controls.has(target)) walked.push([controls.get(target), isFramed, target.outerHTML.slice(0, 200)]);
        });
        document.activeElement.blur();
        const further = { date: 3, 'datetime-local': 6 };
        return [shown.length, shown.reduce((sum, one) => sum + (further[one.type] ?? 0), 0)]";
    let found = browser.run(number).await;
    let [controls, further] = [0, 1].map(|index| usize::try_from(found[index].as_u64().unwrap()).unwrap());
    browser.press_keys(&TAB.repeat(controls + further)).await;
    let walked = browser.run("return walked").await;
    let mut walked = walked.as_array().unwrap().clone();
    walked.dedup_by(|next, last| next[0] == last[0]);
    for number in 0..controls {
        let focus = walked.get(number).unwrap_or(&Value::Null);
        assert!(focus[0] == number && focus[1] == true, "{page}, control {number}: the focus is on {focus}");
    }
    controls
}

/// Presses the tabulator until the focus is on an element of this id or text.
async fn tab_to(browser: &Browser, name: &str) {
    let is_there =
        format!("const one = document.activeElement; return one.id === '{name}' || one.textContent.trim() === '{name}'");
    loop {
        browser.tab().await;
        if browser.run(&is_there).await == true {
            return;
        }
        let is_lost = browser.run("return document.activeElement === document.body").await;
        assert_ne!(is_lost, true, "the focus does not come to {name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_placed_by_keys_alone() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let operator = node.user(setup.client.account_id, "operator").await;
    in_browser((1440, 1_600), true, |browser| async move {
        enter(&browser, &node, &operator, "/portal/products").await;
        browser.find("//h1[text()='Catalogue']").await;
        tab_to(&browser, "Acme Card").await;
        browser.press_keys(ENTER).await;
        browser.find("//h1[text()='Acme Card']").await;
        tab_to(&browser, "denomination").await;
        browser.press_keys("25").await;
        tab_to(&browser, "quantity").await;
        browser.press_keys("2").await;
        browser.find("//p[contains(@class, 'price')][contains(., '50.00')]").await;
        tab_to(&browser, "Place the order").await;
        browser.press_keys(ENTER).await;
        browser.sees("The order is placed.").await;
    })
    .await;
}
