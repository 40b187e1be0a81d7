//! The log and its writer, its readers, and the projectors that follow it.

mod append;
mod batch;
pub mod command;
pub mod connect;
mod decide;
pub mod projector;
pub mod reader;
mod schema;
pub(crate) mod stock;
mod wake;
mod writer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ledger_events::{AccountId, OrderId, ShardId, WalletId};
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use crate::access::seal::Keyring;
use crate::telemetry::Metrics;
use command::Submission;
pub use command::{Answer, Command, Idempotency, Origin, Rendered, Reply, WriteError};
pub use schema::{SchemaError, check as check_schema, migrate};
pub use wake::Wake;
use writer::Writer;

/// The shard of the catalogue, and of every account unless there are more.
pub const FIRST_SHARD: ShardId = 1;

/// How many commands may wait for a shard's writer; a further one is refused with 503.
const QUEUE_COMMANDS: usize = 4_096;
/// How long a caller waits for its command.
const COMMAND_DEADLINE: Duration = Duration::from_secs(10);
/// How much longer it waits for the word that the outcome is unknown.
const VERDICT_GRACE: Duration = Duration::from_secs(7);

/// The handle by which everything else appends to the log and reads what is derived from it.
#[derive(Clone, Debug)]
pub struct Ledger {
    pool: PgPool,
    shards: Arc<BTreeMap<ShardId, mpsc::Sender<Submission>>>,
    wake: Wake,
}

impl Ledger {
    /// Opens the log of a migrated database and starts one writer a shard. The writers end, after
    /// what was accepted, when the last handle is dropped; `tasks` waits for that.
    pub async fn open(
        options: &PgConnectOptions,
        keyring: Arc<Keyring>,
        metrics: Metrics,
        tasks: &TaskTracker,
    ) -> Result<Ledger, SchemaError> {
        let pool = connect::pool(options);
        schema::check(&pool).await?;
        let ids: Vec<ShardId> = sqlx::query_scalar("SELECT shard_id FROM log_head ORDER BY shard_id").fetch_all(&pool).await?;
        let wake = Wake::start(options, tasks);
        let mut shards = BTreeMap::new();
        for shard in ids {
            let (sender, receiver) = mpsc::channel(QUEUE_COMMANDS);
            metrics.watch_queue(shard, sender.downgrade());
            tasks.spawn(Writer::new(shard, options, keyring.clone(), wake.clone(), metrics.clone(), receiver).run());
            shards.insert(shard, sender);
        }
        Ok(Ledger { pool, shards: Arc::new(shards), wake })
    }

    /// For reading: what is derived from the log.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    pub fn shards(&self) -> impl Iterator<Item = ShardId> + '_ {
        self.shards.keys().copied()
    }

    pub fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Submits a command and waits for its commit. A caller that stops waiting does not undo it.
    pub async fn submit(
        &self,
        shard: ShardId,
        command: Command,
        origin: Origin,
        idempotency: Option<Idempotency>,
    ) -> Result<Reply, WriteError> {
        let waiting = self.enqueue(shard, command, origin, idempotency)?;
        match tokio::time::timeout(COMMAND_DEADLINE + VERDICT_GRACE, waiting).await {
            Ok(Ok(reply)) => reply,
            // The writer always answers; if it died, what became of the command is not known.
            Ok(Err(_)) | Err(_) => Err(WriteError::OutcomeUnknown),
        }
    }

    /// Puts a command into the queue without waiting for it.
    pub fn enqueue(
        &self,
        shard: ShardId,
        command: Command,
        origin: Origin,
        idempotency: Option<Idempotency>,
    ) -> Result<oneshot::Receiver<Result<Reply, WriteError>>, WriteError> {
        let (reply, waiting) = oneshot::channel();
        let writer = self.shards.get(&shard).ok_or(WriteError::Unavailable)?;
        let submission = Submission { command, origin, idempotency, deadline: Instant::now() + COMMAND_DEADLINE, reply };
        writer.try_send(submission).map_err(|_| WriteError::Unavailable)?;
        Ok(waiting)
    }

    /// Submits a command that has no idempotency key.
    pub async fn execute(&self, shard: ShardId, command: Command, origin: Origin) -> Result<Answer, WriteError> {
        match self.submit(shard, command, origin, None).await? {
            Reply::Answer(answer) => Ok(*answer),
            Reply::Rendered { .. } => Err(WriteError::Refused),
        }
    }

    /// The shard of a new account: the one with the fewest.
    pub async fn shard_for_new_account(&self) -> Result<ShardId, sqlx::Error> {
        sqlx::query_scalar("SELECT h.shard_id FROM log_head h LEFT JOIN accounts a USING (shard_id) GROUP BY h.shard_id ORDER BY count(a.id), h.shard_id LIMIT 1")
            .fetch_one(&self.pool)
            .await
    }

    pub async fn shard_of_account(&self, id: AccountId) -> Result<Option<ShardId>, sqlx::Error> {
        sqlx::query_scalar("SELECT shard_id FROM accounts WHERE id = $1").bind(id).fetch_optional(&self.pool).await
    }

    /// Operators name orders and wallets without their account.
    pub async fn shard_of_order(&self, id: OrderId) -> Result<Option<ShardId>, sqlx::Error> {
        sqlx::query_scalar("SELECT shard_id FROM orders WHERE shard_id = ANY($1) AND id = $2")
            .bind(self.shards().collect::<Vec<_>>())
            .bind(id)
            .fetch_optional(&self.pool)
            .await
    }

    pub async fn shard_of_wallet(&self, id: WalletId) -> Result<Option<ShardId>, sqlx::Error> {
        sqlx::query_scalar("SELECT shard_id FROM wallets WHERE shard_id = ANY($1) AND id = $2")
            .bind(self.shards().collect::<Vec<_>>())
            .bind(id)
            .fetch_optional(&self.pool)
            .await
    }
}
