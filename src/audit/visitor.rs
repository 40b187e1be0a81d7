//! The pages of the log that a walk hands out, and the checks that read them.

use ledger_database::PgConnection;
use ledger_events::{Position, Recorded, ShardId};

use super::{AuditError, Findings};
use crate::ledger::reader::{self, ReadError, Stored};

const PAGE_EVENTS: i64 = 5_000;

/// Consecutive events of the log, as stored and decoded.
#[derive(Default)]
pub struct Page {
    events: Vec<(Stored, Result<Recorded, ReadError>)>,
}

impl Page {
    pub async fn read(conn: &mut PgConnection, shard: ShardId, after: Position) -> Result<Page, sqlx::Error> {
        let stored = reader::stored_after(conn, shard, after, PAGE_EVENTS).await?;
        let decode = |stored: Stored| {
            let decoded = stored.decode();
            (stored, decoded)
        };
        Ok(Page { events: stored.into_iter().map(decode).collect() })
    }

    pub fn events(&self) -> &[(Stored, Result<Recorded, ReadError>)] {
        &self.events
    }

    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns the last position of the page, or none for an empty page.
    pub fn last(&self) -> Option<Position> {
        self.events.last().map(|(stored, _)| stored.position)
    }

    /// Returns copies of the readable events after a position and up to another one.
    pub fn readable(&self, after: Position, upto: Position) -> Vec<Recorded> {
        let is_within = |at: Position| at > after && at <= upto;
        let readable = self.events.iter().filter_map(|(_, decoded)| decoded.as_ref().ok());
        readable.filter(|recorded| is_within(recorded.moment.position)).cloned().collect()
    }
}

/// A check that reads the log in the order of its positions, in bounded memory.
pub trait Visitor {
    /// Checks the next page, in the snapshot in which it was read. An empty page is the end of the log.
    async fn visit(&mut self, conn: &mut PgConnection, page: &Page, findings: &mut Findings) -> Result<(), AuditError>;

    /// Returns whether the visitor needs no further page.
    fn is_done(&self) -> bool;
}
