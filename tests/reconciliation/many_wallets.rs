//! A ledger with more wallets than a report lists.

use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::support::node::Node;

/// However many wallets there are, the API returns their sums and the number of wallets that it does not list.
#[tokio::test(flavor = "multi_thread")]
async fn with_many_wallets_the_api_lists_the_first_and_sums_all() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let first = 1_000_000;
    let wallets = |count: i64| {
        format!(
            "INSERT INTO wallets SELECT 1, n, 1, n, 'EUR', 0, '2026-01-01', '2026-01-01'
             FROM generate_series({first}, {first} - 1 + {count}) AS n ON CONFLICT DO NOTHING"
        )
    };
    let mut admin = node.options.connect().await.unwrap();
    let report = async |query: &str| node.operator("GET", &format!("/reconciliation{query}"), Value::Null).await.data(200);
    for (more, left_out) in [(9_999, 0), (10_001, 2)] {
        sqlx::raw_sql(AssertSqlSafe(wallets(more))).execute(&mut admin).await.unwrap();
        let report = report("").await;
        assert_eq!((&report["wallets_left_out"], &report["found"]), (&json!(left_out), &json!(0)));
        let listed: Vec<i64> = report["wallets"].as_array().unwrap().iter().map(|w| w["wallet_id"].as_i64().unwrap()).collect();
        let expected: Vec<i64> = [setup.wallet_id].into_iter().chain(first..first + 9_999).collect();
        assert_eq!(listed, expected);
        assert_eq!(report["currencies"][0]["wallets"], more + 1);
    }
    // A wallet that is not listed still counts, and its faults are reported.
    let last = first + 10_000;
    let moved = format!(
        "UPDATE wallets SET balance = 7 WHERE id = {last};
         INSERT INTO wallet_transactions SELECT shard_id, id + 1000000, position, {last}, {last}, type, category, 5, 5, currency, order_id, 'r', created_at
         FROM wallet_transactions WHERE wallet_id = {}",
        setup.wallet_id
    );
    sqlx::raw_sql(AssertSqlSafe(moved)).execute(&mut admin).await.unwrap();
    let told = report("").await;
    let of_all = &told["currencies"][0];
    assert_eq!((&of_all["funding"], &of_all["closing_balance"]), (&json!("1005.00"), &json!("1005.00")), "{of_all}");
    assert_eq!((&told["days"][0]["funding"], &told["wallets_left_out"]), (&json!("1005.00"), &json!(2)));
    let balance = told["differences"].as_array().unwrap().iter().find(|found| found["kind"] == "WALLET_BALANCE").unwrap();
    assert_eq!(balance["wallet_id"], last);
    let csv = node.send(node.by_operator("GET", "/reconciliation").header("Accept", "text/csv")).await;
    assert_eq!(super::cells(&csv.text, "REPORT", "wallets_left_out"), ["2"]);
    assert_eq!(super::cells(&csv.text, "CURRENCY", "wallets"), ["10002"]);
    let (position, as_of) = (|name| super::cells(&csv.text, "AS_OF", name), &told["as_of"][0]);
    assert_eq!([position("head"), position("projected")], ["head", "projected"].map(|name| vec![as_of[name].to_string()]));
    assert_eq!(csv.text.lines().filter(|line| line.starts_with("WALLET,")).count(), 10_000);
    let own = report(&format!("?account_id={}", setup.client.account_id)).await;
    assert_eq!((&own["wallets"][0]["wallet_id"], &own["wallets_left_out"]), (&json!(setup.wallet_id), &json!(0)));
}
