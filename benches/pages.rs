//! The pages for people, with a million orders: the time of every page of the portal and of the console.
//!
//! ```text
//! cargo bench --bench pages
//! ```

mod support;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use support::Serve;
use support::long_lists::{self, LongLists};
use support::report::Report;
use support::table::{millis, thousands};

/// Number of times each page is read.
const READS: usize = 50;
/// Targets of every page: the median and the p95.
const TARGETS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(150));
const PASSWORD: &str = "correct horse battery staple";

const PORTAL: &[&str] = &[
    "/portal",
    "/portal/products",
    "/portal/products?search=bench",
    "/portal/products/{product}",
    "/portal/orders",
    "/portal/orders?status=DELIVERED",
    "/portal/orders?status=DELAYED",
    "/portal/orders?page=40000",
    "/portal/orders/500000",
    "/portal/wallets",
    "/portal/payouts",
    "/portal/beneficiaries",
    "/portal/webhooks",
    "/portal/webhooks/{webhook}",
    "/portal/webhooks/deliveries",
    "/portal/webhooks/deliveries?status=failed",
    "/portal/events",
    "/portal/api-keys",
    "/portal/team",
    "/portal/account",
];

const CONSOLE: &[&str] = &[
    "/console",
    "/console/search?q=ORD-0000500000",
    "/console/accounts",
    "/console/accounts/{account}",
    "/console/orders",
    "/console/orders?status=DELAYED",
    "/console/orders?account_id={account}&page=40000",
    "/console/orders/500000",
    "/console/products",
    "/console/products/{product}",
    "/console/payouts",
    "/console/approvals",
    "/console/reconciliation",
    "/console/bank-statements",
    "/console/operations",
    "/console/log",
    "/console/ip-blocks",
    "/console/operators",
    "/console/audit",
    "/console/account",
];

const NOTE: &str = "\
    The ledger is that of the long lists: one account with a million orders over a hundred products, and 1,900,000 deliveries to \
    two webhooks. Every page is read 50 times over HTTP, one after the other, by a user who is signed in. The target of every \
    page is 50 ms at the median and 150 ms at the p95.";

#[tokio::main]
async fn main() -> Result<()> {
    let mut report = Report::start("pages");
    let server = support::postgres().await?;
    let options = support::database(&server, "pages").await?;
    let serve = Serve::start(&server.url_of("pages"), "api", &[]).await?;
    let filled = long_lists::fill(&serve, &options).await?;
    // The totals of the days are as a running node keeps them.
    let projecting = Serve::start(&server.url_of("pages"), "api,projector", &[]).await?;
    support::until_totalled(&options).await?;
    drop(projecting);
    let owner = json!({"email": "owner@example.com", "password": PASSWORD, "role": "owner"});
    serve.operator(&format!("/accounts/{}/users", filled.account), owner).await?;
    let admin = json!({"email": "admin@example.com", "password": PASSWORD, "role": "admin"});
    serve.operator("/operators", admin).await?;
    let owner = serve.sign_in("/auth/login", "owner@example.com", PASSWORD).await?;
    let admin = serve.sign_in("/admin/auth/login", "admin@example.com", PASSWORD).await?;

    let (mut rows, mut slow) = (vec![], vec![]);
    for (cookie, pages) in [(&owner, PORTAL), (&admin, CONSOLE)] {
        for page in pages {
            let path = path(page, &filled);
            let (median, p95, bytes) = read(&serve, cookie, &path).await.with_context(|| path.clone())?;
            if median > TARGETS.0 || p95 > TARGETS.1 {
                slow.push(path.clone());
            }
            rows.push(vec![format!("`{path}`"), thousands(bytes as f64), millis(median), millis(p95)]);
        }
    }
    report.table("Pages for people", NOTE, &["page", "bytes", "median", "p95"], &rows);
    report.end(&server).await?;
    server.stop().await?;
    ensure!(slow.is_empty(), "these pages missed their target: {}", slow.join(", "));
    Ok(())
}

fn path(page: &str, filled: &LongLists) -> String {
    page.replace("{product}", &filled.product.to_string())
        .replace("{webhook}", &filled.webhook.to_string())
        .replace("{account}", &filled.account.to_string())
}

/// Reads a page many times. Returns the median and the p95 of the times, and the size of the page.
async fn read(serve: &Serve, cookie: &str, path: &str) -> Result<(Duration, Duration, usize)> {
    let (_, bytes) = serve.look_at(cookie, path).await?;
    let mut times = Vec::with_capacity(READS);
    for _ in 0..READS {
        times.push(serve.look_at(cookie, path).await?.0);
    }
    times.sort_unstable();
    Ok((times[READS / 2], times[READS * 95 / 100], bytes))
}
