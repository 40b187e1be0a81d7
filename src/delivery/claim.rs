//! Claims of due deliveries: one transaction leases each delivery and writes its attempt ahead, as in flight. It ends before
//! any HTTP request.

mod targets;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use hyper::body::Bytes;
use ledger_database::FromRow;
use ledger_database::{PgConnection, PgPool};
use ledger_events::{AccountId, Position, ShardId, WebhookId};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::schedule::Clock;
use crate::ledger::connect::DedicatedConnection;
use crate::secrets::seal::Keyring;
use crate::telemetry::traces::TraceParent;
use targets::Present;
pub(super) use targets::lacks_key;
pub use targets::{Target, Targets};

/// Number of times that an attempt of unknown outcome is repeated.
pub const MAX_UNKNOWN: i16 = 5;

/// Key of the advisory lock that allows one claim per shard at a time, across all nodes, so that the limit per webhook is
/// exact.
const CLAIM_LOCK: i32 = 0x0077_6864; // "whd" in ASCII

/// Webhook with due deliveries. All of them may be in flight already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    pub webhook_id: WebhookId,
    pub account_id: AccountId,
    pub has_first_attempts: bool,
    pub has_retries: bool,
}

/// Number of deliveries of a webhook to claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    pub webhook_id: WebhookId,
    pub first_attempts: usize,
    pub retries: usize,
    /// Number of deliveries that may be claimed whatever other nodes hold.
    pub least: usize,
    /// Maximum number of leased deliveries of this webhook, across all nodes.
    pub most: usize,
}

impl ClaimRequest {
    /// Returns the number of deliveries to claim, of both kinds.
    pub fn count(&self) -> usize {
        self.first_attempts + self.retries
    }

    /// Reduces the counts to the room that existing leases leave.
    ///
    /// Retries keep their proportion, and a fraction of a delivery is rounded up or down at random. With fixed rounding,
    /// one of the two kinds would starve where there is room for only one delivery at a time.
    fn beside(self, leased: usize) -> ClaimRequest {
        let (all, room) = (self.count(), self.least.max(self.most.saturating_sub(leased)));
        if room >= all {
            return self;
        }
        let retries = (self.retries * room + rand::random_range(0..all)) / all;
        ClaimRequest { first_attempts: room - retries, retries, ..self }
    }
}

/// Result of a claim.
#[derive(Debug, Default)]
pub struct Claims {
    pub claimed: Vec<Claimed>,
    /// Whether leases of other nodes limited the claim.
    pub is_short: bool,
}

/// Delivery that this node has claimed, to be sent once.
#[derive(Clone, Debug)]
pub struct Claimed {
    pub shard: ShardId,
    pub delivery_id: i64,
    pub webhook_id: WebhookId,
    /// Fencing token. It grows with every claim, and a result with an older one is not recorded. A failover that loses the
    /// claim can repeat it, but never together with `request_id`.
    pub fence: i64,
    /// Number of this attempt, from 1.
    pub attempt: i16,
    pub request_id: Uuid,
    pub event_id: Uuid,
    pub event_type: String,
    /// Position of the event in the log.
    pub position: Position,
    pub payload: Bytes,
    /// URL and secret; `None` if they cannot be opened.
    pub target: Option<Arc<Target>>,
    /// Place of the event in its trace. The worker looks it up only on a node that exports traces.
    pub traceparent: Option<TraceParent>,
    pub clock: LeaseClock,
}

/// Time of a claim, by the database's clock and by this process's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct LeaseClock {
    pub at: DateTime<Utc>,
    /// Time at which the answer with `at` had arrived.
    pub read_at: Instant,
    /// Time at which the delivery was ready to be sent. A slow claim does not make its deliveries stale.
    pub ready: Instant,
    pub lease_ends: Instant,
}

impl LeaseClock {
    /// Returns the current time by the database's clock: the claim's time plus the time that has passed here since then. It
    /// is never ahead of the database, whose clock has gone on since it was read.
    pub fn now(&self) -> DateTime<Utc> {
        TimeDelta::from_std(self.read_at.elapsed()).ok().and_then(|passed| self.at.checked_add_signed(passed)).unwrap_or(self.at)
    }
}

struct ClaimedRow {
    delivery_id: i64,
    webhook_id: WebhookId,
    fence: i64,
    attempt: i16,
    request_id: Uuid,
    event_id: Uuid,
    event_type: String,
    position: Position,
    payload: String,
}

impl FromRow<'_, PgRow> for ClaimedRow {
    fn from_row(row: &PgRow) -> Result<ClaimedRow, sqlx::Error> {
        Ok(ClaimedRow {
            delivery_id: row.try_get(0)?,
            webhook_id: row.try_get(1)?,
            fence: row.try_get(2)?,
            attempt: row.try_get(3)?,
            request_id: row.try_get(4)?,
            event_id: row.try_get(5)?,
            event_type: row.try_get(6)?,
            position: row.try_get(7)?,
            payload: row.try_get(8)?,
        })
    }
}

/// Returns the webhooks of a shard with due deliveries, and the time until more become due (`None` if nothing else is
/// pending).
///
/// The two lanes are loose index scans: they take one step per webhook with pending deliveries, however many deliveries
/// are pending.
pub async fn due(pool: &PgPool, clock: &Clock, shard: ShardId) -> Result<(Vec<Due>, Option<Duration>), sqlx::Error> {
    let rows: Vec<(WebhookId, AccountId, Option<f64>, Option<f64>)> = sqlx::query_as(
        "WITH RECURSIVE first_lane AS (
            (SELECT webhook_id, next_attempt_at FROM delivery_state
             WHERE shard_id = $1 AND status = 'pending' AND attempt_count = 0
             ORDER BY webhook_id, next_attempt_at LIMIT 1)
            UNION ALL
            SELECT next.webhook_id, next.next_attempt_at FROM first_lane CROSS JOIN LATERAL
            (SELECT webhook_id, next_attempt_at FROM delivery_state
             WHERE shard_id = $1 AND status = 'pending' AND attempt_count = 0 AND webhook_id > first_lane.webhook_id
             ORDER BY webhook_id, next_attempt_at LIMIT 1) AS next),
         retry_lane AS (
            (SELECT webhook_id, next_attempt_at FROM delivery_state
             WHERE shard_id = $1 AND status = 'pending' AND attempt_count > 0
             ORDER BY webhook_id, next_attempt_at LIMIT 1)
            UNION ALL
            SELECT next.webhook_id, next.next_attempt_at FROM retry_lane CROSS JOIN LATERAL
            (SELECT webhook_id, next_attempt_at FROM delivery_state
             WHERE shard_id = $1 AND status = 'pending' AND attempt_count > 0 AND webhook_id > retry_lane.webhook_id
             ORDER BY webhook_id, next_attempt_at LIMIT 1) AS next),
         webhook AS (
            SELECT webhook_id, min(first_at) AS first_at, min(retry_at) AS retry_at FROM
                (SELECT webhook_id, next_attempt_at AS first_at, NULL::timestamptz AS retry_at FROM first_lane
                 UNION ALL SELECT webhook_id, NULL, next_attempt_at FROM retry_lane) AS lanes
            GROUP BY webhook_id),
         present AS MATERIALIZED (SELECT clock_timestamp() + $2 AS at)
         SELECT webhook.webhook_id, a.account_id, extract(epoch FROM first_at - present.at)::float8, extract(epoch FROM retry_at - present.at)::float8
         FROM present CROSS JOIN webhook JOIN webhook_audience a ON a.shard_id = $1 AND a.webhook_id = webhook.webhook_id",
    )
    .bind(shard)
    .bind(clock.ahead())
    .fetch_all(pool)
    .await?;
    let is_due = |seconds: Option<f64>| seconds.is_some_and(|seconds| seconds <= 0.0);
    let later = rows.iter().flat_map(|row| [row.2, row.3]).flatten().filter(|seconds| *seconds > 0.0).min_by(f64::total_cmp);
    let due = rows.into_iter().filter(|row| is_due(row.2) || is_due(row.3));
    let due = due.map(|row| Due {
        webhook_id: row.0,
        account_id: row.1,
        has_first_attempts: is_due(row.2),
        has_retries: is_due(row.3),
    });
    Ok((due.collect(), later.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))))
}

/// Claims due deliveries and writes their attempts ahead. Each webhook gets as many as wanted, but no more than may be
/// leased of it across all nodes.
pub async fn claim(
    dedicated: &DedicatedConnection,
    clock: &Clock,
    keyring: &Keyring,
    targets: &Targets,
    shard: ShardId,
    requests: &[ClaimRequest],
    lease: Duration,
) -> Result<Claims, sqlx::Error> {
    let mut connection = dedicated.acquire().await?;
    let mut tx = connection.begin().await?;
    // The lock is a separate statement, so that the next statement sees everything that the previous claim committed.
    sqlx::query("SELECT pg_advisory_xact_lock($1, $2::smallint)").bind(CLAIM_LOCK).bind(shard).execute(&mut *tx).await?;
    // The lease ends here no later than in the database, however long the answer takes.
    let lease_ends = Instant::now() + lease;
    let Some(Present { at, targets, leased }) = targets.open(&mut tx, clock, keyring, shard, requests).await? else {
        tx.rollback().await?;
        connection.keep();
        return Ok(Claims::default());
    };
    let read_at = Instant::now();
    let beside = |request: &ClaimRequest| match targets.contains_key(&request.webhook_id) {
        true => request.beside(leased.get(&request.webhook_id).copied().unwrap_or_default()),
        // A webhook that this node cannot open is left to a node that can, or to a person.
        false => ClaimRequest { first_attempts: 0, retries: 0, ..*request },
    };
    let fitting: Vec<ClaimRequest> = requests.iter().map(beside).collect();
    let is_short =
        fitting.iter().zip(requests).any(|(fitting, request)| fitting != request && targets.contains_key(&request.webhook_id));
    if fitting.iter().all(|request| request.count() == 0) {
        tx.rollback().await?;
        connection.keep();
        return Ok(Claims { claimed: vec![], is_short });
    }
    let mut lease_clock = LeaseClock { at, read_at, ready: read_at, lease_ends };
    let mut rows = take(&mut tx, shard, &fitting, &targets, at, lease).await?;
    if rows.is_empty() {
        tx.rollback().await?;
        connection.keep();
        return Ok(Claims { claimed: vec![], is_short });
    }
    tx.commit().await?;
    connection.keep();
    lease_clock.ready = Instant::now();
    rows.sort_unstable_by_key(|row| row.delivery_id); // in the order of the log
    let claimed = rows.into_iter().map(|row| Claimed {
        shard,
        delivery_id: row.delivery_id,
        webhook_id: row.webhook_id,
        fence: row.fence,
        attempt: row.attempt,
        request_id: row.request_id,
        event_id: row.event_id,
        event_type: row.event_type,
        position: row.position,
        payload: row.payload.into(),
        target: targets.get(&row.webhook_id).cloned(),
        traceparent: None,
        clock: lease_clock,
    });
    Ok(Claims { claimed: claimed.collect(), is_short })
}

/// Leases delivery rows and writes their attempts.
async fn take(
    conn: &mut PgConnection,
    shard: ShardId,
    requests: &[ClaimRequest],
    targets: &HashMap<WebhookId, Arc<Target>>,
    at: DateTime<Utc>,
    lease: Duration,
) -> Result<Vec<ClaimedRow>, sqlx::Error> {
    let hash = |request: &ClaimRequest, which: fn(&Target) -> &str| {
        targets.get(&request.webhook_id).map(|t| which(t)).unwrap_or_default()
    };
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    // `locked` checks the chosen rows again under their lock. Its conditions match no index but the primary key: an index
    // on due rows would be read whole for each row. A state without its delivery or envelope cannot be sent, and must not
    // block those that can. OFFSET 0 forces a lookup row by row, whatever the planner estimates.
    sqlx::query_as(
        "WITH want AS MATERIALIZED (
            SELECT * FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::text[])
                AS w (webhook_id, first_attempts, retries, url_hash, secret_hash)),
         chosen AS MATERIALIZED (
            SELECT candidate.*, want.url_hash, want.secret_hash
            FROM want CROSS JOIN LATERAL
                (SELECT * FROM
                    (SELECT s.delivery_id, sent.* FROM delivery_state s CROSS JOIN LATERAL
                        (SELECT d.event_id, d.event_type, e.position, e.payload FROM deliveries d
                         JOIN webhook_envelopes e ON e.shard_id = $1 AND e.event_id = d.event_id AND e.payload IS NOT NULL
                         WHERE d.shard_id = $1 AND d.id = s.delivery_id OFFSET 0) AS sent
                     WHERE shard_id = $1 AND webhook_id = want.webhook_id AND status = 'pending' AND attempt_count > 0
                       AND next_attempt_at <= $2 AND (leased_until IS NULL OR (leased_until < $2 AND unknown_count < $9))
                     ORDER BY next_attempt_at LIMIT want.retries) AS retries
                 UNION ALL
                 SELECT * FROM
                    (SELECT s.delivery_id, sent.* FROM delivery_state s CROSS JOIN LATERAL
                        (SELECT d.event_id, d.event_type, e.position, e.payload FROM deliveries d
                         JOIN webhook_envelopes e ON e.shard_id = $1 AND e.event_id = d.event_id AND e.payload IS NOT NULL
                         WHERE d.shard_id = $1 AND d.id = s.delivery_id OFFSET 0) AS sent
                     WHERE shard_id = $1 AND webhook_id = want.webhook_id AND status = 'pending' AND attempt_count = 0
                       AND next_attempt_at <= $2 AND (leased_until IS NULL OR (leased_until < $2 AND unknown_count < $9))
                     ORDER BY next_attempt_at LIMIT want.first_attempts) AS first_attempts) AS candidate),
         locked AS MATERIALIZED (
            SELECT chosen.* FROM chosen JOIN delivery_state s ON s.shard_id = $1 AND s.delivery_id = chosen.delivery_id
            WHERE s.status NOT IN ('delivered', 'failed') AND greatest(s.next_attempt_at, $2) = $2
              AND (s.leased_until IS NULL OR (s.leased_until < $2 AND s.unknown_count < $9))
            FOR UPDATE OF s SKIP LOCKED),
         claimed AS (
            UPDATE delivery_state s
            SET fence = s.fence + 1, leased_until = $8, unknown_count = s.unknown_count + (s.leased_until IS NOT NULL)::int::smallint
            FROM locked WHERE s.shard_id = $1 AND s.delivery_id = locked.delivery_id
            RETURNING s.delivery_id, s.webhook_id, s.fence, (s.attempt_count + 1)::smallint AS attempt, gen_random_uuid() AS request_id,
                locked.url_hash, locked.secret_hash, locked.event_id, locked.event_type, locked.position, locked.payload),
         written AS (
            INSERT INTO delivery_attempts
                (shard_id, delivery_id, webhook_id, request_id, attempt, claimed_at, started_at, url_hash, secret_hash)
            SELECT $1, delivery_id, webhook_id, request_id, attempt, $2, $2, url_hash, secret_hash FROM claimed)
         SELECT delivery_id, webhook_id, fence, attempt, request_id, event_id, event_type, position, payload FROM claimed",
    )
    .bind(shard)
    .bind(at)
    .bind(requests.iter().map(|request| request.webhook_id).collect::<Vec<_>>())
    .bind(requests.iter().map(|request| number(request.first_attempts)).collect::<Vec<_>>())
    .bind(requests.iter().map(|request| number(request.retries)).collect::<Vec<_>>())
    .bind(requests.iter().map(|request| hash(request, |target| &target.url_hash)).collect::<Vec<_>>())
    .bind(requests.iter().map(|request| hash(request, |target| &target.secret_hash)).collect::<Vec<_>>())
    .bind(at + TimeDelta::from_std(lease).unwrap_or(TimeDelta::zero()))
    .bind(MAX_UNKNOWN)
    .fetch_all(conn)
    .await
}
