//! Verifications that operators start. Their rows are beside the log, which records who started one.

use ledger_database::PgConnection;
use ledger_events::verification::VerificationEvent;
use ledger_events::{Moment, ShardId};

use super::Stream;

/// A verification that was started.
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

    /// A verification has no event before its start.
    async fn load(_: &mut PgConnection, _: ShardId, _: &[i64]) -> Result<Vec<Self>, sqlx::Error> {
        Ok(vec![])
    }
}
