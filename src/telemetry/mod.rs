//! Metrics in Prometheus' text format: counters of this node, and backlogs read from the database. Traces of this node.

mod backlog;
mod delivery_health;
mod labels;
mod minutes;
mod pools;
mod process;
mod queues;
mod suppliers;
pub mod traces;
mod writer;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ledger_database::PgPool;
use ledger_events::{Position, ShardId};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::heartbeat::Heartbeats;
use backlog::BacklogMetrics;
pub use backlog::{Backlog, Lag, Sample};
use delivery_health::DeliveryHealth;
use labels::{LoopLabels, OutcomeLabels, ReasonLabels, RequestLabels, RouteLabels, RuleLabels};
pub use minutes::Minute;
use minutes::Minutes;
use pools::Pools;
pub use process::host;
pub use suppliers::SupplierBacklog;
use suppliers::SupplierCounters;
use traces::Traces;
use writer::WriterMetrics;

/// Minimum time between two samples of the database, however often the metrics are scraped.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Timeout of a sample. If it expires, the scrape omits the metrics of the database.
const SAMPLE_DEADLINE: Duration = Duration::from_secs(2);

/// Metrics of this node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Mutex<Registry>,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Family<RouteLabels, Histogram>,
    rate_limited: Family<RuleLabels, Counter>,
    connections: Gauge,
    connections_ended: Family<ReasonLabels, Counter>,
    standby_reads: Family<OutcomeLabels, Counter>,
    writer: WriterMetrics,
    projection_events: Counter,
    deliveries: Family<OutcomeLabels, Counter>,
    delivery_seconds: Histogram,
    deliveries_in_flight: Gauge,
    webhooks_deactivated: Counter,
    fulfilled: Counter,
    mails: Family<OutcomeLabels, Counter>,
    stock_low: Gauge,
    tree_refusals: Counter,
    master_key_usable: Gauge,
    heartbeats: Heartbeats,
    heartbeat_ages: Family<LoopLabels, Gauge<f64, AtomicU64>>,
    backlog: BacklogMetrics,
    delivery_health: DeliveryHealth,
    suppliers: SupplierCounters,
    minutes: Minutes,
    pools: Pools,
    traces: Traces,
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

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::with_traces(Traces::default())
    }
}

/// Makes a histogram of times, from half a millisecond to half a minute.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.000_5, 2.0, 17))
}

impl Default for Inner {
    fn default() -> Inner {
        Inner {
            registry: Mutex::default(),
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(seconds),
            rate_limited: Family::default(),
            connections: Gauge::default(),
            connections_ended: Family::default(),
            standby_reads: Family::default(),
            writer: WriterMetrics::new(seconds()),
            projection_events: Counter::default(),
            deliveries: Family::default(),
            delivery_seconds: seconds(),
            deliveries_in_flight: Gauge::default(),
            webhooks_deactivated: Counter::default(),
            fulfilled: Counter::default(),
            mails: Family::default(),
            stock_low: Gauge::default(),
            tree_refusals: Counter::default(),
            master_key_usable: Gauge::default(),
            heartbeats: Heartbeats::default(),
            heartbeat_ages: Family::default(),
            backlog: BacklogMetrics::default(),
            delivery_health: DeliveryHealth::default(),
            suppliers: SupplierCounters::default(),
            minutes: Minutes::default(),
            pools: Pools::default(),
            traces: Traces::default(),
            sampled: tokio::sync::Mutex::default(),
        }
    }
}

impl Inner {
    fn register_http(&self, registry: &mut Registry) {
        registry.register("http_requests", "Requests answered", self.requests.clone());
        registry.register_with_unit(
            "http_request",
            "Time to answer a request, by route",
            Unit::Seconds,
            self.request_seconds.clone(),
        );
        registry.register("rate_limited", "Requests refused with 429, by rule", self.rate_limited.clone());
        registry.register("client_connections", "Open connections of clients", self.connections.clone());
        for reason in ["idle", "slow_head", "slow_body", "slow_reader", "evicted", "refused"] {
            drop(self.connections_ended.get_or_create(&ReasonLabels { reason })); // a rate needs an initial zero
        }
        registry.register(
            "client_connections_ended",
            "Connections of clients that this node ended or refused, by reason",
            self.connections_ended.clone(),
        );
        for outcome in ["served", "behind", "unavailable", "suspended"] {
            drop(self.standby_reads.get_or_create(&OutcomeLabels { outcome }));
        }
        registry.register(
            "standby_reads",
            "Requests whose reads the standby could serve, by outcome; those that it did not serve went to the primary",
            self.standby_reads.clone(),
        );
    }

    fn register_deliveries(&self, registry: &mut Registry) {
        registry.register("projection_events", "Events projected into deliveries by this node", self.projection_events.clone());
        for outcome in ["delivered", "failed"] {
            drop(self.deliveries.get_or_create(&OutcomeLabels { outcome })); // a rate needs an initial zero
        }
        registry.register("delivery_attempts", "Delivery attempts by outcome", self.deliveries.clone());
        registry.register_with_unit(
            "delivery_attempt",
            "Time of a delivery attempt",
            Unit::Seconds,
            self.delivery_seconds.clone(),
        );
        registry.register("deliveries_in_flight", "Delivery attempts in flight", self.deliveries_in_flight.clone());
        registry.register(
            "webhooks_deactivated",
            "Webhooks that this node switched off because they only failed for too long",
            self.webhooks_deactivated.clone(),
        );
    }

    /// Registers fulfilment, signing, keys and the progress of the node's loops.
    fn register_node(&self, registry: &mut Registry) {
        registry.register("orders_taken_up", "Orders that fulfilment took up", self.fulfilled.clone());
        for outcome in ["sent", "failed", "refused"] {
            drop(self.mails.get_or_create(&OutcomeLabels { outcome })); // a rate needs an initial zero
        }
        registry.register("mail_attempts", "Attempts to send a mail by outcome; refused mails are given up", self.mails.clone());
        registry.register(
            "stock_low",
            "Denominations of products with fewer available vouchers than their threshold",
            self.stock_low.clone(),
        );
        registry.register(
            "transparency_refusals",
            "Number of times that this node refused to sign the tree because it does not continue the last signed one",
            self.tree_refusals.clone(),
        );
        registry.register(
            "master_key_usable",
            "1 while the key file holds the current master key; at 0 the node claims no deliveries and seals nothing",
            self.master_key_usable.clone(),
        );
        registry.register_with_unit(
            "loop_heartbeat_age",
            "Time since a loop of this node began its last round, zero while it waits for work",
            Unit::Seconds,
            self.heartbeat_ages.clone(),
        );
    }
}

impl Metrics {
    /// Creates the metrics of a node that exports these traces.
    pub fn with_traces(traces: Traces) -> Metrics {
        let inner = Inner { traces, ..Inner::default() };
        {
            let mut root = inner.registry.lock().unwrap_or_else(PoisonError::into_inner);
            process::register(&mut root);
            let registry = root.sub_registry_with_prefix("ledger");
            inner.register_http(registry);
            inner.writer.register(registry);
            inner.register_deliveries(registry);
            inner.register_node(registry);
            inner.backlog.register(registry);
            inner.delivery_health.register(registry);
            inner.suppliers.register(registry);
            inner.pools.register(registry);
        }
        Metrics(Arc::new(inner))
    }

    /// Returns the traces of this node. They are here because every part that counts its work also has spans.
    pub fn traces(&self) -> &Traces {
        &self.0.traces
    }

    /// Shows the connections of a pool until it is dropped.
    pub fn watch_pool(&self, pool: &PgPool) {
        self.0.pools.watch(pool);
    }

    /// Registers a writer's queue for the metric of its depth.
    pub fn watch_queue(&self, shard: ShardId, depth: impl Fn() -> usize + Send + Sync + 'static) {
        self.0.writer.queues.watch(shard, depth);
    }

    /// Shows a rule of [`Metrics::rate_limited`] as 0 until it refuses something: a rate needs a zero to rise from.
    pub fn show_rule(&self, rule: &'static str) {
        drop(self.0.rate_limited.get_or_create(&RuleLabels { rule }));
    }

    /// Returns the heartbeats of this node's loops, which are part of the metrics.
    pub fn heartbeats(&self) -> &Heartbeats {
        &self.0.heartbeats
    }

    /// Counts an answered request. `path` is the template of the path of its route; empty if no route took it.
    pub fn answered(&self, method: &'static str, route: &'static str, path: Arc<str>, status: u16, took: Duration) {
        let route = RouteLabels { method, route, path };
        self.0.request_seconds.get_or_create(&route).observe(took.as_secs_f64());
        self.0.requests.get_or_create(&RequestLabels { route, status }).inc();
        self.0.minutes.count(|minute| {
            minute.requests += 1;
            minute.failures += u64::from(status >= 500);
            minute.slow += u64::from(took > Minute::SLOW);
        });
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

    /// Counts a request whose reads the standby serves.
    pub fn read_from_standby(&self) {
        self.0.standby_reads.get_or_create(&OutcomeLabels { outcome: "served" }).inc();
    }

    /// Counts a request whose reads go to the primary instead of the standby. `reason` is `behind`, `unavailable` or
    /// `suspended`.
    pub fn read_from_primary(&self, reason: &'static str) {
        self.0.standby_reads.get_or_create(&OutcomeLabels { outcome: reason }).inc();
    }

    /// Counts a request refused with 429. `rule` is the name of a rate limit rule, or `block`.
    pub fn rate_limited(&self, rule: &'static str) {
        self.0.rate_limited.get_or_create(&RuleLabels { rule }).inc();
    }

    /// Counts a committed batch. `held` is the time from the lock on the log's head to the commit, if known.
    pub fn committed(&self, commands: usize, events: usize, held: Option<Duration>) {
        self.0.writer.committed(commands, events);
        self.0.minutes.count(|minute| {
            minute.events += events as u64;
            minute.batches += 1;
        });
        held.into_iter().for_each(|held| self.held(held));
    }

    /// Counts the event with which a move of vouchers is in one of the two logs, and the time for which it held the log's head.
    pub fn moved(&self, held: Duration) {
        self.0.writer.appended(1);
        self.0.minutes.count(|minute| minute.events += 1);
        self.held(held);
    }

    /// Counts the time from a batch's lock on the log's head to its commit.
    pub fn held(&self, held: Duration) {
        self.0.minutes.count(|minute| minute.held += u64::from(held > Minute::HELD));
        self.0.writer.held(held);
    }

    /// Sets whether this node holds the lease of a shard: other nodes hand it their commands.
    pub fn leads(&self, shard: ShardId, leads: bool) {
        self.0.writer.leads(shard, leads);
    }

    /// Counts commands that this node handed to the leader of their shard. `outcome` is `answered`, `returned` or `unknown`.
    pub fn handed_over(&self, shard: ShardId, outcome: &'static str, commands: usize) {
        self.0.writer.handed_over(shard, outcome, commands);
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
        self.0.minutes.count(|minute| {
            match outcome {
                "delivered" => minute.delivered += 1,
                _ => minute.failed += 1,
            }
            minute.took += took;
            minute.longest = minute.longest.max(took);
        });
    }

    /// Returns the counts of this node in the last hour, by minute. Minutes without a count are included.
    pub fn minutes(&self) -> Vec<Minute> {
        self.0.minutes.last()
    }

    /// Returns the number of commands that wait in the queue of each shard's writer on this node.
    pub fn queue_depths(&self) -> Vec<(ShardId, usize)> {
        self.0.writer.queues.depths()
    }

    /// Sets the result of the delivery health check, up to a position of a shard's log.
    pub fn delivery_health(&self, shard: ShardId, position: Position, expected: i64, missing: i64) {
        self.0.delivery_health.set(shard, position, expected, missing);
    }

    /// Returns the number of deliveries of a shard that are missing; `None` while this node does not know it.
    pub fn missing_deliveries(&self, shard: ShardId) -> Option<i64> {
        self.0.delivery_health.missing(shard)
    }

    /// Removes the result of the delivery health check until it is known again.
    pub fn delivery_health_is_unknown(&self, shard: ShardId) {
        self.0.delivery_health.clear(shard);
    }

    pub fn taken_up(&self, orders: usize) {
        self.0.minutes.count(|minute| minute.taken_up += orders as u64);
        self.0.fulfilled.inc_by(orders as u64);
    }

    /// Counts an attempt to send a mail. `outcome` is `sent`, `failed` or `refused`.
    pub fn mail_attempted(&self, outcome: &'static str) {
        self.0.mails.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    pub fn webhook_deactivated(&self) {
        self.0.webhooks_deactivated.inc();
    }

    /// Sets the number of denominations with low stock.
    pub fn stock_low(&self, denominations: usize) {
        self.0.stock_low.set(i64::try_from(denominations).unwrap_or(i64::MAX));
    }

    /// Renders all metrics in Prometheus' text format. `sample` queries the backlogs; it runs at most once a second. While the
    /// database does not answer, the backlogs are left out.
    pub async fn scrape(&self, sample: impl Future<Output = Result<Sample, sqlx::Error>>) -> Result<String, std::fmt::Error> {
        // One scrape at a time queries; concurrent scrapes reuse its result.
        let mut sampled = self.0.sampled.lock().await;
        if sampled.is_none_or(|at| at.elapsed() >= SAMPLE_EVERY) {
            match tokio::time::timeout(SAMPLE_DEADLINE, sample).await {
                Ok(Ok(sample)) => self.0.backlog.set(sample),
                Ok(Err(error)) => {
                    tracing::debug!(%error, "failed to sample the database for metrics");
                    self.0.backlog.clear();
                }
                Err(_) => self.0.backlog.clear(),
            }
            *sampled = Some(Instant::now());
        }
        drop(sampled);
        self.text()
    }

    /// Encodes the counters of this node and the last sample of the database.
    fn text(&self) -> Result<String, std::fmt::Error> {
        self.0.writer.queues.sample();
        self.0.heartbeat_ages.clear(); // removes loops that have ended
        for pulse in self.0.heartbeats.pulses() {
            self.0.heartbeat_ages.get_or_create(&LoopLabels { r#loop: pulse.name }).set(pulse.age.as_secs_f64());
        }
        self.0.pools.sample();
        let mut text = String::new();
        encode(&mut text, &self.0.registry.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(text)
    }
}
