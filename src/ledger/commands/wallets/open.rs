use ledger_events::wallet::{Wallet, WalletOpened};
use ledger_events::{AccountId, Currency};

use crate::ledger::commands::prelude::*;

#[derive(Clone, Debug)]
pub struct OpenWallet {
    pub account_id: AccountId,
    pub currency: Currency,
}

impl Handler for OpenWallet {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
        reads.streams.wallets.query.of_accounts.insert(self.account_id);
        reads.streams.wallets.new_id();
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let Self { account_id, currency } = *self;
        batch.streams.accounts.find(account_id)?;
        if batch.streams.wallets.in_currency(account_id, currency).is_some() {
            return Err(Rejection::Conflict("the account has a wallet of this currency").into());
        }
        let id = batch.streams.wallets.next_id()?;
        batch.append::<Wallet>(id, WalletOpened { account_id, currency }, &context.of_account(account_id));
        batch.streams.wallets.open(account_id, currency, id);
        Ok(CommandResult::Wallet(batch.streams.wallets.find(id)?.clone()))
    }
}
