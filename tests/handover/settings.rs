//! Settings of nodes that hand commands over, and nodes without them.

use futures::future::join_all;
use sqlx::PgPool;

use super::nodes::{Scene, handed_over, leads};
use crate::support::postgres;
use crate::support::program::{Program, run};
use crate::support::wait::until;

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_lead_other_nodes_nowhere_are_refused_by_name() {
    let database = postgres::database().await;
    let node = Program::start(&database.url, &["--roles", "api"]).await;
    let refused = [&["--node-url", "http://10.0.0.1:7000"][..], &["--node-listen", "0.0.0.0:0"], &["--node-listen", "[::]:0"]];
    for arguments in refused {
        let refused = run(node.command().args(["serve", "--listen", "127.0.0.1:0"]).args(arguments)).await;
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success(), "{arguments:?}");
        assert!(said.contains("--node-listen") && said.contains("--node-url"), "{arguments:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_has_the_bound_address_or_the_given_url() {
    for (listen, given) in [("127.0.0.1:0", None), ("0.0.0.0:0", Some("http://node-1.example.com:7000"))] {
        let database = postgres::database().await;
        let mut arguments = vec!["--roles", "api", "--node-listen", listen];
        arguments.extend(given.into_iter().flat_map(|url| ["--node-url", url]));
        let node = Program::start(&database.url, &arguments).await;
        until("the node leads the shard", async || leads(&node).await).await;
        let pool = PgPool::connect(&database.url).await.unwrap();
        let url: String = sqlx::query_scalar("SELECT url FROM shard_leaders").fetch_one(&pool).await.unwrap();
        match given {
            Some(given) => assert_eq!(url.trim_end_matches('/'), given),
            None => assert_eq!(reqwest::get(&url).await.unwrap().status(), 404, "{url} leads to the node"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_the_settings_leads_nothing_and_hands_nothing_over() {
    let scene = Scene::of_apis().await;
    let third = Program::start(&scene.database.url, &["--roles", "api"]).await;
    let (url, body) = (third.url(), scene.body());
    let placed = join_all((0..20).map(|_| scene.caller.order(&url, None, &body))).await;
    let orders: Vec<i64> = placed.into_iter().map(|placed| placed.unwrap().order()).collect();
    for outcome in ["answered", "returned", "unknown"] {
        assert_eq!(handed_over(&third, outcome).await, 0, "{outcome}");
    }
    assert!(!leads(&third).await);
    scene.check(&orders).await;
}
