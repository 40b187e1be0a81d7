//! Concurrent clients of some wallets. A plan says who sends what to which node; it depends on nothing but a seed.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};

use super::history::{Operation, Place, Recorder, Refusal, Request, Response, Seen, Status};
use crate::support::program::{Client, OPERATOR_TOKEN};
use crate::support::random::Random;

pub const WALLETS: usize = 2;
pub const CLIENTS: usize = 8;
/// Actions of each client between two faults.
pub const ACTIONS: usize = 6;
/// Price of one unit, in cents.
const UNIT: i64 = 1_000;
/// Orders of a wallet that one page of the list shows.
const MAX_ORDERS: u32 = 100;
/// Attempts until a client gives up an action whose outcome stays unknown.
const MAX_ATTEMPTS: usize = 6;
/// Time that an impatient client waits for an answer, and a patient one. The latter is longer than any deadline of a node.
const PATIENCE: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(20)];
/// Header of the position that the log has reached.
const POSITION: &str = "X-Log-Position";
/// Pause of a client before it sends a request again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// A request, and what follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    pub request: Request,
    /// Node that gets the first attempt. Each further one goes to the next node.
    pub node: usize,
    /// Whether the first attempt of a request may take long. Further ones always may.
    pub is_patient: bool,
    /// Whether a read on a standby carries the position of the client's last change.
    pub has_position: bool,
    /// Request that follows the answer.
    pub again: Option<Request>,
}

/// Returns the actions of each client: as many as a phase has, for each phase.
pub fn plan(seed: u64, phases: usize, nodes: usize) -> Vec<Vec<Action>> {
    let mut random = Random(seed);
    let mut plans = vec![vec![]; CLIENTS];
    let mut numbers = [0; WALLETS];
    for _ in 0..phases * ACTIONS {
        let mut latest: [Option<Action>; WALLETS] = [const { None }; WALLETS];
        for (client, plan) in plans.iter_mut().enumerate() {
            let wallet = client % WALLETS;
            // Sometimes two clients send one request at the same time, to different nodes.
            let twin = latest[wallet].take().filter(|twin| twin.request.is_repeatable() && random.percent(25));
            let action = match twin {
                Some(twin) => Action { node: (twin.node + 1) % nodes, ..twin },
                None => action(&mut random, &mut numbers[wallet], wallet, nodes),
            };
            latest[wallet] = Some(action.clone());
            plan.push(action);
        }
    }
    plans
}

fn action(random: &mut Random, numbers: &mut u32, wallet: usize, nodes: usize) -> Action {
    let (node, is_patient, has_position) = (random.below(nodes), !random.percent(20), random.percent(50));
    // Mostly a recent order.
    let recent = |random: &mut Random| numbers.saturating_sub(random.below(8) as u32);
    let (request, again) = match random.below(100) {
        0..40 if *numbers < MAX_ORDERS => {
            *numbers += 1;
            place(random, *numbers)
        }
        0..55 => {
            let key = random.percent(50).then(|| format!("cancel {}", random.below(3)));
            let request = Request::Cancel { number: recent(random).max(1), key };
            (request.clone(), random.percent(30).then_some(request))
        }
        55..70 => {
            let reference = format!("{wallet} {}", random.0);
            let fund = |amount| Request::Fund { reference: reference.clone(), amount };
            let again = [None, Some(fund(3 * UNIT)), Some(fund(5 * UNIT))];
            (fund(3 * UNIT), again[random.below(3)].clone())
        }
        70..82 => (Request::Balance, None),
        82..90 => (Request::Order { number: recent(random).max(1) }, None),
        _ => (Request::Orders, None),
    };
    Action { request, node, is_patient, has_position, again }
}

/// Returns an order to place, and at times the same under the same key, under another key, or another one under the key.
fn place(random: &mut Random, number: u32) -> (Request, Option<Request>) {
    let key = random.percent(70).then(|| format!("key {number}"));
    let reference = random.percent(40).then(|| format!("reference {number}"));
    let amount = UNIT * (1 + random.below(3) as i64);
    let place = Place { number, key, reference, amount, is_stocked: random.percent(40) };
    let other_key = Place { key: Some(format!("other key {number}")), ..place.clone() };
    let other_body = Place { amount: amount + UNIT, ..place.clone() };
    let request = Request::Place(place.clone());
    let again = match random.below(4) {
        0 if request.is_repeatable() => Some(place),
        1 if place.reference.is_some() => Some(other_key),
        2 if request.is_repeatable() => Some(other_body),
        _ => None,
    };
    (request, again.map(Request::Place))
}

/// An account with its wallet, as its clients know it.
#[derive(Debug)]
pub struct Account {
    pub client: Client,
    pub wallet_id: i64,
    /// Ids of orders that a client was told of, by number.
    pub known: Mutex<HashMap<u32, i64>>,
}

/// Everything that the clients of a run share.
#[derive(Debug)]
pub struct Shared {
    pub accounts: Vec<Account>,
    /// Products without and with vouchers.
    pub products: [i64; 2],
    /// Addresses of the nodes; `None` while a node is dead.
    pub urls: Mutex<Vec<Option<String>>>,
    /// Nodes that read lists from a standby.
    pub on_standby: Vec<bool>,
    /// `X-Log-Position` of each client's last change, and the time of that answer.
    pub positions: Vec<Mutex<Option<(String, u64)>>>,
    pub recorder: Recorder,
    pub http: reqwest::Client,
}

/// Outcome of an attempt.
enum Outcome {
    Answered(Response),
    Unknown,
    /// The node cannot be reached.
    NotSent,
}

impl Shared {
    /// Does an action for a client: repeats the request until its outcome is known, as far as that is safe.
    pub async fn act(&self, client: usize, action: &Action) {
        let mut node = action.node;
        for request in [Some(&action.request), action.again.as_ref()].into_iter().flatten() {
            for number in 0..MAX_ATTEMPTS {
                // On a busy machine, too, most outcomes become known. A search with many unknown ones takes long.
                let patience = PATIENCE[usize::from(action.is_patient || number > 0)];
                let known = self.positions[client].lock().unwrap().clone().filter(|_| action.has_position || !request.is_read());
                let outcome = self.attempt(client, node, patience, known, request).await;
                let is_over = match outcome {
                    Some(Outcome::Answered(Response::Refused(Refusal::Unavailable | Refusal::InProgress))) => false,
                    None | Some(Outcome::Answered(_)) => true,
                    Some(Outcome::Unknown) => !request.is_repeatable(),
                    Some(Outcome::NotSent) => false,
                };
                node = (node + 1) % self.on_standby.len();
                if is_over {
                    break;
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }

    /// Sends a request once, with the log position that is known, and records it. Returns `None` if it is about an order whose
    /// id nobody knows.
    async fn attempt(
        &self,
        client: usize,
        node: usize,
        patience: Duration,
        known: Option<(String, u64)>,
        request: &Request,
    ) -> Option<Outcome> {
        let wallet = client % WALLETS;
        let Some(url) = self.urls.lock().unwrap()[node].clone() else { return Some(Outcome::NotSent) };
        let is_on_standby = self.on_standby[node] && matches!(request, Request::Balance | Request::Orders);
        let known = known.filter(|_| !request.is_read() || is_on_standby);
        let mut built = self.request(&url, &self.accounts[wallet], request)?.timeout(patience);
        if let Some((position, _)) = &known {
            built = built.header(POSITION, position);
        }
        let invoked = self.recorder.tick();
        let (outcome, position) = self.answer(built, request).await;
        let answered = match &outcome {
            Outcome::Answered(response) => Some((self.recorder.tick(), response.clone())),
            Outcome::Unknown if !request.is_read() => None,
            // Nobody was told anything, and nothing happened.
            Outcome::Unknown | Outcome::NotSent => return Some(outcome),
        };
        if let Some((_, Response::Placed { order, .. })) = &answered {
            self.accounts[wallet].known.lock().unwrap().insert(order.number, order.id);
        }
        if let Some((position, (time, _))) = position.zip(answered.as_ref()) {
            *self.positions[client].lock().unwrap() = Some((position, *time));
        }
        let sees = known.filter(|_| request.is_read()).map(|(_, time)| time);
        let request = request.clone();
        self.recorder.record(Operation { client, node, wallet, invoked, answered, is_on_standby, sees, request });
        Some(outcome)
    }

    fn request(&self, url: &str, account: &Account, request: &Request) -> Option<reqwest::RequestBuilder> {
        let id = |number: &u32| account.known.lock().unwrap().get(number).copied();
        let (method, path, key, body) = match request {
            Request::Fund { reference, amount } => {
                let body = json!({"amount": text(*amount), "reference": reference});
                let request = self.http.post(format!("{url}/admin/v1/wallets/{}/fund", account.wallet_id));
                let request = request.bearer_auth(OPERATOR_TOKEN).header("Content-Type", "application/json");
                return Some(request.body(body.to_string()));
            }
            Request::Place(place) => {
                let product = self.products[usize::from(place.is_stocked)];
                let body = json!({"product_id": product, "denomination": 10, "quantity": place.amount / UNIT,
                    "client_reference": place.reference, "metadata": {"number": place.number}});
                ("POST", "/orders".to_owned(), &place.key, body)
            }
            Request::Cancel { number, key } => ("POST", format!("/orders/{}/cancel", id(number)?), key, json!({})),
            Request::Balance => ("GET", "/wallets".to_owned(), &None, Value::Null),
            Request::Order { number } => ("GET", format!("/orders/{}", id(number)?), &None, Value::Null),
            Request::Orders => ("GET", format!("/orders?limit={MAX_ORDERS}"), &None, Value::Null),
        };
        let built = self.http.request(method.parse().unwrap(), format!("{url}/api/v1{path}"));
        let mut built = built.header("X-API-Key", &account.client.key).header("X-API-Secret", &account.client.secret);
        if let Some(key) = key {
            built = built.header("Idempotency-Key", key);
        }
        if !body.is_null() {
            built = built.header("Content-Type", "application/json").body(body.to_string());
        }
        Some(built)
    }

    /// Sends a request. Returns the outcome, and the position that the response names.
    async fn answer(&self, built: reqwest::RequestBuilder, request: &Request) -> (Outcome, Option<String>) {
        let answer = match built.send().await {
            Ok(answer) => answer,
            Err(error) if error.is_connect() => return (Outcome::NotSent, None),
            Err(_) => return (Outcome::Unknown, None),
        };
        let (status, is_replay) = (answer.status().as_u16(), answer.headers().contains_key("Idempotent-Replayed"));
        let position = answer.headers().get(POSITION).map(|value| value.to_str().unwrap().to_owned());
        match answer.text().await.map(|text| serde_json::from_str::<Value>(&text)) {
            Ok(Ok(body)) if status != 504 => (Outcome::Answered(response(request, status, is_replay, &body)), position),
            // A body that breaks off leaves the outcome unknown, too.
            _ => (Outcome::Unknown, None),
        }
    }
}

fn response(request: &Request, status: u16, is_replay: bool, body: &Value) -> Response {
    let data = &body["data"];
    let is_new = status == 201;
    match (status, body["error"]["code"].as_str(), request) {
        (200 | 201, None, Request::Fund { .. }) => {
            let transaction = data["id"].as_i64().unwrap();
            Response::Funded { is_new, transaction, balance: cents(&data["balance_after"]) }
        }
        (200 | 201, None, Request::Place(_)) => Response::Placed { is_new, is_replay, order: seen(data) },
        (200, None, Request::Cancel { .. }) => Response::Cancelled { is_replay, order: seen(data) },
        (200, None, Request::Balance) => Response::Balance(cents(&data["wallets"][0]["balance"])),
        (200, None, Request::Order { .. }) => Response::Order(seen(data)),
        (200, None, Request::Orders) => Response::Orders(data["orders"].as_array().unwrap().iter().map(seen).collect()),
        (_, Some(code), _) => Response::Refused(match code {
            "E_INSUFFICIENT_BALANCE" => Refusal::InsufficientBalance,
            "E_ORDER_NOT_CANCELLABLE" => Refusal::NotCancellable,
            "E_NOT_FOUND" => Refusal::NotFound,
            "E_IDEMPOTENCY_KEY_REUSED" => Refusal::KeyReused,
            "E_DUPLICATE_REFERENCE" => Refusal::ReferenceTaken,
            "E_CONFLICT" => Refusal::FundingConflict,
            "E_UNAVAILABLE" => Refusal::Unavailable,
            "E_IDEMPOTENCY_IN_PROGRESS" => Refusal::InProgress,
            _ => panic!("{request:?}: {status} {body}"),
        }),
        _ => panic!("{request:?}: {status} {body}"),
    }
}

fn seen(order: &Value) -> Seen {
    let status = match order["status"].as_str() {
        Some("PENDING") => Status::Pending,
        Some("DELAYED") => Status::Delayed,
        Some("DELIVERED") => Status::Delivered,
        Some("CANCELLED") => Status::Cancelled,
        _ => panic!("{order}"),
    };
    let number = order["metadata"]["number"].as_u64().unwrap().try_into().unwrap();
    let (id, amount, refunded) = (order["id"].as_i64().unwrap(), cents(&order["amount"]), cents(&order["refunded_amount"]));
    Seen { number, id, amount, refunded, status }
}

/// Reads an amount with two decimals.
fn cents(amount: &Value) -> i64 {
    amount.as_str().unwrap().replace('.', "").parse().unwrap()
}

fn text(cents: i64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

#[test]
fn a_seed_repeats_the_load_and_another_one_changes_it() {
    assert_eq!(plan(1, 4, 3), plan(1, 4, 3));
    assert_ne!(plan(1, 4, 3), plan(2, 4, 3));
}
