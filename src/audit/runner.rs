//! Verifications that operators start on this node. One runs at a time, on one connection and one thread of its own, so
//! requests keep theirs.

use std::sync::Arc;

use ledger_database::{PgConnectOptions, PgPool};
use ledger_events::Actor;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::runs::{self, Outcome};
use super::verify::verify_with;
use crate::heartbeat::Heartbeat;
use crate::ledger::Ledger;
use crate::secrets::seal::Keyring;

/// Handle that starts verifications on this node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Runner {
    pool: PgPool,
    requested: mpsc::UnboundedSender<i64>,
}

/// Dependencies of a verification, and the task that runs one after the other.
struct Verifier {
    pool: PgPool,
    options: PgConnectOptions,
    keyring: Arc<Keyring>,
    stop: CancellationToken,
}

impl Runner {
    /// Starts the task that verifies. It ends when `stop` is cancelled; a verification that runs then is recorded as
    /// stopped.
    pub fn start(
        ledger: &Ledger,
        options: &PgConnectOptions,
        keyring: Arc<Keyring>,
        stop: CancellationToken,
        tasks: &TaskTracker,
    ) -> Runner {
        let (requested, requests) = mpsc::unbounded_channel();
        let heartbeat = ledger.heartbeats().background("verifications");
        let pool = ledger.maintenance().clone();
        let verifier = Verifier { pool: pool.clone(), options: options.clone(), keyring, stop };
        tasks.spawn(verifier.run(requests, heartbeat));
        Runner { pool, requested }
    }

    /// Starts a verification, unless a run is in progress on any node. `recorded` appends its event to the log, given its id.
    /// Returns the id.
    ///
    /// # Errors
    /// Any error of the database, or of `recorded`; nothing is verified then.
    pub async fn verify<E: From<sqlx::Error>, R: Future<Output = Result<(), E>>>(
        &self,
        actor: Actor,
        recorded: impl FnOnce(i64) -> R,
    ) -> Result<Option<i64>, E> {
        let Some(id) = runs::begin_alone(&self.pool, actor).await? else { return Ok(None) };
        let recorded = recorded(id).await;
        if (recorded.is_err() || self.requested.send(id).is_err())
            && let Err(error) = runs::end(&self.pool, id, &Outcome::stopped()).await
        {
            tracing::warn!(run = id, %error, "failed to end a verification that was not started; it will be shown as interrupted");
        }
        recorded.map(|()| Some(id))
    }
}

impl Verifier {
    async fn run(self, mut requests: mpsc::UnboundedReceiver<i64>, heartbeat: Heartbeat) {
        // A verification may take hours. It has signs of life of its own.
        heartbeat.rest();
        let verifier = Arc::new(self);
        while let Some(Some(id)) = verifier.stop.run_until_cancelled(requests.recv()).await {
            let (one, runtime) = (verifier.clone(), Handle::current());
            // Decoding the log keeps a processor busy, so it must not hold up a thread that answers requests.
            let done = tokio::task::spawn_blocking(move || runtime.block_on(one.verify(id))).await;
            let outcome = done.unwrap_or_else(|error| {
                tracing::error!(run = id, %error, "the verification ended unexpectedly");
                None
            });
            let Some(outcome) = outcome else { continue };
            if let Err(error) = runs::end(&verifier.pool, id, &outcome).await {
                tracing::error!(run = id, %error, "failed to record the result of the verification; it will be shown as interrupted");
            }
        }
    }

    /// Verifies, and returns the outcome; `None` if the run counts as interrupted by then.
    async fn verify(&self, id: i64) -> Option<Outcome> {
        let (sender, progress) = watch::channel(None);
        let verify = verify_with(&self.options, Some(&self.keyring), move |progress| _ = sender.send_replace(Some(progress)));
        let verified = runs::follow(&self.pool, id, progress, self.stop.run_until_cancelled(verify)).await?;
        let outcome = verified.map_or_else(Outcome::stopped, |result| Outcome::of_verify(&result));
        Some(outcome)
    }
}
