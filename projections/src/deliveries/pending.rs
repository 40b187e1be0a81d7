//! Pages of pending deliveries. Their indexes are ordered by due time, so a query reads all of them and sorts. A
//! backlog is usually new, so for a backlog some of the newest deliveries are examined first.

use ledger_database::PgConnection;
use ledger_events::{AccountId, ShardId, WebhookId};
use sqlx::QueryBuilder;

use super::deep::Wanted;
use super::model::{PENDING, webhooks_of};
use crate::listing::pages::{self, DELIVERY_GROUPS, Group, Thresholds};
use crate::page;

/// Cost of checking whether a delivery is pending, relative to reading a pending one.
const LOOK: i64 = 4;

/// Returns the wanted keys of the pending deliveries of some groups, with keys up to `upto`. `pending` is their
/// number for all keys.
pub(super) async fn keys(
    conn: &mut PgConnection,
    owner: (ShardId, AccountId),
    (groups, event_type): (&[Group<WebhookId>], Option<&'static str>),
    upto: i64,
    (pending, wanted): (i64, Wanted),
    thresholds: &Thresholds,
) -> Result<Vec<i64>, sqlx::Error> {
    if wanted.rows.start >= wanted.total {
        return Ok(vec![]);
    }
    let webhooks = with_pending(conn, owner.0, &webhooks_of(groups)).await?;
    if pending > thresholds.pending {
        let groups: Vec<Group<WebhookId>> = groups.iter().filter(|group| webhooks.contains(&group.id)).cloned().collect();
        if let Some(keys) = among_newest(conn, owner, &groups, upto, (pending, &wanted), thresholds).await? {
            return Ok(keys);
        }
    }
    let branches: Vec<_> = webhooks.iter().flat_map(|webhook| PENDING.iter().map(|state| (*webhook, *state))).collect();
    let branch = |query: &mut QueryBuilder<_>, (webhook, state): &(WebhookId, &'static str)| {
        query.push("SELECT key FROM (SELECT delivery_id AS key FROM delivery_state WHERE shard_id = ").push_bind(owner.0);
        query.push(" AND webhook_id = ").push_bind(*webhook).push(" AND ").push(*state);
        query.push(" AND delivery_id <= ").push_bind(upto);
        page::equals(query, "event_type", event_type);
        // `OFFSET 0` stops the planner from scanning all deliveries in key order in the hope of finding some
        // pending ones.
        query.push(" OFFSET 0) AS pending");
    };
    pages::merged(conn, &branches, branch, wanted.total, wanted.rows).await
}

/// Returns the webhooks with pending deliveries. These are few, however many webhooks there are.
async fn with_pending(conn: &mut PgConnection, shard: ShardId, webhooks: &[WebhookId]) -> Result<Vec<WebhookId>, sqlx::Error> {
    let mut query = QueryBuilder::new("SELECT w.id FROM unnest(");
    query.push_bind(webhooks).push("::bigint[]) AS w (id) WHERE false");
    for state in PENDING {
        query.push(" OR EXISTS (SELECT FROM delivery_state WHERE shard_id = ").push_bind(shard);
        query.push(" AND webhook_id = w.id AND ").push(*state).push(")");
    }
    query.build_query_scalar().persistent(false).fetch_all(conn).await
}

/// Returns the wanted keys if they are among the newest deliveries of these groups. Examines only as many
/// deliveries as cost less than reading all pending ones.
async fn among_newest(
    conn: &mut PgConnection,
    owner: (ShardId, AccountId),
    groups: &[Group<WebhookId>],
    mut upto: i64,
    (pending, wanted): (i64, &Wanted),
    thresholds: &Thresholds,
) -> Result<Option<Vec<i64>>, sqlx::Error> {
    let (all, end) = (Group::rows_of(groups), wanted.rows.end.min(wanted.total));
    let (mut found, mut left, mut step) = (vec![], pending / LOOK, end.saturating_mul(2));
    while left >= end {
        let rows = 0..step.min(left);
        let newest = DELIVERY_GROUPS.keys(conn, owner, groups, (0, upto), (all, rows), thresholds).await?;
        let Some(oldest) = newest.last() else { break };
        upto = oldest - 1;
        left -= newest.len() as i64;
        step = step.saturating_mul(4);
        let mut query = QueryBuilder::new("SELECT delivery_id FROM delivery_state WHERE shard_id = ");
        query.push_bind(owner.0).push(" AND delivery_id = ANY (").push_bind(newest).push(") AND status = 'pending'");
        query.push(" ORDER BY delivery_id DESC");
        found.extend(query.build_query_scalar::<i64>().persistent(false).fetch_all(&mut *conn).await?);
        if found.len() as i64 >= end {
            let before = usize::try_from(wanted.rows.start).unwrap_or_default();
            found.truncate(usize::try_from(end).unwrap_or_default());
            return Ok(Some(found.split_off(before)));
        }
    }
    Ok(None)
}
