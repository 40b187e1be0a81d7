use ledger_events::order::{self, CancelledBy, Order, OrderCommand, OrderEvent};
use ledger_events::wallet::{self, Purpose, Wallet, WalletCommand, WalletEvent};
use ledger_events::{AccountId, OrderId, TransactionId};

use super::{append, view};
use crate::ledger::commands::prelude::*;
use crate::ledger::texts::{CANCEL_REASON, METADATA};

#[derive(Clone, Debug)]
pub struct CancelOrder {
    /// None for operators, who cancel any account's order.
    pub account_id: Option<AccountId>,
    pub order_id: OrderId,
    pub reason: Option<Secret>,
}

impl Handler for CancelOrder {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.orders.id(self.order_id);
        reads.streams.orders.query.cancelled.push(self.order_id);
        reads.texts.push((METADATA, self.order_id.0));
        reads.new_ids.transactions += 1;
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let order_id = self.order_id;
        let order = batch.streams.orders.find(order_id)?;
        let account_id = order.placed.account_id;
        let by = match self.account_id {
            Some(id) if id != account_id => return Err(Rejection::NotFound.into()),
            Some(id) => {
                require_active(batch, id)?;
                CancelledBy::Client
            }
            None => CancelledBy::Operator,
        };
        let refund_transaction_id = batch.ids.transactions.next()?;
        let reason = self.reason.as_ref().map(Salted::new);
        let reason_hash = reason.as_ref().map(Salted::hash);
        let events = order::decide(order, OrderCommand::Cancel { by, refund_transaction_id, reason_hash })?;
        let wallet_id = order.placed.wallet_id;
        let refunded = refund(batch, order, &events, refund_transaction_id)?;
        append(batch, order_id, events, context);
        if let (Some(event), Some(order)) = (refunded, batch.streams.orders.get(order_id)) {
            let context = context.of_account(account_id).caused_by(order.placed_event_id, order.last_event_id);
            batch.append::<Wallet>(wallet_id, event, &context);
        }
        if let Some(reason) = reason {
            reason.keep_for(batch, Owner::Account(account_id), CANCEL_REASON, order_id.0)?;
        }
        view(batch, order_id, false)
    }
}

/// Decides the refund of a cancelled order, if anything is refunded.
fn refund(batch: &Batch, order: &Order, events: &[OrderEvent], id: TransactionId) -> Result<Option<WalletEvent>, Rejection> {
    let amount = events.iter().find_map(|event| match event {
        OrderEvent::OrderCancelled(cancelled) if cancelled.refunded_amount.is_positive() => Some(cancelled.refunded_amount),
        _ => None,
    });
    let Some(amount) = amount else { return Ok(None) };
    let wallet = batch.streams.wallets.find(order.placed.wallet_id)?;
    let (purpose, reference) = (Purpose::Order(order.id), order.placed.reference_code.clone());
    wallet::decide(wallet, id, WalletCommand::Refund { amount, purpose, reference }).map(Some)
}
