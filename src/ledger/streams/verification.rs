//! Verifications that operators start or stop. Their rows are beside the log, which records who did so.

use ledger_database::PgConnection;
use ledger_events::verification::VerificationEvent;
use ledger_events::{Moment, ShardId, StreamType};

use super::Stream;
use crate::ledger::reader;

/// A verification that was started or stopped.
#[derive(Debug)]
pub struct Verification {
    id: i64,
    version: i64,
}

impl Stream for Verification {
    type Id = i64;
    type Event = VerificationEvent;
    type Index = ();
    type Query<'a> = ();

    const NAME: &'static str = "verification";

    fn id(&self) -> i64 {
        self.id
    }

    fn version(&self) -> i64 {
        self.version
    }

    fn evolve(_: Option<Self>, id: i64, _: &VerificationEvent, at: &Moment) -> Option<Self> {
        Some(Verification { id, version: at.version })
    }

    async fn load(conn: &mut PgConnection, shard: ShardId, ids: &[i64]) -> Result<Vec<Self>, sqlx::Error> {
        let mut found = vec![];
        // A batch has one of them: people start and stop one at a time.
        for &id in ids {
            let version = reader::last_version(&mut *conn, shard, StreamType::Verification.as_str(), id).await?;
            if version > 0 {
                found.push(Verification { id, version });
            }
        }
        Ok(found)
    }
}
