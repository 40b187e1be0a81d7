//! The log outside the database: exported, continued, served, and imported again.

mod copies;
mod doubled;
mod files;
mod http;
mod import;
mod kept;
mod large;
mod offline;
mod parts;
mod receipts;

use std::path::Path;

use ledger_database::PgConnectOptions;
use rewards_ledger::export::{ExportFile, Manifest, Plan, Selection, selection::Range};
use rewards_ledger::ledger::{FIRST_SHARD, connect, reader};
use sqlx::{AssertSqlSafe, ConnectOptions};
use tokio::process::Command;

use crate::support::program::{program, run};

/// Plans an export of everything up to the current head.
async fn whole(pool: &ledger_database::PgPool, is_compressed: bool) -> Plan {
    let head = reader::head(pool, FIRST_SHARD).await.unwrap();
    Plan {
        range: Range::default(),
        selection: Selection::all(FIRST_SHARD, head),
        head,
        epoch: 0,
        is_compressed,
        checkpoint: None,
    }
}

/// Exports a whole log.
async fn export(options: &PgConnectOptions, path: &Path) -> Manifest {
    let pool = connect::pool(options);
    let mut file = ExportFile::open(path, whole(&pool, false).await).unwrap();
    let (selection, mut at) = (file.plan.selection.clone(), 0);
    while at < selection.to {
        let page = selection.page(&pool, at).await.unwrap();
        file.append(&page.events).unwrap();
        at = page.reached;
    }
    file.finish(chrono::Utc::now()).unwrap()
}

fn command(directory: &Path, options: &PgConnectOptions, arguments: &[&str]) -> Command {
    let mut command = program(directory);
    command.args(arguments).env("DATABASE_URL", options.hosts()[0].to_url_lossy().as_str());
    command
}

/// Runs the program, which must succeed, and returns its output.
async fn succeeds(directory: &Path, options: &PgConnectOptions, arguments: &[&str]) -> Vec<u8> {
    let output = run(&mut command(directory, options, arguments)).await;
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Runs the program, which must refuse, and returns the line with the reason.
async fn fails(directory: &Path, options: &PgConnectOptions, arguments: &[&str]) -> String {
    let output = run(&mut command(directory, options, arguments)).await;
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Returns every row of these tables as text, in order.
async fn rows(options: &PgConnectOptions, tables: &[&str]) -> Vec<String> {
    let mut conn = options.connect().await.unwrap();
    let mut rows = vec![];
    for table in tables {
        let sql = format!("SELECT '{table} ' || t::text FROM {table} t ORDER BY 1");
        rows.extend(sqlx::query_scalar::<_, String>(AssertSqlSafe(sql)).fetch_all(&mut conn).await.unwrap());
    }
    rows
}
