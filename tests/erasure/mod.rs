//! Erasure of personal data: nothing of it remains, and every proof still holds.

mod keys;
mod proofs;
mod receivers;
mod statements;
mod traces;
mod unknown;

use rewards_ledger::audit::{Rebuild, rebuild, verify};
use rewards_ledger::ledger::{FIRST_SHARD, reader};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::ConnectOptions;

use crate::support::ledger::MASTER_KEY;
use crate::support::node::{Node, PASSWORD, Setup};
use crate::support::program::{program, run, write_private};
use proofs::Proofs;
use traces::{Traces, admin};

const MARKER: &str = "only-for-the-eyes-of-people";
const IBAN: &str = "DE89370400440532013000";

/// Runs `rewards-ledger …` on a node's database. Returns its exit status, stdout and stderr.
async fn shell(node: &Node, arguments: &[&str]) -> (Option<i32>, String, String) {
    on(node.options.hosts()[0].to_url_lossy().as_str(), arguments).await
}

/// Runs `rewards-ledger …` on the database at this URL. Returns its exit status, stdout and stderr.
async fn on(url: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("master.key");
    write_private(&key, MASTER_KEY);
    let mut command = program(directory.path());
    command.args(arguments).env("DATABASE_URL", url);
    let done = run(command.env("LEDGER_MASTER_KEY_FILE", &key)).await;
    (done.status.code(), String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap())
}

/// Erases a subject and returns the command's report.
async fn erase(node: &Node, kind: &str, id: i64, more: &[&str]) -> Value {
    let id = id.to_string();
    let arguments = [&["erase", kind, &id, "--reason", "they asked for it", "--yes", "--json"], more].concat();
    let (status, told, problem) = shell(node, &arguments).await;
    assert_eq!(status, Some(0), "{problem}");
    serde_json::from_str(&told).unwrap_or_else(|_| panic!("{told}"))
}

/// Returns the reason why a subject cannot be erased.
async fn refused(node: &Node, kind: &str, id: i64) -> String {
    let (head, id) = (node.head().await, id.to_string());
    let (status, _, problem) = shell(node, &["erase", kind, &id, "--reason", "they asked for it", "--yes"]).await;
    assert_eq!(status, Some(1), "{problem}");
    assert_eq!(node.head().await, head);
    problem
}

/// Returns a hash over everything in the log up to a position.
async fn log_up_to(node: &Node, position: i64) -> String {
    let mut hash = Sha256::new();
    for event in reader::stored_after(node.ledger.pool(), FIRST_SHARD, 0, 100_000).await.unwrap() {
        if event.position <= position {
            hash.update(format!("{event:?}"));
        }
    }
    hex::encode(hash.finalize())
}

async fn sound(node: &Node) {
    let report = verify(&node.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.differences);
    let rebuilt = rebuild(&node.options, Rebuild::All, |_| {}).await.unwrap();
    assert!(rebuilt.was_clean(), "{:#?}", rebuilt.differences);
}

fn person(name: &str) -> Value {
    json!({"name": name, "type": "BANK", "country": "DE", "currency": "EUR", "account_number": IBAN, "bank_code": "COBADEFFXXX"})
}

async fn beneficiary(node: &Node, setup: &Setup, name: &str, key: &str) -> i64 {
    node.keyed(&setup.client, "/beneficiaries", key, &person(name)).await.data(201)["id"].as_i64().unwrap()
}

async fn failed_payout(node: &Node, setup: &Setup, to: i64, reference: &str) -> i64 {
    let ask = json!({"beneficiary_id": to, "wallet_id": setup.wallet_id, "amount": "1.00", "client_reference": reference});
    let payout = node.keyed(&setup.client, "/payouts", reference, &ask).await.data(201)["id"].as_i64().unwrap();
    let failed = json!({"status": "FAILED", "failure_reason": format!("{MARKER}: no such account")});
    node.operator("PUT", &format!("/payouts/{payout}"), failed).await.data(200);
    // The failure reason is now in a stored response as well.
    let again = node.keyed(&setup.client, "/payouts", &format!("{reference} again"), &ask).await.data(200);
    assert!(again["failure_reason"].as_str().unwrap().contains(MARKER));
    payout
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erased_beneficiary_is_in_no_table_and_no_file_and_every_proof_holds() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let gone = beneficiary(&node, &setup, MARKER, "gone").await;
    let stays = beneficiary(&node, &setup, "Grace Hopper", "stays").await;
    let payout = failed_payout(&node, &setup, gone, "one").await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap();
    let traces = Traces::of(
        &node,
        "SELECT kind || ' salt', salt FROM vault.texts WHERE kind = 'payout.failure_reason' OR (kind LIKE 'beneficiary.%' AND id = 1)
         UNION ALL SELECT kind, sealed FROM vault.texts WHERE kind = 'payout.failure_reason' OR (kind LIKE 'beneficiary.%' AND id = 1)
         UNION ALL SELECT 'key', sealed FROM vault.data_keys WHERE subject = 'beneficiary' AND subject_id = 1
         UNION ALL SELECT 'answer ' || k.about || encode(key_hash, 'hex'), body FROM idempotency_keys k WHERE is_sealed
            AND key_id = (SELECT id FROM vault.data_keys WHERE subject = 'beneficiary' AND subject_id = 1)",
    )
    .await;
    assert_eq!(gone, 1);
    assert_eq!(traces.0.len(), 3 + 3 + 1 + 2, "{:?}", traces.0.keys());
    traces.are_there(&node).await;
    // Otherwise the table statistics could still hold samples.
    sqlx::raw_sql("ANALYZE").execute(&mut admin(&node).await).await.unwrap();
    let (head, before) = (node.head().await, log_up_to(&node, node.head().await).await);
    let proofs = Proofs::keep(&node, order).await;

    let told = erase(&node, "beneficiary", gone, &[]).await;
    assert_eq!((&told["erased"], &told["positions"]), (&json!("beneficiary 1"), &json!([head + 1])));
    let counts = [&told["texts"], &told["vouchers"], &told["answers"], &told["data_keys"]];
    assert_eq!(counts, [&json!(3), &json!(0), &json!(2), &json!(1)]);
    assert_eq!(told["rewritten"], json!(["public.idempotency_keys", "vault.data_keys", "vault.texts"]));
    let remains = told["remains"].as_array().unwrap();
    assert!(remains[0].as_str().unwrap().contains("backup") && remains[1].as_str().unwrap().contains("write-ahead log"));
    let plain = Traces::plain(&[MARKER, IBAN, "no such account"]);
    plain.were_sealed(&node).await;
    traces.and(plain).are_gone(&node).await;

    // The old part of the log is unchanged. The new event says what was erased, by whom and why, and does not contain
    // the erased data.
    assert_eq!(log_up_to(&node, head).await, before);
    let event = &reader::stored_after(node.ledger.pool(), FIRST_SHARD, head, 1).await.unwrap()[0];
    assert_eq!((&*event.event_type, &*event.stream_type, event.stream_id), ("PersonalDataErased", "beneficiary", gone));
    let data: Value = serde_json::from_str(&event.data).unwrap();
    assert_eq!((&data["texts"], &data["is_complete"]), (&json!(3), &json!(true)));
    sound(&node).await;
    proofs.hold(&node).await;

    // For its client the beneficiary is deleted. The payout is unchanged, except that its reason is gone.
    let path = format!("/beneficiaries/{gone}");
    node.client(client, "GET", &path, Value::Null).await.refused(404, "E_NOT_FOUND");
    let listed = node.client(client, "GET", "/beneficiaries", Value::Null).await.data(200);
    assert_eq!(listed["beneficiaries"][0]["name"], "Grace Hopper");
    assert_eq!(listed["beneficiaries"].as_array().unwrap().len(), 1);
    let view = node.client(client, "GET", &format!("/payouts/{payout}"), Value::Null).await.data(200);
    assert_eq!((&view["status"], &view["failure_reason"]), (&json!("FAILED"), &Value::Null));
    for (to, status) in [(gone, 400), (stays, 201)] {
        let ask = json!({"beneficiary_id": to, "wallet_id": setup.wallet_id, "amount": "1.00"});
        assert_eq!(node.client(client, "POST", "/payouts", ask).await.status, status);
    }
    // A repeated first request gets its response, and creates no second beneficiary.
    let again = node.keyed(client, "/beneficiaries", "gone", &person(MARKER)).await;
    assert_eq!(again.header("idempotent-replayed"), "true");
    assert_eq!((&again.data(201)["name"], &again.data(201)["account_last4"]), (&json!(""), &json!("")));
    assert_eq!(node.client(client, "GET", "/beneficiaries", Value::Null).await.header("x-total-count"), "1");

    // A second erasure changes nothing.
    let told = erase(&node, "beneficiary", gone, &[]).await;
    assert_eq!((&told["texts"], &told["positions"]), (&json!(0), &json!([])));
}

/// Places an order of three units with metadata, which is delivered, and an order that is cancelled.
async fn orders(node: &Node, setup: &Setup) -> (i64, i64) {
    let client = &setup.client;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 3, "metadata": {"to": MARKER}});
    let delivered = node.keyed(client, "/orders", "delivered", &order).await.data(201)["id"].as_i64().unwrap();
    node.fulfil(delivered).await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1, "metadata": {"to": "nobody in particular"},
        "client_reference": "basket-2"});
    let cancelled = node.keyed(client, "/orders", "cancelled", &order).await.data(201)["id"].as_i64().unwrap();
    let reason = json!({"reason": MARKER});
    node.keyed(client, &format!("/orders/{cancelled}/cancel"), "cancel", &reason).await.data(200);
    // The reference finds the order again. This stored response belongs to no event.
    assert_eq!(node.keyed(client, "/orders", "found", &order).await.data(200)["cancel_reason"], MARKER);
    (delivered, cancelled)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erased_order_keeps_its_numbers_and_loses_its_texts_and_codes() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let (delivered, cancelled) = orders(&node, &setup).await;
    let traces = Traces::of(
        &node,
        "SELECT kind || id, sealed FROM vault.texts WHERE kind LIKE 'order.%' AND id IN (1, 2)
         UNION ALL SELECT 'voucher ' || id, sealed FROM vault.vouchers WHERE order_id = 1
         UNION ALL SELECT 'fingerprint ' || id, fingerprint FROM vault.vouchers WHERE order_id = 1
         UNION ALL SELECT 'key ' || subject_id, sealed FROM vault.data_keys WHERE subject = 'voucher'
         UNION ALL SELECT 'answer ' || encode(key_hash, 'hex'), body FROM idempotency_keys WHERE is_sealed",
    )
    .await;
    assert_eq!(traces.0.len(), 3 + 3 + 3 + 3 + 4, "{:?}", traces.0.keys());
    traces.are_there(&node).await;
    let (head, before) = (node.head().await, log_up_to(&node, node.head().await).await);
    let seen = node.client(client, "GET", &format!("/orders/{delivered}"), Value::Null).await.data(200);
    let proofs = Proofs::keep(&node, delivered).await;

    let told = erase(&node, "order", delivered, &[]).await;
    let counts = [&told["texts"], &told["vouchers"], &told["answers"], &told["data_keys"]];
    assert_eq!(counts, [&json!(1), &json!(3), &json!(1), &json!(3)]);
    // The other order is still readable.
    let other = node.client(client, "GET", &format!("/orders/{cancelled}"), Value::Null).await.data(200);
    assert_eq!((&other["cancel_reason"], &other["metadata"]["to"]), (&json!(MARKER), &json!("nobody in particular")));
    let told = erase(&node, "order", cancelled, &[]).await;
    let counts = [&told["texts"], &told["vouchers"], &told["answers"], &told["data_keys"]];
    assert_eq!(counts, [&json!(2), &json!(0), &json!(3), &json!(0)]);
    let plain = Traces::plain(&[MARKER, "nobody in particular", "card-1\""]);
    plain.were_sealed(&node).await;
    traces.and(plain).are_gone(&node).await;
    assert_eq!(log_up_to(&node, head).await, before);
    sound(&node).await;
    proofs.hold(&node).await;

    let mut expected = seen.clone();
    expected["metadata"] = Value::Null;
    assert_eq!(node.client(client, "GET", &format!("/orders/{delivered}"), Value::Null).await.data(200), expected);
    let head = node.head().await;
    let error =
        node.client(client, "GET", &format!("/orders/{delivered}/vouchers"), Value::Null).await.refused(404, "E_NOT_FOUND");
    assert_eq!(error["message"], "The voucher codes of this order were erased.");
    assert_eq!(node.head().await, head, "codes that are not shown are not recorded as read");
    // A repeated request gets its stored response and has no second effect.
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 3, "metadata": {"to": MARKER}});
    let again = node.keyed(client, "/orders", "delivered", &order).await;
    assert_eq!((again.header("idempotent-replayed"), &again.data(201)["metadata"]), ("true", &Value::Null));
    assert_eq!(again.data(201)["id"], json!(delivered));
    // A view as of an earlier time shows no more than the current one.
    let past = node.operator("GET", &format!("/orders/{delivered}?as_of={head}"), Value::Null).await.data(200);
    assert_eq!(past["metadata"], Value::Null);
    let story = node.operator("GET", &format!("/orders/{delivered}/history"), Value::Null).await.data(200);
    let last = story["entries"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["event_type"], &last["reason"]), (&json!("PersonalDataErased"), &json!("they asked for it")));
    assert!(last["description"].as_str().unwrap().contains("the codes of 3 vouchers"), "{last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erased_user_cannot_log_in_and_every_session_ends() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let user = node.user(client.account_id, "owner").await;
    let traces = Traces::of(
        &node,
        "SELECT 'email', sealed FROM vault.texts WHERE kind = 'user.email'
         UNION ALL SELECT 'salt', salt FROM vault.texts WHERE kind = 'user.email'
         UNION ALL SELECT 'key', sealed FROM vault.data_keys WHERE subject = 'user'
         UNION ALL SELECT 'lookup', email_lookup FROM vault.users
         UNION ALL SELECT 'password', convert_to(password_hash, 'UTF8') FROM vault.users
         UNION ALL SELECT 'cookie', portal_hash FROM vault.sessions
         UNION ALL SELECT 'refresh token', token_hash FROM vault.refresh_tokens",
    )
    .await;
    traces.are_there(&node).await;
    node.bearer(&user.access_token, "GET", "/api/v1/orders", Value::Null).await.data(200);
    let told = erase(&node, "user", user.id, &[]).await;
    assert_eq!((&told["texts"], &told["data_keys"]), (&json!(1), &json!(1)));
    let plain = Traces::plain(&[&user.email]);
    plain.were_sealed(&node).await;
    traces.and(plain).are_gone(&node).await;

    let login = json!({"email": user.email, "password": PASSWORD});
    node.anyone("POST", "/auth/login", login).await.refused(401, "E_INVALID_CREDENTIALS");
    let refresh = json!({"refresh_token": user.refresh_token});
    node.anyone("POST", "/auth/refresh", refresh).await.refused(401, "E_INVALID_TOKEN");
    node.bearer(&user.access_token, "GET", "/api/v1/orders", Value::Null).await.refused(401, "E_INVALID_TOKEN");
    node.portal(&user.cookie, node.url(), "GET", "/client/api/api-keys", Value::Null).await.refused(401, "E_INVALID_TOKEN");
    let listed = node.operator("GET", &format!("/accounts/{}/users", client.account_id), Value::Null).await.data(200);
    assert_eq!(listed["users"], json!([]));
    // The email can be used again.
    let again = json!({"email": user.email, "password": PASSWORD, "role": "viewer"});
    node.operator("POST", &format!("/accounts/{}/users", client.account_id), again).await.data(201);
    sound(&node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erased_account_leaves_ids_amounts_and_references() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    orders(&node, &setup).await;
    let to = beneficiary(&node, &setup, MARKER, "person").await;
    failed_payout(&node, &setup, to, "payout").await;
    node.user(client.account_id, "viewer").await;
    let hook = json!({"name": MARKER, "url": format!("https://example.com/{MARKER}"), "events": ["order.created"]});
    assert_eq!(node.keyed(client, "/webhooks", "hook", &hook).await.status, 201);
    let note = json!({"amount": "5.00", "reference": "noted", "note": MARKER});
    node.operator("POST", &format!("/wallets/{}/fund", setup.wallet_id), note).await.data(201);
    node.project().await;
    let traces = Traces::of(
        &node,
        "SELECT kind || id, sealed FROM vault.texts
         UNION ALL SELECT 'voucher ' || id, sealed FROM vault.vouchers WHERE order_id IS NOT NULL
         UNION ALL SELECT subject || subject_id, sealed FROM vault.data_keys
         UNION ALL SELECT 'answer ' || encode(key_hash, 'hex'), body FROM idempotency_keys WHERE is_sealed
         UNION ALL SELECT 'lookup', email_lookup FROM vault.users",
    )
    .await;
    // Texts: metadata twice and a reason, two of a beneficiary and one of a payout, an email, three of a webhook, a
    // note.
    let texts = traces.0.keys().filter(|name| name.contains('.')).count();
    assert_eq!(texts, 3 + 2 + 1 + 1 + 3 + 1);
    traces.are_there(&node).await;
    let other = node.account("Other").await;
    let person = node.client(&other, "POST", "/beneficiaries", self::person("Somebody else")).await.data(201);

    assert!(refused(&node, "account", client.account_id).await.contains("the account is not suspended"));
    node.operator("PUT", &format!("/accounts/{}", client.account_id), json!({"status": "SUSPENDED"})).await.data(200);
    let (head, before) = (node.head().await, log_up_to(&node, node.head().await).await);
    let told = erase(&node, "account", client.account_id, &[]).await;
    assert_eq!((&told["texts"], &told["vouchers"]), (&json!(texts), &json!(3)));
    let plain = Traces::plain(&[MARKER]);
    plain.were_sealed(&node).await;
    traces.and(plain).are_gone(&node).await;
    assert_eq!(log_up_to(&node, head).await, before);
    // Orders, movements with a note, payouts, and the rest. Each group that is not empty is one step with one event.
    assert_eq!(told["positions"].as_array().unwrap().len(), 4, "{told}");
    node.project().await;
    sound(&node).await;

    let list = node.client(client, "GET", "/orders", Value::Null).await.data(200);
    assert_eq!(list["orders"].as_array().unwrap().len(), 2);
    assert!(list["orders"].as_array().unwrap().iter().all(|order| order["metadata"].is_null() && order["amount"].is_string()));
    for (path, name) in [("/webhooks", "webhooks"), ("/beneficiaries", "beneficiaries")] {
        assert_eq!(node.client(client, "GET", path, Value::Null).await.data(200)[name], json!([]), "{path}");
    }
    let found = node.client(&other, "GET", &format!("/beneficiaries/{}", person["id"]), Value::Null).await.data(200);
    assert_eq!(found["name"], "Somebody else");
    let told = erase(&node, "account", client.account_id, &[]).await;
    assert_eq!((&told["texts"], &told["positions"]), (&json!(0), &json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn open_subjects_are_not_erased_and_an_erasure_needs_confirmation() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = json!({"product_id": setup.product_id, "denomination": 25, "quantity": 1, "metadata": {"to": MARKER}});
    let order = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap();
    assert!(refused(&node, "order", order).await.contains("neither delivered nor cancelled"));
    let to = beneficiary(&node, &setup, MARKER, "person").await;
    let ask = json!({"beneficiary_id": to, "wallet_id": setup.wallet_id, "amount": "1.00"});
    let payout = node.client(&setup.client, "POST", "/payouts", ask).await.data(201)["id"].clone();
    assert!(refused(&node, "beneficiary", to).await.contains("a payout to the beneficiary is not settled"));
    node.operator("PUT", &format!("/accounts/{}", setup.client.account_id), json!({"status": "SUSPENDED"})).await.data(200);
    assert!(refused(&node, "account", setup.client.account_id).await.contains("orders that are neither"));
    for kind in ["beneficiary", "order", "account", "user"] {
        assert!(refused(&node, kind, 999).await.contains(&format!("there is no {kind} 999")));
    }
    node.operator("PUT", &format!("/payouts/{payout}"), json!({"status": "PAID"})).await.data(200);

    // A dry run changes nothing, and without confirmation nothing is erased.
    let (head, to) = (node.head().await, to.to_string());
    let (status, told, _) = shell(&node, &["erase", "beneficiary", &to, "--reason", "x", "--dry-run", "--json"]).await;
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((status, &told["texts"], &told["data_keys"], &told["obstacle"]), (Some(0), &json!(2), &json!(1), &Value::Null));
    let (status, _, problem) = shell(&node, &["erase", "beneficiary", &to, "--reason", "x"]).await;
    assert!(status == Some(1) && problem.contains("pass --yes"), "{problem}");
    let (status, _, problem) = shell(&node, &["erase", "beneficiary", &to, "--yes"]).await;
    assert!(status == Some(2) && problem.contains("--reason"), "{problem}");
    let long = "ü".repeat(501);
    let (status, _, problem) = shell(&node, &["erase", "beneficiary", &to, "--reason", &long, "--yes"]).await;
    assert!(status == Some(1) && problem.contains("--reason has 501 characters; at most 500 are allowed"), "{problem}");
    assert_eq!(node.head().await, head);
    assert_eq!(node.client(&setup.client, "GET", &format!("/beneficiaries/{to}"), Value::Null).await.data(200)["name"], MARKER);
}
