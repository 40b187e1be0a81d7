//! What commands change past HTTP: by the ledger's own writer, so that it is an event.

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use ledger_database::PgPool;
use ledger_events::Actor;
use tokio_util::task::TaskTracker;

use crate::config::MasterKeySettings;
use crate::ledger::Ledger;
use crate::ledger::operators;
use crate::node::{self, Database};
use crate::secrets::seal::Keyring;
use crate::telemetry::Metrics;

/// A ledger that a command writes to.
pub struct Writing {
    pub ledger: Ledger,
    pub keyring: Arc<Keyring>,
    tasks: TaskTracker,
}

impl Writing {
    /// # Errors
    /// When there is no master key, or the database is not one of this program's.
    pub async fn open(database: &Database, master_key: &MasterKeySettings, data_dir: &Path) -> anyhow::Result<Writing> {
        let keyring = node::keyring(master_key, data_dir, database.is_embedded())?;
        let tasks = TaskTracker::new();
        let ledger = Ledger::open(database.options(), keyring.clone(), Metrics::default(), &tasks).await?;
        Ok(Writing { ledger, keyring, tasks })
    }

    /// Waits until its writer has ended; not if the outcome of what was written is not known, for that the writer looks for
    /// until the database is back.
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

/// In whose name a command writes.
#[derive(Args, Debug)]
pub struct ByArgs {
    /// Who does it: the name of an operator's token, see `admin token list` [default: the operator of the configuration]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

impl ByArgs {
    /// The operator of the name, who has a token. Without a name the configured one, who has the id 0.
    ///
    /// # Errors
    /// When nobody, or more than one, has a token of that name.
    pub async fn actor(&self, pool: &PgPool) -> anyhow::Result<Actor> {
        let Some(name) = &self.by else { return Ok(Actor::Operator(0)) };
        match &*operators::named(pool, name).await? {
            [id] => Ok(Actor::Operator(*id)),
            [] => bail!("no operator {name} has a token: `admin token list` shows who has one"),
            _ => bail!("several operators are called {name}: revoke all but one of their tokens, or give one another name"),
        }
    }
}
