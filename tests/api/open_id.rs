//! Sign-in of operators through OpenID Connect, with a real provider.

use rewards_ledger::audit::verify_with;
use serde_json::{Value, json};

use crate::support::ledger::keyring;
use crate::support::lines::Logged;
use crate::support::node::Node;
use crate::support::open_id::{Browser, Page, Provider};
use crate::support::wait::until;

const CALLBACK: &str = "/console/oidc/callback";

fn start(node: &Node) -> String {
    format!("{}/console/oidc/start", node.url())
}

/// Signs in with a new browser. Returns the page at the end, and the cookies that the node has set.
async fn sign_in(node: &Node) -> (Page, String) {
    let mut browser = Browser::new();
    let page = browser.open(&start(node)).await;
    (page, browser.cookie_header(node.url()))
}

/// A sign-in is in the audit log with its operator, and so is a failed one.
#[tokio::test]
async fn a_sign_in_through_the_provider_is_in_the_audit_log() {
    let Some(mut provider) = Provider::start().await else { return };
    let node = provider.node().await;
    provider.account(ada("finance")).await;
    let logged = Logged::begin("off,audit=info");
    let told = || {
        let (lines, text) = logged.take();
        assert!(!text.contains("ada@example.com") && !text.contains("code="), "{text}");
        lines.iter().map(|line| line["fields"].clone()).filter(|line| line["path"] == CALLBACK).collect::<Vec<_>>()
    };
    let (_, cookie) = sign_in(&node).await;
    let line = told().pop().unwrap();
    let operator = format!("operator {}", session(&node, &cookie).await["operator_id"]);
    let expected = (&json!("sign_in"), &json!(operator), &json!(true));
    assert_eq!((&line["kind"], &line["caller"], &line["is_successful"]), expected);
    provider.account(json!({"sub": "subject-8", "email": "eve@example.com"})).await;
    sign_in(&node).await;
    let line = told().pop().unwrap();
    assert_eq!((&line["kind"], &line["caller"], &line["is_successful"]), (&json!("sign_in"), &Value::Null, &json!(false)));
}

async fn session(node: &Node, cookie: &str) -> Value {
    node.portal(cookie, node.url(), "GET", "/admin/auth/session", Value::Null).await.data(200)
}

fn ada(role: &str) -> Value {
    json!({"sub": "subject-7", "email": "ada@example.com", "rewards_ledger_role": role})
}

#[tokio::test]
async fn a_person_of_the_provider_signs_in_with_the_role_of_the_claim() {
    let Some(mut provider) = Provider::start().await else { return };
    let node = provider.node().await;
    provider.account(ada("finance")).await;
    let (page, cookie) = sign_in(&node).await;
    assert_eq!((page.status, page.url.path()), (200, CALLBACK), "{}", page.text);
    assert!(page.text.contains("url=/console\"") && cookie.starts_with("__Host-console="), "{page:?} {cookie}");
    let first = session(&node, &cookie).await;
    assert_eq!((&first["role"], &first["sign_in"]), (&json!("finance"), &json!("open_id")));
    let by = async |method: &str, path: &str, body: Value| node.portal(&cookie, node.url(), method, path, body).await;
    by("GET", "/admin/v1/accounts", Value::Null).await.data(200);
    by("POST", "/admin/v1/accounts", json!({"name": "x"})).await.refused(403, "E_FORBIDDEN");
    by("POST", "/admin/auth/two-factor", Value::Null).await.refused(409, "E_CONFLICT");
    let password = json!({"current_password": "a guess of it", "new_password": "a quite different one"});
    by("PUT", "/admin/auth/password", password).await.refused(409, "E_CONFLICT");
    assert_eq!(by("GET", "/admin/auth/sessions", Value::Null).await.data(200)["sessions"][0]["is_current"], true);
    let listed = node.operator("GET", "/operators", Value::Null).await.data(200);
    assert_eq!(
        (&listed["operators"][0]["email"], &listed["operators"][0]["id"]),
        (&json!("ada@example.com"), &first["operator_id"])
    );
    let path = format!("/operators/{}", first["operator_id"]);
    node.operator("PUT", &path, json!({"role": "admin"})).await.refused(409, "E_CONFLICT");

    // One subject is one operator. A new role ends the sessions with the old one.
    let head = node.head().await;
    let (_, again) = sign_in(&node).await;
    assert_eq!(session(&node, &again).await["operator_id"], first["operator_id"]);
    assert_eq!(node.head().await, head, "a sign-in that changes nothing is no event");
    provider.account(json!({"sub": "subject-7", "rewards_ledger_role": ["staff", "admin"]})).await;
    let (_, promoted) = sign_in(&node).await;
    assert_eq!(session(&node, &promoted).await["role"], "admin");
    by("GET", "/admin/v1/accounts", Value::Null).await.refused(401, "E_UNAUTHORIZED");
    let log: Vec<(String, String, Value)> =
        sqlx::query_as("SELECT type, e::text, metadata::jsonb->'actor' FROM events e ORDER BY position")
            .fetch_all(node.ledger.pool())
            .await
            .unwrap();
    let types: Vec<&str> = log.iter().map(|(kind, ..)| &**kind).collect();
    assert_eq!(types, ["OperatorUserCreated", "OperatorUserChanged"]);
    for (_, text, actor) in &log {
        assert!(!text.contains("ada@") && !text.contains("subject-7"), "{text}");
        assert_eq!(actor, &json!({"operator": 0}));
    }
    let report = verify_with(&node.options, Some(&keyring()), |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.differences);
}

#[tokio::test]
async fn a_person_without_a_role_or_whose_access_was_removed_does_not_get_in() {
    let Some(mut provider) = Provider::start().await else { return };
    let node = provider.node().await;
    for claims in [json!({"sub": "a"}), ada("king"), json!({"sub": "a", "rewards_ledger_role": true})] {
        provider.account(claims).await;
        let (page, cookie) = sign_in(&node).await;
        assert_eq!((page.status, cookie.as_str()), (403, ""), "{}", page.text);
    }
    assert_eq!(node.head().await, 0, "nobody was created");
    provider.account(ada("auditor")).await;
    let (_, cookie) = sign_in(&node).await;
    let id = session(&node, &cookie).await["operator_id"].clone();
    node.operator("DELETE", &format!("/operators/{id}"), Value::Null).await.data(200);
    node.portal(&cookie, node.url(), "GET", "/admin/auth/session", Value::Null).await.refused(401, "E_UNAUTHORIZED");
    let (page, cookie) = sign_in(&node).await;
    assert_eq!((page.status, cookie.as_str()), (403, ""), "{}", page.text);
    provider.account(json!({"sub": "b", "refuses": true})).await;
    let (page, cookie) = sign_in(&node).await;
    assert_eq!((page.status, cookie.as_str()), (400, ""), "{}", page.text);
}

#[tokio::test]
async fn an_answer_counts_once_and_only_for_the_browser_that_began() {
    let Some(mut provider) = Provider::start().await else { return };
    let node = provider.node().await;
    provider.account(ada("admin")).await;
    let (mut victim, mut attacker) = (Browser::new(), Browser::new());
    let of_attacker = attacker.open_until(&start(&node), CALLBACK).await;
    // A browser that has begun nothing, and one that has begun another sign-in.
    assert_eq!(victim.open(of_attacker.as_str()).await.status, 400);
    let of_victim = victim.open_until(&start(&node), CALLBACK).await;
    let query = |url: &url::Url, name: &str| url.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned();
    // The code of the attacker's sign-in with the state of the victim's.
    let mixed = format!("{}{CALLBACK}?code={}&state={}", node.url(), query(&of_attacker, "code"), query(&of_victim, "state"));
    assert_eq!(victim.open(&mixed).await.status, 400);
    assert_eq!(victim.cookie_header(node.url()), "");

    let good = victim.open_until(&start(&node), CALLBACK).await;
    let foreign =
        good.as_str().replace(&query(&good, "iss").replace(':', "%3A").replace('/', "%2F"), "https%3A%2F%2Felsewhere.example");
    assert_ne!(foreign, good.as_str());
    let kept = victim.cookie_header(node.url());
    let with = async |url: &str| {
        let path = url.strip_prefix(node.url()).unwrap().to_owned();
        node.send(node.request("GET", &path).header("Cookie", &kept)).await.status
    };
    assert_eq!(with(&foreign).await, 400, "another issuer's answer");
    assert_eq!(with(good.as_str()).await, 200);
    assert_eq!(with(good.as_str()).await, 400, "the code was used");
    for query in ["", "?code=x", "?state=x", "?code=x&state=y", "?error=access_denied&state=y", "?code=a&code=b&state=y"] {
        assert_eq!(with(&format!("{}{CALLBACK}{query}", node.url())).await, 400, "{query}");
    }
}

#[tokio::test]
async fn a_rotation_of_the_providers_keys_and_an_outage_pass() {
    let Some(mut provider) = Provider::start().await else { return };
    let node = provider.node().await;
    provider.account(ada("admin")).await;
    assert_eq!(sign_in(&node).await.0.status, 200);
    provider.rotate_keys().await;
    until("the new keys are fetched", async || sign_in(&node).await.0.status == 200).await;

    let away = Node::with_provider("http://127.0.0.1:9").await;
    let page = Browser::new().open(&start(&away)).await;
    assert!(page.status == 503 && page.text.contains("does not answer"), "{page:?}");
    away.operator("GET", "/accounts", Value::Null).await.data(200);
}

#[tokio::test]
async fn without_a_provider_there_is_nothing_to_start_and_steps_are_rate_limited() {
    let node = Node::with_limits("openid=2/60s".parse().unwrap()).await;
    for (path, status) in [("start", 404), ("callback?code=a&state=b", 404), ("start", 429)] {
        let answer = node.anyone("GET", &format!("/console/oidc/{path}"), Value::Null).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
        assert_eq!(answer.header("cache-control"), "no-store");
    }
    // No number of steps blocks the address.
    node.anyone("GET", "/healthz", Value::Null).await.data(200);
    node.console_login("nobody@example.com", "a wrong one", None).await.refused(401, "E_INVALID_CREDENTIALS");
}
