//! Backlog of the ledger: the lag of each projection behind the log, and the depth of the work queues.

use ledger_database::PgPool;
use ledger_projections::{deliveries, stock, totals};
use sqlx::PgExecutor;

use crate::telemetry::{Backlog, Lag, Sample, SupplierBacklog};

/// Name of the transparency log's tree among the projections.
pub const TREE: &str = "transparency";

/// Upper limit for counting queues in the metrics, so that counting stays cheap when queues are long.
const COUNTED: i64 = 100_000;

/// Projections that follow the log.
const PROJECTIONS: [&str; 4] = [deliveries::NAME, totals::NAME, stock::NAME, TREE];

/// Measures the lag of every projection of every shard in one statement that uses only indexes.
pub async fn lags(db: impl PgExecutor<'_>) -> Result<Vec<Lag>, sqlx::Error> {
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
    .fetch_all(db)
    .await
}

/// Measures the backlog of every shard in one statement that uses only indexes. Counts no queue further than `counted`.
pub async fn sample(db: impl PgExecutor<'_>, counted: i64) -> Result<Vec<Backlog>, sqlx::Error> {
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
                AND NOT EXISTS (SELECT FROM events e WHERE e.shard_id = r.shard_id AND e.stream_type = 'log' AND e.stream_id = r.shard_id
                    AND e.type = 'LogIncidentRecorded' AND (e.position > r.head OR e.data ->> 'origin' = r.origin))) AS is_refused
         FROM log_head h ORDER BY h.shard_id",
    )
    .bind(counted)
    .fetch_all(db)
    .await
}

/// Measures the open purchases, the failures and the circuit breaker of every supplier, over all shards. Open purchases are few, and
/// have an index of their own.
pub async fn suppliers(db: impl PgExecutor<'_>) -> Result<Vec<SupplierBacklog>, sqlx::Error> {
    sqlx::query_as(
        "SELECT coalesce(s.supplier, p.supplier) AS supplier, coalesce(p.open, 0) AS open,
            coalesce(p.oldest_seconds, 0)::float8 AS oldest_seconds, coalesce(s.failures, 0) AS failures,
            coalesce(s.open_until > clock_timestamp(), false) AS is_broken
         FROM supplier_calls s FULL JOIN (
            SELECT supplier, count(*) AS open, greatest(0, extract(epoch FROM clock_timestamp() - min(requested_at))) AS oldest_seconds
            FROM purchases WHERE status IN ('REQUESTED', 'PENDING') GROUP BY supplier) AS p ON p.supplier = s.supplier
         ORDER BY 1",
    )
    .fetch_all(db)
    .await
}

/// Queries the backlog and the lags of every shard, and the suppliers, for [`crate::telemetry::Metrics::scrape`].
pub async fn query(pool: &PgPool) -> Result<Sample, sqlx::Error> {
    Ok(Sample { backlogs: sample(pool, COUNTED).await?, lags: lags(pool).await?, suppliers: suppliers(pool).await? })
}
