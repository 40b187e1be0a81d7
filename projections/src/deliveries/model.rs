//! Deliveries, attempts and filters, as readers see them.

use chrono::{DateTime, Utc};
use ledger_database::FromRow;
use ledger_events::webhook::WebhookEventType;
use ledger_events::{AccountId, OrderId, ReplayId, WebhookId};
use uuid::Uuid;

use crate::listing::pages::Group;

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

/// A retry that was accepted, by the natural key of its delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    pub webhook_id: WebhookId,
    pub event_id: Uuid,
    pub replay_id: ReplayId,
    pub requested_at: DateTime<Utc>,
}

#[derive(Clone, Debug, Default)]
pub struct DeliveryFilter {
    pub account_id: AccountId,
    pub status: Option<&'static str>,
    pub event_type: Option<WebhookEventType>,
    pub order_id: Option<OrderId>,
    pub webhook_id: Option<WebhookId>,
    /// The account's retries beyond the projection: what they name counts as pending.
    pub retries: Vec<Retry>,
}

/// As the partial indexes of the worker's record say it.
pub(super) const PENDING: &[&str] = &["status = 'pending' AND attempt_count = 0", "status = 'pending' AND attempt_count > 0"];
/// As the partial index of the worker's record says it.
pub(super) const FAILED: &[&str] = &["status = 'failed'"];

pub(super) fn webhooks_of(groups: &[Group]) -> Vec<WebhookId> {
    let mut webhooks: Vec<WebhookId> = groups.iter().map(|group| group.id).collect();
    webhooks.sort_unstable();
    webhooks.dedup();
    webhooks
}
