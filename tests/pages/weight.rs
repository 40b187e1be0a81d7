//! The size of pages with pictures, together with everything that they refer to.

use rewards_ledger::access::Role;
use serde_json::json;

use super::crawl::{MAX_BYTES, loaded};
use crate::api::images::noise;
use crate::support::node::{Node, product};

/// Number of products on a page of the catalogue.
const PRODUCTS: usize = 24;

/// Reads a page with everything that it loads. Returns its whole size, and the sizes of its pictures.
async fn weigh(node: &Node, cookie: &str, path: &str) -> (usize, Vec<usize>) {
    let read = async |path: &str| {
        let request = reqwest::Client::new().get(format!("{}{path}", node.url())).header("Cookie", cookie);
        let response = request.send().await.unwrap();
        assert_eq!(response.status().as_u16(), 200, "{path}");
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        (kind, response.bytes().await.unwrap())
    };
    let (_, page) = read(path).await;
    let (mut bytes, mut pictures, mut kinds) = (page.len(), vec![], vec![]);
    for address in loaded(str::from_utf8(&page).unwrap()) {
        let (kind, content) = read(&address).await;
        bytes += content.len();
        if kind == "image/jpeg" { pictures.push(content.len()) } else { kinds.push(kind) }
    }
    for part in ["text/css", "text/javascript", "image/svg+xml"] {
        assert!(kinds.iter().any(|kind| kind.starts_with(part)), "{path} loads no {part}: {kinds:?}");
    }
    (bytes, pictures)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_noisy_pictures_stays_under_200_kb() {
    let node = Node::start().await;
    let account = node.account("Acme").await.account_id;
    let (viewer, auditor) = (node.user(account, "viewer").await, node.console_user(Role::Auditor).await);
    // No encoder makes noise small, so each small copy is about as large as it may be.
    let image = noise(700, 500);
    let mut id = 0;
    for number in 0..PRODUCTS {
        let mut new = product(&format!("Card {number}"));
        new["description"] = json!("x".repeat(500));
        id = node.operator("POST", "/products", new).await.data(201)["id"].as_i64().unwrap();
        let put = node.by_operator("PUT", &format!("/products/{id}/image")).header("Content-Type", "image/png");
        node.send(put.body(image.clone())).await.data(200);
    }
    let (bytes, pictures) = weigh(&node, &viewer.cookie, "/portal/products").await;
    assert_eq!(pictures.len(), PRODUCTS);
    assert!(pictures.iter().all(|picture| *picture > 3_000), "{pictures:?}");
    assert!(bytes < MAX_BYTES, "the catalogue has {bytes} bytes");
    for (cookie, path) in
        [(&viewer.cookie, format!("/portal/products/{id}")), (&auditor.cookie, format!("/console/products/{id}"))]
    {
        let (bytes, pictures) = weigh(&node, cookie, &path).await;
        assert!(pictures.len() == 1 && pictures[0] > 30_000, "{path}: {pictures:?}");
        assert!(bytes < MAX_BYTES, "{path} has {bytes} bytes");
    }
}
