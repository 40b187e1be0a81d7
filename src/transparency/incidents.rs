//! Incidents: signed events that are lost, and the origin under which a shard's log goes on.

use chrono::{DateTime, Utc};
use ledger_database::PgConnection;
use ledger_events::log::{LogEvent, LogIncidentRecorded, SignedTree};
use ledger_events::{Event, Position, ShardId, StreamType};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::peers::{self, Recorded};
use super::store::{self, Published};
use crate::ledger::reader::{self, ReadError};

/// More than any log has.
const MOST: i64 = 10_000;

/// An incident that was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Incident {
    pub position: Position,
    pub recorded_at: DateTime<Utc>,
    pub event: LogIncidentRecorded,
}

/// The incidents of a shard's log, the oldest first.
pub async fn of(conn: &mut PgConnection, shard: ShardId) -> Result<Vec<Incident>, ReadError> {
    let stored = reader::stream_after(conn, shard, StreamType::Log.as_str(), shard.into(), 0, i64::MAX, MOST).await?;
    let mut incidents = vec![];
    for stored in stored {
        let recorded = stored.decode()?;
        let Event::Log(LogEvent::LogIncidentRecorded(event)) = recorded.event else { continue };
        incidents.push(Incident { position: recorded.moment.position, recorded_at: recorded.moment.recorded_at, event });
    }
    Ok(incidents)
}

/// The origin under which a log is signed now that had this one at first.
pub fn present(configured: String, incidents: &[Incident]) -> String {
    let go_on = |origin: String, incident: &Incident| match incident.event.origin == origin {
        true => incident.event.next_origin.clone(),
        false => origin,
    };
    incidents.iter().fold(configured, go_on)
}

/// The origin that a log had before its first incident.
fn first(present: &str, incidents: &[Incident]) -> String {
    let go_back = |origin: String, incident: &Incident| match incident.event.next_origin == origin {
        true => incident.event.origin.clone(),
        false => origin,
    };
    incidents.iter().rev().fold(present.to_owned(), go_back)
}

/// What stands between a shard's log and its next checkpoint.
#[derive(Debug)]
pub struct Situation {
    pub incidents: Vec<Incident>,
    /// The newest checkpoint.
    pub newest: Option<Published>,
    /// What nodes refuse that no incident answers, the one that remembers most first.
    pub refusals: Vec<Recorded>,
}

/// Reads it.
pub async fn situation(conn: &mut PgConnection, shard: ShardId) -> Result<Situation, ReadError> {
    let incidents = of(&mut *conn, shard).await?;
    let newest = store::newest(&mut *conn, shard).await?;
    let mut refusals = peers::all_refusals(conn, shard).await?;
    let has_ended = |origin: &str| incidents.iter().any(|incident| incident.event.origin == origin);
    refusals
        .retain(|refusal| !has_ended(&refusal.origin) && newest.as_ref().is_none_or(|newest| newest.origin == refusal.origin));
    refusals.sort_by_key(|refusal| std::cmp::Reverse(refusal.size));
    Ok(Situation { incidents, newest, refusals })
}

impl Situation {
    /// An origin under which nothing was ever signed: the first one and the time.
    pub fn next_origin(&self, origin: &str, now: DateTime<Utc>) -> String {
        format!("{}-{}", first(origin, &self.incidents), now.format("%Y%m%dT%H%M%SZ"))
    }

    /// The newest checkpoint's tree, if it is of this origin.
    pub fn kept(&self, origin: &str) -> Option<SignedTree> {
        let newest = self.newest.as_ref().filter(|newest| newest.origin == origin)?;
        Some(SignedTree { size: newest.size, root: STANDARD.encode(newest.root) })
    }
}

impl Recorded {
    /// The tree that the node remembers.
    pub fn signed(&self) -> Option<SignedTree> {
        let (size, root) = self.size.zip(self.root)?;
        Some(SignedTree { size: u64::try_from(size).ok()?, root: STANDARD.encode(root) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_incident_leads_to_the_next_origin() {
        let incident = |origin: &str, next_origin: &str| Incident {
            position: 1,
            recorded_at: DateTime::UNIX_EPOCH,
            event: LogIncidentRecorded {
                origin: origin.to_owned(),
                next_origin: next_origin.to_owned(),
                signed: None,
                kept: None,
                refusal: String::new(),
                reason_hash: String::new(),
            },
        };
        let incidents = [incident("a", "a-1"), incident("a-1", "a-2")];
        assert_eq!(present("a".to_owned(), &incidents), "a-2");
        // An operator may also configure another origin.
        assert_eq!(present("b".to_owned(), &incidents), "b");
        assert_eq!(first("a-2", &incidents), "a");
        assert_eq!(first("b", &incidents), "b");
    }
}
