//! Help of scripts and style for people: local times, the keyboard, copying, filters, and print.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, TimeDelta, Timelike, Utc};
use rewards_ledger::access::Role;
use serde_json::{Value, json};

use super::furnished::PNG;
use super::in_browser;
use super::keyboard::walk;
use super::portal_orders::enter;
use crate::support::browser::Browser;
use crate::support::node::{Node, User};
use crate::support::wait::until;

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
async fn times_and_days_are_those_of_the_viewer_with_utc_on_hover() {
    let (node, owner, order) = with_orders().await;
    // Where it is another day now than in UTC.
    let placed: DateTime<Utc> = order["created_at"].as_str().unwrap().parse().unwrap();
    let (zone, ahead) = if placed.hour() < 11 { ("Pacific/Pago_Pago", -11) } else { ("Pacific/Kiritimati", 14) };
    let day = (placed + TimeDelta::hours(ahead)).date_naive();
    in_browser((1440, 1_600), true, |browser| async move {
        browser.move_to(zone).await;
        enter(&browser, &node, &owner, &format!("/portal/orders/{}", order["id"])).await;
        browser.find("//main//time").await;
        let script = "const time = document.querySelector('main time'), at = new Date(time.dateTime);
            const format = (timeZone) => new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium', timeZone }).format(at);
            return [time.textContent, format('Pacific/Zone'), format('UTC'), time.title, time.dateTime]";
        let found = browser.run(&script.replace("Pacific/Zone", zone)).await;
        let [shown, own, utc, title, exact] = [0, 1, 2, 3, 4].map(|index| found[index].as_str().unwrap());
        assert_eq!(shown, own);
        assert_ne!(shown, utc);
        assert_eq!(title, format!("{} UTC", exact[..19].replace('T', " ")), "{exact}");
        assert_eq!(exact, order["created_at"]);

        browser.open(&format!("{}/portal/orders", node.url())).await;
        browser.find(&format!("//select[@id='zone']/option[@selected][text()='{zone}']")).await;
        // A field for a date takes the keys in the order of the browser's language.
        let choose = "const [from, to] = ['from', 'to'].map((name) => document.querySelector(`main input[name=${name}]`));
            from.value = to.value = 'DAY';
            from.dispatchEvent(new Event('input', { bubbles: true }));";
        browser.run(&choose.replace("DAY", &day.pred_opt().unwrap().to_string())).await;
        browser.sees("No order matches these filters.").await;
        browser.run(&choose.replace("DAY", &day.to_string())).await;
        browser.find("//tbody/tr[2]").await;
        let query = format!("?from={day}&to={day}&zone={}", zone.replace('/', "%2F"));
        assert_eq!(browser.run("return location.search").await, json!(query));

        browser.open(&format!("{}/portal/api-keys", node.url())).await;
        browser.find(&format!("//select[@id='zone']/option[@selected][text()='{zone}']")).await;
        browser.press("New API key").await;
        browser.fill("Name", "Till").await;
        browser.fill("Expires", "2100-01-31 12:00").await;
        browser.press("Create the API key").await;
        browser.sees("X-API-Secret").await;
        let keys = node.bearer(&owner.access_token, "GET", "/client/api/api-keys", Value::Null).await.data(200);
        let noon: DateTime<Utc> = "2100-01-31T12:00:00Z".parse().unwrap();
        let end = (noon - TimeDelta::hours(ahead)).format("%Y-%m-%dT%H:%M:%S.000Z").to_string();
        assert!(keys["api_keys"].as_array().unwrap().iter().any(|key| key["expires_at"] == end), "{keys}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keyboard_reaches_every_control_and_shows_where_it_is() {
    let (node, owner, order) = with_orders().await;
    let admin = node.console_user(Role::Admin).await;
    in_browser((1440, 2_400), true, |browser| async move {
        enter(&browser, &node, &owner, &format!("/portal/orders/{}", order["id"])).await;
        browser.sees("Cancel this order").await;
        assert!(walk(&browser, "an order").await > 10);
        browser.open(&format!("{}/portal/orders", node.url())).await;
        assert!(walk(&browser, "the orders").await > 10);
        browser.open(&format!("{}/console", node.url())).await;
        super::console::sign_in(&browser, &admin.email, "").await;
        browser.find("//h1[text()='Overview']").await;
        browser.open(&format!("{}/console/orders/{}", node.url(), order["id"])).await;
        browser.find("//h1[starts-with(text(), 'Order ')]").await;
        assert!(walk(&browser, "an order in the console").await > 10);
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
        let set = "const style = (one) => getComputedStyle(document.querySelector(one));
            const [number, money] = [style('td.number'), style('td .money')];
            return [number.textAlign, number.fontVariantNumeric, money.fontVariantNumeric, money.whiteSpace]";
        assert_eq!(
            browser.run(set).await,
            json!(["right", "tabular-nums", "tabular-nums", "nowrap"]),
            "figures stand in columns"
        );
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
async fn the_catalogue_and_the_deliveries_are_filtered_without_a_reload() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let owner = node.user(setup.client.account_id, "owner").await;
    let hook = json!({"name": "Shop", "url": "https://shop.example/a", "events": ["order.created", "order.cancelled"]});
    node.client(&setup.client, "POST", "/webhooks", hook).await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].clone();
    node.client(&setup.client, "POST", &format!("/orders/{order}/cancel"), json!({})).await.data(200);
    node.project().await;
    in_browser((1440, 1_600), true, |browser| async move {
        enter(&browser, &node, &owner, "/portal/products").await;
        browser.find("//li//a[text()='Acme Card']").await;
        browser.run("window.opened = 'once'").await;
        browser.fill("Name or brand", "none of these").await;
        browser.sees("No product matches these filters.").await;
        browser.fill("Name or brand", "acme").await;
        browser.find("//li//a[text()='Acme Card']").await;
        browser.fill("Country", "FR").await;
        browser.sees("No product matches these filters.").await;
        let at = "return [window.opened, location.search]";
        assert_eq!(browser.run(at).await, json!(["once", "?search=acme&country=FR"]));

        browser.open(&format!("{}/portal/webhooks/deliveries", node.url())).await;
        browser.find("//tbody/tr[2]").await;
        browser.run("window.opened = 'once'").await;
        browser.type_into("//select[@id='event_type']", "order.cancelled").await;
        browser.find("//table[count(.//tbody/tr)=1]//td[text()='order.cancelled']").await;
        browser.type_into("//select[@id='status']", "Delivered").await;
        browser.sees("No delivery matches these filters.").await;
        assert_eq!(browser.run(at).await, json!(["once", "?status=delivered&event_type=order.cancelled"]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_filter_shows_its_problem_without_a_reload_and_keeps_the_focus() {
    let node = Node::start().await;
    in_browser((1440, 2_000), true, |browser| async move {
        super::console::enter(&node, &browser, Role::Admin).await;
        browser.open(&format!("{}/console/audit", node.url())).await;
        browser.find("//tbody/tr").await;
        browser.run("window.opened = 'once'").await;
        let at = "return [window.opened, location.search, document.activeElement.id, document.activeElement.value]";
        browser.type_into("//input[@id='actor']", "op").await;
        browser.find("//input[@id='actor'][@value='op'][@aria-invalid='true']").await;
        browser.sees("Actor must be a kind and an id").await;
        browser.logs_refusal(400).await;
        assert_eq!(browser.run(at).await, json!(["once", "?actor=op", "actor", "op"]));
        // The keys go to the field that has the focus.
        browser.press_keys("erator").await;
        browser.find("//main[.//input[@id='actor'][@value='operator'][not(@aria-invalid)]]//tbody/tr").await;
        assert_eq!(browser.run(at).await, json!(["once", "?actor=operator", "actor", "operator"]));
        browser.press_keys("/7777").await;
        browser.sees("The log has no such action.").await;
        browser.press_keys("x").await;
        browser.find("//input[@id='actor'][@value='operator/7777x'][@aria-invalid='true']").await;
        assert_eq!(browser.run(at).await, json!(["once", "?actor=operator%2F7777x", "actor", "operator/7777x"]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_latest_answer_is_shown_and_a_request_that_fails_changes_nothing() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let operator = node.user(setup.client.account_id, "operator").await;
    in_browser((1440, 1_600), true, |browser| async move {
        enter(&browser, &node, &operator, &format!("/portal/products/{}", setup.product_id)).await;
        browser.find("//h1[text()='Acme Card']").await;
        // The whole answer for two units arrives, but the page gets it only when the test releases it.
        let hold = "window.opened = 'once';
            const send = window.fetch;
            window.fetch = async (url, options) => {
                const answer = await send(url, options);
                if (!url.includes('quantity=2')) return answer;
                const text = await answer.text();
                answer.text = async () => text;
                await new Promise((release) => { window.release = release; });
                return answer;
            }";
        browser.run(hold).await;
        browser.fill("Units", "2").await;
        until("the answer for two units is held", async || browser.run("return 'release' in window").await == true).await;
        browser.fill("Units", "3").await;
        browser.find("//p[contains(@class, 'price')][contains(., '30.00')]").await;
        let shown = "const [price, quantity] = ['main .price', 'main input[type=hidden][name=quantity]'].map(
                (one) => document.querySelector(one));
            return [window.opened, price.textContent, quantity.value, location.search]";
        let expected = json!(["once", "30.00 EUR", "3", "?denomination=10.00&quantity=3"]);
        assert_eq!(browser.run(shown).await, expected);
        // Nothing but promises lies between the release and the page, so the next script sees what became of the answer.
        browser.run("window.release()").await;
        assert_eq!(browser.run(shown).await, expected, "an old answer replaces a newer one");

        browser.run("window.fetch = async () => { window.isTried = true; throw new TypeError('no network'); }").await;
        browser.fill("Units", "4").await;
        until("a request fails", async || browser.run("return window.isTried === true").await == true).await;
        assert_eq!(browser.run(shown).await, expected);
        assert_eq!(browser.complaints().await, Vec::<Value>::new());
    })
    .await;
}

/// Returns the width of the product's picture on the page that is open, once the browser has loaded it; 0 if it cannot.
async fn width_of_picture(browser: &Browser) -> u64 {
    browser.find("//main//img[@class='product']").await;
    let script = "const done = arguments[0], picture = document.querySelector('main img.product');
        const tell = () => done(picture.naturalWidth);
        if (picture.complete) tell(); else for (const end of ['load', 'error']) picture.addEventListener(end, tell)";
    browser.run_until_done(script).await.as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_picture_of_a_product_is_shown() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let viewer = node.user(setup.client.account_id, "viewer").await;
    let path = format!("/products/{}/image", setup.product_id);
    let image = node.by_operator("PUT", &path).header("Content-Type", "image/png").body(STANDARD.decode(PNG).unwrap());
    node.send(image).await.data(200);
    in_browser((1440, 1_600), true, |browser| async move {
        enter(&browser, &node, &viewer, "/portal/products").await;
        browser.find("//h1[text()='Catalogue']").await;
        assert!(width_of_picture(&browser).await > 0, "the catalogue shows no picture");
        browser.press("Acme Card").await;
        browser.find("//h1[text()='Acme Card']").await;
        assert!(width_of_picture(&browser).await > 0, "the page of the product shows no picture");
    })
    .await;
}

/// Returns the relative luminance (WCAG 2.2) of what stands behind the heading and the navigation of a page, and of their text:
/// `[[ground, text], [ground, text]]`.
const LUMINANCES: &str = "const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const ground = (one) => {
        const colour = getComputedStyle(one).backgroundColor;
        if (numbers(colour)[3] !== 0) return colour;
        // A root without a background counts as white.
        return one.parentElement ? ground(one.parentElement) : 'rgb(255, 255, 255)';
    };
    const luminance = (colour) => {
        const linear = (value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
        const [red, green, blue] = numbers(colour).map((value) => linear(value / 255));
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    return ['main h1', '.side a'].map((name) => {
        const one = document.querySelector(name);
        return [luminance(ground(one)), luminance(getComputedStyle(one).color)];
    })";

/// Opens a page, and shows it in light and in dark. Checks that its ground is what the viewer prefers, and that text stands out.
async fn is_light_or_dark(browser: &Browser, url: &str) {
    browser.open(url).await;
    for scheme in ["light", "dark"] {
        browser.prefer("prefers-color-scheme", scheme).await;
        let shown: Vec<[f64; 2]> = serde_json::from_value(browser.run(LUMINANCES).await).unwrap();
        for [ground, text] in shown {
            let is_preferred = if scheme == "light" { ground > 0.8 } else { ground < 0.1 };
            assert!(is_preferred, "{url} in {scheme} has a ground of luminance {ground}");
            let contrast = (ground.max(text) + 0.05) / (ground.min(text) + 0.05);
            assert!(contrast >= 4.5, "{url} in {scheme} has a text of contrast {contrast}");
        }
    }
    browser.prefer("prefers-color-scheme", "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_light_or_dark_as_the_viewer_prefers() {
    let (node, owner, _) = with_orders().await;
    in_browser((1440, 1_600), true, |browser| async move {
        enter(&browser, &node, &owner, "/portal/orders").await;
        browser.find("//h1[text()='Orders']").await;
        is_light_or_dark(&browser, &format!("{}/portal/orders", node.url())).await;
        super::console::enter(&node, &browser, Role::Auditor).await;
        is_light_or_dark(&browser, &format!("{}/console/orders", node.url())).await;
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
