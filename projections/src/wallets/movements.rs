//! Lists of movements of money: their filters, their exact totals, and pages far down.

use std::ops::Range;

use chrono::{DateTime, NaiveTime, Utc};
use ledger_database::PgConnection;
use ledger_events::placement::order_of_reference;
use ledger_events::wallet::Direction;
use ledger_events::{AccountId, Money, OrderId, Position, ShardId, TransactionId, WalletId};
use sqlx::{Postgres, QueryBuilder};

use super::Transaction;
use crate::page::{self, Listed, Page};
use crate::totals::{self, AccountPeriod};

#[derive(Clone, Debug)]
pub struct TransactionFilter {
    pub account_id: AccountId,
    pub wallet_id: Option<WalletId>,
    pub direction: Option<&'static str>,
    pub category: Option<&'static str>,
    pub amount: Option<Money>,
    pub balance_after: Option<Money>,
    pub currency: Option<String>,
    pub order_id: Option<OrderId>,
    pub reference: Option<String>,
    pub created_from: Option<DateTime<Utc>>,
    pub created_to: Option<DateTime<Utc>>,
}

/// Number of pages of a list from which on it pays to skip days.
const FAR: i64 = 25;
/// Condition of the index `wallet_transactions_except_orders` (migration 0052), which leaves out the payments of orders.
const EXCEPT_ORDERS: &str = " AND category <> 'ORDER'";
/// Condition of the index `wallet_transactions_except_orders_and_refunds` (migration 0058).
const EXCEPT_ORDERS_AND_REFUNDS: &str = " AND category NOT IN ('ORDER', 'ORDER_REFUND')";

/// Bounds of a list of movements, which the log's reader finds. No index of the movements has their times and their orders.
#[derive(Clone, Debug)]
pub struct TransactionBounds {
    /// Positions of the log between the filter's times.
    pub positions: Range<Position>,
    /// Movements of [`TransactionFilter::order`], which the events of the order name; `None` without an order.
    pub ids: Option<Vec<TransactionId>>,
}

impl TransactionFilter {
    /// Returns the order whose movements the filter names, by its id or by its reference.
    pub fn order(&self) -> Option<OrderId> {
        self.order_id.or_else(|| order_of_reference(self.reference.as_deref()?))
    }

    /// Returns the period if the days of an account have the number of its movements: nothing but the wallet, the direction and
    /// the category is filtered.
    fn period(&self) -> Option<AccountPeriod> {
        let TransactionFilter {
            account_id: account,
            wallet_id: wallet,
            direction: _,
            category: _,
            amount: None,
            balance_after: None,
            currency: None,
            order_id: None,
            reference: None,
            created_from: from,
            created_to: to,
        } = *self
        else {
            return None;
        };
        Some(AccountPeriod { account, wallet, from, to })
    }

    /// Appends ` FROM … WHERE …` for the movements of the account and the wallet.
    fn push_owner(&self, query: &mut QueryBuilder<Postgres>, shard: ShardId, positions: &Range<Position>) {
        query.push(" FROM wallet_transactions WHERE shard_id = ").push_bind(shard);
        page::equals(query, "account_id", Some(self.account_id));
        page::equals(query, "wallet_id", self.wallet_id);
        page::within(query, "position", positions);
    }

    /// Appends ` FROM … WHERE …` for the movements that match.
    fn push(&self, query: &mut QueryBuilder<Postgres>, shard: ShardId, bounds: &TransactionBounds) {
        self.push_owner(query, shard, &bounds.positions);
        page::equals(query, "type", self.direction);
        page::equals(query, "category", self.category);
        page::equals(query, "amount", self.amount.map(Money::decimal));
        page::equals(query, "balance_after", self.balance_after.map(Money::decimal));
        page::equals(query, "currency", self.currency.clone());
        page::equals(query, "order_id", self.order_id);
        page::equals(query, "reference", self.reference.clone());
        match (&bounds.ids, &self.reference) {
            (Some(ids), None) => _ = query.push(" AND id = ANY (").push_bind(ids.clone()).push(")"),
            (Some(ids), Some(reference)) => {
                // A funding may have the reference of an order.
                query.push(" AND id = ANY (").push_bind(ids.clone());
                query
                    .push(" || ARRAY(SELECT id FROM wallet_transactions WHERE category = 'FUNDING' AND shard_id = ")
                    .push_bind(shard);
                query.push(" AND reference = ").push_bind(reference.clone()).push("))");
            }
            (None, Some(_)) => _ = query.push(EXCEPT_ORDERS_AND_REFUNDS),
            (None, None) => {}
        }
        if self.category.is_some_and(|category| !["ORDER", "ORDER_REFUND"].contains(&category)) {
            query.push(EXCEPT_ORDERS_AND_REFUNDS);
        } else if self.direction == Some(Direction::Credit.as_str()) || self.category == Some("ORDER_REFUND") {
            query.push(EXCEPT_ORDERS);
        }
    }
}

/// Lists one page of an account's movements, newest first, with the total. The caller holds the snapshot (see
/// [`page::planned_snapshot`]), and has read in it the bounds.
pub async fn list_transactions(
    conn: &mut PgConnection,
    shard: ShardId,
    filter: &TransactionFilter,
    bounds: &TransactionBounds,
    page: Page,
) -> Result<Listed<Transaction>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| filter.push(query, shard, bounds);
    let Some(period) = filter.period() else {
        let total = page::count(&mut *conn, &conditions).await?;
        let rows = page::rows(&mut *conn, &conditions, "position", page.rows()).await?;
        return Ok(Listed { rows, total });
    };
    let positions = &bounds.positions;
    let total = count_in_period(&mut *conn, shard, filter, positions, period).await?;
    let (end, range) = skip(&mut *conn, shard, filter, (positions, period), total, page).await?;
    let bounds = TransactionBounds { positions: positions.start..end, ids: None };
    let conditions = |query: &mut QueryBuilder<Postgres>| filter.push(query, shard, &bounds);
    let rows = page::rows(conn, &conditions, "position", range).await?;
    Ok(Listed { rows, total })
}

/// Skips the days before a page that is far down a list, because reading their movements one by one takes long. Returns the end
/// of the positions that are left, and the page's range of the rows in them.
async fn skip(
    conn: &mut PgConnection,
    shard: ShardId,
    filter: &TransactionFilter,
    (positions, period): (&Range<Position>, AccountPeriod),
    total: i64,
    page: Page,
) -> Result<(Position, Range<i64>), sqlx::Error> {
    let rows = page.rows();
    let whole = (positions.end, rows.clone());
    let pays_orders = matches!((filter.direction, filter.category), (None, None) | (Some("DEBIT"), None) | (_, Some("ORDER")));
    if page.number <= FAR || rows.start >= total || !pays_orders {
        return Ok(whole);
    }
    // The days count all movements, so the page is at least as far up as they say.
    let others = totals::count(&mut *conn, shard, period).await? - total;
    let left = total - rows.start;
    let Some((day, first)) = totals::day_after(&mut *conn, shard, period, left + others).await? else { return Ok(whole) };
    let (end, midnight) = (first.min(positions.end), day.and_time(NaiveTime::MIN).and_utc());
    let older = AccountPeriod { to: Some(period.to.map_or(midnight, |to| to.min(midnight))), ..period };
    let older = count_in_period(conn, shard, filter, &(positions.start..end), older).await?;
    let skipped = total - older;
    Ok(if older < left { whole } else { (end, rows.start - skipped..rows.end - skipped) })
}

/// Counts the movements of a period by direction and category. The payments of orders are all movements without the others, and
/// so are the debits. The others are counted one by one.
async fn count_in_period(
    conn: &mut PgConnection,
    shard: ShardId,
    filter: &TransactionFilter,
    positions: &Range<Position>,
    period: AccountPeriod,
) -> Result<i64, sqlx::Error> {
    let without = match (filter.direction, filter.category) {
        (None, None) => return totals::count(conn, shard, period).await,
        (None | Some("DEBIT"), Some("ORDER")) => None,
        (Some("DEBIT"), None) => Some(Direction::Credit.as_str()),
        _ => {
            let bounds = TransactionBounds { positions: positions.clone(), ids: None };
            return page::count(conn, &|query| filter.push(query, shard, &bounds)).await;
        }
    };
    let others = |query: &mut QueryBuilder<Postgres>| {
        filter.push_owner(query, shard, positions);
        page::equals(query, "type", without);
        query.push(EXCEPT_ORDERS);
    };
    let all = totals::count(&mut *conn, shard, period).await?;
    Ok(all - page::count(conn, &others).await?)
}
