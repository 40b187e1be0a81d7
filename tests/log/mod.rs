//! The log itself: append-only, gapless, in commit order, and never held up for long.

use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rewards_ledger::ledger::{Command, check_schema, connect, reader};
use serde_json::json;
use sqlx::{AssertSqlSafe, ConnectOptions};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::support::ledger::{SHARD, origin};
use crate::support::postgres;
use crate::support::program::{DEADLINE, Program};
use crate::support::shop::Shop;

#[tokio::test(flavor = "multi_thread")]
async fn readers_beside_two_writing_processes_neither_skip_nor_repeat() {
    const LANES: i64 = 8;
    const ORDERS: i64 = 40;
    let database = postgres::database().await;
    let nodes =
        [Program::start(&database.url, &["--roles", "api"]).await, Program::start(&database.url, &["--roles", "api"]).await];
    let client = nodes[0].client("1000000.00").await;
    let product = nodes[0].product(0).await;
    let pool = connect::pool(&database.url.parse().unwrap());
    let start = reader::head(&pool, SHARD).await.unwrap();
    let end = start + 2 * 2 * LANES * ORDERS; // an order and its debit
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let pool = pool.clone();
        readers.spawn(async move {
            let (mut checkpoint, mut seen) = (start, vec![]);
            while checkpoint < end {
                for stored in reader::stored_after(&pool, SHARD, checkpoint, 7).await.unwrap() {
                    checkpoint = stored.position;
                    seen.push(stored.position);
                }
            }
            seen
        });
    }
    let body = json!({"product_id": product, "denomination": 10, "quantity": 1});
    let lanes = nodes.iter().flat_map(|node| std::iter::repeat_n(node, LANES as usize)).map(|node| async {
        for _ in 0..ORDERS {
            let (status, answer) = node.call(&client, "POST", "/orders", None, &body).await.unwrap();
            assert_eq!(status, 201, "{answer}");
        }
    });
    futures::future::join_all(lanes).await;
    let all = tokio::time::timeout(DEADLINE, readers.join_all()).await.expect("the readers see the end of the log");
    for seen in all {
        assert_eq!(seen, (start + 1..=end).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_changes_the_log() {
    let shop = Shop::open().await;
    let mut admin = shop.admin().await;
    for role in ["", "SET ROLE ledger_runtime;"] {
        for change in ["UPDATE events SET version = 9", "DELETE FROM events", "TRUNCATE events"] {
            let refusal = sqlx::raw_sql(AssertSqlSafe(format!("{role} {change}"))).execute(&mut admin).await.unwrap_err();
            let refusal = refusal.into_database_error().unwrap();
            assert_eq!(refusal.code().as_deref(), Some("42501"), "{role} {change}");
            let expected = if role.is_empty() { "append-only" } else { "permission denied" };
            assert!(refusal.message().contains(expected), "{role} {change}: {refusal}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_could_be_changed_is_refused() {
    let shop = Shop::open().await;
    let pool = connect::pool(&shop.options);
    check_schema(&pool).await.unwrap();
    for (weaken, restore) in [
        ("ALTER TABLE events DISABLE TRIGGER events_append_only", "ALTER TABLE events ENABLE ALWAYS TRIGGER events_append_only"),
        ("ALTER TABLE events ENABLE TRIGGER events_no_truncate", "ALTER TABLE events ENABLE ALWAYS TRIGGER events_no_truncate"),
        ("GRANT UPDATE ON events TO ledger_runtime", "REVOKE UPDATE ON events FROM ledger_runtime"),
        ("GRANT UPDATE (data) ON events TO ledger_runtime", "REVOKE UPDATE (data) ON events FROM ledger_runtime"),
        ("GRANT DELETE ON events TO ledger_runtime", "REVOKE DELETE ON events FROM ledger_runtime"),
        ("GRANT TRUNCATE ON events TO ledger_runtime", "REVOKE TRUNCATE ON events FROM ledger_runtime"),
    ] {
        let mut admin = shop.admin().await;
        sqlx::raw_sql(weaken).execute(&mut admin).await.unwrap();
        assert!(check_schema(&pool).await.is_err(), "{weaken}");
        sqlx::raw_sql(restore).execute(&mut admin).await.unwrap();
        check_schema(&pool).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_cannot_say_which_migrations_are_applied() {
    let shop = Shop::open().await;
    let mut admin = shop.admin().await;
    let read = "SET ROLE ledger_runtime; SELECT version FROM _sqlx_migrations";
    sqlx::raw_sql(read).execute(&mut admin).await.unwrap();
    for change in [
        "INSERT INTO _sqlx_migrations SELECT version + 1, description, installed_on, success, checksum, execution_time FROM _sqlx_migrations",
        "UPDATE _sqlx_migrations SET version = version + 1",
        "DELETE FROM _sqlx_migrations",
        "TRUNCATE _sqlx_migrations",
    ] {
        let refusal = sqlx::raw_sql(change).execute(&mut admin).await.unwrap_err();
        assert_eq!(refusal.into_database_error().unwrap().code().as_deref(), Some("42501"), "{change}");
    }
}

const CHILD_URL: &str = "LEDGER_TEST_CHILD_URL";

/// Not a test: the process that the next one starts, and stops while it holds the head.
#[tokio::test]
#[ignore = "started by a_frozen_node_gives_the_head_up"]
async fn child_that_holds_the_head() {
    let Ok(url) = std::env::var(CHILD_URL) else { return };
    let mut connection = connect::writer(&url.parse().unwrap(), 1).connect().await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT position FROM log_head FOR UPDATE").execute(&mut connection).await.unwrap();
    println!("\nholds the head");
    tokio::time::sleep(Duration::from_secs(60)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_node_gives_the_head_up() {
    let shop = Shop::open().await;
    let url = shop.options.to_url_lossy().to_string();
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "log::child_that_holds_the_head", "--ignored", "--nocapture"])
        .env(CHILD_URL, url)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while lines.next_line().await.unwrap().expect("the child locks the head") != "holds the head" {}
    kill(Pid::from_raw(child.id().unwrap().try_into().unwrap()), Signal::SIGSTOP).unwrap();
    let started = Instant::now();
    shop.order(1).await;
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    child.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_commands_share_few_transactions() {
    let shop = Shop::open().await;
    let waiting: Vec<_> = (0..400)
        .map(|_| shop.ledger.enqueue(SHARD, Command::PlaceOrder(shop.customer.order("10.00", 1)), origin(), None).unwrap())
        .collect();
    for reply in waiting {
        reply.await.unwrap().unwrap();
    }
    let (events, transactions, last): (i64, i64, i64) = sqlx::query_as(
        "SELECT count(*), count(DISTINCT xmin::text), max(position) FROM events WHERE type IN ('OrderPlaced', 'WalletDebited')",
    )
    .fetch_one(shop.pool())
    .await
    .unwrap();
    assert_eq!(events, 800);
    assert!(transactions <= 20, "{transactions} transactions");
    let all: i64 = sqlx::query_scalar("SELECT count(*) FROM events").fetch_one(shop.pool()).await.unwrap();
    assert_eq!(all, last);
}
