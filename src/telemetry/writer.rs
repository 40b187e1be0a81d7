//! Metrics of this node's writers.

use std::time::Duration;

use ledger_events::ShardId;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::labels::ShardLabels;
use super::queues::Queues;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct HandoverLabels {
    shard: i64,
    outcome: &'static str,
}

#[derive(Debug)]
pub(super) struct WriterMetrics {
    commands: Counter,
    events: Counter,
    batch_commands: Histogram,
    head_lock_seconds: Histogram,
    leads: Family<ShardLabels, Gauge>,
    handed_over: Family<HandoverLabels, Counter>,
    pub queues: Queues,
}

impl WriterMetrics {
    /// Creates the metrics, with a histogram for the time that batches hold the log's head.
    pub fn new(head_lock_seconds: Histogram) -> WriterMetrics {
        WriterMetrics {
            commands: Counter::default(),
            events: Counter::default(),
            batch_commands: Histogram::new(exponential_buckets(1.0, 2.0, 10)),
            head_lock_seconds,
            leads: Family::default(),
            handed_over: Family::default(),
            queues: Queues::default(),
        }
    }

    pub fn register(&self, registry: &mut Registry) {
        registry.register("commands", "Commands in committed batches", self.commands.clone());
        registry.register("events", "Events appended", self.events.clone());
        registry.register("batch_commands", "Commands in a committed batch", self.batch_commands.clone());
        registry.register_with_unit(
            "head_lock",
            "Time that a committed batch held the log's head",
            Unit::Seconds,
            self.head_lock_seconds.clone(),
        );
        registry.register("leads", "1 while this node holds the lease of a shard", self.leads.clone());
        registry.register(
            "handed_over",
            "Commands handed to the leader of their shard, by outcome; this node writes the returned ones itself",
            self.handed_over.clone(),
        );
        self.queues.register(registry);
    }

    pub fn committed(&self, commands: usize, events: usize) {
        self.commands.inc_by(commands as u64);
        self.appended(events);
        self.batch_commands.observe(commands as f64);
    }

    pub fn appended(&self, events: usize) {
        self.events.inc_by(events as u64);
    }

    pub fn held(&self, held: Duration) {
        self.head_lock_seconds.observe(held.as_secs_f64());
    }

    pub fn leads(&self, shard: ShardId, leads: bool) {
        self.leads.get_or_create(&ShardLabels { shard: shard.into() }).set(leads.into());
        for outcome in ["answered", "returned", "unknown"] {
            let labels = HandoverLabels { shard: shard.into(), outcome };
            drop(self.handed_over.get_or_create(&labels)); // a rate needs an initial zero
        }
    }

    pub fn handed_over(&self, shard: ShardId, outcome: &'static str, commands: usize) {
        self.handed_over.get_or_create(&HandoverLabels { shard: shard.into(), outcome }).inc_by(commands as u64);
    }
}
