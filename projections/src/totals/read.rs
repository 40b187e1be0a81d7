//! Reading totals of a period, exact as of one position of the log: whole days from `daily_totals`,
//! and what lies before, between and after them from the movements.

use std::collections::HashMap;

use chrono::{DateTime, NaiveDate, Utc};
use ledger_events::{AccountId, Position, ShardId, WalletId};
use rust_decimal::Decimal;
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection, Postgres, QueryBuilder, Row};

use super::{Day, Sums};
use crate::known;

/// A period as positions of a shard's log, and which of it whole days cover. All as of one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The last position before the period.
    pub after: Position,
    /// The period's last position.
    pub upto: Position,
    /// The first day whose rows count, and the first one after them.
    pub first_day: NaiveDate,
    pub end_day: NaiveDate,
    /// The last position before the first day.
    pub days_after: Position,
    /// The last position before the end day; that of the log where the period has no end.
    pub days_upto: Position,
    /// Where `daily_totals` stands.
    pub checkpoint: Position,
    /// Wallets opened from then on are not in the period.
    pub end: Option<DateTime<Utc>>,
}

impl Bounds {
    /// The positions that rows of whole days cover: after the first, up to the second.
    fn covered(&self) -> (Position, Position) {
        (self.days_after, self.days_upto.min(self.checkpoint).max(self.days_after))
    }

    /// What else is in the period, as ranges of the same kind.
    fn edges(&self) -> [(Position, Position); 2] {
        match self.covered() {
            (from, to) if from >= to => [(self.after, self.upto), (0, 0)],
            (from, to) => [(self.after, from.min(self.upto)), (to, self.upto)],
        }
    }

    /// From where the rows of the days before know balances, to where the period begins.
    fn bridge(&self) -> (Position, Position) {
        (self.days_after.min(self.checkpoint), self.after)
    }
}

/// What moved in a wallet, and what its balance is said to be.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct WalletTotals {
    pub wallet_id: WalletId,
    /// None if the wallet has no row.
    pub account_id: Option<AccountId>,
    pub currency: Option<String>,
    /// When the period begins.
    pub opening: Decimal,
    #[sqlx(flatten)]
    pub sums: Sums,
    /// As the wallet's row has it now.
    pub row_balance: Option<Decimal>,
    /// The wallet's last movement up to the period's end: its position, and the balance that it left.
    pub last_position: Option<Position>,
    pub last_balance: Option<Decimal>,
}

impl WalletTotals {
    pub fn closing(&self) -> Decimal {
        self.opening + self.sums.net()
    }
}

/// What moved on a day, in one currency.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct DayTotals {
    pub day: NaiveDate,
    pub currency: String,
    #[sqlx(flatten)]
    pub sums: Sums,
}

/// The columns of [`Sums`], of rows that are added up.
const ADDED: &str = "coalesce(sum(funding), 0) AS funding, coalesce(sum(order_debits), 0) AS order_debits,
    coalesce(sum(payout_debits), 0) AS payout_debits, coalesce(sum(order_refunds), 0) AS order_refunds,
    coalesce(sum(payout_refunds), 0) AS payout_refunds, coalesce(sum(adjustment_credits), 0) AS adjustment_credits,
    coalesce(sum(adjustment_debits), 0) AS adjustment_debits, coalesce(sum(movements), 0)::bigint AS movements";

/// The same, of movements.
const MOVED: &str = "coalesce(sum(amount) FILTER (WHERE category = 'FUNDING'), 0) AS funding,
    coalesce(sum(amount) FILTER (WHERE category = 'ORDER'), 0) AS order_debits,
    coalesce(sum(amount) FILTER (WHERE category = 'PAYOUT'), 0) AS payout_debits,
    coalesce(sum(amount) FILTER (WHERE category = 'ORDER_REFUND'), 0) AS order_refunds,
    coalesce(sum(amount) FILTER (WHERE category = 'PAYOUT_REFUND'), 0) AS payout_refunds,
    coalesce(sum(amount) FILTER (WHERE category = 'ADJUSTMENT' AND type = 'CREDIT'), 0) AS adjustment_credits,
    coalesce(sum(amount) FILTER (WHERE category = 'ADJUSTMENT' AND type = 'DEBIT'), 0) AS adjustment_debits,
    count(*) AS movements";

type Query = QueryBuilder<Postgres>;

fn push_account(query: &mut Query, account: Option<AccountId>) {
    if let Some(account) = account {
        query.push(" AND account_id = ").push_bind(account);
    }
}

/// ` FROM daily_totals WHERE …` of the whole days.
fn push_days(query: &mut Query, shard: ShardId, account: Option<AccountId>, bounds: &Bounds) {
    query.push(" FROM daily_totals WHERE shard_id = ").push_bind(shard);
    query.push(" AND day >= ").push_bind(bounds.first_day).push(" AND day < ").push_bind(bounds.end_day);
    push_account(query, account);
}

/// ` FROM wallet_transactions WHERE …` of a range of positions.
fn push_movements(query: &mut Query, shard: ShardId, account: Option<AccountId>, (after, upto): (Position, Position)) {
    query.push(" FROM wallet_transactions WHERE shard_id = ").push_bind(shard);
    query.push(" AND position > ").push_bind(after).push(" AND position <= ").push_bind(upto);
    push_account(query, account);
}

/// Whole days and edges together, grouped by what `of_days` and `of_movements` select.
fn push_moved(
    query: &mut Query,
    shard: ShardId,
    account: Option<AccountId>,
    bounds: &Bounds,
    of_days: &'static str,
    of_movements: &'static str,
    group: &'static str,
) {
    query.push("SELECT ").push(of_days).push(", ").push(ADDED);
    push_days(query, shard, account, bounds);
    query.push(group);
    for range in bounds.edges().into_iter().filter(|(after, upto)| after < upto) {
        query.push(" UNION ALL SELECT ").push(of_movements).push(", ").push(MOVED);
        push_movements(query, shard, account, range);
        query.push(group);
    }
}

/// Every wallet, or those of one account, that was opened before the period's end, in the order of their ids.
/// To be read in one snapshot with the bounds.
pub async fn wallets(
    conn: &mut PgConnection,
    shard: ShardId,
    account: Option<AccountId>,
    bounds: &Bounds,
) -> Result<Vec<WalletTotals>, sqlx::Error> {
    let mut query = Query::new("WITH parts AS (");
    push_moved(&mut query, shard, account, bounds, "wallet_id", "wallet_id", " GROUP BY wallet_id");
    query.push("), moved AS (SELECT wallet_id, ").push(ADDED).push(" FROM parts GROUP BY wallet_id), bridge AS (");
    let (known, begin) = bounds.bridge();
    let sign = if known <= begin { "" } else { "-" };
    query.push("SELECT wallet_id, ").push(sign).push("sum(CASE type WHEN 'CREDIT' THEN amount ELSE -amount END) AS net");
    push_movements(&mut query, shard, account, (known.min(begin), known.max(begin)));
    query.push(
        " GROUP BY wallet_id)
         SELECT coalesce(w.id, m.wallet_id) AS wallet_id, w.account_id, w.currency,
            coalesce(base.closing_balance, 0) + coalesce(bridge.net, 0) AS opening,
            coalesce(m.funding, 0) AS funding, coalesce(m.order_debits, 0) AS order_debits,
            coalesce(m.payout_debits, 0) AS payout_debits, coalesce(m.order_refunds, 0) AS order_refunds,
            coalesce(m.payout_refunds, 0) AS payout_refunds, coalesce(m.adjustment_credits, 0) AS adjustment_credits,
            coalesce(m.adjustment_debits, 0) AS adjustment_debits, coalesce(m.movements, 0) AS movements,
            w.balance AS row_balance, last.position AS last_position, last.balance_after AS last_balance
         FROM (SELECT id, account_id, currency, balance FROM wallets WHERE shard_id = ",
    );
    query.push_bind(shard);
    push_account(&mut query, account);
    if let Some(end) = bounds.end {
        query.push(" AND created_at < ").push_bind(end);
    }
    query.push(
        ") AS w FULL JOIN moved m ON m.wallet_id = w.id
         LEFT JOIN bridge ON bridge.wallet_id = coalesce(w.id, m.wallet_id)
         LEFT JOIN LATERAL (SELECT d.closing_balance FROM daily_totals d WHERE d.shard_id = ",
    );
    query.push_bind(shard).push(" AND d.wallet_id = coalesce(w.id, m.wallet_id) AND d.day < ").push_bind(bounds.first_day);
    query.push(
        " ORDER BY d.day DESC LIMIT 1) AS base ON true
         LEFT JOIN LATERAL (SELECT t.position, t.balance_after FROM wallet_transactions t WHERE t.shard_id = ",
    );
    query.push_bind(shard).push(" AND t.account_id = w.account_id AND t.wallet_id = w.id AND t.position <= ");
    query.push_bind(bounds.upto).push(" ORDER BY t.position DESC LIMIT 1) AS last ON true ORDER BY 1");
    query.build_query_as().fetch_all(conn).await
}

/// What moved on each day, by currency, in their order. To be read in one snapshot with the bounds.
pub async fn days(
    conn: &mut PgConnection,
    shard: ShardId,
    account: Option<AccountId>,
    bounds: &Bounds,
) -> Result<Vec<DayTotals>, sqlx::Error> {
    let mut query = Query::new("WITH parts AS (");
    let of_movements = "(created_at AT TIME ZONE 'UTC')::date AS day, currency";
    push_moved(&mut query, shard, account, bounds, "day, currency", of_movements, " GROUP BY 1, 2");
    query.push(") SELECT day, currency, ").push(ADDED).push(" FROM parts GROUP BY day, currency ORDER BY day, currency");
    query.build_query_as().fetch_all(conn).await
}

/// The rows of the days from one on and before another one, of one account or of all.
pub async fn between(
    conn: &mut PgConnection,
    shard: ShardId,
    account: Option<AccountId>,
    (from, end): (NaiveDate, NaiveDate),
) -> Result<HashMap<(WalletId, NaiveDate), Day>, sqlx::Error> {
    let mut query = Query::new("SELECT * FROM daily_totals WHERE shard_id = ");
    query.push_bind(shard).push(" AND day >= ").push_bind(from).push(" AND day < ").push_bind(end);
    push_account(&mut query, account);
    let rows = query.build().fetch_all(conn).await?;
    let row = |row: PgRow| {
        let currency: &str = row.try_get("currency")?;
        let (wallet_id, day) = (row.try_get("wallet_id")?, row.try_get("day")?);
        let of_day = Day {
            wallet_id,
            day,
            account_id: row.try_get("account_id")?,
            currency: known(currency.parse().ok(), currency)?,
            sums: Sums::from_row(&row)?,
            closing_balance: row.try_get("closing_balance")?,
            first_position: row.try_get("first_position")?,
            last_position: row.try_get("last_position")?,
        };
        Ok(((wallet_id, day), of_day))
    };
    rows.into_iter().map(row).collect()
}

/// Days that lie wholly in a period, and the positions that they cover: after `first`, up to `last`.
#[derive(FromRow)]
struct Whole {
    #[sqlx(flatten)]
    sums: Sums,
    first: Position,
    last: Position,
}

/// What moved in one wallet after a position and up to another one: its whole days, and the
/// movements before and after them. What a day has gained meanwhile is not in the period, and
/// movements stay as they are: so this needs no snapshot.
pub async fn of_wallet(
    conn: &mut PgConnection,
    shard: ShardId,
    (account, wallet): (AccountId, WalletId),
    (after, upto): (Position, Position),
) -> Result<Sums, sqlx::Error> {
    let mut query = Query::new("SELECT ");
    query
        .push(ADDED)
        .push(", coalesce(min(first_position) - 1, ")
        .push_bind(upto)
        .push(") AS first, coalesce(max(last_position), ");
    query.push_bind(upto).push(") AS last FROM daily_totals WHERE shard_id = ").push_bind(shard);
    query.push(" AND wallet_id = ").push_bind(wallet);
    query.push(" AND first_position > ").push_bind(after).push(" AND last_position <= ").push_bind(upto);
    let Whole { mut sums, first, last } = query.build_query_as().fetch_one(&mut *conn).await?;
    for range in [(after, first), (last, upto)].into_iter().filter(|(after, upto)| after < upto) {
        let mut query = Query::new("SELECT ");
        query.push(MOVED);
        push_movements(&mut query, shard, Some(account), range);
        query.push(" AND wallet_id = ").push_bind(wallet);
        let edge: Sums = query.build_query_as().fetch_one(&mut *conn).await?;
        sums.merge(&edge);
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn bounds(after: Position, upto: Position, days: (Position, Position), checkpoint: Position) -> Bounds {
        let day = NaiveDate::from_ymd_opt(2026, 1, 1).unwrap();
        Bounds { after, upto, first_day: day, end_day: day, days_after: days.0, days_upto: days.1, checkpoint, end: None }
    }

    /// Every position of the period is in exactly one of the parts, wherever the checkpoint is.
    #[test]
    fn the_parts_make_the_period() {
        for after in 0..6 {
            for upto in after..9 {
                for first in after..=upto {
                    for last in first..=upto {
                        for checkpoint in 0..10 {
                            let bounds = bounds(after, upto, (first, last), checkpoint);
                            let (from, to) = bounds.covered();
                            let parts = [&[(from, to)][..], &bounds.edges()].concat();
                            for position in 1..10 {
                                let times = parts.iter().filter(|(a, b)| *a < position && position <= *b).count();
                                let is_in = after < position && position <= upto;
                                assert_eq!(times, usize::from(is_in), "{position}: {bounds:?}");
                            }
                        }
                    }
                }
            }
        }
    }
}
