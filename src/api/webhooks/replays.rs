//! `/api/v1/webhooks/:id/replays`: delivering events to a webhook again that failed or that it missed.

use std::collections::HashMap;

use ledger_events::replay::{MissedOnly, Replay, ReplayKind, ReplayStatus as Status};
use ledger_events::{ReplayId, WebhookId};
use ledger_projections::replays::{self, Outcome};
use poem_openapi::param::{Path, Query};
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;

use super::find;
use crate::api::body::StrictJson;
use crate::api::error::{ApiError, Code};
use crate::api::fields::body;
use crate::api::idempotency::IdempotencyKey;
use crate::api::outcome::{respond, unrenderable};
use crate::api::page::Page;
use crate::api::principal::{Caller, WebhookOperator};
use crate::api::readers::{boolean, date_time, integer, one_of};
use crate::api::reply::{Data, Listed, Plural, Stored, render};
use crate::api::scalars::Timestamp;
use crate::api::state::{State, Tag, listed, origin, rows_of, time};
use crate::delivery::replay::{PER_SECOND, Search};
use crate::ledger::commands::RequestReplay;
use crate::ledger::{Command, CommandResult, StoredResponse, reader};

/// Part of the events that never reached the webhook.
///
/// - `failed`: events that were sent to the webhook, and failed.
/// - `missed`: events that were never sent to the webhook, for example because it was inactive or did not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Enum, Serialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
enum ReplayedEvents {
    #[default]
    Failed,
    Missed,
}

impl From<ReplayedEvents> for MissedOnly {
    fn from(only: ReplayedEvents) -> MissedOnly {
        match only {
            ReplayedEvents::Failed => MissedOnly::Failed,
            ReplayedEvents::Missed => MissedOnly::NeverSent,
        }
    }
}

/// Status of a replay.
///
/// - `RUNNING`: the replay is creating deliveries.
/// - `COMPLETED`: the replay has created all its deliveries.
/// - `CANCELLED`: the replay was cancelled. Deliveries that were still pending have failed.
/// - `FAILED`: the webhook was deactivated or deleted before the replay completed.
#[derive(Clone, Copy, Debug, Enum, Serialize)]
#[oai(rename_all = "UPPERCASE")]
#[serde(rename_all = "UPPERCASE")]
pub enum ReplayStatus {
    Running,
    Completed,
    Cancelled,
    Failed,
}

impl From<Status> for ReplayStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Running => Self::Running,
            Status::Completed => Self::Completed,
            Status::Cancelled => Self::Cancelled,
            Status::Failed => Self::Failed,
        }
    }
}

body! {
    /// Events to deliver again.
    #[derive(Object, Serialize)]
    struct ReplayEvents {
        /// Only events recorded at or after this time.
        since: Timestamp = required(date_time),
        /// Only events at or after this position of the log. To go on with a dry run that is not complete, give its
        /// `next_position` here. Default: no limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        from_position: Option<i64> = optional(integer(1..=i64::MAX)),
        /// Part of these events to deliver. Default: both parts.
        only: Option<ReplayedEvents> = optional(one_of),
        /// Whether to count the events only, without starting a replay. Default: false.
        dry_run: Option<bool> = optional(boolean),
    }
}

/// A replay of events to a webhook, and the outcome of its deliveries.
#[derive(Object, Serialize)]
struct WebhookReplay {
    /// Unique identifier of the replay.
    id: i64,
    /// Webhook that receives the deliveries.
    webhook_id: i64,
    /// Status of the replay.
    status: ReplayStatus,
    /// Share of the replay's part of the log that is examined so far, in percent, from 0 to 100. A completed replay has 100.
    progress_percent: i64,
    /// Number of deliveries created so far.
    deliveries: i64,
    /// Number of these deliveries that wait for an attempt.
    pending_count: i64,
    /// Number of these deliveries that were answered with a 2xx status.
    delivered_count: i64,
    /// Number of these deliveries that failed and are not retried.
    failed_count: i64,
    /// Time at which the replay was requested.
    created_at: Timestamp,
    /// Time of the replay's last progress.
    updated_at: Timestamp,
}

impl Plural for WebhookReplay {
    const PLURAL: &'static str = "replays";
}

impl WebhookReplay {
    fn of(replay: &Replay, outcome: Outcome) -> Self {
        Self {
            id: replay.id.0,
            webhook_id: replay.webhook_id.0,
            status: replay.status.into(),
            progress_percent: replay.progress_percent(),
            deliveries: replay.deliveries,
            pending_count: outcome.pending,
            delivered_count: outcome.delivered,
            failed_count: outcome.failed,
            created_at: replay.created_at.into(),
            updated_at: replay.updated_at.into(),
        }
    }
}

/// A started replay, or the result of a dry run.
#[derive(Object, Serialize)]
struct ReplayRequested {
    /// Number of events found. Null unless this was a dry run.
    found: Option<i64>,
    /// Whether the dry run has counted all events. If not, there may be more. Null unless this was a dry run.
    is_complete: Option<bool>,
    /// Position of the log at which the next dry run continues the count. Null if the count is complete.
    next_position: Option<i64>,
    /// Position of the log at which the count will be complete. Null unless this was a dry run.
    until_position: Option<i64>,
    /// The started replay; null after a dry run.
    replay: Option<WebhookReplay>,
}

fn requested(answer: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
    let CommandResult::Replay(replay) = answer else { return unrenderable() };
    let replay = Some(WebhookReplay::of(replay, Outcome::default()));
    let (next_position, until_position) = (None, None);
    let body = render(&ReplayRequested { found: None, is_complete: None, next_position, until_position, replay })?;
    Ok(StoredResponse { status: 201, body, is_secret: false })
}

pub struct Replays;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Webhooks")]
impl Replays {
    /// Replay events to a webhook
    ///
    /// Delivers events again that never reached the webhook and have no pending delivery, as far as it is subscribed to their
    /// types. Creates at most 50 deliveries per second. Each has five attempts of its own, with the same `event_id` and the
    /// same bytes as before. A webhook can have one running replay at a time.
    ///
    /// With `dry_run`, the events are only counted, and the status is 200. One dry run covers at most 500,000 positions of
    /// the log. To count a longer range, start the next dry run at `next_position` of the previous one.
    #[oai(path = "/webhooks/:id/replays", method = "post", operation_id = "replay_events")]
    async fn start(
        &self,
        caller: Caller<WebhookOperator>,
        state: State<'_>,
        /// Unique identifier of the webhook.
        id: Path<i64>,
        /// Unique key that makes retries safe: a repeated request with the same key returns the first response. A dry run
        /// ignores it.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        body: StrictJson<ReplayEvents>,
    ) -> Result<Stored<Data<ReplayRequested>, 201, 200>, ApiError> {
        let (caller, request) = (caller.0, body.0);
        let (shard, pool) = (caller.shard_id, state.ledger.pool());
        let since = time("since", Some(request.since.0))?.unwrap_or_default();
        let webhook = find(&state, &caller, WebhookId(id.0)).await?;
        let from = reader::position_at(pool, shard, since).await?.max(request.from_position.unwrap_or_default());
        let (account_id, webhook_id, kind) = (caller.account_id, webhook.id, ReplayKind::Missed);
        let only = request.only.map(Into::into);
        if request.dry_run == Some(true) {
            webhook.listening().map_err(|_| ApiError::new(Code::WebhookInactive))?;
            let until = reader::head(pool, shard).await? + 1;
            let search = Search { account_id, webhook_id, kind, events: webhook.events, only };
            let (found, to) = search.count(pool, shard, from, until).await?;
            let is_complete = to >= until;
            let (next_position, until_position) = (Some(to).filter(|_| !is_complete), Some(until));
            let is_complete = Some(is_complete);
            let counted = ReplayRequested { found: Some(found), is_complete, next_position, until_position, replay: None };
            return Ok(Stored::new(200, render(&counted).map_err(ApiError::internal)?, false));
        }
        let idempotency = key.of(&caller, &format!("/api/v1/webhooks/{}/replays", id.0), &request, requested)?;
        let replay = RequestReplay { account_id, webhook_id, kind, from, per_second: PER_SECOND, only };
        let origin = origin(caller.actor());
        let reply = state.ledger.submit(shard, Command::RequestReplay(replay), origin, idempotency).await?;
        respond(reply, requested)
    }

    /// List a webhook's replays
    ///
    /// Returns the replays of a webhook, newest first. Operators of the service can start and cancel replays, too.
    #[oai(path = "/webhooks/:id/replays", method = "get", operation_id = "list_webhook_replays")]
    async fn list(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Unique identifier of the webhook.
        id: Path<i64>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Replays per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<WebhookReplay>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let (shard, pool) = (caller.0.shard_id, state.ledger.pool());
        let webhook = find(&state, &caller.0, WebhookId(id.0)).await?;
        let found = replays::list(pool, shard, webhook.id, rows_of(page)).await?;
        let ids: Vec<ReplayId> = found.rows.iter().map(|replay| replay.id).collect();
        let mut outcomes: HashMap<ReplayId, Outcome> = replays::outcomes(pool, shard, &ids).await?;
        Ok(listed(found, page, |replay| WebhookReplay::of(&replay, outcomes.remove(&replay.id).unwrap_or_default())))
    }
}
