//! `/api/v1/webhooks/:id/attempts`: the attempts to deliver events to a webhook, by time.

use chrono::{DateTime, Utc};
use ledger_events::{ShardId, WebhookId};
use ledger_projections::deliveries::{self, AnyAttempt, AttemptFilter, list_attempts};
use poem_openapi::param::{Path, Query};
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;

use super::deliveries::AttemptResult;
use super::error::ApiError;
use super::page::Page;
use super::principal::Caller;
use super::reply::Reply;
use super::scalars::Timestamp;
use super::state::{ApiState, State, Tag, time};
use super::webhooks;

/// Outcome of an attempt.
///
/// - `delivered`: the endpoint answered with a 2xx status.
/// - `failed`: it answered with another status, or not in time.
/// - `in_flight`: the outcome may still arrive.
/// - `unknown`: the node that made the attempt has not recorded its outcome, because it ended or lost the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum, Serialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    Delivered,
    Failed,
    InFlight,
    Unknown,
}

impl From<deliveries::AttemptOutcome> for AttemptOutcome {
    fn from(outcome: deliveries::AttemptOutcome) -> Self {
        match outcome {
            deliveries::AttemptOutcome::Delivered => Self::Delivered,
            deliveries::AttemptOutcome::Failed => Self::Failed,
            deliveries::AttemptOutcome::InFlight => Self::InFlight,
            deliveries::AttemptOutcome::Unknown => Self::Unknown,
        }
    }
}

impl From<AttemptOutcome> for deliveries::AttemptOutcome {
    fn from(outcome: AttemptOutcome) -> Self {
        match outcome {
            AttemptOutcome::Delivered => Self::Delivered,
            AttemptOutcome::Failed => Self::Failed,
            AttemptOutcome::InFlight => Self::InFlight,
            AttemptOutcome::Unknown => Self::Unknown,
        }
    }
}

/// An attempt with the delivery that it belongs to.
#[derive(Object, Serialize)]
pub struct ListedAttempt {
    /// Unique identifier of the delivery.
    delivery_id: i64,
    /// Unique identifier of the order that the event is about; 0 for a test delivery, and for events of payouts and wallets.
    order_id: i64,
    /// Type of the event.
    event_type: String,
    /// ID of the event.
    event_id: String,
    /// Outcome of the attempt.
    outcome: AttemptOutcome,
    /// Time at which the attempt ended; null without a recorded outcome.
    finished_at: Option<Timestamp>,
    #[oai(flatten)]
    #[serde(flatten)]
    result: AttemptResult,
}

impl From<AnyAttempt> for ListedAttempt {
    fn from(any: AnyAttempt) -> Self {
        Self {
            delivery_id: any.delivery_id,
            order_id: any.order_id.0,
            event_type: any.event_type,
            event_id: any.event_id.to_string(),
            outcome: any.attempt.outcome().into(),
            finished_at: any.attempt.finished_at.map(Into::into),
            result: any.attempt.into(),
        }
    }
}

/// Part of a list of attempts, as parameters of a request.
pub struct AttemptQuery {
    pub outcome: Option<AttemptOutcome>,
    pub since: Option<DateTime<Utc>>,
    pub until: Option<DateTime<Utc>>,
    pub before: Option<String>,
    pub limit: Option<i64>,
}

impl AttemptQuery {
    /// Lists the attempts of a webhook, or of all accounts without one. Returns `next_before`, too.
    ///
    /// # Errors
    /// 400 that names the parameter which is wrong.
    pub async fn list(
        self,
        state: &ApiState,
        webhook: Option<(ShardId, WebhookId)>,
    ) -> Result<(Vec<AnyAttempt>, Option<String>), ApiError> {
        let limit = usize::try_from(Page::of(None, self.limit, 20, 100)?.limit).unwrap_or(20);
        let before = self.before.map(|text| text.parse()).transpose();
        let before = before.map_err(|_| ApiError::invalid("before", "must be `next_before` of another page"))?;
        let (since, until) = (time("since", self.since)?, time("until", self.until)?);
        let filter = AttemptFilter { webhook, outcome: self.outcome.map(Into::into), since, until };
        let found = list_attempts(&state.read_pool(), &filter, before, limit).await?;
        Ok((found.attempts, found.next_before.map(|key| key.to_string())))
    }
}

/// A page of a webhook's attempts, the latest first.
#[derive(Object, Serialize)]
struct WebhookAttempts {
    /// Attempts of this page. It can be empty although older attempts follow.
    attempts: Vec<ListedAttempt>,
    /// Value of `before` for the next page. Null at the end.
    next_before: Option<String>,
}

pub struct Attempts;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Webhooks")]
impl Attempts {
    /// List a webhook's attempts
    ///
    /// Returns the attempts to deliver events to the webhook, the latest first. A period has the attempts that ended in it, as in
    /// the counts by day of `GET /api/v1/webhooks/{id}/stats`, or that began in it if they have no recorded outcome. A page ends
    /// after a bounded scan, so continue until `next_before` is null. Old attempts are removed, and attempts from before the
    /// release that added this operation are left out.
    #[oai(path = "/webhooks/:id/attempts", method = "get", operation_id = "list_webhook_attempts")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn list(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Unique identifier of the webhook.
        id: Path<i64>,
        /// Only attempts with this outcome.
        outcome: Query<Option<AttemptOutcome>>,
        /// Only attempts that ended at or after this time.
        since: Query<Option<DateTime<Utc>>>,
        /// Only attempts that ended before this time.
        until: Query<Option<DateTime<Utc>>>,
        /// Only attempts before this one: `next_before` of the previous page.
        before: Query<Option<String>>,
        /// Attempts per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
    ) -> Result<Reply<WebhookAttempts>, ApiError> {
        let webhook = webhooks::find(&state, &caller.0, WebhookId(id.0)).await?;
        let query = AttemptQuery { outcome: outcome.0, since: since.0, until: until.0, before: before.0, limit: limit.0 };
        let (attempts, next_before) = query.list(&state, Some((caller.0.shard_id, webhook.id))).await?;
        Ok(Reply(WebhookAttempts { attempts: attempts.into_iter().map(Into::into).collect(), next_before }))
    }
}
