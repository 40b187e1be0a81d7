//! Guessing attacks: rules for passwords and tokens, and limits on attempts.

use rewards_ledger::access::rate_limits::RateLimits;
use serde_json::{Value, json};

use crate::support::node::{AMPLE_LIMITS, Node, PASSWORD, TestResponse, User};

fn limits(text: &str) -> RateLimits {
    format!("{AMPLE_LIMITS},{text}").parse().unwrap()
}

async fn log_in(node: &Node, ip: &str, email: &str, password: &str) -> TestResponse {
    let request = node.request("POST", "/auth/login").header("X-Forwarded-For", ip);
    node.send(request.json(&json!({"email": email, "password": password}))).await
}

async fn with_user(limits: RateLimits) -> (Node, User) {
    let node = Node::with_limits(limits).await;
    let client = node.account("Acme").await;
    let user = node.user(client.account_id, "owner").await;
    (node, user)
}

fn quota(answer: &TestResponse) -> (&str, &str) {
    (answer.header("x-ratelimit-limit"), answer.header("x-ratelimit-remaining"))
}

#[track_caller]
fn limited(answer: &TestResponse, ceiling: &str, message: &str) {
    assert_eq!((answer.status, quota(answer)), (429, (ceiling, "0")), "{}", answer.text);
    let body = answer.json();
    assert_eq!((&body["error"], &body["message"]), (&json!("rate_limit_exceeded"), &json!(message)));
    assert_eq!(body["retry_after"].to_string(), answer.header("retry-after"));
}

#[tokio::test]
async fn logins_from_an_ipv6_network_are_counted_together() {
    let node = Node::with_limits(limits("login=3/60s")).await;
    let client = node.account("Acme").await;
    for (n, left) in ["2", "1", "0"].into_iter().enumerate() {
        let answer = log_in(&node, &format!("2001:db8:0:1:{n}::{n}"), "jo@example.com", "wrong").await;
        assert_eq!((answer.status, quota(&answer)), (401, ("3", left)));
    }
    let blocked = "Too many logins: all requests from this address are refused. Try again in 15 minutes.";
    limited(&log_in(&node, "2001:db8:0:1:ffff::1", "jo@example.com", "wrong").await, "3", blocked);
    // The block covers the whole network.
    let from = async |ip: &str| node.send(node.by(&client, "GET", "/orders").header("X-Forwarded-For", ip)).await;
    for ip in ["2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff"] {
        limited(&from(ip).await, "3", blocked);
    }
    from("2001:db8:0:2::1").await.data(200);
    assert_eq!(log_in(&node, "2001:db8:0:2::1", "jo@example.com", "wrong").await.status, 401);
    // An operator can name the blocked network by any of its addresses.
    let lifted = node.operator("DELETE", "/ip-blocks/2001:db8:0:1::77", Value::Null).await.data(200);
    assert_eq!(lifted, json!({"ip": "2001:db8:0:1::77"}));
    from("2001:db8:0:1::1").await.data(200);
    let again = log_in(&node, "2001:db8:0:1::1", "jo@example.com", "wrong").await;
    assert_eq!((again.status, quota(&again)), (401, ("3", "2")));
}

const TOO_MANY: &str = "Too many failed logins of this user. Try again in 60 minutes.";

/// An attacker with unlimited addresses gets few guesses, and the user can still log in from the usual networks.
#[tokio::test]
async fn guesses_at_one_user_from_everywhere_are_few_and_lock_nobody_out() {
    let (node, user) = with_user(limits("login=5/60s,user-login=4/1h")).await;
    let other = node.beside(limits("login=5/60s,user-login=4/1h")).await;
    let (home, office) = ("198.51.100.7", "2001:db8::7");
    log_in(&node, home, &user.email, PASSWORD).await.data(200);
    log_in(&node, office, &user.email, PASSWORD).await.data(200);

    for n in 0..4 {
        let node = if n % 2 == 0 { &node } else { &other };
        let answer = log_in(node, &format!("192.0.2.{n}"), &user.email.to_uppercase(), "wrong").await;
        answer.refused(401, "E_INVALID_CREDENTIALS");
        assert_eq!(quota(&answer), ("5", "4"), "the address has its own budget under the rule of the path");
    }
    for (n, password) in [(4, "wrong"), (5, PASSWORD), (0, "wrong")] {
        let answer = log_in(&other, &format!("192.0.2.{n}"), &user.email, password).await;
        limited(&answer, "4", TOO_MANY);
    }
    // The user can still log in from any address of a network used before. A successful login uses up no limit.
    for _ in 0..4 {
        log_in(&other, home, &user.email, PASSWORD).await.data(200);
    }
    log_in(&node, "2001:db8::8", &user.email, PASSWORD).await.data(200);
    // Other users are not affected.
    let second = node.user(user.account_id, "viewer").await;
    log_in(&node, "192.0.2.77", &second.email, PASSWORD).await.data(200);
    let text = other.send(other.request("GET", "/metrics")).await.text;
    assert!(text.contains("ledger_rate_limited_total{rule=\"user-login\"} 3"), "{text}");
    let kept: Vec<String> = sqlx::query_scalar("SELECT key FROM rate_windows WHERE key LIKE 'user-login %'")
        .fetch_all(node.ledger.pool())
        .await
        .unwrap();
    assert!(kept.iter().all(|key| !key.contains(&user.email) && !key.contains(home)), "{kept:?}");
}

/// An attacker in a network that the user has used shares the budget of that network, and no other budget.
#[tokio::test]
async fn guesses_from_a_known_network_use_up_that_network_alone() {
    let (node, user) = with_user(limits("user-login=2/1h")).await;
    for ip in ["198.51.100.7", "198.51.100.8"] {
        log_in(&node, ip, &user.email, PASSWORD).await.data(200);
    }
    for _ in 0..2 {
        log_in(&node, "198.51.100.7", &user.email, "wrong").await.refused(401, "E_INVALID_CREDENTIALS");
    }
    limited(&log_in(&node, "198.51.100.7", &user.email, PASSWORD).await, "2", TOO_MANY);
    log_in(&node, "198.51.100.8", &user.email, PASSWORD).await.data(200);
    log_in(&node, "198.51.100.9", &user.email, PASSWORD).await.data(200);
}

#[tokio::test]
async fn the_login_limit_does_not_reveal_whether_a_user_exists() {
    let (node, user) = with_user(limits("user-login=2/1h")).await;
    let mut told = vec![];
    for (net, email) in [("192.0.2", user.email.as_str()), ("198.51.100", "nobody@example.com")] {
        let mut answers = vec![];
        for n in 0..3 {
            let answer = log_in(&node, &format!("{net}.{n}"), email, "wrong").await;
            answers.push((answer.status, quota(&answer).1.to_owned(), answer.json()["message"].take()));
        }
        told.push(answers);
    }
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0][2].0, 429);
}

#[tokio::test]
async fn networks_are_forgotten_with_their_user_and_with_time() {
    let (node, user) = with_user(AMPLE_LIMITS.parse().unwrap()).await;
    let second = node.user(user.account_id, "viewer").await;
    let count = async || -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM vault.login_sources").fetch_one(node.ledger.pool()).await.unwrap()
    };
    log_in(&node, "198.51.100.7", &user.email, PASSWORD).await.data(200);
    log_in(&node, "198.51.100.7", &user.email, PASSWORD).await.data(200);
    assert_eq!(count().await, 3);
    sqlx::query("UPDATE vault.login_sources SET succeeded_at = succeeded_at - interval '91 days' WHERE user_id = $1")
        .bind(second.id)
        .execute(node.ledger.pool())
        .await
        .unwrap();
    assert_eq!(rewards_ledger::access::sessions::purge(node.ledger.pool()).await.unwrap(), (1, false));
    node.operator("DELETE", &format!("/users/{}", user.id), Value::Null).await.data(200);
    assert_eq!(count().await, 0);
}

#[tokio::test]
async fn a_common_password_is_refused() {
    let (node, user) = with_user(AMPLE_LIMITS.parse().unwrap()).await;
    let users = format!("/accounts/{}/users", user.account_id);
    for password in ["password", "12345678", "Passw0rd!", "iloveyou", "qwertyuiop", "jane.doe@acme.example"] {
        let body = json!({"email": "jane.doe@acme.example", "password": password, "role": "viewer"});
        let error = node.operator("POST", &users, body).await.refused(400, "E_VALIDATION_FAILURE");
        assert_eq!(error["messages"], json!({"password": ["is a common password, or close to one: choose another"]}));
    }
    let change = async |password: &str| node.operator("PUT", &format!("/users/{}", user.id), json!({"password": password})).await;
    for password in ["letmein123", &user.email] {
        change(password).await.refused(400, "E_VALIDATION_FAILURE");
    }
    log_in(&node, "192.0.2.1", &user.email, PASSWORD).await.data(200);
    change("kd93jf0q").await.data(200);
    log_in(&node, "192.0.2.1", &user.email, "kd93jf0q").await.data(200);
}

#[tokio::test]
async fn wrong_operator_tokens_count_as_failed_attempts() {
    let node = Node::with_limits(limits("operator=3/60s")).await;
    let guess = async |ip: &str, path: &str| {
        node.send(node.request("GET", path).header("X-Forwarded-For", ip).bearer_auth("a wrong one")).await
    };
    for (left, path) in [("2", "/admin/v1/accounts"), ("1", "/admin/v1/orders"), ("0", "/log/1/tile/entries/000")] {
        let answer = guess("192.0.2.1", path).await;
        answer.refused(401, "E_UNAUTHORIZED");
        assert_eq!(quota(&answer), ("3", left), "{path}");
    }
    let too_many = "Too many wrong operator tokens. Try again in 1 minute.";
    limited(&guess("192.0.2.1", "/admin/v1/accounts").await, "3", too_many);
    // A valid token still passes from the same address, and other addresses are not affected.
    let good = node.by_operator("GET", "/accounts").header("X-Forwarded-For", "192.0.2.1");
    node.send(good).await.data(200);
    assert_eq!(guess("192.0.2.2", "/admin/v1/accounts").await.status, 401);
    for (ip, status) in [("2001:db8::1", 401), ("2001:db8::2", 401), ("2001:db8::3", 401), ("2001:db8::4", 429)] {
        assert_eq!(guess(ip, "/admin/v1/accounts").await.status, status, "{ip}: by network");
    }
    // A request without a token does not count as a guess.
    let none = node.send(node.request("GET", "/admin/v1/accounts").header("X-Forwarded-For", "192.0.2.1")).await;
    none.refused(401, "E_UNAUTHORIZED");
    assert_eq!(quota(&none), ("", ""));
    let text = node.send(node.request("GET", "/metrics")).await.text;
    assert!(text.contains("ledger_rate_limited_total{rule=\"operator\"} 2"), "{text}");
}

/// 90 simultaneous logins from one address wait in a queue. Logins from other addresses take their turns in between.
#[tokio::test(flavor = "multi_thread")]
async fn many_logins_at_once_keep_nobody_else_out() {
    let (node, user) = with_user(AMPLE_LIMITS.parse().unwrap()).await;
    let flood = (0..90).map(async |n| log_in(&node, "192.0.2.1", &format!("nobody-{n}@example.com"), "wrong").await.status);
    let others = (1..=5).map(async |n| log_in(&node, &format!("198.51.100.{n}"), &user.email, PASSWORD).await.status);
    let (flood, others) = tokio::join!(futures::future::join_all(flood), futures::future::join_all(others));
    assert_eq!(others, [200; 5]);
    // Logins of the flood that wait too long get 503, and nobody else does.
    assert!(flood.iter().all(|status| [401, 503].contains(status)) && flood.contains(&401), "{flood:?}");
}
