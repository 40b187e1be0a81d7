//! Reads the log in pages by position, with short statements and never under a long snapshot.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgConnection, PgPool, Replannable, is_plan_outdated, replanned};
use ledger_events::webhook::WebhookEvent;
use ledger_events::{
    AccountId, CodecError, Event, Metadata, Moment, Position, Recorded, ReplayId, ShardId, StreamType, WebhookId,
};
use ledger_projections::ProjectionError;
use ledger_projections::deliveries::Retry;
use serde::{Deserialize, Serialize};
use sqlx::PgExecutor;
use transparency_log::leaf::Leaf;
use uuid::Uuid;

mod account;
mod announced;
pub mod audit;
pub mod erasures;
mod lists;
mod money;
mod queue;
mod states;
mod traces;

pub use account::{money_positions, movement_positions};
pub use announced::{Announced, SEGMENT, announced, announced_to};
pub use lists::{list_orders, list_orders_by, list_transactions, order_moves, orders_by_status, readable_order_moves};
pub use money::{
    arrivals_after, balance_events, money_events, movements, moves_after, requiring_movements, stock_events, wallet_events,
    wallets_before, wallets_between,
};
pub use queue::{SeenHead, unqueued};
pub use states::{fold_deliveries, fold_stock, orders_before, past, payouts_before};
pub use traces::{traces_at, traces_of};

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("position {position}: {source}")]
    Codec { position: Position, source: CodecError },
    #[error("position {position}: the metadata is not readable: {source}")]
    Metadata { position: Position, source: serde_json::Error },
    #[error(transparent)]
    Projection(#[from] ProjectionError),
}

impl Replannable for ReadError {
    fn is_plan_outdated(&self) -> bool {
        matches!(self, Self::Database(error) | Self::Projection(ProjectionError::Database(error)) if is_plan_outdated(error))
    }
}

/// An event as the log stores it, with the exact bytes of its JSON.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Stored {
    pub shard_id: ShardId,
    pub position: Position,
    pub event_id: Uuid,
    pub stream_type: String,
    pub stream_id: i64,
    pub version: i64,
    #[sqlx(rename = "type")]
    pub event_type: String,
    pub schema_version: i16,
    pub data: String,
    pub metadata: String,
    pub recorded_at: DateTime<Utc>,
}

impl From<Leaf<'_>> for Stored {
    fn from(leaf: Leaf<'_>) -> Stored {
        Stored {
            shard_id: leaf.shard_id,
            position: leaf.position,
            event_id: leaf.event_id,
            stream_type: leaf.stream_type.to_owned(),
            stream_id: leaf.stream_id,
            version: leaf.version,
            event_type: leaf.event_type.to_owned(),
            schema_version: leaf.schema_version,
            data: leaf.data.to_owned(),
            metadata: leaf.metadata.to_owned(),
            recorded_at: leaf.recorded_at,
        }
    }
}

impl Stored {
    /// Returns the leaf of the transparency log, which commits to all columns.
    pub fn leaf(&self) -> Leaf<'_> {
        Leaf {
            shard_id: self.shard_id,
            position: self.position,
            event_id: self.event_id,
            stream_type: &self.stream_type,
            stream_id: self.stream_id,
            version: self.version,
            event_type: &self.event_type,
            schema_version: self.schema_version,
            data: &self.data,
            metadata: &self.metadata,
            recorded_at: self.recorded_at,
        }
    }

    /// Decodes the event. Returns an error with the position if this program cannot read it.
    pub fn decode(&self) -> Result<Recorded, ReadError> {
        let codec = |source| ReadError::Codec { position: self.position, source };
        let stream_type: StreamType = self.stream_type.parse().map_err(codec)?;
        Ok(Recorded {
            shard_id: self.shard_id,
            moment: Moment {
                position: self.position,
                event_id: self.event_id,
                version: self.version,
                recorded_at: self.recorded_at,
            },
            stream_type,
            stream_id: self.stream_id,
            event: Event::read(stream_type, &self.event_type, self.schema_version, &self.data).map_err(codec)?,
            metadata: serde_json::from_str::<Metadata>(&self.metadata)
                .map_err(|source| ReadError::Metadata { position: self.position, source })?,
        })
    }
}

/// SELECT of all columns of [`Stored`], followed by the given rest of the statement.
macro_rules! select_events {
    ($rest:literal) => {
        concat!(
            "SELECT shard_id, position, event_id, stream_type, stream_id, version, type, schema_version,
                data::text AS data, metadata::text AS metadata, recorded_at FROM events ",
            $rest
        )
    };
}
use select_events;

/// Returns the events after a position, in order, as stored. Positions are gapless and in commit order, so a reader that
/// continues from the last position that it saw misses nothing.
pub async fn stored_after(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    after: Position,
    limit: i64,
) -> Result<Vec<Stored>, sqlx::Error> {
    sqlx::query_as(select_events!("WHERE shard_id = $1 AND position > $2 ORDER BY position LIMIT $3"))
        .bind(shard)
        .bind(after)
        .bind(limit)
        .fetch_all(db)
        .await
}

/// Filter by account and by event types. The default passes all events. An event belongs to the account that its metadata
/// names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    pub account_id: Option<AccountId>,
    pub types: Vec<String>,
}

impl Filter {
    pub fn is_everything(&self) -> bool {
        *self == Filter::default()
    }
}

/// Returns the events between two positions that pass a filter, as stored. Reads all events of the range, so the caller
/// keeps the range short.
pub async fn matching(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    (after, upto): (Position, Position),
    filter: &Filter,
) -> Result<Vec<Stored>, sqlx::Error> {
    sqlx::query_as(select_events!(
        "WHERE shard_id = $1 AND position > $2 AND position <= $3 AND ($4::bigint IS NULL OR (metadata->>'account_id')::bigint = $4)
            AND (cardinality($5::text[]) = 0 OR type = ANY($5)) ORDER BY position"
    ))
    .bind(shard)
    .bind(after)
    .bind(upto)
    .bind(filter.account_id)
    .bind(&filter.types)
    .fetch_all(db)
    .await
}

/// Returns at most `limit` events of one stream that pass a filter. Versions of a stream are in the order of positions.
pub async fn matching_of_stream(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    (stream_type, stream_id): (&str, i64),
    (after, upto): (Position, Position),
    filter: &Filter,
    limit: i64,
) -> Result<Vec<Stored>, sqlx::Error> {
    sqlx::query_as(select_events!(
        "WHERE shard_id = $1 AND stream_type = $2 AND stream_id = $3 AND position > $4 AND position <= $5
            AND ($6::bigint IS NULL OR (metadata->>'account_id')::bigint = $6) AND (cardinality($7::text[]) = 0 OR type = ANY($7))
         ORDER BY version LIMIT $8"
    ))
    .bind(shard)
    .bind(stream_type)
    .bind(stream_id)
    .bind(after)
    .bind(upto)
    .bind(filter.account_id)
    .bind(&filter.types)
    .bind(limit)
    .fetch_all(db)
    .await
}

/// Returns the result of [`stored_after`], decoded.
pub async fn after(db: impl PgExecutor<'_>, shard: ShardId, after: Position, limit: i64) -> Result<Vec<Recorded>, ReadError> {
    stored_after(db, shard, after, limit).await?.iter().map(Stored::decode).collect()
}

/// Returns the events of one stream after a version and up to another one, in order, as stored.
pub async fn stream_after(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    stream_type: &str,
    stream_id: i64,
    after: i64,
    upto: i64,
    limit: i64,
) -> Result<Vec<Stored>, sqlx::Error> {
    sqlx::query_as(select_events!(
        "WHERE shard_id = $1 AND stream_type = $2 AND stream_id = $3 AND version > $4 AND version <= $5 ORDER BY version LIMIT $6"
    ))
    .bind(shard)
    .bind(stream_type)
    .bind(stream_id)
    .bind(after)
    .bind(upto)
    .bind(limit)
    .fetch_all(db)
    .await
}

/// Returns the events of a webhook after a version.
pub async fn webhook_events_after(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    id: WebhookId,
    version: i64,
) -> Result<Vec<WebhookEvent>, sqlx::Error> {
    let mut events = vec![];
    for stored in stream_after(db, shard, "webhook", id.0, version, i64::MAX, i64::MAX).await? {
        let recorded = stored.decode().map_err(|error| sqlx::Error::Decode(error.into()))?;
        if let Event::Webhook(event) = recorded.event {
            events.push(event);
        }
    }
    Ok(events)
}

/// Returns the requested retries of an account's deliveries that the deliveries projection has not processed yet, each
/// with its delivery's natural key. Excludes retries whose webhook was deactivated later, because their deliveries fail
/// again.
///
/// Read these before the deliveries: then every retry that was accepted before is either in this list, or already
/// processed.
pub async fn retries_ahead(db: impl PgExecutor<'_>, shard: ShardId, account: AccountId) -> Result<Vec<Retry>, ReadError> {
    let events: Vec<Stored> = sqlx::query_as(select_events!(
        "WHERE shard_id = $1 AND position = ANY (ARRAY (
            SELECT e.position FROM webhook_audience a
            JOIN webhooks w ON w.shard_id = $1 AND w.id = a.webhook_id AND w.version > a.version
            JOIN events e ON e.shard_id = $1 AND e.stream_type = 'webhook' AND e.stream_id = a.webhook_id AND e.version > a.version
                AND e.type IN ('DeliveryRetryRequested', 'WebhookUpdated', 'WebhookDeleted')
            WHERE a.shard_id = $1 AND a.account_id = $2)) ORDER BY position"
    ))
    .bind(shard)
    .bind(account)
    .fetch_all(db)
    .await?;
    let mut retries: Vec<Retry> = vec![];
    for recorded in events.iter().map(Stored::decode) {
        let recorded = recorded?;
        let webhook_id = WebhookId(recorded.stream_id);
        match recorded.event {
            Event::Webhook(WebhookEvent::DeliveryRetryRequested(e)) => {
                let requested_at = recorded.moment.recorded_at;
                retries.push(Retry { webhook_id, event_id: e.event_id, replay_id: e.replay_id, requested_at });
            }
            Event::Webhook(WebhookEvent::WebhookUpdated(e)) if e.is_active != Some(false) => {}
            _ => retries.retain(|retry| retry.webhook_id != webhook_id),
        }
    }
    Ok(retries)
}

/// Returns the events of one stream with these versions, in order, as stored.
pub async fn stream_versions(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    stream_type: &str,
    stream_id: i64,
    versions: &[i64],
) -> Result<Vec<Stored>, sqlx::Error> {
    // `version = ANY($4)` would become a filter in a generic plan, which reads the whole stream in the order of the index.
    sqlx::query_as(concat!(
        "SELECT found.* FROM unnest($4::bigint[]) AS wanted (version) CROSS JOIN LATERAL (",
        select_events!("WHERE shard_id = $1 AND stream_type = $2 AND stream_id = $3 AND version = wanted.version LIMIT 1"),
        ") AS found ORDER BY found.version"
    ))
    .bind(shard)
    .bind(stream_type)
    .bind(stream_id)
    .bind(versions)
    .fetch_all(db)
    .await
}

/// Returns the events at these positions, in order, as stored.
pub async fn stored_at(db: impl PgExecutor<'_>, shard: ShardId, positions: &[Position]) -> Result<Vec<Stored>, sqlx::Error> {
    sqlx::query_as(select_events!("WHERE shard_id = $1 AND position = ANY($2) ORDER BY position"))
        .bind(shard)
        .bind(positions)
        .fetch_all(db)
        .await
}

/// Returns the events between two positions that request a retry of one of these events' deliveries to these webhooks.
/// Returns at most `limit`, the oldest first.
pub async fn retries_of(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    webhooks: &[WebhookId],
    events: &[Uuid],
    (after, upto): (Position, Position),
    limit: i64,
) -> Result<Vec<Stored>, sqlx::Error> {
    sqlx::query_as(select_events!(
        "WHERE shard_id = $1 AND stream_type = 'webhook' AND stream_id = ANY($2) AND type = 'DeliveryRetryRequested'
            AND (data->>'event_id')::uuid = ANY($3) AND position > $4 AND position <= $5 ORDER BY position LIMIT $6"
    ))
    .bind(shard)
    .bind(webhooks)
    .bind(events)
    .bind(after)
    .bind(upto)
    .bind(limit)
    .fetch_all(db)
    .await
}

/// Returns the position of the head of a shard's log.
pub async fn head(db: impl PgExecutor<'_>, shard: ShardId) -> Result<Position, sqlx::Error> {
    sqlx::query_scalar("SELECT position FROM log_head WHERE shard_id = $1").bind(shard).fetch_one(db).await
}

/// Returns the version of a stream's last event, or 0 for an empty stream.
pub async fn last_version(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    stream_type: &str,
    stream_id: i64,
) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("SELECT coalesce(max(version), 0) FROM events WHERE shard_id = $1 AND stream_type = $2 AND stream_id = $3")
        .bind(shard)
        .bind(stream_type)
        .bind(stream_id)
        .fetch_one(db)
        .await
}

/// Returns the ids of each replay's first and last event.
pub async fn replay_stories(
    conn: &mut PgConnection,
    shard: ShardId,
    replays: &[ReplayId],
) -> Result<HashMap<ReplayId, (Uuid, Uuid)>, sqlx::Error> {
    let rows: Vec<(ReplayId, Uuid, Uuid)> = sqlx::query_as(
        "SELECT r.id, first.event_id, last.event_id FROM unnest($2::bigint[]) AS r (id)
         JOIN events first ON first.shard_id = $1 AND first.stream_type = 'replay' AND first.stream_id = r.id AND first.version = 1
         CROSS JOIN LATERAL (SELECT event_id FROM events e WHERE e.shard_id = $1 AND e.stream_type = 'replay' AND e.stream_id = r.id
            ORDER BY e.version DESC LIMIT 1) AS last",
    )
    .bind(shard)
    .bind(replays)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|(id, first, last)| (id, (first, last))).collect())
}

/// Returns the position of the first event that was recorded at or after a time, or the position after the head if there
/// is none.
pub async fn position_at(pool: &PgPool, shard: ShardId, time: DateTime<Utc>) -> Result<Position, sqlx::Error> {
    let find = async || {
        let mut conn = pool.acquire().await?;
        let head = head(&mut *conn, shard).await?;
        first_at(&mut conn, shard, time, head).await
    };
    replanned(find).await
}

/// Returns the position of the first event at or after a time, like [`first_at_each`].
pub async fn first_at(
    conn: &mut PgConnection,
    shard: ShardId,
    time: DateTime<Utc>,
    head: Position,
) -> Result<Position, sqlx::Error> {
    let positions = first_at_each(conn, shard, &[time], head).await?;
    positions.first().copied().ok_or(sqlx::Error::RowNotFound)
}

/// Returns the position of the first event at or after each of these times, in a log that ends at `head`. Times never decrease
/// with position, so a bisection reads few events. It is one statement, however long the log is. If positions are missing, the
/// next existing one is used.
pub async fn first_at_each(
    conn: &mut PgConnection,
    shard: ShardId,
    times: &[DateTime<Utc>],
    head: Position,
) -> Result<Vec<Position>, sqlx::Error> {
    sqlx::query_scalar(
        "WITH RECURSIVE search (nr, time, low, high) AS (
            SELECT nr, time, 1::bigint, $3::bigint + 1 FROM unnest($2::timestamptz[]) WITH ORDINALITY AS wanted (time, nr)
            UNION ALL
            SELECT nr, time, CASE WHEN is_before THEN found + 1 ELSE low END, CASE WHEN is_before THEN high ELSE middle END
            FROM (SELECT nr, time, low, high, middle, next.position AS found,
                    coalesce(next.recorded_at < time AND next.position < high, false) AS is_before
                  FROM (SELECT nr, time, low, high, low + (high - low) / 2 AS middle FROM search WHERE low < high) AS half
                  LEFT JOIN LATERAL (SELECT e.position, e.recorded_at FROM events e WHERE e.shard_id = $1 AND e.position >= half.middle
                    ORDER BY e.position LIMIT 1) AS next ON true) AS step
         )
         SELECT low FROM search WHERE low >= high ORDER BY nr",
    )
    .bind(shard)
    .bind(times)
    .bind(head)
    .fetch_all(conn)
    .await
}
