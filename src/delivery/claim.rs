//! Claiming what is due: a lease on each delivery, and its attempt written ahead as in flight, in
//! one transaction that is over before any HTTP.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use hyper::body::Bytes;
use ledger_events::{CredentialId, ShardId, WebhookId};
use sha2::{Digest, Sha256};
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection, PgPool, Row};
use uuid::Uuid;

use crate::access::SIGNING_SECRET;
use crate::access::seal::{Keyring, Private, SealError, salted_hash};

/// How often an attempt whose outcome is unknown is repeated, over a delivery's life.
pub const MAX_UNKNOWN: i16 = 5;

/// One claimer a shard at a time, over all nodes, so that the limit per webhook is exact.
const CLAIM_LOCK: i32 = 0x0077_6864; // "whd"

/// How much may be claimed.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Deliveries that this node can send beside those it is sending.
    pub free: usize,
    /// Most in flight to one webhook, counted over all nodes.
    pub per_webhook: usize,
    /// How long the claim lasts.
    pub lease: Duration,
}

/// Where a webhook's deliveries go, and what signs them, at the moment of sending.
#[derive(Debug)]
pub struct Target {
    pub url: Private,
    pub secret: Private,
    /// The hash by which the log commits to the URL.
    url_hash: String,
    secret_hash: String,
}

/// One delivery that this node is to send, once.
#[derive(Clone, Debug)]
pub struct Claimed {
    pub shard: ShardId,
    pub delivery_id: i64,
    pub webhook_id: WebhookId,
    /// Grows with every claim: who has an older one records nothing.
    pub fence: i64,
    /// The number of this attempt, from 1.
    pub attempt: i16,
    pub request_id: Uuid,
    pub event_id: Uuid,
    pub event_type: String,
    pub payload: Bytes,
    /// None when the URL or the secret cannot be opened.
    pub target: Option<Arc<Target>>,
    pub moment: Moment,
}

/// The moment of a claim, by the database's clock and by this process's.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub at: DateTime<Utc>,
    pub began: Instant,
    pub lease_ends: Instant,
}

impl Moment {
    /// The present by the database's clock.
    pub fn now(&self) -> DateTime<Utc> {
        TimeDelta::from_std(self.began.elapsed()).ok().and_then(|passed| self.at.checked_add_signed(passed)).unwrap_or(self.at)
    }
}

struct ClaimedRow {
    delivery_id: i64,
    webhook_id: WebhookId,
    fence: i64,
    attempt: i16,
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
            event_id: row.try_get(4)?,
            event_type: row.try_get(5)?,
            payload: row.try_get(6)?,
        })
    }
}

/// Claims deliveries that are due, each with its attempt written ahead.
///
/// No webhook gets more than its limit, nor more than is free beside it, so that however many of
/// them hang there is room for one more. Whose account has the fewest in flight comes first;
/// within a webhook first attempts and retries take turns, four to one.
pub async fn claim(pool: &PgPool, keyring: &Keyring, shard: ShardId, room: Room) -> Result<Vec<Claimed>, sqlx::Error> {
    let began = Instant::now();
    let mut tx = pool.begin().await?;
    // The plans must not depend on how fresh the statistics of these fast tables are.
    let at: DateTime<Utc> = sqlx::query_scalar(
        "SELECT clock_timestamp()::timestamptz(3)
         FROM pg_advisory_xact_lock($1, $2),
              (SELECT count(set_config(name, 'off', true)) FROM
                  unnest(ARRAY['enable_seqscan', 'enable_bitmapscan', 'enable_hashjoin', 'enable_mergejoin', 'jit']) AS name) AS plans",
    )
    .bind(CLAIM_LOCK)
    .bind(i32::from(shard))
    .fetch_one(&mut *tx)
    .await?;
    let moment = Moment { at, began, lease_ends: began + room.lease };
    let rows = lease(&mut tx, shard, room, at).await?;
    if rows.is_empty() {
        tx.rollback().await?;
        return Ok(vec![]);
    }
    let targets = targets(&mut tx, keyring, shard, &rows).await?;
    let claimed: Vec<Claimed> = rows
        .into_iter()
        .map(|row| Claimed {
            shard,
            delivery_id: row.delivery_id,
            webhook_id: row.webhook_id,
            fence: row.fence,
            attempt: row.attempt,
            request_id: Uuid::new_v4(),
            event_id: row.event_id,
            event_type: row.event_type,
            payload: row.payload.into(),
            target: targets.get(&row.webhook_id).cloned(),
            moment,
        })
        .collect();
    write_ahead(&mut tx, shard, at, &claimed).await?;
    tx.commit().await?;
    Ok(claimed)
}

async fn lease(conn: &mut PgConnection, shard: ShardId, room: Room, at: DateTime<Utc>) -> Result<Vec<ClaimedRow>, sqlx::Error> {
    // The lanes are loose scans of their indexes: as many steps as webhooks that wait, however
    // many deliveries do. Ranks begin at what is in flight; chance breaks ties, and gives small
    // claims their share of retries too. What was chosen is looked at again under its lock, in words
    // that fit no index but the primary key: one on what is due would be read whole for each row.
    // A state without its delivery or envelope cannot be sent, and must not stand in the way of what
    // can; a scalar subquery asks for them row by row, whatever the planner believes.
    sqlx::query_as(
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
         due AS MATERIALIZED (
            SELECT webhook_id, count(*) OVER () AS webhooks FROM
                (SELECT webhook_id FROM first_lane WHERE next_attempt_at <= $2
                 UNION SELECT webhook_id FROM retry_lane WHERE next_attempt_at <= $2) AS lanes),
         webhook AS MATERIALIZED (
            SELECT due.webhook_id, a.account_id, live.n AS in_flight, sum(live.n) OVER (PARTITION BY a.account_id) AS account_in_flight,
                   greatest(0, least($4::bigint - live.n, $3::bigint - live.n, 1 + 2 * $3::bigint / due.webhooks)) AS free
            FROM due
            JOIN webhook_audience a ON a.shard_id = $1 AND a.webhook_id = due.webhook_id
            CROSS JOIN LATERAL
                (SELECT count(*) AS n FROM delivery_state l
                 WHERE l.shard_id = $1 AND l.webhook_id = due.webhook_id AND l.leased_until > $2) AS live),
         chosen AS MATERIALIZED (
            SELECT candidate.delivery_id, webhook.webhook_id,
                   webhook.account_in_flight + row_number() OVER (PARTITION BY webhook.account_id ORDER BY webhook.in_flight + candidate.turn) AS place
            FROM webhook CROSS JOIN LATERAL
                (SELECT delivery_id, turn FROM
                    (SELECT delivery_id, row_number() OVER (ORDER BY next_attempt_at)::float8 AS turn FROM
                        (SELECT delivery_id, next_attempt_at FROM delivery_state s
                         WHERE shard_id = $1 AND webhook_id = webhook.webhook_id AND status = 'pending' AND attempt_count = 0
                           AND next_attempt_at <= $2 AND (leased_until IS NULL OR (leased_until < $2 AND unknown_count < $6))
                           AND (SELECT true FROM deliveries d JOIN webhook_envelopes e ON e.shard_id = $1 AND e.event_id = d.event_id
                                WHERE d.shard_id = $1 AND d.id = s.delivery_id)
                         ORDER BY next_attempt_at LIMIT webhook.free) AS first_attempts
                     UNION ALL
                     SELECT delivery_id, 4 * row_number() OVER (ORDER BY next_attempt_at) - 4 * random() AS turn FROM
                        (SELECT delivery_id, next_attempt_at FROM delivery_state s
                         WHERE shard_id = $1 AND webhook_id = webhook.webhook_id AND status = 'pending' AND attempt_count > 0
                           AND next_attempt_at <= $2 AND (leased_until IS NULL OR (leased_until < $2 AND unknown_count < $6))
                           AND (SELECT true FROM deliveries d JOIN webhook_envelopes e ON e.shard_id = $1 AND e.event_id = d.event_id
                                WHERE d.shard_id = $1 AND d.id = s.delivery_id)
                         ORDER BY next_attempt_at LIMIT webhook.free) AS retries) AS both_lanes
                 ORDER BY turn LIMIT webhook.free) AS candidate
            ORDER BY place, random() LIMIT $3),
         locked AS MATERIALIZED (
            SELECT s.delivery_id FROM chosen JOIN delivery_state s ON s.shard_id = $1 AND s.delivery_id = chosen.delivery_id
            WHERE s.status NOT IN ('delivered', 'failed') AND greatest(s.next_attempt_at, $2) = $2
              AND (s.leased_until IS NULL OR (s.leased_until < $2 AND s.unknown_count < $6))
            FOR UPDATE OF s SKIP LOCKED),
         claimed AS (
            UPDATE delivery_state s
            SET fence = s.fence + 1, leased_until = $5, unknown_count = s.unknown_count + (s.leased_until IS NOT NULL)::int::smallint
            FROM locked WHERE s.shard_id = $1 AND s.delivery_id = locked.delivery_id
            RETURNING s.delivery_id, s.webhook_id, s.fence, (s.attempt_count + 1)::smallint AS attempt)
         SELECT c.delivery_id, c.webhook_id, c.fence, c.attempt, d.event_id, d.event_type, e.payload
         FROM claimed c
         JOIN deliveries d ON d.shard_id = $1 AND d.id = c.delivery_id
         JOIN webhook_envelopes e ON e.shard_id = $1 AND e.event_id = d.event_id",
    )
    .bind(shard)
    .bind(at)
    .bind(i64::try_from(room.free).unwrap_or(i64::MAX))
    .bind(i64::try_from(room.per_webhook).unwrap_or(i64::MAX))
    .bind(at + TimeDelta::from_std(room.lease).unwrap_or(TimeDelta::zero()))
    .bind(MAX_UNKNOWN)
    .fetch_all(conn)
    .await
}

#[derive(FromRow)]
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
        // 256 random bits need no salt.
        let secret_hash = hex::encode(Sha256::digest(secret.expose().as_bytes()));
        Ok(Target { url, secret, url_hash, secret_hash })
    }
}

/// Opens URL and secret of each webhook once.
async fn targets(
    conn: &mut PgConnection,
    keyring: &Keyring,
    shard: ShardId,
    rows: &[ClaimedRow],
) -> Result<HashMap<WebhookId, Arc<Target>>, sqlx::Error> {
    let mut webhooks: Vec<WebhookId> = rows.iter().map(|row| row.webhook_id).collect();
    webhooks.sort_unstable();
    webhooks.dedup();
    let sealed: Vec<Sealed> = sqlx::query_as(
        "SELECT a.webhook_id, a.credential_id, url.salt AS url_salt, url.sealed AS url, token.sealed AS token, c.signing_secret
         FROM unnest($2::bigint[]) AS wanted (webhook_id)
         JOIN webhook_audience a ON a.shard_id = $1 AND a.webhook_id = wanted.webhook_id
         LEFT JOIN vault.texts url ON url.shard_id = $1 AND url.kind = 'webhook.url' AND url.id = a.webhook_id
         LEFT JOIN vault.texts token ON token.shard_id = $1 AND token.kind = 'webhook.token' AND token.id = a.webhook_id
         LEFT JOIN vault.credentials c ON c.credential_id = a.credential_id",
    )
    .bind(shard)
    .bind(webhooks)
    .fetch_all(conn)
    .await?;
    let mut targets = HashMap::with_capacity(sealed.len());
    for sealed in sealed {
        match sealed.open(keyring) {
            Ok(target) => _ = targets.insert(sealed.webhook_id, Arc::new(target)),
            Err(error) => {
                tracing::error!(webhook_id = sealed.webhook_id, %error, "a webhook's URL or secret cannot be opened");
            }
        }
    }
    Ok(targets)
}

async fn write_ahead(conn: &mut PgConnection, shard: ShardId, at: DateTime<Utc>, claimed: &[Claimed]) -> Result<(), sqlx::Error> {
    let hash = |c: &Claimed, which: fn(&Target) -> &str| c.target.as_deref().map(which).unwrap_or_default().to_owned();
    sqlx::query(
        "INSERT INTO delivery_attempts (shard_id, delivery_id, request_id, attempt, started_at, url_hash, secret_hash)
         SELECT $1, new.delivery_id, new.request_id, new.attempt, $2, new.url_hash, new.secret_hash
         FROM unnest($3::bigint[], $4::uuid[], $5::smallint[], $6::text[], $7::text[]) AS new (delivery_id, request_id, attempt, url_hash, secret_hash)",
    )
    .bind(shard)
    .bind(at)
    .bind(claimed.iter().map(|c| c.delivery_id).collect::<Vec<_>>())
    .bind(claimed.iter().map(|c| c.request_id).collect::<Vec<_>>())
    .bind(claimed.iter().map(|c| c.attempt).collect::<Vec<_>>())
    .bind(claimed.iter().map(|c| hash(c, |t| &t.url_hash)).collect::<Vec<_>>())
    .bind(claimed.iter().map(|c| hash(c, |t| &t.secret_hash)).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    Ok(())
}

/// How long until something is due, by the database's clock: zero when it is already, and then
/// perhaps in flight; none when nothing waits.
pub async fn next_due(pool: &PgPool, shard: ShardId) -> Result<Option<Duration>, sqlx::Error> {
    let seconds: Option<f64> = sqlx::query_scalar(
        "WITH RECURSIVE webhook AS (
            (SELECT webhook_id, next_attempt_at FROM delivery_state
             WHERE shard_id = $1 AND status = 'pending' AND attempt_count > 0
             ORDER BY webhook_id, next_attempt_at LIMIT 1)
            UNION ALL
            SELECT next.webhook_id, next.next_attempt_at FROM webhook CROSS JOIN LATERAL
            (SELECT webhook_id, next_attempt_at FROM delivery_state
             WHERE shard_id = $1 AND status = 'pending' AND attempt_count > 0 AND webhook_id > webhook.webhook_id
             ORDER BY webhook_id, next_attempt_at LIMIT 1) AS next)
         SELECT extract(epoch FROM min(next_attempt_at) - clock_timestamp())::float8 FROM webhook",
    )
    .bind(shard)
    .fetch_one(pool)
    .await?;
    Ok(seconds.map(|s| Duration::try_from_secs_f64(s.max(0.0)).unwrap_or(Duration::MAX)))
}
