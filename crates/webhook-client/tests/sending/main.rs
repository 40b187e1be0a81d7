//! The sender against the receiver, over real loopback sockets.
#![allow(clippy::unwrap_used)]

#[path = "../support/misbehave.rs"]
mod misbehave;

mod connections;
mod names;
mod server;
mod spellings;
mod targets;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_rustls::TlsAcceptor;
use webhook_client::custom::CustomHeaders;
use webhook_client::receiver::{
    Certificate, MAX_BODY_BYTES, Received, Receiver, ReceiverError, ReceiverResponse, ReceiverSettings,
};
use webhook_client::sender::{CONNECTION_LIFETIME, Delivery, MAX_RESPONSE_BODY_BYTES, Outcome, Sender, SenderSettings};
use webhook_client::signature::VerifyError;

use misbehave::{Misbehaviour, misbehave};

const SECRET: &str = "whsec_0123456789";
const NOW: i64 = 1_700_000_000;
const BODY: &[u8] = br#"{"event_id":"evt_1","data":{}}"#;
const LONG: Duration = Duration::from_secs(60);
/// Deadline long enough for name resolution, a connection and a TLS handshake, even on a machine that pauses.
const SHORT: Duration = Duration::from_secs(12);

async fn receiver_with(
    certificate: Certificate,
    respond: impl Fn(&Received) -> ReceiverResponse + Send + Sync + 'static,
) -> (Receiver, UnboundedReceiver<Received>) {
    let settings = ReceiverSettings {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        service_name: "SERVICE".to_owned(),
        certificate,
        respond: Arc::new(respond),
    };
    Receiver::start(settings).await.unwrap()
}

async fn receiver(answer: ReceiverResponse) -> (Receiver, UnboundedReceiver<Received>) {
    receiver_with(Certificate::generate().unwrap(), move |_| answer.clone()).await
}

fn settings(ca_pem: &str, deadline: Duration, allowed: &[&str]) -> SenderSettings {
    SenderSettings {
        service_name: "SERVICE".to_owned(),
        deadline,
        ca_pem: Some(ca_pem.as_bytes().to_vec()),
        allowed_nets: allowed.iter().map(|net| net.parse().unwrap()).collect(),
        max_connections: 64,
        connection_lifetime: CONNECTION_LIFETIME,
    }
}

fn sender_with(ca_pem: &str, deadline: Duration, allowed: &[&str]) -> Sender {
    Sender::new(settings(ca_pem, deadline, allowed)).unwrap()
}

fn sender(receiver: &Receiver, deadline: Duration) -> Sender {
    sender_with(receiver.ca_pem(), deadline, &["127.0.0.0/8", "::1/128"])
}

fn delivery(url: &str) -> Delivery<'_> {
    Delivery {
        url,
        webhook_id: 42,
        event_id: "evt_1",
        event_type: "order.created",
        sequence: None,
        request_id: "req_1",
        secret: SECRET,
        timestamp: NOW,
        previous_secret: None,
        traceparent: None,
        custom_headers: CustomHeaders::none(),
        body: Bytes::from_static(BODY),
    }
}

async fn outcome_of(answer: ReceiverResponse, deadline: Duration) -> Outcome {
    let (receiver, _arrived) = receiver(answer).await;
    let sender = sender(&receiver, deadline);
    let outcome = sender.send(delivery(&receiver.url())).await;
    receiver.stop().await;
    outcome
}

async fn error_of(answer: ReceiverResponse, deadline: Duration) -> String {
    let outcome = outcome_of(answer, deadline).await;
    assert_eq!(outcome.response_status, None);
    assert!(!outcome.succeeded());
    outcome.error.unwrap()
}

async fn error_of_bytes(bytes: impl Into<Bytes>) -> String {
    error_of(misbehave(Misbehaviour::Raw(bytes.into())), LONG).await
}

#[tokio::test]
async fn a_delivery_arrives_as_the_specification_says() {
    let (receiver, mut arrived) = receiver(ReceiverResponse::StatusWithBody(201, "tak\0k".to_owned())).await;
    let url = format!("{}/hooks/a?key=1#part", receiver.url());
    let outcome = sender(&receiver, LONG).send(delivery(&url)).await;
    assert!(outcome.succeeded());
    assert_eq!(outcome.response_status, Some(201));
    assert_eq!(outcome.response_body.as_deref(), Some("takk"));
    assert_eq!(outcome.error, None);

    let received = arrived.recv().await.unwrap();
    assert_eq!((received.method.as_str(), received.path.as_str()), ("POST", "/hooks/a?key=1"));
    assert_eq!(received.body, BODY);
    let signature = webhook_client::signature::sign(SECRET, NOW, BODY);
    let host = format!("localhost:{}", receiver.address().port());
    let length = BODY.len().to_string();
    let expected = [
        ("content-type", "application/json"),
        ("user-agent", "SERVICE-Webhooks/1"),
        ("x-webhook-id", "42"),
        ("x-event-id", "evt_1"),
        ("x-event-type", "order.created"),
        ("x-timestamp", "1700000000"),
        ("x-signature", &signature),
        ("x-request-id", "req_1"),
        ("x-service-webhook-token", SECRET),
        // Headers that HTTP itself requires.
        ("host", &host),
        ("content-length", &length),
    ];
    let mut names: Vec<_> = received.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let mut wanted = expected.to_vec();
    names.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(names, wanted);

    assert_eq!(received.token(), Some(SECRET));
    assert_eq!(received.webhook_id(), Some("42"));
    assert_eq!(received.event_type(), Some("order.created"));
    assert_eq!(received.request_id(), Some("req_1"));
    assert_eq!(received.verify(SECRET, NOW), Ok(()));
    assert_eq!(received.verify("another", NOW), Err(VerifyError::Signature));
    assert_eq!(received.verify(SECRET, NOW + 301), Err(VerifyError::Expired));
    receiver.stop().await;
}

#[tokio::test]
async fn the_owners_headers_and_a_signature_of_the_replaced_secret_come_along() {
    let (receiver, mut arrived) = receiver(ReceiverResponse::Status(200)).await;
    let url = receiver.url();
    let headers = CustomHeaders::new([("Authorization", "Bearer t0ken"), ("X-Shop", "7")]).unwrap();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let previous_secret = Some("the old one");
    let (traceparent, sequence) = (Some(trace), Some(7));
    let delivery = Delivery { previous_secret, traceparent, sequence, custom_headers: &headers, ..delivery(&url) };
    assert!(sender(&receiver, LONG).send(delivery).await.succeeded());
    let received = arrived.recv().await.unwrap();
    let value = |name: &str| received.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str());
    assert_eq!((value("authorization"), value("x-shop")), (Some("Bearer t0ken"), Some("7")));
    let previous = webhook_client::signature::sign("the old one", NOW, BODY);
    assert_eq!((value("x-signature-previous"), value("traceparent")), (Some(&*previous), Some(trace)));
    assert_eq!(received.verify(SECRET, NOW), Ok(()));
    assert_eq!((received.token(), received.sequence()), (Some(SECRET), Some(7)));
    receiver.stop().await;
}

#[tokio::test]
async fn only_the_status_decides_the_outcome() {
    for (answer, status, error) in [
        (ReceiverResponse::Status(204), 204, None),
        (ReceiverResponse::Status(299), 299, None),
        (ReceiverResponse::Status(500), 500, Some("HTTP 500")),
        (ReceiverResponse::Status(304), 304, Some("HTTP 304")),
        (ReceiverResponse::Status(404), 404, Some("HTTP 404")),
        (ReceiverResponse::Redirect("/elsewhere".to_owned()), 302, Some("redirect 302 is not followed")),
        (ReceiverResponse::Status(308), 308, Some("redirect 308 is not followed")),
    ] {
        let outcome = outcome_of(answer, LONG).await;
        assert_eq!(outcome.response_status, Some(status));
        assert_eq!(outcome.error.as_deref(), error);
        assert_eq!(outcome.succeeded(), error.is_none());
    }
}

#[tokio::test]
async fn redirects_are_never_followed() {
    let (target, mut arrived) = receiver(ReceiverResponse::Status(200)).await;
    let outcome = outcome_of(ReceiverResponse::Redirect(target.url()), LONG).await;
    assert_eq!(outcome.response_status, Some(302));
    target.stop().await;
    assert!(arrived.recv().await.is_none());
}

#[tokio::test]
async fn the_deadline_ends_every_send_without_a_response() {
    let silences = [
        ReceiverResponse::Hang,
        ReceiverResponse::Delayed(10 * LONG, 200),
        misbehave(Misbehaviour::DripHeaders(Duration::from_millis(5))),
        misbehave(Misbehaviour::RawThenHang("HTTP/1.1 200 O".into())),
        misbehave(Misbehaviour::RawThenHang("HTTP/1.1 103 Early Hints\r\n\r\n".into())),
    ];
    let sends = silences.map(async |answer| {
        let shown = format!("{answer:?}");
        let error = tokio::time::timeout(LONG, error_of(answer, SHORT)).await;
        assert_eq!(error.as_deref(), Ok("no answer within 12 s"), "{shown}");
    });
    futures::future::join_all(sends).await;
}

#[tokio::test]
async fn the_body_does_not_change_the_outcome() {
    let drip = Duration::from_millis(20);
    let bodies = [
        (Misbehaviour::DripBody(200, drip), 200),
        (Misbehaviour::DripBody(500, drip), 500),
        (Misbehaviour::RawThenHang("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n.".into()), 200),
        (Misbehaviour::Raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n.".into()), 200),
        (Misbehaviour::Raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".into()), 200),
        (Misbehaviour::Raw("HTTP/1.1 200 OK\r\n\r\nuntil the end".into()), 200),
    ];
    let sends = bodies.map(async |(how, status)| {
        let shown = format!("{how:?}");
        let outcome = tokio::time::timeout(LONG, outcome_of(misbehave(how), SHORT)).await;
        let outcome = outcome.unwrap_or_else(|_| panic!("the deadline ends the body, too: {shown}"));
        assert_eq!(outcome.response_status, Some(status), "{shown}");
        assert_eq!(outcome.succeeded(), status == 200);
        assert!(u128::try_from(outcome.response_time_ms).unwrap() < SHORT.as_millis(), "until the status: {shown}");
    });
    futures::future::join_all(sends).await;
}

#[tokio::test]
async fn at_most_64_kib_of_a_body_are_kept() {
    let endless = outcome_of(misbehave(Misbehaviour::EndlessBody(200)), 10 * LONG);
    let outcome = tokio::time::timeout(5 * LONG, endless).await.expect("long before the deadline");
    assert!(outcome.succeeded());
    assert_eq!(outcome.response_body.map(|b| b.len()), Some(MAX_RESPONSE_BODY_BYTES));

    // A body that claims to be compressed is stored unchanged: the sender never decompresses.
    let bomb = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 99999999999\r\n\r\n\x1f";
    let outcome = outcome_of(misbehave(Misbehaviour::Raw(bomb.into())), LONG).await;
    assert_eq!(outcome.response_body.as_deref(), Some("\x1f"));
}

#[tokio::test]
async fn an_invalid_response_is_described() {
    let closed = "connection closed before an answer";
    for how in [
        Misbehaviour::Close,
        Misbehaviour::HalfClose,
        Misbehaviour::Raw("HTTP/1.1 200".into()),
        Misbehaviour::Raw("HTTP/1.1 200 OK\r\nX-A: b\r\n".into()),
    ] {
        assert_eq!(error_of(misbehave(how), LONG).await, closed);
    }
    for garbage in [
        "\0\x01\x02 nonsense \r\n\r\n",
        "SSH-2.0-OpenSSH_9.9\r\n",
        "HTTP/1.1 abc OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        "HTTP/2.0 200 OK\r\n\r\n",
    ] {
        assert_eq!(error_of_bytes(garbage).await, "not an HTTP answer", "{garbage:?}");
    }
    let large = "the headers of the answer are too large";
    assert_eq!(error_of(misbehave(Misbehaviour::HeaderFlood), LONG).await, large);
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X-A: b\r\n".repeat(101));
    assert_eq!(error_of_bytes(many).await, large);
    let long = format!("HTTP/1.1 200 OK\r\nX-A: {}\r\n\r\n", "b".repeat(2_000_000));
    assert_eq!(error_of_bytes(long).await, large);
}

#[tokio::test]
async fn header_injection_is_refused() {
    let (receiver, mut arrived) = receiver(ReceiverResponse::Status(200)).await;
    let url = receiver.url();
    let sender = sender(&receiver, LONG);
    let outcome = sender.send(Delivery { secret: "a\r\nX-Evil: 1", ..delivery(&url) }).await;
    assert_eq!(outcome.error.as_deref(), Some("the token cannot be sent in a header"));
    let outcome = sender.send(Delivery { event_id: "a\nb", ..delivery(&url) }).await;
    assert_eq!(outcome.error.as_deref(), Some("the event id cannot be sent in a header"));
    receiver.stop().await;
    assert!(arrived.recv().await.is_none());
}

#[test]
fn proxies_of_the_environment_are_ignored() {
    // This runs in a separate process, because changing the environment of this one would be unsafe.
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .arg("--exact")
        .arg("a_delivery_arrives_as_the_specification_says")
        .envs(["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"].map(|n| (n, "http://127.0.0.1:1")))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
