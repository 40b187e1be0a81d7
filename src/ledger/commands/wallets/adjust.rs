use ledger_events::wallet::{Direction, WalletCommand};
use ledger_events::{Money, WalletId};

use super::move_money;
use crate::ledger::commands::prelude::*;
use crate::ledger::texts::NOTE;

#[derive(Clone, Debug)]
pub struct AdjustWallet {
    pub wallet_id: WalletId,
    pub direction: Direction,
    pub amount: Money,
    pub reason: Secret,
}

impl Handler for AdjustWallet {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.wallets.id(self.wallet_id);
        reads.streams.wallets.query.noted.insert(self.wallet_id);
        reads.new_ids.transactions += 1;
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let id = batch.ids.transactions.next()?;
        let reason = Salted::new(&self.reason);
        let Self { direction, amount, .. } = *self;
        let command = WalletCommand::Adjust { direction, amount, reason_hash: reason.hash() };
        let transaction = move_money(batch, self.wallet_id, id, command, context)?;
        reason.keep_for(batch, Owner::Account(transaction.account_id), NOTE, id.0)?;
        Ok(CommandResult::Transaction(transaction))
    }
}
