//! Test deliveries, statistics and retries, over HTTP and with real HTTPS receivers.

use chrono::Utc;
use rewards_ledger::audit::{Rebuild, rebuild};
use serde_json::{Value, json};
use webhook_client::receiver::ReceiverResponse;

use super::{be_due, order, send, sound, switch, webhook};
use crate::support::node::{Client, Node};
use crate::support::shop::receiver;

pub(super) async fn detail(node: &Node, client: &Client, delivery: &Value) -> Value {
    node.client(client, "GET", &format!("/webhooks/deliveries/{delivery}"), Value::Null).await.data(200)
}

#[tokio::test]
async fn a_test_is_a_real_logged_delivery_of_the_first_type_with_sample_data() {
    let node = Node::start().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let client = node.account("Acme").await;
    for (first, status) in [
        ("order.created", "PENDING"),
        ("order.pending", "PENDING"),
        ("order.delivered", "DELIVERED"),
        ("order.partially_delivered", "PARTIALLY_DELIVERED"),
        ("order.cancelled", "CANCELLED"),
    ] {
        let other = if first == "order.created" { "order.cancelled" } else { "order.created" };
        let (id, token) = webhook(&node, &client, &receiver.url(), &[first, other]).await;
        let before = node.client(&client, "GET", &format!("/webhooks/{id}"), Value::Null).await.data(200);
        let data = node.client(&client, "POST", &format!("/webhooks/{id}/test"), Value::Null).await.data(200);
        assert_eq!(data.as_object().unwrap().keys().collect::<Vec<_>>(), ["delivery_id", "event_id", "message"]);
        node.project().await;
        assert_eq!(send(&node, &receiver).await, 1);
        let received = arrived.recv().await.unwrap();
        received.verify(&token, Utc::now().timestamp()).unwrap();
        assert_eq!((received.event_type(), received.event_id()), (Some(first), data["event_id"].as_str()));
        let sent: Value = serde_json::from_slice(&received.body).unwrap();
        assert_eq!((&sent["event_id"], &sent["event_type"]), (&data["event_id"], &json!(first)));
        let order = &sent["data"];
        assert_eq!((&order["id"], &order["reference_code"], &order["status"]), (&json!(0), &json!("TEST"), &json!(status)));
        assert_eq!(order["delivered_on"].is_string(), first == "order.delivered");

        let shown = detail(&node, &client, &data["delivery_id"]).await;
        assert_eq!((&shown["order_id"], &shown["status"], &shown["payload"]), (&json!(0), &json!("delivered"), &sent));
        assert_eq!((&shown["event_id"], &shown["webhook_url_id"]), (&data["event_id"], &json!(id)));
        // A test delivery changes nothing about the webhook.
        assert_eq!(node.client(&client, "GET", &format!("/webhooks/{id}"), Value::Null).await.data(200), before);
    }
    sound(&node).await;
    let rebuilt = rebuild(&node.options, Rebuild::All, |_| {}).await.unwrap();
    assert!(rebuilt.was_clean(), "{:#?}", rebuilt.differences);
}

#[tokio::test]
async fn a_test_under_a_key_is_made_once_and_an_inactive_webhook_has_none() {
    let node = Node::start().await;
    let (client, other) = (node.account("Acme").await, node.account("Other").await);
    let (id, _) = webhook(&node, &client, "https://example.com/hook", &["order.created"]).await;
    let path = format!("/webhooks/{id}/test");
    let first = node.keyed(&client, &path, "one", &Value::Null).await;
    let again = node.keyed(&client, &path, "one", &Value::Null).await;
    assert_eq!((again.text, again.headers["idempotent-replayed"].to_str().unwrap()), (first.text, "true"));
    node.project().await;
    let list = node.client(&client, "GET", "/webhooks/deliveries", Value::Null).await;
    assert_eq!(list.header("x-total-count"), "1");

    node.client(&other, "POST", &path, Value::Null).await.refused(404, "E_NOT_FOUND");
    node.client(&client, "POST", "/webhooks/999/test", Value::Null).await.refused(404, "E_NOT_FOUND");
    node.client(&client, "POST", "/webhooks/one/test", Value::Null).await.refused(404, "E_NOT_FOUND");
    node.operator("PUT", &format!("/accounts/{}", client.account_id), json!({"status": "SUSPENDED"})).await.data(200);
    node.client(&client, "POST", &path, Value::Null).await.refused(403, "E_ACCOUNT_SUSPENDED");
    node.operator("PUT", &format!("/accounts/{}", client.account_id), json!({"status": "ACTIVE"})).await.data(200);
    switch(&node, &client, id, false).await;
    node.client(&client, "POST", &path, Value::Null).await.refused(409, "E_WEBHOOK_INACTIVE");
    node.client(&client, "DELETE", &format!("/webhooks/{id}"), Value::Null).await.data(200);
    node.client(&client, "POST", &path, Value::Null).await.refused(409, "E_WEBHOOK_INACTIVE");
}

#[tokio::test]
async fn a_delivery_failed_by_a_switched_off_webhook_is_retried_with_its_remaining_attempts() {
    let node = Node::start().await;
    let (receiver, mut arrived) = receiver(|r| ReceiverResponse::Status(if r.path == "/later" { 200 } else { 500 })).await;
    let setup = node.setup().await;
    let client = &setup.client;
    let (id, _) = webhook(&node, client, &receiver.url(), &["order.created"]).await;
    order(&node, &setup).await;
    node.project().await;
    assert_eq!(send(&node, &receiver).await, 1);
    let list = node.client(client, "GET", "/webhooks/deliveries", Value::Null).await.data(200);
    let delivery = list["deliveries"][0]["id"].clone();
    let retry = format!("/webhooks/deliveries/{delivery}/retry");
    node.client(client, "POST", &retry, Value::Null).await.refused(409, "E_DELIVERY_NOT_FAILED");

    switch(&node, client, id, false).await;
    let failed = detail(&node, client, &delivery).await;
    let expected = (json!("failed"), json!(1), Value::Null);
    assert_eq!((failed["status"].clone(), failed["attempt_count"].clone(), failed["next_attempt_at"].clone()), expected);
    node.client(client, "POST", &retry, Value::Null).await.refused(409, "E_WEBHOOK_INACTIVE");
    node.client(client, "PUT", &format!("/webhooks/{id}"), json!({"url": format!("{}/later", receiver.url())})).await.data(200);
    switch(&node, client, id, true).await;
    assert_eq!(detail(&node, client, &delivery).await["status"], "failed", "only a retry brings it back");

    let data = node.keyed(client, &retry, "again", &Value::Null).await.data(200);
    assert_eq!(data.as_object().unwrap().keys().collect::<Vec<_>>(), ["delivery_id", "message"]);
    assert_eq!(data["delivery_id"], delivery);
    node.project().await;
    let pending = detail(&node, client, &delivery).await;
    assert_eq!((&pending["status"], &pending["attempt_count"]), (&json!("pending"), &json!(1)));
    assert_eq!(node.keyed(client, &retry, "again", &Value::Null).await.header("idempotent-replayed"), "true");
    node.client(client, "POST", &retry, Value::Null).await.refused(409, "E_DELIVERY_NOT_FAILED");
    // The retry is due at once.
    assert_eq!(send(&node, &receiver).await, 1);
    let done = detail(&node, client, &delivery).await;
    assert_eq!((&done["status"], &done["attempt_count"]), (&json!("delivered"), &json!(2)));
    let numbers: Vec<_> = done["attempts"].as_array().unwrap().iter().map(|a| a["attempt"].as_i64().unwrap()).collect();
    assert_eq!(numbers, [1, 2]);
    let both = [arrived.recv().await.unwrap(), arrived.recv().await.unwrap()];
    assert_eq!(both[0].event_id(), both[1].event_id());
    assert_eq!(both[0].body, both[1].body);
    node.client(client, "POST", &retry, Value::Null).await.refused(409, "E_DELIVERY_NOT_FAILED");
    sound(&node).await;
    assert!(rebuild(&node.options, Rebuild::All, |_| {}).await.unwrap().was_clean());
    assert_eq!(detail(&node, client, &delivery).await, done);
}

#[tokio::test]
async fn a_delivery_without_attempts_left_or_of_another_account_is_not_retried() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let (client, other) = (&setup.client, node.account("Other").await);
    let (id, _) = webhook(&node, client, "https://example.com/hook", &["order.created"]).await;
    order(&node, &setup).await;
    node.project().await;
    let list = node.client(client, "GET", "/webhooks/deliveries", Value::Null).await.data(200);
    let retry = format!("/webhooks/deliveries/{}/retry", list["deliveries"][0]["id"]);
    sqlx::raw_sql("UPDATE delivery_state SET status = 'failed', attempt_count = 5").execute(node.ledger.pool()).await.unwrap();
    node.client(client, "POST", &retry, Value::Null).await.refused(409, "E_DELIVERY_ATTEMPTS_EXHAUSTED");
    node.client(&other, "POST", &retry, Value::Null).await.refused(404, "E_NOT_FOUND");
    for id in ["999", "first"] {
        let path = format!("/webhooks/deliveries/{id}/retry");
        node.client(client, "POST", &path, Value::Null).await.refused(404, "E_NOT_FOUND");
    }
    // A delivery of a deleted webhook cannot be retried either.
    sqlx::raw_sql("UPDATE delivery_state SET attempt_count = 1").execute(node.ledger.pool()).await.unwrap();
    node.client(client, "DELETE", &format!("/webhooks/{id}"), Value::Null).await.data(200);
    node.client(client, "POST", &retry, Value::Null).await.refused(409, "E_WEBHOOK_INACTIVE");
}

#[tokio::test]
async fn retries_and_switches_keep_their_order_within_a_projection_batch() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let (id, _) = webhook(&node, client, "https://example.com/hook", &["order.created"]).await;
    order(&node, &setup).await;
    switch(&node, client, id, false).await;
    let list = node.client(client, "GET", "/webhooks/deliveries", Value::Null).await.data(200);
    let delivery = list["deliveries"][0]["id"].clone();
    let retry = format!("/webhooks/deliveries/{delivery}/retry");
    let put = async |is_active| {
        node.client(client, "PUT", &format!("/webhooks/{id}"), json!({"is_active": is_active})).await.data(200);
    };
    // Switched on, retried, and switched off: the delivery fails again.
    put(true).await;
    node.client(client, "POST", &retry, Value::Null).await.data(200);
    put(false).await;
    node.project().await;
    assert_eq!(detail(&node, client, &delivery).await["status"], "failed");
    // Switched off and on, then retried: the delivery is pending.
    put(true).await;
    put(false).await;
    put(true).await;
    node.client(client, "POST", &retry, Value::Null).await.data(200);
    node.project().await;
    assert_eq!(detail(&node, client, &delivery).await["status"], "pending");
    sound(&node).await;
}

#[tokio::test]
async fn statistics_count_by_creation_time() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let stats = async |client: &Client| node.client(client, "GET", "/webhooks/deliveries/stats", Value::Null).await.data(200);
    let counts = |total, pending, delivered, failed, last: [i64; 3]| {
        json!({"total_count": total, "pending_count": pending, "delivered_count": delivered, "failed_count": failed,
            "last_24h_total": last[0], "last_24h_delivered": last[1], "last_24h_failed": last[2]})
    };
    assert_eq!(stats(client).await, counts(0, 0, 0, 0, [0, 0, 0]));
    webhook(&node, client, "https://example.com/hook", &["order.created"]).await;
    for _ in 0..5 {
        order(&node, &setup).await;
    }
    node.project().await;
    sqlx::raw_sql(
        "UPDATE delivery_state SET status = 'delivered', delivered_at = now() WHERE delivery_id IN (SELECT id FROM deliveries ORDER BY id LIMIT 2);
         UPDATE delivery_state SET status = 'failed' WHERE delivery_id IN (SELECT id FROM deliveries ORDER BY id DESC LIMIT 2);
         UPDATE deliveries SET created_at = now() - interval '24 hours 1 second' WHERE id IN (SELECT min(id) FROM deliveries);
         UPDATE deliveries SET created_at = now() - interval '23 hours 59 minutes' WHERE id IN (SELECT max(id) FROM deliveries)",
    )
    .execute(node.ledger.pool())
    .await
    .unwrap();
    assert_eq!(stats(client).await, counts(5, 1, 2, 2, [4, 1, 2]));

    // A test's id may be assigned long before. The age of the delivery counts from when it was made.
    let hook = node.client(client, "GET", "/webhooks", Value::Null).await.data(200)["webhooks"][0]["id"].clone();
    node.client(client, "POST", &format!("/webhooks/{hook}/test"), Value::Null).await.data(200);
    node.project().await;
    sqlx::raw_sql(
        "UPDATE delivery_state SET delivery_id = 0 WHERE delivery_id = (SELECT id FROM deliveries WHERE order_id = 0);
         UPDATE deliveries SET id = 0 WHERE order_id = 0",
    )
    .execute(node.ledger.pool())
    .await
    .unwrap();
    assert_eq!(stats(client).await, counts(6, 2, 2, 2, [5, 1, 2]));
    sqlx::raw_sql("UPDATE deliveries SET created_at = now() - interval '2 days'").execute(node.ledger.pool()).await.unwrap();
    assert_eq!(stats(client).await, counts(6, 2, 2, 2, [0, 0, 0]));
    assert_eq!(stats(&node.account("Other").await).await, counts(0, 0, 0, 0, [0, 0, 0]), "only the caller's account counts");
}

#[tokio::test]
async fn a_linked_webhook_is_signed_with_its_credentials_current_secret() {
    let node = Node::start().await;
    let (receiver, mut arrived) = receiver(|r| ReceiverResponse::Status(if r.path == "/later" { 200 } else { 500 })).await;
    let setup = node.setup().await;
    let client = &setup.client;
    let owner = node.user(client.account_id, "owner").await;
    let linked = node.credential(client.account_id).await.credential_id;
    let hook = json!({"name": "linked", "url": receiver.url(), "events": ["order.created"], "credential_id": linked});
    let made = node.bearer(&owner.access_token, "POST", "/api/v1/webhooks", hook).await.json();
    let (id, first) = (&made["id"], made["token"].as_str().unwrap());
    let mut signed_with = async |secret: &str, count: usize| {
        assert_eq!(send(&node, &receiver).await, count);
        for _ in 0..count {
            let received = arrived.recv().await.unwrap();
            received.verify(secret, Utc::now().timestamp()).unwrap();
            assert_eq!(received.token(), Some(secret));
        }
        be_due(&node).await;
    };
    order(&node, &setup).await;
    node.project().await;
    signed_with(first, 1).await;

    let rotate = format!("/client/api/api-keys/{linked}/rotate-signing-secret");
    let rotated = node.portal(&owner.cookie, node.url(), "POST", &rotate, Value::Null).await.data(200);
    let second = rotated["signing_secret"].as_str().unwrap();
    assert_ne!(first, second);
    signed_with(second, 1).await;
    node.operator("DELETE", &format!("/credentials/{linked}"), Value::Null).await.data(200);
    signed_with(second, 1).await;
    let path = format!("/webhooks/{id}");
    let later = json!({"url": format!("{}/later", receiver.url())});
    node.client(client, "PUT", &path, later.clone()).await.refused(403, "E_FORBIDDEN");
    node.bearer(&owner.access_token, "PUT", &format!("/api/v1{path}"), later).await.data(200);
    order(&node, &setup).await;
    node.operator("PUT", &format!("/accounts/{}", client.account_id), json!({"status": "SUSPENDED"})).await.data(200);
    node.client(client, "PUT", &path, json!({"name": "other"})).await.refused(403, "E_ACCOUNT_SUSPENDED");
    node.project().await;
    signed_with(second, 2).await;

    let hashes: Vec<(i64, i16, String, String)> =
        sqlx::query_as("SELECT delivery_id, attempt, url_hash, secret_hash FROM delivery_attempts ORDER BY delivery_id, attempt")
            .fetch_all(node.ledger.pool())
            .await
            .unwrap();
    let attempts: Vec<_> = hashes.iter().map(|(delivery, attempt, ..)| (delivery - hashes[0].0, *attempt)).collect();
    assert_eq!(attempts, [(0, 1), (0, 2), (0, 3), (0, 4), (1, 1)]);
    let changed = |hash: fn(&(i64, i16, String, String)) -> &String| -> Vec<bool> {
        hashes.windows(2).map(|pair| hash(&pair[0]) != hash(&pair[1])).collect()
    };
    assert_eq!(changed(|(_, _, url, _)| url), [false, false, true, false], "with the URL");
    assert_eq!(changed(|(_, _, _, secret)| secret), [true, false, false, false], "the secret changes with the rotation");
    let list = node.client(client, "GET", "/webhooks/deliveries?status=delivered", Value::Null).await;
    assert_eq!(list.header("x-total-count"), "2");
    sound(&node).await;
}

#[tokio::test]
async fn a_deleted_webhooks_pending_deliveries_fail_and_its_history_stays() {
    let node = Node::start().await;
    let (receiver, _arrived) =
        receiver(|r| ReceiverResponse::StatusWithBody(if r.path == "/good" { 200 } else { 500 }, "so".to_owned())).await;
    let setup = node.setup().await;
    let client = &setup.client;
    let (id, _) = webhook(&node, client, &format!("{}/good", receiver.url()), &["order.created"]).await;
    let (other, _) = webhook(&node, client, "https://example.com/hook", &["order.cancelled"]).await;
    let path = format!("/webhooks/{id}");
    // One delivery is delivered, one was attempted once, one not yet, and one is not even projected.
    order(&node, &setup).await;
    node.project().await;
    assert_eq!(send(&node, &receiver).await, 1);
    node.client(client, "PUT", &path, json!({"url": format!("{}/bad", receiver.url())})).await.data(200);
    order(&node, &setup).await;
    node.project().await;
    assert_eq!(send(&node, &receiver).await, 1);
    order(&node, &setup).await;
    node.project().await;
    let cancelled = order(&node, &setup).await;
    node.client(client, "POST", &format!("/orders/{cancelled}/cancel"), Value::Null).await.data(200);
    let answer = node.client(client, "DELETE", &path, Value::Null).await.data(200);
    assert_eq!(answer["webhook_id"], id);
    node.project().await;
    be_due(&node).await;

    let listed = node.client(client, "GET", &format!("/webhooks/deliveries?webhook_url_id={id}"), Value::Null).await;
    assert_eq!(listed.header("x-total-count"), "4");
    let listed = listed.data(200);
    let shown: Vec<_> = listed["deliveries"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|d| (d["status"].as_str().unwrap(), &d["attempt_count"]))
        .collect();
    assert_eq!(shown, [("delivered", &json!(1)), ("failed", &json!(1)), ("failed", &json!(0)), ("failed", &json!(0))]);
    for (delivery, attempts) in listed["deliveries"].as_array().unwrap().iter().rev().zip([1, 1, 0, 0]) {
        let one = detail(&node, client, &delivery["id"]).await;
        assert_eq!(one["payload"]["event_id"], delivery["event_id"]);
        assert_eq!(one["attempts"].as_array().unwrap().len(), attempts);
        assert_eq!(one["response_body"], if attempts > 0 { json!("so") } else { Value::Null });
        assert_eq!(one["next_attempt_at"], Value::Null);
    }
    let pending = node.client(client, "GET", "/webhooks/deliveries?status=pending", Value::Null).await.data(200);
    assert_eq!(pending["deliveries"].as_array().unwrap().len(), 1);
    assert_eq!(pending["deliveries"][0]["webhook_url_id"], other, "nobody else's");
    sound(&node).await;
    let rebuilt = rebuild(&node.options, Rebuild::All, |_| {}).await.unwrap();
    assert!(rebuilt.was_clean(), "{:#?}", rebuilt.differences);
}

#[tokio::test]
async fn the_log_at_an_events_position_decides_which_webhooks_receive_it() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let (hears, cancels) = ("order.created", "order.cancelled");
    let put = async |webhook: i64, change: Value| {
        node.client(client, "PUT", &format!("/webhooks/{webhook}"), change).await.data(200);
    };
    let delete = async |webhook: i64| {
        node.client(client, "DELETE", &format!("/webhooks/{webhook}"), Value::Null).await.data(200);
    };
    let cancel = async |order: i64| {
        node.client(client, "POST", &format!("/orders/{order}/cancel"), Value::Null).await.data(200);
    };
    // The projection handles all of it in one batch.
    let before = order(&node, &setup).await;
    let (changes, _) = webhook(&node, client, "https://example.com/changes", &[hears]).await;
    let (stays, _) = webhook(&node, client, "https://example.com/stays", &[hears]).await;
    let (leaves, _) = webhook(&node, client, "https://example.com/leaves", &[cancels]).await;
    let first = order(&node, &setup).await;
    put(changes, json!({"events": [cancels]})).await;
    let second = order(&node, &setup).await;
    cancel(before).await;
    put(changes, json!({"is_active": false})).await;
    cancel(first).await;
    delete(leaves).await;
    put(changes, json!({"events": [hears, cancels], "is_active": true})).await;
    cancel(second).await;
    let third = order(&node, &setup).await;
    delete(changes).await;
    let fourth = order(&node, &setup).await;
    node.project().await;

    let made: Vec<(i64, i64, String, String)> = sqlx::query_as(
        "SELECT d.webhook_id, d.order_id, d.event_type, s.status
         FROM deliveries d JOIN delivery_state s ON s.delivery_id = d.id JOIN events e USING (event_id) ORDER BY e.position, d.webhook_id",
    )
    .fetch_all(node.ledger.pool())
    .await
    .unwrap();
    let expected = [
        (changes, first, hears, "failed"),
        (stays, first, hears, "pending"),
        (stays, second, hears, "pending"),
        (changes, before, cancels, "failed"),
        (leaves, before, cancels, "failed"),
        (leaves, first, cancels, "failed"),
        (changes, second, cancels, "failed"),
        (changes, third, hears, "failed"),
        (stays, third, hears, "pending"),
        (stays, fourth, hears, "pending"),
    ];
    assert_eq!(made, expected.map(|(webhook, order, event, status)| (webhook, order, event.to_owned(), status.to_owned())));
    sound(&node).await;
    let rebuilt = rebuild(&node.options, Rebuild::All, |_| {}).await.unwrap();
    assert!(rebuilt.was_clean(), "{:#?}", rebuilt.differences);
}
