//! The voucher stock as a ledger: loads with their cost, allocations, voids, expiries and transfers, by currency and by day.

use chrono::{NaiveDate, Utc};
use rewards_ledger::audit::{Rebuild, rebuild, verify};
use rewards_ledger::fulfilment::expiry;
use rewards_ledger::ledger::FIRST_SHARD;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::cells;
use crate::support::ledger;
use crate::support::node::{Node, Setup};

/// Returns a lot: number of vouchers, number of those without a known cost, and cost.
fn lot(vouchers: i64, unpriced: i64, cost: &str) -> Value {
    json!({"vouchers": vouchers, "unpriced": unpriced, "cost": cost})
}

async fn load(node: &Node, setup: &Setup, load: Value) -> Value {
    node.operator("POST", &format!("/products/{}/vouchers", setup.product_id), load).await.data(200)
}

async fn order(node: &Node, setup: &Setup, quantity: i64) -> i64 {
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": quantity});
    let id = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap();
    node.fulfil(id).await;
    id
}

async fn report(node: &Node, query: &str) -> Value {
    node.project().await;
    node.operator("GET", &format!("/reconciliation{query}"), Value::Null).await.data(200)
}

/// Loads three vouchers without a cost and five with one, sells four, voids one and lets one expire. Leaves an order that waits
/// for one more voucher than there are.
async fn traded() -> (Node, Setup) {
    let node = Node::start().await;
    let setup = node.setup().await; // loads three vouchers
    let voucher = |name: &str| json!({"card_number": name, "voucher_reference_number": name});
    let late = json!({"card_number": "late", "voucher_reference_number": "late", "expires_on": "2001-01-01"});
    let vouchers = json!([voucher("a"), late, voucher("b"), voucher("c"), voucher("d"), voucher("a")]);
    let priced = json!({"denomination": "10.00", "cost": "9.25", "supplier_reference": "INV 7", "vouchers": vouchers});
    assert_eq!(load(&node, &setup, priced).await["accepted"], 5);
    assert_eq!(expiry::step(&node.ledger, FIRST_SHARD).await.unwrap(), 0, "no voucher with a cost is known yet");
    node.project().await;
    assert_eq!(expiry::step(&node.ledger, FIRST_SHARD).await.unwrap(), 1);
    assert_eq!(expiry::step(&node.ledger, FIRST_SHARD).await.unwrap(), 0, "an expiry is recorded once");
    order(&node, &setup, 4).await;
    let void = json!({"vouchers": ["c", "late"], "reason": "stolen"});
    let voided = node.operator("POST", &format!("/products/{}/vouchers/void", setup.product_id), void).await.data(200);
    assert_eq!((&voided["voided"], &voided["refused"][0]["reason"]), (&json!(1), &json!("has expired")));
    order(&node, &setup, 3).await;
    (node, setup)
}

#[tokio::test]
async fn the_stock_adds_up_by_day_and_its_margin_follows_from_the_costs_of_loads() {
    let began = Utc::now().date_naive();
    let (node, setup) = traded().await;
    let found = report(&node, "").await;
    let expected = json!({
        "currency": "EUR", "opening": lot(0, 0, "0.00"), "loaded": lot(8, 3, "46.25"), "allocated": lot(6, 3, "27.75"),
        "voided": lot(1, 0, "9.25"), "expired": lot(1, 0, "9.25"), "closing": lot(0, 0, "0.00"), "transferred": lot(0, 0, "0.00"),
        "sales": "60.00", "margin": "32.25",
    });
    assert_eq!(found["stock"], json!([expected]));
    // All movements are of today, or of two days around midnight.
    let days = found["stock_days"].as_array().unwrap();
    for (lot, vouchers) in [("loaded", 8), ("allocated", 6), ("voided", 1), ("expired", 1)] {
        assert_eq!(days.iter().map(|day| day[lot]["vouchers"].as_i64().unwrap()).sum::<i64>(), vouchers, "{lot}: {days:#?}");
    }
    assert_eq!((&days[0]["opening"], &days[days.len() - 1]["closing"]), (&expected["opening"], &expected["closing"]));
    let day = |day: &Value| day["day"].as_str().unwrap().parse::<NaiveDate>().unwrap();
    assert!(began <= day(&days[0]) && day(&days[days.len() - 1]) <= Utc::now().date_naive(), "{days:#?}");
    assert_eq!(found["as_of"][0]["stock_projected"], found["as_of"][0]["head"]);

    // The rest of the order is delivered from the next load, at a cost of its own.
    let csv = "card_number,denomination,cost\ne,10,9.50\nf,10,\n";
    let request =
        node.by_operator("POST", &format!("/products/{}/vouchers?cost=8.00&supplier_reference=INV%208", setup.product_id));
    node.send(request.header("Content-Type", "text/csv").body(csv)).await.data(200);
    node.fulfil(2).await;
    let found = report(&node, "").await;
    assert_eq!(found["stock"][0]["allocated"], lot(7, 3, "37.25"));
    assert_eq!((&found["stock"][0]["closing"], &found["stock"][0]["sales"]), (&lot(1, 0, "8.00"), &json!("70.00")));
    let loaded = node.operator("GET", "/events?type=VoucherStockLoaded", Value::Null).await.text;
    assert!(loaded.contains("INV 7") && loaded.contains("INV 8"), "{loaded}");

    // Another day has the stock that this one has left. A single account has no stock.
    let later = report(&node, "?from=2999-01-01T00:00:00Z").await;
    assert_eq!((&later["stock"][0]["opening"], &later["stock_days"]), (&lot(1, 0, "8.00"), &json!([])));
    assert_eq!(later["stock"][0]["closing"], later["stock"][0]["opening"]);
    let of_account = report(&node, &format!("?account_id={}", setup.client.account_id)).await;
    assert_eq!((&of_account["stock"], &of_account["stock_days"]), (&json!([]), &json!([])));

    let csv = node.by_operator("GET", "/reconciliation").header("Accept", "text/csv").send().await.unwrap().text().await.unwrap();
    assert_eq!(cells(&csv, "STOCK", "closing_cost"), ["8.00"]);
    let sum = |column: &str| {
        let cells = cells(&csv, "STOCK_DAY", column).into_iter();
        cells.map(|cell| cell.parse::<Decimal>().unwrap()).sum::<Decimal>().to_string()
    };
    assert_eq!((sum("allocated_vouchers"), sum("margin")), ("7".to_owned(), "32.75".to_owned()));
}

#[tokio::test]
async fn the_stock_by_day_is_verified_and_made_again_from_the_log() {
    let (node, _) = traded().await;
    node.project().await;
    let before = report(&node, "").await;
    let clean = verify(&node.options, |_| {}).await.unwrap();
    assert!(clean.is_clean(), "{clean:#?}");
    let mut admin = node.admin().await;
    let spoil = "UPDATE stock_days SET allocated = allocated + 1; DELETE FROM stock_costs WHERE reference = 'a'";
    sqlx::raw_sql(spoil).execute(&mut admin).await.unwrap();
    let spoilt = verify(&node.options, |_| {}).await.unwrap();
    let lines: Vec<String> = spoilt.differences.iter().map(ToString::to_string).collect();
    assert_eq!(spoilt.found, 2, "{lines:#?}");
    assert!(lines[0].contains("stock_days") && lines[0].contains("allocated is 7"), "{lines:#?}");
    assert!(lines[1].contains("stock_costs a is missing"), "{lines:#?}");
    let rebuilt = rebuild(&node.options, Rebuild::parse("stock_days").unwrap(), |_| {}).await.unwrap();
    assert_eq!(rebuilt.found, 2);
    assert!(verify(&node.options, |_| {}).await.unwrap().is_clean());
    assert_eq!(report(&node, "").await["stock"], before["stock"]);
}

#[tokio::test]
async fn a_voucher_that_moves_to_another_product_keeps_its_cost() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let priced =
        json!({"denomination": "10.00", "cost": "9.25", "vouchers": [{"card_number": "a", "voucher_reference_number": "a"}]});
    load(&node, &setup, priced).await;
    let successor = ledger::product(&node.ledger, "Successor").await.0;
    let transfer = json!({"vouchers": ["a"], "to_product_id": successor, "reason": "a new product"});
    node.operator("POST", &format!("/products/{}/vouchers/transfer", setup.product_id), transfer).await.data(200);
    let stock = report(&node, "").await["stock"].take();
    assert_eq!((&stock[0]["transferred"], &stock[0]["closing"]), (&lot(1, 0, "9.25"), &lot(4, 3, "9.25")));
    let of_product = async |id: i64| -> (i64, i64, String) {
        let net = "SELECT (sum(loaded + transferred_in - transferred_out - allocated))::bigint, sum(transferred_in)::bigint,
            (sum(loaded_cost + transferred_in_cost - transferred_out_cost - allocated_cost))::text FROM stock_days WHERE product_id = $1";
        sqlx::query_as(net).bind(id).fetch_one(node.ledger.pool()).await.unwrap()
    };
    assert_eq!(of_product(setup.product_id).await, (3, 0, "0.00".to_owned()));
    assert_eq!(of_product(successor).await, (1, 1, "9.25".to_owned()));

    // The margin of the order that gets it follows from the cost at which the other product's load has brought it.
    let order = json!({"product_id": successor, "denomination": 10, "quantity": 1});
    let id = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap();
    node.fulfil(id).await;
    let stock = report(&node, "").await["stock"].take();
    assert_eq!((&stock[0]["allocated"], &stock[0]["margin"]), (&lot(1, 0, "9.25"), &json!("0.75")));
    let report = verify(&node.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{report:#?}");
}

/// Neither the events of an order nor its receipt tell a client what its vouchers have cost.
#[tokio::test]
async fn the_events_of_an_order_do_not_tell_what_its_vouchers_have_cost() {
    let (node, _) = traded().await;
    let events: Vec<String> = sqlx::query_scalar("SELECT data::text FROM events WHERE stream_type = 'order'")
        .fetch_all(node.ledger.pool())
        .await
        .unwrap();
    assert!(events.len() > 4 && events.iter().all(|data| !data.contains("cost") && !data.contains("9.25")), "{events:#?}");
}
