//! `/docs/guides`: the guides for client developers that accompany the API document, compiled into the program.

use poem::Route;
use pulldown_cmark::{Options, Parser, html};

use super::error::JSON;
use super::probes::add_text;

/// The guides: name in the URL, title, and Markdown text.
const GUIDES: [(&str, &str, &str); 16] = [
    ("quickstart", "Quickstart", include_str!("../../docs/quickstart.md")),
    ("bulk-orders", "Placing orders in bulk", include_str!("../../docs/guides/bulk-orders.md")),
    ("behind-a-firewall", "Receiving webhooks behind a firewall", include_str!("../../docs/guides/behind-a-firewall.md")),
    ("go-live", "Going live", include_str!("../../docs/guides/go-live.md")),
    ("reconcile-a-month", "Reconciling a month", include_str!("../../docs/guides/reconcile-a-month.md")),
    ("prove-an-order", "Proving an order to an auditor", include_str!("../../docs/guides/prove-an-order.md")),
    ("signing", "Signing a request", include_str!("../../docs/signing.md")),
    ("webhooks", "Receiving webhooks", include_str!("../../docs/webhooks.md")),
    ("errors", "Errors, retries and idempotency", include_str!("../../docs/errors.md")),
    ("limits", "Rate limits and polling", include_str!("../../docs/limits.md")),
    ("transparency", "The transparency log", include_str!("../../docs/transparency.md")),
    ("reconciliation", "Reconciliation", include_str!("../../docs/reconciliation.md")),
    ("export", "Exporting, importing and verifying the log", include_str!("../../docs/export.md")),
    ("erasure", "Erasing personal data", include_str!("../../docs/erasure.md")),
    ("versioning", "Versioning", VERSIONING),
    ("changelog", "Changelog", include_str!("../../CHANGELOG.md")),
];

/// Test vectors for other implementations of the signatures: file name and text.
pub const VECTORS: [(&str, &str); 2] = [
    ("request-signing", include_str!("../../docs/vectors/request-signing.json")),
    ("webhook-signing", include_str!("../../docs/vectors/webhook-signing.json")),
];

const VERSIONING: &str = include_str!("../../VERSIONING.md");

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem}\
    pre{background:#f5f5f5;padding:1rem;overflow:auto}code{font-size:.9em}table{border-collapse:collapse}\
    td,th{border:1px solid #ccc;padding:.3rem .6rem;text-align:left}";

/// Returns the promises for the published document: VERSIONING.md up to the comment that ends them.
pub fn versioning() -> &'static str {
    let (promises, _) = VERSIONING.split_once("<!--").unwrap_or((VERSIONING, ""));
    promises.trim_end()
}

/// Returns links to all guides, as a Markdown list.
pub fn links() -> String {
    GUIDES.map(|(name, title, _)| format!("- [{title}](/docs/guides/{name})\n")).concat()
}

/// Returns the paths of all guides, the vectors and the index.
pub fn paths() -> Vec<String> {
    let guides = GUIDES.iter().map(|(name, ..)| format!("/docs/guides/{name}"));
    let vectors = VECTORS.iter().map(|(name, _)| format!("/docs/vectors/{name}.json"));
    guides.chain(vectors).chain(["/docs/guides".to_owned()]).collect()
}

/// Adds routes for the guides as HTML pages, the vectors as JSON, and the index.
pub fn add(mut route: Route) -> Route {
    const HTML: &str = "text/html; charset=utf-8";
    for (name, title, markdown) in GUIDES {
        let markdown = if name == "versioning" { versioning() } else { markdown };
        route = add_text(route, &format!("/docs/guides/{name}"), HTML, page(title, markdown));
    }
    for (name, vectors) in VECTORS {
        route = add_text(route, &format!("/docs/vectors/{name}.json"), JSON, vectors.to_owned());
    }
    let index = format!("# Guides\n\n{}\nThe endpoints are described in the [API document](/docs).\n", links());
    add_text(route, "/docs/guides", HTML, page("Guides", &index))
}

/// Renders Markdown as a self-contained HTML page, which loads no other resource.
fn page(title: &str, markdown: &str) -> String {
    let mut body = String::new();
    html::push_html(&mut body, Parser::new_ext(markdown, Options::ENABLE_TABLES));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <link rel=\"icon\" href=\"data:,\"><style>{STYLE}</style></head>\n<body><p><a href=\"/docs/guides\">Guides</a></p>\n{body}</body></html>\n"
    )
}
