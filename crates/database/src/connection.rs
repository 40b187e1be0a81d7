//! Connection with a deadline for every wait for the server.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use either::Either;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use sqlx::postgres::{PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{AssertSqlSafe, Connection, Execute, Executor, Postgres, SqlSafeStr, SqlStr};
use sqlx_core::transaction::TransactionManager;
use tokio::time::{Instant, Sleep};

use crate::statement::SqlStatement;
use crate::{PgConnectOptions, SessionTarget, Transaction, is_plan_outdated, missed};

/// Statement that begins a transaction through a pooler. The session's default may be another one there.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
/// Error code of a server that refuses writes.
const READ_ONLY: &str = "25006";
/// Deadline for the goodbye to the server, which is only a courtesy.
const CLOSE_DEADLINE: Duration = Duration::from_secs(1);

/// Connection options, and the deadline for each wait for the server.
#[derive(Clone, Debug)]
pub struct Connector {
    options: Arc<PgConnectOptions>,
    deadline: Option<Duration>,
}

impl Connector {
    /// Creates a connector whose connections wait at most `deadline` for the server.
    pub fn new(options: PgConnectOptions, deadline: Duration) -> Connector {
        Connector { options: Arc::new(options), deadline: Some(deadline) }
    }

    /// Creates a connector without a deadline for statements, for commands that a person watches and can interrupt. Its
    /// connections lead around a pooler.
    pub fn patient(options: PgConnectOptions) -> Connector {
        Connector { options: Arc::new(options.direct()), deadline: None }
    }

    /// Returns the name that the server shows as `application_name`.
    pub fn name(&self) -> &str {
        self.options.get_application_name().unwrap_or("unnamed")
    }

    /// Returns the query that finds out whether an idle connection still works. A session that began while the database was
    /// read-only stays read-only, so its answer is false; so is that of a server that was demoted, if a primary is wanted.
    pub(crate) fn check(&self) -> &'static str {
        match self.options.target() {
            SessionTarget::Any => "SELECT current_setting('default_transaction_read_only') = 'off'",
            SessionTarget::ReadWrite | SessionTarget::Primary => "SELECT current_setting('transaction_read_only') = 'off'",
        }
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// A timeout after five seconds, or the error of the last host.
    pub async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        let (raw, _) = self.options.find().await?;
        let local = self.options.is_pooled().then(|| self.options.local_settings().into());
        Ok(PgConnection { raw, state: State::Ready, deadline: self.deadline, options: self.options.clone(), local })
    }
}

/// Known state of the session behind a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Every answer has been read.
    Ready,
    /// A statement was started, and its answer was not read to the end.
    Busy,
    /// A deadline was missed, or the connection broke.
    Broken,
    /// The connection's prepared statements are outdated.
    Outdated,
}

impl State {
    /// Returns the state of a connection after this error.
    fn after(error: &sqlx::Error) -> State {
        match error {
            sqlx::Error::Database(_) if is_plan_outdated(error) => State::Outdated,
            // The server was demoted, so another one is the primary now.
            sqlx::Error::Database(refusal) if refusal.code().as_deref() == Some(READ_ONLY) => State::Broken,
            // The server refused the statement; the session continues.
            sqlx::Error::Database(_) | sqlx::Error::Encode(_) | sqlx::Error::RowNotFound => State::Ready,
            _ => State::Broken,
        }
    }
}

/// Connection to Postgres with deadlines.
pub struct PgConnection {
    raw: sqlx::PgConnection,
    state: State,
    deadline: Option<Duration>,
    options: Arc<PgConnectOptions>,
    /// Settings to make in each transaction, if a pooler lends the session for one transaction only.
    local: Option<Arc<str>>,
}

impl fmt::Debug for PgConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, deadline, .. } = self;
        f.debug_struct("PgConnection").field("name", &self.name()).field("state", state).field("deadline", deadline).finish()
    }
}

impl PgConnection {
    /// Returns the name that the server shows as `application_name`.
    pub fn name(&self) -> &str {
        self.options.get_application_name().unwrap_or("unnamed")
    }

    /// Returns whether the connection missed a deadline or has outdated prepared statements, and so must be dropped.
    pub fn is_broken(&self) -> bool {
        matches!(self.state, State::Broken | State::Outdated)
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Sends a message to the server and waits for its answer.
    ///
    /// # Errors
    /// If the server does not answer in time, or the connection is broken.
    pub async fn ping(&mut self) -> Result<(), sqlx::Error> {
        self.bounded(|raw| Box::pin(raw.ping())).await
    }

    /// Closes the connection with a goodbye to the server, which may take up to a second.
    ///
    /// # Errors
    /// If the goodbye fails. The connection is closed all the same.
    pub async fn close(self) -> Result<(), sqlx::Error> {
        if self.is_broken() {
            return Ok(()); // dropping the connection drops its socket
        }
        tokio::time::timeout(CLOSE_DEADLINE, self.raw.close()).await.unwrap_or_else(|_| Err(missed()))
    }

    /// Begins a transaction, or a savepoint within one.
    ///
    /// # Errors
    /// Any error of the database.
    pub async fn begin(&mut self) -> Result<Transaction<'_>, sqlx::Error> {
        Transaction::on(self, None).await
    }

    /// Begins a transaction with a `BEGIN` statement that sets its mode.
    ///
    /// # Errors
    /// Any error of the database.
    pub async fn begin_with(&mut self, statement: impl SqlSafeStr) -> Result<Transaction<'_>, sqlx::Error> {
        Transaction::on(self, Some(statement.into_sql_str())).await
    }

    /// Runs `work` on sqlx's connection within the deadline.
    pub(crate) async fn bounded<T>(
        &mut self,
        work: impl for<'a> FnOnce(&'a mut sqlx::PgConnection) -> BoxFuture<'a, Result<T, sqlx::Error>>,
    ) -> Result<T, sqlx::Error> {
        if self.is_broken() {
            return Err(missed());
        }
        self.state = State::Busy;
        let Some(deadline) = self.deadline else {
            let outcome = work(&mut self.raw).await;
            self.state = outcome.as_ref().err().map_or(State::Ready, State::after);
            return outcome;
        };
        match tokio::time::timeout(deadline, work(&mut self.raw)).await {
            Ok(outcome) => {
                self.state = outcome.as_ref().err().map_or(State::Ready, State::after);
                outcome
            }
            Err(_) => Err(give_up(&mut self.state, &self.options, deadline)),
        }
    }

    /// Returns the statement that begins a transaction: through a pooler, with the settings of this connection before those
    /// that the statement makes itself.
    pub(crate) fn beginning(&self, statement: Option<SqlStr>) -> Option<SqlStr> {
        let depth = <Postgres as sqlx::Database>::TransactionManager::get_transaction_depth(&self.raw);
        let local = self.local.as_deref().filter(|_| depth == 0);
        let Some(local) = local else { return statement };
        let given = statement.as_ref().map_or(BEGIN, |statement| statement.as_str());
        let (begin, own) = given.split_once(';').unwrap_or((given, ""));
        Some(AssertSqlSafe(format!("{begin}; {local}; {own}")).into_sql_str())
    }

    /// Returns whether the next statement needs a transaction of its own, because a pooler would run it with other settings.
    fn is_alone(&self) -> bool {
        self.local.is_some() && <Postgres as sqlx::Database>::TransactionManager::get_transaction_depth(&self.raw) == 0
    }

    /// Runs a statement in a transaction of its own.
    async fn run_alone(
        &mut self,
        statement: Result<SqlStatement, sqlx::Error>,
    ) -> Result<Vec<Either<PgQueryResult, PgRow>>, sqlx::Error> {
        let statement = statement?;
        let mut transaction = self.begin().await?;
        let answers: Result<Vec<_>, _> = transaction.fetch_many(statement).try_collect().await;
        match answers {
            Ok(answers) => transaction.commit().await.map(|()| answers),
            Err(error) => {
                if !transaction.is_broken() {
                    _ = transaction.rollback().await; // on an error the connection is broken
                }
                Err(error)
            }
        }
    }

    /// Queues a rollback, which sqlx sends with the next statement.
    pub(crate) fn start_rollback(&mut self) {
        if !self.is_broken() {
            <Postgres as sqlx::Database>::TransactionManager::start_rollback(&mut self.raw);
            self.state = State::Busy;
        }
    }
}

/// Marks a connection as broken and logs it. Returns the timeout error.
fn give_up(state: &mut State, options: &PgConnectOptions, deadline: Duration) -> sqlx::Error {
    *state = State::Broken;
    let connection = options.get_application_name().unwrap_or("unnamed");
    tracing::warn!(connection, ?deadline, "the database did not answer within the deadline; closing the connection");
    missed()
}

/// Stream of a statement's answers, with a deadline for each. Time that the reader spends between answers does not count.
struct Answers<'e> {
    stream: BoxStream<'e, Result<Either<PgQueryResult, PgRow>, sqlx::Error>>,
    state: &'e mut State,
    options: &'e PgConnectOptions,
    deadline: Option<Duration>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether the timer is set for the current wait.
    is_waiting: bool,
    is_over: bool,
}

impl Stream for Answers<'_> {
    type Item = Result<Either<PgQueryResult, PgRow>, sqlx::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.is_over {
            return Poll::Ready(None);
        }
        let Poll::Ready(answer) = this.stream.poll_next_unpin(cx) else {
            let Some(deadline) = this.deadline else { return Poll::Pending };
            let timer = this.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(deadline)));
            if !std::mem::replace(&mut this.is_waiting, true) {
                timer.as_mut().reset(Instant::now() + deadline);
            }
            ready!(timer.as_mut().poll(cx));
            this.is_over = true;
            return Poll::Ready(Some(Err(give_up(this.state, this.options, deadline))));
        };
        this.is_waiting = false;
        match &answer {
            None => *this.state = State::Ready,
            Some(Err(error)) => *this.state = State::after(error),
            Some(Ok(_)) => return Poll::Ready(answer),
        }
        this.is_over = true;
        Poll::Ready(answer)
    }
}

impl<'c> Executor<'c> for &'c mut PgConnection {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        if self.is_broken() {
            return Box::pin(stream::once(std::future::ready(Err(missed()))));
        }
        if self.is_alone() {
            let statement = SqlStatement::of(query);
            let answers = stream::once(async move { self.run_alone(statement).await });
            return Box::pin(answers.flat_map(|answers| match answers {
                Ok(answers) => stream::iter(answers).map(Ok).left_stream(),
                Err(error) => stream::once(std::future::ready(Err(error))).right_stream(),
            }));
        }
        let PgConnection { raw, state, deadline, options, local } = self;
        *state = State::Busy;
        let stream = match local {
            None => raw.fetch_many(query),
            // A pooler would lose a statement with a name.
            Some(_) => match SqlStatement::of(query) {
                Ok(statement) => raw.fetch_many(statement.unnamed()),
                Err(error) => Box::pin(stream::once(std::future::ready(Err(error)))),
            },
        };
        Box::pin(Answers { stream, state, options, deadline: *deadline, timer: None, is_waiting: false, is_over: false })
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, Result<Option<PgRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        Box::pin(async move {
            // Read to the end, because errors of deferred constraints arrive last.
            let mut answers = self.fetch_many(query);
            let mut first = None;
            while let Some(answer) = answers.next().await {
                if let Either::Right(row) = answer? {
                    first.get_or_insert(row);
                }
            }
            Ok(first)
        })
    }

    fn prepare_with<'e>(self, sql: SqlStr, parameters: &'e [PgTypeInfo]) -> BoxFuture<'e, Result<PgStatement, sqlx::Error>>
    where
        'c: 'e,
    {
        let parameters = parameters.to_vec();
        Box::pin(self.bounded(move |raw| Box::pin(async move { raw.prepare_with(sql, &parameters).await })))
    }
}
