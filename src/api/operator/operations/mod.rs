//! `/admin/v1/operations`: the state of this node and of the whole ledger, for the people who run it.

mod alerts;
mod answers;

use ledger_events::{ReplayId, ShardId};
use ledger_projections::page::Page as RowPage;
use ledger_projections::replays;
use poem_openapi::OpenApi;

use super::replays::Replay;
use crate::access::{Operator, blocks};
use crate::api::error::ApiError;
use crate::api::principal::Caller;
use crate::api::probes::{self, LoopState};
use crate::api::reply::{NoStore, Reply};
use crate::api::state::{ApiState, State, Tag};
use crate::delivery::overview;
use crate::ledger::{activity, backlog, erasure, stock};
use answers::{DeliveryDayOfAll, FailingEndpoint, LowStock, NodeMinute, NodeState, OperationsState, ShardState};

/// Largest number of failing endpoints, of running replays and of blocks in a response.
const MOST_LISTED: i64 = 50;

/// Reads the running replays with the outcomes of their deliveries.
async fn running_replays(state: &ApiState, shards: &[ShardId]) -> Result<Vec<Replay>, ApiError> {
    let pool = state.ledger.pool();
    let running = replays::running(pool, shards, MOST_LISTED).await?;
    let mut shown = vec![];
    for &shard in shards {
        let own = || running.iter().filter(|(of, _)| *of == shard).map(|(_, replay)| replay);
        let ids: Vec<ReplayId> = own().map(|replay| replay.id).collect();
        if !ids.is_empty() {
            let mut outcomes = replays::outcomes(pool, shard, &ids).await?;
            shown.extend(own().cloned().map(|replay| {
                let outcome = outcomes.remove(&replay.id).unwrap_or_default();
                Replay::of(replay, outcome)
            }));
        }
    }
    Ok(shown)
}

/// Reads the state of every shard.
async fn shard_states(state: &ApiState) -> Result<Vec<ShardState>, ApiError> {
    let pool = state.ledger.pool();
    let (backlogs, lags) = backlog::query(pool).await?;
    let (progress, queues) = (activity::progress(pool).await?, overview::queues(pool).await?);
    let depths = state.metrics.queue_depths();
    let shard = |backlog| ShardState::of(backlog, &lags, &progress, &queues, &depths, &state.metrics);
    Ok(backlogs.into_iter().map(shard).collect())
}

pub struct Operations;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Operations")]
impl Operations {
    /// Retrieve the state of operations
    ///
    /// Returns what this node and the database know of the service: loops, queues, lags, failing endpoints, running replays,
    /// and the alerts of `deploy/alerts.yml` whose condition holds now. An alert that Prometheus raises must hold for some
    /// time, so it may follow later. Rates and quantiles are left to Prometheus, except for the share of failed requests.
    ///
    /// Loops, queues of writers and counts by minute are those of the node that answers. All else concerns all nodes.
    #[oai(path = "/operations", method = "get", operation_id = "get_operations")]
    async fn get(&self, _caller: Caller<Operator>, state: State<'_>) -> Result<NoStore<Reply<OperationsState>>, ApiError> {
        let pool = state.ledger.pool();
        let ids: Vec<ShardId> = state.ledger.shards().collect();
        let pulses = state.ledger.heartbeats().pulses();
        let problem = probes::obstacle(&state, &pulses).await;
        let shards = shard_states(&state).await?;
        let endpoints = overview::failing(pool, MOST_LISTED).await?;
        let days = overview::days(pool).await?;
        let low = stock::low(pool, &ids).await?;
        let blocked = blocks::list(pool, RowPage { number: 1, size: MOST_LISTED }).await?;
        let minutes = state.metrics.minutes();
        let has_key = state.keyring.current().is_some();
        let alerts = alerts::evaluate(&alerts::Facts { shards: &shards, pulses: &pulses, minutes: &minutes, low: &low, has_key });
        let node = NodeState {
            is_ready: problem.is_none(),
            problem,
            loops: pulses.into_iter().map(LoopState::from).collect(),
            minutes: minutes.iter().map(NodeMinute::from).collect(),
        };
        Ok(NoStore(Reply(OperationsState {
            node,
            connections: activity::connected(pool).await?.into_iter().map(Into::into).collect(),
            signers: activity::signing_nodes(pool).await?.into_iter().map(Into::into).collect(),
            shards,
            endpoints: endpoints.into_iter().map(FailingEndpoint::from).collect(),
            days: days.into_iter().map(DeliveryDayOfAll::from).collect(),
            replays: running_replays(&state, &ids).await?,
            unwiped_tables: erasure::wipe::outstanding(&mut *pool.acquire().await?).await?,
            ip_block_count: blocked.total,
            ip_blocks: blocked.rows.into_iter().map(Into::into).collect(),
            low_stock: low.into_iter().map(LowStock::from).collect(),
            alerts,
        })))
    }
}
