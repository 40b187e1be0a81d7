//! Run by hand: `cargo test --release --test main speed -- --ignored --nocapture`.

use std::time::Instant;

use ledger_projections::Inline;
use rewards_ledger::audit::{Rebuild, rebuild, verify};
use sqlx::Connection;
use sqlx::PgConnection;

use crate::support::postgres::own_server;

/// A million events: orders that were placed, debited, queued and delivered.
const HISTORY: &str = r#"
    CREATE TEMP TABLE story AS
    SELECT n, uuid_in(('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::cstring) AS e1, uuid_in(('01900000-0000-7000-8001-' || lpad(to_hex(n), 12, '0'))::cstring) AS e2,
        uuid_in(('01900000-0000-7000-8002-' || lpad(to_hex(n), 12, '0'))::cstring) AS e3, uuid_in(('01900000-0000-7000-8003-' || lpad(to_hex(n), 12, '0'))::cstring) AS e4, 1 + n % 1000 AS wallet
    FROM generate_series(1, 250000) AS n;
    INSERT INTO events SELECT 1, 2 * w - 1, gen_random_uuid(), 'wallet', w, 1, 'WalletOpened', 1, format('{"account_id":%s,"currency":"EUR"}', w)::json,
        format('{"actor":{"operator":1},"account_id":%s,"request_id":"t","correlation_id":"01900000-0000-7000-8000-000000000001"}', w)::json, '2026-01-01' FROM generate_series(1, 1000) AS w;
    INSERT INTO events SELECT 1, 2 * w, gen_random_uuid(), 'wallet', w, 2, 'WalletFunded', 1,
        format('{"transaction_id":%s,"amount":"10000.00","balance_after":"10000.00","reference":"f%s","note_hash":null}', 1000000 + w, w)::json,
        format('{"actor":{"operator":1},"account_id":%s,"request_id":"t","correlation_id":"01900000-0000-7000-8000-000000000001"}', w)::json, '2026-01-01' FROM generate_series(1, 1000) AS w;
    INSERT INTO events SELECT 1, 2000 + (n - 1) * 4 + 1, e1, 'order', n, 1, 'OrderPlaced', 1,
        format('{"account_id":%s,"reference_code":"ORD-%s","client_reference":null,"product_id":1,"product_name":"Card","currency":"EUR","denomination":"10.00","quantity":1,"face_value":"10.00","discount":"0.00","discount_amount":"0.00","amount":"10.00","wallet_id":%s,"transaction_id":%s,"metadata_hash":null}', wallet, lpad(n::text, 10, '0'), wallet, n)::json,
        format('{"actor":{"credential":1},"account_id":%s,"request_id":"0d9b2b1c-6f0e-4f0e-9b1c-000000000000","correlation_id":"%s"}', wallet, e1)::json, '2026-01-01' FROM story ORDER BY n;
    INSERT INTO events SELECT 1, 2000 + (n - 1) * 4 + 2, e2, 'wallet', wallet, 3 + (n - 1) / 1000, 'WalletDebited', 1,
        format('{"transaction_id":%s,"amount":"10.00","balance_after":"%s","order_id":%s,"reference":"ORD-%s"}', n, (10000 - 10 * (1 + (n - 1) / 1000))::numeric(18,2), n, lpad(n::text, 10, '0'))::json,
        format('{"actor":{"credential":1},"account_id":%s,"request_id":"0d9b2b1c-6f0e-4f0e-9b1c-000000000000","correlation_id":"%s","causation_id":"%s"}', wallet, e1, e1)::json, '2026-01-01' FROM story ORDER BY n;
    INSERT INTO events SELECT 1, 2000 + (n - 1) * 4 + 3, e3, 'order', n, 2, 'OrderQueued', 1, '{}',
        format('{"actor":"fulfilment","account_id":%s,"request_id":"fulfilment","correlation_id":"%s","causation_id":"%s"}', wallet, e1, e1)::json, '2026-01-01' FROM story ORDER BY n;
    INSERT INTO events SELECT 1, 2000 + (n - 1) * 4 + 4, e4, 'order', n, 3, 'OrderDelivered', 1, format('{"vouchers":["VR-%s"]}', lpad(n::text, 10, '0'))::json,
        format('{"actor":"fulfilment","account_id":%s,"request_id":"fulfilment","correlation_id":"%s","causation_id":"%s"}', wallet, e1, e3)::json, '2026-01-01' FROM story ORDER BY n;
    UPDATE log_head SET position = 1002000, recorded_at = '2026-01-01';
    ANALYZE events;
"#;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement of some minutes"]
async fn rebuild_beside_copy() {
    let server = own_server(true).await;
    let url = server.url_of("postgres");
    let options = url.parse().unwrap();
    rewards_ledger::ledger::migrate(&options).await.unwrap();
    let mut admin = PgConnection::connect(&url).await.unwrap();
    sqlx::raw_sql(HISTORY).execute(&mut admin).await.unwrap();
    let events = 1_002_000_f64;

    sqlx::raw_sql(
        "CHECKPOINT; COPY events TO '/tmp/rewards-ledger-events.copy'; CREATE TABLE copied (LIKE events INCLUDING INDEXES)",
    )
    .execute(&mut admin)
    .await
    .unwrap();
    let started = Instant::now();
    sqlx::raw_sql("COPY copied FROM '/tmp/rewards-ledger-events.copy'").execute(&mut admin).await.unwrap();
    let copy = started.elapsed();
    sqlx::raw_sql("DROP TABLE copied; CHECKPOINT").execute(&mut admin).await.unwrap();
    _ = std::fs::remove_file("/tmp/rewards-ledger-events.copy");
    println!("COPY: {copy:?}, {:.0} events/s", events / copy.as_secs_f64());

    // The tables are empty, so all rows are reported as missing: the worst case for comparing.
    for inline in [Inline::Orders, Inline::Wallets] {
        let started = Instant::now();
        let folded = std::sync::Mutex::new(started);
        let rebuilt = rebuild(&options, Rebuild::Inline(inline), |p| {
            if p.stage == "fold" {
                *folded.lock().unwrap() = Instant::now();
            }
        })
        .await
        .unwrap();
        let fold = folded.lock().unwrap().duration_since(started);
        println!(
            "{inline:?} (empty before): fold {fold:?}, {:.0} events/s, all {:?}, found {}",
            events / fold.as_secs_f64(),
            started.elapsed(),
            rebuilt.found
        );
    }
    let started = Instant::now();
    let rebuilt = rebuild(&options, Rebuild::All, |_| {}).await.unwrap();
    let all = started.elapsed();
    println!("everything, compared and swapped: {all:?}, {:.0} events/s, found {}", events / all.as_secs_f64(), rebuilt.found);
    let started = Instant::now();
    let report = verify(&options, |_| {}).await.unwrap();
    println!(
        "verify: {:?}, found {} ({:?})",
        started.elapsed(),
        report.found,
        report.differences.first().map(ToString::to_string)
    );
}
