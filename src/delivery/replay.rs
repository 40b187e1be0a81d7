//! Replays: an operator or client repeats past deliveries of a webhook, or delivers events that it missed, at a limited rate.
//!
//! The job searches for events to deliver and appends them to the log, step by step. The projection creates the deliveries.
//! The log records the progress. So after a crash any node continues where the last step ended, and no delivery is created
//! twice.

use std::time::Duration;

use ledger_database::PgPool;
use ledger_events::replay::{MissedOnly, Replay, ReplayEvent, ReplayKind};
use ledger_events::webhook::{Webhook, WebhookEventType};
use ledger_events::{AccountId, Actor, Event, Position, Rejection, ShardId, StreamType, WebhookId};
use ledger_projections::{deliveries, replays, webhooks};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::ledger::commands::AdvanceReplay;
use crate::ledger::reader::{ReadError, Stored};
use crate::ledger::{Command, Ledger, Origin, WriteError, reader};

/// Default rate of a replay, in deliveries per second.
pub const PER_SECOND: i32 = 50;
/// Positions that one statement searches.
const PAGE_POSITIONS: i64 = 5_000;
/// Maximum number of positions that one request counts, so that it is answered in time however long the log is.
pub const MAX_COUNTED: Position = 500_000;
/// Maximum number of pages per step, so that a replay that finds little still shows progress.
const PAGES: usize = 20;
/// Interval at which the job checks for due steps.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Search criteria of a replay.
#[derive(Clone, Debug)]
pub struct Search {
    pub account_id: AccountId,
    pub webhook_id: WebhookId,
    pub kind: ReplayKind,
    /// Event types that the webhook is subscribed to.
    pub events: Vec<WebhookEventType>,
    /// Part of the missed events; `None` for all of them.
    pub only: Option<MissedOnly>,
}

impl Search {
    /// Returns the search of a running replay.
    ///
    /// The request names the subscribed types of orders only, because nodes of the last release cannot read the others. Those
    /// are taken from the webhook.
    fn of(replay: &Replay, only: Option<MissedOnly>, webhook: Option<Webhook>) -> Search {
        let Replay { account_id, webhook_id, kind, events, .. } = replay;
        let (_, further) = WebhookEventType::split(webhook.map(|webhook| webhook.events).unwrap_or_default());
        let events = [&**events, &*further].concat();
        Search { account_id: *account_id, webhook_id: *webhook_id, kind: *kind, events, only }
    }

    /// Returns the first `limit` matching events from one position up to, but not including, another.
    async fn find(
        &self,
        pool: &PgPool,
        shard: ShardId,
        (from, to): (Position, Position),
        limit: usize,
    ) -> Result<Vec<(Position, Uuid)>, sqlx::Error> {
        // The webhook may have unsubscribed from a type of which it has deliveries.
        let types: Vec<&str> = match self.kind {
            ReplayKind::Deliveries => WebhookEventType::ALL.map(WebhookEventType::announced).into(),
            ReplayKind::Missed => self.events.iter().map(|event| event.announced()).collect(),
        };
        // The metadata names the account of an event, as in the event feed. It is compared as text: a cast would refuse the
        // rows of a damaged log.
        sqlx::query_as(
            "SELECT e.position, e.event_id FROM events e
             WHERE e.shard_id = $1 AND e.position >= $2 AND e.position < $3 AND e.stream_type IN ('order', 'payout', 'account')
               AND e.type = ANY($4) AND e.metadata->>'account_id' = $5
               AND CASE WHEN $7 THEN
                   EXISTS (SELECT FROM deliveries d WHERE d.shard_id = $1 AND d.event_id = e.event_id AND d.webhook_id = $6)
               ELSE
                   NOT EXISTS (SELECT FROM deliveries d JOIN delivery_state s ON s.shard_id = $1 AND s.delivery_id = d.id
                       WHERE d.shard_id = $1 AND d.event_id = e.event_id AND d.webhook_id = $6 AND s.status IN ('pending', 'delivered'))
               END
               AND ($9::boolean IS NULL OR $9 = EXISTS (SELECT FROM deliveries d
                   WHERE d.shard_id = $1 AND d.event_id = e.event_id AND d.webhook_id = $6))
             ORDER BY e.position LIMIT $8",
        )
        .bind(shard)
        .bind(from)
        .bind(to)
        .bind(types)
        .bind(self.account_id.to_string())
        .bind(self.webhook_id)
        .bind(self.kind == ReplayKind::Deliveries)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .bind(self.only.map(|only| only == MissedOnly::Failed))
        .fetch_all(pool)
        .await
    }

    /// Counts the matching events from one position up to, but not including, another.
    ///
    /// Returns the count and the position where it ended: it covers at most [`MAX_COUNTED`] positions, in short statements.
    pub async fn count(
        &self,
        pool: &PgPool,
        shard: ShardId,
        from: Position,
        to: Position,
    ) -> Result<(i64, Position), sqlx::Error> {
        let to = to.min(from.saturating_add(MAX_COUNTED));
        let (mut at, mut count) = (from, 0);
        while at < to {
            let next = (at + PAGE_POSITIONS).min(to);
            count += self.find(pool, shard, (at, next), usize::MAX).await?.len();
            at = next;
        }
        Ok((i64::try_from(count).unwrap_or(i64::MAX), at))
    }
}

/// Runs replays. Any number of nodes may run it concurrently.
#[derive(Clone, Debug)]
pub struct Replayer {
    pub ledger: Ledger,
    /// Pool for the searches.
    pub pool: PgPool,
}

impl Replayer {
    /// Appends the next step of every replay that is due. Returns the number of steps.
    pub async fn once(&self, shard: ShardId) -> Result<usize, ReadError> {
        let mut taken = 0;
        for replay in replays::due(&self.pool, shard).await? {
            let Some(step) = self.prepare(shard, &replay).await? else { continue };
            let origin = Origin { actor: Actor::Replay, request_id: "replay".to_owned() };
            match self.ledger.execute(shard, Command::AdvanceReplay(step), origin).await {
                Ok(_) => taken += 1,
                // Another node was faster, or an operator has ended the replay.
                Err(WriteError::Rejected(Rejection::Conflict(_))) => {}
                // Whether the step was appended or not, the next check starts from the log.
                Err(error) => tracing::warn!(shard, replay_id = replay.id.0, %error, "failed to append a replay step; retrying"),
            }
        }
        Ok(taken)
    }

    /// Prepares the next step. Returns `None` until the projection has reached the previous step, or the request.
    ///
    /// Only then is it known what was delivered before the request, including by an earlier replay. This is also
    /// backpressure: a projection that is behind gets no more work.
    async fn prepare(&self, shard: ShardId, replay: &Replay) -> Result<Option<AdvanceReplay>, ReadError> {
        let checkpoint = deliveries::checkpoint(&self.pool, shard).await?;
        let stream = StreamType::Replay.as_str();
        let story = reader::stream_versions(&self.pool, shard, stream, replay.id.0, &[1, replay.version]).await?;
        let is_reached = |last: &Stored| last.version == replay.version && last.position <= checkpoint;
        let (Some(request), true) = (story.first(), story.iter().any(is_reached)) else { return Ok(None) };
        let only = match request.decode()?.event {
            Event::Replay(ReplayEvent::WebhookReplayRequested(requested)) => requested.only,
            _ => None,
        };
        let webhook = webhooks::find(&self.pool, &[shard], replay.webhook_id).await?.map(|(_, webhook)| webhook);
        let search = Search::of(replay, only, webhook);
        let wanted = usize::try_from(replay.per_second).unwrap_or(1).clamp(1, Replay::MAX_PER_STEP);
        let mut next = replay.next;
        let mut events = vec![];
        for _ in 0..PAGES {
            if next >= replay.until || events.len() == wanted {
                break;
            }
            let to = (next + PAGE_POSITIONS).min(replay.until);
            let found = search.find(&self.pool, shard, (next, to), wanted - events.len()).await?;
            events.extend(found.iter().map(|(_, event_id)| *event_id));
            next = match found.last() {
                Some((position, _)) if events.len() == wanted => position + 1,
                _ => to,
            };
        }
        Ok(Some(AdvanceReplay { account_id: replay.account_id, replay_id: replay.id, at: replay.next, next, events }))
    }

    pub async fn run(self, stop: CancellationToken) {
        let heartbeat = self.ledger.heartbeats().background("replays");
        while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            for shard in self.ledger.shards() {
                heartbeat.beat();
                if let Err(error) = self.once(shard).await {
                    tracing::warn!(shard, %error, "failed to load due replays; retrying");
                }
            }
        }
    }
}
