//! `/admin/v1/webhooks/:id/replays` and `/admin/v1/replays`: telling a webhook again.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use ledger_events::replay::{self, ReplayKind as Kind, ReplayStatus as Status};
use ledger_events::{ReplayId, ShardId, webhook};
use ledger_projections::replays::{self, Outcome};
use ledger_projections::webhooks;
use poem_openapi::param::{Path, Query};
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;

use crate::access::Operator;
use crate::api::body::{NoFields, StrictJson};
use crate::api::error::{ApiError, Code};
use crate::api::fields::{Fields, FromFields};
use crate::api::outcome::answered;
use crate::api::page::Page;
use crate::api::principal::{Admin, Caller};
use crate::api::readers::{boolean, date_time, integer, one_of};
use crate::api::reply::{Data, Listed, Plural, Reply, Stored, render};
use crate::api::scalars::Timestamp;
use crate::api::state::{State, Tag, not_found, origin, rows_of, time};
use crate::api::webhooks::Event;
use crate::delivery::replay::{PER_SECOND, Search};
use crate::ledger::command::RequestReplay;
use crate::ledger::{Answer, Command, reader};

/// Which events are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Enum, Serialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
enum ReplayKind {
    /// Each that the webhook has a delivery of, whatever became of it.
    #[default]
    Deliveries,
    /// Those of its types that never reached it and are not on their way, also from before it existed.
    Missed,
}

impl ReplayKind {
    const ALL: [(&'static str, ReplayKind); 2] = [("deliveries", Self::Deliveries), ("missed", Self::Missed)];
}

impl From<ReplayKind> for Kind {
    fn from(kind: ReplayKind) -> Self {
        match kind {
            ReplayKind::Deliveries => Self::Deliveries,
            ReplayKind::Missed => Self::Missed,
        }
    }
}

impl From<Kind> for ReplayKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Deliveries => Self::Deliveries,
            Kind::Missed => Self::Missed,
        }
    }
}

/// Where a replay stands.
#[derive(Clone, Copy, Enum, Serialize)]
#[oai(rename_all = "UPPERCASE")]
#[serde(rename_all = "UPPERCASE")]
enum ReplayStatus {
    /// It makes deliveries.
    Running,
    /// It has made all of them.
    Completed,
    /// An operator stopped it; what was still pending has failed.
    Cancelled,
    /// The webhook was switched off or deleted before its end.
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

/// What to deliver again.
#[derive(Object)]
#[allow(dead_code)] // read through `FromFields`; the schema is made from these
struct StartReplay {
    /// Which events.
    kind: ReplayKind,
    /// Only events recorded at this time or later. For `deliveries`, this or `from_position` is needed.
    since: Option<Timestamp>,
    /// Only events at this position of the log or later.
    #[oai(validator(minimum(value = "1")))]
    from_position: Option<i64>,
    /// How many deliveries are made in a second at most, by default 50.
    #[oai(validator(minimum(value = "1"), maximum(value = "500")))]
    per_second: Option<i64>,
    /// Only count what would be delivered, and start nothing.
    dry_run: Option<bool>,
}

impl FromFields for StartReplay {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        let most = i64::try_from(replay::Replay::MOST_PER_STEP).unwrap_or(i64::MAX);
        let start = Self {
            kind: fields.required("kind", one_of(&ReplayKind::ALL)),
            since: fields.optional("since", date_time).map(Timestamp),
            from_position: fields.optional("from_position", integer(1..=i64::MAX)),
            per_second: fields.optional("per_second", integer(1..=most)),
            dry_run: fields.optional("dry_run", boolean),
        };
        match (&start.since, start.from_position, start.kind) {
            (Some(_), Some(_), _) => fields.problem("from_position", "must not be given beside since"),
            (None, None, ReplayKind::Deliveries) => fields.problem("since", "or from_position is required for deliveries"),
            _ => {}
        }
        start
    }
}

/// A replay, and what became of its deliveries.
#[derive(Object, Serialize)]
struct Replay {
    /// Its id.
    id: i64,
    /// Whose webhook it is.
    account_id: i64,
    /// The webhook that is told.
    webhook_id: i64,
    /// Which events.
    kind: ReplayKind,
    /// The types that the webhook was subscribed to when it was asked for.
    events: Vec<Event>,
    /// Where it stands.
    status: ReplayStatus,
    /// The first position of the log that it looks at.
    from_position: i64,
    /// Where its next step begins.
    next_position: i64,
    /// The position of its request: what is later is no part of it.
    until_position: i64,
    /// How many deliveries it makes in a second at most.
    per_second: i32,
    /// Deliveries made so far.
    deliveries: i64,
    /// Of these: waiting for an attempt.
    pending_count: i64,
    /// Of these: answered with a 2xx.
    delivered_count: i64,
    /// Of these: given up.
    failed_count: i64,
    /// When it was asked for.
    created_at: Timestamp,
    /// When it last went on.
    updated_at: Timestamp,
}

impl Plural for Replay {
    const PLURAL: &'static str = "replays";
}

impl Replay {
    fn of(replay: replay::Replay, outcome: Outcome) -> Self {
        Self {
            id: replay.id,
            account_id: replay.account_id,
            webhook_id: replay.webhook_id,
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

/// A replay that was started, or what one would do.
#[derive(Object, Serialize)]
struct ReplayStart {
    /// How many events there are to deliver, up to `next_position`. Only a dry run counts them.
    found: Option<i64>,
    /// Where a dry run ended that did not come to the end of the log: one from there counts on. Null when all is counted.
    next_position: Option<i64>,
    /// Where the log ended when a dry run counted; what is later is no part of it.
    until_position: Option<i64>,
    /// The replay; null after a dry run.
    replay: Option<Replay>,
}

async fn outcomes(state: &State<'_>, shard: ShardId, ids: &[ReplayId]) -> Result<HashMap<ReplayId, Outcome>, ApiError> {
    Ok(replays::outcomes(state.ledger.pool(), shard, ids).await?)
}

async fn shown(state: &State<'_>, shard: ShardId, replay: replay::Replay) -> Result<Replay, ApiError> {
    let outcome = outcomes(state, shard, &[replay.id]).await?.remove(&replay.id).unwrap_or_default();
    Ok(Replay::of(replay, outcome))
}

/// The webhook, deleted or not, and its shard.
async fn webhook_of(state: &State<'_>, id: i64) -> Result<(ShardId, webhook::Webhook), ApiError> {
    let shards: Vec<ShardId> = state.ledger.shards().collect();
    webhooks::find(state.ledger.pool(), &shards, id).await?.ok_or_else(not_found)
}

async fn replay_of(state: &State<'_>, id: i64) -> Result<(ShardId, replay::Replay), ApiError> {
    let shards: Vec<ShardId> = state.ledger.shards().collect();
    replays::find(state.ledger.pool(), &shards, id).await?.ok_or_else(not_found)
}

pub struct Replays;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Deliveries")]
impl Replays {
    /// Replay events to a webhook
    ///
    /// Makes new deliveries of their own five attempts, under the same `event_id` and with the same
    /// bytes, at a limited rate. A webhook has one replay at a time. With `dry_run` it only counts them, and answers
    /// 200: over 500,000 positions of the log at most, so that a long one is counted with several, each from the
    /// `next_position` of the one before it.
    #[oai(path = "/webhooks/:id/replays", method = "post", operation_id = "start_replay")]
    async fn start(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// The webhook's id.
        id: Path<i64>,
        body: StrictJson<StartReplay>,
    ) -> Result<Stored<Data<ReplayStart>, 201, 200>, ApiError> {
        let request = body.0;
        let (shard, webhook) = webhook_of(&state, id.0).await?;
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
            let search = Search { account_id, webhook_id, kind, events: webhook.events };
            let (found, to) = search.count(pool, shard, from, until).await?;
            let next_position = Some(to).filter(|to| *to < until);
            let counted = ReplayStart { found: Some(found), next_position, until_position: Some(until), replay: None };
            return Ok(Stored::new(200, render(&counted).map_err(ApiError::internal)?, false));
        }
        let per_second = request.per_second.and_then(|n| i32::try_from(n).ok()).unwrap_or(PER_SECOND);
        let command = Command::RequestReplay(RequestReplay { account_id, webhook_id, kind, from, per_second });
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        let replay = answered!(answer, Answer::Replay(replay) => replay)?;
        let replay = Some(Replay::of(replay, Outcome::default()));
        let started = ReplayStart { found: None, next_position: None, until_position: None, replay };
        Ok(Stored::new(201, render(&started).map_err(ApiError::internal)?, false))
    }

    /// List a webhook's replays
    ///
    /// Newest first.
    #[oai(path = "/webhooks/:id/replays", method = "get", operation_id = "list_replays")]
    async fn list(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// The webhook's id.
        id: Path<i64>,
        /// From 1.
        page: Query<Option<i64>>,
        /// Replays on a page: 1 to 100, by default 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<Replay>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let (shard, webhook) = webhook_of(&state, id.0).await?;
        let found = replays::list(state.ledger.pool(), shard, webhook.id, rows_of(page)).await?;
        let ids: Vec<ReplayId> = found.rows.iter().map(|replay| replay.id).collect();
        let mut outcomes = outcomes(&state, shard, &ids).await?;
        let total = u64::try_from(found.total).unwrap_or_default();
        let view = |replay: replay::Replay| {
            let outcome = outcomes.remove(&replay.id).unwrap_or_default();
            Replay::of(replay, outcome)
        };
        Ok(Listed::page(found.rows.into_iter().map(view).collect(), page, total))
    }

    /// Find a replay
    ///
    /// How far it has come, and what became of its deliveries.
    #[oai(path = "/replays/:id", method = "get", operation_id = "get_replay")]
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// The replay's id.
        id: Path<i64>,
    ) -> Result<Reply<Replay>, ApiError> {
        let (shard, replay) = replay_of(&state, id.0).await?;
        Ok(Reply(shown(&state, shard, replay).await?))
    }

    /// Cancel a replay
    ///
    /// What it has made and is still pending fails.
    #[oai(path = "/replays/:id/cancel", method = "post", operation_id = "cancel_replay")]
    async fn cancel(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// The replay's id.
        id: Path<i64>,
        _no_fields: NoFields,
    ) -> Result<Reply<Replay>, ApiError> {
        let (shard, _) = replay_of(&state, id.0).await?;
        let command = Command::CancelReplay { replay_id: id.0 };
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        let replay = answered!(answer, Answer::Replay(replay) => replay)?;
        Ok(Reply(shown(&state, shard, replay).await?))
    }
}
