//! Workbooks: the reconciliation of a period, and the matches of a bank statement.

use serde_json::{Value, json};

use super::statements::{Bank, STATEMENTS};
use crate::support::node::Node;
use crate::support::workbook::{Sheet, sheets};

const WORKBOOK: &str = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";

/// Reads a workbook of an operator's endpoint. Returns its sheets and the suggested file name.
async fn workbook(node: &Node, path: &str) -> (Vec<Sheet>, String) {
    let response = node.by_operator("GET", path).header("Accept", WORKBOOK).send().await.unwrap();
    let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    assert_eq!((response.status().as_u16(), header("content-type"), header("vary")), (200, WORKBOOK.into(), "Accept".into()));
    let name = header("content-disposition");
    (sheets(&response.bytes().await.unwrap()), name)
}

fn names(sheets: &[Sheet]) -> Vec<&str> {
    sheets.iter().map(|sheet| &*sheet.name).collect()
}

/// Checks that a column has these amounts, whose decimals a number of a spreadsheet does not keep.
fn has_amounts(sheet: &Sheet, heading: &str, expected: &[&Value]) {
    let number = |text: &str| text.parse::<f64>().unwrap_or_else(|error| panic!("{text}: {error}"));
    let found: Vec<f64> = sheet.column(heading).into_iter().map(number).collect();
    assert_eq!(found, expected.iter().map(|amount| number(amount.as_str().unwrap())).collect::<Vec<_>>(), "{heading}");
}

#[tokio::test]
async fn the_workbook_of_a_reconciliation_has_the_figures_and_the_differences_of_the_report() {
    let node = Node::start().await;
    let setups = [node.setup().await, node.setup().await];
    let order = json!({"product_id": setups[0].product_id, "denomination": 10, "quantity": 2});
    node.client(&setups[0].client, "POST", "/orders", order).await.data(201);
    let spoil = "UPDATE wallets SET balance = 7 WHERE id = $1";
    sqlx::query(spoil).bind(setups[1].wallet_id).execute(&mut node.admin().await).await.unwrap();
    node.project().await;
    let report = node.operator("GET", "/reconciliation", Value::Null).await.data(200);

    let (found, name) = workbook(&node, "/reconciliation").await;
    assert!(name.contains("filename=\"reconciliation-") && name.ends_with(".xlsx\""), "{name}");
    assert_eq!(names(&found), ["Summary", "Currencies", "Days", "Stock", "Stock by day", "Wallets", "Differences"]);
    let [summary, currencies, days, stock, stock_days, wallets, differences] = &found[..] else { panic!() };
    let fact = |name: &str| summary.rows.iter().find(|row| row[0] == name).map(|row| &*row[1]);
    assert_eq!(fact("checked"), Some("MOVEMENTS"));
    assert_eq!(fact("differences_found"), Some("1"));
    assert_eq!(fact("shard 1: position"), Some(&*report["as_of"][0]["position"].to_string()));

    assert_eq!((currencies.column("currency"), currencies.column("wallets")), (vec!["EUR"], vec!["2"]));
    for (heading, amount) in
        [("opening_balance", "0.00"), ("funding", "2000.00"), ("order_debits", "20.00"), ("closing_balance", "1980.00")]
    {
        has_amounts(currencies, heading, &[&json!(amount)]);
        assert_eq!(report["currencies"][0][heading], amount);
    }
    assert_eq!((days.column("day"), days.column("movements")), (vec![report["days"][0]["day"].as_str().unwrap()], vec!["3"]));
    assert_eq!((stock.column("currency"), &report["stock"][0]["currency"]), (vec!["EUR"], &json!("EUR")));
    assert_eq!(stock_days.column("loaded_vouchers"), ["6"]);
    assert_eq!(wallets.column("wallet_id"), setups.each_ref().map(|setup| setup.wallet_id.to_string()));
    assert_eq!(wallets.column("account_id"), setups.each_ref().map(|setup| setup.client.account_id.to_string()));
    has_amounts(wallets, "closing_balance", &[&json!("980.00"), &json!("1000.00")]);
    let difference = &report["differences"][0];
    assert_eq!(differences.column("kind"), ["WALLET_BALANCE"]);
    assert_eq!(differences.column("wallet_id"), [setups[1].wallet_id.to_string()]);
    assert_eq!(differences.column("order_id"), [""]);
    assert_eq!(differences.column("problem"), [difference["problem"].as_str().unwrap()]);
}

#[tokio::test]
async fn the_workbook_of_a_statement_has_its_lines_and_what_is_not_in_it() {
    let bank = Bank::open().await;
    let csv = format!("{}{},7.00,EUR,=1+1,<no formula> & no tag\n", bank.csv(), bank.today);
    let id = bank.import("text/csv", "", csv).await.data(201)["id"].clone();
    let matched = bank.show(&id, "").await;
    let all = |field: &str| -> Vec<&Value> { matched["lines"].as_array().unwrap().iter().map(|line| &line[field]).collect() };
    let texts = |field: &str| -> Vec<&str> { all(field).into_iter().map(|text| text.as_str().unwrap_or_default()).collect() };

    let (found, name) = workbook(&bank.node, &format!("{STATEMENTS}/{id}")).await;
    assert_eq!(name, format!("attachment; filename=\"statement-{id}.xlsx\""));
    assert_eq!(names(&found), ["Lines", "Not in the statement"]);
    let [lines, missing] = &found[..] else { panic!() };
    assert_eq!(lines.column("line"), ["1", "2", "3", "4", "5", "6", "7"]);
    for (heading, field) in [
        ("day", "booked_on"),
        ("direction", "direction"),
        ("currency", "currency"),
        ("text", "text"),
        ("status", "status"),
        ("why", "why"),
    ] {
        assert_eq!(lines.column(heading), texts(field), "{heading}");
    }
    has_amounts(lines, "amount", &all("amount"));
    assert_eq!((lines.column("references")[6], lines.column("text")[6]), ("=1+1", "<no formula> & no tag"));
    let ids = |entries: &Value, field: &str| {
        let ids = entries.as_array().unwrap().iter().filter_map(|entry| entry[field].as_i64());
        ids.map(|id| id.to_string()).collect::<Vec<_>>().join(" ")
    };
    for (heading, field) in [("transaction_ids", "transaction_id"), ("payout_ids", "payout_id")] {
        let expected: Vec<String> = all("entries").into_iter().map(|entries| ids(entries, field)).collect();
        assert_eq!(lines.column(heading), expected, "{heading}");
    }
    assert_eq!(lines.column("payout_ids")[4], bank.payout_id.to_string());
    assert_eq!(missing.column("references"), ["twin A", "twin B"]);
    assert_eq!((missing.column("direction"), missing.column("is_ambiguous")), (vec!["CREDIT"; 2], vec!["true"; 2]));
    let transactions: Vec<String> =
        matched["missing"].as_array().unwrap().iter().map(|entry| entry["transaction_id"].to_string()).collect();
    assert_eq!(missing.column("transaction_id"), transactions);
    has_amounts(missing, "amount", &[&json!("300.00"); 2]);

    // The filters of the query apply.
    let (found, _) = workbook(&bank.node, &format!("{STATEMENTS}/{id}?status=UNMATCHED")).await;
    assert_eq!(found[0].column("line"), ["4", "6", "7"]);
    assert_eq!(found[0].column("status"), ["UNMATCHED"; 3]);
}
