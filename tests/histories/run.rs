//! A run: clients that work through their plans, and faults that strike meanwhile. Then the history is judged.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ledger_database::PgConnectOptions;
use rewards_ledger::audit::verify;
use serde_json::json;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::faults::{Database, Fault, Harm, Node, schedule};
use super::history::{self, Heading, Operation, Recorder, Request};
use super::load::{ACTIONS, Account, Action, CLIENTS, Shared, WALLETS, plan};
use super::wallet::judge;
use crate::support::clock::skewed;
use crate::support::postgres;
use crate::support::program::{Client, NODE_LISTEN, Program};
use crate::support::proxy::Proxy;
use crate::support::replicas::Pair;
use crate::support::wait::until;

/// Vouchers in stock, more than all clients together order.
const STOCK: usize = 2_000;
/// First funding of each wallet, in cents.
const OPENING: i64 = 10_000;

/// A load and its faults, on nodes that run.
pub struct Run {
    name: &'static str,
    seed: u64,
    faults: Vec<Fault>,
    database: Database,
    nodes: Vec<Node>,
    shared: Arc<Shared>,
}

/// Starts nodes on one server whose clock can be moved. One leads, and the others hand their orders to it.
pub async fn on_one_server(count: usize, seed: u64, harms: &[Harm]) -> Run {
    let server = postgres::own_server(true).await;
    let options: PgConnectOptions = server.url().parse().unwrap();
    rewards_ledger::ledger::migrate(&options).await.unwrap();
    skewed(&options).await;
    set_search_path(&server.url(), "SET search_path = skewed, pg_catalog, public").await;
    let mut nodes = vec![];
    for _ in 0..count {
        let (proxy, through) = Proxy::before(&server.url()).await;
        let program = Program::start(through.hosts()[0].to_url_lossy().as_str(), &NODE_LISTEN).await;
        nodes.push(Node { program, proxies: vec![proxy] });
    }
    let shared = shared(&nodes, vec![false; count]).await;
    let (name, faults) = ("nodes on one server", schedule(seed, harms, count));
    Run { name, seed, faults, database: Database::One(Box::new(server)), nodes, shared }
}

/// Starts nodes on a primary with a synchronous standby. The last node reads lists from the standby. One node leads, and the
/// others hand their orders to it.
pub async fn on_a_pair(count: usize, seed: u64, harms: &[Harm]) -> Run {
    let pair = Pair::start().await;
    let ports = [pair.primary_port(), pair.standby_port()];
    let mut nodes = vec![];
    for number in 0..count {
        let (mut url, mut proxies) = (pair.url("read-write"), vec![]);
        for port in ports {
            let proxy = Proxy::before_port(port).await;
            url = url.replace(&format!(":{port}"), &format!(":{}", proxy.address.port()));
            proxies.push(proxy);
        }
        let standby = pair.standby_url();
        let mut arguments = NODE_LISTEN.to_vec();
        if number == count - 1 {
            arguments.extend(["--read-url", &standby]);
        }
        nodes.push(Node { program: Program::start(&url, &arguments).await, proxies });
    }
    let shared = shared(&nodes, (0..count).map(|number| number == count - 1).collect()).await;
    let (name, faults) = ("nodes across failovers", schedule(seed, harms, count));
    Run { name, seed, faults, database: Database::Pair(Box::new(pair)), nodes, shared }
}

/// Changes the path on which later connections look up functions, such as the clock.
async fn set_search_path(url: &str, change: &str) {
    let mut admin = PgConnection::connect(url).await.unwrap();
    let name: String = sqlx::query_scalar("SELECT quote_ident(current_database())").fetch_one(&mut admin).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("ALTER DATABASE {name} {change}"))).execute(&mut admin).await.unwrap();
    admin.close().await.unwrap();
}

/// Creates the products, and the accounts with their first fundings.
async fn shared(nodes: &[Node], on_standby: Vec<bool>) -> Arc<Shared> {
    let node = &nodes[0].program;
    let mut accounts = vec![];
    for _ in 0..WALLETS {
        let account_id = node.operator("/accounts", json!({"name": "Test"})).await["id"].as_i64().unwrap();
        let credential = node.operator(&format!("/accounts/{account_id}/credentials"), json!({"name": "test"})).await;
        let wallet = node.operator(&format!("/accounts/{account_id}/wallets"), json!({"currency": "EUR"})).await;
        let text = |name: &str| credential[name].as_str().unwrap().to_owned();
        let (key, secret) = (text("api_key"), text("api_secret"));
        let client = Client { account_id, credential_id: credential["id"].as_i64().unwrap(), key, secret };
        let known = Mutex::new(HashMap::new());
        accounts.push(Account { client, wallet_id: wallet["id"].as_i64().unwrap(), known });
    }
    let shared = Arc::new(Shared {
        accounts,
        products: [node.product(0).await, node.product(STOCK).await],
        urls: Mutex::new(nodes.iter().map(|node| Some(node.program.url())).collect()),
        on_standby,
        positions: (0..CLIENTS).map(|_| Mutex::default()).collect(),
        recorder: Recorder::default(),
        http: reqwest::Client::new(),
    });
    for wallet in 0..WALLETS {
        let request = Request::Fund { reference: format!("opening {wallet}"), amount: OPENING };
        shared.act(wallet, &Action { request, node: 0, is_patient: true, has_position: false, again: None }).await;
    }
    shared
}

impl Run {
    /// Runs the load beside the faults, judges the history, and lets `verify` compare the tables with the log. Returns the
    /// history.
    pub async fn judged(mut self) -> Vec<Operation> {
        let (name, seed) = (format!("{} {}", self.nodes.len(), self.name), self.seed);
        println!("{name} with LEDGER_HISTORY_SEED={seed}");
        let began = Instant::now();
        let survived = self.survive().await;
        let took = began.elapsed();
        let operations = self.shared.recorder.operations();
        let unknown = operations.iter().filter(|operation| operation.answered.is_none()).count();
        let about = format!("{name}, seed {seed}: {} operations, {unknown} with an unknown outcome", operations.len());
        // Kept before it is judged, so that a search that gives up leaves it, too.
        let path = std::env::temp_dir().join(format!("history-{}-{seed}.jsonl", self.nodes.len()));
        history::write(&path, &Heading { about: about.clone(), is_linearizable: false }, &operations);
        let told = format!("LEDGER_HISTORY_SEED={seed} repeats the load and the order of the faults {:?}", self.faults);
        let places = format!("{told}; the history is in {}", path.display());
        survived.unwrap_or_else(|error| panic!("{error}. {places}"));
        let states = judge(&operations).unwrap_or_else(|why| panic!("{why}\n{places}"));
        println!(
            "{about}, {} faults in {:.1} s; linearizable, {states} states in {:.1} s",
            self.faults.len(),
            took.as_secs_f64(),
            (began.elapsed() - took).as_secs_f64()
        );
        self.verify().await.unwrap_or_else(|why| panic!("{why}. {places}"));
        std::fs::remove_file(&path).unwrap();
        operations
    }

    /// Lets the clients work through their plans. A fault strikes in each phase but the last.
    async fn survive(&mut self) -> Result<(), String> {
        let (open, done) = (watch::Sender::new(0), Arc::<AtomicUsize>::default());
        let plans = plan(self.seed, self.faults.len() + 1, self.nodes.len());
        let clients: Vec<JoinHandle<()>> = plans
            .into_iter()
            .enumerate()
            .map(|(client, plan)| {
                let (shared, mut open, done) = (self.shared.clone(), open.subscribe(), done.clone());
                tokio::spawn(async move {
                    for (number, action) in plan.iter().enumerate() {
                        _ = open.wait_for(|phases| *phases > number / ACTIONS).await;
                        shared.act(client, action).await;
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        for (number, fault) in self.faults.iter().enumerate() {
            open.send_replace(number + 1);
            // Requests are in flight when the fault strikes.
            let enough = number * CLIENTS * ACTIONS + CLIENTS * ACTIONS / 3;
            let has_failed = || clients.iter().any(JoinHandle::is_finished);
            until("the clients make progress", async || has_failed() || done.load(Ordering::SeqCst) >= enough).await;
            if has_failed() {
                return Err("a client has met an error".to_owned());
            }
            let struck = Instant::now();
            fault.strike(&mut self.database, &mut self.nodes, &self.shared).await;
            println!("{:>2} {:?} at node {}: {:.1} s", number + 1, fault.harm, fault.node, struck.elapsed().as_secs_f64());
        }
        open.send_replace(self.faults.len() + 1);
        for client in clients {
            client.await.map_err(|_| "a client has met an error")?;
        }
        // The last reads show whether everything that was acknowledged is there.
        for (client, node) in (0..WALLETS).flat_map(|client| (0..self.nodes.len()).map(move |node| (client, node))) {
            for request in [Request::Balance, Request::Orders] {
                self.shared.act(client, &Action { request, node, is_patient: true, has_position: false, again: None }).await;
            }
        }
        Ok(())
    }

    /// Ends the nodes and compares the tables with the log.
    async fn verify(self) -> Result<(), String> {
        drop(self.nodes);
        let url = match &self.database {
            Database::One(server) => server.url(),
            Database::Pair(pair) => pair.primary_url(),
        };
        set_search_path(&url, "RESET search_path").await;
        let report = verify(&url.parse().unwrap(), |_| {}).await.map_err(|error| format!("verify: {error:?}"))?;
        if let Database::One(server) = self.database {
            server.stop().await.unwrap();
        }
        if report.is_clean() { Ok(()) } else { Err(format!("verify: {:#?}", report.differences)) }
    }
}
