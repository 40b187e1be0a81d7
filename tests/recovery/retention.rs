//! Retention: data that is deleted after its time, with no effect on clients.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rewards_ledger::audit::{Rebuild, rebuild};
use rewards_ledger::delivery::replay::Replayer;
use rewards_ledger::delivery::retention::{Forgotten, Retention, RetentionSettings};
use rewards_ledger::ledger::FIRST_SHARD;
use rewards_ledger::ledger::projector::{ProjectionStep, Projector};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use webhook_client::receiver::ReceiverResponse;

use super::{be_due, order, send, sound, switch, webhook};
use crate::support::misbehave::{Misbehaviour, misbehave};
use crate::support::node::{Client, Node};
use crate::support::postgres;
use crate::support::program::{DEADLINE, Program};
use crate::support::shop::{receiver, worker};
use crate::support::wait::{until, until_true};

const DAY: Duration = Duration::from_secs(86_400);

fn retention(node: &Node, attempts: Duration, payloads: Duration, response_bodies: u64) -> Retention {
    Retention::new(&node.ledger, RetentionSettings { attempts, payloads, response_bodies })
}

/// Retention period after which everything present is old enough to delete.
const AT_ONCE: Duration = Duration::from_millis(1);

async fn list(node: &Node, client: &Client) -> Vec<Value> {
    let listed = node.client(client, "GET", "/webhooks/deliveries", Value::Null).await.data(200);
    listed["deliveries"].as_array().unwrap().clone()
}

async fn full_payloads(node: &Node) -> i64 {
    sqlx::query_scalar("SELECT count(payload) FROM webhook_envelopes").fetch_one(node.ledger.pool()).await.unwrap()
}

#[tokio::test]
async fn payloads_are_deleted_and_recreated_byte_for_byte() {
    let node = Node::start().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let setup = node.setup().await;
    let client = &setup.client;
    let (id, _) = webhook(&node, client, &receiver.url(), &["order.created", "order.delivered"]).await;
    node.client(client, "POST", &format!("/webhooks/{id}/test"), Value::Null).await.data(200);
    let first = order(&node, &setup).await;
    node.fulfil(first).await;
    node.project().await;
    let mut long = retention(&node, DAY, DAY, 1 << 20);
    assert_eq!(long.once(FIRST_SHARD).await.unwrap(), Forgotten::default(), "nothing is old enough");
    // Deliveries are still pending.
    assert_eq!(retention(&node, DAY, AT_ONCE, 1 << 20).once(FIRST_SHARD).await.unwrap(), Forgotten::default());
    assert_eq!(send(&node, &receiver).await, 3);
    let (shown, bytes) = (list(&node, client).await, payloads(&node).await);

    let mut short = retention(&node, DAY, AT_ONCE, 1 << 20);
    assert_eq!(short.once(FIRST_SHARD).await.unwrap(), Forgotten { payloads: 3, ..Forgotten::default() });
    assert_eq!(full_payloads(&node).await, 0);
    assert_eq!(list(&node, client).await, shown, "a list shows what was sent");
    for delivery in &shown {
        let path = format!("/webhooks/deliveries/{}", delivery["id"]);
        assert_eq!(node.client(client, "GET", &path, Value::Null).await.data(200)["payload"], delivery["payload"]);
    }
    sound(&node).await;

    // A replay sends the same bytes, and the payloads are kept until they are delivered.
    let replay = json!({"kind": "deliveries", "from_position": 1});
    node.operator("POST", &format!("/webhooks/{id}/replays"), replay).await.data(201);
    node.project().await;
    let replayer = Replayer { ledger: node.ledger.clone(), pool: node.ledger.pool().clone() };
    assert_eq!(replayer.once(FIRST_SHARD).await.unwrap(), 1);
    node.project().await;
    assert_eq!(full_payloads(&node).await, 2, "the two payloads of the order, not that of the test");
    assert_eq!(retention(&node, DAY, AT_ONCE, 1 << 20).once(FIRST_SHARD).await.unwrap().payloads, 0);
    assert_eq!(send(&node, &receiver).await, 2);
    let mut sent: Vec<(String, String)> = vec![];
    while let Ok(one) = arrived.try_recv() {
        sent.push((one.event_id().unwrap().to_owned(), String::from_utf8(one.body.to_vec()).unwrap()));
    }
    assert_eq!(sent.len(), 5);
    for (event_id, body) in &sent {
        assert!(bytes.contains(&(event_id.clone(), body.clone())), "{body}");
    }
    sound(&node).await;

    // A rebuild restores all payloads, and the next walk deletes them again.
    let rebuilt = rebuild(&node.options, Rebuild::Deliveries, |_| {}).await.unwrap();
    assert!(rebuilt.was_clean(), "{:#?}", rebuilt.differences);
    assert_eq!(payloads(&node).await, bytes);
    assert_eq!(retention(&node, DAY, AT_ONCE, 1 << 20).once(FIRST_SHARD).await.unwrap().payloads, 3);
}

async fn payloads(node: &Node) -> Vec<(String, String)> {
    sqlx::query_as("SELECT event_id::text, payload FROM webhook_envelopes ORDER BY event_id")
        .fetch_all(node.ledger.pool())
        .await
        .unwrap()
}

#[tokio::test]
async fn a_failing_part_of_retention_does_not_stop_the_others() {
    let node = Node::start().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::StatusWithBody(200, "an answer".to_owned())).await;
    let setup = node.setup().await;
    webhook(&node, &setup.client, &receiver.url(), &["order.created"]).await;
    order(&node, &setup).await;
    node.project().await;
    assert_eq!(send(&node, &receiver).await, 1);
    let mut short = retention(&node, AT_ONCE, AT_ONCE, 0);
    // Only the deletion of attempts reads this column.
    let hide = "ALTER TABLE delivery_attempts RENAME COLUMN started_at TO elsewhere";
    sqlx::raw_sql(hide).execute(&mut node.admin().await).await.unwrap();
    short.once(FIRST_SHARD).await.unwrap_err();
    assert_eq!(full_payloads(&node).await, 0);
    let bodies: i64 =
        sqlx::query_scalar("SELECT count(response_body) FROM delivery_state").fetch_one(node.ledger.pool()).await.unwrap();
    assert_eq!(bodies, 0);
    let show = "ALTER TABLE delivery_attempts RENAME COLUMN elsewhere TO started_at";
    sqlx::raw_sql(show).execute(&mut node.admin().await).await.unwrap();
    assert_eq!(short.once(FIRST_SHARD).await.unwrap(), Forgotten { attempts: 1, ..Forgotten::default() });
}

#[tokio::test]
async fn old_payloads_are_deleted_up_to_the_first_recent_one_and_the_next_round_continues_there() {
    let node = Node::start().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let setup = node.setup().await;
    webhook(&node, &setup.client, &receiver.url(), &["order.created"]).await;
    for _ in 0..4 {
        order(&node, &setup).await;
    }
    node.project().await;
    assert_eq!(send(&node, &receiver).await, 4);
    let mut retention = retention(&node, DAY, DAY, 1 << 20);
    for (old, gone) in [("OFFSET 1 LIMIT 1", 0), ("LIMIT 1", 2), ("OFFSET 3", 0), ("OFFSET 2", 2)] {
        let age = format!(
            "UPDATE webhook_envelopes SET created_at = now() - interval '2 days' WHERE event_id IN (SELECT event_id FROM webhook_envelopes ORDER BY event_id {old})"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(age)).execute(node.ledger.pool()).await.unwrap();
        assert_eq!(retention.once(FIRST_SHARD).await.unwrap().payloads, gone, "{old}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_projector_continues_as_soon_as_retention_releases_its_lock() {
    let node = Node::start().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let setup = node.setup().await;
    webhook(&node, &setup.client, &receiver.url(), &["order.created"]).await;
    order(&node, &setup).await;
    node.project().await;
    assert_eq!(send(&node, &receiver).await, 1);

    // Retention holds the projection's checkpoint lock, and waits for this envelope.
    let mut holder = node.admin().await;
    sqlx::raw_sql("BEGIN; SELECT FROM webhook_envelopes FOR UPDATE").execute(&mut holder).await.unwrap();
    let mut short = retention(&node, DAY, AT_ONCE, 1 << 20);
    let forgetting = tokio::spawn(async move { short.once(FIRST_SHARD).await });
    order(&node, &setup).await;
    // Only a notification wakes it.
    let projector = Projector::new(&node.ledger, &node.options, node.metrics.clone()).idling(DAY);
    let free = "SELECT FROM projection_checkpoints WHERE projection = 'deliveries' FOR UPDATE SKIP LOCKED";
    let mut admin = node.admin().await;
    until("retention holds the projection", async || sqlx::raw_sql(free).fetch_optional(&mut admin).await.unwrap().is_none())
        .await;
    assert_eq!(projector.step(FIRST_SHARD).await.unwrap(), ProjectionStep::Elsewhere);
    let stop = CancellationToken::new();
    let running = tokio::spawn(projector.run(stop.clone()));
    // The projector's first check finds the projection held, and signals nothing.
    tokio::time::sleep(Duration::from_millis(500)).await;
    sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
    assert_eq!(forgetting.await.unwrap().unwrap().payloads, 1);
    until_true("the projector is notified", node.ledger.pool(), "SELECT count(*) = 2 FROM deliveries").await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn a_retry_after_the_payload_is_gone_sends_the_same_bytes() {
    let node = Node::start().await;
    let (receiver, mut arrived) = receiver(|r| ReceiverResponse::Status(if r.path == "/later" { 200 } else { 500 })).await;
    let setup = node.setup().await;
    let client = &setup.client;
    let (id, _) = webhook(&node, client, &receiver.url(), &["order.created"]).await;
    order(&node, &setup).await;
    node.project().await;
    send(&node, &receiver).await;
    switch(&node, client, id, false).await;
    assert_eq!(retention(&node, DAY, AT_ONCE, 0).once(FIRST_SHARD).await.unwrap().payloads, 1);
    node.client(client, "PUT", &format!("/webhooks/{id}"), json!({"url": format!("{}/later", receiver.url())})).await.data(200);
    switch(&node, client, id, true).await;
    let delivery = list(&node, client).await[0]["id"].clone();
    node.client(client, "POST", &format!("/webhooks/deliveries/{delivery}/retry"), Value::Null).await.data(200);
    node.project().await;
    assert_eq!(send(&node, &receiver).await, 1);
    assert_eq!(arrived.recv().await.unwrap().body, arrived.recv().await.unwrap().body);
    assert_eq!(list(&node, client).await[0]["status"], "delivered");
    sound(&node).await;
}

#[tokio::test]
async fn attempts_are_deleted_with_the_body_of_the_latest_one() {
    let node = Node::start().await;
    let (receiver, _arrived) = receiver(|r| {
        let status = if r.path == "/good" { 200 } else { 500 };
        ReceiverResponse::StatusWithBody(status, "an answer".to_owned())
    })
    .await;
    let setup = node.setup().await;
    let client = &setup.client;
    webhook(&node, client, &format!("{}/good", receiver.url()), &["order.created"]).await;
    let (bad, _) = webhook(&node, client, &format!("{}/bad", receiver.url()), &["order.created"]).await;
    order(&node, &setup).await;
    node.project().await;
    assert_eq!(send(&node, &receiver).await, 2);
    assert_eq!(retention(&node, DAY, DAY, 1 << 20).once(FIRST_SHARD).await.unwrap(), Forgotten::default());
    let mut short = retention(&node, AT_ONCE, DAY, 1 << 20);
    assert_eq!(short.once(FIRST_SHARD).await.unwrap(), Forgotten { attempts: 1, ..Forgotten::default() }, "one is pending");
    let details = async || {
        let mut shown = vec![];
        for delivery in list(&node, client).await.iter().rev() {
            let path = format!("/webhooks/deliveries/{}", delivery["id"]);
            let one = node.client(client, "GET", &path, Value::Null).await.data(200);
            shown.push((one["attempt_count"].clone(), one["attempts"].as_array().unwrap().len(), one["response_body"].clone()));
        }
        shown
    };
    assert_eq!(details().await, [(json!(1), 0, Value::Null), (json!(1), 1, json!("an answer"))]);
    switch(&node, client, bad, false).await;
    assert_eq!(short.once(FIRST_SHARD).await.unwrap(), Forgotten { attempts: 1, ..Forgotten::default() });
    assert_eq!(details().await, [(json!(1), 0, Value::Null), (json!(1), 0, Value::Null)]);
    sound(&node).await;
}

#[tokio::test]
async fn attempts_of_a_dead_node_are_deleted_as_well() {
    let node = Node::start().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let setup = node.setup().await;
    let (id, _) = webhook(&node, &setup.client, &receiver.url(), &["order.created"]).await;
    order(&node, &setup).await;
    node.project().await;
    let claimed = worker(&node.options, &receiver, DEADLINE).claim_once(FIRST_SHARD, 1).await.unwrap();
    assert_eq!(claimed.len(), 1);
    switch(&node, &setup.client, id, false).await;
    let mut short = retention(&node, AT_ONCE, DAY, 1 << 20);
    assert_eq!(short.once(FIRST_SHARD).await.unwrap(), Forgotten::default(), "the result may still arrive");
    sqlx::query("UPDATE delivery_state SET leased_until = clock_timestamp() - interval '1 second'")
        .execute(node.ledger.pool())
        .await
        .unwrap();
    assert_eq!(short.once(FIRST_SHARD).await.unwrap(), Forgotten { attempts: 1, ..Forgotten::default() });
}

#[tokio::test]
async fn response_bodies_stay_under_their_quota_the_newest_are_kept() {
    let node = Node::start().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::StatusWithBody(200, "x".repeat(1_000))).await;
    let setup = node.setup().await;
    let client = &setup.client;
    let (one, _) = webhook(&node, client, &receiver.url(), &["order.created"]).await;
    let (other, _) = webhook(&node, client, &receiver.url(), &["order.cancelled"]).await;
    for n in 0..5 {
        let id = order(&node, &setup).await;
        if n == 0 {
            node.client(client, "POST", &format!("/orders/{id}/cancel"), Value::Null).await.data(200);
        }
    }
    node.project().await;
    assert_eq!(send(&node, &receiver).await, 6);
    assert_eq!(retention(&node, DAY, DAY, 5_000).once(FIRST_SHARD).await.unwrap(), Forgotten::default());
    let trimmed = retention(&node, DAY, DAY, 2_500).once(FIRST_SHARD).await.unwrap();
    assert_eq!(trimmed, Forgotten { response_bodies: 3, ..Forgotten::default() });
    let kept = async |webhook: i64| -> Vec<bool> {
        sqlx::query_scalar("SELECT response_body IS NOT NULL FROM delivery_state WHERE webhook_id = $1 ORDER BY delivery_id")
            .bind(webhook)
            .fetch_all(node.ledger.pool())
            .await
            .unwrap()
    };
    assert_eq!(kept(one).await, [false, false, false, true, true]);
    assert_eq!(kept(other).await, [true], "each webhook has its own quota");
    // Small bodies are limited as well.
    sqlx::raw_sql("UPDATE delivery_state SET response_body = 'ok'").execute(node.ledger.pool()).await.unwrap();
    assert_eq!(retention(&node, DAY, DAY, 512).once(FIRST_SHARD).await.unwrap().response_bodies, 3);
    sound(&node).await;
}

#[tokio::test]
async fn each_attempt_keeps_the_body_of_its_response_within_the_quota() {
    let node = Node::start().await;
    let answers = [
        (ReceiverResponse::StatusWithBody(500, "first".to_owned()), json!("first")),
        (misbehave(Misbehaviour::Close), Value::Null),
        (ReceiverResponse::StatusWithBody(503, "third".to_owned()), json!("third")),
        (ReceiverResponse::Status(500), json!("")),
        (ReceiverResponse::StatusWithBody(200, "fifth".to_owned()), json!("fifth")),
    ];
    let (given, asked) = (answers.clone(), AtomicUsize::new(0));
    let (receiver, _arrived) = receiver(move |_| given[asked.fetch_add(1, Ordering::SeqCst)].0.clone()).await;
    let setup = node.setup().await;
    let client = &setup.client;
    let (hook, _) = webhook(&node, client, &receiver.url(), &["order.created"]).await;
    order(&node, &setup).await;
    node.project().await;
    let shown = async || {
        let path = format!("/webhooks/deliveries/{}", list(&node, client).await[0]["id"]);
        let shown = node.client(client, "GET", &path, Value::Null).await.data(200);
        let attempts = shown["attempts"].as_array().unwrap().iter();
        (shown["response_body"].clone(), attempts.map(|attempt| attempt["response_body"].clone()).collect::<Vec<_>>())
    };
    let mut bodies = vec![];
    for (answer, body) in answers {
        assert_eq!(send(&node, &receiver).await, 1);
        bodies.push(body.clone());
        assert_eq!(shown().await, (body, bodies.clone()), "{answer:?}");
        be_due(&node).await;
    }
    let listed = node.client(client, "GET", &format!("/webhooks/{hook}/attempts"), Value::Null).await.data(200);
    let listed = listed["attempts"].as_array().unwrap();
    assert_eq!(listed.len(), 5);
    assert!(listed.iter().all(|attempt| attempt.get("response_body").is_none()), "a list has no bodies: {listed:?}");

    // Each of the four bodies counts as 256 bytes.
    let trimmed = retention(&node, DAY, DAY, 512).once(FIRST_SHARD).await.unwrap();
    assert_eq!(trimmed, Forgotten { response_bodies: 2, ..Forgotten::default() });
    let latest = vec![Value::Null, Value::Null, Value::Null, json!(""), json!("fifth")];
    assert_eq!(shown().await, (json!("fifth"), latest));
    let trimmed = retention(&node, DAY, DAY, 0).once(FIRST_SHARD).await.unwrap();
    assert_eq!(trimmed, Forgotten { response_bodies: 2, ..Forgotten::default() });
    assert_eq!(shown().await, (Value::Null, vec![Value::Null; 5]));
    sound(&node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_keeps_what_its_flags_say() {
    let database = postgres::database().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::StatusWithBody(200, "thanks".to_owned())).await;
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), receiver.ca_pem()).unwrap();
    let reach = ["--webhook-ca-file", ca.path().to_str().unwrap(), "--webhook-allow-nets", "127.0.0.0/8,::1/128"];
    let program = Program::start(&database.url, &reach).await;
    let client = program.client("100.00").await;
    let product = program.product(0).await;
    let hook = json!({"name": "all", "url": receiver.url(), "events": ["order.created"]});
    assert_eq!(program.call(&client, "POST", "/webhooks", None, &hook).await.unwrap().0, 201);
    let body = json!({"product_id": product, "denomination": 10, "quantity": 1});
    assert_eq!(program.call(&client, "POST", "/orders", None, &body).await.unwrap().0, 201);
    let pool = PgPool::connect(&database.url).await.unwrap();
    let until = async |what: &str, sql: &str| until_true(what, &pool, sql).await;
    until("it is delivered", "SELECT count(*) = 1 FROM delivery_state WHERE status = 'delivered'").await;
    drop(program);
    let kept = "SELECT count(*) = 1 FROM delivery_attempts, webhook_envelopes WHERE payload IS NOT NULL";
    until("all of it is kept by the defaults", kept).await;

    let short = ["--attempt-retention", "1ms", "--payload-retention", "1ms"];
    let program = Program::start(&database.url, &[&reach[..], &short].concat()).await;
    until("attempts are deleted", "SELECT count(*) = 0 FROM delivery_attempts").await;
    until("payloads are deleted", "SELECT count(payload) = 0 FROM webhook_envelopes").await;
    let get = async |path: &str| program.call(&client, "GET", path, None, &Value::Null).await.unwrap().1;
    let shown = get("/webhooks/deliveries").await["deliveries"][0].clone();
    assert_eq!((&shown["status"], &shown["attempt_count"]), (&json!("delivered"), &json!(1)));
    let detail = get(&format!("/webhooks/deliveries/{}", shown["id"])).await;
    assert_eq!((&detail["attempts"], &detail["response_body"]), (&json!([]), &Value::Null));
    assert_eq!(detail["payload"]["event_type"], "order.created", "made again");
}

#[tokio::test]
async fn restored_payloads_are_deleted_again_within_a_day() {
    let node = Node::start().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let setup = node.setup().await;
    webhook(&node, &setup.client, &receiver.url(), &["order.created"]).await;
    order(&node, &setup).await;
    node.project().await;
    assert_eq!(send(&node, &receiver).await, 1);
    let mut short = retention(&node, DAY, AT_ONCE, 1 << 20);
    assert_eq!(short.once(FIRST_SHARD).await.unwrap().payloads, 1);
    assert!(rebuild(&node.options, Rebuild::Deliveries, |_| {}).await.unwrap().was_clean());
    assert_eq!(full_payloads(&node).await, 1);
    let mut gone = vec![];
    for _ in 0..144 {
        gone.push(short.once(FIRST_SHARD).await.unwrap().payloads);
    }
    assert_eq!((gone.iter().sum::<u64>(), full_payloads(&node).await), (1, 0), "{gone:?}");
}

#[tokio::test]
async fn a_deleted_webhook_keeps_no_response_bodies() {
    let node = Node::start().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::StatusWithBody(500, "an answer".to_owned())).await;
    let setup = node.setup().await;
    let (deleted, _) = webhook(&node, &setup.client, &receiver.url(), &["order.created"]).await;
    webhook(&node, &setup.client, &receiver.url(), &["order.created"]).await;
    order(&node, &setup).await;
    node.project().await;
    assert_eq!(send(&node, &receiver).await, 2);
    assert_eq!(node.client(&setup.client, "DELETE", &format!("/webhooks/{deleted}"), Value::Null).await.status, 200);
    node.project().await;
    let forgotten = retention(&node, DAY, DAY, 1 << 20).once(FIRST_SHARD).await.unwrap();
    // The delivery has one copy of the body, and its failed attempt the other.
    assert_eq!(forgotten, Forgotten { response_bodies: 2, ..Forgotten::default() });
    let kept = "SELECT array_agg(webhook_id = $1) FROM
        (SELECT webhook_id FROM delivery_state WHERE response_body IS NOT NULL
         UNION ALL SELECT webhook_id FROM delivery_attempts WHERE response_body IS NOT NULL) AS body";
    let kept: Vec<bool> = sqlx::query_scalar(kept).bind(deleted).fetch_one(node.ledger.pool()).await.unwrap();
    assert_eq!(kept, [false, false], "the bodies of the other webhook are kept");
    sound(&node).await;
}
