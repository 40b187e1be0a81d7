//! Restricted API keys: scopes, expiry, allowed networks, and the time of the last use.

use chrono::{SubsecRound, TimeDelta, Utc};
use serde_json::{Value, json};

use crate::support::node::{Client, Node, TestResponse};
use crate::support::wait::until;

const KEYS: &str = "/client/api/api-keys";

/// Sends a request with an API key from a source address.
async fn from(node: &Node, key: &Client, source: &str, method: &str, path: &str) -> TestResponse {
    let request = node.request(method, path).header("X-API-Key", &key.key).header("X-API-Secret", &key.secret);
    node.send(request.header("X-Forwarded-For", source)).await
}

#[tokio::test]
async fn the_list_shows_the_restrictions_that_a_key_was_created_with() {
    let node = Node::start().await;
    let account = node.account("Acme").await;
    let owner = node.user(account.account_id, "owner").await;
    let expires_at = Utc::now().trunc_subsecs(3) + TimeDelta::days(30);
    let expires_at = expires_at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    let body = json!({
        "name": "till", "scopes": ["orders", "read", "read"], "expires_at": expires_at,
        "allowed_networks": ["2001:db8::/32", "203.0.113.7", "198.51.100.0/24", "203.0.113.7/32"],
    });
    let created = node.bearer(&owner.access_token, "POST", KEYS, body).await.data(201);
    let listed = node.bearer(&owner.access_token, "GET", KEYS, Value::Null).await.data(200);
    let (restricted, plain) = (&listed["api_keys"][0], &listed["api_keys"][1]);
    assert_eq!(restricted["id"], created["id"]);
    assert_eq!(restricted["scopes"], json!(["read", "orders"]));
    assert_eq!(restricted["expires_at"], json!(expires_at));
    assert_eq!(restricted["allowed_networks"], json!(["198.51.100.0/24", "203.0.113.7/32", "2001:db8::/32"]));
    for field in ["scopes", "expires_at", "allowed_networks", "last_used_at"] {
        assert_eq!(plain[field], Value::Null, "{field} of an unrestricted key");
    }
}

#[tokio::test]
async fn restrictions_that_make_no_sense_are_refused_by_field() {
    let node = Node::start().await;
    let account = node.account("Acme").await;
    let owner = node.user(account.account_id, "owner").await;
    let many: Vec<_> = (0..51).map(|n| format!("10.0.{n}.0/24")).collect();
    for (field, value) in [
        ("scopes", json!([])),
        ("scopes", json!(["everything"])),
        ("scopes", json!("read")),
        ("expires_at", json!("2020-01-31T12:00:00Z")),
        ("expires_at", json!("tomorrow")),
        ("allowed_networks", json!([])),
        ("allowed_networks", json!(["10.0.0.1/8"])),
        ("allowed_networks", json!(["example.com"])),
        ("allowed_networks", json!(["::ffff:10.0.0.0/104"])),
        ("allowed_networks", json!(many)),
    ] {
        let answer = node.bearer(&owner.access_token, "POST", KEYS, json!({"name": "a", field: value})).await;
        let error = answer.refused(400, "E_VALIDATION_FAILURE");
        let fields: Vec<&String> = error["messages"].as_object().unwrap().keys().collect();
        assert!(fields.iter().all(|name| name.starts_with(field)), "{field} {value}: {fields:?}");
    }
}

#[tokio::test]
async fn a_key_is_refused_from_other_networks_and_the_refusals_do_not_use_up_its_rate_limit() {
    let node = Node::start().await;
    let account = node.account("Acme").await;
    let networks = json!({"allowed_networks": ["203.0.113.0/24", "2001:db8::/32"]});
    let key = node.restricted(account.account_id, networks).await;
    let remaining = async || -> u32 {
        let answer = from(&node, &key, "203.0.113.9", "GET", "/api/v1/wallets").await;
        let remaining = answer.header("x-ratelimit-remaining").parse().unwrap();
        answer.data(200);
        remaining
    };
    let before = remaining().await;
    for source in ["198.51.100.7", "2001:db9::1", "127.0.0.1"] {
        from(&node, &key, source, "GET", "/api/v1/wallets").await.refused(403, "E_NETWORK_NOT_ALLOWED");
        let wrong = Client { secret: "wrong".to_owned(), ..key.clone() };
        from(&node, &wrong, source, "GET", "/api/v1/wallets").await.refused(401, "E_UNAUTHORIZED");
    }
    from(&node, &key, "2001:db8::5", "GET", "/api/v1/wallets").await.data(200);
    assert_eq!(remaining().await, before - 2);
}

#[tokio::test]
async fn a_key_is_refused_from_its_expiry_on() {
    let node = Node::start().await;
    let account = node.account("Acme").await;
    let expires_at = Utc::now() + TimeDelta::seconds(3);
    let key = node.restricted(account.account_id, json!({"expires_at": expires_at})).await;
    node.client(&key, "GET", "/wallets", Value::Null).await.data(200);
    until("the key expires", async || node.client(&key, "GET", "/wallets", Value::Null).await.status == 401).await;
    assert!(Utc::now() >= expires_at.trunc_subsecs(3));
    node.client(&key, "GET", "/wallets", Value::Null).await.refused(401, "E_API_KEY_EXPIRED");
    let wrong = Client { secret: "wrong".to_owned(), ..key };
    node.client(&wrong, "GET", "/wallets", Value::Null).await.refused(401, "E_UNAUTHORIZED");
}

#[tokio::test]
async fn the_last_use_of_a_key_is_recorded_once_a_minute() {
    let node = Node::start().await;
    let account = node.account("Acme").await;
    let owner = node.user(account.account_id, "owner").await;
    let used = async || {
        let listed = node.bearer(&owner.access_token, "GET", KEYS, Value::Null).await.data(200);
        listed["api_keys"][0]["last_used_at"].clone()
    };
    assert_eq!(used().await, Value::Null);
    let begun = Utc::now() - TimeDelta::seconds(1);
    node.client(&account, "GET", "/wallets", Value::Null).await.data(200);
    until("the use is recorded", async || used().await.is_string()).await;
    let first = used().await;
    let at: chrono::DateTime<Utc> = first.as_str().unwrap().parse().unwrap();
    assert!(begun <= at && at <= Utc::now() + TimeDelta::seconds(1), "{at}");
    for _ in 0..20 {
        node.client(&account, "GET", "/wallets", Value::Null).await.data(200);
    }
    let writes: i64 = sqlx::query_scalar("SELECT count(*) FROM credential_uses").fetch_one(node.ledger.pool()).await.unwrap();
    assert_eq!((writes, used().await), (1, first));
    // A refused request is no use.
    let other = node.restricted(account.account_id, json!({"allowed_networks": ["192.0.2.0/24"]})).await;
    from(&node, &other, "198.51.100.7", "GET", "/api/v1/wallets").await.refused(403, "E_NETWORK_NOT_ALLOWED");
    assert_eq!(used().await, Value::Null);
}
