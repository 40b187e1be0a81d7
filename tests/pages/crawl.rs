//! All pages over HTTP: every link of every page is followed, and every form is tried.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::redirect::Policy;

use crate::support::node::Node;

/// Largest page, in bytes.
const LARGEST: usize = 200_000;

/// Returns the values of an attribute in a page, with entities decoded as far as our own links need it.
pub fn attributes<'a>(page: &'a str, name: &str) -> Vec<String> {
    let opening = format!(" {name}=\"");
    let values = page.split(&*opening).skip(1).filter_map(|rest: &'a str| rest.split_once('"'));
    values.map(|(value, _)| value.replace("&amp;", "&")).collect()
}

/// Every page that a user reaches from `start`, and every target of a form, with the page that has it.
pub struct Crawled {
    pub pages: BTreeMap<String, String>,
    pub forms: BTreeMap<String, String>,
}

/// Follows all links below `prefix`. Pages that differ only in their query count as one, after three of them.
pub async fn crawl(node: &Node, cookie: &str, start: &str) -> Crawled {
    let http = reqwest::Client::builder().redirect(Policy::none()).build().unwrap();
    let (mut pages, mut forms) = (BTreeMap::new(), BTreeMap::new());
    let (mut open, mut seen, mut queries) = (vec![start.to_owned()], BTreeSet::new(), BTreeMap::<String, u32>::new());
    while let Some(path) = open.pop() {
        let bare = path.split(['?', '#']).next().unwrap().to_owned();
        let times = queries.entry(bare.clone()).or_default();
        *times += 1;
        if *times > 3 || !seen.insert(path.clone()) {
            continue;
        }
        let response = http.get(format!("{}{path}", node.url())).header("Cookie", cookie).send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let kind = headers.get("content-type").map_or("", |kind| kind.to_str().unwrap()).to_owned();
        if kind.starts_with("text/event-stream") {
            continue;
        }
        let body = response.bytes().await.unwrap();
        assert!(status == 200 || status == 303, "{path} answers {status}: {}", String::from_utf8_lossy(&body));
        if !kind.starts_with("text/html") {
            continue;
        }
        assert!(body.len() < LARGEST, "{path} has {} bytes", body.len());
        let page = String::from_utf8(body.to_vec()).unwrap();
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        assert!(headers["cache-control"].to_str().unwrap().contains("no-store"), "{path} may be cached");
        assert!(
            !page.contains(" style=\"") && !page.contains("<script>") && !page.contains(" onclick"),
            "{path} has something inline"
        );
        for action in attributes(&page, "action") {
            forms.entry(action).or_insert_with(|| path.clone());
        }
        open.extend(attributes(&page, "href").into_iter().filter(|link| link.starts_with(start)));
        pages.insert(path, page);
    }
    Crawled { pages, forms }
}

/// Sends every form from another site, and without a session.
pub async fn attack_forms(node: &Node, cookie: &str, forms: &BTreeMap<String, String>) {
    let http = reqwest::Client::builder().redirect(Policy::none()).build().unwrap();
    for (action, page) in forms {
        let form = || {
            http.post(format!("{}{action}", node.url()))
                .header("Content-Type", "application/x-www-form-urlencoded")
                .body("reason=an+attack")
        };
        let foreign = form().header("Cookie", cookie).header("Origin", "https://elsewhere.example").send().await.unwrap();
        let is_filter = foreign.status().as_u16() == 405;
        assert!(is_filter || foreign.status().as_u16() == 403, "{action} of {page}: a foreign form gets {}", foreign.status());
        let anonymous = form().header("Origin", node.url()).send().await.unwrap();
        let status = anonymous.status().as_u16();
        let is_open = action.ends_with("/login") || action.contains("/password-reset") || action.contains("/invitation");
        assert!(
            is_filter || is_open || matches!(status, 303 | 401 | 403 | 405 | 415),
            "{action} of {page}: nobody gets {status}"
        );
    }
}
