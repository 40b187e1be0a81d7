//! Faults of a highly available installation, made of the real parts: two Postgres under Patroni, etcd, HAProxy, and
//! three nodes under load. Each part is killed, paused and silenced, in an order that depends on a seed. Afterwards
//! every acknowledged order exists exactly once, no refused order exists, and wallets add up. Every event has reached its
//! webhook with one `event_id`, `verify` is clean, and no two nodes have signed different logs.

mod check;
mod cluster;
mod fault;
mod load;
mod network;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use check::HEARD;
use cluster::Cluster;
use fault::{Fault, schedule};
use load::{Acknowledgements, Caller, Lane};

use crate::support::random::Random;

/// Programs that this test needs, each with its Debian package.
const NEEDED: [(&str, &str); 6] = [
    ("patroni", "patroni"),
    ("etcd", "etcd-server"),
    ("haproxy", "haproxy"),
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
];
/// Funds of an account that is never empty, and of one that soon is.
const FUNDS: [i64; 2] = [10_000_000, 100];
/// Number of orders that each address acknowledges between two faults.
const PROGRESS: usize = 2;

/// Returns what is missing for this test, if anything is.
fn missing() -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
    let has = |program: &str| std::env::split_paths(&path).any(|directory| directory.join(program).exists());
    let packages: Vec<&str> = NEEDED.into_iter().filter(|(program, _)| !has(program)).map(|(_, package)| package).collect();
    match (packages.is_empty(), nix::unistd::geteuid().is_root()) {
        (false, _) => Some(format!("install {}", packages.join(", "))),
        (true, false) => Some("only root may make network namespaces".to_owned()),
        (true, true) => None,
    }
}

/// Runs this many faults in a network of their own. Without the programs it says so and does nothing, unless `CI` is set.
pub fn run(count: usize) {
    if let Some(missing) = missing() {
        assert!(std::env::var_os("CI").is_none(), "the test of faults cannot run: {missing}");
        eprintln!("skipped the test of faults: {missing}");
        return;
    }
    let seed = std::env::var("LEDGER_FAULT_SEED").ok().map(|seed| seed.parse().expect("a seed is a number"));
    let seed = seed.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        u64::from(now.subsec_nanos())
    });
    println!("{count} faults with LEDGER_FAULT_SEED={seed}");
    // The network belongs to this thread, and to the threads and processes that it starts.
    let apart = std::thread::spawn(move || {
        network::enter();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(survive(schedule(count, &mut Random(seed))));
    });
    if let Err(panic) = apart.join() {
        // At the end of the output, because the cluster writes much.
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        panic!("with LEDGER_FAULT_SEED={seed}: {}", text.unwrap_or("a panic without a text"));
    }
}

async fn survive(faults: Vec<Fault>) {
    _ = rustls::crypto::aws_lc_rs::default_provider().install_default(); // another test may have done it
    let (receiver, arrivals) = check::receiver().await;
    let mut cluster = Cluster::start(receiver.ca_pem()).await;
    let log = Acknowledgements::default();
    let stop = Arc::new(AtomicBool::new(false));
    let (mut lanes, mut webhooks) = (vec![], vec![]);
    for number in 0..5 {
        let mut caller = Caller::new(number, log.clone());
        // One client cancels what it orders, and one has little money.
        let (cancels, funds) = (number == 3, FUNDS[usize::from(number == 4)]);
        let stock = if cancels { 0 } else { faults.len() * 200 };
        let product = caller.product(stock).await;
        let client = caller.client(funds).await;
        let events = HEARD.map(|(_, event_type)| event_type);
        let webhook = json!({"name": "a", "url": receiver.url(), "events": events});
        let (status, answer) = caller.post(&client, "/webhooks", "webhook", &webhook).await;
        assert_eq!(status, 201, "{answer}");
        webhooks.push((client.account_id, answer["id"].to_string()));
        lanes.push(tokio::spawn(Lane::new(client, funds, product, cancels).run(caller, stop.clone())));
    }
    for (number, fault) in faults.iter().enumerate() {
        until_progress(&log).await;
        let struck = Instant::now();
        fault.strike(&mut cluster).await;
        let ended = struck.elapsed();
        cluster.recover().await;
        let gap = longest_gap(&log, struck);
        println!(
            "{:>3} {:?} {:?}: fault {:.1} s, all well after {:.1} s, longest time without an order {:.1} s",
            number + 1,
            fault.part,
            fault.harm,
            ended.as_secs_f64(),
            struck.elapsed().as_secs_f64(),
            gap.as_secs_f64()
        );
        assert!(!lanes.iter().any(tokio::task::JoinHandle::is_finished), "a client has met an error");
    }
    until_progress(&log).await;
    stop.store(true, Ordering::Relaxed);
    let lanes: Vec<Lane> = futures::future::join_all(lanes).await.into_iter().map(Result::unwrap).collect();
    let acknowledged: usize = lanes.iter().map(|lane| lane.orders.len()).sum();
    println!("{acknowledged} orders were acknowledged, {} refused", lanes.iter().map(|lane| lane.refused).sum::<usize>());
    assert!(lanes.iter().all(|lane| !lane.orders.is_empty()) && lanes[4].refused > 0);
    check::check(&cluster, &lanes, &webhooks, &arrivals).await;
    receiver.stop().await;
}

/// Waits until the clients have got further answers.
async fn until_progress(log: &Acknowledgements) {
    let enough = log.lock().unwrap().len() + PROGRESS * 5;
    crate::support::wait::until("the clients make progress", async || log.lock().unwrap().len() >= enough).await;
}

/// Returns the longest time without an answer to any client since then.
fn longest_gap(log: &Acknowledgements, since: Instant) -> Duration {
    let log = log.lock().unwrap();
    let times: Vec<Instant> = [since].into_iter().chain(log.iter().map(|(time, _)| *time).filter(|time| *time > since)).collect();
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_else(|| since.elapsed())
}

#[test]
fn twenty_faults_of_a_cluster_lose_and_double_nothing() {
    run(20);
}
