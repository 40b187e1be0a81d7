//! Backlog of the ledger: the lag of each projection behind the log, and the depth of the work queues.

use ledger_database::PgPool;
use ledger_events::{Position, ShardId};
use ledger_projections::{deliveries, totals};
use sqlx::FromRow;

/// Name of the transparency log's tree among the projections.
pub const TREE: &str = "transparency";

/// Upper limit for counting queues, so that counting stays cheap when queues are long.
pub const COUNTED: i64 = 100_000;

/// Backlog of a shard, over all nodes.
#[derive(Clone, Copy, Debug, PartialEq, FromRow)]
pub struct Backlog {
    pub shard_id: ShardId,
    /// Position of the log's head.
    pub head: Position,
    /// Seconds by which the last event's time is ahead of the database's clock. Normally 0.
    pub head_ahead: f64,
    /// Seconds by which the database's clock is ahead of the trusted time. A few, unless the clock has jumped.
    pub clock_ahead: f64,
    /// Number of orders that fulfilment has not queued yet, up to [`COUNTED`].
    pub unqueued: i64,
    /// Number of orders that wait for stock, up to [`COUNTED`].
    pub waiting: i64,
    /// Number of due deliveries that are not in flight: up to [`COUNTED`] first attempts plus up to [`COUNTED`] retries.
    pub due: i64,
    /// Whether a node refuses to sign the tree under the current origin.
    pub is_refused: bool,
}

/// Projections that follow the log.
const PROJECTIONS: [&str; 3] = [deliveries::NAME, totals::NAME, TREE];

/// Lag of a projection behind a shard's log.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct Lag {
    pub shard_id: ShardId,
    pub projection: String,
    /// Last position that the projection has processed.
    pub checkpoint: Position,
    /// Number of events that the projection has not processed.
    pub behind: i64,
    /// Age of the oldest unprocessed event, in seconds; 0 if there is none.
    pub oldest_seconds: f64,
}

/// Measures the lag of every projection of every shard in one statement that uses only indexes.
pub async fn lags(pool: &PgPool) -> Result<Vec<Lag>, sqlx::Error> {
    sqlx::query_as(
        "SELECT h.shard_id, p.projection, c.position AS checkpoint, greatest(h.position - c.position, 0) AS behind,
            coalesce((SELECT greatest(0, extract(epoch FROM clock_timestamp() - e.recorded_at)) FROM events e
                WHERE e.shard_id = h.shard_id AND e.position = c.position + 1), 0)::float8 AS oldest_seconds
         FROM log_head h CROSS JOIN unnest($1::text[]) AS p (projection)
         CROSS JOIN LATERAL (SELECT coalesce((SELECT position FROM projection_checkpoints c
            WHERE c.shard_id = h.shard_id AND c.projection = p.projection), 0) AS position) AS c
         ORDER BY h.shard_id, p.projection",
    )
    .bind(&PROJECTIONS[..])
    .fetch_all(pool)
    .await
}

/// Measures the backlog of every shard in one statement that uses only indexes.
pub async fn sample(pool: &PgPool) -> Result<Vec<Backlog>, sqlx::Error> {
    sqlx::query_as(
        "SELECT h.shard_id, h.position AS head,
            greatest(0, extract(epoch FROM h.recorded_at - clock_timestamp()))::float8 AS head_ahead,
            (SELECT greatest(0, extract(epoch FROM clock_timestamp() - c.trusted_at)) FROM trusted_clock c WHERE c.is_only)::float8 AS clock_ahead,
            (SELECT count(*) FROM (SELECT FROM orders o WHERE o.shard_id = h.shard_id AND NOT o.is_queued AND o.status = 'PENDING'
                LIMIT $1) AS unqueued) AS unqueued,
            (SELECT count(*) FROM (SELECT FROM orders o WHERE o.shard_id = h.shard_id AND o.is_queued
                AND o.status IN ('PENDING', 'DELAYED', 'PARTIALLY_DELIVERED') LIMIT $1) AS waiting) AS waiting,
            (SELECT count(*) FROM (SELECT FROM delivery_state s WHERE s.shard_id = h.shard_id AND s.status = 'pending' AND s.attempt_count = 0
                AND s.next_attempt_at <= clock_timestamp() AND coalesce(s.leased_until, '-infinity') < clock_timestamp() LIMIT $1) AS first)
            + (SELECT count(*) FROM (SELECT FROM delivery_state s WHERE s.shard_id = h.shard_id AND s.status = 'pending' AND s.attempt_count > 0
                AND s.next_attempt_at <= clock_timestamp() AND coalesce(s.leased_until, '-infinity') < clock_timestamp() LIMIT $1) AS further) AS due,
            EXISTS (SELECT FROM log_refusals r WHERE r.shard_id = h.shard_id AND r.withdrawn_at IS NULL
                AND r.origin = coalesce((SELECT c.origin FROM log_checkpoints c WHERE c.shard_id = h.shard_id
                    ORDER BY c.size DESC, c.signed_at DESC LIMIT 1), r.origin)) AS is_refused
         FROM log_head h ORDER BY h.shard_id",
    )
    .bind(COUNTED)
    .fetch_all(pool)
    .await
}
