//! `/admin/v1/attempts`: attempts of deliveries to the webhooks of all accounts, by time and webhook.

use chrono::{DateTime, Utc};
use ledger_events::WebhookId;
use ledger_projections::deliveries::AnyAttempt;
use ledger_projections::webhooks;
use poem_openapi::param::Query;
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use crate::access::Operator;
use crate::api::attempts::{AttemptOutcome, AttemptQuery, ListedAttempt};
use crate::api::error::ApiError;
use crate::api::principal::Caller;
use crate::api::reply::Reply;
use crate::api::state::{State, Tag};
use crate::ledger::FIRST_SHARD;

/// An attempt with the delivery, the webhook and the account that it belongs to.
#[derive(Object, Serialize)]
struct AttemptOfAny {
    /// Account that the webhook belongs to.
    account_id: i64,
    /// Unique identifier of the webhook.
    webhook_url_id: i64,
    /// Shard whose log has the event.
    shard_id: i16,
    /// Position of the event in the log of its shard.
    position: i64,
    #[oai(flatten)]
    #[serde(flatten)]
    attempt: ListedAttempt,
}

impl From<AnyAttempt> for AttemptOfAny {
    fn from(any: AnyAttempt) -> Self {
        Self {
            account_id: any.account_id.0,
            webhook_url_id: any.webhook_id.0,
            shard_id: any.shard_id,
            position: any.position,
            attempt: any.into(),
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
        /// Only attempts of deliveries to this webhook. Those from before migration 0056 are left out.
        webhook_url_id: Query<Option<i64>>,
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
        let query = AttemptQuery { outcome: outcome.0, since: since.0, until: until.0, before: before.0, limit: limit.0 };
        let webhook = match webhook_url_id.0 {
            None => None,
            Some(id) => {
                let shards = state.ledger.shards();
                let found = webhooks::find(state.ledger.pool(), &shards, WebhookId(id)).await?;
                // An unknown webhook has no attempts on any shard.
                Some((found.map_or(FIRST_SHARD, |(shard, _)| shard), WebhookId(id)))
            }
        };
        let (attempts, next_before) = query.list(&state, webhook).await?;
        Ok(Reply(AttemptPage { attempts: attempts.into_iter().map(Into::into).collect(), next_before }))
    }
}
