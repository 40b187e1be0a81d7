use ledger_events::order::Order;
use ledger_events::placement::{self, place};
use ledger_events::wallet::Wallet;
use ledger_events::{AccountId, Money, OrderId, ProductId};

use super::view;
use crate::ledger::commands::prelude::*;
use crate::ledger::texts::METADATA;

#[derive(Clone, Debug)]
pub struct PlaceOrder {
    pub account_id: AccountId,
    pub product_id: ProductId,
    pub denomination: Money,
    pub quantity: i32,
    pub client_reference: Option<String>,
    /// Text of a JSON object.
    pub metadata: Option<Secret>,
}

impl Handler for PlaceOrder {
    const IS_PIPELINED: bool = true;

    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.accounts.id(self.account_id);
        reads.streams.wallets.query.of_accounts.insert(self.account_id);
        reads.streams.products.id(self.product_id);
        reads.data_keys.extend(self.metadata.as_ref().map(|_| Owner::Account(self.account_id)));
        let reference = self.client_reference.as_deref().map(|reference| (self.account_id, reference));
        reads.streams.orders.query.references.extend(reference);
        reads.streams.orders.new_id();
        reads.new_ids.transactions += 1;
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        if let Some(reference) = &self.client_reference
            && let Some(existing) = batch.order_under(self.account_id, reference)
        {
            batch.streams.orders.ask([existing]); // The batch in flight may have placed it.
            return self.existing(batch, existing);
        }
        let account = batch.streams.accounts.find(self.account_id)?;
        let order_id = batch.streams.orders.next_id()?;
        let transaction_id = batch.ids.transactions.next()?;
        let metadata = self.metadata.as_ref().map(Salted::new);
        let request = placement::PlaceOrder {
            product_id: self.product_id,
            denomination: self.denomination,
            quantity: self.quantity,
            client_reference: self.client_reference.clone(),
            metadata_hash: metadata.as_ref().map(Salted::hash),
        };
        let wallet_in = |currency| batch.streams.wallets.in_currency(self.account_id, currency);
        let product = batch.streams.products.get(self.product_id);
        let (placed, debited) = place(account, product, wallet_in, order_id, transaction_id, request)?;

        let wallet_id = placed.wallet_id;
        let context = context.of_account(self.account_id);
        let placed_id = batch.append::<Order>(order_id, placed, &context);
        batch.append::<Wallet>(wallet_id, debited, &context.caused_by(placed_id, placed_id));
        if let Some(metadata) = metadata {
            metadata.keep_for(batch, Owner::Account(self.account_id), METADATA, order_id.0)?;
        }
        if let Some(reference) = &self.client_reference {
            batch.streams.orders.index.by_reference.insert((self.account_id, reference.clone()), order_id);
        }
        view(batch, order_id, true)
    }
}

impl PlaceOrder {
    /// Returns the order that used the `client_reference` before, if it has the same payload.
    fn existing(&self, batch: &Batch, id: OrderId) -> Decided {
        let order = batch.streams.orders.loaded(id).ok_or(Rejection::DuplicateReference)?;
        let metadata = batch.text(METADATA, id.0)?;
        let is_same = (order.placed.product_id, order.placed.denomination, order.placed.quantity)
            == (self.product_id, self.denomination, self.quantity)
            && metadata == self.metadata;
        if is_same { view(batch, id, false) } else { Err(Rejection::DuplicateReference.into()) }
    }
}
