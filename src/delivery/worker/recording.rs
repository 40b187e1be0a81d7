//! The worker's recorders: they write results and give back unsent deliveries, in batches.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ledger_events::ShardId;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{BATCH_RESULTS, RETRY_PAUSE, Released, SendDisposition, Worker};
use crate::delivery::claim::Claimed;
use crate::delivery::record::{self, Ended, Lease};
use crate::delivery::retention::Bodies;
use crate::heartbeat::Heartbeat;
use crate::ledger::connect;

/// Interval between repairs of deliveries that a clock set back or a dead node has left behind.
const REPAIR_EVERY: Duration = Duration::from_secs(60);

/// Recorders of a running worker, one for each shard: results that cannot be recorded in one shard do not delay those of others.
pub(super) struct Recorders {
    /// Channel to each recorder. Together they hold no more than the scheduler does.
    channels: BTreeMap<ShardId, mpsc::UnboundedSender<SendDisposition>>,
    tasks: JoinSet<()>,
    gone: mpsc::UnboundedSender<Released>,
}

impl Recorders {
    /// Creates the recorders, which report each finished batch over `gone`.
    pub fn new(gone: mpsc::UnboundedSender<Released>) -> Recorders {
        Recorders { channels: BTreeMap::new(), tasks: JoinSet::new(), gone }
    }

    /// Starts the recorder of a shard.
    pub fn start(&mut self, shard: ShardId, worker: Worker) {
        let (left, leaving) = mpsc::unbounded_channel();
        self.tasks.spawn(worker.record_all(shard, leaving, self.gone.clone()));
        self.channels.insert(shard, left);
    }

    /// Hands a delivery to the recorder of its shard.
    pub fn leave(&self, left: SendDisposition) {
        if let Some(channel) = self.channels.get(&left.shard()) {
            _ = channel.send(left); // fails only if the recorder has ended, and then the worker ends too
        }
    }

    /// Waits until a recorder ends, which none does before [`Recorders::finish`].
    pub async fn one_ended(&mut self) {
        if self.tasks.join_next().await.is_none() {
            std::future::pending().await
        }
    }

    /// Waits until everything is recorded, no longer than `grace`.
    pub async fn finish(mut self, grace: Duration) {
        self.channels.clear();
        let recorded = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, recorded).await.is_err() {
            tracing::warn!("stopped before all results were recorded; their deliveries will be repeated");
        }
    }
}

impl Worker {
    pub(super) async fn fail_lost_attempts_of(&self, shard: ShardId) -> Result<u64, sqlx::Error> {
        record::fail_lost_attempts(&self.database.pool, &self.settings.clock, shard, self.settings.retry_base).await
    }

    async fn fail_lost_attempts(&self, shard: ShardId) {
        match self.fail_lost_attempts_of(shard).await {
            Ok(0) => {}
            Ok(deliveries) => tracing::warn!(shard, deliveries, "counted attempts of unknown outcome as failed"),
            Err(error) => tracing::warn!(shard, %error, "failed to look for attempts of unknown outcome"),
        }
    }

    pub(super) async fn repair_shard(&self, shard: ShardId) -> Result<u64, sqlx::Error> {
        let (pool, settings) = (&self.database.pool, &self.settings);
        record::end_dead_leases(pool, &settings.clock, shard).await?;
        record::repair_clock_skew(pool, &settings.clock, shard, settings.retry_base, self.lease()).await
    }

    /// Repairs due times and leases after a clock was set back, and ends leases of dead nodes. Returns whether more
    /// deliveries may need it.
    async fn repair_clock_skew(&self, shard: ShardId) -> bool {
        match self.repair_shard(shard).await {
            Ok(0) => false,
            Ok(deliveries) => {
                tracing::warn!(shard, deliveries, "the database's clock was set back; rescheduled late deliveries");
                deliveries >= record::MAX_REPAIRED.unsigned_abs()
            }
            Err(error) => {
                tracing::warn!(shard, %error, "failed to look for deliveries that are due too late");
                false
            }
        }
    }

    /// Records the results of a shard as they arrive, in batches, until every sender of the channel is gone. Reports each
    /// finished batch over `gone`. While the database is away, it retries.
    async fn record_all(
        self,
        shard: ShardId,
        mut leaving: mpsc::UnboundedReceiver<SendDisposition>,
        gone: mpsc::UnboundedSender<Released>,
    ) {
        let mut batch = Vec::with_capacity(BATCH_RESULTS);
        let mut swept: Option<Instant> = None;
        let mut repaired: Option<Instant> = None;
        let heartbeats = self.metrics.heartbeats();
        let (pool, quota, trims) = (self.database.pool.clone(), self.settings.response_bodies, heartbeats.background("trims"));
        let mut bodies = Bodies::new(pool, shard, quota, trims);
        let heartbeat = heartbeats.background("delivery results");
        loop {
            heartbeat.beat();
            if swept.is_none_or(|at| at.elapsed() >= self.settings.idle) {
                self.fail_lost_attempts(shard).await;
                swept = Some(Instant::now());
            }
            if repaired.is_none_or(|at| at.elapsed() >= REPAIR_EVERY) {
                repaired = if self.repair_clock_skew(shard).await { None } else { Some(Instant::now()) };
            }
            match tokio::time::timeout(self.settings.idle, leaving.recv_many(&mut batch, BATCH_RESULTS)).await {
                Ok(0) => return,
                Ok(_) => {}
                Err(_) => {
                    bodies.catch_up();
                    continue;
                }
            }
            let mut webhooks = Vec::with_capacity(batch.len());
            let mut ended = vec![];
            let mut unsent = vec![];
            let mut cut = vec![];
            for left in batch.drain(..) {
                match left {
                    SendDisposition::Sent(result) => (webhooks.push(result.claimed.webhook_id), ended.push(result)),
                    SendDisposition::Unsent(claimed) => (webhooks.push(claimed.webhook_id), unsent.push(claimed)),
                    SendDisposition::Cut(lease) => (webhooks.push(lease.webhook_id), cut.push(lease)),
                };
            }
            let is_due_again = !unsent.is_empty();
            let stored: Vec<_> = ended.iter().flat_map(Ended::stored_bodies).collect();
            self.record_until_done(shard, ended, &heartbeat).await;
            for (webhook_id, bytes) in stored {
                bodies.stored(webhook_id, bytes);
            }
            self.let_go(shard, &unsent, &cut, &heartbeat).await;
            _ = gone.send(Released { shard, webhooks, is_due_again }); // a stopping worker has closed the channel
        }
    }

    /// Gives back unsent deliveries, and ends the leases of cancelled sends.
    async fn let_go(&self, shard: ShardId, unsent: &[Claimed], cut: &[Lease], heartbeat: &Heartbeat) {
        let pool = &self.database.pool;
        if !unsent.is_empty()
            && let Err(error) = until_done(heartbeat, || record::give_back(pool, shard, unsent)).await
        {
            tracing::warn!(shard, %error, "failed to give back unsent deliveries; their leases will expire");
        }
        if !cut.is_empty()
            && let Err(error) = until_done(heartbeat, || record::end_leases(pool, &self.settings.clock, shard, cut)).await
        {
            tracing::warn!(shard, %error, "failed to end the leases of cancelled sends; they will expire");
        }
    }

    /// Records results, and retries for as long as the database is away. If the database refuses a batch because of its
    /// contents, the recorder bisects it. Only the faulty delivery then waits for its lease to expire.
    async fn record_until_done(&self, shard: ShardId, results: Vec<Ended>, heartbeat: &Heartbeat) {
        let mut parts = vec![results];
        while let Some(mut part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            heartbeat.beat();
            match self.record(shard, &part).await {
                Ok(counted) => {
                    let lost = part.len().saturating_sub(usize::try_from(counted).unwrap_or_default());
                    if lost > 0 {
                        tracing::warn!(shard, lost, "ignored results whose leases another worker had taken over");
                    }
                }
                Err(error) if connect::is_transient(&error) => {
                    tracing::warn!(shard, results = part.len(), %error, "failed to record results; retrying");
                    parts.push(part);
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) if part.len() == 1 => {
                    tracing::error!(shard, delivery_id = part[0].claimed.delivery_id, %error, "the database refused a result");
                }
                Err(error) => {
                    tracing::warn!(shard, results = part.len(), %error, "the database refused a batch of results; bisecting");
                    let later = part.split_off(part.len() / 2);
                    parts.extend([later, part]);
                }
            }
        }
    }
}

/// Repeats `work` until the error is not transient.
async fn until_done<W: Future<Output = Result<(), sqlx::Error>>>(
    heartbeat: &Heartbeat,
    work: impl Fn() -> W,
) -> Result<(), sqlx::Error> {
    loop {
        heartbeat.beat();
        match work().await {
            Err(error) if connect::is_transient(&error) => tokio::time::sleep(RETRY_PAUSE).await,
            done => return done,
        }
    }
}
