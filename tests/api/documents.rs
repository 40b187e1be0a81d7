//! The published OpenAPI documents, and the endpoints outside the API.

use rewards_ledger::api;
use serde_json::{Value, json};

use crate::support::node::Node;
use crate::support::repository;

/// `UPDATE_OPENAPI=1` writes the documents instead of comparing them.
#[test]
fn documents_are_up_to_date() {
    for (path, text) in api::documents() {
        let path = repository(path);
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        assert!(std::fs::read_to_string(&path).unwrap() == text, "{} is not up to date", path.display());
    }
}

#[test]
fn documents_describe_everything() {
    for (path, text) in api::documents() {
        let document: Value = serde_json::from_str(&text).unwrap();
        for (route, operations) in document["paths"].as_object().unwrap() {
            let prefixes =
                ["/api/v1/", "/auth/", "/client/api/", "/admin/v1/", "/admin/auth/", "/log/", "/healthz", "/readyz", "/metrics"];
            assert!(prefixes.iter().any(|prefix| route.starts_with(prefix)), "{path}: {route}");
            for (method, operation) in operations.as_object().unwrap() {
                for field in ["summary", "operationId", "tags"] {
                    assert!(!operation[field].is_null(), "{path}: {method} {route} has no {field}");
                }
                assert!(operation["security"].is_array(), "{path}: {method} {route}");
                for parameter in operation["parameters"].as_array().into_iter().flatten() {
                    let is_described = parameter["description"].is_string() || parameter["$ref"].is_string();
                    assert!(is_described, "{path}: {method} {route} {parameter}");
                }
            }
        }
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            for (field, property) in schema["properties"].as_object().into_iter().flatten() {
                let is_described = property["description"].is_string() || property["$ref"].is_string();
                assert!(is_described, "{path}: {name}.{field} has no description");
            }
        }
    }
}

#[test]
fn every_post_of_the_client_api_takes_an_idempotency_key() {
    let documents = api::documents();
    let (_, text) = documents.iter().find(|(path, _)| path.contains("client")).unwrap();
    let document: Value = serde_json::from_str(text).unwrap();
    for (route, operations) in document["paths"].as_object().unwrap().iter().filter(|(route, _)| route.starts_with("/api/v1/")) {
        let Some(post) = operations.get("post") else { continue };
        let parameters = post["parameters"].as_array().into_iter().flatten();
        let takes_key = parameters.into_iter().any(|p| p["in"] == "header" && p["name"] == "Idempotency-Key");
        assert!(takes_key, "{route}");
    }
}

#[tokio::test]
async fn probes_documents_and_pages_need_no_key() {
    let node = Node::start().await;
    let get = async |path: &str| node.send(node.request("GET", path)).await;
    assert_eq!(get("/healthz").await.data(200), json!({"status": "alive"}));
    let ready = get("/readyz").await.data(200);
    assert_eq!(ready["status"], "ready");
    let writer = ready["loops"].as_array().unwrap().iter().find(|state| state["name"] == "writer 1").unwrap();
    assert_eq!((&writer["is_stalled"], writer["heartbeat_age_seconds"].as_f64().is_some()), (&json!(false), true));
    for (path, (_, text)) in ["/openapi.json", "/admin/openapi.json"].into_iter().zip(api::documents()) {
        assert!(get(path).await.text == text, "{path}");
    }
    for (path, route) in [("/docs", "/api/v1/orders"), ("/admin/docs", "/admin/v1/orders")] {
        let page = get(path).await;
        assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
        assert!(page.text.contains(&format!("\"{route}\"")) && page.text.contains("additionalProperties"));
        assert!(!page.text.contains("src=\"http"), "it loads nothing from elsewhere");
    }
    get("/nowhere").await.refused(404, "E_NOT_FOUND");
    let unknown = get("/api/v1/orders").await;
    unknown.refused(401, "E_UNAUTHORIZED");
    assert_eq!(unknown.header("www-authenticate"), r#"ApiKey realm="rewards-ledger", Bearer realm="rewards-ledger""#);
    let no_session = get("/client/api/api-keys").await;
    no_session.refused(401, "E_INVALID_TOKEN");
    assert_eq!(no_session.header("www-authenticate"), r#"Bearer realm="rewards-ledger""#);
    let metrics = get("/metrics").await;
    assert_eq!(metrics.header("content-type"), "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(
        metrics.text.contains(r#"ledger_http_requests_total{method="GET",route="orders",path="",status="401"} 1"#),
        "{}",
        metrics.text
    );
    assert!(metrics.text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn a_log_that_can_be_changed_is_not_ready() {
    let node = Node::start().await;
    let mut owner = node.options.connect().await.unwrap();
    sqlx::query("ALTER TABLE events DISABLE TRIGGER events_append_only").execute(&mut owner).await.unwrap();
    let answer = node.send(node.request("GET", "/readyz")).await;
    let error = answer.refused(503, "E_UNAVAILABLE");
    assert!(error["message"].as_str().unwrap().contains("events_append_only"), "{error}");
    assert_eq!(node.send(node.request("GET", "/healthz")).await.status, 200);
}

/// Every page forbids loading or running anything that it does not contain, and forbids framing by other sites.
#[tokio::test]
async fn every_page_is_protected() {
    let node = Node::start().await;
    let mut pages = vec!["/docs".to_owned(), "/admin/docs".to_owned(), "/docs/guides".to_owned()];
    let index = node.send(node.request("GET", "/docs/guides")).await.text;
    let names = index.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    pages.extend(names.filter(|path| path.starts_with("/docs/guides/")).map(str::to_owned));
    assert!(pages.len() > 10, "{pages:?}");
    for page in pages {
        let answer = node.send(node.request("GET", &page)).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, "text/html; charset=utf-8"), "{page}");
        let policy = answer.header("content-security-policy");
        for part in
            ["default-src 'none'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "style-src 'sha256-"]
        {
            assert!(policy.contains(part), "{page}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{page}: {policy}");
        let is_static = page.contains("guides");
        assert_eq!(policy.contains("script-src 'none'"), is_static, "{page}: {policy}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{page}");
        assert_eq!(answer.header("x-frame-options"), "DENY", "{page}");
        // A style attribute would need a hash of its own in the policy.
        assert!(!is_static || !answer.text.contains(" style="), "{page}");
    }
    for path in ["/openapi.json", "/admin/openapi.json", "/docs/vectors/request-signing.json"] {
        assert_eq!(node.send(node.request("GET", path)).await.header("x-content-type-options"), "nosniff", "{path}");
    }
}

#[tokio::test]
async fn responses_about_an_account_are_never_cached() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let owner = node.user(setup.client.account_id, "owner").await;
    let client = async |method: &str, path: &str, body: Value| node.client(&setup.client, method, path, body).await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let statement = format!("/wallets/{}/statement?from=2026-01-01T00:00:00Z&to=2026-02-01T00:00:00Z", setup.wallet_id);
    let csv = node.by(&setup.client, "GET", &statement).header("Accept", "text/csv");
    for (what, answer) in [
        ("an order", client("POST", "/orders", order).await),
        ("orders", client("GET", "/orders", Value::Null).await),
        ("products, with the caller's discount", client("GET", "/products", Value::Null).await),
        ("wallets", client("GET", "/wallets", Value::Null).await),
        ("a statement", client("GET", &statement, Value::Null).await),
        ("a statement as CSV", node.send(csv).await),
        ("a refusal", client("GET", "/orders/999999", Value::Null).await),
        ("keys", node.bearer(&owner.access_token, "GET", "/client/api/api-keys", Value::Null).await),
        ("a logout", node.bearer(&owner.access_token, "POST", "/auth/logout", Value::Null).await),
        ("accounts", node.operator("GET", "/accounts", Value::Null).await),
        ("nobody", node.anyone("GET", "/api/v1/orders", Value::Null).await),
    ] {
        assert_eq!(answer.header("cache-control"), "no-store", "{what}: {} {}", answer.status, answer.text);
    }
    for path in ["/countries", "/currencies", "/categories"] {
        let answer = client("GET", path, Value::Null).await;
        assert_eq!((answer.status, answer.header("cache-control")), (200, "private, max-age=86400"), "{path}");
    }
}
