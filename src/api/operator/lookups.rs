//! `/admin/v1/accounts/:id/…`: what an account has, for support staff.

use chrono::{DateTime, Utc};
use ledger_events::{AccountId, WebhookId};
use ledger_projections::webhooks;
use poem_openapi::param::{Path, Query};
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;

use crate::access::gate::windows;
use crate::access::{Operator, limits::Rule};
use crate::api::deliveries::{self, Delivery, DeliveryDetail, DeliveryStatus, Selection};
use crate::api::error::ApiError;
use crate::api::page::Page;
use crate::api::principal::Caller;
use crate::api::reply::{Listed, Plural, Reply};
use crate::api::scalars::Timestamp;
use crate::api::state::{State, Tag, not_found, time};
use crate::api::statistics::{self, WebhookStatistics};
use crate::api::webhooks::{self as hooks, Event, Webhook};

/// A webhook with the account that it belongs to.
#[derive(Object, Serialize)]
struct AnyWebhook {
    /// Account that the webhook belongs to.
    account_id: i64,
    /// Whether the webhook is deleted. The history of its deliveries is kept.
    is_deleted: bool,
    #[oai(flatten)]
    #[serde(flatten)]
    webhook: Webhook,
}

/// A delivery with the account that it belongs to.
#[derive(Object, Serialize)]
struct AnyDelivery {
    /// Account that the delivery belongs to.
    account_id: i64,
    #[oai(flatten)]
    #[serde(flatten)]
    delivery: DeliveryDetail,
}

/// Kind of caller that a rate limit counts.
#[derive(Clone, Copy, Enum, Serialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
enum LimitSubject {
    /// The whole account, with all its API keys and users.
    Account,
    /// One API key.
    Credential,
    /// One user.
    User,
}

/// A rate limit with the requests that it has counted in the current window.
#[derive(Object, Serialize)]
struct LimitInUse {
    /// Name of the rule, as in the setting `--rate-limits`.
    rule: String,
    /// Kind of caller that the rule counts.
    subject: LimitSubject,
    /// Unique identifier of the caller: of the account, the credential or the user.
    subject_id: i64,
    /// Number of requests that the rule allows in one window.
    limit: i32,
    /// Number of requests in the current window so far.
    used: i32,
    /// Number of requests left in the current window.
    remaining: i32,
    /// Time at which the window opened.
    opened_at: Timestamp,
    /// Time at which the window closes.
    closes_at: Timestamp,
}

impl Plural for LimitInUse {
    const PLURAL: &'static str = "limits";
}

impl From<windows::OpenWindow> for LimitInUse {
    fn from(window: windows::OpenWindow) -> Self {
        let subject = match &*window.subject {
            "account" => LimitSubject::Account,
            "user" => LimitSubject::User,
            _ => LimitSubject::Credential,
        };
        Self {
            rule: window.rule,
            subject,
            subject_id: window.subject_id,
            limit: window.ceiling,
            used: window.used,
            remaining: (window.ceiling - window.used).max(0),
            opened_at: window.opened_at.into(),
            closes_at: window.closes_at.into(),
        }
    }
}

pub struct Lookups;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Accounts")]
impl Lookups {
    /// List an account's webhooks
    ///
    /// Returns the webhooks of an account, newest first, without deleted ones.
    #[oai(path = "/accounts/:id/webhooks", method = "get", operation_id = "list_account_webhooks")]
    async fn webhooks(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the account.
        id: Path<i64>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Webhooks per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<Webhook>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let shard = state.shard_of(AccountId(id.0)).await?;
        hooks::list_of(&state, (shard, AccountId(id.0)), page).await
    }

    /// List an account's deliveries
    ///
    /// Returns the deliveries of all webhooks of an account, newest first.
    #[oai(path = "/accounts/:id/deliveries", method = "get", operation_id = "list_account_deliveries")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn deliveries(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the account.
        id: Path<i64>,
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
        let shard = state.shard_of(AccountId(id.0)).await?;
        let selection = Selection {
            status: status.0,
            event_type: event_type.0,
            order_id: order_id.0,
            webhook_id: webhook_url_id.0,
            replay_id: replay_id.0,
            created_from: time("created_from", created_from.0)?,
            created_to: time("created_to", created_to.0)?,
        };
        deliveries::list_of(&state, (shard, AccountId(id.0)), selection, page).await
    }

    /// List an account's rate limits in use
    ///
    /// Returns the current windows of the rate limits that count the account, its API keys and its users. A rule without
    /// a window has counted no request lately.
    #[oai(path = "/accounts/:id/limits", method = "get", operation_id = "list_limits_in_use")]
    async fn limits(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the account.
        id: Path<i64>,
    ) -> Result<Listed<LimitInUse>, ApiError> {
        state.shard_of(AccountId(id.0)).await?;
        let windows = windows::of_account(state.ledger.pool(), AccountId(id.0), &Rule::ALL).await?;
        Ok(Listed::whole(windows.into_iter().map(Into::into).collect()))
    }

    /// Retrieve a webhook
    ///
    /// Returns the webhook of any account without its token, also if it is deleted.
    #[oai(path = "/webhooks/:id", method = "get", operation_id = "get_any_webhook")]
    async fn webhook(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the webhook.
        id: Path<i64>,
    ) -> Result<Reply<AnyWebhook>, ApiError> {
        let shards = state.ledger.shards();
        let (shard, webhook) = webhooks::find(state.ledger.pool(), &shards, WebhookId(id.0)).await?.ok_or_else(not_found)?;
        let (account_id, is_deleted) = (webhook.account_id, webhook.is_deleted);
        Ok(Reply(AnyWebhook { account_id: account_id.0, is_deleted, webhook: hooks::with_texts(&state, shard, webhook).await? }))
    }

    /// Count any webhook's attempts by day
    ///
    /// Returns the number of delivery attempts to the webhook of any account on each day (UTC) up to today, and how long they
    /// took. They are counted since migration 0036. `GET /admin/v1/attempts` lists those that retention has not removed.
    #[oai(path = "/webhooks/:id/stats", method = "get", operation_id = "count_any_attempts")]
    async fn attempts(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the webhook.
        id: Path<i64>,
        /// Number of days up to today, 1 to 92. Default: 30.
        days: Query<Option<i64>>,
    ) -> Result<Reply<WebhookStatistics>, ApiError> {
        let days = statistics::days(days.0)?;
        let shards = state.ledger.shards();
        let (shard, webhook) = webhooks::find(state.ledger.pool(), &shards, WebhookId(id.0)).await?.ok_or_else(not_found)?;
        Ok(Reply(statistics::attempts_of_one(&state, (shard, webhook.id), days).await?))
    }

    /// Retrieve a delivery
    ///
    /// Returns the delivery of any account with its payload, the endpoint's latest response, and its attempts with their
    /// responses.
    #[oai(path = "/deliveries/:id", method = "get", operation_id = "get_any_delivery")]
    async fn delivery(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the delivery.
        id: Path<i64>,
    ) -> Result<Reply<AnyDelivery>, ApiError> {
        let shards = state.ledger.shards();
        let owner = ledger_projections::deliveries::owner(state.ledger.pool(), &shards, id.0).await?;
        let (shard, account_id) = owner.ok_or_else(not_found)?;
        Ok(Reply(AnyDelivery {
            account_id: account_id.0,
            delivery: deliveries::detail_of(&state, (shard, account_id), id.0).await?,
        }))
    }
}
