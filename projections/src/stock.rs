//! `stock_days` and `stock_costs`: what the voucher stock gained and lost, by product and day (UTC), catching up with the log.
//!
//! A load names its vouchers and their cost. When a voucher leaves the stock, its reference leads back to that cost. Events of
//! orders therefore need not name it, and clients who receive proofs of their orders do not learn it.
//!
//! A move to another shard brings the costs along. It changes no day, because all shards together have the same stock as
//! before. So the days of one shard alone do not add up to its stock.

mod read;

use std::collections::{BTreeMap, HashMap};

use chrono::NaiveDate;
use ledger_database::PgConnection;
use ledger_events::catalogue::{ProductEvent, VoucherStockLoaded};
use ledger_events::order::{Order, OrderEvent};
use ledger_events::price::refund_due;
use ledger_events::{Event, OrderId, Position, ProductId, Recorded, ShardId};
use rust_decimal::Decimal;
use sqlx::PgExecutor;

use crate::ProjectionError;
pub use read::{Period, of_period};

pub const NAME: &str = "stock_days";
pub const TABLES: &[&str] = &["stock_days", "stock_costs"];

/// A number of vouchers, and what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lot {
    pub vouchers: i64,
    /// Number of those without a known cost.
    pub unpriced: i64,
    pub cost: Decimal,
}

impl Lot {
    /// Adds a lot a number of times; -1 subtracts it.
    pub fn add(&mut self, more: &Lot, times: i64) {
        self.vouchers += times * more.vouchers;
        self.unpriced += times * more.unpriced;
        self.cost += Decimal::from(times) * more.cost;
    }
}

/// Movements of the stock. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    pub loaded: Lot,
    pub allocated: Lot,
    pub voided: Lot,
    pub expired: Lot,
    /// From other products.
    pub transferred_in: Lot,
    /// To other products.
    pub transferred_out: Lot,
    /// Money that customers paid for the allocated vouchers.
    pub sales: Decimal,
}

impl Moved {
    /// Returns the change of the stock.
    pub fn net(&self) -> Lot {
        let mut net = self.loaded;
        net.add(&self.transferred_in, 1);
        [self.allocated, self.voided, self.expired, self.transferred_out].iter().for_each(|left| net.add(left, -1));
        net
    }
}

/// Returns the orders that get vouchers in these events. The fold needs the state of each of them.
pub fn orders(events: &[Recorded]) -> Vec<OrderId> {
    let mut ids: Vec<OrderId> =
        events.iter().filter(|recorded| delivered(recorded).is_some()).map(|recorded| OrderId(recorded.stream_id)).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn delivered(recorded: &Recorded) -> Option<&[String]> {
    match &recorded.event {
        Event::Order(OrderEvent::OrderPartiallyDelivered(e)) => Some(&e.vouchers),
        Event::Order(OrderEvent::OrderDelivered(e)) => Some(&e.vouchers),
        _ => None,
    }
}

/// One of the movements of [`Moved`].
type Movement = fn(&mut Moved) -> &mut Lot;

/// Returns the vouchers that an event of a product names, and the movement of the product's stock to which they belong.
fn named(event: &ProductEvent) -> Option<(&[String], Movement)> {
    match event {
        ProductEvent::VouchersVoided(e) => Some((&e.vouchers, |moved| &mut moved.voided)),
        ProductEvent::VouchersExpired(e) => Some((&e.vouchers, |moved| &mut moved.expired)),
        ProductEvent::VouchersTransferredOut(e) => Some((&e.vouchers, |moved| &mut moved.transferred_out)),
        ProductEvent::VouchersTransferredIn(e) => Some((&e.vouchers, |moved| &mut moved.transferred_in)),
        _ => None,
    }
}

/// Returns the vouchers that an event takes out of the stock of a product, or brings there from another one.
fn moving(recorded: &Recorded) -> &[String] {
    match &recorded.event {
        Event::Product(event) => named(event).map(|(vouchers, _)| vouchers).unwrap_or_default(),
        _ => delivered(recorded).unwrap_or_default(),
    }
}

/// Returns the vouchers that an event brings to the shard with a known cost, by that cost.
pub fn priced(recorded: &Recorded) -> Vec<(&[String], Decimal)> {
    match &recorded.event {
        Event::Product(ProductEvent::VoucherStockLoaded(VoucherStockLoaded { cost: Some(cost), vouchers, .. })) => {
            vec![(vouchers.as_slice(), cost.decimal())]
        }
        Event::Product(ProductEvent::VouchersMovedIn(moved)) => {
            moved.lots.iter().filter_map(|lot| Some((lot.vouchers.as_slice(), lot.cost?.decimal()))).collect()
        }
        _ => vec![],
    }
}

/// Returns whether an event changes one of the tables.
pub fn is_movement(recorded: &Recorded) -> bool {
    let is_load = matches!(recorded.event, Event::Product(ProductEvent::VoucherStockLoaded(_)));
    is_load || !priced(recorded).is_empty() || !moving(recorded).is_empty()
}

/// The fold: costs of vouchers by their references, and the increments of days.
#[derive(Clone, Debug, Default)]
pub struct Folded {
    pub costs: HashMap<String, Decimal>,
    /// References and costs of the vouchers that these events bring.
    pub priced: Vec<(String, Decimal)>,
    pub days: BTreeMap<(NaiveDate, ProductId), Moved>,
}

impl Folded {
    /// Folds one event. `orders` has the state of its order at the event or later.
    pub fn step(&mut self, recorded: &Recorded, orders: &HashMap<OrderId, Order>) {
        for (references, cost) in priced(recorded) {
            self.priced.extend(references.iter().map(|reference| (reference.clone(), cost)));
            self.costs.extend(references.iter().map(|reference| (reference.clone(), cost)));
        }
        let day = recorded.moment.recorded_at.date_naive();
        if let Event::Product(event) = &recorded.event {
            let moved = (day, ProductId(recorded.stream_id));
            if let ProductEvent::VoucherStockLoaded(e) = event {
                let vouchers = i64::from(e.accepted);
                let lot = match e.cost {
                    Some(cost) => Lot { vouchers, unpriced: 0, cost: cost.decimal() * Decimal::from(vouchers) },
                    None => Lot { vouchers, unpriced: vouchers, cost: Decimal::ZERO },
                };
                self.days.entry(moved).or_default().loaded.add(&lot, 1);
            } else if let Some((vouchers, movement)) = named(event) {
                let lot = self.lot(vouchers);
                movement(self.days.entry(moved).or_default()).add(&lot, 1);
            }
        } else if let Some((vouchers, order)) = delivered(recorded).zip(orders.get(&OrderId(recorded.stream_id))) {
            let lot = self.lot(vouchers);
            let moved = self.days.entry((day, order.placed.product_id)).or_default();
            moved.allocated.add(&lot, 1);
            moved.sales += paid_for(order, vouchers);
        }
    }

    fn lot(&self, references: &[String]) -> Lot {
        let costs = references.iter().map(|reference| self.costs.get(reference));
        costs.fold(Lot::default(), |lot, cost| Lot {
            vouchers: lot.vouchers + 1,
            unpriced: lot.unpriced + i64::from(cost.is_none()),
            cost: lot.cost + cost.copied().unwrap_or_default(),
        })
    }
}

/// Returns the part of an order's amount that these vouchers of one delivery stand for. All parts and the refund add up to the
/// amount.
fn paid_for(order: &Order, vouchers: &[String]) -> Decimal {
    let deliveries = order.items.iter().map(|item| &item.vouchers);
    let before = deliveries.take_while(|others| others.first() != vouchers.first()).map(Vec::len).sum::<usize>();
    let unpaid = |delivered: usize| {
        let delivered = i32::try_from(delivered).unwrap_or(i32::MAX);
        refund_due(order.placed.amount, delivered, order.placed.quantity).map_or(Decimal::ZERO, |due| due.decimal())
    };
    unpaid(before) - unpaid(before + vouchers.len())
}

/// Returns the position up to which the tables have processed the log.
pub async fn checkpoint(db: impl PgExecutor<'_>, shard: ShardId) -> Result<Position, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT coalesce((SELECT position FROM public.projection_checkpoints WHERE shard_id = $1 AND projection = $2), 0)",
    )
    .bind(shard)
    .bind(NAME)
    .fetch_one(db)
    .await
}

/// Folds the next events of the log into the tables. `orders` are those that [`orders`] names, as of the last event or later.
pub async fn apply(
    conn: &mut PgConnection,
    shard: ShardId,
    events: &[Recorded],
    orders: &HashMap<OrderId, Order>,
) -> Result<(), ProjectionError> {
    let references: Vec<&String> = events.iter().flat_map(moving).collect();
    let mut folded = Folded { costs: costs(&mut *conn, shard, &references).await?, ..Folded::default() };
    events.iter().for_each(|recorded| folded.step(recorded, orders));
    write(conn, shard, &folded).await
}

/// Returns the costs of those vouchers that have one in the tables.
pub async fn costs(
    conn: &mut PgConnection,
    shard: ShardId,
    references: &[&String],
) -> Result<HashMap<String, Decimal>, sqlx::Error> {
    if references.is_empty() {
        return Ok(HashMap::new());
    }
    let found: Vec<(String, Decimal)> =
        sqlx::query_as("SELECT reference, cost FROM stock_costs WHERE shard_id = $1 AND reference = ANY($2)")
            .bind(shard)
            .bind(references)
            .fetch_all(conn)
            .await?;
    Ok(found.into_iter().collect())
}

async fn write(conn: &mut PgConnection, shard: ShardId, folded: &Folded) -> Result<(), ProjectionError> {
    if !folded.priced.is_empty() {
        sqlx::query(
            "INSERT INTO stock_costs (shard_id, reference, cost) SELECT $1, new.* FROM unnest($2::text[], $3::numeric[]) AS new
             ON CONFLICT (shard_id, reference) DO NOTHING",
        )
        .bind(shard)
        .bind(folded.priced.iter().map(|(reference, _)| &**reference).collect::<Vec<_>>())
        .bind(folded.priced.iter().map(|(_, cost)| *cost).collect::<Vec<_>>())
        .execute(&mut *conn)
        .await?;
    }
    if folded.days.is_empty() {
        return Ok(());
    }
    let lots: [fn(&Moved) -> Lot; 6] = [
        |moved| moved.loaded,
        |moved| moved.allocated,
        |moved| moved.voided,
        |moved| moved.expired,
        |moved| moved.transferred_in,
        |moved| moved.transferred_out,
    ];
    let mut query = sqlx::query(
        "INSERT INTO stock_days AS t (shard_id, day, product_id, sales, loaded, loaded_unpriced, loaded_cost, allocated,
            allocated_unpriced, allocated_cost, voided, voided_unpriced, voided_cost, expired, expired_unpriced, expired_cost,
            transferred_in, transferred_in_unpriced, transferred_in_cost, transferred_out, transferred_out_unpriced,
            transferred_out_cost)
         SELECT $1, new.* FROM unnest($2::date[], $3::bigint[], $4::numeric[], $5::bigint[], $6::bigint[], $7::numeric[], $8::bigint[],
            $9::bigint[], $10::numeric[], $11::bigint[], $12::bigint[], $13::numeric[], $14::bigint[], $15::bigint[], $16::numeric[],
            $17::bigint[], $18::bigint[], $19::numeric[], $20::bigint[], $21::bigint[], $22::numeric[]) AS new
         ON CONFLICT (shard_id, day, product_id) DO UPDATE SET sales = t.sales + excluded.sales,
            loaded = t.loaded + excluded.loaded, loaded_unpriced = t.loaded_unpriced + excluded.loaded_unpriced,
            loaded_cost = t.loaded_cost + excluded.loaded_cost, allocated = t.allocated + excluded.allocated,
            allocated_unpriced = t.allocated_unpriced + excluded.allocated_unpriced,
            allocated_cost = t.allocated_cost + excluded.allocated_cost, voided = t.voided + excluded.voided,
            voided_unpriced = t.voided_unpriced + excluded.voided_unpriced, voided_cost = t.voided_cost + excluded.voided_cost,
            expired = t.expired + excluded.expired, expired_unpriced = t.expired_unpriced + excluded.expired_unpriced,
            expired_cost = t.expired_cost + excluded.expired_cost, transferred_in = t.transferred_in + excluded.transferred_in,
            transferred_in_unpriced = t.transferred_in_unpriced + excluded.transferred_in_unpriced,
            transferred_in_cost = t.transferred_in_cost + excluded.transferred_in_cost,
            transferred_out = t.transferred_out + excluded.transferred_out,
            transferred_out_unpriced = t.transferred_out_unpriced + excluded.transferred_out_unpriced,
            transferred_out_cost = t.transferred_out_cost + excluded.transferred_out_cost",
    )
    .bind(shard)
    .bind(folded.days.keys().map(|(day, _)| *day).collect::<Vec<_>>())
    .bind(folded.days.keys().map(|(_, product)| *product).collect::<Vec<_>>())
    .bind(folded.days.values().map(|moved| moved.sales).collect::<Vec<_>>());
    for lot in lots {
        query = query
            .bind(folded.days.values().map(|moved| lot(moved).vouchers).collect::<Vec<_>>())
            .bind(folded.days.values().map(|moved| lot(moved).unpriced).collect::<Vec<_>>())
            .bind(folded.days.values().map(|moved| lot(moved).cost).collect::<Vec<_>>());
    }
    query.execute(conn).await?;
    Ok(())
}
