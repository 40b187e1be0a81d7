//! A simulator of a supplier: an HTTPS server with OAuth client credentials, orders under idempotency keys, and faults of every
//! kind. It remembers what it has sold, so that a test can tell whether something was bought twice.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::Utc;
use reqwest::RequestBuilder;
use rewards_ledger::fulfilment::supply::{self, HttpSupplier, Notices, Supplier};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use webhook_client::receiver::{Certificate, Received, Receiver, ReceiverResponse, ReceiverSettings, Takeover};
use webhook_client::signature::sign;

use super::misbehave::{Misbehaviour, misbehave};
use super::node::{Node, TestResponse};
use super::program::write_private;

/// Size of a text that makes an answer larger than the ledger reads.
const TOO_MUCH: usize = 5 << 20;
/// Pause after each byte of an answer that trickles. Forty bytes take longer than the ledger waits for an answer.
const TRICKLE_PAUSE: Duration = Duration::from_millis(50);
/// Budget of a supplier whose budget does not matter.
const BUDGET: &str = "daily_budget = { EUR = \"1000.00\" }";

/// Behaviour towards one request for an order, for its state or for a token. Without one, the supplier does what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Fails before it has done anything.
    Status(u16),
    /// Fails to give a token.
    TokenStatus(u16),
    /// Does nothing, and answers with this status and the place of orders as the `Location`.
    Redirect(u16),
    /// Makes the order, and answers never.
    Hang,
    /// Makes the order, and closes the connection instead of answering.
    Drop,
    /// Makes the order, and answers with this status.
    SoldAndStatus(u16),
    /// Makes the order, and answers with bytes that are no JSON.
    Garbage,
    /// Makes the order, and answers with its codes beside more text than anybody reads.
    TooMuch,
    /// Makes the order, and closes the connection after half of the answer.
    CutOff,
    /// Makes the order, and answers with its codes a byte at a time.
    Trickle,
    /// Makes the order, and answers with its codes in bytes that are not UTF-8.
    InvalidUtf8,
    /// Makes the order, and answers with its codes under this `Content-Type`.
    ContentType(&'static str),
    /// Makes the order, and names its cost in this currency.
    Currency(&'static str),
    /// Accepts the order without codes.
    Pending,
    /// Refuses the order for this reason.
    Refuse(&'static str),
    /// Does nothing, and answers with this status and the text of a refusal, as a proxy may do.
    RefusalWithStatus(u16),
    /// Answers with the codes of the first order again.
    SameCodes,
    /// Answers with this many codes instead of those that were ordered.
    Codes(usize),
}

/// An order, under its key.
#[derive(Clone, Debug)]
pub struct Sold {
    pub quantity: usize,
    pub codes: Vec<String>,
    pub is_pending: bool,
}

#[derive(Debug, Default)]
struct Books {
    sold: BTreeMap<String, Sold>,
    faults: VecDeque<Fault>,
    /// Method and path of each request.
    requests: Vec<String>,
    tokens: usize,
    /// Lifetime of access tokens, in seconds.
    token_lifetime: u64,
    issued: usize,
}

/// A running supplier.
#[derive(Debug)]
pub struct Simulator {
    receiver: Receiver,
    books: Arc<Mutex<Books>>,
    directory: tempfile::TempDir,
}

pub const CLIENT_SECRET: &str = "the-secret-of-the-client";
pub const ACCESS_TOKEN: &str = "the-token-of-the-client";
/// Secret with which the supplier signs its notices.
pub const NOTICE_SECRET: &str = "the-secret-of-the-notices";

impl Simulator {
    pub async fn start() -> Simulator {
        let certificate = Certificate::generate().unwrap();
        Simulator::presenting(certificate.clone(), certificate.ca_pem()).await
    }

    /// Starts a supplier with this certificate. Its settings name this authority, as PEM.
    pub async fn presenting(certificate: Certificate, ca_pem: &str) -> Simulator {
        let books = Arc::new(Mutex::new(Books { token_lifetime: 3_600, ..Books::default() }));
        let shared = books.clone();
        let settings = ReceiverSettings {
            listen: "127.0.0.1:0".parse().unwrap(),
            service_name: "supplier".to_owned(),
            certificate,
            respond: Arc::new(move |request| shared.lock().unwrap().answer(request)),
        };
        let (receiver, _) = Receiver::start(settings).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        write_private(&directory.path().join("secret"), &format!("{CLIENT_SECRET}\n"));
        std::fs::write(directory.path().join("ca.pem"), ca_pem).unwrap();
        write_private(&directory.path().join("notices"), NOTICE_SECRET);
        Simulator { receiver, books, directory }
    }

    /// Writes the file of suppliers, with further lines of this one. Returns its path.
    pub fn file(&self, further: &str) -> PathBuf {
        write_file(self.directory.path(), &self.receiver.url(), further)
    }

    /// Returns the adapter, with a budget of 1,000.00 EUR a day.
    pub fn supplier(&self) -> Arc<dyn Supplier> {
        self.supplier_with(BUDGET)
    }

    pub fn supplier_with(&self, further: &str) -> Arc<dyn Supplier> {
        let settings = supply::read(&self.file(further)).unwrap().remove(0);
        Arc::new(HttpSupplier::new(settings).unwrap())
    }

    /// Returns the adapter of a supplier that issues the tokens itself, and takes orders at the address of another one.
    pub fn supplier_with_orders_at(&self, other: &Simulator) -> Arc<dyn Supplier> {
        let mut settings = supply::read(&self.file(BUDGET)).unwrap().remove(0);
        let url = other.receiver.url();
        settings.order_url = format!("{url}/orders").parse().unwrap();
        settings.status_url = format!("{url}/orders/{{key}}");
        Arc::new(HttpSupplier::new(settings).unwrap())
    }

    /// Returns the settings of the supplier's notices.
    pub fn notices(&self) -> Notices {
        Notices::read(&self.file("notice_secret_file = \"notices\"")).unwrap()
    }

    /// Tells a node that the order with this key is ready.
    pub async fn notify(&self, node: &Node, key: &str) -> TestResponse {
        let body = json!({"idempotency_key": key, "status": "FULFILLED"}).to_string();
        let now = Utc::now().timestamp();
        node.send(notice(node, "acme", &body, now, NOTICE_SECRET)).await
    }

    /// Sets the behaviour towards the next requests.
    pub fn fail(&self, faults: &[Fault]) {
        self.books.lock().unwrap().faults = faults.iter().copied().collect();
    }

    /// Delivers everything that is pending.
    pub fn deliver(&self) {
        self.books.lock().unwrap().sold.values_mut().for_each(|sold| sold.is_pending = false);
    }

    /// Returns everything that was sold, by key.
    pub fn sold(&self) -> BTreeMap<String, Sold> {
        self.books.lock().unwrap().sold.clone()
    }

    /// Returns the number of units that were sold.
    pub fn units(&self) -> usize {
        self.sold().values().map(|sold| sold.quantity).sum()
    }

    /// Returns the methods of the requests for orders and their states so far.
    pub fn requests(&self) -> Vec<String> {
        self.books.lock().unwrap().requests.clone()
    }

    /// Returns the number of access tokens that were issued.
    pub fn tokens(&self) -> usize {
        self.books.lock().unwrap().tokens
    }

    /// Sets the lifetime of the next access tokens, in seconds.
    pub fn set_token_lifetime(&self, seconds: u64) {
        self.books.lock().unwrap().token_lifetime = seconds;
    }

    /// Stops listening. Connections are refused from now on.
    pub async fn stop(self) {
        self.receiver.stop().await;
    }
}

/// Builds a notice of a supplier to a node, signed at this time with this secret.
pub fn notice(node: &Node, supplier: &str, body: &str, timestamp: i64, secret: &str) -> RequestBuilder {
    signed(node.request("POST", &format!("/suppliers/{supplier}/notices")), body, timestamp, secret)
}

/// Gives a request the body of a notice, signed at this time with this secret.
pub fn signed(request: RequestBuilder, body: &str, timestamp: i64, secret: &str) -> RequestBuilder {
    let request = request.header("X-Timestamp", timestamp).header("X-Signature", sign(secret, timestamp, body.as_bytes()));
    request.header("Content-Type", "application/json").body(body.to_owned())
}

fn write_file(directory: &Path, url: &str, further: &str) -> PathBuf {
    let rate = if further.contains("calls_per_minute") { "" } else { "calls_per_minute = 60000" };
    let poll = if further.contains("poll_seconds") { "" } else { "poll_seconds = 1" };
    let path = directory.join("suppliers.toml");
    let text = format!(
        "[[supplier]]\nname = \"acme\"\norder_url = \"{url}/orders\"\nstatus_url = \"{url}/orders/{{key}}\"\ntoken_url = \"{url}/token\"\n\
         client_id = \"ledger\"\nclient_secret_file = \"secret\"\nscopes = [\"orders\"]\nca_file = \"ca.pem\"\n\
         allowed_networks = [\"127.0.0.0/8\", \"::1/128\"]\n{rate}\ntimeout_seconds = 2\n{poll}\n{further}\n"
    );
    std::fs::write(&path, text).unwrap();
    path
}

impl Books {
    fn answer(&mut self, request: &Received) -> ReceiverResponse {
        if request.path == "/token" {
            if let Some(Fault::TokenStatus(status)) = self.faults.front().copied() {
                self.faults.pop_front();
                return ReceiverResponse::Status(status);
            }
            let form = String::from_utf8_lossy(&request.body).into_owned();
            let basic = request.header("authorization").is_some_and(|value| value.starts_with("Basic "));
            if !basic || !form.contains("grant_type=client_credentials") || !form.contains("scope=orders") {
                return ReceiverResponse::Status(401);
            }
            self.tokens += 1;
            let token = json!({"access_token": ACCESS_TOKEN, "token_type": "Bearer", "expires_in": self.token_lifetime});
            return ReceiverResponse::StatusWithBody(200, token.to_string());
        }
        self.requests.push(request.method.clone());
        if request.header("authorization").and_then(|value| value.strip_prefix("Bearer ")) != Some(ACCESS_TOKEN) {
            return ReceiverResponse::Status(401);
        }
        let fault = self.faults.pop_front();
        match fault {
            Some(Fault::Status(status)) => return ReceiverResponse::Status(status),
            Some(Fault::Redirect(status)) => return redirect(status),
            Some(Fault::RefusalWithStatus(status)) => {
                let refusal = json!({"status": "REFUSED", "reason": "OUT_OF_STOCK"});
                return ReceiverResponse::StatusWithBody(status, refusal.to_string());
            }
            _ => {}
        }
        let key = match request.method.as_str() {
            "POST" => match self.sell(request, fault) {
                Ok(key) => key,
                Err(reason) => return with_body(json!({"status": "REFUSED", "reason": reason})),
            },
            _ => request.path.trim_start_matches("/orders/").to_owned(),
        };
        let Some(sold) = self.sold.get(&key).cloned() else { return ReceiverResponse::Status(404) };
        match fault {
            Some(Fault::Hang) => ReceiverResponse::Hang,
            Some(Fault::Drop) => ReceiverResponse::TakeOver(Takeover::new("drops the connection", |stream| async move {
                drop(stream);
                Ok(())
            })),
            Some(Fault::SoldAndStatus(status)) => ReceiverResponse::Status(status),
            Some(Fault::Garbage) => ReceiverResponse::StatusWithBody(200, "<html>OK</html>".to_owned()),
            _ if sold.is_pending => with_body(json!({"status": "PENDING", "id": format!("S-{key}")})),
            _ => self.fulfilled(&key, &sold, fault),
        }
    }

    /// Answers with the codes of an order, unless the fault spoils the answer.
    fn fulfilled(&self, key: &str, sold: &Sold, fault: Option<Fault>) -> ReceiverResponse {
        let codes = match fault {
            Some(Fault::SameCodes) => self.sold.values().next().map(|first| first.codes.clone()).unwrap_or_default(),
            _ => sold.codes.clone(),
        };
        let currency = match fault {
            Some(Fault::Currency(currency)) => currency,
            _ => "EUR",
        };
        let voucher = |code: &String| json!({"card_number": code, "pin": format!("pin-of-{code}")});
        let vouchers: Vec<Value> = codes.iter().map(voucher).collect();
        let (id, cost) = (format!("S-{key}"), "9.50");
        let mut answer = json!({"status": "FULFILLED", "id": id, "unit_cost": cost, "currency": currency, "vouchers": vouchers});
        if fault == Some(Fault::TooMuch) {
            answer["padding"] = "x".repeat(TOO_MUCH).into();
        }
        let body = answer.to_string().into_bytes();
        match fault {
            Some(Fault::CutOff) => raw("application/json", &body, body.len() / 2),
            Some(Fault::Trickle) => trickle(body),
            Some(Fault::InvalidUtf8) => {
                let body: Vec<u8> = body.into_iter().map(|byte| if byte == b'-' { 0xff } else { byte }).collect();
                raw("application/json", &body, body.len())
            }
            Some(Fault::ContentType(content_type)) => raw(content_type, &body, body.len()),
            _ => with_body(answer),
        }
    }

    /// Makes an order, once for each key. Returns the key, or the reason for a refusal.
    fn sell(&mut self, request: &Received, fault: Option<Fault>) -> Result<String, &'static str> {
        let order: Value = serde_json::from_slice(&request.body).unwrap();
        let key = request.header("idempotency-key").unwrap().to_owned();
        assert_eq!((&order["idempotency_key"], &order["sku"]), (&json!(key), &json!("SKU-10")));
        if self.sold.contains_key(&key) {
            return Ok(key);
        }
        if let Some(Fault::Refuse(reason)) = fault {
            return Err(reason);
        }
        let quantity = usize::try_from(order["quantity"].as_u64().unwrap()).unwrap();
        let codes = match fault {
            Some(Fault::Codes(codes)) => codes,
            _ => quantity,
        };
        let codes = (0..codes).map(|_| {
            self.issued += 1;
            format!("bought-{}", self.issued)
        });
        let sold = Sold { quantity, codes: codes.collect(), is_pending: fault == Some(Fault::Pending) };
        self.sold.insert(key.clone(), sold);
        Ok(key)
    }
}

fn with_body(body: Value) -> ReceiverResponse {
    ReceiverResponse::StatusWithBody(200, body.to_string())
}

/// Builds the head of an answer with this type and this length of the body.
fn head(content_type: &str, length: usize) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n").into()
}

/// Sends the head of an answer and this many bytes of its body, and closes the connection.
fn raw(content_type: &str, body: &[u8], sent: usize) -> ReceiverResponse {
    let answer = [head(content_type, body.len()).as_slice(), &body[..sent]].concat();
    misbehave(Misbehaviour::Raw(answer.into()))
}

/// Sends the head of an answer at once, and its body a byte at a time.
fn trickle(body: Vec<u8>) -> ReceiverResponse {
    ReceiverResponse::TakeOver(Takeover::new("trickles", move |mut stream| {
        let body = body.clone();
        async move {
            stream.write_all(&head("application/json", body.len())).await?;
            for byte in body {
                stream.write_all(&[byte]).await?;
                stream.flush().await?;
                tokio::time::sleep(TRICKLE_PAUSE).await; // the misbehaviour itself
            }
            stream.shutdown().await
        }
    }))
}

/// Redirects to the place of orders. A client that followed would ask for nothing with GET, or order again with POST.
fn redirect(status: u16) -> ReceiverResponse {
    let answer = format!("HTTP/1.1 {status} Redirect\r\nLocation: /orders\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    misbehave(Misbehaviour::Raw(answer.into()))
}
