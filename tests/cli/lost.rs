//! `events lost`: the events that a database lacks, according to an export or a copy of the tiles.

use std::path::{Path, PathBuf};
use std::process::Output;

use rewards_ledger::transparency::TreeError;
use serde_json::{Value, json};
use sqlx::ConnectOptions;
use tempfile::TempDir;

use super::{directory, err, out, program, run};
use crate::support::failover::Standby;
use crate::support::ledger::SHARD;
use crate::support::shop::Shop;
use crate::support::tree::Tree;
use crate::support::wait::until;

/// A shop whose log was copied, and a copy of its database as it was before the last events.
struct Loss {
    directory: TempDir,
    shop: Shop,
    tree: Tree,
    older: Standby,
    /// Last event of the older database.
    kept: u64,
    /// Last event of the copies of the log.
    end: u64,
}

impl Loss {
    /// Places three orders that the older database lacks. `early.ndjson` has the log before them. `log.ndjson`, `tiles` and
    /// `hashes` have all of it, the last one without entries.
    async fn prepare() -> Loss {
        let (directory, shop) = (directory(), Shop::open().await);
        let tree = Tree::of(&shop.ledger, &shop.options, &shop.metrics);
        shop.orders(shop.customer.account_id, 5).await;
        let kept = tree.grow().await;
        export(&shop, &directory, &["--out", "early.ndjson"]).await;
        let older = Standby::of(&shop.options).await;
        shop.orders(shop.customer.account_id, 3).await;
        let end = tree.grow().await;
        for copy in ["tiles", "hashes"] {
            export(&shop, &directory, &["--tiles", copy]).await;
        }
        std::fs::remove_dir_all(directory.path().join("hashes/tile/entries")).unwrap();
        export(&shop, &directory, &["--out", "log.ndjson"]).await;
        Loss { directory, shop, tree, older, kept, end }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    async fn lost(&self, arguments: &[&str]) -> Output {
        lost(&self.shop, self.directory.path(), arguments).await
    }

    async fn report(&self, arguments: &[&str]) -> Value {
        report(&self.shop, self.directory.path(), arguments).await
    }
}

fn command(shop: &Shop, directory: &Path, arguments: &[&str]) -> tokio::process::Command {
    let mut command = program(directory);
    command.current_dir(directory).arg("events").args(arguments);
    command.env("DATABASE_URL", shop.options.hosts()[0].to_url_lossy().as_str());
    command
}

async fn export(shop: &Shop, directory: &TempDir, arguments: &[&str]) {
    let done = run(command(shop, directory.path(), &["export"]).args(arguments)).await;
    assert!(done.status.success(), "{}", err(&done));
}

async fn lost(shop: &Shop, directory: &Path, arguments: &[&str]) -> Output {
    run(command(shop, directory, &["lost"]).args(arguments)).await
}

/// Returns the report as JSON. Its exit status must tell whether anything is lost.
async fn report(shop: &Shop, directory: &Path, arguments: &[&str]) -> Value {
    let done = lost(shop, directory, &[arguments, &["--json"]].concat()).await;
    let report: Value = serde_json::from_str(&out(&done)).unwrap_or_else(|_| panic!("{}", err(&done)));
    let is_lost = report["lost"] != 0 || !report["unlisted"].is_null();
    assert_eq!(done.status.code(), Some(i32::from(is_lost)), "{report:#}");
    report
}

#[tokio::test(flavor = "multi_thread")]
async fn the_events_that_a_restored_database_lacks_are_listed() {
    let loss = Loss::prepare().await;
    for source in [["--export", "log.ndjson"], ["--tiles", "tiles"], ["--tiles", "hashes"], ["--export", "early.ndjson"]] {
        let sound = loss.lost(&source).await;
        assert!(sound.status.success() && out(&sound).starts_with("0 of "), "{source:?}: {}{}", out(&sound), err(&sound));
    }
    let Loss { directory, shop, older, kept, end, .. } = loss;
    older.promote().await;

    let found = report(&shop, directory.path(), &["--export", "log.ndjson"]).await;
    assert_eq!((&found["lost"], &found["compared"]), (&json!(end - kept), &json!(end)));
    assert_eq!(found["by_type"], json!({"OrderPlaced": 3, "WalletDebited": 3}));
    let events = found["events"].as_array().unwrap();
    let positions: Vec<u64> = events.iter().filter_map(|event| event["position"].as_u64()).collect();
    assert_eq!(positions, (kept + 1..=end).collect::<Vec<_>>());
    let placed = events.iter().find(|event| event["type"] == "OrderPlaced").unwrap();
    let account = json!(shop.customer.account_id);
    assert_eq!((&placed["account_id"], &placed["is_replaced"]), (&account, &json!(false)));
    assert_eq!((&placed["amount"], &placed["currency"]), (&json!("10.00"), &json!("EUR")));
    assert!(placed["reference_code"].as_str().unwrap().starts_with("ORD-"), "{placed}");
    assert!(placed["stream"].as_str().unwrap().starts_with("order/"), "{placed}");
    assert_eq!(report(&shop, directory.path(), &["--tiles", "tiles"]).await["events"], found["events"]);

    let hashes = report(&shop, directory.path(), &["--tiles", "hashes"]).await;
    assert_eq!((&hashes["lost"], &hashes["by_type"]), (&found["lost"], &json!({})));
    for (known, hash) in events.iter().zip(hashes["events"].as_array().unwrap()) {
        assert_eq!((&known["position"], &known["leaf_hash"]), (&hash["position"], &hash["leaf_hash"]));
        assert!(hash["type"].is_null() && hash["stream"].is_null(), "{hash}");
    }

    let table = out(&lost(&shop, directory.path(), &["--export", "log.ndjson"]).await);
    assert!(table.ends_with(&format!("\n6 of {end} events are lost: 3 OrderPlaced, 3 WalletDebited\n")), "{table}");
    assert!(table.contains("ORD-") && !table.contains("leaf_hash"), "{table}");
    let table = out(&lost(&shop, directory.path(), &["--tiles", "hashes"]).await);
    assert!(table.contains("leaf_hash") && table.ends_with(&format!("\n6 of {end} events are lost\n")), "{table}");
    let csv = lost(&shop, directory.path(), &["--export", "log.ndjson", "--output", "csv"]).await;
    assert_eq!((csv.status.code(), out(&csv).lines().count()), (Some(1), 7), "{}", out(&csv));
    let csv = lost(&shop, directory.path(), &["--export", "early.ndjson", "--output", "csv"]).await;
    assert_eq!((csv.status.code(), out(&csv)), (Some(0), String::new()));

    // Other events take the positions of the lost ones.
    shop.order(1).await;
    let found = report(&shop, directory.path(), &["--export", "log.ndjson"]).await;
    let replaced: Vec<bool> = found["events"].as_array().unwrap().iter().map(|event| event["is_replaced"] == true).collect();
    assert_eq!(replaced, [true, true, false, false, false, false]);
}

/// A node remembers the size of the tree that was signed, and so does an incident. An export from before knows less.
#[tokio::test(flavor = "multi_thread")]
async fn signed_positions_that_a_copy_does_not_reach_are_named() {
    let Loss { directory, shop, tree, older, kept, end } = Loss::prepare().await;
    older.promote().await;
    until("the node refuses", async || matches!(tree.projector.step(SHARD).await, Err(TreeError::Refused(_)))).await;
    let unlisted = json!([kept + 1, end]);
    let early = report(&shop, directory.path(), &["--export", "early.ndjson"]).await;
    assert_eq!((&early["lost"], &early["unlisted"]), (&json!(0), &unlisted));
    let said = err(&lost(&shop, directory.path(), &["--export", "early.ndjson"]).await);
    assert!(said.contains(&format!("positions {} to {end} were signed and are lost, too", kept + 1)), "{said}");
    let complete = report(&shop, directory.path(), &["--export", "log.ndjson"]).await;
    assert_eq!((&complete["lost"], &complete["unlisted"]), (&json!(end - kept), &Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_cannot_be_compared_is_not_reported_as_complete() {
    let loss = Loss::prepare().await;
    let refused = async |arguments: &[&str], status: i32, problem: &str| {
        let refused = loss.lost(arguments).await;
        assert_eq!(refused.status.code(), Some(status), "{arguments:?}: {}{}", out(&refused), err(&refused));
        assert!(err(&refused).contains(problem), "{arguments:?}: {}", err(&refused));
        assert_eq!(out(&refused), "", "{arguments:?}");
    };
    refused(&[], 2, "--export <FILE>").await;
    refused(&["--export", "log.ndjson", "--tiles", "tiles"], 2, "cannot be used with").await;
    refused(&["--export", "nowhere.ndjson"], 3, "nowhere.ndjson").await;
    refused(&["--tiles", "nowhere"], 3, "nowhere has no checkpoint").await;
    refused(&["--export", "log.ndjson", "--shard", "2"], 3, "the database has no shard 2").await;

    let text = std::fs::read_to_string(loss.path("log.ndjson")).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    std::fs::write(loss.path("log.ndjson"), format!("{}\n", lines[0])).unwrap();
    refused(&["--export", "log.ndjson"], 3, "log.ndjson does not match its manifest").await;
    std::fs::write(loss.path("moved.ndjson"), text.replace("{\"shard_id\":1,", "{\"shard_id\":2,")).unwrap();
    refused(&["--export", "moved.ndjson"], 3, "compare it with --shard 2").await;
    lines.swap(3, 4);
    std::fs::write(loss.path("swapped.ndjson"), format!("{}\n", lines.join("\n"))).unwrap();
    refused(&["--export", "swapped.ndjson"], 3, "position 4 follows position 5: run `verify --export`").await;
    std::fs::write(loss.path("broken.ndjson"), "{}\n").unwrap();
    refused(&["--export", "broken.ndjson"], 3, "broken.ndjson: line 1").await;

    let bundle = loss.path(&format!("tiles/tile/entries/000.p/{}", loss.end));
    let mut bytes = std::fs::read(&bundle).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&bundle, bytes).unwrap();
    refused(&["--tiles", "tiles"], 3, "does not match its tile: run `verify --tiles`").await;
    std::fs::remove_dir_all(loss.path("hashes/tile/0")).unwrap();
    refused(&["--tiles", "hashes"], 3, "is missing").await;

    // A part is compared as far as it goes.
    export(&loss.shop, &loss.directory, &["--out", "part.ndjson", "--type", "OrderPlaced"]).await;
    let part = loss.report(&["--export", "part.ndjson"]).await;
    assert_eq!((&part["compared"], &part["lost"]), (&json!(8), &json!(0)));
    let said = err(&loss.lost(&["--export", "part.ndjson"]).await);
    assert!(said.contains("of the types OrderPlaced"), "{said}");
}
