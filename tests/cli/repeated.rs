//! Requests of the commands that fail, and those that are repeated.

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use super::{directory, err, out, program, run};
use crate::support::program::OPERATOR_TOKEN;

/// Answers one request after the other, hangs up where the answer is empty, and returns the requests' headers.
async fn serve(listener: TcpListener, answers: &[&str]) -> Vec<String> {
    let mut requests = vec![];
    for answer in answers {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(stream.read_line(&mut head).await.unwrap() > 0, "{head}");
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |text| text.parse().unwrap());
        stream.read_exact(&mut vec![0; length]).await.unwrap();
        requests.push(head);
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
    }
    requests
}

const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const PLACED: &str = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";

#[tokio::test]
async fn call_repeats_an_order_under_one_idempotency_key() {
    let directory = directory();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(serve(listener, &[BUSY, "", PLACED]));
    let mut command = program(directory.path());
    command.args(["call", "-i", "POST", "/api/v1/orders", "{}", "--url", &url, "--api-key", "key", "--api-secret", "secret"]);
    let called = run(&mut command).await;
    assert!(called.status.success() && out(&called).contains("201"), "{}{}", out(&called), err(&called));
    let requests = serving.await.unwrap();
    let keys: Vec<&str> =
        requests.iter().filter_map(|head| head.lines().find(|line| line.starts_with("idempotency-key: "))).collect();
    assert!(keys.len() == 3 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[tokio::test]
async fn an_operators_post_without_an_answer_is_not_repeated() {
    let directory = directory();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(serve(listener, &[""]));
    let mut command = program(directory.path());
    command.args(["admin", "--url", &url, "account", "create", "Acme"]).env("LEDGER_OPERATOR_TOKEN", OPERATOR_TOKEN);
    let called = run(&mut command).await;
    // The listener is gone after one request, so a second one would fail with another cause.
    let said = err(&called);
    assert!(!called.status.success() && said.contains(&format!("no response from {url}")), "{said}");
    assert!(!said.contains("refused"), "{said}");
    assert!(!serving.await.unwrap()[0].contains("idempotency-key"));
}
