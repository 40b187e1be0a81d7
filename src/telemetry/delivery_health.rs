//! Gauges of the delivery health check.

use ledger_events::{Position, ShardId};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::labels::ShardLabels;

/// Result of the delivery health check: the deliveries that the log requires, and those that are missing.
#[derive(Debug, Default)]
pub(super) struct DeliveryHealth {
    position: Family<ShardLabels, Gauge>,
    expected: Family<ShardLabels, Gauge>,
    missing: Family<ShardLabels, Gauge>,
}

impl DeliveryHealth {
    pub fn register(&self, registry: &mut Registry) {
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

    /// Sets the result up to a position of a shard's log.
    pub fn set(&self, shard: ShardId, position: Position, expected: i64, missing: i64) {
        let shard = ShardLabels { shard: shard.into() };
        self.position.get_or_create(&shard).set(position);
        self.expected.get_or_create(&shard).set(expected);
        self.missing.get_or_create(&shard).set(missing);
    }

    /// Returns the number of missing deliveries of a shard; `None` while it is unknown.
    pub fn missing(&self, shard: ShardId) -> Option<i64> {
        self.missing.get(&ShardLabels { shard: shard.into() }).map(|missing| missing.get())
    }

    /// Removes the result of a shard until it is known again.
    pub fn clear(&self, shard: ShardId) {
        let shard = ShardLabels { shard: shard.into() };
        self.position.remove(&shard);
        self.expected.remove(&shard);
        self.missing.remove(&shard);
    }
}
