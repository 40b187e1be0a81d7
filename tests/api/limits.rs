//! Rate limits and IP blocks from a client's point of view.

use std::collections::BTreeSet;

use chrono::Utc;
use rewards_ledger::access::rate_limits::RateLimits;
use rewards_ledger::ledger::expiry;
use serde_json::{Value, json};

use crate::support::node::{AMPLE_LIMITS, Client, Node, PASSWORD, TestResponse, User};

fn limits(text: &str) -> RateLimits {
    format!("{AMPLE_LIMITS},{text}").parse().unwrap()
}

/// Returns `X-RateLimit-Limit` and `X-RateLimit-Remaining` of a response that has all three rate limit headers.
#[track_caller]
fn quota(answer: &TestResponse) -> (u32, u32) {
    let number = |name: &str| answer.header(name).parse::<u32>().unwrap_or_else(|_| panic!("{name}: {}", answer.text));
    let now = Utc::now().timestamp();
    let resets = i64::from(number("x-ratelimit-reset"));
    assert!((now..=now + 3_601).contains(&resets), "{resets} {now}");
    (number("x-ratelimit-limit"), number("x-ratelimit-remaining"))
}

fn has_no_quota(answer: &TestResponse) -> bool {
    ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"].iter().all(|name| answer.header(name).is_empty())
}

/// Checks a 429 response in full. Returns its `Retry-After` in seconds.
#[track_caller]
fn limited(answer: &TestResponse, ceiling: u32, message: &str) -> u32 {
    assert_eq!(answer.status, 429, "{}", answer.text);
    assert_eq!(answer.header("content-type"), "application/json");
    let body = answer.json();
    assert_eq!(body.as_object().unwrap().len(), 3, "{body}");
    assert_eq!((&body["error"], &body["message"]), (&json!("rate_limit_exceeded"), &json!(message)));
    assert_eq!(body["retry_after"].to_string(), answer.header("retry-after"));
    assert_eq!(quota(answer), (ceiling, 0));
    assert!(!answer.header("x-request-id").is_empty());
    body["retry_after"].as_u64().unwrap().try_into().unwrap()
}

async fn sql(node: &Node, statement: &'static str) {
    sqlx::raw_sql(statement).execute(&mut node.options.connect().await.unwrap()).await.unwrap();
}

async fn login(node: &Node, ip: &str) -> TestResponse {
    let request = node.request("POST", "/auth/login").header("X-Forwarded-For", ip).header("Content-Type", "application/json");
    node.send(request.body("{}")).await
}

#[tokio::test]
async fn a_rule_counts_requests_whatever_their_response() {
    let node = Node::with_limits(limits("orders=4/60s,general=7/1h")).await;
    let setup = node.setup().await;
    let client = &setup.client;
    let body = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let placed = node.client(client, "POST", "/orders", body.clone()).await;
    assert_eq!((placed.status, quota(&placed)), (201, (4, 3)));
    let id = placed.json()["data"]["id"].as_i64().unwrap();
    let wrong = node.client(client, "POST", "/orders", json!({"quantity": -1})).await;
    assert_eq!((wrong.status, quota(&wrong)), (400, (4, 2)));
    let cancel = node.client(client, "POST", &format!("/orders/{id}/cancel/"), Value::Null).await;
    assert_eq!((cancel.status, quota(&cancel)), (200, (4, 1)));
    let large = node.send(node.by(client, "POST", "/orders").body(vec![b' '; (1 << 20) + 1])).await;
    assert_eq!((large.status, quota(&large)), (413, (4, 0)));
    let head = node.head().await;
    for _ in 0..3 {
        let refused = node.client(client, "POST", "/orders", body.clone()).await;
        let wait = limited(&refused, 4, "Too many order requests. Try again in 1 minute.");
        assert!((1..=60).contains(&wait), "{wait}");
    }
    assert_eq!(node.head().await, head, "a refused request has no effect");

    for (left, (method, path, status)) in [
        ("GET", "/orders", 200),
        ("GET", "/nowhere", 404),
        ("DELETE", "/orders", 405),
        ("GET", "/orders?page=0", 400),
        ("GET", "/orders/%00", 404),
        ("PUT", "/webhooks/1", 415),
    ]
    .into_iter()
    .enumerate()
    .map(|(n, request)| (6 - u32::try_from(n).unwrap(), request))
    {
        let answer = node.client(client, method, path, Value::Null).await;
        assert_eq!((answer.status, quota(&answer)), (status, (7, left)), "{method} {path} {}", answer.text);
    }
    // Another key of the account has its own budget.
    let second = node.credential(client.account_id).await;
    assert_eq!(quota(&node.client(&second, "POST", "/orders", body.clone()).await), (4, 3));

    // The first request after the end of a window opens a new one. A refused request was not charged to it.
    sql(&node, "UPDATE rate_windows SET opened_at = opened_at - interval '60 s', closes_at = now() WHERE key LIKE 'orders %'")
        .await;
    assert_eq!(quota(&node.client(client, "POST", "/orders", body).await), (4, 3));

    let text = node.send(node.request("GET", "/metrics")).await.text;
    assert!(text.contains("ledger_rate_limited_total{rule=\"orders\"} 3"), "{text}");
}

#[tokio::test]
async fn images_draw_on_the_accounts_budget() {
    let node = Node::with_limits(limits("images=3/60s")).await;
    let client = node.account("Acme").await;
    let second = node.credential(client.account_id).await;
    let other = node.account("Other").await;
    for (caller, path, left) in [
        (&client, "/products/images", 2),
        (&second, "/products/7/image", 1),
        (&client, "/products/7/image", 0),
        (&other, "/products/images", 2),
    ] {
        assert_eq!(quota(&node.client(caller, "GET", path, Value::Null).await), (3, left), "{path}");
    }
    let refused = node.client(&second, "GET", "/products/images", Value::Null).await;
    limited(&refused, 3, "Too many image requests. Try again in 1 minute.");
    assert_eq!(quota(&node.client(&client, "GET", "/products", Value::Null).await).0, 1_000_000);
}

#[tokio::test]
async fn failed_authentication_is_charged_to_the_address_and_not_to_the_key() {
    let node = Node::with_limits(limits("general=3/1h")).await;
    let client = node.account("Acme").await;
    let wrong = Client { secret: "0".repeat(64), ..client.clone() };
    let from = async |caller: &Client, ip: &str| node.send(node.by(caller, "GET", "/orders").header("X-Forwarded-For", ip)).await;
    for left in [2, 1, 0] {
        let refused = from(&wrong, "192.0.2.1").await;
        refused.refused(401, "E_UNAUTHORIZED");
        assert_eq!(quota(&refused), (3, left));
    }
    let nobody = node.request("GET", "/api/v1/orders").header("X-Forwarded-For", "192.0.2.1");
    let wait = limited(&node.send(nobody).await, 3, "Too many requests. Try again in 60 minutes.");
    assert!((3_590..=3_600).contains(&wait), "{wait}");
    limited(&from(&wrong, "192.0.2.1").await, 3, "Too many requests. Try again in 60 minutes.");
    assert_eq!(quota(&from(&wrong, "192.0.2.2").await), (3, 2), "another address");
    assert_eq!(quota(&from(&client, "192.0.2.1").await), (3, 2), "the key's own budget, from the same address");
    // A revoked key does not authenticate.
    node.operator("DELETE", &format!("/credentials/{}", client.credential_id), Value::Null).await.data(200);
    let revoked = from(&client, "192.0.2.3").await;
    assert_eq!((revoked.status, quota(&revoked)), (401, (3, 2)));
}

#[tokio::test]
async fn responses_without_a_rule_carry_no_rate_limit_headers() {
    let node = Node::start().await;
    for path in ["/healthz", "/readyz", "/metrics", "/docs", "/openapi.json", "/nowhere", "/admin/v1/accounts", "/api/v10"] {
        assert!(has_no_quota(&node.send(node.request("GET", path)).await), "{path}");
    }
    assert!(has_no_quota(&node.operator("GET", "/accounts", Value::Null).await));
}

/// Two nodes each get 150 requests at once. Exactly as many pass as the limit allows.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_over_two_nodes_passes_exactly_the_limit() {
    let node = Node::with_limits(limits("orders=100/60s")).await;
    let other = node.beside(limits("orders=100/60s")).await;
    let client = node.account("Acme").await;
    let burst = (0..300).map(|n| {
        let node = if n % 2 == 0 { &node } else { &other };
        node.client(&client, "POST", "/orders", json!({}))
    });
    let answers = futures::future::join_all(burst).await;
    let passed: Vec<&TestResponse> = answers.iter().filter(|answer| answer.status == 400).collect();
    assert_eq!(passed.len(), 100);
    let left: BTreeSet<u32> = passed.iter().map(|answer| quota(answer).1).collect();
    assert_eq!(left, (0..100).collect(), "each response has a different remainder");
    for answer in answers.iter().filter(|answer| answer.status != 400) {
        limited(answer, 100, "Too many order requests. Try again in 1 minute.");
    }
    // A node that starts now knows the count.
    let restarted = other.beside(limits("orders=100/60s")).await;
    let refused = restarted.client(&client, "POST", "/orders", json!({})).await;
    limited(&refused, 100, "Too many order requests. Try again in 1 minute.");
}

#[tokio::test]
async fn nobody_passes_uncounted() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    // The gate can look up the keys but cannot write the counters.
    sql(&node, "REVOKE INSERT ON rate_windows FROM ledger_runtime").await;
    for (method, path) in [("GET", "/orders"), ("POST", "/orders")] {
        let answer = node.client(&client, method, path, json!({})).await;
        answer.refused(503, "E_UNAVAILABLE");
        assert!(answer.header("retry-after").parse::<u32>().unwrap() >= 1);
    }
    login(&node, "192.0.2.1").await.refused(503, "E_UNAVAILABLE");
    sql(&node, "GRANT INSERT ON rate_windows TO ledger_runtime").await;
    node.client(&client, "GET", "/orders", Value::Null).await.data(200);
}

const BLOCKED: &str = "Too many logins: all requests from this address are refused. Try again in 15 minutes.";

#[tokio::test]
async fn one_login_too_many_blocks_the_address_everywhere() {
    let node = Node::with_limits(limits("login=5/60s")).await;
    let other = node.beside(limits("login=5/60s")).await;
    let client = node.account("Acme").await;
    for left in [4, 3, 2, 1, 0] {
        let answer = login(if left % 2 == 0 { &node } else { &other }, "192.0.2.1").await;
        assert_ne!(answer.status, 429);
        assert_eq!(quota(&answer), (5, left));
    }
    let wait = limited(&login(&node, "192.0.2.1").await, 5, BLOCKED);
    assert!((890..=900).contains(&wait), "{wait}");
    let ends = |answer: &TestResponse| answer.header("x-ratelimit-reset").to_owned();
    let end = ends(&login(&node, "192.0.2.1").await);
    for node in [&node, &other] {
        let from = |method: &str, path: &str| node.request(method, path).header("X-Forwarded-For", "192.0.2.1");
        for path in [
            "/docs",
            "/openapi.json",
            "/nowhere",
            "/auth/refresh",
            "/api/v1/orders",
            "/admin/v1/accounts",
            "/client/api/api-keys",
        ] {
            for method in ["GET", "POST"] {
                let answer = node.send(from(method, path)).await;
                limited(&answer, 5, BLOCKED);
                assert_eq!(ends(&answer), end, "blocked traffic does not extend the block");
            }
        }
        let known = from("GET", "/api/v1/orders").header("X-API-Key", &client.key).header("X-API-Secret", &client.secret);
        limited(&node.send(known).await, 5, BLOCKED);
        limited(&node.send(from("GET", "/admin/v1/accounts").bearer_auth("wrong")).await, 5, BLOCKED);
        for path in ["/healthz", "/readyz", "/metrics"] {
            assert_eq!(node.send(from("GET", path)).await.status, 200, "{path}");
        }
        let operator = node.by_operator("GET", "/accounts").header("X-Forwarded-For", "192.0.2.1");
        node.send(operator).await.data(200);
        // Other addresses are not affected.
        node.client(&client, "GET", "/orders", Value::Null).await.data(200);
    }
    let charged: i64 = sqlx::query_scalar("SELECT count(*) FROM rate_windows WHERE key = 'general ip 192.0.2.1'")
        .fetch_one(node.ledger.pool())
        .await
        .unwrap();
    assert_eq!(charged, 0, "a refused request is not charged");
    let text = other.send(other.request("GET", "/metrics")).await.text;
    assert!(text.contains("ledger_rate_limited_total{rule=\"block\"} 16"), "{text}");

    // The block ends by itself, and the next one is a separate block.
    sql(&node, "UPDATE ip_blocks SET started_at = started_at - interval '15 min', ends_at = now() - interval '1 ms'").await;
    sql(&node, "UPDATE rate_windows SET closes_at = now() WHERE key LIKE 'login %'").await;
    for left in [4, 3, 2, 1, 0] {
        assert_eq!(quota(&login(&other, "192.0.2.1").await), (5, left));
    }
    limited(&login(&other, "192.0.2.1").await, 5, BLOCKED);
}

#[tokio::test]
async fn an_operator_lifts_a_block() {
    let node = Node::with_limits(limits("login=2/60s")).await;
    for _ in 0..3 {
        login(&node, "2001:db8::1").await;
    }
    limited(&login(&node, "2001:db8:0::1").await, 2, BLOCKED);
    let head = node.head().await;
    let path = "/ip-blocks/2001:db8:0:0::1";
    let lifted = node.operator("DELETE", path, Value::Null).await.data(200);
    assert_eq!(lifted, json!({"ip": "2001:db8::1"}));
    let (kind, data, actor): (String, String, String) =
        sqlx::query_as("SELECT type, data::text, metadata->>'actor' FROM events WHERE position > $1")
            .bind(head)
            .fetch_one(node.ledger.pool())
            .await
            .unwrap();
    assert_eq!(kind, "IpBlockLifted");
    assert!(!data.contains("2001") && actor.contains("operator"), "{data} {actor}");
    for left in [1, 0] {
        assert_eq!(quota(&login(&node, "2001:db8::1").await), (2, left), "logins from the address are counted from zero");
    }
    for path in [path, "/ip-blocks/192.0.2.1", "/ip-blocks/nowhere"] {
        node.operator("DELETE", path, Value::Null).await.refused(404, "E_NOT_FOUND");
    }
    assert_eq!(quota(&login(&node, "192.0.2.1").await), (2, 1));
    let auditor = node.token(rewards_ledger::access::Role::Auditor).await;
    node.operator_with(&auditor, "DELETE", path, Value::Null).await.refused(403, "E_FORBIDDEN");
}

/// Returns the forms that an owner sends from the pages of the team and of the own account: path and body. Four of them change
/// the team or a session, and two change the second factor or the password.
async fn account_forms(node: &Node, owner: &User) -> [(String, String); 6] {
    node.again(owner).await;
    let sessions = node.bearer(&owner.access_token, "GET", "/client/api/sessions", Value::Null).await.data(200);
    let other = sessions["sessions"].as_array().unwrap().iter().find(|session| session["is_current"] == false);
    let (session, member) = (&other.unwrap()["id"], node.user(owner.account_id, "viewer").await.id);
    let password = format!("current_password={}&new_password=a+quite+different+one", PASSWORD.replace(' ', "+"));
    [
        ("/portal/team/invitations".to_owned(), format!("email=guest-{member}%40example.com&role=viewer")),
        (format!("/portal/account/sessions/{session}/end"), String::new()),
        (format!("/portal/team/{member}/role"), "role=operator".to_owned()),
        (format!("/portal/team/{member}/remove"), String::new()),
        ("/portal/account/two-factor/begin".to_owned(), String::new()),
        ("/portal/account/password".to_owned(), password),
    ]
}

#[tokio::test]
async fn forms_of_the_portal_are_counted_by_user_and_not_by_address() {
    let node = Node::with_limits(limits("portal=4/1h,security=2/1h")).await;
    let account = node.account("Acme").await.account_id;
    let (ada, bob) = (node.user(account, "owner").await, node.user(account, "owner").await);
    let (of_ada, of_bob) = (account_forms(&node, &ada).await, account_forms(&node, &bob).await);
    for (user, forms, status) in [(&ada, &of_ada, 200), (&ada, &of_ada, 429), (&bob, &of_bob, 200)] {
        for (path, body) in forms {
            let form = node.request("POST", path).header("Cookie", &user.cookie).header("Origin", node.url());
            let form = form.header("Content-Type", "application/x-www-form-urlencoded");
            // The answer to a form that succeeds leads to a page, which is counted as another request than a form.
            let answer = node.send(form.body(body.clone())).await;
            assert_eq!(answer.status, status, "{path}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn refreshes_and_the_portal_have_limits_of_their_own() {
    let node = Node::with_limits(limits("refresh=2/60s,portal=1/1h")).await;
    let post = async |path: &str| {
        node.send(node.request("POST", path).header("X-Forwarded-For", "192.0.2.1").header("Content-Type", "application/json"))
            .await
    };
    for left in [1, 0] {
        assert_eq!(quota(&post("/auth/refresh").await), (2, left));
    }
    limited(&post("/auth/refresh").await, 2, "Too many token refreshes. Try again in 1 minute.");
    assert_ne!(post("/auth/login").await.status, 429, "no block");
    assert_eq!(quota(&post("/client/api/api-keys").await), (1, 0), "no user is signed in, so the address is charged");
    limited(&post("/client/api/api-keys").await, 1, "Too many changes. Try again in 60 minutes.");
}

#[tokio::test]
async fn a_users_requests_are_charged_to_the_user_and_images_to_the_account() {
    let node = Node::with_limits(limits("general=2/1h,images=2/60s,portal=2/1h")).await;
    let client = node.account("Acme").await;
    let (owner, viewer) = (node.user(client.account_id, "owner").await, node.user(client.account_id, "viewer").await);
    let get = async |token: &str, path: &str| node.bearer(token, "GET", path, Value::Null).await;
    for left in [1, 0] {
        let answer = get(&viewer.access_token, "/api/v1/orders").await;
        assert_eq!((answer.status, quota(&answer)), (200, (2, left)));
    }
    limited(&get(&viewer.access_token, "/api/v1/orders").await, 2, "Too many requests. Try again in 60 minutes.");
    assert_eq!(quota(&get(&owner.access_token, "/api/v1/orders").await), (2, 1));
    assert_eq!(quota(&node.client(&client, "GET", "/orders", Value::Null).await), (2, 1));
    // An invalid token authenticates nobody, so the request is charged to the address.
    let stranger = get("nobody", "/api/v1/orders").await;
    assert_eq!((stranger.status, quota(&stranger)), (401, (2, 1)));
    for (token, left) in [(&viewer.access_token, 1), (&owner.access_token, 0)] {
        assert_eq!(quota(&get(token, "/api/v1/products/images").await), (2, left));
    }
    limited(
        &node.client(&client, "GET", "/products/images", Value::Null).await,
        2,
        "Too many image requests. Try again in 1 minute.",
    );

    let create = async |cookie: &str| {
        node.portal(cookie, node.url(), "POST", "/client/api/api-keys", json!({"name": "x".repeat(1 << 20)})).await
    };
    for left in [1, 0] {
        let answer = create(&owner.cookie).await;
        assert_eq!((answer.status, quota(&answer)), (413, (2, left)));
    }
    limited(&create(&owner.cookie).await, 2, "Too many changes. Try again in 60 minutes.");
    assert_eq!(quota(&create(&viewer.cookie).await), (2, 1));
    let list = node.portal(&owner.cookie, node.url(), "GET", "/client/api/api-keys", Value::Null).await;
    assert!(has_no_quota(&list) && list.status == 200, "{}", list.text);
}

#[tokio::test]
async fn expired_windows_and_blocks_are_deleted() {
    let node = Node::with_limits(limits("login=1/60s")).await;
    for ip in ["192.0.2.1", "192.0.2.2"] {
        login(&node, ip).await;
        login(&node, ip).await;
    }
    let pool = node.ledger.pool();
    assert_eq!(expiry::purge_rate_windows(pool).await.unwrap(), (0, false));
    assert_eq!(expiry::purge_ip_blocks(pool).await.unwrap(), (0, false));
    sql(&node, "UPDATE rate_windows SET closes_at = now() - interval '1 ms' WHERE key = 'login ip 192.0.2.1'").await;
    sql(
        &node,
        "UPDATE ip_blocks SET started_at = now() - interval '1 h', ends_at = now() - interval '1 ms' WHERE ip = '192.0.2.1'",
    )
    .await;
    assert_eq!(expiry::purge_rate_windows(pool).await.unwrap(), (1, false));
    assert_eq!(expiry::purge_ip_blocks(pool).await.unwrap(), (1, false));
}
