//! Calls of suppliers that are due, shared by all nodes: leases, and the rate and the circuit breaker of each supplier.
//!
//! Nothing here is derived from the log. Without it, an order is sent again under the same key.

use std::time::Duration;

use ledger_database::{FromRow, PgPool};
use ledger_events::{Currency, Money, ProductId, PurchaseId, ShardId};
use rust_decimal::Decimal;
use uuid::Uuid;

use super::port::Wanted;
use super::settings::LONGEST_PAUSE;
use crate::telemetry::SupplierBacklog;

/// Time for which a node works on a purchase alone: longer than two requests and a token take.
const LEASE: Duration = Duration::from_secs(120);
/// Number of failures in a row after which the breaker opens.
const FAILURES: i32 = SupplierBacklog::FAILING;
/// Time for which an open breaker stays open. One call then probes the supplier.
const OPEN: Duration = Duration::from_secs(60);

/// A purchase that this node may work on.
#[derive(Clone, Debug)]
pub struct Claimed {
    pub id: PurchaseId,
    pub product_id: ProductId,
    pub wanted: Wanted,
    /// Number of claims so far, with this one. Only during the first one, the supplier cannot know the key.
    pub attempt: i32,
    /// Whether the supplier has accepted the order.
    pub is_accepted: bool,
    /// Time since the purchase was made.
    pub age: Duration,
}

#[derive(FromRow)]
struct Row {
    id: PurchaseId,
    product_id: ProductId,
    key: Uuid,
    sku: String,
    denomination: Decimal,
    currency: String,
    quantity: i32,
    attempt: i32,
    is_accepted: bool,
    age: f64,
}

/// Claims the next purchase of a supplier that is due, if its rate and its breaker permit a call. A time that is further ahead than
/// the longest pause is that of a clock that was wrong, and counts as past.
///
/// # Errors
/// Any error of the database.
pub async fn claim(pool: &PgPool, shard: ShardId, supplier: &str, interval: Duration) -> Result<Option<Claimed>, sqlx::Error> {
    let is_any: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM purchases WHERE shard_id = $1 AND supplier = $2 AND status IN ('REQUESTED', 'PENDING'))",
    )
    .bind(shard)
    .bind(supplier)
    .fetch_one(pool)
    .await?;
    if !is_any {
        return Ok(None);
    }
    let mut tx = pool.begin().await?;
    sqlx::query("INSERT INTO supplier_calls (supplier) VALUES ($1) ON CONFLICT DO NOTHING")
        .bind(supplier)
        .execute(&mut *tx)
        .await?;
    let may_call: Option<i32> = sqlx::query_scalar(
        "UPDATE supplier_calls SET next_at = clock_timestamp() + make_interval(secs => $2),
            open_until = CASE WHEN failures >= $3 THEN clock_timestamp() + make_interval(secs => $4) ELSE open_until END
         WHERE supplier = $1 AND (next_at <= clock_timestamp() OR next_at > clock_timestamp() + $5)
           AND (open_until <= clock_timestamp() OR open_until > clock_timestamp() + $5) RETURNING failures",
    )
    .bind(supplier)
    .bind(interval.as_secs_f64())
    .bind(FAILURES)
    .bind(OPEN.as_secs_f64())
    .bind(LONGEST_PAUSE)
    .fetch_optional(&mut *tx)
    .await?;
    if may_call.is_none() {
        tx.rollback().await?;
        return Ok(None);
    }
    sqlx::query(
        "INSERT INTO purchase_calls (shard_id, purchase_id) SELECT shard_id, id FROM purchases
         WHERE shard_id = $1 AND supplier = $2 AND status IN ('REQUESTED', 'PENDING') ON CONFLICT DO NOTHING",
    )
    .bind(shard)
    .bind(supplier)
    .execute(&mut *tx)
    .await?;
    let row: Option<Row> = sqlx::query_as(
        "WITH due AS (
            SELECT p.id FROM purchases p JOIN purchase_calls c ON c.shard_id = p.shard_id AND c.purchase_id = p.id
            WHERE p.shard_id = $1 AND p.supplier = $2 AND p.status IN ('REQUESTED', 'PENDING')
              AND (c.due_at <= clock_timestamp() OR c.due_at > clock_timestamp() + $4)
              AND (c.leased_until <= clock_timestamp() OR c.leased_until > clock_timestamp() + $4)
            ORDER BY c.due_at, p.id LIMIT 1 FOR UPDATE OF c SKIP LOCKED)
         UPDATE purchase_calls c SET attempts = attempts + 1, is_noticed = false, leased_until = clock_timestamp() + make_interval(secs => $3)
         FROM due JOIN purchases p ON p.shard_id = $1 AND p.id = due.id WHERE c.shard_id = $1 AND c.purchase_id = due.id
         RETURNING p.id, p.product_id, p.key, p.sku, p.denomination, p.currency, p.quantity, c.attempts AS attempt,
            p.status = 'PENDING' AS is_accepted, extract(epoch FROM clock_timestamp() - p.requested_at)::float8 AS age",
    )
    .bind(shard)
    .bind(supplier)
    .bind(LEASE.as_secs_f64())
    .bind(LONGEST_PAUSE)
    .fetch_optional(&mut *tx)
    .await?;
    let Some(row) = row else {
        tx.rollback().await?;
        return Ok(None);
    };
    tx.commit().await?;
    let currency: Currency = row.currency.parse().map_err(|problem: &'static str| sqlx::Error::Decode(problem.into()))?;
    let denomination = Money::try_from(row.denomination).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
    let wanted = Wanted { key: row.key, sku: row.sku, denomination, currency, quantity: row.quantity };
    let age = Duration::try_from_secs_f64(row.age).unwrap_or_default();
    Ok(Some(Claimed { id: row.id, product_id: row.product_id, wanted, attempt: row.attempt, is_accepted: row.is_accepted, age }))
}

/// Gives back a claim after an answer, unless another node has claimed the purchase meanwhile. The breaker closes. An open purchase
/// is due again after `again`, or at once if the supplier has sent a notice meanwhile.
///
/// # Errors
/// Any error of the database.
pub async fn answered(
    pool: &PgPool,
    shard: ShardId,
    claimed: &Claimed,
    supplier: &str,
    again: Duration,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "WITH closed AS (UPDATE supplier_calls SET failures = 0, open_until = '-infinity' WHERE supplier = $4 AND failures > 0)
         UPDATE purchase_calls SET leased_until = '-infinity', is_noticed = false, problem = NULL,
            due_at = CASE WHEN is_noticed THEN clock_timestamp() ELSE clock_timestamp() + $5 END
         WHERE shard_id = $1 AND purchase_id = $2 AND attempts = $3",
    )
    .bind(shard)
    .bind(claimed.id)
    .bind(claimed.attempt)
    .bind(supplier)
    .bind(again)
    .execute(pool)
    .await?;
    Ok(())
}

/// Gives back a claim whose outcome is unknown, unless another node has claimed the purchase meanwhile. The purchase is asked about
/// again later, notice or not, and the breaker counts the failure.
///
/// # Errors
/// Any error of the database.
pub async fn failed(pool: &PgPool, shard: ShardId, claimed: &Claimed, supplier: &str, problem: &str) -> Result<(), sqlx::Error> {
    let doubled = Duration::from_secs(1 << claimed.attempt.clamp(1, 10));
    sqlx::query(
        "WITH counted AS (
            UPDATE supplier_calls SET failures = failures + 1,
                open_until = CASE WHEN failures + 1 >= $6 THEN clock_timestamp() + $7 ELSE open_until END
            WHERE supplier = $4)
         UPDATE purchase_calls SET leased_until = '-infinity', is_noticed = false, due_at = clock_timestamp() + $5, problem = $8
         WHERE shard_id = $1 AND purchase_id = $2 AND attempts = $3",
    )
    .bind(shard)
    .bind(claimed.id)
    .bind(claimed.attempt)
    .bind(supplier)
    .bind(doubled.min(LONGEST_PAUSE))
    .bind(FAILURES)
    .bind(OPEN)
    .bind(problem)
    .execute(pool)
    .await?;
    Ok(())
}
