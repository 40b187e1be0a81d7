//! Whatever the size of a replay or the number of subscribers, no batch of the projection makes more than a few
//! thousand deliveries.

use ledger_events::replay::ReplayKind;
use ledger_projections::deliveries::MAX_MADE;
use rewards_ledger::audit::{Rebuild, rebuild, verify};
use rewards_ledger::delivery::replay::Replayer;
use rewards_ledger::ledger::Command;
use rewards_ledger::ledger::commands::RequestReplay;
use rewards_ledger::ledger::projector::ProjectionStep;

use crate::support::shop::{SHARD, Shop};

/// Returns the number of deliveries that each batch makes until the projection reaches the head.
async fn batches(shop: &Shop) -> Vec<usize> {
    let projector = shop.projector();
    let (mut batches, mut before) = (vec![], made(shop).await);
    loop {
        match projector.step(SHARD).await.unwrap() {
            ProjectionStep::Applied { events, is_more } => {
                assert!(events > 0);
                let now = made(shop).await;
                batches.push(now - before);
                before = now;
                if !is_more {
                    assert_eq!(projector.step(SHARD).await.unwrap(), ProjectionStep::Idle, "nothing is left for the slow timer");
                    return batches;
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn made(shop: &Shop) -> usize {
    let made: i64 = sqlx::query_scalar("SELECT count(*) FROM deliveries").fetch_one(shop.pool()).await.unwrap();
    made.try_into().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_makes_some_thousand_deliveries_at_most() {
    let shop = Shop::open().await;
    let account_id = shop.customer.account_id;
    shop.orders(account_id, 500).await;
    let mut webhooks = vec![];
    for _ in 0..12 {
        webhooks.push(shop.webhook("https://example.com/hook").await.0);
    }
    for webhook_id in webhooks {
        let replay = RequestReplay { account_id, webhook_id, kind: ReplayKind::Missed, from: 1, per_second: 500, only: None };
        shop.run(Command::RequestReplay(replay)).await;
    }
    shop.project().await;
    assert_eq!(made(&shop).await, 0);
    let replayer = Replayer { ledger: shop.ledger.clone(), pool: shop.pool().clone() };
    assert_eq!(replayer.once(SHARD).await.unwrap(), 12);
    let replayed = batches(&shop).await;
    assert_eq!(replayed, [MAX_MADE, 1_000], "twelve steps of 500");

    shop.orders(account_id, 500).await;
    let ordered = batches(&shop).await;
    assert!(ordered.iter().all(|made| *made <= MAX_MADE) && ordered.iter().sum::<usize>() == 6_000, "{ordered:?}");
    // A verification folds the log in batches of the same size.
    let report = verify(&shop.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.differences);
    assert_eq!(report.delivery_health.expected, 12_000);
    let rebuilt = rebuild(&shop.options, Rebuild::Deliveries, |_| {}).await.unwrap();
    assert!(rebuilt.was_clean(), "{:#?}", rebuilt.differences);
    assert_eq!(made(&shop).await, 12_000);
}
