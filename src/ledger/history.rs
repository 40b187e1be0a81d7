//! Past states: an order or a wallet as of any position or time of the log.
//!
//! A past state is the fold of the events up to that position, by the same `evolve`; no extra data is stored for it. The
//! versions of a stream are dense and their positions only grow. A bisection over the log's keys therefore finds a stream's
//! version at a position.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Datelike, NaiveDate, NaiveTime, SubsecRound, TimeDelta, Utc};
use ledger_database::{PgPool, replanned};
use ledger_events::order::Order;
use ledger_events::wallet::{self, Movement, Wallet};
use ledger_events::{Event, Id, Money, OrderId, Position, ShardId, WalletId};

use super::reader::{self, ReadError};

/// A position or time in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsOf {
    /// State after the event at this position.
    Position(Position),
    /// State after the last event that was recorded at or before this time.
    Time(DateTime<Utc>),
}

/// Error for a text that is neither a position nor a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a position of the log, from 1, or a time such as 2030-12-31 (midnight UTC) or 2030-12-31T12:00:00Z")]
pub struct AsOfError;

impl FromStr for AsOf {
    type Err = AsOfError;

    fn from_str(text: &str) -> Result<AsOf, AsOfError> {
        if let Ok(position) = text.parse() {
            return if position > 0 { Ok(AsOf::Position(position)) } else { Err(AsOfError) };
        }
        time(text).map(AsOf::Time).ok_or(AsOfError)
    }
}

/// Parses a date, which means midnight UTC, or a time in the format of RFC 3339. Accepts the years 1 to 9999, because the
/// database cannot represent others.
pub fn time(text: &str) -> Option<DateTime<Utc>> {
    let day = text.parse::<NaiveDate>().ok().map(|day| day.and_time(NaiveTime::MIN).and_utc());
    let time = day.or_else(|| DateTime::parse_from_rfc3339(text).ok().map(|time| time.to_utc()));
    time.filter(|time| (1..=9999).contains(&time.year()))
}

impl fmt::Display for AsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Position(position) => write!(f, "position {position}"),
            Self::Time(time) => write!(f, "{}", time.to_rfc3339()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The requested position does not exist yet, so its state is not known.
    #[error("the log ends at position {head}")]
    BeyondHead { head: Position },
}

impl From<sqlx::Error> for HistoryError {
    fn from(error: sqlx::Error) -> HistoryError {
        HistoryError::Read(error.into())
    }
}

/// Resolves a position or time to a position: 0 for a time before the first event, the head for a time after the last.
///
/// # Errors
/// Returns [`HistoryError::BeyondHead`] when the log has not reached the position.
pub async fn position(pool: &PgPool, shard: ShardId, as_of: AsOf) -> Result<Position, HistoryError> {
    match as_of {
        AsOf::Position(position) => match reader::head(pool, shard).await? {
            head if position > head => Err(HistoryError::BeyondHead { head }),
            _ => Ok(position),
        },
        AsOf::Time(time) => {
            // The log stores times in whole milliseconds.
            let after = time.trunc_subsecs(3) + TimeDelta::milliseconds(1);
            Ok(reader::position_at(pool, shard, after).await? - 1)
        }
    }
}

/// A point in the log, with the time that ends it for records that are not events.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub position: Position,
    /// Time after which nothing belongs to the point: the requested time, or the last millisecond before the event after a
    /// position. `None` at the head, for a position.
    pub ends_at: Option<DateTime<Utc>>,
}

/// Resolves a position or time to a point, as [`position`] does.
///
/// # Errors
/// Those of [`position`].
pub async fn point(pool: &PgPool, shard: ShardId, as_of: AsOf) -> Result<Point, HistoryError> {
    let position = position(pool, shard, as_of).await?;
    let ends_at = match as_of {
        AsOf::Time(time) => Some(time),
        AsOf::Position(_) => match &*reader::stored_at(pool, shard, &[position, position + 1]).await? {
            // Records that the next event makes have its time. Both events may have the same time.
            [event, next] => Some(event.recorded_at.max(next.recorded_at - TimeDelta::milliseconds(1))),
            _ => None,
        },
    };
    Ok(Point { position, ends_at })
}

/// Returns the shard of an order, according to its row or, if the row is missing, to the log.
pub async fn shard_of_order(pool: &PgPool, id: OrderId) -> Result<Option<ShardId>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT h.shard_id FROM log_head h WHERE ($2::smallint IS NULL OR h.shard_id = $2) AND (
            EXISTS (SELECT FROM orders o WHERE o.shard_id = h.shard_id AND o.id = $1)
            OR EXISTS (SELECT FROM events e
                WHERE e.shard_id = h.shard_id AND e.stream_type = 'order' AND e.stream_id = $1 AND e.version = 1))",
    )
    .bind(id)
    .bind(id.shard())
    .fetch_optional(pool)
    .await
}

/// Returns the first shard whose log has a stream.
pub async fn shard_of_stream(pool: &PgPool, stream_type: &str, stream_id: i64) -> Result<Option<ShardId>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT h.shard_id FROM log_head h
         WHERE ($3::smallint IS NULL OR h.shard_id = $3) AND EXISTS (SELECT FROM events e
            WHERE e.shard_id = h.shard_id AND e.stream_type = $1 AND e.stream_id = $2 AND e.version = 1)
         ORDER BY h.shard_id LIMIT 1",
    )
    .bind(stream_type)
    .bind(stream_id)
    .bind(stream_id.shard())
    .fetch_optional(pool)
    .await
}

/// Returns the shard of a wallet, according to its row or, if the row is missing, to the log.
pub async fn shard_of_wallet(pool: &PgPool, id: WalletId) -> Result<Option<ShardId>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT h.shard_id FROM log_head h WHERE ($2::smallint IS NULL OR h.shard_id = $2) AND (
            EXISTS (SELECT FROM wallets w WHERE w.shard_id = h.shard_id AND w.id = $1)
            OR EXISTS (SELECT FROM events e
                WHERE e.shard_id = h.shard_id AND e.stream_type = 'wallet' AND e.stream_id = $1 AND e.version = 1))",
    )
    .bind(id)
    .bind(id.shard())
    .fetch_optional(pool)
    .await
}

/// Returns the state of an order after a position, or none if it was placed later.
pub async fn order_at(pool: &PgPool, shard: ShardId, id: OrderId, at: Position) -> Result<Option<Order>, ReadError> {
    let fold = async || reader::orders_before(&mut *pool.acquire().await?, shard, &[id], at.saturating_add(1)).await;
    Ok(replanned(fold).await?.remove(&id))
}

/// Returns the state of a wallet after a position, or none if it was opened later.
///
/// A busy wallet has millions of events, so this function does not fold all of them. The first event has the wallet's
/// account and currency. The second to last one has the balance before the last, which is folded onto these. (`verify`
/// folds all events and compares the balance in each.)
pub async fn wallet_at(pool: &PgPool, shard: ShardId, id: WalletId, at: Position) -> Result<Option<Wallet>, ReadError> {
    let last = version_at(pool, shard, "wallet", id.0, at).await?;
    let mut state: Option<Wallet> = None;
    let mut versions = vec![1, last - 1, last];
    versions.retain(|version| *version > 0);
    versions.dedup();
    if last == 0 {
        return Ok(None);
    }
    for stored in reader::stream_versions(pool, shard, "wallet", id.0, &versions).await? {
        let recorded = stored.decode()?;
        let Event::Wallet(event) = &recorded.event else { continue };
        state = match state {
            Some(opened) if recorded.moment.version < last => {
                let balance = Movement::of(event).map_or(Money::ZERO, |movement| movement.balance_after);
                Some(Wallet { balance, ..opened })
            }
            before => wallet::evolve(before, id, event, &recorded.moment),
        };
    }
    Ok(state)
}

/// Returns the version of a stream after a position, or 0 before its first event.
pub async fn version_at(
    pool: &PgPool,
    shard: ShardId,
    stream_type: &'static str,
    stream_id: i64,
    at: Position,
) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "WITH RECURSIVE search (low, high) AS (
            SELECT 0::bigint, coalesce(max(version), 0) FROM events WHERE shard_id = $1 AND stream_type = $2 AND stream_id = $3
            UNION ALL
            SELECT CASE WHEN is_past THEN middle ELSE low END, CASE WHEN is_past THEN high ELSE middle - 1 END
            FROM (SELECT low, high, (low + high + 1) / 2 AS middle,
                    (SELECT position <= $4 FROM events
                     WHERE shard_id = $1 AND stream_type = $2 AND stream_id = $3 AND version = (low + high + 1) / 2) AS is_past
                  FROM search WHERE low < high) AS step
         )
         SELECT coalesce((SELECT low FROM search WHERE low = high), 0)",
    )
    .bind(shard)
    .bind(stream_type)
    .bind(stream_id)
    .bind(at)
    .fetch_one(pool)
    .await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_point_in_the_log_is_a_position_or_a_time() {
        assert_eq!("7".parse(), Ok(AsOf::Position(7)));
        let time = "2026-03-01T12:00:00Z".parse::<DateTime<Utc>>().unwrap();
        assert_eq!("2026-03-01T13:00:00+01:00".parse(), Ok(AsOf::Time(time)));
        let midnight = "2026-03-01T00:00:00Z".parse::<DateTime<Utc>>().unwrap();
        assert_eq!("2026-03-01".parse(), Ok(AsOf::Time(midnight)));
        for wrong in ["", "0", "-1", "yesterday", "2026-13-01", "2026-03", "1.5", "0000-01-01T00:00:00Z", "0000-01-01"] {
            assert_eq!(wrong.parse::<AsOf>(), Err(AsOfError), "{wrong}");
        }
    }
}
