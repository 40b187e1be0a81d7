//! Taking orders up and allocating voucher stock to them.
//!
//! Only submits commands: what each order gets is decided by the writer under the head lock, so
//! any number of nodes can do this beside each other.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use ledger_database::PgPool;
use ledger_events::order::{Order, OrderStatus};
use ledger_events::{Actor, OrderId, Position, ShardId};
use ledger_projections::orders::{self, Queued, SeenHead};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::ledger::stock;
use crate::ledger::{Answer, Command, Ledger, Origin, Reply, WriteError};
use crate::telemetry::Metrics;

/// Most orders in one batch: as many as the writer takes into one transaction.
const BATCH_ORDERS: usize = 512;
/// Most vouchers that a batch of more than one order asks for: the head is held while they are
/// given out.
const BATCH_UNITS: i32 = 2_500;
/// Batches of a shard in the writer's queue: while one is committed the next one waits.
const BATCHES_AHEAD: usize = 2;
/// The slow timer, for when no wake-up comes.
const IDLE: Duration = Duration::from_secs(1);
/// How often stock is looked at although none was seen to arrive.
const RESTOCK_ANYWAY: Duration = Duration::from_secs(5);
/// After the queue was full or the database away.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// How long an order is left alone after its command was refused, and how often the whole queue is
/// read.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

type Waiting = oneshot::Receiver<Result<Reply, WriteError>>;
type Batch = Vec<(OrderId, Waiting)>;

/// What a step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Orders that were taken up.
    pub taken_up: usize,
    /// Waiting orders that got what they missed.
    pub restocked: usize,
    /// Commands are in the writer's queue.
    pub is_under_way: bool,
    /// The queue was full or the database away: try again soon.
    pub is_hindered: bool,
}

/// Takes up the orders of every shard.
#[derive(Debug)]
pub struct Fulfilment {
    ledger: Ledger,
    pool: PgPool,
    metrics: Metrics,
    shards: HashMap<ShardId, Progress>,
    idle: Duration,
}

/// What this node knows of a shard. Nothing here is needed for correctness.
#[derive(Debug, Default)]
struct Progress {
    /// Batches in the writer's queue, oldest first.
    ahead: VecDeque<Batch>,
    /// Orders whose command was refused, and until when they are left alone.
    refused: HashMap<OrderId, Instant>,
    /// When the queue was last read from its beginning.
    read_whole: Option<Instant>,
    /// Every order that was placed up to here was taken up, is ahead, or was refused. The queue is
    /// read from here on: before it the index is full of what is gone.
    taken_up_to: Position,
    /// The head of the log when the queue was last read. `taken_up_to` holds for a log that goes on from it.
    seen: Option<SeenHead>,
    /// The newest voucher that had been there when stock was last given out, and when that was.
    restocked: Option<(i64, Instant)>,
}

impl Progress {
    /// The orders that are not to be taken up now.
    fn busy(&mut self) -> HashSet<OrderId> {
        let now = Instant::now();
        self.refused.retain(|_, until| *until > now);
        let ahead = self.ahead.iter().flatten().map(|(id, _)| *id);
        ahead.chain(self.refused.keys().copied()).collect()
    }

    /// Where the queue is read from.
    fn reads_from(&mut self) -> Position {
        if self.read_whole.is_none_or(|at| at.elapsed() >= REFUSED_PAUSE) {
            self.read_whole = Some(Instant::now());
            self.taken_up_to = 0;
        }
        self.taken_up_to
    }

    /// Forgets what was known of a log that is not there any more.
    fn start_over(&mut self) {
        (self.taken_up_to, self.seen, self.restocked) = (0, None, None);
        self.refused.clear(); // ids repeat, too
    }
}

impl Fulfilment {
    pub fn new(ledger: Ledger, metrics: Metrics) -> Fulfilment {
        let shards = ledger.shards().map(|shard| (shard, Progress::default())).collect();
        let pool = ledger.pool().clone();
        Fulfilment { ledger, pool, metrics, shards, idle: IDLE }
    }

    /// The same with another slow timer.
    pub fn idling(self, idle: Duration) -> Fulfilment {
        Fulfilment { idle, ..self }
    }

    /// The same, which reads its queue on connections other than the clients'.
    pub fn reading(self, pool: PgPool) -> Fulfilment {
        Fulfilment { pool, ..self }
    }

    pub async fn run(mut self, stop: CancellationToken) {
        let mut grown = self.ledger.wake().subscribe();
        let shards: Vec<ShardId> = self.ledger.shards().collect();
        let heartbeat = self.ledger.heartbeats().background("fulfilment");
        while !stop.is_cancelled() {
            grown.borrow_and_update();
            let mut is_more = false;
            let mut is_hindered = false;
            for &shard in &shards {
                heartbeat.beat();
                match self.advance(shard).await {
                    Ok(outcome) => {
                        is_more |= outcome.taken_up + outcome.restocked > 0 || outcome.is_under_way;
                        is_hindered |= outcome.is_hindered;
                    }
                    Err(error) => {
                        tracing::warn!(shard, %error, "orders cannot be taken up; fulfilment will try again");
                        is_hindered = true;
                    }
                }
            }
            let pause = if is_hindered { RETRY_PAUSE } else { self.idle };
            tokio::select! {
                () = stop.cancelled() => {}
                () = std::future::ready(()), if is_more && !is_hindered => {}
                _ = grown.changed(), if !is_hindered => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        // What was submitted is the writer's: it needs nobody who waits for it.
    }

    /// Gives waiting orders the stock that has come and takes up what orders there are; returns
    /// when all of that is committed.
    pub async fn step(&mut self, shard: ShardId) -> Result<Outcome, sqlx::Error> {
        let mut outcome = self.advance(shard).await?;
        outcome.is_hindered |= self.finish_all(shard).await;
        Ok(outcome)
    }

    fn progress(&mut self, shard: ShardId) -> &mut Progress {
        self.shards.entry(shard).or_default()
    }

    /// Puts one more batch into the writer's queue; waits for the oldest one when there are enough
    /// of them, or nothing else is to be done.
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

    /// Enqueues the oldest orders that nobody has taken up, in the order they were placed.
    async fn take_up(&mut self, shard: ShardId) -> Result<(usize, bool), sqlx::Error> {
        let progress = self.progress(shard);
        let busy = progress.busy();
        let from = progress.reads_from();
        let seen = progress.seen;
        let limit = i64::try_from(busy.len() + BATCH_ORDERS).unwrap_or(i64::MAX);
        let Some((seen, orders)) = orders::unqueued(&self.pool, shard, seen, from, limit).await? else {
            tracing::warn!(shard, ?seen, "the log does not go on from where it stood: the queue is read from its beginning");
            self.progress(shard).start_over();
            return Ok((0, true));
        };
        self.progress(shard).seen = Some(seen);
        let orders = one_batch(orders, &busy);
        let (batch, is_hindered) = self.enqueue(shard, &orders);
        let taken_up = batch.len();
        if let Some(last) = taken_up.checked_sub(1).and_then(|last| orders.get(last)) {
            self.progress(shard).taken_up_to = last.placed_position;
        }
        if taken_up > 0 {
            self.progress(shard).ahead.push_back(batch);
        }
        Ok((taken_up, is_hindered))
    }

    fn enqueue(&self, shard: ShardId, orders: &[Queued]) -> (Batch, bool) {
        let mut batch = Batch::new();
        for &Queued { id: order_id, .. } in orders {
            let origin = Origin { actor: Actor::Fulfilment, request_id: "fulfilment".to_owned() };
            match self.ledger.enqueue(shard, Command::FulfilOrder { order_id }, origin, None) {
                Ok(waiting) => batch.push((order_id, waiting)),
                Err(_) => return (batch, true),
            }
        }
        (batch, false)
    }

    /// Waits for a batch.
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
                    tracing::error!(shard, order_id, %error, "an order cannot be taken up now");
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

    /// Gives stock that has come to the orders that wait for it, the oldest first. Without new
    /// stock this is a look at one index entry.
    async fn restock(&mut self, shard: ShardId) -> Result<Outcome, sqlx::Error> {
        let mut outcome = Outcome::default();
        let newest = stock::newest(&self.pool, shard).await?;
        if let Some((seen, at)) = self.progress(shard).restocked
            && seen == newest
            && at.elapsed() < RESTOCK_ANYWAY
        {
            return Ok(outcome);
        }
        let wanted = orders::waiting_for(&self.pool, shard).await?;
        let limit = i64::try_from(BATCH_ORDERS).unwrap_or(i64::MAX);
        let available = stock::available_pairs(&self.pool, shard, &wanted, limit).await?;
        if !available.is_empty() {
            // Younger orders that are in the queue must not come into one batch with these.
            outcome.is_hindered |= self.finish_all(shard).await;
        }
        for (product, denomination, vouchers) in available {
            // Every order takes a voucher or more.
            let waiting = orders::oldest_waiting(&self.pool, shard, product, denomination, vouchers).await?;
            let busy = self.progress(shard).busy();
            let (batch, is_hindered) = self.enqueue(shard, &one_batch(waiting, &busy));
            let finished = self.finish(shard, batch).await;
            outcome.restocked += finished.delivered;
            outcome.is_hindered |= is_hindered || finished.is_hindered;
        }
        // As long as orders are completed there may be more of them, and more stock.
        if !outcome.is_hindered && outcome.restocked == 0 {
            self.progress(shard).restocked = Some((newest, Instant::now()));
        }
        Ok(outcome)
    }
}

/// The oldest of these orders, as many as are taken up at once.
fn one_batch(orders: Vec<Queued>, busy: &HashSet<OrderId>) -> Vec<Queued> {
    let mut units = 0_i32;
    let fits = |order: &Queued| {
        let is_first = units == 0;
        units = units.saturating_add(order.missing);
        is_first || units <= BATCH_UNITS
    };
    orders.into_iter().filter(|order| !busy.contains(&order.id)).take_while(fits).take(BATCH_ORDERS).collect()
}

#[derive(Debug, Default)]
struct Finished {
    /// Orders that have all their vouchers.
    delivered: usize,
    is_hindered: bool,
}

fn order_of(reply: &Reply) -> Option<&Order> {
    match reply {
        Reply::Answer(answer) => match &**answer {
            Answer::Order(view) => Some(&view.order),
            _ => None,
        },
        Reply::Rendered { .. } => None,
    }
}
