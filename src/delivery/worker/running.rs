//! State of a running worker, and the handlers of its events.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use ledger_events::ShardId;
use tokio::sync::mpsc;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::recording::Recorders;
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
    pub(super) recorders: Recorders,
    give_up: CancellationToken,
    lanes: BTreeMap<ShardId, Lane>,
    /// Queries in progress, one of each shard at most: for due deliveries or a claim.
    pub(super) asked: FuturesUnordered<BoxFuture<'static, (ShardId, DbResponse)>>,
    /// Shard that last came first. The capacity may not suffice for all, so they take turns.
    came_first: ShardId,
    /// Whether the last claim was refused because this node lacks the current master key.
    lacks_key: bool,
}

/// State of the queries of one shard.
struct Lane {
    /// Worker with the connections of the shard.
    worker: Worker,
    /// Start of the query in progress.
    asked_at: Option<Instant>,
    /// Webhooks that got deliveries while a query was in progress. The query's result may not include them.
    made_meanwhile: HashSet<Addressee>,
    /// Time of the next query for due deliveries.
    look_at: Instant,
    /// Earliest time of that query, so that the worker does not spend most of its time on it.
    look_not_before: Instant,
    /// Earliest time of any query after the database returned an error.
    ask_not_before: Instant,
}

impl Lane {
    fn new(worker: Worker) -> Lane {
        let now = Instant::now();
        let (look_at, look_not_before, ask_not_before) = (now, now, now);
        Lane { worker, asked_at: None, made_meanwhile: HashSet::new(), look_at, look_not_before, ask_not_before }
    }

    fn wakes_at(&self) -> Instant {
        self.look_at.max(self.look_not_before).max(self.ask_not_before)
    }

    /// Lets the next query for due deliveries begin no later than this, if there is such a time.
    fn look_by(&mut self, latest: Option<Instant>) {
        self.look_at = latest.map_or(self.look_at, |latest| self.look_at.min(latest));
    }
}

impl<'w> Running<'w> {
    pub(super) fn new(worker: &'w Worker, gone: mpsc::UnboundedSender<Released>) -> Running<'w> {
        Running {
            worker,
            scheduler: Scheduler::new(worker.limits()),
            sends: JoinSet::new(),
            in_flight: HashMap::new(),
            recorders: Recorders::new(gone),
            give_up: CancellationToken::new(),
            lanes: BTreeMap::new(),
            asked: FuturesUnordered::new(),
            came_first: 0,
            lacks_key: false,
        }
    }

    /// Begins to work on shards that were added.
    pub(super) fn begin_new(&mut self) {
        for shard in self.worker.shards.current() {
            if !self.lanes.contains_key(&shard) {
                let worker = self.worker.separate(shard);
                self.recorders.start(shard, worker.clone());
                self.lanes.insert(shard, Lane::new(worker));
            }
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
                    self.recorders.leave(SendDisposition::Unsent(claimed));
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

    /// Starts a query in each shard without one in progress: for due deliveries or a claim.
    pub(super) fn ask(&mut self) {
        let now = Instant::now();
        let (before, after): (Vec<ShardId>, Vec<ShardId>) =
            self.lanes.keys().copied().partition(|shard| *shard <= self.came_first);
        let mut first = None;
        for shard in after.into_iter().chain(before) {
            if self.ask_in(shard, now) {
                first.get_or_insert(shard);
            }
        }
        self.came_first = first.unwrap_or(self.came_first);
    }

    /// Starts a query in a shard, unless one is in progress. Returns whether it is a claim.
    fn ask_in(&mut self, shard: ShardId, now: Instant) -> bool {
        let is_only_shard = self.lanes.len() == 1;
        let Some(lane) = self.lanes.get_mut(&shard) else { return false };
        if lane.asked_at.is_some() || now < lane.ask_not_before {
            return false;
        }
        if now >= lane.look_at.max(lane.look_not_before) {
            (lane.asked_at, lane.look_at) = (Some(now), now + self.worker.settings.idle);
            for claimed in self.scheduler.stale(self.worker.settings.fresh, now) {
                self.recorders.leave(SendDisposition::Unsent(claimed));
            }
            self.asked.push(lane.worker.clone().look(shard, self.scheduler.waiting_for(shard)).boxed());
            return false;
        }
        let requests = self.scheduler.wanted(shard, is_only_shard, now);
        if requests.is_empty() {
            return false;
        }
        lane.asked_at = Some(now);
        self.scheduler.claim_begun(&requests);
        self.asked.push(lane.worker.clone().claim(shard, requests).boxed());
        true
    }

    /// Queries the due deliveries of every shard as soon as possible.
    pub(super) fn look_now(&mut self) {
        let now = Instant::now();
        self.lanes.values_mut().for_each(|lane| lane.look_at = now);
    }

    /// Notes webhooks for which this node's projector has created deliveries.
    pub(super) fn made(&mut self, addressees: &[Addressee]) {
        let now = Instant::now();
        for addressee in addressees {
            // The first query of a shard that is not known yet finds them.
            let Some(lane) = self.lanes.get_mut(&addressee.shard) else { continue };
            self.scheduler.made(addressee, now);
            if lane.asked_at.is_some() {
                lane.made_meanwhile.insert(*addressee);
            }
        }
    }

    pub(super) fn answered(&mut self, shard: ShardId, answer: DbResponse) {
        let now = Instant::now();
        let Some(lane) = self.lanes.get_mut(&shard) else { return };
        let took = lane.asked_at.take().map_or(Duration::ZERO, |asked_at| now - asked_at);
        match answer {
            DbResponse::Due(found) => {
                lane.look_not_before = now + took * LOOK_SELDOM;
                match found {
                    Ok(DueWork { due, later, targets }) => {
                        for claimed in self.scheduler.outdated(shard, &due, &targets) {
                            self.recorders.leave(SendDisposition::Unsent(claimed));
                        }
                        self.scheduler.found(shard, due, now);
                        lane.look_by(later.and_then(|later| now.checked_add(later)));
                    }
                    Err(error) => {
                        let pause = pause_after(&mut self.lacks_key, shard, &error, "failed to query due deliveries");
                        lane.look_not_before = lane.look_not_before.max(now + pause);
                        lane.look_at = now;
                    }
                }
            }
            DbResponse::Claimed(requests, claims) => {
                self.scheduler.claim_ended(&requests);
                match claims {
                    Ok(Claims { claimed, is_short }) => {
                        self.lacks_key = false;
                        self.scheduler.claimed(&requests, claimed);
                        lane.look_by(is_short.then_some(now + LOOK_AGAIN));
                    }
                    Err(error) => {
                        let pause = pause_after(&mut self.lacks_key, shard, &error, "failed to claim deliveries");
                        (lane.ask_not_before, lane.look_at) = (now + pause, now);
                    }
                }
            }
        }
        for addressee in std::mem::take(&mut lane.made_meanwhile) {
            self.scheduler.made(&addressee, now);
        }
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
                let due = ended.next_attempt_in(self.worker.settings.retry_base).and_then(|due| now.checked_add(due));
                if let Some(lane) = self.lanes.get_mut(&lease.shard) {
                    lane.look_by(due);
                }
                Some((ended.took, ended.outcome.response_status.is_some()))
            }
            _ => None,
        };
        self.scheduler.ended(lease.webhook_id, took, now);
        self.recorders.leave(left.unwrap_or_else(|| {
            tracing::error!(delivery_id = lease.delivery_id, "a send panicked; its outcome is unknown, and it will be repeated");
            SendDisposition::Cut(lease)
        }));
    }

    pub(super) fn gone(&mut self, released: &Released) {
        for webhook_id in &released.webhooks {
            self.scheduler.left(*webhook_id);
        }
        if released.is_due_again
            && let Some(lane) = self.lanes.get_mut(&released.shard)
        {
            // A claim meanwhile may have found nothing else, and then nothing announces these.
            lane.look_at = Instant::now();
        }
    }

    /// Returns the time at which the worker has to act even if no event arrives.
    pub(super) fn wakes_at(&self) -> Instant {
        let idle = self.lanes.values().filter(|lane| lane.asked_at.is_none());
        idle.map(Lane::wakes_at).min().unwrap_or_else(|| Instant::now() + self.worker.settings.idle)
    }

    /// Gives back unsent deliveries and waits for the sends in flight. Returns the recorders, which have all of them.
    pub(super) async fn finish(mut self) -> Recorders {
        let until = tokio::time::Instant::now() + self.worker.settings.stop_grace;
        while let Ok(Some((_, answer))) = tokio::time::timeout_at(until, self.asked.next()).await {
            if let DbResponse::Claimed(requests, Ok(claims)) = answer {
                self.scheduler.claimed(&requests, claims.claimed);
            }
        }
        for claimed in std::mem::replace(&mut self.scheduler, Scheduler::new(self.worker.limits())).into_waiting() {
            self.recorders.leave(SendDisposition::Unsent(claimed));
        }
        let give_up = self.give_up.clone();
        let cutting = tokio::time::sleep(self.worker.settings.deadline + self.worker.settings.stop_grace);
        tokio::pin!(cutting);
        loop {
            tokio::select! {
                ended = self.sends.join_next_with_id() => match ended {
                    Some(ended) => self.ended(ended),
                    None => break,
                },
                () = &mut cutting, if !give_up.is_cancelled() => {
                    let sends = self.sends.len();
                    tracing::warn!(sends, "stopped with sends in flight; their outcome is unknown, and they will be repeated");
                    give_up.cancel();
                }
            }
        }
        self.recorders
    }
}

/// Logs an error and returns the pause before the next attempt. A missing master key needs a person, so it is logged only once.
fn pause_after(has_lacked_key: &mut bool, shard: ShardId, error: &sqlx::Error, what: &str) -> Duration {
    if !lacks_key(error) {
        tracing::warn!(shard, %error, "{what}; retrying");
        return RETRY_PAUSE;
    }
    if !std::mem::replace(has_lacked_key, true) {
        tracing::warn!(shard, %error, pause = ?KEY_PAUSE, "{what} without the current master key; retrying");
    }
    KEY_PAUSE
}
