//! A synchronous standby that lacks what its primary shows.

use ledger_database::PgConnectOptions;
use rewards_ledger::ledger::{Command, CommandResult, Idempotency, Ledger, Reply, StoredResponse, WriteError};
use sqlx::PgConnection;
use tokio::task::JoinHandle;

use crate::support::ledger::{self, Customer, SHARD, origin};
use crate::support::postgres;
use crate::support::proxy::Proxy;
use crate::support::wait::until;

fn render(_: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
    Ok(StoredResponse { status: 201, body: "{}".into(), is_secret: false })
}

/// Submits an order under a key, as a request and each retry of it do.
fn submit(ledger: &Ledger, customer: &Customer) -> JoinHandle<Result<Reply, WriteError>> {
    let (ledger, command) = (ledger.clone(), Command::PlaceOrder(customer.order("10.00", 1)));
    let key = Idempotency { key_hash: [7; 32], fingerprint: [1; 32], render, renderer: None };
    tokio::spawn(async move { ledger.submit(SHARD, command, origin(), Some(key)).await })
}

/// Makes commits wait for a standby that is not there, or no longer. The checkpointer tells the others of the setting, at any time
/// after the reload. So another connection writes until one of its commits waits, or the waiting one goes on.
async fn wait_for_standby(admin: &mut PgConnection, options: &PgConnectOptions, waits: bool) {
    let set = match waits {
        true => "ALTER SYSTEM SET synchronous_standby_names = 'absent'",
        false => "ALTER SYSTEM RESET synchronous_standby_names",
    };
    for statement in [set, "SELECT pg_reload_conf()"] {
        sqlx::raw_sql(statement).execute(&mut *admin).await.unwrap();
    }
    let mut other = options.clone().application_name("probe").connect().await.unwrap();
    let write = "SELECT pg_logical_emit_message(true, 'test', '')";
    if !waits {
        sqlx::raw_sql(write).execute(&mut other).await.unwrap();
        return;
    }
    let writing = tokio::spawn(async move { while sqlx::raw_sql(write).execute(&mut other).await.is_ok() {} });
    let is_waiting = "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'probe' AND wait_event = 'SyncRep'";
    until("commits wait for the standby", async || sqlx::query_scalar(is_waiting).fetch_one(&mut *admin).await.unwrap()).await;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'probe'";
    sqlx::raw_sql(end).execute(&mut *admin).await.unwrap();
    writing.await.unwrap();
}

/// Returns whether a writer's commit waits for the standby.
async fn has_waiting_commit(admin: &mut PgConnection) -> bool {
    let waits =
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'rewards-ledger writer' AND wait_event = 'SyncRep'";
    sqlx::query_scalar(waits).fetch_one(admin).await.unwrap()
}

/// Submits an order that the wallet does not cover.
async fn refuse(ledger: &Ledger, customer: &Customer) {
    let refused = ledger::execute(ledger, customer.order("25.00", 1), origin()).await;
    assert!(matches!(refused, Err(WriteError::Rejected(_))), "{refused:?}");
}

/// A commit waits for its standby, and somebody ends the waiting backend or starts the primary again. Everybody sees the order
/// then, and the standby does not have it. If the standby took over now, the order would be lost. So no retry may be told that it
/// exists.
async fn no_retry_is_answered_before_the_standby_has_the_order(is_pipelined: bool) {
    let server = postgres::own_server(true).await;
    let options: PgConnectOptions = server.url().parse().unwrap();
    rewards_ledger::ledger::migrate(&options).await.unwrap();
    let (proxy, through) = Proxy::before(&server.url()).await;
    let (first, second) = (ledger::open(&through).await, ledger::open(&options).await);
    let customer = Customer::with(&first, "20.00").await;
    let mut admin = options.connect().await.unwrap();
    wait_for_standby(&mut admin, &options, true).await;

    let sent = submit(&first, &customer);
    until("the commit waits for the standby", async || has_waiting_commit(&mut admin).await).await;
    // The first node does not look for its commit before the end.
    proxy.set_away(true);
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    sqlx::raw_sql(end).execute(&mut admin).await.unwrap();
    let is_placed = "SELECT count(*) = 1 FROM orders";
    until("the order is seen", async || sqlx::query_scalar(is_placed).fetch_one(&mut admin).await.unwrap()).await;

    if is_pipelined {
        // A refused command brings the second node to the present head, and writes nothing.
        wait_for_standby(&mut admin, &options, false).await;
        refuse(&second, &customer).await;
        wait_for_standby(&mut admin, &options, true).await;
    }
    let mut again = submit(&second, &customer);
    tokio::select! {
        answer = &mut again => panic!("a standby that took over now would not have the order: {answer:?}"),
        () = until("the retry waits for the standby", async || has_waiting_commit(&mut admin).await) => {}
    }
    wait_for_standby(&mut admin, &options, false).await;
    let again = again.await.unwrap();
    assert!(matches!(again, Ok(Reply::Stored { is_replay: true, .. })), "{again:?}");
    proxy.set_away(false);
    _ = sent.await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_retry_that_locks_the_head_is_answered_before_the_standby_has_the_order() {
    no_retry_is_answered_before_the_standby_has_the_order(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_pipelined_retry_is_answered_before_the_standby_has_the_order() {
    no_retry_is_answered_before_the_standby_has_the_order(true).await;
}

/// The node's database may be the old primary, whose standby was promoted and has later events. It may be told of no refusal
/// that rests on the old ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_command_is_answered_only_after_a_commit_that_the_standby_has() {
    let server = postgres::own_server(true).await;
    let options: PgConnectOptions = server.url().parse().unwrap();
    rewards_ledger::ledger::migrate(&options).await.unwrap();
    let customer = Customer::with(&ledger::open(&options).await, "20.00").await;
    let mut admin = options.connect().await.unwrap();
    let node = ledger::open(&options).await;
    // The node's first command locks the head, and the second one is decided on cached rows.
    for _ in 0..2 {
        wait_for_standby(&mut admin, &options, true).await;
        tokio::select! {
            () = refuse(&node, &customer) => panic!("the command was refused on events that no standby may have"),
            () = until("the refusal waits for the standby", async || has_waiting_commit(&mut admin).await) => {}
        }
        wait_for_standby(&mut admin, &options, false).await;
        refuse(&node, &customer).await;
    }
    server.stop().await.unwrap();
}
