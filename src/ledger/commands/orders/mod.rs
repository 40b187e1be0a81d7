//! Orders.

mod cancel;
mod fulfil;
mod place;
mod quote_charge;
mod reveal_vouchers;

use ledger_events::OrderId;
use ledger_events::order::{Order, OrderEvent};

pub use cancel::CancelOrder;
pub use fulfil::FulfilOrder;
pub use place::PlaceOrder;
pub use quote_charge::QuoteCharge;
pub use reveal_vouchers::RevealVouchers;

use crate::ledger::command_result::OrderView;
use crate::ledger::commands::prelude::*;
use crate::ledger::texts::{CANCEL_REASON, METADATA};

/// Appends events of an order. Each is caused by the one before it, and all correlate with `OrderPlaced`.
fn append(batch: &mut Batch, id: OrderId, events: Vec<OrderEvent>, context: &CommandContext<'_>) {
    for event in events {
        let Some(order) = batch.streams.orders.get(id) else { return };
        let context = context.of_account(order.placed.account_id).caused_by(order.placed_event_id, order.last_event_id);
        batch.append::<Order>(id, event, &context);
    }
}

fn view(batch: &Batch, id: OrderId, is_new: bool) -> Decided {
    let order = batch.streams.orders.find(id)?.clone();
    let metadata = batch.text(METADATA, id.0)?;
    let cancel_reason = batch.text(CANCEL_REASON, id.0)?;
    Ok(CommandResult::Order(Box::new(OrderView { order, metadata, cancel_reason, is_new })))
}
