//! Idempotency: a repeated request has one effect.

use rewards_ledger::api;
use rewards_ledger::ledger::expiry::KeyWalk;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::metrics::counted;
use crate::support::node::{AMPLE_LIMITS, Node, Setup};
use crate::support::wait::{until, until_locked_out};

#[tokio::test]
async fn a_repeated_key_gets_the_first_response() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let body = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1, "metadata": {"b": 1, "a": 2}});
    let first = node.keyed(client, "/orders", "key-1", &body).await;
    first.data(201);
    assert_eq!(first.header("idempotent-replayed"), "");
    let head = node.head().await;
    let again = node.keyed(client, "/orders", "key-1", &body).await;
    assert_eq!((again.status, &again.text, again.header("idempotent-replayed")), (201, &first.text, "true"));
    // Two requests are equal if their parsed bodies are equal.
    let same = format!(r#"{{"metadata":{{"a":2,"b":1}},"quantity":1, "denomination":10.00,"product_id":{}}}"#, setup.product_id);
    let request =
        node.by(client, "POST", "/orders").header("Idempotency-Key", "key-1").header("Content-Type", "application/json");
    assert_eq!(node.send(request.body(same)).await.text, first.text);
    let mut other = body.clone();
    other["quantity"] = json!(2);
    node.keyed(client, "/orders", "key-1", &other).await.refused(422, "E_IDEMPOTENCY_KEY_REUSED");
    assert_eq!(node.head().await, head);

    // A key that is used on another path is a different key.
    let order = first.json()["data"]["id"].clone();
    let path = format!("/orders/{order}/cancel");
    let cancelled = node.keyed(client, &path, "key-1", &json!({"reason": "r"})).await;
    assert_eq!(cancelled.data(200)["status"], "CANCELLED");
    let again = node.keyed(client, &path, "key-1", &json!({"reason": "r"})).await;
    assert_eq!((&again.text, again.header("idempotent-replayed")), (&cancelled.text, "true"));
    node.keyed(client, &path, "key-2", &json!({"reason": "r"})).await.refused(409, "E_ORDER_NOT_CANCELLABLE");
}

/// A key of one account has no effect on another account.
#[tokio::test]
async fn a_key_counts_within_its_account() {
    let node = Node::start().await;
    let (one, other) = (node.setup().await, node.setup().await);
    let body = json!({"product_id": one.product_id, "denomination": 10, "quantity": 1});
    let mut orders = vec![];
    for client in [&one.client, &other.client] {
        let first = node.keyed(client, "/orders", "key", &body).await;
        assert_eq!(first.header("idempotent-replayed"), "");
        let again = node.keyed(client, "/orders", "key", &body).await;
        assert_eq!((&again.text, again.header("idempotent-replayed")), (&first.text, "true"));
        // The account's other API keys share its idempotency keys.
        let sibling = node.credential(client.account_id).await;
        assert_eq!(node.keyed(&sibling, "/orders", "key", &body).await.text, first.text);
        let listed = node.client(client, "GET", "/orders", Value::Null).await;
        assert_eq!(listed.header("x-total-count"), "1");
        orders.push(first.data(201)["id"].clone());
    }
    assert_ne!(orders[0], orders[1]);
}

/// A request that repeats an undecided one waits for its response.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_waits_for_the_first_and_gets_the_same_response() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let hook = json!({"name": "a", "url": "https://example.com/hook", "events": ["order.created"]});
    let head = node.head().await;
    let mut holder = node.admin().await;
    sqlx::raw_sql("BEGIN; SELECT position FROM log_head FOR UPDATE").execute(&mut holder).await.unwrap();
    let ask = async || node.keyed(&setup.client, "/webhooks", "key", &hook).await;
    let second = async {
        until_locked_out(&node.options, "rewards-ledger writer").await;
        ask().await
    };
    let release = async {
        until_locked_out(&node.options, "rewards-ledger writer").await;
        // The writer has taken the first request and waits for the head, so the request in the queue is the second
        // one.
        until("the second waits", async || counted(&node, [r#"ledger_writer_queue_depth{shard="1"}"#]).await == [1.0]).await;
        sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
    };
    let (first, second, ()) = tokio::join!(ask(), second, release);
    assert_eq!((first.status, first.header("idempotent-replayed")), (201, ""), "{}", first.text);
    assert_eq!((second.status, &second.text, second.header("idempotent-replayed")), (201, &first.text, "true"));
    assert_eq!(node.head().await, head + 1, "one webhook");
}

/// The stored fingerprint of a request reveals nothing about its content to a reader of the table. It confirms
/// neither a guess nor the equality of two requests.
#[tokio::test]
async fn the_stored_fingerprint_of_a_request_confirms_no_guess() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let body = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let cancel = json!({"reason": "r"});
    let mut cancelled = vec![];
    for key in ["first", "second"] {
        let order = node.client(&setup.client, "POST", "/orders", body.clone()).await.data(201)["id"].clone();
        let path = format!("/orders/{order}/cancel");
        let answer = node.keyed(&setup.client, &path, key, &cancel).await;
        answer.data(200);
        cancelled.push((path, answer.text));
    }
    let guess = Sha256::digest(cancel.to_string()).to_vec();
    let kept: Vec<Vec<u8>> =
        sqlx::query_scalar("SELECT fingerprint FROM idempotency_keys").fetch_all(node.ledger.pool()).await.unwrap();
    assert!(kept.len() == 2 && kept[0] != kept[1] && !kept.contains(&guess), "{kept:?}");

    // Fingerprints stored before an upgrade still count, on every node.
    let plain = "UPDATE idempotency_keys SET fingerprint = $1";
    sqlx::query(plain).bind(guess).execute(&mut node.options.connect().await.unwrap()).await.unwrap();
    let other = node.beside(AMPLE_LIMITS.parse().unwrap()).await;
    let (path, text) = &cancelled[0];
    let again = other.keyed(&setup.client, path, "first", &cancel).await;
    assert_eq!((&again.text, again.header("idempotent-replayed")), (text, "true"));
    other.keyed(&setup.client, path, "first", &json!({"reason": "s"})).await.refused(422, "E_IDEMPOTENCY_KEY_REUSED");
}

/// Returns the paths of the client API that accept a POST. Each of them accepts a key.
fn posts() -> Vec<String> {
    let (_, text) = api::documents().swap_remove(0);
    let document: Value = serde_json::from_str(&text).unwrap();
    let items = document["paths"].as_object().unwrap().iter().filter(|(path, _)| path.starts_with("/api/v1/"));
    let posts = items.filter_map(|(path, item)| Some((path, item.get("post")?)));
    let keyed = |(path, post): (&String, &Value)| {
        let mut parameters = post["parameters"].as_array().into_iter().flatten();
        assert!(parameters.any(|parameter| parameter["name"] == "Idempotency-Key"), "{path} accepts no idempotency key");
        path.clone()
    };
    posts.map(keyed).collect()
}

/// Returns the path and body of a request to this route that can take effect once. A new route needs a row here.
async fn request(node: &Node, setup: &Setup, route: &str) -> (String, Value) {
    let post = async |path: &str, body: &Value| {
        let answer = node.client(&setup.client, "POST", path, body.clone()).await;
        assert_eq!(answer.status, 201, "{path}: {}", answer.text);
        let body = answer.json();
        body.pointer("/data/id").or(body.get("id")).and_then(Value::as_i64).unwrap()
    };
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let hook = json!({"name": "a", "url": "https://example.com/hook", "events": ["order.created"]});
    let ada =
        json!({"name": "Ada", "type": "BANK", "country": "DE", "currency": "EUR", "account_number": "DE89370400440532013000"});
    let payout = async || {
        let beneficiary = post("/beneficiaries", &ada).await;
        json!({"beneficiary_id": beneficiary, "wallet_id": setup.wallet_id, "amount": "1.00"})
    };
    let own = route.strip_prefix("/api/v1").unwrap();
    let (id, body) = match own {
        "/orders" | "/charges" => (0, order),
        "/orders/{id}/cancel" => (post("/orders", &order).await, json!({"reason": "r"})),
        "/beneficiaries" => (0, ada),
        "/payouts" => (0, payout().await),
        "/payouts/{id}/cancel" => (post("/payouts", &payout().await).await, Value::Null),
        "/sandbox/wallets/{id}/fund" => (setup.wallet_id, json!({"amount": "1.00"})),
        "/webhooks" => (0, hook),
        "/webhooks/{id}/test" | "/webhooks/{id}/rotate-token" => (post("/webhooks", &hook).await, Value::Null),
        "/webhooks/{id}/replays" => (post("/webhooks", &hook).await, json!({"since": "2026-01-01T00:00:00Z"})),
        "/webhooks/deliveries/{id}/retry" => {
            (failed_delivery(node, setup, post("/webhooks", &hook).await, &order).await, Value::Null)
        }
        _ => panic!("{route} has no row here: add one with its path and body"),
    };
    (own.replace("{id}", &id.to_string()), body)
}

/// Creates a delivery that failed because its webhook was switched off, and that can be retried.
async fn failed_delivery(node: &Node, setup: &Setup, webhook: i64, order: &Value) -> i64 {
    let client = &setup.client;
    node.client(client, "POST", "/orders", order.clone()).await.data(201);
    for is_active in [false, true] {
        node.client(client, "PUT", &format!("/webhooks/{webhook}"), json!({"is_active": is_active})).await.data(200);
    }
    node.project().await;
    let path = format!("/webhooks/deliveries?status=failed&webhook_url_id={webhook}");
    let found = node.client(client, "GET", &path, Value::Null).await.data(200);
    found["deliveries"][0]["id"].as_i64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_equal_requests_to_two_nodes_have_one_effect_on_every_route() {
    let node = Node::sandbox().await;
    let other = node.beside(AMPLE_LIMITS.parse().unwrap()).await;
    let setup = node.setup().await;
    let client = &setup.client;
    for route in posts() {
        let (path, body) = request(&node, &setup, &route).await;
        let head = node.head().await;
        let alone = node.keyed(client, &path, "alone", &body).await;
        assert!(matches!(alone.status, 200 | 201), "{route}: {}", alone.text);
        let effect = node.head().await - head;

        let (path, body) = request(&node, &setup, &route).await;
        let head = node.head().await;
        let burst = (0..100).map(|n| [&node, &other][n % 2].keyed(client, &path, "same", &body));
        let answers = futures::future::join_all(burst).await;
        let (done, early): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == alone.status);
        for answer in early {
            answer.refused(409, "E_IDEMPOTENCY_IN_PROGRESS");
        }
        assert!(done.iter().all(|answer| answer.text == done[0].text), "{route}: one answer");
        let first = done.iter().filter(|answer| answer.header("idempotent-replayed").is_empty()).count();
        assert_eq!(first, 1, "{route}: all other responses are replays");
        assert_eq!(node.head().await - head, effect, "{route}: one effect");
    }
}

#[tokio::test]
async fn a_webhooks_token_is_replayed_and_is_sealed_at_rest() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let body = json!({"name": "a", "url": "https://example.com/hook", "events": ["order.created"]});
    let first = node.keyed(&client, "/webhooks", "w", &body).await;
    assert_eq!(first.status, 201, "{}", first.text);
    let again = node.keyed(&client, "/webhooks", "w", &body).await;
    assert_eq!((again.status, &again.text, again.header("idempotent-replayed")), (201, &first.text, "true"));
    let token = first.json()["token"].as_str().unwrap().to_owned();
    let stored: Vec<(Vec<u8>, bool)> =
        sqlx::query_as("SELECT body, is_sealed FROM idempotency_keys").fetch_all(node.ledger.pool()).await.unwrap();
    assert!(stored.iter().all(|(body, is_sealed)| *is_sealed && !String::from_utf8_lossy(body).contains(&token)));
    let logged: Vec<String> = sqlx::query_scalar("SELECT data::text FROM events").fetch_all(node.ledger.pool()).await.unwrap();
    assert!(logged.iter().all(|data| !data.contains(&token) && !data.contains("example.com")));
}

/// Makes the stored keys older by this interval.
async fn age(node: &Node, by: &str) {
    let mut admin = node.options.connect().await.unwrap();
    sqlx::query("UPDATE idempotency_keys SET created_at = created_at - $1::text::interval")
        .bind(by)
        .execute(&mut admin)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_key_is_kept_for_24_hours_and_can_then_be_used_anew() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let body = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let first = node.keyed(client, "/orders", "key", &body).await;
    first.data(201);
    age(&node, "23 hours 50 minutes").await;
    let again = node.keyed(client, "/orders", "key", &body).await;
    assert_eq!((&again.text, again.header("idempotent-replayed")), (&first.text, "true"));

    age(&node, "20 minutes").await;
    let other = json!({"product_id": setup.product_id, "denomination": 25, "quantity": 1});
    let anew = node.keyed(client, "/orders", "key", &other).await;
    assert_eq!(anew.header("idempotent-replayed"), "");
    assert_ne!(anew.data(201)["id"], first.json()["data"]["id"]);
    let again = node.keyed(client, "/orders", "key", &other).await;
    assert_eq!((&again.text, again.header("idempotent-replayed")), (&anew.text, "true"), "kept for 24 hours more");
}

#[tokio::test]
async fn only_expired_keys_are_deleted() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let body = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    node.keyed(&setup.client, "/orders", "old", &body).await.data(201);
    age(&node, "24 hours 1 minute").await;
    let more =
        "INSERT INTO idempotency_keys SELECT shard_id, sha256(n::text::bytea), fingerprint, status, body, is_sealed, created_at
                FROM idempotency_keys, generate_series(1, 20000) AS n";
    sqlx::query(more).execute(&mut node.options.connect().await.unwrap()).await.unwrap();
    node.keyed(&setup.client, "/orders", "new", &body).await.data(201);

    let mut walk = KeyWalk::default();
    for expected in [20_001, 0] {
        let (mut deleted, mut steps) = (0, 0);
        loop {
            let step = walk.step(node.ledger.pool()).await.unwrap();
            (deleted, steps) = (deleted + step.deleted, steps + 1);
            if step.is_end {
                break;
            }
        }
        assert_eq!(deleted, expected);
        assert!(steps > 1, "the table has more pages than a step looks at");
    }
    let again = node.keyed(&setup.client, "/orders", "new", &body).await;
    assert_eq!(again.header("idempotent-replayed"), "true");
}

#[tokio::test]
async fn an_invalid_key_is_refused_before_anything_happens() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let body = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1}).to_string();
    let head = node.head().await;
    for key in [&b""[..], b"tab\there", "\u{e9}".as_bytes(), &[b'x'; 256]] {
        let request = node.by(&setup.client, "POST", "/orders").header("Idempotency-Key", key);
        let answer = node.send(request.header("Content-Type", "application/json").body(body.clone())).await;
        let error = answer.refused(400, "E_VALIDATION_FAILURE");
        assert!(error["messages"]["Idempotency-Key"].is_array(), "{error}");
    }
    let twice = node.by(&setup.client, "POST", "/orders").header("Idempotency-Key", "a").header("Idempotency-Key", "b");
    node.send(twice.header("Content-Type", "application/json").body(body)).await.refused(400, "E_VALIDATION_FAILURE");
    assert_eq!(node.head().await, head);
}

#[tokio::test]
async fn a_client_reference_can_be_used_only_once() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let body = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1, "client_reference": "PO-7", "metadata": {"a": 1}});
    let first = node.client(client, "POST", "/orders", body.clone()).await;
    first.data(201);
    let head = node.head().await;
    let again = node.client(client, "POST", "/orders", body.clone()).await;
    assert_eq!((again.status, &again.text), (200, &first.text));
    for (field, value) in
        [("quantity", json!(2)), ("denomination", json!(25)), ("metadata", json!({"a": 2})), ("metadata", json!(null))]
    {
        let mut other = body.clone();
        other[field] = value;
        node.client(client, "POST", "/orders", other).await.refused(409, "E_DUPLICATE_REFERENCE");
    }
    assert_eq!(node.head().await, head);
}
