//! Statements of several bank accounts: lines that are duplicates, and lines that only look like it.

use rewards_ledger::reconciliation::statements::{Source, read};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::statements::{Bank, statuses};
use crate::support::ledger::keyring;
use crate::support::shop::SHARD;

const ONE: &str = "<Acct><Id><IBAN>DE89 3704 0044 0532 0130 00</IBAN></Id></Acct>";
const OTHER: &str = "<Acct><Id><Othr><Id>0532013001</Id></Othr></Id></Acct>";

impl Bank {
    /// Builds a booking that states only its day and amount.
    fn entry(&self, amount: &str) -> String {
        let today = &self.today;
        format!(
            r#"<Ntry><Amt Ccy="EUR">{amount}</Amt><CdtDbtInd>CRDT</CdtDbtInd><Sts>BOOK</Sts><BookgDt><Dt>{today}</Dt></BookgDt></Ntry>"#
        )
    }

    async fn camt(&self, statements: &str) -> Value {
        self.import("application/xml", "", document(statements)).await.data(201)["id"].clone()
    }
}

fn document(statements: &str) -> String {
    format!("<Document><BkToCstmrStmt>{statements}</BkToCstmrStmt></Document>")
}

fn statement(account: &str, entries: &str) -> String {
    format!("<Stmt><Id>S</Id>{account}{entries}</Stmt>")
}

#[tokio::test]
async fn the_same_line_of_two_accounts_is_two_lines_and_of_one_account_a_duplicate() {
    let bank = Bank::open().await;
    let (seven, eight) = (bank.entry("7.00"), bank.entry("8.00"));
    let one = bank.camt(&statement(ONE, &seven)).await;
    let other = bank.camt(&statement(OTHER, &seven)).await;
    let (further, again) = (statement(ONE, &(seven.clone() + &eight)), statement(OTHER, &(seven.clone() + &seven)));
    let overlapping = bank.camt(&(further + &again)).await;
    for (id, expected) in [
        (one, vec!["UNMATCHED"]),
        (other, vec!["UNMATCHED"]),
        (overlapping, vec!["DUPLICATE", "UNMATCHED", "DUPLICATE", "UNMATCHED"]),
    ] {
        let matched = bank.show(&id, "").await;
        assert_eq!(statuses(&matched), expected, "{matched:#}");
    }
    // A statement without an account does not inherit the account of the statement before it. It may belong to any
    // account.
    let unnamed = bank.camt(&(statement(ONE, &eight) + &statement("", &bank.entry("9.00")))).await;
    assert_eq!(statuses(&bank.show(&unnamed, "").await), ["DUPLICATE", "UNMATCHED"]);
    let nine = bank.camt(&statement(OTHER, &bank.entry("9.00"))).await;
    assert_eq!(statuses(&bank.show(&nine, "").await), ["DUPLICATE"]);
}

#[tokio::test]
async fn a_line_of_an_unknown_account_belongs_to_only_one_account() {
    let bank = Bank::open().await;
    let text = format!("date,amount,currency,reference,iban\n{},7.00,EUR,,de01\n", bank.today);
    let import = async |query: &str| bank.import("text/csv", query, text.clone()).await;
    let mut ids = vec![];
    for query in ["", "account=DE%2001", "account=DE02"] {
        ids.push(import(query).await.data(201)["id"].clone());
        assert_eq!(import(query).await.data(200)["id"], ids[ids.len() - 1], "{query}");
    }
    let mut found = vec![];
    for id in &ids {
        found.extend(statuses(&bank.show(id, "").await));
    }
    assert_eq!(found, ["UNMATCHED", "DUPLICATE", "UNMATCHED"]);
    assert_eq!(
        import("account_column=iban").await.data(200)["id"],
        ids[1],
        "the account is the same from a parameter or a column"
    );
    import("account_column=missing").await.refused(400, "E_VALIDATION_FAILURE");
    let long = import(&format!("account={}", "1".repeat(101))).await.refused(400, "E_VALIDATION_FAILURE");
    assert_eq!(long["messages"], json!({"account": ["must be 1 to 100 characters long"]}));
}

#[tokio::test]
async fn each_line_duplicates_at_most_one_earlier_line() {
    let bank = Bank::open().await;
    let (seven, eight) = (bank.entry("7.00"), bank.entry("8.00"));
    // First two bookings of unknown accounts, then both with their accounts.
    let unnamed = bank.camt(&statement("", &(seven.clone() + &seven))).await;
    let named = bank.camt(&(statement(ONE, &seven) + &statement(OTHER, &seven))).await;
    assert_eq!(statuses(&bank.show(&unnamed, "").await), ["UNMATCHED", "UNMATCHED"]);
    assert_eq!(statuses(&bank.show(&named, "").await), ["DUPLICATE", "DUPLICATE"]);
    // First one booking with its account, then two. The one without an account is a different booking.
    bank.camt(&statement(ONE, &eight)).await;
    let two = bank.camt(&(statement("", &eight) + &statement(ONE, &eight))).await;
    assert_eq!(statuses(&bank.show(&two, "").await), ["UNMATCHED", "DUPLICATE"]);
    // In the opposite order, a known booking stays known when it is repeated without an account.
    let again = bank.camt(&statement("", &(eight.clone() + &eight + &eight))).await;
    assert_eq!(statuses(&bank.show(&again, "").await), ["DUPLICATE", "DUPLICATE", "UNMATCHED"]);
}

/// A document that was imported by a release that did not read accounts keeps its fingerprint.
#[tokio::test]
async fn a_documents_fingerprint_does_not_depend_on_its_account() {
    let bank = Bank::open().await;
    let text = statement(ONE, &bank.entry("7.00"));
    let id = bank.camt(&text).await;
    let text = document(&text);
    let mut content = Sha256::new_with_prefix(&text);
    for line in read(text.as_bytes(), &Source::Camt053).unwrap() {
        let mut line = serde_json::to_value(line).unwrap();
        assert_eq!(line.as_object_mut().unwrap().remove("account"), Some(json!("DE89370400440532013000")));
        let Value::Object(line) = line else { panic!("{line}") };
        let fields = ["number", "booked_on", "amount", "currency", "direction", "is_reversal", "references", "text"];
        assert_eq!(line.len(), fields.len());
        let fields = fields.map(|field| format!("\"{field}\":{}", line[field]));
        content.update(format!("{{{}}}", fields.join(",")));
    }
    let expected = hex::encode(keyring().fingerprint("statement", hex::encode(content.finalize())));
    let stored: String = sqlx::query_scalar("SELECT fingerprint FROM bank_statements WHERE shard_id = $1 AND id = $2")
        .bind(SHARD)
        .bind(id.as_i64().unwrap())
        .fetch_one(bank.node.ledger.pool())
        .await
        .unwrap();
    assert_eq!(stored, expected);
}
