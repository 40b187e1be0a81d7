//! Reading deliveries, each with the worker's record of it.

use chrono::{DateTime, Utc};
use ledger_events::webhook::{Retryable, WebhookEventType};
use ledger_events::{AccountId, OrderId, ShardId, WebhookId};
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection, PgPool, Postgres, QueryBuilder, Row};
use uuid::Uuid;

use crate::known;
use crate::page::{self, Listed, Page};
/// A delivery with the worker's record of it (specification, "Webhook delivery").
#[derive(Clone, Debug)]
pub struct Delivery {
    pub id: i64,
    pub webhook_id: WebhookId,
    pub order_id: OrderId,
    pub event_type: WebhookEventType,
    pub event_id: Uuid,
    /// The envelope's bytes; none when their time is over, and the log has to tell them again.
    pub payload: Option<String>,
    pub status: &'static str,
    pub attempt_count: i16,
    pub response_status: Option<i16>,
    pub response_time_ms: Option<i32>,
    pub delivered_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub next_attempt_at: DateTime<Utc>,
    pub response_body: Option<String>,
}

/// One attempt, as the worker recorded it.
#[derive(Clone, Debug, FromRow)]
pub struct Attempt {
    pub attempt: i16,
    pub request_id: Uuid,
    pub started_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
    pub response_status: Option<i16>,
    pub response_time_ms: Option<i32>,
    pub error: Option<String>,
    /// Sent, and its outcome may still come: it is the latest one and its lease runs.
    pub is_in_flight: bool,
}

pub const STATUSES: [&str; 3] = ["pending", "delivered", "failed"];

struct DeliveryRow(Delivery);

impl FromRow<'_, PgRow> for DeliveryRow {
    fn from_row(row: &PgRow) -> Result<DeliveryRow, sqlx::Error> {
        let status: &str = row.try_get("status")?;
        let event_type: &str = row.try_get("event_type")?;
        Ok(DeliveryRow(Delivery {
            id: row.try_get("id")?,
            webhook_id: row.try_get("webhook_id")?,
            order_id: row.try_get("order_id")?,
            event_type: known(WebhookEventType::parse(event_type), event_type)?,
            event_id: row.try_get("event_id")?,
            payload: row.try_get("payload")?,
            status: known(STATUSES.into_iter().find(|s| *s == status), status)?,
            attempt_count: row.try_get("attempt_count")?,
            response_status: row.try_get("response_status")?,
            response_time_ms: row.try_get("response_time_ms")?,
            delivered_at: row.try_get("delivered_at")?,
            created_at: row.try_get("created_at")?,
            next_attempt_at: row.try_get("next_attempt_at")?,
            response_body: row.try_get("response_body")?,
        }))
    }
}

#[derive(Clone, Debug, Default)]
pub struct DeliveryFilter {
    pub account_id: AccountId,
    pub status: Option<&'static str>,
    pub event_type: Option<WebhookEventType>,
    pub order_id: Option<OrderId>,
    pub webhook_id: Option<WebhookId>,
}

const COLUMNS: &str =
    "SELECT d.id, d.webhook_id, d.order_id, d.event_type, d.event_id, d.created_at, e.payload, s.status, s.attempt_count,
        s.response_status, s.response_time_ms, s.delivered_at, s.next_attempt_at, s.response_body";
const STATE: &str = " JOIN delivery_state s ON s.shard_id = d.shard_id AND s.delivery_id = d.id";
const ENVELOPE: &str = " JOIN webhook_envelopes e ON e.shard_id = d.shard_id AND e.event_id = d.event_id";

/// One page of an account's deliveries, newest first, and how many there are in all.
pub async fn list(pool: &PgPool, shard: ShardId, filter: &DeliveryFilter, page: Page) -> Result<Listed<Delivery>, sqlx::Error> {
    // The envelopes are joined to the page's rows alone, and the record only where a status is
    // asked for: there may be millions of deliveries before the page.
    let matching = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM deliveries d");
        if filter.status.is_some() {
            query.push(STATE);
        }
        query.push(" WHERE d.shard_id = ").push_bind(shard);
        page::equals(query, "d.account_id", Some(filter.account_id));
        page::equals(query, "s.status", filter.status);
        page::equals(query, "d.event_type", filter.event_type.map(WebhookEventType::as_str));
        page::equals(query, "d.order_id", filter.order_id);
        page::equals(query, "d.webhook_id", filter.webhook_id);
    };
    let mut count = QueryBuilder::new("SELECT count(*)");
    matching(&mut count);
    let total: i64 = count.build_query_scalar().fetch_one(pool).await?;
    let mut select = QueryBuilder::new(COLUMNS);
    select.push(" FROM (SELECT d.*");
    matching(&mut select);
    select.push(" ORDER BY d.id DESC LIMIT ").push_bind(page.size);
    select.push(" OFFSET ").push_bind((page.number - 1).saturating_mul(page.size));
    select.push(") AS d").push(STATE).push(ENVELOPE).push(" ORDER BY d.id DESC");
    let rows: Vec<DeliveryRow> = select.build_query_as().fetch_all(pool).await?;
    Ok(Listed { rows: rows.into_iter().map(|row| row.0).collect(), total })
}

/// One delivery of the account, with every attempt.
pub async fn find(
    pool: &PgPool,
    shard: ShardId,
    account: AccountId,
    id: i64,
) -> Result<Option<(Delivery, Vec<Attempt>)>, sqlx::Error> {
    let mut query = QueryBuilder::new(COLUMNS);
    query.push(" FROM deliveries d").push(STATE).push(ENVELOPE).push(" WHERE d.shard_id = ").push_bind(shard);
    page::equals(&mut query, "d.account_id", Some(account));
    page::equals(&mut query, "d.id", Some(id));
    let found: Option<DeliveryRow> = query.build_query_as().fetch_optional(pool).await?;
    let Some(DeliveryRow(delivery)) = found else { return Ok(None) };
    let attempts = sqlx::query_as(
        "SELECT a.attempt, a.request_id, a.started_at, a.finished_at, a.response_status, a.response_time_ms, a.error,
            a.finished_at IS NULL AND coalesce(s.leased_until > clock_timestamp(), false)
                AND lead(a.request_id) OVER (ORDER BY a.started_at, a.request_id) IS NULL AS is_in_flight
         FROM delivery_attempts a JOIN delivery_state s ON s.shard_id = a.shard_id AND s.delivery_id = a.delivery_id
         WHERE a.shard_id = $1 AND a.delivery_id = $2 ORDER BY a.started_at, a.request_id",
    )
    .bind(shard)
    .bind(id)
    .fetch_all(pool)
    .await?;
    Ok(Some((delivery, attempts)))
}

/// How many deliveries an account has, in all and made in the last 24 hours (specification,
/// "Delivery statistics").
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRow)]
pub struct Statistics {
    pub total_count: i64,
    pub pending_count: i64,
    pub delivered_count: i64,
    pub failed_count: i64,
    pub last_24h_total: i64,
    pub last_24h_delivered: i64,
    pub last_24h_failed: i64,
}

/// Counts by the database's clock.
pub async fn statistics(pool: &PgPool, shard: ShardId, account: AccountId) -> Result<Statistics, sqlx::Error> {
    sqlx::query_as(
        "SELECT count(*) AS total_count,
            count(*) FILTER (WHERE status = 'pending') AS pending_count,
            count(*) FILTER (WHERE status = 'delivered') AS delivered_count,
            count(*) FILTER (WHERE status = 'failed') AS failed_count,
            count(*) FILTER (WHERE is_recent) AS last_24h_total,
            count(*) FILTER (WHERE is_recent AND status = 'delivered') AS last_24h_delivered,
            count(*) FILTER (WHERE is_recent AND status = 'failed') AS last_24h_failed
         FROM (SELECT s.status, d.created_at > now() - interval '24 hours' AS is_recent
               FROM deliveries d JOIN delivery_state s ON s.shard_id = d.shard_id AND s.delivery_id = d.id
               WHERE d.shard_id = $1 AND d.account_id = $2) AS delivery",
    )
    .bind(shard)
    .bind(account)
    .fetch_one(pool)
    .await
}

/// Deliveries with their accounts and webhooks, and what a retry of them is decided on.
pub async fn retryable(
    conn: &mut PgConnection,
    shard: ShardId,
    ids: &[i64],
) -> Result<Vec<(i64, AccountId, WebhookId, Retryable)>, sqlx::Error> {
    let rows: Vec<(i64, AccountId, WebhookId, Uuid, i64, bool, i16)> = sqlx::query_as(
        "SELECT d.id, d.account_id, d.webhook_id, d.event_id, d.replay_id, s.status = 'failed', s.attempt_count
         FROM unnest($2::bigint[]) AS wanted (id) JOIN deliveries d ON d.shard_id = $1 AND d.id = wanted.id
         JOIN delivery_state s ON s.shard_id = $1 AND s.delivery_id = wanted.id",
    )
    .bind(shard)
    .bind(ids)
    .fetch_all(conn)
    .await?;
    let delivery = |(id, account_id, webhook_id, event_id, replay_id, has_failed, attempt_count)| {
        (id, account_id, webhook_id, Retryable { event_id, replay_id, has_failed, attempt_count })
    };
    Ok(rows.into_iter().map(delivery).collect())
}
