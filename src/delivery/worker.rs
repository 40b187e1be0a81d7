//! The delivery worker: claims what is due, sends it, and records what came of it, each while the
//! others go on. No transaction is open while HTTP is.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::Utc;
use futures::FutureExt;
use futures::future::BoxFuture;
use ledger_events::{ShardId, WebhookId};
use sqlx::PgPool;
use tokio::sync::{Notify, mpsc};
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::claim::{self, Claimed, Due, Targets, Want};
use super::queue::{Limits, Queue};
use super::record::{self, Ended, Lease};
use super::sender::{Delivery, Outcome, Sender};
use crate::access::seal::Keyring;
use crate::ledger::connect;
use crate::telemetry::Metrics;

/// How much longer than its deadline a send's lease lasts: for claiming, waiting and recording.
const LEASE_MARGIN: Duration = Duration::from_secs(15);
/// What must be left of that when a send starts.
const RECORDING_MARGIN: Duration = Duration::from_secs(5);
/// What waited longer for its turn is given back: where it goes, and what signs it, may have changed.
const FRESH: Duration = Duration::from_secs(2);
/// After looking for what is due, so many times as long is used for other things.
const LOOK_SELDOM: u32 = 4;
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
    /// Most that this node sends to one webhook at once; over all nodes, unless it answers quickly.
    pub max_in_flight_per_webhook: usize,
    /// The slow timer, for when no wake-up comes.
    pub idle: Duration,
}

impl Default for WorkerSettings {
    fn default() -> WorkerSettings {
        WorkerSettings {
            retry_base: Duration::from_secs(60),
            deadline: Duration::from_secs(30),
            max_in_flight: 256,
            max_in_flight_per_webhook: 64,
            idle: Duration::from_secs(1),
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
    pub targets: Arc<Targets>,
}

/// How a claimed delivery left this node's hands.
#[derive(Debug)]
enum Left {
    Sent(Ended),
    Unsent(Claimed),
    /// Given up while it was sent.
    Cut(Lease),
}

/// What the database said, while other things went on.
#[derive(Debug)]
enum Answer {
    /// What is due in which shard, and when more will be.
    Due {
        found: Vec<(ShardId, Vec<Due>)>,
        later: Option<Duration>,
    },
    Claimed(Vec<Want>, Vec<Claimed>),
    Refused(ShardId, sqlx::Error),
    /// It was not asked: it is time to.
    None,
}

impl Worker {
    fn limits(&self) -> Limits {
        Limits { in_flight: self.settings.max_in_flight, per_webhook: self.settings.max_in_flight_per_webhook }
    }

    fn lease(&self) -> Duration {
        self.settings.deadline + LEASE_MARGIN
    }

    /// Claims up to `free` due deliveries of a shard, each with its attempt written ahead.
    pub async fn claim_once(&self, shard: ShardId, free: usize) -> Result<Vec<Claimed>, sqlx::Error> {
        let now = Instant::now();
        let mut queue = Queue::new(self.limits());
        let (due, _) = claim::due(&self.pool, shard).await?;
        queue.found(shard, due, now);
        let wants = queue.wanted_of(shard, free, usize::MAX, now);
        claim::claim(&self.pool, &self.keyring, &self.targets, shard, &wants, self.lease()).await
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
        let took = started.elapsed();
        self.metrics.attempt_ended(if outcome.succeeded() { "delivered" } else { "failed" }, took);
        let ended_at = claimed.moment.now();
        Ok(Ended { claimed, ended_at, took, outcome })
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
        let (left, leaving) = mpsc::unbounded_channel(); // bounded by what the queue holds
        let (gone, mut going) = mpsc::unbounded_channel();
        let mut recorder = tokio::spawn(self.clone().record_all(leaving, gone));
        let mut round = Running::new(&self, left);
        // Without its recorder the worker ends too, and whoever looks after it sees that.
        while !stop.is_cancelled() && !recorder.is_finished() {
            round.send();
            round.ask();
            let made = self.made.notified();
            let wakes_at = round.wakes_at();
            tokio::select! {
                () = stop.cancelled() => {}
                _ = &mut recorder => break,
                () = made => round.look_at = Instant::now(),
                Some(ended) = round.sends.join_next_with_id() => round.ended(ended),
                Some(webhooks) = going.recv() => round.gone(&webhooks),
                answer = async {
                    match &mut round.asked {
                        Some(asked) => asked.await,
                        None => {
                            tokio::time::sleep_until(wakes_at.into()).await;
                            Answer::None
                        }
                    }
                } => round.answered(answer),
            }
            while let Some(ended) = round.sends.try_join_next_with_id() {
                round.ended(ended);
            }
            while let Ok(webhooks) = going.try_recv() {
                round.gone(&webhooks);
            }
        }
        round.finish().await;
        if recorder.is_finished() {
            return;
        }
        let recording = recorder.abort_handle();
        if tokio::time::timeout(STOP_GRACE, recorder).await.is_err() {
            tracing::warn!("results could not be recorded before the stop: their deliveries will be repeated");
            recording.abort();
        }
    }

    /// Looks what is due, in every shard.
    async fn look(self) -> Answer {
        let (mut found, mut later) = (vec![], None::<Duration>);
        for &shard in &self.shards {
            match claim::due(&self.pool, shard).await {
                Ok((due, next)) => {
                    found.push((shard, due));
                    later = [later, next].into_iter().flatten().min();
                }
                Err(error) => return Answer::Refused(shard, error),
            }
        }
        Answer::Due { found, later }
    }

    async fn claim(self, shard: ShardId, wants: Vec<Want>) -> Answer {
        match claim::claim(&self.pool, &self.keyring, &self.targets, shard, &wants, self.lease()).await {
            Ok(claimed) => Answer::Claimed(wants, claimed),
            Err(error) => Answer::Refused(shard, error),
        }
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
    /// gone; tells whose they were. A database that is away is waited for.
    async fn record_all(self, mut leaving: mpsc::UnboundedReceiver<Left>, gone: mpsc::UnboundedSender<Vec<WebhookId>>) {
        let mut batch = Vec::with_capacity(BATCH_RESULTS);
        let mut swept: Option<Instant> = None;
        loop {
            if swept.is_none_or(|at| at.elapsed() >= self.settings.idle) {
                self.write_off().await;
                swept = Some(Instant::now());
            }
            match tokio::time::timeout(self.settings.idle, leaving.recv_many(&mut batch, BATCH_RESULTS)).await {
                Ok(0) => return,
                Ok(_) => {}
                Err(_) => continue,
            }
            let mut webhooks = Vec::with_capacity(batch.len());
            let mut ended = vec![];
            let mut unsent = vec![];
            let mut cut = vec![];
            for left in batch.drain(..) {
                match left {
                    Left::Sent(result) => (webhooks.push(result.claimed.webhook_id), ended.push(result)),
                    Left::Unsent(claimed) => (webhooks.push(claimed.webhook_id), unsent.push(claimed)),
                    Left::Cut(lease) => (webhooks.push(lease.webhook_id), cut.push(lease)),
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
            _ = gone.send(webhooks); // a worker that stops does not listen any more
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

/// A worker at work: what it holds, and what it waits for. Everything here is done by one task.
struct Running<'w> {
    worker: &'w Worker,
    queue: Queue,
    sends: JoinSet<Left>,
    /// What is being sent, should its task panic.
    in_flight: HashMap<Id, Lease>,
    left: mpsc::UnboundedSender<Left>,
    give_up: CancellationToken,
    /// A question to the database: one at a time, a look or a claim.
    asked: Option<BoxFuture<'static, Answer>>,
    asked_at: Instant,
    /// When to look for what is due.
    look_at: Instant,
    /// Not before this, or it would do little else.
    look_not_before: Instant,
    /// After the database refused something.
    ask_not_before: Instant,
    next_shard: usize,
}

impl<'w> Running<'w> {
    fn new(worker: &'w Worker, left: mpsc::UnboundedSender<Left>) -> Running<'w> {
        let now = Instant::now();
        Running {
            worker,
            queue: Queue::new(worker.limits()),
            sends: JoinSet::new(),
            in_flight: HashMap::new(),
            left,
            give_up: CancellationToken::new(),
            asked: None,
            asked_at: now,
            look_at: now,
            look_not_before: now,
            ask_not_before: now,
            next_shard: 0,
        }
    }

    /// Starts the sends whose turn it is.
    fn send(&mut self) {
        loop {
            let next = self.queue.next(Instant::now());
            if next.is_empty() {
                return;
            }
            for claimed in next {
                if claimed.moment.began.elapsed() > FRESH {
                    self.queue.ended(claimed.webhook_id, None, Instant::now());
                    self.leave(Left::Unsent(claimed));
                    continue;
                }
                let lease = Lease::of(&claimed);
                let (worker, give_up) = (self.worker.clone(), self.give_up.clone());
                let task = self.sends.spawn(async move {
                    match give_up.run_until_cancelled(worker.send(claimed)).await {
                        Some(Ok(ended)) => Left::Sent(ended),
                        Some(Err(claimed)) => Left::Unsent(claimed),
                        None => Left::Cut(lease),
                    }
                });
                self.in_flight.insert(task.id(), lease);
            }
        }
    }

    /// Asks the database for what is due, or claims it, unless it is being asked already.
    fn ask(&mut self) {
        let now = Instant::now();
        if self.asked.is_some() || now < self.ask_not_before {
            return;
        }
        self.asked_at = now;
        if now >= self.look_at.max(self.look_not_before) {
            self.look_at = now + self.worker.settings.idle;
            self.asked = Some(self.worker.clone().look().boxed());
            return;
        }
        let shards = &self.worker.shards;
        for turn in 0..shards.len() {
            let shard = shards[(self.next_shard + turn) % shards.len()];
            let wants = self.queue.wanted(shard, now);
            if !wants.is_empty() {
                self.next_shard = (self.next_shard + turn + 1) % shards.len();
                self.asked = Some(self.worker.clone().claim(shard, wants).boxed());
                return;
            }
        }
    }

    fn answered(&mut self, answer: Answer) {
        self.asked = None;
        let now = Instant::now();
        match answer {
            Answer::Due { found, later } => {
                for (shard, due) in found {
                    self.queue.found(shard, due, now);
                }
                self.look_not_before = now + (now - self.asked_at) * LOOK_SELDOM;
                if let Some(later) = later.and_then(|later| now.checked_add(later)) {
                    self.look_at = self.look_at.min(later);
                }
            }
            Answer::Claimed(wants, claimed) => self.queue.claimed(&wants, claimed),
            Answer::Refused(shard, error) => {
                tracing::warn!(shard, %error, "deliveries cannot be claimed; the worker will try again");
                self.ask_not_before = now + RETRY_PAUSE;
                self.look_at = now;
            }
            Answer::None => {}
        }
    }

    fn ended(&mut self, ended: Result<(Id, Left), JoinError>) {
        let now = Instant::now();
        let (id, left) = match ended {
            Ok((id, left)) => (id, Some(left)),
            Err(error) => (error.id(), None),
        };
        let Some(lease) = self.in_flight.remove(&id) else { return };
        let took = match &left {
            Some(Left::Sent(ended)) => {
                if let Some(due) = ended.next_attempt_in(self.worker.settings.retry_base).and_then(|due| now.checked_add(due)) {
                    self.look_at = self.look_at.min(due);
                }
                Some((ended.took, ended.outcome.response_status.is_some()))
            }
            _ => None,
        };
        self.queue.ended(lease.webhook_id, took, now);
        self.leave(left.unwrap_or_else(|| {
            tracing::error!(delivery_id = lease.delivery_id, "a send panicked: its outcome is unknown, and it will be repeated");
            Left::Cut(lease)
        }));
    }

    fn leave(&self, left: Left) {
        _ = self.left.send(left); // without its recorder the worker ends
    }

    fn gone(&mut self, webhooks: &[WebhookId]) {
        for webhook_id in webhooks {
            self.queue.left(*webhook_id);
        }
    }

    /// When there is something to do, though nothing happens.
    fn wakes_at(&self) -> Instant {
        self.look_at.max(self.look_not_before).max(self.ask_not_before)
    }

    /// Gives back what was not sent, and waits a little for what is in flight.
    async fn finish(mut self) {
        if let Some(asked) = self.asked.take()
            && let Ok(Answer::Claimed(wants, claimed)) = tokio::time::timeout(STOP_GRACE, asked).await
        {
            self.queue.claimed(&wants, claimed);
        }
        for claimed in std::mem::replace(&mut self.queue, Queue::new(self.worker.limits())).into_waiting() {
            self.leave(Left::Unsent(claimed));
        }
        let give_up = self.give_up.clone();
        let cutting = tokio::time::sleep(STOP_GRACE);
        tokio::pin!(cutting);
        loop {
            tokio::select! {
                ended = self.sends.join_next_with_id() => match ended {
                    Some(ended) => self.ended(ended),
                    None => return,
                },
                () = &mut cutting, if !give_up.is_cancelled() => {
                    let sends = self.sends.len();
                    tracing::warn!(sends, "sends were cut off by the stop: their outcome is unknown, and they will be repeated");
                    give_up.cancel();
                }
            }
        }
    }
}
