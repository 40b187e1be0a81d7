//! The published vectors of both signatures.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rewards_ledger_client::signing::{canonical_string, header, sign};
use rewards_ledger_client::webhook::Verifier;
use serde::Deserialize;

#[derive(Deserialize)]
struct Requests {
    sign: Vec<SignedRequest>,
}

#[derive(Deserialize)]
struct SignedRequest {
    name: String,
    method: String,
    path: String,
    query: String,
    body_base64: String,
    timestamp: i64,
    secret: String,
    canonical: String,
    header: String,
}

#[derive(Deserialize)]
struct Webhooks {
    verify: Vec<Delivered>,
}

#[derive(Deserialize)]
struct Delivered {
    name: String,
    token: String,
    timestamp: String,
    body_base64: String,
    signature: String,
    now: i64,
    genuine: bool,
}

fn read<T: for<'de> Deserialize<'de>>(name: &str) -> T {
    // Cargo runs the tests in the package's directory.
    let text = std::fs::read_to_string(format!("../../docs/vectors/{name}")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn requests_are_signed_as_the_vectors_say() {
    let vectors: Requests = read("request-signing.json");
    assert!(!vectors.sign.is_empty());
    for vector in vectors.sign {
        let body = BASE64_STANDARD.decode(&vector.body_base64).unwrap();
        let canonical = canonical_string(&vector.method, &vector.path, Some(&vector.query), &body, vector.timestamp);
        assert_eq!(canonical, vector.canonical, "{}", vector.name);
        assert_eq!(header(vector.timestamp, &sign(&vector.secret, &canonical)), vector.header, "{}", vector.name);
    }
}

#[test]
fn webhooks_are_verified_as_the_vectors_say() {
    let vectors: Webhooks = read("webhook-signing.json");
    assert!(vectors.verify.iter().any(|vector| vector.genuine) && vectors.verify.iter().any(|vector| !vector.genuine));
    for vector in vectors.verify {
        let body = BASE64_STANDARD.decode(&vector.body_base64).unwrap();
        let verifier = Verifier::new(vector.token.as_str());
        let result = verifier.check(&vector.timestamp, &vector.signature, &body, vector.now);
        assert_eq!(result.is_ok(), vector.genuine, "{}: {result:?}", vector.name);
    }
}
