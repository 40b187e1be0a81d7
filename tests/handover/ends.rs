//! The leader dies under load, or stops in order.

use nix::sys::signal::Signal;

use super::load::Load;
use super::nodes::{Scene, leads};
use crate::support::wait::until;

/// Number of orders before, between and after the steps of a round.
const PROGRESS: usize = 40;
/// Number of tries to show that the other node writes before the lease ends. A pause of the machine may outlast the lease.
const TRIES: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn the_other_node_writes_at_once_when_the_leader_is_killed_and_every_key_has_one_order() {
    let mut scene = Scene::of_apis().await;
    let (mut orders, mut writes_at_once) = (vec![], false);
    for round in 0..TRIES {
        let leader = scene.leader().await;
        let other = 1 - leader;
        let urls = [scene.nodes[other].url(), scene.nodes[leader].url()];
        let load = Load::insisting(&scene, &urls, &format!("round {round}"));
        load.until_placed(PROGRESS).await;
        let holder = scene.holder().await;
        scene.nodes[leader].signal(Signal::SIGKILL);
        let order = scene.caller.insist(&urls[0], &format!("after the kill {round}"), &scene.body()).await;
        // The dead node still has the lease.
        writes_at_once |= scene.holder().await == holder;
        orders.push(order.order());
        load.until_placed(PROGRESS).await;
        until("the other node takes the lease over", async || leads(&scene.nodes[other]).await).await;
        assert_ne!(scene.holder().await, holder);
        load.until_placed(PROGRESS).await;
        assert!(load.repeated() > 0, "the kill made clients repeat requests");
        orders.extend(load.stop().await);
        assert!(!scene.nodes[leader].ended().await.success());
        if writes_at_once {
            break;
        }
        scene.nodes[leader].restart().await;
    }
    assert!(writes_at_once, "the other node waited until the lease of the dead one had ended");
    scene.check(&orders).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_through_another_node_fails_while_the_leader_stops_in_order() {
    let mut scene = Scene::of_apis().await;
    let mut orders = vec![];
    for round in 0..2 {
        let leader = scene.leader().await;
        let other = 1 - leader;
        let load = Load::strict(&scene, scene.nodes[other].url(), &format!("round {round}"));
        load.until_placed(PROGRESS).await;
        scene.nodes[leader].signal(Signal::SIGTERM);
        assert!(scene.nodes[leader].ended().await.success());
        load.until_placed(PROGRESS).await;
        until("the other node takes the lease over", async || leads(&scene.nodes[other]).await).await;
        load.until_placed(PROGRESS).await;
        orders.extend(load.stop().await);
        scene.nodes[leader].restart().await;
    }
    scene.check(&orders).await;
}
