//! Compares the page anchors and counts of lists with the tables from which they are derived.

use ledger_database::PgConnection;
use ledger_events::ShardId;
use ledger_projections::listing::derive;

use super::{Difference, Findings};

/// Compares the page anchors and counts of a shard in one snapshot.
pub async fn check(conn: &mut PgConnection, shard: ShardId, findings: &mut Findings) -> Result<(), sqlx::Error> {
    let mut tx = conn.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY").await?;
    for wrong in derive::differing(&mut tx, shard).await? {
        let derive::Differing { table_name: table, account_id, field, stored, derived } = wrong;
        findings.add(Difference::Listing { shard, table, account_id, field, stored, derived });
    }
    tx.commit().await
}
