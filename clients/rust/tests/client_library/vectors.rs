//! The published vectors of both signatures.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rewards_ledger_client::signing::{canonical_string, header, sign};
use rewards_ledger_client::webhook::{Verifier, WebhookError};
use serde::Deserialize;

#[derive(Deserialize)]
struct Vectors<S, V> {
    sign: Vec<S>,
    verify: Vec<V>,
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

/// A request as it arrives at the service, and the error that it is refused with.
#[derive(Deserialize)]
struct ArrivedRequest {
    name: String,
    method: String,
    path: String,
    query: String,
    body_base64: String,
    secret: String,
    header: Option<String>,
    error: Option<Refusal>,
}

#[derive(Deserialize)]
struct Refusal {
    code: String,
}

#[derive(Deserialize)]
struct SignedDelivery {
    name: String,
    token: String,
    timestamp: String,
    body_base64: String,
    signature: String,
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

fn requests() -> Vectors<SignedRequest, ArrivedRequest> {
    read("request-signing.json")
}

fn deliveries() -> Vectors<SignedDelivery, Delivered> {
    read("webhook-signing.json")
}

fn decoded(text: &str) -> Vec<u8> {
    BASE64_STANDARD.decode(text).unwrap()
}

#[test]
fn requests_are_signed_as_the_vectors_say() {
    assert!(!requests().sign.is_empty());
    for vector in requests().sign {
        let body = decoded(&vector.body_base64);
        let canonical = canonical_string(&vector.method, &vector.path, Some(&vector.query), &body, vector.timestamp);
        assert_eq!(canonical, vector.canonical, "{}", vector.name);
        assert_eq!(header(vector.timestamp, &sign(&vector.secret, &canonical)), vector.header, "{}", vector.name);
    }
}

/// The service compares a request with the signature that the library makes for it, with the timestamp as the header has it.
#[test]
fn the_service_accepts_exactly_the_signatures_that_the_library_makes() {
    let vectors = requests().verify;
    let is_refused_with = |vector: &ArrivedRequest, code: &str| vector.error.as_ref().is_some_and(|error| error.code == code);
    assert!(vectors.iter().any(|vector| vector.error.is_none()));
    assert!(vectors.iter().any(|vector| is_refused_with(vector, "E_HMAC_SIGNATURE_INVALID")));
    for vector in vectors {
        // Without an error, the signature matches. Errors other than this one do not depend on it.
        if vector.error.is_some() && !is_refused_with(&vector, "E_HMAC_SIGNATURE_INVALID") {
            continue;
        }
        let header = vector.header.as_deref().unwrap();
        let (timestamp, signature) = header.strip_prefix("t=").unwrap().split_once(",v1=").unwrap();
        let body = decoded(&vector.body_base64);
        let canonical = canonical_string(&vector.method, &vector.path, Some(&vector.query), &body, timestamp);
        assert_eq!(sign(&vector.secret, &canonical) == signature, vector.error.is_none(), "{}", vector.name);
    }
}

#[test]
fn a_signed_webhook_is_genuine_and_one_with_another_signature_is_not() {
    assert!(!deliveries().sign.is_empty());
    for vector in deliveries().sign {
        let (body, now) = (decoded(&vector.body_base64), vector.timestamp.parse().unwrap());
        let verifier = Verifier::new(vector.token.as_str());
        let checked = |signature: &str| verifier.check(&vector.timestamp, signature, &body, now);
        assert!(checked(&vector.signature).is_ok(), "{}", vector.name);
        let reversed: String = vector.signature.chars().rev().collect();
        assert!(matches!(checked(&reversed), Err(WebhookError::Signature)), "{}", vector.name);
    }
}

#[test]
fn webhooks_are_verified_as_the_vectors_say() {
    let vectors = deliveries().verify;
    assert!(vectors.iter().any(|vector| vector.genuine) && vectors.iter().any(|vector| !vector.genuine));
    for vector in vectors {
        let body = decoded(&vector.body_base64);
        let verifier = Verifier::new(vector.token.as_str());
        let result = verifier.check(&vector.timestamp, &vector.signature, &body, vector.now);
        assert_eq!(result.is_ok(), vector.genuine, "{}: {result:?}", vector.name);
    }
}
