//! `webhook_envelopes`, `deliveries` and `webhook_audience`: who gets what under which id.
//!
//! Catches up by position and folds the webhook events itself, in position order, so that a
//! delivery's audience is what the log says it was at the event's position. What the worker does
//! with a delivery is its own record (`delivery_state`, `delivery_attempts`).

mod read;

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use ledger_events::order::{Order, OrderEvent};
use ledger_events::webhook::{Webhook, WebhookEventType};
use ledger_events::{AccountId, Event, OrderId, Recorded, ShardId, WebhookId};
use sqlx::{PgConnection, Postgres};
use uuid::Uuid;

use crate::webhooks::{self, WebhookRow};
use crate::{ProjectionError, envelope, orders};
pub use read::{Attempt, Delivery, DeliveryFilter, STATUSES, find, list};

pub const NAME: &str = "deliveries";
pub const TABLES: &[&str] = &["webhook_audience", "webhook_envelopes", "deliveries"];

/// What a batch of events needs before it can be folded.
#[derive(Debug)]
pub struct Plan {
    audience: HashMap<WebhookId, Webhook>,
    /// Orders whose events somebody may hear and whose history begins before the batch: the
    /// caller reads their streams up to the batch.
    pub orders: Vec<OrderId>,
}

/// Loads the audience, and tells which orders' histories are needed.
pub async fn plan(conn: &mut PgConnection, shard: ShardId, events: &[Recorded]) -> Result<Plan, ProjectionError> {
    let accounts: HashSet<AccountId> = events
        .iter()
        .filter(|r| matches!(r.event, Event::Order(_) | Event::Webhook(_)))
        .filter_map(|r| r.metadata.account_id)
        .collect();
    if accounts.is_empty() {
        return Ok(Plan { audience: HashMap::new(), orders: vec![] });
    }
    let audience: Vec<WebhookRow> = sqlx::query_as(
        "SELECT webhook_id AS id, version, account_id, credential_id, events, is_active, is_deleted, created_at, updated_at
         FROM webhook_audience WHERE shard_id = $1 AND account_id = ANY($2)",
    )
    .bind(shard)
    .bind(accounts.into_iter().collect::<Vec<_>>())
    .fetch_all(conn)
    .await?;
    let audience: HashMap<WebhookId, Webhook> = audience.into_iter().map(|row| (row.0.id, row.0)).collect();

    // Whoever listens now, or starts to within the batch.
    let mut listening: HashSet<AccountId> = audience.values().map(|w| w.account_id).collect();
    listening.extend(events.iter().filter(|r| matches!(r.event, Event::Webhook(_))).filter_map(|r| r.metadata.account_id));
    let mut begun = HashSet::new();
    let mut orders = HashSet::new();
    for recorded in events {
        if let Event::Order(event) = &recorded.event
            && recorded.metadata.account_id.is_some_and(|account| listening.contains(&account))
        {
            match event {
                OrderEvent::OrderPlaced(_) => _ = begun.insert(recorded.stream_id),
                _ if begun.contains(&recorded.stream_id) => {}
                event if WebhookEventType::announcing(event).is_some() => _ = orders.insert(recorded.stream_id),
                _ => {}
            }
        }
    }
    Ok(Plan { audience, orders: orders.into_iter().collect() })
}

/// What a batch of events makes.
#[derive(Debug, Default)]
pub struct Made {
    envelopes: Vec<EnvelopeRow>,
    deliveries: Vec<NewDelivery>,
    changed: HashMap<WebhookId, Webhook>,
    /// Webhooks that were deactivated or deleted: what is pending for them fails.
    silenced: HashSet<WebhookId>,
}

impl Made {
    pub fn deliveries(&self) -> usize {
        self.deliveries.len()
    }
}

#[derive(Debug, Clone, PartialEq)]
struct EnvelopeRow {
    event_id: Uuid,
    position: i64,
    account_id: AccountId,
    order_id: OrderId,
    event_type: WebhookEventType,
    payload: String,
    created_at: DateTime<Utc>,
}

#[derive(Debug, Clone, PartialEq)]
struct NewDelivery {
    event_id: Uuid,
    webhook_id: WebhookId,
    account_id: AccountId,
    order_id: OrderId,
    event_type: WebhookEventType,
    created_at: DateTime<Utc>,
    status: &'static str,
}

/// The fold. `before` holds the planned orders as they were right before the batch.
pub fn fold(plan: Plan, mut before: HashMap<OrderId, Order>, events: &[Recorded]) -> Result<Made, ProjectionError> {
    let mut audience = plan.audience;
    let mut made = Made::default();
    for recorded in events {
        match &recorded.event {
            Event::Webhook(_) => {
                let id = recorded.stream_id;
                let was_active = audience.get(&id).is_some_and(|w| w.is_active);
                webhooks::fold(&mut audience, recorded);
                if let Some(now) = audience.get(&id) {
                    made.changed.insert(id, now.clone());
                    if was_active && !now.is_active {
                        made.silenced.insert(id);
                        for delivery in made.deliveries.iter_mut().filter(|d| d.webhook_id == id) {
                            delivery.status = "failed";
                        }
                    }
                }
            }
            Event::Order(event) => {
                let Some(account_id) = recorded.metadata.account_id else { continue };
                orders::fold(&mut before, recorded, event);
                let Some(event_type) = WebhookEventType::announcing(event) else { continue };
                let mut listeners: Vec<WebhookId> =
                    audience.values().filter(|w| w.account_id == account_id && w.hears(event_type)).map(|w| w.id).collect();
                if listeners.is_empty() {
                    continue;
                }
                listeners.sort_unstable();
                let order = before.get(&recorded.stream_id).ok_or_else(|| ProjectionError::Row {
                    table: "events",
                    id: recorded.moment.position,
                    problem: format!("order {} has no OrderPlaced", recorded.stream_id),
                })?;
                let moment = &recorded.moment;
                made.envelopes.push(EnvelopeRow {
                    event_id: moment.event_id,
                    position: moment.position,
                    account_id,
                    order_id: order.id,
                    event_type,
                    payload: envelope::payload(moment.event_id, event_type, moment.recorded_at, order)?,
                    created_at: moment.recorded_at,
                });
                made.deliveries.extend(listeners.into_iter().map(|webhook_id| NewDelivery {
                    event_id: moment.event_id,
                    webhook_id,
                    account_id,
                    order_id: order.id,
                    event_type,
                    created_at: moment.recorded_at,
                    status: "pending",
                }));
            }
            _ => {}
        }
    }
    Ok(made)
}

/// Writes what a batch made; with the worker's record, where each delivery starts as due now.
pub async fn write(conn: &mut PgConnection, shard: ShardId, made: &Made) -> Result<(), ProjectionError> {
    write_audience(conn, shard, made).await?;
    if !made.silenced.is_empty() {
        // A send that is in flight keeps its fence: a 2xx still counts.
        sqlx::query(
            "UPDATE delivery_state SET status = 'failed' WHERE shard_id = $1 AND webhook_id = ANY($2) AND status = 'pending'",
        )
        .bind(shard)
        .bind(made.silenced.iter().copied().collect::<Vec<_>>())
        .execute(&mut *conn)
        .await?;
    }
    write_envelopes(conn, shard, made).await?;
    if made.deliveries.is_empty() {
        return Ok(());
    }
    bind_deliveries(
        sqlx::query(
            "WITH new AS MATERIALIZED (
                SELECT nextval('public.delivery_ids') AS id, u.*
                FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::timestamptz[], $8::text[])
                     AS u (event_id, webhook_id, account_id, order_id, event_type, created_at, status)),
             made AS (
                INSERT INTO deliveries (shard_id, id, event_id, webhook_id, account_id, order_id, event_type, created_at)
                SELECT $1, id, event_id, webhook_id, account_id, order_id, event_type, created_at FROM new)
             INSERT INTO delivery_state (shard_id, delivery_id, webhook_id, status, next_attempt_at)
             SELECT $1, id, webhook_id, status, clock_timestamp() FROM new",
        ),
        shard,
        made,
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Writes what a batch made into the tables of a rebuild: a delivery that is known under its
/// natural key keeps its id, and the worker's record is left alone.
pub async fn write_shadow(conn: &mut PgConnection, shard: ShardId, made: &Made) -> Result<(), ProjectionError> {
    write_audience(conn, shard, made).await?;
    write_envelopes(conn, shard, made).await?;
    if made.deliveries.is_empty() {
        return Ok(());
    }
    bind_deliveries(
        sqlx::query(
            "INSERT INTO deliveries (shard_id, id, event_id, webhook_id, account_id, order_id, event_type, created_at)
             SELECT $1, coalesce(kept.id, nextval('public.delivery_ids')), u.event_id, u.webhook_id, u.account_id, u.order_id, u.event_type, u.created_at
             FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::timestamptz[], $8::text[])
                  AS u (event_id, webhook_id, account_id, order_id, event_type, created_at, status)
             LEFT JOIN public.deliveries kept
                  ON kept.shard_id = $1 AND kept.event_id = u.event_id AND kept.webhook_id = u.webhook_id AND kept.replay_id = 0",
        ),
        shard,
        made,
    )
    .execute(conn)
    .await?;
    Ok(())
}

fn bind_deliveries<'q>(
    query: sqlx::query::Query<'q, Postgres, sqlx::postgres::PgArguments>,
    shard: ShardId,
    made: &'q Made,
) -> sqlx::query::Query<'q, Postgres, sqlx::postgres::PgArguments> {
    let deliveries = &made.deliveries;
    query
        .bind(shard)
        .bind(deliveries.iter().map(|d| d.event_id).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| d.webhook_id).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| d.account_id).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| d.order_id).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| d.event_type.as_str()).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| d.created_at).collect::<Vec<_>>())
        .bind(deliveries.iter().map(|d| d.status).collect::<Vec<_>>())
}

async fn write_audience(conn: &mut PgConnection, shard: ShardId, made: &Made) -> Result<(), ProjectionError> {
    for webhook in made.changed.values() {
        sqlx::query(
            "INSERT INTO webhook_audience (shard_id, webhook_id, version, account_id, credential_id, events, is_active, is_deleted, created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
             ON CONFLICT (shard_id, webhook_id) DO UPDATE SET version = excluded.version, events = excluded.events, is_active = excluded.is_active,
                is_deleted = excluded.is_deleted, updated_at = excluded.updated_at",
        )
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

async fn write_envelopes(conn: &mut PgConnection, shard: ShardId, made: &Made) -> Result<(), ProjectionError> {
    let envelopes = &made.envelopes;
    if envelopes.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO webhook_envelopes (shard_id, event_id, position, account_id, order_id, event_type, payload, created_at)
         SELECT $1, new.* FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::text[], $8::timestamptz[]) AS new",
    )
    .bind(shard)
    .bind(envelopes.iter().map(|e| e.event_id).collect::<Vec<_>>())
    .bind(envelopes.iter().map(|e| e.position).collect::<Vec<_>>())
    .bind(envelopes.iter().map(|e| e.account_id).collect::<Vec<_>>())
    .bind(envelopes.iter().map(|e| e.order_id).collect::<Vec<_>>())
    .bind(envelopes.iter().map(|e| e.event_type.as_str()).collect::<Vec<_>>())
    .bind(envelopes.iter().map(|e| &*e.payload).collect::<Vec<_>>())
    .bind(envelopes.iter().map(|e| e.created_at).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    Ok(())
}
