//! Proofs and receipts, from the API and from the program.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ledger_events::OrderId;
use rewards_ledger::access::Role;
use rewards_ledger::ledger::{FIRST_SHARD, reader};
use rewards_ledger::transparency::receipt::{Receipt, ReceiptError};
use serde_json::{Value, json};
use sqlx::PgPool;
use transparency_log::checkpoint::Trust;
use transparency_log::merkle::{Hash, verify_consistency, verify_inclusion};
use transparency_log::note::VerifierKey;

use crate::support::node::Node;
use crate::support::postgres;
use crate::support::program::{OPERATOR_TOKEN, Program, run};
use crate::support::tree;
use crate::support::wait::until;

fn hash(value: &Value) -> Hash {
    STANDARD.decode(value.as_str().unwrap()).unwrap().try_into().unwrap()
}

fn hashes(value: &Value) -> Vec<Hash> {
    value.as_array().unwrap().iter().map(hash).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

async fn get(node: &Node, path: &str) -> Value {
    node.anyone("GET", &format!("/log/1/proof/{path}"), Value::Null).await.data(200)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_proof_that_is_served_holds() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let tree = node.publish().await;
    let old = tree.opened().await.checkpoint;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    node.client(&setup.client, "POST", "/orders", order).await.data(201);
    tree.grow().await;
    let new = tree.opened().await.checkpoint;

    for position in 1..=new.size {
        let proved = get(&node, &format!("inclusion?position={position}")).await;
        assert_eq!((number(&proved["size"]), hash(&proved["root"])), (new.size, new.root));
        verify_inclusion(&hash(&proved["leaf_hash"]), position - 1, new.size, &hashes(&proved["proof"]), &new.root).unwrap();
        let earlier = get(&node, &format!("inclusion?position=1&size={position}")).await;
        verify_inclusion(&hash(&earlier["leaf_hash"]), 0, position, &hashes(&earlier["proof"]), &hash(&earlier["root"])).unwrap();
        let grown = get(&node, &format!("consistency?from={position}")).await;
        verify_consistency(position, &hash(&earlier["root"]), new.size, &new.root, &hashes(&grown["proof"])).unwrap();
    }
    let grown = get(&node, &format!("consistency?from={}&to={}", old.size, new.size)).await;
    assert_eq!((hash(&grown["from_root"]), hash(&grown["to_root"])), (old.root, new.root));
    assert_eq!(grown["origin"], new.origin);

    let more = new.size + 1;
    for (path, field) in [
        ("inclusion?position=0".to_owned(), "position"),
        (format!("inclusion?position={more}"), "position"),
        (format!("inclusion?position=2&size={more}"), "size"),
        ("inclusion?position=2&size=1".to_owned(), "size"),
        ("consistency?from=-1".to_owned(), "from"),
        (format!("consistency?from={more}"), "from"),
        (format!("consistency?from=2&to={more}"), "to"),
        ("consistency?from=2&to=1".to_owned(), "to"),
    ] {
        let refused = node.anyone("GET", &format!("/log/1/proof/{path}"), Value::Null).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(refused["messages"][field].is_array(), "{path}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orders_receipt_has_all_of_its_events_and_money() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let body = |quantity| json!({"product_id": setup.product_id, "denomination": 10, "quantity": quantity});
    let order = node.client(&setup.client, "POST", "/orders", body(5)).await.data(201)["id"].as_i64().unwrap();
    let other = node.client(&setup.client, "POST", "/orders", body(1)).await.data(201)["id"].as_i64().unwrap();
    node.fulfil(order).await;
    node.client(&setup.client, "POST", &format!("/orders/{order}/cancel"), Value::Null).await.data(200);
    let path = format!("/orders/{order}/receipt");
    node.operator("GET", &path, Value::Null).await.refused(503, "E_UNAVAILABLE");
    node.publish().await;

    let auditor = node.token(Role::Auditor).await;
    let receipt = node.operator_with(&auditor, "GET", &path, Value::Null).await.data(200);
    let receipt: Receipt = serde_json::from_value(receipt).unwrap();
    assert_eq!(receipt.verifier_keys, [tree::key().to_string()]);
    let trust = Trust::in_keys(vec![tree::key()]);
    let checked = receipt.check(&trust).unwrap();
    let types: Vec<&str> = receipt.events.iter().map(|proved| proved.event.event_type.as_str()).collect();
    assert_eq!(
        types,
        ["OrderPlaced", "WalletDebited", "OrderQueued", "OrderPartiallyDelivered", "OrderCancelled", "WalletRefunded"]
    );
    assert_eq!((checked.events, checked.order_id), (6, OrderId(order)));

    let forged = Receipt { order_id: OrderId(other), ..receipt.clone() };
    assert!(matches!(forged.check(&trust), Err(ReceiptError::Foreign(_))));
    let mut short = receipt;
    short.events.pop();
    assert!(matches!(short.check(&trust), Err(ReceiptError::Movement(_))));
    node.operator("GET", "/orders/999999999/receipt", Value::Null).await.refused(404, "E_NOT_FOUND");
}

/// A complete node signs by itself, and the program reads the published data.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_node_publishes_and_the_program_checks() {
    let database = postgres::database().await;
    let roles = ["--roles", "api,projector", "--log-origin", tree::ORIGIN];
    let mut program = Program::start(&database.url, &roles).await;
    let client = program.client("100.00").await;
    let product = program.product(3).await;
    let order = json!({"product_id": product, "denomination": 10, "quantity": 2});
    let (status, placed) = program.call(&client, "POST", "/orders", None, &order).await.unwrap();
    assert_eq!(status, 201, "{placed}");
    let id = placed["id"].to_string();

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("receipt.json");
    let at = |program: &Program| {
        let mut command = program.command();
        command.env("LEDGER_URL", program.url()).env("LEDGER_OPERATOR_TOKEN", OPERATOR_TOKEN);
        command
    };
    let made = run(at(&program).args(["receipt", "order", &id, "--out"]).arg(&file)).await;
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let receipt: Receipt = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let key: VerifierKey = receipt.verifier_keys[0].parse().unwrap();
    assert_eq!(key, tree::key());
    receipt.check(&Trust::in_keys(vec![key.clone()])).unwrap();

    let key = key.to_string();
    let stranger = tree::key_of("bmV3IGtleSBuZXcga2V5IG5ldyBrZXkgbmV3IGtleS4=").to_string();
    let witness = tree::witness(1).to_string();
    for (arguments, is_well) in [
        (vec!["log", "checkpoint"], true),
        (vec!["log", "checkpoint", "--key", &key], true),
        (vec!["log", "checkpoint", "--key", &stranger], false),
        (vec!["log", "checkpoint", "--key", &key, "--witness", &witness, "--quorum", "1"], false),
        (vec!["log", "keys"], true),
        (vec!["log", "inclusion", "3"], true),
        (vec!["log", "inclusion", "3", "--size", "4"], true),
        (vec!["log", "inclusion", "3", "--key", &key], true),
        (vec!["log", "inclusion", "3", "--key", &stranger], false),
        (vec!["log", "inclusion", "1000000"], false),
        (vec!["log", "consistency", "2"], true),
        (vec!["log", "consistency", "2", "3"], true),
        (vec!["log", "consistency", "2", "--key", &key], true),
        (vec!["log", "consistency", "2", "--key", &stranger], false),
        (vec!["log", "consistency", "3", "2"], false),
        (vec!["receipt", "order", "999999999"], false),
    ] {
        let done = run(at(&program).args(&arguments)).await;
        assert_eq!(done.status.success(), is_well, "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        assert_eq!(done.stderr.is_empty(), is_well, "{arguments:?}");
    }

    // As files, then with the entries, and then again from the previous state.
    let copy = directory.path().join("copy");
    for (arguments, fetched) in [(vec![], 1), (vec!["--entries"], 1), (vec!["--entries"], 0)] {
        let done = run(at(&program).args(["log", "mirror", "--json"]).arg(&copy).args(&arguments)).await;
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        let facts: Value = serde_json::from_slice(&done.stdout).unwrap();
        let size = facts["size"].as_u64().unwrap();
        assert_eq!(facts["fetched"], fetched, "{facts}");
        let tile = copy.join(format!("tile/0/000.p/{size}"));
        assert_eq!(std::fs::metadata(tile).unwrap().len(), 32 * size);
        assert_eq!(copy.join(format!("tile/entries/000.p/{size}")).exists(), !arguments.is_empty());
        for place in ["checkpoint".to_owned(), format!("checkpoints/{size}")] {
            let note = std::fs::read_to_string(copy.join(place)).unwrap();
            assert_eq!(Trust::in_keys(vec![tree::key()]).open(&note).unwrap().checkpoint.size, size);
        }
    }

    // After a kill and a restart it continues where it was.
    let before = run(at(&program).args(["log", "checkpoint", "--key", &key, "--json"])).await;
    let before: Value = serde_json::from_slice(&before.stdout).unwrap();
    program.restart().await;
    let (status, _) = program
        .call(&client, "POST", "/orders", None, &json!({"product_id": product, "denomination": 10, "quantity": 1}))
        .await
        .unwrap();
    assert_eq!(status, 201);
    let again = run(at(&program).args(["receipt", "order", &id])).await;
    let again: Receipt = serde_json::from_slice(&again.stdout).unwrap();
    let opened = again.check(&Trust::in_keys(vec![tree::key()])).unwrap().opened;
    assert!(opened.checkpoint.size >= before["verified"]["size"].as_u64().unwrap());
    let from = before["verified"]["size"].to_string();
    let grown = run(at(&program).args(["log", "consistency", &from, "--json"])).await;
    let grown: Value = serde_json::from_slice(&grown.stdout).unwrap();
    assert_eq!(grown["from_root"], before["verified"]["root"]);
}

/// A signed checkpoint covers an event within a second of its commit.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_node_publishes_within_a_second() {
    let database = postgres::database().await;
    let pool = PgPool::connect(&database.url).await.unwrap();
    let program = Program::start(&database.url, &["--roles", "api,projector"]).await;
    let client = program.client("100.00").await;
    let order = json!({"product_id": program.product(1).await, "denomination": 10, "quantity": 1});
    let checkpoint = format!("{}/log/1/checkpoint", program.url());
    let size = async || {
        let note = reqwest::get(&checkpoint).await.unwrap().text().await.unwrap();
        note.lines().nth(1).and_then(|size| size.parse::<i64>().ok()).unwrap_or_default()
    };
    // A busy machine may be late once. An implementation that waits for a slow timer is always late.
    let mut took = vec![];
    while took.len() < 30 && took.last().is_none_or(|took| *took >= Duration::from_secs(1)) {
        let (status, placed) = program.call(&client, "POST", "/orders", None, &order).await.unwrap();
        let committed = Instant::now();
        assert_eq!(status, 201, "{placed}");
        let head = reader::head(&pool, FIRST_SHARD).await.unwrap();
        until("it is published", async || size().await >= head).await;
        took.push(committed.elapsed());
    }
    assert!(took.last().is_some_and(|took| *took < Duration::from_secs(1)), "{took:?}");
}
