//! Verifications that operators start on this node. One runs at a time, on one connection and one thread of its own, so
//! requests keep theirs.

use std::sync::Arc;

use ledger_database::PgPool;
use ledger_events::Actor;
use sqlx::postgres::PgConnectOptions;
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
    /// Returns the id. Goes on to the end if the caller is dropped meanwhile, so that no run is left without its work.
    ///
    /// # Errors
    /// Any error of the database, or of `recorded`; nothing is verified then.
    pub async fn verify<E, R>(&self, actor: Actor, recorded: impl FnOnce(i64) -> R + Send + 'static) -> Result<Option<i64>, E>
    where
        E: From<sqlx::Error> + Send + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
    {
        let runner = self.clone();
        to_the_end(async move {
            let Some(id) = runs::begin_alone(&runner.pool, actor).await? else { return Ok(None) };
            let recorded = recorded(id).await;
            if (recorded.is_err() || runner.requested.send(id).is_err())
                && let Err(error) = runs::end(&runner.pool, id, &Outcome::stopped()).await
            {
                tracing::warn!(run = id, %error, "failed to end a verification that was not started; it will be shown as interrupted");
            }
            recorded.map(|()| Some(id))
        })
        .await
    }

    /// Stops a verification, on whichever node or by whichever command it runs: its work ends with its next heartbeat.
    /// `recorded` appends the event to the log. Returns whether a verification was in progress.
    ///
    /// # Errors
    /// Any error of the database, or of `recorded`; the run goes on then.
    pub async fn stop<E, R>(&self, id: i64, recorded: impl FnOnce() -> R + Send + 'static) -> Result<bool, E>
    where
        E: From<sqlx::Error> + Send + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
    {
        let pool = self.pool.clone();
        to_the_end(async move {
            // The row is locked until the log has the event, so the run has exactly one end.
            let mut tx = pool.begin().await?;
            if !runs::stop(&mut tx, id).await? {
                return Ok(false);
            }
            recorded().await?;
            tx.commit().await?;
            Ok(true)
        })
        .await
    }
}

/// Runs a task to its end, even if the caller is dropped before: a client may disconnect at any time.
async fn to_the_end<T, E>(work: impl Future<Output = Result<T, E>> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<sqlx::Error> + Send + 'static,
{
    tokio::spawn(work).await.unwrap_or_else(|_| Err(sqlx::Error::WorkerCrashed.into()))
}

impl Verifier {
    async fn run(self, mut requests: mpsc::UnboundedReceiver<i64>, heartbeat: Heartbeat) {
        // A verification may take hours. It has heartbeats of its own.
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

    /// Verifies, and returns the outcome; `None` if the run was given up, and has its outcome or counts as interrupted.
    async fn verify(&self, id: i64) -> Option<Outcome> {
        let (sender, progress) = watch::channel(None);
        let verify = verify_with(&self.options, Some(&self.keyring), move |progress| _ = sender.send_replace(Some(progress)));
        let verified = runs::follow(&self.pool, id, progress, self.stop.run_until_cancelled(verify)).await.ok()?;
        let outcome = verified.map_or_else(Outcome::stopped, |result| Outcome::of_verify(&result));
        Some(outcome)
    }
}
