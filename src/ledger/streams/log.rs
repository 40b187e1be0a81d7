//! The stream of a shard's transparency log. Its id is the shard's.

use ledger_database::PgConnection;
use ledger_events::log::LogEvent;
use ledger_events::{Moment, ShardId, StreamType};

use super::Stream;
use crate::ledger::reader;

/// The transparency log of a shard. Its version is the number of recorded incidents.
#[derive(Debug)]
pub struct TransparencyLog {
    id: i64,
    version: i64,
}

impl Stream for TransparencyLog {
    type Id = i64;
    type Event = LogEvent;
    type Index = ();
    type Query<'a> = ();

    const NAME: &'static str = "transparency log";

    fn id(&self) -> i64 {
        self.id
    }

    fn version(&self) -> i64 {
        self.version
    }

    fn evolve(_: Option<Self>, id: i64, _: &LogEvent, at: &Moment) -> Option<Self> {
        Some(TransparencyLog { id, version: at.version })
    }

    async fn load(conn: &mut PgConnection, shard: ShardId, _: &[i64]) -> Result<Vec<Self>, sqlx::Error> {
        let id = i64::from(shard);
        Ok(vec![TransparencyLog { id, version: reader::last_version(conn, shard, StreamType::Log.as_str(), id).await? }])
    }
}
