//! A projection goes on where it was when the node that ran it dies, or only freezes.

use std::time::Duration;

use nix::sys::signal::Signal;
use rewards_ledger::ledger::{FIRST_SHARD, reader};
use serde_json::json;
use sqlx::{ConnectOptions, Connection, PgConnection, PgPool};

use crate::support::postgres;
use crate::support::program::{DEADLINE, Program};

/// What "within seconds" may be on a machine that does other things too.
const SECONDS: Duration = Duration::from_secs(20);

async fn until(patience: Duration, what: &str, pool: &PgPool, sql: &'static str) {
    let waited = tokio::time::timeout(patience, async {
        while !sqlx::query_scalar::<_, bool>(sql).fetch_one(pool).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{what} within {patience:?}"));
}

/// Has a node stand in the middle of projecting, with the projection in its hands; does `harm` to
/// it, and sees another one go on.
async fn taken_over(harm: Signal) {
    let database = postgres::database().await;
    let options: sqlx::postgres::PgConnectOptions = database.url.parse().unwrap();
    let pool = PgPool::connect_with(options.clone()).await.unwrap();
    let api = Program::start(&database.url, &["--roles", "api"]).await;
    let client = api.client("1000.00").await;
    let product = api.product(0).await;
    let webhook = json!({"name": "a", "url": "https://example.com/hook", "events": ["order.created"]});
    let (status, answer) = api.call(&client, "POST", "/webhooks", None, &webhook).await.unwrap();
    assert_eq!(status, 201, "{answer}");
    let mut first = Program::start(&database.url, &["--roles", "projector"]).await;
    until(
        DEADLINE,
        "the first projects",
        &pool,
        "SELECT EXISTS (SELECT FROM projection_checkpoints c JOIN log_head h USING (shard_id) WHERE c.projection = 'deliveries' AND c.position = h.position)",
    )
    .await;

    // It comes to where it writes deliveries, holds its checkpoint, and waits for this lock.
    let mut admin: PgConnection = options.connect().await.unwrap();
    let mut lock = admin.begin().await.unwrap();
    sqlx::query("LOCK TABLE deliveries IN EXCLUSIVE MODE").execute(&mut *lock).await.unwrap();
    for _ in 0..5 {
        let body = json!({"product_id": product, "denomination": 10, "quantity": 1});
        let (status, answer) = api.call(&client, "POST", "/orders", None, &body).await.unwrap();
        assert_eq!(status, 201, "{answer}");
    }
    until(
        DEADLINE,
        "the first waits for the lock",
        &pool,
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'rewards-ledger projector'
            AND wait_event_type = 'Lock' AND datname = current_database())",
    )
    .await;
    let other = Program::start(&database.url, &["--roles", "projector"]).await;
    first.signal(harm);
    lock.commit().await.unwrap();

    let head = reader::head(&pool, FIRST_SHARD).await.unwrap();
    let caught_up = tokio::time::timeout(SECONDS, async {
        let position = "SELECT position FROM projection_checkpoints WHERE projection = 'deliveries'";
        while sqlx::query_scalar::<_, i64>(position).fetch_one(&pool).await.unwrap() < head {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    caught_up.await.unwrap_or_else(|_| panic!("the other goes on within {SECONDS:?}"));
    if harm == Signal::SIGSTOP {
        // What it still wanted to write, it cannot; and it goes on beside the other.
        first.signal(Signal::SIGCONT);
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!first.has_ended());
        first.signal(Signal::SIGTERM);
        assert!(first.ended().await.success());
    }
    drop(first);
    let once = "SELECT count(*) = 5 AND count(DISTINCT event_id) = 5 FROM deliveries";
    assert!(sqlx::query_scalar::<_, bool>(once).fetch_one(&pool).await.unwrap(), "each delivery is made once");
    let verified = other.command().arg("verify").output().await.unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

#[tokio::test(flavor = "multi_thread")]
async fn from_a_node_that_freezes() {
    taken_over(Signal::SIGSTOP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn from_a_node_that_is_killed() {
    taken_over(Signal::SIGKILL).await;
}
