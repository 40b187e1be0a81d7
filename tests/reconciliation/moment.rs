//! A report is read over two connections, which see the same snapshot.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use ledger_database::{ConnectionRouter, PgPool, PoolConnection};
use rewards_ledger::ledger::connect;
use rewards_ledger::reconciliation::{self, Period, Report, await_checkpoints};
use serde_json::json;
use sqlx::ConnectOptions;
use transparency_log::quorum::Quorum;

use super::{reconcile_on, text};
use crate::support::node::Node;
use crate::support::program::DEADLINE;
use crate::support::proxy::Proxy;
use crate::support::shop::{SHARD, Shop};
use crate::support::wait::until;

/// A concurrent write is completely in a report or not at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_adds_up_while_others_write() {
    let shop = Arc::new(Shop::open().await);
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (shop, stop) = (shop.clone(), stop.clone());
        async move {
            let mut orders = 0;
            while !stop.load(Ordering::Relaxed) {
                shop.order(1).await;
                orders += 1;
                if orders % 10 == 0 {
                    shop.project().await;
                }
            }
            orders
        }
    });
    let all = Period { from: None, to: None, account_id: None };
    let mut positions = vec![];
    for _ in 0..50 {
        let (report, _) = reconciliation::report(shop.pool(), &[SHARD], all, 10).await.unwrap();
        assert_eq!(report.differences.found, 0, "{:#?}", report.differences.differences);
        positions.push(report.as_of[0].position);
    }
    stop.store(true, Ordering::Relaxed);
    assert!(writer.await.unwrap() > 0);
    assert!(positions.is_sorted() && positions[0] < positions[49], "others wrote in the meantime: {positions:?}");
}

/// The tree lags behind the log for a moment. The command waits for a covering checkpoint, and reports the newest one
/// if none comes.
#[tokio::test(flavor = "multi_thread")]
async fn figures_wait_for_a_checkpoint_that_covers_them() {
    let node = Node::start().await;
    let said = async || text(&reconcile_on(&node.options, &[]).await);
    let pool = node.ledger.pool();
    let unsigned = said().await;
    assert!(unsigned.contains("; no checkpoint of the log has been signed\n"), "{unsigned}");
    let tree = node.publish().await;
    let covered = node.head().await;
    node.operator("POST", "/accounts", json!({"name": "More"})).await.data(201);
    let head = node.head().await;
    let report = async || reconciliation::report(pool, &[SHARD], Period::default(), 10).await.unwrap().0;
    let size = |report: &Report| report.as_of[0].log_checkpoint.as_ref().map(|checkpoint| checkpoint.size);
    let behind = said().await;
    let expected = format!("position {head} of {head}; the log's newest checkpoint, of {covered} events, does not cover it\n");
    assert!(behind.contains(&expected), "{behind}");

    let mut waiting = report().await;
    assert_eq!(size(&waiting), Some(covered));
    let anybody = Quorum::default();
    let (waited, _) = tokio::join!(await_checkpoints(pool, &mut waiting, &anybody), tree.grow());
    waited.unwrap();
    // On a busy machine one wait may time out, so it is repeated.
    until("the checkpoint covers the figures", async || {
        await_checkpoints(pool, &mut waiting, &anybody).await.unwrap();
        size(&waiting) == Some(head)
    })
    .await;
    let covering = said().await;
    assert!(
        covering.contains(&format!("position {head} of {head}, under the log's checkpoint of {head} events, ")),
        "{covering}"
    );
    // With a quorum, only cosigned checkpoints count.
    let witness = crate::support::tree::witness(1).to_string();
    let refused = reconcile_on(&node.options, &["--quorum", "1", "--witness", &witness]).await;
    assert!(
        refused.status.code() == Some(3) && text(&refused).contains("has the cosignatures of 1 witnesses"),
        "{}",
        text(&refused)
    );
}

/// Router that silences each connection when it lends it.
#[derive(Debug)]
struct Silencer {
    proxy: Proxy,
    pool: PgPool,
    has_lent: AtomicBool,
}

impl ConnectionRouter for Silencer {
    fn route(&self) -> BoxFuture<'_, Result<Option<PoolConnection>, sqlx::Error>> {
        async {
            let connection = self.pool.acquire().await?;
            self.proxy.silence(self.pool.name());
            self.has_lent.store(true, Ordering::SeqCst);
            Ok(Some(connection))
        }
        .boxed()
    }
}

/// The connection of a command has no deadline of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_falls_silent_as_a_report_begins_does_not_hold_up_the_others() {
    let shop = Shop::open().await;
    let (proxy, through) = Proxy::before(shop.options.hosts()[0].to_url_lossy().as_str()).await;
    let pool = connect::without_timeout(&through);
    let silencer = Arc::new(Silencer { proxy, pool: pool.clone(), has_lent: AtomicBool::new(false) });
    let routed = pool.with_router(silencer.clone());
    let silent = tokio::spawn(async move { reconciliation::report(&routed, &[SHARD], Period::default(), 10).await });
    until("the report has a connection", async || silencer.has_lent.load(Ordering::SeqCst)).await;
    let other = tokio::time::timeout(DEADLINE, reconciliation::report(shop.pool(), &[SHARD], Period::default(), 10)).await;
    assert_eq!(other.expect("the other report is not held up").unwrap().0.differences.found, 0);
    assert!(silent.await.unwrap().is_err());
}
