//! Every page in a browser, with hostile texts everywhere: no barrier, nothing too wide, and nothing that breaks out.

use std::collections::{BTreeMap, BTreeSet};

use poem::http::Method;
use reqwest::header::HeaderValue;
use rewards_ledger::access::Role;
use rewards_ledger::pages;
use serde_json::{Value, json};

use super::console::sign_in;
use super::crawl::{attributes, crawl, has_policy, is_strict, post_forms};
use super::furnished::{ATTACK, Furnished, OF_BOTH, OF_CONSOLE, OF_PORTAL, hostile};
use super::portal_orders::enter;
use super::{actions::Who, check, figures, fits, in_browser, keyboard, offered, typed, unlinked, values};
use crate::support::browser::Browser;
use crate::support::node::Node;

/// Address of no page.
const NOTHING: &str = "/portal/nothing-here";
/// Pages of people who are not signed in.
const OPEN: [&str; 6] =
    ["/portal/login", "/portal/password-reset", "/portal/reset-password", "/portal/accept-invitation", "/console/login", NOTHING];
/// Routes that answer with something else than a page: files, pictures, streams, and redirects.
pub const NO_PAGES: [&str; 21] = [
    "/",
    "/assets/{version}/icon.svg",
    "/assets/{version}/script.js",
    "/assets/{version}/style.css",
    "/console/audit.csv",
    "/console/bank-statements/{id}/matches.csv",
    "/console/bank-statements/{id}/matches.xlsx",
    "/console/live",
    "/console/orders/{id}/receipt",
    "/console/products/{id}/image/{version}",
    "/console/reconciliation.csv",
    "/console/reconciliation.xlsx",
    "/console/replays/count",
    "/console/wallets/{id}/statement.csv",
    "/login",
    "/portal/live",
    "/portal/orders.csv",
    "/portal/orders/bulk/place",
    "/portal/products/{id}/image/{version}",
    "/portal/wallets/{id}/statement.csv",
    "/portal/webhooks/{id}/replays/count",
];
/// Pages to which a form leads instead of a link.
const OF_FORMS: [&str; 3] =
    ["/console/log/proof?order_id={orders}", "/console/search?q=", "/portal/webhooks/{webhooks}/explanation?order_id={orders}"];

/// Script that returns the number of elements that hostile texts have become, and whether a script of theirs has run.
const BROKEN_OUT: &str =
    "return [document.querySelectorAll('[data-injected], [onerror], img[src=x]').length, window.injected ?? null]";

/// Paths of all routes that are read.
pub fn routes() -> BTreeSet<String> {
    let routes = pages::routes().into_iter().filter(|(_, methods)| methods.contains(&Method::GET));
    routes.map(|(path, _)| path).collect()
}

/// Returns the route of an address, literal segments first.
pub fn route_of<'a>(routes: &'a BTreeSet<String>, address: &str) -> Option<&'a String> {
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

/// Opens the first address of each route in the browser.
async fn open_each_route(browser: &Browser, furnished: &Furnished, addresses: impl Iterator<Item = &String>) {
    let (routes, mut seen) = (routes(), BTreeSet::new());
    for address in addresses.filter(|address| seen.insert(route_of(&routes, address))) {
        open(browser, furnished, address).await;
    }
}

/// Opens the pages as each role, in a browser without scripts on a phone.
async fn open_without_scripts(furnished: &Furnished, [portal, console]: &[Vec<BTreeMap<String, String>>; 2]) {
    in_browser((390, 2_400), false, |browser| async move {
        for (user, pages) in furnished.users.iter().zip(portal) {
            enter(&browser, &furnished.node, user, "/portal/login").await;
            browser.find("//h1[text()='Overview']").await;
            open_each_route(&browser, furnished, pages.keys()).await;
            leave(&browser, furnished, "/portal").await;
        }
        for (operator, pages) in furnished.operators.iter().zip(console) {
            browser.open(&format!("{}/console/login", furnished.node.url())).await;
            sign_in(&browser, &operator.email, "").await;
            browser.find("//h1[text()='Overview']").await;
            open_each_route(&browser, furnished, pages.keys()).await;
            leave(&browser, furnished, "/console").await;
        }
    })
    .await;
}

/// Returns the pages of a role that offer other forms than those of the highest role, one for each route.
fn of_its_own<'a>(pages: &'a BTreeMap<String, String>, highest: &BTreeMap<String, String>) -> BTreeSet<&'a String> {
    let forms = |page: &str| post_forms(page).map(|form| form.action).collect::<BTreeSet<_>>();
    let differ = |(address, page): &(&String, &String)| highest.get(*address).is_none_or(|other| forms(page) != forms(other));
    let (routes, mut seen) = (routes(), BTreeSet::new());
    let differing = pages.iter().filter(differ).map(|(address, _)| address);
    differing.filter(|address| seen.insert(route_of(&routes, address))).collect()
}

/// Signs the visitor out of the portal or the console.
async fn leave(browser: &Browser, furnished: &Furnished, start: &str) {
    browser.open(&format!("{}{start}", furnished.node.url())).await;
    browser.press("Sign out").await;
    browser.sees("You are signed out.").await;
}

/// Checks the pages of a role that differ from those of the highest one.
async fn check_own(
    browser: &Browser,
    furnished: &Furnished,
    pages: &BTreeMap<String, String>,
    highest: &BTreeMap<String, String>,
) {
    browser.find("//h1[text()='Overview']").await;
    check(browser, "the overview of a lower role").await;
    for address in of_its_own(pages, highest) {
        open(browser, furnished, address).await;
        check(browser, address).await;
    }
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
            keyboard::walk(browser, address).await;
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
        is_strict(&path, &page);
        pages.insert(path, page);
    }
    pages
}

/// Reads a page, which may be that of an error of the reader. Returns its status with it.
async fn answer(furnished: &Furnished, cookie: &str, path: &str) -> (u16, String) {
    let request = reqwest::Client::new().get(format!("{}{path}", furnished.node.url())).header("Cookie", cookie);
    let response = request.send().await.unwrap();
    assert!(!response.status().is_server_error(), "{path}: {}", response.status());
    (response.status().as_u16(), response.text().await.unwrap())
}

/// Reads a page that must be there.
pub async fn read(furnished: &Furnished, cookie: &str, path: &str) -> String {
    let (status, page) = answer(furnished, cookie, path).await;
    assert_eq!(status, 200, "{path}: {page}");
    page
}

/// Sends a hostile text in every field of every page's query, and as every parameter that a page names.
async fn reflect(furnished: &Furnished, cookie: &str, pages: &BTreeMap<String, String>) {
    let mut seen = BTreeSet::new();
    for (address, page) in pages {
        let path = address.split('?').next().unwrap();
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        attributes(page, "name").iter().for_each(|name| _ = query.append_pair(name, &hostile("query")));
        if seen.insert(path.to_owned()) {
            let (_, page) = answer(furnished, cookie, &format!("{path}?{}", query.finish())).await;
            is_strict(path, &page);
            assert!(!page.contains("<img data-injected") && !page.contains(ATTACK), "{path} reflects its query");
        }
    }
}

/// Checks that each text stands on a page, escaped, and on none as it is. In a payload, JSON escapes it too.
fn shows_escaped(pages: &BTreeMap<String, String>, fields: impl Iterator<Item = &'static str>) {
    for (path, page) in pages {
        assert!(!page.contains("<img data-injected") && !page.contains("<img/"), "{path} has a text that is not escaped");
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

/// Reads all pages as each role: those of the portal and those of the console, from the lowest role to the highest.
async fn all_pages_of_all_roles(furnished: &Furnished) -> [Vec<BTreeMap<String, String>>; 2] {
    let users: Vec<&str> = furnished.users.iter().map(|user| &*user.cookie).collect();
    let operators: Vec<&str> = furnished.operators.iter().map(|operator| &*operator.cookie).collect();
    let mut all = [vec![], vec![]];
    for (all, (start, cookies)) in all.iter_mut().zip([("/portal", users), ("/console", operators)]) {
        for cookie in cookies {
            let pages = all_pages(furnished, cookie, start).await;
            forms_lead_somewhere(&pages);
            typed::are_known(&pages);
            all.push(pages);
        }
    }
    offered::are_right(&all[0], |who| if let Who::User(least) = who { Some(least) } else { None });
    offered::are_right(&all[1], |who| if let Who::Operator(least) = who { Some(least) } else { None });
    all
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

#[tokio::test]
async fn the_pages_of_strangers_and_of_errors_have_the_policy_of_all_pages() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let (viewer, auditor) = (node.user(setup.client.account_id, "viewer").await, node.console_user(Role::Auditor).await);
    let http = reqwest::Client::new();
    let open = OPEN.map(|path| (path, "", if path == NOTHING { 404 } else { 200 }));
    let errors = [
        ("/console/nothing-here", "", 404),
        ("/portal/orders/999999", &*viewer.cookie, 404),
        ("/console/orders/999999", &*auditor.cookie, 404),
    ];
    for (path, cookie, status) in open.into_iter().chain(errors) {
        let response = http.get(format!("{}{path}", node.url())).header("Cookie", cookie).send().await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{path}");
        has_policy(path, response.headers());
        for (name, value) in
            [("x-frame-options", "DENY"), ("x-content-type-options", "nosniff"), ("referrer-policy", "same-origin")]
        {
            assert_eq!(response.headers().get(name).map(HeaderValue::as_bytes), Some(value.as_bytes()), "{path}: {name}");
        }
        is_strict(path, &response.text().await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_fit_for_everybody_and_no_stored_text_breaks_out() {
    let furnished = Furnished::start().await;
    let all = all_pages_of_all_roles(&furnished).await;
    let [portal, console] = all.each_ref().map(|pages| &pages[2]);
    covers_every_route(portal.keys().chain(console.keys()));
    shows_escaped(portal, OF_BOTH.into_iter().chain(OF_PORTAL));
    shows_escaped(console, OF_BOTH.into_iter().chain(OF_CONSOLE));
    unlinked::lead_somewhere(portal.iter().chain(console));
    figures::agree(&furnished, &furnished.owner().cookie, portal, (6, 5)).await;
    figures::agree(&furnished, &furnished.admin().cookie, console, (20, 7)).await;
    figures::days_agree(&furnished).await;
    [portal, console].into_iter().for_each(values::are_right);
    reflect(&furnished, &furnished.owner().cookie, portal).await;
    reflect(&furnished, &furnished.admin().cookie, console).await;

    open_without_scripts(&furnished, &all).await;
    let (furnished, all) = (&furnished, &all);
    in_browser((1440, 1_600), true, |browser| async move {
        // A page that does not escape the attack fails the check.
        browser.open(&format!("data:text/html,<p title=\"{}", hostile("x"))).await;
        assert_ne!(browser.run(BROKEN_OUT).await, json!([0, null]), "the attack does not work");
        browser.complaints().await;
        open_without_a_session(&browser, furnished).await;
        enter(&browser, &furnished.node, furnished.owner(), "/portal/login").await;
        browser.find("//h1[text()='Overview']").await;
        open_all(&browser, furnished, portal.keys()).await;
        open_vouchers(&browser, furnished).await;
        browser.open(&format!("{}/console/login", furnished.node.url())).await;
        sign_in(&browser, &furnished.admin().email, "").await;
        browser.find("//h1[text()='Overview']").await;
        open_all(&browser, furnished, console.keys()).await;
        for (user, pages) in furnished.users.iter().zip(&all[0]).take(2) {
            leave(&browser, furnished, "/portal").await;
            enter(&browser, &furnished.node, user, "/portal/login").await;
            check_own(&browser, furnished, pages, portal).await;
        }
        for (operator, pages) in furnished.operators.iter().zip(&all[1]).take(2) {
            leave(&browser, furnished, "/console").await;
            browser.open(&format!("{}/console/login", furnished.node.url())).await;
            sign_in(&browser, &operator.email, "").await;
            check_own(&browser, furnished, pages, console).await;
        }
    })
    .await;
}
