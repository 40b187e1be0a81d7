//! Claims of due deliveries: one transaction leases each delivery and writes its attempt ahead, as in flight. It ends before
//! any HTTP request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use hyper::body::Bytes;
use ledger_database::FromRow;
use ledger_database::{PgConnection, PgPool};
use ledger_events::{AccountId, CredentialId, ShardId, WebhookId};
use sha2::{Digest, Sha256};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::schedule::Clock;
use crate::ledger::connect::Line;
use crate::secrets::SIGNING_SECRET;
use crate::secrets::seal::{KeyId, Keyring, Private, SealError, salted_hash};

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
pub struct Want {
    pub webhook_id: WebhookId,
    pub first_attempts: usize,
    pub retries: usize,
    /// Number of deliveries that may be claimed whatever other nodes hold.
    pub least: usize,
    /// Maximum number of leased deliveries of this webhook, across all nodes.
    pub most: usize,
}

impl Want {
    /// Reduces the counts to the room that existing leases leave.
    ///
    /// Retries keep their proportion, and a fraction of a delivery is rounded up or down at random. With fixed rounding,
    /// one of the two kinds would starve where there is room for only one delivery at a time.
    fn beside(self, leased: usize) -> Want {
        let (all, room) = (self.first_attempts + self.retries, self.least.max(self.most.saturating_sub(leased)));
        if room >= all {
            return self;
        }
        let retries = (self.retries * room + rand::random_range(0..all)) / all;
        Want { first_attempts: room - retries, retries, ..self }
    }
}

/// Result of a claim.
#[derive(Debug, Default)]
pub struct Claims {
    pub claimed: Vec<Claimed>,
    /// Whether leases of other nodes limited the claim.
    pub is_short: bool,
}

/// Current URL and secret of a webhook, opened for sending.
#[derive(Debug)]
pub struct Target {
    pub url: Private,
    pub secret: Private,
    /// Salted hash by which the log commits to the URL.
    url_hash: String,
    secret_hash: String,
}

impl PartialEq for Target {
    fn eq(&self, other: &Target) -> bool {
        (&self.url_hash, &self.secret_hash) == (&other.url_hash, &other.secret_hash)
    }
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
    pub payload: Bytes,
    /// URL and secret; `None` if they cannot be opened.
    pub target: Option<Arc<Target>>,
    pub moment: Moment,
}

/// Time of a claim, by the database's clock and by this process's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub at: DateTime<Utc>,
    pub began: Instant,
    /// Time at which the delivery was ready to be sent. A slow claim does not make its deliveries stale.
    pub ready: Instant,
    pub lease_ends: Instant,
}

impl Moment {
    /// Returns the current time by the database's clock: the claim's time plus the time that has passed here.
    pub fn now(&self) -> DateTime<Utc> {
        TimeDelta::from_std(self.began.elapsed()).ok().and_then(|passed| self.at.checked_add_signed(passed)).unwrap_or(self.at)
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
            payload: row.try_get(7)?,
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
    line: &Line,
    clock: &Clock,
    keyring: &Keyring,
    targets: &Targets,
    shard: ShardId,
    wants: &[Want],
    lease: Duration,
) -> Result<Claims, sqlx::Error> {
    let mut connection = line.acquire().await?;
    let mut tx = connection.begin().await?;
    // The lock is a separate statement, so that the next statement sees everything that the previous claim committed.
    sqlx::query("SELECT pg_advisory_xact_lock($1, $2::smallint)").bind(CLAIM_LOCK).bind(shard).execute(&mut *tx).await?;
    let began = Instant::now();
    let Some(Present { at, targets, leased }) = targets.open(&mut tx, clock, keyring, shard, wants).await? else {
        tx.rollback().await?;
        connection.keep();
        return Ok(Claims::default());
    };
    let beside = |want: &Want| match targets.contains_key(&want.webhook_id) {
        true => want.beside(leased.get(&want.webhook_id).copied().unwrap_or_default()),
        // A webhook that this node cannot open is left to a node that can, or to a person.
        false => Want { first_attempts: 0, retries: 0, ..*want },
    };
    let fitting: Vec<Want> = wants.iter().map(beside).collect();
    let is_short = fitting.iter().zip(wants).any(|(fitting, want)| fitting != want && targets.contains_key(&want.webhook_id));
    if fitting.iter().all(|want| want.first_attempts + want.retries == 0) {
        tx.rollback().await?;
        connection.keep();
        return Ok(Claims { claimed: vec![], is_short });
    }
    let mut moment = Moment { at, began, ready: began, lease_ends: began + lease };
    let mut rows = take(&mut tx, shard, &fitting, &targets, at, lease).await?;
    if rows.is_empty() {
        tx.rollback().await?;
        connection.keep();
        return Ok(Claims { claimed: vec![], is_short });
    }
    tx.commit().await?;
    connection.keep();
    moment.ready = Instant::now();
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
        payload: row.payload.into(),
        target: targets.get(&row.webhook_id).cloned(),
        moment,
    });
    Ok(Claims { claimed: claimed.collect(), is_short })
}

/// Leases delivery rows and writes their attempts.
async fn take(
    conn: &mut PgConnection,
    shard: ShardId,
    wants: &[Want],
    targets: &HashMap<WebhookId, Arc<Target>>,
    at: DateTime<Utc>,
    lease: Duration,
) -> Result<Vec<ClaimedRow>, sqlx::Error> {
    let hash = |want: &Want, which: fn(&Target) -> &str| targets.get(&want.webhook_id).map(|t| which(t)).unwrap_or_default();
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
                        (SELECT d.event_id, d.event_type, e.payload FROM deliveries d
                         JOIN webhook_envelopes e ON e.shard_id = $1 AND e.event_id = d.event_id AND e.payload IS NOT NULL
                         WHERE d.shard_id = $1 AND d.id = s.delivery_id OFFSET 0) AS sent
                     WHERE shard_id = $1 AND webhook_id = want.webhook_id AND status = 'pending' AND attempt_count > 0
                       AND next_attempt_at <= $2 AND (leased_until IS NULL OR (leased_until < $2 AND unknown_count < $9))
                     ORDER BY next_attempt_at LIMIT want.retries) AS retries
                 UNION ALL
                 SELECT * FROM
                    (SELECT s.delivery_id, sent.* FROM delivery_state s CROSS JOIN LATERAL
                        (SELECT d.event_id, d.event_type, e.payload FROM deliveries d
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
                locked.url_hash, locked.secret_hash, locked.event_id, locked.event_type, locked.payload),
         written AS (
            INSERT INTO delivery_attempts (shard_id, delivery_id, request_id, attempt, started_at, url_hash, secret_hash)
            SELECT $1, delivery_id, request_id, attempt, $2, url_hash, secret_hash FROM claimed)
         SELECT delivery_id, webhook_id, fence, attempt, request_id, event_id, event_type, payload FROM claimed",
    )
    .bind(shard)
    .bind(at)
    .bind(wants.iter().map(|want| want.webhook_id).collect::<Vec<_>>())
    .bind(wants.iter().map(|want| number(want.first_attempts)).collect::<Vec<_>>())
    .bind(wants.iter().map(|want| number(want.retries)).collect::<Vec<_>>())
    .bind(wants.iter().map(|want| hash(want, |target| &target.url_hash)).collect::<Vec<_>>())
    .bind(wants.iter().map(|want| hash(want, |target| &target.secret_hash)).collect::<Vec<_>>())
    .bind(at + TimeDelta::from_std(lease).unwrap_or(TimeDelta::zero()))
    .bind(MAX_UNKNOWN)
    .fetch_all(conn)
    .await
}

#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
struct Sealed {
    webhook_id: WebhookId,
    credential_id: Option<CredentialId>,
    url_salt: Option<Vec<u8>>,
    url: Option<Vec<u8>>,
    token: Option<Vec<u8>>,
    signing_secret: Option<Vec<u8>>,
}

impl Sealed {
    fn open(&self, keyring: &Keyring) -> Result<Target, SealError> {
        let missing = SealError::Unreadable;
        let (salt, url) = self.url_salt.as_ref().zip(self.url.as_ref()).ok_or(missing)?;
        let url = keyring.open_text("webhook.url", self.webhook_id, url)?;
        let secret = match (self.credential_id, &self.signing_secret, &self.token) {
            (Some(id), Some(secret), _) => keyring.open_text(SIGNING_SECRET, id, secret)?,
            (None, _, Some(token)) => keyring.open_text("webhook.token", self.webhook_id, token)?,
            _ => return Err(SealError::Unreadable),
        };
        let url_hash = salted_hash(salt, url.expose());
        // A secret of 256 random bits needs no salt.
        let secret_hash = hex::encode(Sha256::digest(secret.expose().as_bytes()));
        Ok(Target { url, secret, url_hash, secret_hash })
    }
}

/// Whether a claim failed because this node lacks the current master key.
pub(super) fn lacks_key(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Decode(source) if source.downcast_ref() == Some(&SealError::NotCurrent))
}

/// Time, targets and leases that a claim starts from.
struct Present {
    at: DateTime<Utc>,
    targets: HashMap<WebhookId, Arc<Target>>,
    /// Number of leased deliveries of each webhook, across all nodes. It is not counted for webhooks without a limit.
    leased: HashMap<WebhookId, usize>,
}

/// Cache of opened targets. Every claim reads the sealed values, so a changed URL or secret applies to the very next claim;
/// the cache only saves opening them again.
#[derive(Debug, Default)]
pub struct Targets(Mutex<HashMap<WebhookId, (Sealed, Arc<Target>)>>);

impl Targets {
    /// Maximum number of cached targets.
    const MOST: usize = 10_000;

    /// Returns the current targets of these webhooks.
    pub async fn now(
        &self,
        pool: &PgPool,
        clock: &Clock,
        keyring: &Keyring,
        shard: ShardId,
        webhooks: &[WebhookId],
    ) -> Result<HashMap<WebhookId, Arc<Target>>, sqlx::Error> {
        let none_of =
            |webhook_id: &WebhookId| Want { webhook_id: *webhook_id, first_attempts: 0, retries: 0, least: 0, most: usize::MAX };
        let wants: Vec<Want> = webhooks.iter().map(none_of).collect();
        let present = self.open(&mut *pool.acquire().await?, clock, keyring, shard, &wants).await?;
        Ok(present.map(|present| present.targets).unwrap_or_default())
    }

    /// Loads the targets and lease counts of the wanted webhooks. Returns `None` if none of them exists.
    async fn open(
        &self,
        conn: &mut PgConnection,
        clock: &Clock,
        keyring: &Keyring,
        shard: ShardId,
        wants: &[Want],
    ) -> Result<Option<Present>, sqlx::Error> {
        let rows = sqlx::query(
            "SELECT (SELECT key_id FROM vault.master_keys WHERE state = 'current') AS current_key, a.webhook_id, w.credential_id, url.salt AS url_salt, url.sealed AS url, token.sealed AS token, c.signing_secret,
                (clock_timestamp() + $4)::timestamptz(3) AS present, leased.count AS leased
             FROM unnest($2::bigint[], $3::boolean[]) AS wanted (webhook_id, is_bounded)
             JOIN webhook_audience a ON a.shard_id = $1 AND a.webhook_id = wanted.webhook_id
             JOIN webhooks w ON w.shard_id = $1 AND w.id = wanted.webhook_id
             LEFT JOIN vault.texts url ON url.shard_id = $1 AND url.kind = 'webhook.url' AND url.id = a.webhook_id
             LEFT JOIN vault.texts token ON token.shard_id = $1 AND token.kind = 'webhook.token' AND token.id = a.webhook_id
             LEFT JOIN vault.credentials c ON c.credential_id = w.credential_id
             CROSS JOIN LATERAL
                (SELECT count(*) FROM delivery_state l WHERE wanted.is_bounded AND l.shard_id = $1
                    AND l.webhook_id = wanted.webhook_id AND l.leased_until > statement_timestamp() + $4) AS leased",
        )
        .bind(shard)
        .bind(wants.iter().map(|want| want.webhook_id).collect::<Vec<_>>())
        .bind(wants.iter().map(|want| want.most < usize::MAX).collect::<Vec<_>>())
        .bind(clock.ahead())
        .fetch_all(conn)
        .await?;
        let Some(first) = rows.first() else { return Ok(None) };
        let at = first.try_get("present")?;
        let current: Option<&[u8]> = first.try_get("current_key")?;
        // A node without the current key can open some values and not others, so it leaves everything to other nodes.
        if !current.is_some_and(|id| KeyId::try_from(id).is_ok_and(|id| keyring.holds(id))) {
            return Err(sqlx::Error::Decode(Box::new(SealError::NotCurrent)));
        }
        let sealed = rows.iter().map(Sealed::from_row).collect::<Result<Vec<_>, _>>()?;
        let leased = rows.iter().map(|row| Ok((row.try_get("webhook_id")?, row.try_get::<i64, _>("leased")?)));
        let leased = leased.collect::<Result<Vec<(WebhookId, i64)>, sqlx::Error>>()?;
        let leased = leased.into_iter().map(|(webhook_id, count)| (webhook_id, usize::try_from(count).unwrap_or(usize::MAX)));
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() > Self::MOST {
            kept.clear();
        }
        let mut targets = HashMap::with_capacity(sealed.len());
        for sealed in sealed {
            let webhook_id = sealed.webhook_id;
            if let Some((same, target)) = kept.get(&webhook_id)
                && *same == sealed
            {
                targets.insert(webhook_id, target.clone());
                continue;
            }
            match sealed.open(keyring) {
                Ok(target) => {
                    let target = Arc::new(target);
                    kept.insert(webhook_id, (sealed, target.clone()));
                    targets.insert(webhook_id, target);
                }
                Err(error) => {
                    kept.remove(&webhook_id);
                    tracing::error!(webhook_id, %error, "failed to open a webhook's URL or secret; claiming no deliveries");
                }
            }
        }
        Ok(Some(Present { at, targets, leased: leased.collect() }))
    }
}
