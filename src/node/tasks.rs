//! The background tasks of a node, and how their end is noticed.

use std::time::Duration;

use tokio_util::task::TaskTracker;

use crate::ledger::ShardWatch;

/// Interval of the check that all background tasks still run.
const LOOK_AFTER_TASKS: Duration = Duration::from_secs(1);

/// Returns the number of tasks that run besides one writer for each shard.
pub fn beside_writers<const N: usize>(trackers: [&TaskTracker; N], shards: &ShardWatch) -> usize {
    shards.count(|writers| trackers.iter().map(|tracker| tracker.len()).sum::<usize>().saturating_sub(writers))
}

/// Completes when fewer than `tasks` tasks run besides one writer for each shard. It polls, because a tracker knows the number of
/// tasks but does not report when one ends or panics.
pub async fn one_ends<const N: usize>(trackers: [&TaskTracker; N], shards: &ShardWatch, tasks: usize) {
    while beside_writers(trackers, shards) >= tasks {
        tokio::time::sleep(LOOK_AFTER_TASKS).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::{oneshot, watch};

    #[tokio::test]
    async fn a_panicking_task_is_noticed() {
        let (roles, writers) = (TaskTracker::new(), TaskTracker::new());
        let (panics, told) = oneshot::channel::<()>();
        roles.spawn(std::future::pending::<()>());
        writers.spawn(async { told.await.unwrap() });
        let shards = ShardWatch::from([1]);
        assert_eq!(beside_writers([&roles, &writers], &shards), 1);
        let ended = one_ends([&roles, &writers], &shards, 1);
        tokio::pin!(ended);
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut ended).await.is_err());
        drop(panics);
        tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap();
    }

    #[tokio::test]
    async fn a_panic_is_noticed_even_if_the_writer_of_an_added_shard_starts_meanwhile() {
        let tasks = TaskTracker::new();
        let (panics, told) = oneshot::channel::<()>();
        tasks.spawn(std::future::pending::<()>());
        tasks.spawn(async { told.await.unwrap() });
        let known = watch::Sender::new(vec![1]);
        let shards = ShardWatch(known.subscribe());
        let ended = one_ends([&tasks], &shards, 1);
        tokio::pin!(ended);
        assert!(futures::poll!(&mut ended).is_pending());
        tasks.spawn(std::future::pending::<()>());
        known.send_replace(vec![1, 2]);
        drop(panics);
        tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap();
    }
}
