//! Two-factor authentication of users: enrolment, logins with codes, and the rule that owners need it.

use chrono::{DateTime, TimeDelta, Utc};
use rewards_ledger::access::two_factor::code_at;
use rewards_ledger::audit::verify_with;
use rewards_ledger::secrets::seal::Secret;
use serde_json::{Value, json};

use crate::support::ledger::keyring;
use crate::support::mail::SmtpServer;
use crate::support::node::{AMPLE_LIMITS, Node, PASSWORD, TestResponse, User};

const TWO_FACTOR: &str = "/client/api/two-factor";

async fn with_user(role: &str) -> (Node, User) {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let user = node.user(client.account_id, role).await;
    (node, user)
}

async fn ask(node: &Node, user: &User, method: &str, path: &str, body: Value) -> TestResponse {
    node.bearer(&user.access_token, method, path, body).await
}

async fn log_in(node: &Node, user: &User, otp: Option<&str>) -> TestResponse {
    node.anyone("POST", "/auth/login", json!({"email": user.email, "password": PASSWORD, "otp": otp})).await
}

/// Returns the time of the database, which decides which code is valid.
async fn now(node: &Node) -> DateTime<Utc> {
    sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(node.ledger.pool()).await.unwrap()
}

/// Returns the code of the step that is this many steps from the present one.
async fn code(node: &Node, secret: &Secret, steps: i32) -> String {
    code_at(secret, now(node).await + TimeDelta::seconds(30) * steps).unwrap().expose().to_owned()
}

/// Makes every code valid again, as if time had passed since the last login.
async fn forget_last_step(node: &Node) {
    sqlx::query("UPDATE vault.two_factor SET last_step = NULL").execute(node.ledger.pool()).await.unwrap();
}

/// Enrols a user. Returns the secret and the recovery codes.
async fn enrol(node: &Node, user: &User) -> (Secret, Vec<String>) {
    let (secret, codes, _) = enrol_with(node, user).await;
    (secret, codes)
}

/// Enrols a user. Returns the secret, the recovery codes, and the code that confirmed the enrolment.
async fn enrol_with(node: &Node, user: &User) -> (Secret, Vec<String>, String) {
    let begun = ask(node, user, "POST", TWO_FACTOR, Value::Null).await;
    assert_eq!(begun.header("cache-control"), "no-store");
    let begun = begun.data(201);
    let secret = Secret::new(begun["secret"].as_str().unwrap());
    assert!(begun["otpauth_url"].as_str().unwrap().contains(&format!("secret={}", secret.expose())), "{begun}");
    let otp = code(node, &secret, 0).await;
    let codes = ask(node, user, "POST", &format!("{TWO_FACTOR}/confirm"), json!({"otp": otp})).await.data(200);
    let codes: Vec<String> = serde_json::from_value(codes["recovery_codes"].clone()).unwrap();
    assert_eq!(codes.len(), 10);
    (secret, codes, otp)
}

#[tokio::test]
async fn an_enrolment_counts_from_the_first_right_code() {
    let (node, user) = with_user("viewer").await;
    let confirm = format!("{TWO_FACTOR}/confirm");
    assert_eq!(
        ask(&node, &user, "GET", TWO_FACTOR, Value::Null).await.data(200),
        json!({"is_enabled": false, "recovery_codes_left": 0})
    );
    ask(&node, &user, "POST", &confirm, json!({"otp": "123456"})).await.refused(409, "E_CONFLICT");
    let first = ask(&node, &user, "POST", TWO_FACTOR, Value::Null).await.data(201);
    let other = log_in(&node, &user, None).await.data(200);
    let other = other["access_token"].as_str().unwrap();
    // A second beginning replaces the first one.
    let second = ask(&node, &user, "POST", TWO_FACTOR, Value::Null).await.data(201);
    let old = code(&node, &Secret::new(first["secret"].as_str().unwrap()), 0).await;
    for otp in [&*old, "abcdef", "abcd-efgh-ijkl-mnop"] {
        let error = ask(&node, &user, "POST", &confirm, json!({"otp": otp})).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(error["messages"]["otp"].is_array(), "{error}");
    }
    let otp = code(&node, &Secret::new(second["secret"].as_str().unwrap()), 0).await;
    let head = node.head().await;
    node.bearer(other, "GET", TWO_FACTOR, Value::Null).await.data(200);
    ask(&node, &user, "POST", &confirm, json!({"otp": otp})).await.data(200);
    node.bearer(other, "GET", TWO_FACTOR, Value::Null).await.refused(401, "E_INVALID_TOKEN");
    assert_eq!(
        ask(&node, &user, "GET", TWO_FACTOR, Value::Null).await.data(200),
        json!({"is_enabled": true, "recovery_codes_left": 10})
    );
    for (path, body) in [(TWO_FACTOR, Value::Null), (&*confirm, json!({"otp": otp}))] {
        ask(&node, &user, "POST", path, body).await.refused(409, "E_CONFLICT");
    }
    let events: Vec<(String, Value, String)> =
        sqlx::query_as("SELECT type, metadata->'actor', data::text FROM events WHERE position > $1")
            .bind(head)
            .fetch_all(node.ledger.pool())
            .await
            .unwrap();
    let [(name, actor, data)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((name.as_str(), actor), ("UserTwoFactorEnabled", &json!({"user": user.id})));
    assert!(!data.contains(second["secret"].as_str().unwrap()));
}

#[tokio::test]
async fn a_login_takes_each_code_once_and_counts_wrong_ones() {
    let node = Node::with_limits(format!("{AMPLE_LIMITS},user-login=4/1h").parse().unwrap()).await;
    let client = node.account("Acme").await;
    let user = node.user(client.account_id, "operator").await;
    let (secret, _, used) = enrol_with(&node, &user).await;
    // The code of the enrolment is used.
    log_in(&node, &user, Some(&used)).await.refused(401, "E_INVALID_CREDENTIALS");
    forget_last_step(&node).await;
    // A right password without a code costs nothing.
    for _ in 0..6 {
        log_in(&node, &user, None).await.refused(401, "E_TWO_FACTOR_REQUIRED");
    }
    let wrong = json!({"email": user.email, "password": "wrong password", "otp": null});
    node.anyone("POST", "/auth/login", wrong).await.refused(401, "E_INVALID_CREDENTIALS");
    let otp = code(&node, &secret, 0).await;
    log_in(&node, &user, Some(&otp)).await.data(200);
    log_in(&node, &user, Some(&otp)).await.refused(401, "E_INVALID_CREDENTIALS");
    log_in(&node, &user, Some("12345")).await.refused(400, "E_VALIDATION_FAILURE");
    // One wrong password and three wrong codes make four failures.
    log_in(&node, &user, Some("000000")).await.refused(401, "E_INVALID_CREDENTIALS");
    assert_eq!(log_in(&node, &user, Some("000000")).await.status, 429);
}

/// Checks that one of several concurrent logins with one code succeeds, on two nodes.
#[tokio::test]
async fn concurrent_logins_do_not_share_a_code() {
    let (node, user) = with_user("viewer").await;
    let other = node.beside(AMPLE_LIMITS.parse().unwrap()).await;
    let (secret, codes) = enrol(&node, &user).await;
    forget_last_step(&node).await;
    for otp in [code(&node, &secret, 0).await, codes[0].clone()] {
        let answers =
            futures::future::join_all((0..6).map(|n| log_in(if n % 2 == 0 { &node } else { &other }, &user, Some(&otp)))).await;
        let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 401, 401, 401, 401, 401]);
    }
}

#[tokio::test]
async fn a_recovery_code_replaces_the_app_and_ends_two_factor_authentication() {
    let (node, user) = with_user("owner").await;
    let server = SmtpServer::start().await;
    let (_, codes) = enrol(&node, &user).await;
    let typed = codes[0].to_uppercase().replace('-', " ");
    log_in(&node, &user, Some(&typed)).await.data(200);
    log_in(&node, &user, Some(&codes[0])).await.refused(401, "E_INVALID_CREDENTIALS");
    let left = ask(&node, &user, "GET", TWO_FACTOR, Value::Null).await.data(200);
    assert_eq!(left["recovery_codes_left"], 9);

    for otp in [&*codes[0], "000000"] {
        let error = ask(&node, &user, "DELETE", TWO_FACTOR, json!({"otp": otp})).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(error["messages"]["otp"].is_array(), "{error}");
    }
    let gone = ask(&node, &user, "DELETE", TWO_FACTOR, json!({"otp": codes[1]})).await.data(200);
    assert_eq!(gone, json!({"is_enabled": false, "recovery_codes_left": 0}));
    ask(&node, &user, "DELETE", TWO_FACTOR, json!({"otp": codes[2]})).await.refused(409, "E_CONFLICT");
    log_in(&node, &user, None).await.data(200);
    let mails = server.deliver(&node).await;
    let subjects: Vec<&str> = mails.iter().map(|mail| mail.subject()).collect();
    assert!(subjects[0].ends_with("is on") && subjects[1].ends_with("is off") && subjects.len() == 2, "{subjects:?}");
    assert!(mails.iter().all(|mail| mail.to == user.email), "{mails:?}");
}

#[tokio::test]
async fn an_owner_without_a_second_factor_may_only_enrol_if_the_account_says_so() {
    let (node, strict) = with_user("owner").await;
    let lax = node.user(strict.account_id, "owner").await;
    let viewer = node.user(strict.account_id, "viewer").await;
    let policy = async |user: &User, needed: bool| {
        ask(&node, user, "PUT", "/client/api/security", json!({"owners_need_two_factor": needed})).await
    };
    policy(&viewer, true).await.refused(403, "E_FORBIDDEN");
    // An owner cannot lock everybody out, themselves included.
    policy(&strict, true).await.refused(409, "E_CONFLICT");
    enrol(&node, &strict).await;
    let head = node.head().await;
    policy(&strict, true).await.data(200);
    policy(&strict, true).await.data(200);
    assert_eq!(node.head().await, head + 1, "the same rule again is no change");
    let rule = ask(&node, &viewer, "GET", "/client/api/security", Value::Null).await.data(200);
    assert_eq!(rule, json!({"owners_need_two_factor": true}));

    for (method, path) in [
        ("GET", "/api/v1/orders"),
        ("GET", "/client/api/api-keys"),
        ("GET", "/client/api/sessions"),
        ("PUT", "/client/api/security"),
    ] {
        ask(&node, &lax, method, path, Value::Null).await.refused(403, "E_TWO_FACTOR_ENROLMENT");
    }
    node.portal(&lax.cookie, node.url(), "GET", "/client/api/api-keys", Value::Null).await.refused(403, "E_TWO_FACTOR_ENROLMENT");
    ask(&node, &viewer, "GET", "/api/v1/orders", Value::Null).await.data(200);
    log_in(&node, &lax, None).await.data(200);
    enrol(&node, &lax).await;
    ask(&node, &lax, "GET", "/api/v1/orders", Value::Null).await.data(200);
    ask(&node, &strict, "POST", "/auth/logout", Value::Null).await.data(200);
    policy(&lax, false).await.data(200);
    let events: Vec<(String, Value)> = sqlx::query_as(
        "SELECT metadata->'actor'->>'user', data::jsonb FROM events WHERE type = 'SecurityPolicyChanged' ORDER BY position",
    )
    .fetch_all(node.ledger.pool())
    .await
    .unwrap();
    let expected =
        [(&strict, true), (&lax, false)].map(|(user, needed)| (user.id.to_string(), json!({"owners_need_two_factor": needed})));
    assert_eq!(events, expected);
}

/// A database that somebody has changed lets nobody in with a planted secret, and `verify` names each change.
#[tokio::test]
async fn a_planted_or_deleted_second_factor_is_named() {
    let (node, user) = with_user("owner").await;
    let other = node.user(user.account_id, "owner").await;
    let (secret, _) = enrol(&node, &user).await;
    let (stolen, _) = enrol(&node, &other).await;
    let findings = async || {
        let report = verify_with(&node.options, Some(&keyring()), |_| {}).await.unwrap();
        report.differences.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(findings().await, Vec::<String>::new());
    forget_last_step(&node).await;
    // The attacker moves the secret of an own login to another user. It is bound to its row, so it opens nothing.
    let moved = "UPDATE vault.two_factor t SET sealed = o.sealed, mac = o.mac FROM vault.two_factor o WHERE t.user_id = $1 AND o.user_id = $2";
    sqlx::query(moved).bind(user.id).bind(other.id).execute(node.ledger.pool()).await.unwrap();
    for secret in [&secret, &stolen] {
        let otp = code(&node, secret, 0).await;
        assert_ne!(log_in(&node, &user, Some(&otp)).await.status, 200);
    }
    let found = findings().await;
    assert!(found.len() == 1 && found[0].contains("vault.two_factor"), "{found:?}");
    sqlx::query("DELETE FROM vault.two_factor WHERE user_id = $1").bind(user.id).execute(node.ledger.pool()).await.unwrap();
    let found = findings().await;
    assert!(found.len() == 1 && found[0].contains("is missing"), "{found:?}");
    sqlx::query("INSERT INTO vault.account_security VALUES ($1, true)")
        .bind(user.account_id)
        .execute(node.ledger.pool())
        .await
        .unwrap();
    assert!(findings().await.iter().any(|finding| finding.contains("vault.account_security")));
}
