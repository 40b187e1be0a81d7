//! The port: what the ledger asks of a supplier.

use async_trait::async_trait;
use ledger_events::{Currency, Money};
use uuid::Uuid;

use super::answer::{Answer, Unknown};
use super::settings::SupplierSettings;

/// Vouchers that a purchase asks for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Idempotency key. The supplier sells at most once under it.
    pub key: Uuid,
    pub sku: String,
    pub denomination: Money,
    pub currency: Currency,
    pub quantity: i32,
}

/// A supplier of vouchers. Any number of nodes call it at once, each with the key that the log names.
#[async_trait]
pub trait Supplier: Send + Sync + std::fmt::Debug {
    /// Returns the name, the budget and the limits.
    fn settings(&self) -> &SupplierSettings;

    /// Orders vouchers. A repeated order under the same key must not buy again.
    ///
    /// # Errors
    /// [`Unknown`] unless the supplier has said what became of the order.
    async fn order(&self, wanted: &Wanted) -> Result<Answer, Unknown>;

    /// Asks what became of an order. Returns `None` if the supplier does not know the key.
    ///
    /// # Errors
    /// [`Unknown`] unless the supplier has said so.
    async fn ask(&self, wanted: &Wanted) -> Result<Option<Answer>, Unknown>;
}
