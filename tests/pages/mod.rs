//! The pages: in a real browser as a user does it, and over HTTP for all of them at once.

mod console;
mod console_live;
mod console_money;
mod console_operations;
mod console_support;
mod crawl;
mod nodes;
mod portal;
mod portal_account;
mod portal_keys;
mod portal_wallets;
mod portal_webhooks;
mod sent_twice;

use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};

use futures::FutureExt;
use serde_json::Value;

use crate::support::browser::Browser;

/// Runs a test in a browser, and ends the browser whatever the outcome is. Does nothing on a machine without a browser.
async fn in_browser<F: Future<Output = ()>>(size: (u32, u32), scripts: bool, test: impl FnOnce(std::sync::Arc<Browser>) -> F) {
    let Some(browser) = Browser::with(size, scripts).await else { return };
    let browser = std::sync::Arc::new(browser);
    let outcome = AssertUnwindSafe(test(browser.clone())).catch_unwind().await;
    if let Some(browser) = std::sync::Arc::into_inner(browser) {
        browser.quit().await;
    }
    outcome.unwrap_or_else(|panic| resume_unwind(panic));
}

/// Directory for a picture of every page that is checked, for people who change the design.
const PICTURES: &str = "LEDGER_PAGE_PICTURES";

/// Checks the page that is open: no barrier of WCAG 2.2 AA, no violation of its policy, nothing wider than the window.
async fn check(browser: &Browser, page: &str) {
    if let Some(directory) = std::env::var_os(PICTURES) {
        let file = std::path::Path::new(&directory).join(format!("{}.png", page.replace([' ', '/'], "-")));
        tokio::fs::write(file, browser.picture().await).await.unwrap();
    }
    assert_eq!(browser.barriers().await, Vec::<String>::new(), "{page}");
    let overflow = browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
    assert_eq!(overflow, 0, "{page} is wider than the window");
    assert_eq!(browser.complaints().await, Vec::<Value>::new(), "{page}");
}
