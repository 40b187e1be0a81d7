//! A database URL with several hosts: two servers in streaming replication, of which one is the primary.

use std::time::{Duration, Instant};

use ledger_database::{Connector, PgConnectOptions};
use serde_json::{Value, json};
use sqlx::Row;

use crate::support::program::{Client, Program, run};
use crate::support::replicas::Pair;
use crate::support::wait::until;

/// Longest time from the end of a promotion until a node takes orders again.
const PROMISE: Duration = Duration::from_secs(2);
/// Number of tries to show the promise. A machine that is busy with other work may break it.
const TRIES: usize = 3;

/// Places an order, and retries it until it is acknowledged. Any other answer than a temporary refusal is a fault.
async fn order(node: &Program, client: &Client, product: i64, key: &str) -> i64 {
    let body = json!({"product_id": product, "denomination": 10, "quantity": 1});
    let mut placed = Value::Null;
    until("the order is acknowledged", async || {
        match node.call(client, "POST", "/orders", Some(key), &body).await {
            Ok((201, order)) => placed = order["id"].clone(),
            Ok((503 | 504 | 409, _)) | Err(_) => {}
            Ok((status, answer)) => panic!("{status} {answer}"),
        }
        !placed.is_null()
    })
    .await;
    placed.as_i64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_takes_orders_again_right_after_each_promotion_and_has_lost_none() {
    let mut pair = Pair::start().await;
    let url = pair.url("read-write");
    let node = Program::start(&url, &[]).await;
    let client = node.client("1000.00").await;
    let product = node.product(100).await;
    let mut orders = vec![order(&node, &client, product, "first").await];
    let mut waits = vec![];
    for round in 0..TRIES {
        // The client asks during the whole outage.
        let key = format!("round {round}");
        let placing = order(&node, &client, product, &key);
        let failing = async {
            pair.fail_over().await;
            Instant::now()
        };
        let (during, promoted) = tokio::join!(placing, failing);
        let after = order(&node, &client, product, &format!("after {round}")).await;
        let wait = promoted.elapsed();
        orders.extend([during, after]);
        eprintln!("the first new order was acknowledged {wait:?} after the promotion");
        waits.push(wait);
        pair.rejoin().await;
        if wait < PROMISE {
            break;
        }
    }
    assert!(waits.iter().any(|wait| *wait < PROMISE), "{waits:?}");
    for order in &orders {
        let (status, _) = node.call(&client, "GET", &format!("/orders/{order}"), None, &Value::Null).await.unwrap();
        assert_eq!(status, 200, "order {order} is lost");
    }
    // Commands find the primary among the hosts, too.
    let verified = run(node.command().arg("verify")).await;
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    let migrated = run(node.command().arg("migrate")).await;
    assert!(migrated.status.success(), "{}", String::from_utf8_lossy(&migrated.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_lead_to_the_host_with_the_wanted_session() {
    let pair = Pair::start().await;
    let primary = i32::from(pair.primary_port());
    let place = "SELECT inet_server_port(), pg_is_in_recovery()";
    for (target, is_standby) in [("any", true), ("primary", false), ("read-write", false)] {
        let options: PgConnectOptions = pair.url(target).parse().unwrap();
        let mut connection = Connector::new(options, Duration::from_secs(5)).connect().await.unwrap();
        let row = sqlx::query(place).fetch_one(&mut connection).await.unwrap();
        assert_eq!(row.get::<bool, _>(1), is_standby, "{target}");
        assert_eq!(row.get::<i32, _>(0) != primary, is_standby, "{target}");
    }
    // LISTEN works on the primary only.
    let options: PgConnectOptions = pair.url("read-write").parse().unwrap();
    let mut listener = options.options([("statement_timeout", "4321")]).listener(Duration::from_secs(5)).await.unwrap();
    listener.listen("news").await.unwrap();
    let timeout: String = sqlx::query_scalar("SHOW statement_timeout").fetch_one(&mut listener).await.unwrap();
    assert_eq!(timeout, "4321ms");
}

#[tokio::test]
async fn a_connection_to_a_server_that_refuses_writes_is_not_used_again() {
    let database = crate::support::postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let options = options.options([("default_transaction_read_only", "on")]);
    let mut connection = Connector::new(options, Duration::from_secs(5)).connect().await.unwrap();
    sqlx::query("SELECT 1").execute(&mut connection).await.unwrap();
    assert!(!connection.is_broken());
    let refused = sqlx::query("CREATE TABLE mine (n int)").execute(&mut connection).await.unwrap_err();
    assert_eq!(refused.as_database_error().unwrap().code().as_deref(), Some("25006"));
    assert!(connection.is_broken());
}
