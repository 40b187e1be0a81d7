//! Allocation of vouchers to the orders of a batch.

use std::collections::HashMap;

use chrono::NaiveDate;
use ledger_database::PgConnection;
use ledger_events::order::Order;
use ledger_events::{Money, OrderId, Position, ProductId};
use ledger_projections::orders;

use super::Batch;
use crate::ledger::read_set::ReadSet;
use crate::ledger::stock::{self, Shelf, Voucher, pair};

impl Batch {
    /// Returns whether the batch has to read stock that a batch in flight may be claiming. Only stock is affected: rows that
    /// the batch in flight changes are cached, and all others are in the tables as it found them.
    pub fn lacks_stock(&self, reads: &ReadSet<'_>) -> bool {
        !reads.fulfilled.iter().all(|id| self.streams.orders.loaded(*id).is_some())
            || !wanted(&self.waiting(&reads.fulfilled)).iter().all(|(pair, wanted)| {
                let is_at_hand = |shelf: &Shelf| shelf.is_of(self.today()) && shelf.suffices(*wanted);
                self.stock.nobody_waits_for.contains(pair) && self.stock.shelves.get(pair).is_some_and(is_at_hand)
            })
    }

    /// Returns the day by the database's clock. The head's time is no substitute: it stays ahead after a clock was ahead.
    fn today(&self) -> NaiveDate {
        self.now.date_naive()
    }

    /// Returns the orders that wait for vouchers, the oldest first.
    fn waiting(&self, fulfilled: &[OrderId]) -> Vec<Waiting> {
        let orders = fulfilled.iter().filter_map(|id| self.streams.orders.loaded(*id));
        let mut waiting: Vec<_> = orders.filter(|order| order.is_waiting()).map(Waiting::from).collect();
        waiting.sort_unstable_by_key(|order| order.placed_position);
        waiting.dedup_by_key(|order| order.id);
        waiting
    }

    /// Allocates stock to the orders of the batch, the oldest first. An older order outside of the batch that waits for the
    /// same vouchers comes before them.
    pub(super) async fn load_stock(&mut self, conn: &mut PgConnection, fulfilled: &[OrderId]) -> Result<(), sqlx::Error> {
        let mut waiting = self.waiting(fulfilled);
        let wanted = wanted(&waiting);
        let (shard, today, stock) = (self.shard, self.today(), &mut self.stock);
        stock::fill(conn, shard, &mut stock.shelves, &wanted, today).await?;
        let unsure: Vec<_> = wanted.keys().filter(|pair| !stock.nobody_waits_for.contains(*pair)).copied().collect();
        if !unsure.is_empty() {
            let (products, denominations): (Vec<_>, Vec<_>) = unsure.iter().map(|(p, d)| (*p, d.decimal())).unzip();
            let lines = orders::first_in_line(conn, shard, &products, &denominations, fulfilled).await?;
            stock.nobody_waits_for.extend(unsure);
            for (product, denomination, first) in lines {
                let denomination = Money::try_from(denomination).map_err(|e| sqlx::Error::Decode(Box::new(e)))?;
                stock.nobody_waits_for.remove(&(product, denomination));
                waiting.retain(|order| order.pair != (product, denomination) || order.placed_position < first);
            }
        }
        for order in waiting {
            if let Some(shelf) = stock.shelves.get_mut(&order.pair) {
                stock.allocated.insert(order.id, shelf.take(order.missing));
            }
        }
        Ok(())
    }

    /// Puts back vouchers of orders that could not use them.
    pub fn put_back_stock(&mut self) {
        let unused = std::mem::take(&mut self.stock.allocated);
        let mut back: HashMap<_, Vec<Voucher>> = HashMap::new();
        for (id, vouchers) in unused {
            if let Some(order) = self.streams.orders.loaded(id) {
                back.entry(pair(order)).or_default().extend(vouchers);
            }
        }
        for (pair, vouchers) in back {
            if let Some(shelf) = self.stock.shelves.get_mut(&pair) {
                shelf.put_back(vouchers);
            }
        }
    }
}

/// An order that waits for vouchers.
struct Waiting {
    id: OrderId,
    pair: (ProductId, Money),
    placed_position: Position,
    missing: usize,
}

impl From<&Order> for Waiting {
    fn from(order: &Order) -> Waiting {
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
