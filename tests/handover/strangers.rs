//! Requests to the listener for nodes: only those of a node of the same ledger are taken, once, and while they are recent.

use std::net::TcpListener;
use std::ops::Range;
use std::time::{Duration, Instant};

use rewards_ledger::secrets::seal::Keyring;

use super::nodes::Scene;
use super::wiretap::{Kept, Wiretap};
use crate::support::program::{NODE_LISTEN, OPERATOR_TOKEN, write_private};
use crate::support::wait::until;

/// Ports that no system gives to outgoing connections.
const PORTS: Range<u16> = 20_000..30_000;
/// Age at which no node takes a request any more.
const TOO_OLD: Duration = Duration::from_secs(6);

/// Returns an address of this machine that nobody uses now.
fn free_address() -> String {
    let mut free = std::iter::repeat_with(|| TcpListener::bind(("127.0.0.1", rand::random_range(PORTS)))).take(1_000).flatten();
    free.next().expect("a free port").local_addr().unwrap().to_string()
}

/// Nodes with a relay in front of the first one, and the URL of its own listener.
struct Tapped {
    scene: Scene,
    tap: Wiretap,
    url: String,
}

impl Tapped {
    /// Starts nodes with these additional arguments.
    async fn start(further: &[&str]) -> Tapped {
        let address = free_address();
        let url = format!("http://{address}");
        let tap = Wiretap::before(url.clone()).await;
        let through = tap.url();
        let first = [&["--roles", "api", "--node-listen", &address, "--node-url", &through][..], further].concat();
        let second = [&["--roles", "api"][..], &NODE_LISTEN, further].concat();
        Tapped { scene: Scene::start([&first, &second]).await, tap, url }
    }

    /// Returns a request of the second node that the first one did not get.
    async fn intercepted(&self) -> Kept {
        let before = self.tap.kept().len();
        self.tap.refuse(true);
        // After a refusal the node writes its orders itself for a while. It does not believe that nothing happened.
        until("an order is handed over", async || {
            let order = self.scene.caller.order(&self.scene.nodes[1].url(), None, &self.scene.body()).await.unwrap();
            assert!(matches!(order.status, 201 | 504), "{order:?}");
            self.tap.kept().len() > before
        })
        .await;
        self.tap.refuse(false);
        self.tap.kept().swap_remove(before)
    }

    /// Sends a request to the first node. Returns the status, and whether the log has grown.
    async fn send(&self, request: &Kept) -> (u16, bool) {
        let head = self.scene.head().await;
        let (status, _) = request.send(&reqwest::Client::new(), &self.url).await.unwrap();
        (status.as_u16(), self.scene.head().await > head)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_recent_request_of_a_node_of_the_ledger_is_taken_and_only_once() {
    let tapped = Tapped::start(&[]).await;
    let (old, kept_at) = (tapped.intercepted().await, Instant::now());
    let fresh = tapped.intercepted().await;
    assert!(tapped.scene.handed_over("unknown").await >= 2, "anybody on the way may have refused both orders");
    assert_eq!(tapped.send(&fresh).await, (200, true), "a request that the leader did not get before");

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("other.key");
    write_private(&file, &Keyring::generate());
    let foreign = Tapped::start(&["--master-key-file", file.to_str().unwrap()]).await.intercepted().await;
    let mut changed = fresh.body.to_vec();
    *changed.last_mut().unwrap() ^= 1;
    for (what, request) in [
        ("a repeated one", fresh.clone()),
        ("an empty one", fresh.with_body("")),
        ("one that is not sealed", fresh.with_body(r#"{"commands":[]}"#)),
        ("one that was changed", fresh.with_body(changed)),
        ("one that is sealed under another master key", foreign),
    ] {
        let (status, has_grown) = tapped.send(&request).await;
        assert!((400..500).contains(&status) && !has_grown, "{what}: {status}");
    }

    // Nothing but time makes a request too old.
    tokio::time::sleep(TOO_OLD.saturating_sub(kept_at.elapsed())).await;
    let (status, has_grown) = tapped.send(&old).await;
    assert!((400..500).contains(&status) && !has_grown, "an old one: {status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_listener_for_nodes_serves_nothing_else() {
    let scene = Scene::of_apis().await;
    let (url, http) = (scene.leader_url().await, reqwest::Client::new());
    for path in ["/", "/commands/1", "/metrics", "/healthz", "/readyz", "/admin/v1/accounts", "/api/v1/orders", "/portal"] {
        for method in ["GET", "POST"] {
            let request = http.request(method.parse().unwrap(), format!("{url}{path}")).bearer_auth(OPERATOR_TOKEN);
            assert_eq!(request.send().await.unwrap().status(), 404, "{method} {path}");
        }
    }
    let read = http.get(format!("{url}/commands")).send().await.unwrap();
    assert!(read.status().is_client_error(), "{}", read.status());
}
