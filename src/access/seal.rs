//! Secrets at rest: an AEAD, each sealed value bound to its kind and row.
//!
//! What belongs to the service is sealed under a key that is derived from the master key, and names
//! it. What belongs to a person is sealed under a data key, a random one for each subject, which is
//! itself sealed under the master key: with the data key destroyed, nobody opens it any more,
//! whoever has the master key. Its row names the data key; one without was sealed under the master
//! key, before there were others, and opens as ever.

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
    #[error("the data key of {0} was not loaded")]
    NoDataKey(String),
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

fn encrypt(cipher: &XChaCha20Poly1305, kind: &str, id: i64, plain: &[u8]) -> Result<Vec<u8>, SealError> {
    let nonce: [u8; NONCE_BYTES] = rand::random();
    let aad = format!("{kind}/{id}");
    let sealed = cipher.encrypt(&XNonce::from(nonce), Payload { msg: plain, aad: aad.as_bytes() });
    Ok([&nonce[..], &sealed.map_err(|_| SealError::Unreadable)?[..]].concat())
}

fn decrypt(cipher: &XChaCha20Poly1305, kind: &str, id: i64, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or(SealError::Unreadable)?;
    let aad = format!("{kind}/{id}");
    let plain = cipher.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: aad.as_bytes() });
    plain.map(Zeroizing::new).map_err(|_| SealError::Unreadable)
}

fn text(plain: &[u8]) -> Result<Private, SealError> {
    std::str::from_utf8(plain).map(Private::new).map_err(|_| SealError::Unreadable)
}

/// A random key for what belongs to one subject. Destroyed, it takes that with it.
pub struct DataKey {
    pub id: i64,
    cipher: XChaCha20Poly1305,
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The kind that data keys are sealed as.
const DATA_KEY: &str = "data_key";

impl DataKey {
    /// As [`Keyring::seal`]. The row has to name the key.
    pub fn seal(&self, kind: &str, id: i64, plain: &[u8]) -> Result<Vec<u8>, SealError> {
        encrypt(&self.cipher, kind, id, plain)
    }

    pub fn open(&self, kind: &str, id: i64, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        decrypt(&self.cipher, kind, id, sealed)
    }
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
        Ok([&self.key_id[..], &encrypt(&self.cipher, kind, id, plain)?[..]].concat())
    }

    pub fn open(&self, kind: &str, id: i64, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let (key_id, rest) = sealed.split_at_checked(KEY_ID_BYTES).ok_or(SealError::Unreadable)?;
        if key_id != self.key_id {
            return Err(SealError::UnknownKey);
        }
        decrypt(&self.cipher, kind, id, rest)
    }

    /// A new data key with this id, and the sealed form in which it is kept.
    pub fn new_data_key(&self, id: i64) -> Result<(DataKey, Vec<u8>), SealError> {
        let key = Zeroizing::new(rand::random::<[u8; 32]>());
        let sealed = self.seal(DATA_KEY, id, key.as_slice())?;
        Ok((DataKey { id, cipher: XChaCha20Poly1305::new(&Key::from(*key)) }, sealed))
    }

    pub fn open_data_key(&self, id: i64, sealed: &[u8]) -> Result<DataKey, SealError> {
        let key = self.open(DATA_KEY, id, sealed)?;
        let key: Zeroizing<[u8; 32]> = Zeroizing::new(key.as_slice().try_into().map_err(|_| SealError::Unreadable)?);
        Ok(DataKey { id, cipher: XChaCha20Poly1305::new(&Key::from(*key)) })
    }

    /// Opens a value under its data key, or under the master key if its row names none.
    pub fn open_under(&self, key: Option<&DataKey>, kind: &str, id: i64, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        match key {
            Some(key) => key.open(kind, id, sealed),
            None => self.open(kind, id, sealed),
        }
    }

    /// The same of a value that was a text.
    pub fn open_text_under(&self, key: Option<&DataKey>, kind: &str, id: i64, sealed: &[u8]) -> Result<Private, SealError> {
        text(&self.open_under(key, kind, id, sealed)?)
    }

    /// Opens a value that was a text.
    pub fn open_text(&self, kind: &str, id: i64, sealed: &[u8]) -> Result<Private, SealError> {
        text(&self.open(kind, id, sealed)?)
    }

    /// What access tokens are signed with.
    pub(super) fn access_token_key(&self) -> &[u8] {
        self.access_token_key.as_slice()
    }

    /// A keyed hash that finds equal values without telling what they are.
    pub fn fingerprint(&self, kind: &str, value: impl AsRef<[u8]>) -> [u8; 32] {
        keyed_hash(self.fingerprint_key.as_slice(), &[kind.as_bytes(), b"\0", value.as_ref()])
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
    fn what_is_under_a_data_key_opens_with_that_key_alone() {
        let keyring = Keyring::from_base64(&Keyring::generate()).unwrap();
        let (key, kept) = keyring.new_data_key(3).unwrap();
        let sealed = key.seal("order.metadata", 7, b"text").unwrap();
        let again = keyring.open_data_key(3, &kept).unwrap();
        assert_eq!(keyring.open_text_under(Some(&again), "order.metadata", 7, &sealed), Ok(Private::new("text")));
        assert_eq!(again.open("order.metadata", 8, &sealed), Err(SealError::Unreadable));
        assert_eq!(keyring.open_data_key(4, &kept).map(|key| key.id), Err(SealError::Unreadable));
        let (other, _) = keyring.new_data_key(3).unwrap();
        assert_eq!(other.open("order.metadata", 7, &sealed), Err(SealError::Unreadable));
        assert!(keyring.open("order.metadata", 7, &sealed).is_err(), "the master key opens the data key, not the value");
        let before = keyring.seal("order.metadata", 7, b"text").unwrap();
        assert_eq!(keyring.open_text_under(None, "order.metadata", 7, &before), Ok(Private::new("text")));
        assert_eq!(format!("{key:?}"), "DataKey { id: 3, .. }");
    }

    #[test]
    fn nothing_private_is_shown() {
        let keyring = Keyring::from_base64(&Keyring::generate()).unwrap();
        assert_eq!(format!("{:?}", Private::new("secret")), "[private]");
        assert!(!format!("{keyring:?}").contains("cipher"));
        assert!(Keyring::from_base64("c2hvcnQ=").is_err());
    }
}
