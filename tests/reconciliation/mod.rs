//! Reconciliation: totals, differences, and bank statements.

mod account;
mod accounts;
mod apart;
mod faults;
mod many_wallets;
mod moment;
mod statements;
mod stock;
mod totals;
mod wallets;
mod workbooks;

use std::process::Output;

use ledger_database::PgConnectOptions;
use serde_json::Value;
use sqlx::ConnectOptions;

use crate::support::program::{program, run};
use crate::support::shop::Shop;

/// Runs `reconcile` with these arguments on a shop's database.
async fn reconcile(shop: &Shop, arguments: &[&str]) -> Output {
    reconcile_on(&shop.options, arguments).await
}

async fn reconcile_on(options: &PgConnectOptions, arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let mut command = program(directory.path());
    command.arg("reconcile").args(arguments).env("DATABASE_URL", options.hosts()[0].to_url_lossy().to_string());
    run(&mut command).await
}

/// Returns the cells of one column, for the records of one kind.
fn cells(csv: &str, record: &str, name: &str) -> Vec<String> {
    let mut csv = csv::Reader::from_reader(csv.as_bytes());
    let at = csv.headers().unwrap().iter().position(|column| column == name).unwrap_or_else(|| panic!("no column {name}"));
    let rows = csv.records().map(Result::unwrap);
    rows.filter(|row| &row[0] == record).map(|row| row[at].to_owned()).collect()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Returns the report as JSON, and true if the command exited with success.
async fn report(shop: &Shop, arguments: &[&str]) -> (Value, bool) {
    let output = reconcile(shop, &[&["--json"], arguments].concat()).await;
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output)));
    let is_content = match output.status.code() {
        Some(0) => true,
        Some(1) => false,
        other => panic!("{other:?}: {}", text(&output)),
    };
    (report, is_content)
}
