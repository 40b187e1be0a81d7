//! Warnings about low stock: fewer vouchers of a denomination are available than its threshold.

use std::collections::BTreeSet;
use std::time::Duration;

use ledger_database::PgPool;
use ledger_events::{Money, ProductId};
use tokio_util::sync::CancellationToken;

use crate::heartbeat::Heartbeat;
use crate::ledger::{ShardWatch, connect, stock};
use crate::telemetry::Metrics;

/// Interval between two checks.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Pause after a check that failed.
const RETRY: Duration = Duration::from_secs(5);
/// Deadline of one check.
const DEADLINE: Duration = Duration::from_secs(30);

/// Checks the thresholds until stopped. Logs each denomination once when its stock becomes low, and once when it is not low
/// any more.
pub async fn run(pool: PgPool, shards: ShardWatch, metrics: Metrics, heartbeat: Heartbeat, stop: CancellationToken) {
    let mut known = BTreeSet::new();
    loop {
        heartbeat.beat();
        let pause = match connect::within(DEADLINE, stock::low(&pool, &shards.current())).await {
            Ok(low) => {
                tell(&known, &low);
                metrics.stock_low(low.len());
                known = low;
                LOOK_EVERY
            }
            Err(error) => {
                tracing::warn!(%error, "failed to check the stock; retrying");
                RETRY
            }
        };
        heartbeat.rest();
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}

fn tell(before: &BTreeSet<(ProductId, Money)>, now: &BTreeSet<(ProductId, Money)>) {
    for (product_id, denomination) in now.difference(before) {
        tracing::warn!(%product_id, %denomination, "the stock is low");
    }
    for (product_id, denomination) in before.difference(now) {
        tracing::info!(%product_id, %denomination, "the stock is not low any more");
    }
}
