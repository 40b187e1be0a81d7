//! Finds rows of shards that `log_head` does not have. No other check of an audit reads them.

use ledger_database::PgConnection;
use ledger_events::ShardId;
use sqlx::AssertSqlSafe;

/// Returns the tables with rows of such shards, named like `orders` or `vault.texts`. Repeatedly queries for the next
/// shard id, because most tables have an index that begins with it. Skips tables that this role may not read.
pub async fn headless(conn: &mut PgConnection) -> Result<Vec<(ShardId, String)>, sqlx::Error> {
    let tables: Vec<(String, String)> = sqlx::query_as(
        "SELECT CASE WHEN n.nspname = 'public' THEN c.relname ELSE n.nspname || '.' || c.relname END, format('%I.%I', n.nspname, c.relname)
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname IN ('public', 'vault') AND c.relkind = 'r' AND c.relname <> 'log_head'
           AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'shard_id' AND NOT a.attisdropped)
           AND has_table_privilege(c.oid, 'SELECT')
         ORDER BY 1",
    )
    .fetch_all(&mut *conn)
    .await?;
    let mut headless = vec![];
    for (name, table) in tables {
        let sql = format!(
            "WITH RECURSIVE shards AS (
                SELECT min(shard_id) AS id FROM {table}
                UNION ALL SELECT (SELECT min(shard_id) FROM {table} WHERE shard_id > shards.id) FROM shards WHERE id IS NOT NULL)
             SELECT id FROM shards WHERE id IS NOT NULL AND NOT EXISTS (SELECT FROM public.log_head h WHERE h.shard_id = shards.id)"
        );
        // Safe: the catalogue has quoted the name.
        let shards: Vec<ShardId> = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&mut *conn).await?;
        headless.extend(shards.into_iter().map(|shard| (shard, name.clone())));
    }
    Ok(headless)
}
