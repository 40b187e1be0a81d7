//! Compares the shards that tables, `log_head` and the first shard's log have. The other checks of an audit read the shards
//! of `log_head` alone.

use ledger_database::PgConnection;
use ledger_events::ShardId;
use sqlx::AssertSqlSafe;

use super::{Difference, Findings};
use crate::ledger::FIRST_SHARD;

/// Returns the tables with rows of shards that `log_head` does not have, named like `orders` or `vault.texts`. Repeatedly
/// queries for the next shard id, because most tables have an index that begins with it. Skips tables that this role may not
/// read.
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
            "WITH RECURSIVE found AS (
                SELECT min(t.shard_id) AS shard FROM {table} t
                UNION ALL SELECT (SELECT min(t.shard_id) FROM {table} t WHERE t.shard_id > found.shard) FROM found
                    WHERE found.shard IS NOT NULL)
             SELECT shard FROM found WHERE shard IS NOT NULL
                AND NOT EXISTS (SELECT FROM public.log_head h WHERE h.shard_id = found.shard)"
        );
        // Safe: the catalogue has quoted the name.
        let shards: Vec<ShardId> = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&mut *conn).await?;
        headless.extend(shards.into_iter().map(|shard| (shard, name.clone())));
    }
    Ok(headless)
}

/// Reports the heads that no event adds, and the shards that an event adds and that have no head. One snapshot has both,
/// because a shard's event and its head are written in one transaction.
pub async fn unannounced(conn: &mut PgConnection, findings: &mut Findings) -> Result<(), sqlx::Error> {
    let differing: Vec<(i64, bool)> = sqlx::query_as(
        "SELECT coalesce(head.number, added.number), head.number IS NOT NULL
         FROM (SELECT shard_id::bigint AS number FROM public.log_head WHERE shard_id <> $1) AS head
         FULL JOIN (SELECT DISTINCT stream_id AS number FROM public.events
            WHERE shard_id = $1 AND stream_type = 'shard' AND type = 'ShardAdded') AS added ON added.number = head.number
         WHERE head.number IS NULL OR added.number IS NULL ORDER BY 1",
    )
    .bind(FIRST_SHARD)
    .fetch_all(conn)
    .await?;
    findings.extend(differing.into_iter().map(|(shard, has_head)| {
        let problem = match has_head {
            true => "log_head has this shard, but no event of the first shard's log adds it",
            false => "an event of the first shard's log adds this shard, but log_head has none",
        };
        Difference::Shard { shard, problem }
    }));
    Ok(())
}
