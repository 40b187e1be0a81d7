//! Deep pages of what a filter leaves of an account's deliveries. Where what it leaves out is less work to count than
//! what comes before the page is to skip, the page is found among all of them, by their marks.

use std::ops::Range;

use ledger_events::{AccountId, ShardId};
use sqlx::{PgConnection, QueryBuilder};

use super::read::PENDING;
use crate::listing::marks::DELIVERIES;
use crate::listing::pages::{self, DELIVERED, DELIVERY_GROUPS, FAILED, Group, Grouped, Thresholds};

/// Rows of a filter's `total`, the newest of which is 0.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub total: i64,
    pub rows: Range<i64>,
}

impl Wanted {
    /// How many rows come before it, or after it if these are fewer.
    fn skipped(&self) -> i64 {
        self.rows.start.min(self.total - self.rows.end)
    }

    /// The same rows, with so many of the newest left away.
    fn after(self, newer: i64) -> Self {
        Self { total: self.total - newer, rows: self.rows.start - newer..self.rows.end.saturating_sub(newer) }
    }
}

/// The work of reading a pending delivery's key beside that of counting another row. Skipping one costs
/// [`SKIPPING`].
const PENDING_KEY: i64 = 10;
const SKIPPING: i64 = 3;

/// A key that what is wanted does not lie above, and what is wanted of the filter's rows up to it. `groups` are the
/// filter's, without its status; `of_account` is how many deliveries the account has.
pub(super) async fn nearer(
    conn: &mut PgConnection,
    (shard, account): (ShardId, AccountId),
    status: Option<&'static str>,
    (groups, of_account): (&[Group], i64),
    wanted: Wanted,
    thresholds: &Thresholds,
) -> Result<(i64, Wanted), sqlx::Error> {
    let work = wanted.skipped().saturating_sub(thresholds.skipped).saturating_mul(SKIPPING);
    if wanted.rows.start >= wanted.total || work <= 0 || of_account - wanted.total > work {
        return Ok((i64::MAX, wanted));
    }
    let Some(left_out) = LeftOut::find(conn, (shard, account), status, groups, work / PENDING_KEY).await? else {
        return Ok((i64::MAX, wanted));
    };
    // Above the upper one there are not more of the filter's rows than come before the page; above the lower one there are.
    let mut lower = 0;
    let (mut upper, mut upto, mut newer) = (of_account, i64::MAX, 0);
    while upper - lower > thresholds.skipped {
        let (ordinal, key) = DELIVERIES.mark(conn, shard, account, lower + (upper - lower) / 2).await?;
        if ordinal <= lower {
            break;
        }
        let between = upper - ordinal - left_out.between(conn, (key, upto)).await?;
        if newer + between > wanted.rows.start {
            lower = ordinal;
        } else {
            (upper, upto, newer) = (ordinal, key, newer + between);
        }
    }
    Ok((upto, wanted.after(newer)))
}

/// What a filter leaves out.
struct LeftOut {
    owner: (ShardId, AccountId),
    /// Of other webhooks or event types.
    others: Vec<Group>,
    /// The filter's, and which of their states it leaves out.
    groups: Vec<Group>,
    states: &'static [Grouped],
    /// Pending ones that it leaves out, ascending.
    pending: Vec<i64>,
}

impl LeftOut {
    /// None if there are too many pending ones.
    async fn find(
        conn: &mut PgConnection,
        owner: (ShardId, AccountId),
        status: Option<&'static str>,
        groups: &[Group],
        most_pending: i64,
    ) -> Result<Option<Self>, sqlx::Error> {
        let mut others = pages::delivery_groups(conn, owner.0, owner.1, None, None).await?;
        others.retain(|other| !groups.iter().any(|group| (group.id, &group.kind) == (other.id, &other.kind)));
        let states: &[Grouped] = match status {
            None => &[],
            Some("delivered") => &[FAILED],
            Some("failed") => &[DELIVERED],
            Some(_) => &[DELIVERED, FAILED],
        };
        let mut pending: Vec<i64> = vec![];
        if matches!(status, Some("delivered" | "failed")) {
            let (ids, kinds): (Vec<i64>, Vec<&str>) = groups.iter().map(|group| (group.id, group.kind.as_str())).unzip();
            for state in PENDING {
                let mut query = QueryBuilder::new("SELECT s.delivery_id FROM unnest(");
                query
                    .push_bind(&ids)
                    .push("::bigint[], ")
                    .push_bind(&kinds)
                    .push("::text[]) AS g (id, kind) JOIN delivery_state s ON ");
                query.push("s.shard_id = ").push_bind(owner.0).push(" AND s.webhook_id = g.id AND s.event_type = g.kind AND ");
                query.push(*state).push(" LIMIT ").push_bind(most_pending + 1);
                pending.extend(query.build_query_scalar::<i64>().persistent(false).fetch_all(&mut *conn).await?);
            }
            pending.sort_unstable();
        }
        let is_work = pending.len() as i64 > most_pending;
        Ok((!is_work).then(|| Self { owner, others, groups: groups.to_vec(), states, pending }))
    }

    /// How many have keys after the first and up to the second.
    async fn between(&self, conn: &mut PgConnection, within: (i64, i64)) -> Result<i64, sqlx::Error> {
        let upto = |key| self.pending.partition_point(|pending| *pending <= key);
        let mut count = (upto(within.1) - upto(within.0)) as i64;
        count += DELIVERY_GROUPS.count(conn, self.owner, &self.others, within).await?;
        for state in self.states {
            count += state.count(conn, self.owner, &self.groups, within).await?;
        }
        Ok(count)
    }
}
