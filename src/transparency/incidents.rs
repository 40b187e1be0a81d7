//! Incidents: recorded losses of signed events, each with the new origin under which the shard's log continues.

use chrono::{DateTime, Utc};
use ledger_database::PgConnection;
use ledger_events::log::{LogEvent, LogIncidentRecorded, SignedTree};
use ledger_events::{Event, Position, ShardId, StreamType};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::peers::{self, Recorded};
use super::store::{self, Published};
use crate::ledger::reader::{self, ReadError};

/// Limit on the incidents that are read. No log has that many.
const MAX_INCIDENTS: i64 = 10_000;

/// A recorded incident with its place in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Incident {
    pub position: Position,
    pub recorded_at: DateTime<Utc>,
    pub event: LogIncidentRecorded,
}

/// Returns the incidents of a shard's log, oldest first.
pub async fn of(conn: &mut PgConnection, shard: ShardId) -> Result<Vec<Incident>, ReadError> {
    let stored = reader::stream_after(conn, shard, StreamType::Log.as_str(), shard.into(), 0, i64::MAX, MAX_INCIDENTS).await?;
    let mut incidents = vec![];
    for stored in stored {
        let recorded = stored.decode()?;
        let Event::Log(LogEvent::LogIncidentRecorded(event)) = recorded.event else { continue };
        incidents.push(Incident { position: recorded.moment.position, recorded_at: recorded.moment.recorded_at, event });
    }
    Ok(incidents)
}

/// Returns the origin under which the log is signed now, given the origin from the configuration.
pub fn present(configured: String, incidents: &[Incident]) -> String {
    let go_on = |origin: String, incident: &Incident| match incident.event.origin == origin {
        true => incident.event.next_origin.clone(),
        false => origin,
    };
    incidents.iter().fold(configured, go_on)
}

/// Returns the origin that the log had before its first incident.
fn first(present: &str, incidents: &[Incident]) -> String {
    let go_back = |origin: String, incident: &Incident| match incident.event.next_origin == origin {
        true => incident.event.origin.clone(),
        false => origin,
    };
    incidents.iter().rev().fold(present.to_owned(), go_back)
}

/// Returns whether an incident has ended the log to which a checkpoint belongs.
pub fn have_ended(checkpoint: &Published, incidents: &[Incident]) -> bool {
    let is_older = |incident: &Incident| u64::try_from(incident.position).is_ok_and(|position| position > checkpoint.size);
    incidents.iter().any(|incident| incident.event.origin == checkpoint.origin || is_older(incident))
}

/// Everything that decides whether and how a shard's next checkpoint is signed.
#[derive(Debug)]
pub struct Situation {
    pub incidents: Vec<Incident>,
    /// Newest checkpoint under any origin.
    pub newest: Option<Published>,
    /// Open refusals of nodes, under any origin, that no incident resolves. The node that remembers the largest tree comes first.
    pub refusals: Vec<Recorded>,
}

/// Reads the incidents, the newest checkpoint and the open refusals of a shard.
pub async fn situation(conn: &mut PgConnection, shard: ShardId) -> Result<Situation, ReadError> {
    let incidents = of(&mut *conn, shard).await?;
    let newest = store::newest(&mut *conn, shard).await?;
    let mut refusals = peers::refusals(conn, shard).await?;
    refusals.sort_by_key(|refusal| std::cmp::Reverse(refusal.size));
    Ok(Situation { incidents, newest, refusals })
}

impl Situation {
    /// Returns an origin that was never used: the first origin with the current time appended.
    pub fn next_origin(&self, origin: &str, now: DateTime<Utc>) -> String {
        format!("{}-{}", first(origin, &self.incidents), now.format("%Y%m%dT%H%M%SZ"))
    }

    /// Returns the tree of the newest checkpoint, if that checkpoint has this origin.
    pub fn kept(&self, origin: &str) -> Option<SignedTree> {
        let newest = self.newest.as_ref().filter(|newest| newest.origin == origin)?;
        Some(SignedTree { size: newest.size, root: STANDARD.encode(newest.root) })
    }
}

impl Recorded {
    /// Returns the tree that the node remembers, in the form that the incident's event stores.
    pub fn signed(&self) -> Option<SignedTree> {
        let (size, root) = self.size.zip(self.root)?;
        Some(SignedTree { size: u64::try_from(size).ok()?, root: STANDARD.encode(root) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_incident_moves_the_log_to_its_next_origin() {
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
        // An operator can also configure an unrelated origin.
        assert_eq!(present("b".to_owned(), &incidents), "b");
        assert_eq!(first("a-2", &incidents), "a");
        assert_eq!(first("b", &incidents), "b");
    }
}
