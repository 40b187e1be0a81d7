//! All pages over HTTP: every link of every page is followed.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::redirect::Policy;

use crate::support::node::Node;

/// Largest page, in bytes.
const MAX_BYTES: usize = 200_000;

/// Returns the values of an attribute in a page, with entities decoded as far as our own links need it.
pub fn attributes<'a>(page: &'a str, name: &str) -> Vec<String> {
    let opening = format!(" {name}=\"");
    let values = page.split(&*opening).skip(1).filter_map(|rest: &'a str| rest.split_once('"'));
    values.map(|(value, _)| value.replace("&amp;", "&")).collect()
}

/// A form that a page posts.
pub struct PostForm<'a> {
    pub action: String,
    /// Markup of its fields and buttons.
    content: &'a str,
}

impl PostForm<'_> {
    /// Returns the names of the fields into which people type a text. Passwords and numbers are no texts.
    pub fn texts(&self) -> Vec<String> {
        let tags = |opening: &'static str| self.content.split(opening).skip(1).map(|rest| rest.split('>').next().unwrap());
        let kinds = ["text", "search", "email", "url"].map(|kind| format!(" type=\"{kind}\""));
        let inputs = tags("<input").filter(|tag| kinds.iter().any(|kind| tag.contains(kind)));
        inputs.chain(tags("<textarea")).flat_map(|tag| attributes(tag, "name")).collect()
    }
}

/// Returns the forms that a page posts.
pub fn post_forms(page: &str) -> impl Iterator<Item = PostForm<'_>> {
    page.split("<form").skip(1).filter_map(|rest| {
        let (tag, content) = rest.split_once('>')?;
        let content = content.split_once("</form>").map_or(content, |(content, _)| content);
        let action = attributes(tag, "action").into_iter().next()?;
        tag.contains(" method=\"post\"").then_some(PostForm { action, content })
    })
}

/// Follows all links below `start`, and returns every page by its address. Pages that differ only in their query count as one,
/// after three of them.
pub async fn crawl(node: &Node, cookie: &str, start: &str) -> BTreeMap<String, String> {
    let http = reqwest::Client::builder().redirect(Policy::none()).build().unwrap();
    let mut pages = BTreeMap::new();
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
        assert!(body.len() < MAX_BYTES, "{path} has {} bytes", body.len());
        let page = String::from_utf8(body.to_vec()).unwrap();
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        assert!(headers["cache-control"].to_str().unwrap().contains("no-store"), "{path} may be cached");
        assert!(
            !page.contains(" style=\"") && !page.contains("<script>") && !page.contains(" onclick"),
            "{path} has something inline"
        );
        open.extend(attributes(&page, "href").into_iter().filter(|link| link.starts_with(start)));
        pages.insert(path, page);
    }
    pages
}
