//! Waking whoever waits for news of the database: in-process after a commit, by NOTIFY on other nodes.

use std::sync::Arc;
use std::time::Duration;

use ledger_events::{AccountId, ShardId, WebhookId};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::connect;

/// Other nodes hear of news so often at most.
const NOTIFY_PAUSE: Duration = Duration::from_millis(10);
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
/// Batches of the projector that a delivery worker may be behind before it has to look by itself.
const BATCHES_BEHIND: usize = 256;

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
        self.tell_others();
    }

    fn tell_others(&self) {
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
    made_here: broadcast::Sender<Arc<[Addressee]>>,
    stop: CancellationToken,
}

/// A webhook that new deliveries are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Addressee {
    pub shard: ShardId,
    pub webhook_id: WebhookId,
    pub account_id: AccountId,
}

/// News of deliveries that are to be sent.
#[derive(Clone, Debug)]
pub struct NewDeliveries {
    /// Changes when there may be some: who hears it looks for them.
    pub anywhere: watch::Receiver<u64>,
    /// Whom this node's projector has made first attempts due for: who hears it need not look.
    pub here: broadcast::Sender<Arc<[Addressee]>>,
}

impl NewDeliveries {
    /// No news ever.
    pub fn none() -> NewDeliveries {
        NewDeliveries { anywhere: watch::channel(0).1, here: broadcast::Sender::new(1) }
    }
}

impl Wake {
    /// Starts listening for other nodes' news and announcing this one's.
    pub fn start(options: &PgConnectOptions, tasks: &TaskTracker) -> Wake {
        let (log, deliveries) = (Topic::new("ledger_log"), Topic::new("ledger_deliveries"));
        let made_here = broadcast::Sender::new(BATCHES_BEHIND);
        let wake = Wake { log, deliveries, made_here, stop: CancellationToken::new() };
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

    /// A projection whose checkpoint this node held may go on.
    pub fn let_go(&self) {
        self.log.tell();
    }

    /// A projector of this node committed deliveries for these, with first attempts that are due.
    pub fn made_deliveries(&self, addressees: Vec<Addressee>) {
        _ = self.made_here.send(addressees.into()); // there may be no worker on this node
        self.deliveries.tell_others();
    }

    /// A projector of this node committed that deliveries are to be tried again, or what changes where some go.
    pub fn changed_deliveries(&self) {
        self.deliveries.tell();
    }

    /// Changes whenever some shard's log has grown.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.log.news.subscribe()
    }

    /// News of deliveries.
    pub fn deliveries(&self) -> NewDeliveries {
        NewDeliveries { anywhere: self.deliveries.news.subscribe(), here: self.made_here.clone() }
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
