//! Connections of this node's pools.

use std::sync::{Mutex, PoisonError};

use ledger_database::{PgPool, PoolWatch};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PoolLabels {
    /// `application_name` of the pool's connections.
    pool: String,
}

/// Gauges of the pools. They are set when somebody asks for the metrics, so a pool pays nothing for them.
#[derive(Debug, Default)]
pub(super) struct Pools {
    watched: Mutex<Vec<PoolWatch>>,
    size: Family<PoolLabels, Gauge>,
    in_use: Family<PoolLabels, Gauge>,
    idle: Family<PoolLabels, Gauge>,
}

impl Pools {
    pub fn register(&self, registry: &mut Registry) {
        registry.register("pool_size", "Maximum number of database connections of a pool", self.size.clone());
        registry.register("pool_in_use", "Database connections of a pool that are in use", self.in_use.clone());
        registry.register("pool_idle", "Open database connections of a pool that wait for work", self.idle.clone());
    }

    pub fn watch(&self, pool: &PgPool) {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).push(pool.watch());
    }

    /// Sets the gauges, to the sums of those pools that share a name. Pools that are gone are shown no more.
    pub fn sample(&self) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        for family in [&self.size, &self.in_use, &self.idle] {
            family.clear();
        }
        watched.retain(|pool| {
            let Some(usage) = pool.usage() else { return false };
            let labels = PoolLabels { pool: usage.name };
            let counts = [(&self.size, usage.size), (&self.in_use, usage.in_use), (&self.idle, usage.idle)];
            for (family, count) in counts {
                family.get_or_create(&labels).inc_by(i64::try_from(count).unwrap_or(i64::MAX));
            }
            true
        });
    }
}
