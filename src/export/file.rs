//! An unfinished export: `<file>.partial`. A run that was killed leaves it behind, and the next run continues it. Only a
//! complete export that is on disk has the requested name.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use ledger_events::Position;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::manifest::{self, FORMAT, Manifest};
use super::selection::{Range, Selection};
use super::{ExportError, line, page, read};
use crate::ledger::reader::Stored;

/// Parameters of an export. Stored in `<file>.partial.json` until the export is complete, so that a later run continues
/// the same export to the same end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Requested range, whose ends may be open.
    pub range: Range,
    pub selection: Selection,
    pub head: Position,
    /// Epoch of `log_head`. It never decreases, whichever database holds the log.
    pub epoch: i64,
    pub is_compressed: bool,
    /// Newest signed checkpoint when the export began. It does not exceed `head`.
    pub checkpoint: Option<String>,
}

impl Plan {
    /// Returns whether two plans belong to the same request. The head may differ: the earlier plan's counts.
    fn is_same(&self, other: &Plan) -> bool {
        let asked = |plan: &Plan| {
            let Selection { shard_id, stream, filter, .. } = plan.selection.clone();
            (plan.range, shard_id, stream, filter, plan.is_compressed)
        };
        asked(self) == asked(other)
    }
}

/// An export file that grows page by page.
#[derive(Debug)]
pub struct ExportFile {
    /// Plan that is carried out: the earlier run's, if there was one.
    pub plan: Plan,
    path: PathBuf,
    file: File,
    hash: Sha256,
    bytes: u64,
    events: u64,
    first: Option<Position>,
    last: Option<Position>,
}

impl ExportFile {
    /// Starts an export, or continues an unfinished one of the same request after its last complete line.
    ///
    /// # Errors
    /// Returns an error when the export is complete already, when an unfinished export of another request exists, or when
    /// another process is writing it.
    pub fn open(path: &Path, plan: Plan) -> Result<ExportFile, ExportError> {
        let named = |path: &Path| {
            let path = path.to_owned();
            move |source| ExportError::File { path: path.clone(), source }
        };
        let (partial, plan_path) = (partial(path), plan_of(path));
        if path.exists() {
            return Err(ExportError::Exists(path.to_owned()));
        }
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&partial).map_err(named(&partial))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(ExportError::Busy(path.to_owned())),
            Err(TryLockError::Error(source)) => return Err(named(&partial)(source)),
        }
        let plan = match read_plan(&plan_path).map_err(named(&plan_path))? {
            Some(earlier) if !earlier.is_same(&plan) => {
                let was = serde_json::to_string(&earlier)?;
                return Err(ExportError::OtherPlan { path: partial, was });
            }
            Some(earlier) => earlier,
            // The plan is on disk before the first line, so a file with lines but no plan is not ours.
            None if file.metadata()?.len() > 0 => return Err(ExportError::Exists(partial)),
            None => {
                replace(&plan_path, &serde_json::to_vec_pretty(&plan)?).map_err(named(&plan_path))?;
                plan
            }
        };
        let (mut events, mut first, mut last) = (0, None, None);
        let bytes = read::whole(&partial, plan.is_compressed, |block| {
            let mut before = last.unwrap_or(plan.selection.from - 1);
            let mut found = 0;
            for line in block.lines() {
                let Ok(stored) = line::read(line) else { return false };
                let is_ours = stored.shard_id == plan.selection.shard_id && stored.position > before;
                if !is_ours || stored.position > plan.selection.to {
                    return false;
                }
                before = stored.position;
                first = first.or(Some(before));
                found += 1;
            }
            (events, last) = (events + found, Some(before));
            true
        })?;
        file.set_len(bytes)?;
        file.seek(SeekFrom::Start(bytes))?;
        let hash = manifest::hash(&partial)?;
        Ok(ExportFile { plan, path: path.to_owned(), file, hash, bytes, events, first: first.filter(|_| events > 0), last })
    }

    /// Returns the last position in the file, or 0 if it has none.
    pub fn reached(&self) -> Position {
        self.last.unwrap_or_default()
    }

    /// Appends events, which must come after all events in the file.
    ///
    /// # Errors
    /// Returns an error when an event cannot be written as a line, or when writing fails.
    pub fn append(&mut self, events: &[Stored]) -> Result<(), ExportError> {
        let bytes = page(events, self.plan.is_compressed)?;
        self.file.write_all(&bytes).map_err(|source| ExportError::File { path: partial(&self.path), source })?;
        self.hash.update(&bytes);
        self.bytes += bytes.len() as u64;
        self.events += events.len() as u64;
        self.first = self.first.or(events.first().map(|stored| stored.position));
        self.last = events.last().map(|stored| stored.position).or(self.last);
        Ok(())
    }

    /// Completes the export: writes the manifest, then renames the file to its final name.
    ///
    /// # Errors
    /// Returns an error when writing fails. A later run can then continue the export.
    pub fn finish(self, now: DateTime<Utc>) -> Result<Manifest, ExportError> {
        let manifest = Manifest {
            format: FORMAT.to_owned(),
            selection: self.plan.selection,
            head: self.plan.head,
            epoch: self.plan.epoch,
            compression: self.plan.is_compressed.then(|| "zstd".to_owned()),
            events: self.events,
            first: self.first,
            last: self.last,
            bytes: self.bytes,
            sha256: hex::encode(self.hash.finalize()),
            exported_at: now,
            checkpoint: self.plan.checkpoint,
        };
        self.file.sync_all()?;
        replace(&manifest::path_of(&self.path), &serde_json::to_vec_pretty(&manifest)?)?;
        fs::rename(partial(&self.path), &self.path)?;
        sync_directory(&self.path)?;
        fs::remove_file(plan_of(&self.path))?;
        Ok(manifest)
    }
}

fn partial(path: &Path) -> PathBuf {
    read::beside(path, ".partial")
}

fn plan_of(path: &Path) -> PathBuf {
    read::beside(path, ".partial.json")
}

fn read_plan(path: &Path) -> io::Result<Option<Plan>> {
    match fs::read(path) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces a small file atomically.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = read::beside(path, ".new");
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    sync_directory(path)
}

/// Flushes the directory: a rename is on disk only after that.
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}
