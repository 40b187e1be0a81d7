//! Statistics of an account's deliveries, by status and age.

use chrono::{DateTime, Utc};
use ledger_database::{PgConnection, PgPool, replanned};
use ledger_events::{AccountId, ShardId, WebhookId};
use sqlx::QueryBuilder;

use super::model::{PENDING, Retry, webhooks_of};
use super::retried::AllRetried;
use crate::listing::ROWS_PER_ANCHOR;
use crate::listing::page_anchors::DELIVERIES;
use crate::listing::pages::{self, Group};
use crate::page;

/// Number of an account's deliveries by status, in total and for the last 24 hours (specification, "Delivery
/// statistics").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    pub total_count: i64,
    pub pending_count: i64,
    pub delivered_count: i64,
    pub failed_count: i64,
    pub last_24h_total: i64,
    pub last_24h_delivered: i64,
    pub last_24h_failed: i64,
}

/// Computes the statistics. The database's clock defines the last 24 hours.
///
/// Delivered deliveries are those that are neither pending nor failed. No row of theirs is read, however many
/// exist, neither for the total nor for the last 24 hours. `retries` are those of the account that the projection
/// has not processed yet.
pub async fn statistics(pool: &PgPool, shard: ShardId, account: AccountId, retries: &[Retry]) -> Result<Statistics, sqlx::Error> {
    replanned(|| compute(pool, shard, account, retries)).await
}

async fn compute(pool: &PgPool, shard: ShardId, account: AccountId, retries: &[Retry]) -> Result<Statistics, sqlx::Error> {
    let mut tx = page::snapshot(pool).await?;
    let groups = pages::delivery_groups(&mut tx, shard, account, None, None).await?;
    let total_count = Group::rows_of(&groups);
    let webhooks = webhooks_of(&groups);
    let since = sqlx::query_scalar("SELECT now() - interval '24 hours'").fetch_one(&mut *tx).await?;
    let recent = Recent::find(&mut tx, (shard, account), since, total_count).await?;
    let (pending_count, recent_pending) = pending(&mut tx, shard, &webhooks, recent.first).await?;
    // Each failed delivery is counted once, though there can be many.
    let older_failed = pages::FAILED.count(&mut tx, (shard, account), &groups, (0, recent.first - 1)).await?;
    let recent_failed = pages::FAILED.count(&mut tx, (shard, account), &groups, (recent.first - 1, i64::MAX)).await?;
    let failed_count = older_failed + recent_failed;
    let tests = tests_out_of_order(&mut tx, (shard, account), since, recent.first).await?;
    let retried = AllRetried::find(&mut tx, shard, account, retries).await?;
    tx.commit().await?;
    let (moved, moved_recently) =
        retried.iter().fold((0, 0), |(all, new), retried| (all + 1, new + i64::from(retried.created_at > since)));
    Ok(Statistics {
        total_count,
        pending_count: pending_count + moved,
        delivered_count: total_count - pending_count - failed_count,
        failed_count: failed_count - moved,
        last_24h_total: recent.count + tests.total,
        last_24h_delivered: recent.count - recent_pending - recent_failed + tests.delivered,
        last_24h_failed: recent_failed + tests.failed - moved_recently,
    })
}

/// Deliveries of an account since a time, as far as ids follow the order of creation. Test deliveries break that
/// order: their ids are drawn any time before they are created.
#[derive(Clone, Copy, Debug)]
struct Recent {
    /// Id of the first one; `i64::MAX` if there is none.
    first: i64,
    /// Number of deliveries from that id on, including test deliveries.
    count: i64,
}

impl Recent {
    /// Finds the first recent delivery by binary search over the page anchors. `total` is the number of the
    /// account's deliveries.
    async fn find(
        conn: &mut PgConnection,
        (shard, account): (ShardId, AccountId),
        since: DateTime<Utc>,
        total: i64,
    ) -> Result<Recent, sqlx::Error> {
        let mut older = (0, i64::MIN);
        let mut newer = (total, i64::MAX);
        while newer.0 - older.0 > ROWS_PER_ANCHOR {
            let middle = older.0 + (newer.0 - older.0) / 2;
            let (ordinal, key) = DELIVERIES.anchor(conn, shard, account, middle).await?;
            if ordinal <= older.0 {
                newer.0 = middle; // no anchor lies in between
            } else if is_older(conn, (shard, account), key, since).await? {
                older = (ordinal, key);
            } else {
                newer = (ordinal, key);
            }
        }
        let first: Option<i64> = sqlx::query_scalar(
            "SELECT id FROM deliveries WHERE shard_id = $1 AND account_id = $2 AND id > $3 AND id <= $4 AND order_id > 0 AND created_at > $5
             ORDER BY id LIMIT 1",
        )
        .bind(shard)
        .bind(account)
        .bind(older.1)
        .bind(newer.1)
        .bind(since)
        .fetch_optional(&mut *conn)
        .await?;
        let Some(first) = first else { return Ok(Recent { first: i64::MAX, count: 0 }) };
        let before: i64 =
            sqlx::query_scalar("SELECT count(*) FROM deliveries WHERE shard_id = $1 AND account_id = $2 AND id > $3 AND id < $4")
                .bind(shard)
                .bind(account)
                .bind(older.1)
                .bind(first)
                .fetch_one(conn)
                .await?;
        Ok(Recent { first, count: total - older.0 - before })
    }
}

/// Returns whether all of an account's deliveries up to an id were made before a time. Ignores test deliveries.
async fn is_older(
    conn: &mut PgConnection,
    (shard, account): (ShardId, AccountId),
    upto: i64,
    time: DateTime<Utc>,
) -> Result<bool, sqlx::Error> {
    let last: Option<DateTime<Utc>> = sqlx::query_scalar(
        "SELECT created_at FROM deliveries WHERE shard_id = $1 AND account_id = $2 AND id <= $3 AND order_id > 0 ORDER BY id DESC LIMIT 1",
    )
    .bind(shard)
    .bind(account)
    .bind(upto)
    .fetch_optional(conn)
    .await?;
    Ok(last.is_none_or(|last| last <= time))
}

/// Counts the pending deliveries of these webhooks: all, and those from an id on.
async fn pending(conn: &mut PgConnection, shard: ShardId, webhooks: &[WebhookId], first: i64) -> Result<(i64, i64), sqlx::Error> {
    let (mut all, mut recent) = (0, 0);
    for state in PENDING {
        let mut query = QueryBuilder::new("SELECT count(*), count(*) FILTER (WHERE delivery_id >= ");
        query.push_bind(first).push(") FROM delivery_state WHERE shard_id = ").push_bind(shard);
        query.push(" AND webhook_id = ANY (").push_bind(webhooks.to_vec()).push(") AND ").push(*state);
        let (n, of_them): (i64, i64) = query.build_query_as().persistent(false).fetch_one(&mut *conn).await?;
        (all, recent) = (all + n, recent + of_them);
    }
    Ok((all, recent))
}

/// Correction to add to the recent counts.
#[derive(Clone, Copy, Debug, ledger_database::FromRow)]
struct Correction {
    total: i64,
    delivered: i64,
    failed: i64,
}

/// Counts the test deliveries whose ids are out of order. Adds those that were made since a time but have ids
/// before `first`, and subtracts the opposite ones. Clients request tests one by one, so all test deliveries can
/// be examined.
async fn tests_out_of_order(
    conn: &mut PgConnection,
    (shard, account): (ShardId, AccountId),
    since: DateTime<Utc>,
    first: i64,
) -> Result<Correction, sqlx::Error> {
    sqlx::query_as(
        "SELECT coalesce(sum(n), 0)::bigint AS total, coalesce(sum(n) FILTER (WHERE status = 'delivered'), 0)::bigint AS delivered,
            coalesce(sum(n) FILTER (WHERE status = 'failed'), 0)::bigint AS failed
         FROM (SELECT CASE WHEN d.created_at > $3 THEN 1 ELSE -1 END AS n, s.status
               FROM deliveries d JOIN delivery_state s ON s.shard_id = d.shard_id AND s.delivery_id = d.id
               WHERE d.shard_id = $1 AND d.account_id = $2 AND d.order_id = 0 AND (d.created_at > $3) <> (d.id >= $4)) AS tests",
    )
    .bind(shard)
    .bind(account)
    .bind(since)
    .bind(first)
    .fetch_one(conn)
    .await
}
