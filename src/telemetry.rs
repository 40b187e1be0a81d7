//! Metrics in Prometheus' text format: counters of this node, and backlogs read from the database.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ledger_database::FromRow;
use ledger_events::{Position, ShardId};
use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::heartbeat::Heartbeats;

/// Minimum time between two samples of the database, however often the metrics are scraped.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Timeout of a sample. If it expires, the scrape omits the metrics of the database.
const SAMPLE_DEADLINE: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    /// Class of the route, never a raw path.
    route: &'static str,
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ShardLabels {
    shard: i64,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ProjectionLabels {
    projection: String,
    shard: i64,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RuleLabels {
    /// Name of a rate limit rule, or `block`.
    rule: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LoopLabels {
    r#loop: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

/// Metrics of this node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Mutex<Registry>,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Histogram,
    rate_limited: Family<RuleLabels, Counter>,
    connections: Gauge,
    connections_ended: Family<ReasonLabels, Counter>,
    commands: Counter,
    events: Counter,
    batch_commands: Histogram,
    head_lock_seconds: Histogram,
    projection_events: Counter,
    deliveries: Family<OutcomeLabels, Counter>,
    delivery_seconds: Histogram,
    deliveries_in_flight: Gauge,
    fulfilled: Counter,
    tree_refusals: Counter,
    master_key_usable: Gauge,
    queues: Mutex<Vec<(ShardId, QueueDepth)>>,
    queue_depth: Family<ShardLabels, Gauge>,
    heartbeats: Heartbeats,
    heartbeat_ages: Family<LoopLabels, Gauge<f64, AtomicU64>>,
    waiting: Waiting,
    called_for: CalledFor,
    sampled: tokio::sync::Mutex<Option<Instant>>,
}

/// Guard that counts a delivery attempt as in flight until it is dropped.
#[derive(Debug)]
pub struct InFlight(Metrics);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.0.deliveries_in_flight.dec();
    }
}

/// Backlog of a shard, over all nodes.
#[derive(Clone, Copy, Debug, PartialEq, FromRow)]
pub struct Backlog {
    pub shard_id: ShardId,
    /// Position of the log's head.
    pub head: Position,
    /// Seconds by which the last event's time is ahead of the database's clock. Normally 0.
    pub head_ahead: f64,
    /// Seconds by which the database's clock is ahead of the trusted time. A few, unless the clock has jumped.
    pub clock_ahead: f64,
    /// Number of orders that fulfilment has not queued yet, up to [`COUNTED`].
    pub unqueued: i64,
    /// Number of orders that wait for stock, up to [`COUNTED`].
    pub waiting: i64,
    /// Number of due deliveries that are not in flight: up to [`COUNTED`] first attempts plus up to [`COUNTED`] retries.
    pub due: i64,
    /// Whether a node refuses to sign the tree under the current origin.
    pub is_refused: bool,
}

/// Lag of a projection behind a shard's log.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct Lag {
    pub shard_id: ShardId,
    pub projection: String,
    /// Last position that the projection has processed.
    pub checkpoint: Position,
    /// Number of events that the projection has not processed.
    pub behind: i64,
    /// Age of the oldest unprocessed event, in seconds; 0 if there is none.
    pub oldest_seconds: f64,
}

/// Reads how many commands wait in a writer's queue.
struct QueueDepth(Box<dyn Fn() -> usize + Send + Sync>);

impl std::fmt::Debug for QueueDepth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("QueueDepth").field(&self.0()).finish()
    }
}

/// Backlogs in the database, as of the last sample.
#[derive(Debug, Default)]
struct Waiting {
    head: Family<ShardLabels, Gauge>,
    head_ahead: Family<ShardLabels, Gauge<f64, AtomicU64>>,
    clock_ahead: Family<ShardLabels, Gauge<f64, AtomicU64>>,
    position: Family<ProjectionLabels, Gauge>,
    lag_positions: Family<ProjectionLabels, Gauge>,
    lag_seconds: Family<ProjectionLabels, Gauge<f64, AtomicU64>>,
    unqueued: Family<ShardLabels, Gauge>,
    out_of_stock: Family<ShardLabels, Gauge>,
    due: Family<ShardLabels, Gauge>,
    refused: Family<ShardLabels, Gauge>,
}

/// Result of the delivery health check: the deliveries that the log requires, and those that are missing.
#[derive(Debug, Default)]
struct CalledFor {
    position: Family<ShardLabels, Gauge>,
    expected: Family<ShardLabels, Gauge>,
    missing: Family<ShardLabels, Gauge>,
}

impl CalledFor {
    fn register(&self, registry: &mut Registry) {
        let position = "Log position up to which this node has checked that every event has its deliveries";
        registry.register("delivery_health_position", position, self.position.clone());
        registry.register(
            "delivery_health_expected",
            "Deliveries that the log requires up to delivery_health_position: one per event and subscribed webhook",
            self.expected.clone(),
        );
        registry.register(
            "delivery_health_missing",
            "Required deliveries that are missing, or in a state that is neither final nor scheduled",
            self.missing.clone(),
        );
    }
}

impl Waiting {
    fn register(&self, registry: &mut Registry) {
        registry.register("log_head_position", "Position of the log's last event", self.head.clone());
        registry.register_with_unit(
            "log_head_ahead",
            "Time by which the log's last event is ahead of the database's clock",
            Unit::Seconds,
            self.head_ahead.clone(),
        );
        registry.register_with_unit(
            "clock_ahead",
            "Time by which the database's clock is ahead of the trusted time by which vouchers expire",
            Unit::Seconds,
            self.clock_ahead.clone(),
        );
        registry.register("projection_position", "Checkpoint of a projection, shared by all nodes", self.position.clone());
        registry.register("projection_lag_positions", "Events that are not projected yet", self.lag_positions.clone());
        registry.register_with_unit(
            "projection_lag",
            "Age of the oldest event that is not projected yet",
            Unit::Seconds,
            self.lag_seconds.clone(),
        );
        registry.register("orders_unqueued", "Orders that fulfilment has not taken up, at most 100000", self.unqueued.clone());
        registry.register("orders_out_of_stock", "Orders that wait for stock, at most 100000", self.out_of_stock.clone());
        registry.register("deliveries_due", "Deliveries that are due and not in flight, at most 200000", self.due.clone());
        registry.register(
            "transparency_refused",
            "1 while a node refuses to sign the tree, which stops all nodes",
            self.refused.clone(),
        );
    }

    fn set(&self, backlogs: &[Backlog], lags: Vec<Lag>) {
        for Lag { shard_id, projection, checkpoint, behind, oldest_seconds } in lags {
            let projection = ProjectionLabels { projection, shard: shard_id.into() };
            self.position.get_or_create(&projection).set(checkpoint);
            self.lag_positions.get_or_create(&projection).set(behind);
            self.lag_seconds.get_or_create(&projection).set(oldest_seconds);
        }
        for backlog in backlogs {
            let shard = ShardLabels { shard: backlog.shard_id.into() };
            self.head.get_or_create(&shard).set(backlog.head);
            self.head_ahead.get_or_create(&shard).set(backlog.head_ahead);
            self.clock_ahead.get_or_create(&shard).set(backlog.clock_ahead);
            self.unqueued.get_or_create(&shard).set(backlog.unqueued);
            self.out_of_stock.get_or_create(&shard).set(backlog.waiting);
            self.due.get_or_create(&shard).set(backlog.due);
            self.refused.get_or_create(&shard).set(backlog.is_refused.into());
        }
    }

    /// Removes all values: while they are unknown, the scrape omits them instead of showing old ones.
    fn clear(&self) {
        self.head.clear();
        self.head_ahead.clear();
        self.clock_ahead.clear();
        self.position.clear();
        self.lag_positions.clear();
        self.lag_seconds.clear();
        self.unqueued.clear();
        self.out_of_stock.clear();
        self.due.clear();
        self.refused.clear();
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        let seconds = || Histogram::new(exponential_buckets(0.000_5, 2.0, 17));
        let inner = Inner {
            registry: Mutex::new(Registry::with_prefix("ledger")),
            requests: Family::default(),
            request_seconds: seconds(),
            rate_limited: Family::default(),
            connections: Gauge::default(),
            connections_ended: Family::default(),
            commands: Counter::default(),
            events: Counter::default(),
            batch_commands: Histogram::new(exponential_buckets(1.0, 2.0, 10)),
            head_lock_seconds: seconds(),
            projection_events: Counter::default(),
            deliveries: Family::default(),
            delivery_seconds: seconds(),
            deliveries_in_flight: Gauge::default(),
            fulfilled: Counter::default(),
            tree_refusals: Counter::default(),
            master_key_usable: Gauge::default(),
            queues: Mutex::default(),
            queue_depth: Family::default(),
            heartbeats: Heartbeats::default(),
            heartbeat_ages: Family::default(),
            waiting: Waiting::default(),
            called_for: CalledFor::default(),
            sampled: tokio::sync::Mutex::default(),
        };
        {
            let mut registry = inner.registry.lock().unwrap_or_else(PoisonError::into_inner);
            registry.register("http_requests", "Requests answered", inner.requests.clone());
            registry.register_with_unit("http_request", "Time to answer a request", Unit::Seconds, inner.request_seconds.clone());
            registry.register("rate_limited", "Requests refused with 429, by rule", inner.rate_limited.clone());
            registry.register("client_connections", "Open connections of clients", inner.connections.clone());
            for reason in ["idle", "slow_head", "slow_body", "slow_reader", "evicted", "refused"] {
                drop(inner.connections_ended.get_or_create(&ReasonLabels { reason })); // a rate needs an initial zero
            }
            registry.register(
                "client_connections_ended",
                "Connections of clients that this node ended or refused, by reason",
                inner.connections_ended.clone(),
            );
            registry.register("commands", "Commands in committed batches", inner.commands.clone());
            registry.register("events", "Events appended", inner.events.clone());
            registry.register("batch_commands", "Commands in a committed batch", inner.batch_commands.clone());
            registry.register_with_unit(
                "head_lock",
                "Time that a committed batch held the log's head",
                Unit::Seconds,
                inner.head_lock_seconds.clone(),
            );
            registry.register(
                "projection_events",
                "Events projected into deliveries by this node",
                inner.projection_events.clone(),
            );
            for outcome in ["delivered", "failed"] {
                drop(inner.deliveries.get_or_create(&OutcomeLabels { outcome })); // a rate needs an initial zero
            }
            registry.register("delivery_attempts", "Delivery attempts by outcome", inner.deliveries.clone());
            registry.register_with_unit(
                "delivery_attempt",
                "Time of a delivery attempt",
                Unit::Seconds,
                inner.delivery_seconds.clone(),
            );
            registry.register("deliveries_in_flight", "Delivery attempts in flight", inner.deliveries_in_flight.clone());
            registry.register("orders_taken_up", "Orders that fulfilment took up", inner.fulfilled.clone());
            registry.register(
                "transparency_refusals",
                "Number of times that this node refused to sign the tree because it does not continue the last signed one",
                inner.tree_refusals.clone(),
            );
            registry.register(
                "master_key_usable",
                "1 while the key file holds the current master key; at 0 the node claims no deliveries and seals nothing",
                inner.master_key_usable.clone(),
            );
            registry.register("writer_queue_depth", "Commands waiting for this node's writer", inner.queue_depth.clone());
            registry.register_with_unit(
                "loop_heartbeat_age",
                "Time since a loop of this node began its last round, zero while it waits for work",
                Unit::Seconds,
                inner.heartbeat_ages.clone(),
            );
            inner.waiting.register(&mut registry);
            inner.called_for.register(&mut registry);
        }
        Metrics(Arc::new(inner))
    }
}

impl Metrics {
    /// Registers a writer's queue for the metric of its depth.
    pub fn watch_queue(&self, shard: ShardId, depth: impl Fn() -> usize + Send + Sync + 'static) {
        self.0.queues.lock().unwrap_or_else(PoisonError::into_inner).push((shard, QueueDepth(Box::new(depth))));
    }

    /// Shows a rule of [`Metrics::rate_limited`] as 0 until it refuses something: a rate needs a zero to rise from.
    pub fn show_rule(&self, rule: &'static str) {
        drop(self.0.rate_limited.get_or_create(&RuleLabels { rule }));
    }

    /// Returns the heartbeats of this node's loops, which are part of the metrics.
    pub fn heartbeats(&self) -> &Heartbeats {
        &self.0.heartbeats
    }

    pub fn answered(&self, method: &str, route: &'static str, status: u16, took: Duration) {
        self.0.requests.get_or_create(&RequestLabels { method: method.to_owned(), route, status }).inc();
        self.0.request_seconds.observe(took.as_secs_f64());
    }

    /// Counts an admitted connection, until [`Metrics::connection_closed`].
    pub fn connection_opened(&self) {
        self.0.connections.inc();
    }

    pub fn connection_closed(&self) {
        self.0.connections.dec();
    }

    /// Counts a connection that the node ended or refused. `reason` is `idle`, `slow_head`, `slow_body`, `slow_reader`,
    /// `evicted` or `refused`.
    pub fn connection_ended(&self, reason: &'static str) {
        self.0.connections_ended.get_or_create(&ReasonLabels { reason }).inc();
    }

    /// Counts a request refused with 429. `rule` is the name of a rate limit rule, or `block`.
    pub fn rate_limited(&self, rule: &'static str) {
        self.0.rate_limited.get_or_create(&RuleLabels { rule }).inc();
    }

    /// Counts a committed batch. `held` is the time from the lock on the log's head to the commit, if known.
    pub fn committed(&self, commands: usize, events: usize, held: Option<Duration>) {
        self.0.commands.inc_by(commands as u64);
        self.0.events.inc_by(events as u64);
        self.0.batch_commands.observe(commands as f64);
        if let Some(held) = held {
            self.0.head_lock_seconds.observe(held.as_secs_f64());
        }
    }

    pub fn projected(&self, events: usize) {
        self.0.projection_events.inc_by(events as u64);
    }

    pub fn tree_refused(&self) {
        self.0.tree_refusals.inc();
    }

    pub fn master_key_is_usable(&self, is_usable: bool) {
        self.0.master_key_usable.set(is_usable.into());
    }

    /// Counts an attempt as in flight until the returned guard is dropped, however the attempt ends.
    pub fn attempt_started(&self) -> InFlight {
        self.0.deliveries_in_flight.inc();
        InFlight(self.clone())
    }

    pub fn attempt_ended(&self, outcome: &'static str, took: Duration) {
        self.0.deliveries.get_or_create(&OutcomeLabels { outcome }).inc();
        self.0.delivery_seconds.observe(took.as_secs_f64());
    }

    /// Sets the result of the delivery health check, up to a position of a shard's log.
    pub fn called_for(&self, shard: ShardId, position: Position, expected: i64, missing: i64) {
        let shard = ShardLabels { shard: shard.into() };
        self.0.called_for.position.get_or_create(&shard).set(position);
        self.0.called_for.expected.get_or_create(&shard).set(expected);
        self.0.called_for.missing.get_or_create(&shard).set(missing);
    }

    /// Removes the result of the delivery health check until it is known again.
    pub fn called_for_is_unknown(&self, shard: ShardId) {
        let shard = ShardLabels { shard: shard.into() };
        self.0.called_for.position.remove(&shard);
        self.0.called_for.expected.remove(&shard);
        self.0.called_for.missing.remove(&shard);
    }

    pub fn taken_up(&self, orders: usize) {
        self.0.fulfilled.inc_by(orders as u64);
    }

    /// Renders all metrics in Prometheus' text format. `sample` queries the backlogs; it runs at most once a second. While the
    /// database does not answer, the backlogs are left out.
    pub async fn scrape(
        &self,
        sample: impl Future<Output = Result<(Vec<Backlog>, Vec<Lag>), sqlx::Error>>,
    ) -> Result<String, std::fmt::Error> {
        // One scrape at a time queries; concurrent scrapes reuse its result.
        let mut sampled = self.0.sampled.lock().await;
        if sampled.is_none_or(|at| at.elapsed() >= SAMPLE_EVERY) {
            match tokio::time::timeout(SAMPLE_DEADLINE, sample).await {
                Ok(Ok((backlogs, lags))) => self.0.waiting.set(&backlogs, lags),
                Ok(Err(error)) => {
                    tracing::debug!(%error, "failed to sample the database for metrics");
                    self.0.waiting.clear();
                }
                Err(_) => self.0.waiting.clear(),
            }
            *sampled = Some(Instant::now());
        }
        drop(sampled);
        self.text()
    }

    /// Encodes the counters of this node and the last sample of the database.
    fn text(&self) -> Result<String, std::fmt::Error> {
        for (shard, depth) in self.0.queues.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let gauge = self.0.queue_depth.get_or_create(&ShardLabels { shard: (*shard).into() });
            gauge.set(i64::try_from(depth.0()).unwrap_or(i64::MAX));
        }
        self.0.heartbeat_ages.clear(); // removes loops that have ended
        for pulse in self.0.heartbeats.pulses() {
            self.0.heartbeat_ages.get_or_create(&LoopLabels { r#loop: pulse.name }).set(pulse.age.as_secs_f64());
        }
        let mut text = String::new();
        encode(&mut text, &self.0.registry.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(text)
    }
}
