//! Grows the tree with the log and signs what it has become: one node at a time, each shard by its
//! checkpoint row, and every node by its own memory.

use std::sync::Arc;
use std::time::Duration;

use ledger_database::PgConnection;
use ledger_events::ShardId;
use ledger_events::merkle::leaf_hash;
use ledger_events::tile::Edge;
use sqlx::postgres::PgConnectOptions;
use tokio_util::sync::CancellationToken;

use super::checkpoint::{Checkpoint, Trust};
use super::memory::{Memory, MemoryError, Remembered};
use super::signer::{Origin, Signer};
use super::store::{self, Published};
use super::{Refusal, Standing, TreeError};
use crate::ledger::{Ledger, connect, reader};
use crate::telemetry::Metrics;

/// Events in one page, and at most in one step.
const PAGE_EVENTS: u64 = 4_096;
/// Checkpoints are this far apart, unless there is more than a page to catch up with.
const PAUSE: Duration = Duration::from_millis(200);
/// The slow timer, for when no wake-up comes.
const IDLE: Duration = Duration::from_secs(1);
/// How long a step may take, of which every statement may take half.
const DEADLINE: Duration = Duration::from_secs(30);
/// What is refused needs a person.
const REFUSED: Duration = Duration::from_secs(5);

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Signed a tree of this size.
    Signed { size: u64, is_more: bool },
    /// There was nothing new.
    Idle,
    /// Another node holds the tree; what it has published is consistent.
    Elsewhere,
}

/// Follows the log of every shard. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TreeProjector {
    ledger: Ledger,
    line: connect::Line,
    signer: Arc<Signer>,
    origin: Origin,
    memory: Memory,
    standing: Standing,
    metrics: Metrics,
}

impl TreeProjector {
    pub fn new(
        ledger: &Ledger,
        options: &PgConnectOptions,
        signer: Arc<Signer>,
        origin: Origin,
        memory: Memory,
        standing: Standing,
        metrics: Metrics,
    ) -> TreeProjector {
        let (ledger, line) = (ledger.clone(), connect::tree(options));
        TreeProjector { ledger, line, signer, origin, memory, standing, metrics }
    }

    pub async fn run(self, stop: CancellationToken) {
        let mut grown = self.ledger.wake().subscribe();
        let heartbeat = self.ledger.heartbeats().background("tree");
        while !stop.is_cancelled() {
            let (mut is_more, mut pause) = (false, PAUSE);
            for shard in self.ledger.shards() {
                heartbeat.beat();
                match self.once(shard).await {
                    Ok(Step::Signed { is_more: more, .. }) => is_more |= more,
                    Ok(Step::Idle | Step::Elsewhere) => {}
                    // They were logged.
                    Err(TreeError::Refused(_)) => pause = REFUSED,
                    Err(_) => pause = pause.max(IDLE),
                }
            }
            if is_more {
                continue;
            }
            let next = async {
                tokio::time::sleep(pause).await;
                tokio::select! {
                    _ = grown.changed(), if pause == PAUSE => {}
                    () = tokio::time::sleep(IDLE) => {}
                }
            };
            _ = stop.run_until_cancelled(next).await;
        }
    }

    /// One step, and what is to be said of it: in the log, the metrics and `/readyz`.
    pub async fn once(&self, shard: ShardId) -> Result<Step, TreeError> {
        let outcome = connect::within(DEADLINE, self.step(shard)).await;
        match &outcome {
            Ok(_) => {
                if self.standing.set(shard, None) {
                    tracing::info!(shard, "the tree is signed again");
                }
            }
            Err(TreeError::Refused(refusal)) => {
                self.metrics.tree_refused();
                if self.standing.set(shard, Some(refusal)) {
                    tracing::error!(shard, %refusal, "the transparency log is not signed any more; see docs/transparency.md, \"When the signer refuses\"");
                }
            }
            Err(error) => tracing::warn!(shard, %error, "the tree could not be grown; it will be tried again"),
        }
        outcome
    }

    /// Appends the next events and signs the tree: tiles, checkpoint and position in one transaction,
    /// and before it is committed the tree is in this node's memory.
    ///
    /// # Errors
    /// [`TreeError::Refused`] when what is there is not what was signed before.
    pub async fn step(&self, shard: ShardId) -> Result<Step, TreeError> {
        let origin = self.origin.of(shard);
        let mut conn = self.line.acquire().await?;
        let mut tx = conn.begin().await?;
        let held = store::hold(&mut tx, shard).await?;
        // With the tree in hand: what is there now is what everything is compared with.
        let remembered = self.recall(&origin).await?;
        let (newest, epoch) = self.consistent(&mut tx, shard, remembered.as_ref(), held).await?;
        let Some(size) = held else {
            tx.rollback().await?;
            conn.keep();
            self.learn(&origin, remembered.as_ref(), newest.as_ref(), epoch).await?;
            return Ok(Step::Elsewhere);
        };
        let edge = store::edge(&mut *tx, shard, size).await?.filter(|edge| match &newest {
            Some(newest) => newest.size == size && newest.root == edge.root(),
            None => size == 0,
        });
        let edge = edge.ok_or(Refusal::Edge { size })?;

        let (grown, full, is_more) = grow(&mut tx, shard, &edge, remembered.as_ref()).await?;
        let is_published = newest.as_ref().is_some_and(|newest| newest.size == grown.size() && newest.origin == origin);
        if is_published {
            tx.rollback().await?;
            conn.keep();
            self.learn(&origin, remembered.as_ref(), newest.as_ref(), epoch).await?;
            return Ok(Step::Idle);
        }
        let before = newest.as_ref().map_or(origin.as_str(), |newest| newest.origin.as_str());
        if before != origin {
            tracing::warn!(shard, before, now = origin, size = grown.size(), "the log goes on under another origin");
        }
        let checkpoint = Checkpoint { origin: origin.clone(), size: grown.size(), root: grown.root() };
        let note = self.signer.sign(&checkpoint)?.to_string();
        if grown != edge {
            store::write(&mut tx, shard, &edge, &grown, &full).await?;
        }
        store::publish(&mut tx, shard, &checkpoint, &note, &self.signer.verifiers(&origin)?).await?;
        // Published is what is committed; what is not committed may be remembered, for the next step
        // has to arrive at the same tree.
        let tree = Remembered { size: checkpoint.size, root: checkpoint.root, epoch };
        self.keep(&origin, remembered, tree).await?;
        tx.commit().await?;
        conn.keep();
        Ok(Step::Signed { size: checkpoint.size, is_more })
    }

    /// Whether what is published goes on from what this node remembers; the newest checkpoint, and
    /// the epoch.
    async fn consistent(
        &self,
        conn: &mut PgConnection,
        shard: ShardId,
        remembered: Option<&Remembered>,
        held: Option<u64>,
    ) -> Result<(Option<Published>, i64), TreeError> {
        let newest = store::newest(&mut *conn, shard).await?;
        // In this order: the head only grows.
        let (head, epoch) = store::head(&mut *conn, shard).await?;
        let ends = u64::try_from(head).unwrap_or_default();
        let tree = held.max(newest.as_ref().map(|newest| newest.size)).unwrap_or_default();
        let signed = remembered.map_or(tree, |known| known.size.max(tree));
        if ends < signed {
            return Err(Refusal::Cut { head, signed }.into());
        }
        let Some(known) = remembered else { return Ok((newest, epoch)) };
        if epoch < known.epoch {
            return Err(Refusal::Epoch { found: epoch, signed: known.epoch }.into());
        }
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
                // Another node has gone on: it has the same keys, or is none of ours.
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

    /// Remembers what another node has signed, or what was signed before there was a memory.
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
                "the state file has nothing of this log; what the database has is taken for true"
            );
        }
        let tree = Remembered { size: newest.size, root: newest.root, epoch };
        match self.keep(origin, remembered.copied(), tree).await {
            // Whoever shares the file has learnt something itself; the next step compares with that.
            Err(TreeError::Memory(MemoryError::Moved { .. })) => Ok(()),
            kept => kept,
        }
    }

    async fn recall(&self, origin: &str) -> Result<Option<Remembered>, TreeError> {
        let (memory, origin) = (self.memory.clone(), origin.to_owned());
        off_the_runtime(move || Ok(memory.recall(&origin)?)).await
    }

    async fn keep(&self, origin: &str, before: Option<Remembered>, tree: Remembered) -> Result<(), TreeError> {
        let (memory, origin) = (self.memory.clone(), origin.to_owned());
        off_the_runtime(move || Ok(memory.keep(&origin, before.as_ref(), tree)?)).await
    }
}

/// Files are read and written where nobody else waits.
async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TreeError> + Send + 'static,
) -> Result<T, TreeError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(_) => Err(TreeError::Interrupted),
    }
}

type Grown = (Edge, Vec<(ledger_events::tile::Tile, Vec<ledger_events::merkle::Hash>)>, bool);

/// The tree with the next page of events, its new full tiles, and whether there may be more. What
/// was remembered and is not in the tree yet, because the node died in between, is arrived at first.
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
