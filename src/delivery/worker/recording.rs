//! The worker's recorder: writes results and gives back unsent deliveries, in batches.

use std::time::{Duration, Instant};

use ledger_events::ShardId;
use tokio::sync::mpsc;

use super::{BATCH_RESULTS, RETRY_PAUSE, Released, SendDisposition, Worker};
use crate::delivery::claim::Claimed;
use crate::delivery::record::{self, Ended, Lease};
use crate::delivery::retention::Bodies;
use crate::heartbeat::Heartbeat;
use crate::ledger::connect;

/// Interval between repairs of deliveries that a clock set back or a dead node has left behind.
const REPAIR_EVERY: Duration = Duration::from_secs(60);

impl Worker {
    pub(super) async fn fail_lost_attempts_of(&self, shard: ShardId) -> Result<u64, sqlx::Error> {
        record::fail_lost_attempts(&self.database.pool, &self.settings.clock, shard, self.settings.retry_base).await
    }

    async fn fail_lost_attempts(&self) {
        for &shard in &self.shards {
            match self.fail_lost_attempts_of(shard).await {
                Ok(0) => {}
                Ok(deliveries) => tracing::warn!(shard, deliveries, "counted attempts of unknown outcome as failed"),
                Err(error) => tracing::warn!(shard, %error, "failed to look for attempts of unknown outcome"),
            }
        }
    }

    pub(super) async fn repair_shard(&self, shard: ShardId) -> Result<u64, sqlx::Error> {
        let (pool, settings) = (&self.database.pool, &self.settings);
        record::end_dead_leases(pool, &settings.clock, shard).await?;
        record::repair_clock_skew(pool, &settings.clock, shard, settings.retry_base, self.lease()).await
    }

    /// Repairs due times and leases after a clock was set back, and ends leases of dead nodes. Returns whether more
    /// deliveries may need it.
    async fn repair_clock_skew(&self) -> bool {
        let mut is_more = false;
        for &shard in &self.shards {
            match self.repair_shard(shard).await {
                Ok(0) => {}
                Ok(deliveries) => {
                    tracing::warn!(shard, deliveries, "the database's clock was set back; rescheduled late deliveries");
                    is_more |= deliveries >= record::MAX_REPAIRED.unsigned_abs();
                }
                Err(error) => tracing::warn!(shard, %error, "failed to look for deliveries that are due too late"),
            }
        }
        is_more
    }

    /// Records results as they arrive, in batches, until every sender of the channel is gone. Reports each finished batch over
    /// `gone`. While the database is away, it retries.
    pub(super) async fn record_all(
        self,
        mut leaving: mpsc::UnboundedReceiver<SendDisposition>,
        gone: mpsc::UnboundedSender<Released>,
    ) {
        let mut batch = Vec::with_capacity(BATCH_RESULTS);
        let mut swept: Option<Instant> = None;
        let mut repair_clock_skew: Option<Instant> = None;
        let heartbeats = self.metrics.heartbeats();
        let trims = heartbeats.background("trims");
        let mut bodies = Bodies::new(self.database.pool.clone(), self.settings.response_bodies, trims);
        let heartbeat = heartbeats.background("delivery results");
        loop {
            heartbeat.beat();
            if swept.is_none_or(|at| at.elapsed() >= self.settings.idle) {
                self.fail_lost_attempts().await;
                swept = Some(Instant::now());
            }
            if repair_clock_skew.is_none_or(|at| at.elapsed() >= REPAIR_EVERY) {
                repair_clock_skew = if self.repair_clock_skew().await { None } else { Some(Instant::now()) };
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
            for &shard in &self.shards {
                let (here, elsewhere) = ended.into_iter().partition(|e: &Ended| e.claimed.shard == shard);
                ended = elsewhere;
                let stored: Vec<_> = here.iter().flat_map(Ended::stored_bodies).collect();
                self.record_until_done(shard, here, &heartbeat).await;
                for (webhook_id, bytes) in stored {
                    bodies.stored(shard, webhook_id, bytes);
                }
                let (here, elsewhere): (Vec<_>, _) = unsent.into_iter().partition(|c: &Claimed| c.shard == shard);
                unsent = elsewhere;
                if !here.is_empty()
                    && let Err(error) = until_done(&heartbeat, || record::give_back(&self.database.pool, shard, &here)).await
                {
                    tracing::warn!(shard, %error, "failed to give back unsent deliveries; their leases will expire");
                }
                let (here, elsewhere): (Vec<_>, _) = cut.into_iter().partition(|lease: &Lease| lease.shard == shard);
                cut = elsewhere;
                if !here.is_empty()
                    && let Err(error) =
                        until_done(&heartbeat, || record::end_leases(&self.database.pool, &self.settings.clock, shard, &here))
                            .await
                {
                    tracing::warn!(shard, %error, "failed to end the leases of cancelled sends; they will expire");
                }
            }
            _ = gone.send(Released { webhooks, is_due_again }); // a stopping worker has closed the channel
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
