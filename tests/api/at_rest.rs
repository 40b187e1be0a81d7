//! Free text from people and voucher codes appear in plain text nowhere: neither outside the vault nor inside it.

use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::support::node::Node;

const MARKER: &str = "only-for-the-eyes-of-people";

/// Returns the tables of the database in which a marker can be read, as text or as bytes.
pub async fn readable_in(node: &Node, marker: &str) -> Vec<String> {
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')",
    )
    .fetch_all(node.ledger.pool())
    .await
    .unwrap();
    assert!(tables.len() > 15, "{tables:?}");
    let mut found = vec![];
    for table in tables {
        let sql = format!("SELECT count(*) FROM {table} AS t WHERE strpos(t::text, $1) > 0 OR strpos(t::text, $2) > 0");
        let rows: i64 = sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(marker)
            .bind(hex::encode(marker))
            .fetch_one(node.ledger.pool())
            .await
            .unwrap();
        if rows > 0 {
            found.push(table);
        }
    }
    found
}

#[tokio::test]
async fn text_from_people_is_readable_in_no_table() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let stock = json!({"denomination": "10.00", "vouchers": [{"card_number": MARKER, "pin": MARKER, "claim_url": format!("https://example.com/{MARKER}")}]});
    node.operator("POST", &format!("/products/{}/vouchers", setup.product_id), stock).await.data(200);
    let funding = json!({"amount": "1.00", "reference": "second", "note": MARKER});
    node.operator("POST", &format!("/wallets/{}/fund", setup.wallet_id), funding).await.data(201);
    let adjusting = json!({"type": "CREDIT", "amount": "1.00", "reason": MARKER});
    node.operator("POST", &format!("/wallets/{}/adjust", setup.wallet_id), adjusting).await.data(201);
    let webhook = json!({"name": MARKER, "url": format!("https://example.com/{MARKER}"), "events": ["order.created"]});
    assert_eq!(node.keyed(client, "/webhooks", "webhook", &webhook).await.status, 201);

    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 4, "metadata": {"note": MARKER}});
    let placed = node.keyed(client, "/orders", "order", &order).await;
    assert_eq!(placed.data(201)["metadata"]["note"], MARKER);
    let id = placed.json()["data"]["id"].as_i64().unwrap();
    let plain = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let other = node.keyed(client, "/orders", "plain", &plain).await.data(201)["id"].as_i64().unwrap();
    let path = format!("/orders/{other}/cancel");
    let cancelled = node.keyed(client, &path, "cancel", &json!({"reason": MARKER})).await;
    assert_eq!(cancelled.data(200)["cancel_reason"], MARKER);
    node.fulfil(id).await;
    let codes = node.client(client, "GET", &format!("/orders/{id}/vouchers"), Value::Null).await.data(200);
    assert!(codes["vouchers"].as_array().unwrap().iter().any(|voucher| voucher["pin"] == MARKER), "{codes}");

    // An account number consists of letters and digits.
    let number: String = MARKER.chars().filter(char::is_ascii_alphanumeric).collect();
    let person = json!({"name": MARKER, "type": "BANK", "country": "DE", "currency": "EUR", "account_number": number, "bank_code": MARKER});
    let added = node.keyed(client, "/beneficiaries", "person", &person).await;
    assert_eq!(added.data(201)["name"], MARKER);
    let asked = json!({"beneficiary_id": added.json()["data"]["id"], "wallet_id": setup.wallet_id, "amount": "1.00", "client_reference": "r"});
    let payout = node.keyed(client, "/payouts", "payout", &asked).await.data(201)["id"].as_i64().unwrap();
    let failed = json!({"status": "FAILED", "failure_reason": MARKER});
    node.operator("PUT", &format!("/payouts/{payout}"), failed).await.data(200);
    let found = node.keyed(client, "/payouts", "found", &asked).await;
    assert_eq!(found.data(200)["failure_reason"], MARKER);

    let user = json!({"email": format!("{MARKER}@example.com"), "password": MARKER, "role": "owner"});
    let users = format!("/accounts/{}/users", client.account_id);
    node.operator("POST", &users, user.clone()).await.data(201);
    node.anyone("POST", "/auth/login", json!({"email": user["email"], "password": MARKER})).await.data(200);

    assert_eq!(readable_in(&node, MARKER).await, Vec::<String>::new());
    assert_eq!(readable_in(&node, &number).await, Vec::<String>::new());
    // The API still returns the sealed values.
    let listed = node.operator("GET", &users, Value::Null).await.data(200);
    assert_eq!(listed["users"][0]["email"], user["email"]);
    assert_eq!(node.keyed(client, "/orders", "order", &order).await.text, placed.text);
    assert_eq!(node.keyed(client, &path, "cancel", &json!({"reason": MARKER})).await.text, cancelled.text);
}
