//! Access tokens: JWTs (RFC 7519) that name a user and a session, signed with HS256 and a key derived from the master key.
//!
//! The session and the database's clock decide whether a token is still valid.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, TimeDelta, Utc};
use hmac::{Hmac, KeyInit, Mac};
use ledger_events::UserId;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::AccessError;
use crate::secrets::seal::{Keyring, SealError, Secret};

/// Lifetime of an access token.
pub const ACCESS_LIFETIME: TimeDelta = TimeDelta::minutes(15);

/// Claims of a token. Times are in Unix seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    #[serde(with = "text")]
    pub sub: UserId,
    /// Id of the session.
    pub sid: i64,
    pub iat: i64,
    pub exp: i64,
}

impl Claims {
    pub fn new(user_id: UserId, session_id: i64, now: DateTime<Utc>) -> Claims {
        Claims { sub: user_id, sid: session_id, iat: now.timestamp(), exp: (now + ACCESS_LIFETIME).timestamp() }
    }

    pub fn is_expired_at(&self, now: DateTime<Utc>) -> bool {
        now.timestamp() >= self.exp
    }
}

/// `{"alg":"HS256","typ":"JWT"}` in base64url. A token with any other header is refused, so that nothing in a token
/// influences how it is verified.
const HEADER: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9";

/// Signs and verifies access tokens. It accepts tokens that any of the master keys signed, so they survive a key rotation.
pub struct AccessTokens {
    /// One keyed MAC per master key, without any token data.
    macs: Vec<Hmac<Sha256>>,
    /// Index of the MAC that signs.
    signing: Arc<AtomicUsize>,
}

impl fmt::Debug for AccessTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessTokens").finish_non_exhaustive()
    }
}

impl AccessTokens {
    pub fn new(keyring: &Keyring) -> AccessTokens {
        let (keys, signing) = keyring.access_token_keys();
        let mac = |key| {
            <Hmac<Sha256> as KeyInit>::new_from_slice(key).unwrap_or_else(|_| unreachable!("HMAC takes a key of any length"))
        };
        AccessTokens { macs: keys.map(mac).collect(), signing }
    }

    /// Signs the claims and returns the token's text.
    ///
    /// # Errors
    /// [`SealError::NotCurrent`] while this node does not have the current master key.
    pub fn sign(&self, claims: &Claims) -> Result<Secret, SealError> {
        let mac = self.macs.get(self.signing.load(Ordering::Acquire)).ok_or(SealError::NotCurrent)?;
        let claims = serde_json::to_vec(claims).map_err(|_| SealError::Unreadable)?;
        let mut token = format!("{HEADER}.{}", URL_SAFE_NO_PAD.encode(claims));
        let signature = mac.clone().chain_update(&token).finalize().into_bytes();
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Ok(Secret::new(token))
    }

    /// Verifies the signature and returns the claims. It does not check the expiry or the session.
    pub fn read(&self, token: &str) -> Result<Claims, AccessError> {
        let (signed, signature) = token.rsplit_once('.').ok_or(AccessError::InvalidToken)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| AccessError::InvalidToken)?;
        // Each comparison takes constant time.
        if !self.macs.iter().any(|mac| mac.clone().chain_update(signed).verify_slice(&signature).is_ok()) {
            return Err(AccessError::InvalidToken);
        }
        let claims = signed.strip_prefix(HEADER).and_then(|rest| rest.strip_prefix('.')).ok_or(AccessError::InvalidToken)?;
        let claims = URL_SAFE_NO_PAD.decode(claims).map_err(|_| AccessError::InvalidToken)?;
        serde_json::from_slice(&claims).map_err(|_| AccessError::InvalidToken)
    }
}

/// Serialization of `sub`, which is a string (RFC 7519, 4.1.2).
mod text {
    use ledger_events::UserId;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(id: &UserId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(id)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UserId, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn tokens() -> AccessTokens {
        AccessTokens::new(&Keyring::from_base64(&Keyring::generate()).unwrap())
    }

    fn claims() -> Claims {
        Claims::new(UserId(7), 9, DateTime::from_timestamp(1_700_000_000, 0).unwrap())
    }

    #[test]
    fn a_token_names_its_user_and_its_expiry() {
        let tokens = tokens();
        let token = tokens.sign(&claims()).unwrap();
        let body = URL_SAFE_NO_PAD.decode(token.expose().split('.').nth(1).unwrap()).unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body, json!({"sub": "7", "sid": 9, "iat": 1_700_000_000, "exp": 1_700_000_900}));
        let read = tokens.read(token.expose()).unwrap();
        assert_eq!(read, claims());
        let at = |seconds| DateTime::from_timestamp(seconds, 0).unwrap();
        assert!(!read.is_expired_at(at(1_700_000_899)) && read.is_expired_at(at(1_700_000_900)));
    }

    #[test]
    fn a_token_survives_the_rotation_of_its_key() {
        let (old, new) = (Keyring::generate(), Keyring::generate());
        let before = AccessTokens::new(&Keyring::from_base64(&old).unwrap());
        let both = AccessTokens::new(&Keyring::from_base64(&format!("{}\n{}", *new, *old)).unwrap());
        let after = AccessTokens::new(&Keyring::from_base64(&new).unwrap());
        let token = before.sign(&claims()).unwrap();
        assert_eq!(both.read(token.expose()), Ok(claims()));
        assert_eq!(after.read(token.expose()), Err(AccessError::InvalidToken));
        assert_eq!(after.read(both.sign(&claims()).unwrap().expose()), Ok(claims()));
    }

    #[test]
    fn a_token_of_another_key_or_algorithm_is_refused() {
        let tokens = tokens();
        let foreign = self::tokens().sign(&claims()).unwrap();
        assert_eq!(tokens.read(foreign.expose()), Err(AccessError::InvalidToken));
        let body = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let claims = body(&serde_json::to_string(&claims()).unwrap());
        for header in [r#"{"alg":"none","typ":"JWT"}"#, r#"{"alg":"HS512","typ":"JWT"}"#, r#"{"typ":"JWT"}"#] {
            assert_eq!(tokens.read(&format!("{}.{claims}.", body(header))), Err(AccessError::InvalidToken));
        }
        // Another header is refused even if our own key signed it.
        let signed = format!("{}.{claims}", body(r#"{"alg":"HS512","typ":"JWT"}"#));
        let signature = URL_SAFE_NO_PAD.encode(tokens.macs[0].clone().chain_update(&signed).finalize().into_bytes());
        assert_eq!(tokens.read(&format!("{signed}.{signature}")), Err(AccessError::InvalidToken));
        let own = tokens.sign(&self::claims()).unwrap();
        let (rest, signature) = own.expose().rsplit_once('.').unwrap();
        let other = Claims { sub: UserId(8), ..self::claims() };
        let other = body(&serde_json::to_string(&other).unwrap());
        let header = rest.split('.').next().unwrap();
        for token in [format!("{header}.{other}.{signature}"), rest.to_owned(), format!("{rest}."), String::new(), "a.b.c".into()]
        {
            assert_eq!(tokens.read(&token), Err(AccessError::InvalidToken), "{token}");
        }
    }
}
