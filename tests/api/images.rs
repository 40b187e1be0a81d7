//! Product images.

use ledger_events::ProductId;
use reqwest::header::CONTENT_TYPE;
use rewards_ledger::ledger::images::thumbnails::{self, Size};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::node::{Node, TestResponse, product};

pub const PNG: &[u8] = b"\x89PNG\r\n\x1a\n-and-so-on";
const JPEG: &[u8] = b"\xff\xd8\xff\xe0-and-so-on";
const WEBP: &[u8] = b"RIFF\x10\0\0\0WEBPVP8 ";

async fn put(node: &Node, product: &Value, content_type: &str, bytes: impl Into<Vec<u8>>) -> TestResponse {
    let request = node.by_operator("PUT", &format!("/products/{product}/image"));
    node.send(request.header(CONTENT_TYPE, content_type).body(bytes.into())).await
}

/// Returns the part of a URL's path below the client API.
fn path(url: &Value) -> String {
    let url = url.as_str().unwrap();
    url.split_once("/api/v1").unwrap_or_else(|| panic!("{url}")).1.to_owned()
}

#[tokio::test]
async fn an_image_is_stored_and_served_with_its_actual_type() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let id = json!(setup.product_id);
    let show = format!("/products/{id}/image");
    node.client(client, "GET", &show, Value::Null).await.refused(404, "E_NOT_FOUND");
    assert_eq!(node.client(client, "GET", "/products/images", Value::Null).await.data(200), json!({"images": []}));

    let mut urls = Vec::new();
    for (bytes, content_type) in [(PNG, "image/png"), (JPEG, "image/jpeg"), (WEBP, "image/webp")] {
        // The declared media type is ignored.
        let set = put(&node, &id, "image/svg+xml", bytes).await.data(200);
        let image = node.client(client, "GET", &show, Value::Null).await.data(200);
        let expected = json!({
            "product_id": id, "image_url": set["image_url"], "content_type": content_type, "updated_at": set["updated_at"],
        });
        assert_eq!(image, expected);
        let page = node.client(client, "GET", "/products/images", Value::Null).await;
        assert_eq!((page.header("x-total-count"), page.header("x-page-size")), ("1", "20"));
        assert_eq!(page.data(200), json!({"images": [image]}));
        let product = node.client(client, "GET", &format!("/products/{id}"), Value::Null).await.data(200);
        assert_eq!((&product["image_url"], &product["updated_at"]), (&image["image_url"], &image["updated_at"]));

        let url = path(&image["image_url"]);
        assert!(url.starts_with(&format!("{show}/")), "the rule of product images applies: {url}");
        let response = node.by(client, "GET", &url).send().await.unwrap();
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!((response.status().as_u16(), header("content-type")), (200, content_type.to_owned()));
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("cache-control"), "private, max-age=31536000, immutable");
        let etag = header("etag");
        assert_eq!(etag, format!("\"{}\"", hex::encode(Sha256::digest(bytes))));
        assert_eq!(response.bytes().await.unwrap(), bytes);

        for (condition, status) in [
            (etag.clone(), 304),
            (format!("\"other\", {etag}"), 304),
            (format!("W/{etag}"), 304),
            ("*".to_owned(), 304),
            ("\"other\"".to_owned(), 200),
            ("nonsense".to_owned(), 200),
        ] {
            let answer = node.by(client, "GET", &url).header("If-None-Match", &condition).send().await.unwrap();
            assert_eq!(answer.status().as_u16(), status, "{condition}");
            assert_eq!(answer.headers()["etag"].to_str().unwrap(), etag);
            assert_eq!(answer.bytes().await.unwrap().is_empty(), status == 304);
        }
        urls.push(url);
    }
    // A new image gets a new URL, and the old URL is gone.
    node.client(client, "GET", &urls[0], Value::Null).await.refused(404, "E_NOT_FOUND");
    node.send(node.request("GET", &format!("/api/v1{}", urls[2]))).await.refused(401, "E_UNAUTHORIZED");
}

#[tokio::test]
async fn the_log_holds_an_images_hash_and_not_its_bytes() {
    let node = Node::start().await;
    let id = node.operator("POST", "/products", product("Card")).await.data(201)["id"].clone();
    put(&node, &id, "image/png", PNG).await.data(200);
    let logged: Vec<(String, String)> =
        sqlx::query_as("SELECT data::text, metadata::text FROM events WHERE type = 'ProductImageSet'")
            .fetch_all(node.ledger.pool())
            .await
            .unwrap();
    let [(data, metadata)] = &logged[..] else { panic!("{logged:?}") };
    let expected = json!({"sha256": hex::encode(Sha256::digest(PNG)), "content_type": "image/png", "size": PNG.len()});
    assert_eq!(serde_json::from_str::<Value>(data).unwrap(), expected);
    assert!(metadata.contains("operator"), "{metadata}");
    // Uploading an identical image again changes nothing. Another image replaces one whose bytes are long gone.
    let head = node.head().await;
    put(&node, &id, "image/png", PNG).await.data(200);
    assert_eq!(node.head().await, head);
    sqlx::query("UPDATE product_images SET stored_at = now() - interval '2 hours'").execute(node.ledger.pool()).await.unwrap();
    put(&node, &id, "image/png", JPEG).await.data(200);
    let kept: Vec<Vec<u8>> = sqlx::query_scalar("SELECT bytes FROM product_images").fetch_all(node.ledger.pool()).await.unwrap();
    assert_eq!(kept, [JPEG]);
}

/// A PNG of random pixels, which no encoder makes small.
pub fn noise(width: u32, height: u32) -> Vec<u8> {
    let mut state = 7_u32;
    let image = image::RgbImage::from_fn(width, height, |_, _| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let [red, green, blue, _] = state.to_be_bytes();
        image::Rgb([red, green, blue])
    });
    let mut bytes = std::io::Cursor::new(vec![]);
    image.write_to(&mut bytes, image::ImageFormat::Png).unwrap();
    bytes.into_inner()
}

#[tokio::test]
async fn a_small_copy_of_an_image_is_made_once_and_goes_with_the_image() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let id = json!(setup.product_id);
    let original = noise(700, 500);
    let set = put(&node, &id, "image/png", original.clone()).await.data(200);
    let url = path(&set["image_url"]);
    let mut etags = vec![];
    for (size, most, max_width) in [("original", original.len(), 700), ("preview", 64 << 10, 640), ("thumbnail", 6 << 10, 224)] {
        let answer = node.by(&setup.client, "GET", &format!("{url}?size={size}")).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200);
        let etag = answer.headers()["etag"].to_str().unwrap().to_owned();
        let bytes = answer.bytes().await.unwrap();
        assert!(bytes.len() <= most, "{size}: {}", bytes.len());
        let width = image::load_from_memory(&bytes).unwrap().width();
        assert!((max_width / 3..=max_width).contains(&width), "{size}: {width} px");
        let known = node.by(&setup.client, "GET", &format!("{url}?size={size}")).header("If-None-Match", &etag);
        assert_eq!(known.send().await.unwrap().status().as_u16(), 304);
        etags.push(etag);
    }
    assert!(etags[0] != etags[1] && etags[1] != etags[2], "{etags:?}");
    let copies = async || -> Vec<String> {
        let sizes = "SELECT size FROM product_thumbnails ORDER BY size";
        sqlx::query_scalar(sizes).fetch_all(node.ledger.pool()).await.unwrap()
    };
    let of_operator = node.by_operator("GET", &format!("/products/{id}/image?size=thumbnail"));
    assert_eq!(of_operator.send().await.unwrap().headers()["content-type"], "image/jpeg");
    assert_eq!(copies().await, ["preview", "thumbnail"]);

    // What cannot be decoded has no copy, unless it is small anyway.
    let mut broken = PNG.to_vec();
    broken.resize(100_000, 0);
    let set = put(&node, &id, "image/png", broken).await.data(200);
    assert_eq!(copies().await, Vec::<String>::new());
    // A request for a copy of the image before may end only now. Its bytes are kept for a while.
    let (product, before) = (ProductId(setup.product_id), hex::encode(Sha256::digest(&original)));
    let late = thumbnails::copy(node.ledger.pool(), product, &before, Size::Thumbnail).await.unwrap();
    assert!(late.is_some());
    assert_eq!(copies().await, Vec::<String>::new());
    let url = path(&set["image_url"]);
    for _ in 0..2 {
        node.client(&setup.client, "GET", &format!("{url}?size=thumbnail"), Value::Null).await.refused(404, "E_NOT_FOUND");
    }
    let set = put(&node, &id, "image/png", PNG).await.data(200);
    let answer = node.by(&setup.client, "GET", &format!("{}?size=thumbnail", path(&set["image_url"]))).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.bytes().await.unwrap()), (200, PNG.into()));
}

#[tokio::test]
async fn files_that_are_not_images_are_refused() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let id = json!(setup.product_id);
    let head = node.head().await;
    for bytes in [
        &b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>"[..],
        b"<?xml version=\"1.0\"?><svg/>",
        b"GIF89a-and-so-on",
        b"BM-and-so-on",
        b"{}",
        b"",
    ] {
        put(&node, &id, "image/png", bytes).await.refused(415, "E_UNSUPPORTED_MEDIA_TYPE");
    }
    let limit = 2 << 20;
    let mut large = PNG.to_vec();
    large.resize(limit + 1, 0);
    put(&node, &id, "image/png", large.clone()).await.refused(413, "E_PAYLOAD_TOO_LARGE");
    put(&node, &json!(999_999), "image/png", PNG).await.refused(404, "E_NOT_FOUND");
    let request = node.request("PUT", &format!("/admin/v1/products/{id}/image")).body(PNG);
    node.send(request).await.refused(401, "E_UNAUTHORIZED");
    assert_eq!(node.head().await, head);
    let kept: i64 = sqlx::query_scalar("SELECT count(*) FROM product_images").fetch_one(node.ledger.pool()).await.unwrap();
    assert_eq!(kept, 0);
    large.pop();
    put(&node, &id, "image/png", large).await.data(200);
}

#[tokio::test]
async fn only_products_that_can_be_ordered_show_their_images() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let id = json!(setup.product_id);
    let other = node.operator("POST", "/products", product("Other")).await.data(201)["id"].clone();
    for id in [&id, &other] {
        put(&node, id, "image/png", PNG).await.data(200);
    }
    let of = async |query: &str| {
        let page = node.client(&setup.client, "GET", &format!("/products/images{query}"), Value::Null).await.data(200);
        page["images"].as_array().unwrap().iter().map(|image| image["product_id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(of("").await, [other.clone(), id.clone()]);
    assert_eq!(of("?page=2&limit=1").await, std::slice::from_ref(&id));
    let url =
        path(&node.client(&setup.client, "GET", &format!("/products/{other}/image"), Value::Null).await.data(200)["image_url"]);
    node.operator("PUT", &format!("/products/{other}"), json!({"is_active": false})).await.data(200);
    assert_eq!(of("").await, [id]);
    for path in [format!("/products/{other}/image"), url, "/products/x/image".to_owned(), "/products/1/image/x".to_owned()] {
        node.client(&setup.client, "GET", &path, Value::Null).await.refused(404, "E_NOT_FOUND");
    }
    node.client(&setup.client, "GET", "/products/images?limit=101", Value::Null).await.refused(400, "E_VALIDATION_FAILURE");
}
