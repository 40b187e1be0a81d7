//! Deliveries of an account that were made in a period.
//!
//! The ids of deliveries about orders follow the order of creation, so a period of them is a range of ids. Test deliveries break
//! that order, because their ids are drawn any time before they are created. So those of the wrong side of a bound are found
//! one by one.

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgConnection};
use ledger_events::webhook::WebhookEventType;
use ledger_events::{AccountId, ShardId, WebhookId};
use sqlx::QueryBuilder;

use super::model::DeliveryFilter;
use super::retried::AllRetried;
use crate::listing::ROWS_PER_ANCHOR;
use crate::listing::page_anchors::DELIVERIES;
use crate::listing::pages::{self, DELIVERED, DELIVERY_GROUPS, FAILED, Group, Grouped, PENDING_GROUPS, Thresholds};
use crate::page::Page;

/// Deliveries of an account since a time, as far as ids follow the order of creation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since {
    /// Id of the first one; `i64::MAX` if there is none.
    pub first: i64,
    /// Number of deliveries from that id on, including test deliveries.
    pub count: i64,
}

impl Since {
    /// Finds the first delivery at or after a time by binary search over the page anchors. `total` is the number of the account's
    /// deliveries.
    pub async fn find(
        conn: &mut PgConnection,
        (shard, account): (ShardId, AccountId),
        time: DateTime<Utc>,
        total: i64,
    ) -> Result<Since, sqlx::Error> {
        let mut older = (0, i64::MIN);
        let mut newer = (total, i64::MAX);
        while newer.0 - older.0 > ROWS_PER_ANCHOR {
            let middle = older.0 + (newer.0 - older.0) / 2;
            let (ordinal, key) = DELIVERIES.anchor(conn, shard, account, middle).await?;
            if ordinal <= older.0 {
                newer.0 = middle; // no anchor lies in between
            } else if is_older(conn, (shard, account), key, time).await? {
                older = (ordinal, key);
            } else {
                newer = (ordinal, key);
            }
        }
        let first: Option<i64> = sqlx::query_scalar(
            "SELECT id FROM deliveries WHERE shard_id = $1 AND account_id = $2 AND id > $3 AND id <= $4 AND order_id > 0 AND created_at >= $5
             ORDER BY id LIMIT 1",
        )
        .bind(shard)
        .bind(account)
        .bind(older.1)
        .bind(newer.1)
        .bind(time)
        .fetch_optional(&mut *conn)
        .await?;
        let Some(first) = first else { return Ok(Since { first: i64::MAX, count: 0 }) };
        let before: i64 =
            sqlx::query_scalar("SELECT count(*) FROM deliveries WHERE shard_id = $1 AND account_id = $2 AND id > $3 AND id < $4")
                .bind(shard)
                .bind(account)
                .bind(older.1)
                .bind(first)
                .fetch_one(conn)
                .await?;
        Ok(Since { first, count: total - older.0 - before })
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
    Ok(last.is_none_or(|last| last < time))
}

/// A test delivery whose id is on the other side of a bound than its time.
#[derive(Debug, FromRow)]
pub(super) struct Misplaced {
    pub id: i64,
    webhook_id: WebhookId,
    event_type: String,
    pub status: String,
    /// Whether it was made in the period. Its id is in the range of ids if it was not.
    pub is_inside: bool,
}

impl Misplaced {
    /// Finds those of a period with this range of ids.
    pub async fn find(
        conn: &mut PgConnection,
        (shard, account): (ShardId, AccountId),
        (from, to): (Option<DateTime<Utc>>, Option<DateTime<Utc>>),
        (after, upto): (i64, i64),
    ) -> Result<Vec<Misplaced>, sqlx::Error> {
        sqlx::query_as(
            "SELECT d.id, d.webhook_id, d.event_type, s.status, d.is_inside
             FROM (SELECT *, ($3::timestamptz IS NULL OR created_at >= $3) AND ($4::timestamptz IS NULL OR created_at < $4) AS is_inside
                   FROM deliveries WHERE shard_id = $1 AND account_id = $2 AND order_id = 0) AS d
             JOIN delivery_state s ON s.shard_id = d.shard_id AND s.delivery_id = d.id
             WHERE d.is_inside <> (d.id > $5 AND d.id <= $6)",
        )
        .bind(shard)
        .bind(account)
        .bind(from)
        .bind(to)
        .bind(after)
        .bind(upto)
        .fetch_all(conn)
        .await
    }

    fn matches(&self, filter: &DeliveryFilter) -> bool {
        filter.status.is_none_or(|status| status == self.status)
            && filter.webhook_id.is_none_or(|webhook| webhook == self.webhook_id)
            && filter.event_type.map(WebhookEventType::as_str).is_none_or(|event_type| event_type == self.event_type)
    }
}

/// Selection of deliveries: those of the groups in the range of ids, without some and with others.
struct Selected<'a> {
    owner: (ShardId, AccountId),
    groups: &'a [Group<WebhookId>],
    sources: &'a [Grouped],
    /// Ids after the first value and up to the second.
    within: (i64, i64),
    without: Vec<i64>,
    with: Vec<i64>,
}

/// Returns the number of deliveries that match a filter with a period, and the keys of a page of them.
pub(super) async fn find(
    conn: &mut PgConnection,
    shard: ShardId,
    filter: &DeliveryFilter,
    retried: &AllRetried,
    (page, thresholds): (Page, &Thresholds),
) -> Result<(i64, Vec<i64>), sqlx::Error> {
    let owner = (shard, filter.account_id);
    let event_type = filter.event_type.map(WebhookEventType::as_str);
    let groups = &pages::delivery_groups(conn, shard, filter.account_id, filter.webhook_id, event_type).await?;
    let of_account = DELIVERIES.total(conn, shard, filter.account_id).await?;
    let from = match filter.created_from {
        Some(from) => Since::find(conn, owner, from, of_account).await?,
        None => Since { first: 1, count: of_account },
    };
    let to = match filter.created_to {
        Some(to) => Since::find(conn, owner, to, of_account).await?,
        None => Since { first: i64::MAX, count: 0 },
    };
    let within = (from.first.saturating_sub(1), to.first.saturating_sub(1));
    let misplaced = Misplaced::find(conn, owner, (filter.created_from, filter.created_to), within).await?;
    let (mut with, mut without) = (vec![], vec![]);
    for test in misplaced.iter().filter(|test| test.matches(filter)) {
        if test.is_inside { &mut with } else { &mut without }.push(test.id);
    }
    let moved = retried.ids(filter);
    match filter.status {
        Some("failed") => {
            with.retain(|id| !moved.contains(id));
            without.extend(moved.into_iter().filter(|id| within.0 < *id && *id <= within.1));
            without.sort_unstable();
            without.dedup();
        }
        Some("pending") => with.extend(moved),
        _ => {}
    }
    let sources: &[Grouped] = match filter.status {
        None => &[DELIVERY_GROUPS],
        Some("delivered") => &[DELIVERED],
        Some("failed") => &[FAILED],
        Some(_) => &PENDING_GROUPS,
    };
    let selected = Selected { owner, groups, sources, within, without, with };
    // Without a webhook and an event type, the anchors tell the number of all deliveries in the range.
    let of_period = (Group::rows_of(groups) == of_account).then(|| (from.count - to.count).max(0));
    let in_range = match (filter.status, of_period) {
        (None, Some(rows)) => rows,
        (Some("delivered"), Some(rows)) => {
            let others = [FAILED, PENDING_GROUPS[0], PENDING_GROUPS[1]];
            rows - in_range(conn, owner, groups, &others, within).await?
        }
        _ => in_range(conn, owner, groups, sources, within).await?,
    };
    let total = in_range - selected.without.len() as i64 + selected.with.len() as i64;
    let keys = match selected.sources {
        [source] if selected.without.is_empty() && selected.with.is_empty() => {
            source.keys(conn, owner, groups, within, (total, page.rows()), thresholds).await?
        }
        _ => selected.read(conn, page).await?,
    };
    Ok((total, keys))
}

/// Counts the deliveries of some groups from these sources in a range of ids.
async fn in_range(
    conn: &mut PgConnection,
    owner: (ShardId, AccountId),
    groups: &[Group<WebhookId>],
    sources: &[Grouped],
    within: (i64, i64),
) -> Result<i64, sqlx::Error> {
    let mut count = 0;
    for source in sources {
        count += source.count(conn, owner, groups, within).await?;
    }
    Ok(count)
}

impl Selected<'_> {
    /// Reads all keys up to the end of a page.
    async fn read(&self, conn: &mut PgConnection, page: Page) -> Result<Vec<i64>, sqlx::Error> {
        let mut query = QueryBuilder::new("SELECT key FROM (");
        for source in self.sources {
            source.push_keys(&mut query, self.owner, self.groups, self.within);
            query.push(" UNION ALL ");
        }
        query.push("SELECT 0::bigint WHERE false) AS found WHERE key <> ALL (").push_bind(&self.without);
        query.push(") UNION ALL SELECT unnest(").push_bind(&self.with).push("::bigint[])");
        query.push(" ORDER BY key DESC LIMIT ").push_bind(page.size).push(" OFFSET ").push_bind(page.offset());
        query.build_query_scalar().persistent(false).fetch_all(conn).await
    }
}
