//! The roles of a production database, as `deploy/roles.sql` creates them.

use std::io::Write;

use serde_json::json;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};

use super::{directory, err, program, run};
use crate::support::postgres;
use crate::support::program::Program;
use crate::support::wait::until;

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_may_only_become_the_runtime_role_serves_after_the_owner_migrated() {
    let directory = directory();
    let server = postgres::own_server(false).await;
    let mut admin = server.url_of("postgres").parse::<PgConnectOptions>().unwrap().connect().await.unwrap();
    // The embedded server already has roles and a database with these names.
    let script = include_str!("../../deploy/roles.sql")
        .replace("ledger_owner", "the_owner")
        .replace("ledger_service", "the_service")
        .replace("CREATE ROLE ledger_runtime NOLOGIN;", "")
        .replace("DATABASE ledger ", "DATABASE production ");
    // One statement at a time, because CREATE DATABASE cannot run inside a transaction.
    let script: String = script.lines().filter(|line| !line.starts_with("--")).collect();
    for statement in script.split_terminator(';') {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut admin).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    let login = |role: &str| {
        let options: PgConnectOptions = server.url_of("production").parse().unwrap();
        options.username(role).password("change me").to_url_lossy().to_string()
    };
    // The embedded server admits no other roles. A server in production has a rule such as this one.
    let rules: String = sqlx::query_scalar("SHOW hba_file").fetch_one(&mut admin).await.unwrap();
    let mut rules = std::fs::OpenOptions::new().append(true).open(rules).unwrap();
    rules.write_all(b"local production the_owner,the_service scram-sha-256\n").unwrap();
    sqlx::raw_sql("SELECT pg_reload_conf()").execute(&mut admin).await.unwrap();
    until("the rule is active", async || PgConnection::connect(&login("the_owner")).await.is_ok()).await;
    let early = run(program(directory.path()).arg("verify").env("DATABASE_URL", login("the_service"))).await;
    assert!(!early.status.success(), "there is no ledger yet");
    let migrated = run(program(directory.path()).arg("migrate").env("DATABASE_URL", login("the_owner"))).await;
    assert!(migrated.status.success(), "{}", err(&migrated));

    let node = Program::start(&login("the_service"), &[]).await;
    let client = node.client("100.00").await;
    let product = node.product(1).await;
    let body = json!({"product_id": product, "denomination": 10, "quantity": 1});
    let (status, order) = node.call(&client, "POST", "/orders", None, &body).await.unwrap();
    assert_eq!((status, order["status"].as_str()), (201, Some("PENDING")));

    // By itself the login may do nothing. As the runtime role it may not do what only the owner may.
    let mut service = login("the_service").parse::<PgConnectOptions>().unwrap().connect().await.unwrap();
    for refused in [
        "SELECT count(*) FROM events",
        "SET ROLE the_owner",
        "SET ROLE ledger_runtime; UPDATE events SET version = 9",
        "SET ROLE ledger_runtime; DROP TRIGGER events_append_only ON events",
        "SET ROLE ledger_runtime; CREATE TABLE mine (n int)",
    ] {
        let refusal = sqlx::raw_sql(refused).execute(&mut service).await.unwrap_err();
        assert_eq!(refusal.into_database_error().unwrap().code().as_deref(), Some("42501"), "{refused}");
        sqlx::raw_sql("RESET ROLE").execute(&mut service).await.unwrap();
    }
    drop(node);
    server.stop().await.unwrap();
}
