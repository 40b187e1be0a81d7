//! Reads the key files, or creates them next to the embedded server.

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
use crate::transparency::signer::{Origin, Signer};
use crate::transparency::signer_state::SignerState;
use crate::transparency::witness::WitnessCaller;

/// Files of the keys that are created with the embedded server, in its data directory.
const MASTER_KEY_FILE: &str = "master.key";
const LOG_KEY_FILE: &str = "log.key";
/// Default file of the signer's state, in the data directory.
const LOG_STATE_FILE: &str = "log-state.json";
/// Base of the log's origin if the service has no public URL.
const LOCAL_ORIGIN: &str = "localhost/log";

/// Loads the keyring from the master key file. With the embedded server, creates the file if there is none. An external
/// database requires an existing key, because it may already hold values that are sealed under one.
pub fn keyring(settings: &MasterKeySettings, data_dir: &Path, is_embedded: bool) -> Result<Arc<Keyring>, NodeError> {
    let name = "--master-key-file (LEDGER_MASTER_KEY_FILE)";
    let made = data_dir.join(MASTER_KEY_FILE);
    let path = match &settings.master_key_file {
        Some(path) => path,
        None if is_embedded => {
            // A new ledger has no rows without MACs, so its key file says `sealed` from the start: see `secrets::rows`.
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

/// Loads the keyring if a file is configured, or exists next to the embedded server. For commands that can do without it.
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

/// Loads the keys that sign checkpoints. With the embedded server, creates one if there is none. With an external
/// database, every node that signs must have the same keys.
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

/// Opens the signer's state: the signed checkpoints.
pub fn signer_state(config: &Config) -> Result<SignerState, NodeError> {
    let path = config.log_state_file.clone().unwrap_or_else(|| config.database.data_dir.join(LOG_STATE_FILE));
    SignerState::open(&path).map_err(|error| ConfigError(format!("--log-state-file (LEDGER_LOG_STATE_FILE): {error}")).into())
}

/// Returns the origin of the service's logs: the configured one, or else the public URL without its scheme.
pub fn origin(config: &Config) -> Origin {
    let public = config.public_url.as_deref().and_then(|url| url.split_once("://")).map(|(_, place)| format!("{place}/log"));
    Origin::new(&config.log_origin.clone().or(public).unwrap_or_else(|| LOCAL_ORIGIN.to_owned()))
}

/// Creates the task that requests cosignatures from the configured witnesses, if there are any.
pub fn witnesses(config: &Config, ledger: &Ledger, log: &PublicLog) -> Result<Option<WitnessCaller>, NodeError> {
    let name = "--log-witness-urls (LEDGER_LOG_WITNESS_URLS)";
    let wrong = |error: &dyn std::fmt::Display| ConfigError(format!("{name}: {error}"));
    let urls = config.log_witness_urls.iter().map(|url| Url::parse(url).map_err(|error| wrong(&error)));
    let urls: Vec<Url> = urls.collect::<Result<_, _>>()?;
    if urls.is_empty() {
        return Ok(None);
    }
    let (pool, shards) = (ledger.maintenance().clone(), ledger.shard_watch().clone());
    let caller = WitnessCaller::new(pool, shards, urls, log.witnesses.clone());
    Ok(Some(caller.map_err(|error| wrong(&error))?))
}

/// Writes a new key file atomically, readable only by its owner. Keeps an existing file.
fn make(path: &Path, text: &str) -> Result<(), NodeError> {
    if path.exists() {
        return Ok(());
    }
    let unfinished = path.with_extension(format!("new-{}", std::process::id()));
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        // A hard link fails if the file exists. A rename would replace the key of another process that was faster.
        match std::fs::hard_link(&unfinished, path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            outcome => outcome,
        }
    };
    let written = write();
    _ = std::fs::remove_file(&unfinished); // a leftover file does no harm
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
            direct_url: None,
            read_url: None,
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
    fn the_log_key_is_created_once_and_only_its_owner_can_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        let key = || signer(&config, true).unwrap().verifiers("a").unwrap();
        let made = key();
        assert_eq!(key(), made);
        let file = directory.path().join("log.key");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(signer(&config, false).is_err(), "no key is created for an external database");
        signer_state(&config).unwrap();
        assert!(directory.path().join("log-state.lock").exists());
    }

    #[test]
    fn the_origin_is_the_public_url_unless_configured() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        assert_eq!(origin(&config).of(1), "localhost/log/1");
        let public = Config { public_url: Some("https://ledger.example.com/api".to_owned()), ..config.clone() };
        assert_eq!(origin(&public).of(2), "ledger.example.com/api/log/2");
        let named = Config { log_origin: Some("example.com/log-2".to_owned()), ..public };
        assert_eq!(origin(&named).of(1), "example.com/log-2/1");
    }
}
