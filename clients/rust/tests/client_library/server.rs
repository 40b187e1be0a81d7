//! A local HTTP server that answers by a script.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rewards_ledger_client::{Client, Credentials, RetryPolicy};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// The attempts of the default policy, without its pauses.
pub const QUICK: RetryPolicy =
    RetryPolicy { attempts: 5, first_pause: Duration::from_micros(1), longest_pause: Duration::from_secs(1) };

/// An answer to one request.
pub enum Answer {
    Reply {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
    },
    /// Closes the connection.
    HangUp,
}

/// A request that the server has received.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: String,
    pub target: String,
    headers: Vec<(String, String)>,
    pub body: String,
}

impl Seen {
    /// Returns the value of a header, or an empty text.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

pub fn reply(status: u16, body: impl AsRef<[u8]>) -> Answer {
    Answer::Reply { status, headers: vec![], body: body.as_ref().to_vec() }
}

pub fn refuse(status: u16, code: &str) -> Answer {
    let body = serde_json::json!({"error": {"name": "SomeError", "code": code, "message": "No."}});
    reply(status, body.to_string()).with("x-request-id", "req-1")
}

impl Answer {
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Answer {
        if let Answer::Reply { headers, .. } = &mut self {
            headers.push((name, value.to_string()));
        }
        self
    }
}

/// The requests that a server has seen so far.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<Seen>>>);

impl Log {
    pub fn all(&self) -> Vec<Seen> {
        self.0.lock().unwrap().clone()
    }
}

/// Answers requests with the answers in turn, and each further one with 500. Returns a client of the server.
pub async fn serve(credentials: Credentials, answers: impl IntoIterator<Item = Answer>) -> (Client, Log) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/", listener.local_addr().unwrap());
    let log = Log::default();
    let mut answers = answers.into_iter().collect::<Vec<_>>().into_iter();
    let seen = log.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let answer = answers.next().unwrap_or_else(|| refuse(500, "E_ONE_TOO_MANY"));
            converse(stream, answer, &seen).await;
        }
    });
    (Client::new(&base, credentials).unwrap().with_retries(QUICK), log)
}

/// Reads one request, and answers it.
async fn converse(stream: TcpStream, answer: Answer, log: &Log) {
    let mut stream = BufReader::new(stream);
    let mut lines = vec![];
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let mut first = lines[0].split(' ').map(str::to_owned);
    let headers = lines[1..].iter().map(|line| line.split_once(": ").unwrap());
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    let mut seen = Seen { method: first.next().unwrap(), target: first.next().unwrap(), headers, body: String::new() };
    let mut body = vec![0; seen.header("content-length").parse().unwrap_or_default()];
    stream.read_exact(&mut body).await.unwrap();
    seen.body = String::from_utf8(body).unwrap();
    log.0.lock().unwrap().push(seen);
    let Answer::Reply { status, headers, body } = answer else { return };
    let mut head = format!("HTTP/1.1 {status} Some Reason\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    stream.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
    stream.write_all(&body).await.unwrap();
    stream.shutdown().await.unwrap();
}
