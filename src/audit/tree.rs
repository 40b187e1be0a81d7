//! Audit of the transparency log's tree: computes it again from the events, and compares it with its tiles, its right
//! edge and all signed checkpoints.

use std::collections::BTreeSet;
use std::collections::VecDeque;

use ledger_database::PgConnection;
use ledger_events::{Position, ShardId};
use transparency_log::checkpoint::Trust;
use transparency_log::merkle::{Hash, leaf_hash};
use transparency_log::note::VerifierKey;
use transparency_log::tile::{Edge, FULL, Tile};

use super::visitor::{Page, Visitor};
use super::{AuditError, Difference, Findings, Reach, Refused};
use crate::ledger::reader;
use crate::transparency::incidents;
use crate::transparency::store::{self, Published};

const PAGE_CHECKPOINTS: i64 = 1_000;

/// State of the tree's tables, read in one snapshot.
struct Kept {
    /// Largest size that any of the tables states, so that emptying one of them cannot hide events.
    size: u64,
    /// Size of the newest checkpoint.
    signed: u64,
    /// Size according to the projection's own checkpoint.
    grown: u64,
    edge: Option<Edge>,
    keys: Vec<VerifierKey>,
}

/// Visitor that compares the tree up to the largest size in its tables. Reports the first event that differs from the
/// tree, and the first checkpoint that the events do not yield.
pub struct Tree {
    shard: ShardId,
    kept: Kept,
    edge: Edge,
    /// Tiles that have become full and are not compared yet.
    full: Vec<(Tile, Vec<Hash>)>,
    checkpoints: Checkpoints,
    /// Size of the last checkpoint that agrees with the events.
    last_good: u64,
    /// Set from the first differing event on, because every hash above it differs too.
    is_bad: bool,
    /// Set when the log lacks an event that the tree has.
    is_cut: bool,
}

impl Tree {
    /// Reads the tree's tables, and reports differences among them.
    pub async fn start(conn: &mut PgConnection, shard: ShardId, findings: &mut Findings) -> Result<(Tree, Reach), AuditError> {
        let kept = kept(conn, shard).await?;
        check_refusals(conn, shard, findings).await?;
        let head = reader::head(&mut *conn, shard).await?;
        let size = i64::try_from(kept.size).unwrap_or(i64::MAX);
        let reach = Reach { shard, projection: store::PROJECTION, checkpoint: size, head };
        if size > head {
            findings.add(Difference::Checkpoint { shard, projection: store::PROJECTION, checkpoint: size, head });
        }
        if kept.signed != kept.size || kept.grown != kept.size {
            let Kept { size: most, signed, grown, .. } = kept;
            let problem = format!(
                "the tree has {most} events, but its newest checkpoint covers {signed} and its own row states {grown}: rows are missing"
            );
            let position = i64::try_from(signed.min(grown)).unwrap_or(i64::MAX).saturating_add(1);
            findings.add(Difference::Tree { shard, position, problem });
        }
        let (edge, checkpoints) = (Edge::default(), Checkpoints::default());
        let mut tree = Tree { shard, kept, edge, full: vec![], checkpoints, last_good: 0, is_bad: false, is_cut: false };
        tree.check_checkpoints(conn, findings).await?;
        Ok((tree, reach))
    }

    /// Compares the right edge, or reports the first event that the log lacks.
    pub fn end(mut self, findings: &mut Findings) {
        if self.edge.size() < self.kept.size {
            let problem = "the tree has an event here, but the log has none".to_owned();
            let position = i64::try_from(self.edge.size()).unwrap_or(i64::MAX).saturating_add(1);
            findings.add(Difference::Tree { shard: self.shard, position, problem });
        } else {
            self.check_edge(findings);
        }
    }
}

impl Visitor for Tree {
    async fn visit(&mut self, conn: &mut PgConnection, page: &Page, findings: &mut Findings) -> Result<(), AuditError> {
        for (stored, _) in page.events() {
            if self.is_done() {
                break;
            }
            if u64::try_from(stored.position) != Ok(self.edge.size() + 1) {
                self.is_cut = true; // the visitor of positions reports the gap
                break;
            }
            let full = &mut self.full;
            self.edge.append(leaf_hash(&stored.leaf().to_bytes()), |tile, hashes| full.push((tile, hashes)));
            self.check_checkpoints(conn, findings).await?;
        }
        self.check_tiles(conn, findings).await
    }

    fn is_done(&self) -> bool {
        self.is_cut || self.edge.size() >= self.kept.size
    }
}

/// Reports the refusals of nodes, with the events that were signed after the database's newest checkpoint.
async fn check_refusals(conn: &mut PgConnection, shard: ShardId, findings: &mut Findings) -> Result<(), AuditError> {
    let situation = incidents::situation(conn, shard).await?;
    for refusal in &situation.refusals {
        let kept = situation.kept(&refusal.origin).map_or(0, |kept| i64::try_from(kept.size).unwrap_or(i64::MAX));
        let signed = refusal.signed();
        let missing = refusal.size.map(|size| (kept.min(refusal.head).min(size - 1).max(0) + 1, size));
        findings.add(Difference::Refused(Refused {
            shard,
            node: refusal.node,
            host: refusal.host.clone(),
            refused_at: refusal.refused_at,
            reason: refusal.reason.clone(),
            missing,
            root: signed.map(|signed| signed.root),
        }));
    }
    Ok(())
}

async fn kept(conn: &mut PgConnection, shard: ShardId) -> Result<Kept, AuditError> {
    sqlx::raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ").execute(&mut *conn).await?;
    let signed = store::newest(&mut *conn, shard).await?.map_or(0, |newest| newest.size);
    let (grown, tiles) = store::grown(&mut *conn, shard).await?;
    let size = signed.max(grown).max(tiles);
    let edge = store::edge(&mut *conn, shard, size).await?;
    let keys = store::keys(&mut *conn, shard).await?;
    sqlx::raw_sql("COMMIT").execute(conn).await?;
    Ok(Kept { size, signed, grown, edge, keys: keys.iter().filter_map(|key| key.verifier_key.parse().ok()).collect() })
}

/// Iterator over checkpoints in the order of their size, read in pages.
#[derive(Default)]
struct Checkpoints {
    waiting: VecDeque<Published>,
    last: Option<(i64, String)>,
    is_end: bool,
}

impl Checkpoints {
    /// Returns the next checkpoint, if it has this size.
    async fn at(&mut self, conn: &mut PgConnection, shard: ShardId, size: u64) -> Result<Option<Published>, sqlx::Error> {
        if self.waiting.is_empty() && !self.is_end {
            let after = self.last.as_ref().map_or((-1, ""), |(size, origin)| (*size, origin));
            self.waiting = store::checkpoints_after(conn, shard, after, PAGE_CHECKPOINTS).await?.into();
            self.is_end = self.waiting.is_empty();
            self.last = self.waiting.back().map(|last| (i64::try_from(last.size).unwrap_or(i64::MAX), last.origin.clone()));
        }
        let is_it = self.waiting.front().is_some_and(|next| next.size <= size);
        Ok(if is_it { self.waiting.pop_front() } else { None })
    }
}

impl Tree {
    async fn check_checkpoints(&mut self, conn: &mut PgConnection, findings: &mut Findings) -> Result<(), AuditError> {
        let shard = self.shard;
        while let Some(signed) = self.checkpoints.at(conn, shard, self.edge.size()).await? {
            let position = i64::try_from(signed.size).unwrap_or(i64::MAX);
            let mut add = |problem: String| findings.add(Difference::Tree { shard, position, problem });
            let keys = self.kept.keys.iter().filter(|key| key.name() == signed.origin).cloned().collect();
            let opened = Trust::in_keys(keys).open(&signed.note).map(|opened| opened.checkpoint);
            match opened {
                Ok(c) if c.size == signed.size && c.root == signed.root && c.origin == signed.origin => {}
                Ok(_) => add("the note of the checkpoint differs from its row".to_owned()),
                Err(error) => add(format!("the note of the checkpoint is invalid: {error}")),
            }
            if signed.root == self.edge.root() {
                self.last_good = signed.size;
            } else if !self.is_bad {
                self.is_bad = true;
                let from = self.last_good + 1;
                add(format!(
                    "the checkpoint that was signed here covers other events: one of the positions {from} to {position} was changed"
                ));
            }
        }
        Ok(())
    }

    async fn check_tiles(&mut self, conn: &mut PgConnection, findings: &mut Findings) -> Result<(), AuditError> {
        let full = std::mem::take(&mut self.full);
        let wanted: BTreeSet<Tile> = full.iter().map(|(tile, _)| *tile).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let kept = store::tiles(conn, self.shard, &wanted).await?;
        for (tile, hashes) in &full {
            let kept = kept.get(&(tile.level, tile.index)).filter(|kept| kept.len() == usize::from(FULL));
            self.compare(*tile, hashes, kept.map(Vec::as_slice), findings);
        }
        Ok(())
    }

    fn check_edge(&mut self, findings: &mut Findings) {
        let (edge, kept) = (self.edge.clone(), self.kept.edge.take());
        for (level, row) in (0_u8..).zip(edge.rows()).filter(|(_, row)| !row.is_empty()) {
            let tile = Tile { level, index: edge.size() >> (8 * level) >> 8, width: u16::try_from(row.len()).unwrap_or(FULL) };
            let kept = kept.as_ref().and_then(|kept| kept.rows().get(usize::from(level)));
            self.compare(tile, row, kept.map(Vec::as_slice), findings);
        }
    }

    /// Reports the first event that differs from the tree in a tile. Every tile above a wrong event is wrong too; those
    /// are not reported.
    fn compare(&mut self, tile: Tile, made: &[Hash], kept: Option<&[Hash]>, findings: &mut Findings) {
        let shard = self.shard;
        let spanned =
            |hash: u64| i64::try_from((tile.index * u64::from(FULL) + hash) << (8 * tile.level)).map_or(i64::MAX, |n| n + 1);
        let position: Position = match kept {
            Some(kept) => match (0_u64..).zip(made.iter().zip(kept)).find(|(_, (made, kept))| made != kept) {
                Some((hash, _)) => spanned(hash),
                None => return,
            },
            None => spanned(0),
        };
        let problem = match kept {
            None => format!("{} of the tree is missing", tile.path()),
            Some(_) if tile.level == 0 => "the event differs from the one in the tree".to_owned(),
            Some(_) if self.is_bad => return,
            Some(_) => format!("{} of the tree does not match its events", tile.path()),
        };
        self.is_bad = true;
        findings.add(Difference::Tree { shard, position, problem });
    }
}
