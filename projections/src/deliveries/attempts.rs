//! Attempts by time, newest first: of all accounts, or of one webhook.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, TimeDelta, Utc};
use ledger_database::{FromRow, PgPool};
use ledger_events::{AccountId, OrderId, Position, ShardId, WebhookId};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row};
use uuid::Uuid;

use super::model::{Attempt, AttemptOutcome};

/// Number of attempts that one statement looks at, or a few more that come meanwhile.
const WINDOW: i64 = 5_000;
/// Number of windows after which a page ends.
const MAX_WINDOWS: usize = 2;
/// Longest time from a claim to the end of its attempt: the longest timeout of a delivery, which is an hour, and a margin.
const LONGEST: TimeDelta = TimeDelta::minutes(62);

/// Attempt before which a page begins. As text, the milliseconds of its claim and its request id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptKey {
    claimed_at: DateTime<Utc>,
    request_id: Uuid,
}

impl fmt::Display for AttemptKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.claimed_at.timestamp_millis(), self.request_id.simple())
    }
}

/// Text that is no key of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the key of an attempt")]
pub struct NoAttemptKey;

impl FromStr for AttemptKey {
    type Err = NoAttemptKey;

    fn from_str(text: &str) -> Result<AttemptKey, NoAttemptKey> {
        let (millis, request_id) = text.split_once('-').ok_or(NoAttemptKey)?;
        let claimed_at = millis.parse().ok().and_then(DateTime::from_timestamp_millis).ok_or(NoAttemptKey)?;
        Ok(AttemptKey { claimed_at, request_id: Uuid::try_parse(request_id).map_err(|_| NoAttemptKey)? })
    }
}

/// Selection of attempts. The time of an attempt is its end, or its claim if it has no recorded end.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttemptFilter {
    /// Only attempts for this webhook. `None` stands for all accounts.
    pub webhook: Option<(ShardId, WebhookId)>,
    pub outcome: Option<AttemptOutcome>,
    /// Beginning of the period.
    pub since: Option<DateTime<Utc>>,
    /// End of the period, exclusive.
    pub until: Option<DateTime<Utc>>,
}

/// An attempt with the delivery that it belongs to.
#[derive(Clone, Debug)]
pub struct AnyAttempt {
    pub shard_id: ShardId,
    pub account_id: AccountId,
    pub webhook_id: WebhookId,
    pub delivery_id: i64,
    pub order_id: OrderId,
    /// Type of the event. A newer release may have written one that this one does not know.
    pub event_type: String,
    pub event_id: Uuid,
    /// Position of the event in the log of the shard.
    pub position: Position,
    pub attempt: Attempt,
}

/// An attempt of a window.
struct Found {
    key: AttemptKey,
    /// `None` if the delivery or its envelope is missing.
    any: Option<AnyAttempt>,
}

impl FromRow<'_, PgRow> for AttemptKey {
    fn from_row(row: &PgRow) -> Result<AttemptKey, sqlx::Error> {
        Ok(AttemptKey { claimed_at: row.try_get("claimed_at")?, request_id: row.try_get("request_id")? })
    }
}

impl FromRow<'_, PgRow> for Found {
    fn from_row(row: &PgRow) -> Result<Found, sqlx::Error> {
        let key = AttemptKey::from_row(row)?;
        let Some(account_id) = row.try_get("account_id")? else { return Ok(Found { key, any: None }) };
        let any = AnyAttempt {
            shard_id: row.try_get("shard_id")?,
            account_id,
            webhook_id: row.try_get("webhook_id")?,
            delivery_id: row.try_get("delivery_id")?,
            order_id: row.try_get("order_id")?,
            event_type: row.try_get("event_type")?,
            event_id: row.try_get("event_id")?,
            position: row.try_get("position")?,
            attempt: Attempt::from_row(row)?,
        };
        Ok(Found { key, any: Some(any) })
    }
}

/// A page of attempts, the latest claim first.
#[derive(Debug)]
pub struct Attempts {
    pub attempts: Vec<AnyAttempt>,
    /// Attempt before which the next page begins; `None` at the end.
    pub next_before: Option<AttemptKey>,
}

/// Lists at most `limit` attempts, the latest claim first. A page may hold fewer attempts, or none, although more follow: it ends
/// after a bounded scan.
///
/// Attempts that a node of an older release has claimed before migration 0054 are left out. The list of a webhook also leaves out
/// attempts without a webhook: those from before migration 0056, and those that nodes of the last release make after it.
///
/// # Errors
/// Any error of the database.
pub async fn list_attempts(
    pool: &PgPool,
    filter: &AttemptFilter,
    mut before: Option<AttemptKey>,
    limit: usize,
) -> Result<Attempts, sqlx::Error> {
    let mut attempts: Vec<AnyAttempt> = vec![];
    for _ in 0..MAX_WINDOWS {
        // The end is read first. So an attempt that comes or goes between the statements is neither repeated nor does it move
        // the end.
        let end = end_of_window(pool, filter, before).await?;
        let wanted = limit - attempts.len();
        let mut found = window(pool, filter, before, end, wanted).await?;
        let is_full = found.len() > wanted;
        found.truncate(wanted);
        before = if is_full { found.last().map(|last| last.key) } else { end };
        attempts.extend(found.into_iter().filter_map(|found| found.any));
        if attempts.len() >= limit || is_full || before.is_none() {
            break;
        }
    }
    Ok(Attempts { attempts, next_before: before })
}

/// Adds the condition of the attempts that a page looks at.
fn push_condition(query: &mut QueryBuilder<Postgres>, filter: &AttemptFilter, before: Option<AttemptKey>) {
    query.push(" FROM delivery_attempts WHERE claimed_at IS NOT NULL");
    if let Some((shard, webhook)) = filter.webhook {
        query.push(" AND shard_id = ").push_bind(shard).push(" AND webhook_id = ").push_bind(webhook);
    }
    if let Some(since) = filter.since {
        query.push(" AND claimed_at >= ").push_bind(since.checked_sub_signed(LONGEST).unwrap_or(since));
    }
    if let Some(until) = filter.until {
        query.push(" AND claimed_at < ").push_bind(until);
    }
    if let Some(AttemptKey { claimed_at, request_id }) = before {
        // The first condition is that of the index.
        query.push(" AND claimed_at <= ").push_bind(claimed_at);
        query.push(" AND (claimed_at, request_id) < (").push_bind(claimed_at).push(", ").push_bind(request_id).push(")");
    }
}

/// Order of the attempts.
const ORDER: &str = " ORDER BY claimed_at DESC, request_id DESC";

/// Returns the attempts of a window that match, at most one more than wanted. The window ends with an attempt, which belongs
/// to it, or has all attempts that are left.
async fn window(
    pool: &PgPool,
    filter: &AttemptFilter,
    before: Option<AttemptKey>,
    end: Option<AttemptKey>,
    wanted: usize,
) -> Result<Vec<Found>, sqlx::Error> {
    // The outcome is that of `Attempt::outcome`. Few attempts have no recorded end, so only for these another row is read.
    let mut query = QueryBuilder::new(
        "WITH chosen AS MATERIALIZED (
            SELECT * FROM
                (SELECT a.*, CASE
                    WHEN finished_at IS NOT NULL AND response_status BETWEEN 200 AND 299 THEN 'delivered'
                    WHEN finished_at IS NOT NULL THEN 'failed'
                    WHEN EXISTS (SELECT FROM delivery_state s WHERE s.shard_id = a.shard_id AND s.delivery_id = a.delivery_id
                            AND s.leased_until > clock_timestamp())
                        AND NOT EXISTS (SELECT FROM delivery_attempts n WHERE n.shard_id = a.shard_id AND n.delivery_id = a.delivery_id
                            AND (n.started_at, n.request_id) > (a.started_at, a.request_id)) THEN 'in_flight'
                    ELSE 'unknown' END AS outcome
                 FROM (SELECT shard_id, delivery_id, request_id, attempt, claimed_at, started_at, finished_at, response_status,
                    response_time_ms, error",
    );
    push_condition(&mut query, filter, before);
    if let Some(AttemptKey { claimed_at, request_id }) = end {
        query.push(" AND claimed_at >= ").push_bind(claimed_at);
        query.push(" AND (claimed_at, request_id) >= (").push_bind(claimed_at).push(", ").push_bind(request_id).push(")");
    }
    // OFFSET 0 keeps the outcome from being computed more than once.
    query.push(ORDER).push(") AS a OFFSET 0) AS looked_at WHERE true");
    for (at, condition) in [(filter.since, " >= "), (filter.until, " < ")] {
        if let Some(at) = at {
            query.push(" AND coalesce(finished_at, claimed_at)").push(condition).push_bind(at);
        }
    }
    if let Some(outcome) = filter.outcome {
        query.push(" AND outcome = ").push_bind(outcome.as_str());
    }
    query
        .push(" ORDER BY claimed_at DESC, request_id DESC LIMIT ")
        .push_bind(i64::try_from(wanted).unwrap_or(i64::MAX).saturating_add(1));
    query.push(
        ")
         SELECT chosen.shard_id, chosen.delivery_id, chosen.request_id, chosen.attempt, chosen.claimed_at, chosen.started_at,
            chosen.finished_at, chosen.response_status, chosen.response_time_ms, chosen.error,
            chosen.outcome = 'in_flight' AS is_in_flight, of.account_id, of.webhook_id, of.order_id, of.event_type, of.event_id, of.position
         FROM chosen LEFT JOIN LATERAL
            (SELECT d.account_id, d.webhook_id, d.order_id, d.event_type, d.event_id, e.position FROM deliveries d
             JOIN webhook_envelopes e ON e.shard_id = d.shard_id AND e.event_id = d.event_id
             WHERE d.shard_id = chosen.shard_id AND d.id = chosen.delivery_id OFFSET 0) AS of ON true
         ORDER BY chosen.claimed_at DESC, chosen.request_id DESC",
    );
    query.build_query_as().fetch_all(pool).await
}

/// Returns the last attempt of a window; `None` if the window has all attempts that are left.
async fn end_of_window(
    pool: &PgPool,
    filter: &AttemptFilter,
    before: Option<AttemptKey>,
) -> Result<Option<AttemptKey>, sqlx::Error> {
    let mut query = QueryBuilder::new("SELECT claimed_at, request_id");
    push_condition(&mut query, filter, before);
    query.push(ORDER).push(" OFFSET ").push_bind(WINDOW - 1).push(" LIMIT 1");
    query.build_query_as().fetch_optional(pool).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_is_written() {
        let claimed_at = DateTime::from_timestamp_millis(1_795_000_000_123).unwrap();
        let key = AttemptKey { claimed_at, request_id: Uuid::from_u128(7) };
        assert_eq!(key.to_string().parse(), Ok(key));
        for wrong in
            ["", "-", "1", "x-00000000000000000000000000000007", "1-x", "99999999999999999999-00000000000000000000000000000007"]
        {
            assert_eq!(wrong.parse::<AttemptKey>(), Err(NoAttemptKey), "{wrong}");
        }
    }
}
