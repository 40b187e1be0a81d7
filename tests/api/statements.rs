//! Wallet statements, and the filters of wallet transactions.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use ledger_events::Money;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::support::node::{Client, Node, Setup, product};

fn money(value: &Value) -> Money {
    value.as_str().unwrap_or_else(|| panic!("{value}")).parse().unwrap()
}

fn sum<'a>(amounts: impl IntoIterator<Item = &'a Value>) -> Money {
    amounts.into_iter().fold(Money::ZERO, |sum, movement| sum.checked_add(money(&movement["amount"])).unwrap())
}

async fn statement(node: &Node, client: &Client, wallet: i64, query: &str) -> Value {
    node.client(client, "GET", &format!("/wallets/{wallet}/statement{query}"), Value::Null).await.data(200)
}

/// Waits a moment, so that movements have distinct times.
async fn pass() {
    tokio::time::sleep(Duration::from_millis(3)).await;
}

/// Sets up a wallet that was funded, debited, refunded and adjusted, and a second wallet.
async fn movements(node: &Node) -> Setup {
    let setup = node.setup().await;
    let path = format!("/accounts/{}/wallets", setup.client.account_id);
    let beside = node.operator("POST", &path, json!({"currency": "USD"})).await.data(201)["id"].clone();
    let body = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 2});
    pass().await;
    let order = node.client(&setup.client, "POST", "/orders", body.clone()).await.data(201);
    pass().await;
    node.operator("POST", &format!("/wallets/{beside}/fund"), json!({"amount": "5.00", "reference": "beside"})).await.data(201);
    pass().await;
    node.client(&setup.client, "POST", &format!("/orders/{}/cancel", order["id"]), Value::Null).await.data(200);
    pass().await;
    let fee = json!({"type": "DEBIT", "amount": "0.75", "reason": "a fee"});
    node.operator("POST", &format!("/wallets/{}/adjust", setup.wallet_id), fee).await.data(201);
    pass().await;
    let funding = json!({"amount": "7.00", "reference": "=HYPERLINK(\"http://x\"), \"quoted\""});
    node.operator("POST", &format!("/wallets/{}/fund", setup.wallet_id), funding).await.data(201);
    pass().await;
    node.client(&setup.client, "POST", "/orders", body).await.data(201);
    setup
}

#[tokio::test]
async fn a_statement_leads_from_the_opening_to_the_closing_balance() {
    let node = Node::start().await;
    let setup = movements(&node).await;
    let (client, wallet) = (&setup.client, setup.wallet_id);
    let whole = statement(&node, client, wallet, "").await;
    let list = node.client(client, "GET", &format!("/transactions?wallet_id={wallet}&limit=100"), Value::Null).await.data(200);
    let mut listed = list["transactions"].as_array().unwrap().clone();
    listed.reverse();
    let expected = json!({
        "wallet_id": wallet, "currency": "EUR", "from": null, "to": null, "opening_balance": "0.00", "transactions": listed,
        "total_credits": "1007.00", "total_debits": "40.75", "total_refunds": "20.00", "closing_balance": "986.25",
    });
    assert_eq!(whole, expected);
    let of = |n: usize| listed[n]["created_at"].as_str().unwrap();
    // `from` is inclusive, `to` is exclusive.
    for (first, end) in [(0, 0), (0, 1), (1, 3), (2, 5), (3, 3), (4, 5)] {
        let part = statement(&node, client, wallet, &format!("?from={}&to={}", of(first), of(end))).await;
        let inside = &listed[first..end];
        assert_eq!(part["transactions"], json!(inside));
        let before = |n: usize| if n == 0 { json!("0.00") } else { listed[n - 1]["balance_after"].clone() };
        assert_eq!((&part["opening_balance"], &part["closing_balance"]), (&before(first), &before(end)), "{first} {end}");
        assert_eq!((part["from"].as_str(), part["to"].as_str()), (Some(of(first)), Some(of(end))));
    }
    let later = statement(&node, client, wallet, "?from=2999-01-01T00:00:00Z").await;
    assert_eq!((&later["opening_balance"], &later["closing_balance"]), (&json!("986.25"), &json!("986.25")));
    let earlier = statement(&node, client, wallet, "?to=2001-01-01T00:00:00Z").await;
    assert_eq!((&earlier["closing_balance"], &earlier["transactions"]), (&json!("0.00"), &json!([])));

    let path = format!("/wallets/{wallet}/statement");
    let turned = format!("{path}?from={}&to={}", of(2), of(1));
    let error = node.client(client, "GET", &turned, Value::Null).await.refused(400, "E_VALIDATION_FAILURE");
    assert!(error["messages"]["to"].is_array(), "{error}");
    node.client(client, "GET", &format!("{path}?from=yesterday"), Value::Null).await.refused(400, "E_VALIDATION_FAILURE");
    let stranger = node.account("Stranger").await;
    node.client(&stranger, "GET", &path, Value::Null).await.refused(404, "E_NOT_FOUND");
    node.client(client, "GET", "/wallets/999999/statement", Value::Null).await.refused(404, "E_NOT_FOUND");
    let empty = node.operator("POST", &format!("/accounts/{}/wallets", stranger.account_id), json!({"currency": "EUR"})).await;
    let empty = statement(&node, &stranger, empty.data(201)["id"].as_i64().unwrap(), "").await;
    assert_eq!(
        (&empty["opening_balance"], &empty["closing_balance"], &empty["transactions"]),
        (&json!("0.00"), &json!("0.00"), &json!([]))
    );
}

/// A returned payout is a refund, like the refund of a cancelled order.
#[tokio::test]
async fn payouts_and_their_refunds_appear_in_a_statement() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let (client, wallet) = (&setup.client, setup.wallet_id);
    let ada =
        json!({"name": "Ada", "type": "BANK", "country": "DE", "currency": "EUR", "account_number": "DE89370400440532013000"});
    let ada = node.client(client, "POST", "/beneficiaries", ada).await.data(201)["id"].clone();
    let request = async |amount: &str| {
        let payout = json!({"beneficiary_id": ada, "wallet_id": wallet, "amount": amount});
        node.client(client, "POST", "/payouts", payout).await.data(201)["id"].clone()
    };
    let (cancelled, failed) = (request("30.00").await, request("5.50").await);
    request("100.00").await;
    node.client(client, "POST", &format!("/payouts/{cancelled}/cancel"), Value::Null).await.data(200);
    let failure = json!({"status": "FAILED", "failure_reason": "closed"});
    node.operator("PUT", &format!("/payouts/{failed}"), failure).await.data(200);
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 2});
    let order = node.client(client, "POST", "/orders", order).await.data(201)["id"].clone();
    node.client(client, "POST", &format!("/orders/{order}/cancel"), Value::Null).await.data(200);

    let mut whole = statement(&node, client, wallet, "").await;
    let movements = whole["transactions"].take();
    let seen: Vec<_> =
        movements.as_array().unwrap().iter().map(|m| [&m["category"], &m["amount"]].map(|v| v.as_str().unwrap())).collect();
    let expected = [
        ["FUNDING", "1000.00"],
        ["PAYOUT", "30.00"],
        ["PAYOUT", "5.50"],
        ["PAYOUT", "100.00"],
        ["PAYOUT_REFUND", "30.00"],
        ["PAYOUT_REFUND", "5.50"],
        ["ORDER", "20.00"],
        ["ORDER_REFUND", "20.00"],
    ];
    assert_eq!(seen, expected);
    for (field, amount) in
        [("total_credits", "1000.00"), ("total_debits", "155.50"), ("total_refunds", "55.50"), ("closing_balance", "900.00")]
    {
        assert_eq!(whole[field], amount, "{field}: {whole}");
    }
    // The stored daily totals give the same sums.
    node.project().await;
    let mut totals = statement(&node, client, wallet, "?totals_only=true").await;
    totals["transactions"].take();
    assert_eq!(totals, whole);
    let path = format!("/wallets/{wallet}/statement");
    let csv = node.send(node.by(client, "GET", &path).header("Accept", "text/csv")).await;
    let line = csv.text.lines().find(|line| line.contains("TOTAL_REFUNDS")).unwrap();
    assert!(line.contains("55.50"), "{line}");
}

#[tokio::test]
async fn a_statement_is_csv_on_request() {
    let node = Node::start().await;
    let setup = movements(&node).await;
    let path = format!("/wallets/{}/statement", setup.wallet_id);
    let answer = node.send(node.by(&setup.client, "GET", &path).header("Accept", "text/csv")).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, "text/csv; charset=utf-8; header=present"));
    let name = format!("attachment; filename=\"statement-{}.csv\"", setup.wallet_id);
    assert_eq!((answer.header("content-disposition"), answer.header("vary")), (&*name, "Accept"));
    assert_eq!(answer.text.matches('\n').count(), answer.text.matches("\r\n").count(), "RFC 4180 ends lines with CR LF");

    let mut reader = csv::Reader::from_reader(answer.text.as_bytes());
    let names = reader.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
    let cell = |row: &csv::StringRecord, name: &str| row[names.iter().position(|n| n == name).unwrap()].to_owned();
    let records: Vec<String> = rows.iter().map(|row| cell(row, "record")).collect();
    let sums = ["TOTAL_CREDITS", "TOTAL_DEBITS", "TOTAL_REFUNDS", "CLOSING_BALANCE"].map(str::to_owned);
    assert_eq!(records[0], "OPENING_BALANCE");
    assert_eq!(records[records.len() - 4..], sums);
    let json = statement(&node, &setup.client, setup.wallet_id, "").await;
    assert_eq!(cell(&rows[0], "balance_after"), json["opening_balance"].as_str().unwrap());
    assert_eq!(cell(&rows[rows.len() - 4], "amount"), json["total_credits"].as_str().unwrap());
    assert_eq!(cell(&rows[rows.len() - 1], "balance_after"), json["closing_balance"].as_str().unwrap());
    let movements = &rows[1..rows.len() - 4];
    let expected = json["transactions"].as_array().unwrap();
    assert_eq!(movements.len(), expected.len());
    for (row, movement) in movements.iter().zip(expected) {
        assert_eq!(cell(row, "record"), "MOVEMENT");
        for name in ["id", "created_at", "type", "category", "amount", "balance_after", "currency", "order_id", "reference"] {
            let shown = match &movement[name] {
                Value::Null => String::new(),
                Value::String(text) if text.starts_with('=') => format!("'{text}"),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            assert_eq!(cell(row, name), shown, "{name}");
        }
    }
    assert!(movements.iter().any(|row| cell(row, "reference").starts_with("'=HYPERLINK(\"http://x\"),")), "{}", answer.text);

    let wish = node.by(&setup.client, "GET", &path).header("Accept", "text/csv;q=0.5, application/json");
    assert_eq!(node.send(wish).await.header("content-type"), "application/json");
}

/// For any history, and any cuts in it: opening + credits + refunds − debits = closing. The closing balance of each
/// part is the opening balance of the next one.
#[tokio::test]
async fn every_statement_adds_up() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let (client, wallet) = (&setup.client, setup.wallet_id);
    let mut runner = TestRunner::default();
    let steps = prop::collection::vec((0u8..4, 1i64..30_000), 25).new_tree(&mut runner).unwrap().current();
    let mut open = Vec::new();
    for (n, (kind, cents)) in steps.iter().enumerate() {
        let amount = format!("{}.{:02}", cents / 100, cents % 100);
        match kind {
            0 => {
                let funding = json!({"amount": amount, "reference": format!("step {n}")});
                node.operator("POST", &format!("/wallets/{wallet}/fund"), funding).await.data(201);
            }
            1 => {
                let body = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1 + cents % 5});
                let placed = node.client(client, "POST", "/orders", body).await;
                open.extend((placed.status == 201).then(|| placed.data(201)["id"].clone()));
            }
            2 => {
                if let Some(order) = open.pop() {
                    node.client(client, "POST", &format!("/orders/{order}/cancel"), Value::Null).await.data(200);
                }
            }
            _ => {
                let fee = json!({"type": "DEBIT", "amount": amount, "reason": "a fee"});
                node.operator("POST", &format!("/wallets/{wallet}/adjust"), fee).await;
            }
        }
    }
    let whole = statement(&node, client, wallet, "").await;
    let without = |statement: &Value| {
        let mut statement = statement.clone();
        statement["transactions"] = json!([]);
        statement
    };
    assert_eq!(statement(&node, client, wallet, "?totals_only=true").await, without(&whole), "no day is projected yet");
    node.project().await;
    assert_eq!(statement(&node, client, wallet, "?totals_only=true").await, without(&whole));
    let movements = whole["transactions"].as_array().unwrap();
    let mut cuts: Vec<DateTime<Utc>> = movements.iter().map(|m| m["created_at"].as_str().unwrap().parse().unwrap()).collect();
    cuts.dedup();
    cuts.push("2999-01-01T00:00:00Z".parse().unwrap());
    let mut opening = Money::ZERO;
    let mut seen = Vec::new();
    let from_to = |from: &DateTime<Utc>, to: &DateTime<Utc>| {
        let text = |time: &DateTime<Utc>| time.to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
        format!("?from={}&to={}", text(from), text(to))
    };
    let strides = prop::collection::vec(1usize..6, 30).new_tree(&mut runner).unwrap().current();
    let mut at = 0;
    for stride in strides {
        let end = (at + stride).min(cuts.len() - 1);
        if at == end {
            break;
        }
        let part = statement(&node, client, wallet, &from_to(&cuts[at], &cuts[end])).await;
        let totals = statement(&node, client, wallet, &format!("{}&totals_only=true", from_to(&cuts[at], &cuts[end]))).await;
        assert_eq!(totals, without(&part));
        let movements = part["transactions"].as_array().unwrap();
        let of = |direction: &str, is_refund: bool| {
            sum(movements.iter().filter(|m| m["type"] == direction && (m["category"] == "ORDER_REFUND") == is_refund))
        };
        let (credits, refunds, debits) = (of("CREDIT", false), of("CREDIT", true), of("DEBIT", false));
        assert_eq!(money(&part["opening_balance"]), opening);
        assert_eq!(money(&part["total_credits"]), credits);
        assert_eq!(money(&part["total_refunds"]), refunds);
        assert_eq!(money(&part["total_debits"]), debits);
        let closing = opening.checked_add(credits).unwrap().checked_add(refunds).unwrap().checked_sub(debits).unwrap();
        assert_eq!(money(&part["closing_balance"]), closing, "{part}");
        opening = closing;
        seen.extend(movements.clone());
        at = end;
    }
    assert_eq!(&seen, movements);
    assert_eq!(whole["closing_balance"], json!(opening.to_string()));
}

/// The movements fill more than one page. No movement is lost or duplicated between pages, in either format.
#[tokio::test]
async fn a_long_statement_comes_whole() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let mut cheap = product("Cheap");
    cheap["denominations"] = json!(["0.01"]);
    let id = node.operator("POST", "/products", cheap).await.data(201)["id"].clone();
    let body = json!({"product_id": id, "denomination": 0.01, "quantity": 1});
    let place = || async { node.client(&setup.client, "POST", "/orders", body.clone()).await.data(201) };
    for _ in 0..20 {
        futures::future::join_all((0..105).map(|_| place())).await;
    }
    let whole = statement(&node, &setup.client, setup.wallet_id, "").await;
    let movements = whole["transactions"].as_array().unwrap();
    assert_eq!(movements.len(), 2_101);
    assert!(movements.windows(2).all(|pair| {
        let after = money(&pair[0]["balance_after"]).checked_sub(money(&pair[1]["amount"])).unwrap();
        after == money(&pair[1]["balance_after"])
    }));
    assert_eq!((&whole["total_debits"], &whole["closing_balance"]), (&json!("21.00"), &json!("979.00")));
    let path = format!("/wallets/{}/statement", setup.wallet_id);
    let csv = node.send(node.by(&setup.client, "GET", &path).header("Accept", "text/csv")).await;
    assert_eq!(csv.text.lines().count(), 1 + 1 + 2_101 + 4);
}

#[tokio::test]
async fn movements_are_found_by_each_of_their_fields() {
    let node = Node::start().await;
    let setup = movements(&node).await;
    let client = &setup.client;
    let all =
        node.client(client, "GET", "/transactions", Value::Null).await.data(200)["transactions"].as_array().unwrap().clone();
    assert_eq!(all.len(), 7);
    for (query, matches) in [
        ("type=DEBIT", Box::new(|m: &Value| m["type"] == "DEBIT") as Box<dyn Fn(&Value) -> bool>),
        ("category=ORDER_REFUND", Box::new(|m| m["category"] == "ORDER_REFUND")),
        ("category=ADJUSTMENT", Box::new(|m| m["category"] == "ADJUSTMENT")),
        ("amount=20", Box::new(|m| m["amount"] == "20.00")),
        ("amount=0.75", Box::new(|m| m["amount"] == "0.75")),
        ("balance_after=1000.00", Box::new(|m| m["balance_after"] == "1000.00")),
        ("currency=USD", Box::new(|m| m["currency"] == "USD")),
        ("order_id=1", Box::new(|m| m["order_id"] == 1)),
        ("reference=beside", Box::new(|m| m["reference"] == "beside")),
        ("type=CREDIT&currency=EUR", Box::new(|m| m["type"] == "CREDIT" && m["currency"] == "EUR")),
    ] {
        let page = node.client(client, "GET", &format!("/transactions?{query}"), Value::Null).await;
        let expected: Vec<&Value> = all.iter().filter(|movement| matches(movement)).collect();
        assert_eq!(page.header("x-total-count"), expected.len().to_string(), "{query}");
        assert_eq!(page.data(200)["transactions"], json!(expected), "{query}");
    }
    for (query, field) in
        [("amount=x", "amount"), ("balance_after=1.001", "balance_after"), ("type=BOTH", "type"), ("category=X", "category")]
    {
        let answer = node.client(client, "GET", &format!("/transactions?{query}"), Value::Null).await;
        assert!(answer.refused(400, "E_VALIDATION_FAILURE")["messages"][field].is_array(), "{query}");
    }
}

#[tokio::test]
async fn dates_cut_between_two_movements() {
    let node = Node::start().await;
    let setup = movements(&node).await;
    let found = async |query: &str| {
        let page = node.client(&setup.client, "GET", &format!("/transactions?{query}"), Value::Null).await;
        let movements = page.data(200)["transactions"].as_array().unwrap().clone();
        assert_eq!(page.header("x-total-count"), movements.len().to_string(), "{query}");
        movements
    };
    let all = found("").await;
    let times: Vec<&str> = all.iter().map(|movement| movement["created_at"].as_str().unwrap()).collect();
    assert!(
        times.len() == 7 && times.windows(2).all(|pair| pair[0] > pair[1]),
        "newest first, each at a distinct time: {times:?}"
    );
    for (n, time) in times.iter().enumerate() {
        // `from` is inclusive, `to` is exclusive.
        assert_eq!(found(&format!("created_from={time}")).await, all[..=n], "from {n}");
        assert_eq!(found(&format!("created_to={time}")).await, all[n + 1..], "to {n}");
        let later = time.parse::<DateTime<Utc>>().unwrap() + TimeDelta::milliseconds(1);
        let later = later.to_rfc3339_opts(SecondsFormat::Millis, true);
        assert_eq!(found(&format!("created_from={later}")).await, all[..n], "from just after {n}");
        assert_eq!(found(&format!("created_to={later}")).await, all[n..], "to just after {n}");
        for (first, from) in times.iter().enumerate() {
            let between = if first > n { &all[n + 1..=first] } else { &[] };
            assert_eq!(found(&format!("created_from={from}&created_to={time}")).await, between, "from {first} to {n}");
        }
    }
}
