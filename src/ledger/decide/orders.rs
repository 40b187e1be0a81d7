//! Placing, cancelling and fulfilling orders.

use ledger_events::order::{self, CancelledBy, OrderCommand, OrderEvent};
use ledger_events::placement::{self, place, quote};
use ledger_events::wallet::{self, Purpose, WalletCommand};
use ledger_events::{AccountId, Money, OrderId, ProductId, Rejection};

use super::{Decided, Story, active, new_salt, next};
use crate::ledger::answer::{Answer, Charge, OrderView};
use crate::ledger::batch::{Batch, pair};
use crate::ledger::command::PlaceOrder;
use crate::ledger::keys::Owner;
use crate::ledger::texts::{CANCEL_REASON, METADATA};
use crate::secrets::seal::{Private, salted_hash};

pub(super) fn place_order(batch: &mut Batch, command: &PlaceOrder, story: Story<'_>) -> Decided {
    if let Some(reference) = &command.client_reference
        && let Some(existing) = batch.order_under(command.account_id, reference)
    {
        return existing_order(batch, existing, command);
    }
    let account = batch.accounts.get(&command.account_id).ok_or(Rejection::NotFound)?;
    let order_id = next(batch.ids.orders.pop_front(), "order")?;
    let transaction_id = next(batch.ids.transactions.pop_front(), "transaction")?;
    let metadata = command.metadata.as_ref().map(|text| (new_salt(), text));
    let request = placement::PlaceOrder {
        product_id: command.product_id,
        denomination: command.denomination,
        quantity: command.quantity,
        client_reference: command.client_reference.clone(),
        metadata_hash: metadata.as_ref().map(|(salt, text)| salted_hash(salt, text.expose())),
    };
    let wallet_in = |currency| batch.wallet_of.get(&(command.account_id, currency)).and_then(|id| batch.wallets.get(id));
    let (placed, debited) =
        place(account, batch.products.get(&command.product_id), wallet_in, order_id, transaction_id, request)?;

    let wallet_id = placed.wallet_id;
    let story = Story { account_id: Some(command.account_id), ..story };
    let placed_id = batch.append(order_id, OrderEvent::from(placed), &story);
    batch.append(wallet_id, debited, &Story { correlation_id: Some(placed_id), causation_id: Some(placed_id), ..story });
    if let Some((salt, text)) = metadata {
        batch.keep_text_of(Owner::Account(command.account_id), METADATA, order_id, salt, text)?;
    }
    if let Some(reference) = &command.client_reference {
        batch.order_of.insert((command.account_id, reference.clone()), order_id);
    }
    order_view(batch, order_id, true)
}

/// What an order would cost, by the function that orders are priced with, and on the same rows. It
/// changes nothing, so a suspended account may ask.
pub(super) fn quote_charge(
    batch: &Batch,
    account_id: AccountId,
    product_id: ProductId,
    denomination: Money,
    quantity: i32,
) -> Decided {
    let account = batch.accounts.get(&account_id).ok_or(Rejection::NotFound)?;
    let wallet_in = |currency| batch.wallet_of.get(&(account_id, currency)).and_then(|id| batch.wallets.get(id));
    let quote = quote(account, batch.products.get(&product_id), wallet_in, denomination, quantity)?;
    Ok(Answer::Charge(Charge::of(&quote, denomination, quantity, batch.recorded_at)))
}

/// The `client_reference` was used: the same payload answers the order that exists.
fn existing_order(batch: &Batch, id: OrderId, command: &PlaceOrder) -> Decided {
    let order = batch.orders.get(&id).ok_or(Rejection::DuplicateReference)?;
    let metadata = batch.text(METADATA, id)?;
    let is_same = (order.placed.product_id, order.placed.denomination, order.placed.quantity)
        == (command.product_id, command.denomination, command.quantity)
        && metadata == command.metadata;
    if is_same { order_view(batch, id, false) } else { Err(Rejection::DuplicateReference.into()) }
}

pub(super) fn cancel(
    batch: &mut Batch,
    account_id: Option<AccountId>,
    order_id: OrderId,
    reason: Option<&Private>,
    story: Story<'_>,
) -> Decided {
    let order = batch
        .orders
        .get(&order_id)
        .filter(|o| account_id.is_none_or(|id| o.placed.account_id == id))
        .ok_or(Rejection::NotFound)?;
    let by = match account_id {
        Some(id) => {
            active(batch, id)?;
            CancelledBy::Client
        }
        None => CancelledBy::Operator,
    };
    let transaction_id = next(batch.ids.transactions.pop_front(), "transaction")?;
    let reason = reason.map(|text| (new_salt(), text));
    let reason_hash = reason.as_ref().map(|(salt, text)| salted_hash(salt, text.expose()));
    let events = order::decide(order, OrderCommand::Cancel { by, refund_transaction_id: transaction_id, reason_hash })?;
    let refund = events.iter().find_map(|event| match event {
        OrderEvent::OrderCancelled(cancelled) if cancelled.refunded_amount.is_positive() => Some(cancelled.refunded_amount),
        _ => None,
    });
    let (wallet_id, reference) = (order.placed.wallet_id, order.placed.reference_code.clone());
    let refunded = match refund {
        Some(amount) => {
            let wallet = batch.wallets.get(&wallet_id).ok_or(Rejection::NotFound)?;
            Some(wallet::decide(
                wallet,
                transaction_id,
                WalletCommand::Refund { amount, purpose: Purpose::Order(order_id), reference },
            )?)
        }
        None => None,
    };
    let account_id = order.placed.account_id;
    append_to_order(batch, order_id, events, &story);
    if let (Some(event), Some(order)) = (refunded, batch.orders.get(&order_id)) {
        let story = Story {
            account_id: Some(account_id),
            correlation_id: Some(order.placed_event_id),
            causation_id: Some(order.last_event_id),
            ..story
        };
        batch.append(wallet_id, event, &story);
    }
    if let Some((salt, text)) = reason {
        batch.keep_text_of(Owner::Account(account_id), CANCEL_REASON, order_id, salt, text)?;
    }
    order_view(batch, order_id, false)
}

/// Takes an order up, with the vouchers that the batch allocated to it.
pub(super) fn fulfil(batch: &mut Batch, order_id: OrderId, story: Story<'_>) -> Decided {
    let order = batch.orders.get(&order_id).ok_or(Rejection::NotFound)?;
    // An order that was cancelled earlier in the batch leaves its share in the stock.
    let vouchers = if order.is_waiting() { batch.allocated.remove(&order_id).unwrap_or_default() } else { vec![] };
    let references = vouchers.iter().map(|v| v.reference.clone()).collect();
    let events = order::decide(order, OrderCommand::Fulfil { vouchers: references })?;
    append_to_order(batch, order_id, events, &story);
    batch.vault.claims.extend(vouchers.iter().map(|v| (v.id, order_id)));
    if let Some(order) = batch.orders.get(&order_id).filter(|order| order.is_waiting()) {
        let pair = pair(order);
        batch.nobody_waits_for.remove(&pair);
    }
    order_view(batch, order_id, false)
}

/// Each event follows from the one before it, and all belong to the story that `OrderPlaced` began.
fn append_to_order(batch: &mut Batch, order_id: OrderId, events: Vec<OrderEvent>, story: &Story<'_>) {
    for event in events {
        let Some(order) = batch.orders.get(&order_id) else { return };
        let story = Story {
            account_id: Some(order.placed.account_id),
            correlation_id: Some(order.placed_event_id),
            causation_id: Some(order.last_event_id),
            origin: story.origin,
            idempotency: story.idempotency,
        };
        batch.append(order_id, event, &story);
    }
}

fn order_view(batch: &Batch, id: OrderId, is_new: bool) -> Decided {
    let order = batch.orders.get(&id).cloned().ok_or(Rejection::NotFound)?;
    let metadata = batch.text(METADATA, id)?;
    let cancel_reason = batch.text(CANCEL_REASON, id)?;
    Ok(Answer::Order(Box::new(OrderView { order, metadata, cancel_reason, is_new })))
}

/// Somebody reads the codes: an audited event.
pub(super) fn reveal_vouchers(batch: &mut Batch, account_id: AccountId, order_id: OrderId, story: Story<'_>) -> Decided {
    let known = batch.orders.get(&order_id).filter(|o| o.placed.account_id == account_id).ok_or(Rejection::NotFound)?;
    let events = order::decide(known, OrderCommand::RevealVouchers)?;
    append_to_order(batch, order_id, events, &story);
    order_view(batch, order_id, false)
}
