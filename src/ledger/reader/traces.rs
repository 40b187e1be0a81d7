//! Traces that events belong to, for what follows from the events.

use std::collections::HashMap;
use std::hash::Hash;

use ledger_database::PgPool;
use ledger_events::{Position, ShardId};
use uuid::Uuid;

use crate::telemetry::traces::TraceParent;

/// Returns the places in their traces of those events that belong to one.
pub async fn traces_of(pool: &PgPool, shard: ShardId, events: &[Uuid]) -> Result<HashMap<Uuid, TraceParent>, sqlx::Error> {
    let rows = sqlx::query_as(
        "SELECT event_id, metadata->>'traceparent' FROM events
         WHERE shard_id = $1 AND event_id = ANY($2) AND metadata->>'traceparent' IS NOT NULL",
    );
    Ok(parsed(rows.bind(shard).bind(events).fetch_all(pool).await?))
}

/// Returns the places in their traces of those events at these positions that belong to one.
pub async fn traces_at(
    pool: &PgPool,
    shard: ShardId,
    positions: &[Position],
) -> Result<HashMap<Position, TraceParent>, sqlx::Error> {
    let rows = sqlx::query_as(
        "SELECT position, metadata->>'traceparent' FROM events
         WHERE shard_id = $1 AND position = ANY($2) AND metadata->>'traceparent' IS NOT NULL",
    );
    Ok(parsed(rows.bind(shard).bind(positions).fetch_all(pool).await?))
}

/// Parses the places. A malformed one, which only an import can bring, counts as none.
fn parsed<K: Eq + Hash>(rows: Vec<(K, String)>) -> HashMap<K, TraceParent> {
    rows.into_iter().filter_map(|(key, text)| Some((key, TraceParent::parse(&text)?))).collect()
}
