use ledger_events::approval::{Action, Approval, ApprovalGranted, ApprovalStatus};
use ledger_events::payout::{self, PayoutCommand};
use ledger_events::wallet::{self, WalletCommand};
use ledger_events::{ApprovalId, TransactionId};
use uuid::Uuid;

use crate::ledger::commands::payouts::end;
use crate::ledger::commands::prelude::*;
use crate::ledger::commands::wallets::move_money;
use crate::ledger::texts::{APPROVAL_NOTE, NOTE};

/// Grants an approval, and makes its change in the same transaction. Granting it again changes nothing.
#[derive(Clone, Debug)]
pub struct GrantApproval {
    pub approval_id: ApprovalId,
}

impl Handler for GrantApproval {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.approvals.id(self.approval_id);
        reads.new_ids.transactions += 1;
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let (id, actor) = (self.approval_id, context.origin.actor);
        let known = batch.streams.approvals.find(id)?.clone();
        if known.status == ApprovalStatus::Granted && known.decided_by == Some(actor) {
            return approval_view(batch, id);
        }
        known.require_decision_by(actor, batch.head.recorded_at)?;
        let context = context.of_account(known.requested.account_id).caused_by(known.requested_event_id, known.last_event_id);
        if let Action::Payout { payout_id } = known.requested.action {
            let payout = batch.streams.payouts.find(payout_id)?.clone();
            payout::decide(&payout, batch.streams.wallets.find(payout.requested.wallet_id)?, PayoutCommand::Pay)?;
            grant(batch, id, None, &context);
            end(batch, &payout, PayoutCommand::Pay, &context)?;
        } else {
            move_approved(batch, &known, &context)?;
        }
        approval_view(batch, id)
    }
}

fn grant(batch: &mut Batch, id: ApprovalId, transaction_id: Option<TransactionId>, context: &CommandContext<'_>) -> Uuid {
    batch.append::<Approval>(id, ApprovalGranted { granted_by: context.origin.actor, transaction_id }, context)
}

/// Appends the grant and the movement that it is for, and keeps the operator's note with the movement.
fn move_approved(batch: &mut Batch, approval: &Approval, context: &CommandContext<'_>) -> Result<(), CommandError> {
    let requested = &approval.requested;
    let (wallet_id, amount) = (requested.wallet_id, requested.amount);
    let id = batch.ids.transactions.next()?;
    let text = batch.text(APPROVAL_NOTE, approval.id.0)?;
    let note = text.as_ref().map(Salted::new);
    // If the text was erased meanwhile, the movement commits to the hash that is left of it.
    let note_hash = note.as_ref().map(Salted::hash).or_else(|| requested.note_hash.clone());
    let command = match &requested.action {
        Action::Fund { reference } => WalletCommand::Fund { amount, reference: reference.clone(), note_hash },
        Action::Adjust { direction } => {
            WalletCommand::Adjust { direction: *direction, amount, reason_hash: note_hash.unwrap_or_default() }
        }
        Action::Payout { .. } => return Ok(()),
    };
    wallet::decide(batch.streams.wallets.find(wallet_id)?, id, command.clone())?;
    let granted_id = grant(batch, approval.id, Some(id), context);
    let transaction = move_money(batch, wallet_id, id, command, &context.after(granted_id))?;
    if let Some(note) = note {
        note.keep_for(batch, Owner::Account(requested.account_id), NOTE, id.0)?;
    }
    if let Some(reference) = requested.action.reference() {
        batch.streams.wallets.index.fundings.insert(reference.to_owned(), transaction);
    }
    Ok(())
}
