//! Replays by the program: through its command, and across its death.

use std::collections::HashSet;

use nix::sys::signal::Signal;
use rewards_ledger::delivery::replay::MAX_COUNTED;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, PgPool};
use webhook_client::receiver::ReceiverResponse;

use crate::support::postgres;
use crate::support::program::{OPERATOR_TOKEN, Program, run};
use crate::support::shop::receiver;
use crate::support::tampering::tamper;
use crate::support::wait::{until, until_true};

/// Keeps every replay from continuing after its first delivery, as if no time passed.
const HOLD_HALF_WAY: &str = "
    CREATE FUNCTION hold_half_way() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.status = 'RUNNING' AND NEW.deliveries > 0 THEN NEW.updated_at := NEW.updated_at + interval '1 day'; END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER hold_half_way BEFORE UPDATE ON webhook_replays FOR EACH ROW EXECUTE FUNCTION hold_half_way()";
const GO_ON: &str = "
    DROP FUNCTION hold_half_way CASCADE;
    UPDATE webhook_replays SET updated_at = created_at WHERE status = 'RUNNING'";

#[tokio::test(flavor = "multi_thread")]
async fn the_command_replays_since_a_time_or_a_position_and_shows_how_far_it_is() {
    let database = postgres::database().await;
    let (receiver, _arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), receiver.ca_pem()).unwrap();
    let arguments = ["--webhook-ca-file", ca.path().to_str().unwrap(), "--webhook-allow-nets", "127.0.0.0/8,::1/128"];
    let program = Program::start(&database.url, &arguments).await;
    let client = program.client("100.00").await;
    let product = program.product(0).await;
    let hook = json!({"name": "all", "url": receiver.url(), "events": ["order.created"]});
    let (_, hook) = program.call(&client, "POST", "/webhooks", None, &hook).await.unwrap();
    for _ in 0..4 {
        let body = json!({"product_id": product, "denomination": 10, "quantity": 1});
        assert_eq!(program.call(&client, "POST", "/orders", None, &body).await.unwrap().0, 201);
    }
    let pool = PgPool::connect(&database.url).await.unwrap();
    until_true("all are delivered", &pool, "SELECT count(*) = 4 FROM delivery_state WHERE status = 'delivered'").await;
    let second: (i64, chrono::DateTime<chrono::Utc>) =
        sqlx::query_as("SELECT position, recorded_at FROM events WHERE type = 'OrderPlaced' ORDER BY position OFFSET 1 LIMIT 1")
            .fetch_one(&pool)
            .await
            .unwrap();
    let replay = async |arguments: &[&str]| {
        let mut command = program.command();
        command.arg("replay").args(arguments).args(["--json", "--url", &program.url()]);
        let done = run(command.env("LEDGER_OPERATOR_TOKEN", OPERATOR_TOKEN)).await;
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        serde_json::from_slice::<Value>(&done.stdout).unwrap()
    };
    let (hook, position, since) = (hook["id"].to_string(), second.0.to_string(), second.1.to_rfc3339());
    for which in [["--since", &since], ["--from-position", &position]] {
        let start = [&["start", &hook, "--per-second", "1"][..], &which].concat();
        assert_eq!(replay(&[&start[..], &["--dry-run"]].concat()).await, json!({"found": 3}), "{which:?}");
        sqlx::raw_sql(HOLD_HALF_WAY).execute(&pool).await.unwrap();
        let id = replay(&start).await["id"].to_string();
        let shows = async |status: &str, deliveries: i64| {
            let shown = replay(&["show", &id]).await;
            (&shown["status"], &shown["deliveries"], &shown["delivered_count"])
                == (&json!(status), &json!(deliveries), &json!(deliveries))
        };
        until("it is half way", async || shows("RUNNING", 1).await).await;
        sqlx::raw_sql(GO_ON).execute(&pool).await.unwrap();
        until("it ends, and all of it is delivered", async || shows("COMPLETED", 3).await).await;
    }
    let times: Vec<i64> = sqlx::query_scalar(
        "SELECT count(*) FROM deliveries d JOIN delivery_state s ON s.delivery_id = d.id WHERE s.status = 'delivered' AND s.attempt_count = 1
         GROUP BY event_id ORDER BY event_id",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    assert_eq!(times, [1, 3, 3, 3], "each replay makes a separate delivery");
}

/// Number of other events to simulate.
const OTHERS: i64 = 1_200_000;

#[tokio::test(flavor = "multi_thread")]
async fn the_command_counts_over_a_long_log_and_starts_without_counting() {
    let database = postgres::database().await;
    let program = Program::start(&database.url, &["--roles", "api"]).await;
    let client = program.client("100.00").await;
    let product = program.product(0).await;
    for _ in 0..4 {
        let body = json!({"product_id": product, "denomination": 10, "quantity": 1});
        assert_eq!(program.call(&client, "POST", "/orders", None, &body).await.unwrap().0, 201);
    }
    let hook = json!({"name": "late", "url": "https://example.com/hook", "events": ["order.created"]});
    let (_, hook) = program.call(&client, "POST", "/webhooks", None, &hook).await.unwrap();
    let mut admin = PgConnection::connect(&database.url).await.unwrap();
    let later = format!(
        "UPDATE events SET position = position + {OTHERS}
         WHERE position >= (SELECT position FROM events WHERE type = 'OrderPlaced' ORDER BY position OFFSET 1 LIMIT 1);
         UPDATE log_head SET position = position + {OTHERS}"
    );
    tamper(&mut admin, &later).await;
    // One request counts over only a part of the log, and returns where it stopped.
    let path = format!("/webhooks/{}/replays", hook["id"]);
    let part = program.operator(&path, json!({"kind": "missed", "dry_run": true})).await;
    let head: i64 = sqlx::query_scalar("SELECT position FROM log_head").fetch_one(&mut admin).await.unwrap();
    assert_eq!(part, json!({"found": 1, "next_position": MAX_COUNTED + 1, "until_position": head + 1, "replay": null}));

    let replay = async |arguments: &[&str]| {
        let mut command = program.command();
        command.arg("replay").args(["start", &hook["id"].to_string()]).args(arguments).args(["--json", "--url", &program.url()]);
        let done = run(command.env("LEDGER_OPERATOR_TOKEN", OPERATOR_TOKEN)).await;
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        serde_json::from_slice::<Value>(&done.stdout).unwrap()
    };
    let third = "SELECT recorded_at FROM events WHERE type = 'OrderPlaced' ORDER BY position OFFSET 2 LIMIT 1";
    let third: chrono::DateTime<chrono::Utc> = sqlx::query_scalar(third).fetch_one(&mut admin).await.unwrap();
    assert_eq!(replay(&["--missed", "--dry-run"]).await, json!({"found": 4}));
    assert_eq!(replay(&["--missed", "--from-position", "1", "--dry-run"]).await, json!({"found": 4}));
    assert_eq!(replay(&["--missed", "--since", &third.to_rfc3339(), "--dry-run"]).await, json!({"found": 2}));
    let started = replay(&["--missed"]).await;
    assert_eq!((&started["status"], &started["until_position"]), (&json!("RUNNING"), &json!(head + 1)));
}

const ORDERS: usize = 90;

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_survives_the_program_being_killed_and_delivers_each_event_once() {
    let database = postgres::database().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), receiver.ca_pem()).unwrap();
    let arguments = ["--webhook-ca-file", ca.path().to_str().unwrap(), "--webhook-allow-nets", "127.0.0.0/8,::1/128"];
    let mut program = Program::start(&database.url, &[&arguments[..], &["--retry-base", "1s"]].concat()).await;
    let client = program.client("100000.00").await;
    let product = program.product(0).await;
    for _ in 0..ORDERS {
        let body = json!({"product_id": product, "denomination": 10, "quantity": 1});
        assert_eq!(program.call(&client, "POST", "/orders", None, &body).await.unwrap().0, 201);
    }
    let hook = json!({"name": "late", "url": receiver.url(), "events": ["order.created"]});
    let (_, hook) = program.call(&client, "POST", "/webhooks", None, &hook).await.unwrap();
    let path = format!("/webhooks/{}/replays", hook["id"]);
    program.operator(&path, json!({"kind": "missed", "per_second": 5})).await;

    let pool = PgPool::connect(&database.url).await.unwrap();
    let made = async || -> (String, i64) {
        sqlx::query_as("SELECT status, deliveries FROM webhook_replays").fetch_one(&pool).await.unwrap()
    };
    for kills in 1..=3 {
        // Early enough that a machine that stalls for some seconds does not miss it.
        until("the replay goes on", async || made().await.1 >= 4 * kills).await;
        program.signal(Signal::SIGKILL);
        assert_eq!(made().await.0, "RUNNING");
        program.restart().await;
    }
    until("the replay ends", async || made().await.0 == "COMPLETED").await;
    until_true("all are delivered", &pool, "SELECT bool_and(status = 'delivered') FROM delivery_state").await;
    let (rows, events): (i64, i64) =
        sqlx::query_as("SELECT count(*), count(DISTINCT (event_id, replay_id)) FROM deliveries").fetch_one(&pool).await.unwrap();
    assert_eq!((rows, events, made().await.1), (ORDERS as i64, ORDERS as i64, ORDERS as i64));
    let mut received = HashSet::new();
    while let Ok(one) = arrived.try_recv() {
        received.insert(one.event_id().unwrap().to_owned());
    }
    assert_eq!(received.len(), ORDERS);
    let verified = run(program.command().arg("verify")).await;
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));

    // Now with the command.
    let replay = async |arguments: &[&str]| {
        let mut command = program.command();
        command.arg("replay").args(arguments).args(["--json", "--url", &program.url()]);
        let done = run(command.env("LEDGER_OPERATOR_TOKEN", OPERATOR_TOKEN)).await;
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        serde_json::from_slice::<Value>(&done.stdout).unwrap()
    };
    let hook = hook["id"].to_string();
    assert_eq!(replay(&["start", &hook, "--missed", "--dry-run"]).await, json!({"found": 0}));
    assert_eq!(
        replay(&["start", &hook, "--from-position", "1", "--dry-run"]).await,
        json!({"found": ORDERS}),
        "each event that the first replay delivered"
    );
    let ended = replay(&["start", &hook, "--missed", "--wait"]).await;
    assert_eq!((&ended["status"], &ended["deliveries"]), (&json!("COMPLETED"), &json!(0)));
    assert_eq!(replay(&["show", &ended["id"].to_string()]).await["status"], "COMPLETED");
    assert_eq!(replay(&["list", &hook]).await["replays"].as_array().unwrap().len(), 2);
    let mut cancel = program.command();
    cancel.args(["replay", "cancel", &ended["id"].to_string(), "--url", &program.url()]);
    let refused = run(cancel.env("LEDGER_OPERATOR_TOKEN", OPERATOR_TOKEN)).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("409 E_CONFLICT"));
}
