//! Reading totals of a period, exact as of one position of the log: days from `daily_totals`, and what lies before and
//! after them, or is in their rows and not in the period, from the movements.

use std::collections::{BTreeMap, HashMap, HashSet};

use chrono::NaiveDate;
use ledger_events::{AccountId, Position, ShardId, WalletId};
use rust_decimal::Decimal;
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection, Postgres, QueryBuilder, Row};

use super::bounds::{Bounds, Piece};
use super::{Day, Sums};
use crate::known;

/// What moved in a wallet, and what its balance is said to be.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct WalletTotals {
    pub wallet_id: WalletId,
    /// None if the wallet has no row.
    pub account_id: Option<AccountId>,
    pub currency: Option<String>,
    /// When the period begins.
    pub opening: Decimal,
    #[sqlx(skip)]
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

/// What a period's totals are, as of one snapshot.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Every wallet that was opened before the period's end, in the order of their ids.
    pub wallets: Vec<WalletTotals>,
    /// What moved on each day, by currency.
    pub days: BTreeMap<(NaiveDate, String), Sums>,
}

/// The columns of [`Sums`], of rows that are added up. Most amounts of a row are zero, and need not be.
const ADDED: &str = "coalesce(sum(nullif(funding, 0)), 0) AS funding, coalesce(sum(nullif(order_debits, 0)), 0) AS order_debits,
    coalesce(sum(nullif(payout_debits, 0)), 0) AS payout_debits, coalesce(sum(nullif(order_refunds, 0)), 0) AS order_refunds,
    coalesce(sum(nullif(payout_refunds, 0)), 0) AS payout_refunds,
    coalesce(sum(nullif(adjustment_credits, 0)), 0) AS adjustment_credits,
    coalesce(sum(nullif(adjustment_debits, 0)), 0) AS adjustment_debits, coalesce(sum(movements), 0)::bigint AS movements";

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

/// ` FROM wallet_transactions WHERE …` of a range of positions.
fn push_movements(query: &mut Query, shard: ShardId, account: Option<AccountId>, (after, upto): (Position, Position)) {
    query.push(" FROM wallet_transactions WHERE shard_id = ").push_bind(shard);
    query.push(" AND position > ").push_bind(after).push(" AND position <= ").push_bind(upto);
    push_account(query, account);
}

/// The totals of a period, of all wallets or of one account's. Both connections see the snapshot that the bounds are of:
/// what is added up and what is looked up cost about the same, and are had at once.
pub async fn of_period(
    (one, other): (&mut PgConnection, &mut PgConnection),
    shard: ShardId,
    account: Option<AccountId>,
    bounds: &Bounds,
) -> Result<Totals, sqlx::Error> {
    let rows = rows(one, shard, account, bounds);
    let beside = async {
        let mut pieces = vec![];
        for piece in bounds.pieces() {
            pieces.push((piece, movements(&mut *other, shard, account, &piece).await?));
        }
        Ok::<_, sqlx::Error>((pieces, opened_before(&mut *other, shard, account, bounds).await?))
    };
    let (mut moved, (pieces, mut wallets)) = futures::try_join!(rows, beside)?;
    for (piece, rows) in pieces {
        rows.iter().for_each(|row| moved.add(&piece, row));
    }
    let known: HashSet<WalletId> = wallets.iter().map(|wallet| wallet.wallet_id).collect();
    let others: Vec<WalletId> = moved.wallets.keys().copied().filter(|id| !known.contains(id)).collect();
    if !others.is_empty() {
        let mut others = of_ids(&mut *other, shard, account, bounds, &others).await?;
        // One that was opened after the period, on a day whose rows are added up.
        let is_later = |wallet: &WalletTotals| {
            wallet.row_balance.is_some() && moved.wallets.get(&wallet.wallet_id).is_none_or(|(_, sums)| sums.movements == 0)
        };
        others.retain(|wallet| !is_later(wallet));
        wallets.append(&mut others);
        wallets.sort_unstable_by_key(|wallet| wallet.wallet_id);
    }
    for wallet in &mut wallets {
        if let Some((before, sums)) = moved.wallets.get(&wallet.wallet_id) {
            wallet.opening += before;
            wallet.sums = *sums;
        }
    }
    Ok(Totals { wallets, days: moved.days })
}

/// What moved.
#[derive(Default)]
struct Moved {
    /// Beyond what rows know of the balance when the period begins, and in the period.
    wallets: HashMap<WalletId, (Decimal, Sums)>,
    days: BTreeMap<(NaiveDate, String), Sums>,
}

/// Rows of days, of a wallet or of a day and currency.
#[derive(FromRow)]
struct Rows {
    wallet_id: Option<WalletId>,
    day: Option<NaiveDate>,
    currency: Option<String>,
    #[sqlx(flatten)]
    sums: Sums,
}

/// A wallet's movements of a day.
#[derive(FromRow)]
struct Movements {
    wallet_id: WalletId,
    day: NaiveDate,
    currency: String,
    #[sqlx(flatten)]
    sums: Sums,
}

impl Moved {
    fn add(&mut self, piece: &Piece, row: &Movements) {
        let (before, sums) = self.wallets.entry(row.wallet_id).or_default();
        *before += Decimal::from(piece.in_opening) * row.sums.net();
        sums.merge_times(&row.sums, piece.in_period);
        if piece.in_period != 0 {
            self.days.entry((row.day, row.currency.clone())).or_default().merge_times(&row.sums, piece.in_period);
        }
    }
}

/// All that rows tell, in one look at each.
async fn rows(
    conn: &mut PgConnection,
    shard: ShardId,
    account: Option<AccountId>,
    bounds: &Bounds,
) -> Result<Moved, sqlx::Error> {
    let mut query = Query::new("SELECT wallet_id, day, currency, ");
    query.push(ADDED).push(" FROM daily_totals WHERE shard_id = ").push_bind(shard);
    query.push(" AND day >= ").push_bind(bounds.first_day).push(" AND day < ").push_bind(bounds.end_day);
    push_account(&mut query, account);
    query.push(" GROUP BY GROUPING SETS ((wallet_id), (day, currency))");
    let rows: Vec<Rows> = query.build_query_as().fetch_all(conn).await?;
    let mut moved = Moved::default();
    for Rows { wallet_id, day, currency, sums } in rows {
        if let Some(wallet_id) = wallet_id {
            moved.wallets.insert(wallet_id, (Decimal::ZERO, sums));
        } else if let Some(of) = day.zip(currency) {
            moved.days.insert(of, sums);
        }
    }
    Ok(moved)
}

/// The movements of a piece.
async fn movements(
    conn: &mut PgConnection,
    shard: ShardId,
    account: Option<AccountId>,
    piece: &Piece,
) -> Result<Vec<Movements>, sqlx::Error> {
    let mut query = Query::new("SELECT wallet_id, currency, ");
    // The day of each movement costs as much as adding it up.
    match piece.day {
        Some(day) => query.push_bind(day).push("::date"),
        None => query.push("(created_at AT TIME ZONE 'UTC')::date"),
    };
    query.push(" AS day, ").push(MOVED);
    push_movements(&mut query, shard, account, piece.range);
    query.push(" GROUP BY wallet_id, currency");
    if piece.day.is_none() {
        query.push(", (created_at AT TIME ZONE 'UTC')::date");
    }
    query.build_query_as().fetch_all(conn).await
}

/// How wallets stand, without what moved; the opening balance is what rows of the days before know. ` w` and its columns
/// are to follow.
const STANDING: &str =
    "SELECT w.wallet_id, w.account_id, w.currency, coalesce(base.closing_balance, 0) AS opening, w.balance AS row_balance,
    last.position AS last_position, last.balance_after AS last_balance FROM ";

/// Ends a query that begins with [`STANDING`].
async fn standing(
    mut query: Query,
    conn: &mut PgConnection,
    shard: ShardId,
    bounds: &Bounds,
) -> Result<Vec<WalletTotals>, sqlx::Error> {
    query.push(" AS w LEFT JOIN LATERAL (SELECT d.closing_balance FROM daily_totals d WHERE d.shard_id = ").push_bind(shard);
    query.push(" AND d.wallet_id = w.wallet_id AND d.day < ").push_bind(bounds.first_day);
    query.push(
        " ORDER BY d.day DESC LIMIT 1) AS base ON true
         LEFT JOIN LATERAL (SELECT t.position, t.balance_after FROM wallet_transactions t WHERE t.shard_id = ",
    );
    query.push_bind(shard).push(" AND t.account_id = w.account_id AND t.wallet_id = w.wallet_id AND t.position <= ");
    query.push_bind(bounds.upto).push(" ORDER BY t.position DESC LIMIT 1) AS last ON true ORDER BY 1");
    query.build_query_as().fetch_all(conn).await
}

async fn opened_before(
    conn: &mut PgConnection,
    shard: ShardId,
    account: Option<AccountId>,
    bounds: &Bounds,
) -> Result<Vec<WalletTotals>, sqlx::Error> {
    let mut query = Query::new(STANDING);
    query.push("(SELECT id AS wallet_id, account_id, currency, balance FROM wallets WHERE shard_id = ").push_bind(shard);
    push_account(&mut query, account);
    if let Some(end) = bounds.end {
        query.push(" AND created_at < ").push_bind(end);
    }
    query.push(")");
    standing(query, conn, shard, bounds).await
}

/// Those of these ids, with or without a row.
async fn of_ids(
    conn: &mut PgConnection,
    shard: ShardId,
    account: Option<AccountId>,
    bounds: &Bounds,
    ids: &[WalletId],
) -> Result<Vec<WalletTotals>, sqlx::Error> {
    let mut query = Query::new(STANDING);
    query.push("(SELECT named.id AS wallet_id, account_id, currency, balance FROM unnest(").push_bind(ids);
    query.push(") AS named (id) LEFT JOIN wallets ON wallets.id = named.id AND wallets.shard_id = ").push_bind(shard);
    push_account(&mut query, account);
    query.push(")");
    standing(query, conn, shard, bounds).await
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
