//! Operators add shards and drain them, and new accounts are placed in the shard with the least load.

use std::path::{Path, PathBuf};

use ledger_database::PgConnectOptions;
use ledger_events::{Actor, Rejection, ShardId};
use rewards_ledger::audit::verify;
use rewards_ledger::export::{import, page};
use rewards_ledger::ledger::{CommandResult, FIRST_SHARD, Origin, WriteError, commands, reader, shard_load};
use serde_json::{Value, json};

use crate::support::node::Node;
use crate::support::postgres::{self, database};
use crate::support::program::{Program, run};
use crate::support::tampering::tamper;
use crate::support::wait::until;

fn origin() -> Origin {
    Origin { actor: Actor::Operator(0), request_id: "test".to_owned() }
}

/// Adds a shard, and waits until the node works on it.
async fn add(node: &Node, shard: ShardId) {
    node.operator("POST", "/shards", json!({"shard_id": shard})).await.data(201);
    until("the node works on the shard", async || node.ledger.shards().contains(&shard)).await;
}

/// Sets whether a shard drains. Returns the shard.
async fn drain(node: &Node, shard: ShardId, draining: bool) -> Value {
    node.operator("PUT", &format!("/shards/{shard}/drain"), json!({"draining": draining})).await.data(200)
}

/// Returns the number and the status of each shard.
async fn statuses(node: &Node) -> Vec<(i64, String)> {
    let shards = node.operator("GET", "/shards", Value::Null).await.data(200);
    let status = |shard: &Value| (shard["id"].as_i64().unwrap(), shard["status"].as_str().unwrap().to_owned());
    shards["shards"].as_array().unwrap().iter().map(status).collect()
}

/// Creates an account where the service places it. Returns its shard.
async fn placed(node: &Node) -> i64 {
    node.operator("POST", "/accounts", json!({"name": "Acme"})).await.data(201)["shard_id"].as_i64().unwrap()
}

/// Returns the differences that `verify` finds.
async fn differences(options: &PgConnectOptions) -> Vec<String> {
    verify(options, |_| {}).await.unwrap().differences.iter().map(ToString::to_string).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_adds_shards_and_the_first_ones_log_records_them() {
    let node = Node::start().await;
    let first = node.operator("GET", "/shards", Value::Null).await.data(200)["shards"][0].clone();
    let expected = json!({"id": 1, "status": "open", "accounts": 0, "events": 0, "events_last_day": 0, "waiting_orders": 0,
        "available_vouchers": 0, "has_leader": false, "added_at": null});
    assert_eq!(first, expected);
    let added = node.operator("POST", "/shards", json!({"shard_id": 2})).await.data(201);
    assert_eq!((&added["id"], &added["status"], &added["events"]), (&json!(2), &json!("open"), &json!(0)), "{added}");
    assert!(added["added_at"].is_string(), "{added}");
    node.operator("POST", "/shards", json!({"shard_id": 7})).await.data(201);
    node.operator("POST", "/shards", json!({"shard_id": 3})).await.data(201);
    let open = |id: i64| (id, "open".to_owned());
    assert_eq!(statuses(&node).await, [1, 2, 3, 7].map(open));

    let head = node.head().await;
    node.operator("POST", "/shards", json!({"shard_id": 7})).await.refused(409, "E_CONFLICT");
    for wrong in [json!(1), json!(0), json!(901), json!("2"), json!(null)] {
        node.operator("POST", "/shards", json!({"shard_id": wrong})).await.refused(400, "E_VALIDATION_FAILURE");
    }
    assert_eq!(node.head().await, head);
    let both = json!({"shard_id": 9});
    let (one, other) =
        tokio::join!(node.operator("POST", "/shards", both.clone()), node.operator("POST", "/shards", both.clone()));
    let mut answers = [one.status, other.status];
    answers.sort_unstable();
    assert_eq!(answers, [201, 409], "only one of two requests adds the shard");
    let recorded =
        "SELECT stream_id FROM events WHERE shard_id = 1 AND stream_type = 'shard' AND type = 'ShardAdded' ORDER BY position";
    let recorded: Vec<i64> = sqlx::query_scalar(recorded).fetch_all(node.ledger.pool()).await.unwrap();
    assert_eq!(recorded, [2, 7, 3, 9]);
    assert_eq!(differences(&node.options).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_open_shard_is_not_drained() {
    let node = Node::start().await;
    node.operator("PUT", "/shards/1/drain", json!({"draining": true})).await.refused(409, "E_CONFLICT");
    node.operator("POST", "/shards", json!({"shard_id": 2})).await.data(201);
    assert_eq!(drain(&node, 1, true).await["status"], "draining");
    let head = node.head().await;
    drain(&node, 1, true).await;
    node.operator("PUT", "/shards/2/drain", json!({"draining": true})).await.refused(409, "E_CONFLICT");
    for unknown in [3, 999_999_999] {
        let path = format!("/shards/{unknown}/drain");
        node.operator("PUT", &path, json!({"draining": true})).await.refused(404, "E_NOT_FOUND");
    }
    assert_eq!(node.head().await, head, "what is set already, and what is refused, is no event");
    assert_eq!(drain(&node, 1, false).await["status"], "open");
    assert_eq!(drain(&node, 2, true).await["status"], "draining");
    assert_eq!(statuses(&node).await, [(1, "open".to_owned()), (2, "draining".to_owned())]);
    assert_eq!(differences(&node.options).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_log_of_the_first_shard_takes_commands_about_shards() {
    let node = Node::start().await;
    add(&node, 2).await;
    let adds = node.ledger.execute(2, commands::AddShard { shard_id: 3 }, origin()).await;
    let drains = node.ledger.execute(2, commands::SetShardDrain { shard_id: 2, draining: true }, origin()).await;
    for refused in [adds, drains] {
        assert!(matches!(refused, Err(WriteError::Rejected(Rejection::Conflict(_)))), "{refused:?}");
    }
    assert_eq!(statuses(&node).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_account_is_placed_in_the_open_shard_with_the_least_load() {
    let node = Node::start().await;
    add(&node, 2).await;
    // The first shard has an event more: that of the second one. Each account is an event, too.
    let mut shards = vec![];
    for _ in 0..4 {
        shards.push(placed(&node).await);
    }
    assert_eq!(shards, [2, 1, 2, 1]);
    assert_eq!(shard_load::least_loaded(node.ledger.pool(), &[1]).await.unwrap(), Some(1), "of those that the node knows");
    // Only the events of the last 24 hours count.
    let older = "UPDATE events SET recorded_at = recorded_at - interval '25 hours' WHERE shard_id = 1";
    tamper(&mut node.admin().await, older).await;
    let listed = node.operator("GET", "/shards", Value::Null).await.data(200);
    let counts =
        |place: usize| ["accounts", "events", "events_last_day"].map(|name| listed["shards"][place][name].as_i64().unwrap());
    assert_eq!((counts(0), counts(1)), ([2, 3, 0], [2, 2, 2]));
    assert_eq!(placed(&node).await, 1);

    let named = |shard: i64| json!({"name": "Acme", "shard_id": shard});
    let account = node.operator("POST", "/accounts", named(2)).await.data(201);
    assert_eq!(account["shard_id"], 2);
    let shown = node.operator("GET", &format!("/accounts/{}", account["id"]), Value::Null).await.data(200);
    assert_eq!(shown, account);
    drain(&node, 2, true).await;
    for _ in 0..5 {
        assert_eq!(placed(&node).await, 1);
    }
    node.operator("POST", "/accounts", named(2)).await.refused(409, "E_CONFLICT");
    let unknown = node.operator("POST", "/accounts", named(9)).await.refused(400, "E_VALIDATION_FAILURE");
    assert_eq!(unknown["messages"], json!({"shard_id": ["is not a shard of this ledger"]}));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_in_a_new_shard_orders_and_keeps_its_shard_while_that_drains() {
    let node = Node::start().await;
    let setup = node.setup().await;
    add(&node, 2).await;
    let account = node.operator("POST", "/accounts", json!({"name": "Second", "shard_id": 2})).await.data(201);
    let client = node.credential(account["id"].as_i64().unwrap()).await;
    node.wallet(client.account_id).await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    for _ in 0..2 {
        let placed = node.client(&client, "POST", "/orders", order.clone()).await.data(201);
        let shard: ShardId = sqlx::query_scalar("SELECT shard_id FROM orders WHERE id = $1")
            .bind(placed["id"].as_i64().unwrap())
            .fetch_one(node.ledger.pool())
            .await
            .unwrap();
        assert_eq!((&placed["status"], shard), (&json!("PENDING"), 2));
        drain(&node, 2, true).await;
    }
    let suspended = node.operator("PUT", &format!("/accounts/{}", client.account_id), json!({"status": "SUSPENDED"})).await;
    assert_eq!(suspended.data(200)["shard_id"], 2);
    let listed = node.operator("GET", "/accounts", Value::Null).await.data(200);
    let shards: Vec<&Value> = listed["accounts"].as_array().unwrap().iter().map(|account| &account["shard_id"]).collect();
    assert_eq!(shards, [2, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_was_made_by_hand_is_reported_until_it_is_added() {
    let node = Node::start().await;
    sqlx::raw_sql("INSERT INTO log_head (shard_id) VALUES (2)").execute(&mut node.admin().await).await.unwrap();
    until("the node works on the shard", async || node.ledger.shards().contains(&2)).await;
    let create = commands::CreateAccount { name: "Early".to_owned() };
    let CommandResult::Account(_) = node.ledger.execute(2, create, origin()).await.unwrap() else { panic!() };
    assert_eq!(statuses(&node).await, [(1, "open".to_owned()), (2, "unannounced".to_owned())]);
    let reported = ["shard 2: log_head has this shard, but no event of the first shard's log adds it"];
    assert_eq!(differences(&node.options).await, reported);
    assert_eq!(placed(&node).await, 1, "it gets no new accounts");
    node.operator("POST", "/accounts", json!({"name": "Acme", "shard_id": 2})).await.refused(400, "E_VALIDATION_FAILURE");
    node.operator("PUT", "/shards/2/drain", json!({"draining": true})).await.refused(404, "E_NOT_FOUND");

    let added = node.operator("POST", "/shards", json!({"shard_id": 2})).await.data(201);
    assert_eq!((&added["status"], &added["accounts"], &added["events"]), (&json!("open"), &json!(1), &json!(1)));
    assert_eq!(differences(&node.options).await, Vec::<String>::new());
    assert_eq!(placed(&node).await, 2);
}

/// Writes the log of a shard to a file.
async fn export(node: &Node, shard: ShardId, directory: &Path) -> PathBuf {
    let events = reader::stored_after(node.ledger.pool(), shard, 0, i64::MAX).await.unwrap();
    let path = directory.join(format!("{shard}.ndjson"));
    std::fs::write(&path, page(&events, false).unwrap()).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_of_the_first_shards_log_adds_the_others() {
    let node = Node::start().await;
    add(&node, 2).await;
    assert_eq!((placed(&node).await, placed(&node).await), (2, 1));
    drain(&node, 2, true).await;
    let directory = tempfile::tempdir().unwrap();
    let [first, second] = [export(&node, FIRST_SHARD, directory.path()).await, export(&node, 2, directory.path()).await];
    let target = database().await;
    let options: PgConnectOptions = target.url.parse().unwrap();
    let early = import(&options, &second, |_| {}).await.unwrap_err().to_string();
    assert!(early.starts_with("the database has no shard 2: import the log of the first shard before"), "{early}");
    for file in [&first, &second] {
        import(&options, file, |_| {}).await.unwrap();
    }
    assert_eq!(differences(&options).await, Vec::<String>::new());
    let mut imported = options.connect().await.unwrap();
    let draining: Vec<(ShardId, bool)> =
        sqlx::query_as("SELECT id, draining FROM shards").fetch_all(&mut imported).await.unwrap();
    assert_eq!(draining, [(2, true)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_are_managed_from_the_shell() {
    let database = postgres::database().await;
    let node = Program::start(&database.url, &[]).await;
    let shell = async |arguments: &[&str]| {
        let mut command = node.command();
        let output = run(command.args(arguments).env("LEDGER_URL", node.url())).await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let json_of = async |arguments: &[&str]| {
        let (is_done, out, err) = shell(&[arguments, &["--json"]].concat()).await;
        assert!(is_done, "{arguments:?}: {err}");
        serde_json::from_str::<Value>(&out).unwrap()
    };
    assert_eq!(json_of(&["shard", "add"]).await["id"], 2);
    assert_eq!(json_of(&["shard", "add", "5"]).await["id"], 5);
    let (is_done, _, refusal) = shell(&["shard", "add", "5"]).await;
    assert!(!is_done && refusal.contains("The shard was added before"), "{refusal}");
    assert_eq!(json_of(&["shard", "drain", "2"]).await["status"], "draining");
    let (_, table, _) = shell(&["shard", "list"]).await;
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines.len() == 4 && lines[0].starts_with("id") && lines[2].contains("draining"), "{table}");
    assert_eq!(json_of(&["shard", "drain", "2", "--undo"]).await["status"], "open");
    // A node that does not work on the shard yet says that the caller should try again.
    until("an account is created in the shard", async || {
        let (is_done, out, _) = shell(&["admin", "account", "create", "Acme", "--shard", "5", "--json"]).await;
        is_done && serde_json::from_str::<Value>(&out).unwrap()["shard_id"] == 5
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_logs_of_all_shards_are_exported_to_a_directory_and_imported_from_it() {
    let database = postgres::database().await;
    let node = Program::start(&database.url, &[]).await;
    let shell = async |arguments: &[&str], database_url: &str| {
        let mut command = node.command();
        let output = run(command.args(arguments).env("LEDGER_URL", node.url()).env("DATABASE_URL", database_url)).await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    for shard in ["2", "10"] {
        let (is_added, _, problem) = shell(&["shard", "add", shard], &database.url).await;
        assert!(is_added, "{problem}");
    }
    until("an account is created in the last shard", async || {
        shell(&["admin", "account", "create", "Acme", "--shard", "10"], &database.url).await.0
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let logs = directory.path().join("logs");
    let (is_exported, lines, problem) = shell(&["events", "export", "--out-dir", logs.to_str().unwrap()], &database.url).await;
    assert!(is_exported && lines.lines().count() == 2, "{lines}{problem}");
    let mut names: Vec<String> =
        std::fs::read_dir(&logs).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    let expected = ["shard-1.ndjson", "shard-1.ndjson.manifest.json", "shard-10.ndjson", "shard-10.ndjson.manifest.json"];
    assert_eq!(names, expected, "a shard without events has no file");

    let target = postgres::database().await;
    // The directory is imported also if an earlier run ended after the first log, or after all.
    for path in [logs.join("shard-1.ndjson"), logs.clone(), logs.clone()] {
        let (is_imported, _, problem) = shell(&["events", "import", path.to_str().unwrap()], &target.url).await;
        assert!(is_imported, "{problem}");
    }
    let options: PgConnectOptions = target.url.parse().unwrap();
    assert_eq!(differences(&options).await, Vec::<String>::new());
    let heads = "SELECT shard_id, position > 0 FROM log_head ORDER BY shard_id";
    let heads: Vec<(ShardId, bool)> = sqlx::query_as(heads).fetch_all(&mut options.connect().await.unwrap()).await.unwrap();
    assert_eq!(heads, [(1, true), (2, false), (10, true)]);
    let (is_imported, _, problem) = shell(&["events", "import", directory.path().to_str().unwrap()], &target.url).await;
    assert!(!is_imported && problem.contains("has no file such as shard-1.ndjson"), "{problem}");
}
