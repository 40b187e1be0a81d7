//! A column is added to a table while nodes have prepared statements that read the table.

use std::path::Path;

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use webhook_client::receiver::ReceiverResponse;

use super::load::{FOR_ALL, Load, Shop};
use crate::support::program::Program;
use crate::support::wait::until;
use crate::support::{postgres, repository, shop};

/// Returns every table of the service.
pub async fn tables(admin: &mut PgConnection) -> Vec<String> {
    let tables = "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
        WHERE schemaname IN ('public', 'vault') AND tablename <> '_sqlx_migrations' ORDER BY 1";
    sqlx::query_scalar(tables).fetch_all(admin).await.unwrap()
}

/// Adds a column as a migration does: it gives up waiting for a lock after a timeout, and retries.
async fn add_column(admin: &mut PgConnection, table: &str, number: usize) {
    let alter = format!("SET lock_timeout = '500ms'; ALTER TABLE {table} ADD COLUMN added_{number} text DEFAULT 'x'");
    until("the column is added", async || match sqlx::raw_sql(AssertSqlSafe(alter.clone())).execute(&mut *admin).await {
        Ok(_) => true,
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("55P03") => false,
        Err(error) => panic!("{error}"),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_column_in_every_table_fails_no_request() {
    let database = postgres::database().await;
    let (receiver, _received) = shop::receiver(|_| ReceiverResponse::Status(200)).await;
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), receiver.ca_pem()).unwrap();
    let trust = ["--webhook-ca-file", ca.path().to_str().unwrap(), "--webhook-allow-nets", "127.0.0.0/8,::1/128"];
    let node = Program::start(&database.url, &[&trust[..], &FOR_ALL].concat()).await;
    let customer = Shop::open(&node, &receiver.url()).await;
    let mut load = Load::whole(&node, &customer, "load");
    // Prepare every statement before the first column is added.
    load.go_round().await;
    let mut admin = PgConnection::connect(&database.url).await.unwrap();
    // The load goes on all the time. A round runs every statement, and takes seconds: it follows each group of tables.
    for (number, tables) in tables(&mut admin).await.chunks(6).enumerate() {
        for table in tables {
            add_column(&mut admin, table, number).await;
        }
        load.go_round().await;
        assert_eq!(load.failures(), Vec::<String>::new(), "after adding a column to each of {tables:?}");
    }
    assert_eq!(load.stop().await, Vec::<String>::new());
    // Background loops did not fail either, and did not need a new connection.
    let log = node.log();
    let stumbled: Vec<&str> = log.lines().filter(|line| line.contains("cached plan") || line.contains("0A000")).collect();
    assert_eq!(stumbled, Vec::<&str>::new());
    let delivered = "SELECT count(*) > 0 FROM delivery_state WHERE status = 'delivered'";
    assert!(sqlx::query_scalar::<_, bool>(delivered).fetch_one(&mut admin).await.unwrap());
}

/// Collects the sources that run in the service.
fn sources(directory: &Path, files: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
        }
    }
}

/// Sources that compare and copy whole rows in one short session. They must include every new column.
const OF_WHOLE_ROWS: [&str; 3] = ["src/audit/tables.rs", "src/audit/deliveries.rs", "projections/src/listing/maintain.rs"];

#[tokio::test]
async fn no_statement_selects_all_columns_of_a_table() {
    let database = postgres::database().await;
    let mut admin = PgConnection::connect(&database.url).await.unwrap();
    let tables = tables(&mut admin).await;
    let is_table = |name: &str| tables.iter().any(|table| table == name || table.strip_prefix("public.") == Some(name));
    let mut files = vec![];
    for directory in ["src", "projections/src"] {
        sources(&repository(directory), &mut files);
    }
    let mut found = vec![];
    for (path, text) in files.iter().filter(|(path, _)| !OF_WHOLE_ROWS.iter().any(|whole| path.ends_with(whole))) {
        let words: Vec<&str> = text.split_whitespace().map(|word| word.trim_matches(['"', '(', ')', ','])).collect();
        for (at, word) in words.iter().enumerate() {
            let before = |n: usize| at.checked_sub(n).map_or("", |at| words[at]);
            let is_all = match word.strip_suffix('*') {
                Some("") => {
                    before(1) == "RETURNING" || (before(1) == "SELECT" && words.get(at + 2).is_some_and(|table| is_table(table)))
                }
                // A table alias: `FROM orders o` or `JOIN orders AS o`.
                Some(alias) => alias.strip_suffix('.').is_some_and(|alias| {
                    words.windows(3).any(|three| {
                        let name = if three[1] == "AS" { three[2] } else { three[1] };
                        is_table(three[0]) && name == alias
                    })
                }),
                None => false,
            };
            if is_all {
                let end = words.len().min(at + 4);
                found.push(format!("{path}: {}", words[at.saturating_sub(1)..end].join(" ")));
            }
        }
    }
    assert_eq!(found, Vec::<String>::new(), "name the columns: `SELECT *` in a prepared statement fails after a column is added");
}
