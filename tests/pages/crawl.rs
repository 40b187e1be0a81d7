//! All pages over HTTP: every link of every page is followed.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::header::HeaderMap;
use reqwest::redirect::Policy;

use crate::support::node::Node;

/// Largest page with its style sheet, script, icon and pictures, in bytes.
pub const MAX_BYTES: usize = 200_000;

/// Policy of every page, as a whole, so that any other one is noticed.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Returns the values of an attribute in a page, with entities decoded as far as our own links need it.
pub fn attributes<'a>(page: &'a str, name: &str) -> Vec<String> {
    let opening = format!(" {name}=\"");
    let values = page.split(&*opening).skip(1).filter_map(|rest: &'a str| rest.split_once('"'));
    values.map(|(value, _)| value.replace("&amp;", "&")).collect()
}

/// Checks that a page has the policy of all pages.
pub fn has_policy(path: &str, headers: &HeaderMap) {
    let policy = headers.get("content-security-policy").map(|policy| policy.to_str().unwrap());
    assert_eq!(policy, Some(POLICY), "{path}");
}

/// Returns the addresses of a tag from which something is loaded, or to which something is sent or leads. Each candidate of a
/// `srcset` has a size behind its address.
fn addresses(tag: &str) -> impl Iterator<Item = String> {
    let candidates = attributes(tag, "srcset");
    let candidates = candidates.iter().flat_map(|set| set.split(',')).filter_map(|one| one.split_whitespace().next());
    let candidates: Vec<String> = candidates.map(ToOwned::to_owned).collect();
    ["src", "href", "action", "formaction"].into_iter().flat_map(move |name| attributes(tag, name)).chain(candidates)
}

/// Beginnings of the addresses to which only a link may lead: another query of the page itself, and places outside this service.
const OF_LINKS: [&str; 4] = ["?", "http://", "https://", "mailto:"];

/// Checks that a page has no style or script of its own, that all that it loads is of this service, and that it sends its forms
/// there.
pub fn is_strict(path: &str, page: &str) {
    for part in page.split('<').skip(1) {
        let (tag, content) = part.split_once('>').unwrap();
        // Names stand between the quoted values.
        let pieces: Vec<&str> = tag.split('"').collect();
        let mut names = pieces.iter().step_by(2).flat_map(|names| names.split_whitespace());
        let element = names.next().unwrap();
        let is_inline = |name: &str| name.starts_with("style=") || (name.starts_with("on") && name.contains('='));
        assert!(!names.any(is_inline) && element != "style", "{path} has something inline: <{tag}>");
        let loads = element != "script" || (tag.contains(" src=\"") && content.is_empty());
        assert!(loads, "{path} has a script inline: {content}");
        for address in addresses(tag) {
            let is_own = (address.starts_with('/') && !address.starts_with("//")) || address.starts_with('#');
            let is_link = element == "a" && OF_LINKS.iter().any(|beginning| address.starts_with(beginning));
            assert!(is_own || is_link, "{path} has a foreign address: <{tag}>");
        }
    }
}

/// Returns the addresses that a page loads: of its pictures and its script, and of the links of its head.
pub fn loaded(page: &str) -> BTreeSet<String> {
    let head = page.split("</head>").next().unwrap();
    let links = head.split("<link").skip(1).flat_map(|link| attributes(link.split('>').next().unwrap(), "href"));
    attributes(page, "src").into_iter().chain(links).collect()
}

/// Sizes of what pages load, by address, each of which is read once.
struct Sizes<'a> {
    node: &'a Node,
    cookie: &'a str,
    known: BTreeMap<String, usize>,
}

impl Sizes<'_> {
    /// Returns the size of everything that a page loads, in bytes.
    async fn of_loaded(&mut self, page: &str) -> usize {
        let mut bytes = 0;
        for address in loaded(page) {
            let known = self.known.get(&address).copied();
            bytes += match known {
                Some(size) => size,
                None => self.read(address).await,
            };
        }
        bytes
    }

    async fn read(&mut self, address: String) -> usize {
        let request = reqwest::Client::new().get(format!("{}{address}", self.node.url())).header("Cookie", self.cookie);
        let response = request.send().await.unwrap();
        assert_eq!(response.status().as_u16(), 200, "{address}");
        let size = response.bytes().await.unwrap().len();
        self.known.insert(address, size);
        size
    }
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
    let mut sizes = Sizes { node, cookie, known: BTreeMap::new() };
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
        let page = String::from_utf8(body.to_vec()).unwrap();
        let bytes = page.len() + sizes.of_loaded(&page).await;
        assert!(bytes < MAX_BYTES, "{path} has {bytes} bytes with all that it loads");
        has_policy(&path, &headers);
        is_strict(&path, &page);
        assert!(headers["cache-control"].to_str().unwrap().contains("no-store"), "{path} may be cached");
        open.extend(attributes(&page, "href").into_iter().filter(|link| link.starts_with(start)));
        pages.insert(path, page);
    }
    pages
}
