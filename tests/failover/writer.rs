//! The writer's cache across a failover.

use chrono::Utc;
use ledger_database::{Connector, PgConnectOptions};
use ledger_events::{Rejection, WalletId};
use rewards_ledger::audit::verify;
use rewards_ledger::ledger::head::Head;
use rewards_ledger::ledger::{Command, WriteError, commands};
use uuid::Uuid;

use crate::support::failover::Standby;
use crate::support::ledger::{self, Customer, SHARD, money, origin};
use crate::support::postgres;
use crate::support::proxy::{NextCommit, Proxy};
use crate::support::wait::until;

fn order(customer: &Customer, denomination: &str) -> Command {
    Command::PlaceOrder(customer.order(denomination, 1))
}

/// Every command of a batch was refused, and its COMMIT is lost with the server. The next server has a log of the same length and
/// epoch, with other events.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_whose_check_was_not_committed_is_not_cached() {
    let database = postgres::database().await;
    let straight: PgConnectOptions = database.url.parse().unwrap();
    let (proxy, through) = Proxy::before(&database.url).await;
    let node = ledger::open(&through).await;
    let customer = Customer::with(&node, "100.00").await;
    ledger::run(&node, order(&customer, "10.00")).await;
    let standby = Standby::of(&straight).await;
    ledger::run(&node, order(&customer, "10.00")).await;

    proxy.set(NextCommit::IsLostForLong);
    let unknown = commands::FundWallet {
        account_id: None,
        wallet_id: WalletId(i64::MAX),
        amount: money("1.00"),
        reference: "nowhere".to_owned(),
        note: None,
    };
    let refused = tokio::spawn({
        let node = node.clone();
        async move { node.execute(SHARD, unknown, origin()).await }
    });
    until("its COMMIT is lost", async || proxy.cuts() == 1).await;
    standby.promote().await;
    let other = ledger::open(&straight).await;
    ledger::run(&other, order(&customer, "25.00")).await;

    proxy.set_away(false);
    match refused.await.unwrap() {
        Err(WriteError::Rejected(Rejection::NotFound)) => {}
        // On a slow machine it waited for too long.
        refused => assert!(matches!(refused, Err(WriteError::Unavailable)), "{refused:?}"),
    }
    ledger::run(&node, order(&customer, "10.00")).await;
    let balance: rust_decimal::Decimal = sqlx::query_scalar("SELECT balance FROM wallets WHERE id = $1")
        .bind(customer.wallet_id)
        .fetch_one(other.pool())
        .await
        .unwrap();
    assert_eq!(balance, money("55.00").decimal());
    let report = verify(&straight, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.differences);
}

#[tokio::test]
async fn a_head_is_identified_by_its_last_event_as_well() {
    let database = postgres::database().await;
    let options: PgConnectOptions = database.url.parse().unwrap();
    let node = ledger::open(&options).await;
    Customer::with(&node, "100.00").await;
    let mut conn = Connector::patient(options).connect().await.unwrap();
    let (position, event_id, epoch): (i64, Uuid, i64) =
        sqlx::query_as("SELECT h.position, e.event_id, h.epoch FROM log_head h JOIN events e USING (shard_id, position)")
            .fetch_one(&mut conn)
            .await
            .unwrap();
    for (event_id, stands) in [(Some(event_id), true), (Some(Uuid::new_v4()), false), (None, false)] {
        let head = Head { shard: SHARD, position, event_id, epoch };
        let looked = head.check().execute(&mut conn).await.unwrap();
        assert_eq!(looked.is_some(), stands, "{event_id:?}");
        let mut tx = conn.begin().await.unwrap();
        let moved = head.advance_if_recent(position + 1, Utc::now()).execute(&mut tx).await.unwrap();
        assert_eq!(moved.is_some(), stands, "{event_id:?}");
        tx.rollback().await.unwrap();
    }
}
