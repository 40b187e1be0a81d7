//! `webhooks`: the subscriptions of every webhook, written inline.

use ledger_database::{PgConnection, PgPool};
use ledger_events::webhook::{Webhook, WebhookEvent, WebhookEventType, evolve};
use ledger_events::{AccountId, ShardId, WebhookId};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row as _};

use crate::page::{self, Listed, Page};
use crate::state::{Row, State, Upsert, first, select, state};
use crate::{ProjectionError, known};

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

impl Row for Webhook {
    const COLUMNS: &'static str = "id, version, account_id, credential_id, events, is_active, is_deleted, created_at, updated_at";

    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let events: Vec<String> = row.try_get("events")?;
        Ok(Webhook {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            account_id: row.try_get("account_id")?,
            credential_id: row.try_get("credential_id")?,
            events: events.iter().map(|text| known(WebhookEventType::parse(text), text)).collect::<Result<_, _>>()?,
            is_active: row.try_get("is_active")?,
            is_deleted: row.try_get("is_deleted")?,
            created_at: row.try_get("created_at")?,
            updated_at: row.try_get("updated_at")?,
        })
    }
}

impl State for Webhook {
    state!(WebhookId, WebhookEvent, Webhook, evolve, "webhooks");
}

impl Upsert for Webhook {
    async fn write(conn: &mut PgConnection, shard: ShardId, webhooks: &[&Self]) -> Result<(), ProjectionError> {
        upsert(conn, shard, upsert!("webhooks", "id"), webhooks.iter().copied()).await
    }
}

/// Finds a webhook in these shards, deleted or not, and its shard. Operators name a webhook without its account.
pub async fn find(pool: &PgPool, shards: &[ShardId], id: WebhookId) -> Result<Option<(ShardId, Webhook)>, sqlx::Error> {
    first(select("FROM webhooks WHERE shard_id = ANY($1) AND id = $2").bind(shards).bind(id), pool).await
}

/// Lists one page of an account's webhooks, newest first, without deleted ones.
pub async fn list(pool: &PgPool, shard: ShardId, account: AccountId, page: Page) -> Result<Listed<Webhook>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM webhooks WHERE NOT is_deleted AND shard_id = ").push_bind(shard);
        page::equals(query, "account_id", Some(account));
    };
    page::fetch(pool, conditions, "id", page).await
}
