//! `/admin/v1/attempts`: attempts of deliveries to the webhooks of all accounts, by time.

use chrono::{DateTime, Utc};
use ledger_projections::deliveries::{self, AnyAttempt, AttemptFilter, list_attempts};
use poem_openapi::param::Query;
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;

use crate::access::Operator;
use crate::api::deliveries::Attempt;
use crate::api::error::ApiError;
use crate::api::page::Page;
use crate::api::principal::Caller;
use crate::api::reply::Reply;
use crate::api::scalars::Timestamp;
use crate::api::state::{State, Tag, time};

/// Outcome of an attempt.
///
/// - `delivered`: the endpoint answered with a 2xx status.
/// - `failed`: it answered with another status, or not in time.
/// - `in_flight`: the outcome may still arrive.
/// - `unknown`: the node that made the attempt has not recorded its outcome, because it ended or lost the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum, Serialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
enum AttemptOutcome {
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

/// An attempt with the delivery, the webhook and the account that it belongs to.
#[derive(Object, Serialize)]
struct AttemptOfAny {
    /// Account that the webhook belongs to.
    account_id: i64,
    /// Unique identifier of the webhook.
    webhook_url_id: i64,
    /// Unique identifier of the delivery.
    delivery_id: i64,
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
    /// Outcome of the attempt.
    outcome: AttemptOutcome,
    /// Time at which the attempt ended; null without a recorded outcome.
    finished_at: Option<Timestamp>,
    #[oai(flatten)]
    #[serde(flatten)]
    attempt: Attempt,
}

impl From<AnyAttempt> for AttemptOfAny {
    fn from(any: AnyAttempt) -> Self {
        Self {
            account_id: any.account_id.0,
            webhook_url_id: any.webhook_id.0,
            delivery_id: any.delivery_id,
            order_id: any.order_id.0,
            event_type: any.event_type,
            event_id: any.event_id.to_string(),
            shard_id: any.shard_id,
            position: any.position,
            outcome: any.attempt.outcome().into(),
            finished_at: any.attempt.finished_at.map(Into::into),
            attempt: any.attempt.into(),
        }
    }
}

/// A page of attempts, the latest first.
#[derive(Object, Serialize)]
struct AttemptPage {
    /// Attempts of this page. It can be empty although older attempts follow.
    attempts: Vec<AttemptOfAny>,
    /// Value of `before` for the next page. Null at the end.
    next_before: Option<String>,
}

pub struct Attempts;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Deliveries")]
impl Attempts {
    /// List delivery attempts of all accounts
    ///
    /// Returns the attempts of deliveries to the webhooks of all accounts, in the order in which nodes took them up, the latest
    /// first. A period has the attempts that ended in it, as in the counts by day of `GET /admin/v1/operations`, or that were
    /// taken up in it if they have no recorded outcome. A page ends after a bounded scan, so continue until `next_before` is
    /// null. Retention removes old attempts, and those from before migration 0054 are left out.
    #[oai(path = "/attempts", method = "get", operation_id = "list_attempts")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn list(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
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
    ) -> Result<Reply<AttemptPage>, ApiError> {
        let limit = usize::try_from(Page::of(None, limit.0, 20, 100)?.limit).unwrap_or(20);
        let before = before.0.map(|text| text.parse()).transpose();
        let before = before.map_err(|_| ApiError::invalid("before", "must be `next_before` of another page"))?;
        let (since, until) = (time("since", since.0)?, time("until", until.0)?);
        let filter = AttemptFilter { outcome: outcome.0.map(Into::into), since, until };
        let found = list_attempts(&state.read_pool(), &filter, before, limit).await?;
        Ok(Reply(AttemptPage {
            attempts: found.attempts.into_iter().map(Into::into).collect(),
            next_before: found.next_before.map(|key| key.to_string()),
        }))
    }
}
