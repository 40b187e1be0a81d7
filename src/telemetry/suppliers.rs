//! Purchases from suppliers: counters and budgets of this node, and the state of each supplier in the database.

use std::sync::atomic::AtomicU64;

use ledger_database::FromRow;
use ledger_events::{Currency, ShardId};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;

use super::Metrics;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SupplierLabels {
    supplier: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CallLabels {
    supplier: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BudgetLabels {
    supplier: String,
    currency: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SpentLabels {
    supplier: String,
    currency: String,
    shard: i64,
}

/// State of a supplier, over all nodes and shards.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct SupplierBacklog {
    pub supplier: String,
    /// Number of open purchases.
    pub open: i64,
    /// Age of the oldest open purchase, in seconds; 0 if there is none.
    pub oldest_seconds: f64,
    /// Number of calls that have failed in a row.
    pub failures: i32,
    /// Whether the circuit breaker is open.
    pub is_broken: bool,
}

impl SupplierBacklog {
    /// Number of failures in a row from which a supplier counts as failing. It is that of the circuit breaker.
    pub const FAILING: i32 = 5;
    /// Age of an open purchase, in seconds, from which it is overdue.
    pub const OVERDUE_SECONDS: f64 = 3_600.0;

    /// Returns whether the last calls have all failed while a purchase is open. Without one, there are no calls that could succeed.
    pub fn is_failing(&self) -> bool {
        self.failures >= Self::FAILING && self.open > 0
    }

    /// Returns whether a purchase has been open for too long.
    pub fn is_overdue(&self) -> bool {
        self.oldest_seconds > Self::OVERDUE_SECONDS
    }
}

/// States of the suppliers in the database, as of the last sample.
#[derive(Debug, Default)]
pub(super) struct SupplierGauges {
    open: Family<SupplierLabels, Gauge>,
    oldest: Family<SupplierLabels, Gauge<f64, AtomicU64>>,
    failures: Family<SupplierLabels, Gauge>,
    breakers: Family<SupplierLabels, Gauge>,
}

impl SupplierGauges {
    pub fn register(&self, registry: &mut Registry) {
        registry.register("purchases_open", "Purchases that a supplier has not delivered or refused", self.open.clone());
        registry.register_with_unit("purchases_oldest", "Age of the oldest open purchase", Unit::Seconds, self.oldest.clone());
        registry.register("supplier_failures", "Calls of a supplier that have failed in a row", self.failures.clone());
        registry.register(
            "supplier_breaker_open",
            "1 while the circuit breaker of a supplier is open, so that nobody calls it",
            self.breakers.clone(),
        );
    }

    pub fn set(&self, suppliers: Vec<SupplierBacklog>) {
        for SupplierBacklog { supplier, open, oldest_seconds, failures, is_broken } in suppliers {
            let supplier = SupplierLabels { supplier };
            self.open.get_or_create(&supplier).set(open);
            self.oldest.get_or_create(&supplier).set(oldest_seconds);
            self.failures.get_or_create(&supplier).set(failures.into());
            self.breakers.get_or_create(&supplier).set(is_broken.into());
        }
    }

    pub fn clear(&self) {
        self.open.clear();
        self.oldest.clear();
        self.failures.clear();
        self.breakers.clear();
    }
}

/// Counters and budgets of the suppliers that this node calls.
#[derive(Debug, Default)]
pub(super) struct SupplierCounters {
    calls: Family<CallLabels, Counter>,
    unusable: Family<SupplierLabels, Counter>,
    budgets: Family<BudgetLabels, Gauge<f64, AtomicU64>>,
    spent: Family<SpentLabels, Gauge<f64, AtomicU64>>,
    exhausted: Family<BudgetLabels, Gauge>,
}

impl SupplierCounters {
    pub fn register(&self, registry: &mut Registry) {
        registry.register("supplier_calls", "Calls of a supplier about a purchase, by outcome", self.calls.clone());
        registry.register(
            "purchases_unusable",
            "Purchases that were delivered without a voucher that an order can get",
            self.unusable.clone(),
        );
        registry.register("supplier_daily_budget", "Most money that a shard may spend on a day (UTC)", self.budgets.clone());
        registry.register("supplier_spent", "Money that counts against the budget of the day (UTC)", self.spent.clone());
        registry.register(
            "supplier_budget_exhausted",
            "1 after a voucher did not fit into the rest of the budget, until the end of the day (UTC)",
            self.exhausted.clone(),
        );
    }
}

fn amount(amount: Decimal) -> f64 {
    amount.to_f64().unwrap_or(f64::NAN)
}

fn budget_of(supplier: &str, currency: Currency) -> BudgetLabels {
    BudgetLabels { supplier: supplier.to_owned(), currency: currency.as_str().to_owned() }
}

/// Suppliers that this node calls.
impl Metrics {
    /// Shows the counters of a supplier as 0 until something happens: a rate needs a zero to rise from.
    pub fn show_supplier(&self, supplier: &str) {
        let counters = &self.0.suppliers;
        for outcome in ["answered", "failed"] {
            drop(counters.calls.get_or_create(&CallLabels { supplier: supplier.to_owned(), outcome }));
        }
        drop(counters.unusable.get_or_create(&SupplierLabels { supplier: supplier.to_owned() }));
    }

    /// Counts a call of a supplier about a purchase. `outcome` is `answered` or `failed`.
    pub fn supplier_called(&self, supplier: &str, outcome: &'static str) {
        self.0.suppliers.calls.get_or_create(&CallLabels { supplier: supplier.to_owned(), outcome }).inc();
    }

    /// Counts a purchase that was delivered without a usable voucher.
    pub fn purchase_unusable(&self, supplier: &str) {
        self.0.suppliers.unusable.get_or_create(&SupplierLabels { supplier: supplier.to_owned() }).inc();
    }

    /// Sets the budget of a day, and what a shard has spent of it so far.
    pub fn supplier_spent(&self, supplier: &str, currency: Currency, shard: ShardId, (spent, budget): (Decimal, Decimal)) {
        let BudgetLabels { supplier, currency } = budget_of(supplier, currency);
        let counters = &self.0.suppliers;
        let budgets = BudgetLabels { supplier: supplier.clone(), currency: currency.clone() };
        counters.budgets.get_or_create(&budgets).set(amount(budget));
        counters.spent.get_or_create(&SpentLabels { supplier, currency, shard: shard.into() }).set(amount(spent));
    }

    /// Sets whether the budget of the day is too small for a voucher that an order lacks.
    pub fn supplier_exhausted(&self, supplier: &str, currency: Currency, is_exhausted: bool) {
        self.0.suppliers.exhausted.get_or_create(&budget_of(supplier, currency)).set(is_exhausted.into());
    }
}
