//! Changes that commands make directly in the database. They go through the ledger's own writer, so each is an event.

use std::path::Path;
use std::sync::Arc;

use anyhow::{bail, ensure};
use clap::Args;
use ledger_database::PgPool;
use ledger_events::Actor;
use tokio_util::task::TaskTracker;

use crate::config::MasterKeySettings;
use crate::ledger::Ledger;
use crate::ledger::operators;
use crate::ledger::reasons::MAX_REASON;
use crate::node::{self, Database};
use crate::secrets::seal::{Keyring, Secret};
use crate::telemetry::Metrics;

/// A ledger opened for writing by a command.
pub struct Writing {
    pub ledger: Ledger,
    pub keyring: Arc<Keyring>,
    tasks: TaskTracker,
}

impl Writing {
    /// Opens the ledger and starts its writer.
    ///
    /// # Errors
    /// If there is no master key, or the database has no ledger of this program.
    pub async fn open(database: &Database, master_key: &MasterKeySettings, data_dir: &Path) -> anyhow::Result<Writing> {
        let keyring = node::keyring(master_key, data_dir, database.is_embedded())?;
        let tasks = TaskTracker::new();
        let ledger = Ledger::open(database.options(), keyring.clone(), Metrics::default(), &tasks).await?;
        Ok(Writing { ledger, keyring, tasks })
    }

    /// Waits until the writer has ended. If the outcome of a write is unknown, returns at once, because the writer would
    /// keep looking for it until the database is back.
    pub async fn close(self, is_unknown: bool) {
        if is_unknown {
            return;
        }
        let wake = self.ledger.wake().clone();
        drop(self.ledger);
        wake.stop();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Returns the text of `--reason` without spaces around it.
///
/// # Errors
/// If it is empty, or longer than the API accepts.
pub fn reason(text: &str) -> anyhow::Result<Secret> {
    let text = text.trim();
    let length = text.chars().count();
    ensure!(length > 0, "--reason is empty: describe what happened");
    ensure!(length <= MAX_REASON, "--reason has {length} characters; at most {MAX_REASON} are allowed");
    Ok(Secret::new(text))
}

/// Arguments that name the operator who makes a change.
#[derive(Args, Debug)]
pub struct ByArgs {
    /// Operator who makes the change, by the name of their token, see `admin token list` [default: the operator of the
    /// configuration]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

impl ByArgs {
    /// Returns the operator whose token has this name. Without a name, returns the configured operator, whose id is 0.
    ///
    /// # Errors
    /// If no token, or more than one, has this name.
    pub async fn actor(&self, pool: &PgPool) -> anyhow::Result<Actor> {
        let Some(name) = &self.by else { return Ok(Actor::Operator(0)) };
        match &*operators::named(pool, name).await? {
            [id] => Ok(Actor::Operator(*id)),
            [] => bail!("no operator {name} has a token: see `admin token list`"),
            _ => bail!(
                "several operators have a token named {name}: revoke all but one of these tokens, or create one under another name"
            ),
        }
    }
}
