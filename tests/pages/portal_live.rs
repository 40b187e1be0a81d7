//! Live updates of the portal: open pages show what others of the account do, each for as long as its session lasts.

use serde_json::json;

use super::portal_orders::enter;
use super::{check, in_browser, place};
use crate::support::node::{Node, User};
use crate::support::program::DEADLINE;
use crate::support::wait::until;

/// Opens the stream of a user's pages.
async fn stream_of(node: &Node, user: &User) -> reqwest::Response {
    let request = reqwest::Client::new().get(format!("{}/portal/live", node.url())).header("Cookie", &user.cookie);
    request.send().await.unwrap()
}

/// Reads a stream up to its next change.
async fn hears_of_a_change(stream: &mut reqwest::Response) {
    let mut said = String::new();
    while !said.contains("event: changed") {
        let part = tokio::time::timeout(DEADLINE, stream.chunk()).await.expect("a change is told").unwrap();
        said.push_str(&String::from_utf8_lossy(&part.expect("the stream goes on")));
    }
}

/// Waits until the node waits for the next event of the account.
async fn is_followed(node: &Node) {
    until("the account is followed", async || node.feed.len() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_order_shows_what_others_do_without_a_reload() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let viewer = node.user(setup.client.account_id, "viewer").await;
    let order = place(&node, &setup).await;
    in_browser((390, 2_400), true, |browser| async move {
        enter(&browser, &node, &viewer, &format!("/portal/orders/{order}")).await;
        browser.find("//h1[starts-with(text(), 'Order ')]").await;
        browser.run("window.opened = 'once'").await;
        is_followed(&node).await;
        let cancel = json!({"reason": "by a program"});
        node.client(&setup.client, "POST", &format!("/orders/{order}/cancel"), cancel).await.data(200);
        browser.sees("“by a program”").await;
        assert_eq!(browser.run("return window.opened").await, "once");
        check(&browser, "an order in the portal after a live update").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_its_session_and_those_of_others_go_on() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let first = node.user(setup.client.account_id, "owner").await;
    let other = node.user(setup.client.account_id, "viewer").await;
    // The first visitor's request makes the calls that wait for events.
    let mut ending = stream_of(&node, &first).await;
    let kind = ending.headers()["content-type"].to_str().unwrap();
    assert_eq!((ending.status().as_u16(), kind), (200, "text/event-stream"));
    let mut going_on = stream_of(&node, &other).await;
    // Each page looks once when its stream begins.
    hears_of_a_change(&mut ending).await;
    hears_of_a_change(&mut going_on).await;
    is_followed(&node).await;
    let logout = node.portal(&first.cookie, node.url(), "POST", "/auth/logout", json!({})).await;
    assert_eq!(logout.status, 200, "{}", logout.text);

    place(&node, &setup).await;
    hears_of_a_change(&mut going_on).await;
    let rest = async {
        let mut rest = String::new();
        while let Some(part) = ending.chunk().await.unwrap() {
            rest.push_str(&String::from_utf8_lossy(&part));
        }
        rest
    };
    let rest = tokio::time::timeout(DEADLINE, rest).await.expect("the stream ends");
    assert!(!rest.contains("changed"), "nothing is told after the end of the session: {rest}");
    assert!(stream_of(&node, &first).await.url().path().ends_with("/portal/login"));

    // The calls go on for the others, although the visitor who makes them is gone. While the account is followed, all earlier
    // changes are told. So a fresh stream has only that of its beginning, and the next one is that of the order.
    is_followed(&node).await;
    let mut fresh = stream_of(&node, &other).await;
    hears_of_a_change(&mut fresh).await;
    is_followed(&node).await;
    place(&node, &setup).await;
    hears_of_a_change(&mut fresh).await;
}
