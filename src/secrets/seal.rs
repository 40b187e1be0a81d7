//! Encryption of secrets at rest: an AEAD that binds each sealed value to its kind and row.
//!
//! Values of the service are sealed under a key derived from the master key, and begin with that key's id. Several master
//! keys may exist at a time: one seals, all can open.
//!
//! Personal data is sealed under a data key: a random key per subject, itself sealed under the master key. Destroying the
//! data key makes the data unreadable for everyone, including holders of the master key (crypto-shredding). The row names
//! its data key. A row without one is older than data keys, was sealed under the master key and still opens under it.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// A text that must not appear in logs: a secret, or free text from people. It is wiped from memory when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(Zeroizing::new(text.into()))
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[private]")
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SealError {
    #[error("a master key must be 32 bytes in base64")]
    MasterKey,
    #[error("the key file has no master key, or contains a key twice")]
    MasterKeys,
    #[error("this node does not have the current master key and cannot seal")]
    NotCurrent,
    #[error("a value is sealed under a key that is not configured")]
    UnknownKey,
    #[error("a sealed value was changed, or belongs to another row")]
    Unreadable,
    #[error("the data key of {0} was not loaded")]
    NoDataKey(String),
}

const KEY_ID_BYTES: usize = 4;
const NONCE_BYTES: usize = 24;

/// Id of a master key: the first four bytes of every value sealed under it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub(crate) [u8; KEY_ID_BYTES]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<&[u8]> for KeyId {
    type Error = SealError;

    fn try_from(bytes: &[u8]) -> Result<KeyId, SealError> {
        bytes.try_into().map(KeyId).map_err(|_| SealError::Unreadable)
    }
}

/// Keys derived from one master key.
struct MasterKey {
    id: KeyId,
    cipher: XChaCha20Poly1305,
    fingerprint_key: Zeroizing<[u8; 32]>,
    access_token_key: Zeroizing<[u8; 32]>,
}

impl MasterKey {
    fn from_base64(text: &str) -> Result<MasterKey, SealError> {
        let bytes = Zeroizing::new(STANDARD.decode(text).map_err(|_| SealError::MasterKey)?);
        let master: &[u8; 32] = bytes.as_slice().try_into().map_err(|_| SealError::MasterKey)?;
        let id = keyed_hash(master, &[b"key id"]);
        let sealing = Zeroizing::new(keyed_hash(master, &[b"sealing"]));
        Ok(MasterKey {
            id: KeyId([id[0], id[1], id[2], id[3]]),
            cipher: XChaCha20Poly1305::new(&Key::from(*sealing)),
            fingerprint_key: Zeroizing::new(keyed_hash(master, &[b"fingerprint"])),
            access_token_key: Zeroizing::new(keyed_hash(master, &[b"access token"])),
        })
    }

    fn open(&self, kind: &str, id: i64, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let (key_id, rest) = sealed.split_first_chunk::<KEY_ID_BYTES>().ok_or(SealError::Unreadable)?;
        if *key_id != self.id.0 {
            return Err(SealError::UnknownKey);
        }
        decrypt(&self.cipher, kind, id, rest)
    }
}

/// Root keys, which survive a rotation of the master key. The check value of each master key is their sealed form.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Roots {
    /// Key of the hashes that find equal values. It is that of the first master key, so that hashes which are older than
    /// check values stay valid.
    pub fingerprint_key: Zeroizing<[u8; 32]>,
    /// Key of the MACs of rows that grant access: API keys, operator tokens, password hashes, sessions.
    pub row_key: Zeroizing<[u8; 32]>,
}

/// Index that stands for no key: the database's current key is not in the key file.
const NO_KEY: usize = usize::MAX;

/// Seals and opens values. Holds the master keys of one key file and the state that the database records for them.
pub struct Keyring {
    /// Keys in the order of the file. A rotation makes the first one current.
    keys: Vec<MasterKey>,
    /// Index of the key that seals, or [`NO_KEY`].
    sealing: Arc<AtomicUsize>,
    roots: OnceLock<Roots>,
    /// The key file or the database says that rows without a MAC grant no access. It never reverts to false.
    requires_macs: AtomicBool,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("key_ids", &self.ids().collect::<Vec<_>>()).finish_non_exhaustive()
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

fn text(plain: &[u8]) -> Result<Secret, SealError> {
    std::str::from_utf8(plain).map(Secret::new).map_err(|_| SealError::Unreadable)
}

/// Random key for the personal data of one subject. Destroying it makes the data unreadable (crypto-shredding).
pub struct DataKey {
    pub id: i64,
    cipher: XChaCha20Poly1305,
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Kind that data keys are bound to.
pub const DATA_KEY: &str = "data_key";
/// Kind that check values are bound to.
const ROOTS: &str = "master_key";
/// Line of a key file that says that rows without a MAC grant no access.
pub const SEALED: &str = "sealed";

impl DataKey {
    /// Seals a value for one row, as [`Keyring::seal`] does. The row must name this key.
    pub fn seal(&self, kind: &str, id: i64, plain: &[u8]) -> Result<Vec<u8>, SealError> {
        encrypt(&self.cipher, kind, id, plain)
    }

    pub fn open(&self, kind: &str, id: i64, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        decrypt(&self.cipher, kind, id, sealed)
    }
}

impl Keyring {
    /// Parses the text of a master key file: one key per line, 32 bytes in base64.
    ///
    /// A line `sealed` says that rows without a MAC grant no access, whatever the database says. White space around lines,
    /// empty lines and lines that begin with `#` are ignored.
    pub fn from_base64(text: &str) -> Result<Keyring, SealError> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let (sealed, keys): (Vec<_>, Vec<_>) = lines.partition(|line| *line == SEALED);
        let keys = keys.into_iter().map(MasterKey::from_base64).collect::<Result<Vec<_>, _>>()?;
        let ids: HashSet<KeyId> = keys.iter().map(|key| key.id).collect();
        if keys.is_empty() || ids.len() < keys.len() {
            return Err(SealError::MasterKeys);
        }
        let requires_macs = AtomicBool::new(!sealed.is_empty());
        Ok(Keyring { keys, sealing: Arc::default(), roots: OnceLock::new(), requires_macs })
    }

    /// Generates a master key, as the text of its key file.
    pub fn generate() -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(Zeroizing::new(rand::random::<[u8; 32]>()).as_slice()))
    }

    /// Returns the ids of the keys, in the order of the key file.
    pub fn ids(&self) -> impl Iterator<Item = KeyId> + '_ {
        self.keys.iter().map(|key| key.id)
    }

    pub fn holds(&self, id: KeyId) -> bool {
        self.ids().any(|own| own == id)
    }

    /// Returns the first key of the key file, which a rotation makes current.
    pub fn first(&self) -> Option<KeyId> {
        self.ids().next()
    }

    /// Returns the key that seals; `None` while the database's current key is not in the key file.
    pub fn current(&self) -> Option<KeyId> {
        self.sealing_key().ok().map(|key| key.id)
    }

    fn sealing_key(&self) -> Result<&MasterKey, SealError> {
        self.keys.get(self.sealing.load(Ordering::Acquire)).ok_or(SealError::NotCurrent)
    }

    fn key(&self, id: KeyId) -> Result<&MasterKey, SealError> {
        self.keys.iter().find(|key| key.id == id).ok_or(SealError::UnknownKey)
    }

    /// Seals under this key from now on; under none if it is not in the key file.
    pub(super) fn seal_under(&self, id: Option<KeyId>) {
        let at = id.and_then(|id| self.ids().position(|own| own == id)).unwrap_or(NO_KEY);
        self.sealing.store(at, Ordering::Release);
    }

    /// Seals a value for one row. `kind` and `id` are part of the authenticated data, and opening requires the same ones.
    pub fn seal(&self, kind: &str, id: i64, plain: &[u8]) -> Result<Vec<u8>, SealError> {
        let key = self.sealing_key()?;
        Ok([&key.id.0[..], &encrypt(&key.cipher, kind, id, plain)?[..]].concat())
    }

    /// Opens a value that any of the keys sealed.
    pub fn open(&self, kind: &str, id: i64, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let key_id = sealed.first_chunk::<KEY_ID_BYTES>().ok_or(SealError::Unreadable)?;
        self.key(KeyId(*key_id))?.open(kind, id, sealed)
    }

    /// Opens a value with any of the keys and seals it again under the key `to`.
    pub fn reseal(&self, to: KeyId, kind: &str, id: i64, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let key = self.key(to)?;
        let plain = self.open(kind, id, sealed)?;
        Ok([&key.id.0[..], &encrypt(&key.cipher, kind, id, &plain)?[..]].concat())
    }

    /// Creates the root keys of a ledger that has none yet. Hashes made with its only master key stay valid.
    pub(super) fn new_roots(&self, id: KeyId) -> Result<Roots, SealError> {
        Ok(Roots { fingerprint_key: self.key(id)?.fingerprint_key.clone(), row_key: Zeroizing::new(rand::random()) })
    }

    /// Returns the check value of a key, sealed under it: the root keys, and whether rows without a MAC are refused.
    pub(super) fn seal_roots(&self, id: KeyId, roots: &Roots, requires_macs: bool) -> Result<Vec<u8>, SealError> {
        let key = self.key(id)?;
        let plain = Zeroizing::new([&roots.fingerprint_key[..], &roots.row_key[..], &[requires_macs.into()]].concat());
        Ok([&key.id.0[..], &encrypt(&key.cipher, ROOTS, 0, &plain)?[..]].concat())
    }

    pub(super) fn open_roots(&self, id: KeyId, check_value: &[u8]) -> Result<(Roots, bool), SealError> {
        let plain = self.key(id)?.open(ROOTS, 0, check_value)?;
        let (fingerprint_key, rest) = plain.split_first_chunk::<32>().ok_or(SealError::Unreadable)?;
        let (row_key, rest) = rest.split_first_chunk::<32>().ok_or(SealError::Unreadable)?;
        let requires_macs = match rest {
            [0] => false,
            [1] => true,
            _ => return Err(SealError::Unreadable),
        };
        let (fingerprint_key, row_key) = (Zeroizing::new(*fingerprint_key), Zeroizing::new(*row_key));
        Ok((Roots { fingerprint_key, row_key }, requires_macs))
    }

    /// Returns whether rows without a MAC are refused.
    pub fn requires_macs(&self) -> bool {
        self.requires_macs.load(Ordering::Acquire)
    }

    pub(super) fn require_macs(&self) {
        self.requires_macs.store(true, Ordering::Release);
    }

    /// Returns a hash under the key of row MACs. Each part is prefixed with its length, so that parts cannot run together.
    pub(super) fn row_hash(&self, kind: &str, parts: &[&[u8]]) -> Result<[u8; 32], SealError> {
        let roots = self.roots.get().ok_or(SealError::NotCurrent)?;
        let lengths: Vec<[u8; 8]> = parts.iter().map(|part| (part.len() as u64).to_be_bytes()).collect();
        let mut all: Vec<&[u8]> = vec![kind.as_bytes(), b"\0"];
        for (length, part) in lengths.iter().zip(parts) {
            all.extend([&length[..], part]);
        }
        Ok(keyed_hash(&roots.row_key[..], &all))
    }

    /// Adopts these root keys. Returns false if others are in use already.
    pub(super) fn use_roots(&self, roots: Roots) -> bool {
        *self.roots.get_or_init(|| roots.clone()) == roots
    }

    /// Generates a data key with this id. Returns it with its sealed form, which is what the database stores.
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

    /// Opens a value under its data key, or under the master key if its row names no data key.
    pub fn open_under(&self, key: Option<&DataKey>, kind: &str, id: i64, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        match key {
            Some(key) => key.open(kind, id, sealed),
            None => self.open(kind, id, sealed),
        }
    }

    /// Opens a text as [`Keyring::open_under`] does.
    pub fn open_text_under(&self, key: Option<&DataKey>, kind: &str, id: i64, sealed: &[u8]) -> Result<Secret, SealError> {
        text(&self.open_under(key, kind, id, sealed)?)
    }

    /// Opens a text that any of the master keys sealed.
    pub fn open_text(&self, kind: &str, id: i64, sealed: &[u8]) -> Result<Secret, SealError> {
        text(&self.open(kind, id, sealed)?)
    }

    /// Returns the keys that verify access tokens, and the index of the one that signs them.
    pub(crate) fn access_token_keys(&self) -> (impl Iterator<Item = &[u8]>, Arc<AtomicUsize>) {
        (self.keys.iter().map(|key| &key.access_token_key[..]), self.sealing.clone())
    }

    /// Returns a keyed hash that finds equal values without revealing them.
    pub fn fingerprint(&self, kind: &str, value: impl AsRef<[u8]>) -> [u8; 32] {
        // Without roots the ledger is not open yet: the caller reads only hashes that its single key has made.
        let key = match (self.roots.get(), self.keys.first()) {
            (Some(roots), _) => &roots.fingerprint_key[..],
            (None, Some(first)) => &first.fingerprint_key[..],
            (None, None) => &[],
        };
        keyed_hash(key, &[kind.as_bytes(), b"\0", value.as_ref()])
    }
}

/// Returns the salted hash, in hex, by which an event commits to a text in the vault.
pub fn salted_hash(salt: &[u8], text: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(salt);
    hash.update(text.as_bytes());
    hex::encode(hash.finalize())
}

/// Generates a secret: 256 random bits as 64 hex characters.
pub fn random_secret() -> Secret {
    Secret::new(hex::encode(rand::random::<[u8; 32]>()))
}

#[cfg(test)]
mod tests;
