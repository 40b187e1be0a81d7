//! Pages and the feed of events.

use futures::{StreamExt, TryStreamExt};
use rewards_ledger_client::models::{ErrorCode, OrderStatus, WebhookEventType};
use rewards_ledger_client::{Credentials, ListWalletsQuery};
use serde_json::{Value, json};

use crate::server::{Answer, refuse, reply, serve};

fn wallets(page: u32, ids: &[i64]) -> Answer {
    let wallet = |id: &i64| json!({"id": id, "currency": "USD", "balance": "1.00", "updated_at": "2026-01-31T12:00:00.000Z"});
    let body = json!({"success": true, "data": {"wallets": ids.iter().map(wallet).collect::<Vec<_>>(), "later": {}}});
    reply(200, body.to_string()).with("x-page", page).with("x-total-pages", 2).with("x-total-count", 3)
}

fn events(cursor: &str, has_more: bool, ids: &[&str]) -> Answer {
    let event = |id: &&str| json!({"event_id": id, "event_type": "order.created", "created_at": "2026-01-31T12:00:00.000Z", "data": state()});
    let events: Vec<Value> = ids.iter().map(event).collect();
    let sequences: Vec<usize> = (1..=ids.len()).map(|number| number * 7).collect();
    reply(200, json!({"data": {"events": events, "sequences": sequences, "cursor": cursor, "has_more": has_more}}).to_string())
}

fn state() -> Value {
    json!({"id": 42, "reference_code": "ORD-42", "status": "PENDING", "sub_status": "", "product_name": "Card",
        "denomination": "25.00", "quantity": 1, "amount": "25.00", "delivered_quantity": 0, "delivered_on": null,
        "created_at": "2026-01-31T12:00:00.000Z"})
}

#[tokio::test]
async fn pages_are_read_as_they_are_needed() {
    let answers = [wallets(1, &[3, 2]), refuse(503, "E_UNAVAILABLE"), wallets(2, &[1])];
    let (client, log) = serve(Credentials::Anonymous, answers).await;
    let query = ListWalletsQuery { limit: Some(2), ..Default::default() };
    let mut items = Box::pin(client.list_wallets(&query).items());
    assert_eq!(items.next().await.unwrap().unwrap().id, 3);
    assert_eq!(items.next().await.unwrap().unwrap().id, 2);
    assert_eq!(log.all().len(), 1, "the second page is not needed yet");
    assert_eq!(items.next().await.unwrap().unwrap().id, 1);
    assert!(items.next().await.is_none());
    let targets: Vec<String> = log.all().into_iter().map(|request| request.target).collect();
    let second = "/api/v1/wallets?limit=2&page=2";
    assert_eq!(targets, ["/api/v1/wallets?limit=2", second, second]);
}

#[tokio::test]
async fn one_page_says_how_many_there_are() {
    let (client, _) = serve(Credentials::Anonymous, [wallets(1, &[3, 2])]).await;
    let page = client.list_wallets(&ListWalletsQuery::default()).await.unwrap();
    assert_eq!((page.items.len(), page.page, page.total_pages, page.total_count), (2, 1, 2, 3));
}

#[tokio::test]
async fn a_stream_of_items_ends_after_an_error() {
    let (client, _) = serve(Credentials::Anonymous, [refuse(403, "E_FORBIDDEN")]).await;
    let items: Vec<_> = client.list_wallets(&ListWalletsQuery::default()).items().collect().await;
    assert_eq!(items.len(), 1);
    assert_eq!(items[0].as_ref().unwrap_err().code(), Some(&ErrorCode::Forbidden));
}

#[tokio::test]
async fn the_feed_continues_from_its_cursor_and_waits() {
    let answers =
        [events("c1", true, &["e1", "e2"]), events("c2", false, &[]), events("c2", false, &[]), events("c3", false, &["e3"])];
    let (client, log) = serve(Credentials::Anonymous, answers).await;
    let types = [WebhookEventType::OrderCreated, WebhookEventType::OrderCancelled];
    let since = "2026-01-31T12:00:00Z".parse().unwrap();
    let feed = client.events(None).of_types(&types).since(since).stream();
    let found: Vec<_> = feed.take(3).try_collect().await.unwrap();
    let steps: Vec<_> = found.iter().map(|event| (event.envelope.event_id.as_str(), event.cursor.as_deref())).collect();
    assert_eq!(steps, [("e1", None), ("e2", Some("c1")), ("e3", Some("c3"))]);
    assert_eq!(found.iter().map(|event| event.sequence).collect::<Vec<_>>(), [Some(7), Some(14), Some(7)]);
    let order = found[0].envelope.order().unwrap();
    assert_eq!((order.id, order.status), (42, OrderStatus::Pending));

    let types = "types=order.created%2Corder.cancelled&limit=100";
    let waiting = format!("/api/v1/events?after=c2&wait=30&{types}");
    let first = format!("/api/v1/events?since=2026-01-31T12%3A00%3A00Z&{types}");
    let expected = [first, format!("/api/v1/events?after=c1&{types}"), waiting.clone(), waiting];
    assert_eq!(log.all().into_iter().map(|request| request.target).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn after_an_error_the_feed_requests_the_same_events_again() {
    let (client, log) = serve(Credentials::Anonymous, [refuse(403, "E_FORBIDDEN"), events("c1", false, &["e1"])]).await;
    let mut feed = client.events(Some("c0")).since("2026-01-31T12:00:00Z".parse().unwrap());
    assert_eq!(feed.next_page().await.unwrap_err().code(), Some(&ErrorCode::Forbidden));
    assert_eq!(feed.cursor(), Some("c0"));
    assert_eq!(feed.next_page().await.unwrap().events.len(), 1);
    assert_eq!(feed.cursor(), Some("c1"));
    assert!(log.all().iter().all(|request| request.target == "/api/v1/events?after=c0&limit=100"), "a cursor takes precedence");
}
