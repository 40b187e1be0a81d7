//! `/api/v1/webhooks/deliveries`: the deliveries of an account's webhooks, with their attempts and outcomes.

use chrono::{DateTime, Utc};
use ledger_database::{PgPool, replanned};
use ledger_events::webhook::MAX_ATTEMPTS;
use ledger_events::{AccountId, OrderId, ReplayId, ShardId, WebhookId};
use ledger_projections::deliveries::{self, DeliveryFilter};
use poem_openapi::param::{Path, Query};
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;
use webhook_client::address::without_addresses;

use super::body::NoFields;
use super::error::ApiError;
use super::idempotency::IdempotencyKey;
use super::outcome::{respond, unrenderable};
use super::page::Page;
use super::principal::{Caller, WebhookOperator};
use super::reply::{Data, Listed, Plural, Reply, Stored, render};
use super::scalars::{JsonObject, Timestamp};
use super::state::{ApiState, State, Tag, listed, not_found, origin, rows_of, time};
use super::webhooks::Event;
use crate::ledger::{CommandResult, StoredResponse, commands, reader};

/// Status of a delivery.
///
/// - `pending`: an attempt is due or in flight.
/// - `delivered`: your endpoint answered an attempt with a 2xx status.
/// - `failed`: all attempts are used, or the delivery was stopped, for example because its webhook was deactivated.
#[derive(Clone, Copy, Enum, Serialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum DeliveryStatus {
    Pending,
    Delivered,
    Failed,
}

impl DeliveryStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }
}

impl From<deliveries::DeliveryStatus> for DeliveryStatus {
    fn from(status: deliveries::DeliveryStatus) -> Self {
        match status {
            deliveries::DeliveryStatus::Pending => Self::Pending,
            deliveries::DeliveryStatus::Delivered => Self::Delivered,
            deliveries::DeliveryStatus::Failed => Self::Failed,
        }
    }
}

/// Delivery of one event to one webhook.
#[derive(Object, Serialize)]
pub struct Delivery {
    /// Unique identifier of the delivery.
    id: i64,
    /// Unique identifier of the webhook that receives the event.
    webhook_url_id: i64,
    /// Unique identifier of the order that the event is about; 0 for a test delivery, and for events of
    /// payouts and wallets.
    order_id: i64,
    /// Type of the event.
    event_type: Event,
    /// ID of the event. The envelope's `event_id` and the header `X-Event-ID` have the same value.
    event_id: String,
    /// Order of the event: it grows with every event of the same order, payout or wallet, and is not consecutive. The header
    /// `X-Event-Sequence` has the same value.
    sequence: i64,
    /// Webhook envelope: the JSON body that each attempt sends.
    payload: JsonObject,
    /// Current status of the delivery.
    status: DeliveryStatus,
    /// Number of attempts made so far.
    attempt_count: i16,
    /// Maximum number of attempts. When the last one fails, the delivery is `failed` for good.
    max_attempts: i16,
    /// HTTP status that your endpoint returned to the latest attempt; null if it returned none.
    response_status: Option<i16>,
    /// Duration of the latest attempt, in milliseconds; null if no attempt has ended or its outcome is unknown.
    response_time_ms: Option<i32>,
    /// Time of the successful attempt; null unless the status is `delivered`.
    delivered_at: Option<Timestamp>,
    /// Time at which the delivery was created.
    created_at: Timestamp,
}

impl Plural for Delivery {
    const PLURAL: &'static str = "deliveries";
}

impl From<deliveries::Delivery> for Delivery {
    fn from(delivery: deliveries::Delivery) -> Self {
        Self {
            id: delivery.id,
            webhook_url_id: delivery.webhook_id.0,
            order_id: delivery.order_id.0,
            event_type: delivery.event_type.into(),
            event_id: delivery.event_id.to_string(),
            sequence: delivery.position,
            payload: delivery.payload.map(JsonObject).unwrap_or_default(),
            status: delivery.status.into(),
            attempt_count: delivery.attempt_count,
            max_attempts: MAX_ATTEMPTS,
            response_status: delivery.response_status,
            response_time_ms: delivery.response_time_ms,
            delivered_at: delivery.delivered_at.map(Into::into),
            created_at: delivery.created_at.into(),
        }
    }
}

/// A delivery with its latest response, and its attempts with their responses.
#[derive(Object, Serialize)]
pub struct DeliveryDetail {
    #[oai(flatten)]
    #[serde(flatten)]
    delivery: Delivery,
    /// First 64 KiB of the body of your endpoint's latest response. Null if there was none, or if retention has removed it.
    response_body: Option<String>,
    /// Time at which the next attempt is due; null unless the status is `pending`.
    next_attempt_at: Option<Timestamp>,
    /// The attempts, oldest first. Retention removes old ones.
    attempts: Vec<Attempt>,
}

/// One attempt to send a delivery, with the response.
#[derive(Object, Serialize)]
pub struct Attempt {
    #[oai(flatten)]
    #[serde(flatten)]
    result: AttemptResult,
    /// First 64 KiB of the body of your endpoint's response. Null if there was none, or if retention has removed it.
    response_body: Option<String>,
}

impl From<deliveries::Attempt> for Attempt {
    fn from(mut attempt: deliveries::Attempt) -> Self {
        Self { response_body: attempt.response_body.take(), result: attempt.into() }
    }
}

/// Result of an attempt, without the body of the response, as lists have it.
#[derive(Object, Serialize)]
pub struct AttemptResult {
    /// Number of the attempt, starting at 1. An attempt whose outcome is unknown is repeated under the same number.
    attempt: i16,
    /// Value of the header `X-Request-ID` that the attempt was sent with.
    request_id: String,
    /// Time at which the attempt was sent.
    started_at: Timestamp,
    /// HTTP status that your endpoint returned; null if it returned none.
    response_status: Option<i16>,
    /// Duration of the attempt, in milliseconds; null while it is in flight or if its outcome is unknown.
    response_time_ms: Option<i32>,
    /// Reason why the attempt failed, or a note that its outcome is unknown. Null if it succeeded or is in flight.
    error: Option<String>,
}

impl From<deliveries::Attempt> for AttemptResult {
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

/// Delivery counts of an account.
#[derive(Object, Serialize)]
struct DeliveryStatistics {
    /// Number of all deliveries.
    total_count: i64,
    /// Number of `pending` deliveries.
    pending_count: i64,
    /// Number of `delivered` deliveries.
    delivered_count: i64,
    /// Number of `failed` deliveries.
    failed_count: i64,
    /// Number of deliveries created in the last 24 hours.
    last_24h_total: i64,
    /// Number of deliveries created in the last 24 hours that are `delivered`.
    last_24h_delivered: i64,
    /// Number of deliveries created in the last 24 hours that are `failed`.
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

/// Confirmation that a delivery will be retried.
#[derive(Object, Serialize)]
struct DeliveryRetry {
    /// Confirmation in plain English.
    message: String,
    /// Unique identifier of the delivery that will be retried.
    delivery_id: i64,
}

fn retried(answer: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
    let CommandResult::Retry { delivery_id } = answer else { return unrenderable() };
    let message = "The delivery will be retried within a minute.".to_owned();
    let body = render(&DeliveryRetry { message, delivery_id: *delivery_id })?;
    Ok(StoredResponse { status: 200, body, is_secret: false })
}

/// Returns the retries that are accepted but not yet projected. Their deliveries are shown as pending.
async fn retries_ahead(pool: &PgPool, shard: ShardId, account: AccountId) -> Result<Vec<deliveries::Retry>, ApiError> {
    reader::retries_ahead(pool, shard, account).await.map_err(ApiError::from)
}

/// Selection of an account's deliveries.
#[derive(Default)]
pub struct Selection {
    pub status: Option<DeliveryStatus>,
    pub event_type: Option<Event>,
    pub order_id: Option<i64>,
    pub webhook_id: Option<i64>,
    pub replay_id: Option<i64>,
    pub created_from: Option<DateTime<Utc>>,
    pub created_to: Option<DateTime<Utc>>,
}

/// Returns a page of an account's deliveries, newest first.
pub async fn list_of(
    state: &ApiState,
    (shard, account_id): (ShardId, AccountId),
    selection: Selection,
    page: Page,
) -> Result<Listed<Delivery>, ApiError> {
    let Selection { status, event_type, order_id, webhook_id, replay_id, created_from, created_to } = selection;
    let pool = state.read_pool();
    let retries = retries_ahead(&pool, shard, account_id).await?;
    let (status, event_type) = (status.map(DeliveryStatus::as_str), event_type.map(Into::into));
    let filter = DeliveryFilter {
        account_id,
        status,
        event_type,
        order_id: order_id.map(OrderId),
        webhook_id: webhook_id.map(WebhookId),
        replay_id: replay_id.map(ReplayId),
        created_from,
        created_to,
        retries,
    };
    let mut found = deliveries::list(&pool, shard, &filter, rows_of(page)).await?;
    with_payloads(state, shard, found.rows.iter_mut()).await?;
    Ok(listed(found, page, Delivery::from))
}

/// Returns a delivery of an account, with its attempts.
///
/// # Errors
/// 404 if the account has no such delivery.
pub async fn detail_of(state: &ApiState, (shard, account): (ShardId, AccountId), id: i64) -> Result<DeliveryDetail, ApiError> {
    let retries = retries_ahead(state.ledger.pool(), shard, account).await?;
    let found = deliveries::find(state.ledger.pool(), shard, account, id, &retries).await?;
    let (mut delivery, attempts) = found.ok_or_else(not_found)?;
    with_payloads(state, shard, std::iter::once(&mut delivery)).await?;
    let is_pending = delivery.status == deliveries::DeliveryStatus::Pending;
    Ok(DeliveryDetail {
        response_body: delivery.response_body.take(),
        next_attempt_at: is_pending.then(|| delivery.next_attempt_at.into()),
        delivery: delivery.into(),
        attempts: attempts.into_iter().map(Into::into).collect(),
    })
}

/// Rebuilds payloads that retention has removed. The fold of the log produces the same bytes.
async fn with_payloads<'a>(
    state: &ApiState,
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
    let past = replanned(async || reader::past(&mut *state.ledger.pool().acquire().await?, shard, &events).await).await?;
    for delivery in bare {
        let event =
            past.get(&delivery.event_id).ok_or_else(|| ApiError::internal("a delivery's event is missing from the log"))?;
        delivery.payload = deliveries::payload(event).map_err(ApiError::internal)?;
    }
    Ok(())
}

pub struct Deliveries;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Deliveries")]
impl Deliveries {
    /// List deliveries
    ///
    /// Returns the deliveries of all webhooks of the account, newest first.
    #[oai(path = "/webhooks/deliveries", method = "get", operation_id = "list_deliveries")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn list(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Deliveries per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
        /// Only deliveries with this status.
        status: Query<Option<DeliveryStatus>>,
        /// Only deliveries of this event type.
        event_type: Query<Option<Event>>,
        /// Only deliveries about this order.
        order_id: Query<Option<i64>>,
        /// Only deliveries to this webhook.
        webhook_url_id: Query<Option<i64>>,
        /// Only deliveries that this replay made.
        replay_id: Query<Option<i64>>,
        /// Only deliveries made at or after this time.
        created_from: Query<Option<DateTime<Utc>>>,
        /// Only deliveries made before this time.
        created_to: Query<Option<DateTime<Utc>>>,
    ) -> Result<Listed<Delivery>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let selection = Selection {
            status: status.0,
            event_type: event_type.0,
            order_id: order_id.0,
            webhook_id: webhook_url_id.0,
            replay_id: replay_id.0,
            created_from: time("created_from", created_from.0)?,
            created_to: time("created_to", created_to.0)?,
        };
        list_of(&state, (caller.0.shard_id, caller.0.account_id), selection, page).await
    }

    /// Count deliveries
    ///
    /// Returns the account's delivery counts by status, in total and for the last 24 hours.
    #[oai(path = "/webhooks/deliveries/stats", method = "get", operation_id = "count_deliveries")]
    async fn statistics(&self, caller: Caller, state: State<'_>) -> Result<Reply<DeliveryStatistics>, ApiError> {
        let caller = caller.0;
        let pool = state.read_pool();
        let retries = retries_ahead(&pool, caller.shard_id, caller.account_id).await?;
        let counts = deliveries::statistics(&pool, caller.shard_id, caller.account_id, &retries).await?;
        Ok(Reply(counts.into()))
    }

    /// Retrieve a delivery
    ///
    /// Returns the delivery with its complete payload, your endpoint's latest response, and its attempts with their responses.
    #[oai(path = "/webhooks/deliveries/:id", method = "get", operation_id = "get_delivery")]
    async fn get(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Unique identifier of the delivery.
        id: Path<i64>,
    ) -> Result<Reply<DeliveryDetail>, ApiError> {
        Ok(Reply(detail_of(&state, (caller.0.shard_id, caller.0.account_id), id.0).await?))
    }

    /// Retry a delivery
    ///
    /// Makes a `failed` delivery `pending` again if it has attempts left, for example because its webhook was deactivated.
    /// The attempts already used still count, and the webhook must be active. The retry is sent within a minute.
    #[oai(path = "/webhooks/deliveries/:id/retry", method = "post", operation_id = "retry_delivery")]
    async fn retry(
        &self,
        caller: Caller<WebhookOperator>,
        state: State<'_>,
        /// Unique identifier of the delivery.
        id: Path<i64>,
        /// Unique key that makes retries safe: a repeated request with the same key returns the first response.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        _no_fields: NoFields,
    ) -> Result<Stored<Data<DeliveryRetry>>, ApiError> {
        let caller = caller.0;
        let idempotency = key.of(&caller, &format!("/api/v1/webhooks/deliveries/{}/retry", id.0), &(), retried)?;
        let command = commands::RetryDelivery { account_id: caller.account_id, delivery_id: id.0 };
        let reply = state.ledger.submit(caller.shard_id, command, origin(caller.actor()), idempotency).await?;
        respond(reply, retried)
    }
}
