//! The guides and the version's guarantees, as the service publishes them.

use rewards_ledger::api::error::Code;
use serde_json::Value;

use crate::support::node::Node;
use crate::support::postgres;
use crate::support::program::Program;

/// Returns the addresses on this host that a text links to.
fn links(text: &str) -> Vec<String> {
    let ends = |rest: &str| rest.find([')', '"', ' ', '\n', '`', '<']).unwrap_or(rest.len());
    text.match_indices("/docs/").map(|(at, _)| text[at..at + ends(&text[at..])].to_owned()).collect()
}

#[tokio::test]
async fn every_guide_is_linked_and_every_link_leads_somewhere() {
    let node = Node::start().await;
    let get = async |path: &str| node.send(node.request("GET", path)).await;
    let document = get("/openapi.json").await.json();
    let text = document["info"]["description"].as_str().unwrap().to_owned();
    let mut open = links(&text);
    open.push("/docs/guides".to_owned());
    assert!(open.len() > 6, "{open:?}");
    let mut seen: Vec<String> = Vec::new();
    while let Some(path) = open.pop() {
        if seen.contains(&path) {
            continue;
        }
        let answer = get(&path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(!answer.text.contains("src=") && !answer.text.contains("<script"), "{path} loads nothing");
        open.extend(links(&answer.text));
        seen.push(path);
    }
    for name in [
        "quickstart",
        "bulk-orders",
        "behind-a-firewall",
        "go-live",
        "reconcile-a-month",
        "prove-an-order",
        "signing",
        "webhooks",
        "errors",
        "limits",
        "transparency",
        "reconciliation",
        "export",
        "versioning",
        "changelog",
    ] {
        assert!(seen.contains(&format!("/docs/guides/{name}")), "{seen:?}");
    }
    for name in ["request-signing", "webhook-signing"] {
        let vectors = get(&format!("/docs/vectors/{name}.json")).await;
        assert_eq!(vectors.header("content-type"), "application/json");
        assert!(vectors.json()["sign"].is_array());
    }
    let signing = get("/docs/guides/signing").await;
    assert_eq!(signing.header("content-type"), "text/html; charset=utf-8");
    assert!(signing.text.contains("<table>") && signing.text.contains("class=\"language-python\""), "rendered");
}

#[tokio::test]
async fn the_version_guarantees_are_in_the_document_and_the_guides() {
    let node = Node::start().await;
    let get = async |path: &str| node.send(node.request("GET", path)).await.text;
    let document: Value = serde_json::from_str(&get("/openapi.json").await).unwrap();
    let text = document["info"]["description"].as_str().unwrap().replace('\n', " ");
    for promise in [
        "30 days",
        "12 months",
        "4 weeks",
        "migration guide",
        "`Deprecation`",
        "mid-2028",
        "No v2 is planned",
        "first 8 characters of your API key",
        "at least 10 seconds",
        "do not know",
    ] {
        assert!(text.contains(promise), "{promise}");
    }
    assert!(!text.contains("--freeze"), "documents for maintainers are not published");
    for (guide, words) in [
        (
            "webhooks",
            &["A token that is lost", "Deduplicate on", "Answer 200", "do not act on", "constant time", "5 minutes"][..],
        ),
        ("limits", &["is not part of a product", "10 seconds", "60 seconds", "24 hours", "1,000 an hour", "15 minutes"]),
        ("errors", &["Idempotent-Replayed", "a GET may be repeated as it is", "Retry-After", "unknown", "4xx or 5xx"]),
        ("signing", &["hmac signature required", "request timestamp expired"]),
        ("versioning", &["12 months", "8 characters"]),
    ] {
        let page = get(&format!("/docs/guides/{guide}")).await;
        for words in words {
            assert!(page.contains(words), "{guide}: {words}");
        }
    }
}

#[test]
fn the_guide_describes_every_error_code() {
    let guide = include_str!("../../docs/errors.md");
    for code in Code::ALL {
        let row = format!("| `{}` | {} |", code.as_str(), code.status());
        assert_eq!(guide.matches(&row).count(), 1, "{row}");
    }
}

#[tokio::test]
async fn the_end_of_the_version_is_announced_as_configured() {
    let database = postgres::database().await;
    let arguments = ["--deprecation-date", "2027-06-30", "--sunset-date", "2028-07-01"];
    let node = Program::start(&database.url, &arguments).await;
    let get = async |path: &str| reqwest::get(format!("{}{path}", node.url())).await.unwrap();
    // Errors and unknown paths also carry the version's headers.
    for path in ["/api/v1/orders", "/api/v1/nowhere"] {
        let answer = get(path).await;
        assert_eq!(answer.headers()["deprecation"], "@1814313600", "{path}");
        assert_eq!(answer.headers()["sunset"], "Sat, 01 Jul 2028 00:00:00 GMT", "{path}");
    }
    for path in ["/admin/v1/orders", "/healthz", "/docs"] {
        let answer = get(path).await;
        assert!(!answer.headers().contains_key("deprecation") && !answer.headers().contains_key("sunset"), "{path}");
    }
    let plain = Node::start().await;
    let answer = plain.send(plain.request("GET", "/api/v1/orders")).await;
    assert_eq!((answer.header("deprecation"), answer.header("sunset")), ("", ""));
}
