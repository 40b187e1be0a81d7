//! Two-factor authentication: time-based one-time codes (RFC 6238) and recovery codes.
//!
//! The functions read no clock and store nothing. The caller stores the secret sealed, the step of the last accepted code,
//! and the hash of each unused recovery code.

use chrono::{DateTime, Utc};
use totp_rs::{Builder, Totp};

use crate::secrets::seal::{Keyring, Secret};

/// Number of recovery codes that an enrolment creates.
pub const RECOVERY_CODES: usize = 10;

/// Random bytes of a secret (RFC 4226, section 4) and of a recovery code.
const SECRET_BYTES: usize = 20;
const RECOVERY_BYTES: usize = 10;
/// Length of a recovery code without its hyphens, and of each group between them.
const RECOVERY_LENGTH: usize = 16;
const RECOVERY_GROUP: usize = 4;
const CODE_DIGITS: usize = 6;

/// A stored secret that is not the base32 text of at least 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stored two-factor secret is invalid")]
pub struct InvalidSecret;

/// Text that a person enters as the second factor, by its form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecondFactor {
    /// Six digits from an authenticator app.
    Code(Secret),
    /// A recovery code in lower case, without hyphens.
    RecoveryCode(Secret),
}

impl SecondFactor {
    /// Parses a code or a recovery code. White space, hyphens and case are ignored.
    pub fn parse(text: &str) -> Option<SecondFactor> {
        let text: String = text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect();
        let text = text.to_ascii_lowercase();
        if text.len() == CODE_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some(SecondFactor::Code(Secret::new(text)));
        }
        let is_recovery_code =
            text.len() == RECOVERY_LENGTH && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'2'..=b'7'));
        is_recovery_code.then(|| SecondFactor::RecoveryCode(Secret::new(text)))
    }
}

/// Generates a secret: 160 random bits in base32.
pub fn generate_secret() -> Secret {
    Secret::new(totp_rs::Secret::from(rand::random::<[u8; SECRET_BYTES]>().to_vec()).to_base32())
}

/// Returns the URL that an authenticator app reads from a QR code. It contains the secret.
///
/// # Errors
/// [`InvalidSecret`] for a secret that is not base32 or shorter than 128 bits.
pub fn otpauth_url(secret: &Secret, issuer: &str, account_name: &str) -> Result<Secret, InvalidSecret> {
    // A colon separates issuer and account name in the URL.
    let builder = builder(secret)?.with_issuer(Some(issuer.replace(':', " "))).with_account_name(account_name.replace(':', " "));
    let totp = builder.build().map_err(|_| InvalidSecret)?;
    totp.to_url().map(Secret::new).map_err(|_| InvalidSecret)
}

/// Returns the code of a secret at a time.
///
/// # Errors
/// [`InvalidSecret`] for a secret that is not base32 or shorter than 128 bits.
pub fn code_at(secret: &Secret, time: DateTime<Utc>) -> Result<Secret, InvalidSecret> {
    Ok(Secret::new(totp(secret)?.generate(seconds(time)).to_string()))
}

/// Returns the step of a code that is valid at this time, or one step of 30 seconds before or after it.
///
/// A code of `last_step` or of an earlier step is refused, because each code is accepted once. The caller stores the
/// returned step as the new `last_step`, and does so atomically with this comparison.
///
/// # Errors
/// [`InvalidSecret`] for a secret that is not base32 or shorter than 128 bits.
pub fn accepted_step(
    secret: &Secret,
    code: &Secret,
    time: DateTime<Utc>,
    last_step: Option<i64>,
) -> Result<Option<i64>, InvalidSecret> {
    let step = totp(secret)?.check(code.expose(), seconds(time));
    let step = step.and_then(|step| i64::try_from(step).ok());
    Ok(step.filter(|step| last_step.is_none_or(|last| *step > last)))
}

/// Generates recovery codes: 80 random bits each, in four groups of four characters.
pub fn generate_recovery_codes() -> Vec<Secret> {
    let code = || {
        let text = totp_rs::Secret::from(rand::random::<[u8; RECOVERY_BYTES]>().to_vec()).to_base32().to_ascii_lowercase();
        let mut code = String::with_capacity(RECOVERY_LENGTH + RECOVERY_LENGTH / RECOVERY_GROUP);
        for (position, character) in text.chars().enumerate() {
            if position > 0 && position % RECOVERY_GROUP == 0 {
                code.push('-');
            }
            code.push(character);
        }
        Secret::new(code)
    };
    std::iter::repeat_with(code).take(RECOVERY_CODES).collect()
}

/// Returns the hash under which a recovery code of this owner is stored. Hyphens and case are ignored.
///
/// The hash has a key, so the database alone is not enough to test guesses. `kind` separates owners of different tables.
pub fn recovery_code_hash(keyring: &Keyring, kind: &str, owner: i64, code: &Secret) -> [u8; 32] {
    let code = code.expose().replace('-', "").to_ascii_lowercase();
    keyring.fingerprint(kind, [&owner.to_be_bytes()[..], code.as_bytes()].concat())
}

fn builder(secret: &Secret) -> Result<Builder, InvalidSecret> {
    let secret = totp_rs::Secret::try_from_base32(secret.expose()).map_err(|_| InvalidSecret)?;
    Ok(Builder::new().with_secret(secret))
}

/// SHA-1, six digits, steps of 30 seconds, one step of tolerance: the values that every authenticator app supports.
fn totp(secret: &Secret) -> Result<Totp, InvalidSecret> {
    builder(secret)?.build().map_err(|_| InvalidSecret)
}

fn seconds(time: DateTime<Utc>) -> u64 {
    u64::try_from(time.timestamp()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use chrono::TimeDelta;
    use proptest::prelude::*;

    use super::*;

    /// Secret and times of RFC 6238, appendix B, with the last six of its eight digits.
    #[test]
    fn codes_match_the_vectors_of_rfc_6238() {
        let secret = Secret::new("GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ");
        for (time, code) in [(59, "287082"), (1_111_111_109, "081804"), (1_234_567_890, "005924"), (20_000_000_000, "353130")] {
            let time = DateTime::from_timestamp(time, 0).unwrap();
            assert_eq!(code_at(&secret, time).unwrap().expose(), code);
        }
    }

    #[test]
    fn a_code_is_accepted_once_within_one_step_of_its_time() {
        let (secret, now) = (generate_secret(), DateTime::from_timestamp(1_800_000_015, 0).unwrap());
        let code = code_at(&secret, now).unwrap();
        let step = accepted_step(&secret, &code, now, None).unwrap().unwrap();
        assert_eq!(step, 60_000_000);
        assert_eq!(accepted_step(&secret, &code, now, Some(step)), Ok(None), "a replay");
        assert_eq!(accepted_step(&secret, &code, now, Some(step - 1)), Ok(Some(step)));
        for (seconds, is_valid) in [(-46, false), (-45, true), (-16, true), (44, true), (45, false)] {
            let found = accepted_step(&secret, &code, now + TimeDelta::seconds(seconds), None).unwrap();
            assert_eq!(found.is_some(), is_valid, "{seconds}");
        }
        assert_eq!(accepted_step(&generate_secret(), &Secret::new("x"), now, None), Ok(None));
        assert_eq!(code_at(&Secret::new("no base32!"), now), Err(InvalidSecret));
    }

    #[test]
    fn the_url_names_issuer_account_and_secret() {
        let url = otpauth_url(&Secret::new("GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"), "Re: wards", "jo@example.com").unwrap();
        let url = url::Url::parse(url.expose()).unwrap();
        assert_eq!((url.scheme(), url.host_str(), url.path()), ("otpauth", Some("totp"), "/Re%20%20wards:jo%40example.com"));
        let query: Vec<_> = url.query_pairs().map(|(key, value)| (key.into_owned(), value.into_owned())).collect();
        assert!(query.contains(&("secret".to_owned(), "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ".to_owned())), "{query:?}");
        assert!(query.contains(&("issuer".to_owned(), "Re  wards".to_owned())), "{query:?}");
    }

    #[test]
    fn recovery_codes_are_read_back_however_they_are_typed() {
        let keyring = Keyring::from_base64(&Keyring::generate()).unwrap();
        let codes = generate_recovery_codes();
        assert_eq!(codes.len(), RECOVERY_CODES);
        for code in &codes {
            assert_eq!(code.expose().len(), 19);
            let typed = format!(" {} ", code.expose().to_uppercase());
            let Some(SecondFactor::RecoveryCode(read)) = SecondFactor::parse(&typed) else { panic!("{typed}") };
            let hash = |owner, code| recovery_code_hash(&keyring, "user.recovery_code", owner, code);
            assert_eq!(hash(1, code), hash(1, &read));
            assert_ne!(hash(1, code), hash(2, code), "bound to its owner");
        }
        assert_eq!(SecondFactor::parse("123 456"), Some(SecondFactor::Code(Secret::new("123456"))));
        for text in ["", "12345", "1234567", "12345x", "１２３４５６", "abcd-efgh-ijkl-mno1"] {
            assert_eq!(SecondFactor::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_a_panic(text in ".*") {
            SecondFactor::parse(&text);
        }
    }
}
