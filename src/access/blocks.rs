//! Temporary blocks of IPs with too many logins.
//!
//! A block is on disk before any caller is told of it, and further requests never extend it. It follows the database's
//! clock: if that clock is set back to before the block's start, the block is over.

use std::net::IpAddr;

use chrono::{DateTime, Utc};
use ledger_database::PgPool;
use ledger_projections::page::{self, Listed, Page};
use ledger_projections::state::Row;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use sqlx::{PgExecutor, Postgres, QueryBuilder};

use super::limits::{BLOCK, Block};
use crate::secrets::seal::Secret;

/// Starts a block unless one is active. Returns the active block; `None` if an operator has lifted it already.
pub async fn start(pool: &PgPool, ip: IpAddr) -> Result<Option<Block>, sqlx::Error> {
    let started = sqlx::query(
        "INSERT INTO ip_blocks AS b (ip, started_at, ends_at)
         SELECT $1, clock.now, clock.now + make_interval(secs => $2) FROM (SELECT clock_timestamp() AS now) AS clock
         ON CONFLICT (ip) DO UPDATE SET id = DEFAULT, started_at = excluded.started_at, ends_at = excluded.ends_at
            WHERE NOT clock_timestamp() BETWEEN b.started_at AND b.ends_at",
    );
    let started = started.bind(ip.to_string()).bind(BLOCK.as_secs_f64()).execute(pool).await?;
    if started.rows_affected() > 0 {
        tracing::warn!(%ip, minutes = BLOCK.as_secs() / 60, "blocked an IP after too many logins");
    }
    of(pool, ip).await
}

/// Returns the active block of an IP, if there is one.
pub async fn of(pool: &PgPool, ip: IpAddr) -> Result<Option<Block>, sqlx::Error> {
    let block: Option<(f64, f64)> = sqlx::query_as(
        "SELECT extract(epoch FROM ends_at)::float8, extract(epoch FROM ends_at - clock_timestamp())::float8
         FROM ip_blocks WHERE ip = $1 AND clock_timestamp() BETWEEN started_at AND ends_at",
    )
    .bind(ip.to_string())
    .fetch_optional(pool)
    .await?;
    Ok(block.map(|(ends_at, ends_in)| Block { ends_at, ends_in }))
}

/// Active block, as operators see it.
#[derive(Clone, Debug)]
pub struct ActiveBlock {
    /// Address, or first address of a /64 network.
    pub ip: String,
    pub started_at: DateTime<Utc>,
    pub ends_at: DateTime<Utc>,
}

impl Row for ActiveBlock {
    const COLUMNS: &'static str = "ip, started_at, ends_at";

    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self { ip: row.try_get("ip")?, started_at: row.try_get("started_at")?, ends_at: row.try_get("ends_at")? })
    }
}

/// Lists one page of the active blocks, newest first: all, or those of some networks. Ended blocks are purged, so the table is
/// small.
///
/// # Errors
/// Any error of the database.
pub async fn list(pool: &PgPool, networks: Option<&[Secret]>, page: Page) -> Result<Listed<ActiveBlock>, sqlx::Error> {
    let networks = networks.map(|all| all.iter().map(|network| network.expose().to_owned()).collect::<Vec<_>>());
    let conditions = |query: &mut QueryBuilder<Postgres>| {
        query.push(" FROM ip_blocks WHERE clock_timestamp() BETWEEN started_at AND ends_at");
        if let Some(networks) = &networks {
            query.push(" AND ip = ANY(").push_bind(networks.clone()).push(")");
        }
    };
    page::fetch(pool, conditions, "id", page).await
}

/// Lists the newest active blocks, with the number of all.
///
/// # Errors
/// Any error of the database.
pub async fn newest(db: impl PgExecutor<'_>, most: i64) -> Result<Listed<ActiveBlock>, sqlx::Error> {
    let rows = sqlx::query(
        "SELECT ip, started_at, ends_at, count(*) OVER () AS total FROM ip_blocks
         WHERE clock_timestamp() BETWEEN started_at AND ends_at ORDER BY id DESC LIMIT $1",
    )
    .bind(most)
    .fetch_all(db)
    .await?;
    let total = rows.first().map(|row| row.try_get("total")).transpose()?.unwrap_or_default();
    Ok(Listed { rows: rows.iter().map(ActiveBlock::read).collect::<Result<_, _>>()?, total })
}
