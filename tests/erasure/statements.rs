//! Lines of banks' statements, and what people wrote about them.

use chrono::Utc;
use serde_json::{Value, json};

use super::traces::{Traces, admin};
use super::{MARKER, erase, refused, shell, sound};
use crate::support::node::{Node, Setup};

const STATEMENTS: &str = "/reconciliation/statements";

/// A statement of three lines; the second was decided about, and decided anew.
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

fn numbers(shown: &Value) -> Vec<i64> {
    shown["lines"].as_array().unwrap().iter().map(|line| line["line"].as_i64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_is_erased_with_its_reasons_and_what_was_decided_stays() {
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
    // Statistics of the table would hold samples.
    sqlx::raw_sql("ANALYZE").execute(&mut admin(&node).await).await.unwrap();
    let head = node.head().await;
    let told = erase(&node, "statement", id, &["--line", "2"]).await;
    assert_eq!((&told["texts"], &told["positions"]), (&json!(4), &json!([head + 1])));
    assert_eq!(told["rewritten"], json!(["vault.statement_lines", "vault.texts"]));
    traces.are_gone(&node).await;

    // The funding is still the line's that nobody reads any more; the other line has none.
    let after = shown(&node, id).await;
    assert_eq!((numbers(&after), &after["missing"]), (vec![1, 3], &json!([])), "{after:#}");
    assert_eq!((&after["lines"][0]["status"], &after["lines"][1]["status"]), (&json!("UNMATCHED"), &json!("IGNORED")));
    // The same file again brings nothing back.
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
