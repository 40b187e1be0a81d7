//! Reading totals of a period, exact as of one position of the log: days from `daily_totals`, and what lies before and
//! after them, or is in their rows and not in the period, from the movements.

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

/// What moved in a wallet, what its row says, and what its last movement does.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct WalletTotals {
    pub wallet_id: WalletId,
    /// When the period begins.
    pub opening: Decimal,
    #[sqlx(skip)]
    pub sums: Sums,
    /// As the wallet's row says now; none if it has none.
    #[sqlx(flatten)]
    pub row: WalletRow,
    /// The wallet's last movement up to the period's end.
    #[sqlx(flatten)]
    pub last: LastMovement,
    /// Whether it had moved before the days whose rows are added up.
    has_moved: bool,
}

/// What a wallet's row says now; nothing if there is none.
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

/// What a wallet's last movement says; nothing if there is none.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct LastMovement {
    #[sqlx(rename = "last_position")]
    pub position: Option<Position>,
    /// The balance that it left.
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

    /// Whose it is, by its last movement, or by its row where nothing moved. None if it has neither.
    pub fn account_id(&self) -> Option<AccountId> {
        self.last.account_id.or(self.row.account_id)
    }

    /// What it is in, likewise.
    pub fn currency(&self) -> Option<&str> {
        self.last.currency.as_deref().or(self.row.currency.as_deref())
    }
}

/// What a period's totals are, as of one snapshot.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Every wallet that was opened before the period's end, in the order of their ids; those without a row that days or
    /// movements tell of, too. Of one account, also those that are its own by the one and not by the other.
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
        let listed = opened_before(&mut *other, shard, account, bounds).await?;
        Ok::<_, sqlx::Error>((pieces, listed, with_days(&mut *other, shard, account, bounds).await?))
    };
    let (mut moved, (pieces, listed, with_days)) = futures::try_join!(rows, beside)?;
    for (piece, rows) in pieces {
        rows.iter().for_each(|row| moved.add(&piece, row));
    }
    // Where movements are not found by the account that a row names, days and movements are asked for another one; those of
    // one account cannot tell whether there are any.
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

/// What moved.
#[derive(Default)]
struct Moved {
    wallets: HashMap<WalletId, InWallet>,
    days: BTreeMap<(NaiveDate, String), Sums>,
}

/// What moved in a wallet.
#[derive(Default)]
struct InWallet {
    /// Beyond what rows know of the balance when the period begins; and how many movements these are.
    before: Decimal,
    before_movements: i64,
    /// In the period.
    sums: Sums,
    /// Whose it is, where movements were looked at one by one.
    account_id: Option<AccountId>,
}

impl Moved {
    /// Whether a wallet had moved by the period's end, as far as rows of the days before it do not tell.
    fn in_wallet(&self, id: WalletId) -> bool {
        self.wallets.get(&id).is_some_and(|moved| moved.before_movements + moved.sums.movements > 0)
    }
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
            moved.wallets.insert(wallet_id, InWallet { sums, ..InWallet::default() });
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
    let mut query = Query::new("SELECT wallet_id, account_id, currency, ");
    // The day of each movement costs as much as adding it up.
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

/// How wallets stand, without what moved; the opening balance is what rows of the days before know. ` w` and its columns
/// are to follow: a wallet's row, and the account by which its movements are found.
const STANDING: &str =
    "SELECT w.wallet_id, w.account_id AS row_account_id, w.currency AS row_currency, w.balance AS row_balance,
    w.created_at AS row_created_at, coalesce(base.closing_balance, 0) AS opening, coalesce(base.movements > 0, false) AS has_moved,
    last.position AS last_position, last.balance_after AS last_balance, last.account_id AS last_account_id,
    last.currency AS last_currency, last.created_at AS last_created_at FROM ";

/// Ends a query that begins with [`STANDING`].
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

/// Those of these ids, with or without a row. Their movements are found by these accounts; where none is given by that of
/// their days, or of their row.
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

/// Wallets that by their days were there at the period's end, and by their rows were not: those without a row, those whose
/// row says that they were opened later; of one account, any that its days are of.
///
/// Ids are given one after the other, so next to nothing lies between those that have a row: looking into each gap, and from
/// one that is found to the next, takes a few look-ups by the primary key, however many rows of days there are.
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

/// The rows of the days from one on and before another one, of one account or of all.
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
