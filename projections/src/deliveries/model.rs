//! Deliveries, attempts and filters, as readers see them.

use chrono::{DateTime, Utc};
use ledger_database::FromRow;
use ledger_events::webhook::WebhookEventType;
use ledger_events::{AccountId, OrderId, Position, ReplayId, WebhookId};
use uuid::Uuid;

use crate::listing::pages::Group;

/// A delivery with the worker's record (specification, "Webhook delivery").
#[derive(Clone, Debug)]
pub struct Delivery {
    pub id: i64,
    pub webhook_id: WebhookId,
    pub order_id: OrderId,
    pub event_type: WebhookEventType,
    pub event_id: Uuid,
    /// Position of the event in the log.
    pub position: Position,
    /// Bytes of the envelope. `None` if retention has removed them; the log can produce them again.
    pub payload: Option<String>,
    pub status: DeliveryStatus,
    pub attempt_count: i16,
    pub response_status: Option<i16>,
    pub response_time_ms: Option<i32>,
    pub delivered_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub next_attempt_at: DateTime<Utc>,
    pub response_body: Option<String>,
}

/// An attempt, as the worker recorded it.
#[derive(Clone, Debug, FromRow)]
pub struct Attempt {
    pub attempt: i16,
    pub request_id: Uuid,
    pub started_at: DateTime<Utc>,
    pub finished_at: Option<DateTime<Utc>>,
    pub response_status: Option<i16>,
    pub response_time_ms: Option<i32>,
    pub error: Option<String>,
    /// Body of the response. `None` if there was none, if it is not stored any more, or if the query does not read it.
    #[sqlx(default)]
    pub response_body: Option<String>,
    /// Whether the attempt was sent and its outcome may still arrive: it is the latest attempt, and its lease has
    /// not expired.
    pub is_in_flight: bool,
}

/// Outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The endpoint answered with a 2xx status.
    Delivered,
    Failed,
    /// The attempt was sent, and its outcome may still arrive.
    InFlight,
    /// The node that made the attempt has not recorded its outcome.
    Unknown,
}

impl AttemptOutcome {
    pub const ALL: [AttemptOutcome; 4] = [Self::Delivered, Self::Failed, Self::InFlight, Self::Unknown];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::InFlight => "in_flight",
            Self::Unknown => "unknown",
        }
    }
}

impl Attempt {
    pub fn outcome(&self) -> AttemptOutcome {
        match (self.finished_at, self.response_status) {
            (None, _) if self.is_in_flight => AttemptOutcome::InFlight,
            (None, _) => AttemptOutcome::Unknown,
            (Some(_), Some(200..=299)) => AttemptOutcome::Delivered,
            (Some(_), _) => AttemptOutcome::Failed,
        }
    }
}

/// Status of a delivery, as the worker recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryStatus {
    Pending,
    Delivered,
    Failed,
}

impl DeliveryStatus {
    pub const ALL: [DeliveryStatus; 3] = [Self::Pending, Self::Delivered, Self::Failed];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }

    pub fn parse(text: &str) -> Option<DeliveryStatus> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// An accepted retry, identified by the natural key of its delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    pub webhook_id: WebhookId,
    pub event_id: Uuid,
    pub replay_id: ReplayId,
    pub requested_at: DateTime<Utc>,
}

#[derive(Clone, Debug)]
pub struct DeliveryFilter {
    pub account_id: AccountId,
    pub status: Option<&'static str>,
    pub event_type: Option<WebhookEventType>,
    pub order_id: Option<OrderId>,
    pub webhook_id: Option<WebhookId>,
    /// Replay that made the deliveries.
    pub replay_id: Option<ReplayId>,
    /// Only deliveries that were made at or after this time.
    pub created_from: Option<DateTime<Utc>>,
    /// Only deliveries that were made before this time.
    pub created_to: Option<DateTime<Utc>>,
    /// Retries of the account that the projection has not processed yet. The deliveries that they name count as
    /// pending.
    pub retries: Vec<Retry>,
}

/// Conditions of the partial indexes on `delivery_state`, word for word.
pub(super) const PENDING: &[&str] = &["status = 'pending' AND attempt_count = 0", "status = 'pending' AND attempt_count > 0"];
/// Condition of the partial index on `delivery_state`, word for word.
pub(super) const FAILED: &[&str] = &["status = 'failed'"];

pub(super) fn webhooks_of(groups: &[Group<WebhookId>]) -> Vec<WebhookId> {
    let mut webhooks: Vec<WebhookId> = groups.iter().map(|group| group.id).collect();
    webhooks.sort_unstable();
    webhooks.dedup();
    webhooks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_status_is_no_status() {
        assert_eq!(DeliveryStatus::ALL.map(|status| DeliveryStatus::parse(status.as_str())), DeliveryStatus::ALL.map(Some));
        assert_eq!(DeliveryStatus::parse("lost"), None);
    }
}
