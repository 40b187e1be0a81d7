//! A node of the service in this process: the API on a loopback port, with a separate database.

mod people;

use std::sync::Arc;
use std::time::Duration;

use ledger_database::PgConnectOptions;
use ledger_events::approval::ApprovalLimits;
use ledger_events::{OrderId, ShardId, UserId};
use reqwest::{Method, RequestBuilder};
use rewards_ledger::access::Sessions;
use rewards_ledger::access::open_id::{OpenId, OpenIdSettings};
use rewards_ledger::access::rate_limits::RateLimits;
use rewards_ledger::api::{self, Surface};
use rewards_ledger::delivery::retention::RetentionSettings;
use rewards_ledger::fulfilment::supply::Notices;
use rewards_ledger::ledger::erasure::Subject;
use rewards_ledger::ledger::feed::FeedWaiters;
use rewards_ledger::ledger::projector::{ProjectionStep, Projector};
use rewards_ledger::ledger::{FIRST_SHARD, Ledger, Origin, commands, eraser};
use rewards_ledger::node::serving::{self, ApiSettings, Connections, Ending, Served};
use rewards_ledger::pages::PageSettings;
use rewards_ledger::secrets::seal::{Secret, random_secret};
use rewards_ledger::telemetry::Metrics;
use rewards_ledger::telemetry::traces::{TraceSettings, Traces};
use rewards_ledger::transparency::PublicLog;
use serde_json::{Value, json};
use sqlx::PgConnection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::documented;
use super::ledger::{execute, keyring, run};
use super::postgres::{self, TestDatabase};
use super::proxy::Proxy;
use super::tree::{self, Tree};

pub use people::{Client, ConsoleUser, PASSWORD, Setup, User};

/// A running node, which ends when this value is dropped.
#[derive(Debug)]
pub struct Node {
    pub ledger: Ledger,
    pub options: PgConnectOptions,
    pub metrics: Metrics,
    pub sessions: Sessions,
    pub public_log: PublicLog,
    pub feed: FeedWaiters,
    /// Ends the waits for events, as a stop of the node does.
    pub stopping: CancellationToken,
    url: String,
    token: Secret,
    http: reqwest::Client,
    server: AbortHandle,
    projector: Projector,
    is_sandbox: bool,
    /// `None` for a second node on the database of another one.
    _database: Option<TestDatabase>,
}

/// Limits higher than any test needs that is not about limits.
pub const AMPLE_LIMITS: &str = "orders=1000000/60s,images=1000000/60s,general=1000000/1h,login=1000000/60s,refresh=1000000/60s,portal=1000000/1h,\
    password-reset=1000000/1h,security=1000000/1h,user-login=1000000/1h,reset-mail=1000000/1h,operator=1000000/60s,openid=1000000/60s,\
    notices=1000000/60s";

impl Drop for Node {
    fn drop(&mut self) {
        self.server.abort();
        self.ledger.wake().stop();
    }
}

/// A complete HTTP response.
#[derive(Debug)]
pub struct TestResponse {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl TestResponse {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {} {}", self.status, self.text))
    }

    /// Returns the `data` of a response, which must have this status.
    #[track_caller]
    pub fn data(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        let mut body = self.json();
        assert_eq!(body["success"], true, "{body}");
        body["data"].take()
    }

    /// Returns the error of a response, which must have this status and code.
    #[track_caller]
    pub fn refused(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        let mut body = self.json();
        assert_eq!(body["error"]["code"], code, "{body}");
        body["error"].take()
    }

    /// Returns the first cookie that the response sets, as a browser sends it back.
    pub fn cookie(&self) -> String {
        self.header("set-cookie").split(';').next().unwrap().to_owned()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// Properties of a node that most tests leave as they are.
struct Options {
    limits: RateLimits,
    is_sandbox: bool,
    /// Identity provider of the operators' users.
    issuer: Option<String>,
    approval_limits: ApprovalLimits,
    traces: Traces,
    notices: Notices,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limits: AMPLE_LIMITS.parse().unwrap(),
            is_sandbox: false,
            issuer: None,
            approval_limits: ApprovalLimits::default(),
            traces: Traces::default(),
            notices: Notices::default(),
        }
    }
}

impl Node {
    pub async fn start() -> Node {
        Node::on_its_own(Options::default()).await
    }

    /// Starts a node that exports this share of its traces.
    pub async fn tracing(endpoint: String, sample: f64) -> Node {
        let traces = Traces::start(&TraceSettings { endpoint, ca_pem: None, sample }).unwrap();
        Node::on_its_own(Options { traces, ..Options::default() }).await
    }

    /// Starts a node with these rate limits.
    pub async fn with_limits(limits: RateLimits) -> Node {
        Node::on_its_own(Options { limits, ..Options::default() }).await
    }

    /// Starts a node whose operators sign in with this identity provider.
    pub async fn with_provider(issuer: &str) -> Node {
        Node::on_its_own(Options { issuer: Some(issuer.to_owned()), ..Options::default() }).await
    }

    /// Starts a node on which a second operator must approve movements above these amounts.
    pub async fn supervised(approval_limits: &str) -> Node {
        Node::on_its_own(Options { approval_limits: approval_limits.parse().unwrap(), ..Options::default() }).await
    }

    /// Starts a sandbox node, which has additional routes.
    pub async fn sandbox() -> Node {
        Node::on_its_own(Options { is_sandbox: true, ..Options::default() }).await
    }

    /// Starts a sandbox node on which a second operator must approve movements above these amounts.
    pub async fn supervised_sandbox(approval_limits: &str) -> Node {
        let approval_limits = approval_limits.parse().unwrap();
        Node::on_its_own(Options { is_sandbox: true, approval_limits, ..Options::default() }).await
    }

    /// Starts a sandbox node whose database connections all go through a proxy.
    pub async fn sandbox_behind_a_proxy() -> (Node, Proxy) {
        let database = postgres::database().await;
        let (proxy, options) = Proxy::before(&database.url).await;
        (Node::on(Some(database), options, Options { is_sandbox: true, ..Options::default() }).await, proxy)
    }

    /// Starts another node of the same kind on the same database.
    pub async fn beside(&self, limits: RateLimits) -> Node {
        Node::on(None, self.options.clone(), Options { limits, is_sandbox: self.is_sandbox, ..Options::default() }).await
    }

    /// Adds a second shard, and starts another node, which has seen both since its start.
    pub async fn beside_with_two_shards(&self) -> Node {
        run(&self.ledger, commands::AddShard { shard_id: 2 }).await;
        self.beside(AMPLE_LIMITS.parse().unwrap()).await
    }

    /// Creates an account with a wallet in a shard. Returns its client.
    pub async fn client_in(&self, shard: ShardId) -> Client {
        let account = self.operator("POST", "/accounts", json!({"name": "Acme", "shard_id": shard})).await.data(201);
        let client = self.credential(account["id"].as_i64().unwrap()).await;
        self.wallet(client.account_id).await;
        client
    }

    /// Starts a node on an existing database that accepts the notices of these suppliers.
    pub async fn accepting(options: &PgConnectOptions, notices: Notices) -> Node {
        Node::on(None, options.clone(), Options { notices, ..Options::default() }).await
    }

    /// Starts a node whose database connections all go through a proxy.
    pub async fn behind_a_proxy() -> (Node, Proxy) {
        let database = postgres::database().await;
        let (proxy, options) = Proxy::before(&database.url).await;
        (Node::on(Some(database), options, Options::default()).await, proxy)
    }

    async fn on_its_own(wanted: Options) -> Node {
        let database = postgres::database().await;
        let options = database.url.parse().unwrap();
        Node::on(Some(database), options, wanted).await
    }

    async fn on(database: Option<TestDatabase>, options: PgConnectOptions, wanted: Options) -> Node {
        let Options { limits, is_sandbox, issuer, approval_limits, traces, notices } = wanted;
        let keyring = keyring();
        let metrics = Metrics::with_traces(traces);
        let tasks = TaskTracker::new();
        let ledger = Ledger::open(&options, keyring.clone(), metrics.clone(), &tasks).await.unwrap();
        let token = random_secret();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let public_log = PublicLog { witnesses: [tree::witness(1), tree::witness(2)].into() };
        let stopping = CancellationToken::new();
        let settings = ApiSettings {
            rate_limits: limits,
            lifecycle: api::Lifecycle::default(),
            trusted_proxies: Arc::new(["127.0.0.1/32".parse().unwrap()]),
            public_url: url.as_str().into(),
            console_url: url.as_str().into(),
            portal_url: url.as_str().into(),
            open_id: issuer.map(|issuer| OpenId::new(open_id_settings(&issuer, &url), keyring.clone()).unwrap()),
            is_sandbox,
            shows_outbox: is_sandbox,
            public_log: public_log.clone(),
            approval_limits,
            notices,
            operator_token: Some(token.clone()),
            retention: RetentionSettings {
                attempts: Duration::from_secs(90 * 86_400),
                payloads: Duration::from_secs(30 * 86_400),
                response_bodies: 16 << 20,
            },
            ending: Ending { stopping: stopping.clone(), ..Ending::default() },
        };
        let state = serving::api_state(&ledger, &options, keyring, metrics.clone(), settings, &tasks);
        let (sessions, feed) = (state.sessions.clone(), state.feed.clone());
        let pages = PageSettings { has_open_id: state.open_id.is_some(), ..PageSettings::default() };
        let connections = Connections { total: 8_192, per_address: 8_192 };
        let served = serving::serve(
            listener,
            Served { surface: Surface::Whole, pages: Some(pages) },
            state,
            connections,
            CancellationToken::new(),
        );
        let server = tokio::spawn(served).abort_handle();
        let http = reqwest::Client::new();
        let projector = Projector::new(&ledger, &options, metrics.clone());
        Node {
            ledger,
            options,
            metrics,
            sessions,
            public_log,
            feed,
            stopping,
            url,
            token,
            http,
            server,
            projector,
            is_sandbox,
            _database: database,
        }
    }

    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method: Method = method.parse().unwrap();
        self.http.request(method, format!("{}{path}", self.url))
    }

    /// Sends a request with exactly this target, these headers and this body.
    pub async fn raw(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> TestResponse {
        let mut stream = TcpStream::connect(self.url.trim_start_matches("http://")).await.unwrap();
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let head = format!("{method} {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{length}{headers}\r\n");
        stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, text) = answer.split_once("\r\n\r\n").unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.parse::<reqwest::header::HeaderName>().unwrap(), value.parse().unwrap())
        });
        let answer = TestResponse { status, headers: headers.collect(), text: text.to_owned() };
        documented::check(method, target, &answer);
        answer
    }

    pub async fn send(&self, request: RequestBuilder) -> TestResponse {
        let request = request.build().unwrap();
        let (method, path) = (request.method().clone(), request.url().path().to_owned());
        let response = self.http.execute(request).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.unwrap();
        let answer = TestResponse { status, headers, text };
        documented::check(method.as_str(), &path, &answer);
        answer
    }

    /// Sends a request as the admin of the configuration.
    pub async fn operator(&self, method: &str, path: &str, body: Value) -> TestResponse {
        self.operator_with(&self.token, method, path, body).await
    }

    pub async fn operator_with(&self, token: &Secret, method: &str, path: &str, body: Value) -> TestResponse {
        let request = self.request(method, &format!("/admin/v1{path}")).bearer_auth(token.expose());
        self.send(with_json(request, &body)).await
    }

    /// Builds an operator's request, to which a body can be added.
    pub fn by_operator(&self, method: &str, path: &str) -> RequestBuilder {
        self.request(method, &format!("/admin/v1{path}")).bearer_auth(self.token.expose())
    }

    /// Builds a client's request, to which a body or headers can be added.
    pub fn by(&self, client: &Client, method: &str, path: &str) -> RequestBuilder {
        let request = self.request(method, &format!("/api/v1{path}"));
        request.header("X-API-Key", &client.key).header("X-API-Secret", &client.secret)
    }

    /// Sends a client's request. A null body means no body.
    pub async fn client(&self, client: &Client, method: &str, path: &str, body: Value) -> TestResponse {
        self.send(with_json(self.by(client, method, path), &body)).await
    }

    /// Sends a client's request with this exact body and an idempotency key.
    pub async fn keyed(&self, client: &Client, path: &str, key: &str, body: &Value) -> TestResponse {
        self.send(with_json(self.by(client, "POST", path).header("Idempotency-Key", key), body)).await
    }

    /// Sends a request with an access token, to any path.
    pub async fn bearer(&self, token: &str, method: &str, path: &str, body: Value) -> TestResponse {
        self.send(with_json(self.request(method, path).bearer_auth(token), &body)).await
    }

    /// Sends a request with a portal cookie, from a page of this origin.
    pub async fn portal(&self, cookie: &str, origin: &str, method: &str, path: &str, body: Value) -> TestResponse {
        let request = self.request(method, path).header("Cookie", cookie).header("Origin", origin);
        self.send(with_json(request, &body)).await
    }

    /// Sends a request without credentials.
    pub async fn anyone(&self, method: &str, path: &str, body: Value) -> TestResponse {
        self.send(with_json(self.request(method, path), &body)).await
    }

    /// Returns the URL of the node, which is the origin of its portal.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Connects as superuser.
    pub async fn admin(&self) -> PgConnection {
        self.options.connect().await.unwrap()
    }

    /// Returns the position of the log head.
    pub async fn head(&self) -> i64 {
        rewards_ledger::ledger::reader::head(self.ledger.pool(), FIRST_SHARD).await.unwrap()
    }

    /// Makes the deliveries and the daily totals of everything in the log.
    pub async fn project(&self) {
        let projector = &self.projector;
        while projector.step(FIRST_SHARD).await.unwrap() != ProjectionStep::Idle {}
        while projector.total(FIRST_SHARD).await.unwrap() != ProjectionStep::Idle {}
        _ = projector.watch(FIRST_SHARD).await.unwrap();
        while projector.watch(FIRST_SHARD).await.unwrap() != ProjectionStep::Idle {}
        _ = projector.stock(FIRST_SHARD).await.unwrap();
        while projector.stock(FIRST_SHARD).await.unwrap() != ProjectionStep::Idle {}
    }

    /// Grows and signs the tree over everything in the log.
    pub async fn publish(&self) -> Tree {
        let tree = Tree::of(&self.ledger, &self.options, &self.metrics);
        tree.grow().await;
        tree
    }

    /// Erases a user. The tables stay to be rewritten.
    pub async fn erase_user(&self, id: i64) {
        let origin = Origin { actor: ledger_events::Actor::Operator(0), request_id: "erase".to_owned() };
        let (subject, reason) = (Subject::User(UserId(id)), Secret::new("they asked for it"));
        eraser::erase(&self.ledger, subject, &reason, &origin, |_| {}).await.unwrap();
    }

    /// Runs fulfilment for one order.
    pub async fn fulfil(&self, order_id: i64) {
        let origin = Origin { actor: ledger_events::Actor::Fulfilment, request_id: "fulfilment".to_owned() };
        execute(&self.ledger, commands::FulfilOrder { order_id: OrderId(order_id) }, origin).await.unwrap();
    }
}

/// Client id and secret of the nodes at an identity provider.
pub const OPEN_ID_CLIENT: (&str, &str) = ("console", "the secret of the console at its provider");

fn open_id_settings(issuer: &str, url: &str) -> OpenIdSettings {
    OpenIdSettings {
        issuer: issuer.to_owned(),
        client_id: OPEN_ID_CLIENT.0.to_owned(),
        client_secret: Some(Secret::new(OPEN_ID_CLIENT.1)),
        role_claim: "rewards_ledger_role".to_owned(),
        ca_pem: None,
        console_url: url.to_owned(),
    }
}

/// Builds a product in EUR with the face values 10.00 and 25.00, and at most 5 units per order.
pub fn product(name: &str) -> Value {
    json!({
        "name": name, "brand": "Acme", "country": "DE", "currency": "EUR", "denomination_type": "FIXED",
        "denominations": ["10.00", "25.00"], "max_quantity": 5
    })
}

fn with_json(request: RequestBuilder, body: &Value) -> RequestBuilder {
    match body {
        Value::Null => request,
        body => request.header("Content-Type", "application/json").body(body.to_string()),
    }
}
