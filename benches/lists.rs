//! Pagination of long lists through HTTP: an account with a million orders and as many deliveries, and the catalogue.
//!
//! ```text
//! cargo bench --bench lists
//! ```

mod support;

use std::time::Duration;

use anyhow::Result;
use support::long_lists::{self, LongLists};
use support::report::Report;
use support::table::{millis, thousands};
use support::{Serve, load};

/// Number of times each page is read.
const READS: usize = 50;

/// Pages, each with its target for the median in milliseconds: the first pages, the 40,000th of all, and deep pages
/// of filtered lists.
const PAGES: &[(&str, u64)] = &[
    ("/orders", 50),
    ("/orders?status=DELIVERED", 50),
    ("/orders?status=DELAYED", 50),
    ("/orders?product_id={product}", 50),
    ("/orders?product_id={product}&status=PENDING", 50),
    ("/orders?created_from={middle}", 50),
    ("/orders?created_from={middle}&status=DELIVERED", 50),
    ("/orders?created_to={middle}", 50),
    ("/orders?created_from={middle}&product_id={product}", 50),
    ("/orders?reference_code=ORD-0000500000", 50),
    ("/orders?client_reference=none", 50),
    ("/orders?page=40000", 50),
    ("/orders?created_to={middle}&page=20000", 250),
    ("/orders?status=DELIVERED&page=20000", 250),
    ("/orders?status=DELIVERED&page=40000", 250),
    ("/orders?created_from={middle}&status=DELIVERED&page=10000", 250),
    ("/orders?product_id={product}&page=250", 250),
    ("/orders?product_id={product}&status=DELIVERED&page=200", 250),
    ("/webhooks/deliveries", 50),
    ("/webhooks/deliveries?status=delivered", 50),
    ("/webhooks/deliveries?status=failed", 50),
    ("/webhooks/deliveries?status=pending", 50),
    ("/webhooks/deliveries?event_type=order.delivered", 50),
    ("/webhooks/deliveries?order_id=500000", 50),
    ("/webhooks/deliveries?webhook_url_id={webhook}", 50),
    ("/webhooks/deliveries?webhook_url_id={webhook}&status=failed&event_type=order.created", 50),
    ("/webhooks/deliveries?page=40000", 50),
    ("/webhooks/deliveries?status=delivered&page=20000", 250),
    ("/webhooks/deliveries?status=delivered&page=44000", 250),
    ("/webhooks/deliveries?status=failed&page=1000", 250),
    ("/webhooks/deliveries?event_type=order.delivered&page=20000", 250),
    ("/webhooks/deliveries?event_type=order.created&page=25000", 250),
    ("/webhooks/deliveries?status=delivered&event_type=order.delivered&page=20000", 250),
    ("/webhooks/deliveries?webhook_url_id={webhook}&page=46000", 250),
    ("/webhooks/deliveries?webhook_url_id={webhook}&status=delivered&page=40000", 250),
    ("/products?limit=10000", 150),
];

const NOTE: &str = "\
    One account has a million orders over a hundred products, and 1,900,000 deliveries to two webhooks. One delivery in twenty \
    failed. The catalogue has 10,000 products with a kilobyte of texts each. Every page is read 50 times through HTTP, 20 rows a \
    page. The dates cut the orders in half.\n\n\
    The service counts failed and pending deliveries one by one, and so the orders of one product within dates. With several \
    times as many of those, the first page takes several times as long.";

#[tokio::main]
async fn main() -> Result<()> {
    let mut report = Report::start("lists");
    let server = support::postgres().await?;
    let options = support::database(&server, "lists").await?;
    let serve = Serve::start(&server.url_of("lists"), "api", &[]).await?;
    // The totals show that everything is there; `verify` would take as long again.
    let LongLists { client, product, webhook, middle, .. } = long_lists::fill(&serve, &options).await?;
    let mut rows = vec![];
    for (path, target) in PAGES {
        let path = path
            .replace("{product}", &product.to_string())
            .replace("{middle}", &middle)
            .replace("{webhook}", &webhook.to_string());
        let (total, median, p95) = read(&serve, &client, &path).await?;
        let path = path.replace(&middle, "…");
        rows.push(vec![
            format!("`{path}`"),
            thousands(total as f64),
            millis(median),
            millis(p95),
            millis(Duration::from_millis(*target)),
        ]);
    }
    report.table("Pages of long lists", NOTE, &["GET /api/v1…", "X-Total-Count", "median", "p95", "the median's target"], &rows);
    report.end(&server).await?;
    server.stop().await?;
    Ok(())
}

/// Reads a page many times. Returns the total of its list, and the median and the p95 of the times.
async fn read(serve: &Serve, client: &load::Client, path: &str) -> Result<(u64, Duration, Duration)> {
    let (_, total) = serve.page(client, path).await?;
    let mut times = Vec::with_capacity(READS);
    for _ in 0..READS {
        times.push(serve.page(client, path).await?.0);
    }
    times.sort_unstable();
    Ok((total, times[READS / 2], times[READS * 95 / 100]))
}
