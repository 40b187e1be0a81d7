//! Follows the log for the catching-up projections: exactly once, one node at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ledger_events::{Position, ShardId};
use ledger_projections::listing::derive;
use ledger_projections::{deliveries, totals};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection, PgPool};
use tokio_util::sync::CancellationToken;

use super::reader::{self, ReadError};
use super::{Ledger, connect};
use crate::telemetry::Metrics;

/// Events in one transaction.
const BATCH_EVENTS: i64 = 1_000;
/// Positions that daily totals go on by in one transaction; only the wallets' events of them are read.
const TOTALLED_EVENTS: i64 = 5_000;
/// So many new events are worth counting orders and adding up days anew; fewer, once a while.
const COUNTED_EVENTS: i64 = 1_000;
/// The slow timer, for when no wake-up comes.
const IDLE: Duration = Duration::from_secs(1);

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Applied events up to this position.
    Applied { to: Position, is_more: bool },
    /// There was nothing after the checkpoint.
    Idle,
    /// Another node holds this projection.
    Elsewhere,
}

/// Runs the projections `deliveries` and `daily_totals` of every shard, and keeps the counts that lists
/// are paged by.
#[derive(Clone, Debug)]
pub struct Projector {
    ledger: Ledger,
    pool: PgPool,
    metrics: Metrics,
    plans: Arc<connect::Plans>,
    idle: Duration,
}

impl Projector {
    pub fn new(ledger: &Ledger, options: &PgConnectOptions, metrics: Metrics) -> Projector {
        Projector { ledger: ledger.clone(), pool: connect::projector(options), metrics, plans: Arc::default(), idle: IDLE }
    }

    /// With another slow timer.
    pub fn idling(self, idle: Duration) -> Projector {
        Projector { idle, ..self }
    }

    pub async fn run(self, stop: CancellationToken) {
        let mut grown = self.ledger.wake().subscribe();
        let mut counted: HashMap<ShardId, Position> = HashMap::new();
        let mut is_late = true;
        while !stop.is_cancelled() {
            let (mut is_more, mut is_behind, mut is_hindered) = (false, false, false);
            for shard in self.ledger.shards() {
                let mut is_countable = is_late;
                match self.step(shard).await {
                    Ok(Step::Applied { to, is_more: more }) => {
                        is_more |= more;
                        is_countable |= to - counted.get(&shard).copied().unwrap_or_default() >= COUNTED_EVENTS;
                    }
                    Ok(Step::Idle | Step::Elsewhere) => {}
                    Err(error) => {
                        tracing::warn!(shard, %error, "the deliveries projection could not go on; it will try again");
                        is_hindered = true;
                    }
                }
                if is_countable {
                    match self.count(shard).await {
                        Ok(derive::Step::Counted { to, is_more: more }) => {
                            is_behind |= more;
                            counted.insert(shard, to);
                        }
                        Ok(derive::Step::Idle | derive::Step::Elsewhere) => {}
                        Err(error) => {
                            tracing::warn!(shard, %error, "the counts of lists could not go on; they will try again");
                            is_hindered = true;
                        }
                    }
                    match self.total(shard).await {
                        Ok(Step::Applied { is_more: more, .. }) => is_behind |= more,
                        Ok(Step::Idle | Step::Elsewhere) => {}
                        Err(error) => {
                            tracing::warn!(shard, %error, "the daily totals could not go on; they will try again");
                            is_hindered = true;
                        }
                    }
                }
            }
            is_late = is_behind;
            if is_more || is_behind {
                continue;
            }
            tokio::select! {
                () = stop.cancelled() => {}
                // What stopped it is seldom gone with the next commit, and need not be logged for each.
                _ = grown.changed(), if !is_hindered => {}
                () = tokio::time::sleep(self.idle) => is_late = true,
            }
        }
    }

    /// Counts the orders of the next events, for the pages of lists.
    pub async fn count(&self, shard: ShardId) -> Result<derive::Step, sqlx::Error> {
        derive::step(&mut *self.pool.acquire().await?, shard).await
    }

    /// Makes the deliveries of the next events: rows and checkpoint in one transaction.
    pub async fn step(&self, shard: ShardId) -> Result<Step, ReadError> {
        let mut conn = self.pool.acquire().await?;
        let mut tx = conn.begin().await?;
        let Some(checkpoint) = hold(&mut tx, shard, deliveries::NAME).await? else {
            tx.commit().await?;
            return Ok(Step::Elsewhere);
        };
        self.renew_plans(&mut tx).await?;
        let events = reader::after(&mut *tx, shard, checkpoint, BATCH_EVENTS).await?;
        let Some(last) = events.last() else { return Ok(Step::Idle) };
        let made = reader::fold_deliveries(&mut tx, shard, &events).await?;
        deliveries::write(&mut tx, shard, &made).await?;
        let to = last.moment.position;
        advance(&mut tx, shard, deliveries::NAME, to).await?;
        tx.commit().await?;
        if made.due() > 0 {
            self.ledger.wake().made_deliveries();
        }
        self.metrics.projected(events.len());
        Ok(Step::Applied { to, is_more: i64::try_from(events.len()).is_ok_and(|n| n == BATCH_EVENTS) })
    }

    /// Adds the movements of the next events to their days: rows and checkpoint in one transaction.
    pub async fn total(&self, shard: ShardId) -> Result<Step, ReadError> {
        let mut conn = self.pool.acquire().await?;
        let mut tx = conn.begin().await?;
        let Some(checkpoint) = hold(&mut tx, shard, totals::NAME).await? else {
            tx.commit().await?;
            return Ok(Step::Elsewhere);
        };
        self.renew_plans(&mut tx).await?;
        let head = reader::head(&mut *tx, shard).await?;
        if head <= checkpoint {
            return Ok(Step::Idle);
        }
        let to = head.min(checkpoint + TOTALLED_EVENTS);
        let events = reader::wallet_events(&mut *tx, shard, checkpoint, to).await?;
        totals::apply(&mut tx, shard, &events).await?;
        advance(&mut tx, shard, totals::NAME, to).await?;
        tx.commit().await?;
        Ok(Step::Applied { to, is_more: to < head })
    }

    async fn renew_plans(&self, conn: &mut PgConnection) -> Result<(), sqlx::Error> {
        if self.plans.are_stale() {
            sqlx::raw_sql("DISCARD PLANS").execute(conn).await?;
        }
        Ok(())
    }
}

/// Holds a projection's checkpoint until the transaction ends. None if another node does, or if there
/// was none and now is one.
async fn hold(conn: &mut PgConnection, shard: ShardId, projection: &'static str) -> Result<Option<Position>, sqlx::Error> {
    let held = sqlx::query_scalar(
        "SELECT position FROM projection_checkpoints WHERE shard_id = $1 AND projection = $2 FOR UPDATE SKIP LOCKED",
    )
    .bind(shard)
    .bind(projection)
    .fetch_optional(&mut *conn)
    .await?;
    if held.is_none() {
        sqlx::query("INSERT INTO projection_checkpoints (shard_id, projection) VALUES ($1, $2) ON CONFLICT DO NOTHING")
            .bind(shard)
            .bind(projection)
            .execute(conn)
            .await?;
    }
    Ok(held)
}

async fn advance(conn: &mut PgConnection, shard: ShardId, projection: &'static str, to: Position) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE projection_checkpoints SET position = $3, updated_at = clock_timestamp() WHERE shard_id = $1 AND projection = $2",
    )
    .bind(shard)
    .bind(projection)
    .bind(to)
    .execute(conn)
    .await?;
    Ok(())
}
