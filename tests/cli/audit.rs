//! `verify` and `rebuild`, and their exit statuses.

use std::process::Output;

use sqlx::ConnectOptions;

use super::{directory, err, out, program, run};
use crate::support::shop::Shop;

/// Returns the rows of differences as CSV, without their head.
fn records(done: &Output) -> Vec<Vec<String>> {
    let mut reader = csv::Reader::from_reader(&*done.stdout);
    assert_eq!(reader.headers().unwrap(), vec!["kind", "shard", "table", "key", "position", "difference"], "{}", err(done));
    reader.records().map(|record| record.unwrap().iter().map(str::to_owned).collect()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_difference_is_reported_and_repaired() {
    let (directory, shop) = (directory(), Shop::open().await);
    shop.history().await;
    let url = shop.options.hosts()[0].to_url_lossy().to_string();
    let command = |arguments: &[&str]| {
        let mut command = program(directory.path());
        command.args(arguments).env("DATABASE_URL", &url);
        command
    };
    let sound = run(&mut command(&["verify"])).await;
    assert!(sound.status.success(), "{}{}", out(&sound), err(&sound));
    assert!(out(&sound).ends_with("everything matches the log\n"), "{}", out(&sound));

    shop.tamper("UPDATE wallets SET balance = balance + 1; DELETE FROM orders WHERE id = 2").await;
    let differs = run(&mut command(&["verify"])).await;
    assert_eq!(differs.status.code(), Some(1), "{}", err(&differs));
    for difference in ["wallets 1: balance is", "orders 2 is missing"] {
        assert!(out(&differs).contains(difference), "{}", out(&differs));
    }
    let differs = run(&mut command(&["verify", "--json"])).await;
    assert_eq!(differs.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_str(&out(&differs)).unwrap();
    assert_eq!(report["found"].as_u64().unwrap() as usize, report["differences"].as_array().unwrap().len(), "{report}");

    // As CSV, stdout has the differences alone, and stderr the rest.
    let csv = run(&mut command(&["verify", "--output", "csv"])).await;
    assert_eq!(csv.status.code(), Some(1), "{}", err(&csv));
    let rows = records(&csv);
    assert_eq!(rows.len() as u64, report["found"].as_u64().unwrap(), "{rows:?}");
    let order = rows.iter().find(|row| row[..4] == ["row", "1", "orders", "2"]).unwrap_or_else(|| panic!("{rows:?}"));
    assert_eq!(order[5], "shard 1: orders 2 is missing");
    assert!(err(&csv).ends_with(&format!(" {} differences\n", rows.len())), "{}", err(&csv));

    // A rebuild that repairs something exits with a failure, so that the damage is not overlooked. The next one finds
    // nothing.
    let repaired = run(&mut command(&["rebuild", "--all"])).await;
    assert_eq!(repaired.status.code(), Some(1), "{}", err(&repaired));
    assert!(out(&repaired).contains("differences repaired"), "{}", out(&repaired));
    let again = run(&mut command(&["rebuild", "orders", "--output", "csv"])).await;
    assert!(again.status.success(), "{}{}", out(&again), err(&again));
    assert!(records(&again).is_empty() && err(&again).ends_with("no row differed\n"), "{}{}", out(&again), err(&again));
    assert!(run(&mut command(&["verify"])).await.status.success());

    // A log without its head must not pass for an empty log, and its tables must not be removed.
    shop.tamper("CREATE TABLE kept AS SELECT * FROM log_head; DELETE FROM log_head").await;
    let headless = run(&mut command(&["verify"])).await;
    assert_eq!(headless.status.code(), Some(1), "{}", err(&headless));
    assert!(out(&headless).contains("shard 1: events has rows of this shard, but log_head has none"), "{}", out(&headless));
    let refused = run(&mut command(&["rebuild", "--all"])).await;
    assert_eq!(refused.status.code(), Some(3), "{}", out(&refused));
    assert!(err(&refused).contains("events of shard 1, but log_head has no such shard"), "{}", err(&refused));
    shop.tamper("INSERT INTO log_head SELECT * FROM kept; DROP TABLE kept").await;
    assert!(run(&mut command(&["verify"])).await.status.success());

    // The console shows every run.
    let mut connection = shop.options.connect().await.unwrap();
    let runs = "SELECT concat_ws(' ', kind, projection, outcome) FROM audit_runs ORDER BY id";
    let runs: Vec<String> = sqlx::query_scalar(runs).fetch_all(&mut connection).await.unwrap();
    let expected = [
        "verify clean",
        "verify differences",
        "verify differences",
        "verify differences",
        "rebuild all differences",
        "rebuild orders clean",
        "verify clean",
        "verify differences",
        "rebuild all failed",
        "verify clean",
    ];
    assert_eq!(runs, expected);

    // A command that cannot read the database must not report a clean result.
    for arguments in [&["verify"][..], &["rebuild", "orders"]] {
        let away = run(command(arguments).env("DATABASE_URL", "postgres://nobody@127.0.0.1:1/none")).await;
        assert_eq!((away.status.code(), err(&away).lines().count()), (Some(3), 1), "{}", err(&away));
    }
    let none = run(&mut command(&["verify", "--receipt", "nowhere.json", "--key", "nowhere.pub"])).await;
    assert_eq!(none.status.code(), Some(3), "{}", err(&none));
}
