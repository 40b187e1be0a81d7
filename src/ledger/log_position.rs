//! A position of the log: how far a reader must see, or how far a node's writers have come.

use std::collections::BTreeMap;

use ledger_database::FromRow;
use ledger_events::{Position, ShardId};
use sqlx::PgExecutor;
use uuid::Uuid;

/// Newest event of each shard's log, by its position and its id. The id tells histories apart: after a failover that lost
/// commits, another event takes the position. Shards without an event are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPosition(BTreeMap<ShardId, (Position, Uuid)>);

/// State of the server behind a connection, compared with a [`LogPosition`].
#[derive(Debug, FromRow)]
pub struct ServerState {
    /// Identity of the server, which changes when it restarts.
    pub server: String,
    /// Whether the server has every event up to the position, and so every row that follows from them.
    pub has_reached: bool,
}

impl LogPosition {
    /// Reads the position that a server has reached.
    pub async fn read(db: impl PgExecutor<'_>) -> Result<LogPosition, sqlx::Error> {
        let newest: Vec<(ShardId, Position, Uuid)> =
            sqlx::query_as("SELECT shard_id, position, event_id FROM log_head JOIN events USING (shard_id, position)")
                .persistent(false) // a kept plan from the time of a small log would scan the large one
                .fetch_all(db)
                .await?;
        Ok(newest.into_iter().collect())
    }

    /// Asks a server whether it has reached this position.
    pub async fn compare(&self, db: impl PgExecutor<'_>) -> Result<ServerState, sqlx::Error> {
        let shards: Vec<ShardId> = self.0.keys().copied().collect();
        let (positions, event_ids): (Vec<Position>, Vec<Uuid>) = self.0.values().copied().unzip();
        sqlx::query_as(
            "SELECT concat_ws(' ', pg_postmaster_start_time(), inet_server_addr(), inet_server_port()) AS server,
                coalesce(bool_and(EXISTS (SELECT FROM events e WHERE e.shard_id = wanted.shard_id
                    AND e.position = wanted.position AND e.event_id = wanted.event_id)), true) AS has_reached
             FROM unnest($1::smallint[], $2::bigint[], $3::uuid[]) AS wanted (shard_id, position, event_id)",
        )
        .bind(shards)
        .bind(positions)
        .bind(event_ids)
        .persistent(false) // as in `read`
        .fetch_one(db)
        .await
    }

    /// Returns the newest event of a shard, if it has one.
    pub fn of(&self, shard: ShardId) -> Option<(Position, Uuid)> {
        self.0.get(&shard).copied()
    }

    /// Returns whether no shard has an event.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the later position of each shard. At equal positions, this one's event counts.
    #[must_use]
    pub fn later(mut self, other: LogPosition) -> LogPosition {
        for (shard, event) in other.0 {
            let newest = self.0.entry(shard).or_insert(event);
            if event.0 > newest.0 {
                *newest = event;
            }
        }
        self
    }

    /// Encodes the position in 26 bytes for each shard, whatever its numbers are.
    pub fn to_bytes(&self) -> Vec<u8> {
        let entry = |(shard, (position, event_id)): (&ShardId, &(Position, Uuid))| {
            [&shard.to_be_bytes()[..], &position.to_be_bytes(), event_id.as_bytes()].concat()
        };
        self.0.iter().flat_map(entry).collect()
    }

    /// Decodes a position that [`LogPosition::to_bytes`] has encoded.
    pub fn from_bytes(mut bytes: &[u8]) -> Option<LogPosition> {
        let mut newest = BTreeMap::new();
        while !bytes.is_empty() {
            let (shard, rest) = bytes.split_first_chunk()?;
            let (position, rest) = rest.split_first_chunk()?;
            let (event_id, rest) = rest.split_first_chunk()?;
            newest.insert(ShardId::from_be_bytes(*shard), (Position::from_be_bytes(*position), Uuid::from_bytes(*event_id)));
            bytes = rest;
        }
        Some(LogPosition(newest))
    }
}

impl FromIterator<(ShardId, Position, Uuid)> for LogPosition {
    fn from_iter<T: IntoIterator<Item = (ShardId, Position, Uuid)>>(newest: T) -> LogPosition {
        LogPosition(newest.into_iter().map(|(shard, position, event_id)| (shard, (position, event_id))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Uuid = Uuid::from_u128(1);
    const THEIRS: Uuid = Uuid::from_u128(2);

    fn at<const N: usize>(newest: [(ShardId, Position, Uuid); N]) -> LogPosition {
        newest.into_iter().collect()
    }

    #[test]
    fn a_position_survives_its_encoding() {
        for position in [at([]), at([(1, 1, OURS)]), at([(1, i64::MAX, OURS), (7, 42, THEIRS)])] {
            let bytes = position.to_bytes();
            assert_eq!(LogPosition::from_bytes(&bytes), Some(position));
            for cut in (1..bytes.len()).filter(|cut| cut % 26 != 0) {
                assert_eq!(LogPosition::from_bytes(&bytes[..cut]), None, "{cut}");
            }
        }
    }

    #[test]
    fn the_later_position_counts_in_each_shard() {
        let (ours, theirs) = (at([(1, 5, OURS), (2, 7, OURS)]), at([(1, 6, THEIRS), (2, 7, THEIRS), (3, 1, THEIRS)]));
        assert_eq!(ours.clone().later(theirs), at([(1, 6, THEIRS), (2, 7, OURS), (3, 1, THEIRS)]));
        assert_eq!(ours.clone().later(at([])), ours);
        assert_eq!(at([]).later(ours.clone()), ours);
    }
}
