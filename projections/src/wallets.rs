//! `wallets` and `wallet_transactions`: balances and every movement, written inline.

mod movements;

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use ledger_database::{PgConnection, PgPool};
use ledger_events::wallet::{Direction, Movement, Wallet, WalletEvent, evolve};
use ledger_events::{
    AccountId, Currency, Event, Id, Moment, Money, OrderId, Position, Recorded, ShardId, TransactionId, WalletId,
};
use rust_decimal::Decimal;
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row as _};

use crate::page::{self, Listed, Page};
use crate::state::{Row, State, all, first, load_changed, select, state};
use crate::write::Write;
use crate::{ProjectionError, known, money, row_type};

pub use movements::{TransactionBounds, TransactionFilter, list_transactions};

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

/// Loads the movements after one position and up to another, in order. `None` for `accounts` selects all accounts.
pub async fn transactions_between(
    conn: &mut PgConnection,
    shard: ShardId,
    accounts: Option<&[AccountId]>,
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
    page::of_accounts(&mut query, accounts);
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

/// Finds a transaction of any account in these shards, with its shard.
pub async fn find_any_transaction(
    pool: &PgPool,
    shards: &[ShardId],
    id: TransactionId,
) -> Result<Option<(ShardId, Transaction)>, sqlx::Error> {
    let query = select("FROM wallet_transactions WHERE shard_id = ANY($1) AND id = $2");
    first(query.bind(id.shards_among(shards)).bind(id), pool).await
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
