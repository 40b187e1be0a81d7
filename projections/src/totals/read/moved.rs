//! Movements of a period: from the rows of its days, and from single movements around them.

use std::collections::{BTreeMap, HashMap};

use chrono::NaiveDate;
use ledger_database::{FromRow, PgConnection};
use ledger_events::{AccountId, ShardId, WalletId};
use rust_decimal::Decimal;

use super::{ADDED, MOVED, Query, push_account, push_movements};
use crate::totals::Sums;
use crate::totals::bounds::{Bounds, Piece};

/// Movements of a period, by wallet and by day.
#[derive(Default)]
pub struct PeriodMovements {
    pub wallets: HashMap<WalletId, InWallet>,
    pub days: BTreeMap<(NaiveDate, String), Sums>,
}

/// Movements of a wallet.
#[derive(Default)]
pub struct InWallet {
    /// Part of the opening balance that the rows do not cover.
    pub before: Decimal,
    /// Number of movements in that part.
    before_movements: i64,
    /// Sums within the period.
    pub sums: Sums,
    /// Account of the wallet, if single movements were read.
    pub account_id: Option<AccountId>,
}

impl PeriodMovements {
    /// Returns whether a wallet had movements by the end of the period that the rows of the days before it do not cover.
    pub fn in_wallet(&self, id: WalletId) -> bool {
        self.wallets.get(&id).is_some_and(|moved| moved.before_movements + moved.sums.movements > 0)
    }
}

/// Sums of day rows, either of a wallet or of a day and currency.
#[derive(FromRow)]
struct Rows {
    wallet_id: Option<WalletId>,
    day: Option<NaiveDate>,
    currency: Option<String>,
    #[sqlx(flatten)]
    sums: Sums,
}

/// Sums of a wallet's movements on a day.
#[derive(FromRow)]
pub struct Movements {
    wallet_id: WalletId,
    account_id: AccountId,
    day: NaiveDate,
    currency: String,
    #[sqlx(flatten)]
    sums: Sums,
}

impl PeriodMovements {
    pub fn add(&mut self, piece: &Piece, row: &Movements) {
        let moved = self.wallets.entry(row.wallet_id).or_default();
        moved.before += Decimal::from(piece.in_opening) * row.sums.net();
        moved.before_movements += i64::from(piece.in_opening) * row.sums.movements;
        moved.sums.merge_times(&row.sums, piece.in_period);
        moved.account_id = Some(row.account_id);
        if piece.in_period != 0 {
            self.days.entry((row.day, row.currency.clone())).or_default().merge_times(&row.sums, piece.in_period);
        }
    }
}

/// Reads the rows once, and adds them up both by wallet and by day.
pub async fn rows(
    conn: &mut PgConnection,
    shard: ShardId,
    account: Option<AccountId>,
    bounds: &Bounds,
) -> Result<PeriodMovements, sqlx::Error> {
    let mut query = Query::new("SELECT wallet_id, day, currency, ");
    query.push(ADDED).push(" FROM daily_totals WHERE shard_id = ").push_bind(shard);
    query.push(" AND day >= ").push_bind(bounds.first_day).push(" AND day < ").push_bind(bounds.end_day);
    push_account(&mut query, account);
    query.push(" GROUP BY GROUPING SETS ((wallet_id), (day, currency))");
    let rows: Vec<Rows> = query.build_query_as().fetch_all(conn).await?;
    let mut moved = PeriodMovements::default();
    for Rows { wallet_id, day, currency, sums } in rows {
        if let Some(wallet_id) = wallet_id {
            moved.wallets.insert(wallet_id, InWallet { sums, ..InWallet::default() });
        } else if let Some(of) = day.zip(currency) {
            moved.days.insert(of, sums);
        }
    }
    Ok(moved)
}

/// Adds up the movements of a piece.
pub async fn movements(
    conn: &mut PgConnection,
    shard: ShardId,
    account: Option<AccountId>,
    piece: &Piece,
) -> Result<Vec<Movements>, sqlx::Error> {
    let mut query = Query::new("SELECT wallet_id, account_id, currency, ");
    // Computing the day of each movement costs as much as adding it up.
    match piece.day {
        Some(day) => query.push_bind(day).push("::date"),
        None => query.push("(created_at AT TIME ZONE 'UTC')::date"),
    };
    query.push(" AS day, ").push(MOVED);
    push_movements(&mut query, shard, account, piece.range);
    query.push(" GROUP BY wallet_id, account_id, currency");
    if piece.day.is_none() {
        query.push(", (created_at AT TIME ZONE 'UTC')::date");
    }
    query.build_query_as().fetch_all(conn).await
}
