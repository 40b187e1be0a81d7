//! The program is killed with SIGKILL at each step of a delivery. Its surroundings hold it at the step: a table lock,
//! a stalled network, or a receiver that does not answer.

mod attempts;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, PgPool};
use webhook_client::receiver::{Certificate, Receiver, ReceiverResponse, ReceiverSettings};

use crate::support::node::Client;
use crate::support::postgres::{self, TestDatabase};
use crate::support::program::Program;
use crate::support::relay::Relay;
use crate::support::wait::{until, until_locked_out, until_true};

/// A delivery as its client sees it: status, attempt count, and the number, request id, status and error of each
/// attempt.
type Shown = (String, i64, Vec<(i64, String, Value, Value)>);

/// The program with a webhook, and a receiver that counts.
struct Scene {
    program: Program,
    client: Client,
    product: i64,
    relay: Relay,
    /// Request ids that arrived, by event id.
    arrived: Arc<Mutex<HashMap<String, Vec<String>>>>,
    hangs: Arc<AtomicBool>,
    /// Status of the receiver's responses.
    status: Arc<AtomicU16>,
    pool: PgPool,
    _receiver: Receiver,
    _ca: tempfile::NamedTempFile,
    _database: TestDatabase,
}

impl Scene {
    async fn open() -> Scene {
        Scene::with(&[]).await
    }

    /// Starts a scene whose program gets these additional arguments.
    async fn with(further: &[&str]) -> Scene {
        let database = postgres::database().await;
        let arrived: Arc<Mutex<HashMap<String, Vec<String>>>> = Arc::default();
        let (hangs, status) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU16::new(200)));
        let (kept, is_hanging, answered) = (arrived.clone(), hangs.clone(), status.clone());
        let settings = ReceiverSettings {
            listen: "127.0.0.1:0".parse().unwrap(),
            service_name: "SERVICE".into(),
            certificate: Certificate::generate().unwrap(),
            respond: Arc::new(move |received| {
                let id = |id: Option<&str>| id.unwrap().to_owned();
                kept.lock().unwrap().entry(id(received.event_id())).or_default().push(id(received.request_id()));
                if is_hanging.load(Ordering::SeqCst) {
                    ReceiverResponse::Hang
                } else {
                    ReceiverResponse::Status(answered.load(Ordering::SeqCst))
                }
            }),
        };
        let (receiver, channel) = Receiver::start(settings).await.unwrap();
        drop(channel);
        let relay = Relay::before(receiver.address()).await;
        let ca = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(ca.path(), receiver.ca_pem()).unwrap();
        let reach = ["--webhook-ca-file", ca.path().to_str().unwrap(), "--webhook-allow-nets", "127.0.0.0/8,::1/128"];
        let program = Program::start(&database.url, &[&reach[..], further].concat()).await;
        let client = program.client("1000.00").await;
        let product = program.product(0).await;
        let webhook = json!({"name": "a", "url": relay.url(), "events": ["order.created"]});
        let (code, answer) = program.call(&client, "POST", "/webhooks", None, &webhook).await.unwrap();
        assert_eq!(code, 201, "{answer}");
        let pool = PgPool::connect(&database.url).await.unwrap();
        Scene { program, client, product, relay, arrived, hangs, status, pool, _receiver: receiver, _ca: ca, _database: database }
    }

    async fn order(&self) {
        let body = json!({"product_id": self.product, "denomination": 10, "quantity": 1});
        let (status, answer) = self.program.call(&self.client, "POST", "/orders", None, &body).await.unwrap();
        assert_eq!(status, 201, "{answer}");
    }

    async fn until(&self, what: &str, sql: &'static str) {
        until_true(what, &self.pool, sql).await;
    }

    /// Returns the number of requests that arrived, and the number of their events.
    fn counted(&self) -> (usize, usize) {
        let arrived = self.arrived.lock().unwrap();
        (arrived.values().map(Vec::len).sum(), arrived.len())
    }

    /// Kills the program, and ends its database sessions, whose statements would otherwise continue.
    async fn kill(&mut self) {
        self.program.signal(Signal::SIGKILL);
        self.program.ended().await;
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'rewards-ledger%' AND datname = current_database()";
        sqlx::query(end).execute(&self.pool).await.unwrap();
    }

    /// Moves times back, as if every lease had ended.
    async fn leases_end(&self) {
        sqlx::raw_sql("UPDATE delivery_state SET leased_until = now() - interval '1 second' WHERE leased_until IS NOT NULL")
            .execute(&self.pool)
            .await
            .unwrap();
    }

    /// Returns the only delivery as its client sees it.
    async fn shown(&self) -> Shown {
        let mut all = self.all_shown().await;
        assert_eq!(all.len(), 1, "no delivery is duplicated");
        all.remove(0)
    }

    async fn all_shown(&self) -> Vec<Shown> {
        let get = async |path: &str| {
            let (status, data) = self.program.call(&self.client, "GET", path, None, &Value::Null).await.unwrap();
            assert_eq!(status, 200, "{data}");
            data
        };
        let list = get("/webhooks/deliveries?limit=100").await;
        let mut all = vec![];
        for delivery in list["deliveries"].as_array().unwrap() {
            let detail = get(&format!("/webhooks/deliveries/{}", delivery["id"])).await;
            let attempts = detail["attempts"].as_array().unwrap().iter().map(|attempt| {
                let request_id = attempt["request_id"].as_str().unwrap().to_owned();
                (attempt["attempt"].as_i64().unwrap(), request_id, attempt["response_status"].clone(), attempt["error"].clone())
            });
            all.push((
                detail["status"].as_str().unwrap().to_owned(),
                detail["attempt_count"].as_i64().unwrap(),
                attempts.collect(),
            ));
        }
        all
    }

    /// Checks that everything arrived and is recorded, and that nothing is duplicated or counted twice.
    async fn all_is_well(&self) {
        self.until("everything is settled", "SELECT count(*) = 0 FROM delivery_state WHERE status = 'pending'").await;
        let sound: bool = sqlx::query_scalar(
            "SELECT (SELECT bool_and(status = 'delivered' AND attempt_count <= 5) FROM delivery_state)
                AND (SELECT count(*) = count(DISTINCT (event_id, webhook_id)) FROM deliveries)",
        )
        .fetch_one(&self.pool)
        .await
        .unwrap();
        assert!(sound);
        let events: Vec<String> = sqlx::query_scalar("SELECT event_id::text FROM events WHERE type = 'OrderPlaced'")
            .fetch_all(&self.pool)
            .await
            .unwrap();
        let arrived: HashSet<String> = self.arrived.lock().unwrap().keys().cloned().collect();
        assert_eq!(arrived, events.into_iter().collect());
        let verified = self.program.command().arg("verify").output().await.unwrap();
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    }

    /// Checks that the attempt in flight has an unknown outcome, and was repeated under its number with a new request
    /// id.
    async fn was_repeated(&self) {
        let (status, count, attempts) = self.shown().await;
        assert_eq!((status.as_str(), count, attempts.len()), ("delivered", 1, 2));
        let (lost, again) = (&attempts[0], &attempts[1]);
        assert_eq!((lost.0, &lost.2, &lost.3), (1, &Value::Null, &json!("the outcome is not known")));
        assert_eq!((again.0, &again.2, &again.3), (1, &json!(200), &Value::Null));
        assert_ne!(lost.1, again.1);
        let arrived = self.arrived.lock().unwrap();
        assert_eq!(arrived.values().next().unwrap().last(), Some(&again.1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_commit_and_projection_loses_nothing() {
    let mut scene = Scene::open().await;
    let mut conn: PgConnection = scene.pool.acquire().await.unwrap().detach();
    let mut lock = conn.begin().await.unwrap();
    sqlx::query("LOCK TABLE webhook_envelopes IN EXCLUSIVE MODE").execute(&mut *lock).await.unwrap();
    scene.order().await;
    until_locked_out(&(*scene.pool.connect_options()).clone().into(), "rewards-ledger projector").await;
    scene.kill().await;
    lock.rollback().await.unwrap();
    scene.program.restart().await;
    scene.until("it is projected", "SELECT count(*) = 1 FROM delivery_state").await;
    scene.all_is_well().await;
    assert_eq!(scene.counted(), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_claim_and_send_repeats_the_attempt() {
    let mut scene = Scene::open().await;
    scene.relay.hold(true);
    scene.order().await;
    scene.until("it is claimed", "SELECT count(*) = 1 FROM delivery_attempts").await;
    scene.kill().await;
    scene.relay.hold(false);
    scene.program.restart().await;
    assert_eq!(scene.counted(), (0, 0));
    let (status, count, attempts) = scene.shown().await;
    assert_eq!((status.as_str(), count, attempts.len()), ("pending", 0, 1));
    assert_eq!(attempts[0].3, Value::Null, "while its lease runs the attempt may be in flight");
    scene.leases_end().await;
    scene.all_is_well().await;
    assert_eq!(scene.counted(), (1, 1));
    scene.was_repeated().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_send_and_answer_repeats_the_attempt() {
    let mut scene = Scene::open().await;
    scene.hangs.store(true, Ordering::SeqCst);
    scene.order().await;
    until("it arrives", async || scene.counted() == (1, 1)).await;
    scene.kill().await;
    scene.hangs.store(false, Ordering::SeqCst);
    scene.program.restart().await;
    scene.leases_end().await;
    scene.all_is_well().await;
    assert_eq!(scene.counted(), (2, 1));
    scene.was_repeated().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_answer_and_record_repeats_the_attempt() {
    let mut scene = Scene::open().await;
    scene.relay.hold(true);
    scene.order().await;
    scene.until("it is claimed", "SELECT count(*) = 1 FROM delivery_attempts").await;
    // The receiver will answer, but the result cannot be recorded.
    let mut conn: PgConnection = scene.pool.acquire().await.unwrap().detach();
    let mut lock = conn.begin().await.unwrap();
    sqlx::query("LOCK TABLE delivery_attempts IN SHARE MODE").execute(&mut *lock).await.unwrap();
    scene.relay.hold(false);
    until("it arrives", async || scene.counted() == (1, 1)).await;
    until_locked_out(&(*scene.pool.connect_options()).clone().into(), "rewards-ledger results").await;
    scene.kill().await;
    lock.rollback().await.unwrap();
    scene.program.restart().await;
    scene.leases_end().await;
    scene.all_is_well().await;
    assert_eq!(scene.counted(), (2, 1));
    scene.was_repeated().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_after_the_record_repeats_nothing() {
    let mut scene = Scene::open().await;
    scene.order().await;
    scene.until("it is recorded", "SELECT count(*) = 1 FROM delivery_state WHERE status = 'delivered'").await;
    scene.kill().await;
    scene.program.restart().await;
    // Wait for a later delivery. Any repetition of the first one would have happened by then.
    scene.order().await;
    scene.until("the later one is recorded", "SELECT count(*) = 2 FROM delivery_state WHERE status = 'delivered'").await;
    scene.all_is_well().await;
    assert_eq!(scene.counted(), (2, 2));
}
