//! Receivers that misbehave in many ways, and what the client is shown about it.

use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use webhook_client::receiver::{Certificate, Receiver, ReceiverResponse, ReceiverSettings};
use webhook_client::sender::{MAX_RESPONSE_BODY_BYTES, SenderSettings};

use crate::support::misbehave::{Misbehaviour, misbehave};
use crate::support::node::Node;
use crate::support::shop::{DEADLINE, SHARD, Shop, receiver, sender, trusting, worker};

/// Deadline of the sends that last until it. Longer than the machine pauses.
const SHORT: Duration = Duration::from_secs(15);

/// Returns 200,000 zero bytes, compressed by gzip into 230 bytes.
fn bomb() -> Vec<u8> {
    let mut packed = hex::decode("1f8b08000000000002ffedc13101000000c2a04aeb9fce0cfe4001").unwrap();
    packed.resize(packed.len() + 194, 0);
    packed.extend(hex::decode("af01947d2336400d0300").unwrap());
    packed
}

const GIGABYTE: u64 = 1024 * 1024 * 1024;
/// More than the kernel buffers, at both ends, for a connection that is no longer read.
const SOCKET_BUFFERS: u64 = 64 * 1024 * 1024;

/// An answer, and the status and error of its attempt.
type Case = (ReceiverResponse, Option<i16>, Option<String>);

/// Returns the answers that last until the deadline of the send.
fn lasting() -> Vec<Case> {
    let drip = Duration::from_millis(20);
    let none = Some(format!("no answer within {} s", SHORT.as_secs()));
    vec![
        (ReceiverResponse::Hang, None, none.clone()),
        (misbehave(Misbehaviour::DripHeaders(drip)), None, none),
        // The status arrives in time, and it alone decides.
        (misbehave(Misbehaviour::DripBody(200, drip)), Some(200), None),
        (misbehave(Misbehaviour::DripBody(503, drip)), Some(503), Some("HTTP 503".to_owned())),
    ]
}

/// Returns the answers that end the send before its deadline.
fn ending() -> Vec<Case> {
    let raw = |text: &str| misbehave(Misbehaviour::Raw(text.to_owned().into()));
    let (closed, garbage) = ("connection closed before an answer", "not an HTTP answer");
    let large = "the headers of the answer are too large";
    let flood = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X-A: b\r\n".repeat(200));
    let cases: Vec<(ReceiverResponse, Option<i16>, Option<&str>)> = vec![
        (ReceiverResponse::Status(204), Some(204), None),
        (ReceiverResponse::Status(500), Some(500), Some("HTTP 500")),
        (ReceiverResponse::Status(404), Some(404), Some("HTTP 404")),
        (ReceiverResponse::Redirect("https://example.com/elsewhere".to_owned()), Some(302), Some("redirect 302 is not followed")),
        (misbehave(Misbehaviour::InformationalFlood), None, Some("too many informational answers (1xx)")),
        (misbehave(Misbehaviour::HeaderFlood), None, Some(large)),
        (raw(&flood), None, Some(large)),
        (misbehave(Misbehaviour::Close), None, Some(closed)),
        (misbehave(Misbehaviour::HalfClose), None, Some(closed)),
        (raw("HTTP/1.1 200 OK\r\nContent-"), None, Some(closed)),
        (raw("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), None, Some(garbage)),
        (raw("\0\0\x12\x04\0\0\0\0\0 settings of HTTP/2 \r\n\r\n"), None, Some(garbage)),
        (raw("220 mail.example ESMTP\r\n"), None, Some(garbage)),
        // The status alone decides, and only a part of the body is read.
        (misbehave(Misbehaviour::EndlessBody(200)), Some(200), None),
        (misbehave(Misbehaviour::LongBody(200, GIGABYTE, mpsc::unbounded_channel().0)), Some(200), None),
    ];
    cases.into_iter().map(|(answer, status, error)| (answer, status, error.map(str::to_owned))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_misbehaviour_is_recorded_with_an_understandable_outcome() {
    let (lasting, ending) = (lasting(), ending());
    let cases = [&lasting[..], &ending].concat();
    let shop = Shop::open().await;
    let answers: Vec<ReceiverResponse> = cases.iter().map(|(answer, ..)| answer.clone()).collect();
    let (receiver, _arrived) = receiver(move |r| answers[r.path[1..].parse::<usize>().unwrap()].clone()).await;
    for n in 0..cases.len() {
        // The limit is twenty webhooks per account.
        shop.webhook(&format!("{}/{n}", receiver.url())).await;
    }
    shop.order(1).await;
    shop.project().await;
    let (patient, hasty) = (shop.worker(&receiver, DEADLINE), shop.worker(&receiver, SHORT));
    let claimed = patient.claim_once(SHARD, patient.settings.max_in_flight).await.unwrap();
    assert_eq!(claimed.len(), cases.len());
    let sends = claimed.into_iter().map(|one| {
        let lasts = one.webhook_id.0 <= lasting.len() as i64;
        if lasts { hasty.send(one) } else { patient.send(one) }
    });
    let ended: Vec<_> = futures::future::join_all(sends).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(patient.record(SHARD, &ended).await.unwrap(), cases.len() as u64);
    let at_once = "SELECT max(started_at) <= min(finished_at) FILTER (WHERE error LIKE 'no answer%') FROM delivery_attempts";
    let at_once: bool = sqlx::query_scalar(at_once).fetch_one(shop.pool()).await.unwrap();
    assert!(at_once, "all of them together take only one deadline");

    for (n, (answer, status, error)) in cases.iter().enumerate() {
        let shown = format!("{answer:.60?}");
        let shown = shown.chars().take(80).collect::<String>();
        let attempt: (Option<i16>, Option<String>, bool) = sqlx::query_as(
            "SELECT a.response_status, a.error, a.finished_at IS NOT NULL FROM delivery_attempts a JOIN delivery_state s USING (delivery_id)
             WHERE s.webhook_id = $1",
        )
        .bind(n as i64 + 1)
        .fetch_one(shop.pool())
        .await
        .unwrap();
        assert_eq!(attempt, (*status, error.clone(), true), "{shown}");
        let state: (String, i16, Option<i32>) =
            sqlx::query_as("SELECT status, attempt_count, octet_length(response_body) FROM delivery_state WHERE webhook_id = $1")
                .bind(n as i64 + 1)
                .fetch_one(shop.pool())
                .await
                .unwrap();
        let expected = if error.is_none() { "delivered" } else { "pending" };
        assert_eq!((state.0.as_str(), state.1), (expected, 1), "{shown}");
        assert!(state.2.is_none_or(|bytes| bytes <= MAX_RESPONSE_BODY_BYTES as i32), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_reads_no_more_of_a_gigabyte_than_it_stores() {
    let shop = Shop::open().await;
    let (written, mut counting) = mpsc::unbounded_channel();
    // The answer is moved out, so that the channel closes with the only answer.
    let answer = Mutex::new(Some(misbehave(Misbehaviour::LongBody(200, GIGABYTE, written))));
    let (receiver, _arrived) = receiver(move |_| answer.lock().unwrap().take().unwrap()).await;
    shop.webhook(&receiver.url()).await;
    shop.order(1).await;
    shop.project().await;
    // The deadline would allow reading more.
    assert_eq!(shop.worker(&receiver, DEADLINE).once().await.unwrap().delivered, 1);
    let count = async {
        let mut sum = 0;
        while let Some(part) = counting.recv().await {
            sum += part;
        }
        sum
    };
    let sum = tokio::time::timeout(DEADLINE, count).await.expect("the connection is closed, so the receiver cannot continue");
    let kept = MAX_RESPONSE_BODY_BYTES as u64;
    assert!((kept..kept + SOCKET_BUFFERS).contains(&sum), "{sum} bytes were read");
    let stored: i32 =
        sqlx::query_scalar("SELECT octet_length(response_body) FROM delivery_state").fetch_one(shop.pool()).await.unwrap();
    assert_eq!(stored, MAX_RESPONSE_BODY_BYTES as i32);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_body_is_not_decompressed() {
    let shop = Shop::open().await;
    let packed = bomb();
    let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", packed.len()).into_bytes();
    bytes.extend_from_slice(&packed);
    let (receiver, _arrived) = receiver(move |_| misbehave(Misbehaviour::Raw(bytes.clone().into()))).await;
    shop.webhook(&receiver.url()).await;
    shop.order(1).await;
    shop.project().await;
    assert_eq!(shop.worker(&receiver, DEADLINE).once().await.unwrap().delivered, 1);
    let kept: i32 =
        sqlx::query_scalar("SELECT octet_length(response_body) FROM delivery_state").fetch_one(shop.pool()).await.unwrap();
    assert!(kept > 0 && kept < 1_000, "{kept}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_certificate_fails_the_attempt_before_anything_is_sent() {
    let shop = Shop::open().await;
    let cases = [
        (Certificate::generate_for(&["other.example"], 2020, 2050).unwrap(), true, "TLS: certificate is not valid for this name"),
        (Certificate::generate_for(&["localhost"], 2019, 2020).unwrap(), true, "TLS: certificate has expired"),
        (Certificate::generate_for(&["localhost"], 2090, 2095).unwrap(), true, "TLS: certificate is not valid yet"),
        (Certificate::generate().unwrap(), false, "TLS: unknown issuer"),
    ];
    let (mut receivers, mut trusted) = (vec![], String::new());
    for (certificate, is_trusted, _) in &cases {
        let settings = ReceiverSettings {
            listen: ([127, 0, 0, 1], 0).into(),
            service_name: "SERVICE".to_owned(),
            certificate: certificate.clone(),
            respond: std::sync::Arc::new(|_| ReceiverResponse::Status(200)),
        };
        let (receiver, arrived) = Receiver::start(settings).await.unwrap();
        if *is_trusted {
            trusted.push_str(receiver.ca_pem());
        }
        shop.webhook(&receiver.url()).await;
        receivers.push((receiver, arrived));
    }
    shop.order(1).await;
    shop.project().await;
    let mut worker = shop.worker(&receivers[0].0, DEADLINE);
    worker.sender = sender(trusting(&trusted, DEADLINE));
    assert_eq!(worker.once().await.unwrap().failed, cases.len());
    let errors: Vec<String> = sqlx::query_scalar(
        "SELECT a.error FROM delivery_attempts a JOIN delivery_state s USING (delivery_id) ORDER BY s.webhook_id",
    )
    .fetch_all(shop.pool())
    .await
    .unwrap();
    assert_eq!(errors, cases.map(|(_, _, error)| error));
    for (receiver, mut arrived) in receivers {
        receiver.stop().await;
        assert!(arrived.recv().await.is_none(), "no request reached it");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_test_first_attempt_or_retry_connects_to_a_blocked_address() {
    let node = Node::start().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let setup = node.setup().await;
    let client = &setup.client;
    let url = format!("https://127.0.0.1:{}", receiver.address().port());
    let hook = json!({"name": "inside", "url": url, "events": ["order.created"]});
    let id = node.client(client, "POST", "/webhooks", hook).await.json()["id"].as_i64().unwrap();
    node.client(client, "POST", &format!("/webhooks/{id}/test"), Value::Null).await.data(200);
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    node.client(client, "POST", "/orders", order).await.data(201);
    node.project().await;
    let mut worker = worker(&node.options, &receiver, DEADLINE);
    worker.sender = sender(SenderSettings { allowed_nets: vec![], ..trusting(receiver.ca_pem(), DEADLINE) });
    for _ in 0..2 {
        assert_eq!(worker.once().await.unwrap().failed, 2);
        sqlx::raw_sql("UPDATE delivery_state SET next_attempt_at = now()").execute(node.ledger.pool()).await.unwrap();
    }
    let list = node.client(client, "GET", "/webhooks/deliveries", Value::Null).await.data(200);
    let deliveries = list["deliveries"].as_array().unwrap();
    assert_eq!(deliveries.len(), 2, "the deliveries of the test and of the order");
    for delivery in deliveries {
        let path = format!("/webhooks/deliveries/{}", delivery["id"]);
        let detail = node.client(client, "GET", &path, Value::Null).await.data(200);
        let told = detail["attempts"].as_array().unwrap().iter();
        let told: Vec<_> = told.map(|a| (&a["attempt"], &a["response_status"], &a["error"])).collect();
        // The client must not learn which address a name resolves to.
        let error = json!("the host's address is not allowed");
        assert_eq!(told, [(&json!(1), &Value::Null, &error), (&json!(2), &Value::Null, &error)]);
    }
    let recorded: Vec<String> =
        sqlx::query_scalar("SELECT DISTINCT error FROM delivery_attempts").fetch_all(node.ledger.pool()).await.unwrap();
    assert_eq!(recorded, ["address 127.0.0.1 is not allowed"], "the attempt records the address for operators");
    receiver.stop().await;
    assert!(arrived.recv().await.is_none(), "nothing arrived");
}
