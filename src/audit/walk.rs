//! The walk over the log in the order of its positions. It reads and decodes each event once, and hands it to every
//! visitor.

use ledger_database::PgConnection;
use ledger_events::ShardId;

use super::deliveries::Deliveries;
use super::positions::Log;
use super::stock::Stock;
use super::tree::Tree;
use super::visitor::{Page, Visitor};
use super::{AuditError, Findings, Progress};

/// All visitors of the walk.
pub struct Visitors {
    pub log: Log,
    pub tree: Tree,
    pub deliveries: Deliveries,
    pub stock: Stock,
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
        let Visitors { log, tree, deliveries, stock } = self;
        let mut at = 0;
        loop {
            sqlx::raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ").execute(&mut *conn).await?;
            let page = Page::read(conn, shard, at).await?;
            log.visit(conn, &page, findings).await?;
            tree.visit(conn, &page, findings).await?;
            deliveries.visit(conn, &page, findings).await?;
            stock.visit(conn, &page, findings).await?;
            sqlx::raw_sql("COMMIT").execute(&mut *conn).await?;
            at = page.last().unwrap_or(at);
            progress(Progress { stage: "log", shard, done: at, total: log.head().max(at) });
            if page.is_empty() || (log.is_done() && tree.is_done() && deliveries.is_done() && stock.is_done()) {
                return Ok(());
            }
        }
    }
}
