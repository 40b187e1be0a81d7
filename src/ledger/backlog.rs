//! What waits: how far the followers of the log are behind, and how deep their queues are.

use ledger_events::{Position, ShardId};
use ledger_projections::deliveries;
use sqlx::{FromRow, PgPool};

/// The tree of the transparency log among the projections.
pub const TREE: &str = "transparency";

/// Queues are counted up to here, so that looking costs no more when they are longest.
pub const COUNTED: i64 = 100_000;

/// What waits in a shard, over all nodes.
#[derive(Clone, Copy, Debug, PartialEq, FromRow)]
pub struct Backlog {
    pub shard_id: ShardId,
    /// Where the log ends.
    pub head: Position,
    /// Up to where the deliveries are projected.
    pub checkpoint: Position,
    /// How long the oldest event that is not projected has been in the log, in seconds; 0 with none.
    pub oldest_seconds: f64,
    /// How many events are in the tree of the transparency log.
    pub tree_size: Position,
    /// How long the oldest event that is not in the tree has been in the log, in seconds; 0 with none.
    pub tree_oldest_seconds: f64,
    /// Orders that fulfilment has not taken up, up to [`COUNTED`].
    pub unqueued: i64,
    /// Orders that wait for stock, up to [`COUNTED`].
    pub waiting: i64,
    /// Deliveries that are due and not in flight, up to [`COUNTED`] first and [`COUNTED`] further attempts.
    pub due: i64,
}

/// Looks at every shard in one statement, by indexes.
pub async fn sample(pool: &PgPool) -> Result<Vec<Backlog>, sqlx::Error> {
    sqlx::query_as(
        "SELECT h.shard_id, h.position AS head, c.position AS checkpoint,
            coalesce((SELECT greatest(0, extract(epoch FROM clock_timestamp() - e.recorded_at)) FROM events e
                WHERE e.shard_id = h.shard_id AND e.position = c.position + 1), 0)::float8 AS oldest_seconds,
            t.position AS tree_size,
            coalesce((SELECT greatest(0, extract(epoch FROM clock_timestamp() - e.recorded_at)) FROM events e
                WHERE e.shard_id = h.shard_id AND e.position = t.position + 1), 0)::float8 AS tree_oldest_seconds,
            (SELECT count(*) FROM (SELECT FROM orders o WHERE o.shard_id = h.shard_id AND NOT o.is_queued AND o.status = 'PENDING'
                LIMIT $2) AS unqueued) AS unqueued,
            (SELECT count(*) FROM (SELECT FROM orders o WHERE o.shard_id = h.shard_id AND o.is_queued
                AND o.status IN ('PENDING', 'DELAYED', 'PARTIALLY_DELIVERED') LIMIT $2) AS waiting) AS waiting,
            (SELECT count(*) FROM (SELECT FROM delivery_state s WHERE s.shard_id = h.shard_id AND s.status = 'pending' AND s.attempt_count = 0
                AND s.next_attempt_at <= clock_timestamp() AND coalesce(s.leased_until, '-infinity') < clock_timestamp() LIMIT $2) AS first)
            + (SELECT count(*) FROM (SELECT FROM delivery_state s WHERE s.shard_id = h.shard_id AND s.status = 'pending' AND s.attempt_count > 0
                AND s.next_attempt_at <= clock_timestamp() AND coalesce(s.leased_until, '-infinity') < clock_timestamp() LIMIT $2) AS further) AS due
         FROM log_head h
         CROSS JOIN LATERAL (SELECT coalesce((SELECT position FROM projection_checkpoints p
            WHERE p.shard_id = h.shard_id AND p.projection = $1), 0) AS position) AS c
         CROSS JOIN LATERAL (SELECT coalesce((SELECT position FROM projection_checkpoints p
            WHERE p.shard_id = h.shard_id AND p.projection = $3), 0) AS position) AS t
         ORDER BY h.shard_id",
    )
    .bind(deliveries::NAME)
    .bind(COUNTED)
    .bind(TREE)
    .fetch_all(pool)
    .await
}
