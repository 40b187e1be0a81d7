//! `listen --forward-to`: events of a service reach a plain HTTP target, signed, in order, and none is skipped.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::process::{Child, ChildStdout};
use webhook_client::receiver::{Certificate, Received, Receiver, ReceiverResponse, ReceiverSettings};
use webhook_client::signature;

use super::{directory, err, out, program, run};
use crate::support::postgres;
use crate::support::program::{Client, DEADLINE, OPERATOR_TOKEN, Program};

/// A running `listen --forward-to`.
struct Forwarding {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Forwarding {
    fn start(directory: &Path, node: &Program, client: &Client, target: &str, further: &[&str]) -> Forwarding {
        let mut command = program(directory);
        command.args(["listen", "--json", "--url", &node.url(), "--forward-to", target]).args(further);
        command.env("LEDGER_API_KEY", &client.key).env("LEDGER_API_SECRET", &client.secret);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Forwarding { process, lines }
    }

    async fn line(&mut self) -> Value {
        let line = tokio::time::timeout(DEADLINE, self.lines.next_line()).await.expect("in time").unwrap().expect("a line");
        serde_json::from_str(&line).unwrap()
    }

    /// Returns the next attempt that the target accepted.
    async fn forwarded(&mut self) -> Value {
        loop {
            let line = self.line().await;
            if line["is_forwarded"] == true {
                return line;
            }
        }
    }
}

/// A request as the target received it.
struct Arrived {
    head: String,
    body: Vec<u8>,
}

impl Arrived {
    fn header(&self, name: &str) -> &str {
        let mut headers = self.head.lines().filter_map(|line| line.split_once(": "));
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).unwrap_or_default()
    }

    /// Returns the headers, as a web framework hands them to a receiver.
    fn headers(&self) -> HeaderMap {
        let headers = self.head.lines().filter_map(|line| line.split_once(": "));
        headers.map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap())).collect()
    }
}

/// Accepts a connection, and reads one request.
async fn accept(target: &TcpListener) -> (TcpStream, Arrived) {
    let (mut stream, _) = tokio::time::timeout(DEADLINE, target.accept()).await.expect("in time").unwrap();
    let mut bytes = Vec::new();
    loop {
        assert!(stream.read_buf(&mut bytes).await.unwrap() > 0, "the request broke off");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let arrived = Arrived { head: head.to_owned(), body: body.as_bytes().to_vec() };
        // A request to pull has no body.
        if arrived.header("content-length").parse().unwrap_or(0) == arrived.body.len() {
            return (stream, arrived);
        }
    }
}

/// Takes one request, and answers it with a status.
async fn take(target: &TcpListener, status: u16) -> Arrived {
    let (mut stream, arrived) = accept(target).await;
    let answer = format!("HTTP/1.1 {status} Status\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await.unwrap();
    arrived
}

/// Passes one request on to the node as a proxy, and its page back with one text replaced by another of the same length.
async fn pass_on(proxy: &TcpListener, node: &Program, (from, to): (&str, &str)) {
    let (mut stream, arrived) = accept(proxy).await;
    let target = arrived.head.split(' ').nth(1).unwrap();
    let request = reqwest::Client::new().get(format!("{}{target}", node.url())).headers(arrived.headers());
    let page = request.send().await.unwrap();
    assert_eq!(page.status(), 200);
    let header = |name: &str| page.headers()[name].to_str().unwrap().to_owned();
    let (timestamp, signature, body) = (header("x-timestamp"), header("x-signature"), page.text().await.unwrap());
    let signed = format!("x-timestamp: {timestamp}\r\nx-signature: {signature}");
    let head = format!("HTTP/1.1 200 OK\r\n{signed}\r\nContent-Length: {}\r\nConnection: close", body.len());
    stream.write_all(format!("{head}\r\n\r\n{body}").replacen(from, to, 1).as_bytes()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_forwarded_signed_and_in_order_although_the_target_was_down() {
    let (directory, database) = (directory(), postgres::database().await);
    // The node sends no webhooks at all.
    let node = Program::start(&database.url, &["--roles", "api,projector,fulfilment"]).await;
    let client = node.client("100.00").await;
    let product = node.product(2).await;
    let order = json!({"product_id": product, "denomination": 10, "quantity": 1});
    let place = async || node.call(&client, "POST", "/orders", None, &order).await.unwrap();
    // Bound, so that nobody else takes the port, but not listening yet.
    let down = TcpSocket::new_v4().unwrap();
    down.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = down.local_addr().unwrap();
    let url = format!("http://{address}/hook?a=1");

    let mut forwarding = Forwarding::start(directory.path(), &node, &client, &url, &[]);
    let started = forwarding.line().await;
    let secret = started["secret"].as_str().unwrap().to_owned();
    // The first run begins in the present, which it has stored by now or learns before the order is placed.
    let folder = directory.path().join(".config/rewards-ledger/forwarding");
    crate::support::wait::until("the present is stored", async || folder.read_dir().is_ok_and(|files| files.count() == 1)).await;
    place().await;
    let first = forwarding.line().await;
    assert_eq!((&first["event_type"], &first["attempt"], &first["status"]), (&json!("order.created"), &json!(1), &Value::Null));
    assert_eq!(first["error"], "cannot connect");

    let target = down.listen(16).unwrap();
    let refused = take(&target, 500).await;
    let arrived = take(&target, 204).await;
    assert_eq!((&refused.body, refused.header("x-event-id")), (&arrived.body, arrived.header("x-event-id")), "sent again");
    assert!(arrived.head.starts_with("POST /hook?a=1 HTTP/1.1"), "{}", arrived.head);
    let (timestamp, now) = (arrived.header("x-timestamp"), chrono::Utc::now().timestamp());
    assert_eq!(signature::verify(&secret, timestamp, &arrived.body, arrived.header("x-signature"), now), Ok(()));
    assert_eq!((arrived.header("x-service-webhook-token"), arrived.header("x-webhook-id")), (secret.as_str(), "0"));
    assert_eq!(arrived.header("x-event-type"), "order.created");
    let pulled = node.call(&client, "GET", "/events?limit=1", None, &Value::Null).await.unwrap().1;
    assert_eq!(serde_json::from_slice::<Value>(&arrived.body).unwrap(), pulled["events"][0]);
    assert_eq!(arrived.header("x-event-sequence"), pulled["sequences"][0].to_string());
    for expected in ["order.pending", "order.delivered"] {
        assert_eq!(take(&target, 200).await.header("x-event-type"), expected);
    }
    while forwarding.forwarded().await["event_type"] != "order.delivered" {}
    forwarding.process.kill().await.unwrap();

    // Events of the time in between are forwarded by the next run.
    place().await;
    let mut next = Forwarding::start(directory.path(), &node, &client, &url, &["--count", "3", "--secret", "mine"]);
    let mut types = vec![];
    for _ in 0..3 {
        let arrived = take(&target, 200).await;
        assert_eq!(arrived.header("x-service-webhook-token"), "mine");
        let verified = rewards_ledger_client::webhook::verify("mine", &arrived.headers(), &arrived.body).unwrap();
        assert_eq!(verified.event_id.to_string(), arrived.header("x-event-id"));
        assert!(rewards_ledger_client::webhook::verify(&secret, &arrived.headers(), &arrived.body).is_err());
        types.push(arrived.header("x-event-type").to_owned());
    }
    assert_eq!(types, ["order.created", "order.pending", "order.delivered"]);
    let ended = tokio::time::timeout(DEADLINE, next.process.wait()).await.expect("in time").unwrap();
    assert!(ended.success());
    assert_eq!(next.line().await["secret"], Value::Null, "a given secret is not printed");

    let since = ["--since", "2000-01-01T00:00:00Z", "--types", "order.delivered", "--count", "1"];
    let again = Forwarding::start(directory.path(), &node, &client, &url, &since);
    assert_eq!(take(&target, 200).await.body, take_body(&node, &client).await);
    drop(again);
    with_a_signing_secret_only_genuine_pages_are_forwarded(directory.path(), &node, &client, &target).await;
}

/// Pulls through a proxy that changes a page, then one that removes the signature, then an honest one. The client must sign its
/// requests from then on.
async fn with_a_signing_secret_only_genuine_pages_are_forwarded(
    directory: &Path,
    node: &Program,
    client: &Client,
    target: &TcpListener,
) {
    let expected = take_body(node, client).await;
    let credential = format!("{}/admin/v1/credentials/{}", node.url(), client.credential_id);
    let request = reqwest::Client::new().put(credential).bearer_auth(OPERATOR_TOKEN).header("Content-Type", "application/json");
    let answer = request.body(r#"{"hmac_required":true}"#).send().await.unwrap().text().await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let secret = answer["data"]["signing_secret"].as_str().unwrap();

    let proxy = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let service = format!("http://{}", proxy.local_addr().unwrap());
    let url = format!("http://{}/hook", target.local_addr().unwrap());
    let forward = |further: &[&str]| {
        let mut command = program(directory);
        command.args(["listen", "--json", "--url", &service, "--forward-to", &url, "--types", "order.delivered"]).args(further);
        command.env("LEDGER_API_KEY", &client.key).env("LEDGER_API_SECRET", &client.secret);
        command.env("LEDGER_SIGNING_SECRET", secret);
        command
    };
    let (since, next): (&[&str], &[&str]) = (&["--since", "2000-01-01T00:00:00Z"], &[]);
    for (further, replaced, problem) in [
        (since, ("order.delivered", "order.cancelled"), "the signature does not match"),
        (next, ("x-signature", "x-forgotten"), "the events have no signature"),
    ] {
        let mut command = forward(further);
        let (ended, ()) = tokio::join!(run(&mut command), pass_on(&proxy, node, replaced));
        assert_eq!(ended.status.code(), Some(1), "{}", err(&ended));
        assert!(err(&ended).contains(problem), "{}", err(&ended));
        assert!(!out(&ended).contains("is_forwarded"), "{}", out(&ended));
    }
    // The next run begins at the first event of the time: nothing was skipped.
    let mut command = forward(&["--count", "1"]);
    let (ended, (), arrived) = tokio::join!(run(&mut command), pass_on(&proxy, node, ("", "")), take(target, 200));
    assert!(ended.status.success(), "{}", err(&ended));
    assert_eq!(arrived.body, expected);
}

/// Pulls this many events. Returns their times, ids and sequences.
async fn pulled(node: &Program, client: &Client, count: usize) -> Vec<(DateTime<Utc>, String, String)> {
    let (mut found, mut after) = (vec![], String::new());
    while found.len() < count {
        let path = format!("/events?limit=100&wait=30{after}");
        let (status, page) = node.call(client, "GET", &path, None, &Value::Null).await.unwrap();
        assert_eq!(status, 200, "{page}");
        let (events, sequences) = (page["events"].as_array().unwrap(), page["sequences"].as_array().unwrap());
        for (event, sequence) in events.iter().zip(sequences) {
            let text = |name: &str| event[name].as_str().unwrap().to_owned();
            found.push((text("created_at").parse().unwrap(), text("event_id"), sequence.to_string()));
        }
        after = format!("&after={}", page["cursor"].as_str().unwrap());
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn since_forwards_nothing_older_and_the_next_run_goes_on_within_a_page() {
    let (directory, database) = (directory(), postgres::database().await);
    let node = Program::start(&database.url, &["--roles", "api,projector,fulfilment"]).await;
    let client = node.client("1000.00").await;
    let order = json!({"product_id": node.product(36).await, "denomination": 10, "quantity": 1});
    for _ in 0..36 {
        let (status, answer) = node.call(&client, "POST", "/orders", None, &order).await.unwrap();
        assert_eq!(status, 201, "{answer}");
    }
    let all = pulled(&node, &client, 3 * 36).await;
    // The rest is longer than a page of 100 events.
    let since = all[7].0;
    let expected: Vec<_> = all.into_iter().filter(|(time, ..)| *time >= since).map(|(_, id, sequence)| (id, sequence)).collect();
    assert!((101..108).contains(&expected.len()), "{}", expected.len());

    let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}/hook", target.local_addr().unwrap());
    let (since, rest) = (since.to_rfc3339(), (expected.len() - 2).to_string());
    let runs: [&[&str]; 2] = [&["--since", &since, "--count", "2"], &["--count", &rest]];
    let mut forwarded = vec![];
    for (further, count) in runs.into_iter().zip([2, expected.len() - 2]) {
        let mut forwarding = Forwarding::start(directory.path(), &node, &client, &url, further);
        for _ in 0..count {
            let arrived = take(&target, 200).await;
            assert_eq!(forwarding.forwarded().await["event_id"], arrived.header("x-event-id"));
            forwarded.push((arrived.header("x-event-id").to_owned(), arrived.header("x-event-sequence").to_owned()));
        }
        let ended = tokio::time::timeout(DEADLINE, forwarding.process.wait()).await.expect("in time").unwrap();
        assert!(ended.success());
    }
    assert_eq!(forwarded, expected);
}

/// Returns the bytes of the first delivered order's event, as the service keeps them.
async fn take_body(node: &Program, client: &Client) -> Vec<u8> {
    let request = reqwest::Client::new().get(format!("{}/api/v1/events?types=order.delivered&limit=1", node.url()));
    let text = request.header("X-API-Key", &client.key).header("X-API-Secret", &client.secret).send().await.unwrap();
    let text = text.text().await.unwrap();
    let (_, events) = text.split_once("\"events\":[").unwrap();
    let (event, _) = events.split_once("],\"sequences\"").unwrap();
    event.as_bytes().to_vec()
}

/// Starts an HTTPS server with a certificate for this name, which answers every request with a page of one event.
async fn with_certificate_for(name: &str) -> Receiver {
    let event = json!({"event_id": "a", "event_type": "order.created", "created_at": "2026-01-31T12:00:00.000Z"});
    let page = json!({"data": {"events": [event], "sequences": [1], "cursor": "c", "has_more": false}}).to_string();
    let settings = ReceiverSettings {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        service_name: "SERVICE".to_owned(),
        certificate: Certificate::generate_for(&[name], 2_020, 2_040).unwrap(),
        respond: Arc::new(move |_: &Received| ReceiverResponse::StatusWithBody(200, page.clone())),
    };
    Receiver::start(settings).await.unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_not_trusted_or_has_another_name_ends_the_forwarding() {
    let directory = directory();
    let (service, stranger) = (with_certificate_for("localhost").await, with_certificate_for("localhost").await);
    let elsewhere = with_certificate_for("elsewhere.example").await;
    let trusted = directory.path().join("trusted.pem");
    std::fs::write(&trusted, format!("{}{}", service.ca_pem(), elsewhere.ca_pem())).unwrap();
    let (of_service, of_stranger, of_elsewhere) = (service.url(), stranger.url(), elsewhere.url());
    let target = "http://127.0.0.1:9";
    for (url, target, expected) in [
        (&*of_stranger, target, ["the service cannot be reached", "certificate is not trusted"]),
        (&*of_elsewhere, target, ["the service cannot be reached", "certificate is for another name"]),
        (&*of_service, &*of_stranger, [&*of_stranger, "certificate is not trusted"]),
    ] {
        let mut command = program(directory.path());
        command.args(["listen", "--url", url, "--forward-to", target, "--since", "2026-01-01T00:00:00Z"]);
        command.env("LEDGER_API_KEY", "key").env("LEDGER_API_SECRET", "secret").env("SSL_CERT_FILE", &trusted);
        let ended = run(&mut command).await;
        let told = err(&ended);
        assert_eq!(ended.status.code(), Some(1), "{told}");
        assert!(expected.iter().all(|text| told.contains(text)), "{expected:?}: {told}");
    }
}
