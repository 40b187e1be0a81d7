//! Replays in the portal: what a webhook failed to receive, and what it missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rewards_ledger::delivery::replay::Replayer;
use rewards_ledger::ledger::FIRST_SHARD;
use serde_json::{Value, json};
use webhook_client::receiver::ReceiverResponse;

use super::portal_orders::enter;
use super::{check, in_browser, place};
use crate::support::node::Node;
use crate::support::shop::{self, DEADLINE, receiver};
use crate::support::tampering::tamper;

/// Attempts after which a delivery has failed for good.
const ATTEMPTS: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn a_user_counts_what_a_webhook_missed_and_replays_it() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let operator = node.user(setup.client.account_id, "operator").await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    node.client(&setup.client, "POST", "/orders", order).await.data(201);
    let hook = json!({"name": "Shop", "url": "https://example.com/hook", "events": ["order.created"]});
    let webhook = node.client(&setup.client, "POST", "/webhooks", hook).await.json()["id"].clone();
    in_browser((1440, 1_400), true, |browser| async move {
        enter(&browser, &node, &operator, &format!("/portal/webhooks/{webhook}")).await;
        browser.press("Deliver again what failed or was missed").await;
        browser.sees("There was no replay of this webhook yet.").await;
        check(&browser, "no replays").await;
        assert_eq!(browser.run("return isFollowed").await, true);
        browser.fill("Since", "some day").await;
        browser.press("Count the events").await;
        browser.find("//*[@role='alert']").await;
        browser.logs_refusal(400).await;
        assert_eq!(browser.run("return isFollowed").await, false, "a refused page is not read again");
        browser.fill("Since", "2026-01-01").await;
        browser.click("//select[@id='only']/option[text()='Only what failed']").await;
        browser.press("Count the events").await;
        // The order is older than the webhook, so its event was never sent.
        browser.sees("Nothing failed or was missed since then.").await;
        browser.click("//select[@id='only'][option[@value='failed'][@selected]]/option[text()='Only what was never sent']").await;
        browser.press("Count the events").await;
        browser.sees("1 event").await;
        check(&browser, "the count of a replay").await;
        browser.press("Start the replay").await;
        browser.sees("The replay has started.").await;
        browser.sees("Running").await;
        let examined = "UPDATE webhook_replays SET next_position = from_position + 40, until_position = from_position + 100";
        sqlx::query(examined).execute(node.ledger.pool()).await.unwrap();
        let replays = node.client(&setup.client, "GET", &format!("/webhooks/{webhook}/replays"), Value::Null).await.data(200);
        assert_eq!(replays["replays"][0]["progress_percent"], 40);
        browser.open(&format!("{}/portal/webhooks/{webhook}/replays", node.url())).await;
        browser.find("//td[@data-name='Progress'][contains(., '40 %')]/progress[@value='40']").await;
        check(&browser, "the replays").await;
    })
    .await;
}

/// Positions by which the end of the log is moved away: one call counts over less than half of them.
const OTHERS: i64 = 1_200_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_count_over_a_long_log_goes_on_by_itself_or_by_a_button() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let operator = node.user(setup.client.account_id, "operator").await;
    for _ in 0..2 {
        place(&node, &setup).await;
    }
    let hook = json!({"name": "Shop", "url": "https://example.com/hook", "events": ["order.created"]});
    let webhook = node.client(&setup.client, "POST", "/webhooks", hook).await.json()["id"].clone();
    let path = format!("/portal/webhooks/{webhook}/replays");
    let later = format!(
        "UPDATE events SET position = position + {OTHERS} WHERE position >= (SELECT max(position) FROM events WHERE type = 'OrderPlaced');
         UPDATE log_head SET position = position + {OTHERS}"
    );
    tamper(&mut node.admin().await, &later).await;
    let (node, operator, path) = (&node, &operator, &path);
    for scripts in [true, false] {
        in_browser((1440, 1_400), scripts, |browser| async move {
            enter(&browser, node, operator, path).await;
            browser.fill("Since", "2026-01-01").await;
            browser.press("Count the events").await;
            if !scripts {
                browser.sees("At least 1 event").await;
                browser.sees("it has reached position 500001 of").await;
                browser.press("Count further").await;
                browser.sees("it has reached position 1000001 of").await;
                browser.press("Count further").await;
            }
            browser.sees("2 events").await;
            assert!(!browser.text("//main").await.contains("At least"));
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_replays_only_what_failed_and_the_receiver_gets_the_same_event_again() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let operator = node.user(setup.client.account_id, "operator").await;
    let is_well = Arc::new(AtomicBool::new(true));
    let well = is_well.clone();
    let (receiver, mut arrived) =
        receiver(move |_| ReceiverResponse::Status(if well.load(Ordering::SeqCst) { 200 } else { 500 })).await;
    // The webhook misses the first order, receives the second, and fails to receive the third.
    place(&node, &setup).await;
    let hook = json!({"name": "Shop", "url": receiver.url(), "events": ["order.created"]});
    let webhook = node.client(&setup.client, "POST", "/webhooks", hook).await.json()["id"].clone();
    let worker = shop::worker(&node.options, &receiver, DEADLINE);
    place(&node, &setup).await;
    node.project().await;
    assert_eq!(worker.once().await.unwrap().delivered, 1);
    let received = arrived.recv().await.unwrap();
    is_well.store(false, Ordering::SeqCst);
    let order = place(&node, &setup).await;
    node.project().await;
    let mut failed = vec![];
    for _ in 0..ATTEMPTS {
        sqlx::raw_sql("UPDATE delivery_state SET next_attempt_at = now()").execute(node.ledger.pool()).await.unwrap();
        assert_eq!(worker.once().await.unwrap().recorded, 1);
        failed.push(arrived.recv().await.unwrap());
    }
    is_well.store(true, Ordering::SeqCst);
    let of_status = async |status: &str| {
        let path = format!("/webhooks/deliveries?order_id={order}&status={status}");
        node.client(&setup.client, "GET", &path, Value::Null).await.data(200)["deliveries"].as_array().unwrap().len()
    };
    assert_eq!((of_status("failed").await, of_status("pending").await), (1, 0));
    let path = format!("/portal/webhooks/{webhook}/replays");
    in_browser((1440, 1_400), true, |browser| async move {
        enter(&browser, &node, &operator, &path).await;
        browser.fill("Since", "2026-01-01").await;
        browser.click("//select[@id='only']/option[text()='Only what failed']").await;
        browser.press("Count the events").await;
        browser.find("//*[@role='status']//strong[text()='1 event']").await;
        browser.press("Start the replay").await;
        browser.sees("The replay has started.").await;
        node.project().await;
        let replayer = Replayer { ledger: node.ledger.clone(), pool: node.ledger.pool().clone() };
        assert_eq!(replayer.once(FIRST_SHARD).await.unwrap(), 1);
        node.project().await;
        assert_eq!(worker.once().await.unwrap().delivered, 1);
        let again = arrived.recv().await.unwrap();
        let event = again.header("x-event-id");
        assert!(event.is_some() && event != received.header("x-event-id"));
        for attempt in &failed {
            assert_eq!((attempt.header("x-event-id"), &attempt.body), (event, &again.body));
        }
        browser.open(&format!("{}{path}", node.url())).await;
        for (column, value) in [("Deliveries", "1"), ("Delivered", "1"), ("Pending", "0"), ("Status", "Completed")] {
            browser.find(&format!("//tbody/tr[1]/td[@data-name='{column}'][normalize-space()='{value}']")).await;
        }
        browser.click("//td[@data-name='Delivered']/a").await;
        browser.find("//td//span[text()='Delivered']").await;
    })
    .await;
}
