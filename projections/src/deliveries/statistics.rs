//! Statistics of an account's deliveries, by status and age.

use ledger_database::{PgConnection, PgPool, replanned};
use ledger_events::{AccountId, ShardId, WebhookId};
use sqlx::QueryBuilder;

use super::model::{PENDING, Retry, webhooks_of};
use super::period::{Since, count_misplaced};
use super::retried::AllRetried;
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
    let recent = Since::find(&mut tx, (shard, account), since, total_count).await?;
    let (pending_count, recent_pending) = pending(&mut tx, shard, &webhooks, recent.first).await?;
    // Each failed delivery is counted once, though there can be many.
    let older_failed = pages::FAILED.count(&mut tx, (shard, account), &groups, (0, recent.first - 1)).await?;
    let recent_failed = pages::FAILED.count(&mut tx, (shard, account), &groups, (recent.first - 1, i64::MAX)).await?;
    let failed_count = older_failed + recent_failed;
    let misplaced = count_misplaced(&mut tx, (shard, account), since, recent.first).await?;
    let retried = AllRetried::find(&mut tx, shard, account, retries).await?;
    tx.commit().await?;
    let (moved, moved_recently) =
        retried.iter().fold((0, 0), |(all, new), retried| (all + 1, new + i64::from(retried.created_at >= since)));
    // Some deliveries without an order are counted on the wrong side of the bound.
    let more = |status: Option<&str>| -> i64 {
        let of_status = misplaced.iter().filter(|(_, of, _)| status.is_none_or(|status| status == of));
        of_status.map(|(is_inside, _, count)| if *is_inside { *count } else { -count }).sum()
    };
    Ok(Statistics {
        total_count,
        pending_count: pending_count + moved,
        delivered_count: total_count - pending_count - failed_count,
        failed_count: failed_count - moved,
        last_24h_total: recent.count + more(None),
        last_24h_delivered: recent.count - recent_pending - recent_failed + more(Some("delivered")),
        last_24h_failed: recent_failed + more(Some("failed")) - moved_recently,
    })
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
