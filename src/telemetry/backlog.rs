//! Backlogs of all nodes: gauges that are set from a sample of the database.

use std::sync::atomic::AtomicU64;

use ledger_database::FromRow;
use ledger_events::{Position, ShardId};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::labels::ShardLabels;
use super::suppliers::{SupplierBacklog, SupplierGauges};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ProjectionLabels {
    projection: String,
    shard: i64,
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
    /// Number of orders that fulfilment has not queued yet, at most 100,000.
    pub unqueued: i64,
    /// Number of orders that wait for stock, at most 100,000.
    pub waiting: i64,
    /// Number of due deliveries that are not in flight: at most 100,000 first attempts plus at most 100,000 retries.
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

/// Sample of the database.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub backlogs: Vec<Backlog>,
    pub lags: Vec<Lag>,
    pub suppliers: Vec<SupplierBacklog>,
}

/// Backlogs in the database, as of the last sample.
#[derive(Debug, Default)]
pub(super) struct BacklogMetrics {
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
    suppliers: SupplierGauges,
}

impl BacklogMetrics {
    pub fn register(&self, registry: &mut Registry) {
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
        self.suppliers.register(registry);
    }

    pub fn set(&self, sample: Sample) {
        let Sample { backlogs, lags, suppliers } = sample;
        self.suppliers.set(suppliers);
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
    pub fn clear(&self) {
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
        self.suppliers.clear();
    }
}
