use std::sync::Arc;

use ledger_events::approval::{Action, Approval, ApprovalLimits, ApprovalRequested, EXPIRES_AFTER};
use ledger_events::payout::PayoutStatus;
use ledger_events::wallet::{self, WalletCommand};
use ledger_events::{Money, TransactionId, WalletId};

use crate::ledger::commands::payouts::{PayoutOutcome, SettlePayout};
use crate::ledger::commands::prelude::*;
use crate::ledger::commands::wallets::{AdjustWallet, FundWallet};
use crate::ledger::texts::APPROVAL_NOTE;

/// A change of money by an operator.
#[derive(Clone, Debug)]
pub enum MoneyChange {
    Fund(FundWallet),
    Adjust(AdjustWallet),
    Settle(SettlePayout),
}

/// Changes money at once up to the limits. Above them it requests the approval of a second operator instead.
#[derive(Clone, Debug)]
pub struct Supervise {
    pub change: MoneyChange,
    pub limits: Arc<ApprovalLimits>,
}

impl Handler for Supervise {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.approvals.new_id();
        match &self.change {
            MoneyChange::Fund(fund) => fund.reads(reads),
            MoneyChange::Adjust(adjust) => adjust.reads(reads),
            MoneyChange::Settle(settle) => settle.reads(reads),
        }
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        match &self.change {
            MoneyChange::Fund(fund) => {
                let is_taken = batch.streams.wallets.index.fundings.get(&fund.reference).is_some()
                    || batch.streams.approvals.awaited_by_reference(&fund.reference, batch.head.recorded_at).is_some();
                if is_taken || !self.applies(batch, fund.wallet_id, fund.amount)? {
                    return fund.decide(batch, context);
                }
                let (reference, note_hash) = (fund.reference.clone(), None);
                require_possible(batch, fund.wallet_id, WalletCommand::Fund { amount: fund.amount, reference, note_hash })?;
                let action = Action::Fund { reference: fund.reference.clone() };
                request(batch, (fund.wallet_id, fund.amount), action, fund.note.as_ref(), context)
            }
            MoneyChange::Adjust(adjust) => {
                let AdjustWallet { wallet_id, direction, amount, ref reason } = *adjust;
                if !self.applies(batch, wallet_id, amount)? {
                    return adjust.decide(batch, context);
                }
                require_possible(batch, wallet_id, WalletCommand::Adjust { direction, amount, reason_hash: String::new() })?;
                request(batch, (wallet_id, amount), Action::Adjust { direction }, Some(reason), context)
            }
            MoneyChange::Settle(settle) => self.settle(batch, settle, context),
        }
    }
}

impl Supervise {
    /// Returns whether a movement on a wallet is above its limit.
    fn applies(&self, batch: &Batch, wallet_id: WalletId, amount: Money) -> Result<bool, Rejection> {
        Ok(self.limits.require(batch.streams.wallets.find(wallet_id)?.currency, amount))
    }

    fn settle(&self, batch: &mut Batch, settle: &SettlePayout, context: &CommandContext<'_>) -> Decided {
        let payout_id = settle.payout_id;
        let payout = batch.streams.payouts.find(payout_id)?;
        if settle.outcome != PayoutOutcome::Paid || payout.status != PayoutStatus::Pending {
            return settle.decide(batch, context);
        }
        let (wallet_id, amount) = (payout.requested.wallet_id, payout.requested.amount);
        if let Some(pending) = batch.streams.approvals.awaited_by_payout(payout_id, batch.head.recorded_at) {
            return approval_view(batch, pending.id);
        }
        if !self.applies(batch, wallet_id, amount)? {
            return settle.decide(batch, context);
        }
        request(batch, (wallet_id, amount), Action::Payout { payout_id }, None, context)
    }
}

/// Refuses a movement that would be refused now, so that nobody approves it in vain.
fn require_possible(batch: &Batch, wallet_id: WalletId, command: WalletCommand) -> Result<(), Rejection> {
    wallet::decide(batch.streams.wallets.find(wallet_id)?, TransactionId(0), command).map(drop)
}

/// Appends a request for approval.
fn request(
    batch: &mut Batch,
    (wallet_id, amount): (WalletId, Money),
    action: Action,
    note: Option<&Secret>,
    context: &CommandContext<'_>,
) -> Decided {
    let wallet = batch.streams.wallets.find(wallet_id)?;
    let (account_id, currency) = (wallet.account_id, wallet.currency);
    let id = batch.streams.approvals.next_id()?;
    let note = note.map(Salted::new);
    let requested = ApprovalRequested {
        account_id,
        wallet_id,
        amount,
        currency,
        action,
        note_hash: note.as_ref().map(Salted::hash),
        requested_by: context.origin.actor,
        expires_at: batch.head.recorded_at + EXPIRES_AFTER,
    };
    batch.append::<Approval>(id, requested, &context.of_account(account_id));
    if let Some(note) = note {
        note.keep_for(batch, Owner::Account(account_id), APPROVAL_NOTE, id.0)?;
    }
    let approval = batch.streams.approvals.find(id)?.clone();
    batch.streams.approvals.index.note(&approval);
    approval_view(batch, id)
}
