//! The `/log` endpoints: their content, permissions and cache lifetimes.

use rewards_ledger::access::Role;
use serde_json::{Value, json};
use transparency_log::checkpoint::Trust;
use transparency_log::leaf::Leaf;
use transparency_log::merkle::{Frontier, Hash, leaf_hash};
use transparency_log::tile::Tile;

use crate::support::node::{Client, Node};
use crate::support::tree;

/// Returns the status, the bytes of the body, and the headers of a response.
async fn bytes(node: &Node, path: &str, token: Option<&str>) -> (u16, Vec<u8>, reqwest::header::HeaderMap) {
    let mut request = node.request("GET", path);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    (status, response.bytes().await.unwrap().to_vec(), headers)
}

/// Starts a node whose log has more than one full tile.
async fn node() -> Node {
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    for _ in 0..100 {
        node.operator(
            "POST",
            &format!("/wallets/{}/adjust", setup.wallet_id),
            json!({"type": "CREDIT", "amount": "1.00", "reason": "r"}),
        )
        .await
        .data(201);
    }
    let place = |_| node.client(&setup.client, "POST", "/orders", order.clone());
    for answer in futures::future::join_all((0..100).map(place)).await {
        answer.data(201);
    }
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn hashes_are_for_everyone_and_entries_for_auditors() {
    let node = node().await;
    node.anyone("GET", "/log/1/checkpoint", Value::Null).await.refused(404, "E_NOT_FOUND");
    node.publish().await;
    let checkpoint = node.anyone("GET", "/log/1/checkpoint", Value::Null).await;
    assert_eq!((checkpoint.status, checkpoint.header("content-type")), (200, "text/plain; charset=utf-8"));
    assert_eq!(checkpoint.header("cache-control"), "no-cache");
    assert_eq!(checkpoint.header("x-ratelimit-limit"), "", "no rate limit rule applies");
    let tag = checkpoint.header("etag").to_owned();
    let again = node.send(node.request("GET", "/log/1/checkpoint").header("If-None-Match", tag)).await;
    assert_eq!((again.status, again.text.as_str()), (304, ""));
    let opened = Trust::in_keys(vec![tree::key()]).open(&checkpoint.text).unwrap().checkpoint;
    let size = opened.size;
    assert_eq!(i64::try_from(size).unwrap(), node.head().await);
    assert!(size > 256, "{size}");

    let auditor = node.token(Role::Auditor).await;
    let (mut frontier, mut position) = (Frontier::default(), 0);
    for tile in Tile::all(size) {
        let (status, hashes, headers) = bytes(&node, &format!("/log/1/{}", tile.path()), None).await;
        assert_eq!((status, hashes.len()), (200, 32 * usize::from(tile.width)), "{}", tile.path());
        assert_eq!(headers["content-type"], "application/octet-stream");
        assert_eq!(headers["cache-control"], "public, max-age=31536000, immutable");
        if tile.level > 0 {
            continue;
        }
        let path = format!("/log/1/{}", tile.entries_path());
        let (status, ..) = bytes(&node, &path, None).await;
        assert_eq!(status, 401);
        let (status, bundle, headers) = bytes(&node, &path, Some(auditor.expose())).await;
        assert_eq!((status, &headers["cache-control"]), (200, &"no-store".parse().unwrap()));
        let (status, long, _) = bytes(&node, &path.replace("/entries/", "/entries32/"), Some(auditor.expose())).await;
        assert_eq!((status, long.len()), (200, bundle.len() + 2 * usize::from(tile.width)));
        let mut rest = &bundle[..];
        for hash in hashes.as_chunks::<32>().0 {
            let (length, entry) = rest.split_first_chunk::<2>().unwrap();
            let (entry, more) = entry.split_at(u16::from_be_bytes(*length).into());
            rest = more;
            position += 1;
            let leaf = Leaf::from_bytes(entry).unwrap();
            assert_eq!((leaf.shard_id, leaf.position), (1, position));
            assert_eq!(leaf_hash(entry), *hash);
            frontier.append(*hash);
        }
        assert!(rest.is_empty());
    }
    assert_eq!(frontier.root(), opened.root);
    // A partial tile is a prefix of the full tile that it has become.
    let (_, whole, _) = bytes(&node, "/log/1/tile/0/000", None).await;
    let (status, part, _) = bytes(&node, "/log/1/tile/0/000.p/7", None).await;
    assert_eq!((status, &part[..]), (200, &whole[..7 * size_of::<Hash>()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_for_auditors_and_admins_and_for_nobody_else() {
    let node = Node::start().await;
    let setup = node.setup().await;
    node.publish().await;
    let size = node.head().await;
    for kind in ["entries", "entries32"] {
        let path = format!("/log/1/tile/{kind}/000.p/{size}");
        let Client { key, secret, account_id, .. } = &setup.client;
        let by_key = node.request("GET", &path).header("X-API-Key", key).header("X-API-Secret", secret);
        node.send(by_key).await.refused(401, "E_UNAUTHORIZED");
        for role in ["viewer", "operator", "owner"] {
            let user = node.user(*account_id, role).await;
            node.bearer(&user.access_token, "GET", &path, Value::Null).await.refused(401, "E_UNAUTHORIZED");
            node.portal(&user.cookie, node.url(), "GET", &path, Value::Null).await.refused(401, "E_UNAUTHORIZED");
        }
        for role in [Role::Admin, Role::Auditor] {
            let token = node.token(role).await;
            assert_eq!(bytes(&node, &path, Some(token.expose())).await.0, 200, "{kind} {role:?}");
        }
        let finance = node.token(Role::Finance).await;
        node.send(node.request("GET", &path).bearer_auth(finance.expose())).await.refused(403, "E_FORBIDDEN");
        assert_eq!(node.operator_with(&finance, "GET", "/events?to=1", Value::Null).await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_resources_are_404_and_a_blocked_address_is_refused() {
    let node = Node::start().await;
    node.setup().await;
    node.publish().await;
    let size = node.head().await;
    for path in [
        "/log/2/checkpoint".to_owned(),
        "/log/x/checkpoint".to_owned(),
        "/log/1/tile/0/000".to_owned(),
        "/log/1/tile/1/000.p/1".to_owned(),
        "/log/1/tile/0/001.p/1".to_owned(),
        format!("/log/1/tile/0/000.p/{}", size + 1),
        "/log/1/tile/0/000.p/0".to_owned(),
        "/log/1/tile/0/0".to_owned(),
        "/log/1/tile/x/000".to_owned(),
        "/log/1/tile/0/x001/000".to_owned(),
        "/log/1/tile/0/x000/000.p/1".to_owned(),
        "/log/1/tile/".to_owned(),
        "/log/1".to_owned(),
    ] {
        node.anyone("GET", &path, Value::Null).await.refused(404, "E_NOT_FOUND");
    }
    let auditor = node.token(Role::Auditor).await;
    for path in [
        format!("/log/1/tile/entries/000.p/{}", size + 1),
        "/log/1/tile/entries/000".to_owned(),
        "/log/1/tile/entries/0".to_owned(),
    ] {
        node.send(node.request("GET", &path).bearer_auth(auditor.expose())).await.refused(404, "E_NOT_FOUND");
    }
    let wrong = node.anyone("POST", "/log/1/tile/0/x001/000", Value::Null).await;
    wrong.refused(405, "E_METHOD_NOT_ALLOWED");
    assert_eq!(wrong.header("allow"), "GET, HEAD");
    let keys = node.anyone("GET", "/log/1/keys", Value::Null).await.data(200);
    assert_eq!(keys["origin"], "ledger.example.com/log/1");
    assert_eq!(keys["keys"][0]["verifier_key"], tree::key().to_string());
    assert_eq!(keys["witnesses"], json!([tree::witness(1).to_string(), tree::witness(2).to_string()]));

    sqlx::raw_sql("INSERT INTO ip_blocks (ip, started_at, ends_at) VALUES ('127.0.0.1', now(), now() + interval '1 hour')")
        .execute(&mut node.options.connect().await.unwrap())
        .await
        .unwrap();
    for path in ["/log/1/checkpoint", "/log/1/tile/0/000.p/1", "/log/1/proof/inclusion?position=1"] {
        assert_eq!(node.anyone("GET", path, Value::Null).await.status, 429, "{path}");
    }
    let entries = node.request("GET", "/log/1/tile/entries/000.p/1").bearer_auth(auditor.expose());
    assert_eq!(entries.send().await.unwrap().status(), 200, "an operator is not blocked");
}

/// A delivery of thousands of vouchers is an event too long for the length field of a bundle.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_is_too_long_for_a_bundle_is_served_elsewhere() {
    let node = Node::start().await;
    node.setup().await;
    let product = json!({
        "name": "Wordy", "brand": "Acme", "country": "DE", "currency": "EUR", "denomination_type": "FIXED",
        "denominations": ["10.00"], "max_quantity": 5, "description": "ä".repeat(5_000), "terms": "€".repeat(20_000),
    });
    node.operator("POST", "/products", product).await.data(201);
    node.publish().await;
    let size = node.head().await;
    let auditor = node.token(Role::Auditor).await;
    let get = |path: String| node.request("GET", &path).bearer_auth(auditor.expose());
    let refused = node.send(get(format!("/log/1/tile/entries/000.p/{size}"))).await.refused(404, "E_NOT_FOUND");
    assert!(refused["message"].as_str().unwrap().contains("tile/entries32"), "{refused}");
    assert_eq!(get(format!("/log/1/tile/entries/000.p/{}", size - 1)).send().await.unwrap().status(), 200);
    let (status, bundle, _) = bytes(&node, &format!("/log/1/tile/entries32/000.p/{size}"), Some(auditor.expose())).await;
    assert_eq!(status, 200);
    let (mut rest, mut last) = (&bundle[..], &[][..]);
    while let Some((length, entry)) = rest.split_first_chunk::<4>() {
        (last, rest) = entry.split_at(u32::from_be_bytes(*length) as usize);
    }
    assert!(last.len() > 65_535 && Leaf::from_bytes(last).unwrap().event_type == "ProductAdded");
    let (_, hashes, _) = bytes(&node, &format!("/log/1/tile/0/000.p/{size}"), None).await;
    assert_eq!(hashes.as_chunks::<32>().0.last(), Some(&leaf_hash(last)));
}
