//! The drill of `deploy/backup.md`: a base backup and archived WAL, the loss of the server, and a restore to a moment. Then
//! what the signer, its verifiers and the clients see.

mod servers;

use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

use crate::support::program::{Client, Program, run};
use crate::support::tree::{ORIGIN, key};
use crate::support::wait::until;
use servers::Servers;

/// Runs a command of the program with the node's settings. Returns its exit status, and its output as JSON or text.
async fn told(node: &Program, arguments: &[&str]) -> (i32, Value) {
    let output = run(node.command().args(arguments)).await;
    let out = String::from_utf8(output.stdout).unwrap();
    let said = serde_json::from_str(&out).unwrap_or_else(|_| json!(out + &String::from_utf8_lossy(&output.stderr)));
    (output.status.code().unwrap(), said)
}

/// Runs a command, which must succeed.
async fn done(node: &Program, arguments: &[&str]) -> Value {
    let (status, said) = told(node, arguments).await;
    assert_eq!(status, 0, "{arguments:?}: {said}");
    said
}

/// Orders a voucher with this text as the idempotency key and the client's reference. Returns the response.
async fn order(node: &Program, client: &Client, product: i64, reference: &str) -> Value {
    let body = json!({"product_id": product, "denomination": 10, "quantity": 1, "client_reference": reference});
    let (status, order) = node.call(client, "POST", "/orders", Some(reference), &body).await.unwrap();
    assert_eq!(status, 201, "{order}");
    order
}

/// Returns the origin and the size of the checkpoint that the node serves, or an empty tree before there is one.
async fn checkpoint(node: &Program) -> (String, i64) {
    let note = reqwest::get(format!("{}/log/1/checkpoint", node.url())).await.unwrap().text().await.unwrap();
    let mut lines = note.lines().map(str::to_owned);
    let origin = lines.next().unwrap_or_default();
    (origin, lines.next().and_then(|size| size.parse().ok()).unwrap_or_default())
}

/// Waits until the node has signed the whole log. Returns its length.
async fn signed(node: &Program) -> i64 {
    let mut database = PgConnection::connect(&node.database_url).await.unwrap();
    let head: i64 = sqlx::query_scalar("SELECT position FROM log_head").fetch_one(&mut database).await.unwrap();
    until("the log is signed", async || checkpoint(node).await.1 == head).await;
    head
}

/// Returns the position and type of each event after a position.
async fn events_after(node: &Program, position: i64) -> Vec<Value> {
    let mut database = PgConnection::connect(&node.database_url).await.unwrap();
    let events = "SELECT position, type FROM events WHERE position > $1 ORDER BY position";
    let events: Vec<(i64, String)> = sqlx::query_as(events).bind(position).fetch_all(&mut database).await.unwrap();
    events.into_iter().map(|(position, name)| json!([position, name])).collect()
}

/// Compares the database with a copy of the log. Returns the position and type of each event that it lacks, and the client
/// references among them.
async fn lost(node: &Program, source: &str, path: &Path) -> (Vec<Value>, Vec<Value>) {
    let (status, report) = told(node, &["events", "lost", source, path.to_str().unwrap(), "--json"]).await;
    let events = report["events"].as_array().unwrap_or_else(|| panic!("{report}"));
    assert_eq!(status, i32::from(!events.is_empty()), "{report:#}");
    assert_eq!((&report["lost"], &report["unlisted"]), (&json!(events.len()), &Value::Null), "{report:#}");
    let references = events.iter().map(|event| &event["client_reference"]).filter(|reference| reference.is_string());
    let references = references.cloned().collect();
    (events.iter().map(|event| json!([event["position"], event["type"]])).collect(), references)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_is_restored_to_a_moment_and_everything_acknowledged_after_it_is_listed() {
    let (mut servers, kept) = (Servers::start().await, tempfile::tempdir().unwrap());
    let mut node = Program::start(&servers.url(), &["--roles", "api,projector", "--log-origin", ORIGIN]).await;
    let [export, tiles, mirror] = ["log.ndjson", "tiles", "mirror"].map(|name| kept.path().join(name));
    let [to_export, to_tiles, to_mirror] = [&export, &tiles, &mirror].map(|path| path.to_str().unwrap());
    let client = node.client("1000.00").await;
    let product = node.product(0).await;

    // The base backup lacks the second order, which comes from the archived WAL.
    order(&node, &client, product, "backed-up").await;
    servers.back_up().await;
    let archived = order(&node, &client, product, "archived").await;
    let moment = signed(&node).await;
    let segment = servers.name_moment().await;
    for reference in ["lost-1", "lost-2"] {
        order(&node, &client, product, reference).await;
    }
    node.client("50.00").await;
    let end = signed(&node).await;
    let after = events_after(&node, moment).await;
    assert_eq!(after.len(), usize::try_from(end - moment).unwrap());
    done(&node, &["events", "export", "--out", to_export, "--tiles", to_tiles]).await;
    done(&node, &["log", "--url", &node.url(), "mirror", to_mirror]).await;
    for (source, path) in [("--export", &export), ("--tiles", &tiles), ("--tiles", &mirror)] {
        assert_eq!(lost(&node, source, path).await, (vec![], vec![]));
    }
    servers.archived(&segment).await;

    servers.lose().await;
    node.signal(Signal::SIGKILL);
    node.ended().await;
    servers.restore().await;
    node.database_url = servers.url();
    // The copies name all that is lost before a node starts. The database alone shows no sign of it.
    done(&node, &["verify"]).await;
    assert_eq!(events_after(&node, moment).await, Vec::<Value>::new());
    let references = vec![json!("lost-1"), json!("lost-2")];
    assert_eq!(lost(&node, "--export", &export).await, (after.clone(), references.clone()));
    assert_eq!(lost(&node, "--tiles", &tiles).await, (after.clone(), references.clone()));
    // A mirror without entries knows the positions alone.
    let positions: Vec<Value> = (moment + 1..=end).map(|position| json!([position, null])).collect();
    assert_eq!(lost(&node, "--tiles", &mirror).await, (positions, vec![]));
    let verifier = key().to_string();
    done(&node, &["verify", "--export", to_export, "--key", &verifier]).await;

    // The node has the keys and the signer's state of before.
    node.restart().await;
    until("the signer refuses", async || node.log().contains("refused to sign the transparency log")).await;
    let (status, report) = told(&node, &["verify"]).await;
    let missing = format!("positions {} to {end} are missing", moment + 1);
    assert!(status == 1 && report.as_str().unwrap().contains(&missing), "{report}");
    assert_eq!(checkpoint(&node).await, (format!("{ORIGIN}/1"), moment));

    // Orders continue. A repeated request places a lost order anew, and only once.
    assert_eq!(order(&node, &client, product, "archived").await, archived);
    let anew = order(&node, &client, product, "lost-1").await;
    for _ in 0..2 {
        assert_eq!(order(&node, &client, product, "lost-1").await, anew);
    }
    let mut database = PgConnection::connect(&servers.url()).await.unwrap();
    let placed = "SELECT client_reference FROM orders ORDER BY id";
    let placed: Vec<String> = sqlx::query_scalar(placed).fetch_all(&mut database).await.unwrap();
    assert_eq!(placed, ["backed-up", "archived", "lost-1"]);
    let balance: String = sqlx::query_scalar("SELECT balance::text FROM wallets").fetch_one(&mut database).await.unwrap();
    assert_eq!(balance, "970.00");
    assert_eq!(lost(&node, "--export", &export).await.0, after, "another event at the same position does not replace a lost one");

    // An incident ends the refusal. The log continues under another origin, and an old mirror does not follow it.
    let incident = ["log", "incident", "--reason", "restored to an earlier moment", "--json"];
    let recorded = done(&node, &incident).await;
    assert_eq!((&recorded["kept"]["size"], &recorded["signed"]["size"]), (&json!(moment), &json!(end)));
    until("the log is signed again", async || recorded["next_origin"] == checkpoint(&node).await.0).await;
    order(&node, &client, product, "new").await;
    signed(&node).await;
    done(&node, &["verify"]).await;
    let (status, said) = told(&node, &["log", "--url", &node.url(), "mirror", to_mirror]).await;
    assert!(status == 1 && said.as_str().unwrap().contains("it is an older copy"), "{said}");
    let next = kept.path().join("next");
    done(&node, &["log", "--url", &node.url(), "mirror", next.to_str().unwrap()]).await;
    assert_eq!(lost(&node, "--tiles", &next).await.0, Vec::<Value>::new());
    assert_eq!(lost(&node, "--export", &export).await, (after, references));
}
