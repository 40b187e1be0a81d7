//! `keys rotate` under load.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::io::{AsyncBufReadExt, BufReader};
use webhook_client::receiver::ReceiverResponse;

use super::other_key;
use crate::support::ledger::MASTER_KEY;
use crate::support::node::PASSWORD;
use crate::support::postgres;
use crate::support::program::{Client, DEADLINE, Program, run};
use crate::support::shop::receiver;

/// Runs a command and returns its JSON output.
async fn told(program: &Program, arguments: &[&str]) -> Value {
    let done = run(program.command().args(arguments).arg("--json")).await;
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    let text = String::from_utf8(done.stdout).unwrap();
    // If there are several lines, the last one has the final result.
    serde_json::from_str(&text).unwrap_or_else(|_| serde_json::from_str(text.lines().last().unwrap()).unwrap())
}

/// Returns the state of each key and the number of values sealed under it, oldest key first.
async fn status(program: &Program) -> Vec<(String, i64)> {
    let status = told(program, &["keys", "status"]).await;
    let keys = status["keys"].as_array().unwrap().iter();
    keys.map(|key| (key["state"].as_str().unwrap().to_owned(), key["values"].as_i64().unwrap())).collect()
}

async fn bearer(program: &Program, token: &str) -> u16 {
    let request = reqwest::Client::new().get(format!("{}/api/v1/orders", program.url())).bearer_auth(token);
    request.send().await.unwrap().status().as_u16()
}

async fn log_in(program: &Program) -> String {
    let login = json!({"email": "ada@example.com", "password": PASSWORD});
    let request = reqwest::Client::new().post(format!("{}/auth/login", program.url()));
    let answer = request.header("Content-Type", "application/json").body(login.to_string()).send().await.unwrap();
    let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    answer["data"]["access_token"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

async fn order(program: &Program, client: &Client, product: i64, key: &str) -> (u16, Value) {
    let order = json!({"product_id": product, "denomination": 10, "quantity": 1, "metadata": {"note": key}});
    program.call(client, "POST", "/orders", Some(key), &order).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_killed_under_load_continues_and_loses_nothing() {
    let database = postgres::database().await;
    let (hooks, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), hooks.ca_pem()).unwrap();
    let reach = ["--webhook-ca-file", ca.path().to_str().unwrap(), "--webhook-allow-nets", "127.0.0.0/8,::1/128"];
    let mut node = Program::start(&database.url, &reach).await;
    let client = node.client("100000.00").await;
    let product = node.product(4_000).await;
    let hook = json!({"name": "all", "url": hooks.url(), "events": ["order.created"]});
    assert_eq!(node.call(&client, "POST", "/webhooks", Some("hook"), &hook).await.unwrap().0, 201);
    let user = json!({"email": "ada@example.com", "password": PASSWORD, "role": "owner"});
    node.operator(&format!("/accounts/{}/users", client.account_id), user.clone()).await;
    let first = order(&node, &client, product, "before").await;
    assert_eq!(first.0, 201);

    // Every node gets both keys first.
    let new = other_key();
    node.set_master_key(&format!("{new}\n{MASTER_KEY}\n"));
    node.restart().await;
    let before = status(&node).await;
    assert_eq!(before.len(), 1, "{before:?}");
    assert!(before[0].0 == "current" && before[0].1 > 4_000, "the database names the current key: {before:?}");
    let token = log_in(&node).await;
    assert_eq!(bearer(&node, &token).await, 200);

    // Load from before the rotation until after it.
    let (node, done, placed) = (Arc::new(node), Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load = {
        let (node, done, placed, client) = (node.clone(), done.clone(), placed.clone(), client.clone());
        tokio::spawn(async move {
            while !done.load(Ordering::Acquire) {
                let key = format!("load-{}", placed.load(Ordering::Acquire));
                let (status, answer) = order(&node, &client, product, &key).await;
                assert_eq!(status, 201, "{answer}");
                placed.fetch_add(1, Ordering::Release);
            }
        })
    };

    // Killed after its first step. However late that is, one value is left: a rotation skips locked rows.
    let mut holder = PgConnection::connect(&database.url).await.unwrap();
    let last = "(SELECT key_id FROM vault.vouchers ORDER BY id DESC LIMIT 1)"; // no order gets this voucher
    let hold = format!("BEGIN; SELECT FROM vault.data_keys WHERE id = {last} FOR NO KEY UPDATE");
    sqlx::raw_sql(AssertSqlSafe(hold)).execute(&mut holder).await.unwrap();
    let mut rotating = node.command();
    let mut rotating = rotating.args(["keys", "rotate", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(rotating.stdout.take().unwrap()).lines();
    let step = tokio::time::timeout(DEADLINE, lines.next_line()).await.unwrap().unwrap().unwrap();
    rotating.kill().await.unwrap();
    let step: Value = serde_json::from_str(&step).unwrap();
    assert!(step["resealed"].as_i64().unwrap() < step["of"].as_i64().unwrap(), "{step}");
    let between = status(&node).await;
    assert_eq!((between.len(), &*between[0].0, &*between[1].0), (2, "old", "current"));
    assert!(between[0].1 > 0 && between[1].1 > 0, "the rotation was interrupted halfway: {between:?}");
    holder.close().await.unwrap();

    // The service continues with both keys, and the next run finishes the rotation.
    let at = placed.load(Ordering::Acquire);
    let rotated = told(&node, &["keys", "rotate"]).await;
    assert!(rotated["resealed"].as_i64().unwrap() > 0, "{rotated}");
    assert_eq!(rotated["retired"].as_array().unwrap().len(), 1, "{rotated}");
    assert!(placed.load(Ordering::Acquire) > at, "orders continued");
    done.store(true, Ordering::Release);
    load.await.unwrap();
    let after = status(&node).await;
    assert_eq!((&*after[0].0, after[0].1, &*after[1].0), ("retired", 0, "current"), "{after:?}");
    assert_eq!(told(&node, &["keys", "rotate"]).await["resealed"], 0, "again, there is nothing to do");
    assert_eq!(bearer(&node, &token).await, 200, "a token from before the rotation still counts");

    // The old key is removed from the key file.
    let mut node = Arc::into_inner(node).unwrap();
    node.set_master_key(&new);
    node.restart().await;
    assert_eq!(order(&node, &client, product, "before").await, first, "the stored response from before the rotation opens");
    let codes = node.call(&client, "GET", &format!("/orders/{}/vouchers", first.1["id"]), None, &Value::Null).await.unwrap();
    assert_eq!(codes.0, 200, "{codes:?}");
    log_in(&node).await;
    let again = node.try_operator(&format!("/accounts/{}/users", client.account_id), &user).await.unwrap();
    assert_eq!(again.0, 409, "the email is still found: {}", again.1);
    assert_eq!(order(&node, &client, product, "after").await.0, 201);
    let expected = placed.load(Ordering::Acquire) + 2;
    let delivered = tokio::time::timeout(DEADLINE, async {
        for _ in 0..expected {
            arrived.recv().await.expect("a delivery");
        }
    });
    delivered.await.expect("every order is announced");
    let verified = run(node.command().arg("verify")).await;
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    // A key file without the old key is accepted. One with only the old key is refused.
    node.set_master_key(MASTER_KEY);
    let refused = run(node.command().args(["keys", "status"])).await;
    assert!(!refused.status.success());
}
