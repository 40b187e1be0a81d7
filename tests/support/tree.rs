//! The transparency log of a test: its signer, and the signer's state.

use std::path::PathBuf;
use std::sync::Arc;

use ledger_database::PgConnectOptions;
use rewards_ledger::ledger::Ledger;
use rewards_ledger::ledger::connect::is_transient;
use rewards_ledger::telemetry::Metrics;
use rewards_ledger::transparency::projector::{SigningStep, TreeProjector};
use rewards_ledger::transparency::signer::{Origin, Signer};
use rewards_ledger::transparency::signer_state::SignerState;
use rewards_ledger::transparency::{Refusal, TreeError, store};
use transparency_log::checkpoint::{Opened, Trust};
use transparency_log::note::{Algorithm, SigningKey, VerifierKey};

use super::ledger::{LOG_KEY, SHARD};

/// Prefix of origins. The origin of shard 1 is this text followed by `/1`.
pub const ORIGIN: &str = "ledger.example.com/log";

/// A signer with its state file, which is removed with the last clone.
#[derive(Clone, Debug)]
pub struct Tree {
    pub projector: TreeProjector,
    pub state: PathBuf,
    ledger: Ledger,
    _directory: Arc<tempfile::TempDir>,
}

/// Settings that differ between signers.
#[derive(Clone, Debug)]
pub struct Signing {
    pub key_file: String,
    pub origin: String,
    /// Tree whose state file this signer uses as well.
    pub state_of: Option<Tree>,
}

impl Default for Signing {
    fn default() -> Signing {
        Signing { key_file: LOG_KEY.to_owned(), origin: ORIGIN.to_owned(), state_of: None }
    }
}

impl Tree {
    pub fn of(ledger: &Ledger, options: &PgConnectOptions, metrics: &Metrics) -> Tree {
        Tree::with(ledger, options, metrics, Signing::default())
    }

    pub fn with(ledger: &Ledger, options: &PgConnectOptions, metrics: &Metrics, signing: Signing) -> Tree {
        let directory = match &signing.state_of {
            Some(other) => other._directory.clone(),
            None => Arc::new(tempfile::tempdir().unwrap()),
        };
        let state = directory.path().join("log-state.json");
        let signer_state = SignerState::open(&state).unwrap();
        let signer = Arc::new(Signer::from_text(&signing.key_file).unwrap());
        let origin = Origin::new(&signing.origin);
        let projector = TreeProjector::new(ledger, options, signer, origin, signer_state, metrics.clone());
        Tree { projector, state, ledger: ledger.clone(), _directory: directory }
    }

    /// Signs everything in the log, and returns the size of the tree. A step that finds its connection cut is
    /// repeated, as a node does it.
    pub async fn grow(&self) -> u64 {
        let mut is_cut = false;
        loop {
            match self.projector.once(SHARD).await {
                Ok(SigningStep::Idle) => return self.newest().await.size,
                Ok(_) => {}
                Err(TreeError::Database(error)) if !is_cut && is_transient(&error) => is_cut = true,
                Err(error) => panic!("the tree does not grow: {error}"),
            }
        }
    }

    /// Returns the refusal of a step, which must refuse.
    #[track_caller]
    pub fn refused(outcome: Result<SigningStep, TreeError>) -> Refusal {
        match outcome {
            Err(TreeError::Refused(refusal)) => refusal,
            other => panic!("not refused: {other:?}"),
        }
    }

    pub async fn newest(&self) -> store::Published {
        store::newest(self.ledger.pool(), SHARD).await.unwrap().unwrap()
    }

    /// Returns the newest checkpoint, opened with the log's key.
    pub async fn opened(&self) -> Opened {
        Trust::in_keys(vec![key()]).open(&self.newest().await.note).unwrap()
    }
}

/// Returns the log's public key.
pub fn key() -> VerifierKey {
    key_of(LOG_KEY)
}

/// Returns the newest public key of a key file.
pub fn key_of(file: &str) -> VerifierKey {
    Signer::from_text(file).unwrap().verifiers(&Origin::new(ORIGIN).of(SHARD)).unwrap().remove(0)
}

/// Returns the secret key of a witness.
pub fn witness_secret(number: u8) -> SigningKey {
    SigningKey::from_seed(&[number; 32]).unwrap()
}

pub fn witness_name(number: u8) -> String {
    format!("witness{number}.example.com")
}

/// Returns the public key of a witness. Witnesses 1 and 2 are configured in every node of a test.
pub fn witness(number: u8) -> VerifierKey {
    witness_secret(number).verifier(&witness_name(number), Algorithm::CosignatureV1).unwrap()
}
