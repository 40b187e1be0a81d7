//! `/api/v1/orders/:id/history`: the history of an order as its own account sees it, and the parts that the operators'
//! history shares with it.

use ledger_events::OrderId;
use ledger_events::replay::NO_REPLAY;
use ledger_projections::{deliveries, orders};
use poem_openapi::param::Path;
use poem_openapi::{Object, OpenApi};
use serde::Serialize;
use webhook_client::address::without_addresses;

use super::error::ApiError;
use super::principal::Caller;
use super::reply::Reply;
use super::scalars::Timestamp;
use super::state::{State, Tag, not_found};
use super::transactions::Transaction;
use crate::ledger::timeline::{self, Timeline, TimelineDelivery, TimelineEntry, Who};
use crate::secrets::seal::Secret;

/// Kind of actor for the operators of the service.
const OPERATOR: &str = "operator";
/// Event whose reason an operator gives.
const ERASURE: &str = "PersonalDataErased";

/// Person or process that caused an event.
#[derive(Object, Serialize)]
pub struct HistoryActor {
    /// Kind of actor: `credential`, `user`, `operator`, `fulfilment`, `replay`, `sandbox` or `service`.
    kind: String,
    /// Unique identifier of the actor within its kind; null for a process, such as `fulfilment`.
    actor_id: Option<i64>,
    /// Name of the credential or operator, or the user's email address, if known.
    name: Option<String>,
}

/// A delivery to a webhook.
#[derive(Object, Serialize)]
pub struct HistoryDelivery {
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

/// Returns a text of the vault as the response shows it.
pub fn shown(text: Secret) -> String {
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
            outcome: attempt.outcome().as_str().to_owned(),
            response_status: attempt.response_status,
            response_time_ms: attempt.response_time_ms,
            error: attempt.error,
        }
    }
}

impl From<TimelineDelivery> for HistoryDelivery {
    fn from(delivery: TimelineDelivery) -> Self {
        let TimelineDelivery { delivery, webhook_name, retries } = delivery;
        Self {
            delivery_id: delivery.id,
            webhook_id: delivery.webhook_id.0,
            webhook_name: webhook_name.map(shown),
            replay_id: Some(delivery.replay_id).filter(|id| *id != NO_REPLAY).map(|id| id.0),
            event_type: delivery.event_type,
            status: delivery.status,
            attempt_count: delivery.attempt_count,
            created_at: delivery.created_at.into(),
            next_attempt_at: delivery.next_attempt_at.map(Into::into),
            attempts: delivery.attempts.into_iter().map(Into::into).collect(),
            retries: retries.into_iter().map(|(at, who)| HistoryRetry { requested_at: at.into(), actor: who.into() }).collect(),
        }
    }
}

impl HistoryActor {
    /// Removes the identity of an operator: clients learn that the service acted, not which of its employees.
    fn for_client(self) -> Self {
        if self.kind == OPERATOR { Self { actor_id: None, name: None, ..self } } else { self }
    }
}

impl HistoryDelivery {
    /// Removes IP addresses and the identities of operators.
    fn for_client(self) -> Self {
        let attempt = |attempt: HistoryAttempt| {
            let error = attempt.error.map(|error| without_addresses(&error).into_owned());
            HistoryAttempt { error, ..attempt }
        };
        let retry = |retry: HistoryRetry| HistoryRetry { actor: retry.actor.for_client(), ..retry };
        let attempts = self.attempts.into_iter().map(attempt).collect();
        let retries = self.retries.into_iter().map(retry).collect();
        Self { attempts, retries, ..self }
    }
}

/// Everything that happened to an order.
#[derive(Object, Serialize)]
struct OrderTimeline {
    /// Unique identifier of the order.
    order_id: i64,
    /// Human-readable reference of the order, assigned by the service.
    reference_code: String,
    /// Current status of the order.
    status: String,
    /// Events of the order, oldest first.
    entries: Vec<OrderTimelineEntry>,
    /// Number of code readings that `entries` omits. After 1,000 entries, only the last 100 readings are included.
    entries_left_out: u64,
}

/// An event of an order, with its effects.
#[derive(Object, Serialize)]
struct OrderTimelineEntry {
    /// Unique identifier of the event. Webhook deliveries carry the same identifier.
    event_id: String,
    /// Type of the event in the log, such as `OrderPlaced`. New types may be added.
    event_type: String,
    /// Time at which the event was recorded.
    recorded_at: Timestamp,
    /// Person or process that caused the event. Operators of the service are not named.
    actor: HistoryActor,
    /// `X-Request-ID` of the request that caused the event, or the name of the background process.
    request_id: String,
    /// Description of the event in plain English. Vouchers appear by reference only. Do not parse it.
    description: String,
    /// Reason given with a cancellation, if any.
    reason: Option<String>,
    /// Wallet transaction that the event caused, if any.
    transaction: Option<Transaction>,
    /// Webhook deliveries of the event, in their current state.
    deliveries: Vec<HistoryDelivery>,
}

impl From<TimelineEntry> for OrderTimelineEntry {
    fn from(entry: TimelineEntry) -> Self {
        let event_type = entry.recorded.event.type_and_version().0;
        Self {
            event_id: entry.recorded.moment.event_id.to_string(),
            event_type: event_type.to_owned(),
            recorded_at: entry.recorded.moment.recorded_at.into(),
            actor: HistoryActor::from(entry.actor).for_client(),
            request_id: entry.recorded.metadata.request_id,
            description: entry.description,
            reason: entry.reason.filter(|_| event_type != ERASURE).map(shown),
            transaction: entry.movement.map(Into::into),
            deliveries: entry.deliveries.into_iter().map(|delivery| HistoryDelivery::from(delivery).for_client()).collect(),
        }
    }
}

impl From<Timeline> for OrderTimeline {
    fn from(timeline: Timeline) -> Self {
        Self {
            order_id: timeline.order.id.0,
            status: timeline.order.status.as_str().to_owned(),
            reference_code: timeline.order.placed.reference_code,
            entries: timeline.entries.into_iter().map(Into::into).collect(),
            entries_left_out: timeline.left_out,
        }
    }
}

pub struct OwnHistories;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Orders")]
impl OwnHistories {
    /// Retrieve the history of an order
    ///
    /// Returns every event of the order with its actor, time and wallet transaction. Webhook deliveries are included with
    /// all attempts and retries.
    ///
    /// If codes were read very often, not every reading is listed: `entries_left_out` is the number omitted.
    #[oai(path = "/orders/:id/history", method = "get", operation_id = "get_own_order_history")]
    async fn get(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Unique identifier of the order.
        id: Path<i64>,
    ) -> Result<Reply<OrderTimeline>, ApiError> {
        let (pool, caller) = (state.ledger.pool(), caller.0);
        // The history itself does not know whose order it is.
        orders::find(pool, caller.shard_id, OrderId(id.0), Some(caller.account_id)).await?.ok_or_else(not_found)?;
        let timeline =
            timeline::of_order(pool, Some(&state.keyring), caller.shard_id, OrderId(id.0), None).await?.ok_or_else(not_found)?;
        Ok(Reply(timeline.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_do_not_learn_the_names_of_operators() {
        let actor = |kind: &str| HistoryActor { kind: kind.to_owned(), actor_id: Some(3), name: Some("Jo".to_owned()) };
        let operator = actor(OPERATOR).for_client();
        assert_eq!((operator.kind.as_str(), operator.actor_id, operator.name), (OPERATOR, None, None));
        let user = actor("user").for_client();
        assert_eq!((user.actor_id, user.name.as_deref()), (Some(3), Some("Jo")));
    }
}
