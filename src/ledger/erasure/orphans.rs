//! Orphaned lines of bank statements: lines that no event has imported.
//!
//! Lines are stored before the event. They remain if the writer refuses the event, or the process ends before. Both the
//! import and the deletion are decided under the head lock, so lines are either imported or deleted, never both.

use std::collections::HashMap;

use ledger_database::{Connector, PgConnectOptions, PgConnection};
use ledger_events::ShardId;

use super::wipe;

/// Returns the number of lines in the vault by the fingerprint of their file.
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

/// Deletes the lines that no event has imported, records that their table must be rewritten, and returns their number. An
/// import that is in progress is then refused, and the file must be sent again.
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
