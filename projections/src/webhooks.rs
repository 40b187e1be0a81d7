//! `webhooks`, `webhook_subscriptions` and `webhook_deactivations`: every webhook with its subscriptions, written inline.
//!
//! The types that are not of orders stand in the second table, which has a row for each webhook that is subscribed to one.
//! Nodes of a release that knows only the types of orders do not read them.
//!
//! The third table has a row for each webhook that the service itself switched off. Nodes of earlier releases do not delete it
//! when they switch the webhook on, so it counts only while the webhook is inactive.

use chrono::{DateTime, Utc};
use ledger_database::{PgConnection, PgPool};
use ledger_events::webhook::{Deactivated, Deactivation, Webhook, WebhookEvent, WebhookEventType, evolve};
use ledger_events::{AccountId, Id, ShardId, WebhookId};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::types::Json;
use sqlx::{Postgres, QueryBuilder, Row as _};

use crate::page::{self, Listed, Page};
use crate::state::{Row, State, Upsert, first, select, state};
use crate::{ProjectionError, known};

/// Writes webhooks to `webhook_audience`: the subscriptions as of the checkpoint of the deliveries projection.
pub(crate) async fn write_audience(
    conn: &mut PgConnection,
    shard: ShardId,
    webhooks: impl Iterator<Item = &Webhook>,
) -> Result<(), ProjectionError> {
    // One statement per webhook: arrays of arrays must be rectangular, and webhooks rarely change.
    for webhook in webhooks {
        let (of_orders, further) = subscriptions(webhook);
        let query = sqlx::query(
            "INSERT INTO webhook_audience (shard_id, webhook_id, version, account_id, credential_id, events, is_active, is_deleted,
                created_at, updated_at, further_events)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
             ON CONFLICT (shard_id, webhook_id) DO UPDATE SET version = excluded.version, credential_id = excluded.credential_id,
                events = excluded.events, is_active = excluded.is_active, is_deleted = excluded.is_deleted,
                updated_at = excluded.updated_at, further_events = excluded.further_events",
        );
        bind(query, shard, webhook, of_orders).bind(further).execute(&mut *conn).await?;
    }
    Ok(())
}

/// Returns the texts of a webhook's types of orders, and of the further ones.
fn subscriptions(webhook: &Webhook) -> (Vec<&'static str>, Vec<&'static str>) {
    let (of_orders, further) = WebhookEventType::split(webhook.events.clone());
    let texts = |types: Vec<WebhookEventType>| types.into_iter().map(WebhookEventType::as_str).collect();
    (texts(of_orders), texts(further))
}

fn bind<'q>(
    query: Query<'q, Postgres, PgArguments>,
    shard: ShardId,
    webhook: &Webhook,
    of_orders: Vec<&'static str>,
) -> Query<'q, Postgres, PgArguments> {
    query
        .bind(shard)
        .bind(webhook.id)
        .bind(webhook.version)
        .bind(webhook.account_id)
        .bind(webhook.credential_id)
        .bind(of_orders)
        .bind(webhook.is_active)
        .bind(webhook.is_deleted)
        .bind(webhook.created_at)
        .bind(webhook.updated_at)
}

impl Row for Webhook {
    const COLUMNS: &'static str = "id, version, account_id, credential_id, events, is_active, is_deleted, created_at, updated_at,
        (SELECT s.events FROM webhook_subscriptions s WHERE s.shard_id = webhooks.shard_id AND s.id = webhooks.id) AS further_events,
        (SELECT d.reason FROM webhook_deactivations d
         WHERE NOT webhooks.is_active AND d.shard_id = webhooks.shard_id AND d.id = webhooks.id) AS deactivation_reason,
        (SELECT d.deactivated_at FROM webhook_deactivations d
         WHERE NOT webhooks.is_active AND d.shard_id = webhooks.shard_id AND d.id = webhooks.id) AS deactivated_at";

    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let mut events: Vec<String> = row.try_get("events")?;
        events.extend(row.try_get::<Option<Vec<String>>, _>("further_events")?.unwrap_or_default());
        let reason = row.try_get::<Option<Json<Deactivation>>, _>("deactivation_reason")?;
        let deactivated_at: Option<DateTime<Utc>> = row.try_get("deactivated_at")?;
        Ok(Webhook {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            account_id: row.try_get("account_id")?,
            credential_id: row.try_get("credential_id")?,
            events: events.iter().map(|text| known(WebhookEventType::parse(text), text)).collect::<Result<_, _>>()?,
            is_active: row.try_get("is_active")?,
            is_deleted: row.try_get("is_deleted")?,
            deactivated: reason.zip(deactivated_at).map(|(reason, at)| Deactivated { reason: reason.0, at }),
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
        for webhook in webhooks {
            let (of_orders, further) = subscriptions(webhook);
            let query = sqlx::query(
                "INSERT INTO webhooks (shard_id, id, version, account_id, credential_id, events, is_active, is_deleted, created_at, updated_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
                 ON CONFLICT (shard_id, id) DO UPDATE SET version = excluded.version, credential_id = excluded.credential_id,
                    events = excluded.events, is_active = excluded.is_active, is_deleted = excluded.is_deleted,
                    updated_at = excluded.updated_at",
            );
            bind(query, shard, webhook, of_orders).execute(&mut *conn).await?;
            let query = match further.is_empty() {
                true => sqlx::query("DELETE FROM webhook_subscriptions WHERE shard_id = $1 AND id = $2"),
                false => sqlx::query(
                    "INSERT INTO webhook_subscriptions (shard_id, id, events) VALUES ($1, $2, $3)
                     ON CONFLICT (shard_id, id) DO UPDATE SET events = excluded.events",
                ),
            };
            let query = query.bind(shard).bind(webhook.id);
            let query = if further.is_empty() { query } else { query.bind(further) };
            query.execute(&mut *conn).await?;
            let query = match webhook.deactivated {
                None => sqlx::query("DELETE FROM webhook_deactivations WHERE shard_id = $1 AND id = $2"),
                Some(_) => sqlx::query(
                    "INSERT INTO webhook_deactivations (shard_id, id, reason, deactivated_at) VALUES ($1, $2, $3, $4)
                     ON CONFLICT (shard_id, id) DO UPDATE SET reason = excluded.reason, deactivated_at = excluded.deactivated_at",
                ),
            };
            let query = query.bind(shard).bind(webhook.id);
            let query = match webhook.deactivated {
                None => query,
                Some(Deactivated { reason, at }) => query.bind(Json(reason)).bind(at),
            };
            query.execute(&mut *conn).await?;
        }
        Ok(())
    }
}

/// Finds a webhook in these shards, deleted or not, and its shard. Operators name a webhook without its account.
pub async fn find(pool: &PgPool, shards: &[ShardId], id: WebhookId) -> Result<Option<(ShardId, Webhook)>, sqlx::Error> {
    first(select("FROM webhooks WHERE shard_id = ANY($1) AND id = $2").bind(id.shards_among(shards)).bind(id), pool).await
}

/// Lists one page of an account's webhooks, newest first, without deleted ones.
pub async fn list(pool: &PgPool, shard: ShardId, account: AccountId, page: Page) -> Result<Listed<Webhook>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM webhooks WHERE NOT is_deleted AND shard_id = ").push_bind(shard);
        page::equals(query, "account_id", Some(account));
    };
    page::fetch(pool, conditions, "id", page).await
}
