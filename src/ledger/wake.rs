//! Waking whoever waits for news of the database: in-process after a commit, by NOTIFY on other nodes.

use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::connect;

/// Other nodes hear of news so often at most.
const NOTIFY_PAUSE: Duration = Duration::from_millis(10);
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// What there may be news of, and its channel.
#[derive(Clone, Debug)]
struct Topic {
    channel: &'static str,
    news: watch::Sender<u64>,
    /// What this node has to tell others.
    news_of_ours: watch::Sender<u64>,
}

impl Topic {
    fn new(channel: &'static str) -> Topic {
        Topic { channel, news: watch::Sender::new(0), news_of_ours: watch::Sender::new(0) }
    }

    fn tell(&self) {
        self.news.send_modify(|n| *n += 1);
        self.news_of_ours.send_modify(|n| *n += 1);
    }

    /// One NOTIFY for all news since the last, on a connection of its own: inside the writer's
    /// transaction it would take a lock over the whole database at commit.
    async fn announce(self, pool: PgPool, node: String) {
        let mut news = self.news_of_ours.subscribe();
        while news.changed().await.is_ok() {
            if let Err(error) = sqlx::query("SELECT pg_notify($1, $2)").bind(self.channel).bind(&node).execute(&pool).await {
                tracing::debug!(%error, self.channel, "other nodes were not notified; their timers will do");
            }
            tokio::time::sleep(NOTIFY_PAUSE).await;
        }
    }
}

/// Tells that the log grew, or that there are deliveries to send. Missing a wake-up is no loss:
/// every follower has a slow timer too.
#[derive(Clone, Debug)]
pub struct Wake {
    log: Topic,
    deliveries: Topic,
    stop: CancellationToken,
}

impl Wake {
    /// Starts listening for other nodes' news and announcing this one's.
    pub fn start(options: &PgConnectOptions, tasks: &TaskTracker) -> Wake {
        let (log, deliveries) = (Topic::new("ledger_log"), Topic::new("ledger_deliveries"));
        let wake = Wake { log, deliveries, stop: CancellationToken::new() };
        // One listens, one notifies.
        let pool = PgPoolOptions::new().max_connections(2).connect_lazy_with(connect::notifier(options));
        let node = Uuid::new_v4().to_string();
        for topic in wake.topics() {
            let (announcing, stop) = (topic.clone().announce(pool.clone(), node.clone()), wake.stop.clone());
            tasks.spawn(async move { _ = stop.run_until_cancelled(announcing).await });
        }
        let (listening, stop) = (wake.clone().listen(pool, node), wake.stop.clone());
        tasks.spawn(async move { _ = stop.run_until_cancelled(listening).await });
        wake
    }

    fn topics(&self) -> [&Topic; 2] {
        [&self.log, &self.deliveries]
    }

    /// A writer of this node committed.
    pub fn committed(&self) {
        self.log.tell();
    }

    /// A projector of this node made deliveries that are to be sent.
    pub fn made_deliveries(&self) {
        self.deliveries.tell();
    }

    /// Changes whenever some shard's log has grown.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.log.news.subscribe()
    }

    /// Changes whenever there are new deliveries.
    pub fn deliveries(&self) -> watch::Receiver<u64> {
        self.deliveries.news.subscribe()
    }

    /// Ends the tasks.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    async fn listen(self, pool: PgPool, node: String) {
        loop {
            if let Err(error) = self.listen_once(&pool, &node).await {
                tracing::debug!(%error, "listening for other nodes' news was interrupted");
            }
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
    }

    async fn listen_once(&self, pool: &PgPool, node: &str) -> Result<(), sqlx::Error> {
        let mut listener = PgListener::connect_with(pool).await?;
        listener.listen_all(self.topics().map(|topic| topic.channel)).await?;
        loop {
            let heard = listener.recv().await?;
            if let Some(topic) =
                self.topics().into_iter().find(|topic| topic.channel == heard.channel() && heard.payload() != node)
            {
                topic.news.send_modify(|n| *n += 1);
            }
        }
    }
}
