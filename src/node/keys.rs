//! The key files: read, or made beside the embedded server.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use super::NodeError;
use crate::access::seal::Keyring;
use crate::config::{Config, ConfigError, read_text};

/// The master key that is made with the embedded server, in its data directory.
const MASTER_KEY_FILE: &str = "master.key";

/// The keyring from the master key's file. With the embedded server it is made when there is
/// none; a database that is somebody else's has its key from somewhere.
pub fn keyring(config: &Config, is_embedded: bool) -> Result<Arc<Keyring>, NodeError> {
    let name = "--master-key-file (LEDGER_MASTER_KEY_FILE)";
    let made = config.database.data_dir.join(MASTER_KEY_FILE);
    let path = match &config.master_key_file {
        Some(path) => path,
        None if is_embedded => {
            make(&made, &Keyring::generate())?;
            &made
        }
        None => {
            let text =
                format!("{name} is required with --database-url: a file of 32 random bytes in base64 (openssl rand -base64 32)");
            return Err(ConfigError(text).into());
        }
    };
    let text = read_text(path, name)?;
    let keyring = Keyring::from_base64(text.expose());
    keyring.map(Arc::new).map_err(|error| ConfigError(format!("{name}: {}: {error}", path.display())).into())
}

/// Writes a new key where there is none: whole or not at all, readable by its owner only.
fn make(path: &Path, text: &str) -> Result<(), NodeError> {
    if path.exists() {
        return Ok(());
    }
    let unfinished = path.with_extension(format!("new-{}", std::process::id()));
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        // Not a rename, which would replace the key of another program that was faster.
        match std::fs::hard_link(&unfinished, path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            outcome => outcome,
        }
    };
    let written = write();
    _ = std::fs::remove_file(&unfinished); // nothing depends on it
    written.map_err(|source| NodeError::Io { action: format!("write {}", path.display()), source })
}
