//! Which vouchers the orders of a batch get.

use std::collections::HashMap;

use chrono::NaiveDate;
use ledger_database::PgConnection;
use ledger_events::order::Order;
use ledger_events::{Money, OrderId, Position, ProductId};
use ledger_projections::orders;

use super::Batch;
use crate::ledger::needs::Needs;
use crate::ledger::stock::{self, Shelf, Voucher};

impl Batch {
    /// Whether stock has to be read that a batch in flight may be claiming. Nothing else does: the
    /// rows that it changes are remembered, all others are in the tables as it found them.
    pub fn lacks_stock(&self, needs: &Needs<'_>) -> bool {
        !needs.fulfil.iter().all(|id| self.orders.contains_key(id))
            || !wanted(&self.in_line(&needs.fulfil)).iter().all(|(pair, wanted)| {
                let is_at_hand = |shelf: &Shelf| shelf.is_of(self.today()) && shelf.suffices(*wanted);
                self.nobody_waits_for.contains(pair) && self.shelves.get(pair).is_some_and(is_at_hand)
            })
    }

    /// The day by the database's clock. Not that of the log's head, which stays ahead after a clock was.
    fn today(&self) -> NaiveDate {
        self.now.date_naive()
    }

    /// The orders among these that wait for vouchers, the oldest first.
    fn in_line(&self, fulfil: &[OrderId]) -> Vec<Waiting> {
        let orders = fulfil.iter().filter_map(|id| self.orders.get(id));
        let mut waiting: Vec<_> = orders.filter(|order| order.is_waiting()).map(Waiting::of).collect();
        waiting.sort_unstable_by_key(|order| order.placed_position);
        waiting.dedup_by_key(|order| order.id);
        waiting
    }

    /// Allocates the stock to the orders of the batch, the oldest first; nobody is served before an
    /// older order that waits for the same vouchers outside of the batch.
    pub(super) async fn load_stock(&mut self, conn: &mut PgConnection, fulfil: &[OrderId]) -> Result<(), sqlx::Error> {
        let mut waiting = self.in_line(fulfil);
        let wanted = wanted(&waiting);
        stock::fill(conn, self.shard, &mut self.shelves, &wanted, self.now.date_naive()).await?;
        let unsure: Vec<_> = wanted.keys().filter(|pair| !self.nobody_waits_for.contains(*pair)).copied().collect();
        if !unsure.is_empty() {
            let (products, denominations): (Vec<_>, Vec<_>) = unsure.iter().map(|(p, d)| (*p, d.decimal())).unzip();
            let lines = orders::first_in_line(conn, self.shard, &products, &denominations, fulfil).await?;
            self.nobody_waits_for.extend(unsure);
            for (product, denomination, first) in lines {
                let denomination = Money::try_from(denomination).map_err(|e| sqlx::Error::Decode(Box::new(e)))?;
                self.nobody_waits_for.remove(&(product, denomination));
                waiting.retain(|order| order.pair != (product, denomination) || order.placed_position < first);
            }
        }
        for order in waiting {
            if let Some(shelf) = self.shelves.get_mut(&order.pair) {
                self.allocated.insert(order.id, shelf.take(order.missing));
            }
        }
        Ok(())
    }

    /// Puts back what was allocated to orders that could not use it.
    pub fn put_back_stock(&mut self) {
        let unused = std::mem::take(&mut self.allocated);
        let mut back: HashMap<_, Vec<Voucher>> = HashMap::new();
        for (id, vouchers) in unused {
            if let Some(order) = self.orders.get(&id) {
                back.entry(pair(order)).or_default().extend(vouchers);
            }
        }
        for (pair, vouchers) in back {
            if let Some(shelf) = self.shelves.get_mut(&pair) {
                shelf.put_back(vouchers);
            }
        }
    }
}

/// What an order's vouchers are of.
pub fn pair(order: &Order) -> (ProductId, Money) {
    (order.placed.product_id, order.placed.denomination)
}

/// An order that waits for vouchers.
struct Waiting {
    id: OrderId,
    pair: (ProductId, Money),
    placed_position: Position,
    missing: usize,
}

impl Waiting {
    fn of(order: &Order) -> Waiting {
        let missing = usize::try_from(order.undelivered_quantity()).unwrap_or_default();
        Waiting { id: order.id, pair: pair(order), placed_position: order.placed_position, missing }
    }
}

fn wanted(waiting: &[Waiting]) -> HashMap<(ProductId, Money), i64> {
    let mut wanted = HashMap::new();
    for order in waiting {
        *wanted.entry(order.pair).or_default() += i64::try_from(order.missing).unwrap_or(i64::MAX);
    }
    wanted
}
