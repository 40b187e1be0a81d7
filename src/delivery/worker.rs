//! The delivery worker: claims what is due, sends it, and records what came of it. No transaction
//! is open while HTTP is, and a slot is free again only when its result stands in the database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::Utc;
use ledger_events::ShardId;
use sqlx::PgPool;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::claim::{self, Claimed, Room};
use super::record::{self, Ended, Lease};
use super::sender::{Delivery, Outcome, Sender};
use crate::access::seal::Keyring;
use crate::ledger::connect;
use crate::telemetry::Metrics;

/// How much longer than its deadline a send's lease lasts: for claiming, waiting and recording.
const LEASE_MARGIN: Duration = Duration::from_secs(15);
/// What must be left of that when a send starts.
const RECORDING_MARGIN: Duration = Duration::from_secs(5);
/// The slow timer, for when no wake-up comes.
const IDLE: Duration = Duration::from_secs(1);
/// After a claim that found nothing, so that results of the last ones do not each cause another.
const EMPTY_PAUSE: Duration = Duration::from_millis(10);
/// After the database refused or did not answer.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// How long sends in flight, and then their results, get when the worker stops.
const STOP_GRACE: Duration = Duration::from_secs(4);
/// Most results in one statement.
const BATCH_RESULTS: usize = 512;

#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// The schedule is this × 1, 2, 4, 8.
    pub retry_base: Duration,
    /// The sender's: no send takes longer.
    pub deadline: Duration,
    /// Most deliveries that this node sends at once.
    pub max_in_flight: usize,
    /// Most to one webhook at once, over all nodes.
    pub max_in_flight_per_webhook: usize,
}

impl Default for WorkerSettings {
    fn default() -> WorkerSettings {
        WorkerSettings {
            retry_base: Duration::from_secs(60),
            deadline: Duration::from_secs(30),
            max_in_flight: 256,
            max_in_flight_per_webhook: 64,
        }
    }
}

/// What one round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    pub claimed: usize,
    pub delivered: usize,
    pub failed: usize,
    /// Results that counted: less than were sent when a lease was lost.
    pub recorded: u64,
}

/// Sends the deliveries of every shard. Any number of them work beside each other.
#[derive(Clone, Debug)]
pub struct Worker {
    pub pool: PgPool,
    pub shards: Vec<ShardId>,
    pub keyring: Arc<Keyring>,
    pub sender: Arc<Sender>,
    pub settings: WorkerSettings,
    pub metrics: Metrics,
    /// Notified when there are new deliveries.
    pub made: Arc<Notify>,
}

/// How a claimed delivery left this node's hands; its slot is held until that is recorded.
#[derive(Debug)]
enum Left {
    Sent(Ended, OwnedSemaphorePermit),
    Unsent(Claimed, OwnedSemaphorePermit),
    /// Given up while it was sent.
    Cut(Lease, OwnedSemaphorePermit),
}

impl Worker {
    /// Claims up to `free` due deliveries of a shard, each with its attempt written ahead.
    pub async fn claim_once(&self, shard: ShardId, free: usize) -> Result<Vec<Claimed>, sqlx::Error> {
        let room =
            Room { free, per_webhook: self.settings.max_in_flight_per_webhook, lease: self.settings.deadline + LEASE_MARGIN };
        claim::claim(&self.pool, &self.keyring, shard, room).await
    }

    /// Sends one claimed delivery, within the deadline; none when too little of its lease is left.
    pub async fn send(&self, claimed: Claimed) -> Result<Ended, Claimed> {
        let latest_start = claimed.moment.lease_ends.checked_sub(self.settings.deadline + RECORDING_MARGIN);
        if latest_start.is_none_or(|latest| Instant::now() > latest) {
            return Err(claimed);
        }
        self.metrics.attempt_started();
        let started = Instant::now();
        let outcome = self.outcome(&claimed).await;
        self.metrics.attempt_ended(if outcome.succeeded() { "delivered" } else { "failed" }, started.elapsed());
        let ended_at = claimed.moment.now();
        Ok(Ended { claimed, ended_at, outcome })
    }

    async fn outcome(&self, claimed: &Claimed) -> Outcome {
        let Some(target) = &claimed.target else {
            let error = Some("the webhook's URL or secret cannot be read".to_owned());
            return Outcome { response_status: None, response_time_ms: 0, response_body: None, error };
        };
        let mut event_id = uuid::Uuid::encode_buffer();
        let mut request_id = uuid::Uuid::encode_buffer();
        let delivery = Delivery {
            url: target.url.expose(),
            webhook_id: claimed.webhook_id,
            event_id: claimed.event_id.hyphenated().encode_lower(&mut event_id),
            event_type: &claimed.event_type,
            request_id: claimed.request_id.hyphenated().encode_lower(&mut request_id),
            secret: target.secret.expose(),
            timestamp: Utc::now().timestamp(),
            body: claimed.payload.clone(),
        };
        self.sender.send(delivery).await
    }

    /// Records results of one shard; returns how many counted.
    pub async fn record(&self, shard: ShardId, results: &[Ended]) -> Result<u64, sqlx::Error> {
        record::record(&self.pool, shard, results, self.settings.retry_base).await
    }

    /// Claims, sends and records once, for every shard.
    pub async fn once(&self) -> Result<Round, sqlx::Error> {
        let mut round = Round::default();
        for &shard in &self.shards {
            record::write_off(&self.pool, shard, self.settings.retry_base).await?;
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
                record::give_back(&self.pool, shard, &unsent).await?;
            }
        }
        Ok(round)
    }

    /// Works until told to stop. Then nothing more is claimed, what is in flight gets a few
    /// seconds, what was not sent is given back, and the leases of what was cut off end.
    pub async fn run(self, stop: CancellationToken) {
        let slots = Arc::new(Semaphore::new(self.settings.max_in_flight));
        let freed = Arc::new(Notify::new());
        let give_up = CancellationToken::new();
        let sends = TaskTracker::new();
        // Bounded by the slots, which the results hold.
        let (left, leaving) = mpsc::unbounded_channel();
        let recorder = tokio::spawn(self.clone().record_all(leaving, freed.clone()));

        let mut first = 0;
        let mut swept: Option<Instant> = None;
        // Without its recorder the worker ends too, and whoever looks after it sees that.
        while !stop.is_cancelled() && !recorder.is_finished() {
            if swept.is_none_or(|at| at.elapsed() >= IDLE) {
                self.write_off().await;
                swept = Some(Instant::now());
            }
            let made = self.made.notified();
            let mut claimed = 0;
            let mut is_away = false;
            for turn in 0..self.shards.len() {
                let shard = self.shards[(first + turn) % self.shards.len()];
                let free = slots.available_permits();
                if free == 0 {
                    break;
                }
                match self.claim_once(shard, free).await {
                    Ok(deliveries) => {
                        claimed += deliveries.len();
                        self.start(deliveries, &slots, &sends, &left, &give_up, &stop);
                    }
                    Err(error) => {
                        tracing::warn!(shard, %error, "deliveries cannot be claimed; the worker will try again");
                        is_away = true;
                    }
                }
            }
            first = first.wrapping_add(1);

            let pause = match (is_away, claimed) {
                (true, _) => RETRY_PAUSE,
                (false, 0) => self.until_due().await,
                _ => IDLE,
            };
            let woken = async {
                tokio::select! {
                    () = made => {}
                    () = freed.notified() => {}
                    () = tokio::time::sleep(pause) => {}
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = async {
                    if is_away { tokio::time::sleep(pause).await } else { woken.await }
                    if claimed == 0 { tokio::time::sleep(EMPTY_PAUSE).await }
                } => {}
            }
        }

        sends.close();
        if tokio::time::timeout(STOP_GRACE, sends.wait()).await.is_err() {
            tracing::warn!(
                sends = sends.len(),
                "sends were cut off by the stop: their outcome is unknown, and they will be repeated"
            );
            give_up.cancel();
            sends.wait().await;
        }
        drop(left);
        let recording = recorder.abort_handle();
        if tokio::time::timeout(STOP_GRACE, recorder).await.is_err() {
            tracing::warn!("results could not be recorded before the stop: their deliveries will be repeated");
            recording.abort();
        }
    }

    fn start(
        &self,
        deliveries: Vec<Claimed>,
        slots: &Arc<Semaphore>,
        sends: &TaskTracker,
        left: &mpsc::UnboundedSender<Left>,
        give_up: &CancellationToken,
        stop: &CancellationToken,
    ) {
        for claimed in deliveries {
            // Only this loop takes slots, and it claimed no more than were free.
            let Ok(slot) = slots.clone().try_acquire_owned() else { return };
            if stop.is_cancelled() {
                _ = left.send(Left::Unsent(claimed, slot));
                continue;
            }
            let lease = Lease::of(&claimed);
            let (worker, left, give_up) = (self.clone(), left.clone(), give_up.clone());
            sends.spawn(async move {
                let left_how = match give_up.run_until_cancelled(worker.send(claimed)).await {
                    Some(Ok(ended)) => Left::Sent(ended, slot),
                    Some(Err(claimed)) => Left::Unsent(claimed, slot),
                    None => Left::Cut(lease, slot),
                };
                _ = left.send(left_how); // the recorder outlives the sends
            });
        }
    }

    /// How long nothing will be due, at most a second.
    async fn until_due(&self) -> Duration {
        let mut pause = IDLE;
        for &shard in &self.shards {
            match claim::next_due(&self.pool, shard).await {
                // What is due and was not claimed is in flight: its end wakes.
                Ok(Some(Duration::ZERO) | None) => {}
                Ok(Some(due)) => pause = pause.min(due),
                Err(error) => tracing::debug!(shard, %error, "when the next delivery is due cannot be told"),
            }
        }
        pause
    }

    async fn write_off(&self) {
        for &shard in &self.shards {
            match record::write_off(&self.pool, shard, self.settings.retry_base).await {
                Ok(0) => {}
                Ok(deliveries) => tracing::warn!(shard, deliveries, "attempts of unknown outcome were counted as failed"),
                Err(error) => tracing::warn!(shard, %error, "attempts of unknown outcome cannot be looked for"),
            }
        }
    }

    /// Records results as they come, as many as there are in one statement, until every sender is
    /// gone. A database that is away is waited for.
    async fn record_all(self, mut leaving: mpsc::UnboundedReceiver<Left>, freed: Arc<Notify>) {
        let mut batch = Vec::with_capacity(BATCH_RESULTS);
        while leaving.recv_many(&mut batch, BATCH_RESULTS).await > 0 {
            let mut slots = Vec::with_capacity(batch.len());
            let mut ended = vec![];
            let mut unsent = vec![];
            let mut cut = vec![];
            for left in batch.drain(..) {
                match left {
                    Left::Sent(result, slot) => (ended.push(result), slots.push(slot)),
                    Left::Unsent(claimed, slot) => (unsent.push(claimed), slots.push(slot)),
                    Left::Cut(lease, slot) => (cut.push(lease), slots.push(slot)),
                };
            }
            for &shard in &self.shards {
                let (here, elsewhere) = ended.into_iter().partition(|e: &Ended| e.claimed.shard == shard);
                ended = elsewhere;
                self.record_until_done(shard, here).await;
                let (here, elsewhere): (Vec<_>, _) = unsent.into_iter().partition(|c: &Claimed| c.shard == shard);
                unsent = elsewhere;
                if !here.is_empty()
                    && let Err(error) = record::give_back(&self.pool, shard, &here).await
                {
                    tracing::warn!(shard, %error, "unsent deliveries were not given back: their leases will run out");
                }
                let (here, elsewhere): (Vec<_>, _) = cut.into_iter().partition(|lease: &Lease| lease.shard == shard);
                cut = elsewhere;
                if !here.is_empty()
                    && let Err(error) = record::end_leases(&self.pool, shard, &here).await
                {
                    tracing::warn!(shard, %error, "the leases of cut sends were not ended: they will run out");
                }
            }
            drop(slots);
            freed.notify_one();
        }
    }

    /// Records results, however long the database is away. If it refuses a batch for what is in
    /// it, halves of it are tried, so that only the delivery at fault is left to its lease.
    async fn record_until_done(&self, shard: ShardId, results: Vec<Ended>) {
        let mut parts = vec![results];
        while let Some(mut part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            match self.record(shard, &part).await {
                Ok(counted) => {
                    let lost = part.len().saturating_sub(usize::try_from(counted).unwrap_or_default());
                    if lost > 0 {
                        tracing::warn!(shard, lost, "results came after their leases had gone to somebody else");
                    }
                }
                Err(error) if connect::is_passing(&error) => {
                    tracing::warn!(shard, results = part.len(), %error, "results cannot be recorded now; they are kept");
                    parts.push(part);
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) if part.len() == 1 => {
                    tracing::error!(shard, delivery_id = part[0].claimed.delivery_id, %error, "the database refuses a result");
                }
                Err(error) => {
                    tracing::warn!(shard, results = part.len(), %error, "the database refuses results: bisecting");
                    let later = part.split_off(part.len() / 2);
                    parts.extend([later, part]);
                }
            }
        }
    }
}
