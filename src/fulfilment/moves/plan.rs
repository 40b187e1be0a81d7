//! The plan of moves: the oldest orders get the stock of all shards, and each shard keeps what its own orders get of it.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use ledger_database::PgConnection;
use ledger_events::{Money, ProductId, ShardId};
use ledger_projections::orders;
use rust_decimal::Decimal;

use crate::ledger::moves::{MAX_MOVED, Move};
use crate::ledger::{shard_load, stock};

/// Number of waiting orders of each shard that a look reads for a product and denomination, the oldest ones.
const ORDERS: usize = 512;
/// Number of free vouchers up to which a look counts. The oldest orders of a look seldom lack more.
pub(super) const COUNTED: i64 = 10_000;

/// Planner of moves, with the waiting orders and the stock of a look.
#[derive(Debug, Default)]
pub struct Planner {
    goods: BTreeMap<(ProductId, Money), Goods>,
    /// Number of shards between which stock moves.
    shards: i64,
}

impl Planner {
    /// Reads the waiting orders and the stock of the shards that an operator has added, and of the first one. Nodes of the last
    /// release, which cannot read moves, may still run on a ledger with a shard that was made by hand.
    ///
    /// # Errors
    /// Any error of the database.
    pub async fn load(conn: &mut PgConnection) -> Result<Planner, sqlx::Error> {
        let shards = shard_load::announced(&mut *conn).await?;
        if shards.len() < 2 {
            return Ok(Planner::default());
        }
        let mut wanted: BTreeSet<(ProductId, Decimal)> = BTreeSet::new();
        for shard in &shards {
            wanted.extend(orders::waiting_for(&mut *conn, *shard).await?);
        }
        let wanted: Vec<(ProductId, Decimal)> = wanted.into_iter().collect();
        let mut goods: BTreeMap<(ProductId, Money), Goods> = BTreeMap::new();
        for (shard, product, denomination, vouchers) in stock::available_pairs(&mut *conn, &shards, &wanted, COUNTED).await? {
            goods.entry((product, money(denomination)?)).or_default().stock.insert(shard, vouchers);
        }
        let stocked: Vec<(ProductId, Decimal)> = goods.keys().map(|(product, money)| (*product, money.decimal())).collect();
        let limit = i64::try_from(ORDERS).unwrap_or(i64::MAX);
        for order in orders::waiting_since(&mut *conn, &shards, &stocked, limit).await? {
            let waiting = Waiting { shard: order.shard_id, placed_at: order.placed_at, missing: order.missing };
            goods.entry((order.product_id, money(order.denomination)?)).or_default().waiting.push(waiting);
        }
        Ok(Planner { goods, shards: i64::try_from(shards.len()).unwrap_or(i64::MAX) })
    }

    /// Plans the moves, those for the orders that were placed first before the others.
    pub fn moves(&self) -> Vec<Move> {
        let mut moves = vec![];
        for (&(product_id, denomination), goods) in &self.goods {
            moves.extend(goods.shares(self.shards, ORDERS).into_iter().map(|Share { from, to, vouchers, since }| {
                (since, Move { from, to, product_id, denomination, vouchers: vouchers.min(MAX_MOVED) })
            }));
        }
        moves.sort_by_key(|(since, _)| *since);
        moves.into_iter().map(|(_, wanted)| wanted).collect()
    }

    /// Keeps this number of vouchers, which cannot move, for the orders of their own shard. It gives no others away.
    pub fn withhold(&mut self, (from, product_id, denomination): (ShardId, ProductId, Money), vouchers: i64) {
        let goods = self.goods.entry((product_id, denomination)).or_default();
        goods.stock.remove(&from);
        goods.withheld.insert(from, vouchers);
    }
}

/// Plans the moves that the waiting orders and the stock need now.
///
/// # Errors
/// Any error of the database.
pub async fn planned(conn: &mut PgConnection) -> Result<Vec<Move>, sqlx::Error> {
    Ok(Planner::load(conn).await?.moves())
}

fn money(denomination: Decimal) -> Result<Money, sqlx::Error> {
    Money::try_from(denomination).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

/// An order that waits for vouchers of one product and denomination.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    shard: ShardId,
    placed_at: DateTime<Utc>,
    missing: i64,
}

/// Vouchers that a shard gives to another one, and the time since which the first of the orders that get them waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    from: ShardId,
    to: ShardId,
    vouchers: i64,
    since: DateTime<Utc>,
}

/// Orders that wait for vouchers of one product and denomination, and the free vouchers of each shard.
#[derive(Clone, Debug, Default)]
struct Goods {
    /// Those of a shard are in the order of their positions.
    waiting: Vec<Waiting>,
    stock: BTreeMap<ShardId, i64>,
    /// Vouchers that only orders of their shard can get.
    withheld: BTreeMap<ShardId, i64>,
}

impl Goods {
    /// Gives the stock of all shards to the oldest orders. Returns the vouchers that must move for that, those of the oldest
    /// order first, each with a reserve. `listed` is the number of orders of a shard after which there may be more than are
    /// known.
    fn shares(&self, shards: i64, listed: usize) -> Vec<Share> {
        let (waiting, is_whole) = self.comparable(listed);
        let mut left: i64 = self.stock.values().sum();
        let (mut own, mut withheld) = (self.stock.clone(), self.withheld.clone());
        let mut short = vec![];
        for order in waiting {
            let kept = withheld.entry(order.shard).or_default();
            let of_kept = order.missing.min(*kept);
            *kept -= of_kept;
            let granted = (order.missing - of_kept).min(left);
            left -= granted;
            let at_hand = own.entry(order.shard).or_default();
            let lacking = granted - granted.min(*at_hand);
            *at_hand -= granted - lacking;
            if lacking > 0 {
                short.push((order, lacking));
            }
        }
        let mut shares = spread(&short, &mut own);
        // The next orders there then find some, so that not each of them waits for a move of its own.
        for share in shares.iter_mut().filter(|_| is_whole) {
            share.vouchers += own.get(&share.from).copied().unwrap_or_default() / (shards + 1);
        }
        shares
    }

    /// Returns the waiting orders, the oldest first, and whether these are all. If the list of a shard may go on, an order that
    /// was placed after its last one is left out: an older one may be missing.
    fn comparable(&self, listed: usize) -> (Vec<Waiting>, bool) {
        let mut lists: BTreeMap<ShardId, (usize, DateTime<Utc>)> = BTreeMap::new();
        for order in &self.waiting {
            let (orders, last) = lists.entry(order.shard).or_insert((0, order.placed_at));
            (*orders, *last) = (*orders + 1, order.placed_at);
        }
        let cut = lists.into_iter().filter(|(_, (orders, _))| *orders >= listed).map(|(shard, (_, last))| (last, shard)).min();
        let mut waiting = self.waiting.clone();
        waiting.retain(|order| cut.is_none_or(|cut| (order.placed_at, order.shard) <= cut));
        waiting.sort_by_key(|order| (order.placed_at, order.shard)); // stable: the orders of a shard stay in their order
        (waiting, cut.is_none())
    }
}

/// Takes what orders lack from the shards that can spare it.
fn spread(short: &[(Waiting, i64)], own: &mut BTreeMap<ShardId, i64>) -> Vec<Share> {
    let mut shares: Vec<Share> = vec![];
    for &(order, mut lacking) in short {
        for (&from, spare) in own.iter_mut().filter(|(_, spare)| **spare > 0) {
            let vouchers = lacking.min(*spare);
            if vouchers == 0 {
                break;
            }
            lacking -= vouchers;
            *spare -= vouchers;
            match shares.iter_mut().find(|share| (share.from, share.to) == (from, order.shard)) {
                Some(share) => share.vouchers += vouchers,
                None => shares.push(Share { from, to: order.shard, vouchers, since: order.placed_at }),
            }
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000 + second, 0).unwrap_or_default()
    }

    fn waiting(orders: &[(ShardId, i64, i64)]) -> Vec<Waiting> {
        orders
            .iter()
            .map(|(shard, second, missing)| Waiting { shard: *shard, placed_at: at(*second), missing: *missing })
            .collect()
    }

    fn goods(orders: &[(ShardId, i64, i64)], stock: &[(ShardId, i64)]) -> Goods {
        Goods { waiting: waiting(orders), stock: stock.iter().copied().collect(), withheld: BTreeMap::new() }
    }

    fn share(from: ShardId, to: ShardId, vouchers: i64, second: i64) -> Share {
        Share { from, to, vouchers, since: at(second) }
    }

    #[test]
    fn the_oldest_order_gets_its_vouchers_first_in_whichever_shard_it_waits() {
        let shares = |orders: &[_], stock: &[_]| goods(orders, stock).shares(4, ORDERS);
        assert_eq!(shares(&[(2, 1, 2), (1, 2, 2), (2, 3, 2)], &[(1, 5)]), [share(1, 2, 3, 1)]);
        assert_eq!(shares(&[(1, 1, 4), (2, 2, 2)], &[(1, 5)]), [share(1, 2, 1, 2)]);
        assert!(shares(&[(1, 1, 5), (2, 2, 2)], &[(1, 5)]).is_empty(), "an older order needs all of them");
        assert!(shares(&[(1, 1, 1)], &[(1, 5)]).is_empty(), "they are at hand");
        assert!(shares(&[], &[(1, 5)]).is_empty());
        assert_eq!(shares(&[(4, 1, 1), (2, 2, 2)], &[(1, 1), (3, 2)]), [share(1, 4, 1, 1), share(3, 2, 2, 2)]);
    }

    #[test]
    fn a_shard_that_lacks_vouchers_gets_a_reserve_of_what_nobody_waits_for() {
        assert_eq!(goods(&[(2, 1, 1)], &[(1, 10)]).shares(2, ORDERS), [share(1, 2, 4, 1)]);
        assert_eq!(goods(&[(2, 1, 1), (1, 2, 7)], &[(1, 10)]).shares(2, ORDERS), [share(1, 2, 1, 1)]);
        let both = goods(&[(2, 1, 1), (3, 2, 1)], &[(1, 10)]).shares(3, ORDERS);
        assert_eq!(both, [share(1, 2, 3, 1), share(1, 3, 3, 2)]);
    }

    #[test]
    fn orders_beyond_the_end_of_a_full_list_are_left_out_in_all_shards() {
        // The first shard has three orders, and may have more that are older than those of the second one at 5 and 9.
        let goods = goods(&[(1, 1, 1), (1, 2, 1), (1, 4, 1), (2, 3, 1), (2, 5, 1), (2, 9, 1)], &[(1, 9)]);
        assert_eq!(goods.shares(2, 3), [share(1, 2, 1, 3)], "without a reserve, which the orders beyond may need");
        assert_eq!(goods.shares(2, 4), [share(1, 2, 4, 3)]);
    }

    #[test]
    fn vouchers_that_cannot_move_serve_their_own_shard_and_no_other() {
        let (product_id, denomination) = (ProductId(1), Money::ZERO);
        let of_orders = goods(&[(2, 1, 2), (1, 2, 2), (4, 3, 1)], &[(1, 4), (3, 2)]);
        let mut planner = Planner { goods: BTreeMap::from([((product_id, denomination), of_orders)]), shards: 4 };
        let wanted = Move { from: 1, to: 2, product_id, denomination, vouchers: 2 };
        assert_eq!(planner.moves()[0], wanted);
        planner.withhold((wanted.from, wanted.product_id, wanted.denomination), 4);
        assert_eq!(planner.moves(), [Move { from: 3, ..wanted }], "the oldest order gets those of the third shard");
    }

    /// Returns what each of these orders gets of a shelf, the first order first.
    fn served<'a>(orders: impl Iterator<Item = &'a Waiting>, mut shelf: i64) -> Vec<i64> {
        let serve = |order: &Waiting| {
            let served = order.missing.min(shelf);
            shelf -= served;
            served
        };
        orders.map(serve).collect()
    }

    proptest! {
        /// After the moves, each shard gives its orders what one shelf for all shards would give them. Nothing but a reserve, of
        /// vouchers that no order waits for, moves without need.
        #[test]
        fn the_stock_of_all_shards_serves_the_orders_as_one_shelf_would(
            orders in prop::collection::vec((1i16..5, 0i64..12, 1i64..6), 0..24),
            stock in prop::collection::btree_map(1i16..5, 1i64..40, 0..5),
        ) {
            let goods = Goods { waiting: waiting(&orders), stock: stock.clone(), withheld: BTreeMap::new() };
            let (sorted, _) = goods.comparable(ORDERS);
            let as_one = served(sorted.iter(), stock.values().sum());
            let shares = goods.shares(4, ORDERS);
            let mut after = stock.clone();
            for Share { from, to, vouchers, .. } in &shares {
                prop_assert!(from != to && *vouchers > 0);
                *after.entry(*from).or_default() -= vouchers;
                *after.entry(*to).or_default() += vouchers;
            }
            let mut needed = 0;
            for shard in 1..5 {
                let is_here = |order: &&Waiting| order.shard == shard;
                let apart = served(sorted.iter().filter(is_here), after.get(&shard).copied().unwrap_or_default());
                let expected: Vec<i64> =
                    sorted.iter().zip(&as_one).filter(|(order, _)| order.shard == shard).map(|(_, served)| *served).collect();
                needed += (expected.iter().sum::<i64>() - stock.get(&shard).copied().unwrap_or_default()).max(0);
                prop_assert_eq!(apart, expected, "shard {}", shard);
                let gives = shares.iter().any(|share| share.from == shard);
                prop_assert!(!gives || shares.iter().all(|share| share.to != shard), "shard {} gives and takes", shard);
            }
            prop_assert!(after.values().all(|vouchers| *vouchers >= 0));
            prop_assert!(shares.is_sorted_by_key(|share| share.since));
            let spare = stock.values().sum::<i64>() - as_one.iter().sum::<i64>();
            let reserve = shares.iter().map(|share| share.vouchers).sum::<i64>() - needed;
            prop_assert!(reserve >= 0 && reserve * 5 <= spare * 3, "{} of {} spare ones are moved as a reserve", reserve, spare);
        }
    }
}
