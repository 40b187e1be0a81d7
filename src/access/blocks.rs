//! Blocks of IPs that logged in too often: on disk before anybody hears of them, and never extended
//! by what comes from them meanwhile. By the database's clock: where that was set back to before its
//! start, a block is over.

use std::net::IpAddr;

use ledger_database::PgPool;

use super::limits::{BLOCK, Block};

/// Starts a block, unless there is one. Returns the one that there is: none if it was lifted already.
pub async fn start(pool: &PgPool, ip: IpAddr) -> Result<Option<Block>, sqlx::Error> {
    let started = sqlx::query(
        "INSERT INTO ip_blocks AS b (ip, started_at, ends_at)
         SELECT $1, clock.now, clock.now + make_interval(secs => $2) FROM (SELECT clock_timestamp() AS now) AS clock
         ON CONFLICT (ip) DO UPDATE SET id = DEFAULT, started_at = excluded.started_at, ends_at = excluded.ends_at
            WHERE NOT clock_timestamp() BETWEEN b.started_at AND b.ends_at",
    );
    let started = started.bind(ip.to_string()).bind(BLOCK.as_secs_f64()).execute(pool).await?;
    if started.rows_affected() > 0 {
        tracing::warn!(%ip, minutes = BLOCK.as_secs() / 60, "blocked an IP: too many logins");
    }
    of(pool, ip).await
}

/// An IP's block, if there is one now.
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
