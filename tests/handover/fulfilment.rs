//! Fulfilment on a node that does not lead the shard.

use futures::future::join_all;
use nix::sys::signal::Signal;
use serde_json::json;

use super::nodes::{Scene, handed_over};
use crate::support::program::NODE_LISTEN;
use crate::support::wait::{until, until_true};

/// Number of orders at the same time.
const ORDERS: usize = 20;
/// Whether fulfilment has seen every order.
const ALL_TAKEN_UP: &str = "SELECT NOT EXISTS (SELECT FROM orders WHERE NOT is_queued)";

/// Places orders through the leader. Returns their ids.
async fn place(scene: &Scene, product: i64) -> Vec<i64> {
    let (url, body) = (scene.nodes[0].url(), json!({"product_id": product, "denomination": 10, "quantity": 1}));
    let placed = join_all((0..ORDERS).map(|_| scene.caller.order(&url, None, &body))).await;
    placed.into_iter().map(|placed| placed.unwrap().order()).collect()
}

/// Waits until this many orders are delivered, each with a voucher of its own.
async fn until_delivered(scene: &Scene, count: usize) {
    let delivered = format!(
        "SELECT (SELECT count(*) = {count} FROM orders WHERE status = 'DELIVERED')
            AND (SELECT count(*) = {count} AND count(DISTINCT order_id) = {count} FROM vault.vouchers WHERE order_id IS NOT NULL)"
    );
    until_true("the orders are delivered", &scene.pool, &delivered).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fulfilment_hands_its_commands_to_the_leader_and_goes_on_when_the_leader_dies() {
    let leading = [&["--roles", "api"][..], &NODE_LISTEN].concat();
    let fulfilling = [&["--roles", "api,fulfilment"][..], &NODE_LISTEN].concat();
    let scene = Scene::start([&leading, &fulfilling]).await;
    let product = scene.nodes[0].product(2 * ORDERS).await;
    until_true("fulfilment has nothing to do", &scene.pool, ALL_TAKEN_UP).await;
    let before = handed_over(&scene.nodes[1], "answered").await;
    let mut orders = place(&scene, product).await;
    until_delivered(&scene, ORDERS).await;
    // All orders came to the leader, so the other node has handed nothing over but commands of fulfilment.
    until("commands of fulfilment are handed over", async || handed_over(&scene.nodes[1], "answered").await > before).await;

    orders.extend(place(&scene, product).await);
    scene.nodes[0].signal(Signal::SIGKILL);
    until_delivered(&scene, 2 * ORDERS).await;
    scene.check(&orders).await;
}
