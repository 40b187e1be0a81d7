//! What a log's events show by themselves, without any database: the walk over positions that
//! `verify` takes, and the versions of every stream.

use std::collections::HashMap;

use ledger_events::{Position, Recorded, ShardId, StreamType};

use crate::audit::positions::Walk;
use crate::audit::{Difference, Findings};
use crate::ledger::reader::Stored;

/// Takes the events of a whole log, from its first position on. Memory holds a number for each
/// stream, and whose each wallet is.
#[derive(Debug)]
pub struct Structure {
    shard: ShardId,
    walk: Walk,
    last: Position,
    versions: HashMap<(StreamType, i64), i64>,
}

impl Structure {
    pub fn new(shard: ShardId) -> Structure {
        Structure { shard, walk: Walk::new(shard), last: 0, versions: HashMap::new() }
    }

    /// The last position in its order.
    pub fn last(&self) -> Position {
        self.last
    }

    /// Says what is wrong with the next event; returns it, if it can be read and stands in its place.
    pub fn step(&mut self, stored: &Stored, findings: &mut Findings) -> Option<Recorded> {
        let (shard, position) = (self.shard, stored.position);
        if stored.shard_id != shard {
            let problem = format!("position {position}: is of shard {}", stored.shard_id);
            findings.add(Difference::Unreadable { shard, position, problem });
            return None;
        }
        if position <= self.last {
            findings.add(Difference::Order { shard, after: self.last, next: position });
            return None;
        }
        self.last = position;
        let recorded = self.walk.step(stored, findings)?;
        let (stream_type, id, found) = (recorded.stream_type, recorded.stream_id, recorded.moment.version);
        let version = self.versions.entry((stream_type, id)).or_default();
        if found != *version + 1 {
            let (stream, expected) = (stream_type.to_string(), *version + 1);
            findings.add(Difference::Version { shard, stream, id, position, found, expected });
        }
        *version = found;
        Some(recorded)
    }

    /// What was still owed at the end.
    pub fn end(&mut self, findings: &mut Findings) {
        self.walk.settle(None, findings);
    }
}
