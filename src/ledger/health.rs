//! Health check of deliveries. Every event has a delivery to each webhook that was subscribed at its position, in a state
//! that is final or scheduled. The check walks the log itself. It covers the log up to the projection's checkpoint, and
//! then up to one minute ago. So it notices a projection that stands still.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

use ledger_database::FromRow;
use ledger_database::{PgConnection, PgPool};
use ledger_events::webhook::{MAX_ATTEMPTS, Webhook, WebhookEventType};
use ledger_events::{AccountId, Position, ShardId, WebhookId};
use ledger_projections::{deliveries, state};
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::reader::{self, ReadError};
use super::{ShardWatch, connect};
use crate::telemetry::Metrics;

/// Pause between two pages while catching up: a node that starts checks 50,000 events a second.
const PAUSE: Duration = Duration::from_millis(100);
/// Pause between two checks once the log has no new events.
const IDLE: Duration = Duration::from_secs(5);
/// Timeout of one check. Longer than the database's statement timeout.
const ANSWERED: Duration = Duration::from_secs(30);
/// Time after which an event must be projected, in seconds by the database's clock. Later, its deliveries count as
/// missing.
const PROJECTION_GRACE: f64 = 60.0;

/// Latest start of an attempt or end of a lease that counts as scheduled, in seconds from now. Retries wait eight hours
/// at most, so a later time stems from a clock that was set back since. No worker would claim the delivery until then.
pub const MAX_SCHEDULE: f64 = 12.0 * 3600.0;

/// Limits of a follower's pages and memory.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Number of events per page, which is one short statement.
    pub events: i64,
    /// Number of missing deliveries that are checked again with each page. Missing deliveries beyond that are only
    /// counted. They are checked again, starting at their first page, once some of the remembered ones have appeared.
    pub remembered: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { events: 5_000, remembered: 10_000 }
    }
}

/// Number of deliveries that the log requires, by their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, FromRow)]
pub struct Health {
    pub expected: i64,
    /// Number of delivered or finally failed deliveries.
    pub settled: i64,
    /// Number of pending deliveries with an attempt ahead that is not too late.
    pub scheduled: i64,
}

impl Health {
    /// Returns the number of deliveries that do not exist, or that no worker will ever attempt.
    pub fn missing(self) -> i64 {
        self.expected - self.settled - self.scheduled
    }
}

impl AddAssign for Health {
    fn add_assign(&mut self, other: Health) {
        self.expected += other.expected;
        self.settled += other.settled;
        self.scheduled += other.scheduled;
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Health { expected, settled, scheduled } = self;
        write!(f, "the log requires {expected} deliveries: {settled} final, {scheduled} scheduled, {} missing", self.missing())
    }
}

/// Returns the health of the deliveries that a fold has written to temporary tables.
pub async fn of_folded(conn: &mut PgConnection, shard: ShardId) -> Result<Health, sqlx::Error> {
    sqlx::query_as(
        "SELECT count(*) AS expected, count(*) FILTER (WHERE s.status IN ('delivered', 'failed')) AS settled,
            count(*) FILTER (WHERE s.status = 'pending' AND (s.attempt_count < $3 OR s.leased_until IS NOT NULL)
                AND greatest(s.next_attempt_at, s.leased_until) < clock_timestamp() + make_interval(secs => $2)
                AND e.payload IS NOT NULL AND a.webhook_id IS NOT NULL) AS scheduled
         FROM pg_temp.deliveries f
         LEFT JOIN public.deliveries d ON d.shard_id = f.shard_id AND d.event_id = f.event_id AND d.webhook_id = f.webhook_id AND d.replay_id = f.replay_id
         LEFT JOIN delivery_state s ON s.shard_id = d.shard_id AND s.delivery_id = d.id
         LEFT JOIN public.webhook_envelopes e ON e.shard_id = d.shard_id AND e.event_id = d.event_id
         LEFT JOIN public.webhook_audience a ON a.shard_id = d.shard_id AND a.webhook_id = d.webhook_id
         WHERE f.shard_id = $1",
    )
    .bind(shard)
    .bind(MAX_SCHEDULE)
    .bind(MAX_ATTEMPTS)
    .fetch_one(conn)
    .await
}

/// Returns the position up to which deliveries must exist. It is the projection's checkpoint, or the last event that is
/// more than one minute old, whichever is later.
///
/// # Errors
/// Returns the database's error.
pub async fn due(conn: &mut PgConnection, shard: ShardId) -> Result<Position, sqlx::Error> {
    let checkpoint = deliveries::checkpoint(&mut *conn, shard).await?;
    let head = reader::head(&mut *conn, shard).await?;
    if head <= checkpoint {
        return Ok(checkpoint);
    }
    // In a transaction, the grace counts from its start: a long snapshot does not see what was projected since.
    let latest_due =
        sqlx::query_scalar("SELECT now() - make_interval(secs => $1)").bind(PROJECTION_GRACE).fetch_one(&mut *conn).await?;
    Ok(checkpoint.max(reader::first_at(conn, shard, latest_due, head).await? - 1))
}

/// Follows a shard's log, and counts required and missing deliveries.
#[derive(Clone, Debug)]
pub struct Follower {
    pool: PgPool,
    shard: ShardId,
    bounds: Bounds,
    /// Last position that was checked. `last_event` is the event at this position.
    position: Position,
    last_event: Option<Uuid>,
    audience: HashMap<WebhookId, Webhook>,
    /// Accounts that have a webhook.
    listening: HashSet<AccountId>,
    expected: i64,
    /// Deliveries that were missing or stuck at the last check.
    missing: Vec<(Uuid, WebhookId)>,
    /// Number of missing deliveries that are not remembered. `before_overflow` is this follower before it found the
    /// first of them.
    unremembered: i64,
    before_overflow: Option<Box<Follower>>,
}

/// Columns of an event. Only webhooks' events are loaded and decoded completely.
#[derive(FromRow)]
struct EventRow {
    position: Position,
    event_id: Uuid,
    #[sqlx(rename = "type")]
    event_type: String,
    account_id: Option<AccountId>,
}

impl Follower {
    pub fn new(pool: PgPool, shard: ShardId, bounds: Bounds) -> Follower {
        Follower {
            pool,
            shard,
            bounds,
            position: 0,
            last_event: None,
            audience: HashMap::new(),
            listening: HashSet::new(),
            expected: 0,
            missing: vec![],
            unremembered: 0,
            before_overflow: None,
        }
    }

    /// Returns the last position that was checked.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Returns the number of deliveries that the log requires up to that position: one for each event and subscribed
    /// webhook.
    pub fn expected(&self) -> i64 {
        self.expected
    }

    /// Returns the number of these deliveries that do not exist, or are neither final nor scheduled.
    pub fn missing(&self) -> i64 {
        i64::try_from(self.missing.len()).unwrap_or(i64::MAX).saturating_add(self.unremembered)
    }

    /// Checks the next page of events, never beyond [`due`], and the missing deliveries again. Returns whether there may
    /// be more events. Starts over if the log does not continue from the last checked event, as after a failover that
    /// lost commits.
    pub async fn once(&mut self) -> Result<bool, ReadError> {
        if self.event_at(self.position).await? != self.last_event {
            tracing::warn!(
                shard = self.shard,
                after = self.position,
                "the log does not continue from the last checked event; checking all of it again"
            );
            *self = Follower::new(self.pool.clone(), self.shard, self.bounds);
        }
        let due = due(&mut *self.pool.acquire().await?, self.shard).await?;
        let to = due.min(self.position + self.bounds.events);
        self.look(to).await?;
        Ok(due > self.position)
    }

    /// Checks a page. Stores all results at the end, so that a cancelled check changes nothing.
    async fn look(&mut self, to: Position) -> Result<(), ReadError> {
        let mut called_for = self.missing.clone();
        let mut audience = self.audience.clone();
        let mut last_event = self.last_event;
        if to > self.position {
            // Read this before the events: if the log is set back in between, the next check finds another event here.
            last_event = self.event_at(to).await?;
            self.call_for(to, &mut audience, &mut called_for).await?;
        }
        let known = self.missing.len();
        let mut missing = if called_for.is_empty() { vec![] } else { self.missing_of(&called_for).await? };
        let unremembered = missing.len().saturating_sub(self.bounds.remembered);
        if unremembered > 0 && self.before_overflow.is_none() {
            self.before_overflow = Some(Box::new(self.clone()));
        }
        self.unremembered += i64::try_from(unremembered).unwrap_or(i64::MAX);
        missing.truncate(self.bounds.remembered);
        self.missing = missing;
        self.expected += i64::try_from(called_for.len() - known).unwrap_or(i64::MAX);
        self.listening = audience.values().map(|w| w.account_id).collect();
        self.audience = audience;
        self.position = self.position.max(to);
        self.last_event = last_event;
        Ok(())
    }

    async fn event_at(&self, position: Position) -> Result<Option<Uuid>, sqlx::Error> {
        sqlx::query_scalar("SELECT event_id FROM events WHERE shard_id = $1 AND position = $2")
            .bind(self.shard)
            .bind(position)
            .fetch_optional(&self.pool)
            .await
    }

    /// Returns the follower that counts the unremembered deliveries again, once some of the remembered ones have appeared.
    fn where_to_look_again(&mut self) -> Option<Follower> {
        let is_mended = self.missing.len() < self.bounds.remembered;
        self.before_overflow.take_if(|_| is_mended).map(|follower| *follower)
    }

    /// Adds the deliveries that the events up to a position require.
    async fn call_for(
        &self,
        to: Position,
        audience: &mut HashMap<WebhookId, Webhook>,
        called_for: &mut Vec<(Uuid, WebhookId)>,
    ) -> Result<(), ReadError> {
        let types: Vec<&str> = WebhookEventType::ALL.map(WebhookEventType::announced).into();
        let lines: Vec<EventRow> = sqlx::query_as(
            "SELECT position, event_id, type, (metadata->>'account_id')::bigint AS account_id FROM events
             WHERE shard_id = $1 AND position > $2 AND position <= $3
               AND (stream_type = 'webhook' OR (stream_type IN ('order', 'payout', 'account') AND type = ANY($4))) ORDER BY position",
        )
        .bind(self.shard)
        .bind(self.position)
        .bind(to)
        .bind(types)
        .fetch_all(&self.pool)
        .await?;
        let announced = |line: &EventRow| WebhookEventType::ALL.into_iter().find(|known| known.announced() == line.event_type);
        let of_webhooks = lines.iter().filter(|line| announced(line).is_none()).map(|line| line.position).collect::<Vec<_>>();
        let mut of_webhooks = reader::stored_at(&self.pool, self.shard, &of_webhooks).await?.into_iter().peekable();
        for line in &lines {
            match announced(line) {
                Some(event_type) => {
                    let Some(account) = line.account_id else { continue };
                    if !self.listening.contains(&account) && !audience.values().any(|w| w.account_id == account) {
                        continue;
                    }
                    let listeners = deliveries::listeners(audience, account, event_type);
                    called_for.extend(listeners.into_iter().map(|webhook| (line.event_id, webhook)));
                }
                None => {
                    if let Some(stored) = of_webhooks.next_if(|stored| stored.position == line.position) {
                        match stored.decode() {
                            Ok(recorded) => state::fold(audience, &recorded),
                            // An unreadable event must not stop the check of all others. `verify` reports it.
                            Err(error) => tracing::error!(shard = self.shard, %error, "failed to decode an event of a webhook"),
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the deliveries that do not exist, or are neither final nor scheduled.
    async fn missing_of(&self, called_for: &[(Uuid, WebhookId)]) -> Result<Vec<(Uuid, WebhookId)>, sqlx::Error> {
        let (events, webhooks): (Vec<Uuid>, Vec<WebhookId>) = called_for.iter().copied().unzip();
        sqlx::query_as(
            "SELECT c.event_id, c.webhook_id FROM unnest($2::uuid[], $3::bigint[]) WITH ORDINALITY AS c (event_id, webhook_id, n)
             -- One index lookup for each, whatever the statistics: there are far more deliveries than are asked for.
             LEFT JOIN LATERAL (SELECT id FROM deliveries WHERE shard_id = $1 AND event_id = c.event_id AND webhook_id = c.webhook_id
                AND replay_id = 0 LIMIT 1) AS d ON true
             LEFT JOIN LATERAL (SELECT status, attempt_count, next_attempt_at, leased_until FROM delivery_state
                WHERE shard_id = $1 AND delivery_id = d.id LIMIT 1) AS s ON true
             WHERE s.status IS NULL OR (s.status = 'pending' AND (
                -- No worker claims it, or could send it.
                (s.attempt_count >= $5 AND s.leased_until IS NULL)
                OR greatest(s.next_attempt_at, s.leased_until) >= clock_timestamp() + make_interval(secs => $4)
                OR NOT EXISTS (SELECT FROM webhook_envelopes e WHERE e.shard_id = $1 AND e.event_id = c.event_id AND e.payload IS NOT NULL)
                OR NOT EXISTS (SELECT FROM webhook_audience a WHERE a.shard_id = $1 AND a.webhook_id = c.webhook_id)))
             ORDER BY c.n",
        )
        .bind(self.shard)
        .bind(events)
        .bind(webhooks)
        .bind(MAX_SCHEDULE)
        .bind(MAX_ATTEMPTS)
        .fetch_all(&self.pool)
        .await
    }
}

/// Counts the missing deliveries of a shard. One follower stays at the end of the due events. A second one repeatedly
/// checks the log from its beginning, a page at a time, because deliveries that once existed may be lost later.
#[derive(Debug)]
pub struct Watch {
    newest: Follower,
    again: Follower,
    /// Whether the second follower recounts deliveries that the first one does not remember, so it must not pause.
    is_recounting: bool,
}

impl Watch {
    pub fn new(pool: PgPool, shard: ShardId, bounds: Bounds) -> Watch {
        let newest = Follower::new(pool, shard, bounds);
        Watch { again: newest.clone(), newest, is_recounting: false }
    }

    /// Returns the last position that the figures cover.
    pub fn position(&self) -> Position {
        self.newest.position()
    }

    /// Returns [`Follower::expected`] up to that position.
    pub fn expected(&self) -> i64 {
        self.newest.expected()
    }

    /// Returns [`Follower::missing`] of the follower that has found more.
    pub fn missing(&self) -> i64 {
        self.newest.missing().max(self.again.missing())
    }

    /// Checks the next events, or a page of old events if there are no new ones. Returns whether there may be more to
    /// check soon.
    ///
    /// # Errors
    /// Returns the database's error, or an error for an unreadable log: then the state of new events is unknown. A failed
    /// check of old events is only logged.
    pub async fn once(&mut self) -> Result<bool, ReadError> {
        if connect::within(ANSWERED, self.newest.once()).await? {
            return Ok(true);
        }
        if !self.is_recounting
            && let Some(again) = self.newest.where_to_look_again()
        {
            (self.again, self.is_recounting) = (again, true);
        } else if let Some(again) = self.again.where_to_look_again() {
            self.again = again;
        }
        match connect::within(ANSWERED, self.again.once()).await {
            Ok(true) => {}
            Ok(false) => {
                // The second follower has caught up, so it becomes the one that stays at the end.
                let anew = Follower::new(self.again.pool.clone(), self.again.shard, self.again.bounds);
                self.newest = std::mem::replace(&mut self.again, anew);
                self.is_recounting = false;
            }
            Err(error) => {
                let (shard, after) = (self.again.shard, self.again.position);
                tracing::warn!(shard, after, %error, "failed to check old deliveries again; retrying");
                return Ok(false);
            }
        }
        Ok(self.is_recounting)
    }
}

/// Publishes the figures of every shard as metrics until stopped. Publishes none while they are unknown.
pub async fn run(pool: PgPool, mut shards: ShardWatch, metrics: Metrics, stop: CancellationToken) {
    let mut watches: BTreeMap<ShardId, Watch> = BTreeMap::new();
    let mut pause = PAUSE;
    let heartbeat = metrics.heartbeats().background("delivery health");
    loop {
        let due = async {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = shards.changed() => {}
            }
        };
        if stop.run_until_cancelled(due).await.is_none() {
            return;
        }
        pause = IDLE;
        for shard in shards.current() {
            heartbeat.beat();
            let watch = watches.entry(shard).or_insert_with(|| Watch::new(pool.clone(), shard, Bounds::default()));
            match watch.once().await {
                Ok(is_more) => {
                    metrics.delivery_health(shard, watch.position(), watch.expected(), watch.missing());
                    if is_more {
                        pause = PAUSE;
                    }
                }
                Err(error) => {
                    tracing::warn!(shard, %error, "failed to check the health of deliveries; retrying");
                    metrics.delivery_health_is_unknown(shard);
                }
            }
        }
    }
}
