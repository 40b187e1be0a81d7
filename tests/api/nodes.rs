//! Heartbeats of the nodes, and runs of verify and rebuild, as operators see them.

use ledger_events::Actor;
use rewards_ledger::access::Role;
use rewards_ledger::audit::runner::Runner;
use rewards_ledger::audit::runs::{self, GivenUp, Kind, Outcome};
use rewards_ledger::audit::{Progress, Rebuild, rebuild};
use rewards_ledger::ledger::nodes;
use rewards_ledger::telemetry;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::support::ledger::keyring;
use crate::support::node::Node;
use crate::support::wait::{until, until_true};

async fn operations(node: &Node) -> Value {
    node.operator("GET", "/operations", Value::Null).await.data(200)
}

#[tokio::test]
async fn every_node_shows_its_heartbeats_until_it_stops() {
    let node = Node::start().await;
    node.setup().await;
    let stop = CancellationToken::new();
    let me = nodes::Me::starting(vec!["api".to_owned(), "delivery".to_owned()]);
    let beats = tokio::spawn(nodes::run(me, node.ledger.clone(), node.metrics.clone(), stop.clone()));
    until_true("the node has beaten", node.ledger.pool(), "SELECT EXISTS (SELECT FROM nodes)").await;
    let state = operations(&node).await;
    let shown = &state["nodes"][0];
    assert_eq!((&shown["condition"], &shown["roles"]), (&json!("running"), &json!(["api", "delivery"])));
    assert_eq!((&shown["host"], &shown["version"]), (&json!(telemetry::host()), &json!(env!("CARGO_PKG_VERSION"))));
    assert_eq!((&shown["stopped_at"], &shown["stalled_loops"]), (&Value::Null, &json!([])));
    let sum = |name: &str| state["minutes"].as_array().unwrap().iter().map(|minute| minute[name].as_i64().unwrap()).sum::<i64>();
    assert_eq!(sum("events"), node.head().await, "the minutes of all nodes have those of this one");

    stop.cancel();
    beats.await.unwrap();
    let state = operations(&node).await;
    assert_eq!((&state["nodes"][0]["condition"], &state["alerts"]), (&json!("stopped"), &json!([])));
    assert!(state["nodes"][0]["stopped_at"].is_string());
}

#[tokio::test]
async fn a_node_that_ends_without_a_word_is_lost_and_forgotten_after_an_hour() {
    let node = Node::start().await;
    let lost = "INSERT INTO nodes (id, host, version, roles, stalled_loops, checked, started_at, beat_at)
                VALUES (gen_random_uuid(), 'elsewhere', '1', '{api}', '{}', '{1}', now() - interval '2 h', now() - interval '1 min')";
    sqlx::raw_sql(lost).execute(node.ledger.pool()).await.unwrap();
    let state = operations(&node).await;
    assert_eq!(state["nodes"][0]["condition"], "lost");
    assert_eq!((&state["alerts"][0]["name"], &state["alerts"][0]["severity"]), (&json!("LedgerDown"), &json!("page")));
    assert!(state["alerts"][0]["summary"].as_str().unwrap().contains("elsewhere"));
    let running = "INSERT INTO nodes (id, host, version, roles, stalled_loops, checked)
                   VALUES (gen_random_uuid(), 'here', '1', '{api}', '{}', '{1}')";
    sqlx::raw_sql(running).execute(node.ledger.pool()).await.unwrap();
    let state = operations(&node).await;
    assert_eq!((&state["nodes"][1]["condition"], &state["alerts"]), (&json!("lost"), &json!([])), "a node of several is lost");
    sqlx::raw_sql("DELETE FROM nodes WHERE host = 'here'").execute(node.ledger.pool()).await.unwrap();

    assert_eq!(nodes::purge(node.ledger.pool()).await.unwrap().0, 0);
    sqlx::raw_sql("UPDATE nodes SET beat_at = now() - interval '61 min'").execute(node.ledger.pool()).await.unwrap();
    assert_eq!(nodes::purge(node.ledger.pool()).await.unwrap().0, 1);
    assert_eq!(operations(&node).await["nodes"], json!([]));
}

#[tokio::test]
async fn of_many_nodes_those_that_run_are_shown_first() {
    let node = Node::start().await;
    let nodes = "INSERT INTO nodes (id, host, version, roles, stalled_loops, checked, started_at, beat_at, stopped_at)
        SELECT gen_random_uuid(), host, '1', '{api}', '{}', '{1}', now() - age, now() - silent, now() - stopped
        FROM (SELECT 'running' AS host, interval '2 days' AS age, interval '0' AS silent, NULL::interval AS stopped
            UNION ALL SELECT 'lost', interval '1 day', interval '1 min', NULL
            UNION ALL SELECT 'stopped', interval '1 h', interval '1 s', interval '1 s' FROM generate_series(1, 100)) AS made";
    sqlx::raw_sql(nodes).execute(node.ledger.pool()).await.unwrap();
    let state = operations(&node).await;
    let shown: Vec<_> = state["nodes"].as_array().unwrap().iter().map(|node| node["condition"].as_str().unwrap()).collect();
    assert_eq!((shown.len(), &shown[..3]), (100, &["running", "lost", "stopped"][..]));
}

/// Starts a verification, and waits until it has ended.
async fn verified(node: &Node) -> Value {
    let run = node.operator("POST", "/audit-runs", Value::Null).await.data(201);
    assert_eq!((&run["kind"], &run["status"], &run["actor_type"]), (&json!("verify"), &json!("running"), &json!("operator")));
    let path = format!("/audit-runs/{}", run["id"]);
    let mut ended = run;
    until("the verification has ended", async || {
        ended = node.operator("GET", &path, Value::Null).await.data(200);
        ended["status"] != "running"
    })
    .await;
    ended
}

#[tokio::test]
async fn a_verification_that_an_operator_starts_reports_its_result() {
    let node = Node::start().await;
    let setup = node.setup().await;
    node.project().await;
    let clean = verified(&node).await;
    assert_eq!((&clean["status"], &clean["found"], &clean["differences"]), (&json!("clean"), &json!(0), &json!([])));
    assert!(clean["summary"].as_str().unwrap().contains("everything matches the log"), "{clean}");
    assert!(clean["ended_at"].is_string());

    let falsify = format!("UPDATE wallets SET balance = balance + 1 WHERE id = {}", setup.wallet_id);
    sqlx::raw_sql(sqlx::AssertSqlSafe(falsify)).execute(&mut node.admin().await).await.unwrap();
    let wrong = verified(&node).await;
    assert_eq!(wrong["status"], "differences");
    assert!(wrong["found"].as_i64().unwrap() >= 1);
    assert!(wrong["differences"][0].as_str().unwrap().contains("wallets"), "{wrong}");

    let runs = node.operator("GET", "/audit-runs", Value::Null).await.data(200);
    let ids: Vec<_> = runs["audit_runs"].as_array().unwrap().iter().map(|run| run["id"].clone()).collect();
    assert_eq!(ids, [wrong["id"].clone(), clean["id"].clone()], "the newest first");
    node.operator("GET", "/audit-runs/999", Value::Null).await.refused(404, "E_NOT_FOUND");
}

#[tokio::test]
async fn a_run_shows_its_progress() {
    let node = Node::start().await;
    for kind in [Kind::Verify, Kind::Rebuild("orders")] {
        let id = runs::begin(node.ledger.pool(), kind).await.unwrap();
        let progress = Progress { stage: "events", shard: 1, done: 5, total: 9 };
        let (_sender, receiver) = watch::channel(Some(progress));
        let (end, ended) = oneshot::channel::<()>();
        let pool = node.ledger.pool().clone();
        let work = tokio::spawn(async move { runs::follow(&pool, id, receiver, ended).await });
        let mut run = Value::Null;
        until("the run shows its progress", async || {
            run = node.operator("GET", &format!("/audit-runs/{id}"), Value::Null).await.data(200);
            !run["stage"].is_null()
        })
        .await;
        assert_eq!((&run["stage"], &run["shard_id"]), (&json!("events"), &json!(1)), "{run}");
        assert_eq!((&run["done"], &run["total"]), (&json!(5), &json!(9)), "{run}");
        end.send(()).unwrap();
        work.await.unwrap().unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_list_of_runs_has_a_few_differences_of_each_and_says_how_many_it_leaves_out() {
    let node = Node::start().await;
    let run = "INSERT INTO audit_runs (kind, host, ended_at, outcome, found, differences)
        VALUES ('verify', 'here', now(), 'differences', 300, array_fill('a difference'::text, ARRAY[100])) RETURNING id";
    let id: i64 = sqlx::query_scalar(run).fetch_one(node.ledger.pool()).await.unwrap();
    let listed = node.operator("GET", "/audit-runs", Value::Null).await.data(200)["audit_runs"][0].take();
    let one = node.operator("GET", &format!("/audit-runs/{id}"), Value::Null).await.data(200);
    for (shown, differences) in [(listed, 5), (one, 100)] {
        let left_out = json!(300 - differences);
        assert_eq!((shown["differences"].as_array().unwrap().len(), &shown["differences_left_out"]), (differences, &left_out));
    }
}

#[tokio::test]
async fn an_operator_stops_a_verification_and_the_log_says_so() {
    let node = Node::start().await;
    node.setup().await;
    // The verification waits for the lock of this table.
    let mut admin = node.admin().await;
    sqlx::raw_sql("BEGIN; LOCK TABLE beneficiaries IN ACCESS EXCLUSIVE MODE").execute(&mut admin).await.unwrap();
    let run = node.operator("POST", "/audit-runs", Value::Null).await.data(201);
    let (path, head) = (format!("/audit-runs/{}", run["id"]), node.head().await);
    let auditor = node.token(Role::Auditor).await;
    node.operator_with(&auditor, "DELETE", &path, Value::Null).await.refused(403, "E_FORBIDDEN");
    let stopped = node.operator("DELETE", &path, Value::Null).await.data(200);
    assert_eq!((&stopped["status"], &stopped["summary"]), (&json!("stopped"), &json!("an operator stopped the run")));
    node.operator("DELETE", &path, Value::Null).await.refused(409, "E_CONFLICT");
    let events = "SELECT type FROM events WHERE position > $1 AND stream_type = 'verification' AND stream_id = $2";
    let events: Vec<String> =
        sqlx::query_scalar(events).bind(head).bind(run["id"].as_i64()).fetch_all(node.ledger.pool()).await.unwrap();
    assert_eq!(events, ["VerificationStopped"]);
    // Another one starts at once, and a rebuild as soon as the work of the first one has ended.
    sqlx::raw_sql("ROLLBACK").execute(&mut admin).await.unwrap();
    assert_eq!(verified(&node).await["status"], "clean");
    rebuild(&node.options, Rebuild::parse("orders").unwrap(), |_| {}).await.unwrap();
    assert_eq!(node.operator("GET", &path, Value::Null).await.data(200)["status"], "stopped");
}

#[tokio::test]
async fn a_verification_on_another_node_or_by_a_command_ends_with_its_next_heartbeat() {
    let node = Node::start().await;
    let pool = node.ledger.pool().clone();
    let id = runs::begin(&pool, Kind::Verify).await.unwrap();
    let (_progress, reported) = watch::channel(None);
    let following = pool.clone();
    let work = tokio::spawn(async move { runs::follow(&following, id, reported, std::future::pending::<()>()).await });
    node.operator("DELETE", &format!("/audit-runs/{id}"), Value::Null).await.data(200);
    assert_eq!(work.await.unwrap(), Err(GivenUp::Stopped));

    let rebuild = runs::begin(&pool, Kind::Rebuild("orders")).await.unwrap();
    node.operator("DELETE", &format!("/audit-runs/{rebuild}"), Value::Null).await.refused(409, "E_CONFLICT");
    node.operator("DELETE", "/audit-runs/999", Value::Null).await.refused(404, "E_NOT_FOUND");
}

#[tokio::test]
async fn a_start_whose_client_disconnects_is_followed_by_its_work() {
    let node = Node::start().await;
    node.setup().await;
    node.project().await;
    let runner = Runner::start(&node.ledger, &node.options, keyring(), CancellationToken::new(), &TaskTracker::new());
    let ((entered, has_entered), (release, is_released)) = (oneshot::channel(), oneshot::channel::<()>());
    let starting = tokio::spawn(async move {
        let recorded = async move |_| {
            _ = entered.send(());
            _ = is_released.await;
            Ok(())
        };
        runner.verify::<sqlx::Error, _>(Actor::Operator(0), recorded).await
    });
    has_entered.await.unwrap();
    starting.abort();
    assert!(starting.await.unwrap_err().is_cancelled());
    release.send(()).unwrap();
    let is_verified = "SELECT EXISTS (SELECT FROM audit_runs WHERE outcome = 'clean')";
    until_true("the verification has a result", node.ledger.pool(), is_verified).await;
}

#[tokio::test]
async fn one_run_is_in_progress_at_a_time_and_a_dead_one_counts_as_interrupted() {
    let node = Node::start().await;
    let pool = node.ledger.pool();
    let of_command = runs::begin(pool, Kind::Rebuild("orders")).await.unwrap();
    node.operator("POST", "/audit-runs", Value::Null).await.refused(409, "E_CONFLICT");
    sqlx::raw_sql("UPDATE audit_runs SET beat_at = now() - interval '31 s'").execute(pool).await.unwrap();
    let path = format!("/audit-runs/{of_command}");
    let run = node.operator("GET", &path, Value::Null).await.data(200);
    assert_eq!((&run["status"], &run["projection"], &run["ended_at"]), (&json!("interrupted"), &json!("orders"), &Value::Null));
    assert_eq!((&run["actor_type"], &run["actor_name"]), (&Value::Null, &Value::Null));
    assert_eq!(verified(&node).await["status"], "clean");

    // A command whose heartbeats were only late can still report its result.
    let rebuilt = rebuild(&node.options, Rebuild::parse("orders").unwrap(), |_| {}).await;
    runs::end(pool, of_command, &Outcome::of_rebuild(&rebuilt)).await.unwrap();
    let run = node.operator("GET", &path, Value::Null).await.data(200);
    assert_eq!((&run["status"], &run["summary"]), (&json!("clean"), &json!("orders: rebuilt; no row differed")));
}

#[tokio::test]
async fn of_two_starts_one_succeeds_and_a_node_that_stops_ends_its_verification() {
    let node = Node::start().await;
    node.setup().await;
    // The verification reads the structure of this table first, and waits for the lock.
    let mut admin = node.admin().await;
    sqlx::raw_sql("BEGIN; LOCK TABLE beneficiaries IN ACCESS EXCLUSIVE MODE").execute(&mut admin).await.unwrap();
    let start = || node.operator("POST", "/audit-runs", Value::Null);
    let (one, other) = tokio::join!(start(), start());
    let (run, refused) = if one.status == 201 { (one, other) } else { (other, one) };
    refused.refused(409, "E_CONFLICT");
    let path = format!("/audit-runs/{}", run.data(201)["id"]);
    node.stopping.cancel();
    until("the run has ended", async || node.operator("GET", &path, Value::Null).await.data(200)["status"] == "stopped").await;
}
