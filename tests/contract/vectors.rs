//! The signature vectors, checked with this program's own code.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use proptest::prelude::*;
use rewards_ledger::access::request_signature::{canonical_string, check, header, parse_header, sign};
use rewards_ledger::api::error::ApiError;
use serde::Deserialize;
use webhook_client::signature;

use crate::support::repository;

pub const REQUESTS: &str = "docs/vectors/request-signing.json";
pub const WEBHOOKS: &str = "docs/vectors/webhook-signing.json";

/// Raw bytes, stored in the file as base64.
#[derive(Debug)]
pub struct Bytes(pub Vec<u8>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64_STANDARD.decode(text).map(Bytes).map_err(serde::de::Error::custom)
    }
}

#[derive(Debug, Deserialize)]
pub struct Vectors<S, V> {
    pub sign: Vec<S>,
    pub verify: Vec<V>,
}

#[derive(Debug, Deserialize)]
pub struct Signed {
    pub name: String,
    pub method: String,
    pub path: String,
    pub query: String,
    pub body_base64: Bytes,
    pub timestamp: i64,
    pub secret: String,
    pub canonical: String,
    pub header: String,
}

#[derive(Debug, Deserialize)]
pub struct Request {
    pub name: String,
    pub method: String,
    pub path: String,
    pub query: String,
    pub body_base64: Bytes,
    pub secret: String,
    pub header: Option<String>,
    pub now: i64,
    pub error: Option<Refusal>,
}

#[derive(Debug, Deserialize)]
pub struct Refusal {
    pub code: String,
    pub message: String,
}

#[derive(Debug, Deserialize)]
pub struct SignedDelivery {
    pub name: String,
    pub token: String,
    pub timestamp: String,
    pub body_base64: Bytes,
    pub signature: String,
}

#[derive(Debug, Deserialize)]
pub struct Delivery {
    pub name: String,
    pub token: String,
    pub timestamp: String,
    pub body_base64: Bytes,
    pub signature: String,
    pub now: i64,
    pub genuine: bool,
}

fn read<T: serde::de::DeserializeOwned>(path: &str) -> T {
    serde_json::from_str(&std::fs::read_to_string(repository(path)).unwrap()).unwrap()
}

pub fn requests() -> Vectors<Signed, Request> {
    read(REQUESTS)
}

pub fn deliveries() -> Vectors<SignedDelivery, Delivery> {
    read(WEBHOOKS)
}

#[test]
fn requests_are_signed_like_the_vectors() {
    let vectors = requests().sign;
    assert!(vectors.len() > 30);
    for vector in vectors {
        let query = Some(vector.query.as_str()).filter(|query| !query.is_empty());
        let canonical = canonical_string(&vector.method, &vector.path, query, &vector.body_base64.0, vector.timestamp);
        assert_eq!(canonical, vector.canonical, "{}", vector.name);
        assert_eq!(header(vector.timestamp, &sign(&vector.secret, &canonical)), vector.header, "{}", vector.name);
    }
}

#[test]
fn deliveries_are_signed_and_verified_like_the_vectors() {
    let vectors = deliveries();
    for vector in vectors.sign {
        let timestamp = vector.timestamp.parse().unwrap();
        let signature = signature::sign(&vector.token, timestamp, &vector.body_base64.0);
        assert_eq!(signature, vector.signature, "{}", vector.name);
    }
    for vector in vectors.verify {
        let Delivery { token, timestamp, body_base64, signature, now, .. } = &vector;
        let genuine = signature::verify(token, timestamp, &body_base64.0, signature, *now).is_ok();
        assert_eq!(genuine, vector.genuine, "{}", vector.name);
    }
}

#[test]
fn requests_are_verified_like_the_vectors() {
    for vector in requests().verify {
        let Request { name, method, path, query, body_base64, secret, header, now, error } = &vector;
        let query = Some(query.as_str()).filter(|query| !query.is_empty());
        let refused = check(secret, header.as_deref(), *now, method, path, query, &body_base64.0).err();
        let refused = refused.map(ApiError::from);
        let refused = refused.as_ref().map(|error| (error.code.as_str(), &*error.message));
        assert_eq!(refused, error.as_ref().map(|error| (error.code.as_str(), error.message.as_str())), "{name}");
    }
}

proptest! {
    /// For any text on the wire, the canonical string has five lines, and the guide's code and the program's agree.
    #[test]
    fn canonical_strings_have_five_lines_and_one_form(
        method in "[A-Za-z]{1,10}",
        path in "/[!-~]{0,40}",
        query in "[!-~&=%]{0,60}",
        body in prop::collection::vec(any::<u8>(), 0..100),
        timestamp in 0..i64::MAX,
    ) {
        let canonical = canonical_string(&method, &path, Some(&query), &body, timestamp);
        prop_assert_eq!(canonical.split('\n').count(), 5);
        prop_assert_eq!(&canonical, &super::snippets::signing::canonical_string(&method, &path, &query, &body, timestamp));
        // Sorting a sorted query changes nothing.
        let sorted = canonical.split('\n').nth(2).unwrap();
        prop_assert_eq!(&canonical_string(&method, &path, Some(sorted), &body, timestamp), &canonical);
    }

    #[test]
    fn no_wire_text_panics(method: String, path: String, query: Option<String>, body: Vec<u8>, timestamp: i64) {
        let _ = canonical_string(&method, &path, query.as_deref(), &body, timestamp);
        let _ = check(&method, query.as_deref(), timestamp, &method, &path, Some(&path), &body);
        let _ = signature::verify(&method, &path, &body, query.as_deref().unwrap_or_default(), timestamp);
    }

    /// For any content, a header either parses into two parts or is refused. A parsed header is formatted back into
    /// the same text.
    #[test]
    fn signature_headers_have_one_form(text in prop_oneof![any::<String>(), "(t=|v1=|,| |[0-9a-fA-F]{1,4}){0,12}", "t=[0-9]{1,30},v1=.{1,70}"]) {
        if let Some((timestamp, signature)) = parse_header(&text) {
            prop_assert_eq!(&format!("t={timestamp},v1={signature}"), &text);
            prop_assert!(timestamp.bytes().all(|byte| byte.is_ascii_digit()) && !signature.is_empty());
        }
    }

    #[test]
    fn only_the_signed_request_is_accepted(
        body in prop::collection::vec(any::<u8>(), 0..50),
        query in "[a-c=&]{0,12}",
        timestamp in 1_000..4_000_000_000_i64,
        off in -400..400_i64,
        flip in any::<prop::sample::Index>(),
    ) {
        let signed = |secret: &str| {
            header(timestamp, &sign(secret, &canonical_string("POST", "/api/v1/orders", Some(&query), &body, timestamp)))
        };
        let accepted = |header: &str, now| check("secret", Some(header), now, "POST", "/api/v1/orders", Some(&query), &body).is_ok();
        let good = signed("secret");
        prop_assert_eq!(accepted(&good, timestamp + off), off.abs() <= 300);
        prop_assert!(!accepted(&signed("other"), timestamp));
        let mut bytes = good.clone().into_bytes();
        let at = flip.index(bytes.len());
        bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
        prop_assert!(!accepted(&String::from_utf8(bytes).unwrap(), timestamp));
    }
}
