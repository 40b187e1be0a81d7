use ledger_events::PayoutId;
use ledger_events::payout::{PayoutCommand, PayoutStatus};

use super::{end, view};
use crate::ledger::commands::prelude::*;
use crate::ledger::texts::FAILURE_REASON;

/// Records the outcome of a payout, as an operator knows it. Recording the same outcome again changes nothing.
#[derive(Clone, Debug)]
pub struct SettlePayout {
    pub payout_id: PayoutId,
    pub outcome: PayoutOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PayoutOutcome {
    Paid,
    Failed { reason: Option<Secret> },
}

impl Handler for SettlePayout {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.payouts.id(self.payout_id);
        reads.streams.approvals.query.payouts.push(self.payout_id);
        reads.texts.push((FAILURE_REASON, self.payout_id.0));
        reads.new_ids.transactions += 1;
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let id = self.payout_id;
        let refund_transaction_id = batch.ids.transactions.next()?;
        let known = batch.streams.payouts.find(id)?.clone();
        let settled_as = match known.status {
            PayoutStatus::Paid => Some(PayoutOutcome::Paid),
            PayoutStatus::Failed => Some(PayoutOutcome::Failed { reason: batch.text(FAILURE_REASON, id.0)? }),
            PayoutStatus::Pending | PayoutStatus::Cancelled => None,
        };
        if settled_as.as_ref() == Some(&self.outcome) {
            return view(batch, id, false);
        }
        if batch.streams.approvals.awaited_by_payout(id, batch.head.recorded_at).is_some() {
            return Err(Rejection::Conflict("the payout awaits approval as paid").into());
        }
        let (command, reason) = match &self.outcome {
            PayoutOutcome::Paid => (PayoutCommand::Pay, None),
            PayoutOutcome::Failed { reason } => {
                let reason = reason.as_ref().map(Salted::new);
                let reason_hash = reason.as_ref().map(Salted::hash);
                (PayoutCommand::Fail { refund_transaction_id, reason_hash }, reason)
            }
        };
        end(batch, &known, command, context)?;
        if let Some(reason) = reason {
            reason.keep_for(batch, Owner::Beneficiary(known.requested.beneficiary_id), FAILURE_REASON, id.0)?;
        }
        view(batch, id, false)
    }
}
