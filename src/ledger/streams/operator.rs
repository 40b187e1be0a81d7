//! Operators' tokens.

use ledger_database::PgConnection;
use ledger_events::operator::OperatorEvent;
use ledger_events::{Moment, ShardId};

use super::Stream;
use crate::ledger::operators;

/// An operator's token, as the writer knows it.
#[derive(Debug)]
pub struct OperatorToken {
    id: i64,
    /// Number of its events; 0 for a token that is older than these events.
    version: i64,
    pub is_revoked: bool,
}

impl Stream for OperatorToken {
    type Id = i64;
    type Event = OperatorEvent;
    type Index = ();
    type Query<'a> = ();

    const NAME: &'static str = "operator";
    const SEQUENCE: Option<&'static str> = Some("vault.operators_id_seq");

    fn id(&self) -> i64 {
        self.id
    }

    fn version(&self) -> i64 {
        self.version
    }

    fn evolve(_: Option<Self>, id: i64, event: &OperatorEvent, at: &Moment) -> Option<Self> {
        Some(OperatorToken { id, version: at.version, is_revoked: matches!(event, OperatorEvent::OperatorTokenRevoked(_)) })
    }

    /// Locks the rows until the transaction ends.
    async fn load(conn: &mut PgConnection, shard: ShardId, ids: &[i64]) -> Result<Vec<Self>, sqlx::Error> {
        let found = operators::lock(conn, shard, ids).await?;
        let token =
            |(id, known): (i64, operators::Known)| OperatorToken { id, version: known.version, is_revoked: known.is_revoked };
        Ok(found.into_iter().map(token).collect())
    }
}
