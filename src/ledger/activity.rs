//! Activity of all nodes, as far as the database knows it.

use chrono::{DateTime, Utc};
use ledger_database::FromRow;
use ledger_events::ShardId;
use sqlx::PgExecutor;

/// Connections of one task of the nodes, or of a command. A node has one connection for each of its tasks, except for those
/// that read.
#[derive(Clone, Debug, FromRow)]
pub struct Connected {
    /// Name of the task, such as `rewards-ledger writer`.
    pub name: String,
    /// Number of connections over all nodes.
    pub connections: i64,
}

/// Counts the connections of the nodes and commands to this database.
///
/// # Errors
/// Any error of the database.
pub async fn connected(db: impl PgExecutor<'_>) -> Result<Vec<Connected>, sqlx::Error> {
    // The role of a node sees the names of other roles' connections, but not their addresses.
    sqlx::query_as(
        "SELECT application_name AS name, count(*) AS connections FROM pg_stat_activity
         WHERE datname = current_database() AND application_name LIKE 'rewards-ledger%' GROUP BY application_name ORDER BY application_name",
    )
    .fetch_all(db)
    .await
}

/// Latest progress in a shard, whichever node made it.
#[derive(Clone, Copy, Debug, FromRow)]
pub struct Progress {
    pub shard_id: ShardId,
    /// Time by the database's clock.
    pub now: DateTime<Utc>,
    /// Time of the last event; the epoch without any.
    pub appended_at: DateTime<Utc>,
    /// Time of the last signed checkpoint.
    pub signed_at: Option<DateTime<Utc>>,
    /// Time at which the oldest order was placed that fulfilment has not taken up.
    pub unqueued_since: Option<DateTime<Utc>>,
    /// Latest time at which a projection that follows the log has advanced.
    pub projected_at: Option<DateTime<Utc>>,
}

impl Progress {
    /// Returns the age of the oldest order that fulfilment has not taken up, in seconds; 0 if there is none.
    pub fn unqueued_seconds(&self) -> f64 {
        self.unqueued_since.map_or(0.0, |since| (self.now - since).as_seconds_f64().max(0.0))
    }
}

/// Returns the latest progress in every shard.
///
/// # Errors
/// Any error of the database.
pub async fn progress(db: impl PgExecutor<'_>) -> Result<Vec<Progress>, sqlx::Error> {
    sqlx::query_as(
        "SELECT h.shard_id, clock_timestamp() AS now, h.recorded_at AS appended_at,
            (SELECT c.signed_at FROM log_checkpoints c WHERE c.shard_id = h.shard_id ORDER BY c.size DESC, c.signed_at DESC LIMIT 1) AS signed_at,
            (SELECT o.created_at FROM orders o WHERE o.shard_id = h.shard_id AND NOT o.is_queued AND o.status = 'PENDING'
                ORDER BY o.placed_position LIMIT 1) AS unqueued_since,
            (SELECT max(p.updated_at) FROM projection_checkpoints p WHERE p.shard_id = h.shard_id) AS projected_at
         FROM log_head h ORDER BY h.shard_id",
    )
    .fetch_all(db)
    .await
}

/// A node that signs the transparency log.
#[derive(Clone, Debug, FromRow)]
pub struct SigningNode {
    pub shard_id: ShardId,
    pub host: String,
    /// Time at which the node last compared its memory with the database server.
    pub compared_at: DateTime<Utc>,
    /// Reason why the node refuses to sign, if it does.
    pub refusal: Option<String>,
}

/// Returns the nodes that sign the transparency log.
///
/// # Errors
/// Any error of the database.
pub async fn signing_nodes(db: impl PgExecutor<'_>) -> Result<Vec<SigningNode>, sqlx::Error> {
    sqlx::query_as(
        "SELECT s.shard_id, s.host, s.compared_at,
            (SELECT min(r.reason) FROM log_refusals r WHERE r.shard_id = s.shard_id AND r.node = s.node AND r.withdrawn_at IS NULL
                AND NOT EXISTS (SELECT FROM events e WHERE e.shard_id = r.shard_id AND e.stream_type = 'log' AND e.stream_id = r.shard_id
                    AND e.type = 'LogIncidentRecorded' AND (e.position > r.head OR e.data ->> 'origin' = r.origin))) AS refusal
         FROM log_signers s ORDER BY s.shard_id, s.host, s.compared_at",
    )
    .fetch_all(db)
    .await
}
