//! An SMTP server that keeps what it receives, and a mailer that sends to it.

use std::sync::{Arc, Mutex};

use rewards_ledger::heartbeat::Heartbeat;
use rewards_ledger::mail::{Mailer, Sender, Site, Transport};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use super::ledger::keyring;
use super::node::Node;

/// A message as the server has received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub from: String,
    pub to: String,
    /// Headers and body, with LF as line end.
    pub text: String,
}

impl Received {
    pub fn subject(&self) -> &str {
        self.text.lines().find_map(|line| line.strip_prefix("Subject: ")).unwrap_or_default()
    }

    /// Returns the token in the message's link.
    pub fn token(&self) -> String {
        let (_, rest) = self.text.split_once("?token=").unwrap_or_else(|| panic!("no token in {}", self.text));
        rest.split_whitespace().next().unwrap().to_owned()
    }
}

#[derive(Debug, Default)]
struct State {
    received: Vec<Received>,
    /// Number of messages to refuse before one is accepted.
    refusals: usize,
    /// Answer to every recipient; none if the server accepts them.
    recipients: Option<&'static str>,
}

/// An SMTP server on a loopback port. It ends when this value is dropped.
#[derive(Debug)]
pub struct SmtpServer {
    state: Arc<Mutex<State>>,
    port: u16,
    server: AbortHandle,
}

impl Drop for SmtpServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl SmtpServer {
    pub async fn start() -> SmtpServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, state) = (listener.local_addr().unwrap().port(), Arc::<Mutex<State>>::default());
        let shared = state.clone();
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(converse(stream, shared.clone()));
            }
        });
        SmtpServer { state, port, server: server.abort_handle() }
    }

    pub fn url(&self) -> String {
        format!("smtp://127.0.0.1:{}", self.port)
    }

    /// Refuses the next messages with a temporary error.
    pub fn refuse(&self, messages: usize) {
        self.state.lock().unwrap().refusals = messages;
    }

    /// Answers every recipient with this line from now on, such as a permanent refusal.
    pub fn answer_recipients(&self, answer: &'static str) {
        self.state.lock().unwrap().recipients = Some(answer);
    }

    /// Takes the messages that were received since the last call.
    pub fn take(&self) -> Vec<Received> {
        std::mem::take(&mut self.state.lock().unwrap().received)
    }

    /// Returns a mailer of a node that sends to this server.
    pub fn mailer(&self, node: &Node) -> Mailer {
        let transport = Transport::smtp(&self.url().parse().unwrap()).unwrap();
        let sender = Sender { transport, from: "Rewards <rewards@example.com>".parse().unwrap() };
        let site = Site { portal_url: node.url().to_owned() };
        Mailer {
            pool: node.ledger.pool().clone(),
            shards: node.ledger.shard_watch().clone(),
            keyring: keyring(),
            sender: Arc::new(sender),
            site,
            keeps_sent: false,
            metrics: node.metrics.clone(),
        }
    }

    /// Sends what is due on a node. Returns the messages that were received.
    pub async fn deliver(&self, node: &Node) -> Vec<Received> {
        while self.mailer(node).send_due(&Heartbeat::default()).await.unwrap() > 0 {}
        self.take()
    }
}

async fn converse(stream: TcpStream, state: Arc<Mutex<State>>) {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    let (mut from, mut to, mut text, mut in_data) = (String::new(), String::new(), String::new(), false);
    let mut answer = "220 test".to_owned();
    loop {
        if !answer.is_empty() && write.write_all(format!("{answer}\r\n").as_bytes()).await.is_err() {
            return;
        }
        let Ok(Some(line)) = lines.next_line().await else { return };
        answer = match line.to_ascii_uppercase() {
            _ if in_data && line == "." => {
                in_data = false;
                let mut state = state.lock().unwrap();
                let message = Received { from: from.clone(), to: to.clone(), text: std::mem::take(&mut text) };
                match state.refusals.checked_sub(1) {
                    Some(left) => {
                        state.refusals = left;
                        format!("451 <{}> gets it later", message.to)
                    }
                    None => {
                        state.received.push(message);
                        "250 kept".to_owned()
                    }
                }
            }
            _ if in_data => {
                text += line.strip_prefix('.').unwrap_or(&line);
                text.push('\n');
                String::new()
            }
            command if command.starts_with("MAIL FROM:") => {
                from = line[10..].trim_matches(['<', '>', ' ']).to_owned();
                "250 ok".into()
            }
            command if command.starts_with("RCPT TO:") => {
                to = line[8..].trim_matches(['<', '>', ' ']).to_owned();
                state.lock().unwrap().recipients.map_or_else(|| "250 ok".to_owned(), |answer| format!("{answer} <{to}>"))
            }
            command if command.starts_with("DATA") => {
                in_data = true;
                "354 go on".into()
            }
            command if command.starts_with("QUIT") => "221 bye".into(),
            _ => "250 test".into(),
        };
    }
}
