//! Every route with every kind of caller: each may do exactly what the table of routes allows.

use std::collections::BTreeSet;

use chrono::{TimeDelta, Utc};
use ledger_events::UserId;
use ledger_events::restrictions::Scope;
use rewards_ledger::access::Role;
use rewards_ledger::access::request_signature::{canonical_string, header, sign};
use rewards_ledger::access::tokens::{AccessTokens, Claims};
use rewards_ledger::secrets::seal::random_secret;
use serde_json::{Value, json};

use super::routes::{CONSOLE_LOGOUT, LOGOUT, NOTHING, Things, USER_ROLES, Who, table, world};
use crate::support::ledger::keyring;
use crate::support::node::{Client, Node, TestResponse};

/// Credentials that a request presents.
pub enum Caller<'a> {
    Nobody,
    Key(&'a Client),
    KeyAndToken(&'a Client, &'a str),
    Token(&'a str),
    Cookie(&'a str),
}

pub async fn call(node: &Node, caller: &Caller<'_>, method: &str, path: &str, body: Value) -> TestResponse {
    match caller {
        Caller::Nobody => node.anyone(method, path, body).await,
        Caller::Token(token) => node.bearer(token, method, path, body).await,
        Caller::Cookie(cookie) => node.portal(cookie, node.url(), method, path, body).await,
        Caller::Key(key) | Caller::KeyAndToken(key, _) => {
            let mut request = node.request(method, path).header("X-API-Key", &key.key).header("X-API-Secret", &key.secret);
            if let Caller::KeyAndToken(_, token) = caller {
                request = request.bearer_auth(token);
            }
            node.send(if body.is_null() { request } else { request.json(&body) }).await
        }
    }
}

/// Requests that are expected to be refused would have an effect. Requests that are expected to pass name things that
/// do not exist.
#[tokio::test]
async fn each_caller_may_do_exactly_what_the_table_says() {
    let node = Node::sandbox().await;
    let world = world(&node).await;
    let tokens = AccessTokens::new(&keyring());
    let owner = &world.users[2];
    let claims = tokens.read(&owner.access_token).unwrap();
    let expired = tokens.sign(&Claims::new(UserId(owner.id), claims.sid, Utc::now() - TimeDelta::minutes(15))).unwrap();
    let revoked = node.credential(world.key.account_id).await;
    node.operator("DELETE", &format!("/credentials/{}", revoked.credential_id), Value::Null).await.data(200);
    let removed = node.user(world.key.account_id, "owner").await;
    node.operator("DELETE", &format!("/users/{}", removed.id), Value::Null).await.data(200);
    let wrong = Client { secret: random_secret().expose().to_owned(), ..world.key.clone() };
    let mut operators = vec![];
    for role in [Role::Admin, Role::Finance, Role::Auditor] {
        operators.push((role, node.token(role).await, node.console_user(role).await.cookie));
    }

    // A run in progress keeps the request that starts one from having an effect.
    let run = "INSERT INTO audit_runs (kind, host, beat_at) VALUES ('verify', 'here', clock_timestamp() + interval '1 hour')";
    sqlx::raw_sql(run).execute(node.ledger.pool()).await.unwrap();
    let head = node.head().await;
    for row in table() {
        let from = |role: &str| USER_ROLES.iter().position(|known| *known == role).unwrap();
        let mut callers = vec![
            ("nobody".to_owned(), Caller::Nobody, false),
            ("a revoked key".to_owned(), Caller::Key(&revoked), false),
            ("a wrong secret".to_owned(), Caller::Key(&wrong), false),
            ("an expired token".to_owned(), Caller::Token(expired.expose()), false),
            ("no token".to_owned(), Caller::Token("x.y.z"), false),
            ("a removed user".to_owned(), Caller::Token(&removed.access_token), false),
            ("a removed user's cookie".to_owned(), Caller::Cookie(&removed.cookie), false),
            ("a key".to_owned(), Caller::Key(&world.key), matches!(row.who, Who::Client(_))),
        ];
        // A logout ends its own session, so each caller needs a session of its own.
        let mut sessions = vec![];
        for user in &world.users {
            sessions.push(match row.route {
                LOGOUT => (node.again(user).await, node.again(user).await),
                _ => (user.clone(), user.clone()),
            });
        }
        for (index, (first, second)) in sessions.iter().enumerate() {
            let role = USER_ROLES[index];
            let may = |from_role| index >= from(from_role);
            let by_token = matches!(row.who, Who::Client(r) | Who::Portal(r) if may(r));
            let by_cookie = matches!(row.who, Who::Portal(r) if may(r)) || row.method() == "GET" && by_token;
            callers.push((format!("{role}'s token"), Caller::Token(&first.access_token), by_token));
            callers.push((format!("{role}'s cookie"), Caller::Cookie(&second.cookie), by_cookie));
        }
        for (role, token, cookie) in &operators {
            let may = matches!(row.who, Who::Operators(roles) if roles.contains(role));
            callers.push((format!("{role:?}, an operator,"), Caller::Token(token.expose()), may));
            // This logout ends the session that the next rows need. Another test covers it.
            if row.route != CONSOLE_LOGOUT {
                let may = may || row.who == Who::Console;
                callers.push((format!("{role:?}, an operator by cookie,"), Caller::Cookie(cookie), may));
            }
        }
        for (name, caller, may) in callers {
            let what = format!("{name} and {}", row.route);
            if !may && row.who != Who::Anyone {
                let answer = call(&node, &caller, row.method(), &row.path(&world.things), row.body(&world.things)).await;
                // A known caller without permission gets 403, one that this side of the API does not know gets 401.
                let is_known = match row.who {
                    Who::Anyone => false,
                    // A cookie counts for reads alone.
                    Who::Client(_) => {
                        name.contains("'s token")
                            || row.method() == "GET" && name.contains("'s cookie") && !name.contains("removed")
                    }
                    Who::Portal(_) => name.contains("'s token") || name.contains("'s cookie") && !name.contains("removed"),
                    Who::Operators(_) => name.contains("an operator"),
                    Who::Console => false,
                };
                let expected = if is_known { 403 } else { 401 };
                assert_eq!(answer.status, expected, "{what}: {}", answer.text);
                let code = answer.json()["error"]["code"].as_str().unwrap().to_owned();
                let codes: &[&str] = if is_known { &["E_FORBIDDEN"] } else { &["E_UNAUTHORIZED", "E_INVALID_TOKEN"] };
                assert!(codes.contains(&&*code), "{what}: {code}");
            } else {
                let answer = call(&node, &caller, row.method(), &row.path(&Things::new()), Value::Null).await;
                let is_let_in = matches!(answer.status, 200 | 201 | 400 | 404 | 409 | 415);
                assert!(is_let_in, "{what}: {} {}", answer.status, answer.text);
                if row.route == LOGOUT {
                    let again = call(&node, &caller, row.method(), &row.path(&Things::new()), Value::Null).await;
                    assert_eq!(answer.status, 200, "{what}");
                    again.refused(401, "E_INVALID_TOKEN");
                }
            }
        }
    }
    assert_eq!(node.head().await, head, "no caller has changed anything");
}

/// A key with one scope may use exactly the routes of that scope, and a key with all other scopes exactly the others.
#[tokio::test]
async fn a_key_may_use_exactly_the_routes_of_its_scopes() {
    let node = Node::sandbox().await;
    let world = world(&node).await;
    let mut keys = vec![];
    for scope in Scope::ALL {
        let others: Vec<_> = Scope::ALL.into_iter().filter(|other| *other != scope).collect();
        for scopes in [vec![scope], others] {
            let names: Vec<_> = scopes.iter().map(|scope| scope.as_str()).collect();
            keys.push((node.restricted(world.key.account_id, json!({"scopes": names})).await, scopes));
        }
    }
    let head = node.head().await;
    for row in table() {
        let Some(scope) = row.scope else { continue };
        for (key, scopes) in &keys {
            let (what, key) = (format!("a key with {scopes:?} and {}", row.route), Caller::Key(key));
            if scopes.contains(&scope) {
                let answer = call(&node, &key, row.method(), &row.path(&Things::new()), Value::Null).await;
                let is_let_in = matches!(answer.status, 200 | 201 | 400 | 404 | 415);
                assert!(is_let_in, "{what}: {} {}", answer.status, answer.text);
            } else {
                let answer = call(&node, &key, row.method(), &row.path(&world.things), row.body(&world.things)).await;
                assert_eq!(answer.json()["error"]["code"], "E_INSUFFICIENT_SCOPE", "{what}");
                let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
                assert!(message.contains(&format!("`{}`", scope.as_str())), "{what}: {message}");
                answer.refused(403, "E_INSUFFICIENT_SCOPE");
            }
        }
    }
    assert_eq!(node.head().await, head, "no key has changed anything");
}

/// Without a signature the key works on no route, even with a valid token beside it.
#[tokio::test]
async fn a_key_that_must_sign_does_nothing_unsigned() {
    let node = Node::sandbox().await;
    let world = world(&node).await;
    let must_sign = node.credential(world.key.account_id).await;
    let path = format!("/credentials/{}", must_sign.credential_id);
    let secret = node.operator("PUT", &path, json!({"hmac_required": true})).await.data(200)["signing_secret"].clone();
    let owner = &world.users[2];
    let head = node.head().await;
    let mut refused = 0;
    for row in table() {
        let (path, body) = (row.path(&world.things), row.body(&world.things));
        let (key, both) = (Caller::Key(&must_sign), Caller::KeyAndToken(&must_sign, &owner.access_token));
        let by_key = call(&node, &key, row.method(), &path, body.clone());
        let by_both = call(&node, &both, row.method(), &path, body.clone());
        match row.who {
            Who::Client(_) => {
                by_key.await.refused(401, "E_HMAC_SIGNATURE_REQUIRED");
                by_both.await.refused(401, "E_HMAC_SIGNATURE_REQUIRED");
                refused += 1;
                // With a signature the request is accepted, and finds nothing.
                let path = row.path(&Things::new());
                let now = Utc::now().timestamp();
                let canonical = canonical_string(row.method(), &path, None, b"", now);
                let header = header(now, &sign(secret.as_str().unwrap(), &canonical));
                let request = node.request(row.method(), &path).header("X-Signature", header);
                let request = request.header("X-API-Key", &must_sign.key).header("X-API-Secret", &must_sign.secret);
                let answer = node.send(request).await;
                assert!(matches!(answer.status, 200 | 400 | 404 | 415), "{}: {} {}", row.route, answer.status, answer.text);
            }
            // An API key does not authenticate on these routes.
            Who::Portal(_) => _ = by_key.await.refused(401, "E_INVALID_TOKEN"),
            Who::Operators(_) => {
                by_key.await.refused(401, "E_UNAUTHORIZED");
                by_both.await.refused(401, "E_UNAUTHORIZED");
            }
            Who::Console => _ = by_key.await.refused(401, "E_UNAUTHORIZED"),
            Who::Anyone => assert!(!by_key.await.text.contains("E_HMAC_SIGNATURE_REQUIRED"), "{}", row.route),
        }
    }
    assert!(refused > 35, "{refused}");
    assert_eq!(node.head().await, head);
}

#[tokio::test]
async fn the_data_of_an_account_is_not_found_by_another_account() {
    let node = Node::sandbox().await;
    let world = world(&node).await;
    let other = node.account("Other").await;
    let owner = node.user(other.account_id, "owner").await;
    let head = node.head().await;
    let mut walked = 0;
    for row in table().iter().filter(|row| row.names(&world.things)) {
        for caller in [Caller::Key(&other), Caller::Token(&owner.access_token), Caller::Cookie(&owner.cookie)] {
            if matches!((&caller, row.who), (Caller::Key(_), Who::Portal(_)) | (Caller::Cookie(_), Who::Client(_))) {
                continue;
            }
            // An explanation is about an order, too.
            let query = match row.route.ends_with("/explanation") {
                true => format!("?order_id={}", world.things["orders"]),
                false => String::new(),
            };
            let (path, body) = (row.path(&world.things) + &query, row.body(&world.things));
            let foreign = call(&node, &caller, row.method(), &path, body.clone()).await;
            let unknown = call(&node, &caller, row.method(), &(row.path(&Things::new()) + &query), body).await;
            foreign.refused(404, "E_NOT_FOUND");
            assert_eq!((foreign.status, foreign.text), (unknown.status, unknown.text), "{}", row.route);
            walked += 1;
        }
    }
    assert!(walked > 15, "{walked}");
    assert_eq!(node.head().await, head);
}

/// Returns every `id` in a response.
fn ids(value: &Value) -> BTreeSet<i64> {
    match value {
        Value::Array(items) => items.iter().flat_map(ids).collect(),
        Value::Object(fields) => {
            let own = fields.get("id").and_then(Value::as_i64);
            own.into_iter().chain(fields.values().flat_map(ids)).collect()
        }
        _ => BTreeSet::new(),
    }
}

/// Returns whether any number in a response is positive.
fn counts_something(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(counts_something),
        Value::Object(fields) => fields.values().any(counts_something),
        value => value.as_f64().is_some_and(|number| number > 0.0),
    }
}

#[tokio::test]
async fn a_list_has_nothing_of_another_account() {
    let node = Node::sandbox().await;
    let world = world(&node).await;
    let (owner, other) = (&world.users[2], node.account("Other").await);
    let stranger = node.user(other.account_id, "owner").await;
    let notice = format!("/client/api/wallets/{}/notice", world.things["wallets"]);
    node.bearer(&owner.access_token, "PUT", &notice, json!({"below": "5.00"})).await.data(200);
    node.project().await;
    let mut walked = 0;
    for row in table().iter().filter(|row| row.route.starts_with("GET ") && !row.route.contains('{') && !row.is_shared) {
        let callers = match row.who {
            Who::Client(_) => vec![
                (Caller::Key(&world.key), Caller::Key(&other)),
                (Caller::Token(&owner.access_token), Caller::Token(&stranger.access_token)),
            ],
            Who::Portal(_) => vec![
                (Caller::Token(&owner.access_token), Caller::Token(&stranger.access_token)),
                (Caller::Cookie(&owner.cookie), Caller::Cookie(&stranger.cookie)),
            ],
            Who::Anyone | Who::Operators(_) | Who::Console => continue,
        };
        for (own, foreign) in callers {
            let path = row.path(&world.things);
            let own = call(&node, &own, "GET", &path, Value::Null).await;
            let foreign = call(&node, &foreign, "GET", &path, Value::Null).await;
            let total = foreign.header("x-total-count").to_owned();
            let (own, foreign) = (own.data(200), foreign.data(200));
            walked += 1;
            if row.route.ends_with("/stats") {
                assert!(counts_something(&own) && !counts_something(&foreign), "{}: {own} {foreign}", row.route);
                continue;
            }
            if row.route.ends_with("/events") {
                assert!(own["events"][0]["data"]["id"].is_i64() && foreign["events"] == json!([]), "{own} {foreign}");
                continue;
            }
            if row.route.ends_with("/notices") {
                assert!(own["notices"][0]["wallet_id"].is_i64() && foreign["notices"] == json!([]), "{own} {foreign}");
                continue;
            }
            assert!(!ids(&own).is_empty(), "{}: {own}", row.route);
            assert!(ids(&own).is_disjoint(&ids(&foreign)), "{}: {foreign}", row.route);
            // The other account has one API key and one user of its own, and nothing else.
            let has_one = row.route.ends_with("/api-keys") || row.route.ends_with("/users");
            assert_eq!(ids(&foreign).len(), usize::from(has_one), "{}: {foreign}", row.route);
            assert!(has_one || ["", "0"].contains(&&*total), "{}: {total}", row.route);
        }
    }
    assert!(walked >= 18, "{walked}");
    // Filters that name ids of another account do not help either.
    let things = &world.things;
    for path in [
        format!("/webhooks/deliveries?order_id={}", things["orders"]),
        format!("/webhooks/deliveries?webhook_url_id={}", things["webhooks"]),
        format!("/transactions?wallet_id={}", things["wallets"]),
        format!("/payouts?beneficiary_id={}", things["beneficiaries"]),
        format!("/payouts?wallet_id={}", things["wallets"]),
    ] {
        let total = async |key| node.client(key, "GET", &path, Value::Null).await.header("x-total-count").to_owned();
        assert_ne!(total(&world.key).await, "0", "{path}");
        assert_eq!(total(&other).await, "0", "{path}");
    }
}

#[tokio::test]
async fn a_suspended_account_reads_everything_and_changes_nothing() {
    let node = Node::sandbox().await;
    let world = world(&node).await;
    node.operator("PUT", &format!("/accounts/{}", world.key.account_id), json!({"status": "SUSPENDED"})).await.data(200);
    let owner = &world.users[2];
    for row in table() {
        let callers = match row.who {
            Who::Client(_) => vec![Caller::Key(&world.key), Caller::Token(&owner.access_token)],
            Who::Portal(_) if !row.is_shared => vec![Caller::Token(&owner.access_token), Caller::Cookie(&owner.cookie)],
            _ => continue,
        };
        for caller in callers {
            let head = node.head().await;
            let (path, body) = (row.path(&world.things), row.body(&world.things));
            let answer = call(&node, &caller, row.method(), &path, body).await;
            if row.change.is_some() && !path.contains(&NOTHING.to_string()) {
                answer.refused(403, "E_ACCOUNT_SUSPENDED");
                assert_eq!(node.head().await, head, "{}", row.route);
            } else {
                let is_read = matches!(answer.status, 200 | 400 | 404 | 415);
                assert!(is_read, "{}: {}", row.route, answer.text);
            }
        }
    }
}
