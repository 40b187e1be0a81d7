//! The comparison: plain SQL on the same Postgres and the same tables. One prepared transaction per order updates the
//! wallet and inserts two events and the order.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use ledger_database::PgConnectOptions;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::load::Measured;

/// Opens `wallets` wallets in a separate, migrated database. The database numbers the events, as plain SQL would do
/// it.
pub async fn prepare(options: &PgConnectOptions, wallets: i64) -> Result<()> {
    let mut connection = options.connect().await?;
    sqlx::raw_sql(
        "CREATE SEQUENCE event_positions; ALTER TABLE events ALTER COLUMN position SET DEFAULT nextval('event_positions')",
    )
    .execute(&mut connection)
    .await?;
    sqlx::query(
        "INSERT INTO wallets (shard_id, id, version, account_id, currency, balance, created_at, updated_at)
         SELECT 1, n, 1, n, 'EUR', 1000000000, now(), now() FROM generate_series(1, $1) AS n",
    )
    .bind(wallets)
    .execute(&mut connection)
    .await?;
    sqlx::raw_sql("VACUUM ANALYZE wallets").execute(&mut connection).await?;
    connection.close().await?;
    Ok(())
}

/// Places orders from this many connections for `period`, over the first `wallets` wallets.
pub async fn orders(options: &PgConnectOptions, wallets: i64, connections: usize, period: Duration) -> Result<Measured> {
    static NEXT: AtomicI64 = AtomicI64::new(1);
    let warm_up = period / 5;
    let start = Instant::now();
    let mut tasks = Vec::new();
    let options = Arc::new(options.clone());
    for lane in 0..connections {
        let options = options.clone();
        tasks.push(tokio::spawn(async move {
            let mut connection = options.connect().await?;
            let mut latencies = Vec::with_capacity(10_000);
            let mut n = lane as i64;
            while start.elapsed() < warm_up + period {
                let begun = Instant::now();
                place(&mut connection, 1 + (n * 7_919) % wallets, NEXT.fetch_add(1, Ordering::Relaxed)).await?;
                if begun.duration_since(start) > warm_up {
                    latencies.push(begun.elapsed());
                }
                n += connections as i64;
            }
            anyhow::Ok(latencies)
        }));
    }
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await??);
    }
    Ok(Measured::of(latencies, period))
}

async fn place(connection: &mut PgConnection, wallet: i64, id: i64) -> Result<()> {
    let mut tx = connection.begin().await?;
    let (version, balance): (i64, rust_decimal::Decimal) = sqlx::query_as(
        "UPDATE wallets SET balance = balance - 10, version = version + 1, updated_at = now()
         WHERE shard_id = 1 AND id = $1 AND balance >= 10 RETURNING version, balance",
    )
    .bind(wallet)
    .fetch_one(&mut *tx)
    .await?;
    let reference = format!("ORD-{id:010}");
    let placed = format!(
        r#"{{"account_id":{wallet},"reference_code":"{reference}","client_reference":null,"product_id":1,"product_name":"Voucher","currency":"EUR","denomination":"10.00","quantity":1,"face_value":"10.00","discount":"0.00","discount_amount":"0.00","amount":"10.00","wallet_id":{wallet},"transaction_id":{id},"metadata_hash":null}}"#
    );
    let debited = format!(
        r#"{{"transaction_id":{id},"amount":"10.00","balance_after":"{balance}","order_id":{id},"reference":"{reference}"}}"#
    );
    let (order_event, wallet_event) = (Uuid::now_v7(), Uuid::now_v7());
    let metadata = format!(
        r#"{{"actor":{{"credential":1}},"account_id":{wallet},"request_id":"{order_event}","correlation_id":"{order_event}"}}"#
    );
    sqlx::query(
        "INSERT INTO events (shard_id, event_id, stream_type, stream_id, version, type, schema_version, data, metadata, recorded_at)
         VALUES (1, $1, 'order', $2, 1, 'OrderPlaced', 1, $3::json, $4::json, now()),
                (1, $5, 'wallet', $6, $7, 'WalletDebited', 1, $8::json, $4::json, now())",
    )
    .bind(order_event)
    .bind(id)
    .bind(placed)
    .bind(metadata)
    .bind(wallet_event)
    .bind(wallet)
    .bind(version)
    .bind(debited)
    .execute(&mut *tx)
    .await?;
    sqlx::query(
        "INSERT INTO orders (shard_id, id, version, placed_position, placed_event_id, last_event_id, account_id, reference_code, product_id,
            product_name, currency, denomination, quantity, face_value, discount, discount_amount, amount, wallet_id, transaction_id,
            status, sub_status, is_queued, delivered_quantity, items, refunded_amount, created_at, updated_at)
         VALUES (1, $1, 1, $1, $2, $2, $3, $4, 1, 'Voucher', 'EUR', 10, 1, 10, 0, 0, 10, $3, $1, 'PENDING', '', false, 0, '[]', 0, now(), now())",
    )
    .bind(id)
    .bind(order_event)
    .bind(wallet)
    .bind(reference)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(())
}
