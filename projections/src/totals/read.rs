//! Totals of a period, exact as of one position of the log. `daily_totals` supplies the days. Single movements
//! supply the parts before and after them, and correct for movements in the rows but outside the period.

mod moved;
mod standing;

use std::collections::{BTreeMap, HashMap, HashSet};

use chrono::{DateTime, NaiveDate, Utc};
use ledger_database::FromRow;
use ledger_database::PgConnection;
use ledger_events::{AccountId, Position, ShardId, WalletId};
use rust_decimal::Decimal;
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row};

use super::bounds::Bounds;
use super::{Day, Sums};
use crate::{known, page};
use moved::{movements, rows};
use standing::{of_ids, opened_before, with_days};

/// Totals of a wallet in the period, with its row and its last movement.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct WalletTotals {
    pub wallet_id: WalletId,
    /// Balance at the beginning of the period.
    pub opening: Decimal,
    #[sqlx(skip)]
    pub sums: Sums,
    /// Current row of the wallet. All fields are `None` if there is no row.
    #[sqlx(flatten)]
    pub row: WalletRow,
    /// Last movement of the wallet up to the end of the period.
    #[sqlx(flatten)]
    pub last: LastMovement,
    /// Whether the wallet had movements before the days whose rows are added up.
    has_moved: bool,
}

/// Current row of a wallet. All fields are `None` if there is no row.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct WalletRow {
    #[sqlx(rename = "row_account_id")]
    pub account_id: Option<AccountId>,
    #[sqlx(rename = "row_currency")]
    pub currency: Option<String>,
    #[sqlx(rename = "row_balance")]
    pub balance: Option<Decimal>,
    #[sqlx(rename = "row_created_at")]
    pub created_at: Option<DateTime<Utc>>,
}

/// Last movement of a wallet. All fields are `None` if there is no movement.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct LastMovement {
    #[sqlx(rename = "last_position")]
    pub position: Option<Position>,
    /// Balance after the movement.
    #[sqlx(rename = "last_balance")]
    pub balance: Option<Decimal>,
    #[sqlx(rename = "last_account_id")]
    pub account_id: Option<AccountId>,
    #[sqlx(rename = "last_currency")]
    pub currency: Option<String>,
    #[sqlx(rename = "last_created_at")]
    pub created_at: Option<DateTime<Utc>>,
}

impl WalletTotals {
    pub fn closing(&self) -> Decimal {
        self.opening + self.sums.net()
    }

    /// Returns the account of the wallet: that of its last movement, or that of its row if nothing moved. `None`
    /// if it has neither.
    pub fn account_id(&self) -> Option<AccountId> {
        self.last.account_id.or(self.row.account_id)
    }

    /// Returns the currency of the wallet, from the same source as [`WalletTotals::account_id`].
    pub fn currency(&self) -> Option<&str> {
        self.last.currency.as_deref().or(self.row.currency.as_deref())
    }
}

/// Totals of a period, as of one snapshot.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Every wallet opened before the end of the period, in id order. Includes wallets without a row that only
    /// days or movements mention. For one account, also includes wallets that belong to it only by their
    /// row, or only by their days or movements.
    pub wallets: Vec<WalletTotals>,
    /// Sums of each day, by currency.
    pub days: BTreeMap<(NaiveDate, String), Sums>,
}

/// Columns of [`Sums`], for rows to add up. Most amounts of a row are zero, and the sums skip them.
const ADDED: &str = "coalesce(sum(nullif(funding, 0)), 0) AS funding, coalesce(sum(nullif(order_debits, 0)), 0) AS order_debits,
    coalesce(sum(nullif(payout_debits, 0)), 0) AS payout_debits, coalesce(sum(nullif(order_refunds, 0)), 0) AS order_refunds,
    coalesce(sum(nullif(payout_refunds, 0)), 0) AS payout_refunds,
    coalesce(sum(nullif(adjustment_credits, 0)), 0) AS adjustment_credits,
    coalesce(sum(nullif(adjustment_debits, 0)), 0) AS adjustment_debits, coalesce(sum(movements), 0)::bigint AS movements";

/// Columns of [`Sums`], for movements to add up.
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

/// Appends ` FROM wallet_transactions WHERE …` for a range of positions.
fn push_movements(query: &mut Query, shard: ShardId, account: Option<AccountId>, (after, upto): (Position, Position)) {
    query.push(" FROM wallet_transactions WHERE shard_id = ").push_bind(shard);
    query.push(" AND position > ").push_bind(after).push(" AND position <= ").push_bind(upto);
    push_account(query, account);
}

/// Computes the totals of a period, for all wallets or for those of one account. Both connections share the
/// snapshot that the bounds come from. Adding up and looking up cost about the same, so they run in parallel.
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
        let listed = opened_before(&mut *other, shard, account, bounds).await?;
        Ok::<_, sqlx::Error>((pieces, listed, with_days(&mut *other, shard, account, bounds).await?))
    };
    let (mut moved, (pieces, listed, with_days)) = futures::try_join!(rows, beside)?;
    for (piece, rows) in pieces {
        rows.iter().for_each(|row| moved.add(&piece, row));
    }
    // A wallet's movements may not be found by the account in its row. In that case, days and movements name the
    // account. For a query of one account, its own days and movements cannot tell whether others exist.
    let is_found = |wallet: &WalletTotals| {
        let has_moved = account.is_some() || wallet.has_moved || moved.in_wallet(wallet.wallet_id);
        wallet.last.position.is_some() || !has_moved
    };
    let known: HashSet<WalletId> = listed.iter().map(|wallet| wallet.wallet_id).collect();
    let (mut wallets, lost): (Vec<WalletTotals>, Vec<WalletTotals>) = listed.into_iter().partition(is_found);
    let unlisted = moved.wallets.keys().copied().filter(|id| moved.in_wallet(*id)).chain(with_days);
    let mut others: Vec<WalletId> = unlisted.filter(|id| !known.contains(id)).collect();
    others.extend(lost.iter().map(|wallet| wallet.wallet_id));
    others.sort_unstable();
    others.dedup();
    if !others.is_empty() {
        let accounts: Vec<Option<AccountId>> =
            others.iter().map(|id| moved.wallets.get(id).and_then(|moved| moved.account_id)).collect();
        wallets.append(&mut of_ids(&mut *other, shard, bounds, &others, &accounts).await?);
        wallets.sort_unstable_by_key(|wallet| wallet.wallet_id);
    }
    for wallet in &mut wallets {
        if let Some(moved) = moved.wallets.get(&wallet.wallet_id) {
            wallet.opening += moved.before;
            wallet.sums = moved.sums;
        }
    }
    Ok(Totals { wallets, days: moved.days })
}

/// Loads the rows from the first day on and before the end day, of some accounts or of all.
pub async fn between(
    conn: &mut PgConnection,
    shard: ShardId,
    accounts: Option<&[AccountId]>,
    (from, end): (NaiveDate, NaiveDate),
) -> Result<HashMap<(WalletId, NaiveDate), Day>, sqlx::Error> {
    let mut query = Query::new(
        "SELECT wallet_id, day, account_id, currency, funding, order_debits, payout_debits, order_refunds, payout_refunds,
            adjustment_credits, adjustment_debits, movements, closing_balance, first_position, last_position
         FROM daily_totals WHERE shard_id = ",
    );
    query.push_bind(shard).push(" AND day >= ").push_bind(from).push(" AND day < ").push_bind(end);
    page::of_accounts(&mut query, accounts);
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

/// Sums of the days that lie completely in a period, and the positions that they cover: after `first` and up to
/// `last`.
#[derive(FromRow)]
struct Whole {
    #[sqlx(flatten)]
    sums: Sums,
    first: Position,
    last: Position,
}

/// Computes the sums of one wallet after a position and up to another: its complete days, and the movements before
/// and after them. Needs no snapshot, because movements never change, and a day only gains movements that are
/// after the period.
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
