use ledger_events::placement::quote;
use ledger_events::{AccountId, Money, ProductId};

use crate::ledger::command_result::Charge;
use crate::ledger::commands::prelude::*;

/// Prices an order with the function and the rows that orders are priced with. It changes nothing, so a suspended account
/// may ask.
#[derive(Clone, Debug)]
pub struct QuoteCharge {
    pub account_id: AccountId,
    pub product_id: ProductId,
    pub denomination: Money,
    pub quantity: i32,
}

impl Handler for QuoteCharge {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
        reads.streams.wallets.query.of_accounts.insert(self.account_id);
        reads.streams.products.id(self.product_id);
    }

    fn decide(&self, batch: &mut Batch, _: &CommandContext<'_>) -> Decided {
        let account = batch.streams.accounts.find(self.account_id)?;
        let wallet_in = |currency| batch.streams.wallets.in_currency(self.account_id, currency);
        let product = batch.streams.products.get(self.product_id);
        let quote = quote(account, product, wallet_in, self.denomination, self.quantity)?;
        Ok(CommandResult::Charge(Charge::of(&quote, self.denomination, self.quantity, batch.head.recorded_at)))
    }
}
