//! Resources of a running program, however large the backlog and however many endpoints: descriptors and memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chrono::{Datelike, Utc};
use futures::future::join_all;
use ledger_events::webhook::WebhookEventType;
use serde_json::Value;
use sqlx::ConnectOptions;
use webhook_client::receiver::{Certificate, Receiver, ReceiverResponse, ReceiverSettings};

use super::count;
use crate::support::program::{self, Program, peak_memory};
use crate::support::shop::{Shop, receiver};
use crate::support::wait::until;

const DELIVERED: &str = "SELECT count(*) FROM delivery_state WHERE status = 'delivered'";

/// Returns the arguments with which a program can reach a receiver, and the file that one of them names.
fn reach(receiver: &Receiver) -> (tempfile::NamedTempFile, Vec<String>) {
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), receiver.ca_pem()).unwrap();
    let arguments = ["--webhook-ca-file", ca.path().to_str().unwrap(), "--webhook-allow-nets", "127.0.0.0/8,::1/128"];
    let arguments = arguments.map(str::to_owned).to_vec();
    (ca, arguments)
}

#[tokio::test(flavor = "multi_thread")]
async fn more_endpoints_than_descriptors_all_get_their_deliveries() {
    const DESCRIPTORS: usize = 700;
    const ACCOUNTS: usize = 40;
    let shop = Shop::open().await;
    // To a sender each address is a different endpoint. One receiver listens on all of them.
    let addresses: Vec<String> = (0..20 * ACCOUNTS).map(|n| format!("127.1.{}.{}", n / 200, n % 200 + 1)).collect();
    let names: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let settings = ReceiverSettings {
        listen: ([0, 0, 0, 0], 0).into(),
        service_name: "SERVICE".to_owned(),
        certificate: Certificate::generate_for(&names, Utc::now().year() - 1, Utc::now().year() + 1).unwrap(),
        respond: Arc::new(|_| ReceiverResponse::Delayed(Duration::from_millis(100), 200)),
    };
    let (receiver, _) = Receiver::start(settings).await.unwrap();
    let port = receiver.address().port();
    for (n, addresses) in addresses.chunks(20).enumerate() {
        let (account, _) = shop.account(&format!("account {n}")).await;
        let urls: Vec<String> = addresses.iter().map(|address| format!("https://{address}:{port}")).collect();
        join_all(urls.iter().map(|url| shop.webhook_for(account, url, &[WebhookEventType::OrderCreated]))).await;
        shop.orders(account, 2).await;
    }
    shop.project().await;
    let deliveries = i64::try_from(2 * addresses.len()).unwrap();
    assert_eq!(count(shop.pool(), "SELECT count(*) FROM delivery_state").await, deliveries);

    let (_ca, reach) = reach(&receiver);
    let arguments: Vec<&str> = reach.iter().map(String::as_str).chain(["--roles", "api,delivery"]).collect();
    let program = Program::with_descriptors(DESCRIPTORS, shop.options.hosts()[0].to_url_lossy().as_str(), &arguments).await;
    // A visitor with a new connection is answered in the meantime, with an answer that needs the database.
    let visitor = reqwest::Client::builder().pool_max_idle_per_host(0).timeout(Duration::from_secs(60)).build().unwrap();
    let mut most = 0;
    until("all are delivered", async || {
        most = most.max(program::descriptors(program.id()));
        let ready = visitor.get(format!("{}/readyz", program.url())).send().await.unwrap();
        assert_eq!(ready.status(), 200);
        count(shop.pool(), DELIVERED).await >= deliveries
    })
    .await;
    assert!(most > DESCRIPTORS / 5, "the available descriptors are used: {most}");
    let attempts = "SELECT count(*) FROM delivery_attempts WHERE attempt = 1 AND error IS NULL AND response_status = 200";
    assert_eq!(count(shop.pool(), attempts).await, deliveries, "each at its first attempt");
    assert_eq!(count(shop.pool(), "SELECT count(*) FROM delivery_attempts").await, deliveries);
    let log = program.log();
    let told: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON: no panic")).collect();
    // sqlx may warn about a slow statement on a slow machine, so only this program's lines count.
    let ours =
        |line: &&Value| line["level"] != "INFO" && line["target"].as_str().is_some_and(|at| at.starts_with("rewards_ledger"));
    let told: Vec<&Value> = told.iter().filter(ours).collect();
    assert!(
        told.len() == 1 && told[0]["needed"].as_i64() > told[0]["allowed"].as_i64(),
        "one warning says that there are too few descriptors: {told:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_does_not_grow_with_the_backlog() {
    /// Size of a payload in KiB.
    const PAYLOAD: i64 = 10;
    let shop = Shop::open().await;
    // The receiver stops to answer while most of the backlog is due, however slowly this test looks.
    let arrived = AtomicUsize::new(0);
    let (receiver, _) = receiver(move |_| match arrived.fetch_add(1, Ordering::SeqCst) {
        ..15_000 => ReceiverResponse::Status(200),
        _ => ReceiverResponse::Hang,
    })
    .await;
    for _ in 0..8 {
        shop.webhook(&receiver.url()).await;
    }
    shop.project().await;
    let backlog = async |from: i64, to: i64| {
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
            "CREATE TEMPORARY TABLE made ON COMMIT DROP AS
                 SELECT n, gen_random_uuid() AS event_id, n % 8 + 1 AS webhook_id FROM generate_series({from}, {to} - 1) AS n;
             INSERT INTO webhook_envelopes (shard_id, event_id, position, account_id, order_id, event_type, payload, created_at)
                 SELECT 1, event_id, 1000000 + n, {account}, 1, 'order.created', repeat('{{\"a\": 0}}', {PAYLOAD} * 1024 / 8), now() FROM made;
             INSERT INTO deliveries (shard_id, id, event_id, webhook_id, account_id, order_id, event_type, created_at)
                 SELECT 1, 1000000 + n, event_id, webhook_id, {account}, 1, 'order.created', now() FROM made;
             INSERT INTO delivery_state (shard_id, delivery_id, webhook_id, event_type, next_attempt_at)
                 SELECT 1, 1000000 + n, webhook_id, 'order.created', now() FROM made",
            account = shop.customer.account_id,
        )))
        .execute(&mut shop.admin().await)
        .await
        .unwrap();
    };
    let (_ca, reach) = reach(&receiver);
    let arguments: Vec<&str> = reach.iter().map(String::as_str).chain(["--roles", "api,delivery"]).collect();
    let program = Program::start(shop.options.hosts()[0].to_url_lossy().as_str(), &arguments).await;
    let memory_after = async |wanted: i64| {
        until("the deliveries are delivered", async || count(shop.pool(), DELIVERED).await >= wanted).await;
        peak_memory(program.id()).unwrap()
    };
    backlog(0, 2_000).await;
    let after_few = memory_after(2_000).await;
    backlog(2_000, 42_000).await;
    // By now the worker has claimed as far ahead as it ever does.
    let amid_many = memory_after(10_000).await;
    assert!(count(shop.pool(), DELIVERED).await < 30_000, "most of the backlog is still due");
    // In KiB. The bound is a tenth of the due payloads, and more than the thousand that are in memory at any time.
    // The kernel's counts are approximate, so that a peak can seem to shrink.
    let (grown, bound) = (amid_many.saturating_sub(after_few), 40 * 1_000 * u64::try_from(PAYLOAD).unwrap() / 10);
    assert!(grown < bound, "{after_few} KiB, then {amid_many} KiB");
}
