//! `/admin/v1/orders/:id/history`: the history of an order, and the `as_of` parameter of operators' routes.

use ledger_database::PgPool;
use ledger_events::{Position, ShardId};
use ledger_projections::deliveries;
use poem_openapi::param::{Path, Query};
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use crate::access::Operator;
use crate::api::error::ApiError;
use crate::api::principal::Caller;
use crate::api::reply::Reply;
use crate::api::scalars::Timestamp;
use crate::api::state::{State, Tag, not_found};
use crate::api::transactions::Transaction;
use crate::ledger::history::{self, AsOf, AsOfError};
use crate::ledger::timeline::{self, Timeline, TimelineDelivery, TimelineEntry, Who};
use crate::secrets::seal::Secret;

/// Resolves `as_of` to a position of the log. Returns `None` if it is absent.
///
/// # Errors
///
/// 400 if the text is neither a position nor a time, or if the log has not reached the position.
pub async fn as_of_position(pool: &PgPool, shard: ShardId, as_of: Option<&str>) -> Result<Option<Position>, ApiError> {
    let Some(text) = as_of else { return Ok(None) };
    let as_of: AsOf = text.parse().map_err(|problem: AsOfError| ApiError::invalid("as_of", problem.to_string()))?;
    Ok(Some(history::position(pool, shard, as_of).await?))
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

/// Person or process that caused an event.
#[derive(Object, Serialize)]
struct HistoryActor {
    /// Kind of actor: `credential`, `user`, `operator`, `fulfilment`, `replay` or `sandbox`.
    kind: String,
    /// Unique identifier of the actor within its kind; null for a process, such as `fulfilment`.
    actor_id: Option<i64>,
    /// Name of the credential or operator, or the user's email address, if known.
    name: Option<String>,
}

/// A delivery to a webhook.
#[derive(Object, Serialize)]
struct HistoryDelivery {
    /// Unique identifier of the delivery.
    delivery_id: i64,
    /// Unique identifier of the webhook.
    webhook_id: i64,
    /// Name of the webhook; null after it is erased.
    webhook_name: Option<String>,
    /// Replay that created the delivery; null if the event itself created it.
    replay_id: Option<i64>,
    /// Event type that the webhook receives.
    event_type: String,
    /// Status of the delivery: `pending`, `delivered` or `failed`.
    status: String,
    /// Number of attempts with a known outcome.
    attempt_count: i16,
    /// Time at which the delivery was created.
    created_at: Timestamp,
    /// Time at which the next attempt is due; null if none is planned.
    next_attempt_at: Option<Timestamp>,
    /// Attempts that are still stored, oldest first.
    attempts: Vec<HistoryAttempt>,
    /// Retries that were requested for the delivery.
    retries: Vec<HistoryRetry>,
}

/// An attempt to send a delivery.
#[derive(Object, Serialize)]
struct HistoryAttempt {
    /// Number of the attempt, from 1. An attempt with an unknown outcome is repeated under the same number.
    attempt: i16,
    /// `X-Request-ID` that the attempt was sent with.
    request_id: String,
    /// Time at which the attempt started.
    started_at: Timestamp,
    /// Outcome: `delivered`, `failed`, `in_flight`, or `unknown` if the attempt was interrupted before its outcome was
    /// recorded.
    outcome: String,
    /// HTTP status of the receiver's response, if there was one.
    response_status: Option<i16>,
    /// Response time of the receiver, in milliseconds.
    response_time_ms: Option<i32>,
    /// Reason for the failure, if the attempt failed.
    error: Option<String>,
}

/// A request to retry a failed delivery.
#[derive(Object, Serialize)]
struct HistoryRetry {
    /// Time of the request.
    requested_at: Timestamp,
    /// Actor that requested the retry.
    actor: HistoryActor,
}

fn shown(text: Secret) -> String {
    text.expose().to_owned()
}

impl From<Who> for HistoryActor {
    fn from(who: Who) -> Self {
        let (kind, actor_id) = who.actor.kind();
        Self { kind: kind.to_owned(), actor_id, name: who.name.map(shown) }
    }
}

impl From<deliveries::Attempt> for HistoryAttempt {
    fn from(attempt: deliveries::Attempt) -> Self {
        Self {
            attempt: attempt.attempt,
            request_id: attempt.request_id.to_string(),
            started_at: attempt.started_at.into(),
            outcome: timeline::outcome(&attempt).to_owned(),
            response_status: attempt.response_status,
            response_time_ms: attempt.response_time_ms,
            error: attempt.error,
        }
    }
}

impl From<TimelineDelivery> for HistoryDelivery {
    fn from(telling: TimelineDelivery) -> Self {
        let TimelineDelivery { told, webhook_name, retries } = telling;
        Self {
            delivery_id: told.id,
            webhook_id: told.webhook_id,
            webhook_name: webhook_name.map(shown),
            replay_id: Some(told.replay_id).filter(|id| *id > 0),
            event_type: told.event_type,
            status: told.status,
            attempt_count: told.attempt_count,
            created_at: told.created_at.into(),
            next_attempt_at: told.next_attempt_at.map(Into::into),
            attempts: told.attempts.into_iter().map(Into::into).collect(),
            retries: retries.into_iter().map(|(at, who)| HistoryRetry { requested_at: at.into(), actor: who.into() }).collect(),
        }
    }
}

impl From<TimelineEntry> for HistoryEntry {
    fn from(chapter: TimelineEntry) -> Self {
        let moment = chapter.recorded.moment;
        Self {
            position: moment.position,
            event_id: moment.event_id.to_string(),
            event_type: chapter.recorded.event.type_and_version().0.to_owned(),
            recorded_at: moment.recorded_at.into(),
            actor: chapter.actor.into(),
            request_id: chapter.recorded.metadata.request_id,
            description: chapter.description,
            reason: chapter.reason.map(shown),
            transaction: chapter.movement.map(Into::into),
            deliveries: chapter.deliveries.into_iter().map(Into::into).collect(),
        }
    }
}

impl OrderHistory {
    pub fn of(story: Timeline, as_of_position: Option<Position>) -> Self {
        let order = story.order;
        Self {
            order_id: order.id,
            account_id: order.placed.account_id,
            reference_code: order.placed.reference_code,
            status: order.status.as_str().to_owned(),
            as_of_position,
            entries: story.chapters.into_iter().map(Into::into).collect(),
            entries_left_out: story.left_out,
        }
    }
}

pub struct Histories;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Orders")]
impl Histories {
    /// Retrieve the history of an order
    ///
    /// Returns every event of an order with its actor, time and wallet transaction. Webhook deliveries are included with
    /// all attempts, retries and replays. With `as_of`, the history ends at that point, but deliveries show their current
    /// state.
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
        let pool = state.ledger.pool();
        let shard = state.ledger.shard_of_order(id.0).await?.ok_or_else(not_found)?;
        let upto = as_of_position(pool, shard, as_of.0.as_deref()).await?;
        let story = timeline::of_order(pool, Some(&state.keyring), shard, id.0, upto).await?.ok_or_else(not_found)?;
        Ok(Reply(OrderHistory::of(story, upto)))
    }
}
