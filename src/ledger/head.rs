//! The head of a shard's log: its row in `log_head`, which every writing statement checks and advances.

use chrono::{DateTime, Utc};
use ledger_database::PgConnection;
use ledger_events::shard::ShardEvent;
use ledger_events::{Event, Position, ShardId};
use ledger_projections::write::Write;
use sqlx::{Postgres, QueryBuilder};
use uuid::Uuid;

/// Head of a shard's log: the state of its row in `log_head`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub shard: ShardId,
    pub position: Position,
    /// Event at this position; `None` in an empty log. After a failover that lost commits, a log can reach the
    /// same position and epoch with other events.
    pub event_id: Option<Uuid>,
    /// `log_head.epoch`. It increases when earlier decisions must no longer be written: after tables were
    /// replaced, or after a batch was given up as lost.
    pub epoch: i64,
}

impl Head {
    /// Creates a statement that writes only if this is the head, and advances it to `to`. The head stays locked until
    /// the transaction ends.
    pub fn advance(self, to: Position, recorded_at: DateTime<Utc>) -> Write {
        Write::with_head(|query| {
            self.push_update(query, to, recorded_at);
            query.push(RETURNING);
        })
    }

    /// Like [`Head::advance`], but also refuses a batch that was recorded more than 15 seconds ago by the database's
    /// clock. No batch waits that long, so the node's clock stood still.
    pub fn advance_if_recent(self, to: Position, recorded_at: DateTime<Utc>) -> Write {
        Write::with_head(|query| {
            self.push_update(query, to, recorded_at);
            query.push(" AND clock_timestamp() - interval '15 s' < ").push_bind(recorded_at).push(RETURNING);
        })
    }

    /// Creates a statement that writes nothing. It returns a row only if this is the head, and locks it. So the statement's
    /// commit waits for a synchronous standby, which then has every commit that the statement found. With synchronous
    /// replication, an old primary never commits it once its standby was promoted.
    pub fn check(self) -> Write {
        Write::with_head(|query| {
            query.push("SELECT clock_timestamp() AS now FROM log_head");
            self.push_condition(query);
            query.push(" FOR UPDATE");
        })
    }

    fn push_update(self, query: &mut QueryBuilder<Postgres>, to: Position, recorded_at: DateTime<Utc>) {
        query.push("UPDATE log_head SET position = ").push_bind(to).push(", recorded_at = ").push_bind(recorded_at);
        self.push_condition(query);
    }

    fn push_condition(self, query: &mut QueryBuilder<Postgres>) {
        query.push(" WHERE shard_id = ").push_bind(self.shard).push(" AND position = ").push_bind(self.position);
        query.push(" AND epoch = ").push_bind(self.epoch);
        query.push(" AND (SELECT event_id FROM events WHERE shard_id = ").push_bind(self.shard);
        query.push(" AND position = ").push_bind(self.position).push(") IS NOT DISTINCT FROM ").push_bind(self.event_id);
    }
}

const RETURNING: &str = " RETURNING clock_timestamp() AS now";

/// Returns the number of the shard that an event of this stream adds, if it adds one.
pub fn added(stream_id: i64, event: &Event) -> Option<i64> {
    matches!(event, Event::Shard(ShardEvent::ShardAdded(_))).then_some(stream_id)
}

/// Adds the heads of new shards, which begin empty. A head that exists already stays: somebody has made it by hand.
pub async fn add(conn: &mut PgConnection, shards: Vec<i64>) -> Result<(), sqlx::Error> {
    if shards.is_empty() {
        return Ok(());
    }
    let add = "INSERT INTO log_head (shard_id) SELECT * FROM unnest($1::bigint[]) ON CONFLICT DO NOTHING";
    sqlx::query(add).bind(shards).execute(conn).await.map(drop)
}
