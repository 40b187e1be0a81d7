use ledger_events::ProductId;
use ledger_events::catalogue::{Product, ProductSupplier, ProductSupplierSet};

use crate::ledger::commands::prelude::*;

/// Sets the supplier from whom vouchers are bought when the stock has none. Setting the same supplier again appends no event.
#[derive(Clone, Debug)]
pub struct SetProductSupplier {
    pub product_id: ProductId,
    /// `None` ends purchases.
    pub supplier: Option<ProductSupplier>,
}

impl Handler for SetProductSupplier {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.products.id(self.product_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        if batch.streams.products.find(self.product_id)?.details.supplier != self.supplier {
            batch.append::<Product>(self.product_id, ProductSupplierSet { supplier: self.supplier.clone() }, context);
        }
        Ok(CommandResult::Product(batch.streams.products.find(self.product_id)?.clone()))
    }
}
