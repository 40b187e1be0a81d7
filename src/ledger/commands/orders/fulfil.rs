use ledger_events::OrderId;
use ledger_events::order::{self, OrderCommand};

use super::{append, view};
use crate::ledger::commands::prelude::*;
use crate::ledger::stock::pair;

/// Takes an order up with the vouchers that the batch allocated to it.
#[derive(Clone, Debug)]
pub struct FulfilOrder {
    pub order_id: OrderId,
}

impl Handler for FulfilOrder {
    const IS_PIPELINED: bool = true;

    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.orders.id(self.order_id);
        reads.fulfilled.push(self.order_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let order_id = self.order_id;
        let order = batch.streams.orders.find(order_id)?;
        // An order that was cancelled earlier in the batch leaves its share in the stock.
        let vouchers = if order.is_waiting() { batch.stock.allocated.remove(&order_id).unwrap_or_default() } else { vec![] };
        let references = vouchers.iter().map(|v| v.reference.clone()).collect();
        let events = order::decide(order, OrderCommand::Fulfil { vouchers: references })?;
        append(batch, order_id, events, context);
        batch.pending.claims.extend(vouchers.iter().map(|v| (v.id, order_id)));
        if let Some(order) = batch.streams.orders.get(order_id).filter(|order| order.is_waiting()) {
            batch.stock.nobody_waits_for.remove(&pair(order));
        }
        view(batch, order_id, false)
    }
}
