//! Rate limit headers while the database is unavailable.

use chrono::Utc;
use serde_json::{Value, json};

use crate::support::node::{Node, TestResponse};

/// Returns the limit and the remaining requests of a response that has all three headers.
#[track_caller]
fn quota(answer: &TestResponse) -> (u32, u32) {
    let number =
        |name: &str| answer.header(name).parse::<u32>().unwrap_or_else(|_| panic!("{name}: {} {}", answer.status, answer.text));
    assert!(i64::from(number("x-ratelimit-reset")) >= Utc::now().timestamp());
    (number("x-ratelimit-limit"), number("x-ratelimit-remaining"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_response_under_a_rule_carries_the_last_known_quota() {
    let (node, proxy) = Node::behind_a_proxy().await;
    let setup = node.setup().await;
    let user = node.user(setup.client.account_id, "owner").await;
    let other = node.account("Other").await;
    let before = quota(&node.client(&setup.client, "GET", "/orders", Value::Null).await);
    let images = quota(&node.client(&setup.client, "GET", "/products/images", Value::Null).await);
    assert_eq!((before, images), ((1_000_000, 999_999), (1_000_000, 999_999)));
    node.client(&setup.client, "GET", "/orders", Value::Null).await;

    proxy.set_away(true);
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let login = json!({"email": user.email, "password": "wrong"});
    let (known, order, image, unknown, bearer, login, refresh, portal) = tokio::join!(
        node.client(&setup.client, "GET", "/orders", Value::Null),
        node.client(&setup.client, "POST", "/orders", order),
        node.client(&setup.client, "GET", "/products/images", Value::Null),
        node.client(&other, "GET", "/orders", Value::Null),
        node.bearer(&user.access_token, "GET", "/api/v1/orders", Value::Null),
        node.anyone("POST", "/auth/login", login),
        node.anyone("POST", "/auth/refresh", json!({"refresh_token": "x"})),
        node.portal(&user.cookie, node.url(), "POST", "/client/api/api-keys", json!({"name": "a"})),
    );
    for answer in [&known, &order, &image, &unknown, &bearer, &login, &refresh, &portal] {
        assert_eq!(answer.status, 503, "{}", answer.text);
    }
    assert_eq!(quota(&known), (1_000_000, 999_998), "the quota is the last one that this node knows");
    assert_eq!(quota(&image), (1_000_000, 999_999));
    for answer in [&order, &unknown, &bearer, &login, &refresh, &portal] {
        assert_eq!(quota(answer), (1_000_000, 1_000_000), "only the rule's limit is known");
    }
    let ungoverned = node.anyone("GET", "/auth/nowhere", Value::Null).await;
    assert_eq!((ungoverned.status, ungoverned.header("x-ratelimit-limit")), (503, ""));

    proxy.set_away(false);
    crate::support::wait::until("the database is back", async || {
        node.client(&setup.client, "GET", "/orders", Value::Null).await.status == 200
    })
    .await;
}
