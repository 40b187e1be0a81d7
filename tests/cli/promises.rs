//! Settings with which a node refuses to start: an end of v1 before the date promised to clients, and a weak operator
//! token.

use ledger_database::PgConnectOptions;
use serde_json::{Value, json};

use super::{err, run};
use crate::support::postgres;
use crate::support::program::Program;

/// Returns the message with which `serve` refuses to start.
async fn refusal(served: &Program, token: Option<&str>, arguments: &[&str]) -> String {
    let mut command = served.command();
    command.args(["serve", "--listen", "127.0.0.1:0", "--log-format", "text"]).args(arguments);
    if let Some(token) = token {
        command.env("LEDGER_OPERATOR_TOKEN", token);
    }
    let ended = run(&mut command).await;
    assert!(!ended.status.success());
    err(&ended)
}

const EARLY: [&str; 4] = ["--deprecation-date", "2026-12-01", "--sunset-date", "2027-03-01"];

async fn declared(database_url: &str) -> Vec<(i64, String, Value, Value)> {
    let options: PgConnectOptions = database_url.parse().unwrap();
    sqlx::query_as(
        "SELECT version, type, data::jsonb, metadata::jsonb->'actor' FROM events WHERE stream_type = 'api_version' ORDER BY position",
    )
    .fetch_all(&mut options.connect().await.unwrap())
    .await
    .unwrap()
}

#[tokio::test]
async fn an_early_sunset_needs_a_reason_which_is_recorded_once() {
    let database = postgres::database().await;
    let with = |reason: &'static str| [&EARLY[..], &["--emergency-sunset", reason]].concat();
    let mut first = Program::start(&database.url, &with("The signing keys leaked.")).await;
    let refused = refusal(&first, None, &EARLY).await;
    let promised = "--sunset-date is 2027-03-01, but clients were promised /api/v1 until 2028-07-01: only --emergency-sunset \
                    REASON allows that";
    assert!(refused.contains(promised), "{refused}");

    let event = |version: i64, reason: &str| {
        let data = json!({"deprecation_date": "2026-12-01", "sunset_date": "2027-03-01", "reason": reason});
        (version, "EmergencySunsetDeclared".to_owned(), data, json!({"operator": 0}))
    };
    assert_eq!(declared(&database.url).await, [event(1, "The signing keys leaked.")]);
    // A restart, or another node, does not record it again.
    first.restart().await;
    let second = Program::start(&database.url, &with("The signing keys leaked.")).await;
    assert_eq!(declared(&database.url).await.len(), 1);
    let answer = reqwest::get(format!("{}/api/v1/orders", second.url())).await.unwrap();
    assert_eq!(answer.headers()["sunset"], "Mon, 01 Mar 2027 00:00:00 GMT");
    let _third = Program::start(&database.url, &with("They leaked again.")).await;
    assert_eq!(declared(&database.url).await, [event(1, "The signing keys leaked."), event(2, "They leaked again.")]);

    let report = rewards_ledger::audit::verify(&database.url.parse().unwrap(), |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:?}", report.differences);
}

#[tokio::test]
async fn a_sunset_that_keeps_the_promise_is_no_event() {
    let database = postgres::database().await;
    let kept = ["--deprecation-date", "2027-07-01", "--sunset-date", "2028-07-01"];
    let _served = Program::start(&database.url, &kept).await;
    assert_eq!(declared(&database.url).await, []);
}

#[tokio::test]
async fn a_node_refuses_an_operator_token_that_is_easy_to_guess() {
    let database = postgres::database().await;
    let served = Program::start(&database.url, &[]).await;
    for token in ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "0123456789abcdef0123456789abcdef", "changeme-changeme-changeme"] {
        let refused = refusal(&served, Some(token), &[]).await;
        assert!(refused.contains("the operator token (LEDGER_OPERATOR_TOKEN or its file) is too easy to guess"), "{refused}");
        assert!(!refused.contains(token), "{refused}");
    }
}
