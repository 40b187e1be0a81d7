//! Filters of the console's lists of orders, products, approvals, deliveries by state, vouchers, bank lines and wallets.

use std::collections::BTreeSet;

use chrono::{Days, Utc};
use ledger_events::order::OrderStatus;
use rewards_ledger::access::Role;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use super::filters::{catalogue, choices, day, form, keeps, make_earlier, narrows, offers, read};
use super::place;
use crate::support::node::{Node, Setup};

#[tokio::test(flavor = "multi_thread")]
async fn each_filter_of_the_consoles_orders_is_offered_and_narrows_the_list() {
    let node = Node::start().await;
    let (first, second) = (node.setup().await, node.setup().await);
    let auditor = node.console_user(Role::Auditor).await;
    let mut orders = vec![];
    for (setup, product, reference) in [
        (&first, first.product_id, "first"),
        (&first, second.product_id, "second"),
        (&second, second.product_id, "second"),
        (&second, first.product_id, "third"),
    ] {
        let order = json!({"product_id": product, "denomination": 10, "quantity": 1, "client_reference": reference});
        orders.push(node.client(&setup.client, "POST", "/orders", order).await.data(201));
    }
    let ids: Vec<i64> = orders.iter().map(|order| order["id"].as_i64().unwrap()).collect();
    node.client(&second.client, "POST", &format!("/orders/{}/cancel", ids[3]), json!({})).await.data(200);
    make_earlier(&node, "orders", "created_at", ids[0]).await;

    let path = "/console/orders";
    let names = ["account_id", "status", "product_id", "reference_code", "client_reference", "from", "to", "zone"];
    let page = offers(&node, &auditor.cookie, path, &names).await;
    let statuses: BTreeSet<String> = choices(form(&page), "status").into_iter().collect();
    let expected = [""].into_iter().chain(OrderStatus::ALL.map(OrderStatus::as_str));
    assert_eq!(statuses, expected.map(str::to_owned).collect::<BTreeSet<_>>());

    let (one, other) = (first.client.account_id, second.client.account_id);
    let tomorrow = Utc::now().date_naive().checked_add_days(Days::new(1)).unwrap();
    for (query, shown) in [
        ("status=".to_owned(), ids.clone()),
        ("status=PENDING".to_owned(), vec![ids[0], ids[1], ids[2]]),
        ("status=CANCELLED".to_owned(), vec![ids[3]]),
        (format!("account_id={one}"), vec![ids[0], ids[1]]),
        (format!("account_id={}", one + other + 1_000), vec![]),
        (format!("account_id={other}&status=PENDING"), vec![ids[2]]),
        (format!("product_id={}", second.product_id), vec![ids[1], ids[2]]),
        (format!("product_id={}&status=CANCELLED", second.product_id), vec![]),
        (format!("account_id={other}&product_id={}", first.product_id), vec![ids[3]]),
        (format!("reference_code={}", orders[2]["reference_code"].as_str().unwrap()), vec![ids[2]]),
        // Each account has its own references.
        ("client_reference=second".to_owned(), vec![ids[1], ids[2]]),
        (format!("account_id={other}&client_reference=second"), vec![ids[2]]),
        (format!("account_id={one}&from={}", day(5)), vec![ids[1]]),
        (format!("account_id={one}&to={}", day(5)), vec![ids[0]]),
        (format!("account_id={one}&from={}&to={}", day(11), day(9)), vec![ids[0]]),
        // The list of all accounts finds a period by the times in the log, in which no order is earlier.
        (format!("from={}", day(20)), ids.clone()),
        (format!("from={tomorrow}"), vec![]),
        (format!("to={tomorrow}"), ids.clone()),
        (format!("to={}", day(20)), vec![]),
        (format!("status=CANCELLED&from={}&to={tomorrow}", day(20)), vec![ids[3]]),
    ] {
        narrows(&node, &auditor.cookie, path, &query, path, &ids, &shown).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_filter_of_the_consoles_products_is_offered_and_narrows_the_list() {
    let node = Node::start().await;
    let auditor = node.console_user(Role::Auditor).await;
    let (ids, category) = catalogue(&node).await;

    let path = "/console/products";
    let page = offers(&node, &auditor.cookie, path, &["search", "category_id", "country", "currency", "is_active"]).await;
    assert_eq!(choices(form(&page), "category_id"), [String::new(), category.to_string()]);
    for (query, shown) in [
        ("is_active=".to_owned(), ids.clone()),
        ("is_active=true".to_owned(), vec![ids[0], ids[1], ids[2]]),
        ("is_active=false".to_owned(), vec![ids[3]]),
        ("search=third".to_owned(), vec![ids[2]]),
        ("search=zenith".to_owned(), vec![ids[1]]),
        ("country=US".to_owned(), vec![ids[1]]),
        ("currency=USD".to_owned(), vec![ids[1], ids[3]]),
        (format!("category_id={category}"), vec![ids[2], ids[3]]),
        (format!("category_id={category}&currency=USD&is_active=false"), vec![ids[3]]),
        (format!("category_id={category}&country=US"), vec![]),
    ] {
        narrows(&node, &auditor.cookie, path, &query, path, &ids, &shown).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_filter_of_the_approvals_is_offered_and_narrows_the_list() {
    let node = Node::supervised("EUR=2000").await;
    let setup = node.setup().await;
    let other = node.setup().await;
    let (auditor, token) = (node.console_user(Role::Auditor).await, node.token(Role::Finance).await);
    let mut ids = vec![];
    for (wallet, reference) in [(setup.wallet_id, "first"), (other.wallet_id, "second"), (setup.wallet_id, "third")] {
        let funding = json!({"amount": "2500.00", "reference": reference});
        let answer = node.operator_with(&token, "POST", &format!("/wallets/{wallet}/fund"), funding).await;
        ids.push(answer.data(202)["id"].as_i64().unwrap());
    }
    node.operator_with(&token, "POST", &format!("/approvals/{}/withdraw", ids[2]), Value::Null).await.data(200);
    let funding = json!({"amount": "1900.00", "reference": "fourth"});
    node.operator("POST", &format!("/wallets/{}/fund", setup.wallet_id), funding).await.data(201);
    let ada =
        json!({"name": "Ada", "type": "BANK", "country": "DE", "currency": "EUR", "account_number": "DE89370400440532013000"});
    let ada = node.client(&setup.client, "POST", "/beneficiaries", ada).await.data(201);
    let payout = json!({"beneficiary_id": ada["id"], "wallet_id": setup.wallet_id, "amount": "2500.00"});
    let payout = node.client(&setup.client, "POST", "/payouts", payout).await.data(201)["id"].as_i64().unwrap();
    let settled = node.operator_with(&token, "PUT", &format!("/payouts/{payout}"), json!({"status": "PAID"})).await;
    ids.push(settled.data(202)["id"].as_i64().unwrap());

    let path = "/console/approvals";
    offers(&node, &auditor.cookie, path, &["status", "wallet_id", "payout_id"]).await;
    for (query, shown) in [
        ("status=PENDING".to_owned(), vec![ids[0], ids[1], ids[3]]),
        ("status=WITHDRAWN".to_owned(), vec![ids[2]]),
        ("status=ALL".to_owned(), ids.clone()),
        (format!("wallet_id={}", other.wallet_id), vec![ids[1]]),
        (format!("status=ALL&wallet_id={}", setup.wallet_id), vec![ids[0], ids[2], ids[3]]),
        (format!("payout_id={payout}"), vec![ids[3]]),
        (format!("payout_id={payout}&wallet_id={}", other.wallet_id), vec![]),
        (format!("status=ALL&payout_id={}", payout + 1_000), vec![]),
    ] {
        narrows(&node, &auditor.cookie, path, &query, path, &ids, &shown).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_filters_of_states_vouchers_bank_lines_and_reconciled_wallets_narrow_their_lists() {
    let node = Node::start().await;
    let setups = [node.setup().await, node.setup().await];
    let auditor = node.console_user(Role::Auditor).await;
    deliveries_by_state(&node, &auditor.cookie, &setups).await;
    vouchers_of_a_product(&node, &auditor.cookie, &setups[0]).await;
    lines_of_a_bank_statement(&node, &auditor.cookie, &setups).await;
    wallets_of_a_reconciliation(&node, &auditor.cookie, &setups).await;
}

/// Checks the filters of the deliveries by state: of all webhooks, and of one.
async fn deliveries_by_state(node: &Node, cookie: &str, setups: &[Setup; 2]) {
    let mut webhooks = vec![];
    for setup in setups {
        let hook = json!({"name": "a", "url": "https://example.com/hook", "events": ["order.created"]});
        webhooks.push(node.client(&setup.client, "POST", "/webhooks", hook).await.json()["id"].clone());
    }
    for _ in 0..6 {
        place(node, &setups[0]).await;
    }
    place(node, &setups[1]).await;
    node.project().await;
    let ids = "SELECT id FROM deliveries ORDER BY id";
    let ids: Vec<i64> = sqlx::query_scalar(ids).fetch_all(node.ledger.pool()).await.unwrap();
    assert_eq!(ids.len(), 7);
    let states = [
        "attempt_count = 1, next_attempt_at = now() + interval '1 h'",
        "leased_until = now() + interval '1 h'",
        "leased_until = now() - interval '1 s', next_attempt_at = now() + interval '1 h'",
        "status = 'failed'",
        "status = 'failed', next_attempt_at = now() - interval '25 h'",
    ];
    // The first delivery and the last one stay due.
    for (id, state) in ids[1..].iter().zip(states) {
        let change = format!("UPDATE delivery_state SET {state} WHERE delivery_id = {id}");
        sqlx::raw_sql(AssertSqlSafe(change)).execute(node.ledger.pool()).await.unwrap();
    }

    let (all, of_one) = ("/console/queue", format!("/console/webhooks/{}/queue", webhooks[0]));
    let parts = ["due", "retries", "in_flight", "without_outcome", "failed", "failed_lately"];
    let page = offers(node, cookie, all, &["part", "shard_id"]).await;
    assert_eq!(choices(form(&page), "part"), parts);
    offers(node, cookie, &of_one, &["part"]).await;
    let of_webhook = [&ids[..1], &ids[1..2], &ids[2..3], &ids[3..4], &ids[4..6], &ids[4..5]];
    for (part, of_webhook) in parts.into_iter().zip(of_webhook) {
        let entries = "/console/deliveries";
        narrows(node, cookie, &of_one, &format!("part={part}"), entries, &ids, of_webhook).await;
        let of_other: &[i64] = if part == "due" { &ids[6..] } else { &[] };
        let of_both = [of_webhook, of_other].concat();
        for shard in ["", "&shard_id=1"] {
            narrows(node, cookie, all, &format!("part={part}{shard}"), entries, &ids, &of_both).await;
        }
    }
}

/// Checks that a list with a query shows exactly these of all texts, and that its form keeps the query.
async fn shows(node: &Node, cookie: &str, path: &str, query: &str, all: &[&str], shown: &[&str]) {
    let page = read(node, cookie, &format!("{path}?{query}")).await;
    let found: Vec<&str> = all.iter().copied().filter(|text| page.contains(*text)).collect();
    assert_eq!(found, shown, "{path}?{query}: {page}");
    keeps(&page, query);
}

async fn vouchers_of_a_product(node: &Node, cookie: &str, setup: &Setup) {
    let stock = format!("/products/{}/vouchers", setup.product_id);
    for (denomination, references) in [("10.00", &["VCH-A", "VCH-B"][..]), ("25.00", &["VCH-C"])] {
        let voucher = |reference: &&str| json!({"card_number": reference, "voucher_reference_number": reference});
        let vouchers: Vec<Value> = references.iter().map(voucher).collect();
        node.operator("POST", &stock, json!({"denomination": denomination, "vouchers": vouchers})).await.data(200);
    }
    let void = json!({"vouchers": ["VCH-B"], "reason": "stolen"});
    node.operator("POST", &format!("{stock}/void"), void).await.data(200);
    let path = format!("/console/products/{}/stock/vouchers", setup.product_id);
    let page = offers(node, cookie, &path, &["denomination", "status"]).await;
    assert_eq!(choices(form(&page), "status"), ["", "AVAILABLE", "ALLOCATED", "EXPIRED", "VOIDED"]);
    for (query, shown) in [
        ("status=", &["VCH-A", "VCH-B", "VCH-C"][..]),
        ("status=AVAILABLE", &["VCH-A", "VCH-C"]),
        ("status=VOIDED", &["VCH-B"]),
        ("status=EXPIRED", &[]),
        ("denomination=25", &["VCH-C"]),
        ("denomination=10.00", &["VCH-A", "VCH-B"]),
        ("denomination=10.00&status=AVAILABLE", &["VCH-A"]),
    ] {
        shows(node, cookie, &path, query, &["VCH-A", "VCH-B", "VCH-C"], shown).await;
    }
}

async fn lines_of_a_bank_statement(node: &Node, cookie: &str, setups: &[Setup; 2]) {
    let [first, second] = setups.each_ref().map(|setup| format!("EUR,opening of {}", setup.wallet_id));
    let csv = format!("date,amount,currency,reference\n{},1000.00,{first}\n{},1000.40,{second}\n", day(0), day(8));
    let import = node.by_operator("POST", "/reconciliation/statements").header("Content-Type", "text/csv").body(csv);
    let path = format!("/console/bank-statements/{}", node.send(import).await.data(201)["id"]);
    offers(node, cookie, &path, &["status", "days", "amount"]).await;
    let (first, second) = (">Line 1</a>", ">Line 2</a>");
    for (query, shown) in [
        ("status=", &[first, second][..]),
        ("status=MATCHED", &[first]),
        // The reference is right, but the day and the amount are not.
        ("status=AMBIGUOUS", &[second]),
        ("status=AMBIGUOUS&days=8", &[second]),
        ("status=AMBIGUOUS&amount=0.50", &[second]),
        ("status=MATCHED&days=8&amount=0.50", &[first, second]),
        ("status=AMBIGUOUS&days=8&amount=0.50", &[]),
    ] {
        shows(node, cookie, &path, query, &[first, second], shown).await;
    }
}

async fn wallets_of_a_reconciliation(node: &Node, cookie: &str, setups: &[Setup; 2]) {
    let path = "/console/reconciliation";
    offers(node, cookie, path, &["from", "to", "account_id"]).await;
    let wallets = setups.each_ref().map(|setup| format!(">Wallet {}</a>", setup.wallet_id));
    let [first, second] = wallets.each_ref().map(String::as_str);
    let accounts = setups.each_ref().map(|setup| format!("account_id={}", setup.client.account_id));
    for (query, shown) in [("account_id=", &[first, second][..]), (&*accounts[0], &[first]), (&*accounts[1], &[second])] {
        shows(node, cookie, path, query, &[first, second], shown).await;
    }
}
