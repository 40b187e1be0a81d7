//! Totals of a period, exact as of one position of the log. `daily_totals` supplies the days. Single movements
//! supply the parts before and after them, and correct for movements in the rows but outside the period.

use std::collections::{BTreeMap, HashMap, HashSet};

use chrono::{DateTime, NaiveDate, Utc};
use ledger_database::FromRow;
use ledger_database::PgConnection;
use ledger_events::{AccountId, Position, ShardId, WalletId};
use rust_decimal::Decimal;
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row};

use super::bounds::{Bounds, Piece};
use super::{Day, Sums};
use crate::known;

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

/// Movements of a period, by wallet and by day.
#[derive(Default)]
struct Moved {
    wallets: HashMap<WalletId, InWallet>,
    days: BTreeMap<(NaiveDate, String), Sums>,
}

/// Movements of a wallet.
#[derive(Default)]
struct InWallet {
    /// Part of the opening balance that the rows do not cover.
    before: Decimal,
    /// Number of movements in that part.
    before_movements: i64,
    /// Sums within the period.
    sums: Sums,
    /// Account of the wallet, if single movements were read.
    account_id: Option<AccountId>,
}

impl Moved {
    /// Whether a wallet had movements by the end of the period that the rows of the days before it do not cover.
    fn in_wallet(&self, id: WalletId) -> bool {
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
struct Movements {
    wallet_id: WalletId,
    account_id: AccountId,
    day: NaiveDate,
    currency: String,
    #[sqlx(flatten)]
    sums: Sums,
}

impl Moved {
    fn add(&mut self, piece: &Piece, row: &Movements) {
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
            moved.wallets.insert(wallet_id, InWallet { sums, ..InWallet::default() });
        } else if let Some(of) = day.zip(currency) {
            moved.days.insert(of, sums);
        }
    }
    Ok(moved)
}

/// Adds up the movements of a piece.
async fn movements(
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

/// Start of a query for the state of wallets, without the movements of the period. The opening balance is the one
/// that the rows of the days before contain. The caller appends ` w` with its columns: the row of a wallet, and
/// the account for finding its movements.
const STANDING: &str =
    "SELECT w.wallet_id, w.account_id AS row_account_id, w.currency AS row_currency, w.balance AS row_balance,
    w.created_at AS row_created_at, coalesce(base.closing_balance, 0) AS opening, coalesce(base.movements > 0, false) AS has_moved,
    last.position AS last_position, last.balance_after AS last_balance, last.account_id AS last_account_id,
    last.currency AS last_currency, last.created_at AS last_created_at FROM ";

/// Completes and runs a query that starts with [`STANDING`].
async fn standing(
    mut query: Query,
    conn: &mut PgConnection,
    shard: ShardId,
    bounds: &Bounds,
) -> Result<Vec<WalletTotals>, sqlx::Error> {
    query.push(" AS w LEFT JOIN LATERAL (SELECT d.closing_balance, d.movements FROM daily_totals d WHERE d.shard_id = ");
    query.push_bind(shard).push(" AND d.wallet_id = w.wallet_id AND d.day < ").push_bind(bounds.first_day);
    query.push(
        " ORDER BY d.day DESC LIMIT 1) AS base ON true
         LEFT JOIN LATERAL (SELECT t.position, t.balance_after, t.account_id, t.currency, t.created_at
            FROM wallet_transactions t WHERE t.shard_id = ",
    );
    query.push_bind(shard).push(" AND t.account_id = w.found_by AND t.wallet_id = w.wallet_id AND t.position <= ");
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
    query.push("(SELECT id AS wallet_id, account_id, currency, balance, created_at, account_id AS found_by FROM wallets WHERE shard_id = ");
    query.push_bind(shard);
    push_account(&mut query, account);
    if let Some(end) = bounds.end {
        query.push(" AND created_at < ").push_bind(end);
    }
    query.push(")");
    standing(query, conn, shard, bounds).await
}

/// Loads the wallets with these ids, with or without a row. `accounts` are the accounts for finding their
/// movements. Where one is `None`, that of the wallet's days applies, or else that of its row.
async fn of_ids(
    conn: &mut PgConnection,
    shard: ShardId,
    bounds: &Bounds,
    ids: &[WalletId],
    accounts: &[Option<AccountId>],
) -> Result<Vec<WalletTotals>, sqlx::Error> {
    let mut query = Query::new(STANDING);
    query.push(
        "(SELECT named.id AS wallet_id, w.account_id, w.currency, w.balance, w.created_at,
            coalesce(named.account_id, d.account_id, w.account_id) AS found_by FROM unnest(",
    );
    query.push_bind(ids).push("::bigint[], ").push_bind(accounts);
    query.push("::bigint[]) AS named (id, account_id) LEFT JOIN wallets w ON w.id = named.id AND w.shard_id = ").push_bind(shard);
    query.push(" LEFT JOIN LATERAL (SELECT d.account_id FROM daily_totals d WHERE d.shard_id = ").push_bind(shard);
    query.push(" AND d.wallet_id = named.id ORDER BY d.day DESC LIMIT 1) AS d ON true)");
    standing(query, conn, shard, bounds).await
}

/// Lists the wallets that exist at the end of the period by their days, but not by their rows. These wallets have
/// no row, or their row says that they were opened later. For one account, lists every wallet that its days name.
///
/// Ids are assigned in sequence, so next to nothing lies between those with a row. The query looks into each gap,
/// and from each find to the next. That takes a few primary key lookups, however many day rows exist.
async fn with_days(
    conn: &mut PgConnection,
    shard: ShardId,
    account: Option<AccountId>,
    bounds: &Bounds,
) -> Result<Vec<WalletId>, sqlx::Error> {
    if let Some(account) = account {
        return sqlx::query_scalar(
            "SELECT DISTINCT wallet_id FROM daily_totals WHERE shard_id = $1 AND account_id = $2 AND first_position <= $3",
        )
        .bind(shard)
        .bind(account)
        .bind(bounds.upto)
        .fetch_all(conn)
        .await;
    }
    sqlx::query_scalar(
        "WITH RECURSIVE known (id, next) AS (
            SELECT id, lead(id, 1, 9223372036854775807) OVER (ORDER BY id)
            FROM (SELECT 0::bigint AS id UNION ALL SELECT id FROM wallets WHERE shard_id = $1) AS ids
         ), found (wallet_id, first_position, next) AS (
            SELECT id, NULL::bigint, next FROM known WHERE next > id + 1
            UNION ALL
            SELECT d.wallet_id, d.first_position, found.next FROM found CROSS JOIN LATERAL (
                SELECT wallet_id, first_position FROM daily_totals
                WHERE shard_id = $1 AND wallet_id > found.wallet_id AND wallet_id < found.next ORDER BY wallet_id, day LIMIT 1) AS d
         )
         SELECT wallet_id FROM found WHERE first_position <= $2
         UNION ALL
         SELECT w.id FROM wallets w CROSS JOIN LATERAL (
            SELECT first_position FROM daily_totals WHERE shard_id = $1 AND wallet_id = w.id ORDER BY day LIMIT 1) AS d
         WHERE w.shard_id = $1 AND w.created_at >= $3 AND d.first_position <= $2",
    )
    .bind(shard)
    .bind(bounds.upto)
    .bind(bounds.end)
    .fetch_all(conn)
    .await
}

/// Loads the rows from the first day on and before the end day, of one account or of all.
pub async fn between(
    conn: &mut PgConnection,
    shard: ShardId,
    account: Option<AccountId>,
    (from, end): (NaiveDate, NaiveDate),
) -> Result<HashMap<(WalletId, NaiveDate), Day>, sqlx::Error> {
    let mut query = Query::new(
        "SELECT wallet_id, day, account_id, currency, funding, order_debits, payout_debits, order_refunds, payout_refunds,
            adjustment_credits, adjustment_debits, movements, closing_balance, first_position, last_position
         FROM daily_totals WHERE shard_id = ",
    );
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
