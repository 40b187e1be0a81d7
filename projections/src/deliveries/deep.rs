//! Deep pages of a filtered list of deliveries.
//!
//! Skipping all rows before a deep page can cost more than counting the rows that the filter excludes. In that
//! case the page is located among all deliveries of the account, by their page anchors.

use std::ops::Range;

use ledger_database::PgConnection;
use ledger_events::{AccountId, ShardId, WebhookId};
use sqlx::QueryBuilder;

use super::model::PENDING;
use crate::listing::page_anchors::DELIVERIES;
use crate::listing::pages::{self, DELIVERED, DELIVERY_GROUPS, FAILED, Group, Grouped, Thresholds};

/// Range of wanted rows, out of `total` rows that match a filter. Row 0 is the newest.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub total: i64,
    pub rows: Range<i64>,
}

impl Wanted {
    /// Returns the number of rows before the range, or after it if these are fewer.
    fn skipped(&self) -> i64 {
        self.rows.start.min(self.total - self.rows.end)
    }

    /// Returns the range with this number of newer rows removed.
    fn after(self, newer: i64) -> Self {
        Self { total: self.total - newer, rows: self.rows.start - newer..self.rows.end.saturating_sub(newer) }
    }
}

/// Cost of reading the key of a pending delivery, relative to counting or skipping another row.
const PENDING_KEY: i64 = 10;
/// Number of guesses by interpolation. After them, the search halves the remaining interval.
const GUESSES: usize = 6;

/// A place among an account's deliveries. `ordinal` is the number of deliveries up to `key`; `newer` is the number
/// of matching deliveries with greater keys.
#[derive(Clone, Copy, Debug)]
struct Place {
    ordinal: i64,
    key: i64,
    newer: i64,
}

/// Narrows a search. Returns a key at or above all wanted rows, and the range of wanted rows among the matches up
/// to that key. `groups` are those of the filter, ignoring its status; `of_account` is the number of the account's
/// deliveries.
pub(super) async fn nearer(
    conn: &mut PgConnection,
    (shard, account): (ShardId, AccountId),
    status: Option<&'static str>,
    (groups, of_account): (&[Group<WebhookId>], i64),
    wanted: Wanted,
    thresholds: &Thresholds,
) -> Result<(i64, Wanted), sqlx::Error> {
    let worth = wanted.skipped().saturating_sub(thresholds.skipped);
    if wanted.rows.start >= wanted.total || worth <= 0 {
        return Ok((i64::MAX, wanted));
    }
    // The fraction of excluded rows to count is about the same as the fraction of matching rows to skip.
    let counted = (of_account - wanted.total).saturating_mul(wanted.skipped()) / wanted.total;
    let most_pending = (worth - counted) / PENDING_KEY;
    let left_out = match most_pending {
        ..0 => None,
        _ => LeftOut::find(conn, (shard, account), status, groups, most_pending).await?,
    };
    let Some(left_out) = left_out else { return Ok((i64::MAX, wanted)) };
    // No more matching rows lie above the upper place than come before the page. More lie above the lower place.
    let mut lower = Place { ordinal: 0, key: 0, newer: wanted.total };
    let mut upper = Place { ordinal: of_account, key: i64::MAX, newer: 0 };
    let width = thresholds.skipped.max(0);
    for round in 0.. {
        if upper.ordinal - lower.ordinal <= width {
            break;
        }
        let guess = if round < GUESSES {
            guess(lower, upper, wanted.rows.start, width)
        } else {
            i64::midpoint(lower.ordinal, upper.ordinal)
        };
        let (ordinal, key) = DELIVERIES.anchor(conn, shard, account, guess).await?;
        if ordinal <= lower.ordinal {
            break;
        }
        // Count from the nearer place.
        let newer = if upper.ordinal - ordinal <= ordinal - lower.ordinal {
            upper.newer + (upper.ordinal - ordinal) - left_out.between(conn, (key, upper.key)).await?
        } else {
            lower.newer - (ordinal - lower.ordinal) + left_out.between(conn, (lower.key, key)).await?
        };
        let place = Place { ordinal, key, newer };
        *if newer > wanted.rows.start { &mut lower } else { &mut upper } = place;
    }
    Ok((upper.key, wanted.after(upper.newer)))
}

/// Guesses the place of a matching row, as if matches were spread evenly. Aims a little beyond it, seen from the
/// nearer place, so that the next two places are close to it.
fn guess(lower: Place, upper: Place, row: i64, width: i64) -> i64 {
    let spread = (upper.ordinal - lower.ordinal) as f64 / (lower.newer - upper.newer).max(1) as f64;
    let beyond = |rows: i64| (rows as f64 * spread * 1.1) as i64 + width / 2;
    let (ahead, behind) = (row - upper.newer, lower.newer - row);
    let guess = if ahead <= behind { upper.ordinal - beyond(ahead) } else { lower.ordinal + beyond(behind) };
    guess.clamp(lower.ordinal, upper.ordinal - 1)
}

/// Deliveries that a filter excludes.
struct LeftOut {
    owner: (ShardId, AccountId),
    /// Groups of other webhooks or event types.
    others: Vec<Group<WebhookId>>,
    /// Groups of the filter, and the states in them that it excludes.
    groups: Vec<Group<WebhookId>>,
    states: &'static [Grouped],
    /// Ids of excluded pending deliveries, ascending.
    pending: Vec<i64>,
}

impl LeftOut {
    /// Loads the excluded deliveries. Returns `None` if more than `most_pending` of them are pending.
    async fn find(
        conn: &mut PgConnection,
        owner: (ShardId, AccountId),
        status: Option<&'static str>,
        groups: &[Group<WebhookId>],
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
            let (ids, kinds): (Vec<WebhookId>, Vec<&str>) = groups.iter().map(|group| (group.id, group.kind.as_str())).unzip();
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

    /// Counts the excluded deliveries with keys after the first value of `within` and up to the second.
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
