//! The signature vectors, by this program's own code.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rewards_ledger::access::request_signature::{canonical_string, header, sign};
use rewards_ledger::delivery::signature;
use serde::Deserialize;

pub const REQUESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/vectors/request-signing.json");
pub const WEBHOOKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/vectors/webhook-signing.json");

/// Raw bytes, in the file as base64.
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
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
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
