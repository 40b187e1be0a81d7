//! Reads on a standby that are as recent as on the primary.
//!
//! A read names the position of the log that it must see: the client's own, or the primary's at the time of the read. A
//! transaction that appends to the log also writes every row that follows from its events. So a standby that has the last
//! event up to a position shows everything up to it. The connection that serves the read is the one that is asked, because
//! two connections to one address may lead to different servers. For the same reason, all reads of a request use one server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use ledger_database::{ConnectionRouter, PgPool, PoolConnection};
use tokio::sync::Mutex;

use super::connect;
use super::log_position::LogPosition;
use crate::telemetry::Metrics;

/// Pause between two looks at the standby's log.
const POLL_PAUSE: Duration = Duration::from_millis(5);
/// Longest wait of a command for the primary's answer, and then for the standby to catch up.
const MAX_COMMAND_WAIT: Duration = Duration::from_secs(5);

/// Bounds of what a standby that is behind or lost costs its readers.
#[derive(Clone, Copy, Debug)]
pub struct StandbyLimits {
    /// Longest wait of a read for the standby, before it goes to the primary.
    pub max_wait: Duration,
    /// Time for which no read goes to a standby that was out of reach or too far behind.
    pub suspension: Duration,
}

impl Default for StandbyLimits {
    fn default() -> StandbyLimits {
        StandbyLimits { max_wait: Duration::from_millis(250), suspension: Duration::from_secs(1) }
    }
}

/// A standby that takes reads from the primary. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Standby(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: PgPool,
    metrics: Metrics,
    max_wait: Duration,
    breaker: CircuitBreaker,
}

impl Standby {
    /// Creates a standby from the pool of connections to it.
    pub fn new(pool: PgPool, limits: StandbyLimits, metrics: Metrics) -> Standby {
        let StandbyLimits { max_wait, suspension } = limits;
        Standby(Arc::new(Inner { pool, metrics, max_wait, breaker: CircuitBreaker::new(suspension) }))
    }

    /// Returns the pool for one request's reads. Its connections lead to the standby, if that has reached `at_least` or does so
    /// soon, and else to the primary. Without `at_least`, reads see everything that the primary has committed before the first
    /// of them. `is_used` is set when a connection leads to the standby.
    pub fn read_pool(&self, primary: &PgPool, at_least: Option<LogPosition>, is_used: Arc<AtomicBool>) -> PgPool {
        let (standby, target) = (self.0.clone(), Mutex::default());
        primary.with_router(Arc::new(ReadRouter { standby, primary: primary.clone(), at_least, is_used, target }))
    }

    /// Returns the pool for a command's reads, from pools of connections to both servers. Its connections lead to the standby,
    /// as those of [`Standby::read_pool`]. If the primary does not answer, reads see what the standby has.
    pub async fn command_pool(standby: PgPool, primary: &PgPool) -> PgPool {
        let at_least =
            connect::within(MAX_COMMAND_WAIT, LogPosition::read(primary)).await.unwrap_or_else(|error: sqlx::Error| {
                tracing::warn!(%error, "the primary does not answer; reading what the standby has, which may be old");
                LogPosition::default()
            });
        let limits = StandbyLimits { max_wait: MAX_COMMAND_WAIT, ..StandbyLimits::default() };
        Standby::new(standby, limits, Metrics::default()).read_pool(primary, Some(at_least), Arc::default())
    }
}

impl Inner {
    /// Acquires a connection. It goes to the pool if the caller has stopped waiting, because opening one may take longer than
    /// any read waits.
    async fn acquire(&self) -> Result<PoolConnection, sqlx::Error> {
        let pool = self.pool.clone();
        let acquired = tokio::spawn(async move { pool.acquire().await });
        acquired.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
    }

    /// Waits until a standby has reached a position. Returns the connection that shows it, and the server's identity. If a
    /// server is named, only that one counts.
    async fn connect_at(&self, at_least: &LogPosition, server: Option<&str>) -> Result<(PoolConnection, String), StandbyError> {
        let mut is_answering = false;
        let reached = tokio::time::timeout(self.max_wait, async {
            // Connections to other servers. The pool would lend them again if they went back now.
            let mut elsewhere = vec![];
            loop {
                let mut connection = self.acquire().await?;
                let state = at_least.compare(&mut *connection).await?;
                if server.is_some_and(|server| server != state.server) {
                    elsewhere.push(connection);
                    continue;
                }
                if state.has_reached {
                    return Ok((connection, state.server));
                }
                is_answering = true;
                // Other reads may use the connection meanwhile.
                drop(connection);
                tokio::time::sleep(POLL_PAUSE).await;
            }
        });
        match reached.await {
            Ok(reached) => reached.map_err(StandbyError::Unavailable),
            Err(_) if is_answering => Err(StandbyError::Behind),
            Err(_) => Err(StandbyError::Unavailable(sqlx::Error::PoolTimedOut)),
        }
    }
}

/// Reason why a read does not use the standby.
#[derive(Debug, thiserror::Error)]
enum StandbyError {
    #[error("the standby is behind")]
    Behind,
    #[error("the standby does not answer: {0}")]
    Unavailable(sqlx::Error),
}

impl StandbyError {
    fn outcome(&self) -> &'static str {
        match self {
            Self::Behind => "behind",
            Self::Unavailable(_) => "unavailable",
        }
    }
}

/// Server that takes the reads of a request.
#[derive(Debug)]
enum ReadTarget {
    Primary,
    /// The standby with this identity, once it has reached the position.
    Standby {
        server: String,
        at_least: LogPosition,
    },
}

/// Router of a request's reads. The first read chooses the server. If that is a standby and is lost, the later reads go to the
/// primary, which has everything that the standby had.
#[derive(Debug)]
struct ReadRouter {
    standby: Arc<Inner>,
    primary: PgPool,
    at_least: Option<LogPosition>,
    is_used: Arc<AtomicBool>,
    target: Mutex<Option<ReadTarget>>,
}

impl ReadRouter {
    async fn route(&self) -> Result<Option<PoolConnection>, sqlx::Error> {
        let mut target = self.target.lock().await;
        match &*target {
            None => {
                let (chosen, connection) = self.choose().await?;
                *target = Some(chosen);
                Ok(connection)
            }
            Some(ReadTarget::Primary) => Ok(None),
            Some(ReadTarget::Standby { server, at_least }) => {
                match self.standby.connect_at(at_least, Some(server.as_str())).await {
                    Ok((connection, _)) => Ok(Some(connection)),
                    Err(reason) => {
                        tracing::warn!(%reason, "a request that began on the standby goes on at the primary");
                        *target = Some(ReadTarget::Primary);
                        Ok(None)
                    }
                }
            }
        }
    }

    /// Chooses the server for the request's reads. Returns the first connection if it is a standby.
    async fn choose(&self) -> Result<(ReadTarget, Option<PoolConnection>), sqlx::Error> {
        let Inner { metrics, breaker, .. } = &*self.standby;
        let state = breaker.state();
        if state == BreakerState::Open {
            metrics.read_from_primary("suspended");
            return Ok((ReadTarget::Primary, None));
        }
        let at_least = match &self.at_least {
            Some(position) if state == BreakerState::Closed => position.clone(),
            // An old position would not show that the standby has caught up.
            _ => LogPosition::read(&self.primary).await?,
        };
        match self.standby.connect_at(&at_least, None).await {
            Ok((connection, server)) => {
                if state == BreakerState::HalfOpen {
                    breaker.close();
                }
                metrics.read_from_standby();
                self.is_used.store(true, Ordering::Relaxed);
                Ok((ReadTarget::Standby { server, at_least }, Some(connection)))
            }
            Err(reason) => {
                metrics.read_from_primary(reason.outcome());
                // A failover may have lost the client's position. No server reaches it then, and the standby is well.
                let is_to_blame = match reason {
                    StandbyError::Behind => at_least.compare(&self.primary).await?.has_reached,
                    StandbyError::Unavailable(_) => true,
                };
                if is_to_blame {
                    tracing::warn!(%reason, pause = ?breaker.pause, "reading from the primary instead of the standby");
                    breaker.open();
                }
                Ok((ReadTarget::Primary, None))
            }
        }
    }
}

impl ConnectionRouter for ReadRouter {
    fn route(&self) -> BoxFuture<'_, Result<Option<PoolConnection>, sqlx::Error>> {
        ReadRouter::route(self).boxed()
    }
}

/// Circuit breaker that keeps reads away from a standby which cannot serve them.
#[derive(Debug)]
struct CircuitBreaker {
    pause: Duration,
    open_until: std::sync::Mutex<Option<Instant>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BreakerState {
    /// Reads use the standby.
    Closed,
    /// The pause is over, and this read tries the standby. The others do not yet.
    HalfOpen,
    /// Reads do not use the standby.
    Open,
}

impl CircuitBreaker {
    fn new(pause: Duration) -> CircuitBreaker {
        CircuitBreaker { pause, open_until: std::sync::Mutex::default() }
    }

    /// Returns the state for one read. If that is half-open, the breaker is open for the others for another pause.
    fn state(&self) -> BreakerState {
        let now = Instant::now();
        let mut until = self.open_until.lock().unwrap_or_else(PoisonError::into_inner);
        match *until {
            None => BreakerState::Closed,
            Some(end) if end > now => BreakerState::Open,
            Some(_) => {
                *until = Some(now + self.pause);
                BreakerState::HalfOpen
            }
        }
    }

    fn open(&self) {
        *self.open_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + self.pause);
    }

    fn close(&self) {
        *self.open_until.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn one_read_tries_the_standby_at_the_end_of_each_pause() {
        let breaker = CircuitBreaker::new(Duration::from_secs(3600));
        assert_eq!(breaker.state(), BreakerState::Closed);
        breaker.open();
        assert_eq!(breaker.state(), BreakerState::Open);
        *breaker.open_until.lock().unwrap() = Some(Instant::now());
        assert_eq!([breaker.state(), breaker.state()], [BreakerState::HalfOpen, BreakerState::Open]);
        breaker.close();
        assert_eq!([breaker.state(), breaker.state()], [BreakerState::Closed; 2]);
    }
}
