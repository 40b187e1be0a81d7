//! Connection with a deadline for every wait for the server.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use either::Either;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use sqlx::postgres::{PgConnectOptions, PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{ConnectOptions, Connection, Execute, Executor, Postgres, SqlSafeStr, SqlStr};
use sqlx_core::transaction::TransactionManager;
use tokio::time::{Instant, Sleep};

use crate::{Transaction, is_plan_outdated, missed};

/// Deadline for opening a connection.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
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

    /// Creates a connector without a deadline for statements, for commands that a person watches and can interrupt.
    pub fn patient(options: PgConnectOptions) -> Connector {
        Connector { options: Arc::new(options), deadline: None }
    }

    /// Returns the name that the server shows as `application_name`.
    pub fn name(&self) -> &str {
        self.options.get_application_name().unwrap_or("unnamed")
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// A timeout after five seconds, or the error of connecting.
    pub async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        let Ok(connected) = tokio::time::timeout(CONNECT_DEADLINE, self.options.connect()).await else {
            tracing::warn!(
                connection = self.name(),
                deadline = ?CONNECT_DEADLINE,
                "failed to connect to the database within the deadline"
            );
            return Err(missed());
        };
        Ok(PgConnection { raw: connected?, state: State::Ready, deadline: self.deadline, options: self.options.clone() })
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
        let PgConnection { raw, state, deadline, options } = self;
        *state = State::Busy;
        let stream = raw.fetch_many(query);
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
