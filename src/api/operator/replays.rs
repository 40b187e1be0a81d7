//! `/admin/v1/webhooks/:id/replays` and `/admin/v1/replays`: delivering past events to a webhook again.

use chrono::{DateTime, Utc};
use ledger_database::{PgConnection, replanned};
use ledger_events::replay::{self, ReplayKind as Kind};
use ledger_events::{ReplayId, ShardId, WebhookId, webhook};
use ledger_projections::replays::{self, Outcome};
use ledger_projections::webhooks;
use poem_openapi::param::{Path, Query};
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;

use crate::access::Operator;
use crate::api::body::{NoFields, StrictJson};
use crate::api::error::{ApiError, Code};
use crate::api::fields::{Fields, body};
use crate::api::mirror::mirror;
use crate::api::outcome::answered;
use crate::api::page::Page;
use crate::api::principal::{Admin, Caller};
use crate::api::readers::{boolean, date_time, integer, one_of};
use crate::api::reply::{Data, Listed, Plural, Reply, Stored, render};
use crate::api::scalars::Timestamp;
use crate::api::state::{State, Tag, not_found, origin, rows_of, time};
use crate::api::webhooks::{Event, ReplayStatus};
use crate::delivery::replay::{PER_SECOND, Search};
use crate::ledger::commands::RequestReplay;
use crate::ledger::{Command, CommandResult, commands, reader};

/// Selection of the events to deliver.
///
/// - `deliveries`: every event that the webhook already has a delivery of, regardless of its outcome.
/// - `missed`: every event of the webhook's types that never reached it and has no pending delivery. This includes
///   events from before the webhook existed. A client can restrict a replay to a part of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Enum, Serialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
enum ReplayKind {
    #[default]
    Deliveries,
    Missed,
}

mirror!(ReplayKind, Kind: Deliveries, Missed);

/// Largest number of running replays in a response.
const MAX_RUNNING: i64 = 50;
/// Largest rate of a replay. Each step lasts a second.
const MAX_PER_SECOND: i64 = replay::Replay::MAX_PER_STEP as i64;

body! {
    /// Events to deliver again, and the rate at which to do so.
    #[derive(Object)]
    #[allow(dead_code)] // read through `FromFields`; the schema is derived from the fields
    struct StartReplay {
        /// Selection of the events to deliver.
        kind: ReplayKind = required(one_of),
        /// Only events recorded at or after this time. With `deliveries`, either this or `from_position` is required, but not
        /// both.
        since: Option<Timestamp> = optional(date_time),
        /// Only events at this position of the log or later.
        from_position: Option<i64> = optional(integer(1..=i64::MAX)),
        /// Maximum number of deliveries created per second, 1 to 500. Default: 50.
        per_second: Option<i64> = optional(integer(1..=MAX_PER_SECOND)),
        /// Whether to count the events only, without starting a replay. Default: false.
        dry_run: Option<bool> = optional(boolean),
    }
    check StartReplay::check
}

impl StartReplay {
    /// Checks the rules between fields.
    fn check(&self, fields: &mut Fields<'_>) {
        match (&self.since, self.from_position, self.kind) {
            (Some(_), Some(_), _) => fields.problem("from_position", "must not be given together with since"),
            (None, None, ReplayKind::Deliveries) => fields.problem("since", "or from_position is required for deliveries"),
            _ => {}
        }
    }
}

/// A replay and the outcome of its deliveries.
#[derive(Object, Serialize)]
pub struct Replay {
    /// Unique identifier of the replay.
    id: i64,
    /// Account that the webhook belongs to.
    account_id: i64,
    /// Webhook that receives the deliveries.
    webhook_id: i64,
    /// Selection of the events to deliver.
    kind: ReplayKind,
    /// Event types that the webhook was subscribed to when the replay was requested.
    events: Vec<Event>,
    /// Status of the replay.
    status: ReplayStatus,
    /// First position of the log that the replay covers.
    from_position: i64,
    /// Position of the log at which the next step starts.
    next_position: i64,
    /// Position of the replay's request in the log. The replay covers only events before it.
    until_position: i64,
    /// Maximum number of deliveries created per second.
    per_second: i32,
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

impl Plural for Replay {
    const PLURAL: &'static str = "replays";
}

impl Replay {
    pub fn of(replay: replay::Replay, outcome: Outcome) -> Self {
        Self {
            id: replay.id.0,
            account_id: replay.account_id.0,
            webhook_id: replay.webhook_id.0,
            kind: replay.kind.into(),
            events: replay.events.into_iter().map(Into::into).collect(),
            status: replay.status.into(),
            from_position: replay.from,
            next_position: replay.next,
            until_position: replay.until,
            per_second: replay.per_second,
            deliveries: replay.deliveries,
            pending_count: outcome.pending,
            delivered_count: outcome.delivered,
            failed_count: outcome.failed,
            created_at: replay.created_at.into(),
            updated_at: replay.updated_at.into(),
        }
    }
}

/// Replays that run, of all webhooks.
#[derive(Object, Serialize)]
struct RunningReplays {
    /// Running replays, oldest first. At most 50.
    replays: Vec<Replay>,
}

/// A started replay, or the result of a dry run.
#[derive(Object, Serialize)]
struct ReplayStart {
    /// Number of events found up to `next_position`. Null unless this was a dry run.
    found: Option<i64>,
    /// Position at which the dry run stopped before the end of the log. Start another dry run there to count the rest.
    /// Null if all events are counted.
    next_position: Option<i64>,
    /// End of the log when the dry run counted. Events from this position on are not included. Null unless this was a dry
    /// run.
    until_position: Option<i64>,
    /// The started replay; null after a dry run.
    replay: Option<Replay>,
}

async fn shown(state: &State<'_>, shard: ShardId, replay: replay::Replay) -> Result<Replay, ApiError> {
    let outcome = replays::outcomes(state.ledger.pool(), shard, &[replay.id]).await?.remove(&replay.id).unwrap_or_default();
    Ok(Replay::of(replay, outcome))
}

/// Reads the running replays of these shards with the outcomes of their deliveries, oldest first. At most 50 of them.
pub async fn running(conn: &mut PgConnection, shards: &[ShardId]) -> Result<Vec<Replay>, sqlx::Error> {
    let running = replays::running(&mut *conn, shards, MAX_RUNNING).await?;
    let mut shown = vec![];
    for &shard in shards {
        let own = || running.iter().filter(|(of, _)| *of == shard).map(|(_, replay)| replay);
        let ids: Vec<ReplayId> = own().map(|replay| replay.id).collect();
        if !ids.is_empty() {
            let mut outcomes = replays::outcomes(&mut *conn, shard, &ids).await?;
            shown.extend(own().cloned().map(|replay| {
                let outcome = outcomes.remove(&replay.id).unwrap_or_default();
                Replay::of(replay, outcome)
            }));
        }
    }
    Ok(shown)
}

/// Finds a webhook, even a deleted one, and its shard.
async fn webhook_of(state: &State<'_>, id: WebhookId) -> Result<(ShardId, webhook::Webhook), ApiError> {
    let shards = state.ledger.shards();
    webhooks::find(state.ledger.pool(), &shards, id).await?.ok_or_else(not_found)
}

async fn replay_of(state: &State<'_>, id: ReplayId) -> Result<(ShardId, replay::Replay), ApiError> {
    let shards = state.ledger.shards();
    replays::find(state.ledger.pool(), &shards, id).await?.ok_or_else(not_found)
}

pub struct Replays;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Deliveries")]
impl Replays {
    /// Replay events to a webhook
    ///
    /// Creates new deliveries of past events at a limited rate. Each has five attempts of its own, with the same
    /// `event_id` and the same bytes as before. A webhook can have one running replay at a time.
    ///
    /// With `dry_run`, the events are only counted, and the status is 200. One dry run covers at most 500,000 positions
    /// of the log. To count a longer range, start the next dry run at `next_position` of the previous one.
    #[oai(path = "/webhooks/:id/replays", method = "post", operation_id = "start_replay")]
    async fn start(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the webhook.
        id: Path<i64>,
        body: StrictJson<StartReplay>,
    ) -> Result<Stored<Data<ReplayStart>, 201, 200>, ApiError> {
        let request = body.0;
        let (shard, webhook) = webhook_of(&state, WebhookId(id.0)).await?;
        webhook.listening().map_err(|_| ApiError::new(Code::WebhookInactive))?;
        let pool = state.ledger.pool();
        let since: Option<DateTime<Utc>> = time("since", request.since.map(|since| since.0))?;
        let from = match (since, request.from_position) {
            (Some(since), _) => reader::position_at(pool, shard, since).await?,
            (None, from) => from.unwrap_or(1),
        };
        let kind = request.kind.into();
        let (account_id, webhook_id) = (webhook.account_id, webhook.id);
        if request.dry_run == Some(true) {
            let until = reader::head(pool, shard).await? + 1;
            let search = Search { account_id, webhook_id, kind, events: webhook.events, only: None };
            let (found, to) = search.count(pool, shard, from, until).await?;
            let next_position = Some(to).filter(|to| *to < until);
            let counted = ReplayStart { found: Some(found), next_position, until_position: Some(until), replay: None };
            return Ok(Stored::new(200, render(&counted).map_err(ApiError::internal)?, false));
        }
        let per_second = request.per_second.and_then(|n| i32::try_from(n).ok()).unwrap_or(PER_SECOND);
        let command = Command::RequestReplay(RequestReplay { account_id, webhook_id, kind, from, per_second, only: None });
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        let replay = answered!(answer, CommandResult::Replay(replay) => replay)?;
        let replay = Some(Replay::of(replay, Outcome::default()));
        let started = ReplayStart { found: None, next_position: None, until_position: None, replay };
        Ok(Stored::new(201, render(&started).map_err(ApiError::internal)?, false))
    }

    /// List a webhook's replays
    ///
    /// Returns the replays of a webhook, newest first.
    #[oai(path = "/webhooks/:id/replays", method = "get", operation_id = "list_replays")]
    async fn list(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the webhook.
        id: Path<i64>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Replays per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<Replay>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let (shard, webhook) = webhook_of(&state, WebhookId(id.0)).await?;
        let found = replays::list(state.ledger.pool(), shard, webhook.id, rows_of(page)).await?;
        let ids: Vec<ReplayId> = found.rows.iter().map(|replay| replay.id).collect();
        let mut outcomes = replays::outcomes(state.ledger.pool(), shard, &ids).await?;
        let total = u64::try_from(found.total).unwrap_or_default();
        let view = |replay: replay::Replay| {
            let outcome = outcomes.remove(&replay.id).unwrap_or_default();
            Replay::of(replay, outcome)
        };
        Ok(Listed::page(found.rows.into_iter().map(view).collect(), page, total))
    }

    /// List running replays
    ///
    /// Returns the replays of all webhooks that run now.
    #[oai(path = "/replays", method = "get", operation_id = "list_running_replays")]
    async fn running(&self, _caller: Caller<Operator>, state: State<'_>) -> Result<Reply<RunningReplays>, ApiError> {
        let shards = state.ledger.shards();
        let read = async || running(&mut *state.ledger.pool().acquire().await?, &shards).await;
        Ok(Reply(RunningReplays { replays: replanned(read).await? }))
    }

    /// Retrieve a replay
    ///
    /// Returns the progress of a replay and the outcome of its deliveries.
    #[oai(path = "/replays/:id", method = "get", operation_id = "get_replay")]
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the replay.
        id: Path<i64>,
    ) -> Result<Reply<Replay>, ApiError> {
        let (shard, replay) = replay_of(&state, ReplayId(id.0)).await?;
        Ok(Reply(shown(&state, shard, replay).await?))
    }

    /// Cancel a replay
    ///
    /// Stops a running replay. Its deliveries that are still pending fail.
    #[oai(path = "/replays/:id/cancel", method = "post", operation_id = "cancel_replay")]
    async fn cancel(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the replay.
        id: Path<i64>,
        _no_fields: NoFields,
    ) -> Result<Reply<Replay>, ApiError> {
        let id = ReplayId(id.0);
        let (shard, _) = replay_of(&state, id).await?;
        let command = commands::CancelReplay { replay_id: id };
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        let replay = answered!(answer, CommandResult::Replay(replay) => replay)?;
        Ok(Reply(shown(&state, shard, replay).await?))
    }
}
