//! Metrics in Prometheus' text form, and the log's set-up.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use chrono::{DateTime, Utc};
use ledger_events::{Position, ShardId};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text::encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::sync::Mutex;
use tokio::sync::mpsc;

use crate::ledger::command::Submission;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    /// The route's class, never a raw path.
    route: &'static str,
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ShardLabels {
    shard: i64,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

/// What this node counts. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Mutex<Registry>,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Histogram,
    commands: Counter,
    events: Counter,
    batch_commands: Histogram,
    head_lock_seconds: Histogram,
    projection_position: Family<ShardLabels, Gauge>,
    projection_events: Counter,
    projection_delay_seconds: Gauge<f64, AtomicU64>,
    deliveries: Family<OutcomeLabels, Counter>,
    delivery_seconds: Histogram,
    deliveries_in_flight: Gauge,
    fulfilled: Counter,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let seconds = || Histogram::new(exponential_buckets(0.000_5, 2.0, 17));
        let inner = Inner {
            registry: Mutex::new(Registry::with_prefix("ledger")),
            requests: Family::default(),
            request_seconds: seconds(),
            commands: Counter::default(),
            events: Counter::default(),
            batch_commands: Histogram::new(exponential_buckets(1.0, 2.0, 10)),
            head_lock_seconds: seconds(),
            projection_position: Family::default(),
            projection_events: Counter::default(),
            projection_delay_seconds: Gauge::default(),
            deliveries: Family::default(),
            delivery_seconds: seconds(),
            deliveries_in_flight: Gauge::default(),
            fulfilled: Counter::default(),
        };
        {
            let mut registry = inner.registry.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            registry.register("http_requests", "Requests answered", inner.requests.clone());
            registry.register_with_unit("http_request", "Time to answer a request", Unit::Seconds, inner.request_seconds.clone());
            registry.register("commands", "Commands in committed batches", inner.commands.clone());
            registry.register("events", "Events appended", inner.events.clone());
            registry.register("batch_commands", "Commands in a committed batch", inner.batch_commands.clone());
            registry.register_with_unit(
                "head_lock",
                "Time from asking for the log's head to the commit",
                Unit::Seconds,
                inner.head_lock_seconds.clone(),
            );
            registry.register(
                "projection_position",
                "Position up to which deliveries are projected by this node",
                inner.projection_position.clone(),
            );
            registry.register(
                "projection_events",
                "Events projected into deliveries by this node",
                inner.projection_events.clone(),
            );
            registry.register_with_unit(
                "projection_delay",
                "Age of the newest projected event when it was projected",
                Unit::Seconds,
                inner.projection_delay_seconds.clone(),
            );
            registry.register("delivery_attempts", "Delivery attempts by outcome", inner.deliveries.clone());
            registry.register_with_unit(
                "delivery_attempt",
                "Time of a delivery attempt",
                Unit::Seconds,
                inner.delivery_seconds.clone(),
            );
            registry.register("deliveries_in_flight", "Delivery attempts in flight", inner.deliveries_in_flight.clone());
            registry.register("orders_taken_up", "Orders that fulfilment took up", inner.fulfilled.clone());
        }
        Metrics(Arc::new(inner))
    }
}

#[derive(Debug)]
struct QueueDepth {
    shard: ShardId,
    sender: mpsc::WeakSender<Submission>,
}

impl Collector for QueueDepth {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let depth = self.sender.upgrade().map_or(0, |s| s.max_capacity() - s.capacity());
        let gauge = ConstGauge::new(i64::try_from(depth).unwrap_or(i64::MAX));
        let name = format!("writer_queue_depth_shard_{}", self.shard);
        let encoder = encoder.encode_descriptor(&name, "Commands waiting for the writer", None, gauge.metric_type())?;
        gauge.encode(encoder)
    }
}

impl Metrics {
    pub fn watch_queue(&self, shard: ShardId, sender: mpsc::WeakSender<Submission>) {
        self.0
            .registry
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .register_collector(Box::new(QueueDepth { shard, sender }));
    }

    pub fn answered(&self, method: &str, route: &'static str, status: u16, took: Duration) {
        self.0.requests.get_or_create(&RequestLabels { method: method.to_owned(), route, status }).inc();
        self.0.request_seconds.observe(took.as_secs_f64());
    }

    pub fn committed(&self, commands: usize, events: usize, held: Duration) {
        self.0.commands.inc_by(commands as u64);
        self.0.events.inc_by(events as u64);
        self.0.batch_commands.observe(commands as f64);
        self.0.head_lock_seconds.observe(held.as_secs_f64());
    }

    /// `newest` is the last event's time and how long the step took.
    pub fn projected(&self, shard: ShardId, events: usize, to: Position, newest: Option<(DateTime<Utc>, Duration)>) {
        self.0.projection_position.get_or_create(&ShardLabels { shard: shard.into() }).set(to);
        self.0.projection_events.inc_by(events as u64);
        let delay = newest.map_or(0.0, |(at, _)| (Utc::now() - at).num_milliseconds().max(0) as f64 / 1000.0);
        self.0.projection_delay_seconds.set(delay);
    }

    pub fn attempt_started(&self) {
        self.0.deliveries_in_flight.inc();
    }

    pub fn attempt_ended(&self, outcome: &'static str, took: Duration) {
        self.0.deliveries_in_flight.dec();
        self.0.deliveries.get_or_create(&OutcomeLabels { outcome }).inc();
        self.0.delivery_seconds.observe(took.as_secs_f64());
    }

    pub fn taken_up(&self, orders: usize) {
        self.0.fulfilled.inc_by(orders as u64);
    }

    /// Everything, as Prometheus reads it.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.0.registry.lock().unwrap_or_else(std::sync::PoisonError::into_inner))?;
        Ok(text)
    }
}
