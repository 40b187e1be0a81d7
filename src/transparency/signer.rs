//! The log's keys: who signs checkpoints, and as whom.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ledger_events::ShardId;
use zeroize::Zeroizing;

use super::checkpoint::Checkpoint;
use super::note::{Algorithm, Note, NoteError, SigningKey, VerifierKey};

/// More keys than any handover has.
const MOST_KEYS: usize = 8;

/// Which logs these are: the origin of a shard's is `<base>/<shard>`, the address of its tiles
/// without the scheme.
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

/// Why a file is no key file. It never repeats what is in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFileError {
    #[error("line {0} is not 32 bytes in base64")]
    Line(usize),
    #[error("it holds no key")]
    Empty,
    #[error("it holds more than {MOST_KEYS} keys")]
    TooMany,
    #[error("it holds a key twice")]
    Twice,
}

/// All keys that sign now. More than one is a handover: each signs every checkpoint, so that who
/// trusts any of them can go on.
pub struct Signer {
    /// The newest first.
    keys: Vec<SigningKey>,
}

impl Signer {
    /// From the text of a key file: one key a line, 32 random bytes in base64, the newest last.
    /// Empty lines and those that begin with `#` are passed over.
    ///
    /// # Errors
    /// When that is not what it holds.
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
            1..=MOST_KEYS => {
                let keys = seeds.iter().rev().map(|seed| SigningKey::from_seed(seed)).collect::<Result<_, _>>();
                Ok(Signer { keys: keys.map_err(|_| KeyFileError::Empty)? })
            }
            _ => Err(KeyFileError::TooMany),
        }
    }

    /// The public keys under an origin, the newest first.
    ///
    /// # Errors
    /// On an origin that no key can be named by.
    pub fn verifiers(&self, origin: &str) -> Result<Vec<VerifierKey>, NoteError> {
        self.keys.iter().map(|key| key.verifier(origin, Algorithm::Ed25519)).collect()
    }

    /// Signs a checkpoint with every key, the newest first.
    ///
    /// # Errors
    /// On an origin that no key can be named by.
    pub fn sign(&self, checkpoint: &Checkpoint) -> Result<Note, NoteError> {
        let text = checkpoint.to_string();
        let signatures = self.keys.iter().map(|key| key.sign(&checkpoint.origin, &text)).collect::<Result<_, _>>()?;
        Note::new(text, signatures)
    }
}

/// It holds secrets.
impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("keys", &self.keys.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transparency::checkpoint::Trust;

    const OLD: &str = "b2xkIGtleSBvbGQga2V5IG9sZCBrZXkgb2xkIGtleS4=";
    const NEW: &str = "bmV3IGtleSBuZXcga2V5IG5ldyBrZXkgbmV3IGtleS4=";

    #[test]
    fn in_a_handover_every_key_signs() {
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
    fn a_key_file_holds_keys_and_nothing_else() {
        let error = |text: &str| Signer::from_text(text).unwrap_err();
        assert_eq!(error(""), KeyFileError::Empty);
        assert_eq!(error("# none\n"), KeyFileError::Empty);
        assert_eq!(error(&format!("{OLD}\nc2hvcnQ=")), KeyFileError::Line(2));
        assert_eq!(error("PRIVATE+KEY+a+00000000+AAAA"), KeyFileError::Line(1));
        assert_eq!(error(&format!("{OLD}\n{NEW}\n{OLD}")), KeyFileError::Twice);
        assert!(!error(&format!("{OLD}x")).to_string().contains("b2xk"));
    }
}
