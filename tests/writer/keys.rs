//! Requests with the same idempotency key, the first of which is not decided in time.

use super::pipeline::{hold_head, let_go, until_taken};
use super::*;
use crate::support::wait::until;

fn render(_: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
    Ok(StoredResponse { status: 201, body: "{}".into(), is_secret: false })
}

/// Submits the order under a separate key, as a request does.
fn submit(ledger: &Ledger, customer: &Customer, reference: &str) -> tokio::task::JoinHandle<Result<Reply, WriteError>> {
    let (ledger, command) = (ledger.clone(), order(customer, reference));
    let key = Idempotency { key_hash: [7; 32], fingerprint: [1; 32], render, renderer: None };
    tokio::spawn(async move { ledger.submit(SHARD, command, origin(), Some(key)).await })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_request_learns_that_nothing_happened_although_a_second_one_waits() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let metrics = Metrics::default();
    let ledger = ledger::open_with(&options, metrics.clone()).await;
    let customer = Customer::with(&ledger, "100.00").await;
    let holder = hold_head(&options).await;
    // The writer works on another command until both requests have timed out.
    let other = ledger.enqueue(SHARD, commands::CreateAccount { name: "Other".into() }, origin(), None).unwrap();
    until_locked_out(&options, "rewards-ledger writer").await;
    let first = submit(&ledger, &customer, "once");
    until("it is in the queue", async || metrics.queue_depths() == [(SHARD, 1)]).await;
    let second = submit(&ledger, &customer, "once");
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert!(matches!(first, Err(WriteError::Unavailable)), "nothing happened, and nothing will happen: {first:?}");
    // After a pause of the machine both time out at once, in either order.
    assert!(matches!(second, Err(WriteError::Unavailable | WriteError::InProgress)), "nor did this one: {second:?}");
    let_go(holder).await;
    _ = other.await;
    let third = submit(&ledger, &customer, "once").await.unwrap();
    assert!(matches!(third, Ok(Reply::Stored { is_replay: false, .. })), "{third:?}");
    assert_eq!(balance(ledger.pool(), &customer).await, "90.00");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_finds_no_room_beside_an_undecided_one_gets_in_progress() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let ledger = ledger::open(&options).await;
    let customer = Customer::with(&ledger, "100.00").await;
    let holder = hold_head(&options).await;
    let first = submit(&ledger, &customer, "once");
    until_locked_out(&options, "rewards-ledger writer").await;
    while ledger.enqueue(SHARD, commands::CreateAccount { name: "Other".into() }, origin(), None).is_ok() {}
    let second = submit(&ledger, &customer, "once").await.unwrap();
    let key = Idempotency { key_hash: [8; 32], fingerprint: [1; 32], render, renderer: None };
    let other = ledger.submit(SHARD, order(&customer, "other"), origin(), Some(key)).await;
    assert!(matches!(other, Err(WriteError::Unavailable)), "another key has no room either: {other:?}");
    let_go(holder).await;
    match first.await.unwrap() {
        Ok(Reply::Stored { is_replay: false, .. }) => {
            assert!(matches!(second, Err(WriteError::InProgress)), "the first request happened: {second:?}");
        }
        // On a slow machine it waited for too long, and nothing happened.
        first => assert!(matches!(first, Err(WriteError::Unavailable)), "{first:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_during_an_unknown_commit_of_its_key_gets_in_progress() {
    let database = postgres::database().await;
    let (ledger, proxy) = behind_a_proxy(&database.url).await;
    let customer = Customer::with(&ledger, "100.00").await;
    ledger::run(&ledger, order(&customer, "warm")).await;
    proxy.set(NextCommit::LosesItsAnswerForLong);
    let first = submit(&ledger, &customer, "once");
    until("its commit is cut", async || proxy.cuts() == 1).await;
    let second = submit(&ledger, &customer, "once");
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert!(matches!(first, Err(WriteError::OutcomeUnknown)), "{first:?}");
    assert!(matches!(second, Err(WriteError::InProgress)), "the first request was committed: {second:?}");
    proxy.set_away(false);
    let third = submit(&ledger, &customer, "once").await.unwrap();
    assert!(matches!(third, Ok(Reply::Stored { is_replay: true, .. })), "{third:?}");
    assert_eq!(balance(ledger.pool(), &customer).await, "80.00");
}

/// A failover can lose a response after the writer has read it for a retry. The batch of the retry finds that out.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_response_must_exist_when_it_is_repeated() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let metrics = Metrics::default();
    let ledger = ledger::open_with(&options, metrics.clone()).await;
    let customer = Customer::with(&ledger, "100.00").await;
    let first = submit(&ledger, &customer, "first").await.unwrap();
    assert!(matches!(first, Ok(Reply::Stored { is_replay: false, .. })), "{first:?}");
    let holder = hold_head(&options).await;
    let in_flight = ledger.enqueue(SHARD, order(&customer, "in flight"), origin(), None).unwrap();
    until_locked_out(&options, "rewards-ledger writer").await;
    // The writer reads the response while the other order is in flight.
    let mut admin = options.connect().await.unwrap();
    let before: chrono::DateTime<chrono::Utc> =
        sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(&mut admin).await.unwrap();
    let second = submit(&ledger, &customer, "second");
    until_taken(&metrics).await;
    let has_read = "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle'
        AND application_name = 'rewards-ledger writer reads' AND query_start > $1 AND query NOT LIKE 'DISCARD%'";
    until("it has read", async || sqlx::query_scalar(has_read).bind(before).fetch_one(&mut admin).await.unwrap()).await;
    sqlx::raw_sql("DELETE FROM idempotency_keys").execute(&mut admin).await.unwrap();
    let_go(holder).await;
    assert!(in_flight.await.unwrap().is_ok());
    let second = second.await.unwrap();
    assert!(matches!(second, Ok(Reply::Stored { is_replay: false, .. })), "the first response is gone: {second:?}");
    assert_eq!(balance(ledger.pool(), &customer).await, "70.00");
}
