//! A read at a node that has handed an order over sees the order, also on a standby that lags.

use serde_json::{Value, json};

use super::nodes::{Answer, Caller, Scene, handed_over, leads, metric};
use crate::support::program::{NODE_LISTEN, Program};
use crate::support::replicas::Pair;
use crate::support::wait::until;

/// Places orders through a node until it has handed one over. Returns the answer to that one, and notes the ids of all.
async fn handed(caller: &Caller, node: &Program, body: &Value, orders: &mut Vec<i64>) -> Answer {
    let mut last = None;
    until("an order is handed over", async || {
        let before = handed_over(node, "answered").await;
        let placed = caller.order(&node.url(), None, body).await.unwrap();
        orders.push(placed.order());
        last = Some(placed);
        handed_over(node, "answered").await > before
    })
    .await;
    last.unwrap()
}

/// Returns the ids of the orders that a node lists, oldest first.
async fn listed(caller: &Caller, node: &Program, position: Option<&str>) -> Vec<i64> {
    let list = caller.get(&node.url(), "/orders?limit=100", position).await;
    assert_eq!(list.status, 200, "{list:?}");
    list.json()["data"]["orders"].as_array().unwrap().iter().rev().map(|order| order["id"].as_i64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_right_after_a_handed_over_order_sees_it() {
    let scene = Scene::of_apis().await;
    let other = &scene.nodes[1 - scene.leader().await];
    let mut orders = vec![];
    for _ in 0..10 {
        let placed = handed(&scene.caller, other, &scene.body(), &mut orders).await;
        assert!(placed.position.is_some(), "{placed:?}");
        let read = scene.caller.get(&other.url(), &format!("/orders/{}", placed.order()), placed.position.as_deref()).await;
        assert_eq!((read.status, &read.text), (200, &placed.text));
        assert_eq!(listed(&scene.caller, other, placed.position.as_deref()).await, orders);
        let wallets = scene.caller.get(&other.url(), "/wallets", None).await;
        let balance = format!("{}.00", 1_000_000 - 10 * orders.len());
        assert_eq!(wallets.json()["data"]["wallets"][0]["balance"], balance);
    }
    scene.check(&orders).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_a_standby_shows_what_it_has_handed_over() {
    let pair = Pair::start().await;
    let (url, standby) = (pair.primary_url(), pair.standby_url());
    let leader = Program::start(&url, &[&["--roles", "api"][..], &NODE_LISTEN].concat()).await;
    until("the first node leads the shard", async || leads(&leader).await).await;
    let other = Program::start(&url, &[&["--roles", "api", "--read-url", &standby][..], &NODE_LISTEN].concat()).await;
    let caller = Caller::new(leader.client("1000000.00").await);
    let product = leader.product(0).await;
    let body = json!({"product_id": product, "denomination": 10, "quantity": 1});
    let mut orders = vec![];
    let first = handed(&caller, &other, &body, &mut orders).await;
    // A pause of the machine may send some of the reads to the primary.
    until("the standby serves the list", async || {
        let served = async || metric(&other, "ledger_standby_reads_total", "outcome=\"served\"").await.unwrap();
        let before = served().await;
        assert_eq!(listed(&caller, &other, first.position.as_deref()).await, orders);
        served().await > before
    })
    .await;

    pair.hold_back(true).await;
    let second = handed(&caller, &other, &body, &mut orders).await;
    for position in [second.position.as_deref(), None] {
        assert_eq!(listed(&caller, &other, position).await, orders);
    }
    // A quote passes no writer, so its position is the one that the node learned from the leader.
    let quote = caller.post(&other.url(), "/charges", None, &body).await.unwrap();
    assert!(quote.status == 200 && quote.position.is_some(), "{quote:?}");
    assert_eq!(listed(&caller, &other, quote.position.as_deref()).await, orders);
}
