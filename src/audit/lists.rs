//! Compares the page anchors and counts of lists with the tables from which they are derived.

use ledger_database::PgConnection;
use ledger_events::ShardId;
use ledger_projections::listing::{maintain, pages};

use super::{Difference, Findings};
use crate::ledger::reader;

const PAGE_EVENTS: i64 = 5_000;

/// Compares the page anchors and counts of a shard in one snapshot.
pub async fn check(conn: &mut PgConnection, shard: ShardId, findings: &mut Findings) -> Result<(), sqlx::Error> {
    let mut tx = conn.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ; TRUNCATE uncounted_moves").await?;
    let (mut at, head) = pages::counted(&mut tx, shard).await?;
    while at < head {
        let to = head.min(at + PAGE_EVENTS);
        let moves = reader::readable_order_moves(&mut tx, shard, (at, to)).await?;
        maintain::add_uncounted(&mut tx, &moves).await?;
        at = to;
    }
    for wrong in maintain::differing(&mut tx, shard).await? {
        let maintain::Differing { table_name: table, account_id, field, stored, derived } = wrong;
        findings.add(Difference::Listing { shard, table, account_id, field, stored, derived });
    }
    tx.commit().await
}
