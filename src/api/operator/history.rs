//! `/admin/v1/orders/:id/history`: the history of an order, and the `as_of` parameter of operators' routes.

use ledger_database::PgPool;
use ledger_events::{OrderId, Position, ShardId};
use poem_openapi::param::{Path, Query};
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use crate::access::Operator;
use crate::api::error::ApiError;
use crate::api::history::{HistoryActor, HistoryDelivery, shown};
use crate::api::principal::Caller;
use crate::api::reply::Reply;
use crate::api::scalars::Timestamp;
use crate::api::state::{State, Tag, not_found};
use crate::api::transactions::Transaction;
use crate::ledger::history::{self, AsOf, AsOfError};
use crate::ledger::timeline::{self, Timeline, TimelineEntry};

/// Resolves `as_of` to a position of the log. Returns `None` if it is absent.
///
/// # Errors
///
/// 400 if the text is neither a position nor a time, or if the log has not reached the position.
pub async fn as_of_position(pool: &PgPool, shard: ShardId, as_of: Option<&str>) -> Result<Option<Position>, ApiError> {
    let Some(as_of) = parsed(as_of)? else { return Ok(None) };
    Ok(Some(history::position(pool, shard, as_of).await?))
}

fn parsed(as_of: Option<&str>) -> Result<Option<AsOf>, ApiError> {
    let parsed = as_of.map(str::parse).transpose();
    parsed.map_err(|problem: AsOfError| ApiError::invalid("as_of", problem.to_string()))
}

/// Everything that happened to an order.
#[derive(Object, Serialize)]
pub struct OrderHistory {
    /// Unique identifier of the order.
    order_id: i64,
    /// Account that the order belongs to.
    account_id: i64,
    /// Reference code of the order, for people to quote.
    reference_code: String,
    /// Status of the order after the last entry.
    status: String,
    /// Position of the log at which the history ends; null for the current state.
    as_of_position: Option<i64>,
    /// Events of the order, oldest first.
    entries: Vec<HistoryEntry>,
    /// Number of code readings that `entries` omits. After 1,000 entries, only the last 100 readings are included.
    entries_left_out: u64,
}

/// An event of an order, with its effects.
#[derive(Object, Serialize)]
struct HistoryEntry {
    /// Position of the event in the log.
    position: i64,
    /// Unique identifier of the event. Webhook deliveries carry the same identifier.
    event_id: String,
    /// Type of the event in the log, such as `OrderPlaced`.
    event_type: String,
    /// Time at which the event was recorded.
    recorded_at: Timestamp,
    /// Person or process that caused the event.
    actor: HistoryActor,
    /// `X-Request-ID` of the request that caused the event, or the name of the background process.
    request_id: String,
    /// Description of the event, for people. Vouchers appear by reference only.
    description: String,
    /// Reason given with the request, if any.
    reason: Option<String>,
    /// Wallet transaction that the event caused, if any.
    transaction: Option<Transaction>,
    /// Webhook deliveries of the event, in their current state.
    deliveries: Vec<HistoryDelivery>,
}

impl From<TimelineEntry> for HistoryEntry {
    fn from(entry: TimelineEntry) -> Self {
        let moment = entry.recorded.moment;
        Self {
            position: moment.position,
            event_id: moment.event_id.to_string(),
            event_type: entry.recorded.event.type_and_version().0.to_owned(),
            recorded_at: moment.recorded_at.into(),
            actor: entry.actor.into(),
            request_id: entry.recorded.metadata.request_id,
            description: entry.description,
            reason: entry.reason.map(shown),
            transaction: entry.movement.map(Into::into),
            deliveries: entry.deliveries.into_iter().map(Into::into).collect(),
        }
    }
}

impl OrderHistory {
    pub fn of(timeline: Timeline, as_of_position: Option<Position>) -> Self {
        let order = timeline.order;
        Self {
            order_id: order.id.0,
            account_id: order.placed.account_id.0,
            reference_code: order.placed.reference_code,
            status: order.status.as_str().to_owned(),
            as_of_position,
            entries: timeline.entries.into_iter().map(Into::into).collect(),
            entries_left_out: timeline.left_out,
        }
    }
}

pub struct Histories;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Orders")]
impl Histories {
    /// Retrieve the history of an order
    ///
    /// Returns every event of an order with its actor, time and wallet transaction. Webhook deliveries are included with
    /// all attempts, retries and replays. With `as_of`, the history ends at that point: deliveries have the attempts that had
    /// started, and those that had ended have their outcome. A position lasts until the next event of the log.
    ///
    /// If codes were read very often, not every reading is listed: `entries_left_out` is the number omitted.
    #[oai(path = "/orders/:id/history", method = "get", operation_id = "get_order_history")]
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the order.
        id: Path<i64>,
        /// End of the history: a position of the log, an RFC 3339 time, or a date (midnight UTC). Default: now.
        as_of: Query<Option<String>>,
    ) -> Result<Reply<OrderHistory>, ApiError> {
        let id = OrderId(id.0);
        let pool = state.ledger.pool();
        let shard = state.ledger.shard_of_order(id).await?.ok_or_else(not_found)?;
        let point = match parsed(as_of.0.as_deref())? {
            Some(as_of) => Some(history::point(pool, shard, as_of).await?),
            None => None,
        };
        let timeline = timeline::of_order(pool, Some(&state.keyring), shard, id, point).await?.ok_or_else(not_found)?;
        Ok(Reply(OrderHistory::of(timeline, point.map(|point| point.position))))
    }
}
