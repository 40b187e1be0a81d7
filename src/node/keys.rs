//! The key files: read, or made beside the embedded server.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use reqwest::Url;

use super::NodeError;
use crate::config::{Config, ConfigError, MasterKeySettings, read_private};
use crate::ledger::Ledger;
use crate::secrets::seal::{Keyring, SEALED};
use crate::transparency::PublicLog;
use crate::transparency::memory::Memory;
use crate::transparency::signer::{Origin, Signer};
use crate::transparency::witness::WitnessCaller;

/// The keys that are made with the embedded server, in its data directory.
const MASTER_KEY_FILE: &str = "master.key";
const LOG_KEY_FILE: &str = "log.key";
/// The signer's memory, where no file is named.
const LOG_STATE_FILE: &str = "log-state.json";
/// The origin's base of a log that has no address.
const LOCAL_ORIGIN: &str = "localhost/log";

/// The keyring from the master key's file. With the embedded server it is made when there is
/// none; a database that is somebody else's has its key from somewhere.
pub fn keyring(settings: &MasterKeySettings, data_dir: &Path, is_embedded: bool) -> Result<Arc<Keyring>, NodeError> {
    let name = "--master-key-file (LEDGER_MASTER_KEY_FILE)";
    let made = data_dir.join(MASTER_KEY_FILE);
    let path = match &settings.master_key_file {
        Some(path) => path,
        None if is_embedded => {
            // Nobody has written to this ledger without MACs: see `access::rows`.
            make(&made, &format!("{}\n{SEALED}", *Keyring::generate()))?;
            &made
        }
        None => {
            let text =
                format!("{name} is required with --database-url: a file of 32 random bytes in base64 (openssl rand -base64 32)");
            return Err(ConfigError(text).into());
        }
    };
    let text = read_private(path, name)?;
    let keyring = Keyring::from_base64(text.expose());
    keyring.map(Arc::new).map_err(|error| ConfigError(format!("{name}: {}: {error}", path.display())).into())
}

/// The keyring, if its file is named, or is there beside the embedded server: for what goes without it.
pub fn keyring_if_any(
    settings: &MasterKeySettings,
    data_dir: &Path,
    is_embedded: bool,
) -> Result<Option<Arc<Keyring>>, NodeError> {
    if settings.master_key_file.is_none() && !(is_embedded && data_dir.join(MASTER_KEY_FILE).exists()) {
        return Ok(None);
    }
    keyring(settings, data_dir, is_embedded).map(Some)
}

/// The keys that sign checkpoints, from their file. With the embedded server one is made when there
/// is none; otherwise every node that signs is to have the same.
pub fn signer(config: &Config, is_embedded: bool) -> Result<Arc<Signer>, NodeError> {
    let name = "--log-key-file (LEDGER_LOG_KEY_FILE)";
    let made = config.database.data_dir.join(LOG_KEY_FILE);
    let path = match &config.log_key_file {
        Some(path) => path,
        None if is_embedded => {
            make(&made, &Keyring::generate())?;
            &made
        }
        None => {
            let text = format!(
                "{name} is required with --database-url and the role projector: a file of 32 random bytes in base64 (openssl rand -base64 32)"
            );
            return Err(ConfigError(text).into());
        }
    };
    let signer = Signer::from_text(read_private(path, name)?.expose());
    signer.map(Arc::new).map_err(|error| ConfigError(format!("{name}: {}: {error}", path.display())).into())
}

/// What the signer remembers.
pub fn memory(config: &Config) -> Result<Memory, NodeError> {
    let path = config.log_state_file.clone().unwrap_or_else(|| config.database.data_dir.join(LOG_STATE_FILE));
    Memory::open(&path).map_err(|error| ConfigError(format!("--log-state-file (LEDGER_LOG_STATE_FILE): {error}")).into())
}

/// Which logs this service signs: where clients reach them, unless another name is given.
pub fn origin(config: &Config) -> Origin {
    let public = config.public_url.as_deref().and_then(|url| url.split_once("://")).map(|(_, place)| format!("{place}/log"));
    Origin::new(&config.log_origin.clone().or(public).unwrap_or_else(|| LOCAL_ORIGIN.to_owned()))
}

/// Who asks the configured witnesses, if any are to be asked.
pub fn witnesses(config: &Config, ledger: &Ledger, log: &PublicLog) -> Result<Option<WitnessCaller>, NodeError> {
    let name = "--log-witness-urls (LEDGER_LOG_WITNESS_URLS)";
    let wrong = |error: &dyn std::fmt::Display| ConfigError(format!("{name}: {error}"));
    let urls = config.log_witness_urls.iter().map(|url| Url::parse(url).map_err(|error| wrong(&error)));
    let urls: Vec<Url> = urls.collect::<Result<_, _>>()?;
    if urls.is_empty() {
        return Ok(None);
    }
    let caller = WitnessCaller::new(ledger.maintenance().clone(), ledger.shards().collect(), urls, log.witnesses.clone());
    Ok(Some(caller.map_err(|error| wrong(&error))?))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::DatabaseSettings;

    fn config(data_dir: &Path) -> Config {
        let database = DatabaseSettings {
            database_url: None,
            allow_plain_database: false,
            migration_url: None,
            data_dir: data_dir.to_owned(),
            postgres_programs: None,
            postgres_release: None,
            postgres_account: None,
        };
        Config::new(database).unwrap()
    }

    #[test]
    fn the_logs_key_is_made_once_and_for_its_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        let key = || signer(&config, true).unwrap().verifiers("a").unwrap();
        let made = key();
        assert_eq!(key(), made);
        let file = directory.path().join("log.key");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(signer(&config, false).is_err(), "not beside somebody's own database");
        memory(&config).unwrap();
        assert!(directory.path().join("log-state.lock").exists());
    }

    #[test]
    fn an_origin_is_where_the_log_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        assert_eq!(origin(&config).of(1), "localhost/log/1");
        let public = Config { public_url: Some("https://ledger.example.com/api".to_owned()), ..config.clone() };
        assert_eq!(origin(&public).of(2), "ledger.example.com/api/log/2");
        let named = Config { log_origin: Some("example.com/log-2".to_owned()), ..public };
        assert_eq!(origin(&named).of(1), "example.com/log-2/1");
    }
}
