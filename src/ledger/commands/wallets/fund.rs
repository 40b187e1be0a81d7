use ledger_events::wallet::WalletCommand;
use ledger_events::{AccountId, ApprovalId, Money, WalletId};

use super::move_money;
use crate::ledger::commands::prelude::*;
use crate::ledger::texts::NOTE;

/// Funds a wallet once for each reference.
#[derive(Clone, Debug)]
pub struct FundWallet {
    /// None for operators, who fund any account's wallet. An account funds its own ones while it is active.
    pub account_id: Option<AccountId>,
    pub wallet_id: WalletId,
    pub amount: Money,
    pub reference: String,
    pub note: Option<Secret>,
}

impl Handler for FundWallet {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.ids.extend(self.account_id);
        reads.streams.wallets.id(self.wallet_id);
        reads.streams.wallets.query.noted.extend(self.note.as_ref().map(|_| self.wallet_id));
        reads.streams.wallets.query.fundings.push(&self.reference);
        reads.streams.approvals.query.references.push(&self.reference);
        reads.new_ids.transactions += 1;
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        if let Some(account_id) = self.account_id {
            if batch.streams.wallets.find(self.wallet_id)?.account_id != account_id {
                return Err(Rejection::NotFound.into());
            }
            require_active(batch, account_id)?;
        }
        if let Some(known) = batch.streams.wallets.index.fundings.get(&self.reference) {
            if (known.wallet_id, known.amount) == (self.wallet_id, self.amount) {
                return Ok(CommandResult::Funding { transaction: known.clone(), is_new: false });
            }
            return Err(
                Rejection::Conflict("an earlier funding has this reference, with another amount or for another wallet").into()
            );
        }
        if let Some(pending) = batch.streams.approvals.awaited_by_reference(&self.reference, batch.head.recorded_at) {
            return self.awaited(batch, pending.id);
        }
        let id = batch.ids.transactions.next()?;
        let note = self.note.as_ref().map(Salted::new);
        let (reference, note_hash) = (self.reference.clone(), note.as_ref().map(Salted::hash));
        let command = WalletCommand::Fund { amount: self.amount, reference, note_hash };
        let transaction = move_money(batch, self.wallet_id, id, command, context)?;
        if let Some(note) = note {
            note.keep_for(batch, Owner::Account(transaction.account_id), NOTE, id.0)?;
        }
        batch.streams.wallets.index.fundings.insert(self.reference.clone(), transaction.clone());
        Ok(CommandResult::Funding { transaction, is_new: true })
    }
}

impl FundWallet {
    /// Returns the pending approval that has taken the reference, if it is for the same funding by an operator.
    fn awaited(&self, batch: &Batch, id: ApprovalId) -> Decided {
        let requested = &batch.streams.approvals.find(id)?.requested;
        let is_same = (requested.wallet_id, requested.amount) == (self.wallet_id, self.amount);
        match self.account_id.is_none() && is_same {
            true => approval_view(batch, id),
            false => Err(Rejection::Conflict(
                "a funding that awaits approval has this reference, with another amount or for another wallet",
            )
            .into()),
        }
    }
}
