//! Lines of bank statements, and the reasons that people wrote about them.

use bank_statements::lines::Columns;
use chrono::Utc;
use ledger_events::Rejection;
use ledger_events::reconciliation::StatementFormat;
use rewards_ledger::access::Role;
use rewards_ledger::ledger::commands::ImportStatement;
use rewards_ledger::ledger::{Command, WriteError, reader};
use rewards_ledger::reconciliation::statements::{self, Source};
use serde_json::{Value, json};

use super::traces::{Traces, admin};
use super::{MARKER, erase, refused, shell, sound};
use crate::support::ledger::{SHARD, execute, keyring, origin};
use crate::support::node::{Node, Setup};

const STATEMENTS: &str = "/reconciliation/statements";

/// Imports a statement of three lines. The second one has a decision, which was later replaced.
async fn imported(node: &Node, setup: &Setup) -> (i64, String) {
    let today = Utc::now().date_naive();
    let csv = format!(
        "date,amount,currency,reference,text\n\
         {today},1000.00,EUR,opening of {wallet},\n\
         {today},1000.00,EUR,X1,{MARKER} of Main Street\n\
         {today},-2.50,EUR,BANK FEE,the third line\n",
        wallet = setup.wallet_id
    );
    let id = import(node, &csv).await["id"].as_i64().unwrap();
    let line = format!("{STATEMENTS}/{id}/lines/2");
    let decide = json!({"decision": "IGNORED", "reason": format!("{MARKER} called")});
    node.operator("POST", &format!("{line}/decide"), decide).await.data(200);
    node.operator("POST", &format!("{line}/revoke"), json!({"reason": format!("{MARKER} called again")})).await.data(200);
    let funding: i64 = sqlx::query_scalar("SELECT id FROM wallet_transactions WHERE wallet_id = $1")
        .bind(setup.wallet_id)
        .fetch_one(node.ledger.pool())
        .await
        .unwrap();
    let decide = json!({"decision": "FUNDING", "transaction_id": funding, "reason": format!("{MARKER} says so")});
    node.operator("POST", &format!("{line}/decide"), decide).await.data(200);
    let decide = json!({"decision": "IGNORED", "reason": "a fee"});
    node.operator("POST", &format!("{STATEMENTS}/{id}/lines/3/decide"), decide).await.data(200);
    (id, csv)
}

async fn import(node: &Node, csv: &str) -> Value {
    let answer = node.send(node.by_operator("POST", STATEMENTS).header("Content-Type", "text/csv").body(csv.to_owned())).await;
    answer.data(answer.status)
}

async fn shown(node: &Node, id: i64) -> Value {
    node.operator("GET", &format!("{STATEMENTS}/{id}"), Value::Null).await.data(200)
}

/// Returns the reasons that the audit tells of a statement, the newest first.
async fn reasons(node: &Node, id: i64) -> Value {
    let audit = node.operator("GET", &format!("/audit?subject=reconciliation/{id}"), Value::Null).await.data(200);
    audit["entries"].as_array().unwrap().iter().map(|entry| entry["reason"].clone()).collect()
}

fn numbers(shown: &Value) -> Vec<i64> {
    shown["lines"].as_array().unwrap().iter().map(|line| line["line"].as_i64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_is_erased_with_its_reasons_and_the_decisions_stay() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let (id, csv) = imported(&node, &setup).await;
    let traces = Traces::of(
        &node,
        "SELECT 'line', sealed FROM vault.statement_lines WHERE line = 2
         UNION ALL SELECT 'line print', line_fingerprint FROM vault.statement_lines WHERE line = 2
         UNION ALL SELECT kind || t.id || ' salt', salt FROM vault.texts t WHERE kind LIKE 'match.%' AND id < 3
         UNION ALL SELECT kind || t.id, sealed FROM vault.texts t WHERE kind LIKE 'match.%' AND id < 3",
    )
    .await;
    assert_eq!(traces.0.len(), 2 + 2 * 3, "{:?}", traces.0.keys());
    traces.are_there(&node).await;
    // Otherwise the table statistics could still hold samples.
    sqlx::raw_sql("ANALYZE").execute(&mut admin(&node).await).await.unwrap();
    let [latest, revoked, first] = ["says so", "called again", "called"].map(|end| format!("{MARKER} {end}"));
    assert_eq!(reasons(&node, id).await, json!(["a fee", latest, revoked, first, null]));
    let head = node.head().await;
    let told = erase(&node, "statement", id, &["--line", "2"]).await;
    assert_eq!((&told["texts"], &told["positions"]), (&json!(4), &json!([head + 1])));
    assert_eq!(told["rewritten"], json!(["vault.statement_lines", "vault.texts"]));
    traces.are_gone(&node).await;
    assert_eq!(reasons(&node, id).await, json!(["they asked for it", "a fee", null, null, null, null]));

    // The funding remains matched to the erased line. The other lines keep their status.
    let after = shown(&node, id).await;
    assert_eq!((numbers(&after), &after["missing"]), (vec![1, 3], &json!([])), "{after:#}");
    assert_eq!((&after["lines"][0]["status"], &after["lines"][1]["status"]), (&json!("UNMATCHED"), &json!("IGNORED")));
    // Importing the same file again restores nothing.
    assert_eq!(import(&node, &csv).await["id"], id);
    assert_eq!(shown(&node, id).await, after);
    sound(&node).await;

    let again = erase(&node, "statement", id, &["--line", "2"]).await;
    assert_eq!((&again["texts"], &again["positions"]), (&json!(0), &json!([])));
    let all = erase(&node, "statement", id, &[]).await;
    assert_eq!(all["texts"], 2 + 1);
    assert_eq!(numbers(&shown(&node, id).await), Vec::<i64>::new());
    let left: i64 = sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM vault.statement_lines) + count(*) FROM vault.texts WHERE kind LIKE 'match.%'",
    )
    .fetch_one(node.ledger.pool())
    .await
    .unwrap();
    assert_eq!(left, 0);
    sound(&node).await;
    refused(&node, "statement", 999_999).await;
    let (status, told, problem) =
        shell(&node, &["erase", "statement", &id.to_string(), "--reason", "r", "--dry-run", "--json"]).await;
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((status, &told["texts"]), (Some(0), &json!(0)), "{problem}");
}

/// The event records which line was erased, by whom, and whether the statement now has no lines left.
#[tokio::test(flavor = "multi_thread")]
async fn the_event_of_an_erased_line_names_it_and_says_whether_any_is_left() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let (id, _) = imported(&node, &setup).await;
    node.token(Role::Finance).await;
    let by: i64 = sqlx::query_scalar("SELECT id FROM vault.operators WHERE name = 'finance'")
        .fetch_one(&mut admin(&node).await)
        .await
        .unwrap();
    let said = async |told: &Value| {
        let position = told["positions"][0].as_i64().unwrap();
        let event = reader::stored_at(node.ledger.pool(), SHARD, &[position]).await.unwrap().remove(0);
        assert_eq!((&*event.event_type, &*event.stream_type, event.stream_id), ("PersonalDataErased", "reconciliation", id));
        let data: Value = serde_json::from_str(&event.data).unwrap();
        (data["line"].clone(), data["is_complete"].clone(), event.decode().unwrap().metadata.actor.kind())
    };
    for (line, is_complete) in [(1, false), (3, false), (2, true)] {
        let told = erase(&node, "statement", id, &["--line", &line.to_string(), "--by", "finance"]).await;
        assert_eq!(said(&told).await, (json!(line), json!(is_complete), ("operator", Some(by))));
    }
    sound(&node).await;
    let another = format!("date,amount,currency,reference\n{},1.00,EUR,another\n", Utc::now().date_naive());
    let id = import(&node, &another).await["id"].as_i64().unwrap();
    let (status, _, problem) =
        shell(&node, &["erase", "statement", &id.to_string(), "--reason", "r", "--yes", "--by", "nobody"]).await;
    assert!(status == Some(1) && problem.contains("no operator nobody has a token"), "{problem}");
    assert_eq!(numbers(&shown(&node, id).await), [1]);
    let told = erase(&node, "statement", id, &[]).await;
    let event = reader::stored_at(node.ledger.pool(), SHARD, &[told["positions"][0].as_i64().unwrap()]).await.unwrap().remove(0);
    let data: Value = serde_json::from_str(&event.data).unwrap();
    assert_eq!((data.get("line"), &data["is_complete"]), (None, &json!(true)));
}

/// `erase finish` deletes lines that were stored for an import whose event was never written. An import still in
/// progress is then refused.
#[tokio::test(flavor = "multi_thread")]
async fn lines_that_no_event_imported_are_deleted_by_finish() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let (id, _) = imported(&node, &setup).await;
    let csv = format!("date,amount,currency,reference\n{},7.00,EUR,cut off\n", Utc::now().date_naive());
    let lines = statements::read(csv.as_bytes(), &Source::Csv(&Columns::default())).unwrap();
    let (pool, keyring) = (node.ledger.pool(), keyring());
    let stored = statements::store(pool, &keyring, csv.as_bytes(), StatementFormat::Csv, &lines, |_| {}).await.unwrap();
    let traces = Traces::of(
        &node,
        "SELECT 'line', sealed FROM vault.statement_lines WHERE fingerprint NOT IN (SELECT fingerprint FROM bank_statements)",
    )
    .await;
    traces.are_there(&node).await;
    // A derived table must not decide which lines are deleted.
    sqlx::raw_sql("CREATE TABLE kept AS TABLE bank_statements; DELETE FROM bank_statements")
        .execute(&mut admin(&node).await)
        .await
        .unwrap();
    let finish = async || {
        let (status, told, problem) = shell(&node, &["erase", "finish", "--json"]).await;
        assert_eq!(status, Some(0), "{problem}");
        serde_json::from_str::<Value>(&told).unwrap()
    };
    let told = finish().await;
    assert_eq!((&told["lines_never_imported"], &told["rewritten"]), (&json!(1), &json!(["vault.statement_lines"])));
    traces.are_gone(&node).await;
    sqlx::raw_sql("INSERT INTO bank_statements TABLE kept; DROP TABLE kept").execute(&mut admin(&node).await).await.unwrap();
    assert_eq!(numbers(&shown(&node, id).await), [1, 2, 3]);
    assert_eq!(finish().await["lines_never_imported"], 0);

    let head = node.head().await;
    let refused = execute(&node.ledger, Command::ImportStatement(ImportStatement(stored)), origin()).await;
    assert!(matches!(refused, Err(WriteError::Rejected(Rejection::Conflict(_)))), "{refused:?}");
    assert_eq!(node.head().await, head);
    let again = import(&node, &csv).await["id"].as_i64().unwrap();
    assert_eq!(numbers(&shown(&node, again).await), [1]);
}
