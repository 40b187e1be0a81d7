//! Ages of the oldest delivery data that retention has kept.

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use ledger_database::{FromRow, PgPool};
use ledger_events::ShardId;
use uuid::Uuid;

/// Precision of the search for the oldest payload. The envelopes of one such span are scanned.
const PRECISION: TimeDelta = TimeDelta::minutes(1);

/// Times of the oldest data of all shards; none if there is no such data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oldest {
    /// Time of an attempt of the oldest delivery with attempts.
    pub attempt: Option<DateTime<Utc>>,
    pub payload: Option<DateTime<Utc>>,
    /// Oldest day with counted attempts.
    pub day: Option<NaiveDate>,
}

/// An envelope, without its payload.
#[derive(Clone, Copy, Debug, FromRow)]
struct Envelope {
    created_at: DateTime<Utc>,
    has_payload: bool,
}

/// Returns the ages of the oldest data. It takes some steps of indexes, however much data there is.
///
/// # Errors
/// Any error of the database.
pub async fn oldest(pool: &PgPool, shards: &[ShardId]) -> Result<Oldest, sqlx::Error> {
    let (attempt, day) = sqlx::query_as(
        "SELECT (SELECT min(a.started_at) FROM unnest($1::smallint[]) AS s (shard_id) CROSS JOIN LATERAL
                (SELECT started_at FROM delivery_attempts WHERE shard_id = s.shard_id ORDER BY delivery_id, request_id LIMIT 1) AS a),
            (SELECT min(day) FROM delivery_days)",
    )
    .bind(shards)
    .fetch_one(pool)
    .await?;
    let mut oldest = Oldest { attempt, day, payload: None };
    for shard in shards {
        let payload = oldest_payload(pool, *shard).await?;
        oldest.payload = [oldest.payload, payload].into_iter().flatten().min();
    }
    Ok(oldest)
}

/// Finds the oldest payload of a shard. Retention deletes payloads in the order of their events, whose ids are ordered by
/// time. So this halves the time in which the first payload can be, instead of reading all envelopes without one.
///
/// An older event with a pending delivery keeps its payload longer, and is not found.
async fn oldest_payload(pool: &PgPool, shard: ShardId) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    let Some(first) = envelope_from(pool, shard, Uuid::nil()).await? else { return Ok(None) };
    if first.has_payload {
        return Ok(Some(first.created_at));
    }
    let (mut without, mut until) = (first.created_at, Utc::now());
    while until - without > PRECISION {
        let middle = without + (until - without) / 2;
        match envelope_from(pool, shard, id_at(middle)).await? {
            Some(envelope) if !envelope.has_payload => without = envelope.created_at.max(middle),
            _ => until = middle,
        }
    }
    sqlx::query_scalar(
        "SELECT created_at FROM webhook_envelopes WHERE shard_id = $1 AND event_id >= $2 AND payload IS NOT NULL
         ORDER BY event_id LIMIT 1",
    )
    .bind(shard)
    .bind(id_at(without))
    .fetch_optional(pool)
    .await
}

async fn envelope_from(pool: &PgPool, shard: ShardId, event_id: Uuid) -> Result<Option<Envelope>, sqlx::Error> {
    sqlx::query_as(
        "SELECT created_at, payload IS NOT NULL AS has_payload FROM webhook_envelopes WHERE shard_id = $1 AND event_id >= $2
         ORDER BY event_id LIMIT 1",
    )
    .bind(shard)
    .bind(event_id)
    .fetch_optional(pool)
    .await
}

/// Returns the smallest id of an event that was recorded at this time.
fn id_at(at: DateTime<Utc>) -> Uuid {
    uuid::Builder::from_unix_timestamp_millis(at.timestamp_millis().unsigned_abs(), &[0; 10]).into_uuid()
}
