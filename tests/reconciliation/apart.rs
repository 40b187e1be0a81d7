//! Several statements, of nearby and of distant days.

use bank_statements::matching::Tolerance;
use chrono::{TimeDelta, Utc};
use ledger_events::StatementId;
use ledger_projections::statements as imported;
use rewards_ledger::reconciliation::statements::{Limits, Matching, StatementError, run};
use serde_json::{Value, json};

use super::statements::{Bank, STATEMENTS, statuses};
use crate::support::ledger::keyring;
use crate::support::shop::SHARD;

const HEAD: &str = "date,amount,currency,reference\n";

fn in_days(days: i64) -> String {
    (Utc::now().date_naive() + TimeDelta::days(days)).to_string()
}

impl Bank {
    async fn csv_of(&self, lines: &str) -> Value {
        self.import("text/csv", "", format!("{HEAD}{lines}")).await.data(201)["id"].clone()
    }
}

#[tokio::test]
async fn a_funding_on_a_distant_statement_is_neither_missing_nor_matched_again() {
    let bank = Bank::open().await;
    let near = bank.csv_of(&format!("{},300.00,EUR,twin A\n", bank.today)).await;
    let before = bank.show(&near, "").await;
    assert_eq!(statuses(&before), ["MATCHED"]);
    let twin = &before["lines"][0]["entries"][0]["transaction_id"];
    let far = bank.csv_of(&format!("{},300.00,EUR,booked late\n", in_days(90))).await;
    bank.decide(&far, 1, json!({"decision": "FUNDING", "transaction_id": twin, "reason": "it was late"})).await.data(200);

    let after = bank.show(&near, "").await;
    assert_eq!(statuses(&after), ["AMBIGUOUS"], "{after:#}");
    let fits: Vec<&Value> =
        after["lines"][0]["entries"].as_array().unwrap().iter().map(|entry| &entry["references"][0]).collect();
    assert_eq!(fits, ["twin B"], "the other funding of that amount");
    let missing = after["missing"].as_array().unwrap();
    assert!(missing.len() == 4 - 1 + 1 && missing.iter().all(|missing| missing["transaction_id"] != *twin), "{after:#}");

    let revoke = format!("{STATEMENTS}/{far}/lines/1/revoke");
    bank.node.operator("POST", &revoke, json!({"reason": "a mistake"})).await.data(200);
    assert_eq!(bank.show(&near, "").await["lines"], before["lines"]);
}

#[tokio::test]
async fn two_statements_cannot_have_the_same_funding() {
    let bank = Bank::open().await;
    let near = bank.csv_of(&format!("{},300.00,EUR,one\n", bank.today)).await;
    let far = bank.csv_of(&format!("{},300.00,EUR,other\n", in_days(90))).await;
    let twin = bank.show(&near, "").await["lines"][0]["entries"][0]["transaction_id"].clone();
    let accept = json!({"decision": "FUNDING", "transaction_id": twin, "reason": "r"});
    // Both at once, so that one batch may decide both.
    let (one, other) = tokio::join!(bank.decide(&near, 1, accept.clone()), bank.decide(&far, 1, accept.clone()));
    let ((winner, won), (loser, lost)) =
        if one.status == 200 { ((&near, one), (&far, other)) } else { ((&far, other), (&near, one)) };
    won.data(200);
    let refused = lost.refused(409, "E_CONFLICT");
    assert_eq!(refused["message"], "A line of another statement was decided to be this one.");
    bank.decide(loser, 1, accept.clone()).await.refused(409, "E_CONFLICT");
    bank.decide(winner, 1, accept.clone()).await.data(200);
    let payout = json!({"decision": "PAYOUT", "payout_id": bank.payout_id, "reason": "r"});
    bank.decide(loser, 1, payout.clone()).await.data(200);
    // Any number of lines may match nothing in the ledger.
    for statement in [winner, loser] {
        let revoke = format!("{STATEMENTS}/{statement}/lines/1/revoke");
        bank.node.operator("POST", &revoke, json!({"reason": "r"})).await.data(200);
        bank.decide(statement, 1, json!({"decision": "IGNORED", "reason": "r"})).await.data(200);
    }
    let revoke = format!("{STATEMENTS}/{loser}/lines/1/revoke");
    bank.node.operator("POST", &revoke, json!({"reason": "r"})).await.data(200);
    bank.decide(loser, 1, accept).await.data(200);
}

#[tokio::test]
async fn a_reversal_names_the_statement_of_the_reversed_line() {
    let bank = Bank::open().await;
    let document = |direction: &str, more: &str| {
        let today = &bank.today;
        format!(
            r#"<Document xmlns="urn:iso:std:iso:20022:tech:xsd:camt.053.001.08"><BkToCstmrStmt><Stmt><Ntry><Amt Ccy="EUR">300.00</Amt>
            <CdtDbtInd>{direction}</CdtDbtInd>{more}<Sts>BOOK</Sts><BookgDt><Dt>{today}</Dt></BookgDt><NtryDtls><TxDtls><Refs>
            <EndToEndId>twin A</EndToEndId></Refs></TxDtls></NtryDtls></Ntry></Stmt></BkToCstmrStmt></Document>"#
        )
    };
    let booked = bank.import("application/xml", "", document("CRDT", "")).await.data(201)["id"].clone();
    assert_eq!(bank.show(&booked, "").await["lines"][0]["reversed_statement_id"], Value::Null);
    let reversal = bank.import("application/xml", "", document("DBIT", "<RvslInd>true</RvslInd>")).await.data(201)["id"].clone();
    for (statement, other) in [(&booked, &reversal), (&reversal, &booked)] {
        let line = &bank.show(statement, "").await["lines"][0];
        assert_eq!((&line["status"], &line["reversed_line"]), (&json!("REVERSED"), &json!(1)));
        assert_eq!(&line["reversed_statement_id"], other);
    }
}

/// Only lines of nearby days are kept in memory, and never more than a limit.
#[tokio::test]
async fn lines_of_distant_days_are_left_out_and_too_many_are_refused() {
    let bank = Bank::open().await;
    let lines =
        |day: &str, from: i64, count: i64| (from..from + count).map(|n| format!("{day},1.00,EUR,line {n}\n")).collect::<String>();
    let own = bank.csv_of(&lines(&bank.today, 0, 2)).await;
    // The range of ten days is twice the tolerance of five.
    bank.csv_of(&[lines(&bank.today, 2, 3), lines(&in_days(10), 5, 3), lines(&in_days(11), 8, 50)].concat()).await;
    let pool = bank.node.ledger.pool();
    let statement = imported::find(pool, SHARD, StatementId(own.as_i64().unwrap())).await.unwrap().unwrap();
    let with = async |days: i64, lines: usize| -> Result<Matching, StatementError> {
        let (tolerance, limits) = (Tolerance { days, ..Tolerance::default() }, Limits { lines, ..Limits::default() });
        run(pool, &keyring(), &[SHARD], &statement, tolerance, limits).await
    };
    assert_eq!(with(5, 2 + 3 + 3).await.unwrap().lines.len(), 2);
    assert!(matches!(with(5, 2 + 3 + 2).await, Err(StatementError::TooManyLines(7))));
    assert_eq!(with(0, 2 + 3).await.unwrap().lines.len(), 2, "fewer days give fewer lines");
}
