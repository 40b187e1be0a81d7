use ledger_events::catalogue::{Product, StockThresholdSet};
use ledger_events::{Money, ProductId};

use crate::ledger::commands::prelude::*;

/// Sets the number of available vouchers below which the stock of a denomination is low. Setting the same number again
/// appends no event.
#[derive(Clone, Debug)]
pub struct SetStockThreshold {
    pub product_id: ProductId,
    pub denomination: Money,
    /// `None` removes the threshold.
    pub least: Option<i32>,
}

impl Handler for SetStockThreshold {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.products.id(self.product_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let details = &batch.streams.products.find(self.product_id)?.details;
        // The threshold of a denomination that is no longer sold can be removed.
        if self.least.is_some() && !details.denominations.include(self.denomination) {
            return Err(Rejection::InvalidDenomination.into());
        }
        if details.stock_threshold(self.denomination) != self.least {
            let event = StockThresholdSet { denomination: self.denomination, least: self.least };
            batch.append::<Product>(self.product_id, event, context);
        }
        Ok(CommandResult::Product(batch.streams.products.find(self.product_id)?.clone()))
    }
}
