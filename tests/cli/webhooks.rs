//! `call` and `listen`, as a client developer uses them.

use std::process::Stdio;

use rewards_ledger::access::request_signature;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

use super::{directory, err, out, program, run};
use crate::support::postgres;
use crate::support::program::{DEADLINE, Program};

/// A running `listen` on a free port, and its output.
struct Listening {
    _process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Listening {
    fn start(directory: &std::path::Path, secret: Option<&str>) -> Listening {
        let mut command = program(directory);
        command.args(["listen", "--listen-webhooks", "127.0.0.1:0", "--json"]);
        if let Some(secret) = secret {
            command.env("LEDGER_WEBHOOK_SECRET", secret);
        }
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Listening { _process: process, lines }
    }

    async fn line(&mut self) -> Value {
        let line = tokio::time::timeout(DEADLINE, self.lines.next_line()).await.expect("in time").unwrap().expect("a line");
        serde_json::from_str(&line).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_reaches_listen_and_is_verified_there() {
    let (directory, database) = (directory(), postgres::database().await);
    // First without a secret: `listen` prints which certificate to trust, and keeps that certificate.
    let first = Listening::start(directory.path(), None).line().await;
    assert_eq!(first["is_verifying"], false);
    let ca = first["ca_file"].as_str().unwrap();
    let arguments = ["--webhook-ca-file", ca, "--webhook-allow-nets", "127.0.0.0/8,::1/128", "--retry-base", "1s"];
    let node = Program::start(&database.url, &arguments).await;
    let client = node.client("100.00").await;
    let product = node.product(1).await;
    let url = node.url();
    let call = async |method: &str, path: &str, body: Value| {
        let mut command = program(directory.path());
        command.args(["call", method, path, &body.to_string(), "--json", "--url", &url]);
        command.env("LEDGER_API_KEY", &client.key).env("LEDGER_API_SECRET", &client.secret);
        let called = run(&mut command).await;
        assert!(called.status.success(), "{}{}", out(&called), err(&called));
        serde_json::from_str::<Value>(&out(&called)).unwrap()["body"].take()
    };
    let hook = json!({"name": "mine", "url": "https://localhost:1/", "events": ["order.created", "order.delivered"]});
    let hook = call("POST", "/api/v1/webhooks", hook).await;
    let mut listening = Listening::start(directory.path(), hook["token"].as_str());
    let started = listening.line().await;
    assert_eq!((&started["ca_file"], &started["is_verifying"]), (&first["ca_file"], &json!(true)));
    call("PUT", &format!("/api/v1/webhooks/{}", hook["id"]), json!({"url": started["url"]})).await;

    let order = call("POST", "/api/v1/orders", json!({"product_id": product, "denomination": 10, "quantity": 1})).await;
    let mut heard = [listening.line().await, listening.line().await];
    heard.sort_by_key(|line| line["event_type"].as_str().map(str::to_owned));
    for (line, event_type) in heard.iter().zip(["order.created", "order.delivered"]) {
        assert_eq!((&line["event_type"], &line["signature"]), (&json!(event_type), &json!("verified")), "{line}");
        assert_eq!(line["body"]["data"]["id"], order["data"]["id"], "{line}");
        assert_eq!(line["webhook_id"], hook["id"].to_string(), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn call_signs_what_it_sends() {
    let directory = directory();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut command = program(directory.path());
    command.args(["call", "post", "/api/v1/orders/?b=2&a=1", r#"{"quantity": 1}"#, "--url", &url]);
    command.args(["--api-key", "key", "--api-secret", "secret", "--signing-secret", "signing"]);
    command.args(["--idempotency-key", "basket-9"]);
    let calling = tokio::spawn(async move { run(&mut command).await });
    let (mut stream, _) = tokio::time::timeout(DEADLINE, listener.accept()).await.expect("in time").unwrap();
    let mut request = Vec::new();
    while !request.ends_with(br#"{"quantity": 1}"#) {
        assert!(stream.read_buf(&mut request).await.unwrap() > 0, "{}", String::from_utf8_lossy(&request));
    }
    stream.write_all(b"HTTP/1.1 418 I'm a teapot\r\nContent-Length: 6\r\n\r\nTeapot").await.unwrap();
    let called = calling.await.unwrap();
    assert_eq!((called.status.code(), out(&called)), (Some(1), "Teapot\n".to_owned()), "the body alone");
    assert_eq!(err(&called), "error: the service answered 418 I'm a teapot\n");

    let request = String::from_utf8(request).unwrap();
    let header = |name: &str| {
        let mut headers = request.lines().filter_map(|line| line.split_once(": "));
        headers.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value).unwrap_or_default()
    };
    assert!(request.starts_with("POST /api/v1/orders/?b=2&a=1 HTTP/1.1\r\n"), "{request}");
    assert_eq!((header("X-API-Key"), header("X-API-Secret"), header("Idempotency-Key")), ("key", "secret", "basket-9"));
    let timestamp: i64 = header("X-Signature").strip_prefix("t=").unwrap().split_once(',').unwrap().0.parse().unwrap();
    let canonical =
        request_signature::canonical_string("POST", "/api/v1/orders", Some("a=1&b=2"), br#"{"quantity": 1}"#, timestamp);
    assert_eq!(header("X-Signature"), request_signature::header(timestamp, &request_signature::sign("signing", &canonical)));
}
