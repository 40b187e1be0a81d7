//! `shards`: the shards that the first shard's log records, written inline.

use ledger_database::PgConnection;
use ledger_events::shard::{Shard, ShardEvent, evolve};
use ledger_events::{Event, Moment, ShardId};
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use crate::ProjectionError;
use crate::state::{self, Row, State, Upsert, select};

impl Row for Shard {
    const COLUMNS: &'static str = "id, version, draining, added_at";

    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Shard {
            id: row.try_get("id")?,
            version: row.try_get("version")?,
            draining: row.try_get("draining")?,
            added_at: row.try_get("added_at")?,
        })
    }
}

impl State for Shard {
    type Id = i64;
    type Event = ShardEvent;

    const TABLE: &'static str = "shards";

    fn id(&self) -> i64 {
        self.id.into()
    }

    fn version(&self) -> i64 {
        self.version
    }

    fn event(event: &Event) -> Option<&ShardEvent> {
        if let Event::Shard(event) = event { Some(event) } else { None }
    }

    fn evolve(before: Option<Self>, id: i64, event: &ShardEvent, at: &Moment) -> Option<Self> {
        evolve(before, id, event, at)
    }
}

impl Upsert for Shard {
    async fn write(conn: &mut PgConnection, shard: ShardId, shards: &[&Self]) -> Result<(), ProjectionError> {
        if shards.is_empty() {
            return Ok(());
        }
        sqlx::query(
            "INSERT INTO shards (shard_id, id, version, draining, added_at)
             SELECT $1, new.* FROM unnest($2::smallint[], $3::bigint[], $4::boolean[], $5::timestamptz[]) AS new
             ON CONFLICT (shard_id, id) DO UPDATE SET version = excluded.version, draining = excluded.draining,
                added_at = excluded.added_at",
        )
        .bind(shard)
        .bind(shards.iter().map(|s| s.id).collect::<Vec<_>>())
        .bind(shards.iter().map(|s| s.version).collect::<Vec<_>>())
        .bind(shards.iter().map(|s| s.draining).collect::<Vec<_>>())
        .bind(shards.iter().map(|s| s.added_at).collect::<Vec<_>>())
        .execute(conn)
        .await?;
        Ok(())
    }
}

/// Loads every shard that the log of `shard` records.
pub async fn all(conn: &mut PgConnection, shard: ShardId) -> Result<Vec<Shard>, sqlx::Error> {
    state::all(select("FROM shards WHERE shard_id = $1").bind(shard), conn).await
}
