use ledger_events::ApprovalId;
use ledger_events::approval::{Approval, ApprovalRejected, ApprovalStatus};

use crate::ledger::commands::prelude::*;
use crate::ledger::texts::APPROVAL_REASON;

/// Rejects an approval. Rejecting it again changes nothing.
#[derive(Clone, Debug)]
pub struct RejectApproval {
    pub approval_id: ApprovalId,
    pub reason: Option<Secret>,
}

impl Handler for RejectApproval {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.approvals.id(self.approval_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let (id, actor) = (self.approval_id, context.origin.actor);
        let known = batch.streams.approvals.find(id)?.clone();
        if known.status == ApprovalStatus::Rejected && known.decided_by == Some(actor) {
            return approval_view(batch, id);
        }
        known.require_decision_by(actor, batch.head.recorded_at)?;
        let account_id = known.requested.account_id;
        let context = context.of_account(account_id).caused_by(known.requested_event_id, known.last_event_id);
        let reason = self.reason.as_ref().map(Salted::new);
        let rejected = ApprovalRejected { rejected_by: actor, reason_hash: reason.as_ref().map(Salted::hash) };
        batch.append::<Approval>(id, rejected, &context);
        if let Some(reason) = reason {
            reason.keep_for(batch, Owner::Account(account_id), APPROVAL_REASON, id.0)?;
        }
        approval_view(batch, id)
    }
}
