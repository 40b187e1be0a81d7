//! Data keys: one per subject, created once, beside values that were sealed before data keys existed.

use ledger_events::OrderId;
use rewards_ledger::ledger::eraser;
use rewards_ledger::ledger::erasure::{Counts, Subject};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

use super::traces::{Traces, admin};
use super::{MARKER, beneficiary, erase, shell, sound};
use crate::support::ledger::{keyring, open};
use crate::support::node::{AMPLE_LIMITS, Node, Setup};
use crate::support::postgres;
use crate::support::wait::{is_true, until};

async fn order(node: &Node, setup: &Setup, text: &str) -> i64 {
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1, "metadata": {"to": text}});
    node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap()
}

async fn count(node: &Node, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(node.ledger.pool()).await.unwrap()
}

#[tokio::test]
async fn orders_of_an_account_share_one_key_across_nodes_and_concurrent_requests() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let other = node.beside(AMPLE_LIMITS.parse().unwrap()).await;
    let texts: Vec<String> = (0..40).map(|n| format!("basket {n}")).collect();
    let place = |n: usize, text: String| {
        let at = if n.is_multiple_of(2) { &node } else { &other };
        let setup = &setup;
        async move { (order(at, setup, &text).await, text) }
    };
    let placed = futures::future::join_all(texts.into_iter().enumerate().map(|(n, text)| place(n, text))).await;
    for (id, text) in placed {
        let seen = node.client(&setup.client, "GET", &format!("/orders/{id}"), Value::Null).await.data(200);
        assert_eq!(seen["metadata"]["to"], *text);
    }
    assert_eq!(count(&node, "SELECT count(*) FROM vault.data_keys WHERE subject = 'account'").await, 1);
    assert_eq!(count(&node, "SELECT count(DISTINCT key_id) FROM vault.texts WHERE kind = 'order.metadata'").await, 1);
    // A voucher has a data key of its own, and a key opens only the values that name it.
    assert_eq!(count(&node, "SELECT count(DISTINCT key_id) FROM vault.vouchers").await, 3);
    let opened: Vec<(i64, Vec<u8>, i64, Vec<u8>)> = sqlx::query_as(
        "SELECT t.id, t.sealed, k.id, k.sealed FROM vault.texts t JOIN vault.data_keys k ON k.id = t.key_id WHERE kind = 'order.metadata' LIMIT 1",
    )
    .fetch_all(node.ledger.pool())
    .await
    .unwrap();
    let (id, sealed, key_id, key) = &opened[0];
    assert!(keyring().open("order.metadata", *id, sealed).is_err(), "the master key alone does not open it");
    assert!(keyring().open_data_key(*key_id, key).unwrap().open("order.metadata", *id, sealed).is_ok());
}

/// Seals a text under the master key, as earlier releases without data keys did.
async fn as_before(node: &Node, kind: &'static str, id: i64, text: &str) {
    let sealed = keyring().seal(kind, id, text.as_bytes()).unwrap();
    let done = sqlx::query("UPDATE vault.texts SET sealed = $3, key_id = NULL WHERE kind = $1 AND id = $2")
        .bind(kind)
        .bind(id)
        .bind(sealed)
        .execute(&mut admin(node).await)
        .await
        .unwrap();
    assert_eq!(done.rows_affected(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn values_sealed_before_data_keys_can_be_opened_and_erased() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let placed = order(&node, &setup, "new").await;
    node.fulfil(placed).await;
    as_before(&node, "order.metadata", placed, &json!({"to": MARKER}).to_string()).await;
    let codes = json!({"card_number": "an older card", "pin": null, "claim_url": null}).to_string();
    let voucher: i64 = sqlx::query_scalar("SELECT id FROM vault.vouchers WHERE order_id IS NOT NULL")
        .fetch_one(node.ledger.pool())
        .await
        .unwrap();
    sqlx::query("UPDATE vault.vouchers SET sealed = $2, key_id = NULL WHERE id = $1")
        .bind(voucher)
        .bind(keyring().seal("voucher", voucher, codes.as_bytes()).unwrap())
        .execute(&mut admin(&node).await)
        .await
        .unwrap();
    sqlx::query("DELETE FROM vault.data_keys WHERE subject = 'voucher' AND subject_id = $1")
        .bind(voucher)
        .execute(&mut admin(&node).await)
        .await
        .unwrap();
    let path = format!("/orders/{placed}");
    assert_eq!(node.client(client, "GET", &path, Value::Null).await.data(200)["metadata"]["to"], MARKER);
    let shown = node.client(client, "GET", &format!("{path}/vouchers"), Value::Null).await.data(200);
    assert_eq!(shown["vouchers"][0]["card_number"], "an older card");
    let traces = Traces::of(
        &node,
        "SELECT kind, sealed FROM vault.texts WHERE kind = 'order.metadata' UNION ALL SELECT 'voucher', sealed FROM vault.vouchers WHERE order_id IS NOT NULL",
    )
    .await;
    let told = erase(&node, "order", placed, &[]).await;
    assert_eq!((&told["texts"], &told["vouchers"], &told["data_keys"]), (&json!(1), &json!(1), &json!(0)));
    traces.are_gone(&node).await;
    sound(&node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_interrupted_before_its_tables_were_rewritten_is_finished() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let to = beneficiary(&node, &setup, MARKER, "person").await;
    let traces = Traces::of(
        &node,
        "SELECT kind, sealed FROM vault.texts WHERE kind LIKE 'beneficiary.%' UNION ALL SELECT 'key', sealed FROM vault.data_keys WHERE subject = 'beneficiary'",
    )
    .await;
    let told = erase(&node, "beneficiary", to, &["--later"]).await;
    assert_eq!((&told["texts"], &told["rewritten"]), (&json!(2), &json!([])));
    let last = told["remains"].as_array().unwrap().last().unwrap().as_str().unwrap();
    assert!(last.contains("vault.texts") && last.contains("erase finish"), "{last}");
    // The values are gone from the tables but still in the tables' files.
    assert_eq!(traces.in_tables(&node).await, Vec::<String>::new());
    assert_eq!(traces.in_files(&node).await.len(), 3);
    let (status, told, problem) = shell(&node, &["erase", "finish", "--json"]).await;
    assert_eq!(status, Some(0), "{problem}");
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["rewritten"], json!(["public.idempotency_keys", "vault.data_keys", "vault.texts"]));
    traces.are_gone(&node).await;
    assert_eq!(count(&node, "SELECT count(*) FROM vault.unwiped").await, 0);
}

/// While a transaction of another database is open, every new snapshot of this database may still see the erased rows.
#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_waits_for_open_transactions_of_other_databases() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let to = beneficiary(&node, &setup, MARKER, "person").await;
    let other = postgres::database().await;
    let mut open = PgConnection::connect(&other.url).await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT pg_current_xact_id()").execute(&mut open).await.unwrap();
    let mut erasing = Box::pin(erase(&node, "beneficiary", to, &[]));
    let mut watching = admin(&node).await;
    let is_waiting = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle'
        AND application_name = 'rewards-ledger erase' AND query LIKE '%pg_prepared_xacts%')";
    tokio::select! {
        _ = &mut erasing => panic!("rows were rewritten that a snapshot may still see"),
        () = until("the erasure waits", async || is_true(&mut watching, is_waiting).await) => {}
    }
    sqlx::raw_sql("ROLLBACK").execute(&mut open).await.unwrap();
    assert_eq!(erasing.await["rewritten"], json!(["public.idempotency_keys", "vault.data_keys", "vault.texts"]));
}

#[tokio::test]
async fn an_erasure_beside_other_commands_erases_nothing_else() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let ids: Vec<i64> = futures::future::join_all((0..6).map(|n| {
        let (node, setup) = (&node, &setup);
        async move { order(node, setup, &format!("text {n}")).await }
    }))
    .await;
    let keep = order(&node, &setup, "kept").await;
    for id in &ids {
        node.client(&setup.client, "POST", &format!("/orders/{id}/cancel"), json!({"reason": "not needed"})).await.data(200);
    }
    // All erasures run at once, from two nodes, while orders are placed.
    let other = open(&node.options).await;
    let reason = rewards_ledger::secrets::seal::Secret::new("they asked for it");
    let origin = crate::support::ledger::origin();
    let erasing = ids.iter().enumerate().map(|(n, id)| {
        let ledger = if n.is_multiple_of(2) { &node.ledger } else { &other };
        eraser::erase(ledger, Subject::Order(OrderId(*id)), &reason, &origin, |_| {})
    });
    let placing = (0..20).map(|n| {
        let (node, setup) = (&node, &setup);
        async move { order(node, setup, &format!("later {n}")).await }
    });
    let (erased, placed) = tokio::join!(futures::future::join_all(erasing), futures::future::join_all(placing));
    for report in erased {
        let report = report.unwrap();
        assert_eq!((report.counts, report.events.len()), (Counts { texts: 2, ..Counts::default() }, 1));
    }
    for (n, id) in placed.iter().enumerate() {
        let seen = node.client(&setup.client, "GET", &format!("/orders/{id}"), Value::Null).await.data(200);
        assert_eq!(seen["metadata"]["to"], format!("later {n}"));
    }
    let seen = node.client(&setup.client, "GET", &format!("/orders/{keep}"), Value::Null).await.data(200);
    assert_eq!(seen["metadata"]["to"], "kept");
    assert_eq!(count(&node, "SELECT count(*) FROM vault.data_keys WHERE subject = 'account'").await, 1);
}
