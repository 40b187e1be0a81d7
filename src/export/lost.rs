//! Finds the events of an export, or of a copy of the tiles, that a database lacks, for example after a restore to an
//! earlier moment.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use ledger_database::PgPool;
use ledger_events::log::SignedTree;
use ledger_events::{Position, ShardId};
use ledger_projections::envelope::iso8601;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;
use transparency_log::leaf::Leaf;
use transparency_log::merkle::{Hash, leaf_hash};
use transparency_log::tile::{FULL, Tile};
use uuid::Uuid;

use super::offline::OfflineError;
use super::offline::leaves::{Bundle, Directory};
use super::{ExportError, Manifest, line, read, tiles};
use crate::audit::Progress;
use crate::ledger::reader::{self, ReadError, Stored};
use crate::transparency::incidents;

/// Number of events that one query reads.
const PAGE_EVENTS: i64 = 1_000;

/// Reason why a copy of the log could not be compared with the database.
#[derive(Debug, thiserror::Error)]
pub enum LostError {
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Files(#[from] OfflineError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{} does not match its manifest", .0.display())]
    NotWhole(PathBuf),
    #[error("{} has no checkpoint: it is not a copy of the tiles", .0.display())]
    NoCheckpoint(PathBuf),
    #[error("the database has no shard {0}")]
    NoShard(ShardId),
    #[error("{} has events of shard {found}: compare it with --shard {found}", .path.display())]
    OtherShard { path: PathBuf, found: ShardId },
    #[error("{}: position {next} follows position {last}: run `verify --export`", .path.display())]
    Order { path: PathBuf, last: Position, next: Position },
    #[error("{}: the entry of position {position} does not match its tile: run `verify --tiles`", .path.display())]
    Entry { path: PathBuf, position: Position },
}

/// A copy of the log outside the database.
#[derive(Clone, Debug)]
pub enum KeptLog {
    Export { path: PathBuf, manifest: Option<Box<Manifest>> },
    Tiles { path: PathBuf, size: u64 },
}

/// An event of the copy.
#[derive(Debug)]
struct KeptEvent {
    position: Position,
    /// Hash of the event's leaf.
    hash: Hash,
    /// The event itself. None if the copy has only hashes.
    stored: Option<Stored>,
}

/// Result of a comparison.
#[derive(Debug)]
pub struct Lost {
    /// Number of events of the copy. Each was compared with the event at its position in the database.
    pub compared: u64,
    /// Events that the database lacks, in the order of the log.
    pub events: Vec<LostEvent>,
    /// First and last position that were signed and are lost, and that the copy does not reach.
    pub unlisted: Option<(Position, Position)>,
    /// Description of the selection, if the export has gaps.
    pub part: Option<String>,
}

/// An event of the copy that the database lacks. Everything but its position and hash is none, if the copy has only hashes.
#[derive(Debug, Serialize)]
pub struct LostEvent {
    pub position: Position,
    /// Whether the database has another event at this position.
    pub is_replaced: bool,
    pub recorded_at: Option<String>,
    pub r#type: Option<String>,
    /// Stream in the form `order/42`.
    pub stream: Option<String>,
    pub account_id: Option<i64>,
    pub reference_code: Option<String>,
    pub client_reference: Option<String>,
    pub amount: Option<String>,
    pub currency: Option<String>,
    /// Reference numbers of the vouchers that the event delivered.
    pub vouchers: Vec<String>,
    pub request_id: Option<String>,
    pub event_id: Option<Uuid>,
    /// Hash of the event's leaf, in hex.
    pub leaf_hash: String,
}

impl Lost {
    /// Returns whether the database has everything that the copy has, and that was signed.
    pub fn is_nothing(&self) -> bool {
        self.events.is_empty() && self.unlisted.is_none()
    }

    /// Counts the lost events by type. Events without content do not count.
    pub fn by_type(&self) -> BTreeMap<&str, u64> {
        let mut counts = BTreeMap::new();
        for event_type in self.events.iter().filter_map(|event| event.r#type.as_deref()) {
            *counts.entry(event_type).or_default() += 1;
        }
        counts
    }
}

/// Compares a copy of the log with a shard's log in the database. Events that are appended meanwhile do not count.
///
/// # Errors
/// Returns an error when the copy cannot be read, is not in the order of the log or belongs to another shard, and when the
/// database fails.
pub async fn find(pool: &PgPool, shard: ShardId, kept: &KeptLog, progress: impl Fn(Progress)) -> Result<Lost, LostError> {
    let head = reader::head(pool, shard).await.map_err(|error| match error {
        sqlx::Error::RowNotFound => LostError::NoShard(shard),
        error => error.into(),
    })?;
    let mut log = Log { pool, shard, head, window: VecDeque::new() };
    let (mut events, mut compared, mut last, mut agreed) = (vec![], 0, 0, 0);
    let mut pages = kept.pages(shard);
    while let Some(page) = pages.recv().await {
        for event in page? {
            let found = log.hash_at(event.position).await?;
            (compared, last) = (compared + 1, event.position);
            match found == Some(event.hash) {
                true => agreed = event.position,
                false => events.push(event.lost(found.is_some())),
            }
        }
        progress(Progress { stage: "compare", shard, done: last, total: kept.reached().max(last) });
    }
    let unlisted = unlisted(pool, shard, agreed, kept.reached().max(last)).await?;
    Ok(Lost { compared, events, unlisted, part: kept.part() })
}

/// Returns the lost positions after `reached`, according to the refusals of nodes and the recorded incidents. A copy that
/// agrees with the database on an incident was made after it, so that incident does not count.
async fn unlisted(
    pool: &PgPool,
    shard: ShardId,
    agreed: Position,
    reached: Position,
) -> Result<Option<(Position, Position)>, LostError> {
    let mut connection = pool.acquire().await?;
    let situation = incidents::situation(&mut connection, shard).await?;
    let size = |tree: &SignedTree| Position::try_from(tree.size).unwrap_or(Position::MAX);
    let refused = situation.refusals.iter().map(|refusal| (refusal.signed(), situation.kept(&refusal.origin)));
    let recorded = situation.incidents.iter().filter(|incident| incident.position > agreed);
    let recorded = recorded.map(|incident| (incident.event.signed.clone(), incident.event.kept.clone()));
    let ranges = refused.chain(recorded).filter_map(|(signed, kept)| {
        let last = size(signed.as_ref()?);
        let first = kept.as_ref().map_or(0, size).min(last - 1).max(reached) + 1;
        (first <= last).then_some((first, last))
    });
    Ok(ranges.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1))))
}

/// The log in the database, read in ascending order.
struct Log<'p> {
    pool: &'p PgPool,
    shard: ShardId,
    head: Position,
    window: VecDeque<Stored>,
}

impl Log<'_> {
    /// Returns the leaf hash of the event at a position, or none if the log has none there. Positions must be requested in
    /// ascending order.
    async fn hash_at(&mut self, position: Position) -> Result<Option<Hash>, sqlx::Error> {
        while self.window.front().is_some_and(|stored| stored.position < position) {
            self.window.pop_front();
        }
        if self.window.is_empty() && position <= self.head {
            self.window = reader::stored_after(self.pool, self.shard, position - 1, PAGE_EVENTS).await?.into();
        }
        let found = self.window.front().filter(|stored| stored.position == position && position <= self.head);
        Ok(found.map(|stored| leaf_hash(&stored.leaf().to_bytes())))
    }
}

impl KeptLog {
    /// Opens an export, with its manifest if it has one.
    ///
    /// # Errors
    /// Returns an error when the manifest cannot be read.
    pub fn export(path: &Path) -> Result<KeptLog, LostError> {
        Ok(KeptLog::Export { path: path.to_owned(), manifest: Manifest::of(path)?.map(Box::new) })
    }

    /// Opens a copy of the tiles, up to the largest checkpoint that it has had.
    ///
    /// # Errors
    /// Returns an error when the directory has no checkpoint, or when it cannot be read.
    pub fn tiles(path: &Path) -> Result<KeptLog, LostError> {
        let greatest = tiles::greatest(path)?.ok_or_else(|| LostError::NoCheckpoint(path.to_owned()))?;
        Ok(KeptLog::Tiles { path: path.to_owned(), size: greatest.size })
    }

    /// Returns the last position that the copy covers, as far as it says so itself.
    fn reached(&self) -> Position {
        match self {
            KeptLog::Export { manifest, .. } => manifest.as_ref().map_or(0, |manifest| manifest.selection.to),
            KeptLog::Tiles { size, .. } => Position::try_from(*size).unwrap_or(Position::MAX),
        }
    }

    /// Describes the selection of an export that has only some of the events up to its end.
    fn part(&self) -> Option<String> {
        let KeptLog::Export { manifest: Some(manifest), .. } = self else { return None };
        let selection = &manifest.selection;
        (selection.has_gaps() || selection.from > 1).then(|| selection.to_string())
    }

    /// Returns the events in pages. A thread reads ahead while a page is compared.
    fn pages(&self, shard: ShardId) -> mpsc::Receiver<Result<Vec<KeptEvent>, LostError>> {
        let (sender, receiver) = mpsc::channel(2);
        let kept = self.clone();
        tokio::task::spawn_blocking(move || {
            // The receiver is gone because the comparison failed. The comparison reports the reason.
            let take = |page| sender.blocking_send(Ok(page)).map_err(|_| LostError::from(ExportError::Broken));
            let read = match &kept {
                KeptLog::Export { path, manifest } => read_export(path, manifest.as_deref(), shard, take),
                KeptLog::Tiles { path, size } => read_tiles(path, *size, shard, take),
            };
            if let Err(error) = read {
                _ = sender.blocking_send(Err(error));
            }
        });
        receiver
    }
}

/// Passes the events of an export to `take`.
fn read_export(
    path: &Path,
    manifest: Option<&Manifest>,
    shard: ShardId,
    mut take: impl FnMut(Vec<KeptEvent>) -> Result<(), LostError>,
) -> Result<(), LostError> {
    let unreadable = |source| ExportError::File { path: path.to_owned(), source };
    if let Some(manifest) = manifest
        && !manifest.describes(path).map_err(unreadable)?
    {
        return Err(LostError::NotWhole(path.to_owned()));
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut last = 0;
    read::each_page(path, threads, parse, |page| {
        for Stored { shard_id, position, .. } in page.iter().filter_map(|kept: &KeptEvent| kept.stored.as_ref()) {
            if *shard_id != shard {
                return Err(LostError::OtherShard { path: path.to_owned(), found: *shard_id });
            }
            if *position <= last {
                return Err(LostError::Order { path: path.to_owned(), last, next: *position });
            }
            last = *position;
        }
        take(page)
    })
}

fn parse(text: &str) -> Result<KeptEvent, String> {
    let stored = line::read(text).map_err(|error| error.to_string())?;
    let hash = leaf_hash(&stored.leaf().to_bytes());
    Ok(KeptEvent { position: stored.position, hash, stored: Some(stored) })
}

/// Passes the events of a copy of the tiles to `take`, tile by tile.
fn read_tiles(
    path: &Path,
    size: u64,
    shard: ShardId,
    mut take: impl FnMut(Vec<KeptEvent>) -> Result<(), LostError>,
) -> Result<(), LostError> {
    let directory = Directory::new(path);
    for tile in Tile::all(size).take_while(|tile| tile.level == 0) {
        let hashes = directory.hashes(tile)?.ok_or_else(|| OfflineError::Missing(tile.path()))?;
        let bundle = directory.entries(tile)?;
        let mut rest = bundle.as_ref().map_or(&[][..], |bundle| &bundle.bytes[..]);
        let first = Position::try_from(tile.index * u64::from(FULL) + 1).unwrap_or(Position::MAX);
        let mut page = vec![];
        for (hash, position) in hashes.into_iter().zip(first..) {
            let stored = match &bundle {
                Some(bundle) => Some(entry(bundle, &mut rest, &hash, position).ok_or_else(|| {
                    let path = path.join(&bundle.path);
                    LostError::Entry { path, position }
                })?),
                None => None,
            };
            if let Some(found) = stored.as_ref().map(|stored| stored.shard_id).filter(|found| *found != shard) {
                return Err(LostError::OtherShard { path: path.to_owned(), found });
            }
            page.push(KeptEvent { position, hash, stored });
        }
        take(page)?;
    }
    Ok(())
}

/// Takes the next entry from the rest of a bundle. Returns none if it is not the event at this position with this hash.
fn entry(bundle: &Bundle, rest: &mut &[u8], hash: &Hash, position: Position) -> Option<Stored> {
    let (entry, after) = bundle.split(rest)?;
    *rest = after;
    let leaf = Leaf::from_bytes(entry).ok()?;
    (leaf_hash(entry) == *hash && leaf.position == position).then(|| leaf.into())
}

impl KeptEvent {
    fn lost(self, is_replaced: bool) -> LostEvent {
        let KeptEvent { position, hash, stored } = self;
        let parsed = |text: Option<&String>| text.and_then(|text| serde_json::from_str::<Value>(text).ok()).unwrap_or_default();
        let data = parsed(stored.as_ref().map(|stored| &stored.data));
        let metadata = parsed(stored.as_ref().map(|stored| &stored.metadata));
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let vouchers = data["vouchers"].as_array().into_iter().flatten().filter_map(text).collect();
        LostEvent {
            position,
            is_replaced,
            recorded_at: stored.as_ref().map(|stored| iso8601(stored.recorded_at)),
            stream: stored.as_ref().map(|stored| format!("{}/{}", stored.stream_type, stored.stream_id)),
            account_id: metadata["account_id"].as_i64(),
            reference_code: text(&data["reference_code"]),
            client_reference: text(&data["client_reference"]),
            amount: text(&data["amount"]),
            currency: text(&data["currency"]),
            vouchers,
            request_id: text(&metadata["request_id"]),
            event_id: stored.as_ref().map(|stored| stored.event_id),
            r#type: stored.map(|stored| stored.event_type),
            leaf_hash: hex::encode(hash),
        }
    }
}
