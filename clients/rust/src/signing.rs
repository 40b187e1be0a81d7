//! Signatures of requests, for credentials that require them: the canonical string and its HMAC-SHA256.
//!
//! [`Client`](crate::Client) signs by itself, if it has a signing secret.

use std::fmt::Display;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// Returns the five lines that are signed.
///
/// `path` and `query` are the raw text of the request, without any decoding. The path loses its trailing slashes. The
/// pairs of the query are sorted by key (a stable sort), a bare `k` becomes `k=`, and empty pairs are dropped.
/// `timestamp` is the text after `t=` in the header.
pub fn canonical_string(method: &str, path: &str, query: Option<&str>, body: &[u8], timestamp: impl Display) -> String {
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

/// Returns the HMAC-SHA256 of a canonical string in lowercase hex. The key is the text of the secret as it was shown.
pub fn sign(secret: &str, canonical: &str) -> String {
    hmac_hex(secret, &[canonical.as_bytes()])
}

/// Returns the value of `X-Signature`: `t=<unix_seconds>,v1=<signature_hex>`.
pub fn header(timestamp: i64, signature: &str) -> String {
    format!("t={timestamp},v1={signature}")
}

/// Returns the HMAC-SHA256 of the parts, one after the other, in lowercase hex.
pub(crate) fn hmac_hex(secret: &str, parts: &[&[u8]]) -> String {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(secret.as_bytes())
        .unwrap_or_else(|_| unreachable!("HMAC takes a key of any length"));
    parts.iter().for_each(|part| mac.update(part));
    hex::encode(mac.finalize().into_bytes())
}
