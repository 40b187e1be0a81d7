//! Requests that are refused before their body is read: the response arrives, and the connection can be used again.

use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;

use super::wire::Wire;
use crate::support::node::{AMPLE_LIMITS, Node};
use crate::support::program::run;

const KIB: usize = 1024;

fn post(path: &str, length: usize, more: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{more}Content-Length: {length}\r\n\r\n")
}

/// Reads the response to a refused request, then sends another request and reads its response. The node may close the
/// connection after the refusal if it announces that, because reading 1 MiB can take too long on a busy machine. The
/// other request then uses a new connection.
async fn is_refused_and_goes_on(node: &Node, wire: &mut Wire, status: u16, case: &str) {
    let refused = wire.answer().await;
    assert_eq!(refused.status, status, "{case}: {}", refused.text);
    match refused.header("connection") {
        "" => {}
        "close" => *wire = Wire::open(node.url()).await,
        other => panic!("{case}: Connection: {other}"),
    }
    wire.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(wire.answer().await.status, 200, "{case}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_request_on_the_connection_is_answered() {
    let node = Node::with_limits(format!("{AMPLE_LIMITS},refresh=1/1h,orders=1/1h").parse().unwrap()).await;
    let client = node.account("Acme").await;
    let key = format!("X-API-Key: {}\r\nX-API-Secret: {}\r\n", client.key, client.secret);
    node.anyone("POST", "/auth/refresh", serde_json::json!({})).await; // a body that is not JSON is not charged
    node.client(&client, "POST", "/orders", Value::Null).await;
    for (path, more, status) in [
        ("/api/v1/webhooks", "", 401),
        ("/api/v1/webhooks", "X-API-Key: wrong\r\nX-API-Secret: wrong\r\n", 401),
        ("/admin/v1/accounts", "", 401),
        ("/auth/refresh", "", 429),
        ("/api/v1/orders", &key, 429),
        ("/nowhere", "", 404),
    ] {
        for length in [60 * KIB, 250 * KIB, 1024 * KIB] {
            let body = vec![b' '; length];
            let mut wire = Wire::open(node.url()).await;
            for _ in 0..10 {
                wire.send(post(path, length, more)).await;
                wire.send(&body).await;
                is_refused_and_goes_on(&node, &mut wire, status, &format!("{path} {length}")).await;
            }
            // Chunked, so that the length of the body is not known in advance.
            wire.send(post(path, length, more).replace(&format!("Content-Length: {length}"), "Transfer-Encoding: chunked")).await;
            for chunk in body.chunks(16 * KIB) {
                wire.send(format!("{:x}\r\n", chunk.len())).await;
                wire.send(chunk).await;
                wire.send("\r\n").await;
            }
            wire.send("0\r\n\r\n").await;
            is_refused_and_goes_on(&node, &mut wire, status, &format!("{path} {length} in chunks")).await;
        }
    }
}

/// A client that sends its whole body before it reads still gets the response.
#[tokio::test(flavor = "multi_thread")]
async fn an_unread_large_body_closes_the_connection_after_the_response() {
    let node = Node::start().await;
    for length in [2 * KIB * KIB, 8 * KIB * KIB, 30 * KIB * KIB] {
        for _ in 0..5 {
            let mut wire = Wire::open(node.url()).await;
            wire.send(post("/api/v1/orders", length, "")).await;
            wire.send(vec![b' '; length]).await;
            let answer = wire.answer().await;
            assert_eq!((answer.status, answer.header("connection")), (401, "close"), "{length}");
        }
    }
    // A client that sends `Expect: 100-continue` is refused at once.
    let mut wire = Wire::open(node.url()).await;
    wire.send(post("/api/v1/orders", 50, "Expect: 100-continue\r\n")).await;
    let answer = wire.answer().await;
    assert_eq!((answer.status, answer.header("connection")), (401, "close"));
    // A client that sends a part of its body and waits gets the response in the end.
    let mut wire = Wire::open(node.url()).await;
    wire.send(post("/api/v1/orders", 50, "")).await;
    wire.send("{").await;
    let answer = wire.answer().await;
    assert_eq!((answer.status, answer.header("connection")), (401, "close"));
    wire.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_pool_keeps_working_after_refusals() {
    let node = Node::start().await;
    for length in [60 * KIB, 300 * KIB, 1024 * KIB] {
        for _ in 0..20 {
            let refused = node.request("POST", "/api/v1/orders").body(vec![b' '; length]).send().await.unwrap();
            assert_eq!(refused.status(), 401);
            refused.bytes().await.unwrap();
            let next = node.request("GET", "/healthz").send().await.unwrap();
            assert_eq!(next.status(), 200);
        }
    }
}

const PYTHON: &str = r#"
import http.client, sys
connection = http.client.HTTPConnection(sys.argv[1], timeout=60)
connection.connect()
connection.auto_open = 0  # one connection, or none
for size in (60_000, 250_000, 1_000_000):
    for _ in range(10):
        connection.request("POST", "/api/v1/orders", b" " * size)
        answer = connection.getresponse()
        assert answer.status == 401 and b"E_UNAUTHORIZED" in answer.read(), answer.status
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        assert answer.status == 200 and answer.read()
print("fine")
"#;

#[tokio::test(flavor = "multi_thread")]
async fn python_and_curl_see_every_answer() {
    let node = Node::start().await;
    let installed = async |program: &str| {
        Command::new(program).arg("--version").stdout(Stdio::null()).status().await.is_ok_and(|status| status.success())
    };
    if installed("python3").await {
        let output = run(Command::new("python3").args(["-c", PYTHON, node.url().trim_start_matches("http://")])).await;
        assert_eq!(String::from_utf8_lossy(&output.stdout), "fine\n", "{}", String::from_utf8_lossy(&output.stderr));
    }
    if installed("curl").await {
        let body = tempfile::NamedTempFile::new().unwrap();
        for size in [60 * KIB, 1024 * KIB, 4096 * KIB] {
            std::fs::write(body.path(), vec![b' '; size]).unwrap();
            let data = format!("@{}", body.path().display());
            let (orders, alive) = (format!("{}/api/v1/orders", node.url()), format!("{}/healthz", node.url()));
            let mut curl = Command::new("curl");
            curl.args(["-sS", "--max-time", "60", "--data-binary", &data, "-w", " %{http_code} ", &orders, &orders]);
            curl.args(["--next", "-sS", "-w", " %{http_code}", &alive]);
            let output = run(&mut curl).await;
            let text = String::from_utf8_lossy(&output.stdout);
            let (refused, served) = (text.matches("E_UNAUTHORIZED").count(), text.ends_with(" 200"));
            assert!(output.status.success() && refused == 2 && served, "{size}: {text} {output:?}");
        }
    }
}
