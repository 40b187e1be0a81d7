//! A report is read over two connections: they see one and the same moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rewards_ledger::reconciliation::{self, Period};

use crate::support::shop::{SHARD, Shop};

/// What is written meanwhile is in all of a report or in none of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_adds_up_while_others_write() {
    let shop = Arc::new(Shop::open().await);
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (shop, stop) = (shop.clone(), stop.clone());
        async move {
            let mut orders = 0;
            while !stop.load(Ordering::Relaxed) {
                shop.order(1).await;
                orders += 1;
                if orders % 10 == 0 {
                    shop.project().await;
                }
            }
            orders
        }
    });
    let all = Period { from: None, to: None, account_id: None };
    let mut positions = vec![];
    for _ in 0..50 {
        let (report, _) = reconciliation::report(shop.pool(), &[SHARD], all, 10).await.unwrap();
        assert_eq!(report.differences.found, 0, "{:#?}", report.differences.differences);
        positions.push(report.as_of[0].position);
    }
    stop.store(true, Ordering::Relaxed);
    assert!(writer.await.unwrap() > 0);
    assert!(positions.is_sorted() && positions[0] < positions[49], "others did write: {positions:?}");
}
