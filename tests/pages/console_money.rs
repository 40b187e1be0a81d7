//! Money and reconciliation in the console.

use chrono::Utc;
use rewards_ledger::access::Role;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use super::console::enter;
use super::console_catalogue::file;
use super::long_work::{HOLD, seen_in_other, upload_under, waits_at};
use super::{check, in_browser};
use crate::support::browser::Browser;
use crate::support::node::{ConsoleUser, Node, Setup};
use crate::support::workbook;

/// Requests a payout as the client.
async fn request_payout(node: &Node, setup: &Setup, amount: &str) -> i64 {
    let ada =
        json!({"name": "Ada", "type": "BANK", "country": "DE", "currency": "EUR", "account_number": "DE89370400440532013000"});
    let ada = node.client(&setup.client, "POST", "/beneficiaries", ada).await.data(201);
    let payout = json!({"beneficiary_id": ada["id"], "wallet_id": setup.wallet_id, "amount": amount});
    node.client(&setup.client, "POST", "/payouts", payout).await.data(201)["id"].as_i64().unwrap()
}

/// Checks that these are the newest events, by this operator, and that the audit lists them first. The audit stays open.
async fn last_are(node: &Node, browser: &Browser, events: &[&str], by: &ConsoleUser) {
    let last = "SELECT type, metadata::jsonb->'actor' FROM events ORDER BY position DESC LIMIT $1";
    let last: Vec<(String, Value)> = sqlx::query_as(last).bind(events.len() as i64).fetch_all(node.ledger.pool()).await.unwrap();
    let expected = events.iter().rev().map(|event| ((*event).to_owned(), json!({"operator": by.id})));
    assert_eq!(last, expected.collect::<Vec<_>>());
    browser.open(&format!("{}/console/audit", node.url())).await;
    for (row, event) in (1..).zip(events.iter().rev()) {
        let actor = format!("td[@data-name='Actor']/a[@href='/console/audit?actor=operator%2F{}']", by.id);
        browser.find(&format!("//main//tbody/tr[{row}][td[@data-name='Event']/a='{event}'][{actor}]")).await;
    }
}

/// Settles a payout that needs no approval as paid.
async fn settle(browser: &Browser, payout: i64) {
    browser.press("Payouts").await;
    check(browser, "all payouts").await;
    browser.press(&format!("Payout {payout}")).await;
    browser.press("The money was sent").await;
    check(browser, "a payout in the console").await;
    browser.press("Settle as paid").await;
    browser.sees("The payout is settled.").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_operators_fund_a_wallet_and_settle_a_payout() {
    let node = Node::supervised("EUR=2000").await;
    let setup = node.setup().await;
    let payout = request_payout(&node, &setup, "30.00").await;
    in_browser((1440, 2_000), true, |browser| async move {
        let wallet = format!("{}/console/wallets/{}", node.url(), setup.wallet_id);
        let first = enter(&node, &browser, Role::Finance).await;
        browser.open(&wallet).await;
        check(&browser, "a wallet in the console").await;
        browser.press("Fund").await;
        browser.fill("Amount", "500").await;
        browser.press("Fund the wallet").await;
        browser.sees("Reference of the payment is required").await;
        browser.logs_refusal(400).await;
        browser.fill("Reference of the payment", "wire-1").await;
        check(&browser, "a funding").await;
        browser.press("Fund the wallet").await;
        browser.sees("The wallet is funded.").await;
        browser.sees("Funding wire-1").await;
        browser.press("Fund").await;
        browser.fill("Amount", "5000").await;
        browser.fill("Reference of the payment", "wire-1").await;
        browser.press("Fund the wallet").await;
        browser.sees("Nothing has moved. An earlier funding has this reference").await;
        browser.logs_refusal(409).await;
        browser.fill("Reference of the payment", "wire-2").await;
        browser.press("Fund the wallet").await;
        browser.sees("Nothing has moved yet.").await;
        browser.sees("You requested this change").await;
        check(&browser, "an own approval").await;
        last_are(&node, &browser, &["ApprovalRequested"], &first).await;
        browser.open(&format!("{wallet}/adjust")).await;
        browser.fill("Amount", "3000").await;
        browser.fill("Reason", "a typing error").await;
        browser.press("Adjust the balance").await;
        browser.sees("Nothing has moved yet.").await;
        browser.press(&format!("Wallet {}", setup.wallet_id)).await;
        browser.press("Movements that wait for approval: 2").await;
        browser.click("//tr[contains(., 'Adjustment, credit')]//a").await;
        browser.press("Withdraw this request").await;
        check(&browser, "the withdrawal of a request").await;
        browser.press("Withdraw the request").await;
        browser.sees("Withdrawn. Nothing has moved.").await;
        last_are(&node, &browser, &["ApprovalRequested", "ApprovalWithdrawn"], &first).await;
        browser.press("Sign out").await;

        let second = enter(&node, &browser, Role::Finance).await;
        browser.press("Approvals").await;
        check(&browser, "the approvals").await;
        browser.click("//td//a[starts-with(normalize-space(), 'Approval')]").await;
        browser.sees("After the change it is").await;
        check(&browser, "an approval").await;
        browser.press("Approve").await;
        browser.sees("Approved. The change is made.").await;
        last_are(&node, &browser, &["ApprovalGranted", "WalletFunded"], &second).await;
        browser.open(&wallet).await;
        browser.sees("Funding wire-2").await;
        browser.press("Adjust").await;
        browser.fill("Amount", "12.50").await;
        browser.fill("Reason", "a mistake").await;
        check(&browser, "an adjustment").await;
        browser.press("Adjust the balance").await;
        browser.sees("The balance is corrected.").await;

        settle(&browser, payout).await;
        browser.press(&format!("Wallet {}", setup.wallet_id)).await;
        browser.press(&format!("Payout {payout}")).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_operators_settle_a_payout_above_the_limit() {
    let node = Node::supervised("EUR=2000").await;
    let setup = node.setup().await;
    let fund = json!({"amount": "1900.00", "reference": "wire-5"});
    node.operator("POST", &format!("/wallets/{}/fund", setup.wallet_id), fund).await.data(201);
    let payout = request_payout(&node, &setup, "2500.00").await;
    let status = async |node: &Node| {
        let payout = node.client(&setup.client, "GET", &format!("/payouts/{payout}"), Value::Null).await.data(200);
        payout["status"].as_str().unwrap().to_owned()
    };
    in_browser((390, 2_000), true, |browser| async move {
        let first = enter(&node, &browser, Role::Finance).await;
        browser.press("Payouts").await;
        browser.press(&format!("Payout {payout}")).await;
        browser.press("The money was sent").await;
        browser.press("Settle as paid").await;
        browser.sees("You requested this change, so you cannot decide about it.").await;
        assert_eq!(status(&node).await, "PENDING");
        last_are(&node, &browser, &["ApprovalRequested"], &first).await;
        browser.open(&format!("{}/console/payouts/{payout}", node.url())).await;
        browser.sees("Its settlement as paid waits for a second operator").await;
        check(&browser, "a payout that waits for approval").await;
        browser.press("Sign out").await;

        let second = enter(&node, &browser, Role::Finance).await;
        browser.press("Approvals").await;
        browser.click("//td//a[starts-with(normalize-space(), 'Approval')]").await;
        browser.sees("The payout was debited when it was requested, so the balance stays.").await;
        check(&browser, "the approval of a payout").await;
        browser.press("Approve").await;
        browser.sees("Approved. The change is made.").await;
        browser.press("The events of this approval in the audit").await;
        browser.find("//td/a[text()='ApprovalGranted']").await;
        browser.click("//td/a[starts-with(text(), 'approval/')]").await;
        browser.press(&format!("Payout {payout}")).await;
        browser.find("//dd//span[text()='Paid']").await;
        assert_eq!(status(&node).await, "PAID");
        browser.press("The events of this payout in the audit").await;
        browser.find("//td/a[text()='PayoutPaid']").await;
        last_are(&node, &browser, &["ApprovalGranted", "PayoutPaid"], &second).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payout_that_fails_returns_to_the_wallet_and_a_rejected_change_moves_nothing() {
    let node = Node::supervised("EUR=2000").await;
    let setup = node.setup().await;
    let payout = request_payout(&node, &setup, "30.00").await;
    let fund = json!({"amount": "2500.00", "reference": "wire-9", "note": "of the shop"});
    node.operator("POST", &format!("/wallets/{}/fund", setup.wallet_id), fund).await.data(202);
    in_browser((390, 2_000), true, |browser| async move {
        let finance = enter(&node, &browser, Role::Finance).await;
        browser.press("Payouts").await;
        browser.press("Payouts to settle").await;
        browser.press(&format!("Payout {payout}")).await;
        browser.press("The money could not be sent").await;
        browser.sees("return to wallet").await;
        browser.fill("Reason", "the account is closed").await;
        check(&browser, "a payout that fails").await;
        browser.press("Settle as failed").await;
        browser.sees("The payout is settled.").await;
        browser.sees("the account is closed").await;
        browser.press(&format!("Wallet {}", setup.wallet_id)).await;
        browser.find("//div[@class='figure'][contains(normalize-space(), '000.00')]").await;
        browser.press("Approvals").await;
        browser.click("//td//a[starts-with(normalize-space(), 'Approval')]").await;
        browser.sees("of the shop").await;
        browser.press("Reject this change").await;
        browser.fill("Reason", "no such wire").await;
        check(&browser, "the rejection of a change").await;
        browser.press("Reject").await;
        browser.sees("Rejected. Nothing has moved.").await;
        browser.sees("no such wire").await;
        last_are(&node, &browser, &["ApprovalRejected"], &finance).await;
        let wallet = node.operator("GET", &format!("/wallets/{}", setup.wallet_id), Value::Null).await.data(200);
        assert_eq!(wallet["balance"], "1000.00");
        let payout = node.client(&setup.client, "GET", &format!("/payouts/{payout}"), Value::Null).await.data(200);
        assert_eq!((&payout["status"], &payout["failure_reason"]), (&json!("FAILED"), &json!("the account is closed")));
    })
    .await;
}

/// Imports a statement whose columns have names and notations of their own.
async fn import_with_own_columns(browser: &Browser, file: &str) {
    browser.press("Bank statements").await;
    browser.type_into("//input[@id='file']", file).await;
    browser.press("Columns of a CSV").await;
    for (label, text) in [
        ("Column of the booking date", "Datum"),
        ("Column of the amount", "Betrag"),
        ("Column of the reference", "Zweck"),
        ("Currency of lines without one", "EUR"),
        ("Format of dates", "%d.%m.%Y"),
    ] {
        browser.fill(label, text).await;
    }
    browser.type_into("//input[@id='text_column']", "Nachricht").await;
    browser.click("//select[@id='decimal_comma']/option[@value='true']").await;
    browser.press("Import the statement").await;
    browser.sees("Column of the booking date has no column").await;
    browser.find("//details[@open]//input[@id='date_column'][@aria-invalid='true']").await;
    browser.logs_refusal(400).await;
    check(browser, "a bank statement without a column").await;
    browser.fill("Column of the booking date", "Buchungstag").await;
    browser.type_into("//input[@id='file']", file).await;
    browser.press("Import the statement").await;
    browser.sees("The statement is imported.").await;
}

/// Decides that a line of the open statement is something that the form does not list by itself. Returns to the statement.
async fn decide(browser: &Browser, line: i32, (decision, number): (&str, &str), result: &str, entry: &str) {
    browser.press(&format!("Decide line {line}")).await;
    browser.click(&format!("//select[@id='decision']/option[@value='{decision}']")).await;
    browser.fill("Number", number).await;
    browser.fill("Reason", "the bank says so").await;
    browser.press("Decide").await;
    browser.find(&format!("//div[dt='Result']/dd[normalize-space()='{result} by a person']")).await;
    browser.find(&format!("//div[dt='Entry of the ledger']/dd[normalize-space()='{entry}']")).await;
    browser.press("Back to the statement").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_decides_what_the_lines_of_statements_are() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let mut twin = Value::Null;
    for reference in ["twin A", "twin B"] {
        let funding = json!({"amount": "300.00", "reference": reference});
        twin = node.operator("POST", &format!("/wallets/{}/fund", setup.wallet_id), funding).await.data(201)["id"].clone();
    }
    let payout = request_payout(&node, &setup, "30.00").await;
    node.operator("PUT", &format!("/payouts/{payout}"), json!({"status": "PAID"})).await.data(200);
    let today = Utc::now().date_naive();
    let lines = format!(
        "date,amount,currency,reference\n{today},1000.00,EUR,opening of {}\n{today},300.00,EUR,none of these\n",
        setup.wallet_id
    );
    let directory = tempfile::tempdir().unwrap();
    let statement = file(directory.path(), "statement.csv", lines);
    let day = today.format("%d.%m.%Y");
    let lines = format!(
        "Buchungstag;Betrag;Zweck;Nachricht\n{day};-3,50;Entgelt;fee of the month\n{day};1.234,56;unknown;thank you\n\
         {day};-30,10;unknown;\n"
    );
    let own = file(directory.path(), "own.csv", lines);
    // These lines are two parts.
    let lines: String = (1..=1_001).map(|line| format!("{today},7.00,EUR,slow {line}\n")).collect();
    let slow = file(directory.path(), "slow.csv", format!("date,amount,currency,reference\n{lines}"));
    in_browser((1440, 2_000), true, |browser| async move {
        enter(&node, &browser, Role::Finance).await;
        browser.press("Bank statements").await;
        browser.sees("No statement is imported yet.").await;
        check(&browser, "no bank statements").await;
        browser.type_into("//input[@id='file']", &statement).await;
        browser.press("Import the statement").await;
        browser.sees("The statement is imported.").await;
        check(&browser, "a bank statement").await;
        browser.press("show what is ambiguous").await;
        browser.press("Decide line 2").await;
        browser.press("Decide").await;
        browser.sees("Reason is required").await;
        browser.logs_refusal(400).await;
        browser.fill("Reason", "the payer says so").await;
        check(&browser, "a line of a bank statement").await;
        browser.press("Decide").await;
        browser.sees("by a person").await;
        check(&browser, "a decided line").await;
        browser.press("Revoke the decision").await;
        browser.fill("Reason", "another payer").await;
        browser.press("Revoke").await;
        browser.find("//h2[text()='Decide what this line is']").await;
        browser.press("Reconciliation").await;
        browser.sees("No differences").await;
        check(&browser, "a reconciliation").await;

        import_with_own_columns(&browser, &own).await;
        let line = |amount: &str, text: &str| {
            format!("//tr[td[@data-name='Booked']='{today}'][td[@data-name='Amount']='{amount} EUR'][contains(., '{text}')]")
        };
        browser.find(&line("−3.50", "fee of the month")).await;
        browser.find(&line("1\u{202f}234.56", "thank you")).await;
        decide(&browser, 1, ("IGNORED", ""), "Ignored", "").await;
        let funding = format!("Funding, transaction {twin}");
        decide(&browser, 2, ("FUNDING", &twin.to_string()), "Matched", &funding).await;
        decide(&browser, 3, ("PAYOUT", &payout.to_string()), "Matched", &format!("Payout {payout}")).await;
        browser.find("//div[@class='figure'][span='Matched'][strong='2']").await;
        browser.find("//div[@class='figure'][span='Unmatched'][strong='0']").await;
        check(&browser, "a bank statement that is decided").await;

        browser.press("Bank statements").await;
        browser.type_into("//input[@id='file']", &slow).await;
        // The first part is written. The second one waits.
        let waits = AssertSqlSafe(waits_at("vault.statement_lines", "line = 1001"));
        sqlx::raw_sql(waits).execute(&mut node.admin().await).await.unwrap();
        let shown = upload_under(&browser, &node, HOLD).await;
        assert_eq!(shown, "Lines imported: 1\u{202f}000 of 1\u{202f}001");
        seen_in_other(&browser, "page.querySelector('main')?.textContent.includes('The statement is imported.')").await;
        browser.run("window.other.close()").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_difference_leads_to_its_wallet_and_an_auditor_moves_nothing() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let auditor = node.console_user(Role::Auditor).await;
    sqlx::query("UPDATE wallets SET balance = balance + 1").execute(&mut node.admin().await).await.unwrap();
    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let get = async |path: &str| {
        let response = http.get(format!("{}{path}", node.url())).header("Cookie", &auditor.cookie).send().await.unwrap();
        assert_eq!(response.status().as_u16(), 200, "{path}");
        response
    };
    let page = get("/console/reconciliation").await.text().await.unwrap();
    assert!(page.contains("Wallet balance") && page.contains(&format!("/console/wallets/{}\"", setup.wallet_id)), "{page}");
    let workbook = get("/console/reconciliation.xlsx").await;
    assert!(workbook.headers()["content-disposition"].to_str().unwrap().contains(".xlsx"));
    let sheets = workbook::sheets(&workbook.bytes().await.unwrap());
    let differences = sheets.iter().find(|sheet| sheet.name == "Differences").unwrap();
    assert_eq!(differences.column("kind"), ["WALLET_BALANCE"]);
    assert_eq!(differences.column("wallet_id"), [setup.wallet_id.to_string()]);
    let csv = get("/console/reconciliation.csv").await.text().await.unwrap();
    assert!(csv.contains("WALLET_BALANCE"), "{csv}");
    let csv = get(&format!("/console/wallets/{}/statement.csv", setup.wallet_id)).await.text().await.unwrap();
    assert!(csv.contains("CLOSING_BALANCE"), "{csv}");

    for (path, action) in [
        (format!("/console/wallets/{}/adjust", setup.wallet_id), "Adjust the balance"),
        (format!("/console/products/{}/edit", setup.product_id), "Save the changes"),
        ("/console/bank-statements".to_owned(), "Import the statement"),
    ] {
        let page = get(&path).await.text().await.unwrap();
        assert!(page.contains("you need the role") && !page.contains(action), "{page}");
    }
    let path = format!("{}/console/wallets/{}/fund", node.url(), setup.wallet_id);
    let form = http.post(path).header("Cookie", &auditor.cookie).header("Origin", node.url());
    let form = form.header("Content-Type", "application/x-www-form-urlencoded").body("amount=1.00&reference=x");
    assert_eq!(form.send().await.unwrap().status().as_u16(), 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_correction_that_is_sent_twice_at_once_is_made_once() {
    let node = Node::supervised("EUR=2000").await;
    let setup = node.setup().await;
    let finance = node.console_user(Role::Finance).await;
    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let path = format!("{}/console/wallets/{}/adjust", node.url(), setup.wallet_id);
    let send = async |key: &str, amount: &str| {
        let body = format!("type=CREDIT&amount={amount}&reason=a+mistake&idempotency_key={key}");
        let form = http.post(&path).header("Cookie", &finance.cookie).header("Origin", node.url());
        let form = form.header("Content-Type", "application/x-www-form-urlencoded").body(body);
        let answer = form.send().await.unwrap();
        let location = answer.headers().get("location").map(|to| to.to_str().unwrap().to_owned());
        (answer.status().as_u16(), location, answer.text().await.unwrap())
    };
    for amount in ["1.00", "5000.00"] {
        let page = http.get(&path).header("Cookie", &finance.cookie).send().await.unwrap().text().await.unwrap();
        let key = page.split("name=\"idempotency_key\" value=\"").nth(1).unwrap().split('"').next().unwrap();
        let (first, second) = tokio::join!(send(key, amount), send(key, amount));
        assert_eq!((first.0, &first), (303, &second), "{amount}");
        let (status, _, page) = send(key, "2.00").await;
        assert!(status == 422 && page.contains("This form was already sent, with other values"), "{page}");
        assert!(!page.contains(key), "the form that is shown again is another one");
    }
    let wallet = node.operator("GET", &format!("/wallets/{}", setup.wallet_id), Value::Null).await.data(200);
    assert_eq!(wallet["balance"], "1001.00");
    let waiting = node.operator("GET", "/approvals?status=PENDING", Value::Null).await.data(200);
    assert_eq!(waiting["approvals"].as_array().unwrap().len(), 1);

    // A key that the API may have forgotten is refused.
    let (status, _, page) = send("form-01890000-0000-7000-8000-000000000000", "1.00").await;
    assert!(status == 409 && page.contains("about a day ago"), "{page}");
}
