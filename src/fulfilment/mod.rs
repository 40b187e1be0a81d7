//! Fulfilment: takes up placed orders and allocates voucher stock to them.
//!
//! It only submits commands. The writer decides under the head lock which vouchers each order gets, so any number of nodes
//! can run fulfilment concurrently. Between shards, [`moves`] brings vouchers to where orders wait.

pub mod expiry;
pub mod low_stock;
pub mod moves;
pub mod supply;

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use ledger_database::PgPool;
use ledger_events::order::{Order, OrderStatus};
use ledger_events::{Actor, OrderId, Position, ProductId, ShardId};
use ledger_projections::orders::{self, Queued};
use rust_decimal::Decimal;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::ledger::reader::{self, SeenHead};
use crate::ledger::stock::{self, Arrivals};
use crate::ledger::{CommandResult, Ledger, Origin, Reply, WriteError, commands};
use crate::telemetry::Metrics;
use crate::telemetry::traces::{self, TraceParent};

/// Maximum number of orders in one batch: as many as the writer takes into one transaction.
const BATCH_ORDERS: usize = 512;
/// Maximum number of vouchers in a batch of more than one order, because the writer holds the head while it allocates them.
const BATCH_UNITS: i32 = 2_500;
/// Number of batches per shard in the writer's queue: one is being committed while the next one waits.
const BATCHES_AHEAD: usize = 2;
/// Interval between checks when no wake-up arrives.
const IDLE: Duration = Duration::from_secs(1);
/// Interval at which stock is checked even if none was seen to arrive.
const RESTOCK_ANYWAY: Duration = Duration::from_secs(5);
/// Pause after the queue was full or the database was away.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Time that an order is skipped after its command was refused, and interval at which the whole queue is read.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

type Waiting = oneshot::Receiver<Result<Reply, WriteError>>;
type Batch = Vec<(OrderId, Waiting)>;

/// Result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of orders that were taken up.
    pub taken_up: usize,
    /// Number of waiting orders that got their missing vouchers.
    pub restocked: usize,
    /// Commands are still in the writer's queue.
    pub is_under_way: bool,
    /// The queue was full or the database was away. The caller should retry soon.
    pub is_hindered: bool,
}

/// Fulfils the orders of every shard.
#[derive(Debug)]
pub struct Fulfilment {
    ledger: Ledger,
    pool: PgPool,
    metrics: Metrics,
    shards: HashMap<ShardId, Progress>,
    idle: Duration,
}

/// Progress of this node in a shard. It only saves work; correctness does not depend on it.
#[derive(Debug, Default)]
struct Progress {
    /// Batches in the writer's queue, oldest first.
    ahead: VecDeque<Batch>,
    /// Orders whose command was refused, with the time until which they are skipped.
    refused: HashMap<OrderId, Instant>,
    /// Time when the queue was last read from its beginning.
    read_whole: Option<Instant>,
    /// Position up to which every placed order was taken up, is in `ahead`, or was refused. The queue is read from here,
    /// because the index before it is full of dead entries.
    taken_up_to: Position,
    /// Head of the log when the queue was last read. `taken_up_to` is valid only for a log that continues from it.
    seen: Option<SeenHead>,
    /// Arrivals in the stock up to its last allocation, and the time of that.
    restocked: Option<(Arrivals, Instant)>,
    /// Vouchers of this shard that are left to older orders of others, each with the time since which they are.
    yields_since: HashMap<(ProductId, Decimal), Instant>,
}

impl Progress {
    /// Returns the orders that must not be taken up now.
    fn busy(&mut self) -> HashSet<OrderId> {
        let now = Instant::now();
        self.refused.retain(|_, until| *until > now);
        let ahead = self.ahead.iter().flatten().map(|(id, _)| *id);
        ahead.chain(self.refused.keys().copied()).collect()
    }

    /// Returns the position from which the queue is read.
    fn reads_from(&mut self) -> Position {
        if self.read_whole.is_none_or(|at| at.elapsed() >= REFUSED_PAUSE) {
            self.read_whole = Some(Instant::now());
            self.taken_up_to = 0;
        }
        self.taken_up_to
    }

    /// Resets the progress after the log was replaced by another one.
    fn start_over(&mut self) {
        (self.taken_up_to, self.seen, self.restocked) = (0, None, None);
        self.refused.clear(); // the other log reuses ids
        self.yields_since.clear();
    }
}

impl Fulfilment {
    pub fn new(ledger: Ledger, metrics: Metrics) -> Fulfilment {
        let pool = ledger.pool().clone();
        Fulfilment { ledger, pool, metrics, shards: HashMap::new(), idle: IDLE }
    }

    /// Sets the interval between checks when no wake-up arrives.
    pub fn idling(self, idle: Duration) -> Fulfilment {
        Fulfilment { idle, ..self }
    }

    /// Sets the pool for reading the queue, so that it does not use the clients' connections.
    pub fn reading(self, pool: PgPool) -> Fulfilment {
        Fulfilment { pool, ..self }
    }

    /// Runs until stopped. Each shard has a loop of its own, so that it does not wait for another one.
    pub async fn run(self, stop: CancellationToken) {
        let shards = self.ledger.shard_watch().clone();
        shards.each(&stop, |shard| self.separate().follow(shard, stop.clone())).await;
    }

    /// Returns a fulfilment with the same settings and no progress.
    fn separate(&self) -> Fulfilment {
        let Fulfilment { ledger, pool, metrics, idle, .. } = self;
        Fulfilment::new(ledger.clone(), metrics.clone()).reading(pool.clone()).idling(*idle)
    }

    /// Fulfils the orders of a shard until stopped.
    async fn follow(mut self, shard: ShardId, stop: CancellationToken) {
        let mut grown = self.ledger.wake().subscribe_to(shard);
        let heartbeat = self.ledger.heartbeats().background("fulfilment");
        while !stop.is_cancelled() {
            heartbeat.beat();
            let outcome = self.advance(shard).await.unwrap_or_else(|error| {
                tracing::warn!(shard, %error, "failed to take up orders; retrying");
                Outcome { is_hindered: true, ..Outcome::default() }
            });
            let Outcome { taken_up, restocked, is_under_way, is_hindered } = outcome;
            let is_more = taken_up + restocked > 0 || is_under_way;
            let pause = if is_hindered { RETRY_PAUSE } else { self.idle };
            tokio::select! {
                () = stop.cancelled() => {}
                () = std::future::ready(()), if is_more && !is_hindered => {}
                () = grown.changed(), if !is_hindered => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        // The writer finishes submitted commands even if nobody waits for them.
    }

    /// Allocates new stock to waiting orders and takes up new orders. Returns when everything is committed.
    pub async fn step(&mut self, shard: ShardId) -> Result<Outcome, sqlx::Error> {
        let mut outcome = self.advance(shard).await?;
        outcome.is_hindered |= self.finish_all(shard).await;
        Ok(outcome)
    }

    fn progress(&mut self, shard: ShardId) -> &mut Progress {
        self.shards.entry(shard).or_default()
    }

    /// Puts one more batch into the writer's queue. Waits for the oldest batch if there are enough of them, or if there is
    /// nothing else to do.
    async fn advance(&mut self, shard: ShardId) -> Result<Outcome, sqlx::Error> {
        let mut outcome = self.restock(shard).await?;
        let (taken_up, is_hindered) = self.take_up(shard).await?;
        outcome.taken_up = taken_up;
        outcome.is_hindered |= is_hindered;
        let ahead = &mut self.progress(shard).ahead;
        if (ahead.len() >= BATCHES_AHEAD || taken_up == 0)
            && let Some(oldest) = ahead.pop_front()
        {
            outcome.is_hindered |= self.finish(shard, oldest).await.is_hindered;
        }
        outcome.is_under_way = !self.progress(shard).ahead.is_empty();
        Ok(outcome)
    }

    /// Enqueues the oldest orders that are not taken up yet, in the order in which they were placed.
    async fn take_up(&mut self, shard: ShardId) -> Result<(usize, bool), sqlx::Error> {
        let progress = self.progress(shard);
        let busy = progress.busy();
        let from = progress.reads_from();
        let seen = progress.seen;
        let limit = i64::try_from(busy.len() + BATCH_ORDERS).unwrap_or(i64::MAX);
        let Some((seen, orders)) = reader::unqueued(&self.pool, shard, seen, from, limit).await? else {
            tracing::warn!(shard, ?seen, "the log does not continue from its last known head; reading the whole queue");
            self.progress(shard).start_over();
            return Ok((0, true));
        };
        self.progress(shard).seen = Some(seen);
        let orders = one_batch(orders, &busy);
        let (batch, is_hindered) = self.enqueue(shard, &orders).await;
        let taken_up = batch.len();
        if let Some(last) = taken_up.checked_sub(1).and_then(|last| orders.get(last)) {
            self.progress(shard).taken_up_to = last.placed_position;
        }
        if taken_up > 0 {
            self.progress(shard).ahead.push_back(batch);
        }
        Ok((taken_up, is_hindered))
    }

    /// Enqueues a command for each order. Its events continue the trace in which the order was placed.
    async fn enqueue(&self, shard: ShardId, orders: &[Queued]) -> (Batch, bool) {
        let mut batch = Batch::new();
        let traces = self.traces_of(shard, orders).await;
        for &Queued { id: order_id, placed_position, .. } in orders {
            let origin = Origin { actor: Actor::Fulfilment, request_id: "fulfilment".to_owned() };
            let enqueue = || self.ledger.enqueue(shard, commands::FulfilOrder { order_id }, origin, None);
            match traces::during(traces.get(&placed_position).copied(), enqueue) {
                Ok(waiting) => batch.push((order_id, waiting)),
                Err(_) => return (batch, true),
            }
        }
        (batch, false)
    }

    /// Looks up the traces in which orders were placed, on a node that exports traces.
    async fn traces_of(&self, shard: ShardId, orders: &[Queued]) -> HashMap<Position, TraceParent> {
        if !self.metrics.traces().is_on() || orders.is_empty() {
            return HashMap::new();
        }
        let placed: Vec<Position> = orders.iter().map(|order| order.placed_position).collect();
        let found = reader::traces_at(&self.pool, shard, &placed).await;
        found.unwrap_or_else(|error| {
            tracing::debug!(shard, %error, "failed to look up the traces of orders; their fulfilment begins others");
            HashMap::new()
        })
    }

    /// Waits until all commands of a batch are answered.
    async fn finish(&mut self, shard: ShardId, batch: Batch) -> Finished {
        let mut finished = Finished::default();
        let mut done = 0;
        for (order_id, waiting) in batch {
            match waiting.await.unwrap_or(Err(WriteError::OutcomeUnknown)) {
                Ok(reply) => {
                    done += 1;
                    let Some(order) = order_of(&reply) else { continue };
                    finished.delivered += usize::from(order.status == OrderStatus::Delivered);
                }
                Err(WriteError::Unavailable | WriteError::InProgress | WriteError::OutcomeUnknown) => {
                    finished.is_hindered = true;
                    self.progress(shard).taken_up_to = 0;
                }
                Err(error @ (WriteError::Rejected(_) | WriteError::Refused)) => {
                    tracing::error!(shard, order_id = order_id.0, %error, "failed to take up an order; skipping it for now");
                    self.progress(shard).refused.insert(order_id, Instant::now() + REFUSED_PAUSE);
                }
            }
        }
        self.metrics.taken_up(done);
        finished
    }

    async fn finish_all(&mut self, shard: ShardId) -> bool {
        let mut is_hindered = false;
        while let Some(batch) = self.progress(shard).ahead.pop_front() {
            is_hindered |= self.finish(shard, batch).await.is_hindered;
        }
        is_hindered
    }

    /// Allocates new stock to the orders that wait for it, oldest first. Without new stock this reads a few index entries.
    async fn restock(&mut self, shard: ShardId) -> Result<Outcome, sqlx::Error> {
        let mut outcome = Outcome::default();
        let seen = self.progress(shard).restocked;
        let after = seen.map_or(Position::MAX, |(seen, _)| seen.position);
        let found = stock::arrivals(&self.pool, shard, after).await?;
        if let Some((seen, at)) = seen
            && (seen.newest, found.are_moved) == (found.newest, false)
            && at.elapsed() < RESTOCK_ANYWAY
        {
            self.progress(shard).restocked = Some((found, at));
            return Ok(outcome);
        }
        let wanted = orders::waiting_for(&self.pool, shard).await?;
        let limit = i64::try_from(BATCH_ORDERS).unwrap_or(i64::MAX);
        let mut available = stock::available_pairs(&self.pool, &[shard], &wanted, limit).await?;
        let claimed = self.claimed(shard, !available.is_empty()).await?;
        available.retain(|(_, product, denomination, _)| !claimed.contains(&(*product, *denomination)));
        if !available.is_empty() {
            // Younger orders in the writer's queue must not end up in one batch with these.
            outcome.is_hindered |= self.finish_all(shard).await;
        }
        for (_, product, denomination, vouchers) in available {
            // Every order takes at least one voucher, so the number of vouchers limits the orders.
            let waiting = orders::oldest_waiting(&self.pool, shard, product, denomination, vouchers).await?;
            let busy = self.progress(shard).busy();
            let (batch, is_hindered) = self.enqueue(shard, &one_batch(waiting, &busy)).await;
            let finished = self.finish(shard, batch).await;
            outcome.restocked += finished.delivered;
            outcome.is_hindered |= is_hindered || finished.is_hindered;
        }
        // While orders are being completed, there may be more of them and more stock.
        if !outcome.is_hindered && outcome.restocked == 0 && claimed.is_empty() {
            self.progress(shard).restocked = Some((found, Instant::now()));
        }
        Ok(outcome)
    }

    /// Returns the vouchers of a shard for which older orders wait in others. They are left to the mover, whose commit wakes this
    /// loop. If it has not come after some seconds, the orders of this shard get them.
    async fn claimed(&mut self, shard: ShardId, has_stock: bool) -> Result<HashSet<(ProductId, Decimal)>, sqlx::Error> {
        let moves = match has_stock && self.ledger.shards().len() > 1 {
            true => moves::planned(&mut *self.pool.acquire().await?).await?,
            false => vec![],
        };
        let claims = moves.iter().filter(|wanted| wanted.from == shard);
        let claimed = claims.map(|wanted| (wanted.product_id, wanted.denomination.decimal())).collect();
        Ok(still_left(claimed, &mut self.progress(shard).yields_since, Instant::now()))
    }
}

/// Returns those of the claimed vouchers that are not waited for in vain. `since` has the time since which each of them is
/// claimed.
fn still_left(
    mut claimed: HashSet<(ProductId, Decimal)>,
    since: &mut HashMap<(ProductId, Decimal), Instant>,
    now: Instant,
) -> HashSet<(ProductId, Decimal)> {
    since.retain(|pair, _| claimed.contains(pair));
    claimed.retain(|pair| now.saturating_duration_since(*since.entry(*pair).or_insert(now)) < RESTOCK_ANYWAY);
    claimed
}

/// Returns the oldest of these orders that fit into one batch, without the busy ones.
fn one_batch(orders: Vec<Queued>, busy: &HashSet<OrderId>) -> Vec<Queued> {
    let mut units = 0_i32;
    let fits = |order: &Queued| {
        let is_first = units == 0;
        units = units.saturating_add(order.missing);
        is_first || units <= BATCH_UNITS
    };
    orders.into_iter().filter(|order| !busy.contains(&order.id)).take_while(fits).take(BATCH_ORDERS).collect()
}

/// Starts the loops that watch the stock: warnings about low stock, and expired vouchers.
pub fn watch_stock(ledger: &Ledger, metrics: &Metrics, tasks: &TaskTracker, stop: &CancellationToken) {
    let (pool, heartbeat) = (ledger.maintenance().clone(), ledger.heartbeats().background("low stock"));
    tasks.spawn(low_stock::run(pool, ledger.shard_watch().clone(), metrics.clone(), heartbeat, stop.clone()));
    let heartbeat = ledger.heartbeats().background("expiry of vouchers");
    tasks.spawn(expiry::run(ledger.clone(), heartbeat, stop.clone()));
}

#[derive(Debug, Default)]
struct Finished {
    /// Number of orders that have all of their vouchers.
    delivered: usize,
    is_hindered: bool,
}

fn order_of(reply: &Reply) -> Option<&Order> {
    match reply {
        Reply::Result(answer) => match &**answer {
            CommandResult::Order(view) => Some(&view.order),
            _ => None,
        },
        Reply::Stored { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_claim_is_waited_for_from_its_own_beginning_on() {
        let (one, other) = ((ProductId(1), Decimal::ONE), (ProductId(2), Decimal::ONE));
        let (mut since, start) = (HashMap::new(), Instant::now());
        let mut left = |claimed: &[(ProductId, Decimal)], seconds| {
            still_left(claimed.iter().copied().collect(), &mut since, start + Duration::from_secs(seconds))
        };
        assert_eq!(left(&[one], 0), HashSet::from([one]));
        assert_eq!(left(&[one, other], 4), HashSet::from([one, other]));
        assert_eq!(left(&[one, other], 6), HashSet::from([other]), "the mover has not come for the first one");
        assert_eq!(left(&[other], 7), HashSet::from([other]));
        assert_eq!(left(&[one, other], 8), HashSet::from([one, other]), "a new claim");
        assert_eq!(left(&[one, other], 10), HashSet::from([one]));
    }
}
