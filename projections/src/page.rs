//! Pagination of lists: newest first, by page number, with the exact total.

use std::ops::Range;

use chrono::{DateTime, Utc};
use ledger_database::{PgConnection, PgPool, Transaction, replanned};
use ledger_events::{AccountId, Position};
use sqlx::{Encode, Postgres, QueryBuilder, Type};

use crate::state::{Read, Row};

/// Requested page: its number, starting at 1, and the number of rows per page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    pub number: i64,
    pub size: i64,
}

impl Page {
    /// Returns the number of rows before the page.
    pub fn offset(self) -> i64 {
        (self.number - 1).saturating_mul(self.size)
    }

    /// Returns the range of the page's rows in the list, starting at 0.
    pub fn rows(self) -> Range<i64> {
        self.offset()..self.offset().saturating_add(self.size)
    }
}

/// One page of a list, with the total number of rows in the list.
#[derive(Clone, Debug)]
pub struct Listed<T> {
    pub rows: Vec<T>,
    pub total: i64,
}

impl<T> Listed<T> {
    pub fn map<U>(self, f: impl FnMut(T) -> U) -> Listed<U> {
        Listed { rows: self.rows.into_iter().map(f).collect(), total: self.total }
    }
}

/// Appends ` AND <column> = <value>`, if there is a value.
pub fn equals<'a, T>(query: &mut QueryBuilder<Postgres>, column: &'static str, value: Option<T>)
where
    T: Encode<'a, Postgres> + Type<Postgres> + Send + 'a,
{
    if let Some(value) = value {
        query.push(" AND ").push(column).push(" = ").push_bind(value);
    }
}

/// Appends ` AND account_id = ANY (…)`, if there are accounts.
pub fn of_accounts(query: &mut QueryBuilder<Postgres>, accounts: Option<&[AccountId]>) {
    if let Some(accounts) = accounts {
        query.push(" AND account_id = ANY (").push_bind(accounts.to_vec()).push(")");
    }
}

/// Appends ` AND <column> >= from AND <column> < to`, for the bounds that are given.
pub fn between(query: &mut QueryBuilder<Postgres>, column: &'static str, from: Option<DateTime<Utc>>, to: Option<DateTime<Utc>>) {
    if let Some(from) = from {
        query.push(" AND ").push(column).push(" >= ").push_bind(from);
    }
    if let Some(to) = to {
        query.push(" AND ").push(column).push(" < ").push_bind(to);
    }
}

/// Appends the bounds of a column with positions.
pub fn within(query: &mut QueryBuilder<Postgres>, column: &'static str, positions: &Range<Position>) {
    query.push(" AND ").push(column).push(" >= ").push_bind(positions.start);
    query.push(" AND ").push(column).push(" < ").push_bind(positions.end);
}

/// Begins a read-only transaction with one snapshot, so that the total and the rows agree. It is for statements
/// that read indexes in order. The settings enforce such plans, whatever the statistics say.
pub async fn snapshot(pool: &PgPool) -> Result<Transaction<'static>, sqlx::Error> {
    pool.begin_with(
        "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off;
         SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off",
    )
    .await
}

/// Begins a read-only transaction like [`snapshot`], but for statements that may read most rows of a table. The
/// statistics decide their plans.
pub async fn planned_snapshot(pool: &PgPool) -> Result<Transaction<'static>, sqlx::Error> {
    pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL jit = off").await
}

/// Counts and fetches a page in one snapshot. `conditions` appends ` FROM … WHERE …`. The rows are ordered by `key`
/// descending.
pub async fn fetch<R: Row>(
    pool: &PgPool,
    conditions: impl Fn(&mut QueryBuilder<Postgres>),
    key: &'static str,
    page: Page,
) -> Result<Listed<R>, sqlx::Error> {
    replanned(|| fetch_once(pool, &conditions, key, page)).await
}

async fn fetch_once<R: Row>(
    pool: &PgPool,
    conditions: &impl Fn(&mut QueryBuilder<Postgres>),
    key: &'static str,
    page: Page,
) -> Result<Listed<R>, sqlx::Error> {
    let mut tx = planned_snapshot(pool).await?;
    let total = count(&mut tx, conditions).await?;
    let rows = rows(&mut tx, conditions, key, page.rows()).await?;
    tx.commit().await?;
    Ok(Listed { rows, total })
}

/// Counts the rows of a list. `conditions` are those of [`fetch`].
pub async fn count(conn: &mut PgConnection, conditions: &impl Fn(&mut QueryBuilder<Postgres>)) -> Result<i64, sqlx::Error> {
    let mut count = QueryBuilder::new("SELECT count(*)");
    conditions(&mut count);
    count.build_query_scalar().fetch_one(conn).await
}

/// Fetches a range of the rows of a list, which begins at 0. `conditions` and `key` are those of [`fetch`].
pub async fn rows<R: Row>(
    conn: &mut PgConnection,
    conditions: &impl Fn(&mut QueryBuilder<Postgres>),
    key: &'static str,
    range: Range<i64>,
) -> Result<Vec<R>, sqlx::Error> {
    let mut select = QueryBuilder::new(R::select());
    conditions(&mut select);
    select.push(" ORDER BY ").push(key).push(" DESC LIMIT ").push_bind(range.end - range.start);
    select.push(" OFFSET ").push_bind(range.start);
    Ok(select.build_query_as().fetch_all(conn).await?.into_iter().map(|Read(row)| row).collect())
}
