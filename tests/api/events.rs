//! `GET /api/v1/events`: the envelopes of webhooks, for clients that pull.

use std::time::{Duration, Instant};

use chrono::Utc;
use rewards_ledger::access::request_signature::{canonical_string, header, sign};
use rewards_ledger_client::webhook::{Verifier, WebhookError};
use serde_json::{Value, json, value::RawValue};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use webhook_client::receiver::ReceiverResponse;

use crate::support::node::{Client, Node, Setup, TestResponse};
use crate::support::shop::{DEADLINE, receiver, worker};
use crate::support::wait::until;

#[derive(serde::Deserialize)]
struct Reply {
    data: Page,
}

/// A page of events, each with its exact bytes.
#[derive(serde::Deserialize)]
struct Page {
    events: Vec<Box<RawValue>>,
    sequences: Vec<i64>,
    cursor: String,
    has_more: bool,
}

impl Page {
    fn types(&self) -> Vec<String> {
        self.fields("event_type")
    }

    /// Returns a field of each envelope.
    fn fields(&self, name: &str) -> Vec<String> {
        let event = |event: &RawValue| serde_json::from_str::<Value>(event.get()).unwrap();
        self.events.iter().map(|text| event(text)[name].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the id and the sequence of each event.
    fn sequenced(&self) -> Vec<(String, i64)> {
        assert_eq!(self.events.len(), self.sequences.len());
        self.fields("event_id").into_iter().zip(self.sequences.iter().copied()).collect()
    }

    fn texts(&self) -> Vec<&str> {
        self.events.iter().map(|event| event.get()).collect()
    }
}

async fn pull(node: &Node, client: &Client, query: &str) -> Page {
    let answer = node.client(client, "GET", &format!("/events{query}"), Value::Null).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    serde_json::from_str::<Reply>(&answer.text).unwrap().data
}

async fn order(node: &Node, setup: &Setup, quantity: i32) -> i64 {
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": quantity});
    node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap()
}

#[tokio::test]
async fn events_are_those_of_webhooks_in_log_order_with_the_same_bytes() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let other = node.account("Other").await;
    let first = order(&node, &setup, 1).await;
    node.fulfil(first).await;
    let before = pull(&node, &setup.client, "").await;
    assert_eq!(before.types(), ["order.created", "order.pending", "order.delivered"], "without any webhook");
    assert!(!before.has_more);

    let all = ["order.created", "order.pending", "order.delivered", "order.partially_delivered", "order.cancelled"];
    let hook = json!({"name": "a", "url": "https://example.com/hook", "events": all});
    let webhook = node.client(&setup.client, "POST", "/webhooks", hook).await.json();
    let second = order(&node, &setup, 5).await;
    node.fulfil(second).await;
    node.client(&setup.client, "POST", &format!("/orders/{second}/cancel"), Value::Null).await.data(200);
    // A test delivery is the webhook's, not the account's.
    node.client(&setup.client, "POST", &format!("/webhooks/{}/test", webhook["id"]), Value::Null).await.data(200);
    let folded = pull(&node, &setup.client, &format!("?after={}", before.cursor)).await;
    assert_eq!(folded.types(), ["order.created", "order.pending", "order.partially_delivered", "order.cancelled"]);

    node.project().await;
    let stored = pull(&node, &setup.client, &format!("?after={}", before.cursor)).await;
    assert_eq!(stored.texts(), folded.texts(), "the bytes are the same before and after the projection");
    let sent: Vec<String> = sqlx::query_scalar("SELECT payload FROM webhook_envelopes WHERE order_id = $1 ORDER BY position")
        .bind(second)
        .fetch_all(node.ledger.pool())
        .await
        .unwrap();
    assert_eq!(stored.texts(), sent);
    sqlx::query("UPDATE webhook_envelopes SET payload = NULL").execute(node.ledger.pool()).await.unwrap();
    assert_eq!(pull(&node, &setup.client, &format!("?after={}", before.cursor)).await.texts(), sent, "also after retention");
    assert!(pull(&node, &other, "").await.events.is_empty());
    a_signed_request_gets_a_signed_page(&node, &setup.client).await;
}

/// Verifies a page as a receiver verifies a webhook, with the secret that has signed the request.
async fn a_signed_request_gets_a_signed_page(node: &Node, client: &Client) {
    let signs = |answer: &TestResponse| ["x-timestamp", "x-signature"].map(|name| answer.headers.contains_key(name));
    let unsigned = node.client(client, "GET", "/events", Value::Null).await;
    assert_eq!(signs(&unsigned), [false; 2]);
    let path = format!("/credentials/{}", client.credential_id);
    let on = node.operator("PUT", &path, json!({"hmac_required": true})).await.data(200);
    let secret = on["signing_secret"].as_str().unwrap();
    let get_signed = async |secret: &str, query: &str| {
        let now = Utc::now().timestamp();
        let signature = header(now, &sign(secret, &canonical_string("GET", "/api/v1/events", Some(query), b"", now)));
        let headers = [("X-API-Key", &*client.key), ("X-API-Secret", &*client.secret), ("X-Signature", &*signature)];
        node.raw("GET", &format!("/api/v1/events?{query}"), &headers, b"").await
    };
    let get = async |query: &str| get_signed(secret, query).await;
    let page = get("limit=20").await;
    assert_eq!(page.data(200)["events"], unsigned.data(200)["events"]);
    let verifier = Verifier::new(secret);
    verifier.verify_bytes(&page.headers, page.text.as_bytes()).unwrap();
    let altered = page.text.replacen("order.created", "order.creates", 1);
    assert_ne!(altered, page.text);
    let refused = verifier.verify_bytes(&page.headers, altered.as_bytes());
    assert!(matches!(refused, Err(WebhookError::Signature)), "{refused:?}");
    let other = Verifier::new("another secret").verify_bytes(&page.headers, page.text.as_bytes());
    assert!(matches!(other, Err(WebhookError::Signature)), "{other:?}");
    let refused = get("limit=101").await;
    refused.refused(400, "E_VALIDATION_FAILURE");
    assert_eq!(signs(&refused), [false; 2]);
    // A signature that is not required gets one back, too.
    node.operator("PUT", &path, json!({"hmac_required": false})).await.data(200);
    let page = get("limit=20").await;
    verifier.verify_bytes(&page.headers, page.text.as_bytes()).unwrap();
    assert_eq!(signs(&node.client(client, "GET", "/events", Value::Null).await), [false; 2]);
    let forged = get_signed("another secret", "limit=20").await;
    assert_eq!((forged.status, signs(&forged)), (200, [false; 2]));
}

#[tokio::test]
async fn a_cursor_continues_where_the_page_ended_on_any_node() {
    let node = Node::start().await;
    let setup = node.setup().await;
    for _ in 0..3 {
        let id = order(&node, &setup, 1).await;
        node.fulfil(id).await;
    }
    let whole = pull(&node, &setup.client, "?limit=100").await;
    assert_eq!(whole.events.len(), 9);
    let beside = node.beside("orders=1000/60s,general=1000/60s".parse().unwrap()).await;
    let (mut found, mut cursor, mut is_more) = (vec![], String::new(), true);
    while is_more {
        let after = if cursor.is_empty() { String::new() } else { format!("&after={cursor}") };
        let page = pull(&beside, &setup.client, &format!("?limit=2{after}")).await;
        found.extend(page.texts().into_iter().map(str::to_owned));
        (cursor, is_more) = (page.cursor, page.has_more);
    }
    assert_eq!(found, whole.texts());
    assert!(pull(&node, &setup.client, &format!("?after={cursor}")).await.events.is_empty());

    let some = pull(&node, &setup.client, "?types=order.delivered").await;
    assert_eq!(some.types(), ["order.delivered"; 3]);
    let latest = pull(&node, &setup.client, "?after=latest").await;
    assert!(latest.events.is_empty() && !latest.has_more);
    order(&node, &setup, 1).await;
    assert_eq!(pull(&node, &setup.client, &format!("?after={}", latest.cursor)).await.types(), ["order.created"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sequences_are_positions_in_the_log_as_webhooks_carry_them() {
    let node = Node::start().await;
    let setup = node.setup().await;
    // No webhook receives the events of the first order.
    let first = order(&node, &setup, 1).await;
    node.fulfil(first).await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let hook = json!({"name": "a", "url": receiver.url(), "events": ["order.created", "order.pending", "order.delivered"]});
    node.client(&setup.client, "POST", "/webhooks", hook).await.json();
    let before = pull(&node, &setup.client, "").await;
    let second = order(&node, &setup, 1).await;
    node.fulfil(second).await;

    let found = pull(&node, &setup.client, "").await.sequenced();
    assert_eq!((before.events.len(), found.len()), (3, 6));
    let of_log: Vec<(String, i64)> =
        sqlx::query_as("SELECT event_id::text, position FROM events WHERE event_id::text = ANY($1) ORDER BY position")
            .bind(found.iter().map(|(id, _)| id).collect::<Vec<_>>())
            .fetch_all(node.ledger.pool())
            .await
            .unwrap();
    assert_eq!(found, of_log);
    assert_eq!(found[..3], before.sequenced());
    let rest = pull(&node, &setup.client, &format!("?after={}", before.cursor)).await;
    assert_eq!(found[3..], rest.sequenced());

    node.project().await;
    let worker = worker(&node.options, &receiver, DEADLINE);
    until("all events are delivered", async || {
        _ = worker.once().await.unwrap();
        arrived.len() == 3
    })
    .await;
    let mut delivered = vec![];
    while let Ok(received) = arrived.try_recv() {
        delivered.push((received.event_id().unwrap().to_owned(), received.sequence().unwrap()));
    }
    delivered.sort_by_key(|(_, sequence)| *sequence);
    assert_eq!(delivered, rest.sequenced());
    assert_eq!(pull(&node, &setup.client, "").await.sequenced(), found, "also once the envelopes are stored");
}

#[tokio::test]
async fn since_begins_at_a_time() {
    let node = Node::start().await;
    let setup = node.setup().await;
    for _ in 0..3 {
        let id = order(&node, &setup, 1).await;
        node.fulfil(id).await;
    }
    let all = pull(&node, &setup.client, "?limit=100").await;
    let times = all.fields("created_at");
    assert_eq!(times.len(), 9);
    for time in &times {
        let first = times.iter().position(|other| other == time).unwrap();
        let page = pull(&node, &setup.client, &format!("?limit=100&since={time}")).await;
        assert_eq!((page.texts(), &page.sequences[..]), (all.texts()[first..].to_vec(), &all.sequences[first..]), "{time}");
    }
    assert_eq!(pull(&node, &setup.client, "?limit=100&since=2000-01-01T01:00:00%2B01:00").await.texts(), all.texts());
    let first = pull(&node, &setup.client, &format!("?limit=1&since={}", times[3])).await;
    let next = pull(&node, &setup.client, &format!("?limit=100&after={}", first.cursor)).await;
    let begun = times.iter().position(|time| *time == times[3]).unwrap();
    assert_eq!([first.sequences, next.sequences].concat(), all.sequences[begun..]);

    // A time that the log has not reached stands for its end.
    let latest = pull(&node, &setup.client, "?since=2999-01-01T00:00:00Z").await;
    assert!(latest.events.is_empty() && latest.sequences.is_empty() && !latest.has_more);
    order(&node, &setup, 1).await;
    assert_eq!(pull(&node, &setup.client, &format!("?after={}", latest.cursor)).await.types(), ["order.created"]);
}

#[tokio::test]
async fn a_wrong_parameter_is_refused_and_a_cursor_belongs_to_one_account() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let other = node.account("Other").await;
    let cursor = pull(&node, &setup.client, "").await.cursor;
    for (client, query, name) in [
        (&other, format!("?after={cursor}"), "after"),
        (&setup.client, "?after=12".to_owned(), "after"),
        (&setup.client, format!("?after={}A", &cursor[..cursor.len() - 1]), "after"),
        (&setup.client, "?after=".to_owned(), "after"),
        (&setup.client, format!("?after={cursor}&since=2026-01-01T00:00:00Z"), "since"),
        (&setup.client, "?after=latest&since=2026-01-01T00:00:00Z".to_owned(), "since"),
        (&setup.client, "?since=yesterday".to_owned(), "since"),
        (&setup.client, "?since=0000-01-01T00:00:00Z".to_owned(), "since"),
        (&setup.client, "?types=order.unknown".to_owned(), "types"),
        (&setup.client, "?wait=31".to_owned(), "wait"),
        (&setup.client, "?limit=101".to_owned(), "limit"),
    ] {
        let answer = node.client(client, "GET", &format!("/events{query}"), Value::Null).await;
        if answer.status == 200 {
            assert!(query.ends_with('A') && cursor.ends_with('A'), "{query}");
            continue;
        }
        let error = answer.refused(400, "E_VALIDATION_FAILURE");
        assert!(error["messages"][name].is_array(), "{query}: {error}");
    }
}

#[tokio::test]
async fn a_request_waits_for_the_next_event_of_its_account() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let other = node.setup().await;
    let begun = Instant::now();
    assert!(pull(&node, &other.client, "?wait=1").await.events.is_empty());
    assert!(begun.elapsed() >= Duration::from_secs(1), "an empty list comes after the wait");

    let waiting = async {
        let page = pull(&node, &setup.client, "?wait=30").await;
        (page.types(), Instant::now())
    };
    let ordering = async {
        until("the request waits", async || node.feed.len() == 1).await;
        order(&node, &setup, 1).await;
        Instant::now()
    };
    let ((types, answered), ordered) = tokio::join!(waiting, ordering);
    assert_eq!(types, ["order.created"]);
    assert!(answered.saturating_duration_since(ordered) < Duration::from_secs(20), "the wait of 30 s ends early");

    // Another account's events, and other types, do not end the wait.
    let waiting = pull(&node, &setup.client, "?after=latest&wait=30&types=order.cancelled");
    let ordering = async {
        until("the request waits", async || node.feed.len() == 1).await;
        order(&node, &other, 1).await;
        let id = order(&node, &setup, 1).await;
        // A request that does not wait sees the new events, and the other one waits on.
        assert_eq!(pull(&node, &setup.client, "").await.types(), ["order.created"; 2]);
        assert_eq!(node.feed.len(), 1, "the request waits on");
        node.client(&setup.client, "POST", &format!("/orders/{id}/cancel"), Value::Null).await.data(200);
    };
    let (page, ()) = tokio::join!(waiting, ordering);
    assert_eq!(page.types(), ["order.cancelled"]);
}

#[tokio::test]
async fn a_closed_connection_frees_its_place_and_places_are_bounded() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let mut open = vec![];
    for n in 1..=10 {
        let mut stream = TcpStream::connect(node.url().trim_start_matches("http://")).await.unwrap();
        let head = format!(
            "GET /api/v1/events?wait=30 HTTP/1.1\r\nHost: test\r\nX-API-Key: {}\r\nX-API-Secret: {}\r\n\r\n",
            client.key, client.secret
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        open.push(stream);
        until("the request waits", async || node.feed.len() == n).await;
    }
    let refused = node.client(&client, "GET", "/events?wait=30", Value::Null).await;
    refused.refused(503, "E_UNAVAILABLE");
    assert_eq!(refused.header("retry-after"), "5");
    pull(&node, &client, "").await;
    drop(open);
    until("no request waits", async || node.feed.is_empty()).await;
}

#[tokio::test]
async fn a_node_that_stops_answers_the_requests_that_wait() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let waiting = tokio::time::timeout(DEADLINE, pull(&node, &client, "?wait=30"));
    let stopping = async {
        until("the request waits", async || node.feed.len() == 1).await;
        node.stopping.cancel();
    };
    let begun = Instant::now();
    let (page, ()) = tokio::join!(waiting, stopping);
    assert!(page.unwrap().events.is_empty());
    assert!(begun.elapsed() < Duration::from_secs(20));
}
