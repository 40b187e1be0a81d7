//! Signing of client requests (specification, "HMAC request signing"): the canonical string and
//! its HMAC-SHA256. Pure, and the same for who signs and who checks.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// The five lines that are signed. `path` and `query` are the raw text on the wire, nothing
/// decoded: the path without its trailing slashes, the query's pairs sorted by key (a stable
/// sort), a bare `k` as `k=`, empty pairs dropped.
pub fn canonical_string(method: &str, path: &str, query: Option<&str>, body: &[u8], timestamp: i64) -> String {
    let path = match path.trim_end_matches('/') {
        "" => "/",
        path => path,
    };
    let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<(&str, &str)> = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect();
    pairs.sort_by_key(|(key, _)| *key);
    let query = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join("&");
    let body = hex::encode(Sha256::digest(body));
    format!("{}\n{path}\n{query}\n{body}\n{timestamp}", method.to_ascii_uppercase())
}

/// Lowercase hex HMAC-SHA256 of a canonical string. The key is the secret's text as it was shown.
pub fn sign(secret: &str, canonical: &str) -> String {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(secret.as_bytes())
        .unwrap_or_else(|_| unreachable!("HMAC takes a key of any length"));
    mac.update(canonical.as_bytes());
    hex::encode(mac.finalize().into_bytes())
}

/// The value of `X-Signature`: `t=<unix_seconds>,v1=<signature_hex>`.
pub fn header(timestamp: i64, signature: &str) -> String {
    format!("t={timestamp},v1={signature}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn the_canonical_string_has_five_lines() {
        let body = br#"{"product_id":1}"#;
        let hash = hex::encode(Sha256::digest(body));
        assert_eq!(
            canonical_string("post", "/api/v1/orders/", None, body, 1_700_000_000),
            format!("POST\n/api/v1/orders\n\n{hash}\n1700000000")
        );
        assert_eq!(
            canonical_string("GET", "/api/v1/orders", Some("page=2&limit=5"), b"", 5),
            format!("GET\n/api/v1/orders\nlimit=5&page=2\n{EMPTY}\n5")
        );
    }

    #[test]
    fn the_query_is_sorted_by_key_and_left_as_it_came() {
        let query = |text| canonical_string("GET", "/", Some(text), b"", 0).lines().nth(2).unwrap().to_owned();
        assert_eq!(query("b=2&a=1&b=1"), "a=1&b=2&b=1");
        assert_eq!(query("flag&&x=1&"), "flag=&x=1");
        assert_eq!(query("q=%C3%A9+x&Q=a=b"), "Q=a=b&q=%C3%A9+x");
        // By key alone: a pair's text would put "a-" before "a".
        assert_eq!(query("a-=1&a=2"), "a=2&a-=1");
        assert_eq!(query(""), "");
    }

    #[test]
    fn every_trailing_slash_goes_but_the_root_stays() {
        let path = |text| canonical_string("GET", text, None, b"", 0).lines().nth(1).unwrap().to_owned();
        assert_eq!((path("/a//"), path("/"), path("//a")), ("/a".to_owned(), "/".to_owned(), "//a".to_owned()));
    }

    // Made with OpenSSL: printf '...' | openssl dgst -sha256 -hmac <secret>
    #[test]
    fn a_signature_made_with_another_implementation() {
        let canonical = canonical_string("GET", "/api/v1/orders", Some("page=1"), b"", 1_700_000_000);
        assert_eq!(
            header(1_700_000_000, &sign("secret-text", &canonical)),
            "t=1700000000,v1=4881d1be71beb8274b594568488bd994835077c2510a0b3b09c4248d7080a787"
        );
    }

    proptest! {
        #[test]
        fn the_order_of_keys_does_not_matter(pairs in prop::collection::btree_map("[a-z]{1,4}", "[a-z%+=]{0,4}", 0..6)) {
            let text = |pairs: Vec<(&String, &String)>| pairs.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join("&");
            let forwards = text(pairs.iter().collect());
            let backwards = text(pairs.iter().rev().collect());
            prop_assert_eq!(canonical_string("GET", "/", Some(&forwards), b"", 0), canonical_string("GET", "/", Some(&backwards), b"", 0));
        }
    }
}
