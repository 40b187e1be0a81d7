//! The history of an order, over HTTP and from the shell.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use rewards_ledger::delivery::replay::Replayer;
use rewards_ledger::ledger::FIRST_SHARD;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, ConnectOptions};
use webhook_client::receiver::{Receiver, ReceiverResponse};

use crate::support::ledger::MASTER_KEY;
use crate::support::node::{Node, Setup};
use crate::support::program::{program, run, write_private};
use crate::support::shop::{self, DEADLINE, receiver};
use crate::support::tampering::revealed;

async fn send(node: &Node, receiver: &Receiver) -> u64 {
    shop::worker(&node.options, receiver, DEADLINE).once().await.unwrap().recorded
}

/// Makes an order placed by a user, with a failed, an interrupted, a retried and a replayed delivery, and cancelled
/// by an operator.
async fn eventful(node: &Node) -> (Setup, i64) {
    let is_well = Arc::new(AtomicBool::new(false));
    let well = is_well.clone();
    let (receiver, _arrived) =
        receiver(move |_| ReceiverResponse::Status(if well.load(Ordering::SeqCst) { 200 } else { 500 })).await;
    let setup = node.setup().await;
    let client = &setup.client;
    let hook = json!({"name": "the shop", "url": receiver.url(), "events": ["order.created", "order.cancelled"]});
    let hook = node.client(client, "POST", "/webhooks", hook).await.json()["id"].as_i64().unwrap();
    let user = node.user(client.account_id, "operator").await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 5, "metadata": {"to": "Ada"}});
    let order = node.bearer(&user.access_token, "POST", "/api/v1/orders", order).await.data(201)["id"].as_i64().unwrap();
    node.project().await;
    assert_eq!(send(node, &receiver).await, 1);
    // The worker of the next attempt dies.
    let pool = node.ledger.pool();
    sqlx::raw_sql("UPDATE delivery_state SET next_attempt_at = 'epoch'").execute(pool).await.unwrap();
    let worker = shop::worker(&node.options, &receiver, DEADLINE);
    assert_eq!(worker.claim_once(FIRST_SHARD, 1).await.unwrap().len(), 1);
    sqlx::raw_sql("UPDATE delivery_state SET leased_until = now() - interval '1 second'").execute(pool).await.unwrap();
    // Switching the webhook off fails the delivery. After it is switched on again, a retry is requested.
    for is_active in [false, true] {
        node.client(client, "PUT", &format!("/webhooks/{hook}"), json!({"is_active": is_active})).await.data(200);
        node.project().await;
    }
    node.client(client, "POST", "/webhooks/deliveries/1/retry", Value::Null).await.data(200);
    node.project().await;
    is_well.store(true, Ordering::SeqCst);
    sqlx::raw_sql("UPDATE delivery_state SET next_attempt_at = 'epoch', leased_until = NULL").execute(pool).await.unwrap();
    assert_eq!(send(node, &receiver).await, 1);
    node.fulfil(order).await;
    node.client(client, "GET", &format!("/orders/{order}/vouchers"), Value::Null).await.data(200);
    node.operator("POST", &format!("/orders/{order}/cancel"), json!({"reason": "out of stock for good"})).await.data(200);
    node.project().await;
    assert_eq!(send(node, &receiver).await, 1);
    node.operator("POST", &format!("/webhooks/{hook}/replays"), json!({"kind": "deliveries", "from_position": 1}))
        .await
        .data(201);
    node.project().await;
    let replayer = Replayer { ledger: node.ledger.clone(), pool: pool.clone() };
    assert_eq!(replayer.once(FIRST_SHARD).await.unwrap(), 1);
    node.project().await;
    (setup, order)
}

#[tokio::test]
async fn the_history_of_an_order_shows_who_did_what_and_which_webhooks_were_sent() {
    let node = Node::start().await;
    let (setup, order) = eventful(&node).await;
    let timeline = node.operator("GET", &format!("/orders/{order}/history"), Value::Null).await.data(200);
    assert_eq!((&timeline["order_id"], &timeline["account_id"]), (&json!(order), &json!(setup.client.account_id)));
    assert_eq!((&timeline["status"], &timeline["as_of_position"]), (&json!("CANCELLED"), &Value::Null));
    let entries = timeline["entries"].as_array().unwrap();
    let types: Vec<_> = entries.iter().map(|entry| entry["event_type"].as_str().unwrap()).collect();
    assert_eq!(types, ["OrderPlaced", "OrderQueued", "OrderPartiallyDelivered", "VouchersRevealed", "OrderCancelled"]);

    let placed = &entries[0];
    assert_eq!(placed["actor"]["kind"], "user");
    assert!(placed["actor"]["name"].as_str().unwrap().ends_with("@example.com"), "{placed}");
    assert_eq!(placed["transaction"]["amount"], "50.00");
    assert_eq!(placed["transaction"]["balance_after"], "950.00");
    assert!(placed["description"].as_str().unwrap().contains("5 × 10.00 EUR of Acme Card"), "{placed}");
    let told = placed["deliveries"].as_array().unwrap();
    assert_eq!(told.len(), 2, "{told:#?}");
    assert_eq!((&told[0]["webhook_name"], &told[0]["status"]), (&json!("the shop"), &json!("delivered")));
    let outcomes: Vec<_> = told[0]["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["outcome"]).collect();
    assert_eq!(outcomes, ["failed", "unknown", "delivered"]);
    assert_eq!(
        told[0]["retries"][0]["actor"],
        json!({"kind": "credential", "actor_id": setup.client.credential_id, "name": "main"})
    );
    assert_eq!((&told[1]["replay_id"], &told[1]["status"], &told[1]["retries"]), (&json!(1), &json!("pending"), &json!([])));

    assert_eq!((&entries[1]["actor"]["kind"], &entries[1]["actor"]["actor_id"]), (&json!("fulfilment"), &Value::Null));
    assert!(entries[2]["description"].as_str().unwrap().starts_with("3 units delivered: VR-"), "{}", entries[2]);
    assert_eq!(entries[3]["description"], "the codes of 3 units were read");
    assert_eq!(entries[3]["actor"]["kind"], "credential");
    let cancelled = &entries[4];
    assert_eq!((&cancelled["actor"]["kind"], &cancelled["reason"]), (&json!("operator"), &json!("out of stock for good")));
    assert_eq!((&cancelled["transaction"]["type"], &cancelled["transaction"]["amount"]), (&json!("CREDIT"), &json!("20.00")));
    assert_eq!(cancelled["deliveries"][0]["event_type"], "order.cancelled");
    assert!(!timeline.to_string().contains("card-1") && !timeline.to_string().contains("pin-1"), "the history contains no codes");

    // The history as of an earlier position.
    let path = |entry: usize| format!("/orders/{order}/history?as_of={}", entries[entry]["position"]);
    let part = node.operator("GET", &path(2), Value::Null).await.data(200);
    assert_eq!((&part["status"], &part["as_of_position"]), (&json!("PARTIALLY_DELIVERED"), &entries[2]["position"]));
    let seen = part["entries"].as_array().unwrap();
    assert_eq!(
        seen.iter().map(|entry| &entry["event_id"]).collect::<Vec<_>>(),
        [&placed["event_id"], &entries[1]["event_id"], &entries[2]["event_id"]]
    );
    assert_eq!(seen[0]["deliveries"], json!([told[0]]), "all its attempts had ended, and the replay came later");
    let part = node.operator("GET", &path(0), Value::Null).await.data(200);
    assert_eq!((&part["status"], part["entries"].as_array().unwrap().len()), (&json!("PENDING"), 1));
    let deliveries = part["entries"][0]["deliveries"].as_array().unwrap();
    assert_eq!((deliveries.len(), &deliveries[0]["retries"]), (1, &json!([])), "the replay and the retry came later");
    assert_eq!((&deliveries[0]["status"], &deliveries[0]["attempts"]), (&json!("pending"), &json!([])));
    // As of a time between the first attempt and the second one.
    let second = told[0]["attempts"][1]["started_at"].as_str().unwrap().parse::<DateTime<Utc>>().unwrap();
    let between = (second - TimeDelta::milliseconds(1)).to_rfc3339_opts(SecondsFormat::Millis, true);
    let part = node.operator("GET", &format!("/orders/{order}/history?as_of={between}"), Value::Null).await.data(200);
    let delivery = &part["entries"][0]["deliveries"][0];
    let outcomes: Vec<_> = delivery["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["outcome"]).collect();
    assert_eq!((&delivery["status"], &delivery["attempt_count"]), (&json!("pending"), &json!(1)));
    assert_eq!(outcomes, ["failed"]);
}

/// Clients see the same events, movements and deliveries, but no operator's name, no position and no other account's orders.
#[tokio::test]
async fn a_client_sees_the_history_of_its_own_orders() {
    let node = Node::start().await;
    let (setup, order) = eventful(&node).await;
    let path = format!("/orders/{order}/history");
    let of_operators = node.operator("GET", &path, Value::Null).await.data(200);
    let story = node.client(&setup.client, "GET", &path, Value::Null).await.data(200);
    assert_eq!((&story["order_id"], &story["status"], &story["account_id"]), (&json!(order), &json!("CANCELLED"), &Value::Null));
    let (all, own) = (of_operators["entries"].as_array().unwrap(), story["entries"].as_array().unwrap());
    assert_eq!(own.len(), all.len());
    for (theirs, own) in all.iter().zip(own) {
        for field in ["event_id", "event_type", "recorded_at", "request_id", "description", "reason", "transaction", "deliveries"]
        {
            assert_eq!(own[field], theirs[field], "{field}");
        }
        assert_eq!(own["position"], Value::Null);
    }
    assert_eq!(own[0]["actor"], all[0]["actor"], "users of the account are named");
    assert_eq!(own[4]["actor"], json!({"kind": "operator", "actor_id": null, "name": null}));

    let viewer = node.user(setup.client.account_id, "viewer").await;
    node.bearer(&viewer.access_token, "GET", &format!("/api/v1{path}"), Value::Null).await.data(200);
    let other = node.account("Other").await;
    assert_eq!(node.client(&other, "GET", &path, Value::Null).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shell_shows_the_same_history() {
    let node = Node::start().await;
    let (setup, order) = eventful(&node).await;
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("master.key");
    write_private(&key, MASTER_KEY);
    let show = async |arguments: &[&str]| {
        let mut command = program(directory.path());
        command.arg("show").args(arguments).env("DATABASE_URL", node.options.hosts()[0].to_url_lossy().to_string());
        let done = run(command.env("LEDGER_MASTER_KEY_FILE", &key)).await;
        (done.status.code(), String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap())
    };
    let id = order.to_string();
    let (status, told, problem) = show(&["order", &id]).await;
    assert_eq!(status, Some(0), "{problem}");
    for line in [
        "CANCELLED (REMAINDER_CANCELLED)",
        r#"metadata  {"to":"Ada"}"#,
        "by credential 1 (main)",
        "by operator 0",
        "by fulfilment",
        "reason: out of stock for good",
        "wallet 1: −50.00 EUR, balance 950.00",
        "wallet 1: +20.00 EUR, balance 970.00",
        "order.created → webhook 1 (the shop): delivered",
        "attempt 1: failed, HTTP 500",
        "attempt 2: outcome unknown",
        "attempt 2: delivered, HTTP 200",
        "retry requested by credential 1 (main)",
        "order.created → webhook 1 (the shop) by replay 1: pending",
        "UTC",
    ] {
        assert!(told.contains(line), "{line:?} is not in\n{told}");
    }
    assert!(!told.contains("card-1"), "{told}");

    let timeline = node.operator("GET", &format!("/orders/{order}/history"), Value::Null).await.data(200);
    let (_, text, _) = show(&["order", &id, "--json"]).await;
    let facts: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(facts["history"], timeline);
    assert_eq!(facts["order"], node.operator("GET", &format!("/orders/{order}"), Value::Null).await.data(200));
    let at = timeline["entries"][0]["position"].to_string();
    let (_, text, _) = show(&["order", &id, "--as-of", &at, "--json"]).await;
    let facts: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&facts["order"]["status"], &facts["order"]["as_of_position"].to_string()), (&json!("PENDING"), &at));

    let wallet = setup.wallet_id.to_string();
    let (_, text, _) = show(&["wallet", &wallet, "--as-of", &at, "--json"]).await;
    let path = format!("/wallets/{wallet}?as_of={at}");
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), node.operator("GET", &path, Value::Null).await.data(200));
    for (arguments, problem) in [
        (&["order", "999"][..], "there is no order 999"),
        (&["wallet", &wallet, "--as-of", "2001-01-01T00:00:00Z"], "there was no wallet"),
        (&["wallet", &wallet, "--as-of", "99999"], "the log ends at position"),
        (&["wallet", &wallet, "--as-of", "soon"], "must be a position of the log"),
    ] {
        let (status, _, said) = show(arguments).await;
        assert!(status != Some(0) && said.contains(problem), "{arguments:?}: {said}");
    }
}

/// Each read of the codes is an event. However many there are, later events are still shown.
#[tokio::test]
async fn events_after_a_thousand_reads_of_the_codes_are_shown() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let body = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 4});
    let order = node.client(&setup.client, "POST", "/orders", body).await.data(201)["id"].as_i64().unwrap();
    node.fulfil(order).await;
    let path = format!("/orders/{order}/vouchers");
    node.client(&setup.client, "GET", &path, Value::Null).await.data(200);
    // 1,000 entries, 30 that are left out, and the last 100.
    let more = 1_000 - 4 + 30 + 100;
    let readings = format!("{}; UPDATE orders SET version = version + {more} WHERE id = {order}", revealed(order, more));
    sqlx::raw_sql(AssertSqlSafe(readings)).execute(&mut node.options.connect().await.unwrap()).await.unwrap();
    let read = node.head().await;
    node.client(&setup.client, "POST", &format!("/orders/{order}/cancel"), json!({})).await.data(200);
    let history = format!("/orders/{order}/history");
    let timeline = node.operator("GET", &history, Value::Null).await.data(200);
    assert_eq!(timeline["status"], "CANCELLED");
    let entries = timeline["entries"].as_array().unwrap();
    assert_eq!(entries.last().unwrap()["event_type"], "OrderCancelled");
    assert_eq!(entries.last().unwrap()["transaction"]["amount"], "10.00");
    let positions: Vec<i64> = entries.iter().map(|entry| entry["position"].as_i64().unwrap()).collect();
    let all: Vec<i64> =
        sqlx::query_scalar("SELECT position FROM events WHERE stream_type = 'order' AND stream_id = $1 ORDER BY 1")
            .bind(order)
            .fetch_all(node.ledger.pool())
            .await
            .unwrap();
    assert_eq!(positions, [&all[..1_000], &all[1_030..]].concat(), "the first and the last reads are shown");
    assert_eq!((positions.len(), &timeline["entries_left_out"]), (1_101, &json!(30)));
    let before = node.operator("GET", &format!("{history}?as_of={read}"), Value::Null).await.data(200);
    assert_eq!((&before["status"], before["entries"].as_array().unwrap().len()), (&json!("PARTIALLY_DELIVERED"), 1_100));
    assert_eq!(before["entries_left_out"], 30);
    let first = node.operator("GET", &format!("{history}?as_of={}", all[1_029]), Value::Null).await.data(200);
    assert_eq!((first["entries"].as_array().unwrap().len(), &first["entries_left_out"]), (1_030, &json!(0)));
    let directory = tempfile::tempdir().unwrap();
    let mut command = program(directory.path());
    command.args(["show", "order", &order.to_string()]).env("DATABASE_URL", node.options.hosts()[0].to_url_lossy().to_string());
    let told = String::from_utf8(run(&mut command).await.stdout).unwrap();
    let line = format!(
        "30 more reads of its voucher codes are not shown; list them with: rewards-ledger events export --shard 1 --stream order/{order} --type VouchersRevealed"
    );
    assert_eq!(told.lines().last(), Some(&*line));
}

#[tokio::test]
async fn more_than_a_thousand_retries_of_a_delivery_are_all_shown() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let hook = json!({"name": "the shop", "url": "https://example.com/hook", "events": ["order.created"]});
    assert_eq!(node.client(&setup.client, "POST", "/webhooks", hook).await.status, 201);
    let body = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(&setup.client, "POST", "/orders", body).await.data(201)["id"].as_i64().unwrap();
    node.project().await;
    let requested = "
        INSERT INTO events (shard_id, position, event_id, stream_type, stream_id, version, type, schema_version, data, metadata, recorded_at)
        SELECT 1, h.position + n, gen_random_uuid(), 'webhook', d.webhook_id, 1 + n, 'DeliveryRetryRequested', 1,
            json_build_object('event_id', d.event_id, 'replay_id', 0), placed.metadata, h.recorded_at
        FROM log_head h, deliveries d, generate_series(1, 1005) AS n, (SELECT metadata FROM events WHERE type = 'OrderPlaced') AS placed;
        UPDATE log_head SET position = position + 1005";
    sqlx::raw_sql(requested).execute(&mut node.options.connect().await.unwrap()).await.unwrap();
    let timeline = node.operator("GET", &format!("/orders/{order}/history"), Value::Null).await.data(200);
    assert_eq!(timeline["entries"][0]["deliveries"][0]["retries"].as_array().unwrap().len(), 1_005);
}
