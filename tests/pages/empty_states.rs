//! Empty states: each one says what to do first.

use std::collections::BTreeSet;

use rewards_ledger::access::Role;
use serde_json::json;

use super::crawl::crawl;
use crate::support::node::Node;

/// Sentences without a link, because the page has the form itself, somebody else acts, or nothing is to be done.
const WITHOUT_LINK: [&str; 22] = [
    "You have no wallet yet. The operators of the service open one for each currency.",
    "The catalogue is empty. The operators of the service add products.",
    "You have no beneficiary yet. A payout goes to a beneficiary, so add one first.",
    "No client has requested a payout yet. You settle payouts here.",
    "No statement is imported yet. Its lines are matched with fundings and payouts.",
    "There is no category yet. Categories group products, and an account can have a discount on one.",
    "No token was issued yet. A program needs one to call the API for operators.",
    "Nothing was verified yet. A verification compares every table with the log.",
    "No address is blocked.",
    "There is no account yet. An admin creates the first one.",
    "Nothing was erased in this shard.",
    "The log of this shard has no checkpoint yet. A node with the role projector signs it.",
    "Nothing was delivered to this account yet. It needs a webhook, and an order.",
    "No attempt is listed yet. It needs a webhook, and an order.",
    "The account has no wallet yet. It needs one in each currency in which it orders.",
    "The account has no webhook. Its people set one up in the portal, its programs through the API.",
    "The account has not ordered anything yet. Its people order in the portal, its programs through the API.",
    "The account has no discount. It pays the face value.",
    "No limit has counted a request of this account lately.",
    "Nothing was sent to this webhook yet. Send a test.",
    "Nothing was sent to this webhook yet. The next event that it is subscribed to is.",
    "There was no replay of this webhook yet. A replay sends again what failed or was missed.",
];

/// Returns the empty states of a page: the sentence, and whether a link leads on.
fn empty_states(page: &str) -> impl Iterator<Item = (&str, bool)> {
    page.split("<div class=\"empty\"><p>").skip(1).map(|rest| {
        let state = rest.split("</div>").next().unwrap();
        (state.split("</p>").next().unwrap(), state.contains("<a "))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn each_empty_state_says_what_to_do_first() {
    let node = Node::sandbox().await;
    let admin = node.console_user(Role::Admin).await;
    let mut found = BTreeSet::new();
    // Before the first account, and with a fresh one.
    let mut pages = crawl(&node, &admin.cookie, "/console").await;
    let account = node.account("Acme").await;
    let owner = node.user(account.account_id, "owner").await;
    pages.extend(crawl(&node, &owner.cookie, "/portal").await);
    let hook = json!({"name": "Shop", "url": "https://shop.example/hooks", "events": ["order.created"]});
    node.client(&account, "POST", "/webhooks", hook).await.json();
    let further = crawl(&node, &owner.cookie, "/portal").await;
    pages.extend(further.into_iter().map(|(path, page)| (format!("{path} with a webhook"), page)));
    let fresh = crawl(&node, &admin.cookie, "/console").await;
    let fresh = fresh.into_iter().map(|(path, page)| (format!("{path} with an account"), page));
    pages.extend(fresh);
    for (path, page) in &pages {
        let dead_ends = empty_states(page).filter(|(text, has_link)| !has_link && !WITHOUT_LINK.contains(text));
        found.extend(dead_ends.map(|(text, _)| (text, path)));
    }
    assert_eq!(found, BTreeSet::new(), "give these a link, or review the sentence");
    assert!(pages.values().flat_map(|page| empty_states(page)).count() > 20);
}
