//! Audit of the voucher stock by day. Folds it again into temporary tables, and compares them when the fold has reached the
//! projection's checkpoint.

use ledger_database::PgConnection;
use ledger_events::{Position, Recorded, ShardId};
use ledger_projections::stock;

use super::tables::{Rows, table};
use super::visitor::{Page, Visitor};
use super::{AuditError, Difference, Findings};
use crate::ledger::reader::{self, ReadError};

/// Visitor that folds the log up to the checkpoint, and compares the tables once.
#[derive(Debug)]
pub struct Stock {
    shard: ShardId,
    /// Last position that was folded.
    at: Position,
    is_compared: bool,
}

impl Stock {
    pub async fn start(conn: &mut PgConnection, shard: ShardId) -> Result<Stock, AuditError> {
        sqlx::raw_sql("TRUNCATE stock_days, stock_costs").execute(conn).await?;
        Ok(Stock { shard, at: 0, is_compared: false })
    }
}

impl Visitor for Stock {
    async fn visit(&mut self, conn: &mut PgConnection, page: &Page, findings: &mut Findings) -> Result<(), AuditError> {
        if self.is_compared {
            return Ok(());
        }
        let shard = self.shard;
        let checkpoint = stock::checkpoint(&mut *conn, shard).await?;
        fold(conn, shard, page.readable(self.at, checkpoint)).await?;
        self.at = page.last().map_or(checkpoint, |last| last.min(checkpoint)).max(self.at);
        if self.at < checkpoint && !page.is_empty() {
            return Ok(());
        }
        for name in stock::TABLES {
            let table = table(name).ok_or(AuditError::Broken)?;
            let differing = table.differing(conn, "pg_temp", shard, Rows::Between(&table.before_all(), None)).await?;
            findings.extend(differing.into_iter().map(Difference::Row));
        }
        self.is_compared = true;
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.is_compared
    }
}

/// Folds the events that move the stock. Leaves out the events of an order whose history is unreadable; the walk over the
/// streams reports it.
async fn fold(conn: &mut PgConnection, shard: ShardId, mut events: Vec<Recorded>) -> Result<(), AuditError> {
    events.retain(stock::is_movement);
    loop {
        match reader::fold_stock(conn, shard, &events).await {
            Ok(()) => return Ok(()),
            Err(ReadError::Codec { position, .. } | ReadError::Metadata { position, .. }) => {
                let streams: Vec<i64> = sqlx::query_scalar(
                    "SELECT stream_id FROM events WHERE shard_id = $1 AND position = $2 AND stream_type = 'order'",
                )
                .bind(shard)
                .bind(position)
                .fetch_all(&mut *conn)
                .await?;
                let before = events.len();
                events.retain(|recorded| stock::orders(std::slice::from_ref(recorded)).iter().all(|id| !streams.contains(&id.0)));
                if events.len() == before {
                    return Err(AuditError::Broken);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}
