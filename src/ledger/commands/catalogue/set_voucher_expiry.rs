use std::collections::BTreeSet;

use chrono::NaiveDate;
use ledger_events::ProductId;
use ledger_events::catalogue::{Product, VoucherExpirySet};

use crate::ledger::command_result::StockExpiry;
use crate::ledger::commands::prelude::*;
use crate::ledger::stock::NamedVoucher;

/// Gives vouchers an earlier last day, so that no order gets them after it. Names them by their references. Setting the same day
/// again appends no event.
///
/// A later day is refused: fulfilment looks at waiting orders again when vouchers are loaded, and not when others come back.
#[derive(Clone, Debug)]
pub struct SetVoucherExpiry {
    pub product_id: ProductId,
    pub references: Vec<String>,
    /// Last day (UTC). A day in the past expires the vouchers at once.
    pub expires_on: NaiveDate,
}

impl Handler for SetVoucherExpiry {
    /// No other command of the batch may have the vouchers in hand.
    const IS_SOLITARY: bool = true;

    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.products.id(self.product_id);
        reads.named_vouchers.push(&self.references);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        batch.streams.products.find(self.product_id)?;
        let mut result = StockExpiry::default();
        let (mut vouchers, mut denominations) = (vec![], BTreeSet::new());
        for reference in self.references.iter().collect::<BTreeSet<_>>() {
            match batch.stock.named_of(self.product_id, reference) {
                Err(gone) => result.refused.push((reference.clone(), gone.to_string())),
                Ok(NamedVoucher { expires_on: Some(day), .. }) if *day < self.expires_on => {
                    result.refused.push((reference.clone(), format!("already expires on {day}")));
                }
                Ok(NamedVoucher { expires_on: Some(day), .. }) if *day == self.expires_on => result.unchanged += 1,
                Ok(voucher) => {
                    batch.pending.expiries.push((voucher.id, self.expires_on));
                    denominations.insert(voucher.denomination);
                    vouchers.push(reference.clone());
                }
            }
        }
        if vouchers.is_empty() {
            return Ok(CommandResult::StockExpiry(result));
        }
        result.changed = i32::try_from(vouchers.len()).unwrap_or(i32::MAX);
        batch.stock.reread(self.product_id, denominations);
        batch.append::<Product>(self.product_id, VoucherExpirySet { vouchers, expires_on: self.expires_on }, context);
        Ok(CommandResult::StockExpiry(result))
    }
}
