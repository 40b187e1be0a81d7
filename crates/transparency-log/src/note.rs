//! Signed notes (C2SP `signed-note`): a text followed by signature lines. Supports Ed25519 signatures and the timestamped
//! cosignatures of witnesses (C2SP `tlog-cosignature`, version 1).

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// Limits on the size and the number of signatures of a note. Larger notes are rejected.
const MAX_BYTES: usize = 1 << 20;
const MAX_SIGNATURES: usize = 100;
const MARK: &str = "— ";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    #[error("not a signed note: {0}")]
    Malformed(&'static str),
    #[error("not a verifier key: {0}")]
    Key(&'static str),
    #[error("the signature of {0} does not match the note")]
    Signature(String),
    #[error("no trusted key has signed the note")]
    Unsigned,
}

/// Signature algorithm of a key. The value is the type byte in the key's encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// Signature over the note's text, by a log.
    Ed25519 = 1,
    /// Signature over a time and the note's text, by a witness.
    CosignatureV1 = 4,
}

/// A named public key, formatted as `<name>+<id in hex>+<base64 of type and key>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VerifierKey {
    name: String,
    id: u32,
    algorithm: Algorithm,
    key: [u8; 32],
}

impl VerifierKey {
    /// Builds a verifier key and computes its id: the first four bytes of SHA-256 over name, type and key.
    ///
    /// # Errors
    /// Returns an error when the name is empty, or contains a space, a plus sign or a control character.
    pub fn new(name: &str, algorithm: Algorithm, key: [u8; 32]) -> Result<VerifierKey, NoteError> {
        if !is_name(name) {
            return Err(NoteError::Key("a name is not empty and has no spaces, plus signs or control characters"));
        }
        let hash = Sha256::new_with_prefix(name).chain_update([b'\n', algorithm as u8]).chain_update(key).finalize();
        let id = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
        Ok(VerifierKey { name: name.to_owned(), id, algorithm, key })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns the 32 bytes of the raw public key.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.key
    }

    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Verifies a signature of this key over a text. Returns the time of a cosignature, in Unix seconds.
    fn check(&self, text: &str, signature: &[u8]) -> Result<Option<u64>, NoteError> {
        let wrong = || NoteError::Signature(self.name.clone());
        let (time, message, signature) = match self.algorithm {
            Algorithm::Ed25519 => (None, text.to_owned(), signature),
            Algorithm::CosignatureV1 => {
                let (time, signature) = signature.split_first_chunk().ok_or_else(wrong)?;
                let time = u64::from_be_bytes(*time);
                if i64::try_from(time).is_err() {
                    return Err(wrong());
                }
                (Some(time), cosigned(time, text), signature)
            }
        };
        let key = UnparsedPublicKey::new(&ED25519, &self.key);
        key.verify(message.as_bytes(), signature).map_err(|_| wrong())?;
        Ok(time)
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encoded = STANDARD.encode([&[self.algorithm as u8], &self.key[..]].concat());
        write!(f, "{}+{:08x}+{encoded}", self.name, self.id)
    }
}

impl FromStr for VerifierKey {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<VerifierKey, NoteError> {
        // Base64 can contain plus signs; a name cannot.
        let mut parts = text.splitn(3, '+');
        let (Some(name), Some(id), Some(encoded)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(NoteError::Key("it must have the form <name>+<8 hex digits>+<base64>"));
        };
        let bytes = STANDARD.decode(encoded).map_err(|_| NoteError::Key("its last part is not base64"))?;
        let algorithm = match bytes.first() {
            Some(1) => Algorithm::Ed25519,
            Some(4) => Algorithm::CosignatureV1,
            _ => return Err(NoteError::Key("its type is neither Ed25519 (1) nor an Ed25519 cosignature (4)")),
        };
        let key = bytes[1..].try_into().map_err(|_| NoteError::Key("an Ed25519 key has 32 bytes"))?;
        let verifier = VerifierKey::new(name, algorithm, key)?;
        if format!("{:08x}", verifier.id) != id {
            return Err(NoteError::Key("its id is not that of its name and key"));
        }
        Ok(verifier)
    }
}

/// One signature line of a note, not verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    pub name: String,
    pub id: u32,
    pub bytes: Vec<u8>,
}

impl Signature {
    /// Parses a signature line without its newline.
    fn parse(line: &str) -> Result<Signature, NoteError> {
        let wrong = || NoteError::Malformed("a signature line has the form `— <name> <base64>`");
        let (name, encoded) = line.strip_prefix(MARK).and_then(|rest| rest.split_once(' ')).ok_or_else(wrong)?;
        let bytes = STANDARD.decode(encoded).ok().filter(|_| is_name(name)).ok_or_else(wrong)?;
        let (id, bytes) = bytes.split_first_chunk().filter(|(_, rest)| !rest.is_empty()).ok_or_else(wrong)?;
        Ok(Signature { name: name.to_owned(), id: u32::from_be_bytes(*id), bytes: bytes.to_vec() })
    }
}

/// Formats the signature line without a newline.
impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encoded = STANDARD.encode([&self.id.to_be_bytes()[..], &self.bytes].concat());
        write!(f, "{MARK}{} {encoded}", self.name)
    }
}

/// A text with its signatures, not verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    text: String,
    pub signatures: Vec<Signature>,
}

/// A signature that was verified against a known key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified<'a> {
    pub key: &'a VerifierKey,
    /// Time of a cosignature in Unix seconds; none for a log's own signature.
    pub time: Option<u64>,
}

impl Note {
    /// Builds a note from a text and its signatures.
    ///
    /// # Errors
    /// Returns an error when the text does not end in a newline, or contains other control characters.
    pub fn new(text: String, signatures: Vec<Signature>) -> Result<Note, NoteError> {
        if !text.ends_with('\n') || text.chars().any(|c| c < ' ' && c != '\n') {
            return Err(NoteError::Malformed("a text ends in a newline and has no other control characters"));
        }
        Ok(Note { text, signatures })
    }

    /// Parses a note without verifying any signature. Nothing in it can be trusted yet.
    ///
    /// # Errors
    /// Returns an error unless the text is exactly a signed note within the limits.
    pub fn parse(note: &str) -> Result<Note, NoteError> {
        if note.len() > MAX_BYTES {
            return Err(NoteError::Malformed("it is over 1 MiB"));
        }
        let (text, signatures) = note.rsplit_once("\n\n").ok_or(NoteError::Malformed("it has no blank line"))?;
        let signatures = signatures.strip_suffix('\n').ok_or(NoteError::Malformed("it ends without a newline"))?;
        if signatures.split('\n').count() > MAX_SIGNATURES {
            return Err(NoteError::Malformed("it has more than 100 signatures"));
        }
        let signatures = signatures.split('\n').map(Signature::parse).collect::<Result<_, _>>()?;
        Note::new(format!("{text}\n"), signatures)
    }

    /// Returns the signed text, including the newline at its end.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Verifies the signatures of these keys, each key once. Ignores signatures of unknown keys.
    ///
    /// # Errors
    /// Returns an error when a known key's signature is invalid, or when no known key has signed.
    pub fn verify<'a>(&self, keys: &'a [VerifierKey]) -> Result<Vec<Verified<'a>>, NoteError> {
        let mut verified: Vec<Verified<'a>> = vec![];
        for signature in &self.signatures {
            let known = keys.iter().find(|key| key.name == signature.name && key.id == signature.id);
            let Some(key) = known.filter(|key| verified.iter().all(|seen| seen.key != *key)) else { continue };
            verified.push(Verified { key, time: key.check(&self.text, &signature.bytes)? });
        }
        if verified.is_empty() { Err(NoteError::Unsigned) } else { Ok(verified) }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        self.signatures.iter().try_for_each(|signature| writeln!(f, "{signature}"))
    }
}

/// A private key. It can sign under any name; a log signs under its origin.
pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    /// Loads a key from the 32 bytes of an Ed25519 seed (the private key of RFC 8032).
    ///
    /// # Errors
    /// Returns an error when the seed does not have 32 bytes.
    pub fn from_seed(seed: &[u8]) -> Result<SigningKey, NoteError> {
        Ed25519KeyPair::from_seed_unchecked(seed).map(SigningKey).map_err(|_| NoteError::Key("an Ed25519 seed has 32 bytes"))
    }

    /// Returns the public key under a name.
    ///
    /// # Errors
    /// Same as [`VerifierKey::new`].
    pub fn verifier(&self, name: &str, algorithm: Algorithm) -> Result<VerifierKey, NoteError> {
        let key = self.0.public_key().as_ref().try_into().map_err(|_| NoteError::Key("an Ed25519 key has 32 bytes"))?;
        VerifierKey::new(name, algorithm, key)
    }

    /// Signs a note's text.
    ///
    /// # Errors
    /// Same as [`VerifierKey::new`].
    pub fn sign(&self, name: &str, text: &str) -> Result<Signature, NoteError> {
        let id = self.verifier(name, Algorithm::Ed25519)?.id;
        Ok(Signature { name: name.to_owned(), id, bytes: self.0.sign(text.as_bytes()).as_ref().to_vec() })
    }

    /// Signs a note's text as a witness, at a time in Unix seconds.
    ///
    /// # Errors
    /// Same as [`VerifierKey::new`].
    pub fn cosign(&self, name: &str, text: &str, time: u64) -> Result<Signature, NoteError> {
        let id = self.verifier(name, Algorithm::CosignatureV1)?.id;
        let signature = self.0.sign(cosigned(time, text).as_bytes());
        Ok(Signature { name: name.to_owned(), id, bytes: [&time.to_be_bytes()[..], signature.as_ref()].concat() })
    }
}

/// Prints no key material, because the key is a secret.
impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey")
    }
}

/// Returns the message that a witness signs.
fn cosigned(time: u64, text: &str) -> String {
    format!("cosignature/v1\ntime {time}\n{text}")
}

/// Returns whether a key can have this name, and therefore a log this origin.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(|c| c.is_whitespace() || c == '+' || c.is_control())
}

#[cfg(test)]
mod tests;
