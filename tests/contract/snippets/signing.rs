use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

pub fn canonical_string(method: &str, path: &str, query: &str, body: &[u8], timestamp: i64) -> String {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<(&str, &str)> = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect();
    pairs.sort_by_key(|(key, _)| *key);
    let query: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let path = match path.trim_end_matches('/') {
        "" => "/",
        path => path,
    };
    let digest = hex::encode(Sha256::digest(body));
    format!("{}\n{path}\n{}\n{digest}\n{timestamp}", method.to_uppercase(), query.join("&"))
}

pub fn x_signature(secret: &str, method: &str, path: &str, query: &str, body: &[u8], timestamp: i64) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC accepts a key of any length");
    mac.update(canonical_string(method, path, query, body, timestamp).as_bytes());
    format!("t={timestamp},v1={}", hex::encode(mac.finalize().into_bytes()))
}
