//! Pages of lists: newest first, by number, with the true count.

use chrono::{DateTime, Utc};
use sqlx::postgres::PgRow;
use sqlx::{Encode, FromRow, PgPool, Postgres, QueryBuilder, Type};

/// Which page, from 1, and how many rows a page has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    pub number: i64,
    pub size: i64,
}

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

/// ` AND <column> = <value>`, if there is a value.
pub fn equals<'a, T>(query: &mut QueryBuilder<Postgres>, column: &'static str, value: Option<T>)
where
    T: Encode<'a, Postgres> + Type<Postgres> + Send + 'a,
{
    if let Some(value) = value {
        query.push(" AND ").push(column).push(" = ").push_bind(value);
    }
}

/// ` AND <column> >= from AND <column> < to`, for those given.
pub fn between(query: &mut QueryBuilder<Postgres>, column: &'static str, from: Option<DateTime<Utc>>, to: Option<DateTime<Utc>>) {
    if let Some(from) = from {
        query.push(" AND ").push(column).push(" >= ").push_bind(from);
    }
    if let Some(to) = to {
        query.push(" AND ").push(column).push(" < ").push_bind(to);
    }
}

/// Counts and fetches: `conditions` writes ` FROM … WHERE …`, rows come by `key` descending.
pub async fn fetch<R>(
    pool: &PgPool,
    conditions: impl Fn(&mut QueryBuilder<Postgres>),
    key: &'static str,
    page: Page,
) -> Result<Listed<R>, sqlx::Error>
where
    R: for<'r> FromRow<'r, PgRow> + Send + Unpin,
{
    let mut count = QueryBuilder::new("SELECT count(*)");
    conditions(&mut count);
    let total: i64 = count.build_query_scalar().fetch_one(pool).await?;
    let mut select = QueryBuilder::new("SELECT *");
    conditions(&mut select);
    select.push(" ORDER BY ").push(key).push(" DESC LIMIT ").push_bind(page.size);
    select.push(" OFFSET ").push_bind((page.number - 1).saturating_mul(page.size));
    Ok(Listed { rows: select.build_query_as().fetch_all(pool).await?, total })
}
