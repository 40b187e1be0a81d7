//! Waking whoever follows the log: in-process after a commit, by NOTIFY on other nodes.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::connect;

const CHANNEL: &str = "ledger_log";
/// Other nodes hear of commits so often at most.
const NOTIFY_PAUSE: Duration = Duration::from_millis(10);
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Tells that the log grew. Missing a wake-up is no loss: every follower has a slow timer too.
#[derive(Clone, Debug)]
pub struct Wake {
    grown: watch::Sender<u64>,
    committed_here: watch::Sender<u64>,
    stop: CancellationToken,
}

impl Wake {
    /// Starts listening for other nodes' commits and announcing this one's.
    pub fn start(options: &PgConnectOptions, tasks: &TaskTracker) -> Wake {
        let wake = Wake { grown: watch::Sender::new(0), committed_here: watch::Sender::new(0), stop: CancellationToken::new() };
        let pool = PgPoolOptions::new().max_connections(2).connect_lazy_with(connect::notifier(options));
        let node = Uuid::new_v4().to_string();
        let (listening, stop) = (wake.clone(), wake.stop.clone());
        let (listen_pool, listen_node) = (pool.clone(), node.clone());
        tasks.spawn(async move { _ = stop.run_until_cancelled(listening.listen(listen_pool, listen_node)).await });
        let (mut commits, stop) = (wake.committed_here.subscribe(), wake.stop.clone());
        tasks.spawn(async move {
            // One NOTIFY for all commits since the last, on a connection of its own: inside the
            // writer's transaction it would take a lock over the whole database at commit.
            while let Some(Ok(())) = stop.run_until_cancelled(commits.changed()).await {
                if let Err(error) = sqlx::query("SELECT pg_notify($1, $2)").bind(CHANNEL).bind(&node).execute(&pool).await {
                    tracing::debug!(%error, "other nodes were not notified; their timers will do");
                }
                tokio::time::sleep(NOTIFY_PAUSE).await;
            }
        });
        wake
    }

    /// A writer of this node committed.
    pub fn committed(&self) {
        self.grown.send_modify(|n| *n += 1);
        self.committed_here.send_modify(|n| *n += 1);
    }

    /// Changes whenever some shard's log has grown.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.grown.subscribe()
    }

    /// Ends the tasks.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    async fn listen(self, pool: sqlx::PgPool, node: String) {
        loop {
            if let Err(error) = self.listen_once(&pool, &node).await {
                tracing::debug!(%error, "listening for other nodes' commits was interrupted");
            }
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
    }

    async fn listen_once(&self, pool: &sqlx::PgPool, node: &str) -> Result<(), sqlx::Error> {
        let mut listener = PgListener::connect_with(pool).await?;
        listener.listen(CHANNEL).await?;
        loop {
            if listener.recv().await?.payload() != node {
                self.grown.send_modify(|n| *n += 1);
            }
        }
    }
}
