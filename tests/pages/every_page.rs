//! Every page in a browser, with hostile texts everywhere: no barrier, nothing too wide, and nothing that breaks out.

use std::collections::{BTreeMap, BTreeSet};

use poem::http::Method;
use rewards_ledger::pages;
use serde_json::{Value, json};

use super::console::sign_in;
use super::crawl::{attributes, crawl};
use super::furnished::{ATTACK, Furnished, OF_BOTH, OF_CONSOLE, OF_PORTAL, hostile};
use super::portal_orders::enter;
use super::{check, fits, in_browser};
use crate::support::browser::Browser;

/// Address of no page.
const NOTHING: &str = "/portal/nothing-here";
/// Pages of people who are not signed in.
const OPEN: [&str; 6] =
    ["/portal/login", "/portal/password-reset", "/portal/reset-password", "/portal/accept-invitation", "/console/login", NOTHING];
/// Routes that answer with something else than a page: files, pictures, streams, and redirects.
pub const NO_PAGES: [&str; 18] = [
    "/",
    "/assets/{version}/icon.svg",
    "/assets/{version}/script.js",
    "/assets/{version}/style.css",
    "/console/audit.csv",
    "/console/bank-statements/{id}/matches.csv",
    "/console/live",
    "/console/orders/{id}/receipt",
    "/console/products/{id}/image/{version}",
    "/console/reconciliation.csv",
    "/console/reconciliation.xlsx",
    "/console/wallets/{id}/statement.csv",
    "/login",
    "/portal/live",
    "/portal/orders.csv",
    "/portal/orders/bulk/place",
    "/portal/products/{id}/image/{version}",
    "/portal/wallets/{id}/statement.csv",
];
/// Pages to which a form leads instead of a link.
const OF_FORMS: [&str; 3] =
    ["/console/log/proof?order_id={orders}", "/console/search?q=", "/portal/webhooks/{webhooks}/explanation?order_id={orders}"];

/// Script that returns the number of elements that hostile texts have become, and whether a script of theirs has run.
const BROKEN_OUT: &str =
    "return [document.querySelectorAll('[data-injected], [onerror], img[src=x]').length, window.injected ?? null]";

/// Paths of all routes that are read.
fn routes() -> BTreeSet<String> {
    let routes = pages::routes().into_iter().filter(|(_, methods)| methods.contains(&Method::GET));
    routes.map(|(path, _)| path).collect()
}

/// Returns the route of an address, literal segments first.
fn route_of<'a>(routes: &'a BTreeSet<String>, address: &str) -> Option<&'a String> {
    let path: Vec<&str> = address.split(['?', '#']).next().unwrap().split('/').collect();
    let fits = |route: &&String| {
        let route: Vec<&str> = route.split('/').collect();
        route.len() == path.len() && route.iter().zip(&path).all(|(known, own)| known.starts_with('{') || known == own)
    };
    routes.iter().filter(fits).min_by_key(|route| route.matches('{').count())
}

/// Opens a page, and checks that no hostile text has become an element or an attribute.
async fn open(browser: &Browser, furnished: &Furnished, path: &str) {
    browser.open(&format!("{}{path}", furnished.node.url())).await;
    assert_eq!(browser.run(BROKEN_OUT).await, json!([0, null]), "{path}: a stored text broke out");
    fits(browser, path).await;
    assert_eq!(browser.complaints().await, Vec::<Value>::new(), "{path}");
}

/// Opens addresses in the browser: of each route the first one with all checks, and another one.
async fn open_all(browser: &Browser, furnished: &Furnished, addresses: impl Iterator<Item = &String>) {
    let (routes, mut times) = (routes(), BTreeMap::<String, u32>::new());
    for address in addresses {
        let Some(route) = route_of(&routes, address) else { panic!("{address} has no route") };
        let times = times.entry(route.clone()).or_default();
        *times += 1;
        if *times <= 2 {
            open(browser, furnished, address).await;
        }
        if *times == 1 {
            check(browser, address).await;
        }
    }
}

/// Reads the pages of one kind over HTTP, with those to which forms lead.
async fn all_pages(furnished: &Furnished, cookie: &str, start: &str) -> BTreeMap<String, String> {
    let mut pages = crawl(&furnished.node, cookie, start).await;
    for path in OF_FORMS.iter().filter(|path| path.starts_with(start)) {
        let fill = |path: String, (kind, id): (&&str, &i64)| path.replace(&format!("{{{kind}}}"), &id.to_string());
        let path = furnished.things.iter().fold((*path).to_owned(), fill);
        let page = read(furnished, cookie, &path).await;
        pages.insert(path, page);
    }
    pages
}

async fn read(furnished: &Furnished, cookie: &str, path: &str) -> String {
    let request = reqwest::Client::new().get(format!("{}{path}", furnished.node.url())).header("Cookie", cookie);
    let response = request.send().await.unwrap();
    assert!(!response.status().is_server_error(), "{path}: {}", response.status());
    response.text().await.unwrap()
}

/// Sends a hostile text in every field of every page's query, and as every parameter that a page names.
async fn reflect(furnished: &Furnished, cookie: &str, pages: &BTreeMap<String, String>) {
    let mut seen = BTreeSet::new();
    for (address, page) in pages {
        let path = address.split('?').next().unwrap();
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        attributes(page, "name").iter().for_each(|name| _ = query.append_pair(name, &hostile("query")));
        if seen.insert(path.to_owned()) {
            let page = read(furnished, cookie, &format!("{path}?{}", query.finish())).await;
            assert!(!page.contains("<img data-injected") && !page.contains(ATTACK), "{path} reflects its query");
        }
    }
}

/// Checks that each text stands on a page, escaped, and on none as it is. In a payload, JSON escapes it too.
fn shows_escaped(pages: &BTreeMap<String, String>, fields: impl Iterator<Item = &'static str>) {
    for (path, page) in pages {
        assert!(!page.contains("<img data-injected"), "{path} has a text that is not escaped");
    }
    let is_shown = |field: &&str| {
        let forms = [format!("{field}&quot;"), format!("{field}\\&quot;")];
        pages.values().any(|page| forms.iter().any(|form| page.contains(form)))
    };
    let hidden: Vec<&str> = fields.filter(|field| !is_shown(field)).collect();
    assert_eq!(hidden, Vec::<&str>::new(), "these texts are on no page");
}

/// Checks that every form of these pages has a target.
fn forms_lead_somewhere(pages: &BTreeMap<String, String>) {
    let known: BTreeSet<String> = pages::routes().into_iter().map(|(path, _)| path).collect();
    for (path, page) in pages {
        let lost: Vec<_> = attributes(page, "action").into_iter().filter(|action| route_of(&known, action).is_none()).collect();
        assert_eq!(lost, Vec::<String>::new(), "{path}");
    }
}

/// Reads all pages as each role. Returns those of an owner and of an admin, who see the most.
async fn all_pages_of_all_roles(furnished: &Furnished) -> [BTreeMap<String, String>; 2] {
    let users = furnished.users.iter().map(|user| ("/portal", &user.cookie));
    let operators = furnished.operators.iter().map(|operator| ("/console", &operator.cookie));
    let mut all = vec![];
    for (start, cookie) in users.chain(operators) {
        let pages = all_pages(furnished, cookie, start).await;
        forms_lead_somewhere(&pages);
        all.push(pages);
    }
    let console = all.pop().unwrap();
    [all.swap_remove(2), console]
}

/// Checks that a link or a form leads to every route that is a page.
fn covers_every_route<'a>(addresses: impl Iterator<Item = &'a String>) {
    let routes = routes();
    let found: BTreeSet<&String> = addresses.filter_map(|address| route_of(&routes, address)).collect();
    let is_expected = |route: &&String| !NO_PAGES.contains(&&***route) && !OPEN.contains(&&***route);
    let missed: Vec<_> = routes.iter().filter(|route| is_expected(route) && !found.contains(route)).collect();
    assert_eq!(missed, Vec::<&String>::new(), "no link leads to these pages");
    let unknown: Vec<_> = NO_PAGES.iter().filter(|route| !routes.contains(**route)).collect();
    assert_eq!(unknown, Vec::<&&str>::new(), "these are no routes");
}

/// Opens the pages of people who are not signed in, with a hostile query.
async fn open_without_a_session(browser: &Browser, furnished: &Furnished) {
    let query: String = ["to", "token", "done"].iter().map(|name| format!("{name}=%22%3E%3Cimg%20data-injected%3E&")).collect();
    for path in OPEN {
        browser.open(&format!("{}{path}?{query}", furnished.node.url())).await;
        assert_eq!(browser.run(BROKEN_OUT).await, json!([0, null]), "{path}");
        if path == NOTHING {
            browser.logs_refusal(404).await;
        }
        check(browser, path).await;
    }
}

/// Shows the codes of an order, which no link does.
async fn open_vouchers(browser: &Browser, furnished: &Furnished) {
    open(browser, furnished, &format!("/portal/orders/{}", furnished.id("delivered"))).await;
    browser.press("Show the voucher codes").await;
    browser.find("//h1[text()='Voucher codes']").await;
    let codes = browser.text("//tbody/tr[1]").await;
    assert!(["VCH", "card", "pin"].iter().all(|field| codes.contains(*field)) && codes.contains(ATTACK), "{codes}");
    assert_eq!(browser.run(BROKEN_OUT).await, json!([0, null]), "a code broke out");
    check(browser, "hostile codes of vouchers").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_fit_for_everybody_and_no_stored_text_breaks_out() {
    let furnished = Furnished::start().await;
    let [portal, console] = all_pages_of_all_roles(&furnished).await;
    covers_every_route(portal.keys().chain(console.keys()));
    shows_escaped(&portal, OF_BOTH.into_iter().chain(OF_PORTAL));
    shows_escaped(&console, OF_BOTH.into_iter().chain(OF_CONSOLE));
    reflect(&furnished, &furnished.owner().cookie, &portal).await;
    reflect(&furnished, &furnished.admin().cookie, &console).await;

    in_browser((1440, 1_600), true, |browser| async move {
        // A page that does not escape the attack fails the check.
        browser.open(&format!("data:text/html,<p title=\"{}", hostile("x"))).await;
        assert_ne!(browser.run(BROKEN_OUT).await, json!([0, null]), "the attack does not work");
        browser.complaints().await;
        open_without_a_session(&browser, &furnished).await;
        enter(&browser, &furnished.node, furnished.owner(), "/portal/login").await;
        browser.find("//h1[text()='Overview']").await;
        open_all(&browser, &furnished, portal.keys()).await;
        open_vouchers(&browser, &furnished).await;
        browser.open(&format!("{}/console/login", furnished.node.url())).await;
        sign_in(&browser, &furnished.admin().email, "").await;
        browser.find("//h1[text()='Overview']").await;
        open_all(&browser, &furnished, console.keys()).await;
    })
    .await;
}
