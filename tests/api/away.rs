//! Responses of the API while the database is unavailable or slow.

use std::time::{Duration, Instant};

use ledger_events::Actor;
use rewards_ledger::api::error::Code;
use rewards_ledger::ledger::{FIRST_SHARD, Origin, WriteError, commands};
use serde_json::{Value, json};

use crate::support::node::{Node, Setup, TestResponse};
use crate::support::postgres::set_read_only;
use crate::support::proxy::NextCommit;
use crate::support::wait::{until, until_locked_out};

fn order(setup: &Setup) -> Value {
    json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1})
}

/// Places the order under its key as a client would: it retries until the outcome is known.
async fn insist(node: &Node, setup: &Setup, key: &str) -> TestResponse {
    insist_on(node, setup, key, &order(setup)).await
}

async fn insist_on(node: &Node, setup: &Setup, key: &str, body: &Value) -> TestResponse {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = node.keyed(&setup.client, "/orders", key, body).await;
        if ![409, 503, 504].contains(&answer.status) {
            return answer;
        }
        assert!(Instant::now() < deadline, "{}", answer.text);
        tokio::time::sleep(Duration::from_millis(100)).await; // the pause of a client before it retries
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_database_nothing_happens_and_503_says_when_to_retry() {
    let (node, proxy) = Node::behind_a_proxy().await;
    let setup = node.setup().await;
    let head = node.head().await;
    proxy.set_away(true);
    let body = order(&setup);
    let (ready, read, place, create) = tokio::join!(
        node.send(node.request("GET", "/readyz")),
        node.client(&setup.client, "GET", "/orders", Value::Null),
        node.keyed(&setup.client, "/orders", "key", &body),
        // The operator's token is in the configuration, so this request reaches the writer and waits there.
        node.operator("POST", "/accounts", json!({"name": "Other"})),
    );
    for (what, answer) in [("readyz", ready), ("a read", read), ("an order", place), ("an account", create)] {
        assert_eq!(answer.status, 503, "{what}: {}", answer.text);
        let message = answer.refused(503, "E_UNAVAILABLE")["message"].take();
        let told = if what == "readyz" { "The database does not answer." } else { Code::Unavailable.message() };
        assert_eq!(message, told, "{what}: the message is the service's own, not the database's");
        let seconds: u32 = answer.header("retry-after").parse().unwrap_or_else(|_| panic!("{what}: Retry-After"));
        assert!(seconds >= 1, "{what}");
    }
    assert_eq!(node.send(node.request("GET", "/healthz")).await.status, 200);

    proxy.set_away(false);
    insist(&node, &setup, "key").await.data(201);
    assert_eq!(node.send(node.request("GET", "/readyz")).await.status, 200);
    assert_eq!(node.head().await, head + 2, "none of the refused requests had an effect");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_database_counts_as_unavailable() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let head = node.head().await;
    let mut admin = node.admin().await;
    set_read_only(&mut admin, true).await;
    let create = commands::CreateAccount { name: "Another".to_owned() };
    let origin = Origin { actor: Actor::Operator(0), request_id: "another".to_owned() };
    let body = order(&setup);
    let (place, operator, command) = tokio::join!(
        node.keyed(&setup.client, "/orders", "key", &body),
        node.operator("POST", "/accounts", json!({"name": "Other"})),
        node.ledger.execute(FIRST_SHARD, create, origin),
    );
    place.refused(503, "E_UNAVAILABLE");
    operator.refused(503, "E_UNAVAILABLE");
    assert!(matches!(command, Err(WriteError::Unavailable)), "{command:?}");
    assert_eq!(node.head().await, head, "it can be read");
    node.client(&setup.client, "GET", "/orders", Value::Null).await.refused(503, "E_UNAVAILABLE");

    // Connections opened meanwhile are read-only, and nobody closes them.
    set_read_only(&mut admin, false).await;
    insist(&node, &setup, "key").await.data(201);
    assert_eq!(node.head().await, head + 2, "none of the refused requests had an effect");
    sqlx::raw_sql("UPDATE log_head SET epoch = epoch").execute(node.ledger.pool()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_answers_503_and_says_when_to_retry() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let mut holder = node.admin().await;
    sqlx::raw_sql("BEGIN; SELECT position FROM log_head FOR UPDATE").execute(&mut holder).await.unwrap();
    let create = commands::CreateAccount { name: "Waits".to_owned() };
    let origin = || Origin { actor: Actor::Operator(0), request_id: "waits".to_owned() };
    // A command that the writer takes frees a place in the queue. So retry until the queue is full and stays full.
    // Each request has a key of its own, because a full queue answers 409 under the key of an undecided one.
    let (mut waiting, mut round, mut body) = (vec![], 0, order(&setup));
    let mut refused = None;
    until("the queue is full and stays full", async || {
        while let Ok(reply) = node.ledger.enqueue(FIRST_SHARD, create.clone(), origin(), None) {
            waiting.push(reply);
        }
        round += 1;
        let key = format!("key-{round}");
        body["client_reference"] = json!(key);
        let place = node.keyed(&setup.client, "/orders", &key, &body);
        refused = tokio::time::timeout(Duration::from_secs(1), place).await.ok();
        refused.is_some()
    })
    .await;
    let refused = refused.unwrap();
    refused.refused(503, "E_UNAVAILABLE");
    assert!(refused.header("retry-after").parse::<u32>().unwrap() >= 1);
    sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
    drop(waiting);
    let placed = "SELECT count(*) FROM orders WHERE client_reference = $1";
    insist_on(&node, &setup, &format!("key-{round}"), &body).await.data(201);
    let orders = sqlx::query_scalar(placed).bind(format!("key-{round}"));
    let placed: i64 = orders.fetch_one(node.ledger.pool()).await.unwrap();
    assert_eq!(placed, 1, "the refused order was not placed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_client_hangs_up_is_placed_once() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let head = node.head().await;
    let body = order(&setup);
    let mut holder = node.admin().await;
    sqlx::raw_sql("BEGIN; SELECT position FROM log_head FOR UPDATE").execute(&mut holder).await.unwrap();
    tokio::select! {
        answer = node.keyed(&setup.client, "/orders", "key", &body) => panic!("{}", answer.text),
        () = until_locked_out(&node.options, "rewards-ledger writer") => {} // and the client closes the connection
    }
    sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
    until("the order is placed", async || node.head().await > head).await;
    let told = insist(&node, &setup, "key").await;
    told.data(201);
    assert_eq!(told.header("idempotent-replayed"), "true");
    assert_eq!(node.head().await, head + 2, "once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_with_an_unknown_outcome_answers_504_and_its_key_gives_the_outcome_later() {
    let (node, proxy) = Node::behind_a_proxy().await;
    let setup = node.setup().await;
    let head = node.head().await;
    proxy.set(NextCommit::LosesItsAnswerForLong);
    let unknown = node.keyed(&setup.client, "/orders", "key", &order(&setup)).await;
    unknown.refused(504, "E_OUTCOME_UNKNOWN");
    assert!(unknown.header("retry-after").parse::<u32>().unwrap() >= 1);

    proxy.set_away(false);
    let told = insist(&node, &setup, "key").await;
    told.data(201);
    assert_eq!(told.header("idempotent-replayed"), "true");
    assert_eq!(node.head().await, head + 2);
}

/// The read of the codes is itself an event, and its outcome can be unknown.
#[tokio::test(flavor = "multi_thread")]
async fn codes_are_not_shown_until_their_read_is_known_to_be_committed() {
    let (node, proxy) = Node::behind_a_proxy().await;
    let setup = node.setup().await;
    let placed = node.client(&setup.client, "POST", "/orders", order(&setup)).await.data(201);
    proxy.set(NextCommit::LosesItsAnswerForLong);
    let path = format!("/orders/{}/vouchers", placed["id"]);
    node.client(&setup.client, "GET", &path, Value::Null).await.refused(504, "E_OUTCOME_UNKNOWN");
    proxy.set_away(false);
    until("the codes are shown", async || node.client(&setup.client, "GET", &path, Value::Null).await.status == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_answered_with_504_and_never_committed_does_not_run_later() {
    let (node, proxy) = Node::behind_a_proxy().await;
    let setup = node.setup().await;
    let head = node.head().await;
    proxy.set(NextCommit::IsLostForLong);
    let unknown = node.keyed(&setup.client, "/orders", "key", &order(&setup)).await;
    unknown.refused(504, "E_OUTCOME_UNKNOWN");

    proxy.set_away(false);
    // The writer writes the lost batch before it takes new commands. So once another order succeeds, the writer is
    // back.
    insist(&node, &setup, "other").await.data(201);
    assert_eq!(node.head().await, head + 2, "only the other order is in the log");
    let again = node.keyed(&setup.client, "/orders", "key", &order(&setup)).await;
    again.data(201);
    assert_eq!(again.headers.get("idempotent-replayed"), None, "nothing was stored under the key");
    assert_eq!(node.head().await, head + 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_times_out_while_the_first_request_is_undecided_gets_409() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let head = node.head().await;
    let body = order(&setup);
    // Hold the head, as another node would.
    let mut holder = node.options.connect().await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT position FROM log_head FOR UPDATE").execute(&mut holder).await.unwrap();
    let second = async {
        until_locked_out(&node.options, "rewards-ledger writer").await;
        let second = node.keyed(&setup.client, "/orders", "key", &body).await;
        sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
        second
    };
    let (first, second) = tokio::join!(node.keyed(&setup.client, "/orders", "key", &body), second);
    second.refused(409, "E_IDEMPOTENCY_IN_PROGRESS");
    assert_eq!(second.header("retry-after"), "1");
    first.data(201);
    let third = node.keyed(&setup.client, "/orders", "key", &body).await;
    assert_eq!((&third.text, third.header("idempotent-replayed")), (&first.text, "true"));
    assert_eq!(node.head().await, head + 2, "one order");
}

/// An upload of 1,500 vouchers takes two commands.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_upload_reports_its_progress_and_can_be_sent_again() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let mut admin = node.admin().await;
    // From the second part of the upload on, the database is unavailable to it.
    let away = "
        CREATE FUNCTION be_away() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
            IF (SELECT count(*) FROM vault.vouchers) > 1003 THEN RAISE 'away' USING ERRCODE = 'cannot_connect_now'; END IF;
            RETURN NULL;
        END $$;
        CREATE TRIGGER away AFTER INSERT ON vault.vouchers EXECUTE FUNCTION be_away()";
    sqlx::raw_sql(away).execute(&mut admin).await.unwrap();
    let vouchers: Vec<Value> = (0..1_500).map(|n| json!({"card_number": format!("more-{n}")})).collect();
    let (path, stock) = (format!("/products/{}/vouchers", setup.product_id), json!({"denomination": 10, "vouchers": vouchers}));
    let broken_off = node.operator("POST", &path, stock.clone()).await;
    let message = broken_off.refused(504, "E_OUTCOME_UNKNOWN")["message"].take();
    assert!(
        message.as_str().unwrap().starts_with("The upload was interrupted after 1000 of its vouchers were added. Send the whole")
    );
    assert!(broken_off.header("retry-after").parse::<u32>().unwrap() >= 1);

    sqlx::raw_sql("DROP TRIGGER away ON vault.vouchers").execute(&mut admin).await.unwrap();
    let loaded = node.operator("POST", &path, stock).await.data(200);
    let rows: Vec<i64> = (1..=1_000).collect();
    assert_eq!(loaded, json!({"accepted": 500, "duplicates": 1_000, "duplicate_rows": rows, "rejected": []}));
}
