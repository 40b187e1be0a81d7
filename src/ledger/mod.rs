//! The log, its writer and readers, and the projectors that follow it.

pub mod activity;
pub mod actors;
mod append;
pub mod backlog;
mod batch;
pub mod cache;
pub mod clock;
pub mod command_result;
pub mod commands;
pub mod connect;
mod context;
mod decide;
pub mod eraser;
pub mod erasure;
pub mod expiry;
pub mod explanation;
pub mod feed;
pub mod handover;
pub mod head;
pub mod health;
pub mod history;
mod ids;
pub mod images;
mod in_flight;
mod ip_blocks;
pub mod keys;
pub mod log_position;
mod lookup;
pub mod low_balance;
pub mod moves;
pub mod nodes;
pub mod operator_users;
pub mod operators;
pub mod outbox;
pub mod previous_secret;
pub mod projector;
mod read_set;
pub mod reader;
pub mod reasons;
pub mod schema;
pub mod search;
pub mod shard_load;
mod shards;
pub mod standby;
pub mod statement;
pub mod stock;
mod stream;
mod streams;
pub mod submission;
pub mod sunset;
pub mod texts;
pub mod timeline;
pub mod user_security;
mod wake;
pub mod webhook_headers;
pub(crate) mod write;
mod writer;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ledger_database::{PgConnectOptions, PgPool};
use ledger_events::{AccountId, ApprovalId, Id, OrderId, PayoutId, ShardId, WalletId};
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use crate::heartbeat::Heartbeats;
use crate::secrets::master_keys;
use crate::secrets::seal::Keyring;
use crate::telemetry::Metrics;
use crate::telemetry::traces::Traces;
pub use command_result::CommandResult;
pub use commands::Command;
pub use context::{Idempotency, Origin, StoredResponse};
use handover::Leaders;
use in_flight::{CommandState, InFlight};
use log_position::LogPosition;
pub use schema::{IMPORT, SchemaError, check as check_schema, half_imported, migrate, pending};
pub use shards::{ShardWatch, list as list_shards};
use shards::{WriterSettings, Writers};
use standby::Standby;
use submission::{CommandTrace, Submission};
pub use submission::{Reply, WriteError};
pub use wake::{Addressee, NewDeliveries, Wake};

/// Shard of the catalogue, whose log records the other shards. All accounts are in it, unless there are more shards.
pub const FIRST_SHARD: ShardId = 1;

/// Longest wait of a caller for the result of its command.
const COMMAND_DEADLINE: Duration = Duration::from_secs(10);
/// Additional wait of a caller for learning that the outcome is unknown.
const VERDICT_GRACE: Duration = Duration::from_secs(7);

/// Handle for appending to the log and reading the tables that are derived from it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ledger {
    pool: PgPool,
    maintenance: PgPool,
    heartbeats: Heartbeats,
    traces: Traces,
    writers: Arc<Writers>,
    shards: ShardWatch,
    /// Standby for reads, if there is one.
    standby: Option<Standby>,
    wake: Wake,
    in_flight: InFlight,
    leaders: Leaders,
}

/// A command in a shard's queue.
struct Queued {
    state: CommandState,
    /// Earlier commands with the same idempotency key that are in flight on this node.
    before: Vec<CommandState>,
    deadline: Instant,
    waiting: Waiting,
}

impl Queued {
    /// Waits for the reply.
    async fn reply(self) -> Result<Reply, WriteError> {
        let Queued { state, before, deadline, mut waiting } = self;
        // The writer always replies. If it died, the outcome of the command is unknown.
        let verdict = |reply: Result<_, _>| reply.unwrap_or(Err(WriteError::OutcomeUnknown));
        let reply = match tokio::time::timeout_at(deadline.into(), &mut waiting).await {
            Ok(reply) => verdict(reply),
            Err(_) if state.give_up() => Err(WriteError::Unavailable),
            Err(_) => match tokio::time::timeout(VERDICT_GRACE, waiting).await {
                Ok(reply) => verdict(reply),
                Err(_) => Err(WriteError::OutcomeUnknown),
            },
        };
        match reply {
            Err(error) => Err(error.beside(before.iter().all(CommandState::is_given_up))),
            reply => reply,
        }
    }
}

/// Receiver for the reply to a queued command.
pub type Waiting = oneshot::Receiver<Result<Reply, WriteError>>;

impl Ledger {
    /// Opens the log of a migrated database, and starts one writer per shard, also for shards that are added later. When the
    /// last handle is dropped, the writers finish the accepted commands and end; `tasks` waits for that.
    pub async fn open(
        options: &PgConnectOptions,
        keyring: Arc<Keyring>,
        metrics: Metrics,
        tasks: &TaskTracker,
    ) -> Result<Ledger, SchemaError> {
        Ledger::open_with(options, connect::READ_CONNECTIONS, keyring, metrics, tasks).await
    }

    /// Opens the log with this number of connections for reading.
    pub async fn open_with(
        options: &PgConnectOptions,
        read_connections: u32,
        keyring: Arc<Keyring>,
        metrics: Metrics,
        tasks: &TaskTracker,
    ) -> Result<Ledger, SchemaError> {
        let pool = connect::read_pool(options, read_connections);
        schema::check(&pool).await?;
        master_keys::establish(&pool, &keyring).await?;
        let ids = shards::list(&pool).await?;
        let (wake, leaders) = (Wake::start(options, metrics.heartbeats(), tasks), Leaders::default());
        let writers = Writers::start(
            &ids,
            WriterSettings {
                options: options.clone(),
                keyring,
                leaders: leaders.clone(),
                wake: wake.clone(),
                metrics: metrics.clone(),
                tasks: tasks.clone(),
            },
        );
        let (maintenance, heartbeats) = (connect::maintenance(options), metrics.heartbeats().clone());
        for pool in [&pool, &maintenance] {
            metrics.watch_pool(pool);
        }
        let (shards, in_flight, traces) = (writers.watch(), InFlight::default(), metrics.traces().clone());
        Ok(Ledger { pool, maintenance, heartbeats, traces, writers, shards, standby: None, wake, in_flight, leaders })
    }

    /// Adds a standby for reads.
    #[must_use]
    pub fn with_standby(self, standby: Option<Standby>) -> Ledger {
        Ledger { standby, ..self }
    }

    pub fn standby(&self) -> Option<&Standby> {
        self.standby.as_ref()
    }

    /// Returns the position of the log that includes every command that this node has answered.
    pub fn answered_at(&self) -> LogPosition {
        self.writers.answered_at()
    }

    /// Returns the pool for reading tables that are derived from the log.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Returns the pool for background work. It is separate so that background work and clients do not wait for each
    /// other.
    pub fn maintenance(&self) -> &PgPool {
        &self.maintenance
    }

    /// Returns the heartbeats of this node's loops.
    pub fn heartbeats(&self) -> &Heartbeats {
        &self.heartbeats
    }

    /// Returns the shards that this node knows now, in ascending order.
    pub fn shards(&self) -> Vec<ShardId> {
        self.shards.current()
    }

    /// Returns the shards of this node, as they are added.
    pub fn shard_watch(&self) -> &ShardWatch {
        &self.shards
    }

    pub fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Returns the shards that other nodes lead.
    pub fn leaders(&self) -> &Leaders {
        &self.leaders
    }

    /// Submits a command and waits for its commit. The command is still executed if the caller stops waiting.
    pub async fn submit(
        &self,
        shard: ShardId,
        command: impl Into<Command>,
        origin: Origin,
        idempotency: Option<Idempotency>,
    ) -> Result<Reply, WriteError> {
        let deadline = Instant::now() + COMMAND_DEADLINE;
        self.put(shard, command.into(), origin, idempotency, deadline, false)?.reply().await
    }

    /// Submits a command that another node has handed over. It is decided here, whoever leads the shard now, and its caller
    /// waits `within` at most.
    pub async fn submit_handed(
        &self,
        shard: ShardId,
        command: Command,
        origin: Origin,
        idempotency: Option<Idempotency>,
        within: Duration,
    ) -> Result<Reply, WriteError> {
        let deadline = Instant::now() + within.min(COMMAND_DEADLINE);
        self.put(shard, command, origin, idempotency, deadline, true)?.reply().await
    }

    /// Puts a command into the queue without waiting for its result.
    pub fn enqueue(
        &self,
        shard: ShardId,
        command: impl Into<Command>,
        origin: Origin,
        idempotency: Option<Idempotency>,
    ) -> Result<Waiting, WriteError> {
        let deadline = Instant::now() + COMMAND_DEADLINE;
        self.put(shard, command.into(), origin, idempotency, deadline, false).map(|queued| queued.waiting)
    }

    fn put(
        &self,
        shard: ShardId,
        command: Command,
        origin: Origin,
        idempotency: Option<Idempotency>,
        deadline: Instant,
        is_from_node: bool,
    ) -> Result<Queued, WriteError> {
        let (reply, waiting) = oneshot::channel();
        let queue = self.writers.queue(shard).ok_or(WriteError::Unavailable)?;
        let state = CommandState::default();
        let (guard, before) = idempotency.map(|under| self.in_flight.enter(under.key_hash, &state)).unzip();
        let before = before.unwrap_or_default();
        let trace = CommandTrace::begin(&self.traces, command.span_name(), shard);
        let reply = Some(reply);
        let submission =
            Submission { command, origin, idempotency, trace, deadline, is_from_node, state: state.clone(), guard, reply };
        let refused = |_| WriteError::Unavailable.beside(before.iter().all(CommandState::is_given_up));
        queue.try_send(submission).map_err(refused)?;
        Ok(Queued { state, before, deadline, waiting })
    }

    /// Submits a command without an idempotency key.
    pub async fn execute(
        &self,
        shard: ShardId,
        command: impl Into<Command>,
        origin: Origin,
    ) -> Result<CommandResult, WriteError> {
        match self.submit(shard, command, origin, None).await? {
            Reply::Result(result) => Ok(*result),
            Reply::Stored { .. } => Err(WriteError::Refused),
        }
    }

    pub async fn shard_of_account(&self, id: AccountId) -> Result<Option<ShardId>, sqlx::Error> {
        sqlx::query_scalar("SELECT shard_id FROM accounts WHERE id = $1").bind(id).fetch_optional(&self.pool).await
    }

    /// Returns the shard of an order. Operators refer to orders, payouts and wallets without their account.
    pub async fn shard_of_order(&self, id: OrderId) -> Result<Option<ShardId>, sqlx::Error> {
        history::shard_of_order(&self.pool, id).await
    }

    pub async fn shard_of_payout(&self, id: PayoutId) -> Result<Option<ShardId>, sqlx::Error> {
        sqlx::query_scalar("SELECT shard_id FROM payouts WHERE shard_id = ANY($1) AND id = $2")
            .bind(id.shards_among(&self.shards()))
            .bind(id)
            .fetch_optional(&self.pool)
            .await
    }

    pub async fn shard_of_approval(&self, id: ApprovalId) -> Result<Option<ShardId>, sqlx::Error> {
        sqlx::query_scalar("SELECT shard_id FROM approvals WHERE shard_id = ANY($1) AND id = $2")
            .bind(id.shards_among(&self.shards()))
            .bind(id)
            .fetch_optional(&self.pool)
            .await
    }

    pub async fn shard_of_wallet(&self, id: WalletId) -> Result<Option<ShardId>, sqlx::Error> {
        history::shard_of_wallet(&self.pool, id).await
    }
}
