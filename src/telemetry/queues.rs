//! Depth of the queues of this node's writers.

use std::sync::{Mutex, PoisonError};

use ledger_events::ShardId;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::labels::ShardLabels;

/// Reads how many commands wait in a writer's queue.
struct QueueDepth(Box<dyn Fn() -> usize + Send + Sync>);

impl std::fmt::Debug for QueueDepth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("QueueDepth").field(&self.0()).finish()
    }
}

/// Gauges of the writers' queues. They are set when somebody asks for the metrics, so a queue pays nothing for them.
#[derive(Debug, Default)]
pub(super) struct Queues {
    watched: Mutex<Vec<(ShardId, QueueDepth)>>,
    depth: Family<ShardLabels, Gauge>,
}

impl Queues {
    pub fn register(&self, registry: &mut Registry) {
        registry.register("writer_queue_depth", "Commands waiting for this node's writer", self.depth.clone());
    }

    pub fn watch(&self, shard: ShardId, depth: impl Fn() -> usize + Send + Sync + 'static) {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).push((shard, QueueDepth(Box::new(depth))));
    }

    pub fn depths(&self) -> Vec<(ShardId, usize)> {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.iter().map(|(shard, depth)| (*shard, depth.0())).collect()
    }

    /// Sets the gauges.
    pub fn sample(&self) {
        for (shard, depth) in self.depths() {
            let gauge = self.depth.get_or_create(&ShardLabels { shard: shard.into() });
            gauge.set(i64::try_from(depth).unwrap_or(i64::MAX));
        }
    }
}
