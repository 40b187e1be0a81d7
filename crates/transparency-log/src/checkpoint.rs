//! Checkpoints (C2SP `tlog-checkpoint`): the size and root of a log's tree, in a signed note.

use std::fmt;

use crate::merkle::Hash;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::note::{Algorithm, Note, NoteError, VerifierKey};

/// The size and root of a log's tree at one moment, as the log states them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Name of the log, such as `ledger.example.com/log/1`.
    pub origin: String,
    /// Number of leaves.
    pub size: u64,
    pub root: Hash,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    #[error(transparent)]
    Note(#[from] NoteError),
    #[error("the note is not a checkpoint: {0}")]
    Malformed(&'static str),
    #[error("the checkpoint has the origin {origin}, but the trusted key that signed it belongs to {key}")]
    Origin { origin: String, key: String },
    #[error("the checkpoint needs cosignatures of {needed} trusted witnesses; it has {found}")]
    Witnesses { found: usize, needed: usize },
}

/// Formats the text that the log signs.
impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}\n{}", self.origin, self.size, STANDARD.encode(self.root))
    }
}

impl Checkpoint {
    /// Parses the text of a note. Ignores the lines after the third, which are extensions.
    ///
    /// # Errors
    /// Returns [`CheckpointError::Malformed`] when the text is not a checkpoint.
    pub fn parse(text: &str) -> Result<Checkpoint, CheckpointError> {
        let wrong = CheckpointError::Malformed;
        let lines: Vec<&str> = text.strip_suffix('\n').ok_or(wrong("it ends without a newline"))?.split('\n').collect();
        let [origin, size, root, ..] = lines[..] else { return Err(wrong("it has fewer than three lines")) };
        if lines.iter().any(|line| line.is_empty()) {
            return Err(wrong("it has an empty line"));
        }
        // Databases store sizes as signed integers, so a size of 2^63 or more is invalid.
        let number = size.parse::<u64>().ok().filter(|number| number.to_string() == size && i64::try_from(*number).is_ok());
        let root = STANDARD.decode(root).ok().and_then(|root| root.try_into().ok());
        Ok(Checkpoint {
            origin: origin.to_owned(),
            size: number.ok_or(wrong("its second line is not a tree size"))?,
            root: root.ok_or(wrong("its third line is not a root of 32 bytes in base64"))?,
        })
    }
}

/// Keys that a verifier trusts, and the number of witnesses that it requires.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Public keys of the log. At least one of them must have signed.
    pub keys: Vec<VerifierKey>,
    pub witnesses: Vec<VerifierKey>,
    /// Number of different witnesses that must have cosigned.
    pub quorum: usize,
}

/// A verified checkpoint with the trusted keys that signed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    pub checkpoint: Checkpoint,
    pub signed_by: Vec<VerifierKey>,
    /// Each witness with the time of its cosignature, in Unix seconds.
    pub cosigned_by: Vec<(VerifierKey, u64)>,
}

impl Trust {
    /// Trusts these keys of the log and requires no witnesses.
    pub fn in_keys(keys: Vec<VerifierKey>) -> Trust {
        Trust { keys, ..Trust::default() }
    }

    /// Parses a signed checkpoint and verifies its signatures.
    ///
    /// # Errors
    /// Returns an error when the note is not a checkpoint, or when a trusted key's signature is invalid. Also when no key
    /// of the log has signed, when a signing key belongs to another log, or when too few witnesses have cosigned.
    pub fn open(&self, note: &str) -> Result<Opened, CheckpointError> {
        let note = Note::parse(note)?;
        let checkpoint = Checkpoint::parse(note.text())?;
        let of_log = self.keys.iter().filter(|key| key.algorithm() == Algorithm::Ed25519);
        let of_witnesses = self.witnesses.iter().filter(|key| key.algorithm() == Algorithm::CosignatureV1);
        let known: Vec<VerifierKey> = of_log.chain(of_witnesses).cloned().collect();
        let (mut signed_by, mut cosigned_by) = (vec![], vec![]);
        for verified in note.verify(&known)? {
            match verified.time {
                None => signed_by.push(verified.key.clone()),
                Some(time) => cosigned_by.push((verified.key.clone(), time)),
            }
        }
        let Some(key) = signed_by.first() else { return Err(NoteError::Unsigned.into()) };
        // A key of one log proves nothing about another log, even if one file holds both.
        if let Some(other) = signed_by.iter().find(|key| key.name() != checkpoint.origin) {
            let key = if key.name() == checkpoint.origin { other } else { key };
            return Err(CheckpointError::Origin { origin: checkpoint.origin, key: key.name().to_owned() });
        }
        // One key under two names counts as one witness.
        let mut witnesses: Vec<&[u8; 32]> = cosigned_by.iter().map(|(key, _)| key.bytes()).collect();
        witnesses.sort_unstable();
        witnesses.dedup();
        if witnesses.len() < self.quorum {
            return Err(CheckpointError::Witnesses { found: witnesses.len(), needed: self.quorum });
        }
        Ok(Opened { checkpoint, signed_by, cosigned_by })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::note::SigningKey;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_seed(&[seed; 32]).unwrap()
    }

    fn checkpoint() -> Checkpoint {
        Checkpoint { origin: "example.com/log/1".into(), size: 20_852_163, root: [7; 32] }
    }

    #[test]
    fn a_checkpoint_is_formatted_and_parsed() {
        // Example from C2SP `tlog-checkpoint`.
        let text = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n";
        let read = Checkpoint::parse(text).unwrap();
        assert_eq!((read.origin.as_str(), read.size), ("example.com/behind-the-sofa", 20_852_163));
        assert_eq!(read.to_string(), text);
        assert_eq!(Checkpoint::parse(&format!("{text}an extension\n")).unwrap(), read);
        let root = "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=";
        for wrong in [
            String::new(),
            "a\n1\n".to_owned(),
            format!("a\n01\n{root}\n"),
            format!("a\n+1\n{root}\n"),
            format!("a\n-1\n{root}\n"),
            format!("a\n9223372036854775808\n{root}\n"),
            format!("\n1\n{root}\n"),
            format!("a\n1\n{root}"),
            format!("a\n1\n{root}\n\n"),
            "a\n1\nCsUY\n".to_owned(),
        ] {
            assert!(Checkpoint::parse(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn opening_requires_a_key_of_the_log_and_a_quorum_of_witnesses() {
        let text = checkpoint().to_string();
        let (old, new, w1, w2) = (key(1), key(2), key(3), key(4));
        let log = |key: &SigningKey| key.verifier("example.com/log/1", Algorithm::Ed25519).unwrap();
        let witness = |key: &SigningKey, name: &str| key.verifier(name, Algorithm::CosignatureV1).unwrap();
        let signatures = vec![
            new.sign("example.com/log/1", &text).unwrap(),
            old.sign("example.com/log/1", &text).unwrap(),
            w1.cosign("w1", &text, 1_700_000_000).unwrap(),
            w1.cosign("w1-again", &text, 1_700_000_001).unwrap(),
            w2.cosign("w2", &text, 1_700_000_002).unwrap(),
        ];
        let note = Note::new(text.clone(), signatures.clone()).unwrap().to_string();
        for keys in [vec![log(&old)], vec![log(&new)], vec![log(&old), log(&new)]] {
            let opened = Trust::in_keys(keys.clone()).open(&note).unwrap();
            assert_eq!((opened.checkpoint, opened.signed_by.len()), (checkpoint(), keys.len()));
        }
        assert_eq!(Trust::in_keys(vec![log(&key(9))]).open(&note), Err(NoteError::Unsigned.into()));

        let witnesses = vec![witness(&w1, "w1"), witness(&w1, "w1-again"), witness(&w2, "w2"), witness(&key(9), "w3")];
        let trust = |quorum| Trust { keys: vec![log(&new)], witnesses: witnesses.clone(), quorum };
        assert_eq!(trust(2).open(&note).unwrap().cosigned_by.len(), 3);
        assert_eq!(trust(3).open(&note), Err(CheckpointError::Witnesses { found: 2, needed: 3 }));
        // Signatures of witnesses do not replace the log's own.
        let unsigned = Note::new(text, signatures[2..].to_vec()).unwrap().to_string();
        assert_eq!(trust(1).open(&unsigned), Err(NoteError::Unsigned.into()));
    }

    #[test]
    fn a_key_of_one_log_is_not_trusted_for_another() {
        let other = Checkpoint { origin: "example.com/log/2".into(), ..checkpoint() }.to_string();
        let note = Note::new(other.clone(), vec![key(1).sign("example.com/log/1", &other).unwrap()]).unwrap().to_string();
        let trust = Trust::in_keys(vec![key(1).verifier("example.com/log/1", Algorithm::Ed25519).unwrap()]);
        assert!(matches!(trust.open(&note), Err(CheckpointError::Origin { .. })));
    }
}
