use std::collections::BTreeSet;

use ledger_events::ProductId;
use ledger_events::catalogue::{Product, VouchersExpired};

use crate::ledger::command_result::StockVoided;
use crate::ledger::commands::prelude::*;

/// Records that vouchers have expired before an order got them. Names them by their references. The caller has found them in
/// the stock, and has compared their last day with the trusted time. Vouchers that are not free any more are left out.
#[derive(Clone, Debug)]
pub struct ExpireVouchers {
    pub product_id: ProductId,
    pub references: Vec<String>,
}

impl Handler for ExpireVouchers {
    /// No other command of the batch may have the vouchers in hand.
    const IS_SOLITARY: bool = true;

    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.products.id(self.product_id);
        reads.named_vouchers.push(&self.references);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        batch.streams.products.find(self.product_id)?;
        let (mut vouchers, mut denominations) = (vec![], BTreeSet::new());
        for reference in self.references.iter().collect::<BTreeSet<_>>() {
            if let Ok(voucher) = batch.stock.named_of(self.product_id, reference) {
                batch.pending.expired.push(voucher.id);
                denominations.insert(voucher.denomination);
                vouchers.push(reference.clone());
            }
        }
        batch.stock.reread(self.product_id, denominations);
        if !vouchers.is_empty() {
            batch.append::<Product>(self.product_id, VouchersExpired { vouchers }, context);
        }
        Ok(CommandResult::StockVoided(StockVoided::default()))
    }
}
