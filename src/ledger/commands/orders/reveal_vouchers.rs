use ledger_events::order::{self, OrderCommand};
use ledger_events::{AccountId, OrderId};

use super::{append, view};
use crate::ledger::commands::prelude::*;

/// Records that somebody reads the codes of an order's vouchers.
#[derive(Clone, Debug)]
pub struct RevealVouchers {
    pub account_id: AccountId,
    pub order_id: OrderId,
}

impl Handler for RevealVouchers {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.orders.id(self.order_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let order = batch.streams.orders.find(self.order_id)?;
        if order.placed.account_id != self.account_id {
            return Err(Rejection::NotFound.into());
        }
        let events = order::decide(order, OrderCommand::RevealVouchers)?;
        append(batch, self.order_id, events, context);
        view(batch, self.order_id, false)
    }
}
