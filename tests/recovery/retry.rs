//! Retries: reasons for a refusal, and the time of sending.

use std::time::Duration;

use rewards_ledger::ledger::FIRST_SHARD;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;
use webhook_client::receiver::{Received, ReceiverResponse};

use super::management::detail;
use super::{order, send, sound, switch, webhook};
use crate::support::node::{AMPLE_LIMITS, Client, Node};
use crate::support::shop::{DEADLINE, receiver, worker};

#[tokio::test]
async fn a_second_retry_is_refused_while_the_first_one_is_undone() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let (id, _) = webhook(&node, client, "https://example.com/hook", &["order.created"]).await;
    order(&node, &setup).await;
    order(&node, &setup).await;
    switch(&node, client, id, false).await;
    switch(&node, client, id, true).await;
    let list = node.client(client, "GET", "/webhooks/deliveries", Value::Null).await.data(200);
    let [first, other] = [0, 1].map(|n| format!("/webhooks/deliveries/{}/retry", list["deliveries"][n]["id"]));
    let retry = async |path: &str| node.client(client, "POST", path, Value::Null).await;
    retry(&first).await.data(200);
    retry(&first).await.refused(409, "E_DELIVERY_NOT_FAILED");
    retry(&other).await.data(200);
    // Switching the webhook off fails the delivery again, so it can be retried. No worker or projector has acted in
    // between.
    for is_active in [false, true] {
        node.client(client, "PUT", &format!("/webhooks/{id}"), json!({"is_active": is_active})).await.data(200);
    }
    retry(&first).await.data(200);
    retry(&first).await.refused(409, "E_DELIVERY_NOT_FAILED");
    node.project().await;
    for (n, status) in ["pending", "failed"].into_iter().enumerate() {
        assert_eq!(detail(&node, client, &list["deliveries"][n]["id"]).await["status"], status);
    }
    retry(&first).await.refused(409, "E_DELIVERY_NOT_FAILED");
    retry(&other).await.data(200);
    node.project().await;
    sound(&node).await;
}

/// Returns everything that an account's readers see of its deliveries, with any filter, page by page, with the
/// counts.
async fn shown(node: &Node, client: &Client, filters: &[String]) -> Vec<(String, String, Value)> {
    let mut shown = vec![];
    for filter in filters {
        for page in 1..=3 {
            let query = format!("/webhooks/deliveries?limit=3&page={page}{filter}");
            let answer = node.client(client, "GET", &query, Value::Null).await;
            shown.push((query, answer.header("x-total-count").to_owned(), answer.data(200)));
        }
    }
    let stats = node.client(client, "GET", "/webhooks/deliveries/stats", Value::Null).await.data(200);
    shown.push(("stats".to_owned(), String::new(), stats));
    shown
}

/// The retry is only in the log. Every reader already sees the state that the projection will reach.
#[tokio::test]
async fn a_retried_delivery_is_pending_on_the_next_read_of_any_node() {
    let node = Node::start().await;
    let other = node.beside(AMPLE_LIMITS.parse().unwrap()).await;
    let setup = node.setup().await;
    let client = &setup.client;
    let both = ["order.created", "order.cancelled"];
    let (first, _) = webhook(&node, client, "https://example.com/first", &both).await;
    let (second, _) = webhook(&node, client, "https://example.com/second", &["order.created"]).await;
    let mut about = 0;
    for n in 0..3 {
        about = order(&node, &setup).await;
        if n == 0 {
            node.client(client, "POST", &format!("/orders/{about}/cancel"), Value::Null).await.data(200);
        }
    }
    node.client(client, "POST", &format!("/webhooks/{second}/test"), Value::Null).await.data(200);
    for id in [first, second] {
        switch(&node, client, id, false).await;
        switch(&node, client, id, true).await;
    }
    order(&node, &setup).await;
    node.project().await;
    let list = node.client(client, "GET", "/webhooks/deliveries?status=failed", Value::Null).await.data(200);
    let list = list["deliveries"].as_array().unwrap();
    let failed: Vec<Value> = list.iter().map(|delivery| delivery["id"].clone()).collect();
    let middle = list[3]["created_at"].as_str().unwrap();
    let mut filters: Vec<String> = vec![String::new()];
    for status in ["pending", "delivered", "failed"] {
        let of_status = format!("&status={status}");
        filters.push(format!("{of_status}&webhook_url_id={first}"));
        filters.push(format!("{of_status}&webhook_url_id={second}"));
        filters.push(format!("{of_status}&event_type=order.cancelled"));
        filters.push(format!("{of_status}&order_id={about}"));
        for bound in ["created_from", "created_to"] {
            filters.push(format!("{of_status}&{bound}={middle}"));
            filters.push(format!("{of_status}&webhook_url_id={second}&{bound}={middle}"));
        }
        filters.push(of_status);
    }
    let before = shown(&node, client, &filters).await;
    assert_eq!(failed.len(), 8, "seven about orders, and a test");

    for (n, id) in failed.iter().enumerate().filter(|(n, _)| n % 3 != 1) {
        let path = format!("/webhooks/deliveries/{id}/retry");
        node.keyed(client, &path, &format!("retry {n}"), &Value::Null).await.data(200);
        for reader in [&node, &other] {
            let read = detail(reader, client, id).await;
            assert_eq!((&read["status"], read["next_attempt_at"].is_string()), (&json!("pending"), true), "{read}");
        }
    }
    let ahead = shown(&node, client, &filters).await;
    assert_ne!(ahead, before);
    assert_eq!(shown(&other, client, &filters).await, ahead, "on every node");
    let stats = &ahead.last().unwrap().2;
    assert_eq!((&stats["pending_count"], &stats["failed_count"], &stats["last_24h_failed"]), (&json!(7), &json!(3), &json!(3)));
    let checkpoint = "SELECT position FROM projection_checkpoints WHERE projection = 'deliveries'";
    let checkpoint: i64 = sqlx::query_scalar(checkpoint).fetch_one(node.ledger.pool()).await.unwrap();
    assert_eq!(checkpoint, node.head().await - 5, "the retries are only in the log");
    node.project().await;
    assert_eq!(shown(&node, client, &filters).await, ahead, "the same as after the projection");

    // A webhook that is switched off before the projection acts fails its deliveries again.
    for (n, id) in failed.iter().enumerate().filter(|(n, _)| n % 3 == 1) {
        node.client(client, "POST", &format!("/webhooks/deliveries/{id}/retry"), Value::Null).await.data(200);
        assert_eq!(detail(&node, client, id).await["status"], "pending", "{n}");
    }
    for id in [first, second] {
        node.client(client, "PUT", &format!("/webhooks/{id}"), json!({"is_active": false})).await.data(200);
    }
    for (_, id) in failed.iter().enumerate().filter(|(n, _)| n % 3 == 1) {
        assert_eq!(detail(&node, client, id).await["status"], "failed");
    }
    node.project().await;
    sound(&node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_concurrent_retries_is_accepted() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let (id, _) = webhook(&node, client, "https://example.com/hook", &["order.created"]).await;
    order(&node, &setup).await;
    for _ in 0..5 {
        switch(&node, client, id, false).await;
        switch(&node, client, id, true).await;
        let list = node.client(client, "GET", "/webhooks/deliveries?status=failed", Value::Null).await.data(200);
        let path = format!("/webhooks/deliveries/{}/retry", list["deliveries"][0]["id"]);
        let retry = || node.client(client, "POST", &path, Value::Null);
        let mut statuses =
            futures::future::join_all([retry(), retry(), retry()]).await.into_iter().map(|a| a.status).collect::<Vec<_>>();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409, 409]);
    }
    let requested = "SELECT count(*) FROM events WHERE type = 'DeliveryRetryRequested'";
    assert_eq!(sqlx::query_scalar::<_, i64>(requested).fetch_one(node.ledger.pool()).await.unwrap(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_worker_picks_up_a_retry_with_or_without_a_notification() {
    let node = Node::start().await;
    let (receiver, mut arrived) = receiver(|r| ReceiverResponse::Status(if r.path == "/later" { 200 } else { 500 })).await;
    let setup = node.setup().await;
    let client = &setup.client;
    for is_told in [true, false] {
        let (id, _) = webhook(&node, client, &receiver.url(), &["order.created"]).await;
        order(&node, &setup).await;
        node.project().await;
        assert_eq!(send(&node, &receiver).await, 1);
        let failed = arrived.recv().await.unwrap().event_id().unwrap().to_owned();
        switch(&node, client, id, false).await;
        let later = json!({"url": format!("{}/later", receiver.url())});
        node.client(client, "PUT", &format!("/webhooks/{id}"), later).await.data(200);
        switch(&node, client, id, true).await;

        let mut worker = worker(&node.options, &receiver, DEADLINE);
        if is_told {
            worker.made = node.ledger.wake().deliveries();
            worker.settings.idle = Duration::from_secs(3_600);
        }
        let stop = CancellationToken::new();
        let running = tokio::spawn(worker.run(stop.clone()));
        // The worker runs and has nothing more to do.
        order(&node, &setup).await;
        node.project().await;
        let within_a_minute = async |arrived: &mut UnboundedReceiver<Received>| {
            tokio::time::timeout(Duration::from_secs(60), arrived.recv()).await.expect("within the minute").unwrap()
        };
        within_a_minute(&mut arrived).await;
        let list = node.client(client, "GET", "/webhooks/deliveries?status=failed", Value::Null).await.data(200);
        let path = format!("/webhooks/deliveries/{}/retry", list["deliveries"][0]["id"]);
        node.client(client, "POST", &path, Value::Null).await.data(200);
        node.project().await;
        assert_eq!(within_a_minute(&mut arrived).await.event_id(), Some(&*failed), "is told: {is_told}");
        stop.cancel();
        running.await.unwrap();
        node.client(client, "DELETE", &format!("/webhooks/{id}"), Value::Null).await.data(200);
    }
}

#[tokio::test]
async fn a_retry_that_is_asked_for_during_an_attempt_keeps_its_time() {
    let node = Node::start().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(500)).await;
    let setup = node.setup().await;
    let client = &setup.client;
    let (id, _) = webhook(&node, client, &receiver.url(), &["order.created"]).await;
    order(&node, &setup).await;
    node.project().await;
    let worker = worker(&node.options, &receiver, DEADLINE);
    let mut claimed = worker.claim_once(FIRST_SHARD, 1).await.unwrap();
    // During the attempt the webhook is switched off and on, which fails the delivery, and the delivery is retried.
    switch(&node, client, id, false).await;
    switch(&node, client, id, true).await;
    let list = node.client(client, "GET", "/webhooks/deliveries?status=failed", Value::Null).await.data(200);
    let delivery = list["deliveries"][0]["id"].clone();
    node.client(client, "POST", &format!("/webhooks/deliveries/{delivery}/retry"), Value::Null).await.data(200);
    node.project().await;
    let ended = worker.send(claimed.remove(0)).await.unwrap();
    assert_eq!(worker.record(FIRST_SHARD, &[ended]).await.unwrap(), 1);
    let after = detail(&node, client, &delivery).await;
    assert_eq!((&after["status"], &after["attempt_count"]), (&json!("pending"), &json!(1)));
    assert_eq!(send(&node, &receiver).await, 1, "it is due at once, not only after a minute");
    sound(&node).await;
}
