//! Signatures of client requests (specification, "HMAC request signing"): the canonical string and its HMAC-SHA256.
//!
//! The functions are pure. Signer and verifier share them: the signer is the client library.

pub use rewards_ledger_client::signing::{canonical_string, header, sign};
use subtle::ConstantTimeEq;

/// Maximum difference between the timestamp and the server's time, in seconds, in either direction.
pub const TOLERANCE_SECS: u64 = 300;

/// Reason that a signed request is refused. The specification defines the texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("hmac signature required")]
    Required,
    #[error("invalid signature header format")]
    Header,
    #[error("request timestamp expired")]
    Expired,
    #[error("invalid hmac signature")]
    Invalid,
}

/// Parses `t` and `v1` from a header of exactly the form `t=<digits>,v1=<one or more characters>`.
pub fn parse_header(header: &str) -> Option<(&str, &str)> {
    let (timestamp, signature) = header.strip_prefix("t=")?.split_once(',')?;
    let signature = signature.strip_prefix("v1=")?;
    let is_number = !timestamp.is_empty() && timestamp.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !signature.is_empty()).then_some((timestamp, signature))
}

/// Verifies that a request is signed with the secret. `now` is in Unix seconds.
///
/// The checks run in this order: presence of the header, its format, the timestamp, the signature. The signature is
/// compared as text, in constant time.
///
/// # Errors
/// The first check that fails.
pub fn check(
    secret: &str,
    header: Option<&str>,
    now: i64,
    method: &str,
    path: &str,
    query: Option<&str>,
    body: &[u8],
) -> Result<(), SignatureError> {
    let header = header.ok_or(SignatureError::Required)?;
    let (timestamp, signature) = parse_header(header).ok_or(SignatureError::Header)?;
    // Digits that overflow an i64 name a time that is far out of range.
    let seconds: i64 = timestamp.parse().map_err(|_| SignatureError::Expired)?;
    if seconds.abs_diff(now) > TOLERANCE_SECS {
        return Err(SignatureError::Expired);
    }
    let expected = sign(secret, &canonical_string(method, path, query, body, timestamp));
    match bool::from(expected.as_bytes().ct_eq(signature.as_bytes())) {
        true => Ok(()),
        false => Err(SignatureError::Invalid),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use sha2::{Digest, Sha256};

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
    fn the_query_is_sorted_by_key_and_otherwise_unchanged() {
        let query = |text| canonical_string("GET", "/", Some(text), b"", 0).lines().nth(2).unwrap().to_owned();
        assert_eq!(query("b=2&a=1&b=1"), "a=1&b=2&b=1");
        assert_eq!(query("flag&&x=1&"), "flag=&x=1");
        assert_eq!(query("q=%C3%A9+x&Q=a=b"), "Q=a=b&q=%C3%A9+x");
        // The sort is by key alone: sorting by the pair's text would put "a-" before "a".
        assert_eq!(query("a-=1&a=2"), "a=2&a-=1");
        assert_eq!(query(""), "");
    }

    #[test]
    fn all_trailing_slashes_are_removed_except_the_root() {
        let path = |text| canonical_string("GET", text, None, b"", 0).lines().nth(1).unwrap().to_owned();
        assert_eq!((path("/a//"), path("/"), path("//a")), ("/a".to_owned(), "/".to_owned(), "//a".to_owned()));
    }

    // Made with OpenSSL: printf '...' | openssl dgst -sha256 -hmac <secret>
    #[test]
    fn a_signature_matches_another_implementation() {
        let canonical = canonical_string("GET", "/api/v1/orders", Some("page=1"), b"", 1_700_000_000);
        assert_eq!(
            header(1_700_000_000, &sign("secret-text", &canonical)),
            "t=1700000000,v1=4881d1be71beb8274b594568488bd994835077c2510a0b3b09c4248d7080a787"
        );
    }

    const NOW: i64 = 1_700_000_000;

    fn checked(header: Option<&str>, now: i64) -> Result<(), SignatureError> {
        check("secret", header, now, "POST", "/api/v1/orders/", Some("b=1&a=2"), b"\0\xff")
    }

    #[test]
    fn the_first_failing_check_is_reported() {
        let canonical = canonical_string("POST", "/api/v1/orders", Some("a=2&b=1"), b"\0\xff", NOW);
        let right = sign("secret", &canonical);
        let good = header(NOW, &right);
        assert_eq!(checked(Some(&good), NOW), Ok(()));
        assert_eq!(checked(None, NOW), Err(SignatureError::Required));
        let malformed = [
            "",
            "t=1",
            "v1=a",
            "t=,v1=a",
            "t=1,v1=",
            "t=1, v1=a",
            "t=1;v1=a",
            "t=-1,v1=a",
            "t=1.5,v1=a",
            "t=1,v2=a",
            "v1=a,t=1",
            "T=1,v1=a",
            " t=1,v1=a",
            "t=+1,v1=a",
            "t=\u{663},v1=a",
        ];
        for text in malformed {
            assert_eq!(checked(Some(text), NOW), Err(SignatureError::Header), "{text}");
        }
        for (now, expected) in [
            (NOW + 300, Ok(())),
            (NOW - 300, Ok(())),
            (NOW + 301, Err(SignatureError::Expired)),
            (NOW - 301, Err(SignatureError::Expired)),
        ] {
            assert_eq!(checked(Some(&good), now), expected, "{now}");
        }
        let wrong = ["x".to_owned(), right.to_uppercase(), right[1..].to_owned(), format!("{right},v1=x"), format!("{right} ")];
        for signature in wrong {
            assert_eq!(checked(Some(&header(NOW, &signature)), NOW), Err(SignatureError::Invalid), "{signature}");
            assert_eq!(checked(Some(&header(NOW - 301, &signature)), NOW), Err(SignatureError::Expired), "{signature}");
        }
        // The signature covers the timestamp's text as sent, including leading zeros.
        let zeros = format!("00{NOW}");
        let signed = sign("secret", &canonical_string("POST", "/api/v1/orders", Some("a=2&b=1"), b"\0\xff", &zeros));
        assert_eq!(checked(Some(&format!("t={zeros},v1={signed}")), NOW), Ok(()));
        assert_eq!(checked(Some(&format!("t={zeros},v1={right}")), NOW), Err(SignatureError::Invalid));
        assert_eq!(checked(Some(&format!("t={NOW},v1={signed}")), NOW), Err(SignatureError::Invalid));
        assert_eq!(checked(Some("t=99999999999999999999,v1=a"), NOW), Err(SignatureError::Expired));
        assert_eq!(checked(Some("t=9223372036854775807,v1=a"), -1), Err(SignatureError::Expired));
    }

    proptest! {
        #[test]
        fn any_header_is_refused_without_a_panic(header in ".*", now in any::<i64>()) {
            prop_assert!(checked(Some(&header), now).is_err());
        }

        #[test]
        fn the_order_of_keys_does_not_matter(pairs in prop::collection::btree_map("[a-z]{1,4}", "[a-z%+=]{0,4}", 0..6)) {
            let text = |pairs: Vec<(&String, &String)>| pairs.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join("&");
            let forwards = text(pairs.iter().collect());
            let backwards = text(pairs.iter().rev().collect());
            prop_assert_eq!(canonical_string("GET", "/", Some(&forwards), b"", 0), canonical_string("GET", "/", Some(&backwards), b"", 0));
        }
    }
}
