//! The roles of a production database, as `deploy/roles.sql` creates them.

use std::io::Write;

use ledger_database::PgConnectOptions;
use serde_json::json;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};

use super::{directory, err, program, run};
use crate::support::postgres;
use crate::support::program::Program;
use crate::support::wait::until;

/// Runs the script on an embedded server, which already has roles and a database with these names, after other changes.
async fn create_roles(admin: &mut PgConnection, changes: &[(&str, &str)]) {
    let names = [("ledger_owner", "the_owner"), ("ledger_service", "the_service"), ("DATABASE ledger ", "DATABASE production ")];
    let script = include_str!("../../deploy/roles.sql").to_owned();
    let script = changes.iter().chain(&names).fold(script, |script, (from, to)| script.replace(from, to));
    // One statement at a time, because CREATE DATABASE cannot run inside a transaction.
    let script: String = script.lines().filter(|line| !line.starts_with("--")).collect();
    for statement in script.split_terminator(';') {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *admin).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

/// Lets these roles log in with their passwords. The embedded server admits no roles but its own.
async fn admit(admin: &mut PgConnection, databases: &str, roles: &str) {
    let rules: String = sqlx::query_scalar("SHOW hba_file").fetch_one(&mut *admin).await.unwrap();
    let mut rules = std::fs::OpenOptions::new().append(true).open(rules).unwrap();
    rules.write_all(format!("local {databases} {roles} scram-sha-256\n").as_bytes()).unwrap();
    sqlx::raw_sql("SELECT pg_reload_conf()").execute(admin).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_may_only_become_the_runtime_role_serves_after_the_owner_migrated() {
    let directory = directory();
    let server = postgres::own_server(false).await;
    let mut admin = server.url_of("postgres").parse::<PgConnectOptions>().unwrap().connect().await.unwrap();
    create_roles(&mut admin, &[("CREATE ROLE ledger_runtime NOLOGIN;", "")]).await;
    let login = |role: &str| {
        let options: sqlx::postgres::PgConnectOptions = server.url_of("production").parse().unwrap();
        options.username(role).password("change me").to_url_lossy().to_string()
    };
    admit(&mut admin, "production", "the_owner,the_service").await;
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

/// A managed Postgres gives nobody a superuser.
#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_without_superuser_rights_creates_the_roles_and_the_owner_migrates() {
    let directory = directory();
    let server = postgres::own_server(false).await;
    let mut superuser = server.url_of("postgres").parse::<PgConnectOptions>().unwrap().connect().await.unwrap();
    let made = "DROP ROLE ledger_runtime; CREATE ROLE administrator LOGIN CREATEROLE CREATEDB PASSWORD 'change me';
        CREATE ROLE stranger LOGIN PASSWORD 'change me'";
    sqlx::raw_sql(made).execute(&mut superuser).await.unwrap();
    admit(&mut superuser, "all", "administrator,stranger,the_owner,the_service").await;
    let login = |role: &str, database: &str| {
        let options: sqlx::postgres::PgConnectOptions = server.url_of(database).parse().unwrap();
        options.username(role).password("change me").to_url_lossy().to_string()
    };
    let administrator = login("administrator", "postgres");
    until("the rule is active", async || PgConnection::connect(&administrator).await.is_ok()).await;
    let mut admin = PgConnection::connect(&administrator).await.unwrap();
    create_roles(&mut admin, &[]).await;

    // A role that may nothing is told all that is missing.
    let refused = run(program(directory.path()).arg("migrate").env("DATABASE_URL", login("stranger", "production"))).await;
    let said = err(&refused);
    assert!(!refused.status.success() && said.lines().count() == 1, "{said}");
    for missing in [
        "the role stranger cannot migrate",
        "GRANT CREATE ON DATABASE production TO stranger",
        "GRANT CREATE ON SCHEMA public TO stranger",
        "GRANT ledger_runtime TO stranger WITH ADMIN OPTION",
    ] {
        assert!(said.contains(missing), "{missing}: {said}");
    }
    let migrated = run(program(directory.path()).arg("migrate").env("DATABASE_URL", login("the_owner", "production"))).await;
    assert!(migrated.status.success(), "{}", err(&migrated));
    let node = Program::start(&login("the_service", "production"), &[]).await;
    node.client("100.00").await;
    let superusers: i64 = sqlx::query_scalar("SELECT count(*) FROM pg_roles WHERE rolsuper AND rolname LIKE 'the%'")
        .fetch_one(&mut admin)
        .await
        .unwrap();
    assert_eq!(superusers, 0);
    drop(node);
    server.stop().await.unwrap();
}
