//! `/admin/v1/queue` and `/admin/v1/webhooks/:id/queue`: the deliveries that the numbers of `/admin/v1/operations` count.

use ledger_events::WebhookId;
use ledger_projections::webhooks;
use poem_openapi::param::{Path, Query};
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;

use crate::access::Operator;
use crate::api::error::ApiError;
use crate::api::mirror::mirror;
use crate::api::page::Page;
use crate::api::principal::Caller;
use crate::api::reply::{Listed, Plural};
use crate::api::scalars::Timestamp;
use crate::api::state::{State, Tag, listed, not_found, rows_of};
use crate::delivery::queue::{self, Part, Queued, Scope};

/// State of deliveries.
///
/// - `due`: an attempt is due, and no node is sending it. `due_endpoints` of the state of operations counts these.
/// - `retries`: the delivery has a failed attempt and waits for another one, as `endpoints` counts them.
/// - `in_flight`: a node is sending the delivery.
/// - `without_outcome`: a node has taken up the delivery and recorded no outcome in time. It is sent again.
/// - `failed`: the delivery has failed for good.
/// - `failed_lately`: the same, with its last attempt due in the last 24 hours.
#[derive(Clone, Copy, Debug, Enum, Serialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
enum QueuePart {
    Due,
    Retries,
    InFlight,
    WithoutOutcome,
    Failed,
    FailedLately,
}

mirror!(QueuePart, Part: Due, Retries, InFlight, WithoutOutcome, Failed, FailedLately);

/// A delivery with the state of its attempts.
#[derive(Object, Serialize)]
struct QueuedDelivery {
    /// Unique identifier of the delivery.
    delivery_id: i64,
    /// Account that the webhook belongs to.
    account_id: i64,
    /// Unique identifier of the webhook.
    webhook_url_id: i64,
    /// Unique identifier of the order that the event is about; 0 for a test delivery, and for events of payouts and wallets.
    order_id: i64,
    /// Type of the event.
    event_type: String,
    /// ID of the event.
    event_id: String,
    /// Shard whose log has the event.
    shard_id: i16,
    /// Position of the event in the log of its shard.
    position: i64,
    /// Number of attempts so far.
    attempt_count: i16,
    /// Time at which the next attempt is due, or the last one was.
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
            account_id: queued.account_id.0,
            webhook_url_id: queued.webhook_id.0,
            order_id: queued.order_id.0,
            event_type: queued.event_type,
            event_id: queued.event_id.to_string(),
            shard_id: queued.shard_id,
            position: queued.position,
            attempt_count: queued.attempt_count,
            next_attempt_at: queued.next_attempt_at.into(),
            is_in_flight: queued.is_in_flight,
        }
    }
}

pub struct Queue;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Deliveries")]
impl Queue {
    /// List the deliveries in a state
    ///
    /// Returns the deliveries to the webhooks of all accounts in a state, the one that is due first at the start, or the one that
    /// failed last. The numbers of shards in `GET /admin/v1/operations` count the same deliveries. The list ends after 10,001
    /// deliveries of a shard; for `due`, after as many first attempts and as many retries. If a shard has more, the list has the latest
    /// failures, or any of the other deliveries.
    #[oai(path = "/queue", method = "get", operation_id = "list_queue")]
    async fn list_all(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// State of the deliveries. Default: `due`.
        part: Query<Option<QueuePart>>,
        /// Only deliveries of this shard.
        shard_id: Query<Option<i16>>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Deliveries per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<QueuedDelivery>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let shards = match shard_id.0 {
            None => state.ledger.shards(),
            named => vec![state.shard_named(named)?],
        };
        let part = part.0.unwrap_or(QueuePart::Due).into();
        let found = queue::list(state.ledger.pool(), Scope::Shards(&shards), part, rows_of(page)).await?;
        Ok(listed(found, page, QueuedDelivery::from))
    }

    /// List a webhook's deliveries in a state
    ///
    /// Returns the deliveries to the webhook in a state, the one that is due first at the start, or the one that failed last. The
    /// list ends after 1,000 deliveries; for `due`, after 1,000 first attempts and 1,000 retries.
    #[oai(path = "/webhooks/:id/queue", method = "get", operation_id = "list_queued_deliveries")]
    async fn list(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the webhook.
        id: Path<i64>,
        /// State of the deliveries. Default: `due`.
        part: Query<Option<QueuePart>>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Deliveries per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<QueuedDelivery>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let shards = state.ledger.shards();
        let (shard, webhook) = webhooks::find(state.ledger.pool(), &shards, WebhookId(id.0)).await?.ok_or_else(not_found)?;
        let part = part.0.unwrap_or(QueuePart::Due).into();
        let found = queue::list(state.ledger.pool(), Scope::Webhook(shard, webhook.id), part, rows_of(page)).await?;
        Ok(listed(found, page, QueuedDelivery::from))
    }
}
