//! Signature of a webhook delivery: lowercase hex HMAC-SHA256 over `timestamp + "." + raw body`.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// Maximum difference between `X-Timestamp` and the receiver's clock, in either direction.
pub const TOLERANCE_SECONDS: u64 = 300;

/// Reason that a delivery is not authentic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// `X-Timestamp` is not a Unix timestamp in canonical decimal form.
    #[error("the timestamp is not a number of seconds")]
    Timestamp,
    /// The timestamp is more than five minutes from the receiver's clock.
    #[error("the timestamp is more than 5 minutes from the current time")]
    Expired,
    /// The signature is not that of this body under this secret.
    #[error("the signature does not match")]
    Signature,
}

/// Signs a body with its timestamp, in Unix seconds.
pub fn sign(secret: &str, timestamp: i64, body: &[u8]) -> String {
    sign_text(secret, &timestamp.to_string(), body)
}

/// Verifies a delivery: over the raw bytes, with a constant-time comparison, and
/// within five minutes of `now` (Unix seconds).
pub fn verify(secret: &str, timestamp_header: &str, body: &[u8], signature_hex: &str, now: i64) -> Result<(), VerifyError> {
    let timestamp: i64 = timestamp_header.parse().map_err(|_| VerifyError::Timestamp)?;
    // Each time has a single valid text: no "+5" and no "005".
    if timestamp.to_string() != timestamp_header {
        return Err(VerifyError::Timestamp);
    }
    let expected = sign_text(secret, timestamp_header, body);
    if !bool::from(expected.as_bytes().ct_eq(signature_hex.as_bytes())) {
        return Err(VerifyError::Signature);
    }
    if now.abs_diff(timestamp) > TOLERANCE_SECONDS {
        return Err(VerifyError::Expired);
    }
    Ok(())
}

/// Returns the name of the header that carries the token, in lower case: `x-<name>-webhook-token`.
pub fn token_header_name(service_name: &str) -> String {
    format!("x-{}-webhook-token", service_name.to_ascii_lowercase())
}

fn sign_text(secret: &str, timestamp: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes a key of any length");
    mac.update(timestamp.as_bytes());
    mac.update(b".");
    mac.update(body);
    hex::encode(mac.finalize().into_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn signatures_match_another_implementation() {
        // Python: hmac.new(secret, str(t).encode() + b"." + body, sha256).hexdigest()
        let every_byte: Vec<u8> = (0..=255).collect();
        let long_key = "\u{e9}".repeat(100);
        for (secret, timestamp, body, expected) in [
            (
                "whsec_test",
                1_700_000_000,
                br#"{"event_id":"evt_1"}"#.as_slice(),
                "0344289cae2f5eb6d2640d79205fa65017efc017e224155b7ef95f784061172c",
            ),
            ("k", 0, b"", "6b4a4b8b3c40f1e8f53a3d36682e5f99f7ad2ac1df1c93dfe336f329167641e7"),
            (long_key.as_str(), -5, every_byte.as_slice(), "09a663362b7f7143d35e2f8605cff2aedbbf75f55c670429ea384d4f164cd1fa"),
        ] {
            assert_eq!(sign(secret, timestamp, body), expected);
            assert_eq!(verify(secret, &timestamp.to_string(), body, expected, timestamp), Ok(()));
        }
    }

    #[test]
    fn the_tolerance_is_five_minutes_either_way() {
        let signature = sign("s", 1_000, b"x");
        for (now, expected) in [
            (1_300, Ok(())),
            (700, Ok(())),
            (1_301, Err(VerifyError::Expired)),
            (699, Err(VerifyError::Expired)),
            (i64::MIN, Err(VerifyError::Expired)),
            (i64::MAX, Err(VerifyError::Expired)),
        ] {
            assert_eq!(verify("s", "1000", b"x", &signature, now), expected);
        }
    }

    #[test]
    fn timestamps_in_another_form_are_refused() {
        for text in ["", "+1000", "01000", " 1000", "1000 ", "1e3", "-0", "99999999999999999999"] {
            assert_eq!(verify("s", text, b"x", &sign("s", 1_000, b"x"), 1_000), Err(VerifyError::Timestamp), "{text:?}");
        }
    }

    #[test]
    fn the_token_header_carries_the_service_name() {
        assert_eq!(token_header_name("SERVICE"), "x-service-webhook-token");
    }

    proptest! {
        #[test]
        fn any_change_breaks_the_signature(
            secret in "[!-~]{1,64}",
            timestamp in 0i64..4_000_000_000,
            body in prop::collection::vec(any::<u8>(), 0..200),
            flip in any::<prop::sample::Index>(),
        ) {
            let text = timestamp.to_string();
            let good = sign(&secret, timestamp, &body);
            prop_assert_eq!(verify(&secret, &text, &body, &good, timestamp), Ok(()));

            let mut other = good.clone().into_bytes();
            let at = flip.index(other.len());
            other[at] = if other[at] == b'0' { b'1' } else { b'0' };
            let other = String::from_utf8(other).unwrap();
            let refused = Err(VerifyError::Signature);
            prop_assert_eq!(verify(&secret, &text, &body, &other, timestamp), refused);
            prop_assert_eq!(verify(&secret, &text, &body, &good[..63], timestamp), refused);
            prop_assert_eq!(verify(&format!("{secret}x"), &text, &body, &good, timestamp), refused);
            let mut longer = body.clone();
            longer.push(0);
            prop_assert_eq!(verify(&secret, &text, &longer, &good, timestamp), refused);
            prop_assert_eq!(
                verify(&secret, &(timestamp + 1).to_string(), &body, &good, timestamp),
                refused
            );
        }
    }
}
