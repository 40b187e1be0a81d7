//! The delivery worker against real HTTPS receivers.

mod bounds;
mod codes;
mod failing;
mod fairness;
mod further;
mod hostile;
mod nodes;
mod records;
mod resources;
mod schedule;
mod signatures;

use std::collections::HashSet;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use ledger_events::WebhookId;
use ledger_events::webhook::WebhookEventType;
use ledger_projections::deliveries;
use rewards_ledger::delivery::record;
use rewards_ledger::delivery::worker::{Round, Worker};
use rewards_ledger::ledger::commands;
use rewards_ledger::ledger::commands::WebhookChange;
use sqlx::PgExecutor;
use tokio_util::sync::CancellationToken;
use webhook_client::receiver::ReceiverResponse;

use crate::support::shop::{DEADLINE, SHARD, Shop, receiver};
use crate::support::wait::{until, until_locked_out};

/// The worker's record of a delivery.
#[derive(Debug, ledger_database::FromRow)]
struct State {
    status: String,
    attempt_count: i16,
    unknown_count: i16,
    next_attempt_at: DateTime<Utc>,
    leased_until: Option<DateTime<Utc>>,
}

async fn states(pool: impl PgExecutor<'_>) -> Vec<State> {
    sqlx::query_as("SELECT * FROM delivery_state ORDER BY delivery_id").fetch_all(pool).await.unwrap()
}

async fn state(pool: impl PgExecutor<'_>) -> State {
    states(pool).await.remove(0)
}

async fn count(pool: impl PgExecutor<'_>, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}

/// Longer than a few steps of a test take.
const WHILE: TimeDelta = TimeDelta::seconds(30);

async fn send_all(worker: &Worker) -> Round {
    worker.once().await.unwrap()
}

#[tokio::test]
async fn a_delivery_arrives_over_tls_signed_and_is_recorded() {
    let shop = Shop::open().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::StatusWithBody(201, "thanks".to_owned())).await;
    let (webhook_id, token) = shop.webhook(&receiver.url()).await;
    let order_id = shop.order(1).await;
    shop.project().await;
    let worker = shop.worker(&receiver, DEADLINE);
    assert_eq!(send_all(&worker).await, Round { claimed: 1, delivered: 1, failed: 0, recorded: 1 });
    assert_eq!(send_all(&worker).await, Round::default());

    let received = arrived.recv().await.unwrap();
    received.verify(&token, Utc::now().timestamp()).unwrap();
    assert_eq!(received.method, "POST");
    assert_eq!(received.token(), Some(&*token));
    assert_eq!(received.webhook_id(), Some(&*webhook_id.to_string()));
    assert_eq!(received.event_type(), Some("order.created"));
    assert_eq!(received.header("content-type"), Some("application/json"));
    assert_eq!(received.header("user-agent"), Some("SERVICE-Webhooks/1"));

    let id: i64 = sqlx::query_scalar("SELECT id FROM deliveries").fetch_one(shop.pool()).await.unwrap();
    let (delivery, attempts) = deliveries::find(shop.pool(), SHARD, shop.customer.account_id, id, &[]).await.unwrap().unwrap();
    assert_eq!(
        (delivery.status, delivery.attempt_count, delivery.order_id),
        (deliveries::DeliveryStatus::Delivered, 1, order_id)
    );
    assert_eq!((delivery.response_status, delivery.response_body.as_deref()), (Some(201), Some("thanks")));
    assert_eq!(received.body, delivery.payload.unwrap().as_bytes());
    assert_eq!(received.event_id(), Some(&*delivery.event_id.to_string()));
    assert_eq!(attempts.len(), 1);
    assert_eq!(received.request_id(), Some(&*attempts[0].request_id.to_string()));
    assert_eq!(attempts[0].finished_at, delivery.delivered_at);
    assert!(attempts[0].error.is_none());
    // The attempt records the hash of its URL, the same one that the log commits to.
    let is_committed: bool = sqlx::query_scalar(
        "SELECT (SELECT url_hash FROM delivery_attempts) = (SELECT data->>'url_hash' FROM events WHERE type = 'WebhookRegistered')",
    )
    .fetch_one(shop.pool())
    .await
    .unwrap();
    assert!(is_committed);
}

#[tokio::test]
async fn failures_are_retried_by_the_schedule_and_the_fifth_is_the_last() {
    let shop = Shop::open().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::StatusWithBody(500, "no".to_owned())).await;
    shop.webhook(&receiver.url()).await;
    shop.order(1).await;
    shop.project().await;
    let worker = shop.worker(&receiver, DEADLINE);
    let clock = worker.settings.clock.clone();
    let mut started: Vec<DateTime<Utc>> = vec![];
    for (attempt, minutes) in [(1, 1), (2, 2), (3, 4), (4, 8)] {
        assert_eq!(send_all(&worker).await.failed, 1);
        started.push(sqlx::query_scalar("SELECT max(started_at) FROM delivery_attempts").fetch_one(shop.pool()).await.unwrap());
        let state = state(shop.pool()).await;
        assert_eq!((&*state.status, state.attempt_count), ("pending", attempt));
        let wait = TimeDelta::minutes(minutes);
        assert_eq!(state.next_attempt_at - started.last().unwrap(), wait);
        // Some of the wait passes while the test runs.
        clock.advance(wait - WHILE);
        assert_eq!(send_all(&worker).await.claimed, 0, "not due yet");
        clock.advance(WHILE);
    }
    assert_eq!(send_all(&worker).await.failed, 1);
    assert_eq!(state(shop.pool()).await.status, "failed");
    clock.advance(TimeDelta::days(1));
    assert_eq!(send_all(&worker).await, Round::default());
    let id: i64 = sqlx::query_scalar("SELECT id FROM deliveries").fetch_one(shop.pool()).await.unwrap();
    let (_, attempts) = deliveries::find(shop.pool(), SHARD, shop.customer.account_id, id, &[]).await.unwrap().unwrap();
    assert_eq!(attempts.iter().map(|a| a.attempt).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(attempts[..4].iter().map(|a| a.started_at).collect::<Vec<_>>(), started);
    for (pair, minutes) in attempts.windows(2).zip([1, 2, 4, 8]) {
        let apart = pair[1].started_at - pair[0].started_at;
        assert!((TimeDelta::minutes(minutes)..TimeDelta::minutes(minutes) + WHILE).contains(&apart), "{apart}");
    }
    let mut requests = HashSet::new();
    let mut events = HashSet::new();
    while let Ok(received) = arrived.try_recv() {
        requests.insert(received.request_id().unwrap().to_owned());
        events.insert(received.event_id().unwrap().to_owned());
    }
    assert_eq!((requests.len(), events.len()), (5, 1));
}

async fn deactivate(shop: &Shop, webhook_id: WebhookId) {
    let change = WebhookChange { is_active: Some(false), ..WebhookChange::default() };
    shop.run(commands::UpdateWebhook { account_id: shop.customer.account_id, webhook_id, change }).await;
    shop.project().await;
}

#[tokio::test]
async fn deactivation_fails_pending_deliveries_and_a_2xx_in_flight_still_counts() {
    let shop = Shop::open().await;
    let (receiver, _arrived) = receiver(|r| ReceiverResponse::Status(if r.path == "/good" { 200 } else { 500 })).await;
    let (good, _) = shop.webhook(&format!("{}/good", receiver.url())).await;
    let (bad, _) = shop.webhook(&format!("{}/bad", receiver.url())).await;
    let mut worker = shop.worker(&receiver, DEADLINE);
    worker.settings.max_in_flight_per_webhook = 1;
    shop.orders(shop.customer.account_id, 2).await;
    shop.project().await;
    let in_flight = worker.claim_once(SHARD, 10).await.unwrap();
    assert_eq!(in_flight.len(), 2);
    deactivate(&shop, good).await;
    deactivate(&shop, bad).await;
    assert!(states(shop.pool()).await.iter().all(|s| s.status == "failed"));
    assert!(worker.claim_once(SHARD, 10).await.unwrap().is_empty());

    let mut ended = vec![];
    for claimed in in_flight {
        ended.push(worker.send(claimed).await.unwrap());
    }
    assert_eq!(worker.record(SHARD, &ended).await.unwrap(), 2);
    let outcomes: Vec<(WebhookId, String, i16)> =
        sqlx::query_as("SELECT webhook_id, status, attempt_count FROM delivery_state ORDER BY webhook_id, attempt_count DESC")
            .fetch_all(shop.pool())
            .await
            .unwrap();
    let expected = [(good, "delivered", 1), (good, "failed", 0), (bad, "failed", 1), (bad, "failed", 0)];
    assert_eq!(outcomes, expected.map(|(webhook, status, attempts)| (webhook, status.to_owned(), attempts)));
}

#[tokio::test]
async fn a_lost_lease_records_nothing_and_its_attempt_is_shown_as_unknown() {
    let shop = Shop::open().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    shop.webhook(&receiver.url()).await;
    shop.order(1).await;
    shop.project().await;
    let worker = shop.worker(&receiver, DEADLINE);
    let lost = worker.claim_once(SHARD, 1).await.unwrap().remove(0);
    let claimed_at = lost.clock.at;
    assert!(worker.claim_once(SHARD, 1).await.unwrap().is_empty(), "the lease holds");
    worker.settings.clock.advance(TimeDelta::minutes(5));
    let again = worker.claim_once(SHARD, 1).await.unwrap().remove(0);
    assert_eq!((again.attempt, again.fence), (1, lost.fence + 1));
    assert_ne!(again.request_id, lost.request_id);

    let late = worker.send(lost).await.unwrap();
    assert_eq!(worker.record(SHARD, &[late]).await.unwrap(), 0);
    let before = state(shop.pool()).await;
    assert_eq!((&*before.status, before.attempt_count, before.unknown_count), ("pending", 0, 1));
    let ended = worker.send(again).await.unwrap();
    assert_eq!(worker.record(SHARD, std::slice::from_ref(&ended)).await.unwrap(), 1);
    assert_eq!(worker.record(SHARD, &[ended]).await.unwrap(), 0, "recording a second time changes nothing");

    let id: i64 = sqlx::query_scalar("SELECT id FROM deliveries").fetch_one(shop.pool()).await.unwrap();
    let (delivery, attempts) = deliveries::find(shop.pool(), SHARD, shop.customer.account_id, id, &[]).await.unwrap().unwrap();
    assert_eq!((delivery.status, delivery.attempt_count), (deliveries::DeliveryStatus::Delivered, 1));
    let shown: Vec<_> = attempts.iter().map(|a| (a.attempt, a.finished_at.is_some())).collect();
    assert_eq!(shown, [(1, false), (1, true)]);
    assert_eq!(attempts[0].started_at, claimed_at, "the start time written at the claim");
}

#[tokio::test]
async fn an_attempt_begins_when_it_is_sent_and_the_next_one_is_due_from_then() {
    let shop = Shop::open().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(500)).await;
    shop.webhook(&receiver.url()).await;
    shop.order(1).await;
    shop.project().await;
    let worker = shop.worker(&receiver, DEADLINE);
    let mut claimed = worker.claim_once(SHARD, 1).await.unwrap().remove(0);
    // As if the claimed delivery had waited for its turn.
    claimed.clock.read_at = claimed.clock.read_at.checked_sub(Duration::from_secs(20)).unwrap();
    let turn = claimed.clock.at + TimeDelta::seconds(20);
    let ended = worker.send(claimed).await.unwrap();
    assert_eq!(worker.record(SHARD, &[ended]).await.unwrap(), 1);
    let started_at: DateTime<Utc> =
        sqlx::query_scalar("SELECT started_at FROM delivery_attempts").fetch_one(shop.pool()).await.unwrap();
    assert!(started_at >= turn, "{started_at} {turn}");
    assert_eq!(state(shop.pool()).await.next_attempt_at - started_at, TimeDelta::minutes(1));
}

/// The time of an attempt decides when the next one is due.
#[tokio::test]
async fn the_time_of_a_slow_claim_is_not_ahead_of_the_database() {
    let shop = Shop::open().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    shop.webhook(&receiver.url()).await;
    shop.order(1).await;
    shop.project().await;
    let worker = shop.worker(&receiver, DEADLINE);
    // The claim's statement waits before it reads the clock.
    let mut blocking = shop.admin().await;
    sqlx::raw_sql("BEGIN; LOCK TABLE vault.credentials").execute(&mut blocking).await.unwrap();
    let going_on = async {
        until_locked_out(&shop.options, "rewards-ledger claims").await;
        sqlx::raw_sql("COMMIT").execute(&mut blocking).await.unwrap();
    };
    let (claimed, ()) = tokio::join!(worker.claim_once(SHARD, 1), going_on);
    let here = claimed.unwrap()[0].clock.now();
    let there: DateTime<Utc> = sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(shop.pool()).await.unwrap();
    // The claim's time is rounded to milliseconds.
    assert!(here - TimeDelta::milliseconds(1) <= there, "{here} {there}");
}

#[tokio::test]
async fn the_deliveries_of_a_dead_node_are_taken_over_when_their_lease_ends() {
    let shop = Shop::open().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(500)).await;
    shop.webhook(&receiver.url()).await;
    shop.order(1).await;
    shop.project().await;
    let dying = shop.worker(&receiver, DEADLINE);
    let mut other = shop.worker(&receiver, DEADLINE);
    other.settings = dying.settings.clone();
    let clock = &other.settings.clock;
    for attempt in 1..=5 {
        let lost = dying.claim_once(SHARD, 1).await.unwrap().remove(0);
        assert_eq!(lost.attempt, attempt);
        let lease = state(shop.pool()).await.leased_until.unwrap() - lost.clock.at;
        assert!(lease > TimeDelta::from_std(DEADLINE).unwrap());
        clock.advance(lease / 2);
        assert_eq!(send_all(&other).await, Round::default(), "the lease holds");
        clock.advance(lease / 2);
        assert_eq!(send_all(&other).await, Round { claimed: 1, delivered: 0, failed: 1, recorded: 1 });
        let received = arrived.recv().await.unwrap();
        assert_ne!(received.request_id(), Some(&*lost.request_id.to_string()), "the repetition has its own request id");
        let after = state(shop.pool()).await;
        assert_eq!((after.attempt_count, after.unknown_count), (attempt, 0), "the repetition has the same number");
        clock.advance(TimeDelta::minutes(8));
    }
    assert_eq!(state(shop.pool()).await.status, "failed");
    let unknown = "SELECT count(*) FROM delivery_attempts WHERE finished_at IS NULL";
    assert_eq!((count(shop.pool(), unknown).await, arrived.try_recv().is_err()), (5, true));
}

#[tokio::test]
async fn attempts_with_an_unknown_outcome_are_limited() {
    let shop = Shop::open().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    shop.webhook(&receiver.url()).await;
    shop.order(1).await;
    shop.project().await;
    let worker = shop.worker(&receiver, DEADLINE);
    let clock = &worker.settings.clock;
    let mut numbers = vec![];
    for _ in 0..40 {
        record::fail_lost_attempts(shop.pool(), clock, SHARD, Duration::from_secs(60)).await.unwrap();
        numbers.extend(worker.claim_once(SHARD, 1).await.unwrap().iter().map(|c| c.attempt));
        clock.advance(TimeDelta::minutes(10));
    }
    // Each attempt and its five repetitions. After that, a lost attempt counts as failed.
    assert_eq!(numbers, (1..=5).flat_map(|attempt| [attempt; 6]).collect::<Vec<_>>());
    let state = state(shop.pool()).await;
    assert_eq!((&*state.status, state.attempt_count, state.unknown_count), ("failed", 5, 0));
}

#[tokio::test]
async fn concurrent_claims_never_overlap_and_keep_the_limit_per_webhook() {
    let shop = Shop::open().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    shop.webhook(&receiver.url()).await;
    shop.webhook(&receiver.url()).await;
    shop.orders(shop.customer.account_id, 100).await;
    shop.project().await;
    let (one, other) = (shop.worker(&receiver, DEADLINE), shop.worker(&receiver, DEADLINE));
    let mut claimed = vec![];
    for _ in 0..4 {
        let (a, b) = tokio::join!(one.claim_once(SHARD, 200), other.claim_once(SHARD, 200));
        claimed.extend(a.unwrap());
        claimed.extend(b.unwrap());
    }
    assert_eq!(claimed.len(), 2 * 64);
    let distinct: HashSet<i64> = claimed.iter().map(|c| c.delivery_id).collect();
    assert_eq!(distinct.len(), claimed.len());
    assert_eq!(count(shop.pool(), "SELECT max(n) FROM (SELECT count(*) AS n FROM delivery_state WHERE leased_until IS NOT NULL GROUP BY webhook_id) AS x").await, 64);

    // Deliveries that are given back are free at once, and have no recorded attempt.
    record::give_back(shop.pool(), SHARD, &claimed).await.unwrap();
    assert_eq!(count(shop.pool(), "SELECT count(*) FROM delivery_attempts").await, 0);
    assert!(states(shop.pool()).await.iter().all(|s| s.leased_until.is_none() && s.unknown_count == 0));
    assert_eq!(one.claim_once(SHARD, 200).await.unwrap().len(), 128);
}

#[tokio::test]
async fn small_claims_are_shared_by_accounts_and_by_retries() {
    let shop = Shop::open().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let (busy, _) = shop.webhook(&receiver.url()).await;
    let (other_account, _) = shop.account("other").await;
    let (quiet, _) = shop.webhook_for(other_account, &receiver.url(), &[WebhookEventType::OrderCreated]).await;
    shop.orders(shop.customer.account_id, 200).await;
    shop.orders(other_account, 3).await;
    shop.project().await;
    let worker = shop.worker(&receiver, DEADLINE);
    // Half of the busy webhook's deliveries are retries that were due long ago.
    sqlx::query("UPDATE delivery_state SET attempt_count = 1, next_attempt_at = now() - interval '1 hour' WHERE webhook_id = $1 AND delivery_id % 2 = 0")
        .bind(busy)
        .execute(shop.pool())
        .await
        .unwrap();
    let first = worker.claim_once(SHARD, 8).await.unwrap();
    assert_eq!(first.iter().filter(|c| c.webhook_id == quiet).count(), 3);
    let mut attempts = vec![];
    for _ in 0..12 {
        attempts.extend(worker.claim_once(SHARD, 64).await.unwrap().iter().map(|c| c.attempt));
        sqlx::query(
            "UPDATE delivery_state SET status = 'failed', leased_until = NULL WHERE leased_until IS NOT NULL AND webhook_id = $1",
        )
        .bind(busy)
        .execute(shop.pool())
        .await
        .unwrap();
        if attempts.len() > 60 {
            break;
        }
    }
    let retries = attempts.iter().filter(|a| **a == 2).count();
    assert!(retries > 0 && retries * 2 < attempts.len(), "{retries} of {}", attempts.len());
}

/// Runs the worker until the query returns zero.
async fn run_until_none(worker: Worker, sql: &'static str) {
    let pool = worker.database.pool.clone();
    let stop = CancellationToken::new();
    let running = tokio::spawn(worker.run(stop.clone()));
    until("no deliveries are left", async || count(&pool, sql).await == 0).await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn a_hanging_endpoint_does_not_stop_another_and_stopping_leaves_nothing_leased() {
    let shop = Shop::open().await;
    let (receiver, _arrived) =
        receiver(|r| if r.path == "/hang" { ReceiverResponse::Hang } else { ReceiverResponse::Status(200) }).await;
    shop.webhook(&format!("{}/hang", receiver.url())).await;
    let (good, _) = shop.webhook(&format!("{}/good", receiver.url())).await;
    shop.orders(shop.customer.account_id, 100).await;
    shop.project().await;
    let mut worker = shop.worker(&receiver, DEADLINE);
    worker.settings.max_in_flight = 32;
    let stop = CancellationToken::new();
    let running = tokio::spawn(worker.run(stop.clone()));
    let healthy = "SELECT count(*) FROM delivery_state WHERE status = 'pending' AND webhook_id = 2";
    assert_eq!(good, WebhookId(2));
    until("the others are delivered", async || count(shop.pool(), healthy).await == 0).await;
    stop.cancel();
    // The send that hangs ends with its connection. The worker waits for it.
    receiver.stop().await;
    running.await.unwrap();
    assert_eq!(count(shop.pool(), "SELECT count(*) FROM delivery_state WHERE status = 'delivered'").await, 100);
    assert_eq!(count(shop.pool(), "SELECT count(*) FROM delivery_state WHERE leased_until IS NOT NULL").await, 0);
    // No attempt was lost: each one has its result.
    assert_eq!(count(shop.pool(), "SELECT count(*) FROM delivery_attempts WHERE finished_at IS NULL").await, 0);
}

#[tokio::test]
async fn two_running_workers_deliver_everything_once() {
    let shop = Shop::open().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    shop.webhook(&receiver.url()).await;
    shop.webhook(&receiver.url()).await;
    shop.orders(shop.customer.account_id, 500).await;
    let stop = CancellationToken::new();
    let beside = tokio::spawn(shop.worker(&receiver, DEADLINE).run(stop.clone()));
    shop.project().await;
    run_until_none(shop.worker(&receiver, DEADLINE), "SELECT count(*) FROM delivery_state WHERE status = 'pending'").await;
    stop.cancel();
    beside.await.unwrap();
    let mut got = HashSet::new();
    let mut requests = 0;
    while let Ok(received) = arrived.try_recv() {
        requests += 1;
        got.insert((received.webhook_id().unwrap().to_owned(), received.event_id().unwrap().to_owned()));
    }
    assert_eq!((requests, got.len()), (1_000, 1_000));
}
