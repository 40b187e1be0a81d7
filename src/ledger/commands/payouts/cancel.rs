use ledger_events::payout::PayoutCommand;
use ledger_events::{AccountId, PayoutId};

use super::{end, view};
use crate::ledger::commands::prelude::*;

#[derive(Clone, Debug)]
pub struct CancelPayout {
    pub account_id: AccountId,
    pub payout_id: PayoutId,
}

impl Handler for CancelPayout {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
        reads.streams.payouts.id(self.payout_id);
        reads.streams.approvals.query.payouts.push(self.payout_id);
        reads.new_ids.transactions += 1;
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let refund_transaction_id = batch.ids.transactions.next()?;
        let known = batch.streams.payouts.find(self.payout_id)?.clone();
        if known.requested.account_id != self.account_id {
            return Err(Rejection::NotFound.into());
        }
        require_active(batch, self.account_id)?;
        // An operator has said that the money is on its way.
        if batch.streams.approvals.awaited_by_payout(self.payout_id, batch.head.recorded_at).is_some() {
            return Err(Rejection::PayoutNotCancellable.into());
        }
        end(batch, &known, PayoutCommand::Cancel { refund_transaction_id }, context)?;
        view(batch, self.payout_id, false)
    }
}
