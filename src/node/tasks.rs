//! The background tasks of a node, and how their end is noticed.

use std::time::Duration;

use tokio_util::task::TaskTracker;

/// Interval of the check that all background tasks still run.
const LOOK_AFTER_TASKS: Duration = Duration::from_secs(1);

/// Completes when fewer than `tasks` tasks run. It polls, because a tracker knows the number of tasks but does not report
/// when one ends or panics.
pub async fn one_ends<const N: usize>(trackers: [&TaskTracker; N], tasks: usize) {
    while trackers.iter().map(|tracker| tracker.len()).sum::<usize>() >= tasks {
        tokio::time::sleep(LOOK_AFTER_TASKS).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panicking_task_is_noticed() {
        let (roles, writers) = (TaskTracker::new(), TaskTracker::new());
        let (panics, told) = tokio::sync::oneshot::channel::<()>();
        roles.spawn(std::future::pending::<()>());
        writers.spawn(async { told.await.unwrap() });
        let ended = one_ends([&roles, &writers], 2);
        tokio::pin!(ended);
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut ended).await.is_err());
        drop(panics);
        tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap();
    }
}
