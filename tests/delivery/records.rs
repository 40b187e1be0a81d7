//! The worker's records beside the derived delivery rows.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use ledger_events::OrderId;
use ledger_projections::deliveries::{self, Attempt, DeliveryFilter};
use ledger_projections::page::Page;
use rewards_ledger::audit::{Rebuild, rebuild, verify};
use rewards_ledger::delivery::record;
use rewards_ledger::ledger::commands;
use rewards_ledger::ledger::commands::WebhookChange;
use tokio_util::sync::CancellationToken;
use webhook_client::receiver::ReceiverResponse;

use crate::support::postgres::set_read_only;
use crate::support::shop::{DEADLINE, SHARD, Shop, deliveries_of, receiver};
use crate::support::wait::{until, until_locked_out};

async fn attempts(shop: &Shop, id: i64) -> Vec<Attempt> {
    deliveries::find(shop.pool(), SHARD, shop.customer.account_id, id, &[]).await.unwrap().unwrap().1
}

#[tokio::test]
async fn states_without_a_delivery_delay_nothing_and_a_rebuild_removes_them() {
    let shop = Shop::open().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    shop.webhook(&receiver.url()).await;
    shop.orders(shop.customer.account_id, 3).await;
    shop.project().await;
    // These states are older than all others, first attempts and retries, and more than may be in flight.
    sqlx::raw_sql(
        "INSERT INTO delivery_state (shard_id, delivery_id, webhook_id, event_type, attempt_count, next_attempt_at)
         SELECT 1, 1000000 + n, 1, 'order.created', n % 2, 'epoch' FROM generate_series(1, 20) AS n",
    )
    .execute(shop.pool())
    .await
    .unwrap();
    let mut worker = shop.worker(&receiver, DEADLINE);
    worker.settings.max_in_flight_per_webhook = 3;
    let round = worker.once().await.unwrap();
    assert_eq!((round.claimed, round.delivered), (3, 3));
    let touched = "SELECT count(*) FROM delivery_state WHERE delivery_id > 1000000 AND fence > 0";
    assert_eq!(sqlx::query_scalar::<_, i64>(touched).fetch_one(shop.pool()).await.unwrap(), 0);

    assert!(!verify(&shop.options, |_| {}).await.unwrap().is_clean());
    rebuild(&shop.options, Rebuild::Deliveries, |_| {}).await.unwrap();
    let report = verify(&shop.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:?}", report.differences);
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM delivery_state").fetch_one(shop.pool()).await.unwrap();
    assert_eq!(left, 3);
}

#[tokio::test]
async fn an_attempt_is_unknown_only_when_nobody_sends_it_any_more() {
    let shop = Shop::open().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    shop.webhook(&receiver.url()).await;
    shop.order(1).await;
    shop.project().await;
    let worker = shop.worker(&receiver, DEADLINE);
    let lost = worker.claim_once(SHARD, 1).await.unwrap();
    let id = lost[0].delivery_id;
    assert!(attempts(&shop, id).await[0].is_in_flight);
    let run_out = "UPDATE delivery_state SET leased_until = now() - interval '1 second'";
    sqlx::raw_sql(run_out).execute(shop.pool()).await.unwrap();
    assert!(!attempts(&shop, id).await[0].is_in_flight);
    // The attempt is repeated under its number. The previous one stays unknown for good.
    let again = worker.claim_once(SHARD, 1).await.unwrap();
    let both: Vec<_> = attempts(&shop, id).await.iter().map(|a| (a.attempt, a.finished_at, a.is_in_flight)).collect();
    assert_eq!(both, [(1, None, false), (1, None, true)]);
    worker.record(SHARD, &[worker.send(again[0].clone()).await.unwrap()]).await.unwrap();
    let both: Vec<_> = attempts(&shop, id).await.iter().map(|a| (a.finished_at.is_some(), a.is_in_flight)).collect();
    assert_eq!(both, [(false, false), (true, false)]);
}

#[tokio::test]
async fn a_list_is_paged_and_filtered() {
    let shop = Shop::open().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let (webhook_id, _) = shop.webhook(&receiver.url()).await;
    shop.orders(shop.customer.account_id, 5).await;
    shop.project().await;
    let mut worker = shop.worker(&receiver, DEADLINE);
    worker.settings.max_in_flight_per_webhook = 2;
    worker.once().await.unwrap();
    let all = deliveries_of(shop.customer.account_id);
    let list = async |filter: DeliveryFilter, number| {
        let listed = deliveries::list(shop.pool(), SHARD, &filter, Page { number, size: 2 }).await.unwrap();
        (listed.total, listed.rows.iter().map(|row| row.id).collect::<Vec<_>>())
    };
    assert_eq!(list(all.clone(), 1).await, (5, vec![5, 4]));
    assert_eq!(list(all.clone(), 3).await, (5, vec![1]));
    let of_webhook = DeliveryFilter { webhook_id: Some(webhook_id), ..all.clone() };
    assert_eq!(list(of_webhook, 2).await, (5, vec![3, 2]));
    let delivered = DeliveryFilter { status: Some("delivered"), ..all.clone() };
    assert_eq!(list(delivered, 1).await, (2, vec![2, 1]));
    let nothing = DeliveryFilter { order_id: Some(OrderId(99)), ..all.clone() };
    assert_eq!(list(nothing, 1).await, (0, vec![]));
}

#[tokio::test]
async fn a_stop_waits_for_what_is_being_sent() {
    let shop = Shop::open().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Delayed(Duration::from_secs(6), 200)).await;
    shop.webhook(&receiver.url()).await;
    shop.order(1).await;
    shop.project().await;
    let stop = CancellationToken::new();
    let running = tokio::spawn(shop.worker(&receiver, DEADLINE).run(stop.clone()));
    tokio::time::timeout(DEADLINE, arrived.recv()).await.expect("it is sent").unwrap();
    stop.cancel();
    // Another node continues in the meantime.
    let beside_stop = CancellationToken::new();
    let beside = tokio::spawn(shop.worker(&receiver, DEADLINE).run(beside_stop.clone()));
    running.await.unwrap();
    let id: i64 = sqlx::query_scalar("SELECT id FROM deliveries").fetch_one(shop.pool()).await.unwrap();
    let attempts: Vec<_> = attempts(&shop, id).await.iter().map(|a| (a.attempt, a.response_status)).collect();
    assert_eq!(attempts, [(1, Some(200))]);
    beside_stop.cancel();
    beside.await.unwrap();
    assert!(arrived.try_recv().is_err(), "nothing was sent twice");
}

#[tokio::test]
async fn an_interrupted_attempt_is_not_shown_as_in_flight() {
    let shop = Shop::open().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Hang).await;
    shop.webhook(&receiver.url()).await;
    shop.order(1).await;
    shop.project().await;
    let in_flight = async || {
        let text = shop.metrics.scrape(rewards_ledger::ledger::backlog::query(shop.pool())).await.unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("ledger_deliveries_in_flight "));
        line.unwrap().parse::<i64>().unwrap()
    };
    let running = tokio::spawn(shop.worker(&receiver, DEADLINE).run(CancellationToken::new()));
    tokio::time::timeout(DEADLINE, arrived.recv()).await.expect("it is sent").unwrap();
    assert_eq!(in_flight().await, 1);
    running.abort();
    until("nothing is in flight", async || in_flight().await == 0).await;
}

#[tokio::test]
async fn deliveries_of_a_slow_claim_are_still_sent() {
    let shop = Shop::open().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    shop.webhook(&receiver.url()).await;
    shop.order(1).await;
    shop.project().await;
    let mut blocking = shop.pool().begin().await.unwrap();
    sqlx::query("LOCK TABLE delivery_attempts IN EXCLUSIVE MODE").execute(&mut *blocking).await.unwrap();
    let worker = shop.worker(&receiver, DEADLINE);
    let going_on = async {
        until_locked_out(&shop.options, "rewards-ledger claims").await;
        let at = Instant::now();
        blocking.commit().await.unwrap();
        at
    };
    let (claimed, went_on) = tokio::join!(worker.claim_once(SHARD, 1), going_on);
    let claimed = claimed.unwrap().remove(0);
    assert!(claimed.clock.ready >= went_on, "a delivery waits for its turn from the end of its claim");
    worker.send(claimed).await.unwrap();
    tokio::time::timeout(DEADLINE, arrived.recv()).await.expect("it is sent").unwrap();
}

/// The worker has a single connection for claims, so an interrupted claim must leave no trace on it.
#[tokio::test]
async fn a_claim_interrupted_while_it_waited_blocks_no_other() {
    let shop = Shop::open().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    shop.webhook(&receiver.url()).await;
    shop.orders(shop.customer.account_id, 3).await;
    shop.project().await;
    let worker = shop.worker(&receiver, DEADLINE);
    let mut elsewhere = shop.admin().await;
    // Take the lock that another node's claim would hold.
    sqlx::raw_sql("SELECT pg_advisory_lock(7825508, 1)").execute(&mut elsewhere).await.unwrap();
    let claiming = tokio::spawn({
        let worker = worker.clone();
        async move { worker.claim_once(SHARD, 8).await }
    });
    let cancel = "SELECT pg_cancel_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let mut admin = shop.admin().await;
    until("the claim waits and is cancelled", async || {
        sqlx::raw_sql(cancel).execute(&mut admin).await.unwrap();
        claiming.is_finished()
    })
    .await;
    let claimed = claiming.await.unwrap();
    assert!(claimed.is_err(), "{claimed:?}");
    sqlx::raw_sql("SELECT pg_advisory_unlock(7825508, 1)").execute(&mut elsewhere).await.unwrap();
    assert_eq!(worker.claim_once(SHARD, 8).await.unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_kept_until_the_database_takes_them() {
    const ALL: usize = 40;
    let shop = Shop::open().await;
    // Half of the deliveries are answered at once. The others hang until the database is read-only.
    let (asked, is_read_only) = (AtomicUsize::new(0), CancellationToken::new());
    let answers = is_read_only.clone();
    let (receiver, mut arrived) = receiver(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
        ..20 => ReceiverResponse::Status(200),
        _ => ReceiverResponse::When(answers.clone(), 200),
    })
    .await;
    shop.webhook(&receiver.url()).await;
    shop.orders(shop.customer.account_id, ALL).await;
    shop.project().await;
    let stop = CancellationToken::new();
    let mut worker = shop.worker(&receiver, DEADLINE);
    worker.settings.max_in_flight_per_webhook = 10;
    let running = tokio::spawn(worker.run(stop.clone()));
    let mut events = HashSet::new();
    while events.len() <= ALL / 2 {
        let one = tokio::time::timeout(DEADLINE, arrived.recv()).await.expect("it is sent").unwrap();
        assert!(events.insert(one.event_id().unwrap().to_owned()), "twice");
    }
    let mut admin = shop.admin().await;
    set_read_only(&mut admin, true).await;
    is_read_only.cancel();
    // Every connection was closed. The worker opens this one again when it has a result to record.
    let records = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'rewards-ledger results')";
    until("the worker tries to record", async || sqlx::query_scalar(records).fetch_one(&mut admin).await.unwrap()).await;
    let delivered = "SELECT count(*) FROM delivery_state WHERE status = 'delivered'";
    let before: i64 = sqlx::query_scalar(delivered).fetch_one(&mut admin).await.unwrap();
    assert!(before < i64::try_from(events.len()).unwrap(), "some deliveries arrived without being recorded yet");
    set_read_only(&mut admin, false).await;
    until("all are recorded", async || {
        let delivered: i64 = sqlx::query_scalar(delivered).fetch_one(&mut admin).await.unwrap();
        delivered == i64::try_from(ALL).unwrap()
    })
    .await;
    stop.cancel();
    running.await.unwrap();
    while let Ok(one) = arrived.try_recv() {
        assert!(events.insert(one.event_id().unwrap().to_owned()), "twice");
    }
    assert_eq!(events.len(), ALL);
}

#[tokio::test]
async fn nothing_is_sent_with_too_little_of_its_lease_left() {
    let shop = Shop::open().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    shop.webhook(&receiver.url()).await;
    shop.order(1).await;
    shop.project().await;
    let worker = shop.worker(&receiver, DEADLINE);
    let claimed = worker.claim_once(SHARD, 1).await.unwrap().remove(0);
    let mut late = claimed.clone();
    // Enough time to send it, but not to record the result.
    late.clock.lease_ends = Instant::now() + DEADLINE + Duration::from_secs(4);
    let unsent = worker.send(late).await.unwrap_err();
    assert!(arrived.try_recv().is_err());
    record::give_back(shop.pool(), SHARD, &[unsent]).await.unwrap();
    assert!(attempts(&shop, claimed.delivery_id).await.is_empty(), "an unsent delivery has no attempt");
    assert_eq!(worker.once().await.unwrap().delivered, 1);
}

#[tokio::test]
async fn a_lost_attempt_that_counts_as_failed_shows_nothing_of_the_previous_one() {
    let shop = Shop::open().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::StatusWithBody(500, "the first".to_owned())).await;
    shop.webhook(&receiver.url()).await;
    shop.order(1).await;
    shop.project().await;
    let worker = shop.worker(&receiver, DEADLINE);
    let answer = async || {
        let row: (i16, Option<i16>, Option<String>) =
            sqlx::query_as("SELECT attempt_count, response_status, response_body FROM delivery_state")
                .fetch_one(shop.pool())
                .await
                .unwrap();
        row
    };
    assert_eq!(worker.once().await.unwrap().failed, 1);
    assert_eq!(answer().await, (1, Some(500), Some("the first".to_owned())));
    for _ in 0..6 {
        worker.settings.clock.advance(TimeDelta::minutes(10));
        assert_eq!(worker.claim_once(SHARD, 1).await.unwrap()[0].attempt, 2);
    }
    worker.settings.clock.advance(TimeDelta::minutes(10));
    let (clock, base) = (&worker.settings.clock, worker.settings.retry_base);
    assert_eq!(record::fail_lost_attempts(shop.pool(), clock, SHARD, base).await.unwrap(), 1);
    assert_eq!(answer().await, (2, None, None));
    let id: i64 = sqlx::query_scalar("SELECT delivery_id FROM delivery_state").fetch_one(shop.pool()).await.unwrap();
    let bodies: Vec<_> = attempts(&shop, id).await.into_iter().map(|attempt| attempt.response_body).collect();
    assert_eq!(bodies[0].as_deref(), Some("the first"), "the previous attempt itself keeps it");
    assert!(bodies.len() == 7 && bodies[1..].iter().all(Option::is_none), "{bodies:?}");
}

#[tokio::test]
async fn the_lease_of_a_delivery_that_failed_with_its_node_is_released() {
    let shop = Shop::open().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let (webhook_id, _) = shop.webhook(&receiver.url()).await;
    shop.orders(shop.customer.account_id, 2).await;
    shop.project().await;
    let worker = shop.worker(&receiver, DEADLINE);
    assert_eq!(worker.claim_once(SHARD, 2).await.unwrap().len(), 2);
    let change = WebhookChange { is_active: Some(false), ..WebhookChange::default() };
    shop.run(commands::UpdateWebhook { account_id: shop.customer.account_id, webhook_id, change }).await;
    shop.project().await;
    let leases = async || {
        worker.once().await.unwrap();
        let count: i64 =
            sqlx::query_scalar("SELECT count(leased_until) FROM delivery_state").fetch_one(shop.pool()).await.unwrap();
        count
    };
    worker.settings.clock.advance(TimeDelta::minutes(5));
    assert_eq!(leases().await, 2, "a result may still come");
    worker.settings.clock.advance(TimeDelta::minutes(10));
    assert_eq!(leases().await, 0);
}
