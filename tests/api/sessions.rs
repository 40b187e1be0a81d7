//! Sessions of users: logins, tokens, the portal, and the end of sessions.

use chrono::{DateTime, TimeDelta, Utc};
use ledger_events::UserId;
use rewards_ledger::access::sessions::Login;
use rewards_ledger::access::tokens::{AccessTokens, Claims};
use rewards_ledger::access::{Lane, sessions};
use rewards_ledger::secrets::seal::Secret;
use serde_json::{Value, json};

use crate::support::ledger::keyring;
use crate::support::node::{AMPLE_LIMITS, Node, PASSWORD, TestResponse, User};
use crate::support::wait::until_locked_out;

pub const KEYS: &str = "/client/api/api-keys";

async fn log_in(node: &Node, email: &str, password: &str) -> TestResponse {
    node.anyone("POST", "/auth/login", json!({"email": email, "password": password})).await
}

async fn refresh(node: &Node, token: &str) -> TestResponse {
    node.anyone("POST", "/auth/refresh", json!({"refresh_token": token})).await
}

/// Starts a node with an account and one user with this role.
pub async fn with_user(role: &str) -> (Node, User) {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let user = node.user(client.account_id, role).await;
    (node, user)
}

#[tokio::test]
async fn a_login_gives_tokens_and_a_portal_cookie() {
    let (node, user) = with_user("owner").await;
    let answer = log_in(&node, &user.email.to_uppercase(), PASSWORD).await;
    let data = answer.data(200);
    let mut fields: Vec<&String> = data.as_object().unwrap().keys().collect();
    fields.sort();
    assert_eq!(fields, ["access_token", "account_id", "expires_in", "refresh_expires_at", "refresh_token", "token_type"]);
    assert_eq!(
        (&data["token_type"], &data["expires_in"], &data["account_id"]),
        (&json!("Bearer"), &json!(900), &json!(user.account_id))
    );
    let expires: DateTime<Utc> = data["refresh_expires_at"].as_str().unwrap().parse().unwrap();
    let days = (expires - Utc::now() - TimeDelta::days(7)).abs();
    assert!(days < TimeDelta::minutes(5), "{expires}");
    assert_eq!(answer.header("cache-control"), "no-store");

    let cookie = answer.header("set-cookie");
    let attributes: Vec<&str> = cookie.split("; ").skip(1).collect();
    assert_eq!(attributes, ["Path=/", "Max-Age=28800", "HttpOnly", "Secure", "SameSite=Strict"]);
    let cookie = cookie.split(';').next().unwrap();
    for answer in [
        node.bearer(data["access_token"].as_str().unwrap(), "GET", "/api/v1/orders", Value::Null).await,
        node.bearer(data["access_token"].as_str().unwrap(), "GET", KEYS, Value::Null).await,
        node.portal(cookie, "https://elsewhere.example", "GET", KEYS, Value::Null).await,
    ] {
        answer.data(200);
    }
}

#[tokio::test]
async fn an_unknown_email_and_a_wrong_password_get_the_same_answer() {
    let (node, user) = with_user("owner").await;
    let mut texts = vec![];
    for email in [user.email.as_str(), "nobody@example.com", &user.email, "no address"] {
        let answer = log_in(&node, email, "wrong password").await;
        answer.refused(401, "E_INVALID_CREDENTIALS");
        assert!(answer.headers.get("set-cookie").is_none());
        texts.push(answer.text);
    }
    texts.dedup();
    assert_eq!(texts.len(), 1, "{texts:?}");
    // A test of `access::passwords` proves that both cases do the same work. Measured times would prove nothing here.
}

/// No login is answered before its password is hashed. When the hashing queue is full, all logins are refused alike.
#[tokio::test]
async fn a_login_that_finds_the_hashing_queue_full_is_refused_for_everyone() {
    let (node, user) = with_user("owner").await;
    let passwords = node.sessions.passwords();
    let work = || Box::pin(passwords.verify(Lane::Source([127, 0, 0, 1].into()), Secret::new("x"), None));
    let mut first = work();
    assert!(futures::poll!(&mut first).is_pending());
    // A waiting verification that is not polled keeps its place in the queue, and its turn when the first one
    // finishes.
    let mut waiting = vec![];
    let mut next = work();
    while futures::poll!(&mut next).is_pending() {
        waiting.push(std::mem::replace(&mut next, work()));
    }
    assert!(waiting.len() > 90, "{}", waiting.len());
    first.await.unwrap();
    let mut last = work();
    assert!(futures::poll!(&mut last).is_pending());
    let mut texts = vec![];
    for email in [user.email.as_str(), "nobody@example.com", "no address"] {
        let answer = log_in(&node, email, PASSWORD).await;
        answer.refused(503, "E_UNAVAILABLE");
        texts.push(answer.text);
    }
    texts.dedup();
    assert_eq!(texts.len(), 1, "{texts:?}");
    drop((waiting, last));
    log_in(&node, &user.email, PASSWORD).await.data(200);
}

#[tokio::test]
async fn a_refresh_token_counts_once_and_a_second_use_ends_the_session() {
    let (node, user) = with_user("viewer").await;
    let orders = async |token: &str| node.bearer(token, "GET", "/api/v1/orders", Value::Null).await;
    let second = refresh(&node, &user.refresh_token).await.data(200);
    assert_ne!(second["refresh_token"], user.refresh_token);
    orders(second["access_token"].as_str().unwrap()).await.data(200);
    orders(&user.access_token).await.data(200);

    refresh(&node, &user.refresh_token).await.refused(401, "E_INVALID_TOKEN");
    // The holder of the new token may be the thief, so it is refused as well.
    refresh(&node, second["refresh_token"].as_str().unwrap()).await.refused(401, "E_INVALID_TOKEN");
    for token in [second["access_token"].as_str().unwrap(), &user.access_token] {
        orders(token).await.refused(401, "E_INVALID_TOKEN");
    }
    node.portal(&user.cookie, node.url(), "GET", KEYS, Value::Null).await.refused(401, "E_INVALID_TOKEN");
    for token in ["", "x", &"0".repeat(64)] {
        let answer = refresh(&node, token).await;
        assert!(matches!(answer.status, 400 | 401), "{}", answer.text);
    }
    // Another session of the same user continues.
    let (granted, _) =
        node.sessions.log_in(Login::new(&*user.email, Secret::new(PASSWORD), [127, 0, 0, 1].into())).await.unwrap();
    refresh(&node, granted.refresh_token.expose()).await.data(200);
}

#[tokio::test]
async fn at_most_one_of_concurrent_refreshes_with_one_token_succeeds() {
    let (node, user) = with_user("viewer").await;
    let other = node.beside(AMPLE_LIMITS.parse().unwrap()).await;
    let answers = futures::future::join_all((0..8).map(|n| {
        let node = if n % 2 == 0 { &node } else { &other };
        refresh(node, &user.refresh_token)
    }))
    .await;
    let (good, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 200);
    assert_eq!((good.len(), refused.len()), (1, 7));
    refused.iter().for_each(|answer| _ = answer.refused(401, "E_INVALID_TOKEN"));
    let next = good[0].data(200);
    refresh(&node, next["refresh_token"].as_str().unwrap()).await.refused(401, "E_INVALID_TOKEN");
}

/// Interrupts a refresh as a kill would. Before the commit the token is still valid; after it, the token is used.
#[tokio::test]
async fn a_refresh_interrupted_before_its_commit_has_no_effect() {
    let (node, user) = with_user("viewer").await;
    let mut killed = node.options.connect().await.unwrap();
    sqlx::raw_sql("BEGIN; UPDATE vault.refresh_tokens SET used_at = now()").execute(&mut killed).await.unwrap();
    let waiting = refresh(&node, &user.refresh_token);
    let kill = async {
        // As soon as the refresh waits for the lock.
        until_locked_out(&node.options, "rewards-ledger").await;
        drop(killed);
    };
    let (answer, ()) = tokio::join!(waiting, kill);
    answer.data(200);
}

#[tokio::test]
async fn a_logout_ends_tokens_and_cookie_on_every_node() {
    let (node, user) = with_user("owner").await;
    let other = node.beside(AMPLE_LIMITS.parse().unwrap()).await;
    other.bearer(&user.access_token, "GET", "/api/v1/orders", Value::Null).await.data(200);
    let answer = node.bearer(&user.access_token, "POST", "/auth/logout", Value::Null).await;
    answer.data(200);
    assert!(answer.header("set-cookie").starts_with("__Host-portal=; Path=/; Max-Age=0; "));
    other.bearer(&user.access_token, "GET", "/api/v1/orders", Value::Null).await.refused(401, "E_INVALID_TOKEN");
    other.portal(&user.cookie, other.url(), "GET", KEYS, Value::Null).await.refused(401, "E_INVALID_TOKEN");
    refresh(&other, &user.refresh_token).await.refused(401, "E_INVALID_TOKEN");
    node.bearer(&user.access_token, "POST", "/auth/logout", Value::Null).await.refused(401, "E_INVALID_TOKEN");
}

#[tokio::test]
async fn every_revocation_applies_to_the_next_request_on_another_node() {
    let node = Node::start().await;
    let other = node.beside(AMPLE_LIMITS.parse().unwrap()).await;
    let client = node.account("Acme").await;
    let owner = node.user(client.account_id, "owner").await;
    let leaver = node.user(client.account_id, "operator").await;
    let hook = json!({"name": "a", "url": "https://example.com/hook", "events": ["order.created"]});

    other.bearer(&leaver.access_token, "GET", "/api/v1/orders", Value::Null).await.data(200);
    node.operator("DELETE", &format!("/users/{}", leaver.id), Value::Null).await.data(200);
    other.bearer(&leaver.access_token, "GET", "/api/v1/orders", Value::Null).await.refused(401, "E_INVALID_TOKEN");
    other.bearer(&leaver.access_token, "POST", "/api/v1/webhooks", hook.clone()).await.refused(401, "E_INVALID_TOKEN");
    other.portal(&leaver.cookie, other.url(), "GET", KEYS, Value::Null).await.refused(401, "E_INVALID_TOKEN");
    refresh(&other, &leaver.refresh_token).await.refused(401, "E_INVALID_TOKEN");
    log_in(&other, &leaver.email, PASSWORD).await.refused(401, "E_INVALID_CREDENTIALS");

    other.client(&client, "GET", "/orders", Value::Null).await.data(200);
    let key = format!("{KEYS}/{}", client.credential_id);
    node.bearer(&owner.access_token, "DELETE", &key, Value::Null).await.data(200);
    other.client(&client, "GET", "/orders", Value::Null).await.refused(401, "E_UNAUTHORIZED");

    // The account's state in the writer's cache does not let the order pass either.
    let setup = node.setup().await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    other.client(&setup.client, "POST", "/orders", order.clone()).await.data(201);
    let path = format!("/accounts/{}", setup.client.account_id);
    node.operator("PUT", &path, json!({"status": "SUSPENDED"})).await.data(200);
    other.client(&setup.client, "POST", "/orders", order).await.refused(403, "E_ACCOUNT_SUSPENDED");

    assert_eq!(other.bearer(&owner.access_token, "POST", "/api/v1/webhooks", hook.clone()).await.status, 201);
    node.operator("PUT", &format!("/accounts/{}", client.account_id), json!({"status": "SUSPENDED"})).await.data(200);
    other.bearer(&owner.access_token, "POST", "/api/v1/webhooks", hook).await.refused(403, "E_ACCOUNT_SUSPENDED");
    other.bearer(&owner.access_token, "POST", KEYS, json!({"name": "b"})).await.refused(403, "E_ACCOUNT_SUSPENDED");
    other.bearer(&owner.access_token, "GET", "/api/v1/webhooks", Value::Null).await.data(200);
    log_in(&other, &owner.email, PASSWORD).await.data(200);
}

#[tokio::test]
async fn tokens_cookies_and_sessions_end_by_the_databases_clock() {
    let (node, user) = with_user("owner").await;
    let tokens = AccessTokens::new(&keyring());
    let claims = tokens.read(&user.access_token).unwrap();
    let with = |claims: Claims| tokens.sign(&claims).unwrap().expose().to_owned();
    let orders = async |token: &str| node.bearer(token, "GET", "/api/v1/orders", Value::Null).await;
    orders(&with(claims)).await.data(200);
    let expired = Claims::new(UserId(user.id), claims.sid, Utc::now() - TimeDelta::minutes(15));
    for claims in [expired, Claims { sub: UserId(user.id + 1), ..claims }, Claims { sid: claims.sid + 1, ..claims }] {
        orders(&with(claims)).await.refused(401, "E_INVALID_TOKEN");
    }

    let age = async |sql: &'static str| _ = sqlx::query(sql).execute(node.ledger.pool()).await.unwrap();
    // Remove the MACs, as an earlier release leaves the rows. A changed row with a MAC would be refused for that
    // reason.
    age("DELETE FROM vault.session_macs").await;
    age("DELETE FROM vault.refresh_token_macs").await;
    age("UPDATE vault.sessions SET portal_expires_at = now() - interval '1 ms'").await;
    node.portal(&user.cookie, node.url(), "GET", KEYS, Value::Null).await.refused(401, "E_INVALID_TOKEN");
    orders(&user.access_token).await.data(200);
    assert_eq!(sessions::purge(node.ledger.pool()).await.unwrap(), (0, false));
    age("UPDATE vault.refresh_tokens SET expires_at = now() - interval '1 ms'").await;
    refresh(&node, &user.refresh_token).await.refused(401, "E_INVALID_TOKEN");
    orders(&user.access_token).await.data(200);
    age("UPDATE vault.sessions SET expires_at = now() - interval '1 ms'").await;
    assert!(!sessions::purge(node.ledger.pool()).await.unwrap().1);
    let left: i64 =
        sqlx::query_scalar("SELECT (SELECT count(*) FROM vault.sessions) + (SELECT count(*) FROM vault.refresh_tokens)")
            .fetch_one(node.ledger.pool())
            .await
            .unwrap();
    assert_eq!(left, 0);
    orders(&user.access_token).await.refused(401, "E_INVALID_TOKEN");
}

#[tokio::test]
async fn the_portal_manages_the_accounts_own_keys() {
    let (node, owner) = with_user("owner").await;
    let portal = async |method: &str, path: &str, body: Value| node.portal(&owner.cookie, node.url(), method, path, body).await;
    let created = portal("POST", KEYS, json!({"name": "shop"})).await;
    assert_eq!(created.header("cache-control"), "no-store");
    let created = created.data(201);
    let id = created["id"].as_i64().unwrap();
    let (key, secret) = (created["api_key"].as_str().unwrap(), created["api_secret"].as_str().unwrap());
    let with_key = || node.request("GET", "/api/v1/wallets").header("X-API-Key", key).header("X-API-Secret", secret);
    node.send(with_key()).await.data(200);

    let list = portal("GET", KEYS, Value::Null).await;
    assert_eq!(list.header("x-total-count"), "2");
    assert!(!list.text.contains(key) && !list.text.contains(secret));
    let newest = &list.data(200)["api_keys"][0];
    assert_eq!(
        (&newest["id"], &newest["name"], &newest["key_prefix"], &newest["is_revoked"]),
        (&json!(id), &json!("shop"), &json!(key[..8]), &json!(false))
    );

    let rotate = format!("{KEYS}/{id}/rotate-signing-secret");
    let first = portal("POST", &rotate, Value::Null).await.data(200);
    let second = portal("POST", &rotate, Value::Null).await;
    assert_eq!(second.header("cache-control"), "no-store");
    let second = second.data(200);
    assert_eq!(second["credential_id"], id);
    assert_eq!(second["signing_secret"].as_str().unwrap().len(), 64);
    assert_ne!(first["signing_secret"], second["signing_secret"]);
    assert!(second["rotated_at"].as_str().unwrap().ends_with('Z'));

    let actors: Vec<(String, serde_json::Value)> = sqlx::query_as(
        "SELECT type, metadata->'actor' FROM events WHERE stream_type = 'credential' AND stream_id = $1 ORDER BY position",
    )
    .bind(id)
    .fetch_all(node.ledger.pool())
    .await
    .unwrap();
    let by_user = |name: &str| (name.to_owned(), json!({"user": owner.id}));
    assert_eq!(actors, ["CredentialIssued", "SigningSecretRotated", "SigningSecretRotated"].map(by_user));

    assert_eq!(portal("DELETE", &format!("{KEYS}/{id}"), Value::Null).await.data(200)["is_revoked"], true);
    node.send(with_key()).await.refused(401, "E_UNAUTHORIZED");
    portal("POST", &rotate, Value::Null).await.refused(409, "E_CONFLICT");
    portal("DELETE", &format!("{KEYS}/999999"), Value::Null).await.refused(404, "E_NOT_FOUND");
}

#[tokio::test]
async fn a_change_by_cookie_must_come_from_the_services_own_pages() {
    let (node, owner) = with_user("owner").await;
    let head = node.head().await;
    let own: url::Url = node.url().parse().unwrap();
    let port = own.port().unwrap();
    for origin in [
        "https://elsewhere.example",
        "null",
        "",
        &format!("https://127.0.0.1:{port}"),
        &format!("http://127.0.0.1.example:{port}"),
    ] {
        let answer = node.portal(&owner.cookie, origin, "POST", KEYS, json!({"name": "a"})).await;
        answer.refused(403, "E_FORBIDDEN");
        node.portal(&owner.cookie, origin, "POST", "/auth/logout", Value::Null).await.refused(403, "E_FORBIDDEN");
    }
    let without = node.request("POST", KEYS).header("Cookie", &owner.cookie).json(&json!({"name": "a"}));
    node.send(without).await.refused(403, "E_FORBIDDEN");
    assert_eq!(node.head().await, head);
    // No page can make a browser send a bearer token, so the origin does not matter.
    node.bearer(&owner.access_token, "POST", KEYS, json!({"name": "a"})).await.data(201);
    node.portal(&owner.cookie, node.url(), "POST", "/auth/logout", Value::Null).await.data(200);
}

#[tokio::test]
async fn an_api_key_wins_over_a_token() {
    let (node, owner) = with_user("owner").await;
    let both = |key: &str| node.request("GET", "/api/v1/orders").bearer_auth(&owner.access_token).header("X-API-Key", key);
    node.send(both("wrong").header("X-API-Secret", "wrong")).await.refused(401, "E_UNAUTHORIZED");
    node.send(both("wrong")).await.refused(401, "E_UNAUTHORIZED");
    let client = node.credential(owner.account_id).await;
    node.send(both(&client.key).header("X-API-Secret", &client.secret)).await.data(200);
}

/// The password is correct when it is verified, and has changed by the time the session would begin.
#[tokio::test]
async fn a_login_during_a_password_change_starts_no_session() {
    let (node, user) = with_user("viewer").await;
    let mut change = node.ledger.pool().begin().await.unwrap();
    let changed = sqlx::query("UPDATE vault.users SET password_hash = 'another' WHERE user_id = $1").bind(user.id);
    assert_eq!(changed.execute(&mut *change).await.unwrap().rows_affected(), 1);
    let login = node.anyone("POST", "/auth/login", json!({"email": user.email, "password": PASSWORD}));
    let commit = async {
        until_locked_out(&node.options, "rewards-ledger").await;
        change.commit().await.unwrap();
    };
    let (answer, ()) = tokio::join!(login, commit);
    answer.refused(401, "E_INVALID_CREDENTIALS");
}
