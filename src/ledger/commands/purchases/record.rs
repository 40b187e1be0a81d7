use ledger_events::PurchaseId;
use ledger_events::purchase::{self, Purchase, PurchaseAnswer};

use crate::ledger::batch::Batch;
use crate::ledger::commands::prelude::*;
use crate::ledger::context::CommandContext;

/// Records that a supplier has accepted or refused a purchase. An answer that changes nothing is no event.
#[derive(Clone, Debug)]
pub struct RecordPurchase {
    pub purchase_id: PurchaseId,
    pub answer: PurchaseAnswer,
    /// Claim under which the supplier was called; none if an operator ends the purchase. A refusal under an earlier claim is not
    /// recorded, because another node may have ordered meanwhile.
    pub attempt: Option<i32>,
}

impl Handler for RecordPurchase {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.purchases.id(self.purchase_id);
        reads.streams.purchases.query.claims.push(self.purchase_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let latest = batch.streams.purchases.index.claims.get(&self.purchase_id).copied();
        let is_late = self.attempt.zip(latest).is_some_and(|(own, latest)| own < latest);
        if is_late && matches!(self.answer, PurchaseAnswer::Refused(_)) {
            return Ok(CommandResult::Purchase(Some(Box::new(batch.streams.purchases.find(self.purchase_id)?.clone()))));
        }
        record(batch, self.purchase_id, self.answer.clone(), context)
    }
}

/// Appends what follows from an answer. Returns the purchase.
pub(super) fn record(batch: &mut Batch, id: PurchaseId, answer: PurchaseAnswer, context: &CommandContext<'_>) -> Decided {
    for event in purchase::decide(batch.streams.purchases.find(id)?, answer) {
        batch.append::<Purchase>(id, event, context);
    }
    Ok(CommandResult::Purchase(Some(Box::new(batch.streams.purchases.find(id)?.clone()))))
}
