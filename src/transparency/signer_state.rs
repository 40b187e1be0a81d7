//! The signer's state outside the database: the last tree of each origin that this machine has signed or seen signed.
//! Restoring an older copy of the database does not restore an older copy of this file.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use transparency_log::merkle::Hash;
use uuid::Uuid;

/// A signed tree, as the state file stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remembered {
    pub size: u64,
    #[serde(with = "base64_hash")]
    pub root: Hash,
    /// `log_head.epoch` when the tree was signed. The epoch only grows.
    pub epoch: i64,
}

impl Remembered {
    /// Returns whether a tree cannot continue this one: it is smaller, or has the same size and another root. Only the log
    /// itself shows whether a larger one does.
    pub fn contradicts(&self, tree: &Remembered) -> bool {
        self.size > tree.size || self.size == tree.size && self.root != tree.root
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SignerStateError {
    #[error("the log's state file {path}: {source}")]
    File { path: String, source: io::Error },
    #[error("another process has changed the log's state file {path} in the meantime")]
    Moved { path: String },
    #[error("the log's state file {path} has a tree of {known} events; the tree of {size} events does not extend it")]
    Contradicts { path: String, known: u64, size: u64 },
}

/// The state file. All signing processes on this machine share it.
#[derive(Clone, Debug)]
pub struct SignerState {
    path: PathBuf,
    /// Identifies this state file among those of all nodes. Stored in a file next to it.
    id: Uuid,
}

type Trees = BTreeMap<String, Remembered>;

impl SignerState {
    /// Opens the state file: creates its directory, and checks that the file can be read and locked.
    ///
    /// # Errors
    /// Returns [`SignerStateError::File`] when the file is not accessible, or does not contain a valid state.
    pub fn open(path: &Path) -> Result<SignerState, SignerStateError> {
        let mut state = SignerState { path: path.to_owned(), id: Uuid::nil() };
        let check = || {
            std::fs::create_dir_all(state.directory())?;
            state.close_to_others()?;
            state.locked(|| {
                state.read()?;
                state.read_or_draw_id()
            })
        };
        state.id = check().map_err(|source| state.error(source))?;
        Ok(state)
    }

    /// Returns the id of this state, generated when the file was first opened.
    pub fn id(&self) -> Uuid {
        self.id
    }

    fn read_or_draw_id(&self) -> io::Result<Uuid> {
        let path = self.path.with_extension("id");
        match std::fs::read_to_string(&path) {
            Ok(text) => Uuid::parse_str(text.trim()).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let id = Uuid::new_v4();
                self.replace(&path, format!("{id}\n").as_bytes())?;
                Ok(id)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the last remembered tree of an origin, or none if nothing was ever signed under it.
    ///
    /// # Errors
    /// Returns an error when the file cannot be read.
    pub fn recall(&self, origin: &str) -> Result<Option<Remembered>, SignerStateError> {
        self.read().map(|trees| trees.get(origin).copied()).map_err(|source| self.error(source))
    }

    /// Replaces the remembered tree of an origin. `before` is the tree that the new one was compared with, as returned by
    /// [`SignerState::recall`]. The write is atomic, and is on disk when this returns.
    ///
    /// # Errors
    /// Returns [`SignerStateError::Moved`] when another process has stored a different tree in the meantime, because the new
    /// tree was not compared with that one. Returns [`SignerStateError::Contradicts`] when the new tree is smaller than the
    /// remembered one, or has the same size and another root. Returns [`SignerStateError::File`] when the file cannot be
    /// written. After any error the caller must not publish the tree.
    pub fn keep(&self, origin: &str, before: Option<&Remembered>, tree: Remembered) -> Result<(), SignerStateError> {
        let path = || self.path.display().to_string();
        let write = || {
            let mut trees = self.read()?;
            let known = trees.get(origin).copied();
            if known.as_ref() != before {
                return Ok(Err(SignerStateError::Moved { path: path() }));
            }
            if let Some(known) = known.filter(|known| known.contradicts(&tree)) {
                return Ok(Err(SignerStateError::Contradicts { path: path(), known: known.size, size: tree.size }));
            }
            trees.insert(origin.to_owned(), tree);
            let mut text = serde_json::to_vec_pretty(&trees)?;
            text.push(b'\n');
            self.replace(&self.path, &text)?;
            Ok(Ok(()))
        };
        self.locked(write).map_err(|source| self.error(source))?
    }

    /// Replaces a file atomically. The new content is on disk when this returns.
    fn replace(&self, path: &Path, text: &[u8]) -> io::Result<()> {
        let unfinished = self.path.with_extension("new");
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&unfinished)?;
        file.write_all(text)?;
        file.sync_all()?;
        std::fs::rename(&unfinished, path)?;
        File::open(self.directory())?.sync_all()
    }

    fn read(&self) -> io::Result<Trees> {
        match std::fs::read(&self.path) {
            Ok(text) => Ok(serde_json::from_slice(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Trees::new()),
            Err(error) => Err(error),
        }
    }

    /// Removes the permissions of group and others from files that an earlier release created readable for everybody.
    /// Only the owner of a file can do that.
    fn close_to_others(&self) -> io::Result<()> {
        for path in [self.path.clone(), self.path.with_extension("lock")] {
            match path.metadata() {
                Ok(found) if found.mode() & 0o077 != 0 && found.uid() == nix::unistd::geteuid().as_raw() => {
                    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Runs `work` while holding a lock that excludes all other processes on this machine.
    fn locked<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let path = self.path.with_extension("lock");
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        file.lock()?; // released when the file is closed
        work()
    }

    fn directory(&self) -> &Path {
        self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    fn error(&self, source: io::Error) -> SignerStateError {
        SignerStateError::File { path: self.path.display().to_string(), source }
    }
}

mod base64_hash {
    use serde::de::Error;
    use serde::{Deserializer, Serializer};

    use super::{Deserialize, Engine, Hash, STANDARD};

    pub fn serialize<S: Serializer>(hash: &Hash, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(hash))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Hash, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text).map_err(D::Error::custom)?;
        bytes.try_into().map_err(|_| D::Error::custom("a root has 32 bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remembered_tree_belongs_to_its_origin_and_only_grows() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/state.json");
        let state = SignerState::open(&path).unwrap();
        assert_eq!(state.recall("a").unwrap(), None);
        state.keep("a", None, tree(5)).unwrap();
        state.keep("b", None, tree(9)).unwrap();
        let other = Remembered { root: [7; 32], ..tree(5) };
        for contradicting in [tree(3), other] {
            let refused = state.keep("a", Some(&tree(5)), contradicting);
            assert!(matches!(refused, Err(SignerStateError::Contradicts { known: 5, .. })), "{refused:?}");
        }
        state.keep("a", Some(&tree(5)), Remembered { epoch: 3, ..tree(5) }).unwrap();
        state.keep("b", Some(&tree(9)), tree(10)).unwrap();
        let again = SignerState::open(&path).unwrap();
        assert_eq!(again.recall("a").unwrap(), Some(Remembered { epoch: 3, ..tree(5) }));
        assert_eq!(again.recall("b").unwrap(), Some(tree(10)));
        assert_eq!(again.id(), state.id());
        assert!(!path.with_extension("new").exists());
    }

    fn tree(size: u64) -> Remembered {
        Remembered { size, root: [u8::try_from(size).unwrap(); 32], epoch: 2 }
    }

    /// Two processes have both read a tree of five events, and each signs a tree of six. The second has not compared its
    /// tree with the first's.
    #[test]
    fn a_tree_that_another_process_has_signed_in_the_meantime_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        let (first, second) = (SignerState::open(&path).unwrap(), SignerState::open(&path).unwrap());
        first.keep("a", None, tree(5)).unwrap();
        let seen = second.recall("a").unwrap();
        first.keep("a", Some(&tree(5)), tree(6)).unwrap();
        for forked in [Remembered { root: [7; 32], ..tree(6) }, tree(7)] {
            let refused = second.keep("a", seen.as_ref(), forked);
            assert!(matches!(refused, Err(SignerStateError::Moved { .. })), "{refused:?}");
        }
        assert_eq!(second.recall("a").unwrap(), Some(tree(6)));
        assert!(matches!(second.keep("a", None, tree(8)), Err(SignerStateError::Moved { .. })));
    }

    #[test]
    fn an_invalid_state_file_prevents_the_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        for wrong in ["", "{", "[]", r#"{"a":{"size":1}}"#, r#"{"a":{"size":1,"root":"AAAA","epoch":0}}"#] {
            std::fs::write(&path, wrong).unwrap();
            assert!(SignerState::open(&path).is_err(), "{wrong}");
        }
    }
}
