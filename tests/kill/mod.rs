//! The program, and in another run Postgres, is killed with SIGKILL repeatedly under load. Afterwards every
//! acknowledged order exists exactly once, a retried key has created no second one, and every event has reached every
//! subscribed webhook. Further tests kill it at each step of a delivery, beside another node, and during
//! purchases.

mod nodes;
mod purchases;
mod silenced;
mod steps;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use embedded_postgres::{Server, Settings};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::sync::RwLock;
use webhook_client::receiver::{Certificate, Receiver, ReceiverResponse, ReceiverSettings};

use crate::support::postgres;
use crate::support::program::{Client, DEADLINE, Program};
use crate::support::wait::until;

/// Event types that a webhook subscribes to, by the event in the log.
const HEARD: [(&str, &str); 5] = [
    ("OrderPlaced", "order.created"),
    ("OrderQueued", "order.pending"),
    ("OrderPartiallyDelivered", "order.partially_delivered"),
    ("OrderDelivered", "order.delivered"),
    ("OrderCancelled", "order.cancelled"),
];

/// Event types of another webhook, whose endpoint fails at times.
const HEARD_AT_TIMES: [&str; 3] = ["order.created", "order.partially_delivered", "order.cancelled"];
/// Path of that endpoint.
const AT_TIMES: &str = "/at-times";

/// Pause of a client before it retries.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Requests to one webhook for one event.
#[derive(Debug, Default)]
struct Arrived {
    event_types: HashSet<String>,
    /// True if one of the requests was answered with 200.
    is_accepted: bool,
}

/// Keyed by `X-Webhook-ID` and `event_id`.
type Arrivals = Arc<Mutex<HashMap<(String, String), Arrived>>>;

/// Starts a receiver that records what arrived, and returns it with the CA file that lets the program reach it. While
/// `hangs` is set, nothing is recorded or answered.
async fn receiver(hangs: Arc<AtomicBool>) -> (Receiver, Arrivals, tempfile::NamedTempFile) {
    let arrivals = Arrivals::default();
    let kept = arrivals.clone();
    let settings = ReceiverSettings {
        listen: "127.0.0.1:0".parse().unwrap(),
        service_name: "SERVICE".into(),
        certificate: Certificate::generate().unwrap(),
        respond: Arc::new(move |received| {
            if hangs.load(Ordering::SeqCst) {
                return ReceiverResponse::Hang;
            }
            let text = |header: Option<&str>| header.unwrap().to_owned();
            let mut kept = kept.lock().unwrap();
            let count = kept.len();
            let arrived = kept.entry((text(received.webhook_id()), text(received.event_id()))).or_default();
            // The first request fails for about every other event.
            let fails = received.path == AT_TIMES && arrived.event_types.is_empty() && count.is_multiple_of(2);
            arrived.event_types.insert(text(received.event_type()));
            arrived.is_accepted |= !fails;
            ReceiverResponse::Status(if fails { 503 } else { 200 })
        }),
    };
    let (receiver, channel) = Receiver::start(settings).await.unwrap();
    drop(channel);
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), receiver.ca_pem()).unwrap();
    (receiver, arrivals, ca)
}

/// An acknowledged order, and what the test did with it.
#[derive(Clone, Debug)]
struct Order {
    id: i64,
    key: String,
    product: i64,
    quantity: i64,
    is_cancelled: bool,
    /// True if it gets its vouchers one by one.
    is_in_parts: bool,
}

/// A client that places orders at a program that is repeatedly killed.
#[derive(Clone)]
struct Lane {
    program: Arc<RwLock<Program>>,
    client: Client,
    number: usize,
    stocked: i64,
    unstocked: i64,
    scarce: i64,
    stop: Arc<AtomicBool>,
    retries: Arc<AtomicI64>,
    acknowledged: Arc<AtomicI64>,
}

impl Lane {
    /// Retries the request under one key until it is acknowledged with this status.
    async fn insist(&self, path: &str, key: &str, body: &Value, status: u16) -> Value {
        loop {
            match self.program.read().await.call(&self.client, "POST", path, Some(key), body).await {
                Ok((got, data)) if got == status => return data,
                // The request had no effect, or its outcome is unknown. A killed program does not answer.
                Ok((503 | 504, _)) | Err(_) => {
                    self.retries.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Ok((got, data)) => panic!("{path}: {got} {data}"),
            }
        }
    }

    /// Adds a voucher to the scarce product's stock, and retries until that is acknowledged.
    async fn stock(&self, card: String) {
        let body = json!({"denomination": "10.00", "vouchers": [{"card_number": card, "pin": "1234"}]});
        let path = format!("/products/{}/vouchers", self.scarce);
        loop {
            match self.program.read().await.try_operator(&path, &body).await {
                Ok((200 | 201, _)) => return,
                Ok((503 | 504, _)) | Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
                Ok((got, data)) => panic!("{path}: {got} {data}"),
            }
        }
    }

    async fn becomes(&self, order: i64, status: &str) {
        let path = format!("/orders/{order}");
        // A client runs in a task of its own, and the future of `until` with a borrowed closure is not `Send`.
        loop {
            match self.program.read().await.call(&self.client, "GET", &path, None, &Value::Null).await {
                Ok((200, data)) if data["status"] == status => return,
                Ok((200 | 503 | 504, _)) | Err(_) => {}
                Ok((got, data)) => panic!("{path}: {got} {data}"),
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Places orders one after the other. Orders of the last lane wait for stock and are cancelled. Those of the lane
    /// before it are delivered in parts.
    async fn run(self) -> Vec<Order> {
        let mut placed = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            let key = format!("{}-{}", self.number, placed.len());
            let (is_cancelled, is_in_parts) = (self.number == LANES - 1, self.number == LANES - 2);
            let (product, quantity) = match (is_cancelled, is_in_parts) {
                (true, _) => (self.unstocked, 1),
                (_, true) => (self.scarce, 2),
                _ => (self.stocked, 1),
            };
            let body = json!({"product_id": product, "denomination": 10, "quantity": quantity});
            let id = self.insist("/orders", &key, &body, 201).await["id"].as_i64().unwrap();
            if is_in_parts {
                for (part, status) in ["PARTIALLY_DELIVERED", "DELIVERED"].into_iter().enumerate() {
                    self.stock(format!("{key}-{part}")).await;
                    self.becomes(id, status).await;
                }
            }
            if is_cancelled {
                let cancelled = self.insist(&format!("/orders/{id}/cancel"), &key, &json!({"reason": "changed"}), 200).await;
                assert_eq!(cancelled["status"], "CANCELLED");
            }
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
            placed.push(Order { id, key, product, quantity, is_cancelled, is_in_parts });
        }
        placed
    }
}

const LANES: usize = 5;

/// Id of a webhook and the event types that it subscribes to.
type Subscription = (String, Vec<&'static str>);

async fn check(program: &Program, client: &Client, orders: Vec<Order>, webhooks: &[Subscription], arrivals: &Arrivals) {
    let pool = PgPool::connect(&program.database_url).await.unwrap();
    let ids: HashSet<i64> = orders.iter().map(|order| order.id).collect();
    assert_eq!(ids.len(), orders.len(), "no two keys got the same order");
    let placed: Vec<i64> =
        sqlx::query_scalar("SELECT stream_id FROM events WHERE type = 'OrderPlaced'").fetch_all(&pool).await.unwrap();
    assert_eq!(placed.len(), ids.len(), "a retried key made no second order");
    assert_eq!(placed.into_iter().collect::<HashSet<_>>(), ids, "every acknowledged order is there");
    // A repeated key returns the same order, and nothing more is debited.
    let last = orders.last().unwrap();
    let body = json!({"product_id": last.product, "denomination": 10, "quantity": last.quantity});
    let (status, again) = program.call(client, "POST", "/orders", Some(&last.key), &body).await.unwrap();
    assert_eq!((status, again["id"].as_i64()), (201, Some(last.id)));
    let kept: i64 = orders.iter().filter(|order| !order.is_cancelled).map(|order| order.quantity).sum();
    let balance: rust_decimal::Decimal = sqlx::query_scalar("SELECT balance FROM wallets").fetch_one(&pool).await.unwrap();
    assert_eq!(balance, rust_decimal::Decimal::from(1_000_000 - 10 * kept));

    let deadline = Instant::now() + Duration::from_secs(120);
    // This loop polls by itself, because its panic names what is missing.
    while let Err(missing) = has_all_arrived(&pool, &orders, webhooks, arrivals).await {
        assert!(Instant::now() < deadline, "{missing}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let doubled: i64 = sqlx::query_scalar("SELECT count(*) - count(DISTINCT (event_id, webhook_id)) FROM deliveries")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(doubled, 0, "no delivery row is duplicated");
    let (most, retried, all_delivered): (i16, i64, bool) = sqlx::query_as(
        "SELECT max(attempt_count), count(*) FILTER (WHERE attempt_count > 1), bool_and(status = 'delivered') FROM delivery_state",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert!(most <= 5, "no delivery has more than five attempts: {most}");
    assert!(retried > 0, "some were retried");
    assert!(all_delivered);
    let verified = program.command().arg("verify").output().await.unwrap();
    assert!(
        verified.status.success(),
        "{}{}",
        String::from_utf8_lossy(&verified.stdout),
        String::from_utf8_lossy(&verified.stderr)
    );
}

/// Checks that each order's events are in the log and that each has arrived. Returns what is missing otherwise.
async fn has_all_arrived(pool: &PgPool, orders: &[Order], webhooks: &[Subscription], arrivals: &Arrivals) -> Result<(), String> {
    let events: Vec<(i64, String, uuid::Uuid)> =
        sqlx::query_as("SELECT stream_id, type, event_id FROM events WHERE stream_type = 'order'").fetch_all(pool).await.unwrap();
    let mut of: HashMap<i64, HashSet<&str>> = HashMap::new();
    for (order, name, id) in &events {
        of.entry(*order).or_default().insert(name);
        let Some((_, expected)) = HEARD.iter().find(|(of, _)| of == name) else { continue };
        let arrivals = arrivals.lock().unwrap();
        for (webhook, hears) in webhooks {
            let arrived = arrivals.get(&(webhook.clone(), id.to_string()));
            if !hears.contains(expected) {
                assert!(arrived.is_none(), "{name} was sent to webhook {webhook}, which is not subscribed to it");
                continue;
            }
            let arrived = arrived.filter(|arrived| arrived.is_accepted);
            let arrived = arrived.ok_or_else(|| format!("{name} of order {order} did not arrive at webhook {webhook}"))?;
            assert_eq!(arrived.event_types.iter().collect::<Vec<_>>(), [expected], "{name}");
        }
    }
    for order in orders {
        let has = |name| of[&order.id].contains(name);
        // A quick cancellation can come before fulfilment.
        let (is_taken_up, is_ended) = match order.is_cancelled {
            true => (true, has("OrderCancelled") && !has("OrderDelivered")),
            false => (has("OrderQueued"), has("OrderDelivered") && !has("OrderCancelled")),
        };
        if !is_taken_up || !is_ended || has("OrderPartiallyDelivered") != order.is_in_parts {
            return Err(format!("{order:?} has only {:?}", of[&order.id]));
        }
    }
    let unsettled: i64 =
        sqlx::query_scalar("SELECT count(*) FROM delivery_state WHERE status = 'pending'").fetch_one(pool).await.unwrap();
    if unsettled > 0 { Err(format!("{unsettled} deliveries are pending")) } else { Ok(()) }
}

/// Under load from several clients, calls `harm` this many times, on the program or on the receiver, which hangs
/// while it is told to. Then checks everything. Returns how often a client had to retry. If a disruption was over
/// before any client noticed it, it is repeated, up to four times as often.
async fn survives(database_url: &str, times: usize, mut harm: impl AsyncFnMut(&RwLock<Program>, &AtomicBool)) -> i64 {
    let hangs = Arc::new(AtomicBool::new(false));
    let (receiver, arrivals, ca) = receiver(hangs.clone()).await;
    let reach = ["--webhook-ca-file", ca.path().to_str().unwrap(), "--webhook-allow-nets", "127.0.0.0/8"];
    let arguments = [&reach[..], &["--delivery-timeout", "10s", "--retry-base", "1s"]].concat();
    let program = Program::start(database_url, &arguments).await;
    let client = program.client("1000000.00").await;
    let (stocked, unstocked, scarce) = (program.product(20_000).await, program.product(0).await, program.product(0).await);
    let mut webhooks = vec![];
    for (path, events) in [("/", HEARD.map(|(_, event_type)| event_type).to_vec()), (AT_TIMES, HEARD_AT_TIMES.to_vec())] {
        let webhook = json!({"name": path, "url": format!("{}{path}", receiver.url()), "events": events});
        let (status, answer) = program.call(&client, "POST", "/webhooks", None, &webhook).await.unwrap();
        assert_eq!(status, 201, "{answer}");
        webhooks.push((answer["id"].to_string(), events));
    }

    let program = Arc::new(RwLock::new(program));
    let (stop, retries, acknowledged) =
        (Arc::new(AtomicBool::new(false)), Arc::<AtomicI64>::default(), Arc::<AtomicI64>::default());
    let lanes: Vec<_> = (0..LANES)
        .map(|number| {
            let (program, client, stop) = (program.clone(), client.clone(), stop.clone());
            let (retries, acknowledged) = (retries.clone(), acknowledged.clone());
            tokio::spawn(Lane { program, client, number, stocked, unstocked, scarce, stop, retries, acknowledged }.run())
        })
        .collect();
    let mut done = 0;
    while done < times || (retries.load(Ordering::Relaxed) == 0 && done < 4 * times) {
        done += 1;
        // Even on a busy machine the clients make progress between two disruptions.
        let enough = acknowledged.load(Ordering::Relaxed) + 10;
        tokio::time::sleep(Duration::from_millis(600)).await; // the shortest time between two disruptions
        until("the clients make progress", async || acknowledged.load(Ordering::Relaxed) >= enough).await;
        harm(&program, &hangs).await;
    }
    // The clients place orders for a moment after the last disruption, too.
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop.store(true, Ordering::Relaxed);
    let mut orders = Vec::new();
    for lane in lanes {
        let placed = tokio::time::timeout(DEADLINE, lane).await.expect("every client learns the outcome of its last order");
        orders.extend(placed.unwrap());
    }
    assert!(orders.len() > 20, "the clients placed orders: {}", orders.len());
    assert!(orders.iter().any(|order| order.is_cancelled), "some orders were cancelled");
    assert!(orders.iter().any(|order| order.is_in_parts), "some orders were delivered in parts");
    check(&*program.read().await, &client, orders, &webhooks, &arrivals).await;
    receiver.stop().await;
    retries.load(Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_the_program_repeatedly_loses_nothing() {
    let database = postgres::database().await;
    let retries = survives(&database.url, 6, async |program, _| {
        // Requests in flight hold the read lock, and SIGKILL does not wait for them.
        program.read().await.signal(Signal::SIGKILL);
        program.write().await.restart().await;
    })
    .await;
    assert!(retries > 0, "the kills made clients retry");
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_postgres_repeatedly_loses_nothing() {
    let server = postgres::own_server(true).await;
    let retries = survives(&server.url(), 4, async |_, _| {
        let pid = server.pid();
        assert_ne!(pid, 0, "it runs");
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
        // Wait until the server is back.
        let options: ledger_database::PgConnectOptions = server.url().parse().unwrap();
        until("Postgres is back", async || ![0, pid].contains(&server.pid()) && options.connect().await.is_ok()).await;
    })
    .await;
    assert!(retries > 0, "the kills made clients retry");
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_postgres_for_half_a_minute_during_a_backlog_loses_nothing() {
    let settings = Settings { remove_at_end: false, ..postgres::settings(true) };
    let mut server = Some(Server::start(settings.clone()).await.unwrap());
    let url = server.as_ref().unwrap().url();
    let retries = survives(&url, 1, async |_, hangs| {
        // Orders are placed before and after, and more deliveries are due than can be sent.
        hangs.store(true, Ordering::SeqCst);
        let pool = PgPool::connect(&url).await.unwrap();
        let backlog = "SELECT count(*) FILTER (WHERE leased_until IS NULL), count(leased_until) FROM delivery_state WHERE status = 'pending'";
        until("there is a backlog, some of it in flight", async || {
            let (waiting, in_flight): (i64, i64) = sqlx::query_as(backlog).fetch_one(&pool).await.unwrap();
            waiting >= 50 && in_flight > 0
        })
        .await;
        pool.close().await;
        server.take().unwrap().stop().await.unwrap();
        // Claimed deliveries may still arrive, but nothing can be recorded. All others wait.
        hangs.store(false, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(30)).await; // the length of the outage
        let again = Server::start(settings.clone()).await.unwrap();
        assert_eq!(again.url(), url);
        server = Some(again);
        tokio::time::sleep(Duration::from_secs(4)).await; // the time until the next outage
    })
    .await;
    assert!(retries > 0, "the stop made clients retry");
    server.unwrap().stop().await.unwrap();
    std::fs::remove_dir_all(&settings.data_dir).unwrap();
}
