//! `/admin/v1/operations`: the state of this node and of the whole ledger, for the people who run it.

mod alerts;
mod answers;
mod endpoints;

use std::collections::BTreeSet;

use ledger_database::{PgConnection, replanned};
use ledger_events::{Money, ProductId, ShardId};
use ledger_projections::page::Listed;
use poem_openapi::OpenApi;

use super::replays::{self, Replay};
use crate::access::blocks::ActiveBlock;
use crate::access::{Operator, blocks};
use crate::api::error::ApiError;
use crate::api::principal::Caller;
use crate::api::probes::{self, LoopState};
use crate::api::reply::{NoStore, Reply};
use crate::api::state::{ApiState, State, Tag};
use crate::delivery::days::DeliveryDay;
use crate::delivery::overview::{self, DueWebhook, FailedWebhook, FailingWebhook};
use crate::delivery::queue::MAX_OF_SHARD;
use crate::ledger::activity::{Connected, SigningNode};
use crate::ledger::nodes::{self, Node};
use crate::ledger::{activity, backlog, erasure, stock};
use crate::telemetry::{Minute, SupplierBacklog};
use alerts::Facts;
use answers::{DeliveryDayOfAll, KnownNode, LowStock, NodeMinute, NodeState, OperationsState, ShardState};
use endpoints::{DueEndpoint, FailedEndpoint, FailingEndpoint};

/// Largest number of failing endpoints and of blocks in a response.
const MAX_LISTED: i64 = 50;

/// Reads everything on one connection, one statement after the other: the pool has other users, and may be small.
async fn read(state: &ApiState) -> Result<Read, sqlx::Error> {
    let ids: Vec<ShardId> = state.ledger.shards().collect();
    let conn = &mut state.ledger.pool().acquire().await?;
    Ok(Read {
        shards: shard_states(state, conn).await?,
        failing: overview::failing(&mut **conn, MAX_LISTED).await?,
        due: overview::due(&mut **conn, MAX_LISTED).await?,
        failed: overview::failed(&mut **conn, MAX_LISTED).await?,
        days: overview::days(&mut **conn).await?,
        connections: activity::connected(&mut **conn).await?,
        signers: activity::signing_nodes(&mut **conn).await?,
        nodes: nodes::list(&mut **conn).await?,
        minutes: nodes::minutes(&mut **conn).await?,
        low: stock::low(&mut **conn, &ids).await?,
        suppliers: backlog::suppliers(&mut **conn).await?,
        blocked: blocks::newest(&mut **conn, MAX_LISTED).await?,
        unwiped: erasure::wipe::outstanding(&mut **conn).await?,
        replays: replays::running(conn, &ids).await?,
    })
}

/// Reads the state of every shard.
async fn shard_states(state: &ApiState, conn: &mut PgConnection) -> Result<Vec<ShardState>, sqlx::Error> {
    let backlogs = backlog::sample(&mut *conn, MAX_OF_SHARD).await?;
    let queues = overview::queues(&mut *conn, MAX_OF_SHARD).await?;
    let lags = backlog::lags(&mut *conn).await?;
    let progress = activity::progress(conn).await?;
    let depths = state.metrics.queue_depths();
    let shard = |backlog| ShardState::of(backlog, &lags, &progress, &queues, &depths, &state.metrics);
    Ok(backlogs.into_iter().map(shard).collect())
}

/// Results of the reads from the database.
struct Read {
    shards: Vec<ShardState>,
    failing: Vec<FailingWebhook>,
    due: Vec<DueWebhook>,
    failed: Vec<FailedWebhook>,
    days: Vec<DeliveryDay>,
    connections: Vec<Connected>,
    signers: Vec<SigningNode>,
    nodes: Vec<Node>,
    minutes: Vec<Minute>,
    low: BTreeSet<(ProductId, Money)>,
    suppliers: Vec<SupplierBacklog>,
    blocked: Listed<ActiveBlock>,
    unwiped: Vec<String>,
    replays: Vec<Replay>,
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
        let has_key = state.keyring.current().is_some();
        let Read { shards, nodes, low, suppliers, minutes: of_all, .. } = &read;
        let of_node = Facts { shards, pulses: &pulses, nodes, minutes: &minutes, of_all, low, suppliers, has_key };
        let alerts = alerts::evaluate(&of_node);
        let node = NodeState {
            is_ready: problem.is_none(),
            problem,
            loops: pulses.into_iter().map(LoopState::from).collect(),
            minutes: minutes.iter().map(NodeMinute::from).collect(),
        };
        Ok(NoStore(Reply(OperationsState {
            node,
            nodes: read.nodes.into_iter().map(KnownNode::from).collect(),
            minutes: read.minutes.iter().map(NodeMinute::from).collect(),
            connections: read.connections.into_iter().map(Into::into).collect(),
            signers: read.signers.into_iter().map(Into::into).collect(),
            shards: read.shards,
            endpoints: read.failing.into_iter().map(FailingEndpoint::from).collect(),
            due_endpoints: read.due.into_iter().map(DueEndpoint::from).collect(),
            failed_endpoints: read.failed.into_iter().map(FailedEndpoint::from).collect(),
            days: read.days.into_iter().map(DeliveryDayOfAll::from).collect(),
            replays: read.replays,
            unwiped_tables: read.unwiped,
            ip_block_count: read.blocked.total,
            ip_blocks: read.blocked.rows.into_iter().map(Into::into).collect(),
            low_stock: read.low.into_iter().map(LowStock::from).collect(),
            alerts,
        })))
    }
}
