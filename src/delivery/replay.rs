//! Replays: an operator has a webhook told again, or of what it missed, at a limited rate.
//!
//! The job looks for what is to be delivered and appends it to the log, step by step; the deliveries
//! are made by the projection. What it has done is what the log says, so whoever goes on after a
//! crash, on whichever node, begins where the last step ended, and no delivery is made twice.

use std::time::Duration;

use ledger_database::PgPool;
use ledger_events::replay::{Replay, ReplayKind};
use ledger_events::webhook::WebhookEventType;
use ledger_events::{AccountId, Actor, Position, Rejection, ShardId, StreamType, WebhookId};
use ledger_projections::{deliveries, replays};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::ledger::command::AdvanceReplay;
use crate::ledger::{Command, Ledger, Origin, WriteError, reader};

/// Deliveries made in a second, if the operator does not say.
pub const PER_SECOND: i32 = 50;
/// Positions that one statement looks through.
const PAGE_POSITIONS: i64 = 5_000;
/// Positions that are counted for one request, which so is answered in time however long the log is.
pub const MOST_COUNTED: Position = 500_000;
/// Pages in one step, so that a replay with little to find still shows how far it is.
const PAGES: usize = 20;
/// How often it is looked whether a step is due.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What a replay looks for.
#[derive(Clone, Debug)]
pub struct Search {
    pub account_id: AccountId,
    pub webhook_id: WebhookId,
    pub kind: ReplayKind,
    /// The types that the webhook is subscribed to.
    pub events: Vec<WebhookEventType>,
}

impl Search {
    fn of(replay: &Replay) -> Search {
        let Replay { account_id, webhook_id, kind, events, .. } = replay;
        Search { account_id: *account_id, webhook_id: *webhook_id, kind: *kind, events: events.clone() }
    }

    /// The first so many events between two positions, the second one not included.
    async fn find(
        &self,
        pool: &PgPool,
        shard: ShardId,
        (from, to): (Position, Position),
        limit: usize,
    ) -> Result<Vec<(Position, Uuid)>, sqlx::Error> {
        // What a webhook had a delivery of, it may be unsubscribed from by now.
        let types: Vec<&str> = match self.kind {
            ReplayKind::Deliveries => WebhookEventType::ALL.map(WebhookEventType::announced).into(),
            ReplayKind::Missed => self.events.iter().map(|event| event.announced()).collect(),
        };
        sqlx::query_as(
            "SELECT e.position, e.event_id FROM events e JOIN orders o ON o.shard_id = $1 AND o.id = e.stream_id AND o.account_id = $5
             WHERE e.shard_id = $1 AND e.position >= $2 AND e.position < $3 AND e.stream_type = 'order' AND e.type = ANY($4)
               AND CASE WHEN $7 THEN
                   EXISTS (SELECT FROM deliveries d WHERE d.shard_id = $1 AND d.event_id = e.event_id AND d.webhook_id = $6)
               ELSE
                   NOT EXISTS (SELECT FROM deliveries d JOIN delivery_state s ON s.shard_id = $1 AND s.delivery_id = d.id
                       WHERE d.shard_id = $1 AND d.event_id = e.event_id AND d.webhook_id = $6 AND s.status IN ('pending', 'delivered'))
               END
             ORDER BY e.position LIMIT $8",
        )
        .bind(shard)
        .bind(from)
        .bind(to)
        .bind(types)
        .bind(self.account_id)
        .bind(self.webhook_id)
        .bind(self.kind == ReplayKind::Deliveries)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(pool)
        .await
    }

    /// How many events there are between two positions, the second one not included, and where the count ended: it goes
    /// over [`MOST_COUNTED`] positions, in short statements.
    pub async fn count(
        &self,
        pool: &PgPool,
        shard: ShardId,
        from: Position,
        to: Position,
    ) -> Result<(i64, Position), sqlx::Error> {
        let to = to.min(from.saturating_add(MOST_COUNTED));
        let (mut at, mut count) = (from, 0);
        while at < to {
            let next = (at + PAGE_POSITIONS).min(to);
            count += self.find(pool, shard, (at, next), usize::MAX).await?.len();
            at = next;
        }
        Ok((i64::try_from(count).unwrap_or(i64::MAX), at))
    }
}

/// Carries replays out, on any number of nodes beside each other.
#[derive(Clone, Debug)]
pub struct Replayer {
    pub ledger: Ledger,
    /// For looking.
    pub pool: PgPool,
}

impl Replayer {
    /// Takes the next step of every replay that is due; returns how many were taken.
    pub async fn once(&self, shard: ShardId) -> Result<usize, sqlx::Error> {
        let mut taken = 0;
        for replay in replays::due(&self.pool, shard).await? {
            let Some(step) = self.prepare(shard, &replay).await? else { continue };
            let origin = Origin { actor: Actor::Replay, request_id: "replay".to_owned() };
            match self.ledger.execute(shard, Command::AdvanceReplay(step), origin).await {
                Ok(_) => taken += 1,
                // Another node was quicker, or an operator has ended it.
                Err(WriteError::Rejected(Rejection::Conflict(_))) => {}
                // Whether it was taken or not, the next look begins at what the log says.
                Err(error) => tracing::warn!(shard, replay_id = replay.id, %error, "a replay's step was not taken"),
            }
        }
        Ok(taken)
    }

    /// The next step; none until the projection has come to the last one, or to the request. What was delivered before
    /// the request, also by an earlier replay, is only then known; and a projection that is behind is given no more.
    async fn prepare(&self, shard: ShardId, replay: &Replay) -> Result<Option<AdvanceReplay>, sqlx::Error> {
        let checkpoint = deliveries::checkpoint(&self.pool, shard).await?;
        let stream = StreamType::Replay.as_str();
        let last = reader::stream_versions(&self.pool, shard, stream, replay.id, &[replay.version]).await?;
        if last.iter().all(|last| last.position > checkpoint) {
            return Ok(None);
        }
        let search = Search::of(replay);
        let wanted = usize::try_from(replay.per_second).unwrap_or(1).clamp(1, Replay::MOST_PER_STEP);
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
                    tracing::warn!(shard, %error, "replays cannot be looked at; they will be again");
                }
            }
        }
    }
}
