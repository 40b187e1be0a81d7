//! `/api/v1/webhooks/deliveries`: what was sent, and what became of it.

use ledger_events::ShardId;
use ledger_projections::deliveries::{self, DeliveryFilter};
use poem_openapi::param::{Path, Query};
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;

use super::body::NoFields;
use super::error::ApiError;
use super::idempotency::IdempotencyKey;
use super::outcome::{respond, unrenderable};
use super::page::Page;
use super::principal::{Caller, ClientOperator};
use super::reply::{Data, Listed, Plural, Reply, Stored, render};
use super::scalars::{JsonObject, Timestamp};
use super::state::{State, Tag, listed, not_found, origin, rows_of};
use super::webhooks::Event;
use crate::access::Principal;
use crate::delivery::address::without_addresses;
use crate::delivery::schedule::MAX_ATTEMPTS;
use crate::ledger::{Answer, Command, Rendered, reader};

/// What became of a delivery.
#[derive(Clone, Copy, Enum, Serialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
enum DeliveryStatus {
    Pending,
    Delivered,
    Failed,
}

impl DeliveryStatus {
    fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }

    fn of(text: &str) -> Self {
        match text {
            "delivered" => Self::Delivered,
            "failed" => Self::Failed,
            _ => Self::Pending,
        }
    }
}

/// One event on its way to one webhook.
#[derive(Object, Serialize)]
struct Delivery {
    /// Its id.
    id: i64,
    /// The webhook.
    webhook_url_id: i64,
    /// The order that it is about.
    order_id: i64,
    /// What happened.
    event_type: Event,
    /// The same in the envelope and in the header `X-Event-ID`.
    event_id: String,
    /// The envelope that was sent.
    payload: JsonObject,
    /// Where it stands.
    status: DeliveryStatus,
    /// Attempts made so far.
    attempt_count: i16,
    /// Attempts it has at most.
    max_attempts: i16,
    /// The HTTP status of the latest answer.
    response_status: Option<i16>,
    /// How long the latest answer took, in milliseconds.
    response_time_ms: Option<i32>,
    /// When an attempt succeeded.
    delivered_at: Option<Timestamp>,
    /// When it was made.
    created_at: Timestamp,
}

impl Plural for Delivery {
    const PLURAL: &'static str = "deliveries";
}

impl From<deliveries::Delivery> for Delivery {
    fn from(delivery: deliveries::Delivery) -> Self {
        Self {
            id: delivery.id,
            webhook_url_id: delivery.webhook_id,
            order_id: delivery.order_id,
            event_type: delivery.event_type.into(),
            event_id: delivery.event_id.to_string(),
            payload: delivery.payload.map(JsonObject).unwrap_or_default(),
            status: DeliveryStatus::of(delivery.status),
            attempt_count: delivery.attempt_count,
            max_attempts: MAX_ATTEMPTS,
            response_status: delivery.response_status,
            response_time_ms: delivery.response_time_ms,
            delivered_at: delivery.delivered_at.map(Into::into),
            created_at: delivery.created_at.into(),
        }
    }
}

/// A delivery with its attempts.
#[derive(Object, Serialize)]
struct DeliveryDetail {
    #[oai(flatten)]
    #[serde(flatten)]
    delivery: Delivery,
    /// The beginning of the latest answer's body, at most 64 KiB.
    response_body: Option<String>,
    /// When the next attempt is due; null when there is none.
    next_attempt_at: Option<Timestamp>,
    /// Every attempt, oldest first.
    attempts: Vec<Attempt>,
}

/// One attempt to deliver.
#[derive(Object, Serialize)]
struct Attempt {
    /// Its number, from 1. An attempt whose outcome is unknown is repeated under its number.
    attempt: i16,
    /// The `X-Request-ID` it was sent with.
    request_id: String,
    /// When it began.
    started_at: Timestamp,
    /// The HTTP status of the answer.
    response_status: Option<i16>,
    /// How long the answer took, in milliseconds.
    response_time_ms: Option<i32>,
    /// Why there is no good answer; null while the attempt is in flight.
    error: Option<String>,
}

impl From<deliveries::Attempt> for Attempt {
    fn from(attempt: deliveries::Attempt) -> Self {
        let is_unknown = attempt.finished_at.is_none() && !attempt.is_in_flight;
        Self {
            attempt: attempt.attempt,
            request_id: attempt.request_id.to_string(),
            started_at: attempt.started_at.into(),
            response_status: attempt.response_status,
            response_time_ms: attempt.response_time_ms,
            error: attempt
                .error
                .map(|error| without_addresses(&error).into_owned())
                .or_else(|| is_unknown.then(|| "the outcome is not known".to_owned())),
        }
    }
}

/// How many deliveries an account has.
#[derive(Object, Serialize)]
struct DeliveryStatistics {
    /// All there are.
    total_count: i64,
    /// Waiting for an attempt.
    pending_count: i64,
    /// Answered with a 2xx.
    delivered_count: i64,
    /// Given up, or stopped with their webhook.
    failed_count: i64,
    /// Made in the last 24 hours.
    last_24h_total: i64,
    /// Of these: delivered.
    last_24h_delivered: i64,
    /// Of these: failed.
    last_24h_failed: i64,
}

impl From<deliveries::Statistics> for DeliveryStatistics {
    fn from(counts: deliveries::Statistics) -> Self {
        Self {
            total_count: counts.total_count,
            pending_count: counts.pending_count,
            delivered_count: counts.delivered_count,
            failed_count: counts.failed_count,
            last_24h_total: counts.last_24h_total,
            last_24h_delivered: counts.last_24h_delivered,
            last_24h_failed: counts.last_24h_failed,
        }
    }
}

/// A delivery will be tried again.
#[derive(Object, Serialize)]
struct DeliveryRetry {
    /// For people.
    message: String,
    /// The delivery.
    delivery_id: i64,
}

fn retried(answer: &Answer) -> Result<Rendered, serde_json::Error> {
    let Answer::Retry { delivery_id } = answer else { return unrenderable() };
    let message = "The delivery will be tried again within a minute.".to_owned();
    let body = render(&DeliveryRetry { message, delivery_id: *delivery_id })?;
    Ok(Rendered { status: 200, body, is_secret: false })
}

/// The retries that were accepted and not carried out yet: their deliveries are shown as pending.
async fn retries_ahead(state: &State<'_>, caller: &Principal) -> Result<Vec<deliveries::Retry>, ApiError> {
    let found = reader::retries_ahead(state.ledger.pool(), caller.shard_id, caller.account_id).await;
    found.map_err(ApiError::from)
}

/// Payloads whose time is over are made again from the log, the same bytes.
async fn with_payloads<'a>(
    state: &State<'_>,
    shard: ShardId,
    deliveries: impl Iterator<Item = &'a mut deliveries::Delivery>,
) -> Result<(), ApiError> {
    let bare: Vec<_> = deliveries.filter(|delivery| delivery.payload.is_none()).collect();
    if bare.is_empty() {
        return Ok(());
    }
    let mut events: Vec<_> = bare.iter().map(|delivery| delivery.event_id).collect();
    events.sort_unstable();
    events.dedup();
    let past = reader::past(&mut *state.ledger.pool().acquire().await?, shard, &events).await?;
    for delivery in bare {
        let event = past.get(&delivery.event_id).ok_or_else(|| ApiError::internal("a delivery's event is not in the log"))?;
        delivery.payload = deliveries::payload(event).map_err(ApiError::internal)?;
    }
    Ok(())
}

pub struct Deliveries;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Deliveries")]
impl Deliveries {
    /// List deliveries
    ///
    /// Of all the account's webhooks, newest first.
    #[oai(path = "/webhooks/deliveries", method = "get", operation_id = "list_deliveries")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn list(
        &self,
        caller: Caller,
        state: State<'_>,
        /// From 1.
        page: Query<Option<i64>>,
        /// Deliveries on a page: 1 to 100, by default 20.
        limit: Query<Option<i64>>,
        /// Only deliveries of this status.
        status: Query<Option<DeliveryStatus>>,
        /// Only deliveries of this event type.
        event_type: Query<Option<Event>>,
        /// Only deliveries about this order.
        order_id: Query<Option<i64>>,
        /// Only deliveries to this webhook.
        webhook_url_id: Query<Option<i64>>,
    ) -> Result<Listed<Delivery>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let retries = retries_ahead(&state, &caller.0).await?;
        let filter = DeliveryFilter {
            account_id: caller.0.account_id,
            status: status.0.map(DeliveryStatus::as_str),
            event_type: event_type.0.map(Into::into),
            order_id: order_id.0,
            webhook_id: webhook_url_id.0,
            retries,
        };
        let mut found = deliveries::list(state.ledger.pool(), caller.0.shard_id, &filter, rows_of(page)).await?;
        with_payloads(&state, caller.0.shard_id, found.rows.iter_mut()).await?;
        Ok(listed(found, page, Delivery::from))
    }

    /// Count deliveries
    ///
    /// All, and those made in the last 24 hours.
    #[oai(path = "/webhooks/deliveries/stats", method = "get", operation_id = "count_deliveries")]
    async fn statistics(&self, caller: Caller, state: State<'_>) -> Result<Reply<DeliveryStatistics>, ApiError> {
        let caller = caller.0;
        let retries = retries_ahead(&state, &caller).await?;
        let counts = deliveries::statistics(state.ledger.pool(), caller.shard_id, caller.account_id, &retries).await?;
        Ok(Reply(counts.into()))
    }

    /// Find a delivery
    ///
    /// With the complete payload, the receiver's answer and every attempt.
    #[oai(path = "/webhooks/deliveries/:id", method = "get", operation_id = "get_delivery")]
    async fn get(
        &self,
        caller: Caller,
        state: State<'_>,
        /// The delivery's id.
        id: Path<i64>,
    ) -> Result<Reply<DeliveryDetail>, ApiError> {
        let caller = caller.0;
        let retries = retries_ahead(&state, &caller).await?;
        let found = deliveries::find(state.ledger.pool(), caller.shard_id, caller.account_id, id.0, &retries).await?;
        let (mut delivery, attempts) = found.ok_or_else(not_found)?;
        with_payloads(&state, caller.shard_id, std::iter::once(&mut delivery)).await?;
        let is_pending = delivery.status == "pending";
        Ok(Reply(DeliveryDetail {
            response_body: delivery.response_body.take(),
            next_attempt_at: is_pending.then(|| delivery.next_attempt_at.into()),
            delivery: delivery.into(),
            attempts: attempts.into_iter().map(Into::into).collect(),
        }))
    }

    /// Retry a delivery
    ///
    /// A failed one that has attempts left, because its webhook was switched off, is pending again with
    /// the attempts it has used. The webhook must be active.
    #[oai(path = "/webhooks/deliveries/:id/retry", method = "post", operation_id = "retry_delivery")]
    async fn retry(
        &self,
        caller: Caller<ClientOperator>,
        state: State<'_>,
        /// The delivery's id.
        id: Path<i64>,
        /// A name for this request: the same one again is answered with the first answer.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        _no_fields: NoFields,
    ) -> Result<Stored<Data<DeliveryRetry>>, ApiError> {
        let caller = caller.0;
        let idempotency = key.of(&caller, &format!("/api/v1/webhooks/deliveries/{}/retry", id.0), &(), retried)?;
        let command = Command::RetryDelivery { account_id: caller.account_id, delivery_id: id.0 };
        let reply = state.ledger.submit(caller.shard_id, command, origin(caller.actor()), idempotency).await?;
        respond(reply, retried)
    }
}
