//! Clients that place orders one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::Value;
use tokio::task::JoinHandle;

use super::nodes::{Answer, Caller, RETRY_PAUSE, Scene};
use crate::support::wait::until;

/// Number of clients.
const LANES: usize = 6;

/// Clients that run until they are stopped.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    placed: Arc<AtomicUsize>,
    repeated: Arc<AtomicUsize>,
    lanes: Vec<JoinHandle<Vec<i64>>>,
}

/// One client.
#[derive(Debug)]
struct Lane {
    caller: Caller,
    urls: Vec<String>,
    /// Number of the address that gets the first attempt of each request.
    first: usize,
    is_strict: bool,
    name: String,
    body: Value,
    stop: Arc<AtomicBool>,
    placed: Arc<AtomicUsize>,
    repeated: Arc<AtomicUsize>,
}

impl Load {
    /// Starts clients of these addresses. They repeat a request at the next address until they know its outcome. The name
    /// distinguishes their keys from those of another load.
    pub fn insisting(scene: &Scene, urls: &[String], name: &str) -> Load {
        Load::start(scene, urls, name, false)
    }

    /// Starts clients of one address, for whom no request may fail.
    pub fn strict(scene: &Scene, url: String, name: &str) -> Load {
        Load::start(scene, &[url], name, true)
    }

    fn start(scene: &Scene, urls: &[String], name: &str, is_strict: bool) -> Load {
        let stop = Arc::<AtomicBool>::default();
        let (placed, repeated) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let lanes = (0..LANES).map(|number| {
            let lane = Lane {
                caller: scene.caller.clone(),
                urls: urls.to_vec(),
                first: number,
                is_strict,
                name: format!("{name} {number}"),
                body: scene.body(),
                stop: stop.clone(),
                placed: placed.clone(),
                repeated: repeated.clone(),
            };
            tokio::spawn(lane.run())
        });
        let lanes = lanes.collect();
        Load { stop, placed, repeated, lanes }
    }

    /// Waits until the clients have placed this many more orders.
    pub async fn until_placed(&self, count: usize) {
        let enough = self.placed.load(Ordering::SeqCst) + count;
        let has_failed = || self.lanes.iter().any(JoinHandle::is_finished);
        until("the clients make progress", async || has_failed() || self.placed.load(Ordering::SeqCst) >= enough).await;
        assert!(!has_failed(), "a client has met an error");
    }

    /// Returns the number of requests that were repeated.
    pub fn repeated(&self) -> usize {
        self.repeated.load(Ordering::SeqCst)
    }

    /// Stops the clients. Returns their orders.
    pub async fn stop(self) -> Vec<i64> {
        self.stop.store(true, Ordering::SeqCst);
        let orders = futures::future::join_all(self.lanes).await;
        orders.into_iter().flat_map(|orders| orders.expect("the client met no error")).collect()
    }
}

impl Lane {
    async fn run(self) -> Vec<i64> {
        let mut orders = vec![];
        while !self.stop.load(Ordering::SeqCst) {
            orders.push(self.place(&format!("{} {}", self.name, orders.len())).await);
            self.placed.fetch_add(1, Ordering::SeqCst);
        }
        orders
    }

    /// Places an order under this key.
    async fn place(&self, key: &str) -> i64 {
        let mut at = self.first;
        loop {
            match self.caller.order(&self.urls[at % self.urls.len()], Some(key), &self.body).await {
                Ok(answer) if answer.status == 201 => return answer.order(),
                outcome if self.is_strict => panic!("{key}: {outcome:?}"),
                // The request had no effect, or its outcome is unknown. A killed node does not answer.
                Ok(Answer { status: 409 | 503 | 504, .. }) | Err(_) => {}
                Ok(answer) => panic!("{key}: {answer:?}"),
            }
            self.repeated.fetch_add(1, Ordering::SeqCst);
            at += 1;
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }
}
