use ledger_events::ApprovalId;
use ledger_events::approval::{Approval, ApprovalStatus, ApprovalWithdrawn};

use crate::ledger::commands::prelude::*;

/// Withdraws an approval, as the operator who requested it. Withdrawing it again changes nothing.
#[derive(Clone, Debug)]
pub struct WithdrawApproval {
    pub approval_id: ApprovalId,
}

impl Handler for WithdrawApproval {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.approvals.id(self.approval_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let (id, actor) = (self.approval_id, context.origin.actor);
        let known = batch.streams.approvals.find(id)?.clone();
        if known.status == ApprovalStatus::Withdrawn && known.decided_by == Some(actor) {
            return approval_view(batch, id);
        }
        known.require_withdrawal_by(actor, batch.head.recorded_at)?;
        let context = context.of_account(known.requested.account_id).caused_by(known.requested_event_id, known.last_event_id);
        batch.append::<Approval>(id, ApprovalWithdrawn { withdrawn_by: actor }, &context);
        approval_view(batch, id)
    }
}
