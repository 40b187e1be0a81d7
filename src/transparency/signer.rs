//! The log's signing keys, and the origins under which they sign.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ledger_events::ShardId;
use zeroize::Zeroizing;

use transparency_log::checkpoint::Checkpoint;
use transparency_log::note::{Algorithm, Note, NoteError, SigningKey, VerifierKey};

/// Largest number of keys in a key file, more than any key rotation needs.
const MAX_KEYS: usize = 8;

/// Base of the origins of all shards. The origin of a shard is `<base>/<shard>`: the address of its tiles without the
/// scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(String);

impl Origin {
    pub fn new(base: &str) -> Origin {
        Origin(base.to_owned())
    }

    pub fn of(&self, shard: ShardId) -> String {
        format!("{}/{shard}", self.0)
    }
}

/// Reason why a key file is invalid. The message never repeats the file's content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFileError {
    #[error("line {0} is not 32 bytes in base64")]
    Line(usize),
    #[error("it contains no key")]
    Empty,
    #[error("it contains more than {MAX_KEYS} keys")]
    TooMany,
    #[error("it contains the same key twice")]
    Twice,
}

/// All keys that sign now. During a key rotation there is more than one. Each of them signs every checkpoint, so a
/// verifier that trusts any one of them can continue.
pub struct Signer {
    /// Newest key first.
    keys: Vec<SigningKey>,
}

impl Signer {
    /// Parses a key file: one key per line, 32 random bytes in base64, newest last. Ignores empty lines and lines that
    /// begin with `#`.
    ///
    /// # Errors
    /// Returns an error when a line is not a key, or the file has no key, a duplicate or too many keys.
    pub fn from_text(text: &str) -> Result<Signer, KeyFileError> {
        let mut seeds: Vec<Zeroizing<Vec<u8>>> = vec![];
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let seed = Zeroizing::new(STANDARD.decode(line).map_err(|_| KeyFileError::Line(number))?);
            if seed.len() != 32 {
                return Err(KeyFileError::Line(number));
            }
            if seeds.contains(&seed) {
                return Err(KeyFileError::Twice);
            }
            seeds.push(seed);
        }
        match seeds.len() {
            0 => Err(KeyFileError::Empty),
            1..=MAX_KEYS => {
                let keys = seeds.iter().rev().map(|seed| SigningKey::from_seed(seed)).collect::<Result<_, _>>();
                Ok(Signer { keys: keys.map_err(|_| KeyFileError::Empty)? })
            }
            _ => Err(KeyFileError::TooMany),
        }
    }

    /// Returns the public keys under an origin, newest first.
    ///
    /// # Errors
    /// Returns an error when the origin is not valid as the name of a key.
    pub fn verifiers(&self, origin: &str) -> Result<Vec<VerifierKey>, NoteError> {
        self.keys.iter().map(|key| key.verifier(origin, Algorithm::Ed25519)).collect()
    }

    /// Signs a checkpoint with every key, newest first.
    ///
    /// # Errors
    /// Returns an error when the origin is not valid as the name of a key.
    pub fn sign(&self, checkpoint: &Checkpoint) -> Result<Note, NoteError> {
        let text = checkpoint.to_string();
        let signatures = self.keys.iter().map(|key| key.sign(&checkpoint.origin, &text)).collect::<Result<_, _>>()?;
        Note::new(text, signatures)
    }
}

/// Prints only the number of keys, because keys are secrets.
impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("keys", &self.keys.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use transparency_log::checkpoint::Trust;

    const OLD: &str = "b2xkIGtleSBvbGQga2V5IG9sZCBrZXkgb2xkIGtleS4=";
    const NEW: &str = "bmV3IGtleSBuZXcga2V5IG5ldyBrZXkgbmV3IGtleS4=";

    #[test]
    fn during_a_key_rotation_every_key_signs() {
        let checkpoint = Checkpoint { origin: Origin::new("example.com/log").of(1), size: 3, root: [3; 32] };
        assert_eq!(checkpoint.origin, "example.com/log/1");
        let old = Signer::from_text(OLD).unwrap();
        let both = Signer::from_text(&format!("# keys of the log\n{OLD}\n\n  {NEW}\n")).unwrap();
        let new = Signer::from_text(NEW).unwrap();
        let keys = |signer: &Signer| signer.verifiers(&checkpoint.origin).unwrap();
        assert_eq!(keys(&both), [keys(&new), keys(&old)].concat());
        let note = both.sign(&checkpoint).unwrap().to_string();
        assert_eq!(note.lines().count(), 6);
        for trusted in [&old, &new] {
            assert_eq!(Trust::in_keys(keys(trusted)).open(&note).unwrap().checkpoint, checkpoint);
        }
        let note = new.sign(&checkpoint).unwrap().to_string();
        assert!(Trust::in_keys(keys(&old)).open(&note).is_err());
        assert_eq!(format!("{both:?}"), "Signer { keys: 2 }");
    }

    #[test]
    fn a_key_file_contains_only_keys() {
        let error = |text: &str| Signer::from_text(text).unwrap_err();
        assert_eq!(error(""), KeyFileError::Empty);
        assert_eq!(error("# none\n"), KeyFileError::Empty);
        assert_eq!(error(&format!("{OLD}\nc2hvcnQ=")), KeyFileError::Line(2));
        assert_eq!(error("PRIVATE+KEY+a+00000000+AAAA"), KeyFileError::Line(1));
        assert_eq!(error(&format!("{OLD}\n{NEW}\n{OLD}")), KeyFileError::Twice);
        assert!(!error(&format!("{OLD}x")).to_string().contains("b2xk"));
    }
}
