//! Follows the log for the catching-up projections: exactly once, one node at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ledger_events::{Position, ShardId};
use ledger_projections::deliveries;
use ledger_projections::listing::derive;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgPool};
use tokio_util::sync::CancellationToken;

use super::reader::{self, ReadError};
use super::{Ledger, connect};
use crate::telemetry::Metrics;

/// Events in one transaction.
const BATCH_EVENTS: i64 = 1_000;
/// So many new events are worth counting orders anew; fewer, once a while.
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

/// Runs the `deliveries` projection of every shard, and keeps the counts that lists are paged by.
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
            let (mut is_more, mut is_hindered) = (false, false);
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
                            is_more |= more;
                            counted.insert(shard, to);
                        }
                        Ok(derive::Step::Idle | derive::Step::Elsewhere) => {}
                        Err(error) => {
                            tracing::warn!(shard, %error, "the counts of lists could not go on; they will try again");
                            is_hindered = true;
                        }
                    }
                }
            }
            is_late = false;
            if is_more {
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

    /// Applies the next batch of events: rows and checkpoint in one transaction.
    pub async fn step(&self, shard: ShardId) -> Result<Step, ReadError> {
        let mut conn = self.pool.acquire().await?;
        let mut tx = conn.begin().await?;
        let held: Option<Position> = sqlx::query_scalar(
            "SELECT position FROM projection_checkpoints WHERE shard_id = $1 AND projection = $2 FOR UPDATE SKIP LOCKED",
        )
        .bind(shard)
        .bind(deliveries::NAME)
        .fetch_optional(&mut *tx)
        .await?;
        let Some(checkpoint) = held else {
            sqlx::query("INSERT INTO projection_checkpoints (shard_id, projection) VALUES ($1, $2) ON CONFLICT DO NOTHING")
                .bind(shard)
                .bind(deliveries::NAME)
                .execute(&mut *tx)
                .await?;
            tx.commit().await?;
            return Ok(Step::Elsewhere);
        };
        if self.plans.are_stale(checkpoint) {
            sqlx::raw_sql("DISCARD PLANS").execute(&mut *tx).await?;
        }
        let events = reader::after(&mut *tx, shard, checkpoint, BATCH_EVENTS).await?;
        let Some(last) = events.last() else { return Ok(Step::Idle) };
        let made = reader::fold_deliveries(&mut tx, shard, &events).await?;
        deliveries::write(&mut tx, shard, &made).await?;
        let to = last.moment.position;
        sqlx::query("UPDATE projection_checkpoints SET position = $3, updated_at = clock_timestamp() WHERE shard_id = $1 AND projection = $2")
            .bind(shard)
            .bind(deliveries::NAME)
            .bind(to)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        if made.due() > 0 {
            self.ledger.wake().made_deliveries();
        }
        self.metrics.projected(events.len());
        Ok(Step::Applied { to, is_more: i64::try_from(events.len()).is_ok_and(|n| n == BATCH_EVENTS) })
    }
}
