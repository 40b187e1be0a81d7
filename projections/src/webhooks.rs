//! `webhooks`: the subscriptions of every webhook, written inline.

use std::collections::{HashMap, HashSet};

use ledger_database::FromRow;
use ledger_database::{PgConnection, PgPool};
use ledger_events::webhook::{Webhook, WebhookEventType, evolve};
use ledger_events::{AccountId, Event, Recorded, ShardId, WebhookId};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row};

use crate::page::{self, Listed, Page};
use crate::{ProjectionError, known};

/// The columns of [`WebhookRow`], as a literal for `concat!`.
macro_rules! webhook_columns {
    () => {
        "id, version, account_id, credential_id, events, is_active, is_deleted, created_at, updated_at"
    };
}

pub async fn load(conn: &mut PgConnection, shard: ShardId, ids: &[WebhookId]) -> Result<Vec<Webhook>, sqlx::Error> {
    rows(
        sqlx::query_as(concat!(
            "SELECT ",
            webhook_columns!(),
            " FROM unnest($2::bigint[]) AS wanted (wanted_id) JOIN webhooks ON shard_id = $1 AND id = wanted_id"
        ))
        .bind(shard)
        .bind(ids)
        .fetch_all(conn)
        .await?,
    )
}

/// Loads all webhooks of these accounts, including deleted ones.
pub async fn load_of_accounts(
    conn: &mut PgConnection,
    shard: ShardId,
    accounts: &[AccountId],
) -> Result<Vec<Webhook>, sqlx::Error> {
    rows(
        sqlx::query_as(concat!(
            "SELECT ",
            webhook_columns!(),
            " FROM unnest($2::bigint[]) AS wanted (wanted_account) JOIN webhooks ON shard_id = $1 AND account_id = wanted_account"
        ))
        .bind(shard)
        .bind(accounts)
        .fetch_all(conn)
        .await?,
    )
}

/// Loads webhooks in id order, after an id. `verify` compares them with the fold.
pub async fn after(conn: &mut PgConnection, shard: ShardId, id: WebhookId, limit: i64) -> Result<Vec<Webhook>, sqlx::Error> {
    rows(
        sqlx::query_as(concat!(
            "SELECT ",
            webhook_columns!(),
            " FROM webhooks WHERE shard_id = $1 AND id > $2 ORDER BY id LIMIT $3"
        ))
        .bind(shard)
        .bind(id)
        .bind(limit)
        .fetch_all(conn)
        .await?,
    )
}

fn rows(rows: Vec<WebhookRow>) -> Result<Vec<Webhook>, sqlx::Error> {
    Ok(rows.into_iter().map(|row| row.0).collect())
}

/// Upsert of a webhook. Two tables hold webhooks, with equal columns except for the name of the id.
macro_rules! upsert {
    ($table:literal, $id:literal) => {
        concat!(
            "INSERT INTO ",
            $table,
            " (shard_id, ",
            $id,
            ", version, account_id, credential_id, events, is_active, is_deleted, created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
             ON CONFLICT (shard_id, ",
            $id,
            ") DO UPDATE SET version = excluded.version, credential_id = excluded.credential_id, events = excluded.events,
                is_active = excluded.is_active, is_deleted = excluded.is_deleted, updated_at = excluded.updated_at"
        )
    };
}

/// Writes webhooks as rows: inserts new ones, and replaces known ones.
pub async fn write(conn: &mut PgConnection, shard: ShardId, webhooks: &[&Webhook]) -> Result<(), ProjectionError> {
    upsert(conn, shard, upsert!("webhooks", "id"), webhooks.iter().copied()).await
}

/// Writes webhooks to `webhook_audience`: the subscriptions as of the checkpoint of the deliveries projection.
pub(crate) async fn write_audience(
    conn: &mut PgConnection,
    shard: ShardId,
    webhooks: impl Iterator<Item = &Webhook>,
) -> Result<(), ProjectionError> {
    upsert(conn, shard, upsert!("webhook_audience", "webhook_id"), webhooks).await
}

async fn upsert<'a>(
    conn: &mut PgConnection,
    shard: ShardId,
    statement: &'static str,
    webhooks: impl Iterator<Item = &'a Webhook>,
) -> Result<(), ProjectionError> {
    // One statement per webhook: arrays of arrays must be rectangular, and webhooks rarely change.
    for webhook in webhooks {
        sqlx::query(statement)
            .bind(shard)
            .bind(webhook.id)
            .bind(webhook.version)
            .bind(webhook.account_id)
            .bind(webhook.credential_id)
            .bind(webhook.events.iter().map(|e| e.as_str()).collect::<Vec<_>>())
            .bind(webhook.is_active)
            .bind(webhook.is_deleted)
            .bind(webhook.created_at)
            .bind(webhook.updated_at)
            .execute(&mut *conn)
            .await?;
    }
    Ok(())
}

/// Folds the next events of the log into the table.
pub async fn apply(conn: &mut PgConnection, shard: ShardId, events: &[Recorded]) -> Result<(), ProjectionError> {
    let ids: HashSet<WebhookId> = events.iter().filter(|r| matches!(r.event, Event::Webhook(_))).map(|r| r.stream_id).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let ids: Vec<WebhookId> = ids.into_iter().collect();
    let mut webhooks: HashMap<WebhookId, Webhook> = load(conn, shard, &ids).await?.into_iter().map(|w| (w.id, w)).collect();
    for recorded in events {
        fold(&mut webhooks, recorded);
    }
    write(conn, shard, &webhooks.values().collect::<Vec<_>>()).await
}

/// Folds one event into a map of webhooks.
pub fn fold(webhooks: &mut HashMap<WebhookId, Webhook>, recorded: &Recorded) {
    if let Event::Webhook(event) = &recorded.event {
        let before = webhooks.remove(&recorded.stream_id);
        if let Some(after) = evolve(before, recorded.stream_id, event, &recorded.moment) {
            webhooks.insert(recorded.stream_id, after);
        }
    }
}

pub(crate) struct WebhookRow(pub(crate) Webhook);

impl FromRow<'_, PgRow> for WebhookRow {
    fn from_row(row: &PgRow) -> Result<WebhookRow, sqlx::Error> {
        let events: Vec<String> = row.try_get("events")?;
        Ok(WebhookRow(Webhook {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            account_id: row.try_get("account_id")?,
            credential_id: row.try_get("credential_id")?,
            events: events.iter().map(|text| known(WebhookEventType::parse(text), text)).collect::<Result<_, _>>()?,
            is_active: row.try_get("is_active")?,
            is_deleted: row.try_get("is_deleted")?,
            created_at: row.try_get("created_at")?,
            updated_at: row.try_get("updated_at")?,
        }))
    }
}

/// Finds a webhook in these shards, deleted or not, and its shard. Operators name a webhook without its account.
pub async fn find(pool: &PgPool, shards: &[ShardId], id: WebhookId) -> Result<Option<(ShardId, Webhook)>, sqlx::Error> {
    let row: Option<PgRow> =
        sqlx::query(concat!("SELECT shard_id, ", webhook_columns!(), " FROM webhooks WHERE shard_id = ANY($1) AND id = $2"))
            .bind(shards)
            .bind(id)
            .fetch_optional(pool)
            .await?;
    row.map(|row| Ok((row.try_get("shard_id")?, WebhookRow::from_row(&row)?.0))).transpose()
}

/// Lists one page of an account's webhooks, newest first, without deleted ones.
pub async fn list(pool: &PgPool, shard: ShardId, account: AccountId, page: Page) -> Result<Listed<Webhook>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM webhooks WHERE NOT is_deleted AND shard_id = ").push_bind(shard);
        page::equals(query, "account_id", Some(account));
    };
    let listed: Listed<WebhookRow> = page::fetch(pool, webhook_columns!(), conditions, "id", page).await?;
    Ok(listed.map(|row| row.0))
}
