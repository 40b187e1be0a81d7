//! The log itself: append-only, gapless, in commit order, and never blocked for long.

use ledger_database::PgConnectOptions;
use ledger_events::OrderId;
use nix::sys::signal::Signal;
use rewards_ledger::ledger::{Command, check_schema, connect, reader};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgPool, Row};

use crate::support::ledger::{SHARD, origin};
use crate::support::node::Node;
use crate::support::postgres;
use crate::support::program::{DEADLINE, Program, run};
use crate::support::shop::Shop;
use crate::support::wait::{is_true, until};

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
async fn the_service_cannot_change_the_list_of_applied_migrations() {
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

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_node_gives_the_head_up() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let pool = PgPool::connect_with(options.hosts()[0].clone()).await.unwrap();
    let frozen = Program::start(&database.url, &["--roles", "api"]).await;
    let other = Program::start(&database.url, &["--roles", "api"]).await;
    let client = other.client("1000.00").await;
    let order = json!({"product_id": other.product(0).await, "denomination": 10, "quantity": 1});

    // Creating an account locks the head, and its row then waits for this lock.
    let mut admin = options.connect().await.unwrap();
    let mut lock = admin.begin().await.unwrap();
    sqlx::query("LOCK TABLE accounts IN EXCLUSIVE MODE").execute(&mut *lock).await.unwrap();
    let account = json!({"name": "Frozen"});
    let (answer, ()) = tokio::join!(frozen.try_operator("/accounts", &account), async {
        let waits = "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE a.application_name = 'rewards-ledger writer'
            AND l.relation = 'accounts'::regclass AND NOT l.granted AND a.datname = current_database())";
        until("the node holds the lock of the head, and waits", async || {
            let held = sqlx::query("SELECT FROM log_head FOR UPDATE NOWAIT").execute(&pool).await;
            let code = held.err().and_then(|error| Some(error.as_database_error()?.code()?.into_owned()));
            code.as_deref() == Some("55P03") && is_true(&pool, waits).await
        })
        .await;
        frozen.signal(Signal::SIGSTOP);
        lock.rollback().await.unwrap();
        // The order waits for the head only as long as a frozen node may hold it. After that it would be refused.
        let (status, placed) = other.call(&client, "POST", "/orders", None, &order).await.unwrap();
        assert_eq!(status, 201, "{placed}");
        frozen.signal(Signal::SIGCONT);
    });

    // Whatever the node answers after it resumes is true, and the node continues.
    let (status, answer) = answer.unwrap();
    let made: i64 = sqlx::query_scalar("SELECT count(*) FROM events WHERE type = 'AccountCreated' AND data->>'name' = 'Frozen'")
        .fetch_one(&pool)
        .await
        .unwrap();
    match status {
        201 => assert_eq!(made, 1, "{answer}"),
        503 => assert_eq!(made, 0, "{answer}"),
        504 => assert!(made <= 1, "{answer}"),
        _ => panic!("{status} {answer}"),
    }
    frozen.operator("/accounts", json!({"name": "Thawed"})).await;
    let (status, placed) = frozen.call(&client, "POST", "/orders", None, &order).await.unwrap();
    assert_eq!(status, 201, "{placed}");
    let verified = run(frozen.command().arg("verify")).await;
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

/// `serve` checks the log before it starts to work, and reports what it finds.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_does_not_start_on_a_log_that_could_be_changed() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let mut admin = options.connect().await.unwrap();
    let node = Program::start(&database.url, &["--roles", "api"]).await;
    for (weaken, restore, problem) in [
        (
            "ALTER TABLE events DISABLE TRIGGER events_append_only",
            "ALTER TABLE events ENABLE ALWAYS TRIGGER events_append_only",
            "the trigger events_append_only is missing or disabled",
        ),
        (
            "DROP TRIGGER events_no_truncate ON events",
            "CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON events FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
             ALTER TABLE events ENABLE ALWAYS TRIGGER events_no_truncate",
            "the trigger events_no_truncate is missing or disabled",
        ),
        (
            "GRANT UPDATE ON events TO ledger_runtime",
            "REVOKE UPDATE ON events FROM ledger_runtime",
            "role ledger_runtime may UPDATE the table events",
        ),
    ] {
        sqlx::raw_sql(weaken).execute(&mut admin).await.unwrap();
        let refused = run(node.command().args(["serve", "--roles", "api", "--listen", "127.0.0.1:0"])).await;
        assert_eq!(refused.status.code(), Some(1), "{weaken}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(
            said.lines().last(),
            Some(&*format!("error: the log is not append-only: {problem}; refusing to work on it")),
            "{said}"
        );
        // A running node reports the problem and its reason as well.
        let ready = reqwest::get(format!("{}/readyz", node.url())).await.unwrap();
        assert_eq!(ready.status(), 503);
        let why = ready.text().await.unwrap();
        assert!(why.contains("append-only"), "{why}");
        sqlx::raw_sql(restore).execute(&mut admin).await.unwrap();
    }
    let _well = Program::start(&database.url, &["--roles", "api"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_commands_share_few_transactions() {
    let shop = Shop::open().await;
    // The head is held until all commands are in the queue.
    let mut holder = shop.admin().await;
    sqlx::raw_sql("BEGIN; SELECT position FROM log_head FOR UPDATE").execute(&mut holder).await.unwrap();
    let waiting: Vec<_> = (0..400)
        .map(|_| shop.ledger.enqueue(SHARD, Command::PlaceOrder(shop.customer.order("10.00", 1)), origin(), None).unwrap())
        .collect();
    sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
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

#[tokio::test]
async fn reading_a_few_streams_does_not_read_the_others() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let mut admin = node.admin().await;
    // Statistics from before the orders, so that the planner expects almost no events.
    sqlx::raw_sql("ANALYZE events").execute(&mut admin).await.unwrap();
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let id = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap();
    sqlx::query(
        "INSERT INTO events SELECT shard_id, position + n, gen_random_uuid(), stream_type, stream_id + n, version, type, schema_version,
            data, metadata, recorded_at
         FROM events, generate_series(1000, 9999) AS n WHERE stream_type = 'order' AND stream_id = $1",
    )
    .bind(id)
    .execute(&mut admin)
    .await
    .unwrap();
    let mut conn = connect::projector(&node.options).acquire().await.unwrap();
    let read = "SELECT pg_stat_force_next_flush(), idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'events_stream_version_key'";
    let read = async |conn: &mut ledger_database::PgConnection| -> i64 {
        // Pending statistics are counted when the statement has ended.
        sqlx::raw_sql("SELECT pg_stat_force_next_flush()").execute(&mut *conn).await.unwrap();
        sqlx::query(read).fetch_one(conn).await.unwrap().get(1)
    };
    let before = read(&mut conn).await;
    let orders = reader::orders_before(&mut conn, SHARD, &[id, id + 1_000, id + 2_000].map(OrderId), i64::MAX).await.unwrap();
    assert_eq!(orders.len(), 3);
    let entries = read(&mut conn).await - before;
    assert!((3..100).contains(&entries), "{entries} entries of the index were read");
}
