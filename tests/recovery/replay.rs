//! Replays: their deliveries, their counts, and their end.

use std::collections::{HashMap, HashSet};

use rewards_ledger::access::Role;
use rewards_ledger::audit::{Rebuild, rebuild};
use rewards_ledger::delivery::replay::Replayer;
use rewards_ledger::ledger::FIRST_SHARD;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use webhook_client::receiver::ReceiverResponse;

use super::{be_due, order, send, sound, switch, webhook};
use crate::support::node::{Node, Setup};
use crate::support::shop::receiver;

/// Runs the replay steps that are due now, and makes their deliveries.
async fn step(node: &Node) -> usize {
    let replayer = Replayer { ledger: node.ledger.clone(), pool: node.ledger.pool().clone() };
    let taken = replayer.once(FIRST_SHARD).await.unwrap();
    node.project().await;
    taken
}

/// Lets a second pass, then runs the steps that are due.
async fn next_step(node: &Node) -> usize {
    let passed = "UPDATE webhook_replays SET updated_at = updated_at - interval '1 second' WHERE status = 'RUNNING'";
    sqlx::raw_sql(passed).execute(node.ledger.pool()).await.unwrap();
    step(node).await
}

async fn start(node: &Node, webhook: i64, body: Value) -> Value {
    node.operator("POST", &format!("/webhooks/{webhook}/replays"), body).await.data(201)
}

/// Returns the number of events that a replay would deliver.
async fn found(node: &Node, webhook: i64, mut body: Value) -> i64 {
    body["dry_run"] = json!(true);
    let counted = node.operator("POST", &format!("/webhooks/{webhook}/replays"), body).await.data(200);
    assert_eq!(counted["next_position"], Value::Null, "a short log is counted whole");
    counted["found"].as_i64().unwrap()
}

async fn shown(node: &Node, replay: &Value) -> Value {
    node.operator("GET", &format!("/replays/{}", replay["id"]), Value::Null).await.data(200)
}

/// Returns the status of a replay, and its numbers of made, pending, delivered and failed deliveries.
fn counts(replay: &Value) -> (&str, [i64; 4]) {
    let count = |name: &str| replay[name].as_i64().unwrap();
    let counts = [count("deliveries"), count("pending_count"), count("delivered_count"), count("failed_count")];
    (replay["status"].as_str().unwrap(), counts)
}

/// Returns every delivery to a webhook: its event, its replay, and the bytes of its envelope.
async fn deliveries(node: &Node, webhook: i64) -> Vec<(uuid::Uuid, i64, String)> {
    sqlx::query_as(
        "SELECT d.event_id, d.replay_id, e.payload FROM deliveries d JOIN webhook_envelopes e USING (shard_id, event_id)
         WHERE d.webhook_id = $1 ORDER BY d.id",
    )
    .bind(webhook)
    .fetch_all(node.ledger.pool())
    .await
    .unwrap()
}

async fn orders(node: &Node, setup: &Setup, count: usize) {
    for _ in 0..count {
        order(node, setup).await;
    }
    node.project().await;
}

#[tokio::test]
async fn deliveries_since_a_position_are_repeated_with_the_same_bytes() {
    let node = Node::start().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let setup = node.setup().await;
    let (id, _) = webhook(&node, &setup.client, &receiver.url(), &["order.created"]).await;
    orders(&node, &setup, 3).await;
    assert_eq!(send(&node, &receiver).await, 3);
    let before = deliveries(&node, id).await;
    let (position, recorded_at): (i64, chrono::DateTime<chrono::Utc>) =
        sqlx::query_as("SELECT position, recorded_at FROM events WHERE event_id = $1")
            .bind(before[1].0)
            .fetch_one(node.ledger.pool())
            .await
            .unwrap();

    // The dry run comes first. It leaves no trace.
    let head = node.head().await;
    let path = format!("/webhooks/{id}/replays");
    for (which, from) in [("from_position", json!(position)), ("since", json!(recorded_at))] {
        let body = json!({"kind": "deliveries", which: from, "dry_run": true});
        let counted = json!({"found": 2, "next_position": null, "until_position": head + 1, "replay": null});
        assert_eq!(node.operator("POST", &path, body).await.data(200), counted, "{which}");
    }
    assert_eq!(found(&node, id, json!({"kind": "deliveries", "since": "2100-01-01T00:00:00Z"})).await, 0);
    assert_eq!(found(&node, id, json!({"kind": "deliveries", "from_position": i64::MAX})).await, 0);
    assert_eq!(node.head().await, head);

    let started = start(&node, id, json!({"kind": "deliveries", "from_position": position})).await;
    assert_eq!((&started["found"], &started["replay"]["webhook_id"]), (&Value::Null, &json!(id)), "only a dry run counts");
    let replay = started["replay"].clone();
    assert_eq!(counts(&replay), ("RUNNING", [0, 0, 0, 0]));
    node.project().await;
    assert_eq!(step(&node).await, 1);
    let replay = shown(&node, &replay).await;
    assert_eq!(counts(&replay), ("COMPLETED", [2, 2, 0, 0]));
    assert_eq!(replay["next_position"], replay["until_position"]);
    assert_eq!(next_step(&node).await, 0);

    let replay_id = replay["id"].as_i64().unwrap();
    let after = deliveries(&node, id).await;
    let again: Vec<_> = before[1..].iter().map(|(event, _, bytes)| (*event, replay_id, bytes.clone())).collect();
    assert_eq!(after, [before.clone(), again].concat());
    assert_eq!(send(&node, &receiver).await, 2);
    let mut received: HashMap<String, Vec<Vec<u8>>> = HashMap::new();
    while let Ok(one) = arrived.try_recv() {
        received.entry(one.event_id().unwrap().to_owned()).or_default().push(one.body.to_vec());
    }
    let times: Vec<usize> = before.iter().map(|(event, ..)| received[&event.to_string()].len()).collect();
    assert_eq!(times, [1, 2, 2]);
    assert!(received.values().all(|bodies| bodies.iter().all(|body| *body == bodies[0])));
    assert_eq!(counts(&shown(&node, &replay).await), ("COMPLETED", [2, 0, 2, 0]));
    let list = node.operator("GET", &path, Value::Null).await.data(200);
    assert_eq!(list["replays"], json!([shown(&node, &replay).await]));
    // For its client it is a delivery like any other.
    let stats = node.client(&setup.client, "GET", "/webhooks/deliveries/stats", Value::Null).await.data(200);
    assert_eq!((&stats["total_count"], &stats["delivered_count"]), (&json!(5), &json!(5)));
    sound(&node).await;
    let rebuilt = rebuild(&node.options, Rebuild::All, |_| {}).await.unwrap();
    assert!(rebuilt.was_clean(), "{:#?}", rebuilt.differences);
    assert_eq!(deliveries(&node, id).await, after);
}

#[tokio::test]
async fn missed_events_reach_a_webhook_even_from_before_it_existed() {
    let node = Node::start().await;
    let setup = node.setup().await;
    // No webhook receives the first two orders. The first webhook receives the third and the fourth.
    orders(&node, &setup, 2).await;
    let types = ["order.created"];
    let (first, _) = webhook(&node, &setup.client, "https://example.com/one", &types).await;
    orders(&node, &setup, 1).await;
    let (second, _) = webhook(&node, &setup.client, "https://example.com/two", &types).await;
    orders(&node, &setup, 1).await;
    let other = node.setup().await;
    orders(&node, &other, 1).await;
    let never_heard: i64 =
        sqlx::query_scalar("SELECT count(*) FROM webhook_envelopes").fetch_one(node.ledger.pool()).await.unwrap();
    assert_eq!(never_heard, 2);
    // The second webhook has a pending delivery, which does not count as missed.
    assert_eq!(found(&node, second, json!({"kind": "missed"})).await, 3);
    let started = start(&node, second, json!({"kind": "missed"})).await;
    node.project().await;
    step(&node).await;
    assert_eq!(counts(&shown(&node, &started["replay"]).await), ("COMPLETED", [3, 3, 0, 0]));
    let (of_first, of_second) = (deliveries(&node, first).await, deliveries(&node, second).await);
    assert_eq!(of_second.len(), 4);
    let placed: Vec<uuid::Uuid> = sqlx::query_scalar(
        "SELECT event_id FROM events e JOIN orders o ON o.id = e.stream_id WHERE type = 'OrderPlaced' AND account_id = $1 ORDER BY position",
    )
    .bind(setup.client.account_id)
    .fetch_all(node.ledger.pool())
    .await
    .unwrap();
    let mut events: Vec<_> = of_second.iter().map(|(event, ..)| *event).collect();
    events.sort_unstable();
    assert_eq!(events, placed);
    let of = |which: &[(uuid::Uuid, i64, String)], event| which.iter().find(|(e, ..)| *e == event).unwrap().2.clone();
    assert_eq!(of(&of_second, placed[2]), of(&of_first, placed[2]), "one envelope for all");
    let built: Value = serde_json::from_str(&of(&of_second, placed[0])).unwrap();
    assert_eq!((&built["event_id"], &built["event_type"]), (&json!(placed[0]), &json!("order.created")));
    assert_eq!(built["data"]["status"], "PENDING");
    sound(&node).await;

    // A failed delivery counts as missed, a delivered one does not.
    sqlx::raw_sql(
        "UPDATE delivery_state SET status = 'delivered', delivered_at = now();
         UPDATE delivery_state SET status = 'failed', attempt_count = 5, delivered_at = NULL WHERE delivery_id = (SELECT max(delivery_id) FROM delivery_state)",
    )
    .execute(node.ledger.pool())
    .await
    .unwrap();
    assert_eq!(found(&node, second, json!({"kind": "missed"})).await, 1);
    assert!(rebuild(&node.options, Rebuild::All, |_| {}).await.unwrap().was_clean());
}

#[tokio::test]
async fn deliveries_of_payouts_are_repeated_even_after_the_webhook_has_unsubscribed() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let types = ["order.created", "payout.requested", "payout.paid"];
    let (id, _) = webhook(&node, &setup.client, "https://example.com/hook", &types).await;
    let ada =
        json!({"name": "Ada", "type": "BANK", "country": "DE", "currency": "EUR", "account_number": "DE89370400440532013000"});
    let ada = node.client(&setup.client, "POST", "/beneficiaries", ada).await.data(201);
    let payout = json!({"beneficiary_id": ada["id"], "wallet_id": setup.wallet_id, "amount": "5.00"});
    let payout = node.client(&setup.client, "POST", "/payouts", payout).await.data(201);
    orders(&node, &setup, 1).await;
    node.operator("PUT", &format!("/payouts/{}", payout["id"]), json!({"status": "PAID"})).await.data(200);
    node.project().await;
    let before = deliveries(&node, id).await;
    assert_eq!(before.len(), 3);
    let fewer = json!({"events": ["order.created"]});
    node.client(&setup.client, "PUT", &format!("/webhooks/{id}"), fewer).await.data(200);

    let repeated = json!({"kind": "deliveries", "from_position": 1});
    assert_eq!(found(&node, id, repeated.clone()).await, 3);
    let replay = start(&node, id, repeated).await["replay"].clone();
    node.project().await;
    assert_eq!(step(&node).await, 1);
    assert_eq!(counts(&shown(&node, &replay).await), ("COMPLETED", [3, 3, 0, 0]));
    let replay_id = replay["id"].as_i64().unwrap();
    let again: Vec<_> = before.iter().map(|(event, _, bytes)| (*event, replay_id, bytes.clone())).collect();
    assert_eq!(deliveries(&node, id).await, [before, again].concat());
    sound(&node).await;
    let rebuilt = rebuild(&node.options, Rebuild::All, |_| {}).await.unwrap();
    assert!(rebuilt.was_clean(), "{:#?}", rebuilt.differences);
}

#[tokio::test]
async fn a_replay_keeps_its_rate_limit_on_two_nodes() {
    let node = Node::start().await;
    let setup = node.setup().await;
    orders(&node, &setup, 5).await;
    let (id, _) = webhook(&node, &setup.client, "https://example.com/hook", &["order.created"]).await;
    let replay = start(&node, id, json!({"kind": "missed", "per_second": 2})).await["replay"].clone();
    node.project().await;
    let mut made = vec![];
    for _ in 0..3 {
        let replayer = || Replayer { ledger: node.ledger.clone(), pool: node.ledger.pool().clone() };
        // Neither node makes a second step: the projection has not reached the first one.
        let (one, other) = (replayer(), replayer());
        let (one, other) = tokio::join!(one.once(FIRST_SHARD), other.once(FIRST_SHARD));
        assert!(one.unwrap() + other.unwrap() >= 1);
        node.project().await;
        let at = async |time: &str| {
            let at = format!("UPDATE webhook_replays SET updated_at = {time} WHERE status = 'RUNNING'");
            sqlx::raw_sql(AssertSqlSafe(at)).execute(node.ledger.pool()).await.unwrap();
        };
        // Just now, however long the machine pauses before the step.
        at("clock_timestamp() + interval '1 minute'").await;
        assert_eq!(step(&node).await, 0, "not due");
        at("clock_timestamp() - interval '1 second'").await;
        made.push(counts(&shown(&node, &replay).await).1[0]);
    }
    assert_eq!(made, [2, 4, 5]);
    assert_eq!(counts(&shown(&node, &replay).await), ("COMPLETED", [5, 5, 0, 0]));
    let distinct: HashSet<_> = deliveries(&node, id).await.into_iter().map(|(event, ..)| event).collect();
    assert_eq!(distinct.len(), 5);
    sound(&node).await;
}

#[tokio::test]
async fn a_webhook_has_one_replay_at_a_time_and_the_next_one_skips_its_deliveries() {
    let node = Node::start().await;
    let setup = node.setup().await;
    orders(&node, &setup, 3).await;
    let (id, _) = webhook(&node, &setup.client, "https://example.com/one", &["order.created"]).await;
    let (other, _) = webhook(&node, &setup.client, "https://example.com/two", &["order.created"]).await;
    let missed = json!({"kind": "missed"});
    let path = format!("/webhooks/{id}/replays");
    let (one, two) = tokio::join!(node.operator("POST", &path, missed.clone()), node.operator("POST", &path, missed.clone()));
    let (started, refused) = if one.status == 201 { (one, two) } else { (two, one) };
    let first = started.data(201)["replay"].clone();
    refused.refused(409, "E_CONFLICT");
    node.operator("POST", &path, json!({"kind": "deliveries", "from_position": 1})).await.refused(409, "E_CONFLICT");
    start(&node, other, missed.clone()).await;
    node.project().await;

    // Both replays end, and another one is requested before their deliveries are made.
    let replayer = Replayer { ledger: node.ledger.clone(), pool: node.ledger.pool().clone() };
    assert_eq!(replayer.once(FIRST_SHARD).await.unwrap(), 2);
    assert_eq!(shown(&node, &first).await["status"], "COMPLETED");
    let second = start(&node, id, missed).await["replay"].clone();
    assert_eq!(replayer.once(FIRST_SHARD).await.unwrap(), 0, "the previous deliveries are not known yet");
    node.project().await;
    assert_eq!(step(&node).await, 1);
    assert_eq!(counts(&shown(&node, &second).await), ("COMPLETED", [0, 0, 0, 0]));
    assert_eq!((deliveries(&node, id).await.len(), deliveries(&node, other).await.len()), (3, 3), "each event once");
    sound(&node).await;
}

#[tokio::test]
async fn an_ended_replay_has_exact_counts() {
    let node = Node::start().await;
    let setup = node.setup().await;
    orders(&node, &setup, 5).await;
    let (id, _) = webhook(&node, &setup.client, "https://example.com/hook", &["order.created"]).await;
    node.project().await;
    let missed = json!({"kind": "missed", "per_second": 2});
    let replay = start(&node, id, missed.clone()).await["replay"].clone();
    node.project().await;
    step(&node).await;
    assert_eq!(counts(&shown(&node, &replay).await), ("RUNNING", [2, 2, 0, 0]));
    let cancel = format!("/replays/{}/cancel", replay["id"]);
    assert_eq!(node.operator("POST", &cancel, Value::Null).await.data(200)["status"], "CANCELLED");
    node.project().await;
    assert_eq!(counts(&shown(&node, &replay).await), ("CANCELLED", [2, 0, 0, 2]));
    assert_eq!(next_step(&node).await, 0);
    node.operator("POST", &cancel, Value::Null).await.refused(409, "E_CONFLICT");

    // Switching the webhook off ends the replay. All five events still count as missed.
    assert_eq!(found(&node, id, missed.clone()).await, 5);
    let started = start(&node, id, missed).await;
    node.project().await;
    step(&node).await;
    switch(&node, &setup.client, id, false).await;
    assert_eq!(counts(&shown(&node, &started["replay"]).await), ("FAILED", [2, 0, 0, 2]));
    assert_eq!(next_step(&node).await, 0);
    switch(&node, &setup.client, id, true).await;
    let listed = node.client(&setup.client, "GET", "/webhooks/deliveries?status=failed", Value::Null).await;
    assert_eq!(listed.header("x-total-count"), "4");
    // The client may retry the deliveries that the replay made, because none of their attempts is used.
    let failed = listed.data(200)["deliveries"][0]["id"].clone();
    node.client(&setup.client, "POST", &format!("/webhooks/deliveries/{failed}/retry"), Value::Null).await.data(200);
    node.project().await;
    assert_eq!(counts(&shown(&node, &started["replay"]).await), ("FAILED", [2, 1, 0, 1]));
    sound(&node).await;
    let rebuilt = rebuild(&node.options, Rebuild::All, |_| {}).await.unwrap();
    assert!(rebuilt.was_clean(), "{:#?}", rebuilt.differences);
}

#[tokio::test]
async fn switching_a_webhook_off_ends_its_replay_however_soon_it_is_on_again() {
    let node = Node::start().await;
    let setup = node.setup().await;
    orders(&node, &setup, 5).await;
    let (id, _) = webhook(&node, &setup.client, "https://example.com/one", &["order.created"]).await;
    let (other, _) = webhook(&node, &setup.client, "https://example.com/two", &["order.created"]).await;
    let missed = json!({"kind": "missed", "per_second": 2});
    let (replay, others) = (start(&node, id, missed.clone()).await, start(&node, other, missed.clone()).await);
    node.project().await;
    assert_eq!(step(&node).await, 2);
    // Between two steps, and before the projection has reached either change.
    for is_active in [false, true] {
        node.client(&setup.client, "PUT", &format!("/webhooks/{id}"), json!({"is_active": is_active})).await.data(200);
    }
    node.project().await;
    assert_eq!(next_step(&node).await, 1, "only the other webhook's replay continues");
    assert_eq!(
        counts(&shown(&node, &replay["replay"]).await),
        ("FAILED", [2, 0, 0, 2]),
        "the replay did not make every delivery"
    );
    assert_eq!(counts(&shown(&node, &others["replay"]).await), ("RUNNING", [4, 4, 0, 0]));
    assert_eq!(found(&node, id, missed.clone()).await, 5, "all are still missed");
    // Another change to the webhook does not affect its replay. Its deletion ends the replay.
    let replay = start(&node, id, missed).await;
    node.client(&setup.client, "PUT", &format!("/webhooks/{id}"), json!({"name": "other", "is_active": true})).await.data(200);
    assert_eq!(shown(&node, &replay["replay"]).await["status"], "RUNNING");
    node.client(&setup.client, "DELETE", &format!("/webhooks/{id}"), Value::Null).await.data(200);
    assert_eq!(shown(&node, &replay["replay"]).await["status"], "FAILED");
    node.project().await;
    sound(&node).await;
}

#[tokio::test]
async fn a_replay_waits_for_a_projection_that_is_behind() {
    let node = Node::start().await;
    let setup = node.setup().await;
    orders(&node, &setup, 5).await;
    let (id, _) = webhook(&node, &setup.client, "https://example.com/hook", &["order.created"]).await;
    let replay = start(&node, id, json!({"kind": "missed", "per_second": 2})).await["replay"].clone();
    let replayer = Replayer { ledger: node.ledger.clone(), pool: node.ledger.pool().clone() };
    for made in [2, 4, 5] {
        node.project().await;
        let mut taken = vec![];
        for _ in 0..3 {
            let passed = "UPDATE webhook_replays SET updated_at = updated_at - interval '1 second'";
            sqlx::raw_sql(passed).execute(node.ledger.pool()).await.unwrap();
            taken.push(replayer.once(FIRST_SHARD).await.unwrap());
        }
        assert_eq!(taken, [1, 0, 0], "one step is ahead of the projection at most");
        assert_eq!(shown(&node, &replay).await["deliveries"], made);
    }
    assert_eq!(shown(&node, &replay).await["status"], "COMPLETED");
    node.project().await;
    let events: HashSet<_> = deliveries(&node, id).await.into_iter().map(|(event, ..)| event).collect();
    assert_eq!(events.len(), 5);
}

#[tokio::test]
async fn a_replay_requires_an_admin_and_is_refused_if_it_makes_no_sense() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let (id, _) = webhook(&node, &client, "https://example.com/hook", &["order.created"]).await;
    let path = format!("/webhooks/{id}/replays");
    let tokens = [node.token(Role::Finance).await, node.token(Role::Auditor).await];
    let head = node.head().await;
    for (body, field) in [
        (json!({}), "kind"),
        (json!({"kind": "all"}), "kind"),
        (json!({"kind": "deliveries"}), "since"),
        (json!({"kind": "missed", "since": "2026-01-01T00:00:00Z", "from_position": 1}), "from_position"),
        (json!({"kind": "missed", "from_position": 0}), "from_position"),
        (json!({"kind": "missed", "per_second": 501}), "per_second"),
        (json!({"kind": "missed", "unknown": 1}), "unknown"),
    ] {
        let error = node.operator("POST", &path, body).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(error["messages"][field].is_array(), "{error}");
    }
    let missed = json!({"kind": "missed"});
    for token in &tokens {
        node.operator_with(token, "POST", &path, missed.clone()).await.refused(403, "E_FORBIDDEN");
        node.operator_with(token, "GET", &path, Value::Null).await.data(200);
    }
    node.operator("POST", "/webhooks/999/replays", missed.clone()).await.refused(404, "E_NOT_FOUND");
    for (method, path) in [("GET", "/replays/999"), ("POST", "/replays/999/cancel"), ("GET", "/webhooks/999/replays")] {
        node.operator(method, path, Value::Null).await.refused(404, "E_NOT_FOUND");
    }
    assert_eq!(node.head().await, head);
    switch(&node, &client, id, false).await;
    node.operator("POST", &path, missed.clone()).await.refused(409, "E_WEBHOOK_INACTIVE");
    node.client(&client, "DELETE", &format!("/webhooks/{id}"), Value::Null).await.data(200);
    node.operator("POST", &path, missed).await.refused(409, "E_WEBHOOK_INACTIVE");
}

#[tokio::test]
async fn a_replay_from_a_time_makes_deliveries_with_five_attempts_each() {
    let node = Node::start().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(500)).await;
    let setup = node.setup().await;
    let (id, _) = webhook(&node, &setup.client, &receiver.url(), &["order.created"]).await;
    orders(&node, &setup, 3).await;
    let exhaust = async |count: usize| {
        for _ in 0..5 {
            assert_eq!(send(&node, &receiver).await, count);
            be_due(&node).await;
        }
        assert_eq!(send(&node, &receiver).await, 0, "five are all");
    };
    exhaust(3).await;
    let before = deliveries(&node, id).await;
    let since: chrono::DateTime<chrono::Utc> = sqlx::query_scalar("SELECT recorded_at FROM events WHERE event_id = $1")
        .bind(before[1].0)
        .fetch_one(node.ledger.pool())
        .await
        .unwrap();

    assert_eq!(found(&node, id, json!({"kind": "deliveries", "since": since})).await, 2);
    let started = start(&node, id, json!({"kind": "deliveries", "since": since, "per_second": 1})).await;
    node.project().await;
    // The progress is visible while the replay runs.
    let mut progress = vec![];
    for made in 1..=2 {
        assert_eq!(next_step(&node).await, 1);
        let replay = shown(&node, &started["replay"]).await;
        assert_eq!(counts(&replay).1, [made, made, 0, 0]);
        progress.push((replay["status"].clone(), replay["next_position"].as_i64().unwrap()));
    }
    while counts(&shown(&node, &started["replay"]).await).0 == "RUNNING" {
        next_step(&node).await;
    }
    let until = started["replay"]["until_position"].as_i64().unwrap();
    assert!(progress[0].0 == "RUNNING" && progress[0].1 < progress[1].1 && progress[0].1 < until, "{progress:?} of {until}");

    exhaust(2).await;
    assert_eq!(counts(&shown(&node, &started["replay"]).await), ("COMPLETED", [2, 0, 0, 2]));
    let replay_id = started["replay"]["id"].as_i64().unwrap();
    let attempts: Vec<(uuid::Uuid, i64, Vec<i16>)> = sqlx::query_as(
        "SELECT d.event_id, d.replay_id, array_agg(a.attempt ORDER BY a.attempt) FROM deliveries d JOIN delivery_attempts a ON a.delivery_id = d.id
         GROUP BY d.id, d.event_id, d.replay_id ORDER BY d.id",
    )
    .fetch_all(node.ledger.pool())
    .await
    .unwrap();
    let five = |at: usize, replay_id| (before[at].0, replay_id, vec![1, 2, 3, 4, 5]);
    assert_eq!(attempts, [five(0, 0), five(1, 0), five(2, 0), five(1, replay_id), five(2, replay_id)]);
    let mut received: HashMap<String, usize> = HashMap::new();
    while let Ok(one) = arrived.try_recv() {
        *received.entry(one.event_id().unwrap().to_owned()).or_default() += 1;
    }
    let times: Vec<usize> = before.iter().map(|(event, ..)| received[&event.to_string()]).collect();
    assert_eq!(times, [5, 10, 10]);
    sound(&node).await;
}
