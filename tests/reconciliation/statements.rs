//! Bank statements: imported once, matched, decided by people, and respected in later imports.

use chrono::Utc;
use rewards_ledger::access::Role;
use serde_json::{Value, json};

use crate::support::node::{Node, Setup, TestResponse};

/// A node with fundings of 1000.00 (from its set-up), 200.00 and 300.00 (twice), and two payouts, one of them paid.
pub struct Bank {
    pub node: Node,
    setup: Setup,
    pub today: String,
    pub payout_id: i64,
}

pub const STATEMENTS: &str = "/reconciliation/statements";

impl Bank {
    pub async fn open() -> Bank {
        let node = Node::start().await;
        let setup = node.setup().await;
        for (amount, reference) in [("200.00", "INV-2026-0007"), ("300.00", "twin A"), ("300.00", "twin B")] {
            let funding = json!({"amount": amount, "reference": reference});
            node.operator("POST", &format!("/wallets/{}/fund", setup.wallet_id), funding).await.data(201);
        }
        let ada = json!({"name": "Ada", "type": "BANK", "country": "DE", "currency": "EUR", "account_number": "DE89370400440532013000"});
        let ada = node.client(&setup.client, "POST", "/beneficiaries", ada).await.data(201);
        let mut payouts = vec![];
        for amount in ["30.00", "40.00"] {
            let payout = json!({"beneficiary_id": ada["id"], "wallet_id": setup.wallet_id, "amount": amount});
            let made = node.client(&setup.client, "POST", "/payouts", payout).await.data(201);
            payouts.push(made["id"].as_i64().unwrap());
        }
        let paid = json!({"status": "PAID"});
        node.operator("PUT", &format!("/payouts/{}", payouts[0]), paid).await.data(200);
        Bank { node, setup, today: Utc::now().date_naive().to_string(), payout_id: payouts[0] }
    }

    pub async fn import(&self, content_type: &str, query: &str, body: impl Into<String>) -> TestResponse {
        let request = self.node.by_operator("POST", &format!("{STATEMENTS}?{query}")).header("Content-Type", content_type);
        self.node.send(request.body(body.into())).await
    }

    pub async fn show(&self, id: &Value, query: &str) -> Value {
        self.node.operator("GET", &format!("{STATEMENTS}/{id}?{query}"), Value::Null).await.data(200)
    }

    pub async fn decide(&self, id: &Value, line: i64, body: Value) -> TestResponse {
        self.node.operator("POST", &format!("{STATEMENTS}/{id}/lines/{line}/decide"), body).await
    }

    pub fn csv(&self) -> String {
        let today = &self.today;
        format!(
            "date,amount,currency,reference,text\n\
             {today},1000.00,EUR,opening of {wallet},\n\
             {today},200.00,EUR,X1,our payment of INV-2026-0007 Müller\n\
             {today},300.00,EUR,none of these,\n\
             {today},5.00,EUR,fee?,\n\
             {today},-30.00,EUR,PAY-{payout:010},\n\
             {today},-2.50,EUR,BANK FEE,\n",
            wallet = self.setup.wallet_id,
            payout = self.payout_id,
        )
    }
}

pub fn statuses(matched: &Value) -> Vec<String> {
    matched["lines"].as_array().unwrap().iter().map(|line| line["status"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_csv_is_imported_once_and_its_lines_are_matched() {
    let bank = Bank::open().await;
    let imported = bank.import("text/csv", "", bank.csv()).await.data(201);
    assert_eq!((&imported["format"], &imported["line_count"], &imported["decided_count"]), (&json!("csv"), &json!(6), &json!(0)));
    let head = bank.node.head().await;
    assert_eq!(bank.import("text/csv; charset=utf-8", "", bank.csv()).await.data(200), imported, "the same file again");
    assert_eq!(bank.node.head().await, head);

    let matched = bank.show(&imported["id"], "").await;
    assert_eq!(statuses(&matched), ["MATCHED", "MATCHED", "AMBIGUOUS", "UNMATCHED", "MATCHED", "UNMATCHED"], "{matched:#}");
    assert_eq!(matched["lines"][4]["entries"][0]["payout_id"], bank.payout_id);
    let twins: Vec<&Value> =
        matched["lines"][2]["entries"].as_array().unwrap().iter().map(|entry| &entry["references"][0]).collect();
    assert_eq!(twins, ["twin A", "twin B"]);
    assert_eq!(matched["missing"].as_array().unwrap().len(), 2, "both twins wait for a decision: {matched:#}");
    assert!(matched["missing"].as_array().unwrap().iter().all(|missing| missing["is_ambiguous"] == true));
    assert_eq!(bank.show(&imported["id"], "").await, matched, "the same answer every time");
    let summary =
        json!({"matched": 3, "ignored": 0, "reversed": 0, "duplicate": 0, "ambiguous": 1, "unmatched": 2, "missing": 2});
    assert_eq!(matched["summary"], summary);

    let unmatched = bank.show(&imported["id"], "status=UNMATCHED&limit=1&page=2").await;
    assert_eq!((unmatched["lines"].as_array().unwrap().len(), &unmatched["lines"][0]["line"]), (1, &json!(6)));
    let list = bank.node.operator("GET", STATEMENTS, Value::Null).await;
    assert_eq!((list.header("x-total-count"), list.data(200)["statements"][0]["id"].clone()), ("1", imported["id"].clone()));
    let path = format!("{STATEMENTS}/{}", imported["id"]);
    let csv = bank.node.send(bank.node.by_operator("GET", &path).header("Accept", "text/csv")).await;
    assert_eq!((csv.status, csv.text.lines().count()), (200, 1 + 6 + 2), "{}", csv.text);

    // Text from people is sealed and appears in no event.
    let readable: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM events WHERE data::text LIKE '%ller%' OR data::text LIKE '%BANK FEE%')
            OR EXISTS (SELECT FROM vault.statement_lines WHERE position('BANK FEE'::bytea IN sealed) > 0)",
    )
    .fetch_one(bank.node.ledger.pool())
    .await
    .unwrap();
    assert!(!readable);
}

/// An amount with a decimal comma must not be read as a hundred times the money.
#[tokio::test]
async fn amounts_with_a_decimal_comma_are_refused() {
    let bank = Bank::open().await;
    let head = bank.node.head().await;
    let csv = |amount: &str| format!("date;amount;currency;reference\n{};{amount};EUR;A\n", Utc::now().date_naive());
    for (query, amount) in [("", "7,00"), ("", "1000,50"), ("decimal_comma=true", "7.00"), ("decimal_comma=true", "1,000.50")] {
        let refused = bank.import("text/csv", query, csv(amount)).await;
        let error = refused.refused(400, "E_VALIDATION_FAILURE").to_string();
        assert!(error.contains("row 1 has an amount") && !error.contains(amount), "{error}");
    }
    let twice = format!("date,amount,currency,reference,Amount\n{},7.00,EUR,A,8.00\n", Utc::now().date_naive());
    let refused = bank.import("text/csv", "", twice).await.refused(400, "E_VALIDATION_FAILURE").to_string();
    assert!(refused.contains("has more than one column"), "{refused}");
    let stored: i64 =
        sqlx::query_scalar("SELECT (SELECT count(*) FROM vault.statement_lines) + (SELECT count(*) FROM bank_statements)")
            .fetch_one(bank.node.ledger.pool())
            .await
            .unwrap();
    assert_eq!((stored, bank.node.head().await), (0, head));
    for (query, amount) in [("", "1,000.50"), ("decimal_comma=true", "1.000,50")] {
        let imported = bank.import("text/csv", query, csv(amount)).await.data(201);
        assert_eq!(bank.show(&imported["id"], "").await["lines"][0]["amount"], "1000.50");
    }
}

#[tokio::test]
async fn a_decision_is_an_event_and_applies_until_it_is_revoked() {
    let bank = Bank::open().await;
    let imported = bank.import("text/csv", "", bank.csv()).await.data(201);
    let id = &imported["id"];
    let matched = bank.show(id, "").await;
    let twin = matched["lines"][2]["entries"][1]["transaction_id"].clone();
    let accept = json!({"decision": "FUNDING", "transaction_id": twin, "reason": "the customer called"});
    let decided = bank.decide(id, 3, accept.clone()).await.data(200);
    assert_eq!(decided["decided_count"], 1);
    let head = bank.node.head().await;
    bank.decide(id, 3, accept.clone()).await.data(200);
    assert_eq!(bank.node.head().await, head, "repeating the decision appends no event");
    bank.decide(id, 6, json!({"decision": "IGNORED", "reason": "a fee"})).await.data(200);

    let after = bank.show(id, "").await;
    assert_eq!(statuses(&after), ["MATCHED", "MATCHED", "MATCHED", "UNMATCHED", "MATCHED", "IGNORED"]);
    assert_eq!((&after["lines"][2]["is_decided"], &after["lines"][2]["entries"][0]["transaction_id"]), (&json!(true), &twin));
    let reasons = [0, 2, 5].map(|line| after["lines"][line]["decision_reason"].clone());
    assert_eq!(reasons, [Value::Null, json!("the customer called"), json!("a fee")]);
    assert_eq!(after["missing"].as_array().unwrap().len(), 1, "{after:#}");
    // The decision also applies to a later import of the same file.
    assert_eq!(bank.import("text/csv", "", bank.csv()).await.data(200)["id"], *id);
    assert_eq!(bank.show(id, "").await["lines"], after["lines"]);

    bank.decide(id, 3, json!({"decision": "IGNORED", "reason": "no"})).await.refused(409, "E_CONFLICT");
    bank.decide(id, 4, accept.clone()).await.refused(409, "E_CONFLICT");
    bank.decide(id, 7, json!({"decision": "IGNORED", "reason": "no"})).await.refused(404, "E_NOT_FOUND");
    bank.decide(&json!(999_999), 1, json!({"decision": "IGNORED", "reason": "no"})).await.refused(404, "E_NOT_FOUND");
    for (body, field) in [
        (json!({"decision": "FUNDING", "reason": "r"}), "transaction_id"),
        (json!({"decision": "IGNORED", "payout_id": 1, "reason": "r"}), "payout_id"),
        (json!({"decision": "PAYOUT", "payout_id": bank.payout_id + 1, "reason": "not paid"}), "payout_id"),
        (json!({"decision": "FUNDING", "transaction_id": 999_999, "reason": "r"}), "transaction_id"),
        (json!({"decision": "IGNORED"}), "reason"),
    ] {
        let refused = bank.decide(id, 4, body.clone()).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(refused["messages"][field].is_array(), "{body} {refused}");
    }

    let revoke = format!("{STATEMENTS}/{id}/lines/3/revoke");
    bank.node.operator("POST", &revoke, json!({"reason": "a mistake"})).await.data(200);
    assert_eq!(bank.show(id, "").await["lines"][2], matched["lines"][2]);
    bank.node.operator("POST", &revoke, json!({"reason": "again"})).await.refused(404, "E_NOT_FOUND");
    let events: Vec<String> =
        sqlx::query_scalar("SELECT type || ' ' || data::text FROM events WHERE stream_type = 'reconciliation' ORDER BY version")
            .fetch_all(bank.node.ledger.pool())
            .await
            .unwrap();
    let types: Vec<&str> = events.iter().map(|event| event.split(' ').next().unwrap()).collect();
    assert_eq!(types, ["StatementImported", "MatchDecided", "MatchDecided", "MatchDecisionRevoked"]);
    assert!(events.iter().all(|event| !event.contains("called") && !event.contains("mistake")), "{events:?}");
    let report = rewards_ledger::audit::verify(&bank.node.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.differences);
}

#[tokio::test]
async fn camt_053_is_read_with_batches_reversals_and_overlapping_files() {
    let bank = Bank::open().await;
    let today = &bank.today;
    let entry = |amount: &str, direction: &str, more: &str| {
        format!(
            r#"<Ntry><Amt Ccy="EUR">{amount}</Amt><CdtDbtInd>{direction}</CdtDbtInd>{more}<Sts>BOOK</Sts><BookgDt><Dt>{today}</Dt></BookgDt>"#
        )
    };
    let details = |reference: &str| {
        format!("<NtryDtls><TxDtls><Refs><EndToEndId>{reference}</EndToEndId></Refs></TxDtls></NtryDtls></Ntry>")
    };
    let batch = format!(
        r#"{}<NtryDtls><Btch><NbOfTxs>2</NbOfTxs></Btch>
           <TxDtls><Refs><EndToEndId>INV-2026-0007</EndToEndId></Refs><AmtDtls><TxAmt><Amt Ccy="EUR">200.00</Amt></TxAmt></AmtDtls></TxDtls>
           <TxDtls><Refs><EndToEndId>twin B</EndToEndId></Refs><AmtDtls><TxAmt><Amt Ccy="EUR">300.00</Amt></TxAmt></AmtDtls></TxDtls></NtryDtls></Ntry>"#,
        entry("500.00", "CRDT", "")
    );
    let payout = format!("{}{}", entry("30.00", "DBIT", ""), details(&format!("PAY-{:010}", bank.payout_id)));
    let returned = format!("{}{}", entry("300.00", "CRDT", ""), details("twin A"));
    let reversal = format!("{}{}", entry("300.00", "DBIT", "<RvslInd>true</RvslInd>"), details("twin A"));
    let document = |entries: &[&String]| {
        let entries: String = entries.iter().map(|entry| entry.as_str()).collect();
        format!(
            r#"<?xml version="1.0"?><Document xmlns="urn:iso:std:iso:20022:tech:xsd:camt.053.001.08"><BkToCstmrStmt><Stmt>{entries}</Stmt></BkToCstmrStmt></Document>"#
        )
    };
    let first = bank.import("application/xml", "", document(&[&batch, &returned, &reversal])).await.data(201);
    let matched = bank.show(&first["id"], "").await;
    assert_eq!(statuses(&matched), ["MATCHED", "MATCHED", "REVERSED", "REVERSED"], "{matched:#}");
    assert_eq!((&matched["lines"][2]["reversed_line"], &matched["lines"][2]["reversed_statement_id"]), (&json!(4), &first["id"]));
    // The next file repeats the batch, whose lines count only once.
    let second = bank.import("text/xml", "", document(&[&batch, &payout])).await.data(201);
    let matched = bank.show(&second["id"], "").await;
    assert_eq!(statuses(&matched), ["DUPLICATE", "DUPLICATE", "MATCHED"], "{matched:#}");
    let references: Vec<&Value> =
        matched["missing"].as_array().unwrap().iter().map(|missing| &missing["references"][0]).collect();
    assert_eq!(references, [&json!(format!("opening of {}", bank.setup.wallet_id)), &json!("twin A")], "{matched:#}");
}

#[tokio::test]
async fn hostile_or_invalid_files_are_refused_and_stored_nowhere() {
    let bank = Bank::open().await;
    let head = bank.node.head().await;
    let bomb = r#"<!DOCTYPE a [<!ENTITY x "xxxxxxxxxx"><!ENTITY y "&x;&x;&x;&x;">]><Document>&y;</Document>"#;
    let deep = format!("{}{}", "<a>".repeat(500), "</a>".repeat(500));
    for (content_type, body, said) in [
        ("application/xml", bomb.to_owned(), "document type"),
        ("application/xml", deep, "too deep"),
        ("application/xml", "<Document>".to_owned(), "not well-formed"),
        ("application/xml", "<Document/>".to_owned(), "not a camt.053 document"),
        ("text/csv", "a,b\n1,2\n".to_owned(), "has no column \"date\""),
        (
            "text/csv",
            "date,amount,currency,reference\n2026-01-31,x,EUR,a\n".to_owned(),
            "row 1 has an amount that is not written like",
        ),
        ("text/csv", "date,amount,currency,reference\n".to_owned(), "no booked lines"),
    ] {
        let refused = bank.import(content_type, "", body).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(refused["messages"]["body"][0].as_str().unwrap().contains(said), "{said}: {refused}");
    }
    bank.import("text/csv", "", "x".repeat((16 << 20) + 1)).await.refused(413, "E_PAYLOAD_TOO_LARGE");
    bank.import("application/json", "", "{}").await.refused(415, "E_UNSUPPORTED_MEDIA_TYPE");
    bank.import("text/csv", "currency=KWD", bank.csv()).await.refused(400, "E_VALIDATION_FAILURE");
    assert_eq!(bank.node.head().await, head);
    let lines: i64 =
        sqlx::query_scalar("SELECT count(*) FROM vault.statement_lines").fetch_one(bank.node.ledger.pool()).await.unwrap();
    assert_eq!(lines, 0);
    // The tolerance is validated, and the caller's role is checked.
    let imported = bank.import("text/csv", "", bank.csv()).await.data(201);
    let path = format!("{STATEMENTS}/{}", imported["id"]);
    for (query, field) in [("days=61", "days"), ("amount=x", "amount"), ("amount=-1.00", "amount"), ("limit=1001", "limit")] {
        let refused =
            bank.node.operator("GET", &format!("{path}?{query}"), Value::Null).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(refused["messages"][field].is_array(), "{query} {refused}");
    }
    let auditor = bank.node.token(Role::Auditor).await;
    bank.node.operator_with(&auditor, "GET", &path, Value::Null).await.data(200);
    let decide = json!({"decision": "IGNORED", "reason": "r"});
    bank.node.operator_with(&auditor, "POST", &format!("{path}/lines/1/decide"), decide).await.refused(403, "E_FORBIDDEN");
}

/// The workflow in the shell: import, show, decide, show again. The exit status says whether anything is left.
#[tokio::test(flavor = "multi_thread")]
async fn the_shell_imports_shows_and_decides() {
    use crate::support::program::{OPERATOR_TOKEN, Program, run};
    let database = crate::support::postgres::database().await;
    let program = Program::start(&database.url, &[]).await;
    let client = program.client("1000.00").await;
    let today = Utc::now().date_naive();
    let wallet: i64 = {
        let mut admin = database.url.parse::<ledger_database::PgConnectOptions>().unwrap().connect().await.unwrap();
        sqlx::query_scalar("SELECT id FROM wallets WHERE account_id = $1")
            .bind(client.account_id)
            .fetch_one(&mut admin)
            .await
            .unwrap()
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    let csv = format!("Tag;Betrag;Zweck\n{today};1.000,00;opening-{wallet}\n{today};-1,50;fee\n");
    std::fs::write(file.path(), csv).unwrap();
    let statement = async |arguments: &[&str]| {
        let mut command = program.command();
        command
            .args(["reconcile", "statement", "--url", &program.url()])
            .args(arguments)
            .env("LEDGER_OPERATOR_TOKEN", OPERATOR_TOKEN);
        let output = run(&mut command).await;
        (output.status.code(), super::text(&output))
    };
    let path = file.path().to_str().unwrap();
    let import = [
        "import",
        path,
        "--date-column",
        "Tag",
        "--amount-column",
        "Betrag",
        "--reference-column",
        "Zweck",
        "--currency",
        "EUR",
        "--decimal-comma",
    ];
    let (status, text) = statement(&import).await;
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("UNMATCHED") && text.contains("MATCHED"), "{text}");
    let (status, text) = statement(&["ignore", "1", "2", "--reason", "the bank's fee"]).await;
    assert_eq!(status, Some(0), "{text}");
    let (status, text) = statement(&import).await;
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("imported before") && text.contains("IGNORED"), "{text}");
    let (status, text) = statement(&["show", "1", "--json"]).await;
    let shown: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &shown["summary"]["matched"], &shown["summary"]["ignored"]), (Some(0), &json!(1), &json!(1)));
}
