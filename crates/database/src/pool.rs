//! Connection pool with deadlines.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use either::Either;
use futures::SinkExt;
use futures::channel::mpsc;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};
use sqlx::postgres::{PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{Execute, Executor, Postgres, SqlSafeStr, SqlStr};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connection::State;
use crate::statement::SqlStatement;
use crate::{Connector, MAX_REPEATS, PgConnectOptions, PgConnection, Transaction, is_plan_outdated, log_outdated, replanned};

/// Deadline for acquiring a connection, including opening it.
const ACQUIRE_DEADLINE: Duration = Duration::from_secs(5);
/// Deadline of the check before each use that an idle connection still works.
const CHECK_DEADLINE: Duration = Duration::from_secs(2);
/// Deadline for a connection to finish the statement or rollback that its last user left behind.
const CLEAN_UP_DEADLINE: Duration = Duration::from_secs(10);
/// Deadline for connections in use to come back when the pool closes.
const CLOSE_DEADLINE: Duration = Duration::from_secs(10);
/// Time without use after which a connection is closed.
const IDLE_LIFETIME: Duration = Duration::from_secs(600);
/// Maximum age of a connection, so that server-side session state cannot accumulate.
const LIFETIME: Duration = Duration::from_secs(1_800);
/// Pause between two attempts to connect to a server that is starting.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// Pool of connections to Postgres. Cheap to clone.
#[derive(Clone)]
pub struct PgPool {
    inner: Arc<Inner>,
    router: Option<Arc<dyn ConnectionRouter>>,
}

/// Router that a pool asks for each connection, before it lends one of its own.
pub trait ConnectionRouter: fmt::Debug + Send + Sync {
    /// Returns a connection of another pool, or none if the pool itself must lend one.
    fn route(&self) -> BoxFuture<'_, Result<Option<PoolConnection>, sqlx::Error>>;
}

/// Reference to a pool that does not keep it open.
#[derive(Clone)]
pub struct PoolWatch(Weak<Inner>);

/// Numbers of connections of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    /// Name of the pool, as [`PgPool::name`] returns it.
    pub name: String,
    /// Maximum number of connections.
    pub size: usize,
    /// Connections that are lent, and those that are being opened.
    pub in_use: usize,
    /// Open connections that wait for their next use.
    pub idle: usize,
}

struct Inner {
    connector: Connector,
    size: u32,
    permits: Arc<Semaphore>,
    /// Idle connections; the one used most recently is last.
    idle: Mutex<Vec<Idle>>,
    /// Time when plans were last found to be outdated. A connection opened before it is not used again.
    forgotten: Mutex<Option<Instant>>,
}

struct Idle {
    connection: PgConnection,
    opened: Instant,
    since: Instant,
}

impl fmt::Debug for PgPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgPool").field("name", &self.inner.connector.name()).field("size", &self.inner.size).finish()
    }
}

impl fmt::Debug for PoolWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PoolWatch").field(&self.usage()).finish()
    }
}

impl PoolWatch {
    /// Returns how many connections the pool has now; none once the pool is gone.
    pub fn usage(&self) -> Option<PoolUsage> {
        let pool = self.0.upgrade()?;
        let (size, idle) = (pool.size as usize, pool.idle().len());
        let in_use = size.saturating_sub(pool.permits.available_permits());
        Some(PoolUsage { name: pool.connector.name().to_owned(), size, in_use, idle })
    }
}

impl Inner {
    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a connection opened at that time may have prepared statements from before a migration.
    fn is_outdated(&self, opened: Instant) -> bool {
        let forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        forgotten.is_some_and(|forgotten| opened < forgotten)
    }

    /// Keeps a connection for the next user, and closes those that have been idle for too long.
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
    /// Creates a pool of at most `size` connections, which open on demand.
    pub fn new(connector: Connector, size: u32) -> PgPool {
        let permits = Arc::new(Semaphore::new(size as usize));
        let inner = Inner { connector, size, permits, idle: Mutex::default(), forgotten: Mutex::default() };
        PgPool { inner: Arc::new(inner), router: None }
    }

    /// Creates a pool without deadlines for statements, for commands and tests.
    pub fn patient(options: PgConnectOptions, size: u32) -> PgPool {
        PgPool::new(Connector::patient(options), size)
    }

    /// Creates another pool, of at most `size` connections with the same settings.
    #[must_use]
    pub fn separate(&self, size: u32) -> PgPool {
        PgPool::new(self.inner.connector.clone(), size)
    }

    /// Returns a handle of this pool that asks `router` for each connection first.
    #[must_use]
    pub fn with_router(&self, router: Arc<dyn ConnectionRouter>) -> PgPool {
        PgPool { inner: self.inner.clone(), router: Some(router) }
    }

    /// Returns the name that the server shows as `application_name`.
    pub fn name(&self) -> &str {
        self.inner.connector.name()
    }

    /// Returns the maximum number of connections.
    pub fn size(&self) -> u32 {
        self.inner.size
    }

    /// Returns a reference that shows how many connections the pool has, and does not keep the pool open.
    pub fn watch(&self) -> PoolWatch {
        PoolWatch(Arc::downgrade(&self.inner))
    }

    /// Acquires a connection for exclusive use.
    ///
    /// # Errors
    /// [`sqlx::Error::PoolTimedOut`] after five seconds, [`sqlx::Error::PoolClosed`], or the error of connecting.
    pub async fn acquire(&self) -> Result<PoolConnection, sqlx::Error> {
        if let Some(router) = &self.router
            && let Some(connection) = router.route().await?
        {
            return Ok(connection);
        }
        tokio::time::timeout(ACQUIRE_DEADLINE, self.find()).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    async fn find(&self) -> Result<PoolConnection, sqlx::Error> {
        let permit = self.inner.permits.clone().acquire_owned().await.map_err(|_| sqlx::Error::PoolClosed)?;
        loop {
            let found = self.inner.idle().pop();
            let Some(Idle { mut connection, opened, since }) = found else { break };
            // `is_outdated` is checked here too: plans may have become outdated while `keep` was putting this one back.
            if opened.elapsed() > LIFETIME || since.elapsed() > IDLE_LIFETIME || self.inner.is_outdated(opened) {
                continue;
            }
            let asked = sqlx::query_scalar::<_, bool>(self.inner.connector.check()).fetch_one(&mut connection);
            match tokio::time::timeout(CHECK_DEADLINE, asked).await {
                Ok(Ok(true)) => return Ok(self.lend(connection, opened, permit)),
                Ok(Ok(false)) => drop(connection),
                Ok(Err(error)) => tracing::debug!(connection = self.name(), %error, "an idle database connection has broken"),
                Err(_) => {
                    tracing::warn!(
                        connection = self.name(),
                        deadline = ?CHECK_DEADLINE,
                        "an idle database connection did not answer within the deadline; closing all idle ones"
                    );
                    self.inner.idle().clear();
                }
            }
        }
        let connection = self.connect().await?;
        Ok(self.lend(connection, Instant::now(), permit))
    }

    fn lend(&self, connection: PgConnection, opened: Instant, permit: OwnedSemaphorePermit) -> PoolConnection {
        PoolConnection { lent: Some(Lent { connection, opened, permit }), pool: self.clone() }
    }

    /// Connects, and retries while the server is starting or has no slot for another connection.
    async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        loop {
            match self.inner.connector.connect().await {
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
    /// The errors of [`acquire`](Self::acquire) and of the database.
    pub async fn begin(&self) -> Result<Transaction<'static>, sqlx::Error> {
        Transaction::of_pool(self.acquire().await?, None).await
    }

    /// Begins a transaction with a `BEGIN` statement that sets its mode.
    ///
    /// # Errors
    /// The errors of [`acquire`](Self::acquire) and of the database.
    pub async fn begin_with(&self, statement: impl SqlSafeStr) -> Result<Transaction<'static>, sqlx::Error> {
        Transaction::of_pool(self.acquire().await?, Some(statement.into_sql_str())).await
    }

    /// Closes the pool. It lends no more connections, and waits up to ten seconds for those in use.
    pub async fn close(&self) {
        let all = tokio::time::timeout(CLOSE_DEADLINE, self.inner.permits.acquire_many(self.inner.size)).await;
        self.inner.permits.close();
        drop(all);
        let idle = std::mem::take(&mut *self.inner.idle());
        for Idle { connection, .. } in idle {
            _ = connection.close().await; // on failure the server notices the closed socket
        }
    }

    /// Closes every connection with prepared statements from before a migration: idle ones now, those in use when they come
    /// back.
    fn forget_plans(&self) {
        tracing::info!(connection = self.name(), "the schema has changed; preparing statements again on new connections");
        *self.inner.forgotten.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.inner.idle().clear();
    }
}

/// Connection of a pool, in use. Dropping it returns the connection to the pool, if it is still usable.
pub struct PoolConnection {
    lent: Option<Lent>,
    pool: PgPool,
}

struct Lent {
    connection: PgConnection,
    opened: Instant,
    permit: OwnedSemaphorePermit,
}

const TAKEN: &str = "the connection is present until the guard is dropped";

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
            State::Ready => self.pool.inner.keep(connection, opened), // then the permit is released
            State::Broken => {}                                       // the socket is dropped
            State::Outdated => self.pool.forget_plans(),
            // A statement was cancelled, or a rollback is due. The slot in the pool becomes free when the server has
            // finished it, or after the deadline. Otherwise cancelled calls could add up to more connections than the pool
            // allows.
            State::Busy => {
                let pool = self.pool.clone();
                let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
                runtime.spawn(async move {
                    match tokio::time::timeout(CLEAN_UP_DEADLINE, connection.ping()).await {
                        Ok(Ok(())) => pool.inner.keep(connection, opened),
                        Ok(Err(error)) => tracing::debug!(connection = pool.name(), %error, "closed a database connection"),
                        Err(_) => tracing::warn!(
                            connection = pool.name(),
                            deadline = ?CLEAN_UP_DEADLINE,
                            "the database did not answer within the deadline; closing the connection"
                        ),
                    }
                    drop(permit);
                });
            }
        }
    }
}

impl PgPool {
    /// Runs a statement, and runs it again on a new connection while its plan is outdated.
    async fn run<T>(
        self,
        statement: Result<SqlStatement, sqlx::Error>,
        on: impl for<'a> Fn(&'a mut PgConnection, SqlStatement) -> BoxFuture<'a, Result<T, sqlx::Error>>,
    ) -> Result<T, sqlx::Error> {
        let statement = statement?;
        replanned(async || {
            let mut connection = self.acquire().await?;
            on(&mut connection, statement.clone()).await
        })
        .await
    }

    /// Runs a statement as [`PgPool::run`] does, and sends its rows one by one.
    async fn stream(
        self,
        statement: Result<SqlStatement, sqlx::Error>,
        sender: &mut mpsc::Sender<Result<Either<PgQueryResult, PgRow>, sqlx::Error>>,
    ) -> Result<(), sqlx::Error> {
        let statement = statement?;
        for repeats in 0.. {
            let mut connection = self.acquire().await?;
            let mut answers = connection.fetch_many(statement.clone());
            let mut is_first = true;
            loop {
                match answers.next().await {
                    None => return Ok(()),
                    Some(Err(error)) if is_first && repeats < MAX_REPEATS && is_plan_outdated(&error) => {
                        log_outdated();
                        break;
                    }
                    Some(answer) => {
                        is_first = false;
                        if sender.send(answer).await.is_err() {
                            return Ok(()); // the reader has dropped the stream
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
        Box::pin(self.clone().run(SqlStatement::of(query), |connection, statement| connection.execute(statement)))
    }

    fn fetch_all<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Vec<PgRow>, sqlx::Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        Box::pin(self.clone().run(SqlStatement::of(query), |connection, statement| connection.fetch_all(statement)))
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        Box::pin(self.clone().run(SqlStatement::of(query), |connection, statement| connection.fetch_optional(statement)))
    }

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, sqlx::Error>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let (pool, statement) = (self.clone(), SqlStatement::of(query));
        let (mut sender, receiver) = mpsc::channel(0);
        // The reader of the rows polls this future, and drops it with the stream.
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
