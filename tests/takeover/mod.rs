//! The work of a node that dies, or only freezes, continues where it was: each projection, the tree, sending, and
//! fulfilment.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};
use webhook_client::receiver::ReceiverResponse;

use crate::support::postgres;
use crate::support::program::{Program, run};
use crate::support::shop::receiver;
use crate::support::wait::{until, until_true};

/// Freezes a node between two of its steps, so that it holds nothing.
async fn frozen_at_rest(node: &Program, pool: &PgPool) {
    let at_rest = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name LIKE 'rewards-ledger%'
        AND xact_start IS NOT NULL AND datname = current_database())";
    until("it is frozen at rest", async || {
        node.signal(Signal::SIGSTOP);
        // Steps of nodes that are not frozen are short.
        let rests = tokio::time::timeout(Duration::from_secs(1), until_true("it rests", pool, at_rest)).await.is_ok();
        if !rests {
            node.signal(Signal::SIGCONT);
            until_true("it comes to rest", pool, at_rest).await;
        }
        rests
    })
    .await;
}

/// Work that only one node does at a time.
struct Work {
    roles: &'static str,
    /// Roles of the node that takes the orders.
    beside: &'static str,
    /// Table that the work writes in the middle of its transaction, while it holds what it has taken.
    writes: &'static str,
    /// Query that returns true when all work is done.
    is_done: &'static str,
}

const DELIVERIES: Work = Work {
    roles: "projector",
    beside: "api",
    writes: "deliveries",
    is_done: "SELECT EXISTS (SELECT FROM projection_checkpoints c JOIN log_head h USING (shard_id) WHERE c.projection = 'deliveries' AND c.position = h.position)
        AND (SELECT count(*) = 5 AND count(DISTINCT event_id) = 5 FROM deliveries)",
};

/// Only one of all nodes claims deliveries at a time.
const SENDING: Work = Work {
    roles: "delivery",
    beside: "api,projector",
    writes: "delivery_attempts",
    is_done: "SELECT count(*) = 5 FROM delivery_state WHERE status = 'delivered'",
};

const DAILY_TOTALS: Work = Work {
    roles: "projector",
    beside: "api",
    writes: "daily_totals",
    is_done: "SELECT EXISTS (SELECT FROM projection_checkpoints c JOIN log_head h USING (shard_id) WHERE c.projection = 'daily_totals' AND c.position = h.position)
        AND (SELECT sum(order_debits) = 50 FROM daily_totals)",
};

const TREE: Work = Work {
    roles: "projector",
    beside: "api",
    writes: "log_checkpoints",
    is_done: "SELECT (SELECT max(size) FROM log_checkpoints) = (SELECT position FROM log_head)",
};

const FULFILMENT: Work = Work {
    roles: "fulfilment",
    beside: "api",
    writes: "vault.vouchers",
    is_done: "SELECT count(*) = 5 AND count(DISTINCT order_id) = 5 FROM vault.vouchers WHERE order_id IN (SELECT id FROM orders WHERE status = 'DELIVERED')",
};

/// Holds a node in the middle of some work, sends it the signal `harm`, and waits until another node continues.
async fn taken_over(work: Work, harm: Signal) {
    let Work { roles, beside, writes, is_done } = work;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), receiver.ca_pem()).unwrap();
    let reach = ["--webhook-ca-file", ca.path().to_str().unwrap(), "--webhook-allow-nets", "127.0.0.0/8,::1/128"];
    let arguments = [&["--roles", roles][..], &reach].concat();
    let database = postgres::database().await;
    let options: ledger_database::PgConnectOptions = database.url.parse().unwrap();
    let pool = PgPool::connect_with(options.hosts()[0].clone()).await.unwrap();
    let api = Program::start(&database.url, &["--roles", beside]).await;
    let client = api.client("1000.00").await;
    let product = api.product(5).await;
    let webhook = json!({"name": "a", "url": receiver.url(), "events": ["order.created"]});
    let (status, answer) = api.call(&client, "POST", "/webhooks", None, &webhook).await.unwrap();
    assert_eq!(status, 201, "{answer}");
    let mut first = Program::start(&database.url, &arguments).await;
    if roles == "projector" {
        let all = "SELECT count(*) = 4 FROM projection_checkpoints c JOIN log_head h USING (shard_id)
            WHERE c.position = h.position AND c.projection <> 'transparency'";
        until_true("the first projects", &pool, all).await;
    }
    // The other node runs and waits.
    let other = Program::start(&database.url, &arguments).await;
    frozen_at_rest(&other, &pool).await;

    // The first node reaches its write, and waits for this lock.
    let mut admin: PgConnection = options.connect().await.unwrap();
    let mut lock = admin.begin().await.unwrap();
    sqlx::query(AssertSqlSafe(format!("LOCK TABLE {writes} IN EXCLUSIVE MODE"))).execute(&mut *lock).await.unwrap();
    let body = json!({"product_id": product, "denomination": 10, "quantity": 1});
    let placing = (0..5).map(|_| api.call(&client, "POST", "/orders", None, &body));
    for placed in futures::future::join_all(placing).await {
        let (status, answer) = placed.unwrap();
        assert_eq!(status, 201, "{answer}");
    }
    let waits = format!(
        "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = '{writes}'::regclass AND NOT granted AND mode <> 'AccessShareLock'
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
    );
    until_true("the first waits for the lock", &pool, &waits).await;
    first.signal(harm);
    other.signal(Signal::SIGCONT);
    lock.commit().await.unwrap();
    until_true("the other node continues", &pool, is_done).await;

    if harm == Signal::SIGSTOP {
        // It can no longer write the rest of its transaction, and continues beside the other node.
        first.signal(Signal::SIGCONT);
        // Nothing signals that a program goes on, so it gets time to end.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!first.has_ended());
        first.signal(Signal::SIGTERM);
        assert!(first.ended().await.success());
    }
    drop(first);
    until_true("nothing is done twice", &pool, is_done).await;
    let verified = run(other.command().arg("verify")).await;
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_taken_over_from_a_frozen_node() {
    taken_over(DELIVERIES, Signal::SIGSTOP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_taken_over_from_a_killed_node() {
    taken_over(DELIVERIES, Signal::SIGKILL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sending_is_taken_over_from_a_frozen_node() {
    taken_over(SENDING, Signal::SIGSTOP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sending_is_taken_over_from_a_killed_node() {
    taken_over(SENDING, Signal::SIGKILL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn daily_totals_are_taken_over_from_a_frozen_node() {
    taken_over(DAILY_TOTALS, Signal::SIGSTOP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn daily_totals_are_taken_over_from_a_killed_node() {
    taken_over(DAILY_TOTALS, Signal::SIGKILL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tree_is_taken_over_from_a_frozen_node() {
    taken_over(TREE, Signal::SIGSTOP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tree_is_taken_over_from_a_killed_node() {
    taken_over(TREE, Signal::SIGKILL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fulfilment_is_taken_over_from_a_frozen_node() {
    taken_over(FULFILMENT, Signal::SIGSTOP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fulfilment_is_taken_over_from_a_killed_node() {
    taken_over(FULFILMENT, Signal::SIGKILL).await;
}
