//! Wake-ups for everything that waits for changes in the database: in-process after a commit, by NOTIFY on other nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ledger_database::PgConnectOptions;
use ledger_events::{AccountId, ShardId, WebhookId};
use sqlx::Acquire;
use sqlx::postgres::PgListener;
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::connect::{self, DedicatedConnection};
use crate::heartbeat::{Heartbeat, Heartbeats};

/// Shortest pause between two notifications of other nodes.
const NOTIFY_PAUSE: Duration = Duration::from_millis(10);
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
/// Channel on which nodes announce that they are alive. A node that hears of no other notifies nobody.
const NODES: &str = "ledger_nodes";
const HELLO_PAUSE: Duration = Duration::from_secs(3);
/// Silence after which a node counts as gone.
const GONE: Duration = Duration::from_secs(10);
/// Timeout of a NOTIFY.
const NOTIFIED: Duration = Duration::from_secs(6);
/// Silence after which the LISTEN connection counts as dead, because a node hears its own announcements. Longer than two
/// announcements, in case the first one met a dead connection.
const SILENCE: Duration = Duration::from_secs(11);
/// Timeout for opening the LISTEN connection.
const TO_LISTEN: Duration = Duration::from_secs(5);
/// Number of the projector's batches by which a delivery worker may lag before it has to query the database itself.
const BATCHES_BEHIND: usize = 256;

/// A subject of wake-ups, with its NOTIFY channel.
#[derive(Clone, Debug)]
struct Topic {
    channel: &'static str,
    news: watch::Sender<u64>,
    /// Counter of this node's own news, which other nodes must be notified of.
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

    /// Sends one NOTIFY for all news since the last one, on a separate connection. Inside the writer's transaction,
    /// NOTIFY would take a lock on the whole database at commit.
    async fn announce(self, dedicated: DedicatedConnection, node: String, others: Others, heartbeat: Heartbeat) {
        let mut news = self.news_of_ours.subscribe();
        heartbeat.rest();
        while news.changed().await.is_ok() {
            heartbeat.beat();
            if others.are_there() {
                notify(&dedicated, self.channel, &node).await;
            }
            tokio::time::sleep(NOTIFY_PAUSE).await;
            heartbeat.rest();
        }
    }
}

/// Time when another node was last heard of.
#[derive(Clone, Debug)]
struct Others(watch::Sender<Instant>);

impl Others {
    /// Returns whether other nodes are known to exist. A node that has just started may not have heard of them yet.
    fn are_there(&self) -> bool {
        self.0.borrow().elapsed() < GONE
    }
}

async fn notify(dedicated: &DedicatedConnection, channel: &'static str, node: &str) {
    let told = async {
        let mut connection = dedicated.acquire().await?;
        sqlx::query("SELECT pg_notify($1, $2)").bind(channel).bind(node).execute(&mut *connection).await?;
        connection.keep();
        Ok::<_, sqlx::Error>(())
    };
    if let Err(error) = connect::within(NOTIFIED, told).await {
        tracing::debug!(%error, channel, "failed to notify other nodes; their timers replace the wake-up");
    }
}

/// Signals that the log grew, or that there are deliveries to send. A lost wake-up does no harm, because every follower
/// also has a fallback timer. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Wake {
    log: Topic,
    /// News of the log by shard, beside those of `log`.
    grown: watch::Sender<Growth>,
    deliveries: Topic,
    made_here: broadcast::Sender<Arc<[Addressee]>>,
    others: Others,
    notifier: DedicatedConnection,
    stop: CancellationToken,
}

/// Number of times that the log has grown: by shard on this node, and in any shard on others.
#[derive(Debug, Default)]
struct Growth {
    here: BTreeMap<ShardId, u64>,
    elsewhere: u64,
}

impl Growth {
    fn of(&self, shard: ShardId) -> u64 {
        self.elsewhere + self.here.get(&shard).copied().unwrap_or_default()
    }
}

/// Wake-ups for the log of one shard. The commits of this node in other shards do not wake it.
#[derive(Debug)]
pub struct ShardWake {
    shard: ShardId,
    grown: watch::Receiver<Growth>,
    seen: u64,
}

impl ShardWake {
    /// Waits until the log may have grown since the last call.
    pub async fn changed(&mut self) {
        let (shard, seen) = (self.shard, self.seen);
        let grown = self.grown.wait_for(|grown| grown.of(shard) != seen).await.map(|grown| grown.of(shard));
        match grown {
            Ok(grown) => self.seen = grown,
            Err(_) => std::future::pending().await, // the ledger is closed
        }
    }
}

/// A webhook with new deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Addressee {
    pub shard: ShardId,
    pub webhook_id: WebhookId,
    pub account_id: AccountId,
}

/// Wake-ups for deliveries that are ready to be sent.
#[derive(Clone, Debug)]
pub struct NewDeliveries {
    /// Changes when there may be deliveries to send. The receiver must query the database for them.
    pub anywhere: watch::Receiver<u64>,
    /// Webhooks for which this node's projector has written due first attempts. The receiver need not query for them.
    pub here: broadcast::Sender<Arc<[Addressee]>>,
}

impl NewDeliveries {
    /// Returns a source that never signals anything.
    pub fn none() -> NewDeliveries {
        NewDeliveries { anywhere: watch::channel(0).1, here: broadcast::Sender::new(1) }
    }
}

impl Wake {
    /// Starts listening for other nodes' news, and announcing this node's.
    pub fn start(options: &PgConnectOptions, heartbeats: &Heartbeats, tasks: &TaskTracker) -> Wake {
        let (log, deliveries) = (Topic::new("ledger_log"), Topic::new("ledger_deliveries"));
        let made_here = broadcast::Sender::new(BATCHES_BEHIND);
        let others = Others(watch::Sender::new(Instant::now()));
        let dedicated = connect::notifier(options);
        let (grown, stop) = (watch::Sender::default(), CancellationToken::new());
        let wake = Wake { log, grown, deliveries, made_here, others, notifier: dedicated.clone(), stop };
        let node = Uuid::new_v4().to_string();
        for topic in wake.topics() {
            let heartbeat = heartbeats.background(format!("notifier {}", topic.channel));
            wake.spawn(topic.clone().announce(dedicated.clone(), node.clone(), wake.others.clone(), heartbeat), tasks);
        }
        let heartbeat = heartbeats.background("listener");
        wake.spawn(wake.clone().listen(connect::listener(options), dedicated, node, heartbeat), tasks);
        wake
    }

    /// Returns the connection by which nodes tell each other something. Its commits need not be on disk.
    pub fn notifier(&self) -> &DedicatedConnection {
        &self.notifier
    }

    /// Runs a task until [`Wake::stop`].
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static, tasks: &TaskTracker) {
        let stop = self.stop.clone();
        tasks.spawn(async move { _ = stop.run_until_cancelled(work).await });
    }

    fn topics(&self) -> [&Topic; 2] {
        [&self.log, &self.deliveries]
    }

    /// Signals that this node committed events of a shard, or no longer holds up a projection of it.
    pub fn committed(&self, shard: ShardId) {
        self.grown.send_modify(|grown| *grown.here.entry(shard).or_default() += 1);
        self.log.tell();
    }

    /// Signals that a projector of this node committed deliveries for these webhooks, with due first attempts.
    pub fn made_deliveries(&self, addressees: Vec<Addressee>) {
        _ = self.made_here.send(addressees.into()); // this node may have no worker
        self.deliveries.tell_others();
    }

    /// Signals that a projector of this node committed retries of deliveries, or changes of their target.
    pub fn changed_deliveries(&self) {
        self.deliveries.tell();
    }

    /// Returns a receiver that changes whenever the log of any shard has grown.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.log.news.subscribe()
    }

    /// Returns the wake-ups for the log of one shard.
    pub fn subscribe_to(&self, shard: ShardId) -> ShardWake {
        let grown = self.grown.subscribe();
        let seen = grown.borrow().of(shard);
        ShardWake { shard, grown, seen }
    }

    /// Returns the receivers for news of deliveries.
    pub fn deliveries(&self) -> NewDeliveries {
        NewDeliveries { anywhere: self.deliveries.news.subscribe(), here: self.made_here.clone() }
    }

    /// Stops the tasks.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    async fn listen(self, options: PgConnectOptions, dedicated: DedicatedConnection, node: String, heartbeat: Heartbeat) {
        loop {
            heartbeat.beat();
            if let Err(error) = self.listen_once(&options, &dedicated, &node, &heartbeat).await {
                tracing::debug!(%error, "listening for other nodes' news was interrupted");
            }
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
    }

    async fn listen_once(
        &self,
        options: &PgConnectOptions,
        dedicated: &DedicatedConnection,
        node: &str,
        heartbeat: &Heartbeat,
    ) -> Result<(), sqlx::Error> {
        let mut listener = options.listener(TO_LISTEN).await?;
        let channels = self.topics().map(|topic| topic.channel).into_iter().chain([NODES]);
        let listening = tokio::time::timeout(TO_LISTEN, listener.listen_all(channels)).await;
        let ended = match listening {
            Ok(Ok(())) => {
                let is_new = Notify::new();
                tokio::select! {
                    // Announce this node only once it listens, so that it hears every node that then starts to notify it.
                    () = say_hello(dedicated, node, &is_new) => Ok(()),
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
            if heard.channel() == self.log.channel {
                self.grown.send_modify(|grown| grown.elsewhere += 1);
            }
            if let Some(topic) = self.topics().into_iter().find(|topic| topic.channel == heard.channel()) {
                topic.news.send_modify(|n| *n += 1);
            }
        }
    }
}

/// Closes the connection of a listener that may be dead. A dropped listener of sqlx sends a last statement and waits for
/// the result without a deadline. This function first swaps its connection for a live one, and then drops the dead
/// connection.
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

/// Announces this node every few seconds, and immediately when it hears of another node that may not know it.
async fn say_hello(dedicated: &DedicatedConnection, node: &str, is_new: &Notify) {
    loop {
        notify(dedicated, NODES, node).await;
        _ = tokio::time::timeout(HELLO_PAUSE, is_new.notified()).await; // a timeout is fine too
    }
}
