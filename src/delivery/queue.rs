//! Deliveries by the state of their attempts: due, waiting for a retry, in flight, without an outcome, or failed for good. The
//! overview of operations counts the same deliveries.

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgPool, replanned};
use ledger_events::{AccountId, OrderId, Position, ShardId, WebhookId};
use ledger_projections::page::{self, Listed, Page};
use sqlx::{Postgres, QueryBuilder};
use uuid::Uuid;

use super::overview::MAX_OF_WEBHOOK;

/// Upper limit for counting the deliveries of a shard in each state: one more than the greatest threshold of an alert.
pub const MAX_OF_SHARD: i64 = 10_001;

/// State of deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Deliveries whose attempt is due and that no node is sending.
    Due,
    /// Deliveries with a failed attempt, whether or not the next one is due.
    Retries,
    /// Deliveries that a node is sending.
    InFlight,
    /// Deliveries that a node has taken up without recording an outcome in time.
    WithoutOutcome,
    /// Deliveries that have failed for good.
    Failed,
    /// Deliveries that have failed for good in the last 24 hours.
    FailedLately,
}

impl Part {
    /// Returns the conditions of the part. Each is a range of one partial index.
    fn conditions(self) -> &'static [&'static str] {
        match self {
            Self::Due => &[
                "s.status = 'pending' AND s.attempt_count = 0 AND s.next_attempt_at <= now() AND coalesce(s.leased_until, '-infinity') < now()",
                "s.status = 'pending' AND s.attempt_count > 0 AND s.next_attempt_at <= now() AND coalesce(s.leased_until, '-infinity') < now()",
            ],
            Self::Retries => &["s.status = 'pending' AND s.attempt_count > 0"],
            Self::InFlight => &["s.leased_until IS NOT NULL AND s.leased_until >= now()"],
            Self::WithoutOutcome => &["s.leased_until IS NOT NULL AND s.leased_until < now()"],
            Self::Failed => &["s.status = 'failed'"],
            Self::FailedLately => &["s.status = 'failed' AND s.next_attempt_at > now() - interval '24 hours'"],
        }
    }

    /// Returns whether the delivery whose attempt was due last is at the start of the list, instead of the one that is due first.
    fn is_newest_first(self) -> bool {
        matches!(self, Self::Failed | Self::FailedLately)
    }
}

/// Deliveries that a list is about.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// All deliveries of these shards.
    Shards(&'a [ShardId]),
    /// Deliveries to a webhook, and its shard.
    Webhook(ShardId, WebhookId),
}

impl Scope<'_> {
    fn shards(&self) -> &[ShardId] {
        match self {
            Self::Shards(shards) => shards,
            Self::Webhook(shard, _) => std::slice::from_ref(shard),
        }
    }
}

/// A delivery with the state of its attempts.
#[derive(Clone, Debug, FromRow)]
pub struct Queued {
    pub shard_id: ShardId,
    pub delivery_id: i64,
    pub account_id: AccountId,
    pub webhook_id: WebhookId,
    pub order_id: OrderId,
    pub event_type: String,
    pub event_id: Uuid,
    /// Position of the event in the log.
    pub position: Position,
    pub attempt_count: i16,
    pub next_attempt_at: DateTime<Utc>,
    /// Whether a node is sending the delivery.
    pub is_in_flight: bool,
}

/// Lists a page of the deliveries in a state. For each condition of the state, the list ends after [`MAX_OF_WEBHOOK`] deliveries of
/// a webhook, or [`MAX_OF_SHARD`] of a shard, as the overview counts no further. If a shard has more, the list has the latest
/// failures, or any of the other deliveries.
///
/// # Errors
/// Any error of the database.
pub async fn list(pool: &PgPool, scope: Scope<'_>, part: Part, page: Page) -> Result<Listed<Queued>, sqlx::Error> {
    replanned(|| list_once(pool, scope, part, page)).await
}

async fn list_once(pool: &PgPool, scope: Scope<'_>, part: Part, page: Page) -> Result<Listed<Queued>, sqlx::Error> {
    let mut tx = page::snapshot(pool).await?;
    // The keys are bounded, so they are all read.
    let keys: Vec<(ShardId, i64)> = keys(scope, part).build_query_as().fetch_all(&mut *tx).await?;
    let total = i64::try_from(keys.len()).unwrap_or(i64::MAX);
    let before = usize::try_from(page.offset()).unwrap_or(usize::MAX);
    let size = usize::try_from(page.size).unwrap_or_default();
    let (shards, ids): (Vec<ShardId>, Vec<i64>) = keys.into_iter().skip(before).take(size).unzip();
    let rows = sqlx::query_as(
        "SELECT d.shard_id, d.id AS delivery_id, d.account_id, d.webhook_id, d.order_id, d.event_type, d.event_id, e.position,
            s.attempt_count, s.next_attempt_at, coalesce(s.leased_until >= now(), false) AS is_in_flight
         FROM unnest($1::smallint[], $2::bigint[]) WITH ORDINALITY AS wanted (shard_id, id, place)
         JOIN deliveries d ON d.shard_id = wanted.shard_id AND d.id = wanted.id
         JOIN delivery_state s ON s.shard_id = d.shard_id AND s.delivery_id = d.id
         JOIN webhook_envelopes e ON e.shard_id = d.shard_id AND e.event_id = d.event_id ORDER BY wanted.place",
    )
    .bind(shards)
    .bind(ids)
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(Listed { rows, total })
}

/// Builds the query for the keys of all deliveries of a list, in its order.
fn keys(scope: Scope<'_>, part: Part) -> QueryBuilder<Postgres> {
    let order = if part.is_newest_first() { "next_attempt_at DESC, delivery_id DESC" } else { "next_attempt_at, delivery_id" };
    let mut query = QueryBuilder::new("SELECT shard_id, delivery_id FROM (");
    let branches = scope.shards().iter().flat_map(|shard| part.conditions().iter().map(move |condition| (*shard, *condition)));
    for (n, (shard, condition)) in branches.enumerate() {
        query.push(if n > 0 { " UNION ALL " } else { "" });
        query
            .push("(SELECT s.shard_id, s.delivery_id, s.next_attempt_at FROM delivery_state s WHERE s.shard_id = ")
            .push_bind(shard);
        match scope {
            // An index has the pending deliveries of a webhook in this order.
            Scope::Webhook(_, webhook) => {
                query.push(" AND s.webhook_id = ").push_bind(webhook).push(" AND ").push(condition);
                query.push(" ORDER BY ").push(order).push(" LIMIT ").push_bind(MAX_OF_WEBHOOK);
            }
            // An index has the failures of all webhooks in this order. Of other deliveries, any will do.
            Scope::Shards(_) => {
                query.push(" AND ").push(condition);
                if part.is_newest_first() {
                    query.push(" ORDER BY ").push(order);
                }
                query.push(" LIMIT ").push_bind(MAX_OF_SHARD);
            }
        }
        query.push(")");
    }
    query.push(") AS listed ORDER BY ").push(order);
    query
}
