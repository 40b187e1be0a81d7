//! `/admin/v1/operations` and `/admin/v1/alerts`: the state of this node and of the whole ledger, for the people who run it.

mod alerts;
mod answers;
mod endpoints;

use ledger_database::replanned;
use ledger_projections::page::Listed;
use poem_openapi::OpenApi;

use super::replays::{self, Replay};
use crate::access::blocks::ActiveBlock;
use crate::access::{Operator, blocks};
use crate::api::conditions::Conditions;
use crate::api::error::ApiError;
use crate::api::principal::Caller;
use crate::api::probes::{self, LoopState};
use crate::api::reply::{NoStore, Reply};
use crate::api::state::{ApiState, State, Tag};
use crate::delivery::days::DeliveryDay;
use crate::delivery::overview::{self, DeliveryQueue, DueWebhook, FailedWebhook, FailingWebhook};
use crate::delivery::queue::MAX_OF_SHARD;
use crate::heartbeat::Pulse;
use crate::ledger::activity::{Connected, SigningNode};
use crate::ledger::{activity, erasure};
use crate::telemetry::{Backlog, Minute};
use alerts::Facts;
use answers::{
    AlertState, DeliveryDayOfAll, FiringAlert, KnownNode, LowStock, NodeMinute, NodeState, OperationsState, ShardState,
};
use endpoints::{DueEndpoint, FailedEndpoint, FailingEndpoint};

/// Largest number of failing endpoints and of blocks in a response.
const MAX_LISTED: i64 = 50;

/// Reads everything on one connection, one statement after the other: the pool has other users, and may be small.
async fn read(state: &ApiState) -> Result<Read, sqlx::Error> {
    let ids = state.ledger.shards();
    let conn = &mut state.ledger.pool().acquire().await?;
    Ok(Read {
        queues: overview::queues(&mut **conn, MAX_OF_SHARD).await?,
        conditions: Conditions::read(&state.ledger, conn).await?,
        failing: overview::failing(&mut **conn, MAX_LISTED).await?,
        due: overview::due(&mut **conn, MAX_LISTED).await?,
        failed: overview::failed(&mut **conn, MAX_LISTED).await?,
        days: overview::days(&mut **conn).await?,
        connections: activity::connected(&mut **conn).await?,
        signers: activity::signing_nodes(&mut **conn).await?,
        blocked: blocks::newest(&mut **conn, MAX_LISTED).await?,
        unwiped: erasure::wipe::outstanding(&mut **conn).await?,
        replays: replays::running(conn, &ids).await?,
    })
}

/// Reads only what the alerts depend on, on one connection.
async fn read_conditions(state: &ApiState) -> Result<Conditions, sqlx::Error> {
    let conn = &mut state.ledger.pool().acquire().await?;
    Conditions::read(&state.ledger, conn).await
}

/// Results of the reads from the database.
struct Read {
    queues: Vec<DeliveryQueue>,
    conditions: Conditions,
    failing: Vec<FailingWebhook>,
    due: Vec<DueWebhook>,
    failed: Vec<FailedWebhook>,
    days: Vec<DeliveryDay>,
    connections: Vec<Connected>,
    signers: Vec<SigningNode>,
    blocked: Listed<ActiveBlock>,
    unwiped: Vec<String>,
    replays: Vec<Replay>,
}

/// Returns the state of each shard. `queues` are further counts, on which no alert depends.
fn shards_of(state: &ApiState, conditions: &Conditions, queues: &[DeliveryQueue]) -> Vec<ShardState> {
    let Conditions { backlogs, lags, progress, .. } = conditions;
    let depths = state.metrics.queue_depths();
    let shard = |backlog: &Backlog| ShardState::of(*backlog, lags, progress, queues, &depths, &state.metrics);
    backlogs.iter().map(shard).collect()
}

/// Returns the alerts whose condition holds, given the heartbeats and the counts of this node.
fn alerts_of(
    state: &ApiState,
    conditions: &Conditions,
    shards: &[ShardState],
    pulses: &[Pulse],
    minutes: &[Minute],
) -> Vec<FiringAlert> {
    let has_key = state.keyring.current().is_some();
    let Conditions { nodes, minutes: of_all, low, suppliers, .. } = conditions;
    alerts::evaluate(&Facts { shards, pulses, nodes, minutes, of_all, low, suppliers, has_key })
}

pub struct Operations;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Operations")]
impl Operations {
    /// Retrieve the state of operations
    ///
    /// Returns what this node and the database know of the service: loops, queues, lags, failing endpoints, running replays,
    /// and the alerts of `deploy/alerts.yml` whose condition holds now. An alert that Prometheus raises must hold for some
    /// time, so it may follow later.
    ///
    /// `node`, and the queues of writers, are those of the node that answers. All else concerns all nodes.
    #[oai(path = "/operations", method = "get", operation_id = "get_operations")]
    async fn get(&self, _caller: Caller<Operator>, state: State<'_>) -> Result<NoStore<Reply<OperationsState>>, ApiError> {
        let pulses = state.ledger.heartbeats().pulses();
        let problem = probes::obstacle(&state, &pulses).await;
        let read = replanned(|| read(&state)).await?;
        let minutes = state.metrics.minutes();
        let shards = shards_of(&state, &read.conditions, &read.queues);
        let alerts = alerts_of(&state, &read.conditions, &shards, &pulses, &minutes);
        let node = NodeState {
            is_ready: problem.is_none(),
            problem,
            loops: pulses.into_iter().map(LoopState::from).collect(),
            minutes: minutes.iter().map(NodeMinute::from).collect(),
        };
        Ok(NoStore(Reply(OperationsState {
            node,
            nodes: read.conditions.nodes.into_iter().map(KnownNode::from).collect(),
            minutes: read.conditions.minutes.iter().map(NodeMinute::from).collect(),
            connections: read.connections.into_iter().map(Into::into).collect(),
            signers: read.signers.into_iter().map(Into::into).collect(),
            shards,
            endpoints: read.failing.into_iter().map(FailingEndpoint::from).collect(),
            due_endpoints: read.due.into_iter().map(DueEndpoint::from).collect(),
            failed_endpoints: read.failed.into_iter().map(FailedEndpoint::from).collect(),
            days: read.days.into_iter().map(DeliveryDayOfAll::from).collect(),
            replays: read.replays,
            unwiped_tables: read.unwiped,
            ip_block_count: read.blocked.total,
            ip_blocks: read.blocked.rows.into_iter().map(Into::into).collect(),
            low_stock: read.conditions.low.into_iter().map(LowStock::from).collect(),
            alerts,
        })))
    }

    /// Retrieve the alerts
    ///
    /// Returns the alerts of `deploy/alerts.yml` whose condition holds now, and the denominations with low stock, as
    /// `GET /admin/v1/operations` does. It reads less than that, and at most once in three seconds for all who ask a node, so
    /// the response may be three seconds behind.
    #[oai(path = "/alerts", method = "get", operation_id = "get_alerts")]
    async fn alerts(&self, _caller: Caller<Operator>, state: State<'_>) -> Result<NoStore<Reply<AlertState>>, ApiError> {
        let conditions = state.conditions.get(replanned(|| read_conditions(&state))).await?;
        let (pulses, minutes) = (state.ledger.heartbeats().pulses(), state.metrics.minutes());
        let shards = shards_of(&state, &conditions, &[]);
        let alerts = alerts_of(&state, &conditions, &shards, &pulses, &minutes);
        let low_stock = conditions.low.iter().copied().map(LowStock::from).collect();
        Ok(NoStore(Reply(AlertState { alerts, low_stock })))
    }
}
