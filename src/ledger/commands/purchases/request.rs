use ledger_events::purchase::{Purchase, PurchaseRequested};
use ledger_events::{Currency, Money, OrderId, ProductId};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;

use crate::ledger::commands::prelude::*;
use crate::ledger::streams::Asked;

/// Maximum number of vouchers in one purchase: as many as one command adds to the stock.
const MAX_QUANTITY: i64 = 1_000;

/// Makes a purchase of what an order lacks, as far as the budget of the day allows it, unless the stock and open purchases of all
/// shards cover what all orders for these vouchers lack. The supplier is asked afterwards.
///
/// # Errors
/// [`Rejection::Conflict`] if the budget is too small for one voucher.
#[derive(Clone, Debug)]
pub struct RequestPurchase {
    pub order_id: OrderId,
    pub product_id: ProductId,
    pub denomination: Money,
    pub currency: Currency,
    pub supplier: String,
    pub sku: String,
    /// Most money that may be spent at the supplier in this currency on a day (UTC).
    pub budget: Money,
}

impl Handler for RequestPurchase {
    /// The demand is read from the tables, so no other command of the batch may change it.
    const IS_SOLITARY: bool = true;

    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.orders.id(self.order_id);
        reads.streams.products.id(self.product_id);
        reads.streams.purchases.new_id();
        let (product_id, denomination, account) = (self.product_id, self.denomination, (&*self.supplier, self.currency));
        reads.streams.purchases.query.demands.push(Asked { product_id, denomination, account });
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let order = batch.streams.orders.find(self.order_id)?;
        let placed = &order.placed;
        let is_same = (placed.product_id, placed.denomination) == (self.product_id, self.denomination);
        if !order.is_waiting() || !order.is_queued || !is_same || placed.currency != self.currency {
            return Ok(CommandResult::Purchase(None));
        }
        let named = &batch.streams.products.find(self.product_id)?.details.supplier;
        if named.as_ref().is_none_or(|named| (&named.name, &named.sku) != (&self.supplier, &self.sku)) {
            return Ok(CommandResult::Purchase(None));
        }
        let demand = batch.streams.purchases.index.demand.get(&(self.product_id, self.denomination)).copied();
        let demand = demand.unwrap_or_default();
        let undelivered = i64::from(order.undelivered_quantity());
        let lacking = undelivered.min(demand.lacking).min(demand.lacking_everywhere).min(MAX_QUANTITY);
        if lacking <= 0 {
            return Ok(CommandResult::Purchase(None));
        }
        // A voucher costs at most its face value, as far as anybody knows before the supplier names its price.
        let room = (self.budget.decimal() - demand.spent).checked_div(self.denomination.decimal()).unwrap_or_default();
        let quantity = lacking.min(room.floor().to_i64().unwrap_or_default());
        if quantity <= 0 {
            return Err(Rejection::Conflict("the supplier's budget of the day is used up").into());
        }
        let reserved = self.denomination.decimal() * Decimal::from(quantity);
        let reserved = Money::try_from(reserved).map_err(|_| Rejection::Conflict("the purchase is too large"))?;
        let requested = PurchaseRequested {
            order_id: self.order_id,
            product_id: self.product_id,
            currency: self.currency,
            denomination: self.denomination,
            quantity: i32::try_from(quantity).unwrap_or(i32::MAX),
            supplier: self.supplier.clone(),
            sku: self.sku.clone(),
            reserved,
        };
        let id = batch.streams.purchases.next_id()?;
        batch.append::<Purchase>(id, requested, context);
        Ok(CommandResult::Purchase(Some(Box::new(batch.streams.purchases.find(id)?.clone()))))
    }
}
