//! `wallets` and `wallet_transactions`: balances and every movement, written inline.

use std::collections::HashMap;
use std::ops::Range;

use chrono::{DateTime, Utc};
use ledger_database::{PgConnection, PgPool};
use ledger_events::wallet::{Direction, Movement, Wallet, WalletEvent, evolve};
use ledger_events::{AccountId, Currency, Event, Moment, Money, OrderId, Position, Recorded, ShardId, TransactionId, WalletId};
use rust_decimal::Decimal;
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row as _};

use crate::page::{self, Listed, Page};
use crate::state::{Row, State, all, first, load_changed, select, state};
use crate::totals::{self, AccountPeriod};
use crate::write::Write;
use crate::{ProjectionError, known, money, row_type};

/// A row of `wallet_transactions`: one movement of money.
#[derive(Clone, Debug, PartialEq)]
pub struct Transaction {
    pub id: TransactionId,
    pub position: Position,
    pub wallet_id: WalletId,
    pub account_id: AccountId,
    pub direction: Direction,
    pub category: &'static str,
    pub amount: Money,
    pub balance_after: Money,
    pub currency: Currency,
    pub order_id: Option<OrderId>,
    pub reference: Option<String>,
    pub created_at: DateTime<Utc>,
}

impl Transaction {
    /// Builds the row for a wallet event. Returns `None` for `WalletOpened`.
    pub fn of(wallet: &Wallet, event: &WalletEvent, at: &Moment) -> Option<Transaction> {
        let movement = Movement::of(event)?;
        Some(Transaction {
            id: movement.transaction_id,
            position: at.position,
            wallet_id: wallet.id,
            account_id: wallet.account_id,
            direction: movement.direction,
            category: movement.category,
            amount: movement.amount,
            balance_after: movement.balance_after,
            currency: wallet.currency,
            order_id: movement.order_id(),
            reference: movement.reference.map(str::to_owned),
            created_at: at.recorded_at,
        })
    }
}

/// Loads the fundings with these references.
pub async fn load_fundings(
    conn: &mut PgConnection,
    shard: ShardId,
    references: &[&str],
) -> Result<Vec<Transaction>, sqlx::Error> {
    let query = select(
        "FROM unnest($2::text[]) AS wanted (wanted_reference)
         JOIN wallet_transactions ON shard_id = $1 AND category = 'FUNDING' AND reference = wanted_reference
            AND reference COLLATE \"C\" = wanted_reference",
    )
    .bind(shard)
    .bind(references);
    all(query, conn).await
}

/// Loads the movements after one position and up to another, in order. `None` for `account` selects all accounts.
pub async fn transactions_between(
    conn: &mut PgConnection,
    shard: ShardId,
    account: Option<AccountId>,
    after: Position,
    upto: Position,
) -> Result<Vec<Transaction>, sqlx::Error> {
    let mut query = QueryBuilder::new(Transaction::select());
    query
        .push(" FROM wallet_transactions WHERE shard_id = ")
        .push_bind(shard)
        .push(" AND position > ")
        .push_bind(after)
        .push(" AND position <= ")
        .push_bind(upto);
    page::equals(&mut query, "account_id", account);
    query.push(" ORDER BY position, id");
    all(query.build_query_as(), conn).await
}

/// Writes wallets and movements as rows. Inserts new wallets and replaces known ones. A movement that already
/// exists is an error, because exactly one event makes each movement.
pub async fn write(
    conn: &mut PgConnection,
    shard: ShardId,
    wallets: &[&Wallet],
    transactions: &[Transaction],
) -> Result<(), ProjectionError> {
    let mut write = Write::new();
    push(&mut write, shard, wallets, transactions);
    write.execute(conn).await?;
    Ok(())
}

/// Adds wallets and movements to a statement that writes other tables too, like [`write()`].
pub fn push(write: &mut Write, shard: ShardId, wallets: &[&Wallet], transactions: &[Transaction]) {
    let wallets: Vec<_> = wallets
        .iter()
        .map(|wallet| BalanceRow {
            shard_id: shard,
            id: wallet.id,
            version: wallet.version,
            account_id: wallet.account_id,
            currency: wallet.currency.as_str(),
            balance: wallet.balance.decimal(),
            created_at: wallet.created_at,
            updated_at: wallet.updated_at,
        })
        .collect();
    write.insert(
        "wallets (shard_id, id, version, account_id, currency, balance, created_at, updated_at)",
        &wallets,
        "ON CONFLICT (shard_id, id) DO UPDATE SET version = excluded.version, balance = excluded.balance, updated_at = excluded.updated_at",
    );
    let transactions: Vec<_> = transactions
        .iter()
        .map(|transaction| MovementRow {
            shard_id: shard,
            id: transaction.id,
            position: transaction.position,
            wallet_id: transaction.wallet_id,
            account_id: transaction.account_id,
            r#type: transaction.direction.as_str(),
            category: transaction.category,
            amount: transaction.amount.decimal(),
            balance_after: transaction.balance_after.decimal(),
            currency: transaction.currency.as_str(),
            order_id: transaction.order_id,
            reference: transaction.reference.as_deref(),
            created_at: transaction.created_at,
        })
        .collect();
    write.insert(
        "wallet_transactions (shard_id, id, position, wallet_id, account_id, type, category, amount, balance_after, currency,
            order_id, reference, created_at)",
        &transactions,
        "",
    );
}

row_type! {
    struct BalanceRow<'a> as "public.wallet_row" {
        shard_id: ShardId,
        id: WalletId,
        version: i64,
        account_id: AccountId,
        currency: &'a str,
        balance: Decimal,
        created_at: DateTime<Utc>,
        updated_at: DateTime<Utc>,
    }
}

row_type! {
    struct MovementRow<'a> as "public.wallet_transaction_row" {
        shard_id: ShardId,
        id: TransactionId,
        position: Position,
        wallet_id: WalletId,
        account_id: AccountId,
        r#type: &'a str,
        category: &'a str,
        amount: Decimal,
        balance_after: Decimal,
        currency: &'a str,
        order_id: Option<OrderId>,
        reference: Option<&'a str>,
        created_at: DateTime<Utc>,
    }
}

/// Folds the next events of the log into the tables.
pub async fn apply(conn: &mut PgConnection, shard: ShardId, events: &[Recorded]) -> Result<(), ProjectionError> {
    let mut wallets = load_changed::<Wallet>(conn, shard, events).await?;
    let mut transactions = Vec::new();
    for recorded in events {
        if let Event::Wallet(event) = &recorded.event {
            transactions.extend(fold(&mut wallets, recorded, event));
        }
    }
    write(conn, shard, &wallets.values().collect::<Vec<_>>(), &transactions).await
}

/// Folds one event into a map of wallets. Returns the row of the movement, if the event is one.
pub fn fold(wallets: &mut HashMap<WalletId, Wallet>, recorded: &Recorded, event: &WalletEvent) -> Option<Transaction> {
    let id = WalletId(recorded.stream_id);
    let after = evolve(wallets.remove(&id), id, event, &recorded.moment)?;
    let transaction = Transaction::of(&after, event, &recorded.moment);
    wallets.insert(id, after);
    transaction
}

impl Row for Wallet {
    const COLUMNS: &'static str = "id, version, account_id, currency, balance, created_at, updated_at";

    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let currency: &str = row.try_get("currency")?;
        Ok(Wallet {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            account_id: row.try_get("account_id")?,
            currency: known(currency.parse().ok(), currency)?,
            balance: money(row.try_get("balance")?)?,
            created_at: row.try_get("created_at")?,
            updated_at: row.try_get("updated_at")?,
        })
    }
}

impl State for Wallet {
    state!(WalletId, WalletEvent, Wallet, evolve, "wallets");
}

impl Row for Transaction {
    const COLUMNS: &'static str =
        "id, position, wallet_id, account_id, type, category, amount, balance_after, currency, order_id, reference,
         created_at";

    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let currency: &str = row.try_get("currency")?;
        let category: &str = row.try_get("category")?;
        let direction: &str = row.try_get("type")?;
        Ok(Transaction {
            id: row.try_get("id")?,
            position: row.try_get("position")?,
            wallet_id: row.try_get("wallet_id")?,
            account_id: row.try_get("account_id")?,
            direction: known(Direction::parse(direction), direction)?,
            category: known(Movement::CATEGORIES.into_iter().find(|c| *c == category), category)?,
            amount: money(row.try_get("amount")?)?,
            balance_after: money(row.try_get("balance_after")?)?,
            currency: known(currency.parse().ok(), currency)?,
            order_id: row.try_get("order_id")?,
            reference: row.try_get("reference")?,
            created_at: row.try_get("created_at")?,
        })
    }
}

/// Lists one page of an account's wallets, newest first.
pub async fn list(pool: &PgPool, shard: ShardId, account: AccountId, page: Page) -> Result<Listed<Wallet>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM wallets WHERE shard_id = ").push_bind(shard);
        page::equals(query, "account_id", Some(account));
    };
    page::fetch(pool, conditions, "id", page).await
}

pub async fn find(pool: &PgPool, shard: ShardId, id: WalletId) -> Result<Option<Wallet>, sqlx::Error> {
    let query = select("FROM wallets WHERE shard_id = $1 AND id = $2").bind(shard).bind(id);
    first(query, pool).await
}

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

/// Condition of the index `wallet_transactions_except_orders` (migration 0052), which leaves out the payments of orders.
const EXCEPT_ORDERS: &str = " AND category <> 'ORDER'";
/// Condition of the index `wallet_transactions_except_orders_and_refunds` (migration 0058).
const EXCEPT_ORDERS_AND_REFUNDS: &str = " AND category NOT IN ('ORDER', 'ORDER_REFUND')";

impl TransactionFilter {
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
    fn push(&self, query: &mut QueryBuilder<Postgres>, shard: ShardId, positions: &Range<Position>) {
        self.push_owner(query, shard, positions);
        page::equals(query, "type", self.direction);
        page::equals(query, "category", self.category);
        page::equals(query, "amount", self.amount.map(Money::decimal));
        page::equals(query, "balance_after", self.balance_after.map(Money::decimal));
        page::equals(query, "currency", self.currency.clone());
        page::equals(query, "order_id", self.order_id);
        page::equals(query, "reference", self.reference.clone());
        if self.category.is_some_and(|category| !["ORDER", "ORDER_REFUND"].contains(&category)) {
            query.push(EXCEPT_ORDERS_AND_REFUNDS);
        } else if self.direction == Some(Direction::Credit.as_str()) || self.category == Some("ORDER_REFUND") {
            query.push(EXCEPT_ORDERS);
        }
    }
}

/// Lists one page of an account's movements, newest first, with the total. The caller holds the snapshot (see
/// [`page::planned_snapshot`]), and has read in it the positions of the log between the filter's times.
pub async fn list_transactions(
    conn: &mut PgConnection,
    shard: ShardId,
    filter: &TransactionFilter,
    positions: &Range<Position>,
    page: Page,
) -> Result<Listed<Transaction>, sqlx::Error> {
    let conditions = |query: &mut QueryBuilder<Postgres>| filter.push(query, shard, positions);
    let total = match filter.period() {
        Some(period) => count_in_period(&mut *conn, shard, filter, positions, period).await?,
        None => page::count(&mut *conn, &conditions).await?,
    };
    let rows = page::rows(&mut *conn, &conditions, "position", page).await?;
    Ok(Listed { rows, total })
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
        _ => return page::count(conn, &|query| filter.push(query, shard, positions)).await,
    };
    let others = |query: &mut QueryBuilder<Postgres>| {
        filter.push_owner(query, shard, positions);
        page::equals(query, "type", without);
        query.push(EXCEPT_ORDERS);
    };
    let all = totals::count(&mut *conn, shard, period).await?;
    Ok(all - page::count(conn, &others).await?)
}

/// Finds a transaction of any account in these shards, with its shard.
pub async fn find_any_transaction(
    pool: &PgPool,
    shards: &[ShardId],
    id: TransactionId,
) -> Result<Option<(ShardId, Transaction)>, sqlx::Error> {
    let query = select("FROM wallet_transactions WHERE shard_id = ANY($1) AND id = $2").bind(shards).bind(id);
    first(query, pool).await
}

pub async fn find_transaction(
    pool: &PgPool,
    shard: ShardId,
    account: AccountId,
    id: TransactionId,
) -> Result<Option<Transaction>, sqlx::Error> {
    let query =
        select("FROM wallet_transactions WHERE shard_id = $1 AND id = $2 AND account_id = $3").bind(shard).bind(id).bind(account);
    first(query, pool).await
}
