use std::collections::BTreeSet;

use ledger_events::ProductId;
use ledger_events::catalogue::{Product, VouchersTransferredIn, VouchersTransferredOut};

use crate::ledger::command_result::StockTransferred;
use crate::ledger::commands::prelude::*;
use crate::ledger::texts::TRANSFER_REASON;

/// Moves vouchers from the stock of a product to that of another one, such as its successor. Names them by their references.
/// Moving a voucher again appends no event.
#[derive(Clone, Debug)]
pub struct TransferVouchers {
    pub product_id: ProductId,
    pub to_product_id: ProductId,
    pub references: Vec<String>,
    pub reason: Secret,
}

impl Handler for TransferVouchers {
    /// No other command of the batch may have the vouchers in hand.
    const IS_SOLITARY: bool = true;

    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.products.id(self.product_id);
        reads.streams.products.id(self.to_product_id);
        reads.named_vouchers.push(&self.references);
        reads.transfers.push((self.to_product_id, &self.references));
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let (from, to) = (self.product_id, self.to_product_id);
        let currency = batch.streams.products.find(from)?.details.currency;
        let Some(receiver) = batch.streams.products.get(to).filter(|_| from != to) else {
            return Err(Rejection::InvalidField { field: "to_product_id", problem: "names no other product" }.into());
        };
        if receiver.details.currency != currency {
            return Err(Rejection::InvalidField { field: "to_product_id", problem: "names a product of another currency" }.into());
        }
        let accepted = receiver.details.denominations.clone();
        let mut result = StockTransferred::default();
        let (mut vouchers, mut denominations, mut seen) = (vec![], BTreeSet::new(), BTreeSet::new());
        for reference in self.references.iter().filter(|reference| seen.insert(*reference)) {
            let mut refuse = |reason: String| result.refused.push((reference.clone(), reason));
            match batch.stock.named_of(from, reference) {
                Err(_) if batch.stock.named_of(to, reference).is_ok() => result.already_there += 1,
                Err(gone) => refuse(gone.to_string()),
                Ok(voucher) if !accepted.include(voucher.denomination) => {
                    refuse("has a face value that the other product lacks".to_owned())
                }
                Ok(_) if batch.stock.duplicates.contains(reference) => {
                    refuse("has a card number that the other product has".to_owned())
                }
                Ok(voucher) => {
                    batch.pending.transferred.push((voucher.id, to));
                    denominations.insert(voucher.denomination);
                    vouchers.push(reference.clone());
                }
            }
        }
        if vouchers.is_empty() {
            return Ok(CommandResult::StockTransferred(result));
        }
        result.transferred = i32::try_from(vouchers.len()).unwrap_or(i32::MAX);
        batch.stock.reread(from, denominations.iter().copied());
        batch.stock.reread(to, denominations);
        let reason_hash = batch.keep_text(TRANSFER_REASON, batch.end() + 1, new_salt(), &self.reason)?;
        let left = VouchersTransferredOut { to_product_id: to, vouchers: vouchers.clone(), reason_hash };
        batch.append::<Product>(from, left, context);
        batch.append::<Product>(to, VouchersTransferredIn { from_product_id: from, vouchers }, context);
        Ok(CommandResult::StockTransferred(result))
    }
}
