//! Requesting, cancelling and settling payouts.

use ledger_events::payout::{self, Payout, PayoutCommand, PayoutEvent, PayoutStatus};
use ledger_events::{AccountId, PayoutId, Rejection};

use super::{Decided, Story, active, new_salt, next};
use crate::ledger::answer::{Answer, PayoutView};
use crate::ledger::batch::Batch;
use crate::ledger::command::{PayoutOutcome, RequestPayout};
use crate::ledger::keys::Owner;
use crate::ledger::texts::FAILURE_REASON;
use crate::secrets::seal::salted_hash;

pub(super) fn request(batch: &mut Batch, command: &RequestPayout, story: Story<'_>) -> Decided {
    let account_id = command.account_id;
    if let Some(reference) = &command.client_reference
        && let Some(existing) = batch.payout_of.get(&(account_id, reference.clone()))
    {
        return existing_payout(batch, *existing, command);
    }
    let account = batch.accounts.get(&account_id).ok_or(Rejection::NotFound)?;
    let payout_id = next(batch.ids.payouts.pop_front(), "payout")?;
    let transaction_id = next(batch.ids.transactions.pop_front(), "transaction")?;
    let asked = payout::RequestPayout { amount: command.amount, client_reference: command.client_reference.clone() };
    let (beneficiary, wallet) = (batch.beneficiaries.get(&command.beneficiary_id), batch.wallets.get(&command.wallet_id));
    let (requested, debited) = payout::request(account, beneficiary, wallet, payout_id, transaction_id, asked)?;

    let story = Story { account_id: Some(account_id), ..story };
    let requested_id = batch.append(payout_id, PayoutEvent::from(requested), &story);
    let story = Story { correlation_id: Some(requested_id), causation_id: Some(requested_id), ..story };
    batch.append(command.wallet_id, debited, &story);
    if let Some(reference) = &command.client_reference {
        batch.payout_of.insert((account_id, reference.clone()), payout_id);
    }
    view(batch, payout_id, true)
}

/// The `client_reference` was used: the same payload answers the payout that exists.
fn existing_payout(batch: &Batch, id: PayoutId, command: &RequestPayout) -> Decided {
    let known = &batch.payouts.get(&id).ok_or(Rejection::DuplicateReference)?.requested;
    let is_same =
        (known.beneficiary_id, known.wallet_id, known.amount) == (command.beneficiary_id, command.wallet_id, command.amount);
    if is_same { view(batch, id, false) } else { Err(Rejection::DuplicateReference.into()) }
}

pub(super) fn cancel(batch: &mut Batch, account_id: AccountId, id: PayoutId, story: Story<'_>) -> Decided {
    let refund_transaction_id = next(batch.ids.transactions.pop_front(), "transaction")?;
    let known = batch.payouts.get(&id).filter(|p| p.requested.account_id == account_id).ok_or(Rejection::NotFound)?;
    active(batch, account_id)?;
    let known = known.clone();
    settle_as(batch, &known, PayoutCommand::Cancel { refund_transaction_id }, story)?;
    view(batch, id, false)
}

/// The same outcome a second time changes nothing.
pub(super) fn settle(batch: &mut Batch, id: PayoutId, outcome: &PayoutOutcome, story: Story<'_>) -> Decided {
    let refund_transaction_id = next(batch.ids.transactions.pop_front(), "transaction")?;
    let known = batch.payouts.get(&id).cloned().ok_or(Rejection::NotFound)?;
    let settled_as = match known.status {
        PayoutStatus::Paid => Some(PayoutOutcome::Paid),
        PayoutStatus::Failed => Some(PayoutOutcome::Failed { reason: batch.text(FAILURE_REASON, id)? }),
        PayoutStatus::Pending | PayoutStatus::Cancelled => None,
    };
    if settled_as.as_ref() == Some(outcome) {
        return view(batch, id, false);
    }
    let (command, reason) = match outcome {
        PayoutOutcome::Paid => (PayoutCommand::Pay, None),
        PayoutOutcome::Failed { reason } => {
            let reason = reason.as_ref().map(|text| (new_salt(), text));
            let reason_hash = reason.as_ref().map(|(salt, text)| salted_hash(salt, text.expose()));
            (PayoutCommand::Fail { refund_transaction_id, reason_hash }, reason)
        }
    };
    settle_as(batch, &known, command, story)?;
    if let Some((salt, text)) = reason {
        let owner = Owner::Beneficiary(known.requested.beneficiary_id);
        batch.keep_text_of(owner, FAILURE_REASON, id, salt, text)?;
    }
    view(batch, id, false)
}

/// The payout's last event, and its refund right after it.
fn settle_as(batch: &mut Batch, payout: &Payout, command: PayoutCommand, story: Story<'_>) -> Result<(), Rejection> {
    let wallet_id = payout.requested.wallet_id;
    let wallet = batch.wallets.get(&wallet_id).ok_or(Rejection::NotFound)?;
    let (event, refunded) = payout::decide(payout, wallet, command)?;
    let story = Story {
        account_id: Some(payout.requested.account_id),
        correlation_id: Some(payout.requested_event_id),
        causation_id: Some(payout.last_event_id),
        ..story
    };
    let settled_id = batch.append(payout.id, event, &story);
    if let Some(refunded) = refunded {
        batch.append(wallet_id, refunded, &Story { causation_id: Some(settled_id), ..story });
    }
    Ok(())
}

fn view(batch: &Batch, id: PayoutId, is_new: bool) -> Decided {
    let payout = batch.payouts.get(&id).cloned().ok_or(Rejection::NotFound)?;
    let failure_reason = batch.text(FAILURE_REASON, id)?;
    Ok(Answer::Payout(PayoutView { payout, failure_reason, is_new }))
}
