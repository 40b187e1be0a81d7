use ledger_events::PurchaseId;
use ledger_events::purchase::{PurchaseAnswer, PurchaseFulfilled, PurchaseStatus};

use super::record::record;
use crate::ledger::commands::LoadVouchers;
use crate::ledger::commands::prelude::*;

/// Adds the vouchers of a purchase to the stock, and ends the purchase, in one transaction. Only a fulfilled purchase takes no
/// vouchers: those that arrive after a refusal are paid for.
#[derive(Clone, Debug)]
pub struct ReceivePurchase {
    pub purchase_id: PurchaseId,
    /// The vouchers, with their cost and the supplier's reference.
    pub load: LoadVouchers,
    /// Number of vouchers that have expired.
    pub expired: i32,
}

impl Handler for ReceivePurchase {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.purchases.id(self.purchase_id);
        self.load.reads(reads);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let purchase = batch.streams.purchases.find(self.purchase_id)?;
        if purchase.status == PurchaseStatus::Fulfilled {
            return Ok(CommandResult::Purchase(Some(Box::new(purchase.clone()))));
        }
        let bought = (purchase.requested.product_id, purchase.requested.denomination);
        if bought != (self.load.product_id, self.load.denomination) {
            return Err(Rejection::Conflict("the vouchers are not those of the purchase").into());
        }
        // The product may have lost the denomination meanwhile. Bought codes are kept anyway.
        let loaded = self.load.add(batch, context)?;
        let fulfilled = PurchaseFulfilled {
            vouchers: i32::try_from(self.load.vouchers.len()).unwrap_or(i32::MAX),
            accepted: loaded.accepted,
            usable: (loaded.accepted - self.expired).max(0),
            cost: self.load.cost,
            supplier_reference: self.load.supplier_reference.clone(),
        };
        record(batch, self.purchase_id, PurchaseAnswer::Fulfilled(fulfilled), context)
    }
}
