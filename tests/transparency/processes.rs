//! Two processes on one database grow and sign one tree, and are killed while doing so.

use std::collections::BTreeMap;
use std::path::Path;

use nix::sys::signal::Signal;
use rewards_ledger::ledger::reader;
use rewards_ledger::transparency::store;
use serde_json::{Value, json};
use sqlx::PgPool;
use transparency_log::checkpoint::Trust;
use transparency_log::merkle::{Frontier, Hash, leaf_hash};

use crate::support::ledger::SHARD;
use crate::support::node::Client;
use crate::support::postgres;
use crate::support::program::Program;
use crate::support::tree;
use crate::support::wait::until;

#[tokio::test(flavor = "multi_thread")]
async fn processes_with_states_of_their_own_sign_one_tree() {
    grow_together(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_with_one_memory_sign_one_tree() {
    let directory = tempfile::tempdir().unwrap();
    grow_together(Some(&directory.path().join("log-state.json"))).await;
}

/// Root hashes of all checkpoints served so far, by size.
#[derive(Default)]
struct Served(BTreeMap<u64, Hash>);

impl Served {
    /// Requests a process's checkpoint, and checks that no other root was ever served for its size. Returns the size,
    /// or 0 before there is one.
    async fn by(&mut self, program: &Program) -> u64 {
        let answer = reqwest::get(format!("{}/log/1/checkpoint", program.url())).await.unwrap();
        if answer.status() == 404 {
            return 0;
        }
        let opened = Trust::in_keys(vec![tree::key()]).open(&answer.text().await.unwrap()).unwrap().checkpoint;
        assert_eq!(*self.0.entry(opened.size).or_insert(opened.root), opened.root, "two of {} events", opened.size);
        opened.size
    }
}

async fn order(program: &Program, client: &Client, order: &Value) {
    let (status, placed) = program.call(client, "POST", "/orders", None, order).await.unwrap();
    assert_eq!(status, 201, "{placed}");
}

async fn grow_together(state_file: Option<&Path>) {
    let database = postgres::database().await;
    let pool = PgPool::connect(&database.url).await.unwrap();
    let mut arguments = vec!["--roles", "api,projector", "--log-origin", tree::ORIGIN];
    if let Some(state_file) = state_file {
        arguments.extend(["--log-state-file", state_file.to_str().unwrap()]);
    }
    let mut programs = [Program::start(&database.url, &arguments).await, Program::start(&database.url, &arguments).await];
    let client = programs[0].client("10000.00").await;
    let wanted = json!({"product_id": programs[0].product(1).await, "denomination": 10, "quantity": 1});
    let mut served = Served::default();
    for round in 0..4 {
        for n in 0..20 {
            order(&programs[n % 2], &client, &wanted).await;
            for program in &programs {
                served.by(program).await;
            }
        }
        // One process is killed, and the other one continues alone.
        let (killed, alive) = (round % 2, 1 - round % 2);
        programs[killed].signal(Signal::SIGKILL);
        programs[killed].ended().await;
        for _ in 0..5 {
            order(&programs[alive], &client, &wanted).await;
        }
        let head = u64::try_from(reader::head(&pool, SHARD).await.unwrap()).unwrap();
        until("it is signed", async || served.by(&programs[alive]).await >= head).await;
        programs[killed].restart().await;
    }

    // Each checkpoint is the root over the events up to its size, so any two of them are consistent.
    let head = reader::head(&pool, SHARD).await.unwrap();
    let (mut events, mut roots) = (Frontier::default(), vec![Frontier::default().root()]);
    for stored in reader::stored_after(&pool, SHARD, 0, head).await.unwrap() {
        events.append(leaf_hash(&stored.leaf().to_bytes()));
        roots.push(events.root());
    }
    let origin = format!("{}/1", tree::ORIGIN);
    let sizes: Vec<i64> = sqlx::query_scalar("SELECT size FROM log_checkpoints WHERE shard_id = $1 AND origin = $2")
        .bind(SHARD)
        .bind(&origin)
        .fetch_all(&pool)
        .await
        .unwrap();
    let mut signed = BTreeMap::new();
    for size in sizes {
        let published = store::checkpoint(&pool, SHARD, &origin, size.try_into().unwrap()).await.unwrap().unwrap();
        let opened = Trust::in_keys(vec![tree::key()]).open(&published.note).unwrap().checkpoint;
        assert_eq!((opened.size, opened.root), (published.size, published.root));
        signed.insert(opened.size, opened.root);
    }
    assert_eq!(*signed.last_key_value().unwrap().0, u64::try_from(head).unwrap());
    assert!(served.0.len() > 4 && served.0.iter().all(|(size, root)| signed.get(size) == Some(root)));
    for (size, root) in &signed {
        assert_eq!(roots[usize::try_from(*size).unwrap()], *root, "of {size} events");
    }
    for program in &programs {
        assert!(!program.log().contains("refused to sign the transparency log"), "{}", program.log());
    }
}
