//! Follows the log for the asynchronous projections. One node at a time applies each event exactly once.

use std::time::{Duration, SystemTime};

use ledger_database::{PgConnectOptions, PgConnection};
use ledger_events::account::CredentialEvent;
use ledger_events::webhook::WebhookEvent;
use ledger_events::{Event, Position, Recorded, ShardId};
use ledger_projections::listing::maintain;
use ledger_projections::{deliveries, low_balance, stock, totals};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::reader::{self, ReadError};
use super::wake::Addressee;
use super::{Ledger, connect, low_balance as low_balances};
use crate::heartbeat::Heartbeat;
use crate::telemetry::Metrics;
use crate::telemetry::traces::TraceParent;

/// Largest number of events per transaction. Events with many deliveries make it smaller.
const BATCH_EVENTS: i64 = 1_000;
/// Number of positions per transaction of a projection that reads the events of a few types only.
const FOLDED_EVENTS: i64 = 5_000;
/// Number of positions per transaction of the counts of lists. Only the events of orders are read.
const LISTED_EVENTS: i64 = 5_000;
/// Number of new events that starts a round of counts and daily totals early. With fewer, the rounds follow the slow
/// timer.
const COUNTED_EVENTS: usize = 1_000;
/// Interval of the fallback timer, for lost wake-ups.
const IDLE: Duration = Duration::from_secs(1);
/// Deadline of one step. Each statement may take a third of it.
const DEADLINE: Duration = Duration::from_secs(30);

/// Result of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectionStep {
    /// The step applied `events` events. `is_more`: the log may have more events waiting.
    Applied { events: usize, is_more: bool },
    /// The log has no events after the checkpoint.
    Idle,
    /// Another node holds this projection.
    Elsewhere,
}

/// Runs the projections `deliveries`, `daily_totals`, `stock_days` and `low_balance` of every shard, and maintains the counts
/// that lists use for pagination.
#[derive(Clone, Debug)]
pub struct Projector {
    ledger: Ledger,
    deliveries: connect::DedicatedConnection,
    derived: connect::DedicatedConnection,
    metrics: Metrics,
    idle: Duration,
}

impl Projector {
    pub fn new(ledger: &Ledger, options: &PgConnectOptions, metrics: Metrics) -> Projector {
        let (deliveries, derived) = (connect::projector(options), connect::totals(options));
        Projector { ledger: ledger.clone(), deliveries, derived, metrics, idle: IDLE }
    }

    /// Replaces the interval of the fallback timer.
    pub fn idling(self, idle: Duration) -> Projector {
        Projector { idle, ..self }
    }

    /// Runs until stopped. Each shard has loops and connections of its own, so that it does not wait for another one.
    pub async fn run(self, stop: CancellationToken) {
        let shards = self.ledger.shard_watch().clone();
        shards.each(&stop, |shard| self.separate().follow(shard, stop.clone())).await;
    }

    /// Returns a projector with connections of its own.
    fn separate(&self) -> Projector {
        Projector { deliveries: self.deliveries.separate(), derived: self.derived.separate(), ..self.clone() }
    }

    /// Follows a shard until stopped. Counts and totals have a separate loop, so that deliveries do not wait for them.
    async fn follow(self, shard: ShardId, stop: CancellationToken) {
        let much_is_new = Notify::new();
        tokio::join!(self.make_deliveries(shard, &much_is_new, &stop), self.count_and_add_up(shard, &much_is_new, &stop));
    }

    async fn make_deliveries(&self, shard: ShardId, much_is_new: &Notify, stop: &CancellationToken) {
        let mut grown = self.ledger.wake().subscribe_to(shard);
        let mut new = 0;
        let heartbeat = self.ledger.heartbeats().background("projector");
        while !stop.is_cancelled() {
            heartbeat.beat();
            let mut is_hindered = false;
            match connect::within(DEADLINE, self.step(shard)).await {
                Ok(ProjectionStep::Applied { events, is_more }) => {
                    new += events;
                    if new >= COUNTED_EVENTS {
                        much_is_new.notify_one();
                        new = 0;
                    }
                    if is_more {
                        continue;
                    }
                }
                Ok(ProjectionStep::Idle | ProjectionStep::Elsewhere) => {}
                Err(error) => {
                    tracing::warn!(shard, %error, "failed to project deliveries; retrying");
                    is_hindered = true;
                }
            }
            tokio::select! {
                () = stop.cancelled() => {}
                // The next commit seldom resolves the cause of an error. Waiting for the timer avoids an error message
                // per commit.
                () = grown.changed(), if !is_hindered => {}
                () = tokio::time::sleep(self.idle) => {}
            }
        }
    }

    async fn count_and_add_up(&self, shard: ShardId, much_is_new: &Notify, stop: &CancellationToken) {
        let heartbeat = self.ledger.heartbeats().background("lists and totals");
        while !stop.is_cancelled() {
            heartbeat.beat();
            let mut is_behind = match self.count(shard).await {
                Ok(maintain::CountStep::Counted { is_more, .. }) => is_more,
                Ok(maintain::CountStep::Idle | maintain::CountStep::Elsewhere) => false,
                Err(error) => {
                    tracing::warn!(shard, %error, "failed to update the counts of lists; retrying");
                    false
                }
            };
            heartbeat.beat();
            match connect::within(DEADLINE, self.total(shard)).await {
                Ok(ProjectionStep::Applied { is_more, .. }) => is_behind |= is_more,
                Ok(ProjectionStep::Idle | ProjectionStep::Elsewhere) => {}
                Err(error) => {
                    tracing::warn!(shard, %error, "failed to update the daily totals; retrying");
                }
            }
            heartbeat.beat();
            match connect::within(DEADLINE, self.stock(shard)).await {
                Ok(ProjectionStep::Applied { is_more, .. }) => is_behind |= is_more,
                Ok(ProjectionStep::Idle | ProjectionStep::Elsewhere) => {}
                Err(error) => {
                    tracing::warn!(shard, %error, "failed to update the stock by day; retrying");
                }
            }
            heartbeat.beat();
            is_behind |= self.watch_balances(shard, &heartbeat).await;
            if is_behind {
                continue;
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = much_is_new.notified() => {}
                () = tokio::time::sleep(self.idle) => {}
            }
        }
    }

    /// Derives the notices of low balances, and announces them when they are up to date. Returns whether there may be more.
    async fn watch_balances(&self, shard: ShardId, heartbeat: &Heartbeat) -> bool {
        match connect::within(DEADLINE, self.watch(shard)).await {
            Ok(ProjectionStep::Applied { is_more: true, .. }) => return true,
            Ok(ProjectionStep::Applied { .. } | ProjectionStep::Idle) => {}
            Ok(ProjectionStep::Elsewhere) => return false,
            Err(error) => {
                tracing::warn!(shard, %error, "failed to derive notices of low balances; retrying");
                return false;
            }
        }
        heartbeat.beat();
        match connect::within(DEADLINE, low_balances::announce(&self.ledger, shard)).await {
            Ok(notices) => notices > 0,
            Err(error) => {
                tracing::warn!(shard, %error, "failed to announce low balances; retrying");
                false
            }
        }
    }

    /// Counts the orders of the next events, for the pagination of lists.
    pub async fn count(&self, shard: ShardId) -> Result<maintain::CountStep, ReadError> {
        connect::within(DEADLINE, self.count_orders(shard)).await
    }

    async fn count_orders(&self, shard: ShardId) -> Result<maintain::CountStep, ReadError> {
        let mut conn = self.derived.acquire().await?;
        let mut tx = conn.begin().await?;
        let Some(from) = maintain::hold(&mut tx, shard).await? else {
            tx.commit().await?;
            conn.keep();
            return Ok(maintain::CountStep::Elsewhere);
        };
        let head = reader::head(&mut *tx, shard).await?;
        if head == from {
            tx.rollback().await?;
            conn.keep();
            return Ok(maintain::CountStep::Idle);
        }
        let to = head.min(from + LISTED_EVENTS);
        let moves = reader::order_moves(&mut tx, shard, None, (from, to)).await?;
        maintain::count_orders(&mut tx, shard, &moves, to).await?;
        tx.commit().await?;
        conn.keep();
        Ok(maintain::CountStep::Counted { is_more: to < head })
    }

    /// Writes the deliveries of the next events, rows and checkpoint in one transaction.
    pub async fn step(&self, shard: ShardId) -> Result<ProjectionStep, ReadError> {
        let started = SystemTime::now();
        let mut conn = self.deliveries.acquire().await?;
        let mut tx = conn.begin().await?;
        let Some(checkpoint) = hold(&mut tx, shard, deliveries::NAME).await? else {
            tx.commit().await?;
            conn.keep();
            return Ok(ProjectionStep::Elsewhere);
        };
        let events = reader::after(&mut *tx, shard, checkpoint, BATCH_EVENTS).await?;
        if events.is_empty() {
            tx.rollback().await?;
            conn.keep();
            return Ok(ProjectionStep::Idle);
        }
        let made = reader::fold_deliveries(&mut tx, shard, &events).await?;
        if !deliveries::fail_pending(&mut tx, shard, &made).await? {
            // A deactivated webhook or an ended replay has many pending deliveries. The batch is written after all of
            // them have failed.
            tx.commit().await?;
            conn.keep();
            return Ok(ProjectionStep::Applied { events: 0, is_more: true });
        }
        deliveries::write(&mut tx, shard, &made).await?;
        let is_more = made.events < events.len() || i64::try_from(events.len()).is_ok_and(|n| n == BATCH_EVENTS);
        let to = events.iter().take(made.events).next_back().map_or(checkpoint, |last| last.moment.position);
        advance(&mut tx, shard, deliveries::NAME, to).await?;
        tx.commit().await?;
        conn.keep();
        let addressee = |(webhook_id, account_id)| Addressee { shard, webhook_id, account_id };
        let addressees: Vec<_> = made.addressees().into_iter().map(addressee).collect();
        if !addressees.is_empty() {
            self.ledger.wake().made_deliveries(addressees);
        }
        // A worker sends prefetched deliveries with the URL and secret that were current when it claimed them, so it must
        // release them.
        let changes_target = |recorded: &Recorded| {
            matches!(
                recorded.event,
                Event::Webhook(WebhookEvent::WebhookUpdated(_) | WebhookEvent::WebhookDeleted(_))
                    | Event::Credential(CredentialEvent::SigningSecretRotated(_))
            )
        };
        if made.has_retried() || events.iter().any(changes_target) {
            self.ledger.wake().changed_deliveries();
        }
        self.metrics.projected(made.events);
        self.trace(shard, &events[..made.events], started);
        Ok(ProjectionStep::Applied { events: made.events, is_more })
    }

    /// Records the projection of events in their traces.
    fn trace(&self, shard: ShardId, events: &[Recorded], started: SystemTime) {
        let traces = self.metrics.traces();
        if traces.is_on() {
            let places = events.iter().filter_map(|event| TraceParent::parse(event.metadata.traceparent.as_deref()?));
            let count = i64::try_from(events.len()).unwrap_or(i64::MAX);
            traces.record_shared("projection", places, started, [("shard", shard.into()), ("events", count)]);
        }
    }

    /// Derives the notices of low balances from the next events, rows and checkpoint in one transaction.
    pub async fn watch(&self, shard: ShardId) -> Result<ProjectionStep, ReadError> {
        self.fold(shard, Folded::LowBalance).await
    }

    /// Adds the movements of the next events to the daily totals, rows and checkpoint in one transaction.
    pub async fn total(&self, shard: ShardId) -> Result<ProjectionStep, ReadError> {
        self.fold(shard, Folded::Totals).await
    }

    /// Adds the movements of the next events to the stock by day, rows and checkpoint in one transaction.
    pub async fn stock(&self, shard: ShardId) -> Result<ProjectionStep, ReadError> {
        self.fold(shard, Folded::Stock).await
    }

    async fn fold(&self, shard: ShardId, projection: Folded) -> Result<ProjectionStep, ReadError> {
        let mut conn = self.derived.acquire().await?;
        let mut tx = conn.begin().await?;
        let Some(checkpoint) = hold(&mut tx, shard, projection.name()).await? else {
            tx.commit().await?;
            conn.keep();
            return Ok(ProjectionStep::Elsewhere);
        };
        let head = reader::head(&mut *tx, shard).await?;
        if head <= checkpoint {
            tx.rollback().await?;
            conn.keep();
            return Ok(ProjectionStep::Idle);
        }
        let to = head.min(checkpoint + FOLDED_EVENTS);
        let events = match projection {
            Folded::LowBalance => {
                let events = reader::balance_events(&mut *tx, shard, checkpoint, to).await?;
                low_balance::apply(&mut tx, shard, &events).await?;
                events.len()
            }
            Folded::Totals => {
                let events = reader::wallet_events(&mut *tx, shard, checkpoint, to).await?;
                totals::apply(&mut tx, shard, &events).await?;
                events.len()
            }
            Folded::Stock => {
                let events = reader::stock_events(&mut *tx, shard, checkpoint, to).await?;
                reader::fold_stock(&mut tx, shard, &events).await?;
                events.len()
            }
        };
        advance(&mut tx, shard, projection.name(), to).await?;
        tx.commit().await?;
        conn.keep();
        Ok(ProjectionStep::Applied { events, is_more: to < head })
    }
}

/// A projection that reads the events of some types between two positions.
#[derive(Clone, Copy)]
enum Folded {
    LowBalance,
    Stock,
    Totals,
}

impl Folded {
    fn name(self) -> &'static str {
        match self {
            Self::LowBalance => low_balance::NAME,
            Self::Stock => stock::NAME,
            Self::Totals => totals::NAME,
        }
    }
}

/// Locks a projection's checkpoint until the transaction ends. Returns none if another node holds it, or if the row did
/// not exist and was just created.
async fn hold(conn: &mut PgConnection, shard: ShardId, projection: &'static str) -> Result<Option<Position>, sqlx::Error> {
    let held = sqlx::query_scalar(
        // The setting says that this node delivers all event types (migration 0050).
        "SELECT position FROM projection_checkpoints, set_config('ledger.webhook_events', 'further', true)
         WHERE shard_id = $1 AND projection = $2 FOR UPDATE OF projection_checkpoints SKIP LOCKED",
    )
    .bind(shard)
    .bind(projection)
    .fetch_optional(&mut *conn)
    .await?;
    if held.is_none() {
        sqlx::query("INSERT INTO projection_checkpoints (shard_id, projection) VALUES ($1, $2) ON CONFLICT DO NOTHING")
            .bind(shard)
            .bind(projection)
            .execute(conn)
            .await?;
    }
    Ok(held)
}

async fn advance(conn: &mut PgConnection, shard: ShardId, projection: &'static str, to: Position) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE projection_checkpoints SET position = $3, updated_at = clock_timestamp() WHERE shard_id = $1 AND projection = $2",
    )
    .bind(shard)
    .bind(projection)
    .bind(to)
    .execute(conn)
    .await?;
    Ok(())
}
