//! A load of every kind of request, in which no request may fail.

mod people;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::support::node::{Client, PASSWORD};
use crate::support::program::{DEADLINE, OPERATOR_TOKEN, Program};

/// Callers of one address. Each of them works in rounds until the load is stopped.
pub struct Load {
    failures: Arc<Mutex<Vec<String>>>,
    rounds: Vec<watch::Receiver<u64>>,
    stop: CancellationToken,
    callers: JoinSet<()>,
}

/// Resources of the callers: an account with a customer, money, stock, and a logged-in user.
#[derive(Clone, Debug)]
pub struct Shop {
    pub client: Client,
    wallet: i64,
    product: i64,
    /// Id of a product without stock.
    empty: i64,
    beneficiary: i64,
    webhook: i64,
    email: String,
}

impl Shop {
    /// Creates these resources, with a webhook at this address that subscribes to every event.
    pub async fn open(node: &Program, webhook_url: &str) -> Shop {
        let client = node.client("1000000.00").await;
        let (product, empty) = (node.product(5_000).await, node.product(0).await);
        let caller = Caller::of(&node.url(), &client, Arc::default());
        let wallet = caller.client(Method::GET, "/wallets", Value::Null).await["wallets"][0]["id"].as_i64().unwrap();
        let person = json!({"name": "Ada", "type": "BANK", "country": "DE", "currency": "EUR", "account_number": "DE89370400440532013000"});
        let beneficiary = caller.client(Method::POST, "/beneficiaries", person).await["id"].as_i64().unwrap();
        let events = ["order.created", "order.delivered", "order.cancelled"];
        let webhook = json!({"name": "all", "url": webhook_url, "events": events});
        let webhook = caller.client(Method::POST, "/webhooks", webhook).await["id"].as_i64().unwrap();
        let email = format!("jo-{}@example.com", client.account_id);
        let user = json!({"email": email, "password": PASSWORD, "role": "owner"});
        caller.operator(Method::POST, &format!("/accounts/{}/users", client.account_id), user).await;
        // The first round of a reader finds an order, whoever is first.
        caller.client(Method::POST, "/orders", json!({"product_id": product, "denomination": 10, "quantity": 1})).await;
        assert_eq!(*caller.failures.lock().unwrap(), Vec::<String>::new());
        Shop { client, wallet, product, empty, beneficiary, webhook, email }
    }
}

/// Kind of work of a caller.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Orders,
    /// Reads of a client, and probes of the node.
    Reads,
    /// Reads of a client alone.
    BalancedReads,
    Operates,
    Pays,
    User,
    Program,
    Console,
}

/// Kinds of work that the last release knows, too.
const KNOWN: &[Kind] = &[Kind::Orders, Kind::Orders, Kind::Reads, Kind::Operates, Kind::Pays];
/// All kinds of work. A node serves them with the arguments [`FOR_ALL`].
const ALL: &[Kind] =
    &[Kind::Orders, Kind::Orders, Kind::Reads, Kind::Operates, Kind::Pays, Kind::User, Kind::Program, Kind::Console];
/// All kinds of work that a load balancer may give to any node.
const BALANCED: &[Kind] =
    &[Kind::Orders, Kind::Orders, Kind::BalancedReads, Kind::Operates, Kind::Pays, Kind::User, Kind::Program, Kind::Console];
/// Arguments of a node under a load of every kind: large fundings wait for a second operator.
pub const FOR_ALL: [&str; 2] = ["--approval-above", "2000000.00"];

impl Load {
    /// Starts callers of every kind that the last release knows on a node. `name` distinguishes their data from that of
    /// another load.
    pub fn start(node: &Program, shop: &Shop, name: &str) -> Load {
        Load::of(KNOWN, &node.url(), shop, name)
    }

    /// Starts callers of every kind on a node of this build.
    pub fn whole(node: &Program, shop: &Shop, name: &str) -> Load {
        Load::of(ALL, &node.url(), shop, name)
    }

    /// Starts callers of every kind at the address of a load balancer in front of nodes of this build. They do not ask for the
    /// readiness of a node, because one that stops answers with 503.
    pub fn balanced(url: &str, shop: &Shop, name: &str) -> Load {
        Load::of(BALANCED, url, shop, name)
    }

    fn of(kinds: &[Kind], url: &str, shop: &Shop, name: &str) -> Load {
        let mut load = Load { failures: Arc::default(), rounds: vec![], stop: CancellationToken::new(), callers: JoinSet::new() };
        for (number, kind) in kinds.iter().copied().enumerate() {
            let caller = Caller::of(url, &shop.client, load.failures.clone());
            let (told, rounds) = watch::channel(0);
            load.rounds.push(rounds);
            let (stop, shop, name) = (load.stop.clone(), shop.clone(), format!("{name}-{number}"));
            load.callers.spawn(async move {
                let mut session =
                    caller.anyone(Method::POST, "/auth/login", json!({"email": shop.email, "password": PASSWORD})).await;
                while !stop.is_cancelled() {
                    let round = *told.borrow() + 1;
                    let key = format!("{name}-{round}");
                    match kind {
                        Kind::Orders => order(&caller, &shop, &key).await,
                        Kind::Reads => {
                            read(&caller, &shop).await;
                            caller.anyone(Method::GET, "/readyz", Value::Null).await;
                        }
                        Kind::BalancedReads => read(&caller, &shop).await,
                        Kind::Operates => operate(&caller, &shop, &key).await,
                        Kind::Pays => session = pay(&caller, &shop, &key, session).await,
                        Kind::User => people::of_user(&caller, &shop, &key).await,
                        Kind::Program => people::of_program(&caller, &shop).await,
                        Kind::Console => people::of_operator(&caller, &shop, &key).await,
                    }
                    told.send_replace(round);
                }
            });
        }
        load
    }

    /// Waits until every caller has completed a round that began after this call.
    pub async fn go_round(&mut self) {
        for rounds in &mut self.rounds {
            // The current round began before this call, so it does not count.
            let wanted = *rounds.borrow() + 2;
            let waited = tokio::time::timeout(DEADLINE, rounds.wait_for(|done| *done >= wanted)).await;
            waited.expect("the callers keep working").expect("the callers run");
        }
    }

    /// Returns all failures so far.
    pub fn failures(&self) -> Vec<String> {
        self.failures.lock().unwrap().clone()
    }

    /// Stops the callers in an orderly way, and returns all failures.
    pub async fn stop(mut self) -> Vec<String> {
        self.stop.cancel();
        while let Some(ended) = self.callers.join_next().await {
            ended.unwrap();
        }
        self.failures()
    }
}

/// A caller that records every unsuccessful response.
struct Caller {
    url: String,
    http: reqwest::Client,
    client: Client,
    failures: Arc<Mutex<Vec<String>>>,
}

impl Caller {
    fn of(url: &str, client: &Client, failures: Arc<Mutex<Vec<String>>>) -> Caller {
        let http = reqwest::Client::builder().timeout(Duration::from_secs(30)).build().unwrap();
        Caller { url: url.to_owned(), http, client: client.clone(), failures }
    }

    async fn client(&self, method: Method, path: &str, body: Value) -> Value {
        let request = self.http.request(method.clone(), format!("{}/api/v1{path}", self.url));
        let request = request.header("X-API-Key", &self.client.key).header("X-API-Secret", &self.client.secret);
        self.send(method, path, request, body).await
    }

    async fn operator(&self, method: Method, path: &str, body: Value) -> Value {
        let request = self.http.request(method.clone(), format!("{}/admin/v1{path}", self.url)).bearer_auth(OPERATOR_TOKEN);
        self.send(method, path, request, body).await
    }

    async fn anyone(&self, method: Method, path: &str, body: Value) -> Value {
        let request = self.http.request(method.clone(), format!("{}{path}", self.url));
        self.send(method, path, request, body).await
    }

    async fn bearer(&self, token: &str, path: &str) -> Value {
        let request = self.http.get(format!("{}{path}", self.url)).bearer_auth(token);
        self.send(Method::GET, path, request, Value::Null).await
    }

    async fn send(&self, method: Method, path: &str, mut request: reqwest::RequestBuilder, body: Value) -> Value {
        if !body.is_null() {
            request = request.header("Content-Type", "application/json").body(body.to_string());
        }
        let text = match request.send().await {
            Ok(answer) => {
                let status = answer.status();
                let text = answer.text().await.unwrap_or_default();
                if status.is_success() {
                    let mut value: Value = serde_json::from_str(&text).unwrap_or_default();
                    return if value.get("data").is_some() { value["data"].take() } else { value };
                }
                format!("{status} {text}")
            }
            Err(error) => format!("{error:?}"),
        };
        self.failures.lock().unwrap().push(format!("{method} {path}: {text}"));
        Value::Null
    }
}

/// Places orders, reads them in every way, and cancels some.
async fn order(caller: &Caller, shop: &Shop, key: &str) {
    let body =
        |reference: String| json!({"product_id": shop.product, "denomination": 10, "quantity": 1, "client_reference": reference});
    let placed = caller.client(Method::POST, "/orders", body(key.to_owned())).await;
    let id = &placed["id"];
    caller.client(Method::GET, &format!("/orders/{id}"), Value::Null).await;
    caller.client(Method::GET, &format!("/orders/{id}/vouchers"), Value::Null).await;
    caller.client(Method::GET, &format!("/orders?client_reference={key}"), Value::Null).await;
    for path in ["/orders?limit=3", "/orders?status=DELIVERED&limit=3", "/orders?status=CANCELLED&limit=3"] {
        caller.client(Method::GET, path, Value::Null).await;
    }
    caller.client(Method::GET, &format!("/orders?product_id={}&limit=3", shop.product), Value::Null).await;
    let waiting = json!({"product_id": shop.empty, "denomination": 10, "quantity": 1, "metadata": {"key": key}});
    let waiting = caller.client(Method::POST, "/orders", waiting).await["id"].clone();
    caller.client(Method::POST, &format!("/orders/{waiting}/cancel"), json!({"reason": "test"})).await;
    let charge = json!({"product_id": shop.product, "denomination": 10, "quantity": 3});
    caller.client(Method::POST, "/charges", charge).await;
}

/// Reads everything else that a client can read.
async fn read(caller: &Caller, shop: &Shop) {
    let wallet = shop.wallet;
    let paths = [
        "/wallets",
        &format!("/wallets/{wallet}/statement"),
        "/transactions?limit=3",
        "/transactions?type=DEBIT&limit=3",
        "/products?limit=3",
        &format!("/products/{}", shop.product),
        "/categories",
        "/webhooks",
        "/webhooks/deliveries?limit=3",
        "/webhooks/deliveries?status=pending&limit=3",
        "/webhooks/deliveries/stats",
        "/beneficiaries",
        &format!("/beneficiaries/{}", shop.beneficiary),
        "/payouts?limit=3",
    ];
    for path in paths {
        caller.client(Method::GET, path, Value::Null).await;
    }
    let moved = caller.client(Method::GET, "/transactions?limit=1", Value::Null).await;
    caller.client(Method::GET, &format!("/transactions/{}", moved["transactions"][0]["id"]), Value::Null).await;
    let sent = caller.client(Method::GET, "/webhooks/deliveries?limit=1", Value::Null).await;
    if let Some(id) = sent["deliveries"][0]["id"].as_i64() {
        caller.client(Method::GET, &format!("/webhooks/deliveries/{id}"), Value::Null).await;
    }
    caller.client(Method::GET, &format!("/webhooks/{}", shop.webhook), Value::Null).await;
    for path in ["/metrics", "/log/1/keys"] {
        caller.anyone(Method::GET, path, Value::Null).await;
    }
}

/// Does an operator's work: accounts, wallets, money, the catalogue, stock, and reads.
async fn operate(caller: &Caller, shop: &Shop, key: &str) {
    let account = caller.operator(Method::POST, "/accounts", json!({"name": key})).await["id"].clone();
    caller.operator(Method::POST, &format!("/accounts/{account}/credentials"), json!({"name": "main"})).await;
    let wallet =
        caller.operator(Method::POST, &format!("/accounts/{account}/wallets"), json!({"currency": "USD"})).await["id"].clone();
    let funding = json!({"amount": "10.00", "reference": key});
    caller.operator(Method::POST, &format!("/wallets/{wallet}/fund"), funding).await;
    let debit = json!({"amount": "1.00", "type": "DEBIT", "reason": "test"});
    caller.operator(Method::POST, &format!("/wallets/{wallet}/adjust"), debit).await;
    let category = caller.operator(Method::POST, "/categories", json!({"name": key})).await["id"].clone();
    let product = json!({"name": key, "brand": "Test", "country": "DE", "currency": "EUR", "denomination_type": "FIXED",
        "denominations": ["10.00"], "max_quantity": 100, "description": "", "terms": "", "is_active": false, "category_id": category});
    let product = caller.operator(Method::POST, "/products", product).await["id"].clone();
    let stock = json!({"denomination": "10.00", "vouchers": [{"card_number": key, "pin": "1234"}]});
    caller.operator(Method::POST, &format!("/products/{product}/vouchers"), stock).await;
    let day = chrono::Utc::now().date_naive();
    let paths = [
        "/accounts?limit=3",
        "/orders?limit=3",
        "/products?limit=3",
        "/categories?limit=3",
        "/payouts?limit=3",
        "/events?from=1&to=20",
        "/reconciliation/statements",
        &format!("/accounts/{}/users", shop.client.account_id),
        &format!("/wallets/{wallet}"),
        &format!("/wallets/{wallet}/statement"),
        &format!("/products/{product}/stock"),
        &format!("/reconciliation?from={day}T00:00:00Z&to={}T00:00:00Z", day.succ_opt().unwrap()),
    ];
    for path in paths {
        caller.operator(Method::GET, path, Value::Null).await;
    }
    let orders = caller.client(Method::GET, "/orders?limit=1", Value::Null).await;
    if let Some(id) = orders["orders"][0]["id"].as_i64() {
        caller.operator(Method::GET, &format!("/orders/{id}"), Value::Null).await;
        caller.operator(Method::GET, &format!("/orders/{id}/history"), Value::Null).await;
    }
}

/// Uses a session and refreshes it, makes a payout, maintains a webhook, and replays missed events. Returns the
/// refreshed session.
async fn pay(caller: &Caller, shop: &Shop, key: &str, session: Value) -> Value {
    caller.bearer(session["access_token"].as_str().unwrap_or_default(), "/api/v1/wallets").await;
    let refresh = json!({"refresh_token": session["refresh_token"]});
    let session = caller.anyone(Method::POST, "/auth/refresh", refresh).await;
    let payout = json!({"beneficiary_id": shop.beneficiary, "wallet_id": shop.wallet, "amount": "1.00", "client_reference": key});
    let payout = caller.client(Method::POST, "/payouts", payout).await["id"].clone();
    caller.client(Method::GET, &format!("/payouts/{payout}"), Value::Null).await;
    caller.operator(Method::PUT, &format!("/payouts/{payout}"), json!({"status": "PAID"})).await;
    let hook = json!({"name": key, "url": "https://example.com/nowhere", "events": ["order.delivered"]});
    let hook = caller.client(Method::POST, "/webhooks", hook).await["id"].clone();
    let replay = json!({"kind": "missed"});
    caller.operator(Method::POST, &format!("/webhooks/{hook}/replays"), replay).await;
    caller.operator(Method::GET, &format!("/webhooks/{hook}/replays"), Value::Null).await;
    caller.client(Method::PUT, &format!("/webhooks/{hook}"), json!({"is_active": false})).await;
    caller.client(Method::DELETE, &format!("/webhooks/{hook}"), Value::Null).await;
    session
}
