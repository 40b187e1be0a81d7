//! The walk over the log in the order of its positions. It reads and decodes each event once, and hands it to every
//! visitor.

use ledger_database::PgConnection;
use ledger_events::{Position, Recorded, ShardId};

use super::deliveries::Deliveries;
use super::positions::Log;
use super::tree::Tree;
use super::{AuditError, Findings, Progress};
use crate::ledger::reader::{self, ReadError, Stored};

const PAGE_EVENTS: i64 = 5_000;

/// Consecutive events of the log, as stored and decoded.
#[derive(Default)]
pub struct Page {
    events: Vec<(Stored, Result<Recorded, ReadError>)>,
}

impl Page {
    async fn read(conn: &mut PgConnection, shard: ShardId, after: Position) -> Result<Page, sqlx::Error> {
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

    /// Whether the visitor needs no further page.
    fn is_done(&self) -> bool;
}

/// All visitors of the walk.
pub struct Visitors {
    pub log: Log,
    pub tree: Tree,
    pub deliveries: Deliveries,
}

impl Visitors {
    /// Walks over a shard's log until no visitor needs more of it. Each page has its own snapshot.
    pub async fn walk(
        &mut self,
        conn: &mut PgConnection,
        shard: ShardId,
        findings: &mut Findings,
        progress: &impl Fn(Progress),
    ) -> Result<(), AuditError> {
        let Visitors { log, tree, deliveries } = self;
        let mut at = 0;
        loop {
            sqlx::raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ").execute(&mut *conn).await?;
            let page = Page::read(conn, shard, at).await?;
            log.visit(conn, &page, findings).await?;
            tree.visit(conn, &page, findings).await?;
            deliveries.visit(conn, &page, findings).await?;
            sqlx::raw_sql("COMMIT").execute(&mut *conn).await?;
            at = page.last().unwrap_or(at);
            progress(Progress { stage: "log", shard, done: at, total: log.head().max(at) });
            if page.is_empty() || (log.is_done() && tree.is_done() && deliveries.is_done()) {
                return Ok(());
            }
        }
    }
}
