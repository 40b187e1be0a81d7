//! Unique indexes over text are independent of libc and ICU collations.

use embedded_postgres::Server;
use ledger_database::PgConnectOptions;
use rewards_ledger::ledger::schema::contract::{contract, dependent};
use rewards_ledger::ledger::schema::{migrate_to, migration::PATIENCE};
use rewards_ledger::ledger::{self, commands};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use webhook_client::receiver::ReceiverResponse;

use super::expansion::last_release;
use super::load::{FOR_ALL, Load, Shop};
use crate::support::ledger::{Customer, money, open};
use crate::support::program::{Program, run};
use crate::support::{postgres, shop};

/// Creates a database whose default collation is libc's.
async fn of_libc(server: &Server, name: &str) -> String {
    let mut admin = PgConnection::connect(&server.url()).await.unwrap();
    let create = format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C.UTF-8' LC_CTYPE 'C.UTF-8'");
    admin.execute(AssertSqlSafe(create)).await.unwrap();
    server.url_of(name)
}

/// Every unique index over text, with a statement that looks up one of its keys as the service does. For a partial
/// index the statement compares under both collations.
const LOOK_UPS: &str = r#"
    SELECT c.relname::text, format('SELECT FROM %I.%I WHERE %s%s', n.nspname, t.relname,
        string_agg(format('%1$I = %2$L', a.attname, CASE format_type(a.atttypid, NULL) WHEN 'boolean' THEN 'true'
                WHEN 'uuid' THEN '00000000-0000-0000-0000-000000000000' WHEN 'date' THEN '2026-01-01' ELSE '1' END)
            || CASE WHEN i.indpred IS NOT NULL AND a.attcollation <> 0 THEN format(' AND %I COLLATE "C" = %L', a.attname, '1') ELSE '' END,
            ' AND ' ORDER BY k.n),
        coalesce(' AND ' || pg_get_expr(i.indpred, i.indrelid), ''))
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid JOIN pg_namespace n ON n.oid = t.relnamespace
    CROSS JOIN LATERAL unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (attnum, n)
    JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.attnum
    WHERE i.indisunique AND n.nspname IN ('public', 'vault') AND c.relname <> 'master_keys_current' -- it holds one constant
    GROUP BY c.relname, n.nspname, t.relname, i.indexrelid, i.indpred, i.indrelid HAVING bool_or(a.attcollation <> 0)"#;

/// Returns the indexes that the planner does not use for their look-up.
async fn not_found_by_index(admin: &mut PgConnection) -> Vec<String> {
    admin.execute("SET enable_seqscan = off; SET enable_bitmapscan = off; ANALYZE").await.unwrap();
    let look_ups: Vec<(String, String)> = sqlx::query_as(LOOK_UPS).fetch_all(&mut *admin).await.unwrap();
    assert!(look_ups.len() > 15, "{look_ups:?}");
    let mut lost = vec![];
    for (index, statement) in look_ups {
        let explain = AssertSqlSafe(format!("EXPLAIN {statement}"));
        let plan: Vec<String> = sqlx::query_scalar(explain).fetch_all(&mut *admin).await.unwrap();
        let plan = plan.join("\n");
        // An index for searches is over the bytes, too, and may be as good.
        let names = [index.as_str(), index.trim_end_matches("_key")];
        if !names.iter().any(|name| plan.contains(&format!("using {name} on"))) || !plan.contains("Index Cond") {
            lost.push(format!("{statement}\n{plan}"));
        }
    }
    lost
}

async fn count(admin: &mut PgConnection, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(admin).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_database_has_no_unique_index_that_depends_on_libc() {
    let server = postgres::own_server(false).await;
    let url = of_libc(&server, "fresh").await;
    ledger::migrate(&url.parse().unwrap()).await.unwrap();
    let mut admin = PgConnection::connect(&url).await.unwrap();
    assert_eq!(dependent(&mut admin).await.unwrap(), Vec::<String>::new());
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schema_is_contracted_in_a_database_that_has_rows() {
    let server = postgres::own_server(false).await;
    let url = of_libc(&server, "upgraded").await;
    let options: PgConnectOptions = url.parse().unwrap();
    migrate_to(last_release().schema, &options).await.unwrap();
    let (receiver, _received) = shop::receiver(|_| ReceiverResponse::Status(200)).await;
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), receiver.ca_pem()).unwrap();
    let trust = ["--webhook-ca-file", ca.path().to_str().unwrap(), "--webhook-allow-nets", "127.0.0.0/8,::1/128"];
    let node = Program::start(&url, &[&trust[..], &FOR_ALL].concat()).await;
    assert!(node.log().contains("migrate --contract"), "the node logs what is left to do");
    let customer = Shop::open(&node, &receiver.url()).await;
    let mut load = Load::whole(&node, &customer, "load");
    load.go_round().await;
    let mut admin = PgConnection::connect(&url).await.unwrap();
    assert!(dependent(&mut admin).await.unwrap().len() > 15);
    assert_eq!(not_found_by_index(&mut admin).await, Vec::<String>::new(), "before");

    let contracted = run(node.command().args(["migrate", "--contract"])).await;
    assert!(contracted.status.success(), "{}", String::from_utf8_lossy(&contracted.stderr));
    // The load goes on all the time. A round that begins now uses every statement that was prepared before.
    load.go_round().await;
    assert_eq!(load.stop().await, Vec::<String>::new(), "the node logs: {}", node.log());
    assert_eq!(dependent(&mut admin).await.unwrap(), Vec::<String>::new());
    assert_eq!(not_found_by_index(&mut admin).await, Vec::<String>::new(), "after");
    let second = r"SELECT count(*) FROM pg_class WHERE relname LIKE '%\_in\_bytes'";
    assert_eq!(count(&mut admin, second).await, 0, "no second index is left");
    assert_eq!(count(&mut admin, "SELECT count(*) FROM pg_constraint WHERE NOT convalidated AND contype = 'f'").await, 0);
    assert_eq!(contract(&options, PATIENCE).await.unwrap(), Vec::<String>::new(), "once is enough");
    let verified = run(node.command().arg("verify")).await;
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    drop(node);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_contraction_continues() {
    let server = postgres::own_server(false).await;
    let url = of_libc(&server, "interrupted").await;
    let options: PgConnectOptions = url.parse().unwrap();
    migrate_to(last_release().schema, &options).await.unwrap();
    ledger::migrate(&options).await.unwrap();
    // The state that an interrupted run leaves: one new index is complete but not yet in place, another one is
    // incomplete.
    let mut admin = PgConnection::connect(&url).await.unwrap();
    for sql in [
        r#"CREATE UNIQUE INDEX orders_client_reference_key_in_bytes ON orders (shard_id, account_id, client_reference COLLATE "C")
           WHERE client_reference IS NOT NULL"#,
        r#"CREATE UNIQUE INDEX vouchers_reference_key_in_bytes ON vault.vouchers (shard_id, reference COLLATE "C")"#,
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'vault.vouchers_reference_key_in_bytes'::regclass",
    ] {
        admin.execute(sql).await.unwrap();
    }
    contract(&options, PATIENCE).await.unwrap();
    assert_eq!(dependent(&mut admin).await.unwrap(), Vec::<String>::new());
    // Unique values are still enforced.
    let ledger = open(&options).await;
    let wallet_id = Customer::with(&ledger, "100.00").await.wallet_id;
    let amount = money("1.00");
    let funding = commands::FundWallet { account_id: None, wallet_id, amount, reference: "once".to_owned(), note: None };
    crate::support::ledger::run(&ledger, funding).await;
    let twice = "INSERT INTO wallet_transactions (shard_id, id, position, wallet_id, account_id, type, category, amount, balance_after,
            currency, order_id, reference, created_at)
        SELECT shard_id, 999999, position, wallet_id, account_id, type, category, amount, balance_after, currency, order_id, reference, created_at
        FROM wallet_transactions WHERE reference = 'once'";
    let refused = admin.execute(twice).await.unwrap_err().to_string();
    assert!(refused.contains("wallet_transactions_funding_reference_key"), "{refused}");
    server.stop().await.unwrap();
}
