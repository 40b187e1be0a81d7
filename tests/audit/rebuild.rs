use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ledger_projections::listing::maintain;
use rewards_ledger::audit::{Progress, Rebuild, Rebuilt, rebuild, verify};
use rewards_ledger::ledger::commands;
use sqlx::AssertSqlSafe;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use crate::support::ledger::origin;
use crate::support::shop::{SHARD, Shop};

/// Every table derived from the log, including those of the lists.
const TABLES: [&str; 31] = [
    "accounts",
    "credentials",
    "credential_restrictions",
    "users",
    "categories",
    "products",
    "orders",
    "wallets",
    "wallet_transactions",
    "webhooks",
    "webhook_subscriptions",
    "webhook_deactivations",
    "webhook_replays",
    "beneficiaries",
    "payouts",
    "purchases",
    "bank_statements",
    "approvals",
    "shards",
    "daily_totals",
    "stock_days",
    "stock_costs",
    "webhook_audience",
    "webhook_envelopes",
    "deliveries",
    // A group without orders may still have a row.
    "(SELECT * FROM order_counts WHERE orders <> 0)",
    "order_marks",
    "(SELECT * FROM order_mark_counts WHERE orders <> 0)",
    "list_checkpoints",
    "delivery_counts",
    "delivery_marks",
];

/// Makes one of everything that can happen, and brings the counts of the lists up to the head.
async fn history(shop: &Shop) {
    shop.eventful().await;
    for shard in [SHARD, 2] {
        while shop.projector().count(shard).await.unwrap() != maintain::CountStep::Idle {}
    }
}

/// Returns every row of every projection, including ids.
async fn rows(shop: &Shop) -> Vec<String> {
    let mut admin = shop.admin().await;
    let mut rows = vec![];
    for table in TABLES {
        let sql = format!("SELECT '{table} ' || t::text FROM {table} t ORDER BY 1");
        rows.extend(sqlx::query_scalar::<_, String>(AssertSqlSafe(sql)).fetch_all(&mut admin).await.unwrap());
    }
    rows
}

/// Returns the catalogue's description of the tables: owner, privileges, storage, keys, indexes, columns.
async fn catalogue(shop: &Shop) -> Vec<String> {
    sqlx::query_scalar(
        "WITH t AS (SELECT * FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace)
         SELECT format('%s %s %s %s', relname, relowner::regrole, reloptions, (SELECT array_agg(a::text ORDER BY a::text) FROM unnest(relacl) a)) FROM t
         UNION ALL SELECT format('%s %s %s', t.relname, conname, pg_get_constraintdef(c.oid)) FROM pg_constraint c JOIN t ON t.oid = c.conrelid
         UNION ALL SELECT pg_get_indexdef(indexrelid) FROM pg_index i JOIN t ON t.oid = i.indrelid
         UNION ALL SELECT format('%s.%s %s %s %s %s', t.relname, attname, attnum, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(d.adbin, d.adrelid))
            FROM pg_attribute a JOIN t ON t.oid = a.attrelid LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum WHERE attnum > 0
         ORDER BY 1",
    )
    .fetch_all(&mut shop.admin().await)
    .await
    .unwrap()
}

async fn again(shop: &Shop, which: Rebuild) -> Rebuilt {
    rebuild(&shop.options, which, |_| {}).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_reproduces_each_projection() {
    let shop = Shop::open().await;
    history(&shop).await;
    let (rows_before, catalogue_before) = (rows(&shop).await, catalogue(&shop).await);
    for name in Rebuild::NAMES {
        let rebuilt = again(&shop, Rebuild::parse(name).unwrap()).await;
        assert!(rebuilt.was_clean(), "{name}: {:#?}", rebuilt.differences);
        assert_eq!(rows(&shop).await, rows_before, "{name}");
        assert_eq!(catalogue(&shop).await, catalogue_before, "{name}");
    }
    // The service continues under its own role and on its existing connections.
    let order_id = shop.order(1).await;
    shop.fulfil(order_id).await;
    shop.project().await;
    assert!(verify(&shop.options, |_| {}).await.unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_continue_during_a_rebuild() {
    let shop = Arc::new(Shop::open().await);
    history(&shop).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (shop, stop) = (shop.clone(), stop.clone());
        async move {
            let mut placed = 0;
            while !stop.load(Ordering::Relaxed) {
                let order_id = shop.place(shop.customer.order("25.00", 1)).await;
                shop.fulfil(order_id).await;
                shop.project().await;
                placed += 1;
            }
            placed
        }
    });
    for name in Rebuild::NAMES {
        let rebuilt = again(&shop, Rebuild::parse(name).unwrap()).await;
        assert!(rebuilt.was_clean(), "{name}: {:#?}", rebuilt.differences);
    }
    stop.store(true, Ordering::Relaxed);
    assert!(writer.await.unwrap() > 0);
    let report = verify(&shop.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.differences);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_writer_does_not_keep_a_rebuild_from_swapping() {
    let shop = Arc::new(Shop::open().await);
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..8)
        .map(|_| {
            let (shop, stop) = (shop.clone(), stop.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    shop.place(shop.customer.order("25.00", 1)).await;
                }
            })
        })
        .collect();
    let rebuilt = again(&shop, Rebuild::parse("orders").unwrap()).await;
    assert!(rebuilt.was_clean());
    // From the eleventh attempt on, the swap waits longer for its locks than a deadlock lasts.
    assert!(rebuilt.swap_attempts <= 10, "{} attempts", rebuilt.swap_attempts);
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_reported_and_repaired() {
    let shop = Shop::open().await;
    history(&shop).await;
    let before = rows(&shop).await;
    for table in ["users", "bank_statements", "daily_totals", "stock_days", "stock_costs", "order_counts", "delivery_counts"] {
        assert!(before.iter().any(|row| row.contains(table)), "{table} has damage to repair");
    }
    shop.tamper(
        "UPDATE wallets SET balance = balance + 1; DELETE FROM orders WHERE id = 2; DELETE FROM webhook_envelopes;
         UPDATE daily_totals SET order_debits = order_debits + 1; DELETE FROM bank_statements; DELETE FROM users;
         UPDATE order_counts SET orders = orders + 1; UPDATE delivery_counts SET deliveries = deliveries + 1",
    )
    .await;
    let rebuilt = again(&shop, Rebuild::All).await;
    let lines: Vec<String> = rebuilt.differences.iter().map(ToString::to_string).collect();
    assert!(lines.iter().any(|l| l.contains("wallets 1: balance is")), "{lines:#?}");
    assert!(lines.iter().any(|l| l.contains("orders 2 is missing")), "{lines:#?}");
    assert!(lines.iter().any(|l| l.contains("webhook_envelopes")), "{lines:#?}");
    assert!(lines.iter().any(|l| l.contains("daily_totals 1, day 2") && l.contains("order_debits is ")), "{lines:#?}");
    for table in ["bank_statements 1 is missing", "users"] {
        assert!(lines.iter().any(|l| l.contains(table)), "{table}: {lines:#?}");
    }
    assert_eq!(rows(&shop).await, before);
    assert!(verify(&shop.options, |_| {}).await.unwrap().is_clean());
}

/// This check alone finds rows of a shard that `log_head` does not contain.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_an_unknown_shard_are_reported_and_removed() {
    let shop = Shop::open().await;
    shop.history().await;
    shop.tamper("INSERT INTO orders SELECT (jsonb_populate_record(o, '{\"shard_id\": 7}')).* FROM orders o WHERE id = 1").await;
    let rebuilt = again(&shop, Rebuild::parse("orders").unwrap()).await;
    let lines: Vec<String> = rebuilt.differences.iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["shard 7: orders has rows of this shard, but log_head has none"]);
    assert!(verify(&shop.options, |_| {}).await.unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_delivery_is_made_and_sent_again() {
    let shop = Shop::open().await;
    history(&shop).await;
    shop.tamper(
        "WITH lost AS (DELETE FROM deliveries WHERE id = (SELECT min(id) FROM deliveries) RETURNING id)
             DELETE FROM delivery_state USING lost WHERE delivery_id = lost.id",
    )
    .await;
    assert_eq!(again(&shop, Rebuild::Deliveries).await.found, 1);
    let report = verify(&shop.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.differences);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_killed_halfway_does_no_harm() {
    let shop = Shop::open().await;
    history(&shop).await;
    let (rows_before, catalogue_before) = (rows(&shop).await, catalogue(&shop).await);
    for stage in ["fold", "compare"] {
        // Dropping the rebuild halfway closes its connections, like a killed process.
        let (reached, mut midway) = tokio::sync::mpsc::unbounded_channel();
        let progress = move |progress: Progress| {
            if progress.stage == stage {
                _ = reached.send(());
            }
        };
        tokio::select! {
            biased;
            _ = midway.recv() => {}
            _ = rebuild(&shop.options, Rebuild::All, progress) => panic!("it ended"),
        }
        assert_eq!(rows(&shop).await, rows_before);
        assert_eq!(catalogue(&shop).await, catalogue_before);
    }
    assert!(again(&shop, Rebuild::All).await.was_clean());
    assert_eq!(rows(&shop).await, rows_before);
    assert_eq!(catalogue(&shop).await, catalogue_before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_in_a_shard_that_is_added_during_a_rebuild_keeps_its_rows() {
    let shop = Shop::open().await;
    history(&shop).await;
    let added = AtomicBool::new(false);
    let progress = |progress: Progress| {
        if progress.stage == "compare" && !added.swap(true, Ordering::Relaxed) {
            block_in_place(|| Handle::current().block_on(account_in_new_shard(&shop)));
        }
    };
    rebuild(&shop.options, Rebuild::All, progress).await.unwrap();
    assert!(added.load(Ordering::Relaxed));
    let accounts: Vec<String> =
        sqlx::query_scalar("SELECT name FROM accounts WHERE shard_id = 9").fetch_all(shop.ledger.pool()).await.unwrap();
    assert_eq!(accounts, ["Late"]);
    let report = verify(&shop.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.differences);
}

async fn account_in_new_shard(shop: &Shop) {
    shop.run(commands::AddShard { shard_id: 9 }).await;
    let mut shards = shop.ledger.shard_watch().clone();
    while !shards.current().contains(&9) {
        shards.changed().await;
    }
    let create = commands::CreateAccount { name: "Late".to_owned() };
    shop.ledger.execute(9, create, origin()).await.unwrap();
}
