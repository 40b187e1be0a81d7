//! Changes of the tables that only a superuser can make.

use std::fmt::Display;

use sqlx::{AssertSqlSafe, PgConnection};

use super::shop::Shop;

impl Shop {
    /// Changes the tables as a superuser can, bypassing the triggers.
    pub async fn tamper(&self, sql: &str) {
        tamper(&mut self.admin().await, sql).await;
    }
}

/// Changes the tables over a superuser's connection, bypassing the triggers.
pub async fn tamper(admin: &mut PgConnection, sql: &str) {
    let script = format!(
        "BEGIN; ALTER TABLE events DISABLE TRIGGER ALL; {sql}; ALTER TABLE events ENABLE ALWAYS TRIGGER events_append_only; ALTER TABLE events ENABLE ALWAYS TRIGGER events_no_truncate; COMMIT"
    );
    sqlx::raw_sql(AssertSqlSafe(script)).execute(admin).await.unwrap();
}

/// SQL for a superuser that repeats the first refund of an order at the log's end. It is a movement of its own that
/// fits the wallet's row and last balance.
pub const REFUNDED_AGAIN: &str = "
    CREATE TEMP TABLE again ON COMMIT DROP AS
        SELECT t.id AS of, t.position AS after, t.amount, w.id AS wallet, w.version + 1 AS version, w.balance + t.amount AS balance,
            h.position + 1 AS position, h.recorded_at, (SELECT max(id) + 1 FROM wallet_transactions) AS id
        FROM wallet_transactions t JOIN wallets w ON w.id = t.wallet_id, log_head h
        WHERE t.category = 'ORDER_REFUND' ORDER BY t.position LIMIT 1;
    INSERT INTO events (shard_id, position, event_id, stream_type, stream_id, version, type, schema_version, data, metadata, recorded_at)
        SELECT e.shard_id, a.position, gen_random_uuid(), e.stream_type, e.stream_id, a.version, e.type, e.schema_version,
            (e.data::jsonb || jsonb_build_object('transaction_id', a.id, 'balance_after', a.balance::text))::json, e.metadata, a.recorded_at
        FROM events e JOIN again a ON a.after = e.position;
    INSERT INTO wallet_transactions SELECT (jsonb_populate_record(t, jsonb_build_object('id', a.id, 'position', a.position,
            'balance_after', a.balance, 'created_at', a.recorded_at))).* FROM wallet_transactions t JOIN again a ON a.of = t.id;
    UPDATE wallets w SET balance = a.balance, version = a.version, updated_at = a.recorded_at FROM again a WHERE w.id = a.wallet;
    UPDATE log_head SET position = position + 1";

/// SQL for a superuser that appends this many events to an order, as if its codes had been read that often.
pub fn revealed(order: impl Display, count: i64) -> String {
    format!(
        "INSERT INTO events (shard_id, position, event_id, stream_type, stream_id, version, type, schema_version, data, metadata, recorded_at)
         SELECT 1, h.position + n, gen_random_uuid(), 'order', {order}, last.version + n, 'VouchersRevealed', 1, '{{\"units\":1}}', placed.metadata, h.recorded_at
         FROM log_head h, generate_series(1, {count}) AS n,
            (SELECT max(version) AS version FROM events WHERE stream_type = 'order' AND stream_id = {order}) AS last,
            (SELECT metadata FROM events WHERE stream_type = 'order' AND stream_id = {order} AND version = 1) AS placed
         WHERE h.shard_id = 1;
         UPDATE log_head SET position = position + {count} WHERE shard_id = 1"
    )
}
