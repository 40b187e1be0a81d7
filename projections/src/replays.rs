//! `webhook_replays`: the progress of every replay, written inline.

use std::collections::{HashMap, HashSet};

use ledger_database::FromRow;
use ledger_database::{PgConnection, PgPool};
use ledger_events::replay::{Replay, ReplayKind, ReplayStatus, evolve};
use ledger_events::webhook::WebhookEventType;
use ledger_events::{AccountId, Event, Recorded, ReplayId, ShardId, WebhookId};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row};

use crate::page::{self, Listed, Page};
use crate::{ProjectionError, known};

/// The columns of [`ReplayRow`], as a literal for `concat!`.
macro_rules! replay_columns {
    () => {
        "id, version, account_id, webhook_id, kind, events, per_second, status, from_position,
         next_position, until_position, deliveries, created_at, updated_at"
    };
}

pub async fn load(conn: &mut PgConnection, shard: ShardId, ids: &[ReplayId]) -> Result<Vec<Replay>, sqlx::Error> {
    let rows: Vec<ReplayRow> = sqlx::query_as(concat!(
        "SELECT ",
        replay_columns!(),
        " FROM unnest($2::bigint[]) AS wanted (wanted_id) JOIN webhook_replays ON shard_id = $1 AND id = wanted_id"
    ))
    .bind(shard)
    .bind(ids)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.0).collect())
}

/// Loads the running replays of these accounts' webhooks.
pub async fn load_running(conn: &mut PgConnection, shard: ShardId, accounts: &[AccountId]) -> Result<Vec<Replay>, sqlx::Error> {
    let rows: Vec<ReplayRow> = sqlx::query_as(concat!(
        "SELECT ",
        replay_columns!(),
        " FROM webhook_replays WHERE shard_id = $1 AND status = 'RUNNING' AND account_id = ANY ($2)"
    ))
    .bind(shard)
    .bind(accounts)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.0).collect())
}

/// Lists the replays whose next step is due. The first step is due at once, and each later one a second after the
/// last.
pub async fn due(pool: &PgPool, shard: ShardId) -> Result<Vec<Replay>, sqlx::Error> {
    let rows: Vec<ReplayRow> = sqlx::query_as(concat!(
        "SELECT ",
        replay_columns!(),
        " FROM webhook_replays WHERE shard_id = $1 AND status = 'RUNNING'
            AND (version = 1 OR updated_at <= clock_timestamp() - interval '1 second') ORDER BY id"
    ))
    .bind(shard)
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|row| row.0).collect())
}

/// Writes replays as rows: inserts new ones, and replaces known ones.
pub async fn write(conn: &mut PgConnection, shard: ShardId, replays: &[&Replay]) -> Result<(), ProjectionError> {
    // One statement per replay: arrays of arrays must be rectangular, and a replay advances once a second.
    for replay in replays {
        sqlx::query(
            "INSERT INTO webhook_replays (shard_id, id, version, account_id, webhook_id, kind, events, per_second, status,
                from_position, next_position, until_position, deliveries, created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
             ON CONFLICT (shard_id, id) DO UPDATE SET version = excluded.version, status = excluded.status,
                next_position = excluded.next_position, deliveries = excluded.deliveries, updated_at = excluded.updated_at",
        )
        .bind(shard)
        .bind(replay.id)
        .bind(replay.version)
        .bind(replay.account_id)
        .bind(replay.webhook_id)
        .bind(replay.kind.as_str())
        .bind(replay.events.iter().map(|e| e.as_str()).collect::<Vec<_>>())
        .bind(replay.per_second)
        .bind(replay.status.as_str())
        .bind(replay.from)
        .bind(replay.next)
        .bind(replay.until)
        .bind(replay.deliveries)
        .bind(replay.created_at)
        .bind(replay.updated_at)
        .execute(&mut *conn)
        .await?;
    }
    Ok(())
}

/// Folds the next events of the log into the table.
pub async fn apply(conn: &mut PgConnection, shard: ShardId, events: &[Recorded]) -> Result<(), ProjectionError> {
    let ids: HashSet<ReplayId> = events.iter().filter(|r| matches!(r.event, Event::Replay(_))).map(|r| r.stream_id).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let ids: Vec<ReplayId> = ids.into_iter().collect();
    let mut replays: HashMap<ReplayId, Replay> = load(conn, shard, &ids).await?.into_iter().map(|r| (r.id, r)).collect();
    for recorded in events {
        fold(&mut replays, recorded);
    }
    write(conn, shard, &replays.values().collect::<Vec<_>>()).await
}

/// Folds one event into a map of replays.
pub fn fold(replays: &mut HashMap<ReplayId, Replay>, recorded: &Recorded) {
    if let Event::Replay(event) = &recorded.event {
        let before = replays.remove(&recorded.stream_id);
        if let Some(after) = evolve(before, recorded.stream_id, event, &recorded.moment) {
            replays.insert(recorded.stream_id, after);
        }
    }
}

struct ReplayRow(Replay);

impl FromRow<'_, PgRow> for ReplayRow {
    fn from_row(row: &PgRow) -> Result<ReplayRow, sqlx::Error> {
        let (kind, status): (&str, &str) = (row.try_get("kind")?, row.try_get("status")?);
        let events: Vec<String> = row.try_get("events")?;
        Ok(ReplayRow(Replay {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            account_id: row.try_get("account_id")?,
            webhook_id: row.try_get("webhook_id")?,
            kind: known(ReplayKind::parse(kind), kind)?,
            events: events.iter().map(|text| known(WebhookEventType::parse(text), text)).collect::<Result<_, _>>()?,
            per_second: row.try_get("per_second")?,
            status: known(ReplayStatus::parse(status), status)?,
            from: row.try_get("from_position")?,
            next: row.try_get("next_position")?,
            until: row.try_get("until_position")?,
            deliveries: row.try_get("deliveries")?,
            created_at: row.try_get("created_at")?,
            updated_at: row.try_get("updated_at")?,
        }))
    }
}

/// Finds a replay in these shards, and its shard.
pub async fn find(pool: &PgPool, shards: &[ShardId], id: ReplayId) -> Result<Option<(ShardId, Replay)>, sqlx::Error> {
    let row: Option<PgRow> = sqlx::query(concat!(
        "SELECT shard_id, ",
        replay_columns!(),
        " FROM webhook_replays WHERE shard_id = ANY($1) AND id = $2"
    ))
    .bind(shards)
    .bind(id)
    .fetch_optional(pool)
    .await?;
    row.map(|row| Ok((row.try_get("shard_id")?, ReplayRow::from_row(&row)?.0))).transpose()
}

/// Lists one page of a webhook's replays, newest first.
pub async fn list(pool: &PgPool, shard: ShardId, webhook: WebhookId, page: Page) -> Result<Listed<Replay>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM webhook_replays WHERE shard_id = ").push_bind(shard);
        page::equals(query, "webhook_id", Some(webhook));
    };
    let listed: Listed<ReplayRow> = page::fetch(pool, replay_columns!(), conditions, "id", page).await?;
    Ok(listed.map(|row| row.0))
}

/// Number of a replay's deliveries in each status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub pending: i64,
    pub delivered: i64,
    pub failed: i64,
}

/// Counts the outcomes of these replays. Skips replays without deliveries.
pub async fn outcomes(pool: &PgPool, shard: ShardId, ids: &[ReplayId]) -> Result<HashMap<ReplayId, Outcome>, sqlx::Error> {
    let rows: Vec<(ReplayId, i64, i64, i64)> = sqlx::query_as(
        "SELECT d.replay_id, count(*) FILTER (WHERE s.status = 'pending'), count(*) FILTER (WHERE s.status = 'delivered'),
            count(*) FILTER (WHERE s.status = 'failed')
         FROM deliveries d JOIN delivery_state s ON s.shard_id = d.shard_id AND s.delivery_id = d.id
         WHERE d.shard_id = $1 AND d.replay_id = ANY($2) AND d.replay_id > 0 GROUP BY d.replay_id",
    )
    .bind(shard)
    .bind(ids)
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|(id, pending, delivered, failed)| (id, Outcome { pending, delivered, failed })).collect())
}
