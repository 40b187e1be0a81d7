use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

pub fn is_genuine(token: &str, timestamp: &str, body: &[u8], signature: &str, now: i64) -> bool {
    let is_number = timestamp.bytes().all(|byte| byte.is_ascii_digit());
    let is_fresh = timestamp.parse().is_ok_and(|sent: i64| now.abs_diff(sent) <= 300);
    let mut mac = Hmac::<Sha256>::new_from_slice(token.as_bytes()).expect("HMAC accepts a key of any length");
    mac.update(timestamp.as_bytes());
    mac.update(b".");
    mac.update(body);
    let expected = hex::encode(mac.finalize().into_bytes());
    is_number && is_fresh && bool::from(expected.as_bytes().ct_eq(signature.as_bytes()))
}
