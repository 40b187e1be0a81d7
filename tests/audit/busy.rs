use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ledger_events::OrderId;
use rewards_ledger::audit::{Rebuild, rebuild, verify};
use rust_decimal::Decimal;

use crate::support::shop::Shop;

/// Total of everything ever funded into the wallet, from two tables that are swapped together.
const FUNDED: &str =
    "SELECT w.balance + (SELECT coalesce(sum(amount - refunded_amount), 0) FROM orders) FROM wallets w WHERE w.id = $1";

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_loses_nothing_for_two_writing_nodes_and_a_reader() {
    let shop = Arc::new(Shop::open().await);
    let other = Arc::new(Shop::on(&shop.options, shop.customer).await);
    shop.webhook("https://example.com/hook").await;
    shop.load("a", 200, None).await;
    let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(vec![])));
    let mut running: Vec<_> = [&shop, &other, &shop, &other]
        .into_iter()
        .map(|node| {
            let (node, stop, acknowledged) = (node.clone(), stop.clone(), acknowledged.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let placed = futures::future::join_all((0..4).map(|_| node.order(1))).await;
                    for order_id in &placed {
                        assert_eq!(
                            node.find(*order_id).await.id,
                            *order_id,
                            "an order can be read as soon as it is acknowledged"
                        );
                    }
                    tokio::join!(node.fulfil(placed[0]), node.cancel(placed[1]));
                    acknowledged.lock().unwrap().extend(placed);
                }
            })
        })
        .collect();
    running.push(tokio::spawn({
        let (shop, stop) = (shop.clone(), stop.clone());
        async move {
            while !stop.load(Ordering::Relaxed) {
                let funded: Decimal =
                    sqlx::query_scalar(FUNDED).bind(shop.customer.wallet_id).fetch_one(shop.pool()).await.unwrap();
                assert_eq!(funded, Decimal::from(1_000_000));
            }
        }
    }));
    let before = acknowledged.lock().unwrap().len();
    for _ in 0..3 {
        let rebuilt = rebuild(&shop.options, Rebuild::All, |_| {}).await.unwrap();
        assert!(rebuilt.was_clean(), "{:#?}", rebuilt.differences);
    }
    assert!(acknowledged.lock().unwrap().len() > before, "orders are placed during the rebuild");
    stop.store(true, Ordering::Relaxed);
    for task in running {
        task.await.unwrap();
    }
    shop.project().await;
    let report = verify(&shop.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.differences);
    let mut acknowledged = std::mem::take(&mut *acknowledged.lock().unwrap());
    acknowledged.sort_unstable();
    let stored: Vec<OrderId> = sqlx::query_scalar("SELECT id FROM orders ORDER BY id").fetch_all(shop.pool()).await.unwrap();
    assert_eq!(stored, acknowledged);
}
