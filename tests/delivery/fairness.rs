//! Fairness: no receiver delays the deliveries to another one. The tests assert order and bounds, not times.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ledger_events::WebhookId;
use ledger_events::webhook::WebhookEventType;
use tokio_util::sync::CancellationToken;
use webhook_client::receiver::{Receiver, ReceiverResponse};

use super::bounds::Counting;
use super::count;
use crate::support::shop::{Shop, receiver};
use crate::support::wait::until;

/// Starts a receiver that never answers under `/hang` and counts the requests there.
async fn hanging_receiver() -> (Receiver, Arc<AtomicUsize>) {
    let hanging = Arc::new(AtomicUsize::new(0));
    let counted = hanging.clone();
    let (receiver, _) = receiver(move |r| match r.path.as_str() {
        "/hang" => {
            counted.fetch_add(1, Ordering::SeqCst);
            ReceiverResponse::Hang
        }
        _ => ReceiverResponse::Status(200),
    })
    .await;
    (receiver, hanging)
}

/// Timeout longer than these tests take, so that a hanging send outlasts them.
const HANGING: Duration = Duration::from_secs(3_600);
/// Longer than the machine pauses. An endpoint that answers within this time counts as fast.
const PAUSE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_endpoint_with_a_thousand_due_delays_no_other() {
    let shop = Shop::open().await;
    let (receiver, hanging) = hanging_receiver().await;
    shop.webhook(&format!("{}/hang", receiver.url())).await;
    shop.webhook(&format!("{}/good", receiver.url())).await;
    let (other, _) = shop.account("other").await;
    shop.webhook_for(other, &format!("{}/good", receiver.url()), &[WebhookEventType::OrderCreated]).await;
    shop.orders(shop.customer.account_id, 1_000).await;
    shop.orders(other, 100).await;
    shop.project().await;
    let mut worker = shop.worker(&receiver, HANGING);
    worker.settings.max_in_flight = 32;
    worker.settings.max_in_flight_per_webhook = 24;
    let running = tokio::spawn(worker.run(CancellationToken::new()));
    let left = "SELECT count(*) FROM delivery_state WHERE webhook_id > 1 AND status <> 'delivered'";
    let what = "all other deliveries arrive before a hanging send ends";
    until(what, async || count(shop.pool(), left).await == 0).await;
    // This endpoint has never answered, so only one delivery is sent to it, and none of the others wait in memory.
    until("one delivery is sent to it", async || hanging.load(Ordering::SeqCst) > 0).await;
    assert_eq!(hanging.load(Ordering::SeqCst), 1);
    let held = "SELECT count(*) FROM delivery_state WHERE webhook_id = 1 AND leased_until IS NOT NULL";
    assert_eq!(count(shop.pool(), held).await, 1);
    // New endpoints arrive while other endpoints without a history hang as well.
    for n in 0..10 {
        let (account, _) = shop.account(&format!("hangs, too {n}")).await;
        shop.webhook_for(account, &format!("{}/hang", receiver.url()), &[WebhookEventType::OrderCreated]).await;
        shop.orders(account, 100).await;
    }
    shop.project().await;
    let (late, _) = shop.account("late").await;
    let (good, _) = shop.webhook_for(late, &format!("{}/good", receiver.url()), &[WebhookEventType::OrderCreated]).await;
    assert_eq!(good, WebhookId(14));
    until("one delivery is sent to each of them", async || hanging.load(Ordering::SeqCst) >= 11).await;
    shop.orders(late, 20).await;
    shop.project().await;
    let delivered = "SELECT count(*) FROM delivery_state WHERE webhook_id = 14 AND status = 'delivered'";
    let what = "the late account's deliveries arrive before a hanging send ends";
    until(what, async || count(shop.pool(), delivered).await >= 20).await;
    running.abort(); // a stop would wait for the sends that hang
}

#[tokio::test(flavor = "multi_thread")]
async fn however_many_endpoints_hang_the_others_are_served() {
    let shop = Shop::open().await;
    let (receiver, _) = hanging_receiver().await;
    for n in 0..60 {
        let (account, _) = shop.account(&format!("hangs {n}")).await;
        shop.webhook_for(account, &format!("{}/hang", receiver.url()), &[WebhookEventType::OrderCreated]).await;
        shop.orders(account, 5).await;
    }
    let (good, _) = shop.webhook(&format!("{}/good", receiver.url())).await;
    shop.orders(shop.customer.account_id, 200).await;
    shop.project().await;
    assert_eq!(good, WebhookId(61));
    let mut worker = shop.worker(&receiver, HANGING);
    worker.settings.max_in_flight = 32;
    worker.settings.max_in_flight_per_webhook = 16;
    worker.settings.fast_within = PAUSE;
    worker.settings.fresh = PAUSE;
    let running = tokio::spawn(worker.run(CancellationToken::new()));
    let left = "SELECT count(*) FROM delivery_state WHERE webhook_id = 61 AND status <> 'delivered'";
    let what = "the good endpoint gets its deliveries while sixty hang";
    until(what, async || count(shop.pool(), left).await == 0).await;
    running.abort(); // a stop would wait for the sends that hang
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_new_hanging_endpoints_delay_no_healthy_endpoint() {
    let shop = Shop::open().await;
    let (receiver, hanging) = hanging_receiver().await;
    let (good, _) = shop.webhook(&format!("{}/good", receiver.url())).await;
    assert_eq!(good, WebhookId(1));
    let delivered = "SELECT count(*) FROM delivery_state WHERE webhook_id = 1 AND status = 'delivered'";
    let until_delivered = async |wanted: i64| {
        until("the good endpoint gets its deliveries", async || count(shop.pool(), delivered).await >= wanted).await;
    };
    let mut worker = shop.worker(&receiver, HANGING);
    worker.settings.max_in_flight = 64;
    worker.settings.max_in_flight_per_webhook = 16;
    worker.settings.fast_within = PAUSE;
    let running = tokio::spawn(worker.run(CancellationToken::new()));
    shop.orders(shop.customer.account_id, 20).await;
    shop.project().await;
    until_delivered(20).await;
    // Each endpoint has an account of its own, so that no account has fewer in flight than another.
    let url = format!("{}/hang", receiver.url());
    futures::future::join_all((0..300).map(async |n| {
        let (account, _) = shop.account(&format!("hangs {n}")).await;
        shop.webhook_for(account, &url, &[WebhookEventType::OrderCreated]).await;
        shop.orders(account, 2).await;
    }))
    .await;
    shop.project().await;
    // Wait until as many hang as may be in flight. Others are queued behind them.
    until("as many deliveries hang as are allowed", async || hanging.load(Ordering::SeqCst) >= 32).await;
    shop.orders(shop.customer.account_id, 300).await;
    shop.project().await;
    until_delivered(320).await;
    let ended = "SELECT count(*) FROM delivery_attempts a JOIN delivery_state s USING (shard_id, delivery_id) WHERE s.webhook_id > 1 AND finished_at IS NOT NULL";
    assert_eq!(count(shop.pool(), ended).await, 0, "this happens before a hanging send ends");
    assert_eq!(hanging.load(Ordering::SeqCst), 32, "half of the limit is in flight");
    running.abort(); // a stop would wait for the sends that hang
}

#[tokio::test(flavor = "multi_thread")]
async fn fast_endpoints_that_hang_together_delay_no_other_account() {
    let shop = Shop::open().await;
    let (answered, hanging) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (answers, hangs) = (answered.clone(), hanging.clone());
    let (receiver, _arrived) = receiver(move |r| {
        // The endpoints answer long enough for all of them to be known as fast.
        if r.path == "/good" || answers.fetch_add(1, Ordering::SeqCst) < 1_200 {
            return ReceiverResponse::Status(200);
        }
        hangs.fetch_add(1, Ordering::SeqCst);
        ReceiverResponse::Hang
    })
    .await;
    for _ in 0..4 {
        shop.webhook(&format!("{}/falls-silent", receiver.url())).await;
    }
    let (other, _) = shop.account("other").await;
    let good = format!("{}/good", receiver.url());
    let (known, _) = shop.webhook_for(other, &good, &[WebhookEventType::OrderCreated]).await;
    shop.orders(shop.customer.account_id, 500).await;
    shop.orders(other, 50).await;
    shop.project().await;
    // The four webhooks together may have as many in flight as the whole node.
    let mut worker = shop.worker(&receiver, HANGING);
    worker.settings.max_in_flight = 32;
    worker.settings.max_in_flight_per_webhook = 8;
    worker.settings.fast_within = PAUSE;
    let running = tokio::spawn(worker.run(CancellationToken::new()));
    until("all of them hang", async || hanging.load(Ordering::SeqCst) >= 24).await;
    let (new_account, _) = shop.account("new").await;
    let (new, _) = shop.webhook_for(new_account, &good, &[WebhookEventType::OrderCreated]).await;
    shop.orders(other, 100).await;
    shop.orders(new_account, 100).await;
    shop.project().await;
    assert_eq!((known, new), (WebhookId(5), WebhookId(6)));
    let left = "SELECT count(*) FROM delivery_state WHERE webhook_id IN (5, 6) AND status <> 'delivered'";
    let what = "the others, including a new one, get their deliveries before a hanging send ends";
    until(what, async || count(shop.pool(), left).await == 0).await;
    let ended = "SELECT count(*) FROM delivery_attempts WHERE error IS NOT NULL";
    assert_eq!(count(shop.pool(), ended).await, 0);
    assert_eq!(hanging.load(Ordering::SeqCst), 24, "three quarters");
    running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_accounts_flood_does_not_delay_anothers_delivery() {
    let shop = Shop::open().await;
    let order: Arc<Mutex<Vec<String>>> = Arc::default();
    // The flood lasts for half a minute, longer than the machine pauses.
    let counting = Counting::answering_after(Duration::from_millis(100));
    let (kept, counted) = (order.clone(), counting.clone());
    let (receiver, _arrived) = receiver(move |r| {
        kept.lock().unwrap().push(r.webhook_id().unwrap().to_owned());
        counted.answer(r)
    })
    .await;
    for _ in 0..4 {
        shop.webhook(&receiver.url()).await;
    }
    let (other, _) = shop.account("other").await;
    let (quiet, _) = shop.webhook_for(other, &receiver.url(), &[WebhookEventType::OrderCreated]).await;
    shop.orders(shop.customer.account_id, 1_000).await;
    shop.project().await;
    let mut worker = shop.worker(&receiver, HANGING);
    worker.settings.max_in_flight = 16;
    worker.settings.max_in_flight_per_webhook = 8;
    let stop = CancellationToken::new();
    let running = tokio::spawn(worker.run(stop.clone()));
    // The worker has claimed ahead as much as it may.
    until("the worker is in the middle of the flood", async || order.lock().unwrap().len() >= 400).await;
    shop.orders(other, 1).await;
    shop.project().await;
    let before = order.lock().unwrap().len();
    let name = quiet.to_string();
    let position = || order.lock().unwrap().iter().position(|id| *id == name);
    until("the other account's delivery arrives", async || position().is_some()).await;
    let at = position().unwrap();
    // The delivery comes after the ones in flight, and after those sent while it was found and claimed. It comes
    // before half of the remaining backlog.
    assert!(at < before + (4_000 - before) / 2, "{at} after {before}");
    stop.cancel();
    running.await.unwrap();
    let mut counts: HashMap<String, usize> = HashMap::new();
    for id in order.lock().unwrap().iter() {
        *counts.entry(id.clone()).or_default() += 1;
    }
    assert_eq!(counts[&name], 1);
    let (in_all, of_one) = counting.most();
    assert!(in_all <= 16 && of_one <= 8, "{in_all} in total, {of_one} of one webhook");
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_and_first_attempts_do_not_starve_each_other() {
    let shop = Shop::open().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    shop.webhook(&receiver.url()).await;
    shop.orders(shop.customer.account_id, 600).await;
    shop.project().await;
    // Half of the deliveries are retries, all due long before the first attempts.
    sqlx::query(
        "UPDATE delivery_state SET attempt_count = 1, next_attempt_at = now() - interval '1 hour' WHERE delivery_id <= 300",
    )
    .execute(shop.pool())
    .await
    .unwrap();
    let mut worker = shop.worker(&receiver, HANGING);
    worker.settings.max_in_flight = 8;
    worker.settings.max_in_flight_per_webhook = 8;
    let stop = CancellationToken::new();
    let running = tokio::spawn(worker.run(stop.clone()));
    let delivered = "SELECT count(*) FROM delivery_state WHERE status = 'delivered'";
    until("all are delivered", async || count(shop.pool(), delivered).await == 600).await;
    stop.cancel();
    running.await.unwrap();
    let numbers: Vec<i16> = sqlx::query_scalar("SELECT attempt FROM delivery_attempts ORDER BY started_at, delivery_id")
        .fetch_all(shop.pool())
        .await
        .unwrap();
    // Three attempts of four are first ones, so both kinds are left until here.
    for (n, hundred) in numbers[..300].chunks(100).enumerate() {
        let retries = hundred.iter().filter(|number| **number == 2).count();
        assert!((5..=95).contains(&retries), "retries among the attempts from {}: {retries}", n * 100);
    }
}
