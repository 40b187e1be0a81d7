//! `/admin/v1/webhooks/:id/queue`: the deliveries that the numbers of a webhook in `/admin/v1/operations` count.

use ledger_events::WebhookId;
use ledger_projections::webhooks;
use poem_openapi::param::{Path, Query};
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;

use crate::access::Operator;
use crate::api::error::ApiError;
use crate::api::page::Page;
use crate::api::principal::Caller;
use crate::api::reply::{Listed, Plural};
use crate::api::scalars::Timestamp;
use crate::api::state::{State, Tag, listed, not_found, rows_of};
use crate::delivery::queue::{self, Part, Queued};

/// Part of a webhook's queue.
///
/// - `due`: deliveries whose attempt is due and that no node is sending, as `due_endpoints` of the state of operations counts
///   them.
/// - `retries`: deliveries with a failed attempt that wait for another one, as `endpoints` counts them.
#[derive(Clone, Copy, Debug, Enum, Serialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
enum QueuePart {
    Due,
    Retries,
}

impl From<QueuePart> for Part {
    fn from(part: QueuePart) -> Self {
        match part {
            QueuePart::Due => Self::Due,
            QueuePart::Retries => Self::Retries,
        }
    }
}

/// A delivery that waits for an attempt.
#[derive(Object, Serialize)]
struct QueuedDelivery {
    /// Unique identifier of the delivery.
    delivery_id: i64,
    /// Unique identifier of the order that the event is about; 0 for a test delivery, and for events of payouts and wallets.
    order_id: i64,
    /// Type of the event.
    event_type: String,
    /// ID of the event.
    event_id: String,
    /// Number of attempts so far.
    attempt_count: i16,
    /// Time at which the next attempt is due.
    next_attempt_at: Timestamp,
    /// Whether a node is sending the delivery.
    is_in_flight: bool,
}

impl Plural for QueuedDelivery {
    const PLURAL: &'static str = "deliveries";
}

impl From<Queued> for QueuedDelivery {
    fn from(queued: Queued) -> Self {
        Self {
            delivery_id: queued.delivery_id,
            order_id: queued.order_id.0,
            event_type: queued.event_type,
            event_id: queued.event_id.to_string(),
            attempt_count: queued.attempt_count,
            next_attempt_at: queued.next_attempt_at.into(),
            is_in_flight: queued.is_in_flight,
        }
    }
}

pub struct Queue;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Deliveries")]
impl Queue {
    /// List a webhook's queue
    ///
    /// Returns the pending deliveries to the webhook, the one that is due first at the start. The list ends after 1,000 first
    /// attempts and 1,000 retries.
    #[oai(path = "/webhooks/:id/queue", method = "get", operation_id = "list_queued_deliveries")]
    async fn list(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the webhook.
        id: Path<i64>,
        /// Part of the queue. Default: `due`.
        part: Query<Option<QueuePart>>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Deliveries per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<QueuedDelivery>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let shards: Vec<_> = state.ledger.shards().collect();
        let (shard, webhook) = webhooks::find(state.ledger.pool(), &shards, WebhookId(id.0)).await?.ok_or_else(not_found)?;
        let part = part.0.unwrap_or(QueuePart::Due).into();
        let found = queue::list(state.ledger.pool(), (shard, webhook.id), part, rows_of(page)).await?;
        Ok(listed(found, page, QueuedDelivery::from))
    }
}
