//! The log and its writer, its readers, and the projectors that follow it.

pub mod answer;
pub(crate) mod append;
pub mod backlog;
mod batch;
pub mod command;
pub mod connect;
mod decide;
pub mod erasure;
pub mod expiry;
pub mod health;
pub mod history;
pub mod images;
pub mod keys;
mod memory;
mod needs;
pub mod projector;
pub mod reader;
mod schema;
pub mod statement;
pub mod stock;
pub mod story;
pub mod submission;
pub mod texts;
mod wake;
mod writer;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ledger_events::{AccountId, OrderId, PayoutId, ShardId, WalletId};
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use crate::access::seal::Keyring;
use crate::telemetry::Metrics;
pub use answer::Answer;
pub use command::Command;
pub use schema::{IMPORT, SchemaError, check as check_schema, half_imported, migrate, pending};
use submission::{Claim, Submission};
pub use submission::{Idempotency, Origin, Rendered, Reply, WriteError};
pub use wake::{Addressee, NewDeliveries, Wake};
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
    in_flight: Arc<Mutex<HashMap<KeyHash, usize>>>,
}

/// A reply that is on its way.
pub type Waiting = oneshot::Receiver<Result<Reply, WriteError>>;

type KeyHash = [u8; 32];

/// An idempotency key that a request of this node is waiting under.
struct InFlight<'a> {
    keys: &'a Mutex<HashMap<KeyHash, usize>>,
    key: KeyHash,
}

impl<'a> InFlight<'a> {
    fn enter(keys: &'a Mutex<HashMap<KeyHash, usize>>, key: KeyHash) -> InFlight<'a> {
        *keys.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default() += 1;
        InFlight { keys, key }
    }

    /// Whether more than one request waits under the key.
    fn is_shared(keys: &Mutex<HashMap<KeyHash, usize>>, key: &KeyHash) -> bool {
        keys.lock().unwrap_or_else(PoisonError::into_inner).get(key).is_some_and(|waiting| *waiting > 1)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let Entry::Occupied(mut waiting) = self.keys.lock().unwrap_or_else(PoisonError::into_inner).entry(self.key) {
            *waiting.get_mut() -= 1;
            if *waiting.get() == 0 {
                waiting.remove();
            }
        }
    }
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
        Ok(Ledger { pool, shards: Arc::new(shards), wake, in_flight: Arc::default() })
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
        let key = idempotency.map(|i| i.key_hash);
        let _in_flight = key.map(|key| InFlight::enter(&self.in_flight, key));
        let (claim, mut waiting) = self.put(shard, command, origin, idempotency)?;
        // The writer always answers; if it died, what became of the command is not known.
        let verdict = |answer: Result<_, _>| answer.unwrap_or(Err(WriteError::OutcomeUnknown));
        if let Ok(answer) = tokio::time::timeout(COMMAND_DEADLINE, &mut waiting).await {
            return verdict(answer);
        }
        if claim.give_up() {
            let is_shared = key.is_some_and(|key| InFlight::is_shared(&self.in_flight, &key));
            return Err(if is_shared { WriteError::InProgress } else { WriteError::Unavailable });
        }
        match tokio::time::timeout(VERDICT_GRACE, waiting).await {
            Ok(answer) => verdict(answer),
            Err(_) => Err(WriteError::OutcomeUnknown),
        }
    }

    /// Puts a command into the queue without waiting for it.
    pub fn enqueue(
        &self,
        shard: ShardId,
        command: Command,
        origin: Origin,
        idempotency: Option<Idempotency>,
    ) -> Result<Waiting, WriteError> {
        self.put(shard, command, origin, idempotency).map(|(_, waiting)| waiting)
    }

    fn put(
        &self,
        shard: ShardId,
        command: Command,
        origin: Origin,
        idempotency: Option<Idempotency>,
    ) -> Result<(Claim, Waiting), WriteError> {
        let (reply, waiting) = oneshot::channel();
        let writer = self.shards.get(&shard).ok_or(WriteError::Unavailable)?;
        let claim = Claim::default();
        let deadline = Instant::now() + COMMAND_DEADLINE;
        let submission = Submission { command, origin, idempotency, deadline, claim: claim.clone(), reply: Some(reply) };
        writer.try_send(submission).map_err(|_| WriteError::Unavailable)?;
        Ok((claim, waiting))
    }

    /// Submits a command that has no idempotency key.
    pub async fn execute(&self, shard: ShardId, command: Command, origin: Origin) -> Result<Answer, WriteError> {
        match self.submit(shard, command, origin, None).await? {
            Reply::Answer(answer) => Ok(*answer),
            Reply::Rendered { .. } => Err(WriteError::Refused),
        }
    }

    pub async fn shard_of_account(&self, id: AccountId) -> Result<Option<ShardId>, sqlx::Error> {
        sqlx::query_scalar("SELECT shard_id FROM accounts WHERE id = $1").bind(id).fetch_optional(&self.pool).await
    }

    /// Operators name orders, payouts and wallets without their account.
    pub async fn shard_of_order(&self, id: OrderId) -> Result<Option<ShardId>, sqlx::Error> {
        history::shard_of_order(&self.pool, id).await
    }

    pub async fn shard_of_payout(&self, id: PayoutId) -> Result<Option<ShardId>, sqlx::Error> {
        sqlx::query_scalar("SELECT shard_id FROM payouts WHERE shard_id = ANY($1) AND id = $2")
            .bind(self.shards().collect::<Vec<_>>())
            .bind(id)
            .fetch_optional(&self.pool)
            .await
    }

    pub async fn shard_of_wallet(&self, id: WalletId) -> Result<Option<ShardId>, sqlx::Error> {
        history::shard_of_wallet(&self.pool, id).await
    }
}
