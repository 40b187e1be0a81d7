//! Selection of the events to export, and reading them in short pages.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use ledger_database::PgPool;
use ledger_events::{AccountId, Position, ShardId, StreamType};
use serde::{Deserialize, Serialize};

use crate::ledger::reader::{self, Filter, ReadError, Stored};

/// Number of events in a page. Each page is one short statement, and no snapshot is held between two pages.
pub const PAGE_EVENTS: i64 = 5_000;
/// Number of positions per query when a filter selects only some of the events.
const WINDOW: i64 = 20_000;

/// A stream of events, written like `order/42`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    pub stream_type: String,
    pub stream_id: i64,
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.stream_type, self.stream_id)
    }
}

impl FromStr for Stream {
    type Err = String;

    fn from_str(text: &str) -> Result<Stream, String> {
        let (stream_type, id) = text.split_once('/').ok_or("must have the form <type>/<id>, such as order/42")?;
        let stream_type: StreamType = stream_type.parse().map_err(|_| {
            let known: Vec<&str> = StreamType::ALL.iter().map(|known| known.as_str()).collect();
            format!("must begin with one of the stream types {}", known.join(", "))
        })?;
        let stream_id = id.parse().map_err(|_| "must have the form <type>/<id>, such as order/42")?;
        Ok(Stream { stream_type: stream_type.as_str().to_owned(), stream_id })
    }
}

/// Positions `from` to `to` of a shard's log, both inclusive, with optional filters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    pub shard_id: ShardId,
    pub from: Position,
    pub to: Position,
    pub stream: Option<Stream>,
    #[serde(flatten)]
    pub filter: Filter,
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "positions {} to {}", self.from, self.to)?;
        if let Some(stream) = &self.stream {
            write!(f, ", of {stream}")?;
        }
        if let Some(account) = self.filter.account_id {
            write!(f, ", of account {account}")?;
        }
        match &self.filter.types[..] {
            [] => Ok(()),
            types => write!(f, ", of the types {}", types.join(", ")),
        }
    }
}

/// Range as the caller gives it. An open end is the log's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    pub from: Option<Position>,
    pub to: Option<Position>,
    /// Inclusive lower limit of `recorded_at`.
    pub since: Option<DateTime<Utc>>,
    /// Exclusive upper limit of `recorded_at`.
    pub until: Option<DateTime<Utc>>,
}

impl Range {
    /// Resolves the range to positions of a log that ends at `head`. Events that are appended later are never included.
    pub async fn resolve(self, pool: &PgPool, shard: ShardId, head: Position) -> Result<(Position, Position), sqlx::Error> {
        let mut from = self.from.unwrap_or(1).max(1);
        let mut to = self.to.unwrap_or(head).min(head);
        if let Some(since) = self.since {
            from = from.max(reader::position_at(pool, shard, since).await?);
        }
        if let Some(until) = self.until {
            to = to.min(reader::position_at(pool, shard, until).await? - 1);
        }
        Ok((from, to))
    }
}

/// A page of events, with the position up to which the log was searched.
#[derive(Debug)]
pub struct Page {
    pub events: Vec<Stored>,
    pub reached: Position,
}

impl Selection {
    /// Selects all events of a shard up to a position.
    pub fn all(shard_id: ShardId, to: Position) -> Selection {
        Selection { shard_id, from: 1, to, stream: None, filter: Filter::default() }
    }

    /// Returns whether the selection can skip positions between its ends.
    pub fn has_gaps(&self) -> bool {
        self.stream.is_some() || !self.filter.is_everything()
    }

    /// Returns whether an event belongs to the selection.
    pub fn has(&self, stored: &Stored) -> bool {
        #[derive(Deserialize)]
        struct Whose {
            account_id: Option<AccountId>,
        }
        let Filter { account_id, types } = &self.filter;
        let whose = || serde_json::from_str::<Whose>(&stored.metadata).ok()?.account_id;
        stored.shard_id == self.shard_id
            && (self.from..=self.to).contains(&stored.position)
            && self.stream.as_ref().is_none_or(|of| of.stream_type == stored.stream_type && of.stream_id == stored.stream_id)
            && (types.is_empty() || types.contains(&stored.event_type))
            && account_id.is_none_or(|account| whose() == Some(account))
    }

    /// Returns the next events after a position, in order. The last page has `reached` equal to `to`.
    pub async fn page(&self, pool: &PgPool, after: Position) -> Result<Page, ReadError> {
        let after = after.max(self.from - 1);
        if after >= self.to {
            return Ok(Page { events: vec![], reached: self.to });
        }
        if let Some(stream) = &self.stream {
            let stream = (stream.stream_type.as_str(), stream.stream_id);
            let range = (after, self.to);
            let events = reader::matching_of_stream(pool, self.shard_id, stream, range, &self.filter, PAGE_EVENTS).await?;
            let is_full = i64::try_from(events.len()).is_ok_and(|n| n == PAGE_EVENTS);
            let reached = events.last().filter(|_| is_full).map_or(self.to, |last| last.position);
            return Ok(Page { events, reached });
        }
        let window = if self.filter.is_everything() { PAGE_EVENTS } else { WINDOW };
        let reached = self.to.min(after + window);
        let events = reader::matching(pool, self.shard_id, (after, reached), &self.filter).await?;
        Ok(Page { events, reached })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_stream_is_named_by_its_type_and_id() {
        let stream: Stream = "order/42".parse().unwrap();
        assert_eq!((stream.stream_type.as_str(), stream.stream_id, stream.to_string()), ("order", 42, "order/42".into()));
        for wrong in ["order", "order/", "order/x", "pony/1", ""] {
            assert!(wrong.parse::<Stream>().is_err(), "{wrong}");
        }
    }
}
