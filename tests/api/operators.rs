//! Operators' users: sign-in to the console, sessions, the second factor, and the audit of who did what.

use chrono::{DateTime, TimeDelta, Utc};
use rewards_ledger::access::{Role, console, two_factor};
use rewards_ledger::audit::verify_with;
use rewards_ledger::secrets::seal::Secret;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::support::ledger::keyring;
use crate::support::node::{AMPLE_LIMITS, ConsoleUser, Node, PASSWORD, TestResponse};

/// Sends a request with a console cookie, from a page of the console.
async fn by(node: &Node, user: &ConsoleUser, method: &str, path: &str, body: Value) -> TestResponse {
    node.portal(&user.cookie, node.url(), method, path, body).await
}

async fn execute(node: &Node, sql: &str) -> u64 {
    sqlx::query(AssertSqlSafe(sql.to_owned())).execute(node.ledger.pool()).await.unwrap().rows_affected()
}

async fn differences(node: &Node) -> Vec<String> {
    let report = verify_with(&node.options, Some(&keyring()), |_| {}).await.unwrap();
    report.differences.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn operators_are_created_listed_changed_and_removed() {
    let node = Node::start().await;
    let new = json!({"email": "Kim@example.com", "password": PASSWORD, "role": "finance"});
    let kim = node.operator("POST", "/operators", new.clone()).await.data(201);
    let expected = json!({
        "id": kim["id"], "email": "Kim@example.com", "role": "finance", "sign_in": "password", "two_factor": false,
        "created_at": kim["created_at"],
    });
    assert_eq!(kim, expected);
    let again = json!({"email": "kim@EXAMPLE.com", "password": PASSWORD, "role": "admin"});
    node.operator("POST", "/operators", again.clone()).await.refused(409, "E_CONFLICT");
    for (field, value) in [("email", "kim"), ("password", "password1"), ("role", "king")] {
        let mut wrong = new.clone();
        wrong[field] = json!(value);
        let error = node.operator("POST", "/operators", wrong).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(error["messages"][field].is_array(), "{error}");
    }
    let path = format!("/operators/{}", kim["id"]);
    let changed = node.operator("PUT", &path, json!({"role": "admin", "password": "another battery staple"})).await.data(200);
    assert_eq!(changed["role"], "admin");
    node.operator("PUT", &path, json!({})).await.refused(400, "E_VALIDATION_FAILURE");
    let head = node.head().await;
    node.operator("PUT", &path, json!({"role": "admin"})).await.data(200);
    assert_eq!(node.head().await, head, "a change to the same role is no event");
    let listed = node.operator("GET", "/operators", Value::Null).await;
    assert_eq!((listed.header("x-total-count"), listed.data(200)), ("1", json!({"operators": [changed]})));
    node.operator("DELETE", &path, Value::Null).await.data(200);
    assert_eq!(node.operator("GET", "/operators", Value::Null).await.data(200), json!({"operators": []}));
    node.operator("PUT", &path, json!({"role": "auditor"})).await.refused(404, "E_NOT_FOUND");
    node.operator("DELETE", "/operators/999", Value::Null).await.refused(404, "E_NOT_FOUND");
    // The email address of a removed operator is free again.
    node.operator("POST", "/operators", again).await.data(201);
    // A token is not a user.
    node.token(Role::Finance).await;
    let token: i64 = sqlx::query_scalar("SELECT max(id) FROM vault.operators").fetch_one(node.ledger.pool()).await.unwrap();
    node.operator("DELETE", &format!("/operators/{token}"), Value::Null).await.refused(404, "E_NOT_FOUND");

    let log: String =
        sqlx::query_scalar("SELECT string_agg(e::text, ' ') FROM events e").fetch_one(node.ledger.pool()).await.unwrap();
    let users: String = sqlx::query_scalar("SELECT string_agg(u::text, ' ') FROM vault.operator_users u")
        .fetch_one(node.ledger.pool())
        .await
        .unwrap();
    for text in ["kim@", "Kim@", "staple"] {
        assert!(!log.contains(text) && !users.contains(text), "{text}");
    }
    assert_eq!(differences(&node).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_program_gets_a_token_that_works_until_it_is_revoked() {
    let node = Node::start().await;
    let new = json!({"name": "Kim's nightly report", "role": "auditor"});
    let created = node.operator("POST", "/operator-tokens", new).await;
    assert_eq!(created.header("cache-control"), "no-store");
    let issued = created.data(201);
    let token = Secret::new(issued["token"].as_str().unwrap());
    node.operator_with(&token, "GET", "/accounts", Value::Null).await.data(200);
    node.operator_with(&token, "GET", "/operator-tokens", Value::Null).await.refused(403, "E_FORBIDDEN");
    let listed = node.operator("GET", "/operator-tokens", Value::Null).await.data(200);
    let shown = &listed["operator_tokens"][0];
    let expected = json!({"id": issued["id"], "name": "Kim's nightly report", "role": "auditor",
        "created_at": shown["created_at"], "revoked_at": null});
    assert_eq!(*shown, expected);
    for (field, value) in [("name", ""), ("role", "king")] {
        let mut wrong = json!({"name": "a", "role": "admin"});
        wrong[field] = json!(value);
        let error = node.operator("POST", "/operator-tokens", wrong).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(error["messages"][field].is_array(), "{error}");
    }
    let path = format!("/operator-tokens/{}", issued["id"]);
    node.operator("DELETE", &path, Value::Null).await.data(200);
    node.operator_with(&token, "GET", "/accounts", Value::Null).await.refused(401, "E_UNAUTHORIZED");
    node.operator("DELETE", &path, Value::Null).await.refused(404, "E_NOT_FOUND");
    let listed = node.operator("GET", "/operator-tokens", Value::Null).await.data(200);
    assert!(listed["operator_tokens"][0]["revoked_at"].is_string(), "{listed}");
    // A user is not a token.
    let user = node.console_user(Role::Auditor).await;
    node.operator("DELETE", &format!("/operator-tokens/{}", user.id), Value::Null).await.refused(404, "E_NOT_FOUND");
    let log: String =
        sqlx::query_scalar("SELECT string_agg(e::text, ' ') FROM events e").fetch_one(node.ledger.pool()).await.unwrap();
    assert!(!log.contains("nightly") && !log.contains(token.expose()), "{log}");
    assert_eq!(differences(&node).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_session_authorizes_by_role_until_it_ends() {
    let node = Node::start().await;
    let other = node.beside(AMPLE_LIMITS.parse().unwrap()).await;
    let finance = node.console_user(Role::Finance).await;
    let answer = node.console_login(&finance.email.to_uppercase(), PASSWORD, None).await;
    let attributes: Vec<&str> = answer.header("set-cookie").split("; ").skip(1).collect();
    assert_eq!(attributes, ["Path=/", "Max-Age=28800", "HttpOnly", "Secure", "SameSite=Strict"]);
    assert!(answer.cookie().starts_with("__Host-console=") && answer.header("cache-control") == "no-store");
    let data = answer.data(200);
    let expected = json!({
        "operator_id": finance.id, "role": "finance", "sign_in": "password", "two_factor": false, "expires_at": data["expires_at"],
    });
    assert_eq!(data, expected);

    by(&other, &finance, "GET", "/admin/v1/accounts", Value::Null).await.data(200);
    let session = by(&other, &finance, "GET", "/admin/auth/session", Value::Null).await.data(200);
    assert_eq!(session["operator_id"], finance.id);
    by(&node, &finance, "POST", "/admin/v1/accounts", json!({"name": "x"})).await.refused(403, "E_FORBIDDEN");
    let account = node.operator("POST", "/accounts", json!({"name": "Acme"})).await.data(201);
    let path = format!("/accounts/{}/wallets", account["id"]);
    let wallet = node.operator("POST", &path, json!({"currency": "EUR"})).await.data(201);
    let fund = format!("/admin/v1/wallets/{}/fund", wallet["id"]);
    by(&node, &finance, "POST", &fund, json!({"amount": "1.00", "reference": "r"})).await.data(201);
    let actor: Value = sqlx::query_scalar("SELECT metadata::jsonb->'actor' FROM events ORDER BY position DESC LIMIT 1")
        .fetch_one(node.ledger.pool())
        .await
        .unwrap();
    assert_eq!(actor, json!({"operator": finance.id}));

    // A new role, a logout and a removal apply to the next request, on every node.
    let path = format!("/operators/{}", finance.id);
    node.operator("PUT", &path, json!({"role": "auditor"})).await.data(200);
    by(&other, &finance, "GET", "/admin/v1/accounts", Value::Null).await.refused(401, "E_UNAUTHORIZED");
    let sign_in = async || node.console_login(&finance.email, PASSWORD, None).await;
    let again = ConsoleUser { cookie: sign_in().await.cookie(), ..finance.clone() };
    let second = ConsoleUser { cookie: sign_in().await.cookie(), ..finance.clone() };
    by(&other, &again, "POST", &fund, json!({"amount": "1.00", "reference": "s"})).await.refused(403, "E_FORBIDDEN");
    let out = by(&node, &again, "POST", "/admin/auth/logout", Value::Null).await;
    assert!(out.header("set-cookie").starts_with("__Host-console=; Path=/; Max-Age=0; "));
    out.data(200);
    by(&other, &again, "GET", "/admin/v1/accounts", Value::Null).await.refused(401, "E_UNAUTHORIZED");
    by(&other, &second, "GET", "/admin/v1/accounts", Value::Null).await.data(200);
    node.operator("DELETE", &path, Value::Null).await.data(200);
    by(&other, &second, "GET", "/admin/v1/accounts", Value::Null).await.refused(401, "E_UNAUTHORIZED");
    sign_in().await.refused(401, "E_INVALID_CREDENTIALS");
}

#[tokio::test]
async fn a_session_expires_by_the_databases_clock_and_is_purged() {
    let node = Node::start().await;
    let user = node.console_user(Role::Admin).await;
    // The MAC covers the expiry, so an earlier one is refused for that reason. The row is purged by it nevertheless.
    execute(&node, "UPDATE vault.console_sessions SET expires_at = now() + interval '9 hours'").await;
    by(&node, &user, "GET", "/admin/v1/accounts", Value::Null).await.refused(401, "E_UNAUTHORIZED");
    assert_eq!(console::purge(node.ledger.pool()).await.unwrap(), (0, false));
    execute(&node, "UPDATE vault.console_sessions SET expires_at = now() - interval '1 ms'").await;
    by(&node, &user, "GET", "/admin/v1/accounts", Value::Null).await.refused(401, "E_UNAUTHORIZED");
    assert_eq!(console::purge(node.ledger.pool()).await.unwrap(), (1, false));
}

#[tokio::test]
async fn a_page_of_another_site_changes_nothing_in_the_console() {
    let node = Node::start().await;
    let admin = node.console_user(Role::Admin).await;
    let head = node.head().await;
    let create = json!({"name": "x"});
    for origin in ["https://elsewhere.example", "null", ""] {
        for path in ["/admin/v1/accounts", "/admin/auth/logout", "/admin/auth/two-factor"] {
            node.portal(&admin.cookie, origin, "POST", path, create.clone()).await.refused(403, "E_FORBIDDEN");
        }
    }
    let without = node.request("POST", "/admin/v1/accounts").header("Cookie", &admin.cookie).json(&create);
    node.send(without).await.refused(403, "E_FORBIDDEN");
    let login = node.request("POST", "/admin/auth/login").header("Content-Type", "text/plain").body("{}");
    node.send(login).await.refused(415, "E_UNSUPPORTED_MEDIA_TYPE");
    assert_eq!(node.head().await, head);
    by(&node, &admin, "POST", "/admin/v1/accounts", create).await.data(201);
    // A foreign page may be the reason for a request that reads; it cannot see the response.
    node.portal(&admin.cookie, "https://elsewhere.example", "GET", "/admin/v1/accounts", Value::Null).await.data(200);
}

#[tokio::test]
async fn guesses_at_an_operator_are_few_and_lock_nobody_out() {
    let limits = format!("{AMPLE_LIMITS},user-login=3/1h");
    let node = Node::with_limits(limits.parse().unwrap()).await;
    let admin = node.console_user(Role::Admin).await;
    let login = async |ip: &str, password: &str| {
        let body = json!({"email": admin.email, "password": password});
        node.send(node.request("POST", "/admin/auth/login").header("X-Forwarded-For", ip).json(&body)).await
    };
    login("192.0.2.1", PASSWORD).await.data(200);
    let mut texts = vec![];
    for n in 0..3 {
        let answer = login(&format!("198.51.100.{n}"), "a wrong one").await;
        answer.refused(401, "E_INVALID_CREDENTIALS");
        texts.push(answer.text);
    }
    assert_eq!(login("198.51.100.9", PASSWORD).await.status, 429);
    login("192.0.2.1", PASSWORD).await.data(200);
    // An unknown email is answered, and limited, in the same way.
    for _ in 0..3 {
        let unknown = node.console_login("nobody@example.com", "a wrong one", None).await;
        unknown.refused(401, "E_INVALID_CREDENTIALS");
        texts.push(unknown.text);
    }
    assert_eq!(node.console_login("nobody@example.com", "a wrong one", None).await.status, 429);
    texts.dedup();
    assert_eq!(texts.len(), 1, "{texts:?}");
}

#[tokio::test]
async fn too_many_logins_block_the_address_but_no_session() {
    let node = Node::with_limits(format!("{AMPLE_LIMITS},login=2/60s").parse().unwrap()).await;
    let admin = node.console_user(Role::Admin).await;
    let mut statuses = vec![];
    for _ in 0..3 {
        statuses.push(node.console_login(&admin.email, "a wrong one", None).await.status);
    }
    assert_eq!(statuses.last(), Some(&429), "{statuses:?}");
    assert_eq!(node.console_login(&admin.email, PASSWORD, None).await.status, 429);
    by(&node, &admin, "GET", "/admin/v1/accounts", Value::Null).await.data(200);
}

/// Enrols a second factor. Returns its secret and the recovery codes.
async fn enrol(node: &Node, user: &ConsoleUser) -> (Secret, Vec<String>) {
    let begun = by(node, user, "POST", "/admin/auth/two-factor", Value::Null).await.data(200);
    let secret = Secret::new(begun["secret"].as_str().unwrap());
    let url = url::Url::parse(begun["otpauth_url"].as_str().unwrap()).unwrap();
    assert!(url.as_str().contains(secret.expose()) && url.path().contains("%40example.com"), "{url}");
    let code = two_factor::code_at(&secret, Utc::now()).unwrap();
    let confirm = "/admin/auth/two-factor/confirm";
    by(node, user, "POST", confirm, json!({"code": "abc"})).await.refused(400, "E_VALIDATION_FAILURE");
    let confirmed = by(node, user, "POST", confirm, json!({"code": code.expose()})).await.data(200);
    let codes = confirmed["recovery_codes"].as_array().unwrap().iter().map(|code| code.as_str().unwrap().to_owned());
    (secret, codes.collect())
}

#[tokio::test]
async fn a_second_factor_is_required_once_it_is_enrolled() {
    let node = Node::start().await;
    let user = node.console_user(Role::Finance).await;
    let elsewhere = ConsoleUser { cookie: node.console_login(&user.email, PASSWORD, None).await.cookie(), ..user.clone() };
    by(&node, &user, "POST", "/admin/auth/two-factor/confirm", json!({"code": "123456"}))
        .await
        .refused(400, "E_VALIDATION_FAILURE");
    let (secret, codes) = enrol(&node, &user).await;
    assert_eq!(codes.len(), two_factor::RECOVERY_CODES);
    by(&node, &elsewhere, "GET", "/admin/auth/session", Value::Null).await.refused(401, "E_UNAUTHORIZED");
    assert_eq!(by(&node, &user, "GET", "/admin/auth/session", Value::Null).await.data(200)["two_factor"], true);
    by(&node, &user, "POST", "/admin/auth/two-factor", Value::Null).await.refused(409, "E_CONFLICT");

    let login = async |otp: Option<&str>| node.console_login(&user.email, PASSWORD, otp).await;
    login(None).await.refused(401, "E_TWO_FACTOR_REQUIRED");
    node.console_login(&user.email, "a wrong one", None).await.refused(401, "E_INVALID_CREDENTIALS");
    login(Some("000000")).await.refused(401, "E_INVALID_CREDENTIALS");
    login(Some("not a code")).await.refused(401, "E_INVALID_CREDENTIALS");
    // The code of the next step is valid, too, and was not used to enrol.
    let code = two_factor::code_at(&secret, Utc::now() + TimeDelta::seconds(30)).unwrap();
    login(Some(code.expose())).await.data(200);
    login(Some(code.expose())).await.refused(401, "E_INVALID_CREDENTIALS");
    login(Some(&codes[0].to_uppercase())).await.data(200);
    login(Some(&codes[0])).await.refused(401, "E_INVALID_CREDENTIALS");

    let remove = "/admin/auth/two-factor/remove";
    by(&node, &user, "POST", remove, json!({"code": codes[0]})).await.refused(400, "E_VALIDATION_FAILURE");
    let removed = by(&node, &user, "POST", remove, json!({"code": codes[1]})).await.data(200);
    assert_eq!(removed, json!({"two_factor": false}));
    login(None).await.data(200);
    let left: i64 = sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM vault.operator_recovery_codes) + (SELECT count(*) FROM vault.texts WHERE kind = 'operator.totp')",
    )
    .fetch_one(node.ledger.pool())
    .await
    .unwrap();
    assert_eq!(left, 0);
    enrol(&node, &user).await;
    // An admin helps an operator who has lost everything.
    node.operator("DELETE", &format!("/operators/{}/two-factor", user.id), Value::Null).await.data(200);
    login(None).await.data(200);
    let log: String =
        sqlx::query_scalar("SELECT string_agg(e::text, ' ') FROM events e").fetch_one(node.ledger.pool()).await.unwrap();
    assert!(!log.contains(secret.expose()));
    assert_eq!(differences(&node).await, Vec::<String>::new());
}

#[tokio::test]
async fn wrong_codes_in_a_session_are_rate_limited() {
    let node = Node::with_limits(format!("{AMPLE_LIMITS},user-login=4/1h").parse().unwrap()).await;
    let user = node.console_user(Role::Finance).await;
    let (_, codes) = enrol(&node, &user).await;
    let remove = async |code: &str| by(&node, &user, "POST", "/admin/auth/two-factor/remove", json!({"code": code})).await;
    // One wrong code was spent while enrolling.
    for _ in 0..3 {
        remove("000000").await.refused(400, "E_VALIDATION_FAILURE");
    }
    assert_eq!(remove(&codes[0]).await.status, 429);
}

#[tokio::test]
async fn an_operator_ends_other_sessions_and_changes_the_own_password() {
    const NEW: &str = "a quite different one";
    let node = Node::with_limits(format!("{AMPLE_LIMITS},user-login=3/1h").parse().unwrap()).await;
    let user = node.console_user(Role::Auditor).await;
    let stranger = node.console_user(Role::Admin).await;
    let login = async |password: &str| node.console_login(&user.email, password, None).await;
    let again = async || ConsoleUser { cookie: login(PASSWORD).await.cookie(), ..user.clone() };
    let (second, third) = (again().await, again().await);
    let lists = async |user: &ConsoleUser| by(&node, user, "GET", "/admin/auth/sessions", Value::Null).await;
    let list = lists(&second).await.data(200)["sessions"].take();
    let of_each = |name: &str| list.as_array().unwrap().iter().map(|session| session[name].clone()).collect::<Vec<_>>();
    assert_eq!(of_each("is_current"), [json!(false), json!(true), json!(false)], "the newest is the first");
    let time = |name: &str| list[0][name].as_str().unwrap().parse::<DateTime<Utc>>().unwrap();
    assert_eq!(time("expires_at") - time("started_at"), console::CONSOLE_LIFETIME);
    let end = format!("/admin/auth/sessions/{}", list[0]["id"]);
    by(&node, &stranger, "DELETE", &end, Value::Null).await.refused(404, "E_NOT_FOUND");
    lists(&third).await.data(200);
    by(&node, &user, "DELETE", &end, Value::Null).await.data(200);
    lists(&third).await.refused(401, "E_UNAUTHORIZED");
    by(&node, &user, "DELETE", &end, Value::Null).await.refused(404, "E_NOT_FOUND");

    let change = async |current: &str, new: &str| {
        let body = json!({"current_password": current, "new_password": new});
        by(&node, &user, "PUT", "/admin/auth/password", body).await
    };
    let head = node.head().await;
    for (current, new, field) in [
        ("a wrong one", NEW, "current_password"),
        (PASSWORD, "password1", "new_password"),
        (PASSWORD, &*user.email, "new_password"),
        (PASSWORD, "short", "new_password"),
    ] {
        let error = change(current, new).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(error["messages"][field].is_array(), "{error}");
    }
    assert_eq!(node.head().await, head);
    change(PASSWORD, NEW).await.data(200);
    let (kind, actor, event): (String, Value, String) =
        sqlx::query_as("SELECT type, metadata::jsonb->'actor', e::text FROM events e WHERE position > $1")
            .bind(head)
            .fetch_one(node.ledger.pool())
            .await
            .unwrap();
    assert_eq!((&*kind, actor), ("OperatorUserChanged", json!({"operator": user.id})));
    assert!([PASSWORD, NEW, "argon2"].iter().all(|secret| !event.contains(*secret)), "{event}");
    lists(&second).await.refused(401, "E_UNAUTHORIZED");
    assert_eq!(lists(&user).await.data(200)["sessions"].as_array().unwrap().len(), 1, "the own session goes on");
    lists(&stranger).await.data(200);
    login(PASSWORD).await.refused(401, "E_INVALID_CREDENTIALS");
    login(NEW).await.data(200);
    assert_eq!(differences(&node).await, Vec::<String>::new());

    // Wrong present passwords count together with wrong codes. One was spent before, and right ones cost nothing.
    for _ in 0..2 {
        change("a wrong one", PASSWORD).await.refused(400, "E_VALIDATION_FAILURE");
    }
    assert_eq!(change(NEW, PASSWORD).await.status, 429);
    assert_eq!(by(&node, &user, "POST", "/admin/auth/two-factor/remove", json!({"code": "000000"})).await.status, 429);
    login(NEW).await.data(200);
}

/// Changes to the database by someone without the master key, with the line of `verify`.
const TAMPERINGS: [(&str, &str); 10] = [
    (
        "UPDATE vault.operator_users SET role = 'admin' WHERE id = $",
        "vault.operator_users $: role is \"admin\", the log says \"finance\"",
    ),
    ("UPDATE vault.operator_users SET password_hash = 'x' WHERE id = $", "vault.operator_users $: differs from the row"),
    ("UPDATE vault.operator_users SET totp_hash = NULL WHERE id = $", "vault.operator_users $: totp_hash is null, the log says"),
    (
        "UPDATE vault.operator_users SET subject_lookup = 'x' WHERE id = $",
        "vault.operator_users $: sign_in is \"open_id\", the log says",
    ),
    ("UPDATE vault.operator_users SET removed_at = now() WHERE id = $", "vault.operator_users $: removed_at is"),
    ("DELETE FROM vault.operator_users WHERE id = $", "vault.operator_users $ is missing"),
    (
        "DELETE FROM vault.texts WHERE kind = 'operator.totp' AND id = $",
        "vault.operator_users $: its two-factor secret is missing",
    ),
    (
        "UPDATE vault.texts SET salt = 'x' WHERE kind = 'operator.email' AND id = $",
        "vault.operator_users $: its email is not the one in the log",
    ),
    (
        "UPDATE vault.operator_recovery_codes SET code_hash = 'x' WHERE operator_id = $ AND code_hash = (SELECT code_hash FROM vault.operator_recovery_codes LIMIT 1)",
        "vault.operator_recovery_codes of $: differs",
    ),
    ("UPDATE vault.console_sessions SET operator_id = (SELECT min(id) FROM vault.operator_users)", "vault.console_sessions "),
];

#[tokio::test(flavor = "multi_thread")]
async fn rows_planted_for_the_console_grant_no_access_and_verify_names_them() {
    for (tampering, expected) in TAMPERINGS {
        let node = Node::start().await;
        let admin = node.console_user(Role::Admin).await;
        let finance = node.console_user(Role::Finance).await;
        let (_, codes) = enrol(&node, &finance).await;
        assert_eq!(differences(&node).await, Vec::<String>::new());
        let of_finance = |text: &str| text.replace('$', &finance.id.to_string());
        assert!(execute(&node, &of_finance(tampering)).await > 0, "{tampering}");
        let found = differences(&node).await;
        let expected = of_finance(expected);
        assert!(
            found.iter().any(|line| line.contains(&expected)),
            "{tampering}\nshould be named as: {expected}\nfound: {found:#?}"
        );
        // The text of an email opens nothing.
        if tampering.contains("operator.email") || tampering.contains("operator.totp") || tampering.contains("recovery_codes") {
            continue;
        }
        by(&node, &finance, "GET", "/admin/v1/accounts", Value::Null).await.refused(401, "E_UNAUTHORIZED");
        if !tampering.contains("console_sessions") {
            by(&node, &admin, "GET", "/admin/v1/accounts", Value::Null).await.data(200);
            node.console_login(&finance.email, PASSWORD, Some(&codes[0])).await.refused(401, "E_INVALID_CREDENTIALS");
        }
    }
}
