//! Requests with the same idempotency key, the first of which is not decided in time.

use super::pipeline::{hold_head, let_go};
use super::*;
use crate::support::wait::until;

fn render(_: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
    Ok(StoredResponse { status: 201, body: "{}".into(), is_secret: false })
}

/// Submits the order under a separate key, as a request does.
fn submit(ledger: &Ledger, customer: &Customer, reference: &str) -> tokio::task::JoinHandle<Result<Reply, WriteError>> {
    let (ledger, command) = (ledger.clone(), order(customer, reference));
    let key = Idempotency { key_hash: [7; 32], fingerprint: [1; 32], render };
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
    assert!(matches!(second, Err(WriteError::InProgress)), "the first request still happens: {second:?}");
    let key = Idempotency { key_hash: [8; 32], fingerprint: [1; 32], render };
    let other = ledger.submit(SHARD, order(&customer, "other"), origin(), Some(key)).await;
    assert!(matches!(other, Err(WriteError::Unavailable)), "another key has no room either: {other:?}");
    let_go(holder).await;
    let first = first.await.unwrap();
    assert!(matches!(first, Ok(Reply::Stored { is_replay: false, .. })), "{first:?}");
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
