//! Lists the published checkpoints of a log, the newest first, with their cosignatures.

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgPool};
use ledger_events::ShardId;

/// A checkpoint without its signatures.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Checkpoint {
    pub origin: String,
    /// Number of events in the tree.
    pub size: i64,
    pub root: Vec<u8>,
    pub signed_at: DateTime<Utc>,
}

/// A cosignature of a listed checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Cosignature {
    pub origin: String,
    pub size: i64,
    /// Verifier key of the witness.
    pub witness: String,
    pub cosigned_at: DateTime<Utc>,
}

/// A page of checkpoints.
#[derive(Clone, Debug, Default)]
pub struct Page {
    pub checkpoints: Vec<Checkpoint>,
    /// Cosignatures of all these checkpoints, ordered by witness.
    pub cosignatures: Vec<Cosignature>,
    /// Size before which the next page begins; none at the end.
    pub next_before: Option<i64>,
}

/// Returns the checkpoints of trees smaller than `before`, or the newest ones. Origins that have a checkpoint of one size
/// stay on one page, so a page can be longer than `limit`.
///
/// # Errors
/// Any error of the database.
pub async fn page(pool: &PgPool, shard: ShardId, before: Option<i64>, limit: i64) -> Result<Page, sqlx::Error> {
    let checkpoints: Vec<Checkpoint> = sqlx::query_as(
        "SELECT origin, size, root, signed_at FROM log_checkpoints WHERE shard_id = $1 AND size < $2
         ORDER BY size DESC FETCH FIRST ($3) ROWS WITH TIES",
    )
    .bind(shard)
    .bind(before.unwrap_or(i64::MAX))
    .bind(limit)
    .fetch_all(pool)
    .await?;
    let Some(last) = checkpoints.last().map(|checkpoint| checkpoint.size) else { return Ok(Page::default()) };
    let sizes: Vec<i64> = checkpoints.iter().map(|checkpoint| checkpoint.size).collect();
    let cosignatures = sqlx::query_as(
        "SELECT origin, size, witness, cosigned_at FROM log_cosignatures WHERE shard_id = $1 AND size = ANY($2) ORDER BY witness",
    )
    .bind(shard)
    .bind(sizes)
    .fetch_all(pool)
    .await?;
    let has_more: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM log_checkpoints WHERE shard_id = $1 AND size < $2)")
        .bind(shard)
        .bind(last)
        .fetch_one(pool)
        .await?;
    Ok(Page { checkpoints, cosignatures, next_before: has_more.then_some(last) })
}
