//! Lines of banks' files that no event has imported.
//!
//! They are stored before the event, and stay if it is not written: the writer refused it, or the process
//! ended. Both are decided under the head lock, so lines are either imported or deleted, and never both.

use std::collections::HashMap;

use ledger_database::{Connector, PgConnection};
use ledger_events::ShardId;
use sqlx::postgres::PgConnectOptions;

use super::wipe;

/// How many lines the vault has of files, by their fingerprints.
pub async fn kept(conn: &mut PgConnection, shard: ShardId, fingerprints: &[&str]) -> Result<HashMap<String, i64>, sqlx::Error> {
    let rows: Vec<(String, i64)> = sqlx::query_as(
        "SELECT fingerprint, count(*) FROM vault.statement_lines WHERE shard_id = $1 AND fingerprint = ANY($2) GROUP BY fingerprint",
    )
    .bind(shard)
    .bind(fingerprints)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().collect())
}

/// Deletes those that no event of the log has imported, and notes that their table has to be rewritten;
/// how many there were. An import under way is refused then, and its file sent again.
pub async fn delete(options: &PgConnectOptions) -> Result<u64, sqlx::Error> {
    let mut conn = Connector::patient(options.clone().application_name("rewards-ledger erase")).connect().await?;
    let found: Vec<(ShardId, String)> = sqlx::query_as(
        "SELECT DISTINCT shard_id, fingerprint FROM vault.statement_lines
         EXCEPT SELECT shard_id, data->>'fingerprint' FROM events WHERE stream_type = 'reconciliation' AND type = 'StatementImported'",
    )
    .fetch_all(&mut conn)
    .await?;
    let mut deleted = 0;
    for (shard, fingerprint) in found {
        let mut tx = conn.begin().await?;
        sqlx::query("SELECT FROM log_head WHERE shard_id = $1 FOR UPDATE").bind(shard).execute(&mut *tx).await?;
        let lines = sqlx::query(
            "DELETE FROM vault.statement_lines WHERE shard_id = $1 AND fingerprint = $2 AND NOT EXISTS (SELECT FROM events e
                WHERE e.shard_id = $1 AND e.stream_type = 'reconciliation' AND e.type = 'StatementImported' AND e.data->>'fingerprint' = $2)",
        )
        .bind(shard)
        .bind(fingerprint)
        .execute(&mut *tx)
        .await?;
        if lines.rows_affected() > 0 {
            wipe::note(&mut tx, &["vault.statement_lines"]).await?;
        }
        tx.commit().await?;
        deleted += lines.rows_affected();
    }
    conn.close().await?;
    Ok(deleted)
}
