//! State of a running worker, and the handlers of its events.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use ledger_events::ShardId;
use tokio::sync::mpsc;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::{DbResponse, DueWork, LOOK_AGAIN, LOOK_SELDOM, RETRY_PAUSE, Released, SendDisposition, Worker};
use crate::delivery::claim::{Claims, lacks_key};
use crate::delivery::record::Lease;
use crate::delivery::scheduler::Scheduler;
use crate::ledger::Addressee;

/// Pause between two claims on a node that lacks the current master key.
const KEY_PAUSE: Duration = Duration::from_secs(5);

/// State of a running worker. A single task owns it.
pub(super) struct Running<'w> {
    worker: &'w Worker,
    scheduler: Scheduler,
    pub(super) sends: JoinSet<SendDisposition>,
    /// Lease of each running send, for the case that its task panics.
    in_flight: HashMap<Id, Lease>,
    left: mpsc::UnboundedSender<SendDisposition>,
    give_up: CancellationToken,
    /// The query in progress: a query for due deliveries or a claim, one at a time.
    pub(super) asked: Option<BoxFuture<'static, DbResponse>>,
    asked_at: Instant,
    /// Webhooks that got deliveries while a query was in progress. The query's result may not include them.
    made_meanwhile: HashSet<Addressee>,
    /// Time of the next query for due deliveries.
    pub(super) look_at: Instant,
    /// Earliest time of that query, so that the worker does not spend most of its time on it.
    look_not_before: Instant,
    /// Earliest time of any query after the database returned an error.
    ask_not_before: Instant,
    /// Whether the last claim was refused because this node lacks the current master key.
    lacks_key: bool,
    next_shard: usize,
}

impl<'w> Running<'w> {
    pub(super) fn new(worker: &'w Worker, left: mpsc::UnboundedSender<SendDisposition>) -> Running<'w> {
        let now = Instant::now();
        Running {
            worker,
            scheduler: Scheduler::new(worker.limits()),
            sends: JoinSet::new(),
            in_flight: HashMap::new(),
            left,
            give_up: CancellationToken::new(),
            asked: None,
            asked_at: now,
            made_meanwhile: HashSet::new(),
            look_at: now,
            look_not_before: now,
            ask_not_before: now,
            lacks_key: false,
            next_shard: 0,
        }
    }

    /// Starts the sends that the scheduler schedules now.
    pub(super) fn send(&mut self) {
        loop {
            let next = self.scheduler.next(Instant::now());
            if next.is_empty() {
                return;
            }
            for claimed in next {
                if claimed.clock.ready.elapsed() > self.worker.settings.fresh {
                    self.scheduler.ended(claimed.webhook_id, None, Instant::now());
                    self.leave(SendDisposition::Unsent(claimed));
                    continue;
                }
                let lease = Lease::of(&claimed);
                let (worker, give_up) = (self.worker.clone(), self.give_up.clone());
                let task = self.sends.spawn(async move {
                    match give_up.run_until_cancelled(worker.send(claimed)).await {
                        Some(Ok(ended)) => SendDisposition::Sent(ended),
                        Some(Err(claimed)) => SendDisposition::Unsent(claimed),
                        None => SendDisposition::Cut(lease),
                    }
                });
                self.in_flight.insert(task.id(), lease);
            }
        }
    }

    /// Starts a query for due deliveries or a claim, unless a query is in progress.
    pub(super) fn ask(&mut self) {
        let now = Instant::now();
        if self.asked.is_some() || now < self.ask_not_before {
            return;
        }
        self.asked_at = now;
        if now >= self.look_at.max(self.look_not_before) {
            self.look_at = now + self.worker.settings.idle;
            for claimed in self.scheduler.stale(self.worker.settings.fresh, now) {
                self.leave(SendDisposition::Unsent(claimed));
            }
            let waiting = self.worker.shards.iter().map(|shard| (*shard, self.scheduler.waiting_for(*shard))).collect();
            self.asked = Some(self.worker.clone().look(waiting).boxed());
            return;
        }
        let shards = &self.worker.shards;
        for turn in 0..shards.len() {
            let shard = shards[(self.next_shard + turn) % shards.len()];
            let requests = self.scheduler.wanted(shard, now);
            if !requests.is_empty() {
                self.next_shard = (self.next_shard + turn + 1) % shards.len();
                self.asked = Some(self.worker.clone().claim(shard, requests).boxed());
                return;
            }
        }
    }

    /// Notes webhooks for which this node's projector has created deliveries.
    pub(super) fn made(&mut self, addressees: &[Addressee]) {
        let now = Instant::now();
        for addressee in addressees.iter().filter(|addressee| self.worker.shards.contains(&addressee.shard)) {
            self.scheduler.made(addressee, now);
            if self.asked.is_some() {
                self.made_meanwhile.insert(*addressee);
            }
        }
    }

    pub(super) fn answered(&mut self, answer: DbResponse) {
        self.asked = None;
        let now = Instant::now();
        match answer {
            DbResponse::Due { found, later, refused } => {
                for DueWork { shard, due, targets } in found {
                    for claimed in self.scheduler.outdated(shard, &due, &targets) {
                        self.leave(SendDisposition::Unsent(claimed));
                    }
                    self.scheduler.found(shard, due, now);
                }
                self.look_not_before = now + (now - self.asked_at) * LOOK_SELDOM;
                if let Some(later) = later.and_then(|later| now.checked_add(later)) {
                    self.look_at = self.look_at.min(later);
                }
                for (shard, error) in refused {
                    let pause = self.pause_after(shard, &error, "failed to query due deliveries");
                    self.look_not_before = self.look_not_before.max(now + pause);
                    self.look_at = now;
                }
            }
            DbResponse::Claimed(requests, Claims { claimed, is_short }) => {
                self.lacks_key = false;
                self.scheduler.claimed(&requests, claimed);
                if is_short {
                    self.look_at = self.look_at.min(now + LOOK_AGAIN);
                }
            }
            DbResponse::Refused(shard, error) => {
                self.ask_not_before = now + self.pause_after(shard, &error, "failed to claim deliveries");
                self.look_at = now;
            }
            DbResponse::None => {}
        }
        for addressee in std::mem::take(&mut self.made_meanwhile) {
            self.scheduler.made(&addressee, now);
        }
    }

    /// Logs an error and returns the pause before the next attempt. A missing master key needs a person, so it is logged
    /// only once.
    fn pause_after(&mut self, shard: ShardId, error: &sqlx::Error, what: &str) -> Duration {
        if !lacks_key(error) {
            tracing::warn!(shard, %error, "{what}; retrying");
            return RETRY_PAUSE;
        }
        if !std::mem::replace(&mut self.lacks_key, true) {
            tracing::warn!(shard, %error, pause = ?KEY_PAUSE, "{what} without the current master key; retrying");
        }
        KEY_PAUSE
    }

    pub(super) fn ended(&mut self, ended: Result<(Id, SendDisposition), JoinError>) {
        let now = Instant::now();
        let (id, left) = match ended {
            Ok((id, left)) => (id, Some(left)),
            Err(error) => (error.id(), None),
        };
        let Some(lease) = self.in_flight.remove(&id) else { return };
        let took = match &left {
            Some(SendDisposition::Sent(ended)) => {
                if let Some(due) = ended.next_attempt_in(self.worker.settings.retry_base).and_then(|due| now.checked_add(due)) {
                    self.look_at = self.look_at.min(due);
                }
                Some((ended.took, ended.outcome.response_status.is_some()))
            }
            _ => None,
        };
        self.scheduler.ended(lease.webhook_id, took, now);
        self.leave(left.unwrap_or_else(|| {
            tracing::error!(delivery_id = lease.delivery_id, "a send panicked; its outcome is unknown, and it will be repeated");
            SendDisposition::Cut(lease)
        }));
    }

    fn leave(&self, left: SendDisposition) {
        _ = self.left.send(left); // fails only if the recorder has ended, and then the worker ends too
    }

    pub(super) fn gone(&mut self, released: &Released) {
        for webhook_id in &released.webhooks {
            self.scheduler.left(*webhook_id);
        }
        if released.is_due_again {
            // A claim meanwhile may have found nothing else, and then nothing announces these.
            self.look_at = Instant::now();
        }
    }

    /// Returns the time at which the worker has to act even if no event arrives.
    pub(super) fn wakes_at(&self) -> Instant {
        self.look_at.max(self.look_not_before).max(self.ask_not_before)
    }

    /// Gives back unsent deliveries and waits for the sends in flight.
    pub(super) async fn finish(mut self) {
        if let Some(asked) = self.asked.take()
            && let Ok(DbResponse::Claimed(requests, claims)) = tokio::time::timeout(self.worker.settings.stop_grace, asked).await
        {
            self.scheduler.claimed(&requests, claims.claimed);
        }
        for claimed in std::mem::replace(&mut self.scheduler, Scheduler::new(self.worker.limits())).into_waiting() {
            self.leave(SendDisposition::Unsent(claimed));
        }
        let give_up = self.give_up.clone();
        let cutting = tokio::time::sleep(self.worker.settings.deadline + self.worker.settings.stop_grace);
        tokio::pin!(cutting);
        loop {
            tokio::select! {
                ended = self.sends.join_next_with_id() => match ended {
                    Some(ended) => self.ended(ended),
                    None => return,
                },
                () = &mut cutting, if !give_up.is_cancelled() => {
                    let sends = self.sends.len();
                    tracing::warn!(sends, "stopped with sends in flight; their outcome is unknown, and they will be repeated");
                    give_up.cancel();
                }
            }
        }
    }
}
