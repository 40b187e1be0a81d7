//! The pages: in a real browser as a user does it, and over HTTP for all of them at once.

mod actions;
mod console;
mod console_audit;
mod console_catalogue;
mod console_live;
mod console_money;
mod console_operations;
mod console_operators;
mod console_purchases;
mod console_reconciliation;
mod console_search;
mod console_support;
mod crawl;
mod downloads;
mod empty_states;
pub mod every_page;
mod figures;
mod filters;
mod filters_console;
mod foreign;
pub mod furnished;
mod keyboard;
mod long_work;
mod no_query_per_row;
mod nodes;
mod off;
mod offered;
mod portal;
mod portal_account;
mod portal_keys;
mod portal_live;
mod portal_orders;
mod portal_replays;
mod portal_wallets;
mod portal_webhooks;
mod qr_code;
mod sent_twice;
mod state_pages;
mod typed;
mod unlinked;
mod usability;
mod values;
mod weight;
mod without_scripts;

use std::future::Future;

use serde_json::{Value, json};

use crate::support::browser::{Browser, Size};
use crate::support::node::{Node, Setup};

/// Runs a test in a browser, which ends if the test fails. Does nothing on a machine without a browser.
async fn in_browser<F: Future<Output = ()>>(size: Size, scripts: bool, test: impl FnOnce(std::sync::Arc<Browser>) -> F) {
    let Some(browser) = Browser::with(size, scripts).await else { return };
    let browser = std::sync::Arc::new(browser);
    test(browser.clone()).await;
    if let Some(browser) = std::sync::Arc::into_inner(browser) {
        browser.put_back().await;
    }
}

/// Places an order for one unit. Returns its id.
async fn place(node: &Node, setup: &Setup) -> i64 {
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap()
}

/// Checks that the page that is open does not contain a secret, neither in a text nor in an attribute.
async fn lacks(browser: &Browser, secret: &str, page: &str) {
    let markup = browser.run("return document.documentElement.outerHTML").await;
    assert!(secret.len() >= 16 && !markup.as_str().unwrap().contains(secret), "{page} contains a secret");
}

/// Directory for a picture of every page that is checked, for people who change the design.
const PICTURES: &str = "LEDGER_PAGE_PICTURES";

/// Widths at which every page is checked: a phone, and a desk.
const WIDTHS: [u32; 2] = [390, 1440];

/// Checks the page that is open, at both widths: no barrier of WCAG 2.2 AA, in light and dark, no violation of its policy,
/// nothing wider than the window.
async fn check(browser: &Browser, page: &str) {
    let (width, height) = browser.size;
    for width in WIDTHS {
        browser.resize((width, height)).await;
        fits(browser, page).await;
        assert_eq!(browser.barriers().await, Vec::<String>::new(), "{page}, {width} px");
        if let Some(directory) = std::env::var_os(PICTURES) {
            let file = format!("{}-{width}.png", page.replace([' ', '/', '?', '&'], "-"));
            tokio::fs::write(std::path::Path::new(&directory).join(file), browser.picture().await).await.unwrap();
        }
    }
    browser.prefer("prefers-color-scheme", "dark").await;
    assert_eq!(browser.faint_texts().await, Vec::<String>::new(), "{page}, dark");
    browser.prefer("prefers-color-scheme", "").await;
    browser.resize((width, height)).await;
    assert_eq!(browser.complaints().await, Vec::<Value>::new(), "{page}");
}

/// Checks that the page that is open is no wider than its window.
async fn fits(browser: &Browser, page: &str) {
    let overflow = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
    assert_eq!(browser.run(overflow).await, 0, "{page} is wider than its window");
}
