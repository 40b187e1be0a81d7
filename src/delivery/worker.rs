//! The delivery worker: claims due deliveries, sends them and records the results, all concurrently. No transaction is open
//! during an HTTP request.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::SubsecRound;
use futures::StreamExt;
use ledger_events::{ShardId, WebhookId};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use webhook_client::sender::{Delivery, Outcome, Sender};

use super::claim::{self, ClaimRequest, Claimed, Claims, Due, Target, Targets};
use super::record::{self, Ended, Lease};
use super::schedule::Clock;
use super::scheduler::{FAST_WITHIN, Limits, Scheduler};
use super::share::Free;
use crate::ledger::{NewDeliveries, ShardWatch, connect, reader};
use crate::secrets::seal::{Keyring, Secret};
use crate::telemetry::Metrics;
use crate::telemetry::traces::{self, OpenSpan, SpanKind, TraceParent};

mod recording;
mod running;

use running::Running;

/// Part of the lease's margin that must be left after the send's deadline when a send starts.
const RECORDING_MARGIN: Duration = Duration::from_secs(5);
/// Pause before the next query for due deliveries if leases of other nodes limited a claim.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// Factor that limits queries for due deliveries: after one, the worker waits at least this many times its duration.
const LOOK_SELDOM: u32 = 4;
/// Pause after the database returned an error or did not answer.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// Timeout of one claim or one batch of results, each a few statements.
const ANSWERED: Duration = Duration::from_secs(20);
/// Timeout of the query for the traces of claimed deliveries. It is part of the time for which a claimed delivery is fresh.
const TRACES_FOUND: Duration = Duration::from_secs(1);
/// Maximum number of results in one statement.
const BATCH_RESULTS: usize = 512;

#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// Base of the backoff: retries follow after this × 1, 2, 4, 8.
    pub retry_base: Duration,
    /// Deadline of a send. It is the sender's own deadline.
    pub deadline: Duration,
    /// Maximum number of deliveries that this node sends at once.
    pub max_in_flight: usize,
    /// Maximum number of deliveries that this node sends to one webhook at once.
    ///
    /// The limit applies across all nodes, with two exceptions. A webhook that answers quickly has no such limit, and a
    /// node that holds nothing of a webhook may claim one delivery.
    pub max_in_flight_per_webhook: usize,
    /// Duration below which a send counts as fast. Fast webhooks do not delay others.
    pub fast_within: Duration,
    /// Longest time that a claimed delivery waits for its turn. After that the worker gives it back, because the webhook's
    /// URL or secret may have changed.
    pub fresh: Duration,
    /// Time that a lease lasts beyond the send's deadline: for claiming, waiting and recording.
    pub lease_margin: Duration,
    /// Time that the database gets when the worker stops: for a claim in progress, and for the last results. Sends in flight
    /// get their full deadline; otherwise a slow receiver would get the same delivery again.
    pub stop_grace: Duration,
    /// Interval between queries for due deliveries when no wake-up arrives.
    pub idle: Duration,
    /// Quota of stored response bodies per webhook, in bytes. The newest bodies are kept.
    pub response_bodies: u64,
    /// Clock for due times, leases and the times of attempts.
    pub clock: Clock,
}

impl Default for WorkerSettings {
    fn default() -> WorkerSettings {
        WorkerSettings {
            retry_base: Duration::from_secs(60),
            deadline: Duration::from_secs(30),
            max_in_flight: 256,
            max_in_flight_per_webhook: 64,
            fast_within: FAST_WITHIN,
            fresh: Duration::from_secs(2),
            lease_margin: Duration::from_secs(15),
            stop_grace: Duration::from_secs(4),
            idle: Duration::from_secs(1),
            response_bodies: 16 * 1024 * 1024,
            clock: Clock::default(),
        }
    }
}

/// Counts of one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    pub claimed: usize,
    pub delivered: usize,
    pub failed: usize,
    /// Results that were recorded. Fewer than were sent if a lease was lost.
    pub recorded: u64,
}

/// Sends the deliveries of every shard. Any number of workers may run concurrently.
#[derive(Clone, Debug)]
pub struct Worker {
    pub database: connect::Delivery,
    pub shards: ShardWatch,
    pub keyring: Arc<Keyring>,
    pub sender: Arc<Sender>,
    pub settings: WorkerSettings,
    pub metrics: Metrics,
    pub made: NewDeliveries,
    pub targets: Arc<Targets>,
}

/// Final state of a claimed delivery on this node.
#[derive(Debug)]
enum SendDisposition {
    Sent(Ended),
    Unsent(Claimed),
    /// The send was cancelled while in flight.
    Cut(Lease),
}

impl SendDisposition {
    fn shard(&self) -> ShardId {
        match self {
            Self::Sent(ended) => ended.claimed.shard,
            Self::Unsent(claimed) => claimed.shard,
            Self::Cut(lease) => lease.shard,
        }
    }
}

/// Deliveries of a shard that its recorder has recorded or given back.
#[derive(Debug)]
struct Released {
    shard: ShardId,
    /// Webhook of each delivery.
    webhooks: Vec<WebhookId>,
    /// Whether some were given back. They are due again.
    is_due_again: bool,
}

/// Due webhooks of a shard, and the current targets of webhooks with claimed deliveries that wait to be sent.
#[derive(Debug)]
struct DueWork {
    due: Vec<Due>,
    /// Time until more are due.
    later: Option<Duration>,
    targets: HashMap<WebhookId, Arc<Target>>,
}

/// Response of the database to a query that ran in the background.
#[derive(Debug)]
enum DbResponse {
    Due(Result<DueWork, sqlx::Error>),
    Claimed(Vec<ClaimRequest>, Result<Claims, sqlx::Error>),
}

impl Worker {
    fn limits(&self) -> Limits {
        let limits = Limits::new(self.settings.max_in_flight, self.settings.max_in_flight_per_webhook);
        Limits { fast_within: self.settings.fast_within, ..limits }
    }

    fn lease(&self) -> Duration {
        self.settings.deadline + self.settings.lease_margin
    }

    /// Returns a worker for one shard, with connections of its own.
    fn separate(&self, shard: ShardId) -> Worker {
        let database = self.database.separate(shard);
        self.metrics.watch_pool(&database.pool);
        Worker { database, ..self.clone() }
    }

    /// Claims up to `free` due deliveries of a shard, and writes their attempts ahead.
    pub async fn claim_once(&self, shard: ShardId, free: usize) -> Result<Vec<Claimed>, sqlx::Error> {
        let now = Instant::now();
        let limits = self.limits();
        let mut scheduler = Scheduler::new(Limits { new: limits.per_webhook, beside: 0, ..limits });
        let (due, _) = claim::due(&self.database.pool, &self.settings.clock, shard).await?;
        scheduler.found(shard, due, now);
        let requests = scheduler.wanted_of(shard, Free { all: free, not_fast: usize::MAX, unresponsive: usize::MAX }, 1, now);
        Ok(self.take(shard, &requests).await?.claimed)
    }

    async fn take(&self, shard: ShardId, requests: &[ClaimRequest]) -> Result<Claims, sqlx::Error> {
        let clock = &self.settings.clock;
        let claim = claim::claim(&self.database.claims, clock, &self.keyring, &self.targets, shard, requests, self.lease());
        let mut claims = connect::within(ANSWERED, claim).await?;
        if self.metrics.traces().is_on() && !claims.claimed.is_empty() {
            self.find_traces(shard, &mut claims.claimed).await;
        }
        Ok(claims)
    }

    /// Finds the traces that deliveries continue. Without an answer, they begin traces of their own.
    async fn find_traces(&self, shard: ShardId, claimed: &mut [Claimed]) {
        let events: Vec<_> = claimed.iter().map(|claimed| claimed.event_id).collect();
        match connect::within(TRACES_FOUND, reader::traces_of(&self.database.pool, shard, &events)).await {
            Ok(found) => {
                for claimed in claimed {
                    claimed.traceparent = found.get(&claimed.event_id).copied();
                }
            }
            Err(error) => tracing::debug!(shard, %error, "failed to look up the traces of deliveries"),
        }
    }

    /// Sends one claimed delivery within the deadline.
    ///
    /// # Errors
    /// Returns the delivery unsent if too little of its lease is left.
    pub async fn send(&self, claimed: Claimed) -> Result<Ended, Claimed> {
        let latest_start = claimed.clock.lease_ends.checked_sub(self.settings.deadline + RECORDING_MARGIN);
        if latest_start.is_none_or(|latest| Instant::now() > latest) {
            return Err(claimed);
        }
        let _in_flight = self.metrics.attempt_started();
        // Attempts are stored in milliseconds, and the receiver's timestamp is that of the recorded attempt.
        let (started_at, started) = (claimed.clock.now().trunc_subsecs(3), Instant::now());
        let span = self.begin_span(&claimed);
        let place = span.as_ref().map(OpenSpan::place);
        let outcome = traces::within(place, self.outcome(&claimed, started_at.timestamp(), place)).await;
        let took = started.elapsed();
        if let Some(span) = span {
            end_span(span, &outcome);
        }
        self.metrics.attempt_ended(if outcome.succeeded() { "delivered" } else { "failed" }, took);
        let ended_at = claimed.clock.now();
        Ok(Ended { claimed, started_at, ended_at, took, outcome })
    }

    /// Begins the span of an attempt. The URL and the answer stay out, because they may hold secrets.
    fn begin_span(&self, claimed: &Claimed) -> Option<OpenSpan> {
        let mut span = self.metrics.traces().begin("delivery", SpanKind::Client, claimed.traceparent)?;
        span.set("delivery.id", claimed.delivery_id);
        span.set("webhook.id", claimed.webhook_id.0);
        span.set("event.id", claimed.event_id.to_string());
        span.set("event.type", claimed.event_type.clone());
        span.set("attempt", i64::from(claimed.attempt));
        Some(span)
    }

    /// Sends a delivery with this timestamp, in Unix seconds by the database's clock. Receivers refuse one that is minutes off,
    /// and a node's own clock may be.
    async fn outcome(&self, claimed: &Claimed, timestamp: i64, place: Option<TraceParent>) -> Outcome {
        let Some(target) = &claimed.target else {
            let error = Some("the webhook's URL or secret cannot be read".to_owned());
            return Outcome { response_status: None, response_time_ms: 0, response_body: None, error };
        };
        let mut event_id = uuid::Uuid::encode_buffer();
        let mut request_id = uuid::Uuid::encode_buffer();
        let traceparent = place.map(|place| place.to_string());
        let delivery = Delivery {
            url: target.url.expose(),
            webhook_id: claimed.webhook_id.0,
            event_id: claimed.event_id.hyphenated().encode_lower(&mut event_id),
            event_type: &claimed.event_type,
            sequence: Some(claimed.position),
            request_id: claimed.request_id.hyphenated().encode_lower(&mut request_id),
            secret: target.secret.expose(),
            previous_secret: target.previous_at(timestamp).map(Secret::expose),
            timestamp,
            traceparent: traceparent.as_deref(),
            custom_headers: &target.headers,
            body: claimed.payload.clone(),
        };
        self.sender.send(delivery).await
    }

    /// Records results of one shard. Returns the number of results that were recorded.
    pub async fn record(&self, shard: ShardId, results: &[Ended]) -> Result<u64, sqlx::Error> {
        connect::within(ANSWERED, record::record(&self.database.results, shard, results, self.settings.retry_base)).await
    }

    /// Claims, sends and records once, for every shard.
    pub async fn once(&self) -> Result<Round, sqlx::Error> {
        let mut round = Round::default();
        for shard in self.shards.current() {
            self.fail_lost_attempts_of(shard).await?;
            self.repair_shard(shard).await?;
            let claimed = self.claim_once(shard, self.settings.max_in_flight).await?;
            round.claimed += claimed.len();
            let mut ended = vec![];
            let mut unsent = vec![];
            for result in futures::future::join_all(claimed.into_iter().map(|c| self.send(c))).await {
                match result {
                    Ok(result) => ended.push(result),
                    Err(claimed) => unsent.push(claimed),
                }
            }
            round.delivered += ended.iter().filter(|r| r.outcome.succeeded()).count();
            round.failed += ended.iter().filter(|r| !r.outcome.succeeded()).count();
            if !ended.is_empty() {
                round.recorded += self.record(shard, &ended).await?;
            }
            if !unsent.is_empty() {
                record::give_back(&self.database.pool, shard, &unsent).await?;
            }
        }
        Ok(round)
    }

    /// Runs until stopped. The worker then claims nothing more, gives back unsent deliveries and waits for sends in flight.
    /// It ends the leases of sends that it has to cancel.
    pub async fn run(self, stop: CancellationToken) {
        let (gone, mut going) = mpsc::unbounded_channel();
        let mut round = Running::new(&self, gone);
        let mut shards = self.shards.clone();
        let mut made = self.made.anywhere.clone();
        let mut made_here = self.made.here.subscribe();
        let heartbeat = self.metrics.heartbeats().background("delivery");
        while !stop.is_cancelled() {
            heartbeat.beat();
            round.begin_new();
            round.send();
            round.ask();
            let wakes_at = round.wakes_at();
            tokio::select! {
                () = stop.cancelled() => {}
                () = shards.changed() => {}
                // The worker ends too, and its supervisor notices.
                () = round.recorders.one_ended() => break,
                Ok(()) = made.changed() => round.look_now(),
                heard = made_here.recv() => match heard {
                    Ok(addressees) => round.made(&addressees),
                    Err(RecvError::Lagged(_) | RecvError::Closed) => round.look_now(),
                },
                Some(ended) = round.sends.join_next_with_id() => round.ended(ended),
                Some(released) = going.recv() => round.gone(&released),
                Some((shard, answer)) = round.asked.next() => round.answered(shard, answer),
                () = tokio::time::sleep_until(wakes_at.into()) => {}
            }
            while let Some(ended) = round.sends.try_join_next_with_id() {
                round.ended(ended);
            }
            while let Ok(released) = going.try_recv() {
                round.gone(&released);
            }
        }
        round.finish().await.finish(self.settings.stop_grace).await;
    }

    /// Queries the due webhooks and current targets of a shard.
    async fn look(self, shard: ShardId, waiting: Vec<WebhookId>) -> (ShardId, DbResponse) {
        (shard, DbResponse::Due(self.look_into(shard, &waiting).await))
    }

    async fn look_into(&self, shard: ShardId, waiting: &[WebhookId]) -> Result<DueWork, sqlx::Error> {
        let (pool, clock) = (&self.database.pool, &self.settings.clock);
        let (due, later) = claim::due(pool, clock, shard).await?;
        let targets = match waiting {
            [] => HashMap::new(),
            webhooks => self.targets.now(pool, clock, &self.keyring, shard, webhooks).await?,
        };
        Ok(DueWork { due, later, targets })
    }

    async fn claim(self, shard: ShardId, requests: Vec<ClaimRequest>) -> (ShardId, DbResponse) {
        let claims = self.take(shard, &requests).await;
        (shard, DbResponse::Claimed(requests, claims))
    }
}

fn end_span(mut span: OpenSpan, outcome: &Outcome) {
    if let Some(status) = outcome.response_status {
        span.set("http.response.status_code", i64::from(status));
    }
    if !outcome.succeeded() {
        span.fail(if outcome.response_status.is_some() { "the receiver refused the delivery" } else { "no answer" });
    }
}
