//! Parts of the state of operations.

use ledger_events::{Money as Amount, ProductId, ShardId};
use poem_openapi::{Enum, Object};
use serde::Serialize;

use super::super::ip_blocks::IpBlock;
use super::super::replays::Replay;
use super::endpoints::{DueEndpoint, FailedEndpoint, FailingEndpoint};
use crate::api::probes::LoopState;
use crate::api::scalars::{Money, Timestamp};
use crate::delivery::days::DeliveryDay;
use crate::delivery::overview::DeliveryQueue;
use crate::ledger::activity::{Connected, Progress, SigningNode};
use crate::ledger::nodes::Node;
use crate::telemetry::{Backlog, Lag, Metrics, Minute};

/// State of the node that answers, and of the whole ledger.
#[derive(Object, Serialize)]
pub struct OperationsState {
    /// Node that answers.
    pub node: NodeState,
    /// Nodes that run, then lost ones, then those that stopped in the last hour; of each kind the latest start first. At most 100.
    pub nodes: Vec<KnownNode>,
    /// Counts of all nodes by minute, for the last hour, oldest first. Minutes without a count are left out.
    pub minutes: Vec<NodeMinute>,
    /// Connections of all nodes and commands to the database, by task. Each node has one connection per shard for its
    /// writer, so their number tells how many nodes run.
    pub connections: Vec<TaskConnections>,
    /// Nodes that sign the transparency log.
    pub signers: Vec<SignerState>,
    /// Shards of the ledger.
    pub shards: Vec<ShardState>,
    /// Webhooks with failed attempts that are retried, the one with the most first. At most 50.
    pub endpoints: Vec<FailingEndpoint>,
    /// Webhooks with due deliveries that are not in flight, the one with the most first. At most 50.
    pub due_endpoints: Vec<DueEndpoint>,
    /// Webhooks of the latest 1,001 deliveries that have failed for good, the one with the most in the last 24 hours first. At
    /// most 50.
    pub failed_endpoints: Vec<FailedEndpoint>,
    /// Delivery attempts of the last 14 days (UTC), oldest first. Days without attempts are left out.
    pub days: Vec<DeliveryDayOfAll>,
    /// Running replays, oldest first. At most 50.
    pub replays: Vec<Replay>,
    /// Tables from whose files an erasure still has to remove deleted data. `rewards-ledger erase` does that.
    pub unwiped_tables: Vec<String>,
    /// Number of active login blocks.
    pub ip_block_count: i64,
    /// Active login blocks, newest first. At most 50.
    pub ip_blocks: Vec<IpBlock>,
    /// Denominations with fewer available vouchers than their threshold.
    pub low_stock: Vec<LowStock>,
    /// Alerts whose condition holds now.
    pub alerts: Vec<FiringAlert>,
}

/// Alerts and low stock.
#[derive(Object, Serialize)]
pub struct AlertState {
    /// Alerts whose condition holds now.
    pub alerts: Vec<FiringAlert>,
    /// Denominations with fewer available vouchers than their threshold.
    pub low_stock: Vec<LowStock>,
}

/// State of one node.
#[derive(Object, Serialize)]
pub struct NodeState {
    /// Whether the node can serve requests, as `GET /readyz` says.
    pub is_ready: bool,
    /// Reason why the node cannot serve requests; null if it can.
    pub problem: Option<String>,
    /// Background loops of the node, by name.
    pub loops: Vec<LoopState>,
    /// Counts of the node by minute, for the last hour, oldest first. They begin with the start of the node.
    pub minutes: Vec<NodeMinute>,
}

/// Condition of a node.
///
/// - `running`: the node has a recent heartbeat.
/// - `lost`: the node has had no heartbeat for 30 seconds. It has ended, or cannot reach the database.
/// - `stopped`: the node has stopped in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum, Serialize)]
#[oai(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
enum NodeCondition {
    Running,
    Lost,
    Stopped,
}

/// A node, as its last heartbeat tells.
#[derive(Object, Serialize)]
pub struct KnownNode {
    /// Unique identifier of the node, drawn at its start.
    id: String,
    /// Host name of the node.
    host: String,
    /// Version of the program.
    version: String,
    /// Roles of the node.
    roles: Vec<String>,
    /// Condition of the node.
    condition: NodeCondition,
    /// Background loops of the node that have stalled.
    stalled_loops: Vec<String>,
    /// Time at which the node started.
    started_at: Timestamp,
    /// Time of the last heartbeat.
    beat_at: Timestamp,
    /// Seconds since the last heartbeat, by the database's clock.
    beat_age_seconds: f64,
    /// Time at which the node stopped in order; null otherwise.
    stopped_at: Option<Timestamp>,
}

impl From<Node> for KnownNode {
    fn from(node: Node) -> Self {
        let condition = match (node.stopped_at, node.is_lost()) {
            (Some(_), _) => NodeCondition::Stopped,
            (None, true) => NodeCondition::Lost,
            (None, false) => NodeCondition::Running,
        };
        Self {
            id: node.id.to_string(),
            host: node.host,
            version: node.version,
            roles: node.roles,
            condition,
            stalled_loops: node.stalled_loops,
            started_at: node.started_at.into(),
            beat_at: node.beat_at.into(),
            beat_age_seconds: node.beat_age,
            stopped_at: node.stopped_at.map(Into::into),
        }
    }
}

/// Counts of one or all nodes in one minute.
#[derive(Object, Serialize)]
pub struct NodeMinute {
    /// Beginning of the minute.
    minute: Timestamp,
    /// Number of requests answered.
    requests: i64,
    /// Number of requests answered with a 5xx status.
    failed_requests: i64,
    /// Number of events appended.
    events: i64,
    /// Number of delivery attempts answered with a 2xx status.
    delivered_attempts: i64,
    /// Number of delivery attempts that failed.
    failed_attempts: i64,
    /// Average duration of a delivery attempt, in milliseconds; null without attempts.
    average_ms: Option<i64>,
    /// Duration of the longest delivery attempt, in milliseconds; null without attempts.
    longest_ms: Option<i64>,
}

impl From<&Minute> for NodeMinute {
    fn from(minute: &Minute) -> Self {
        let milliseconds = |number: u128| i64::try_from(number).unwrap_or(i64::MAX);
        let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        Self {
            minute: minute.at().into(),
            requests: count(minute.requests),
            failed_requests: count(minute.failures),
            events: count(minute.events),
            delivered_attempts: count(minute.delivered),
            failed_attempts: count(minute.failed),
            average_ms: minute.took.as_millis().checked_div(minute.attempts().into()).map(milliseconds),
            longest_ms: (minute.attempts() > 0).then(|| milliseconds(minute.longest.as_millis())),
        }
    }
}

/// Connections to the database for one task.
#[derive(Object, Serialize)]
pub struct TaskConnections {
    /// Name of the task.
    name: String,
    /// Number of connections over all nodes.
    connections: i64,
}

impl From<Connected> for TaskConnections {
    fn from(connected: Connected) -> Self {
        Self { name: connected.name, connections: connected.connections }
    }
}

/// A node that signs the transparency log of a shard.
#[derive(Object, Serialize)]
pub struct SignerState {
    /// Shard whose log the node signs.
    shard_id: i16,
    /// Host name of the node.
    host: String,
    /// Time at which the node last compared its memory with the database server. It does so after each start of the server.
    compared_at: Timestamp,
    /// Reason why the node refuses to sign; null if it signs.
    refusal: Option<String>,
}

impl From<SigningNode> for SignerState {
    fn from(node: SigningNode) -> Self {
        Self { shard_id: node.shard_id, host: node.host, compared_at: node.compared_at.into(), refusal: node.refusal }
    }
}

/// State of a shard, over all nodes except where it says otherwise.
#[derive(Object, Serialize)]
pub struct ShardState {
    /// Number of the shard.
    pub shard_id: i16,
    /// Position of the log's last event.
    pub head: i64,
    /// Time of the log's last event; null without events.
    appended_at: Option<Timestamp>,
    /// Latest time at which a projection has advanced.
    projected_at: Option<Timestamp>,
    /// Time of the last signed checkpoint.
    signed_at: Option<Timestamp>,
    /// Time at which the oldest order was placed that fulfilment has not taken up; null if there is none.
    unqueued_since: Option<Timestamp>,
    /// Seconds since that time; 0 if there is none.
    pub unqueued_seconds: f64,
    /// Number of commands that wait for the writer of this node.
    pub waiting_commands: i64,
    /// Lag of each projection.
    pub projections: Vec<ProjectionState>,
    /// Number of orders that fulfilment has not taken up, at most 10,001.
    pub unqueued_orders: i64,
    /// Number of orders that wait for stock, at most 10,001.
    pub out_of_stock_orders: i64,
    /// Number of deliveries that are due and not in flight, at most 20,002.
    pub due_deliveries: i64,
    /// Number of deliveries in flight, at most 10,001.
    in_flight_deliveries: i64,
    /// Number of deliveries whose worker has recorded no outcome in time, at most 10,001. Their attempts are repeated.
    expired_deliveries: i64,
    /// Number of deliveries that have failed for good, at most 10,001.
    dead_deliveries: i64,
    /// Number of deliveries that are missing; null if this node does not check that.
    pub missing_deliveries: Option<i64>,
    /// Time of one of the oldest attempts that retention has kept.
    oldest_attempt_at: Option<Timestamp>,
    /// Seconds by which the last event is ahead of the database's clock. Normally 0.
    pub head_ahead_seconds: f64,
    /// Seconds by which the database's clock is ahead of the trusted time. Normally a few.
    pub clock_ahead_seconds: f64,
    /// Whether a node refuses to sign the transparency log.
    pub is_signing_refused: bool,
}

/// Lag of a projection behind the log.
#[derive(Object, Serialize)]
pub struct ProjectionState {
    /// Name of the projection.
    pub name: String,
    /// Last position that the projection has processed.
    position: i64,
    /// Number of events that the projection has not processed.
    behind: i64,
    /// Age of the oldest event that the projection has not processed, in seconds; 0 if there is none.
    pub oldest_seconds: f64,
}

impl ShardState {
    /// Combines what the sources know of the shard of a backlog.
    pub fn of(
        backlog: Backlog,
        lags: &[Lag],
        progress: &[Progress],
        queues: &[DeliveryQueue],
        depths: &[(ShardId, usize)],
        metrics: &Metrics,
    ) -> Self {
        let shard = backlog.shard_id;
        let progress = progress.iter().find(|progress| progress.shard_id == shard);
        let queue = queues.iter().find(|queue| queue.shard_id == shard);
        let depth = depths.iter().find(|(of, _)| *of == shard).map_or(0, |(_, depth)| *depth);
        let lags = lags.iter().filter(|lag| lag.shard_id == shard);
        Self {
            shard_id: shard,
            head: backlog.head,
            appended_at: progress.filter(|_| backlog.head > 0).map(|progress| progress.appended_at.into()),
            projected_at: progress.and_then(|progress| progress.projected_at).map(Into::into),
            signed_at: progress.and_then(|progress| progress.signed_at).map(Into::into),
            unqueued_since: progress.and_then(|progress| progress.unqueued_since).map(Into::into),
            unqueued_seconds: progress.map_or(0.0, Progress::unqueued_seconds),
            waiting_commands: i64::try_from(depth).unwrap_or(i64::MAX),
            projections: lags
                .map(|lag| ProjectionState {
                    name: lag.projection.clone(),
                    position: lag.checkpoint,
                    behind: lag.behind,
                    oldest_seconds: lag.oldest_seconds,
                })
                .collect(),
            unqueued_orders: backlog.unqueued,
            out_of_stock_orders: backlog.waiting,
            due_deliveries: backlog.due,
            in_flight_deliveries: queue.map_or(0, |queue| queue.in_flight),
            expired_deliveries: queue.map_or(0, |queue| queue.expired),
            dead_deliveries: queue.map_or(0, |queue| queue.dead),
            missing_deliveries: metrics.missing_deliveries(shard),
            oldest_attempt_at: queue.and_then(|queue| queue.oldest_attempt_at).map(Into::into),
            head_ahead_seconds: backlog.head_ahead,
            clock_ahead_seconds: backlog.clock_ahead,
            is_signing_refused: backlog.is_refused,
        }
    }
}

/// Delivery attempts of all webhooks on one day (UTC).
#[derive(Object, Serialize)]
pub struct DeliveryDayOfAll {
    /// The day, as `YYYY-MM-DD`.
    day: String,
    /// Number of attempts that ended on the day.
    attempts: i64,
    /// Number of attempts that were answered with a 2xx status.
    delivered: i64,
    /// Average duration of an attempt, in milliseconds; null without attempts.
    average_ms: Option<i64>,
    /// Duration of the longest attempt, in milliseconds.
    longest_ms: i32,
}

impl From<DeliveryDay> for DeliveryDayOfAll {
    fn from(day: DeliveryDay) -> Self {
        Self {
            day: day.day.to_string(),
            attempts: day.attempts,
            delivered: day.delivered,
            average_ms: day.total_ms.checked_div(day.attempts),
            longest_ms: day.longest_ms,
        }
    }
}

/// A denomination of a product with fewer available vouchers than its threshold.
#[derive(Object, Serialize)]
pub struct LowStock {
    /// Unique identifier of the product.
    product_id: i64,
    /// Face value of the vouchers.
    denomination: Money,
}

impl From<(ProductId, Amount)> for LowStock {
    fn from((product, denomination): (ProductId, Amount)) -> Self {
        Self { product_id: product.0, denomination: denomination.into() }
    }
}

/// Urgency of an alert.
///
/// - `page`: a person must act at once.
/// - `warn`: a person should act on the next working day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum, Serialize)]
#[oai(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum AlertSeverity {
    Page,
    Warn,
}

/// An alert whose condition holds now.
#[derive(Debug, Object, Serialize)]
pub struct FiringAlert {
    /// Name of the alert in `deploy/alerts.yml`, which tells what to do.
    pub name: String,
    /// Urgency of the alert.
    pub severity: AlertSeverity,
    /// Sentence that says what is wrong.
    pub summary: String,
}
