//! The deliveries' health: every event has its delivery to each webhook that was subscribed at its
//! position, in a state that is final or scheduled. Computed from the log, by its own walk over it: up to
//! where the projection has come, and beyond it up to a minute ago, so that a projection that stands still shows.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

use ledger_database::FromRow;
use ledger_database::{PgConnection, PgPool};
use ledger_events::webhook::{Webhook, WebhookEventType};
use ledger_events::{AccountId, Event, Position, ShardId, WebhookId};
use ledger_projections::{deliveries, webhooks};
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::connect;
use super::reader::{self, ReadError};
use crate::telemetry::Metrics;

/// Between looks. So a node that starts checks 50,000 events a second until it has caught up.
const PAUSE: Duration = Duration::from_millis(100);
/// Between looks once there is nothing new.
const IDLE: Duration = Duration::from_secs(5);
/// How long the database may take for a look: longer than it lets a statement run.
const ANSWERED: Duration = Duration::from_secs(30);
/// An event that is older, and not projected, is without its deliveries. In seconds, by the database's clock.
const SOON: f64 = 60.0;

/// What is due, or leased, no sooner than so many seconds from now is not scheduled: retries wait eight hours at most, so
/// it is of a clock that was set back since, and nobody would claim it until then.
pub const BEYOND: f64 = 12.0 * 3600.0;

/// How much is looked at at once, and remembered.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Events in one look: a page is one short statement.
    pub events: i64,
    /// So many missing deliveries are looked for again at each look. Those beyond them are counted, and looked for again,
    /// from the first page of theirs, once some of these are there.
    pub remembered: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { events: 5_000, remembered: 10_000 }
    }
}

/// How many deliveries the log calls for, and what has become of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, FromRow)]
pub struct Health {
    pub expected: i64,
    /// Delivered or failed.
    pub settled: i64,
    /// Pending, with an attempt to come, and soon enough.
    pub scheduled: i64,
}

impl Health {
    /// Deliveries that are not there, or that nobody will ever attempt.
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
        write!(f, "{expected} deliveries are called for: {settled} are final, {scheduled} scheduled, {} missing", self.missing())
    }
}

/// The health of the deliveries that a fold has made into temporary tables.
pub async fn of_folded(conn: &mut PgConnection, shard: ShardId) -> Result<Health, sqlx::Error> {
    sqlx::query_as(
        "SELECT count(*) AS expected, count(*) FILTER (WHERE s.status IN ('delivered', 'failed')) AS settled,
            count(*) FILTER (WHERE s.status = 'pending' AND (s.attempt_count < 5 OR s.leased_until IS NOT NULL)
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
    .bind(BEYOND)
    .fetch_one(conn)
    .await
}

/// Up to which position there have to be deliveries: as far as the projection has come, and as far as
/// it should have come by now if it stands still.
///
/// # Errors
/// The database's.
pub async fn due(conn: &mut PgConnection, shard: ShardId) -> Result<Position, sqlx::Error> {
    let checkpoint = deliveries::checkpoint(&mut *conn, shard).await?;
    let head = reader::head(&mut *conn, shard).await?;
    if head <= checkpoint {
        return Ok(checkpoint);
    }
    let soon =
        sqlx::query_scalar("SELECT clock_timestamp() - make_interval(secs => $1)").bind(SOON).fetch_one(&mut *conn).await?;
    Ok(checkpoint.max(reader::first_at(conn, shard, soon, head).await? - 1))
}

/// Follows a shard's log and keeps the figure.
#[derive(Clone, Debug)]
pub struct Follower {
    pool: PgPool,
    shard: ShardId,
    bounds: Bounds,
    /// Up to where it has looked, and the event there.
    position: Position,
    last_event: Option<Uuid>,
    audience: HashMap<WebhookId, Webhook>,
    /// Accounts that have a webhook.
    listening: HashSet<AccountId>,
    expected: i64,
    /// What was not there, or stuck, when it was last looked at.
    missing: Vec<(Uuid, WebhookId)>,
    /// Missing ones beyond those that are remembered, and this follower as it was before it found the first of them.
    beyond: i64,
    before_beyond: Option<Box<Follower>>,
}

/// What the log says of a position, beside what is decoded only for webhooks.
#[derive(FromRow)]
struct Line {
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
            beyond: 0,
            before_beyond: None,
        }
    }

    /// Up to which position it has looked.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Deliveries that the log calls for up to there: one for each event and subscribed webhook.
    pub fn expected(&self) -> i64 {
        self.expected
    }

    /// How many of them are not there, or in a state that is neither final nor scheduled.
    pub fn missing(&self) -> i64 {
        i64::try_from(self.missing.len()).unwrap_or(i64::MAX).saturating_add(self.beyond)
    }

    /// Looks at the next events, never beyond what is [`due`], and again at what was missing.
    /// Returns whether there may be more. Starts over where the log does not go on from what it has looked at: after a
    /// failover that lost commits.
    pub async fn once(&mut self) -> Result<bool, ReadError> {
        if self.event_at(self.position).await? != self.last_event {
            tracing::warn!(
                shard = self.shard,
                after = self.position,
                "the log does not go on from where it stood: all of it is looked at again"
            );
            *self = Follower::new(self.pool.clone(), self.shard, self.bounds);
        }
        let due = due(&mut *self.pool.acquire().await?, self.shard).await?;
        let to = due.min(self.position + self.bounds.events);
        self.look(to).await?;
        Ok(due > self.position)
    }

    /// What is found counts once all of it is: a look that is given up changes nothing.
    async fn look(&mut self, to: Position) -> Result<(), ReadError> {
        let mut called_for = self.missing.clone();
        let mut audience = self.audience.clone();
        let mut last_event = self.last_event;
        if to > self.position {
            // Before the events: should the log go back meanwhile, the next look finds another event there.
            last_event = self.event_at(to).await?;
            self.call_for(to, &mut audience, &mut called_for).await?;
        }
        let known = self.missing.len();
        let mut missing = if called_for.is_empty() { vec![] } else { self.missing_of(&called_for).await? };
        let beyond = missing.len().saturating_sub(self.bounds.remembered);
        if beyond > 0 && self.before_beyond.is_none() {
            self.before_beyond = Some(Box::new(self.clone()));
        }
        self.beyond += i64::try_from(beyond).unwrap_or(i64::MAX);
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

    /// Where to look again for those beyond, now that some of what is remembered is there.
    fn where_to_look_again(&mut self) -> Option<Follower> {
        let is_mended = self.missing.len() < self.bounds.remembered;
        self.before_beyond.take_if(|_| is_mended).map(|follower| *follower)
    }

    /// Which deliveries the events up to a position call for.
    async fn call_for(
        &self,
        to: Position,
        audience: &mut HashMap<WebhookId, Webhook>,
        called_for: &mut Vec<(Uuid, WebhookId)>,
    ) -> Result<(), ReadError> {
        let types: Vec<&str> = WebhookEventType::ALL.map(WebhookEventType::announced).into();
        let lines: Vec<Line> = sqlx::query_as(
            "SELECT position, event_id, type, (metadata->>'account_id')::bigint AS account_id FROM events
             WHERE shard_id = $1 AND position > $2 AND position <= $3
               AND (stream_type = 'webhook' OR (stream_type = 'order' AND type = ANY($4))) ORDER BY position",
        )
        .bind(self.shard)
        .bind(self.position)
        .bind(to)
        .bind(types)
        .fetch_all(&self.pool)
        .await?;
        let announced = |line: &Line| WebhookEventType::ALL.into_iter().find(|known| known.announced() == line.event_type);
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
                            Ok(recorded) if matches!(recorded.event, Event::Webhook(_)) => webhooks::fold(audience, &recorded),
                            Ok(_) => {}
                            // It hides nothing of all the others: `verify` names it.
                            Err(error) => tracing::error!(shard = self.shard, %error, "a webhook's event cannot be read"),
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Those that are not there, or in a state that is neither final nor scheduled.
    async fn missing_of(&self, called_for: &[(Uuid, WebhookId)]) -> Result<Vec<(Uuid, WebhookId)>, sqlx::Error> {
        let (events, webhooks): (Vec<Uuid>, Vec<WebhookId>) = called_for.iter().copied().unzip();
        sqlx::query_as(
            "SELECT c.event_id, c.webhook_id FROM unnest($2::uuid[], $3::bigint[]) WITH ORDINALITY AS c (event_id, webhook_id, n)
             -- A look for each, whatever the statistics: there are far more deliveries than are asked for.
             LEFT JOIN LATERAL (SELECT id FROM deliveries WHERE shard_id = $1 AND event_id = c.event_id AND webhook_id = c.webhook_id
                AND replay_id = 0 LIMIT 1) AS d ON true
             LEFT JOIN LATERAL (SELECT status, attempt_count, next_attempt_at, leased_until FROM delivery_state
                WHERE shard_id = $1 AND delivery_id = d.id LIMIT 1) AS s ON true
             WHERE s.status IS NULL OR (s.status = 'pending' AND (
                -- Nobody claims it, or could send it.
                (s.attempt_count >= 5 AND s.leased_until IS NULL)
                OR greatest(s.next_attempt_at, s.leased_until) >= clock_timestamp() + make_interval(secs => $4)
                OR NOT EXISTS (SELECT FROM webhook_envelopes e WHERE e.shard_id = $1 AND e.event_id = c.event_id AND e.payload IS NOT NULL)
                OR NOT EXISTS (SELECT FROM webhook_audience a WHERE a.shard_id = $1 AND a.webhook_id = c.webhook_id)))
             ORDER BY c.n",
        )
        .bind(self.shard)
        .bind(events)
        .bind(webhooks)
        .bind(BEYOND)
        .fetch_all(&self.pool)
        .await
    }
}

/// Keeps a shard's figure. One follower stands at the end of what is due; another one goes over the log from
/// its beginning, a page at a time, for what was there once may be lost later.
#[derive(Debug)]
pub struct Watch {
    newest: Follower,
    again: Follower,
    /// The other one has begun where more was missing than the first one remembers: it is not to take its time.
    is_recounting: bool,
}

impl Watch {
    pub fn new(pool: PgPool, shard: ShardId, bounds: Bounds) -> Watch {
        let newest = Follower::new(pool, shard, bounds);
        Watch { again: newest.clone(), newest, is_recounting: false }
    }

    /// Up to where the figure goes.
    pub fn position(&self) -> Position {
        self.newest.position()
    }

    /// [`Follower::expected`] up to there.
    pub fn expected(&self) -> i64 {
        self.newest.expected()
    }

    /// [`Follower::missing`], whichever of the two has found more.
    pub fn missing(&self) -> i64 {
        self.newest.missing().max(self.again.missing())
    }

    /// Looks at the next events, or when there are none again at a page of old ones. Returns whether there may be
    /// more that should be looked at soon.
    ///
    /// # Errors
    /// The database's, and a log that cannot be read: what is new is not known then. Old pages that cannot be looked at
    /// again take nothing from what is.
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
                // It has come as far, so from now on it is the one that follows.
                let anew = Follower::new(self.again.pool.clone(), self.again.shard, self.again.bounds);
                self.newest = std::mem::replace(&mut self.again, anew);
                self.is_recounting = false;
            }
            Err(error) => {
                let (shard, after) = (self.again.shard, self.again.position);
                tracing::warn!(shard, after, %error, "old deliveries cannot be looked at again");
                return Ok(false);
            }
        }
        Ok(self.is_recounting)
    }
}

/// Keeps the figure of every shard as a metric, until told to stop. While it is not known, none is shown.
pub async fn run(pool: PgPool, shards: Vec<ShardId>, metrics: Metrics, stop: CancellationToken) {
    let mut watches: Vec<(ShardId, Watch)> =
        shards.into_iter().map(|shard| (shard, Watch::new(pool.clone(), shard, Bounds::default()))).collect();
    let mut pause = PAUSE;
    let heartbeat = metrics.heartbeats().background("delivery health");
    while stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_some() {
        pause = IDLE;
        for (shard, watch) in &mut watches {
            heartbeat.beat();
            match watch.once().await {
                Ok(is_more) => {
                    metrics.called_for(*shard, watch.position(), watch.expected(), watch.missing());
                    if is_more {
                        pause = PAUSE;
                    }
                }
                Err(error) => {
                    tracing::warn!(shard, %error, "the deliveries' health cannot be looked at");
                    metrics.called_for_is_unknown(*shard);
                }
            }
        }
    }
}
