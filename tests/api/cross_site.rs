//! Cross-site requests: whatever another site makes a visitor's browser send, it uses up none of the visitor's
//! limits.

use rewards_ledger::access::rate_limits::RateLimits;
use serde_json::{Value, json};

use crate::support::node::{AMPLE_LIMITS, Node, TestResponse};

const VISITOR: &str = "192.0.2.1";

fn limits(text: &str) -> RateLimits {
    format!("{AMPLE_LIMITS},{text}").parse().unwrap()
}

fn quota(answer: &TestResponse) -> (&str, &str) {
    (answer.header("x-ratelimit-limit"), answer.header("x-ratelimit-remaining"))
}

async fn count(node: &Node, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(node.ledger.pool()).await.unwrap()
}

/// A request that is refused: expected status, headers and body.
type Refused = (u16, &'static [(&'static str, &'static str)], &'static str);

/// First come requests that a page of another site can send without a CORS preflight: forms, and `fetch` in the mode
/// `no-cors`. For the others a browser would send a preflight.
const FOREIGN: [Refused; 8] = [
    (415, &[("Content-Type", "application/x-www-form-urlencoded")], "email=a&password=b"),
    (415, &[("Content-Type", "text/plain")], r#"{"email": "a", "password": "b"}"#),
    (415, &[("Content-Type", "multipart/form-data; boundary=x")], "--x--"),
    (415, &[], ""),
    (403, &[("Content-Type", "application/x-www-form-urlencoded"), ("Origin", "https://elsewhere.example")], "email=a"),
    (403, &[("Content-Type", "application/json"), ("Origin", "https://elsewhere.example")], "{}"),
    (403, &[("Content-Type", "application/json"), ("Origin", "null")], "{}"),
    (403, &[("Content-Type", "application/json"), ("Sec-Fetch-Site", "cross-site")], "{}"),
];

#[tokio::test]
async fn a_page_of_another_site_cannot_get_an_address_blocked() {
    let node = Node::with_limits(limits("login=5/60s,refresh=20/60s")).await;
    let client = node.account("Acme").await;
    for (path, ceiling) in [("/auth/login", "5"), ("/auth/login/x", "5"), ("/auth/refresh", "20")] {
        for (status, headers, body) in FOREIGN {
            let mut request = node.request("POST", path).header("X-Forwarded-For", VISITOR).body(body);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let answer = node.send(request).await;
            answer.refused(status, if status == 403 { "E_FORBIDDEN" } else { "E_UNSUPPORTED_MEDIA_TYPE" });
            assert_eq!(quota(&answer), (ceiling, ceiling), "{path} {headers:?}: a rule applies, and nothing is charged");
        }
    }
    assert_eq!(count(&node, "SELECT count(*) FROM rate_windows WHERE key LIKE '% ip %'").await, 0);
    assert_eq!(count(&node, "SELECT count(*) FROM ip_blocks").await, 0);
    let known = node.by(&client, "GET", "/orders").header("X-Forwarded-For", VISITOR);
    node.send(known).await.data(200);
    // A page of the service itself, and a client that is no browser.
    let own = [vec![("Origin", node.url()), ("Sec-Fetch-Site", "same-origin")], vec![]];
    for (left, headers) in ["4", "3"].into_iter().zip(own) {
        let mut request = node.request("POST", "/auth/login").header("X-Forwarded-For", VISITOR);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let answer = node.send(request.json(&json!({"email": "jo@example.com", "password": "a wrong one"}))).await;
        answer.refused(401, "E_INVALID_CREDENTIALS");
        assert_eq!(quota(&answer), ("5", left));
    }
    // The headers show the current count, and an open window is left unchanged.
    let foreign = || node.request("POST", "/auth/login").header("X-Forwarded-For", VISITOR).header("Content-Type", "text/plain");
    for _ in 0..2 {
        assert_eq!(quota(&node.send(foreign()).await), ("5", "3"));
    }
}

#[tokio::test]
async fn a_page_of_another_site_does_not_use_up_a_users_limit() {
    let node = Node::with_limits(limits("portal=2/1h")).await;
    let client = node.account("Acme").await;
    let owner = node.user(client.account_id, "owner").await;
    let create =
        async |origin: &str| node.portal(&owner.cookie, origin, "POST", "/client/api/api-keys", json!({"name": "shop"})).await;
    for _ in 0..3 {
        create("https://elsewhere.example").await.refused(403, "E_FORBIDDEN");
        let form = node.request("POST", "/client/api/api-keys").header("Cookie", &owner.cookie).header("Origin", node.url());
        node.send(form.header("Content-Type", "text/plain").body("{}")).await.refused(415, "E_UNSUPPORTED_MEDIA_TYPE");
        node.portal("", "null", "POST", "/client/api/api-keys", Value::Null).await.refused(403, "E_FORBIDDEN");
    }
    assert_eq!(count(&node, "SELECT count(*) FROM rate_windows WHERE key LIKE 'portal %'").await, 0);
    for left in ["1", "0"] {
        let created = create(node.url()).await;
        created.data(201);
        assert_eq!(quota(&created), ("2", left));
    }
}

/// The block on the address is checked first: a blocked caller learns nothing else.
#[tokio::test]
async fn a_blocked_address_is_refused_before_anything_else() {
    let node = Node::with_limits(limits("login=1/60s")).await;
    let login = || node.request("POST", "/auth/login").header("X-Forwarded-For", VISITOR);
    for _ in 0..2 {
        node.send(login().json(&json!({}))).await;
    }
    let answer = node.send(login().header("Origin", "https://elsewhere.example").body("x")).await;
    assert_eq!((answer.status, quota(&answer)), (429, ("1", "0")), "{}", answer.text);
}
