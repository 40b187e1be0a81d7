//! Swap of the rebuilt tables: folds the remaining events under the head lock, and replaces the tables.

use std::collections::BTreeMap;
use std::time::Duration;

use ledger_database::{PgConnectOptions, PgConnection};
use ledger_events::{Position, ShardId};

use super::{COMPARED_ROWS, Part, Work, find};
use crate::audit::tables::Rows;
use crate::audit::{AuditError, Progress, shadow};
use crate::ledger::{list_shards, reader};

/// Number of lost deliveries that the worker gets records for in one statement.
const ADOPTED_ROWS: i64 = 10_000;
const SWAP_ATTEMPTS: usize = 40;
const SWAP_PAUSE: Duration = Duration::from_millis(250);

impl Work {
    /// Runs the locked part. Retries until the locks are available.
    pub(super) async fn swap_in(
        &mut self,
        options: &PgConnectOptions,
        conn: &mut PgConnection,
        progress: &impl Fn(Progress),
    ) -> Result<BTreeMap<ShardId, Position>, AuditError> {
        while self.swap_attempts < SWAP_ATTEMPTS {
            self.swap_attempts += 1;
            // Do this before locking, so that it need not be done under the locks.
            if self.parts.contains(&Part::Deliveries) {
                self.adopt_all(conn).await?;
            }
            let before = (self.found.clone(), self.adopted.clone());
            self.announce(conn).await?;
            match self.try_swap(conn, self.swap_attempts > SWAP_ATTEMPTS / 4).await {
                // A lock timed out, a deadlock was detected, or the work under the locks took too long.
                Err(AuditError::Database(sqlx::Error::Database(refusal)))
                    if matches!(refusal.code().as_deref(), Some("55P03" | "40P01" | "57014")) =>
                {
                    sqlx::raw_sql("ROLLBACK").execute(&mut *conn).await?;
                    (self.found, self.adopted) = before;
                    tokio::time::sleep(SWAP_PAUSE).await;
                    self.catch_up(options, conn, progress).await?;
                }
                outcome => return outcome,
            }
        }
        shadow::discard(conn, &self.tables).await?;
        for (shard, last) in &self.adopted {
            let without_delivery = "DELETE FROM delivery_state s WHERE shard_id = $1 AND delivery_id > $2 AND delivery_id <= $3
                AND NOT EXISTS (SELECT FROM deliveries d WHERE d.shard_id = $1 AND d.id = s.delivery_id)";
            sqlx::query(without_delivery).bind(shard).bind(self.first_id(*shard)).bind(last).execute(&mut *conn).await?;
        }
        Err(AuditError::NotLocked)
    }

    /// Creates records for all deliveries that have none yet.
    async fn adopt_all(&mut self, conn: &mut PgConnection) -> Result<(), sqlx::Error> {
        for shard in self.shards.clone() {
            let first = self.first_id(shard);
            while let Some(last) = adopt(conn, shard, self.adopted.get(&shard).copied().unwrap_or(first)).await? {
                self.adopted.insert(shard, last);
            }
        }
        Ok(())
    }

    /// Makes writers lock the head first for a while, by changing its epoch. No writer then waits for the head while it
    /// holds locks on the tables to be replaced.
    async fn announce(&self, conn: &mut PgConnection) -> Result<(), sqlx::Error> {
        if self.parts.iter().any(|part| !part.catches_up()) {
            // Synchronous, so that it is on disk before anybody sees it: signers of the log remember that the epoch only
            // grows. Everybody locks heads in the order of their numbers.
            let raise = "BEGIN; SET LOCAL synchronous_commit = on;
                WITH heads AS MATERIALIZED (SELECT shard_id FROM log_head ORDER BY shard_id FOR UPDATE)
                UPDATE log_head h SET epoch = epoch + 1 FROM heads WHERE h.shard_id = heads.shard_id; COMMIT";
            sqlx::raw_sql(raise).execute(conn).await?;
        }
        Ok(())
    }

    async fn try_swap(&mut self, conn: &mut PgConnection, is_patient: bool) -> Result<BTreeMap<ShardId, Position>, AuditError> {
        // A rebuild that freezes while it holds the head loses it, as a writer does.
        sqlx::raw_sql(
            "BEGIN; SET LOCAL synchronous_commit = on; SET LOCAL statement_timeout = '5s'; SET LOCAL idle_in_transaction_session_timeout = '2s'",
        )
        .execute(&mut *conn)
        .await?;
        // With a timeout shorter than `deadlock_timeout`, the rebuild gives way in a deadlock. With a longer one,
        // Postgres cancels an autovacuum that blocks it.
        let timeout = if is_patient { "1500ms" } else { "500ms" };
        sqlx::query("SELECT set_config('lock_timeout', $1, true)").bind(timeout).execute(&mut *conn).await?;
        let catching_up: Vec<&str> = self.parts.iter().filter(|part| part.catches_up()).map(|part| part.name()).collect();
        if !catching_up.is_empty() {
            sqlx::query("SELECT FROM projection_checkpoints WHERE projection = ANY($1) ORDER BY projection, shard_id FOR UPDATE")
                .bind(catching_up)
                .execute(&mut *conn)
                .await?;
        }
        // The projector alone writes asynchronous projections, and locking its checkpoint stops it.
        if self.parts.iter().any(|part| !part.catches_up()) {
            sqlx::query("SELECT FROM log_head ORDER BY shard_id FOR UPDATE").execute(&mut *conn).await?;
            // A new epoch makes writers drop their caches of the replaced tables.
            sqlx::query("UPDATE log_head SET epoch = epoch + 1").execute(&mut *conn).await?;
        }
        shadow::lock_tables(conn, &self.tables).await?;
        // A shard that was added meanwhile may have rows. One that is added from now on has none before the swap.
        self.shards = list_shards(&mut *conn).await?;
        let mut positions = BTreeMap::new();
        for shard in self.shards.clone() {
            for part in self.parts.clone() {
                let to = Work::target(conn, shard, part).await?;
                let mut at = self.reached(part, shard);
                while at < to {
                    let page = reader::after(&mut *conn, shard, at, COMPARED_ROWS.min(to - at)).await?;
                    let Some(last) = page.last() else { return Err(AuditError::Gap { shard, position: at + 1 }) };
                    at = last.moment.position;
                    part.apply(conn, shard, &page).await?;
                    self.remember(shard, part, &page)?;
                }
                positions.entry(shard).and_modify(|p: &mut Position| *p = (*p).max(to)).or_insert(to);
            }
        }
        for ((name, shard), keys) in std::mem::take(&mut self.found.touched) {
            let keys: Vec<String> = keys.into_iter().collect();
            let differing = find(name)?.differing(conn, "shadow", shard, Rows::Keys(&keys)).await?;
            self.report(differing.into_iter());
        }
        if self.parts.contains(&Part::Deliveries) {
            self.adopt_all(conn).await?;
            disown(conn, &self.strays).await?;
        }
        shadow::swap(conn, &self.tables).await?;
        sqlx::raw_sql("COMMIT").execute(&mut *conn).await?;
        Ok(positions)
    }
}

/// Creates the worker's records for a page of lost deliveries, which have new ids after `after`. They are due now, or
/// failed if their webhook is no longer active. Returns the last id of the page. Before the swap the worker ignores these
/// records, because it finds no deliveries for them.
async fn adopt(conn: &mut PgConnection, shard: ShardId, after: i64) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar(
        "WITH page AS MATERIALIZED (SELECT id, webhook_id, event_type FROM shadow.deliveries WHERE shard_id = $1 AND id > $2 ORDER BY id LIMIT $3),
         adopted AS (
            INSERT INTO delivery_state (shard_id, delivery_id, webhook_id, event_type, status, next_attempt_at)
            SELECT $1, d.id, d.webhook_id, d.event_type, CASE WHEN a.is_active THEN 'pending' ELSE 'failed' END, clock_timestamp()
            FROM page d JOIN shadow.webhook_audience a ON a.shard_id = $1 AND a.webhook_id = d.webhook_id
            ON CONFLICT DO NOTHING)
         SELECT max(id) FROM page",
    )
    .bind(shard)
    .bind(after)
    .bind(ADOPTED_ROWS)
    .fetch_one(conn)
    .await
}

/// Corrects the event type in the worker's records of deliveries.
pub(super) async fn retype(conn: &mut PgConnection, shard: ShardId) -> Result<(), sqlx::Error> {
    let mut after = Some(i64::MIN);
    while let Some(from) = after {
        after = sqlx::query_scalar(
            "WITH page AS MATERIALIZED (SELECT id, event_type FROM shadow.deliveries WHERE shard_id = $1 AND id > $2 ORDER BY id LIMIT $3),
             corrected AS (
                UPDATE delivery_state s SET event_type = page.event_type FROM page
                WHERE s.shard_id = $1 AND s.delivery_id = page.id AND s.event_type <> page.event_type)
             SELECT max(id) FROM page",
        )
        .bind(shard)
        .bind(from)
        .bind(COMPARED_ROWS)
        .fetch_one(&mut *conn)
        .await?;
    }
    Ok(())
}

/// Returns worker's records without a delivery in the shadow table, including those whose delivery is not copied yet.
pub(super) async fn strays(conn: &mut PgConnection, shard: ShardId) -> Result<Vec<i64>, sqlx::Error> {
    let (mut strays, mut after) = (vec![], i64::MIN);
    loop {
        let page: Vec<(i64, bool)> = sqlx::query_as(
            "SELECT s.delivery_id, EXISTS (SELECT FROM shadow.deliveries d WHERE d.shard_id = s.shard_id AND d.id = s.delivery_id)
             FROM delivery_state s WHERE s.shard_id = $1 AND s.delivery_id > $2 ORDER BY s.delivery_id LIMIT $3",
        )
        .bind(shard)
        .bind(after)
        .bind(COMPARED_ROWS)
        .fetch_all(&mut *conn)
        .await?;
        let Some((last, _)) = page.last() else { return Ok(strays) };
        after = *last;
        strays.extend(page.into_iter().filter(|(_, has_delivery)| !has_delivery).map(|(id, _)| id));
    }
}

/// Deletes the worker's records of deliveries that the log does not yield. The worker could not send them.
async fn disown(conn: &mut PgConnection, strays: &[(ShardId, i64)]) -> Result<(), sqlx::Error> {
    let (shards, ids): (Vec<ShardId>, Vec<i64>) = strays.iter().copied().unzip();
    sqlx::query(
        "DELETE FROM delivery_state s USING unnest($1::smallint[], $2::bigint[]) AS stray (shard_id, delivery_id)
         WHERE s.shard_id = stray.shard_id AND s.delivery_id = stray.delivery_id
           AND NOT EXISTS (SELECT FROM shadow.deliveries d WHERE d.shard_id = s.shard_id AND d.id = s.delivery_id)",
    )
    .bind(shards)
    .bind(ids)
    .execute(conn)
    .await?;
    Ok(())
}
