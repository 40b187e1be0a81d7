//! A wrong count or page anchor is found, and derived again.

use ledger_projections::Inline;
use rewards_ledger::audit::{Rebuild, rebuild, verify};

use crate::support::shop::Shop;

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_count_or_mark_is_found_and_derived_again() {
    let shop = Shop::open().await;
    shop.webhook("https://example.com/hook").await;
    shop.orders(shop.customer.account_id, 510).await;
    shop.project().await;
    shop.count().await;
    // This order is not counted yet. Its delivery exists, because `verify` reports one that is missing for a minute.
    shop.order(1).await;
    shop.project().await;
    shop.sound().await;
    for (tampering, part, found) in [
        (
            "UPDATE order_counts SET orders = orders + 1",
            Rebuild::Inline(Inline::Orders),
            "PENDING is 511, but its rows yield 510",
        ),
        ("DELETE FROM order_counts", Rebuild::All, "PENDING is none, but its rows yield 511"),
        (
            "UPDATE order_mark_counts SET orders = orders - 3",
            Rebuild::Inline(Inline::Orders),
            "PENDING is 8, but its rows yield 11",
        ),
        (
            "UPDATE order_marks SET created_at = created_at + interval '1 second'",
            Rebuild::Inline(Inline::Orders),
            "position of order 500",
        ),
        ("DELETE FROM order_mark_counts", Rebuild::All, "PENDING is none, but its rows yield 11"),
        ("UPDATE delivery_marks SET ordinal = 400", Rebuild::Deliveries, "id of delivery 400"),
        (
            "UPDATE delivery_state SET event_type = 'order.failed' WHERE delivery_id = 7",
            Rebuild::Deliveries,
            "another event type",
        ),
        ("UPDATE delivery_counts SET deliveries = 3", Rebuild::Deliveries, "is 3, but its rows yield 511"),
    ] {
        shop.tamper_with(tampering).await;
        let report = verify(&shop.options, |_| {}).await.unwrap();
        let lines: Vec<String> = report.differences.iter().map(ToString::to_string).collect();
        assert!(lines.len() == 1 && lines[0].contains(found), "{tampering}: {lines:#?}");
        rebuild(&shop.options, part, |_| {}).await.unwrap();
        shop.sound().await;
    }
    shop.project().await;
    shop.count().await;
    shop.sound().await;
}
