//! `webhook_replays`: the progress of every replay, written inline.

use std::collections::HashMap;

use ledger_database::{PgConnection, PgPool};
use ledger_events::replay::{Replay, ReplayEvent, ReplayKind, ReplayStatus, evolve};
use ledger_events::webhook::WebhookEventType;
use ledger_events::{AccountId, Id, ReplayId, ShardId, WebhookId};
use sqlx::postgres::PgRow;
use sqlx::{PgExecutor, Postgres, QueryBuilder, Row as _};

use crate::page::{self, Listed, Page};
use crate::state::{Row, State, Upsert, all, first, select, state};
use crate::{ProjectionError, known};

/// Loads the running replays of these accounts' webhooks.
pub async fn load_running(conn: &mut PgConnection, shard: ShardId, accounts: &[AccountId]) -> Result<Vec<Replay>, sqlx::Error> {
    let query = select("FROM webhook_replays WHERE shard_id = $1 AND status = 'RUNNING' AND account_id = ANY ($2)")
        .bind(shard)
        .bind(accounts);
    all(query, conn).await
}

/// Lists the replays whose next step is due. The first step is due at once, and each later one a second after the
/// last.
pub async fn due(pool: &PgPool, shard: ShardId) -> Result<Vec<Replay>, sqlx::Error> {
    let query = select(
        "FROM webhook_replays WHERE shard_id = $1 AND status = 'RUNNING'
            AND (version = 1 OR updated_at <= clock_timestamp() - interval '1 second') ORDER BY id",
    )
    .bind(shard);
    all(query, pool).await
}

/// Lists the running replays of these shards, oldest first, with their shards. At most `limit` of them.
pub async fn running<'a>(
    db: impl PgExecutor<'a>,
    shards: &'a [ShardId],
    limit: i64,
) -> Result<Vec<(ShardId, Replay)>, sqlx::Error> {
    let query = select("FROM webhook_replays WHERE shard_id = ANY($1) AND status = 'RUNNING' ORDER BY shard_id, id LIMIT $2");
    all(query.bind(shards).bind(limit), db).await
}

impl Row for Replay {
    const COLUMNS: &'static str =
        "id, version, account_id, webhook_id, kind, events, per_second, status, from_position, next_position,
         until_position, deliveries, created_at, updated_at";

    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let (kind, status): (&str, &str) = (row.try_get("kind")?, row.try_get("status")?);
        let events: Vec<String> = row.try_get("events")?;
        Ok(Replay {
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
        })
    }
}

impl State for Replay {
    state!(ReplayId, ReplayEvent, Replay, evolve, "webhook_replays");
}

impl Upsert for Replay {
    async fn write(conn: &mut PgConnection, shard: ShardId, replays: &[&Self]) -> Result<(), ProjectionError> {
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
}

/// Finds a replay in these shards, and its shard.
pub async fn find(pool: &PgPool, shards: &[ShardId], id: ReplayId) -> Result<Option<(ShardId, Replay)>, sqlx::Error> {
    first(select("FROM webhook_replays WHERE shard_id = ANY($1) AND id = $2").bind(id.shards_among(shards)).bind(id), pool).await
}

/// Lists one page of a webhook's replays, newest first.
pub async fn list(pool: &PgPool, shard: ShardId, webhook: WebhookId, page: Page) -> Result<Listed<Replay>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM webhook_replays WHERE shard_id = ").push_bind(shard);
        page::equals(query, "webhook_id", Some(webhook));
    };
    page::fetch(pool, conditions, "id", page).await
}

/// Number of a replay's deliveries in each status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub pending: i64,
    pub delivered: i64,
    pub failed: i64,
}

/// Counts the outcomes of these replays. Skips replays without deliveries.
pub async fn outcomes(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    ids: &[ReplayId],
) -> Result<HashMap<ReplayId, Outcome>, sqlx::Error> {
    let rows: Vec<(ReplayId, i64, i64, i64)> = sqlx::query_as(
        "SELECT d.replay_id, count(*) FILTER (WHERE s.status = 'pending'), count(*) FILTER (WHERE s.status = 'delivered'),
            count(*) FILTER (WHERE s.status = 'failed')
         FROM deliveries d JOIN delivery_state s ON s.shard_id = d.shard_id AND s.delivery_id = d.id
         WHERE d.shard_id = $1 AND d.replay_id = ANY($2) AND d.replay_id > 0 GROUP BY d.replay_id",
    )
    .bind(shard)
    .bind(ids)
    .fetch_all(db)
    .await?;
    Ok(rows.into_iter().map(|(id, pending, delivered, failed)| (id, Outcome { pending, delivered, failed })).collect())
}
