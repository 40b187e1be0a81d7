//! Waking whoever waits for news of the database: in-process after a commit, by NOTIFY on other nodes.

use std::sync::Arc;
use std::time::Duration;

use ledger_events::{AccountId, ShardId, WebhookId};
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::{Acquire, ConnectOptions};
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::connect::{self, Line};
use crate::heartbeat::{Heartbeat, Heartbeats};

/// Other nodes hear of news so often at most.
const NOTIFY_PAUSE: Duration = Duration::from_millis(10);
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
/// On this channel nodes say that they are there. One that hears of no other has nobody to tell its news.
const NODES: &str = "ledger_nodes";
const HELLO_PAUSE: Duration = Duration::from_secs(3);
/// A node that has said nothing for so long is gone.
const GONE: Duration = Duration::from_secs(10);
/// How long a NOTIFY may take.
const NOTIFIED: Duration = Duration::from_secs(6);
/// This node hears its own hellos, so a connection that listens and hears nothing for so long is dead: longer than two
/// hellos, of which the first met a dead connection.
const SILENCE: Duration = Duration::from_secs(11);
/// How long the connection that listens may take to open.
const TO_LISTEN: Duration = Duration::from_secs(5);
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
    async fn announce(self, line: Line, node: String, others: Others, heartbeat: Heartbeat) {
        let mut news = self.news_of_ours.subscribe();
        heartbeat.rest();
        while news.changed().await.is_ok() {
            heartbeat.beat();
            if others.are_there() {
                notify(&line, self.channel, &node).await;
            }
            tokio::time::sleep(NOTIFY_PAUSE).await;
            heartbeat.rest();
        }
    }
}

/// When another node was heard of last.
#[derive(Clone, Debug)]
struct Others(watch::Sender<Instant>);

impl Others {
    /// Whether there are any, as far as is known. A node that has just begun may not have heard of them yet.
    fn are_there(&self) -> bool {
        self.0.borrow().elapsed() < GONE
    }
}

async fn notify(line: &Line, channel: &'static str, node: &str) {
    let told = async {
        let mut connection = line.acquire().await?;
        sqlx::query("SELECT pg_notify($1, $2)").bind(channel).bind(node).execute(&mut *connection).await?;
        connection.keep();
        Ok::<_, sqlx::Error>(())
    };
    if let Err(error) = connect::within(NOTIFIED, told).await {
        tracing::debug!(%error, channel, "other nodes were not notified; their timers will do");
    }
}

/// Tells that the log grew, or that there are deliveries to send. Missing a wake-up is no loss:
/// every follower has a slow timer too.
#[derive(Clone, Debug)]
pub struct Wake {
    log: Topic,
    deliveries: Topic,
    made_here: broadcast::Sender<Arc<[Addressee]>>,
    others: Others,
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
    pub fn start(options: &PgConnectOptions, heartbeats: &Heartbeats, tasks: &TaskTracker) -> Wake {
        let (log, deliveries) = (Topic::new("ledger_log"), Topic::new("ledger_deliveries"));
        let made_here = broadcast::Sender::new(BATCHES_BEHIND);
        let others = Others(watch::Sender::new(Instant::now()));
        let wake = Wake { log, deliveries, made_here, others, stop: CancellationToken::new() };
        let line = connect::notifier(options);
        let node = Uuid::new_v4().to_string();
        for topic in wake.topics() {
            let heartbeat = heartbeats.background(format!("notifier {}", topic.channel));
            wake.spawn(topic.clone().announce(line.clone(), node.clone(), wake.others.clone(), heartbeat), tasks);
        }
        let heartbeat = heartbeats.background("listener");
        wake.spawn(wake.clone().listen(connect::listener(options), line, node, heartbeat), tasks);
        wake
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static, tasks: &TaskTracker) {
        let stop = self.stop.clone();
        tasks.spawn(async move { _ = stop.run_until_cancelled(work).await });
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

    async fn listen(self, options: PgConnectOptions, line: Line, node: String, heartbeat: Heartbeat) {
        loop {
            heartbeat.beat();
            if let Err(error) = self.listen_once(&options, &line, &node, &heartbeat).await {
                tracing::debug!(%error, "listening for other nodes' news was interrupted");
            }
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
    }

    async fn listen_once(
        &self,
        options: &PgConnectOptions,
        line: &Line,
        node: &str,
        heartbeat: &Heartbeat,
    ) -> Result<(), sqlx::Error> {
        let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(TO_LISTEN).connect_lazy_with(options.clone());
        let mut listener = PgListener::connect_with(&pool).await?;
        let channels = self.topics().map(|topic| topic.channel).into_iter().chain([NODES]);
        let listening = tokio::time::timeout(TO_LISTEN, listener.listen_all(channels)).await;
        let ended = match listening {
            Ok(Ok(())) => {
                let is_new = Notify::new();
                tokio::select! {
                    // Once it listens, so that whoever begins to tell is heard.
                    () = say_hello(line, node, &is_new) => Ok(()),
                    ended = self.hear(&mut listener, node, &is_new, heartbeat) => ended,
                }
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(sqlx::Error::PoolTimedOut),
        };
        close_hard(listener, options, heartbeat).await;
        ended
    }

    async fn hear(
        &self,
        listener: &mut PgListener,
        node: &str,
        is_new: &Notify,
        heartbeat: &Heartbeat,
    ) -> Result<(), sqlx::Error> {
        loop {
            let Ok(heard) = tokio::time::timeout(SILENCE, listener.recv()).await else {
                let connection = "rewards-ledger listener";
                tracing::warn!(connection, deadline = ?SILENCE, "nothing was heard within the deadline: closing the connection");
                return Ok(());
            };
            let heard = heard?;
            heartbeat.beat();
            if heard.payload() == node {
                continue;
            }
            if !self.others.are_there() {
                is_new.notify_one();
            }
            self.others.0.send_replace(Instant::now());
            if let Some(topic) = self.topics().into_iter().find(|topic| topic.channel == heard.channel()) {
                topic.news.send_modify(|n| *n += 1);
            }
        }
    }
}

/// Closes the connection of a listener that may be dead. When sqlx's listener is dropped, it sends a last statement and
/// waits for the answer without a deadline. So its connection is exchanged for a live one first, and dropped.
async fn close_hard(mut listener: PgListener, options: &PgConnectOptions, heartbeat: &Heartbeat) {
    loop {
        heartbeat.beat();
        let live = tokio::time::timeout(TO_LISTEN, options.connect()).await;
        if let Ok(Ok(live)) = live
            && let Ok(dead) = (&mut listener).acquire().await
        {
            drop(std::mem::replace(dead, live));
            return;
        }
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

/// Every few seconds, and at once when another node is heard of that may not know of this one.
async fn say_hello(line: &Line, node: &str, is_new: &Notify) {
    loop {
        notify(line, NODES, node).await;
        _ = tokio::time::timeout(HELLO_PAUSE, is_new.notified()).await; // either will do
    }
}
