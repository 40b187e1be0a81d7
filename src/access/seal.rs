//! Secrets at rest: an AEAD under a key derived from the master key, each sealed value bound to
//! its kind and row, with the key's id beside it so that the key can be rotated.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// A text that must not be shown: secrets, and free text from people.
#[derive(Clone, PartialEq, Eq)]
pub struct Private(Zeroizing<String>);

impl Private {
    pub fn new(text: impl Into<String>) -> Private {
        Private(Zeroizing::new(text.into()))
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Private {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[private]")
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SealError {
    #[error("the master key must be 32 bytes in base64")]
    MasterKey,
    #[error("a sealed value was made under a key that is not configured")]
    UnknownKey,
    #[error("a sealed value was changed, or belongs to another row")]
    Unreadable,
}

const KEY_ID_BYTES: usize = 4;
const NONCE_BYTES: usize = 24;

/// What seals and opens: derived from the 32 bytes of the master key.
pub struct Keyring {
    key_id: [u8; KEY_ID_BYTES],
    cipher: XChaCha20Poly1305,
    fingerprint_key: Zeroizing<[u8; 32]>,
    access_token_key: Zeroizing<[u8; 32]>,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("key_id", &hex::encode(self.key_id)).finish_non_exhaustive()
    }
}

fn keyed_hash(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac =
        <Hmac<Sha256> as hmac::KeyInit>::new_from_slice(key).unwrap_or_else(|_| unreachable!("HMAC takes a key of any length"));
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

impl Keyring {
    /// From the text of a master key file: 32 bytes in base64, white space around it ignored.
    pub fn from_base64(text: &str) -> Result<Keyring, SealError> {
        let bytes = Zeroizing::new(STANDARD.decode(text.trim()).map_err(|_| SealError::MasterKey)?);
        let master: &[u8; 32] = bytes.as_slice().try_into().map_err(|_| SealError::MasterKey)?;
        let id = keyed_hash(master, &[b"key id"]);
        let sealing = Zeroizing::new(keyed_hash(master, &[b"sealing"]));
        Ok(Keyring {
            key_id: [id[0], id[1], id[2], id[3]],
            cipher: XChaCha20Poly1305::new(&Key::from(*sealing)),
            fingerprint_key: Zeroizing::new(keyed_hash(master, &[b"fingerprint"])),
            access_token_key: Zeroizing::new(keyed_hash(master, &[b"access token"])),
        })
    }

    /// A new master key, as the text of its file.
    pub fn generate() -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(Zeroizing::new(rand::random::<[u8; 32]>()).as_slice()))
    }

    /// Seals a value for one row: `kind` and `id` are bound in, and needed to open it.
    pub fn seal(&self, kind: &str, id: i64, plain: &[u8]) -> Result<Vec<u8>, SealError> {
        let nonce: [u8; NONCE_BYTES] = rand::random();
        let aad = format!("{kind}/{id}");
        let sealed = self
            .cipher
            .encrypt(&XNonce::from(nonce), Payload { msg: plain, aad: aad.as_bytes() })
            .map_err(|_| SealError::Unreadable)?;
        Ok([&self.key_id[..], &nonce[..], &sealed[..]].concat())
    }

    pub fn open(&self, kind: &str, id: i64, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let (key_id, rest) = sealed.split_at_checked(KEY_ID_BYTES).ok_or(SealError::Unreadable)?;
        if key_id != self.key_id {
            return Err(SealError::UnknownKey);
        }
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_BYTES>().ok_or(SealError::Unreadable)?;
        let aad = format!("{kind}/{id}");
        let plain = self.cipher.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: aad.as_bytes() });
        plain.map(Zeroizing::new).map_err(|_| SealError::Unreadable)
    }

    /// Opens a value that was a text.
    pub fn open_text(&self, kind: &str, id: i64, sealed: &[u8]) -> Result<Private, SealError> {
        let plain = self.open(kind, id, sealed)?;
        std::str::from_utf8(&plain).map(Private::new).map_err(|_| SealError::Unreadable)
    }

    /// What access tokens are signed with.
    pub(super) fn access_token_key(&self) -> &[u8] {
        self.access_token_key.as_slice()
    }

    /// A keyed hash that finds equal values without telling what they are.
    pub fn fingerprint(&self, kind: &str, value: &str) -> [u8; 32] {
        keyed_hash(self.fingerprint_key.as_slice(), &[kind.as_bytes(), b"\0", value.as_bytes()])
    }
}

/// The hash by which an event commits to a text in the vault.
pub fn salted_hash(salt: &[u8], text: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(salt);
    hash.update(text.as_bytes());
    hex::encode(hash.finalize())
}

/// A new secret: 256 random bits as 64 hex characters.
pub fn random_secret() -> Private {
    Private::new(hex::encode(rand::random::<[u8; 32]>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_value_opens_only_for_its_row_and_key() {
        let keyring = Keyring::from_base64(&Keyring::generate()).unwrap();
        let sealed = keyring.seal("webhook.token", 7, b"secret").unwrap();
        assert_eq!(keyring.open("webhook.token", 7, &sealed).unwrap().as_slice(), b"secret");
        assert_eq!(keyring.open("webhook.token", 8, &sealed), Err(SealError::Unreadable));
        assert_eq!(keyring.open("webhook.url", 7, &sealed), Err(SealError::Unreadable));
        let other = Keyring::from_base64(&Keyring::generate()).unwrap();
        assert_eq!(other.open("webhook.token", 7, &sealed), Err(SealError::UnknownKey));
        let mut changed = sealed.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(keyring.open("webhook.token", 7, &changed), Err(SealError::Unreadable));
        assert_eq!(keyring.open("webhook.token", 7, b"ab"), Err(SealError::Unreadable));
    }

    #[test]
    fn nothing_private_is_shown() {
        let keyring = Keyring::from_base64(&Keyring::generate()).unwrap();
        assert_eq!(format!("{:?}", Private::new("secret")), "[private]");
        assert!(!format!("{keyring:?}").contains("cipher"));
        assert!(Keyring::from_base64("c2hvcnQ=").is_err());
    }
}
