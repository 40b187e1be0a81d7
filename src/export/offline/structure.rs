//! Checks that need only a log's events and no database: the walk over positions that `verify` uses, and the versions of
//! every stream.

use std::collections::HashMap;

use ledger_events::{Position, Recorded, ShardId, StreamType};

use crate::audit::positions::SequenceCheck;
use crate::audit::{Difference, Findings};
use crate::ledger::reader::Stored;

/// Checks the events of a whole log, from its first position on. Keeps a number for each stream in memory, and the
/// account of each wallet and beneficiary.
#[derive(Debug)]
pub struct Structure {
    shard: ShardId,
    walk: SequenceCheck,
    last: Position,
    versions: Versions,
}

/// Last version of every stream, in pages of 64 consecutive ids. Ids of a kind are assigned consecutively. So this
/// takes 9 bytes per stream if no id is skipped, and one page per stream at worst.
#[derive(Debug, Default)]
struct Versions(HashMap<(StreamType, i64), Box<[i64; Versions::PAGE]>>);

impl Versions {
    const PAGE: usize = 64;

    /// Returns the version of a stream, 0 before its first event.
    fn of(&mut self, stream_type: StreamType, id: i64) -> &mut i64 {
        let page = Self::PAGE as i64;
        let place = usize::try_from(id.rem_euclid(page)).unwrap_or_default();
        let versions = self.0.entry((stream_type, id.div_euclid(page))).or_insert_with(|| Box::new([0; Self::PAGE]));
        &mut versions[place]
    }
}

impl Structure {
    pub fn new(shard: ShardId) -> Structure {
        Structure { shard, walk: SequenceCheck::new(shard), last: 0, versions: Versions::default() }
    }

    /// Returns the position of the last event in order.
    pub fn last(&self) -> Position {
        self.last
    }

    /// Reports the problems of the next event. Returns the event if it can be decoded and is in order.
    pub fn step(&mut self, stored: &Stored, findings: &mut Findings) -> Option<Recorded> {
        let (shard, position) = (self.shard, stored.position);
        if stored.shard_id != shard {
            let problem = format!("position {position}: the event belongs to shard {}", stored.shard_id);
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
        let version = self.versions.of(stream_type, id);
        if found != *version + 1 {
            let (stream, expected) = (stream_type.to_string(), *version + 1);
            findings.add(Difference::Version { shard, stream, id, position, found, expected });
        }
        *version = found;
        Some(recorded)
    }

    /// Reports a movement that was still required at the end.
    pub fn end(&mut self, findings: &mut Findings) {
        self.walk.settle(None, findings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stream_has_its_own_version_and_neighbours_share_a_page() {
        let mut versions = Versions::default();
        for id in 0..64_000 {
            *versions.of(StreamType::Order, id) = id + 1;
        }
        assert_eq!(versions.0.len(), 1_000, "64 streams to a page");
        assert!((0..64_000).all(|id| *versions.of(StreamType::Order, id) == id + 1));
        // Unusual ids do not collide with others either.
        for id in [-1, -64, -65, i64::MIN, i64::MAX, 1 << 40] {
            assert_eq!(*versions.of(StreamType::Order, id), 0, "{id}");
            *versions.of(StreamType::Order, id) = 7;
        }
        assert_eq!((*versions.of(StreamType::Order, 0), *versions.of(StreamType::Order, 63)), (1, 64));
        assert_eq!(*versions.of(StreamType::Wallet, 5), 0);
    }
}
