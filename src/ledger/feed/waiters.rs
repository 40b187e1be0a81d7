//! Long polls of event feeds. One task follows the log for all of them, and wakes those whose account has new events.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ledger_database::PgPool;
use ledger_events::{AccountId, Position, ShardId};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::heartbeat::Heartbeat;
use crate::ledger::{Wake, connect, reader};

/// Maximum number of requests that wait on one node.
const MAX_WAITERS: usize = 1_000;
/// Maximum number of requests of one account that wait on one node.
const MAX_OF_ACCOUNT: usize = 10;
/// Largest number of positions that one query covers.
const MAX_POSITIONS: Position = 5_000;
/// Shortest time between two rounds of queries.
const PAUSE: Duration = Duration::from_millis(20);
/// Interval of the fallback timer, for lost wake-ups.
const IDLE: Duration = Duration::from_secs(1);
/// Deadline of one query.
const DEADLINE: Duration = Duration::from_secs(10);

/// Error for a request that may not wait, because too many do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests wait for events")]
pub struct TooManyWaiters;

/// Requests that wait for events. Cheap to clone. Its task ends when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct FeedWaiters(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    waiting: Mutex<Waiting>,
    /// Changes when a request begins to wait.
    begun: watch::Sender<()>,
    stopping: CancellationToken,
}

#[derive(Debug, Default)]
struct Waiting {
    shards: HashMap<ShardId, OfShard>,
    requests: usize,
}

/// Requests that wait for events of one shard.
#[derive(Debug, Default)]
struct OfShard {
    /// Position up to which the task has read the log, while requests wait.
    read: Position,
    accounts: HashMap<AccountId, OfAccount>,
}

#[derive(Debug)]
struct OfAccount {
    requests: usize,
    news: watch::Sender<()>,
}

/// A request that waits. Dropping it frees its place.
#[derive(Debug)]
pub struct Waiter {
    inner: Arc<Inner>,
    shard: ShardId,
    account: AccountId,
    news: watch::Receiver<()>,
}

impl FeedWaiters {
    /// Starts the task. When `stopping` is cancelled, nobody waits any longer.
    pub fn start(
        pool: PgPool,
        wake: &Wake,
        heartbeat: Heartbeat,
        stopping: CancellationToken,
        tasks: &TaskTracker,
    ) -> FeedWaiters {
        let (begun, begins) = watch::channel(());
        let inner = Arc::new(Inner { waiting: Mutex::default(), begun, stopping });
        let follower = Follower { inner: Arc::downgrade(&inner), begins, grown: wake.subscribe(), pool, heartbeat };
        tasks.spawn(follower.run());
        FeedWaiters(inner)
    }

    /// Returns the number of requests that wait.
    pub fn len(&self) -> usize {
        self.0.waiting().requests
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Begins to wait for an account's events after a position that the caller has read.
    ///
    /// # Errors
    /// If too many requests wait, in total or of this account.
    pub fn wait(&self, shard: ShardId, account: AccountId, read: Position) -> Result<Waiter, TooManyWaiters> {
        let news = {
            let mut waiting = self.0.waiting();
            if waiting.requests >= MAX_WAITERS {
                return Err(TooManyWaiters);
            }
            let of_shard = waiting.shards.entry(shard).or_default();
            if of_shard.accounts.is_empty() {
                of_shard.read = read;
            }
            // The task has read on since the caller has, without looking for this account.
            let is_late = read < of_shard.read;
            let new = || OfAccount { requests: 0, news: watch::Sender::new(()) };
            let of_account = of_shard.accounts.entry(account).or_insert_with(new);
            if of_account.requests >= MAX_OF_ACCOUNT {
                return Err(TooManyWaiters);
            }
            of_account.requests += 1;
            let mut news = of_account.news.subscribe();
            if is_late {
                news.mark_changed();
            }
            waiting.requests += 1;
            news
        };
        self.0.begun.send_replace(());
        Ok(Waiter { inner: self.0.clone(), shard, account, news })
    }
}

impl Waiter {
    /// Waits until the account may have new events. Returns false if the deadline passes first, or if the node stops.
    pub async fn has_news_before(&mut self, deadline: Instant) -> bool {
        let stopping = self.inner.stopping.clone();
        tokio::select! {
            changed = self.news.changed() => changed.is_ok(),
            () = tokio::time::sleep_until(deadline) => false,
            () = stopping.cancelled() => false,
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiting = self.inner.waiting();
        waiting.requests = waiting.requests.saturating_sub(1);
        let Some(of_shard) = waiting.shards.get_mut(&self.shard) else { return };
        if let Some(of_account) = of_shard.accounts.get_mut(&self.account) {
            of_account.requests -= 1;
            if of_account.requests == 0 {
                of_shard.accounts.remove(&self.account);
            }
        }
    }
}

impl Inner {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the shards with waiting requests, each with the position up to which the task has read.
    fn watched(&self) -> Vec<(ShardId, Position)> {
        let waiting = self.waiting();
        let watched = waiting.shards.iter().filter(|(_, of_shard)| !of_shard.accounts.is_empty());
        watched.map(|(shard, of_shard)| (*shard, of_shard.read)).collect()
    }

    /// Wakes the requests of these accounts, which have events in a range of the log.
    fn tell(&self, shard: ShardId, (after, upto): (Position, Position), accounts: &[AccountId]) {
        let mut waiting = self.waiting();
        let Some(of_shard) = waiting.shards.get_mut(&shard) else { return };
        // Otherwise everybody left in the meantime, and a request that came then has read less.
        if of_shard.read == after {
            of_shard.read = upto;
        }
        for of_account in accounts.iter().filter_map(|account| of_shard.accounts.get(account)) {
            of_account.news.send_replace(());
        }
    }

    /// Reads the events after a position. Returns whether there are more.
    async fn read_on(&self, pool: &PgPool, shard: ShardId, after: Position) -> Result<bool, sqlx::Error> {
        let mut connection = pool.acquire().await?;
        let head = reader::head(&mut *connection, shard).await?;
        if head <= after {
            return Ok(false);
        }
        let upto = head.min(after + MAX_POSITIONS);
        let accounts = reader::announced_to(&mut *connection, shard, (after, upto)).await?;
        self.tell(shard, (after, upto), &accounts);
        Ok(upto < head)
    }
}

/// The task that follows the log while requests wait.
struct Follower {
    inner: Weak<Inner>,
    begins: watch::Receiver<()>,
    grown: watch::Receiver<u64>,
    pool: PgPool,
    heartbeat: Heartbeat,
}

impl Follower {
    async fn run(mut self) {
        let (mut is_more, mut is_hindered) = (false, false);
        loop {
            let Some(inner) = self.inner.upgrade() else { return };
            let is_idle = inner.watched().is_empty();
            drop(inner); // while this waits, only handles count
            if is_idle {
                self.heartbeat.rest();
            }
            tokio::select! {
                begins = self.begins.changed(), if !is_more => if begins.is_err() { return },
                // The next commit seldom resolves the cause of an error, so the timer does.
                _ = self.grown.changed(), if !is_idle && !is_more && !is_hindered => {}
                () = tokio::time::sleep(IDLE), if !is_idle && !is_more => {}
                () = std::future::ready(()), if is_more => {}
            }
            self.heartbeat.beat();
            let Some(inner) = self.inner.upgrade() else { return };
            (is_more, is_hindered) = (false, false);
            for (shard, read) in inner.watched() {
                match connect::within(DEADLINE, inner.read_on(&self.pool, shard, read)).await {
                    Ok(more) => is_more |= more,
                    Err(error) => {
                        tracing::warn!(shard, %error, "failed to read new events for waiting requests; retrying");
                        is_hindered = true;
                    }
                }
            }
            drop(inner);
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiters() -> FeedWaiters {
        let inner = Inner { waiting: Mutex::default(), begun: watch::Sender::new(()), stopping: CancellationToken::new() };
        FeedWaiters(Arc::new(inner))
    }

    async fn is_told(waiter: &mut Waiter) -> bool {
        waiter.has_news_before(Instant::now() + Duration::from_millis(20)).await
    }

    #[tokio::test]
    async fn only_requests_of_accounts_with_new_events_wake_up() {
        let waiters = waiters();
        let mut first = waiters.wait(1, AccountId(7), 10).unwrap();
        let mut other = waiters.wait(1, AccountId(8), 10).unwrap();
        waiters.0.tell(1, (10, 12), &[AccountId(7), AccountId(9)]);
        assert!(is_told(&mut first).await);
        assert!(!is_told(&mut first).await, "the same news come once");
        assert!(!is_told(&mut other).await);
    }

    #[tokio::test]
    async fn a_request_that_read_less_than_the_task_looks_again() {
        let waiters = waiters();
        let _first = waiters.wait(1, AccountId(7), 10).unwrap();
        waiters.0.tell(1, (10, 20), &[]);
        let mut late = waiters.wait(1, AccountId(8), 15).unwrap();
        assert!(is_told(&mut late).await);
        let mut current = waiters.wait(1, AccountId(9), 20).unwrap();
        assert!(!is_told(&mut current).await);
    }

    #[tokio::test]
    async fn a_range_that_was_read_for_others_does_not_count_for_a_request_that_came_later() {
        let waiters = waiters();
        drop(waiters.wait(1, AccountId(7), 10).unwrap());
        let _late = waiters.wait(1, AccountId(8), 5).unwrap();
        waiters.0.tell(1, (10, 20), &[]);
        assert_eq!(waiters.0.watched(), [(1, 5)]);
    }

    #[tokio::test]
    async fn requests_are_bounded_and_a_dropped_one_frees_its_place() {
        let waiters = waiters();
        let mut held: Vec<_> = (0..MAX_OF_ACCOUNT).map(|_| waiters.wait(1, AccountId(7), 0).unwrap()).collect();
        assert_eq!(waiters.wait(1, AccountId(7), 0).unwrap_err(), TooManyWaiters);
        held.pop();
        held.push(waiters.wait(1, AccountId(7), 0).unwrap());
        assert_eq!(waiters.len(), MAX_OF_ACCOUNT);
        held.clear();
        assert!(waiters.is_empty());
        assert!(waiters.0.watched().is_empty());
    }

    #[tokio::test]
    async fn nobody_waits_while_the_node_stops() {
        let waiters = waiters();
        let mut waiter = waiters.wait(1, AccountId(7), 0).unwrap();
        waiters.0.stopping.cancel();
        assert!(!waiter.has_news_before(Instant::now() + Duration::from_secs(60)).await);
    }
}
