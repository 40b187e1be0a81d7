//! Notices of low balances.

use ledger_events::account::{Account, LowBalanceNoticeSet, LowBalanceReached};
use ledger_events::{AccountId, Money, WalletId};

use crate::ledger::commands::prelude::*;

/// Sets the amount below which an account wants to be told about a wallet's balance; `None` for no notices.
#[derive(Clone, Debug)]
pub struct SetLowBalanceNotice {
    pub account_id: AccountId,
    pub wallet_id: WalletId,
    pub below: Option<Money>,
}

impl Handler for SetLowBalanceNotice {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
        reads.streams.wallets.id(self.wallet_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let Self { account_id, wallet_id, below } = *self;
        let wallet = batch.streams.wallets.find(wallet_id)?.clone();
        if wallet.account_id != account_id {
            return Err(Rejection::NotFound.into());
        }
        require_active(batch, account_id)?;
        let event = LowBalanceNoticeSet { wallet_id, currency: wallet.currency, below, balance: wallet.balance };
        batch.append::<Account>(account_id, event, &context.of_account(account_id));
        Ok(CommandResult::Wallet(wallet))
    }
}

/// Announces to the account's webhooks that a wallet's balance has fallen.
#[derive(Clone, Debug)]
pub struct AnnounceLowBalance {
    pub account_id: AccountId,
    pub reached: LowBalanceReached,
}

impl Handler for AnnounceLowBalance {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let account = batch.streams.accounts.find(self.account_id)?.clone();
        batch.append::<Account>(self.account_id, self.reached.clone(), &context.of_account(self.account_id));
        Ok(CommandResult::Account(account))
    }
}
