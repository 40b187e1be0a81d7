use std::collections::BTreeSet;

use ledger_events::ProductId;
use ledger_events::catalogue::{Product, VouchersVoided};

use crate::ledger::command_result::StockVoided;
use crate::ledger::commands::prelude::*;
use crate::ledger::stock::Gone;
use crate::ledger::texts::VOID_REASON;

/// Withdraws vouchers from the stock, so that no order gets them. Names them by their references. Voiding a voucher again
/// appends no event.
#[derive(Clone, Debug)]
pub struct VoidVouchers {
    pub product_id: ProductId,
    pub references: Vec<String>,
    pub reason: Secret,
}

impl Handler for VoidVouchers {
    /// No other command of the batch may have the vouchers in hand.
    const IS_SOLITARY: bool = true;

    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.products.id(self.product_id);
        reads.named_vouchers.push(&self.references);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        batch.streams.products.find(self.product_id)?;
        let mut result = StockVoided::default();
        let (mut vouchers, mut denominations) = (vec![], BTreeSet::new());
        for reference in self.references.iter().collect::<BTreeSet<_>>() {
            match batch.stock.named_of(self.product_id, reference) {
                Err(Gone::Voided) => result.already_voided += 1,
                Err(gone) => result.refused.push((reference.clone(), gone.to_string())),
                Ok(voucher) => {
                    batch.pending.voided.push(voucher.id);
                    denominations.insert(voucher.denomination);
                    vouchers.push(reference.clone());
                }
            }
        }
        if vouchers.is_empty() {
            return Ok(CommandResult::StockVoided(result));
        }
        result.voided = i32::try_from(vouchers.len()).unwrap_or(i32::MAX);
        batch.stock.reread(self.product_id, denominations);
        let reason_hash = batch.keep_text(VOID_REASON, batch.end() + 1, new_salt(), &self.reason)?;
        batch.append::<Product>(self.product_id, VouchersVoided { vouchers, reason_hash }, context);
        Ok(CommandResult::StockVoided(result))
    }
}
