//! What a log's events show by themselves, without any database: the walk over positions that
//! `verify` takes, and the versions of every stream.

use std::collections::HashMap;

use ledger_events::{Position, Recorded, ShardId, StreamType};

use crate::audit::positions::Walk;
use crate::audit::{Difference, Findings};
use crate::ledger::reader::Stored;

/// Takes the events of a whole log, from its first position on. Memory holds a number for each
/// stream, and whose each wallet and beneficiary is.
#[derive(Debug)]
pub struct Structure {
    shard: ShardId,
    walk: Walk,
    last: Position,
    versions: Versions,
}

/// The last version of every stream. Ids of a kind are drawn one after the other, so that neighbours share a page:
/// that is 9 bytes a stream where no id is left out, and one page a stream at worst.
#[derive(Debug, Default)]
struct Versions(HashMap<(StreamType, i64), Box<[i64; Versions::PAGE]>>);

impl Versions {
    const PAGE: usize = 64;

    /// That of a stream; 0 before its first event.
    fn of(&mut self, stream_type: StreamType, id: i64) -> &mut i64 {
        let page = Self::PAGE as i64;
        let place = usize::try_from(id.rem_euclid(page)).unwrap_or_default();
        let versions = self.0.entry((stream_type, id.div_euclid(page))).or_insert_with(|| Box::new([0; Self::PAGE]));
        &mut versions[place]
    }
}

impl Structure {
    pub fn new(shard: ShardId) -> Structure {
        Structure { shard, walk: Walk::new(shard), last: 0, versions: Versions::default() }
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
        let version = self.versions.of(stream_type, id);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stream_has_a_version_of_its_own_and_neighbours_share_their_memory() {
        let mut versions = Versions::default();
        for id in 0..64_000 {
            *versions.of(StreamType::Order, id) = id + 1;
        }
        assert_eq!(versions.0.len(), 1_000, "64 streams to a page");
        assert!((0..64_000).all(|id| *versions.of(StreamType::Order, id) == id + 1));
        // Ids that nobody draws are no other's either.
        for id in [-1, -64, -65, i64::MIN, i64::MAX, 1 << 40] {
            assert_eq!(*versions.of(StreamType::Order, id), 0, "{id}");
            *versions.of(StreamType::Order, id) = 7;
        }
        assert_eq!((*versions.of(StreamType::Order, 0), *versions.of(StreamType::Order, 63)), (1, 64));
        assert_eq!(*versions.of(StreamType::Wallet, 5), 0);
    }
}
