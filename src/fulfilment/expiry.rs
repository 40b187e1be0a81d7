//! Recording of expired vouchers: those that no order got before their last day had passed.

use std::collections::BTreeMap;
use std::time::Duration;

use ledger_events::{Actor, ProductId, ShardId};
use tokio_util::sync::CancellationToken;

use crate::heartbeat::Heartbeat;
use crate::ledger::{Ledger, Origin, commands, connect, stock};

/// Interval between two searches.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Deadline of one search.
const DEADLINE: Duration = Duration::from_secs(30);
/// Maximum number of vouchers in one search, so that its commands do not delay others.
const STEP: i64 = 1_000;

/// Records expired vouchers until stopped. Any number of nodes may do so concurrently: the writer leaves out those that another
/// node has recorded.
pub async fn run(ledger: Ledger, heartbeat: Heartbeat, stop: CancellationToken) {
    loop {
        let mut is_more = false;
        for shard in ledger.shards() {
            heartbeat.beat();
            match step(&ledger, shard).await {
                Ok(found) => is_more |= i64::try_from(found).is_ok_and(|found| found == STEP),
                Err(error) => tracing::warn!(shard, %error, "failed to record expired vouchers; retrying"),
            }
        }
        heartbeat.rest();
        let pause = if is_more { Duration::ZERO } else { LOOK_EVERY };
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}

/// Records the next expired vouchers of a shard. Returns their number; there may be more.
///
/// # Errors
/// Any error of the database. A command that fails is repeated by a later step.
pub async fn step(ledger: &Ledger, shard: ShardId) -> Result<usize, sqlx::Error> {
    let expiring = connect::within(DEADLINE, stock::expiring(ledger.maintenance(), shard, STEP)).await?;
    let found = expiring.len();
    let mut by_product: BTreeMap<ProductId, Vec<String>> = BTreeMap::new();
    for voucher in expiring {
        by_product.entry(voucher.product_id).or_default().push(voucher.reference);
    }
    for (product_id, references) in by_product {
        let origin = Origin { actor: Actor::Fulfilment, request_id: "expiry".to_owned() };
        if let Err(error) = ledger.execute(shard, commands::ExpireVouchers { product_id, references }, origin).await {
            tracing::warn!(shard, %product_id, %error, "failed to record expired vouchers; retrying");
            return Ok(0);
        }
    }
    Ok(found)
}
