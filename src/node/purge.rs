//! Deletes expired rows, in small batches.

use std::time::Duration;

use ledger_database::PgPool;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::access::{console, one_time_tokens, sessions};
use crate::audit::runs;
use crate::delivery::days;
use crate::heartbeat::Heartbeat;
use crate::ledger::Ledger;
use crate::ledger::expiry::{self, KeyWalk};
use crate::ledger::nodes;

/// Interval of the purge.
const PURGE_EVERY: Duration = Duration::from_secs(600);
/// Pause after a purge that failed in part. It doubles with each failure in a row.
const RETRY: Duration = Duration::from_secs(5);
/// Number of purges in which the purge scans all idempotency keys once. That takes 16 hours.
const PURGES_A_WALK: i64 = 100;

/// Deletes old idempotency keys, sessions, delivery days, nodes and audit runs, and expired one-time tokens, mails, rate
/// limit windows and IP blocks. It runs every ten minutes, in small batches, and soon again after a failure. All nodes may
/// do this at the same time.
pub async fn run(ledger: Ledger, stop: CancellationToken) {
    let mut due = tokio::time::interval(PURGE_EVERY);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut keys = KeyWalk::default();
    let mut pause = RETRY;
    let heartbeat = ledger.heartbeats().background("purge");
    loop {
        heartbeat.rest();
        if stop.run_until_cancelled(due.tick()).await.is_none() {
            return;
        }
        let pool = ledger.maintenance();
        let purged = [
            purge_all(&stop, &heartbeat, "rate limit windows", || expiry::purge_rate_windows(pool)).await,
            purge_all(&stop, &heartbeat, "sessions", || sessions::purge(pool)).await,
            purge_all(&stop, &heartbeat, "console sessions", || console::purge(pool)).await,
            purge_all(&stop, &heartbeat, "one-time tokens and mails", || one_time_tokens::purge(pool)).await,
            purge_all(&stop, &heartbeat, "blocks", || expiry::purge_ip_blocks(pool)).await,
            purge_all(&stop, &heartbeat, "delivery days", || days::purge(pool)).await,
            purge_all(&stop, &heartbeat, "nodes", || nodes::purge(pool)).await,
            purge_all(&stop, &heartbeat, "audit runs", || runs::purge(pool)).await,
            purge_keys(&stop, &heartbeat, &mut keys, pool).await,
        ];
        if purged.contains(&false) {
            due.reset_after(pause);
            pause = PURGE_EVERY.min(pause * 2);
        } else {
            pause = RETRY;
        }
    }
}

/// Scans one part of the table of idempotency keys, so that repeated calls cover all of it within a day. Returns false if
/// that failed.
async fn purge_keys(stop: &CancellationToken, heartbeat: &Heartbeat, walk: &mut KeyWalk, pool: &PgPool) -> bool {
    let mut walked = 0;
    while !stop.is_cancelled() {
        heartbeat.beat();
        match walk.step(pool).await {
            Ok(step) => {
                walked += KeyWalk::STEP_PAGES;
                if step.is_end || walked >= step.pages / PURGES_A_WALK {
                    return true;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "failed to delete old idempotency keys; retrying");
                return false;
            }
        }
    }
    true
}

/// Deletes batch after batch, as long as there may be more rows. Returns false if that failed.
async fn purge_all<F: Future<Output = Result<(u64, bool), sqlx::Error>>>(
    stop: &CancellationToken,
    heartbeat: &Heartbeat,
    what: &'static str,
    purge: impl Fn() -> F,
) -> bool {
    while !stop.is_cancelled() {
        heartbeat.beat();
        match purge().await {
            Ok((_, true)) => {}
            Ok((_, false)) => return true,
            Err(error) => {
                tracing::warn!(what, %error, "failed to delete expired rows; retrying");
                return false;
            }
        }
    }
    true
}
