//! A pool of connections with deadlines.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use either::Either;
use futures::SinkExt;
use futures::channel::mpsc;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{Execute, Executor, Postgres, SqlSafeStr, SqlStr};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connection::State;
use crate::{Connector, PgConnection, Transaction, is_plan_outdated};

/// Longest time to get a connection, its opening included.
const ACQUIRE_DEADLINE: Duration = Duration::from_secs(5);
/// Longest time for a connection to show that it is still there, before each use.
const CHECK_DEADLINE: Duration = Duration::from_secs(2);
/// Longest time for a connection to end what its last user left behind.
const CLEAN_UP_DEADLINE: Duration = Duration::from_secs(10);
/// Longest time for connections in use to come back when the pool closes.
const CLOSE_DEADLINE: Duration = Duration::from_secs(10);
/// A connection that nobody used for so long is closed.
const IDLE_LIFETIME: Duration = Duration::from_secs(600);
/// No connection is older than this, so that nothing adds up in a session.
const LIFETIME: Duration = Duration::from_secs(1_800);
/// Between two attempts to connect to a server that is starting.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// A pool of connections to Postgres. Cheap to clone.
#[derive(Clone)]
pub struct PgPool(Arc<Inner>);

struct Inner {
    connector: Connector,
    size: u32,
    permits: Arc<Semaphore>,
    /// The one used last is at the end.
    idle: Mutex<Vec<Idle>>,
    /// When plans were last found to be outdated: a connection that was opened before is not used again.
    forgotten: Mutex<Option<Instant>>,
}

struct Idle {
    connection: PgConnection,
    opened: Instant,
    since: Instant,
}

impl fmt::Debug for PgPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgPool").field("name", &self.0.connector.name()).field("size", &self.0.size).finish()
    }
}

impl Inner {
    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a connection that was opened then may have prepared statements from before a migration.
    fn is_outdated(&self, opened: Instant) -> bool {
        let forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        forgotten.is_some_and(|forgotten| opened < forgotten)
    }

    /// Keeps a connection for the next user, and closes those at the other end that nobody needs.
    fn keep(&self, connection: PgConnection, opened: Instant) {
        if self.permits.is_closed() || self.is_outdated(opened) {
            return;
        }
        let mut idle = self.idle();
        idle.push(Idle { connection, opened, since: Instant::now() });
        let unused = idle.iter().take_while(|idle| idle.since.elapsed() > IDLE_LIFETIME).count();
        idle.drain(..unused);
    }
}

impl PgPool {
    /// A pool of at most `size` connections, which are opened when they are needed.
    pub fn new(connector: Connector, size: u32) -> PgPool {
        let permits = Arc::new(Semaphore::new(size as usize));
        PgPool(Arc::new(Inner { connector, size, permits, idle: Mutex::default(), forgotten: Mutex::default() }))
    }

    /// A pool without deadlines for statements, for commands and tests.
    pub fn patient(options: PgConnectOptions, size: u32) -> PgPool {
        PgPool::new(Connector::patient(options), size)
    }

    /// What the server shows as `application_name`.
    pub fn name(&self) -> &str {
        self.0.connector.name()
    }

    /// Most connections.
    pub fn size(&self) -> u32 {
        self.0.size
    }

    /// A connection for one user.
    ///
    /// # Errors
    /// [`sqlx::Error::PoolTimedOut`] after five seconds, [`sqlx::Error::PoolClosed`], and what connecting ends in.
    pub async fn acquire(&self) -> Result<PoolConnection, sqlx::Error> {
        tokio::time::timeout(ACQUIRE_DEADLINE, self.find()).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    async fn find(&self) -> Result<PoolConnection, sqlx::Error> {
        let permit = self.0.permits.clone().acquire_owned().await.map_err(|_| sqlx::Error::PoolClosed)?;
        loop {
            let found = self.0.idle().pop();
            let Some(Idle { mut connection, opened, since }) = found else { break };
            // Asked here too: plans may have been forgotten while `keep` was putting this one back.
            if opened.elapsed() > LIFETIME || since.elapsed() > IDLE_LIFETIME || self.0.is_outdated(opened) {
                continue;
            }
            // One that began while the database was read-only stays so: it is closed. Asking tells also that it is still there.
            let asked = sqlx::query_scalar::<_, bool>("SELECT current_setting('default_transaction_read_only') = 'off'")
                .fetch_one(&mut connection);
            match tokio::time::timeout(CHECK_DEADLINE, asked).await {
                Ok(Ok(true)) => return Ok(self.lend(connection, opened, permit)),
                Ok(Ok(false)) => drop(connection),
                Ok(Err(error)) => tracing::debug!(connection = self.name(), %error, "an idle database connection has broken"),
                Err(_) => {
                    tracing::warn!(
                        connection = self.name(),
                        deadline = ?CHECK_DEADLINE,
                        "an idle database connection did not answer within the deadline: closing all idle ones"
                    );
                    self.0.idle().clear();
                }
            }
        }
        let connection = self.connect().await?;
        Ok(self.lend(connection, Instant::now(), permit))
    }

    fn lend(&self, connection: PgConnection, opened: Instant, permit: OwnedSemaphorePermit) -> PoolConnection {
        PoolConnection { lent: Some(Lent { connection, opened, permit }), pool: self.clone() }
    }

    /// Waits for a server that is starting, or has no place yet for another connection.
    async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        loop {
            match self.0.connector.connect().await {
                Err(sqlx::Error::Io(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
                Err(sqlx::Error::Database(error)) if error.is_transient_in_connect_phase() => {}
                outcome => return outcome,
            }
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and the database's.
    pub async fn begin(&self) -> Result<Transaction<'static>, sqlx::Error> {
        Transaction::of_pool(self.acquire().await?, None).await
    }

    /// Begins a transaction with a statement that says how.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and the database's.
    pub async fn begin_with(&self, statement: impl SqlSafeStr) -> Result<Transaction<'static>, sqlx::Error> {
        Transaction::of_pool(self.acquire().await?, Some(statement.into_sql_str())).await
    }

    /// Lends no more connections, and waits a while for those in use.
    pub async fn close(&self) {
        let all = tokio::time::timeout(CLOSE_DEADLINE, self.0.permits.acquire_many(self.0.size)).await;
        self.0.permits.close();
        drop(all);
        let idle = std::mem::take(&mut *self.0.idle());
        for Idle { connection, .. } in idle {
            _ = connection.close().await; // the server notices anyway
        }
    }

    /// Closes every connection whose prepared statements are from before a migration: idle ones now, those in use when
    /// they come back.
    fn forget_plans(&self) {
        tracing::info!(connection = self.name(), "the schema has changed: preparing statements anew on new connections");
        *self.0.forgotten.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.0.idle().clear();
    }
}

/// A connection of a pool, in use. It goes back when this is dropped, if it can.
pub struct PoolConnection {
    lent: Option<Lent>,
    pool: PgPool,
}

struct Lent {
    connection: PgConnection,
    opened: Instant,
    permit: OwnedSemaphorePermit,
}

const TAKEN: &str = "a connection is in its place until it is dropped";

impl fmt::Debug for PoolConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PoolConnection").field(&**self).finish()
    }
}

impl Deref for PoolConnection {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.lent.as_ref().expect(TAKEN).connection
    }
}

impl DerefMut for PoolConnection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.lent.as_mut().expect(TAKEN).connection
    }
}

impl Drop for PoolConnection {
    fn drop(&mut self) {
        let Some(Lent { mut connection, opened, permit }) = self.lent.take() else { return };
        match connection.state() {
            State::Ready => self.pool.0.keep(connection, opened), // and the permit after it
            State::Broken => {}                                   // the socket is dropped
            State::Outdated => self.pool.forget_plans(),
            // A statement was given up, or a rollback is due. The place in the pool is free when the server has ended it, so
            // that callers who give up do not add up to more connections than the pool may have; or after the deadline.
            State::Busy => {
                let pool = self.pool.clone();
                let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
                runtime.spawn(async move {
                    match tokio::time::timeout(CLEAN_UP_DEADLINE, connection.ping()).await {
                        Ok(Ok(())) => pool.0.keep(connection, opened),
                        Ok(Err(error)) => tracing::debug!(connection = pool.name(), %error, "a database connection was given up"),
                        Err(_) => tracing::warn!(
                            connection = pool.name(),
                            deadline = ?CLEAN_UP_DEADLINE,
                            "the database did not answer within the deadline: closing the connection"
                        ),
                    }
                    drop(permit);
                });
            }
        }
    }
}

/// A statement that can be run again.
#[derive(Clone)]
struct Statement {
    sql: SqlStr,
    arguments: Option<PgArguments>,
    is_persistent: bool,
}

impl Statement {
    fn of<'q>(mut query: impl Execute<'q, Postgres>) -> Result<Statement, sqlx::Error> {
        let arguments = query.take_arguments().map_err(sqlx::Error::Encode)?;
        let is_persistent = query.persistent();
        Ok(Statement { sql: query.sql(), arguments, is_persistent })
    }
}

impl Execute<'_, Postgres> for Statement {
    fn sql(self) -> SqlStr {
        self.sql
    }

    fn statement(&self) -> Option<&PgStatement> {
        None
    }

    fn take_arguments(&mut self) -> Result<Option<PgArguments>, BoxDynError> {
        Ok(self.arguments.take())
    }

    fn persistent(&self) -> bool {
        self.is_persistent
    }
}

impl PgPool {
    /// Runs a statement, on a new connection once more if its plan is outdated.
    async fn run<T>(
        self,
        statement: Result<Statement, sqlx::Error>,
        on: impl for<'a> Fn(&'a mut PgConnection, Statement) -> BoxFuture<'a, Result<T, sqlx::Error>>,
    ) -> Result<T, sqlx::Error> {
        let statement = statement?;
        let mut connection = self.acquire().await?;
        let outcome = on(&mut connection, statement.clone()).await;
        drop(connection);
        match outcome {
            Err(error) if is_plan_outdated(&error) => {
                let mut connection = self.acquire().await?;
                on(&mut connection, statement).await
            }
            outcome => outcome,
        }
    }

    /// The same for a statement whose rows are taken one by one.
    async fn stream(
        self,
        statement: Result<Statement, sqlx::Error>,
        sender: &mut mpsc::Sender<Result<Either<PgQueryResult, PgRow>, sqlx::Error>>,
    ) -> Result<(), sqlx::Error> {
        let statement = statement?;
        for is_again in [false, true] {
            let mut connection = self.acquire().await?;
            let mut answers = connection.fetch_many(statement.clone());
            let mut is_first = true;
            loop {
                match answers.next().await {
                    None => return Ok(()),
                    Some(Err(error)) if is_first && !is_again && is_plan_outdated(&error) => break,
                    Some(answer) => {
                        is_first = false;
                        if sender.send(answer).await.is_err() {
                            return Ok(()); // nobody wants the rest
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

impl<'p> Executor<'p> for &PgPool {
    type Database = Postgres;

    fn execute<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<PgQueryResult, sqlx::Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        Box::pin(self.clone().run(Statement::of(query), |connection, statement| connection.execute(statement)))
    }

    fn fetch_all<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Vec<PgRow>, sqlx::Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        Box::pin(self.clone().run(Statement::of(query), |connection, statement| connection.fetch_all(statement)))
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        Box::pin(self.clone().run(Statement::of(query), |connection, statement| connection.fetch_optional(statement)))
    }

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, sqlx::Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let (pool, statement) = (self.clone(), Statement::of(query));
        let (mut sender, receiver) = mpsc::channel(0);
        // Polled by whoever reads the rows, and dropped with them.
        let reads = async move {
            match pool.stream(statement, &mut sender).await {
                Ok(()) => None,
                Err(error) => Some(Err(error)),
            }
        };
        Box::pin(stream::select(receiver, stream::once(reads).filter_map(std::future::ready)))
    }

    fn prepare_with<'e>(self, sql: SqlStr, parameters: &'e [PgTypeInfo]) -> BoxFuture<'e, Result<PgStatement, sqlx::Error>>
    where
        'p: 'e,
    {
        let pool = self.clone();
        Box::pin(async move { pool.acquire().await?.prepare_with(sql, parameters).await })
    }
}
