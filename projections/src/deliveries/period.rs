//! Deliveries of an account that were made in a period.
//!
//! The ids of deliveries about orders follow the order of creation, so a period of them is a range of ids. Deliveries without an
//! order (tests, payouts, wallets) may break that order, because the id of a test is drawn before it is made. Those whose id and
//! time are on different sides of a bound are found one by one.

use std::ops::Range;

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgConnection};
use ledger_events::webhook::WebhookEventType;
use ledger_events::{AccountId, ShardId, WebhookId};
use sqlx::{Postgres, QueryBuilder};

use super::model::{DeliveryFilter, PENDING, webhooks_of};
use super::retried::AllRetried;
use crate::listing::ROWS_PER_ANCHOR;
use crate::listing::page_anchors::{DELIVERIES, Span};
use crate::listing::pages::{self, DELIVERED, DELIVERY_GROUPS, FAILED, Group, Thresholds};
use crate::page::{self, Page};

/// Deliveries of an account from a time on, as far as ids follow the order of creation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since {
    /// Id of the first one; `i64::MAX` if there is none.
    pub first: i64,
    /// Number of deliveries from that id on, including those without an order.
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

/// Returns whether all of an account's deliveries up to an id were made before a time. Ignores those without an order.
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

/// A delivery without an order whose id and time are on different sides of a bound.
#[derive(Debug, FromRow)]
struct Misplaced {
    id: i64,
    webhook_id: WebhookId,
    event_type: String,
    status: String,
    /// Whether it was made in the period. Its id is in the range of ids if it was not.
    is_inside: bool,
}

/// A query over the misplaced deliveries of an account, for a period from `$3` and before `$4` whose ids are greater than `$5` and
/// up to `$6`.
macro_rules! misplaced {
    ($columns:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM (SELECT shard_id, id, webhook_id, event_type,
                    ($3::timestamptz IS NULL OR created_at >= $3) AND ($4::timestamptz IS NULL OR created_at < $4) AS is_inside
                FROM deliveries WHERE shard_id = $1 AND account_id = $2 AND order_id = 0) AS d
            JOIN delivery_state s ON s.shard_id = d.shard_id AND s.delivery_id = d.id
            WHERE d.is_inside <> (d.id > $5 AND d.id <= $6)"
        )
    };
}

/// Counts the misplaced deliveries for a period from `since` on, with ids from `first` on. Returns whether they were made in the
/// period, their status, and their number.
pub(super) async fn count_misplaced(
    conn: &mut PgConnection,
    (shard, account): (ShardId, AccountId),
    since: DateTime<Utc>,
    first: i64,
) -> Result<Vec<(bool, String, i64)>, sqlx::Error> {
    sqlx::query_as(concat!(misplaced!("d.is_inside, s.status, count(*)"), " GROUP BY 1, 2"))
        .bind(shard)
        .bind(account)
        .bind(since)
        .bind(None::<DateTime<Utc>>)
        .bind(first - 1)
        .bind(i64::MAX)
        .fetch_all(conn)
        .await
}

impl Misplaced {
    /// Finds the misplaced deliveries for the period of a filter, whose ids are in `within`.
    async fn find(
        conn: &mut PgConnection,
        shard: ShardId,
        filter: &DeliveryFilter,
        within: (i64, i64),
    ) -> Result<Vec<Misplaced>, sqlx::Error> {
        sqlx::query_as(misplaced!("d.id, d.webhook_id, d.event_type, s.status, d.is_inside"))
            .bind(shard)
            .bind(filter.account_id)
            .bind(filter.created_from)
            .bind(filter.created_to)
            .bind(within.0)
            .bind(within.1)
            .fetch_all(conn)
            .await
    }

    fn matches(&self, filter: &DeliveryFilter) -> bool {
        filter.status.is_none_or(|status| status == self.status)
            && filter.webhook_id.is_none_or(|webhook| webhook == self.webhook_id)
            && filter.event_type.map(WebhookEventType::as_str).is_none_or(|event_type| event_type == self.event_type)
    }
}

/// Deliveries that a filter with a period selects, by their ids.
struct Period {
    owner: (ShardId, AccountId),
    /// Groups of the filter, whatever the status of their deliveries is, and the account's other groups.
    groups: Vec<Group<WebhookId>>,
    others: Vec<Group<WebhookId>>,
    event_type: Option<&'static str>,
    status: Option<&'static str>,
    /// Number of the account's deliveries, of those from the start of the period on, and of those from its end on.
    of_account: i64,
    since: (i64, i64),
    /// Range of the ids: greater than the first value and up to the second.
    within: (i64, i64),
    /// Ids in the range that the filter does not select, although its status, webhook and event type do.
    without: Vec<i64>,
    /// Ids that the filter selects, although they are not in the range or have another status. The greatest is first.
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
    let period = Period::of(conn, shard, filter, retried).await?;
    match period.status {
        Some("pending") => period.pending(conn, page).await,
        _ => period.page(conn, page.rows(), thresholds).await,
    }
}

/// Returns the part of a list in a range of rows. The list begins at row `first`.
fn part<'a>(list: &'a [i64], first: i64, rows: &Range<i64>) -> &'a [i64] {
    let index = |row: i64| usize::try_from(row - first).unwrap_or_default().min(list.len());
    &list[index(rows.start)..index(rows.end)]
}

impl Period {
    async fn of(
        conn: &mut PgConnection,
        shard: ShardId,
        filter: &DeliveryFilter,
        retried: &AllRetried,
    ) -> Result<Period, sqlx::Error> {
        let owner = (shard, filter.account_id);
        let event_type = filter.event_type.map(WebhookEventType::as_str);
        let is_selected = |group: &Group<WebhookId>| {
            filter.webhook_id.is_none_or(|webhook| webhook == group.id) && event_type.is_none_or(|kind| kind == group.kind)
        };
        let all = pages::delivery_groups(conn, shard, filter.account_id, None, None).await?;
        let (groups, others) = all.into_iter().partition(is_selected);
        let of_account = DELIVERIES.total(conn, shard, filter.account_id).await?;
        let from = match filter.created_from {
            Some(from) => Since::find(conn, owner, from, of_account).await?,
            None => Since { first: 1, count: of_account },
        };
        let to = match filter.created_to {
            Some(to) => Since::find(conn, owner, to, of_account).await?,
            None => Since { first: i64::MAX, count: 0 },
        };
        let within = (from.first - 1, to.first - 1);
        let (mut with, mut without) = (vec![], vec![]);
        for delivery in Misplaced::find(conn, shard, filter, within).await?.iter().filter(|one| one.matches(filter)) {
            if delivery.is_inside { &mut with } else { &mut without }.push(delivery.id);
        }
        let moved = retried.ids(filter);
        match filter.status {
            Some("failed") => {
                with.retain(|id| !moved.contains(id));
                without.extend(moved.into_iter().filter(|id| within.0 < *id && *id <= within.1));
            }
            Some("pending") => with.extend(moved),
            _ => {}
        }
        with.sort_unstable_by(|a, b| b.cmp(a));
        let (status, since) = (filter.status, (from.count, to.count));
        Ok(Period { owner, groups, others, event_type, status, of_account, since, within, without, with })
    }

    /// Returns the number of deliveries, and the keys in a range of rows.
    async fn page(
        &self,
        conn: &mut PgConnection,
        rows: Range<i64>,
        thresholds: &Thresholds,
    ) -> Result<(i64, Vec<i64>), sqlx::Error> {
        let in_range = self.count(conn).await?;
        let without = self.without.len() as i64;
        // Ids outside the range are greater than all in it, or smaller.
        let (newer, older) = self.with.split_at(self.with.partition_point(|id| *id > self.within.1));
        let kept = (in_range - without).max(0);
        let total = kept + self.with.len() as i64;
        let row = |row: i64| (row - newer.len() as i64).clamp(0, kept);
        let wanted = row(rows.start)..row(rows.end);
        let mut keys = part(newer, 0, &rows).to_vec();
        if !wanted.is_empty() {
            let found = self.keys(conn, in_range, wanted.start..wanted.end + without, thresholds).await?;
            for (n, id) in (wanted.start..).zip(found) {
                let left_out = self.without.iter().filter(|other| **other > id).count() as i64;
                if wanted.contains(&(n - left_out)) && !self.without.contains(&id) {
                    keys.push(id);
                }
            }
        }
        keys.extend(part(older, total - older.len() as i64, &rows));
        Ok((total, keys))
    }

    /// Counts the deliveries in the range of ids.
    async fn count(&self, conn: &mut PgConnection) -> Result<i64, sqlx::Error> {
        let failed = match self.status {
            None => 0,
            Some(_) => FAILED.count(conn, self.owner, &self.groups, self.within).await?,
        };
        match self.status {
            None => self.rows(conn).await,
            Some("failed") => Ok(failed),
            Some(_) => {
                let mut query = QueryBuilder::new("SELECT count(*) FROM (");
                self.push_pending(&mut query);
                query.push(") AS pending");
                let pending: i64 = query.build_query_scalar().persistent(false).fetch_one(&mut *conn).await?;
                Ok(self.rows(conn).await? - failed - pending)
            }
        }
    }

    /// Counts the deliveries of the groups in the range of ids, whatever their status is. The anchors tell the number of those of
    /// all groups, so only the smaller groups are counted: these or the others.
    async fn rows(&self, conn: &mut PgConnection) -> Result<i64, sqlx::Error> {
        let of_period = (self.since.0 - self.since.1).max(0);
        if self.others.is_empty() {
            return Ok(of_period);
        }
        if Group::rows_of(&self.groups) <= Group::rows_of(&self.others) {
            return self.rows_of(conn, &self.groups, of_period).await;
        }
        Ok(of_period - self.rows_of(conn, &self.others, of_period).await?)
    }

    /// Counts the deliveries of some groups in the range of ids, which has about `of_period` of all groups. The smaller part is
    /// counted, inside the range or outside.
    async fn rows_of(&self, conn: &mut PgConnection, groups: &[Group<WebhookId>], of_period: i64) -> Result<i64, sqlx::Error> {
        let (owner, within) = (self.owner, self.within);
        if of_period <= self.of_account / 2 {
            return DELIVERY_GROUPS.count(conn, owner, groups, within).await;
        }
        let before = DELIVERY_GROUPS.count(conn, owner, groups, (0, within.0)).await?;
        let after = DELIVERY_GROUPS.count(conn, owner, groups, (within.1, i64::MAX)).await?;
        Ok(Group::rows_of(groups) - before - after)
    }

    /// Returns the keys of some rows of the range, which has `in_range` rows, the newest first.
    async fn keys(
        &self,
        conn: &mut PgConnection,
        in_range: i64,
        rows: Range<i64>,
        thresholds: &Thresholds,
    ) -> Result<Vec<i64>, sqlx::Error> {
        let source = match self.status {
            None if self.others.is_empty() => {
                let (after, upto) = (self.of_account - self.since.0, self.of_account - self.since.1);
                let span = Span { after, upto, after_key: self.within.0, upto_key: self.within.1 };
                return DELIVERIES.keys(conn, self.owner.0, self.owner.1, span, rows).await;
            }
            None => DELIVERY_GROUPS,
            Some("failed") => FAILED,
            Some(_) => DELIVERED,
        };
        source.keys(conn, self.owner, &self.groups, self.within, (in_range, rows), thresholds).await
    }

    /// Returns the number of pending deliveries, and the keys of a page of them. Their indexes are ordered by due time, so one
    /// statement reads all of them.
    async fn pending(&self, conn: &mut PgConnection, page: Page) -> Result<(i64, Vec<i64>), sqlx::Error> {
        let mut query = QueryBuilder::new("WITH found AS (SELECT key FROM (");
        self.push_pending(&mut query);
        query.push(") AS pending WHERE key <> ALL (").push_bind(&self.without);
        query.push(") UNION ALL SELECT unnest(").push_bind(&self.with);
        query.push("::bigint[])) SELECT (SELECT count(*) FROM found), ARRAY(SELECT key FROM found ORDER BY key DESC LIMIT ");
        query.push_bind(page.size).push(" OFFSET ").push_bind(page.offset()).push(")");
        query.build_query_as().persistent(false).fetch_one(conn).await
    }

    /// Appends a query for the keys of the pending deliveries in the range.
    fn push_pending(&self, query: &mut QueryBuilder<Postgres>) {
        for (n, state) in PENDING.iter().enumerate() {
            query.push(if n > 0 { " UNION ALL " } else { "" });
            query.push("SELECT delivery_id AS key FROM delivery_state WHERE shard_id = ").push_bind(self.owner.0);
            query.push(" AND webhook_id = ANY (").push_bind(webhooks_of(&self.groups)).push(") AND ").push(*state);
            query.push(" AND delivery_id > ").push_bind(self.within.0).push(" AND delivery_id <= ").push_bind(self.within.1);
            page::equals(query, "event_type", self.event_type);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_list_is_where_the_list_is() {
        assert_eq!(part(&[9, 8, 7], 10, &(11..13)), [8, 7]);
        assert_eq!(part(&[9, 8, 7], 10, &(0..11)), [9]);
        assert!(part(&[9, 8, 7], 10, &(13..20)).is_empty() && part(&[], 0, &(0..5)).is_empty());
    }
}
