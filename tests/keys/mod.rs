//! Master keys: the binding of a ledger to its key, and key changes while the service runs.

mod rotation;
mod rows;

use std::sync::Arc;

use ledger_database::{PgConnectOptions, PgPool};
use rewards_ledger::ledger::{Ledger, SchemaError};
use rewards_ledger::secrets::master_keys::{self, KeyError};
use rewards_ledger::secrets::seal::Keyring;
use rewards_ledger::telemetry::Metrics;
use tokio_util::task::TaskTracker;
use webhook_client::receiver::ReceiverResponse;

use crate::support::ledger::MASTER_KEY;
use crate::support::postgres;
use crate::support::program::{Program, program, run, write_private};
use crate::support::shop::{DEADLINE, SHARD, Shop, receiver, worker};
use crate::support::wait::until;

/// Returns a key file with another key than the one of the tests.
fn other_key() -> String {
    Keyring::generate().to_string()
}

async fn open(options: &PgConnectOptions, key_file: &str) -> Result<Ledger, SchemaError> {
    let keyring = Arc::new(Keyring::from_base64(key_file).unwrap());
    Ledger::open(options, keyring, Metrics::default(), &TaskTracker::new()).await
}

fn is_foreign(opened: &Result<Ledger, SchemaError>) -> bool {
    matches!(opened, Err(SchemaError::Keys(KeyError::Foreign { .. })))
}

async fn number(pool: impl sqlx::PgExecutor<'_>, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_another_master_key_refuses_to_start() {
    let database = postgres::database().await;
    let first = Program::start(&database.url, &[]).await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("master.key");
    write_private(&path, &other_key());
    let mut second = program(&directory.path().join("data"));
    second.env("DATABASE_URL", &database.url).env("LEDGER_MASTER_KEY_FILE", &path);
    second.args(["serve", "--listen", "127.0.0.1:0", "--roles", "delivery"]);
    let refused = run(&mut second).await;
    assert!(!refused.status.success());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("this ledger is sealed under master key") && said.contains("--master-key-file"), "{said}");
    drop(first);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_nodes_with_different_keys_on_a_new_database_is_refused() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let keys = [other_key(), other_key()];
    let opened = tokio::join!(open(&options, &keys[0]), open(&options, &keys[1]));
    let refused = [is_foreign(&opened.0), is_foreign(&opened.1)];
    assert!(refused[0] != refused[1], "{opened:?}");
    let winner = usize::from(refused[0]);
    assert!(open(&options, &keys[winner]).await.is_ok(), "the ledger stays bound to its key");
    assert!(is_foreign(&open(&options, &keys[1 - winner]).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_of_an_earlier_release_belongs_to_the_key_that_sealed_it() {
    let shop = Shop::open().await;
    shop.load("card", 1, None).await;
    // The state that the migration leaves: values are sealed, and no key is registered yet.
    let mut admin = shop.options.connect().await.unwrap();
    sqlx::query("DELETE FROM vault.master_keys").execute(&mut admin).await.unwrap();
    assert!(is_foreign(&open(&shop.options, &other_key()).await));
    assert_eq!(number(shop.pool(), "SELECT count(*) FROM vault.master_keys").await, 0);
    assert!(open(&shop.options, &format!("{}\n{MASTER_KEY}", other_key())).await.is_ok(), "any key of the file is accepted");
    assert!(open(&shop.options, MASTER_KEY).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_check_value_is_refused() {
    let shop = Shop::open().await;
    let mut admin = shop.options.connect().await.unwrap();
    sqlx::query("UPDATE vault.master_keys SET check_value = set_byte(check_value, 40, 255 - get_byte(check_value, 40))")
        .execute(&mut admin)
        .await
        .unwrap();
    assert!(matches!(open(&shop.options, MASTER_KEY).await, Err(SchemaError::Keys(KeyError::Changed(_)))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_the_current_key_claims_nothing_and_logs_it() {
    let shop = Shop::open().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    shop.webhook(&receiver.url()).await;
    shop.orders(shop.customer.account_id, 5).await;
    shop.project().await;
    let (old, key) = (worker(&shop.options, &receiver, DEADLINE), other_key());
    assert_eq!(old.claim_once(SHARD, 1).await.unwrap().len(), 1, "the worker claims before the rotation");
    let both = Keyring::from_base64(&format!("{key}\n{MASTER_KEY}")).unwrap();
    master_keys::make_current(shop.pool(), &both, both.first().unwrap()).await.unwrap();
    for _ in 0..3 {
        let refused = old.once().await.expect_err("the worker does not have the current key");
        assert!(refused.to_string().contains("current master key"), "{refused}");
    }
    assert_eq!(number(shop.pool(), "SELECT count(*) FROM delivery_attempts").await, 1);
    assert_eq!(number(shop.pool(), "SELECT coalesce(sum(attempt_count), 0)::bigint FROM delivery_state").await, 0);
    let mut new = worker(&shop.options, &receiver, DEADLINE);
    new.keyring = Arc::new(both);
    assert_eq!(new.once().await.unwrap().delivered, 4, "a worker with the current key delivers the rest");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_the_current_key_is_not_ready_and_its_metric_says_why() {
    let database = postgres::database().await;
    let node = Program::start(&database.url, &[]).await;
    let get = async |path: &str| {
        let answer = reqwest::get(format!("{}{path}", node.url())).await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    assert!(get("/metrics").await.1.contains("ledger_master_key_usable 1"));
    let pool = PgPool::patient(database.url.parse().unwrap(), 4);
    let both = Keyring::from_base64(&format!("{}\n{MASTER_KEY}", other_key())).unwrap();
    let first = both.ids().last().unwrap();
    master_keys::make_current(&pool, &both, both.first().unwrap()).await.unwrap();
    until("the node notices the rotation", async || get("/readyz").await.0 == 503).await;
    let (_, ready) = get("/readyz").await;
    assert!(ready.contains("current master key"), "{ready}");
    assert!(get("/metrics").await.1.contains("ledger_master_key_usable 0"));
    until("the node logs it", async || node.log().contains("this node claims no deliveries and seals nothing")).await;
    // The node recovers by itself when its key is the current one again.
    master_keys::make_current(&pool, &both, first).await.unwrap();
    until("the node notices the second rotation", async || get("/readyz").await.0 == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_cannot_be_opened_burns_no_attempt() {
    let shop = Shop::open().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let (damaged, _) = shop.webhook(&receiver.url()).await;
    let (fine, _) = shop.webhook(&receiver.url()).await;
    shop.orders(shop.customer.account_id, 3).await;
    shop.project().await;
    let foreign = Keyring::from_base64(&other_key()).unwrap();
    let mut admin = shop.options.connect().await.unwrap();
    let changed = sqlx::query("UPDATE vault.texts SET sealed = $2 WHERE kind = 'webhook.token' AND id = $1")
        .bind(damaged)
        .bind(foreign.seal("webhook.token", damaged.0, b"x").unwrap())
        .execute(&mut admin)
        .await
        .unwrap();
    assert_eq!(changed.rows_affected(), 1);
    let worker = worker(&shop.options, &receiver, DEADLINE);
    let round = worker.once().await.unwrap();
    assert_eq!((round.claimed, round.delivered), (3, 3), "only the deliveries of the other webhook, {fine}");
    assert_eq!(worker.once().await.unwrap().claimed, 0);
    let untouched: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM delivery_state WHERE webhook_id = $1 AND status = 'pending' AND attempt_count = 0 AND fence = 0",
    )
    .bind(damaged)
    .fetch_one(shop.pool())
    .await
    .unwrap();
    assert_eq!(untouched, 3);
}
