//! A raw connection to a node, byte by byte.

use std::net::SocketAddr;

use reqwest::header::{HeaderMap, HeaderName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::node::{Node, TestResponse};
use crate::support::program::{DEADLINE, Program};

/// Parses the address of a node's URL, for example `http://127.0.0.1:4711`.
pub fn address(url: &str) -> SocketAddr {
    url.trim_start_matches("http://").parse().unwrap()
}

/// Connection of a client.
#[derive(Debug)]
pub struct Wire {
    pub stream: TcpStream,
    read: Vec<u8>,
}

impl Wire {
    pub async fn open(url: &str) -> Wire {
        Wire { stream: TcpStream::connect(address(url)).await.unwrap(), read: vec![] }
    }

    /// Connects from this address of the loopback network.
    pub async fn from(source: &str, url: &str) -> Wire {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{source}:0").parse().unwrap()).unwrap();
        Wire { stream: socket.connect(address(url)).await.unwrap(), read: vec![] }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Reads the next response. Returns `None` if the connection closes first.
    pub async fn try_answer(&mut self) -> Option<TestResponse> {
        let reading = async {
            let end = loop {
                if let Some(end) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                    break end;
                }
                if self.stream.read_buf(&mut self.read).await.unwrap_or(0) == 0 {
                    return None;
                }
            };
            let head = String::from_utf8(self.read.drain(..end + 4).collect()).unwrap();
            let mut lines = head.trim_end().lines();
            let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
            let fields = lines.map(|line| line.split_once(':').unwrap());
            let headers: HeaderMap =
                fields.map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.trim().parse().unwrap())).collect();
            let length: usize = headers["content-length"].to_str().unwrap().parse().unwrap();
            while self.read.len() < length {
                if self.stream.read_buf(&mut self.read).await.unwrap_or(0) == 0 {
                    return None;
                }
            }
            let text = String::from_utf8(self.read.drain(..length).collect()).unwrap();
            Some(TestResponse { status, headers, text })
        };
        tokio::time::timeout(DEADLINE, reading).await.expect("the response arrives in time")
    }

    pub async fn answer(&mut self) -> TestResponse {
        self.try_answer().await.expect("a response arrives before the connection closes")
    }

    /// Waits until the node has closed the connection.
    pub async fn ended(&mut self) {
        let reading = async { while self.stream.read_buf(&mut self.read).await.unwrap_or(0) > 0 {} };
        tokio::time::timeout(DEADLINE, reading).await.expect("the connection is closed in time");
    }

    /// Returns true if the node has closed the connection by now.
    pub fn has_ended(&mut self) -> bool {
        match self.stream.try_read(&mut [0; 1]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}

#[track_caller]
fn is_refused(answer: &TestResponse, status: u16, code: &str) {
    answer.refused(status, code);
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.header("connection"), "close");
    assert!(!answer.header("date").is_empty());
    uuid::Uuid::parse_str(answer.header("x-request-id")).unwrap();
}

#[tokio::test]
async fn invalid_http_is_answered_in_the_error_envelope() {
    let node = Node::start().await;
    let many_headers: String = (0..101).map(|n| format!("X-{n}: 1\r\n")).collect();
    let cases = [
        ("garbage\r\n\r\n".to_owned(), 400, "E_MALFORMED_REQUEST"),
        ("GET / HTTP/7.3\r\n\r\n".to_owned(), 400, "E_MALFORMED_REQUEST"),
        ("GET /healthz HTTP/1.1\r\nNo colon\r\n\r\n".to_owned(), 400, "E_MALFORMED_REQUEST"),
        ("\u{1}\u{2}\u{3}\u{4}\r\n\r\n".to_owned(), 400, "E_MALFORMED_REQUEST"),
        (format!("GET /{} HTTP/1.1\r\nHost: test\r\n\r\n", "a".repeat(20_000)), 414, "E_URI_TOO_LONG"),
        (format!("GET /healthz HTTP/1.1\r\nX-Long: {}\r\n\r\n", "a".repeat(20_000)), 431, "E_HEADERS_TOO_LARGE"),
        (format!("GET /healthz HTTP/1.1\r\n{many_headers}\r\n"), 431, "E_HEADERS_TOO_LARGE"),
    ];
    for (bytes, status, code) in &cases {
        let mut fresh = Wire::open(node.url()).await;
        fresh.send(bytes).await;
        is_refused(&fresh.answer().await, *status, code);
        fresh.ended().await;
        // On a connection that has already carried requests as well.
        let mut used = Wire::open(node.url()).await;
        for _ in 0..2 {
            used.send("GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n").await;
            assert_eq!(used.answer().await.status, 200);
        }
        used.send(bytes).await;
        is_refused(&used.answer().await, *status, code);
        used.ended().await;
        // Directly behind a valid request as well.
        let mut pipelined = Wire::open(node.url()).await;
        pipelined.send(format!("GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n{bytes}")).await;
        assert_eq!(pipelined.answer().await.status, 200);
        is_refused(&pipelined.answer().await, *status, code);
        pipelined.ended().await;
    }
    let metrics = node.send(node.request("GET", "/metrics")).await.text;
    assert!(metrics.contains(r#"ledger_http_requests_total{method="other",route="other",path="",status="431"} 6"#), "{metrics}");
}

/// The client is still sending when it is refused.
#[tokio::test]
async fn a_head_that_goes_on_for_ever_is_answered_and_cut() {
    let database = crate::support::postgres::database().await;
    let program = Program::start(&database.url, &["--roles", "api"]).await;
    let mut wire = Wire::open(&program.url()).await;
    wire.send("GET /healthz HTTP/1.1\r\nX-Long: ").await;
    let (mut reader, mut writer) = wire.stream.into_split();
    let sending = tokio::spawn(async move { while writer.write_all(&[b'a'; 65_536]).await.is_ok() {} });
    let mut answer = vec![];
    let reading = async {
        while !answer.windows(20).any(|window| window == b"\"E_HEADERS_TOO_LARGE") {
            assert!(reader.read_buf(&mut answer).await.unwrap() > 0, "the connection closed before the response");
        }
        sending.await.unwrap();
    };
    tokio::time::timeout(DEADLINE, reading).await.expect("the connection is closed in time");
}
