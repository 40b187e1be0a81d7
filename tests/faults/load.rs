//! Clients that place orders all the time, each through one of the addresses, and through another one when it fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::cluster::Cluster;
use crate::support::program::{Client, OPERATOR_TOKEN};

/// Pause between two orders of a client.
const PAUSE: Duration = Duration::from_millis(200);
/// Pause before a client repeats a request.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Price of every order.
pub const PRICE: i64 = 10;

/// Sends requests to one address, and to the next one after a failure.
#[derive(Clone, Debug)]
pub struct Caller {
    http: reqwest::Client,
    urls: Vec<String>,
    at: usize,
    log: Acknowledgements,
}

/// Times at which a client got an answer, and the number of its address.
pub type Acknowledgements = Arc<Mutex<Vec<(Instant, usize)>>>;

impl Caller {
    pub fn new(first: usize, log: Acknowledgements) -> Caller {
        let http = reqwest::Client::builder().timeout(Duration::from_secs(6)).connect_timeout(Duration::from_secs(1));
        Caller { http: http.build().unwrap(), urls: Cluster::urls(), at: first, log }
    }

    /// Repeats a request until it has a definite answer: a success, or a refusal that is not temporary.
    async fn insist(&mut self, request: impl Fn(&reqwest::Client, &str) -> reqwest::RequestBuilder) -> (u16, Value) {
        loop {
            let at = self.at % self.urls.len();
            if let Ok(answer) = request(&self.http, &self.urls[at]).send().await {
                let status = answer.status().as_u16();
                // A body that breaks off leaves the outcome unknown, too.
                if !matches!(status, 409 | 429 | 500..)
                    && let Ok(mut body) = answer.json::<Value>().await
                {
                    self.log.lock().unwrap().push((Instant::now(), at));
                    return (status, if body.get("data").is_some() { body["data"].take() } else { body });
                }
                assert!(status != 500, "a node has failed");
            }
            self.at += 1;
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    pub async fn operator(&mut self, path: &str, body: Value) -> Value {
        let (status, answer) = self
            .insist(|http, url| {
                let request = http.post(format!("{url}/admin/v1{path}")).bearer_auth(OPERATOR_TOKEN);
                request.header("Content-Type", "application/json").body(body.to_string())
            })
            .await;
        assert!((200..300).contains(&status), "{path}: {status} {answer}");
        answer
    }

    pub async fn post(&mut self, client: &Client, path: &str, key: &str, body: &Value) -> (u16, Value) {
        self.insist(|http, url| {
            let request = http.post(format!("{url}/api/v1{path}"));
            let request = request.header("X-API-Key", &client.key).header("X-API-Secret", &client.secret);
            request.header("Idempotency-Key", key).header("Content-Type", "application/json").body(body.to_string())
        })
        .await
    }

    /// Creates an account with a credential and a funded wallet.
    pub async fn client(&mut self, amount: i64) -> Client {
        let account_id = self.operator("/accounts", json!({"name": "Test"})).await["id"].as_i64().unwrap();
        let credential = self.operator(&format!("/accounts/{account_id}/credentials"), json!({"name": "test"})).await;
        let wallet = self.operator(&format!("/accounts/{account_id}/wallets"), json!({"currency": "EUR"})).await;
        let wallet_id = wallet["id"].as_i64().unwrap();
        let funding = json!({"amount": format!("{amount}.00"), "reference": format!("opening-{wallet_id}")});
        self.operator(&format!("/wallets/{wallet_id}/fund"), funding).await;
        let text = |name: &str| credential[name].as_str().unwrap().to_owned();
        Client { account_id, credential_id: credential["id"].as_i64().unwrap(), key: text("api_key"), secret: text("api_secret") }
    }

    /// Creates a product with this many vouchers.
    pub async fn product(&mut self, stock: usize) -> i64 {
        let product = json!({"name": "Voucher", "brand": "Test", "country": "DE", "currency": "EUR", "denomination_type": "FIXED",
            "denominations": ["10.00"], "max_quantity": 100, "description": "", "terms": "", "is_active": true});
        let id = self.operator("/products", product).await["id"].as_i64().unwrap();
        for start in (0..stock).step_by(5_000) {
            let cards: Vec<_> = (start..stock.min(start + 5_000))
                .map(|n| json!({"card_number": format!("{id}-{n:09}"), "pin": "1234"}))
                .collect();
            self.operator(&format!("/products/{id}/vouchers"), json!({"denomination": "10.00", "vouchers": cards})).await;
        }
        id
    }
}

/// Everything that a lane's account may do, and what it was told.
#[derive(Debug)]
pub struct Lane {
    pub client: Client,
    /// Money that the account had at first.
    pub funds: i64,
    pub product: i64,
    /// Whether each order is cancelled, because it waits for vouchers that never come.
    pub cancels: bool,
    /// Ids of the acknowledged orders.
    pub orders: Vec<i64>,
    /// Number of orders that were refused for good, because the wallet is empty.
    pub refused: usize,
}

impl Lane {
    pub fn new(client: Client, funds: i64, product: i64, cancels: bool) -> Lane {
        Lane { client, funds, product, cancels, orders: vec![], refused: 0 }
    }

    /// Places orders one after the other until it is told to stop. Every order has a definite answer then.
    pub async fn run(mut self, mut caller: Caller, stop: Arc<AtomicBool>) -> Lane {
        let body = json!({"product_id": self.product, "denomination": PRICE, "quantity": 1});
        while !stop.load(Ordering::Relaxed) {
            let key = format!("key {}", self.orders.len() + self.refused);
            let (status, answer) = caller.post(&self.client, "/orders", &key, &body).await;
            match status {
                201 => {
                    let id = answer["id"].as_i64().unwrap();
                    if self.cancels {
                        let path = format!("/orders/{id}/cancel");
                        let (status, answer) = caller.post(&self.client, &path, &key, &json!({"reason": "changed"})).await;
                        assert_eq!((status, answer["status"].as_str()), (200, Some("CANCELLED")), "{answer}");
                    }
                    self.orders.push(id);
                }
                // The wallet holds less than the price.
                400..500 if answer["error"]["code"] == "E_INSUFFICIENT_BALANCE" => self.refused += 1,
                _ => panic!("{status} {answer}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
        self
    }

    /// Returns the money that the account must have at the end.
    pub fn rest(&self) -> i64 {
        let kept = if self.cancels { 0 } else { i64::try_from(self.orders.len()).unwrap() };
        self.funds - PRICE * kept
    }
}
