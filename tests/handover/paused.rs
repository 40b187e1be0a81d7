//! A leader that is paused: it accepts connections, and answers nothing until it goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio::task::JoinHandle;

use super::nodes::{Answer, Scene};
use crate::support::wait::{is_true, until, until_true};

/// Length of a lease. By then another node takes orders.
const LEASE: Duration = Duration::from_secs(4);
/// Number of tries to show that. A machine that is busy with other work may break it.
const TRIES: usize = 3;
/// Time between two requests.
const PACE: Duration = Duration::from_millis(100);

/// Orders that were sent one after another, with their keys.
type Asked = Vec<(String, JoinHandle<Answer>)>;

/// Pauses a node between two of its statements, so that it locks nothing, and while its lease has seconds left.
async fn pause(scene: &Scene, node: usize) {
    const AT_REST: &str = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name LIKE 'rewards-ledger%'
        AND xact_start IS NOT NULL AND datname = current_database())";
    const IN_FORCE: &str =
        "SELECT EXISTS (SELECT FROM shard_leaders WHERE expires_at > clock_timestamp() + interval '2 seconds')";
    let node = &scene.nodes[node];
    until("it is paused at rest", async || {
        node.signal(Signal::SIGSTOP);
        // Statements of the other node are short.
        let rests = tokio::time::timeout(Duration::from_secs(1), until_true("it rests", &scene.pool, AT_REST)).await.is_ok();
        let is_paused = rests && is_true(&scene.pool, IN_FORCE).await;
        if !is_paused {
            node.signal(Signal::SIGCONT);
            until_true("it comes to rest", &scene.pool, AT_REST).await;
            until_true("it renews its lease", &scene.pool, IN_FORCE).await;
        }
        is_paused
    })
    .await;
}

/// Sends orders to an address, one after another without waiting for answers, until one of them is placed.
async fn ask_until_placed(scene: &Scene, url: &str, name: &str) -> Asked {
    let (mut asked, is_placed) = (Asked::new(), Arc::<AtomicBool>::default());
    until("an order is placed", async || {
        let key = format!("{name} {}", asked.len());
        let (caller, url, body) = (scene.caller.clone(), url.to_owned(), scene.body());
        let (under, placed) = (key.clone(), is_placed.clone());
        let answer = tokio::spawn(async move {
            let answer = caller.order(&url, Some(&under), &body).await.unwrap();
            placed.fetch_or(answer.status == 201, Ordering::SeqCst);
            answer
        });
        asked.push((key, answer));
        tokio::time::sleep(PACE).await;
        is_placed.load(Ordering::SeqCst)
    })
    .await;
    asked
}

/// Waits for the answer to each request, and repeats the request at every node until its outcome is known. Returns the orders.
async fn resolve(scene: &Scene, asked: Asked) -> Vec<i64> {
    let mut orders = vec![];
    for (key, answer) in asked {
        let answer = answer.await.unwrap();
        assert!(matches!(answer.status, 201 | 503 | 504), "{key}: {answer:?}");
        let mut shown: Vec<Answer> = Some(answer).into_iter().filter(|answer| answer.status == 201).collect();
        for node in &scene.nodes {
            shown.push(scene.caller.insist(&node.url(), &key, &scene.body()).await);
        }
        assert!(shown.iter().all(|answer| answer.text == shown[0].text), "{key}: {shown:?}");
        orders.push(shown[0].order());
    }
    orders
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_leader_does_not_keep_another_node_from_writing() {
    let scene = Scene::of_apis().await;
    let (mut orders, mut waits) = (vec![], vec![]);
    for round in 0..TRIES {
        let leader = scene.leader().await;
        let url = scene.nodes[1 - leader].url();
        pause(&scene, leader).await;
        let since = Instant::now();
        let asked = ask_until_placed(&scene, &url, &format!("round {round}")).await;
        waits.push(since.elapsed());
        scene.nodes[leader].signal(Signal::SIGCONT);
        orders.extend(resolve(&scene, asked).await);
        if waits[round] < LEASE {
            break;
        }
    }
    assert!(waits.iter().any(|wait| *wait < LEASE), "{waits:?}");
    scene.check(&orders).await;
}

/// The first request of a key is at the paused leader, and the second one cannot be written either.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_told_that_nothing_happened_while_the_leader_may_still_write() {
    let scene = Scene::of_apis().await;
    let leader = scene.leader().await;
    let url = scene.nodes[1 - leader].url();
    pause(&scene, leader).await;
    let mut asked = ask_until_placed(&scene, &url, "order").await;
    // The node writes new orders itself now. Those that it has handed over are undecided.
    let undecided = asked.iter().position(|(_, answer)| !answer.is_finished()).expect("the leader answers nothing");
    let (key, first) = asked.remove(undecided);

    let mut held = scene.pool.begin().await.unwrap();
    sqlx::query("SELECT position FROM log_head FOR UPDATE").execute(&mut *held).await.unwrap();
    let second = scene.caller.order(&url, Some(&key), &scene.body()).await.unwrap();
    assert_eq!((second.status, &*second.code()), (409, "E_IDEMPOTENCY_IN_PROGRESS"), "{second:?}");
    held.commit().await.unwrap();

    let first = first.await.unwrap();
    assert_eq!((first.status, &*first.code()), (504, "E_OUTCOME_UNKNOWN"), "{first:?}");
    let third = scene.caller.insist(&url, &key, &scene.body()).await;
    scene.nodes[leader].signal(Signal::SIGCONT);
    // A node that was paused may close a connection that was idle meanwhile.
    for node in &scene.nodes {
        let again = scene.caller.insist(&node.url(), &key, &scene.body()).await;
        assert_eq!((again.status, &again.text, again.is_replay), (201, &third.text, true));
    }
    let mut orders = resolve(&scene, asked).await;
    orders.push(third.order());
    scene.check(&orders).await;
}
