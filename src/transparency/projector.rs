//! Grows each shard's Merkle tree with its log, and signs the resulting checkpoints. One node at a time works on a shard,
//! by locking the shard's checkpoint row. Every node compares the tree with its own signer state.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ledger_database::{PgConnectOptions, PgConnection};
use ledger_events::ShardId;
use tokio_util::sync::CancellationToken;
use transparency_log::checkpoint::{Checkpoint, Trust};
use transparency_log::merkle::leaf_hash;
use transparency_log::tile::Edge;

use super::incidents::{self, Incident};
use super::peers::{self, Identity, Peers};
use super::refusal::Standing;
use super::signer::{Origin, Signer};
use super::signer_state::{Remembered, SignerState, SignerStateError};
use super::store::{self, Published};
use super::{Refusal, TreeError};
use crate::ledger::{Ledger, connect, reader};
use crate::telemetry::{self, Metrics};

/// Number of events in a page, and the largest number in one step.
const PAGE_EVENTS: u64 = 4_096;
/// Pause between two checkpoints, unless more than one page is waiting.
const PAUSE: Duration = Duration::from_millis(200);
/// Interval of the fallback timer, for lost wake-ups.
const IDLE: Duration = Duration::from_secs(1);
/// Deadline of one step. Each statement may take half of it.
const DEADLINE: Duration = Duration::from_secs(30);
/// Pause after a refusal, which only a person can resolve.
const REFUSED: Duration = Duration::from_secs(5);
/// Longest wait, on a new database server, for every other node to compare its state with it. Nothing is signed in the
/// meantime. A node whose connection died with the old server is back within that time. A node that is gone for good no
/// longer blocks signing afterwards.
const PATIENCE: Duration = Duration::from_secs(60);

/// Outcome of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigningStep {
    /// The step signed a tree of this size. `is_more`: the log may have more events waiting.
    Signed { size: u64, is_more: bool },
    /// The log had no new events.
    Idle,
    /// Another node holds the tree. The tree that it has published is consistent with this node's state.
    Elsewhere,
    /// The database is on a new server, and other nodes have not compared their states with it yet.
    Waiting,
}

/// Grows and signs the trees of all shards. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TreeProjector {
    ledger: Ledger,
    dedicated: connect::DedicatedConnection,
    signer: Arc<Signer>,
    origin: Origin,
    state: SignerState,
    me: Identity,
    standing: Standing,
    metrics: Metrics,
    /// The server on which this node last found each shard's log, and the time when it first found it there.
    servers: Arc<Mutex<HashMap<ShardId, (String, Instant)>>>,
    patience: Duration,
}

impl TreeProjector {
    pub fn new(
        ledger: &Ledger,
        options: &PgConnectOptions,
        signer: Arc<Signer>,
        origin: Origin,
        state: SignerState,
        metrics: Metrics,
    ) -> TreeProjector {
        TreeProjector {
            ledger: ledger.clone(),
            dedicated: connect::tree(options),
            signer,
            origin,
            me: Identity { node: state.id(), host: telemetry::host() },
            state,
            standing: Standing::default(),
            metrics,
            servers: Arc::default(),
            patience: PATIENCE,
        }
    }

    /// Sets how long to wait for other nodes to compare their states, instead of 60 seconds.
    pub fn waiting(self, patience: Duration) -> TreeProjector {
        TreeProjector { patience, ..self }
    }

    /// Returns this node's identity, as other nodes see it.
    pub fn identity(&self) -> &Identity {
        &self.me
    }

    pub async fn run(self, stop: CancellationToken) {
        let mut grown = self.ledger.wake().subscribe();
        let heartbeat = self.ledger.heartbeats().background("tree");
        let mut not_before: HashMap<ShardId, Instant> = HashMap::new();
        while !stop.is_cancelled() {
            let mut is_more = false;
            for shard in self.ledger.shards() {
                heartbeat.beat();
                if not_before.get(&shard).is_some_and(|at| Instant::now() < *at) {
                    continue;
                }
                match self.once(shard).await {
                    Ok(SigningStep::Signed { is_more: more, .. }) => is_more |= more,
                    Ok(SigningStep::Idle | SigningStep::Elsewhere | SigningStep::Waiting) => {}
                    // `once` has logged these errors.
                    Err(TreeError::Refused(_)) => _ = not_before.insert(shard, Instant::now() + REFUSED),
                    Err(_) => _ = not_before.insert(shard, Instant::now() + IDLE),
                }
            }
            if is_more {
                continue;
            }
            let next = async {
                tokio::time::sleep(PAUSE).await;
                _ = tokio::time::timeout(IDLE, grown.changed()).await; // a timeout is fine too
            };
            _ = stop.run_until_cancelled(next).await;
        }
    }

    /// Runs one step within the deadline, and reports its outcome in the log and the metrics.
    pub async fn once(&self, shard: ShardId) -> Result<SigningStep, TreeError> {
        let outcome = connect::within(DEADLINE, self.step(shard)).await;
        match &outcome {
            Ok(_) => {
                if self.standing.set(shard, None) {
                    tracing::info!(shard, "signing resumed");
                }
            }
            Err(TreeError::Refused(refusal)) => {
                self.metrics.tree_refused();
                if self.standing.set(shard, Some(refusal)) {
                    tracing::error!(shard, %refusal, "refused to sign the transparency log; see docs/transparency.md, \"When the signer refuses\"");
                }
            }
            Err(error) => tracing::warn!(shard, %error, "failed to grow the tree; retrying"),
        }
        outcome
    }

    /// Appends the next events to the tree and signs it. Tiles, checkpoint and position are written in one transaction.
    /// The tree is in this node's state before that transaction commits.
    ///
    /// # Errors
    /// Returns [`TreeError::Refused`] when the log contradicts what was signed before, according to this node's state or
    /// another node's. A contradiction that this node finds is recorded in the database, which stops the other nodes too.
    pub async fn step(&self, shard: ShardId) -> Result<SigningStep, TreeError> {
        let mut conn = self.dedicated.acquire().await?;
        let mut tx = conn.begin().await?;
        let incidents = incidents::of(&mut tx, shard).await?;
        let origin = incidents::present(self.origin.of(shard), &incidents);
        match self.step_in(&mut tx, shard, &origin, &incidents).await {
            Ok(step) => {
                // Only a committed tree is published. After a tree that was not committed, the next step arrives at the same one.
                tx.commit().await?;
                conn.keep();
                Ok(step)
            }
            Err(TreeError::Refused(refusal)) => {
                tx.rollback().await?;
                if refusal.is_of_another() {
                    conn.keep();
                    return Err(refusal.into());
                }
                let remembered = self.recall(&origin).await?;
                // The refusal must be recorded even if the database cannot say what was signed under another origin.
                let before = self.or_before(remembered, &mut conn, shard, &incidents).await;
                let remembered = before.unwrap_or_else(|error| {
                    tracing::warn!(shard, %error, "failed to look for trees of other origins");
                    remembered
                });
                match peers::refuse(&mut conn, shard, &origin, &self.me, &refusal, remembered.as_ref()).await {
                    Ok(()) => conn.keep(),
                    // The next step tries again. Until then, other nodes wait a limited time for this one.
                    Err(error) => tracing::error!(shard, %refusal, %error, "failed to record the refusal to sign"),
                }
                Err(refusal.into())
            }
            Err(error) => Err(error),
        }
    }

    async fn step_in(
        &self,
        tx: &mut PgConnection,
        shard: ShardId,
        origin: &str,
        incidents: &[Incident],
    ) -> Result<SigningStep, TreeError> {
        let held = store::hold(&mut *tx, shard).await?;
        // Read the state while holding the tree, so that the comparison uses its latest state.
        let remembered = self.recall(origin).await?;
        let known = self.or_before(remembered, &mut *tx, shard, incidents).await?;
        let (newest, epoch) = self.consistent(&mut *tx, shard, known.as_ref(), held).await?;
        let Some(size) = held else {
            // This step does not read the log. Other nodes must not take it that a tree beyond the newest one was compared.
            let reaches = |known: &Remembered| newest.as_ref().is_some_and(|newest| newest.size >= known.size);
            self.meet(&mut *tx, shard, known.as_ref().is_none_or(reaches)).await?;
            self.learn(origin, remembered.as_ref(), newest.as_ref(), epoch).await?;
            return Ok(SigningStep::Elsewhere);
        };
        let edge = store::edge(&mut *tx, shard, size).await?.filter(|edge| match &newest {
            Some(newest) => newest.size == size && newest.root == edge.root(),
            None => size == 0,
        });
        let edge = edge.ok_or(Refusal::Edge { size })?;
        let (grown, full, is_more) = grow(&mut *tx, shard, &edge, known.as_ref()).await?;

        let peers = self.meet(&mut *tx, shard, true).await?;
        self.withdraw(&mut *tx, shard, &peers, &edge, held).await?;
        let is_published = newest.as_ref().is_some_and(|newest| newest.size == grown.size() && newest.origin == origin);
        if is_published {
            self.learn(origin, remembered.as_ref(), newest.as_ref(), epoch).await?;
            return Ok(SigningStep::Idle);
        }
        if !self.has_heard(&mut *tx, shard, &peers).await? {
            return Ok(SigningStep::Waiting);
        }
        let before = newest.as_ref().map_or(origin, |newest| newest.origin.as_str());
        if before != origin {
            tracing::warn!(shard, before, now = origin, size = grown.size(), "the log continues under a new origin");
        }
        let checkpoint = Checkpoint { origin: origin.to_owned(), size: grown.size(), root: grown.root() };
        let note = self.signer.sign(&checkpoint)?.to_string();
        if grown != edge {
            store::write(&mut *tx, shard, &edge, &grown, &full).await?;
        }
        store::publish(&mut *tx, shard, &checkpoint, &note, &self.signer.verifiers(origin)?).await?;
        let tree = Remembered { size: checkpoint.size, root: checkpoint.root, epoch };
        self.keep(origin, remembered, tree).await?;
        Ok(SigningStep::Signed { size: checkpoint.size, is_more })
    }

    /// Withdraws this node's refusals, if the log agrees with what the node remembered.
    ///
    /// The state file may have been lost since, or the origin may have changed. A refusal also stores the tree that the node
    /// remembered, and it stays open until the log agrees with that tree.
    async fn withdraw(
        &self,
        tx: &mut PgConnection,
        shard: ShardId,
        peers: &Peers,
        edge: &Edge,
        held: Option<u64>,
    ) -> Result<(), TreeError> {
        let mut has_refused = false;
        for refused in peers.own_refusals(&self.me) {
            has_refused = true;
            if let Some(recorded) = refused.remembered() {
                self.consistent(&mut *tx, shard, Some(&recorded), held).await?;
                grow(&mut *tx, shard, edge, Some(&recorded)).await?;
            }
        }
        if has_refused {
            peers::withdraw(tx, shard, &self.me).await?;
        }
        Ok(())
    }

    /// Reads the other nodes' refusals. Records that this node's state agrees with the current server, if all of it was compared.
    async fn meet(&self, tx: &mut PgConnection, shard: ShardId, has_compared: bool) -> Result<Peers, TreeError> {
        let peers = Peers::read(&mut *tx, shard, &self.me).await?;
        self.seen_since(shard, peers.server());
        if let Some(refusal) = peers.refusal(&self.me) {
            return Err(refusal.into());
        }
        if has_compared {
            peers.appear(tx, shard, &self.me).await?;
        }
        Ok(peers)
    }

    /// Returns the time since when this node has found the log on this server.
    fn seen_since(&self, shard: ShardId, server: &str) -> Instant {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, since) = servers.entry(shard).or_insert_with(|| (server.to_owned(), Instant::now()));
        if known != server {
            (*known, *since) = (server.to_owned(), Instant::now());
        }
        *since
    }

    /// Returns whether every other node has compared its state with this server, or the wait for it has ended.
    async fn has_heard(&self, tx: &mut PgConnection, shard: ShardId, peers: &Peers) -> Result<bool, sqlx::Error> {
        if peers.unheard.is_empty() {
            return Ok(true);
        }
        let nodes: Vec<String> = peers.unheard.iter().map(|peer| format!("{} on {}", peer.node, peer.host)).collect();
        if self.seen_since(shard, peers.server()).elapsed() < self.patience {
            tracing::info!(
                shard,
                ?nodes,
                "waiting to sign on the new database server until these nodes have compared their states with it"
            );
            return Ok(false);
        }
        tracing::warn!(shard, ?nodes, "signing without the states of these nodes, which did not return in time");
        peers.give_up(tx, shard).await?;
        Ok(true)
    }

    /// Checks that the published tree extends the remembered one. Returns the newest checkpoint and the epoch.
    async fn consistent(
        &self,
        conn: &mut PgConnection,
        shard: ShardId,
        remembered: Option<&Remembered>,
        held: Option<u64>,
    ) -> Result<(Option<Published>, i64), TreeError> {
        let newest = store::newest(&mut *conn, shard).await?;
        // Read the head after the newest checkpoint: the head only grows, so it cannot seem too small.
        let (head, epoch) = store::head(&mut *conn, shard).await?;
        let tree = held.max(newest.as_ref().map(|newest| newest.size)).unwrap_or_default();
        if let Some(refusal) = Refusal::by_head(head, epoch, tree, remembered) {
            return Err(refusal.into());
        }
        let Some(known) = remembered else { return Ok((newest, epoch)) };
        if let Some(newest) = newest.as_ref().filter(|newest| newest.size >= known.size) {
            let root =
                if newest.size == known.size { Ok(newest.root) } else { store::root_at(&mut *conn, shard, known.size).await };
            match root {
                Ok(root) if root == known.root => {}
                Ok(_) => return Err(Refusal::Rewritten { size: known.size }.into()),
                Err(TreeError::Missing(_)) => return Err(Refusal::Edge { size: newest.size }.into()),
                Err(error) => return Err(error),
            }
            if newest.size > known.size {
                // Another node has extended the tree. It is one of ours only if it signs with the same keys.
                let trust = Trust::in_keys(self.signer.verifiers(&newest.origin)?);
                let opened = trust.open(&newest.note).ok().map(|opened| opened.checkpoint);
                let is_it = |c: &Checkpoint| c.size == newest.size && c.root == newest.root && c.origin == newest.origin;
                if !opened.as_ref().is_some_and(is_it) || store::root_at(&mut *conn, shard, newest.size).await? != newest.root {
                    return Err(Refusal::Stranger { size: newest.size }.into());
                }
            }
        }
        Ok((newest, epoch))
    }

    /// Remembers a tree that another node has signed, or that was signed before this node had a state.
    async fn learn(
        &self,
        origin: &str,
        remembered: Option<&Remembered>,
        newest: Option<&Published>,
        epoch: i64,
    ) -> Result<(), TreeError> {
        let Some(newest) = newest.filter(|newest| newest.origin == origin) else { return Ok(()) };
        let is_known =
            remembered.is_some_and(|known| known.size > newest.size || known.size == newest.size && known.epoch == epoch);
        if is_known {
            return Ok(());
        }
        if remembered.is_none() {
            tracing::warn!(
                origin,
                size = newest.size,
                "the state file has no tree of this log; trusting the one in the database"
            );
        }
        let tree = Remembered { size: newest.size, root: newest.root, epoch };
        match self.keep(origin, remembered.copied(), tree).await {
            // The other process that shares the file has stored a newer tree. The next step compares with that one.
            Err(TreeError::SignerState(SignerStateError::Moved { .. })) => Ok(()),
            kept => kept,
        }
    }

    /// Returns the remembered tree, or else the one that this node remembers under the origin of the newest checkpoint. A new
    /// origin in the configuration does not free a log from what was signed under the former one: only an incident does.
    async fn or_before(
        &self,
        remembered: Option<Remembered>,
        conn: &mut PgConnection,
        shard: ShardId,
        incidents: &[Incident],
    ) -> Result<Option<Remembered>, TreeError> {
        let newest = if remembered.is_none() { store::newest(conn, shard).await? } else { None };
        match newest.filter(|newest| !incidents::have_ended(newest, incidents)) {
            Some(newest) => self.recall(&newest.origin).await,
            None => Ok(remembered),
        }
    }

    async fn recall(&self, origin: &str) -> Result<Option<Remembered>, TreeError> {
        let (state, origin) = (self.state.clone(), origin.to_owned());
        off_the_runtime(move || Ok(state.recall(&origin)?)).await
    }

    async fn keep(&self, origin: &str, before: Option<Remembered>, tree: Remembered) -> Result<(), TreeError> {
        let (state, origin) = (self.state.clone(), origin.to_owned());
        off_the_runtime(move || Ok(state.keep(&origin, before.as_ref(), tree)?)).await
    }
}

/// Runs file I/O on a blocking thread, so that it does not delay other tasks.
async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TreeError> + Send + 'static,
) -> Result<T, TreeError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(_) => Err(TreeError::Interrupted),
    }
}

type Grown = (Edge, Vec<(transparency_log::tile::Tile, Vec<transparency_log::merkle::Hash>)>, bool);

/// Appends the next page of events to the edge. Returns the new edge, the tiles that became full, and whether there may
/// be more events. If a node died between remembering and committing a tree, this first grows the tree to the remembered
/// size.
async fn grow(conn: &mut PgConnection, shard: ShardId, edge: &Edge, remembered: Option<&Remembered>) -> Result<Grown, TreeError> {
    let (mut grown, mut full) = (edge.clone(), vec![]);
    let least = remembered.map_or(0, |known| known.size);
    loop {
        let wanted = match least.saturating_sub(grown.size()) {
            0 => PAGE_EVENTS,
            missing => missing.min(PAGE_EVENTS),
        };
        let after = i64::try_from(grown.size()).unwrap_or(i64::MAX);
        let page = reader::stored_after(&mut *conn, shard, after, i64::try_from(wanted).unwrap_or(i64::MAX)).await?;
        for (position, stored) in (after + 1..).zip(&page) {
            if stored.position != position {
                return Err(Refusal::Gap(position).into());
            }
            grown.append(leaf_hash(&stored.leaf().to_bytes()), |tile, hashes| full.push((tile, hashes)));
        }
        if grown.size() < least && page.is_empty() {
            return Err(Refusal::Gap(after + 1).into());
        }
        if grown.size() >= least {
            let known = remembered.filter(|known| known.size == grown.size());
            if let Some(known) = known.filter(|known| known.root != grown.root()) {
                return Err(Refusal::Rewritten { size: known.size }.into());
            }
            return Ok((grown, full, page.len() as u64 == wanted));
        }
    }
}
