//! The shards that this node writes. A task looks for new ones, so that a shard that is added works on a running node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use ledger_database::PgConnectOptions;
use ledger_events::ShardId;
use sqlx::PgExecutor;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::cache::HeadState;
use super::connect;
use super::handover::Leaders;
use super::log_position::LogPosition;
use super::submission::Submission;
use super::wake::Wake;
use super::writer::Writer;
use crate::secrets::seal::Keyring;
use crate::telemetry::Metrics;

/// Capacity of a shard's command queue. A command that does not fit is refused with 503.
const QUEUE_COMMANDS: usize = 4_096;
/// Interval at which a node looks for new shards.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Pause after a look that failed.
const RETRY_PAUSE: Duration = Duration::from_secs(2);
/// Deadline of one look.
const DEADLINE: Duration = Duration::from_secs(6);

/// Shards of a node, as they are added. Cheap to clone. It does not keep their writers running.
#[derive(Clone, Debug)]
pub struct ShardWatch(pub(crate) watch::Receiver<Vec<ShardId>>);

impl<const N: usize> From<[ShardId; N]> for ShardWatch {
    /// Watches these shards only.
    fn from(shards: [ShardId; N]) -> ShardWatch {
        ShardWatch(watch::channel(shards.into()).1)
    }
}

impl ShardWatch {
    /// Returns the shards of this moment, in ascending order.
    pub fn current(&self) -> Vec<ShardId> {
        self.0.borrow().clone()
    }

    /// Calls `read` with the number of shards. No writer starts meanwhile.
    pub fn count<T>(&self, read: impl FnOnce(usize) -> T) -> T {
        let shards = self.0.borrow();
        read(shards.len())
    }

    /// Waits until a shard is added.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await // the ledger is closed, and no shard is added any more
        }
    }

    /// Runs a task for each shard, side by side, and one more for each shard that is added. After `stop`, waits until all of
    /// them have ended. A task that ends before `stop` ends all, so that the node notices it.
    ///
    /// # Panics
    /// If a task panics.
    pub async fn each<T>(&self, stop: &CancellationToken, task: impl Fn(ShardId) -> T)
    where
        T: Future<Output = ()> + Send + 'static,
    {
        let mut shards = self.clone();
        let (mut begun, mut tasks) = (BTreeSet::new(), JoinSet::new());
        loop {
            for shard in shards.current() {
                if begun.insert(shard) {
                    tasks.spawn(task(shard));
                }
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = shards.changed() => {}
                Some(ended) = tasks.join_next() => {
                    pass_on(ended);
                    if !stop.is_cancelled() {
                        return;
                    }
                }
            }
        }
        while let Some(ended) = tasks.join_next().await {
            pass_on(ended);
        }
    }
}

/// Panics if a task has panicked.
fn pass_on(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

/// A shard, as this node writes it.
#[derive(Debug)]
struct Written {
    queue: mpsc::Sender<Submission>,
    /// Head of the log when this node last answered commands.
    answered_at: watch::Receiver<HeadState>,
}

/// Dependencies of every writer, and the tracker of their tasks.
#[derive(Debug)]
pub(super) struct WriterSettings {
    pub options: PgConnectOptions,
    pub keyring: Arc<Keyring>,
    pub leaders: Leaders,
    pub wake: Wake,
    pub metrics: Metrics,
    pub tasks: TaskTracker,
}

impl WriterSettings {
    /// Starts the writer of a shard.
    fn start(&self, shard: ShardId) -> Written {
        let WriterSettings { options, keyring, leaders, wake, metrics, tasks } = self;
        let (sender, receiver) = mpsc::channel(QUEUE_COMMANDS);
        let queue = sender.downgrade();
        metrics.watch_queue(shard, move || queue.upgrade().map_or(0, |queue| queue.max_capacity() - queue.capacity()));
        let writer = Writer::new(shard, options, keyring.clone(), leaders.clone(), wake.clone(), metrics.clone(), receiver);
        let written = Written { queue: sender, answered_at: writer.answered_at() };
        tasks.spawn(writer.run());
        written
    }
}

/// Writers of this node, one for each shard. When the value is dropped, they finish the accepted commands and end.
#[derive(Debug)]
pub(super) struct Writers {
    written: RwLock<BTreeMap<ShardId, Written>>,
    /// Shards in `written`. Their writers start while it is locked.
    known: watch::Sender<Vec<ShardId>>,
}

impl Writers {
    /// Starts a writer for each of these shards, and the task that starts those of shards that are added.
    pub fn start(shards: &[ShardId], settings: WriterSettings) -> Arc<Writers> {
        let writers = Arc::new(Writers { written: RwLock::default(), known: watch::Sender::default() });
        writers.add(shards, &settings);
        let (wake, tasks) = (settings.wake.clone(), settings.tasks.clone());
        wake.spawn(follow(Arc::downgrade(&writers), settings), &tasks);
        writers
    }

    /// Starts the writers of those shards that have none, and then announces the shards.
    fn add(&self, shards: &[ShardId], settings: &WriterSettings) {
        self.known.send_if_modified(|known| {
            let new: Vec<ShardId> = shards.iter().copied().filter(|shard| !known.contains(shard)).collect();
            if new.is_empty() {
                return false;
            }
            let mut written = self.written.write().unwrap_or_else(PoisonError::into_inner);
            written.extend(new.into_iter().map(|shard| (shard, settings.start(shard))));
            *known = written.keys().copied().collect();
            true
        });
    }

    fn written(&self) -> RwLockReadGuard<'_, BTreeMap<ShardId, Written>> {
        self.written.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the queue of a shard's writer; none if this node does not know the shard.
    pub fn queue(&self, shard: ShardId) -> Option<mpsc::Sender<Submission>> {
        Some(self.written().get(&shard)?.queue.clone())
    }

    /// Returns the position of the log that includes every command that this node has answered.
    pub fn answered_at(&self) -> LogPosition {
        let newest = |(shard, written): (&ShardId, &Written)| {
            let head = *written.answered_at.borrow();
            Some((*shard, head.position, head.last_event?))
        };
        self.written().iter().filter_map(newest).collect()
    }

    pub fn watch(&self) -> ShardWatch {
        ShardWatch(self.known.subscribe())
    }
}

/// Lists the shards of the database, in ascending order.
///
/// # Errors
/// Any error of the database.
pub async fn list(db: impl PgExecutor<'_>) -> Result<Vec<ShardId>, sqlx::Error> {
    sqlx::query_scalar("SELECT shard_id FROM log_head ORDER BY shard_id").fetch_all(db).await
}

/// Looks for new shards and starts their writers, until the writers are dropped.
async fn follow(writers: Weak<Writers>, settings: WriterSettings) {
    let heartbeat = settings.metrics.heartbeats().background("new shards");
    let mut pause = LOOK_EVERY;
    loop {
        tokio::time::sleep(pause).await;
        heartbeat.beat();
        let look = connect::within(DEADLINE, async {
            let mut connection = settings.wake.notifier().acquire().await?;
            let found = list(&mut *connection).await?;
            connection.keep();
            Ok::<_, sqlx::Error>(found)
        });
        pause = match look.await {
            Ok(found) => {
                let Some(writers) = writers.upgrade() else { return };
                writers.add(&found, &settings);
                LOOK_EVERY
            }
            Err(error) => {
                tracing::warn!(%error, "failed to look for new shards; retrying");
                RETRY_PAUSE
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_shard_that_is_added_gets_a_task_beside_those_that_never_rest() {
        let known = watch::Sender::new(Vec::<ShardId>::from([1, 2]));
        let (stop, (begun, mut begins)) = (CancellationToken::new(), mpsc::unbounded_channel());
        let shards = ShardWatch(known.subscribe());
        let each = tokio::spawn({
            let stop = stop.clone();
            async move {
                let task = |shard: ShardId| {
                    let (begun, stop) = (begun.clone(), stop.clone());
                    async move {
                        begun.send(shard).unwrap();
                        stop.cancelled().await;
                    }
                };
                shards.each(&stop, task).await;
            }
        });
        let mut first = [begins.recv().await.unwrap(), begins.recv().await.unwrap()];
        first.sort_unstable();
        assert_eq!(first, [1, 2]);
        known.send_replace(vec![1, 2, 3]);
        assert_eq!(begins.recv().await, Some(3));
        assert!(!each.is_finished());
        stop.cancel();
        tokio::time::timeout(DEADLINE, each).await.unwrap().unwrap();
        assert_eq!(begins.recv().await, None, "no shard gets a second task");
    }

    #[tokio::test]
    async fn a_task_that_ends_early_ends_all() {
        let task = |shard: ShardId| async move {
            if shard == 1 {
                std::future::pending::<()>().await;
            }
        };
        let shards = ShardWatch::from([1, 2]);
        tokio::time::timeout(DEADLINE, shards.each(&CancellationToken::new(), task)).await.unwrap();
    }

    #[tokio::test]
    #[should_panic = "the task of shard 2"]
    async fn the_panic_of_a_task_is_passed_on() {
        let task = |shard: ShardId| async move {
            match shard {
                1 => std::future::pending::<()>().await,
                _ => panic!("the task of shard {shard}"),
            }
        };
        ShardWatch::from([1, 2]).each(&CancellationToken::new(), task).await;
    }
}
