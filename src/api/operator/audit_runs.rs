//! `/admin/v1/audit-runs`: runs of `verify` and `rebuild` with their progress, and the start and stop of a verification.

use std::collections::HashSet;

use ledger_events::Actor;
use poem_openapi::param::{Path, Query};
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;

use crate::access::Operator;
use crate::api::body::NoFields;
use crate::api::error::{ApiError, Code};
use crate::api::outcome::answered;
use crate::api::page::Page;
use crate::api::principal::{Admin, Caller};
use crate::api::reply::{Created, Listed, Plural, Reply};
use crate::api::scalars::Timestamp;
use crate::api::state::{ApiState, State, Tag, listed, not_found, origin, rows_of};
use crate::audit::runs::{self, Run};
use crate::ledger::actors::{self, ActorNames};
use crate::ledger::{CommandResult, FIRST_SHARD, commands};

/// Work of a run.
///
/// - `verify`: compares every derived row with the log, and the log with its own rules.
/// - `rebuild`: derives a projection's tables again from the log. Only the command `rewards-ledger rebuild` does that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum, Serialize)]
#[oai(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
enum AuditRunKind {
    Verify,
    Rebuild,
}

/// Status of a run.
///
/// - `running`: the run has a recent heartbeat.
/// - `interrupted`: the run has had no heartbeat for 30 seconds. Its node or command has ended.
/// - `clean`: the run has found no difference.
/// - `differences`: the run has found differences. A rebuild has corrected those of its tables.
/// - `failed`: the run could not be finished.
/// - `stopped`: the run was given up, because an operator stopped it or its node was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum, Serialize)]
#[oai(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
enum AuditRunStatus {
    Running,
    Interrupted,
    Clean,
    Differences,
    Failed,
    Stopped,
}

impl AuditRunStatus {
    fn parse(text: &str) -> Self {
        match text {
            "running" => Self::Running,
            "clean" => Self::Clean,
            "differences" => Self::Differences,
            "failed" => Self::Failed,
            "stopped" => Self::Stopped,
            _ => Self::Interrupted,
        }
    }
}

/// A run of `verify` or `rebuild`.
#[derive(Object, Serialize)]
struct AuditRun {
    /// Unique identifier of the run.
    id: i64,
    /// Work of the run.
    kind: AuditRunKind,
    /// Projection that is rebuilt; null for a verification.
    projection: Option<String>,
    /// Status of the run.
    status: AuditRunStatus,
    /// Kind of the actor who started the run; null for a command.
    actor_type: Option<String>,
    /// Unique identifier of the actor, if its kind has one.
    actor_id: Option<i64>,
    /// Name or email address of the actor, unless it was erased.
    actor_name: Option<String>,
    /// Host name of the machine that does the work.
    host: String,
    /// Time at which the run began.
    started_at: Timestamp,
    /// Time of the last heartbeat.
    beat_at: Timestamp,
    /// Time at which the run ended; null if it has not, or was interrupted.
    ended_at: Option<Timestamp>,
    /// Stage that the run has reached; null before the first one.
    stage: Option<String>,
    /// Shard that the stage is about.
    shard_id: Option<i16>,
    /// Number of events or rows of the stage that are done.
    done: Option<i64>,
    /// Number of events or rows of the stage.
    total: Option<i64>,
    /// Number of differences found.
    found: i64,
    /// Sentence with the counts of the result, or with the reason of a failure; null before the end.
    summary: Option<String>,
    /// The first differences found, a line each of at most 400 characters. At most 100 of a run, and 5 of each run in a list.
    /// Texts of rows and events are left out; `rewards-ledger verify` shows them.
    differences: Vec<String>,
    /// Number of differences that `differences` leaves out.
    differences_left_out: i64,
}

impl Plural for AuditRun {
    const PLURAL: &'static str = "audit_runs";
}

impl AuditRun {
    fn of(run: Run, names: &ActorNames) -> Self {
        let (actor_type, actor_id) = run.actor.map(Actor::kind).unzip();
        let differences_left_out = run.left_out();
        Self {
            id: run.id,
            kind: if run.kind == "rebuild" { AuditRunKind::Rebuild } else { AuditRunKind::Verify },
            projection: run.projection,
            status: AuditRunStatus::parse(&run.status),
            actor_type: actor_type.map(ToOwned::to_owned),
            actor_id: actor_id.flatten(),
            actor_name: run.actor.and_then(|actor| names.get(&actor)).map(|name| name.expose().to_owned()),
            host: run.host,
            started_at: run.started_at.into(),
            beat_at: run.beat_at.into(),
            ended_at: run.ended_at.map(Into::into),
            stage: run.stage,
            shard_id: run.shard_id,
            done: run.done,
            total: run.total,
            found: run.found,
            summary: run.summary,
            differences: run.differences,
            differences_left_out,
        }
    }
}

async fn names(state: &ApiState, runs: &[Run]) -> Result<ActorNames, ApiError> {
    let actors: HashSet<Actor> = runs.iter().filter_map(|run| run.actor).collect();
    Ok(actors::names(state.ledger.pool(), Some(&state.keyring), FIRST_SHARD, &actors).await?)
}

async fn shown(state: &ApiState, id: i64) -> Result<AuditRun, ApiError> {
    let run = runs::find(state.ledger.pool(), id).await?.ok_or_else(not_found)?;
    let names = names(state, std::slice::from_ref(&run)).await?;
    Ok(AuditRun::of(run, &names))
}

pub struct AuditRuns;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Operations")]
impl AuditRuns {
    /// Start a verification
    ///
    /// Starts to compare every derived row with the log, on the node that answers. It works on one connection and one
    /// thread, beside the node's requests. One run is in progress at a time over all nodes: the response is 409 otherwise. To
    /// rebuild tables, run the command `rewards-ledger rebuild` as their owner.
    #[oai(path = "/audit-runs", method = "post", operation_id = "start_verification")]
    async fn start(&self, caller: Caller<Admin>, state: State<'_>, _no_fields: NoFields) -> Result<Created<AuditRun>, ApiError> {
        let actor = caller.0.0.actor();
        let ledger = state.ledger.clone();
        let recorded = async move |run_id| {
            let answer = ledger.execute(FIRST_SHARD, commands::StartVerification { run_id }, origin(actor)).await?;
            answered!(answer, CommandResult::VerificationStarted => ())
        };
        let id = state.audits.verify::<ApiError, _>(actor, recorded).await?;
        let id = id.ok_or_else(|| ApiError::new(Code::Conflict).message("A run is in progress. Wait until it has ended."))?;
        Ok(Created(shown(&state, id).await?))
    }

    /// Stop a verification
    ///
    /// Ends a verification that is in progress as `stopped`, on whichever node or by whichever command it runs. Its work ends
    /// a few seconds later. The response is 409 if the run has ended, or is a rebuild: stop that where its command runs.
    #[oai(path = "/audit-runs/:id", method = "delete", operation_id = "stop_verification")]
    async fn stop(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the run.
        id: Path<i64>,
        _no_fields: NoFields,
    ) -> Result<Reply<AuditRun>, ApiError> {
        let (run_id, origin, ledger) = (id.0, origin(caller.0.0.actor()), state.ledger.clone());
        let run = runs::find(state.ledger.pool(), run_id).await?.ok_or_else(not_found)?;
        let recorded = async move || {
            let answer = ledger.execute(FIRST_SHARD, commands::StopVerification { run_id }, origin).await?;
            answered!(answer, CommandResult::VerificationStopped => ())
        };
        if !state.audits.stop::<ApiError, _>(run_id, recorded).await? {
            let is_rebuild = run.kind == "rebuild";
            let reason = if is_rebuild { "A rebuild is stopped where its command runs." } else { "The run has ended." };
            return Err(ApiError::new(Code::Conflict).message(reason));
        }
        Ok(Reply(shown(&state, run_id).await?))
    }

    /// List audit runs
    ///
    /// Returns the runs of `verify` and `rebuild` of the last 90 days on all nodes and by commands, newest first. Each run has
    /// its first 5 differences; `GET /admin/v1/audit-runs/:id` returns more.
    #[oai(path = "/audit-runs", method = "get", operation_id = "list_audit_runs")]
    async fn list(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Runs per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<AuditRun>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let found = runs::list(state.ledger.pool(), rows_of(page)).await?;
        let names = names(&state, &found.rows).await?;
        Ok(listed(found, page, |run| AuditRun::of(run, &names)))
    }

    /// Retrieve an audit run
    ///
    /// Returns the progress of a run, and its result once it has ended.
    #[oai(path = "/audit-runs/:id", method = "get", operation_id = "get_audit_run")]
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the run.
        id: Path<i64>,
    ) -> Result<Reply<AuditRun>, ApiError> {
        Ok(Reply(shown(&state, id.0).await?))
    }
}
