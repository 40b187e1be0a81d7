//! Two nodes on one database, of which one leads the shard, and a client who knows what it has ordered.

use std::collections::HashSet;
use std::time::Duration;

use rust_decimal::Decimal;
use serde_json::{Value, json};
use sqlx::PgPool;
use uuid::Uuid;

use crate::support::postgres::{self, TestDatabase};
use crate::support::program::{Client, DEADLINE, NODE_LISTEN, Program, run};
use crate::support::wait::until;

/// Money of each account at first.
const FUNDS: i64 = 1_000_000;
/// Price of each order.
const PRICE: i64 = 10;
/// Pause of a client before it repeats a request.
pub const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Header of the position that the log has reached.
const POSITION: &str = "X-Log-Position";

/// A complete answer to a client.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub text: String,
    /// Whether it was stored under an idempotency key before.
    pub is_replay: bool,
    /// Position that the log has reached, in the answer to a change.
    pub position: Option<String>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// Returns the error's code, or an empty text if it is no error.
    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns the id of the order that it shows.
    #[track_caller]
    pub fn order(&self) -> i64 {
        assert!(matches!(self.status, 200 | 201), "{self:?}");
        self.json()["data"]["id"].as_i64().unwrap()
    }
}

/// A client of an account. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Caller {
    http: reqwest::Client,
    client: Client,
}

impl Caller {
    pub fn new(client: Client) -> Caller {
        Caller { http: reqwest::Client::builder().timeout(DEADLINE).build().unwrap(), client }
    }

    /// Reads a path, from this position of the log on if there is one.
    pub async fn get(&self, url: &str, path: &str, position: Option<&str>) -> Answer {
        let request = self.http.get(format!("{url}/api/v1{path}"));
        let request = position.into_iter().fold(request, |request, at| request.header(POSITION, at));
        self.answer(request).await.unwrap()
    }

    pub async fn post(&self, url: &str, path: &str, key: Option<&str>, body: &Value) -> Result<Answer, reqwest::Error> {
        let request = self.http.post(format!("{url}/api/v1{path}"));
        let request = key.into_iter().fold(request, |request, key| request.header("Idempotency-Key", key));
        self.answer(request.header("Content-Type", "application/json").body(body.to_string())).await
    }

    pub async fn order(&self, url: &str, key: Option<&str>, body: &Value) -> Result<Answer, reqwest::Error> {
        self.post(url, "/orders", key, body).await
    }

    /// Repeats an order under its key until it is placed. Any other answer than a temporary refusal is a fault.
    pub async fn insist(&self, url: &str, key: &str, body: &Value) -> Answer {
        let placed = tokio::time::timeout(DEADLINE, async {
            loop {
                match self.order(url, Some(key), body).await {
                    Ok(answer) if answer.status == 201 => return answer,
                    Ok(Answer { status: 409 | 503 | 504, .. }) | Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
                    Ok(answer) => panic!("{key}: {answer:?}"),
                }
            }
        });
        placed.await.expect("in time")
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> Result<Answer, reqwest::Error> {
        let request = request.header("X-API-Key", &self.client.key).header("X-API-Secret", &self.client.secret);
        let answer = request.send().await?;
        let header = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let (status, is_replay, position) = (answer.status().as_u16(), header("Idempotent-Replayed").is_some(), header(POSITION));
        Ok(Answer { status, text: answer.text().await?, is_replay, position })
    }
}

/// Two nodes on one database. They end with this value.
#[derive(Debug)]
pub struct Scene {
    pub nodes: [Program; 2],
    pub caller: Caller,
    /// Product without stock.
    pub product: i64,
    pub pool: PgPool,
    pub database: TestDatabase,
    /// Client whose orders only show which way they take.
    scout: Caller,
}

impl Scene {
    /// Starts two nodes that only answer requests. So each command is one of a client.
    pub async fn of_apis() -> Scene {
        let arguments = [&["--roles", "api"][..], &NODE_LISTEN].concat();
        Scene::start([&arguments, &arguments]).await
    }

    /// Starts a node with each of these arguments. The first node leads the shard, and the second one hands its orders over.
    pub async fn start(arguments: [&[&str]; 2]) -> Scene {
        let database = postgres::database().await;
        let pool = PgPool::connect(&database.url).await.unwrap();
        let first = Program::start(&database.url, arguments[0]).await;
        until("the first node leads the shard", async || leads(&first).await).await;
        let second = Program::start(&database.url, arguments[1]).await;
        let funds = format!("{FUNDS}.00");
        let (caller, scout) = (Caller::new(first.client(&funds).await), Caller::new(first.client(&funds).await));
        let product = first.product(0).await;
        let scene = Scene { nodes: [first, second], caller, product, pool, database, scout };
        scene.leader().await;
        scene
    }

    /// Returns the number of the node that leads the shard, once the other one hands its orders over. A pause of the machine may
    /// change which one leads.
    pub async fn leader(&self) -> usize {
        let mut leader = 0;
        until("one node hands its orders to the other one", async || {
            let [first, second] = [leads(&self.nodes[0]).await, leads(&self.nodes[1]).await];
            leader = usize::from(second);
            if first == second {
                return false;
            }
            let other = &self.nodes[1 - leader];
            let before = handed_over(other, "answered").await;
            let scouted = self.scout.order(&other.url(), None, &self.body()).await.unwrap();
            assert_eq!(scouted.status, 201, "{scouted:?}");
            handed_over(other, "answered").await > before
        })
        .await;
        leader
    }

    /// Returns the body of an order for one unit.
    pub fn body(&self) -> Value {
        json!({"product_id": self.product, "denomination": PRICE, "quantity": 1})
    }

    /// Returns the number of commands that the nodes have handed over with this outcome.
    pub async fn handed_over(&self, outcome: &str) -> u64 {
        handed_over(&self.nodes[0], outcome).await + handed_over(&self.nodes[1], outcome).await
    }

    /// Returns the id of the node that took the lease of the shard last, even if the lease has expired.
    pub async fn holder(&self) -> Option<Uuid> {
        sqlx::query_scalar("SELECT node_id FROM shard_leaders WHERE shard_id = 1").fetch_optional(&self.pool).await.unwrap()
    }

    /// Returns the URL of the leader's listener for nodes.
    pub async fn leader_url(&self) -> String {
        let url: String =
            sqlx::query_scalar("SELECT url FROM shard_leaders WHERE shard_id = 1").fetch_one(&self.pool).await.unwrap();
        url.trim_end_matches('/').to_owned()
    }

    /// Returns the position of the log head.
    pub async fn head(&self) -> i64 {
        sqlx::query_scalar("SELECT position FROM log_head WHERE shard_id = 1").fetch_one(&self.pool).await.unwrap()
    }

    /// Checks that the client has exactly these orders, that its wallet adds up, and that the tables agree with the log.
    pub async fn check(&self, orders: &[i64]) {
        let account = self.caller.client.account_id;
        let acknowledged: HashSet<i64> = orders.iter().copied().collect();
        assert_eq!(acknowledged.len(), orders.len(), "no two keys got the same order");
        let placed: Vec<i64> = sqlx::query_scalar(
            "SELECT e.stream_id FROM events e JOIN orders o ON o.id = e.stream_id
             WHERE e.type = 'OrderPlaced' AND o.account_id = $1",
        )
        .bind(account)
        .fetch_all(&self.pool)
        .await
        .unwrap();
        assert_eq!(placed.len(), acknowledged.len(), "as many orders were placed as acknowledged");
        assert_eq!(placed.into_iter().collect::<HashSet<_>>(), acknowledged);
        let rest = Decimal::from(FUNDS - PRICE * i64::try_from(orders.len()).unwrap());
        let found: (Decimal, Decimal) = sqlx::query_as(
            "SELECT w.balance, (SELECT sum(CASE type WHEN 'CREDIT' THEN amount ELSE -amount END) FROM wallet_transactions t
                WHERE t.wallet_id = w.id) FROM wallets w WHERE w.account_id = $1",
        )
        .bind(account)
        .fetch_one(&self.pool)
        .await
        .unwrap();
        assert_eq!(found, (rest, rest), "balance and movements of the wallet");
        let verified = run(self.nodes[0].command().arg("verify")).await;
        let (told, said) = (String::from_utf8_lossy(&verified.stdout), String::from_utf8_lossy(&verified.stderr));
        assert!(verified.status.success(), "{told}{said}");
    }
}

/// Returns whether a node leads the shard. A dead one does not.
pub async fn leads(node: &Program) -> bool {
    matches!(metric(node, "ledger_leads", "shard=\"1\"").await, Ok(1))
}

/// Returns the number of commands that a node has handed over with this outcome.
pub async fn handed_over(node: &Program, outcome: &str) -> u64 {
    metric(node, "ledger_handed_over_total", &format!("outcome=\"{outcome}\"")).await.unwrap()
}

/// Returns the sum of a metric over its series with this label, which is 0 without one.
pub async fn metric(node: &Program, name: &str, label: &str) -> Result<u64, reqwest::Error> {
    let text = reqwest::get(format!("{}/metrics", node.url())).await?.text().await?;
    let series = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
    let values = series.filter(|rest| rest.contains(label)).map(|rest| rest.rsplit_once(' ').unwrap().1);
    Ok(values.map(|value| value.parse::<u64>().unwrap()).sum())
}
