//! Checkpoints (C2SP `tlog-checkpoint`): the size and root of a log's tree, in a signed note.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ledger_events::merkle::Hash;

use super::note::{Algorithm, Note, NoteError, VerifierKey};

/// What a log says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Which log it is.
    pub origin: String,
    /// How many leaves: events of the shard, from position 1.
    pub size: u64,
    pub root: Hash,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    #[error(transparent)]
    Note(#[from] NoteError),
    #[error("the note is no checkpoint: {0}")]
    Malformed(&'static str),
    #[error("the checkpoint is of {origin}, the trusted key that signed it is of {key}")]
    Origin { origin: String, key: String },
    #[error("{found} of the trusted witnesses have cosigned the checkpoint, {needed} are needed")]
    Witnesses { found: usize, needed: usize },
}

/// The signed text.
impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}\n{}", self.origin, self.size, STANDARD.encode(self.root))
    }
}

impl Checkpoint {
    /// Reads a note's text. Lines after the third are extensions, and say nothing here.
    ///
    /// # Errors
    /// On a text that is no checkpoint's.
    pub fn parse(text: &str) -> Result<Checkpoint, CheckpointError> {
        let wrong = CheckpointError::Malformed;
        let lines: Vec<&str> = text.strip_suffix('\n').ok_or(wrong("it ends without a newline"))?.split('\n').collect();
        let [origin, size, root, ..] = lines[..] else { return Err(wrong("it has fewer than three lines")) };
        if lines.iter().any(|line| line.is_empty()) {
            return Err(wrong("it has an empty line"));
        }
        // 2^63 is more than positions go to.
        let number = size.parse::<u64>().ok().filter(|number| number.to_string() == size && i64::try_from(*number).is_ok());
        let root = STANDARD.decode(root).ok().and_then(|root| root.try_into().ok());
        Ok(Checkpoint {
            origin: origin.to_owned(),
            size: number.ok_or(wrong("its second line is no tree size"))?,
            root: root.ok_or(wrong("its third line is no root of 32 bytes in base64"))?,
        })
    }
}

/// Whom a verifier believes.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// The log's keys; one of them must have signed.
    pub keys: Vec<VerifierKey>,
    pub witnesses: Vec<VerifierKey>,
    /// So many different witnesses must have cosigned.
    pub quorum: usize,
}

/// A checkpoint that is believed, and because of whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    pub checkpoint: Checkpoint,
    pub signed_by: Vec<VerifierKey>,
    /// Each witness with the time of its cosignature, in Unix seconds.
    pub cosigned_by: Vec<(VerifierKey, u64)>,
}

impl Trust {
    /// In a log's keys alone.
    pub fn in_keys(keys: Vec<VerifierKey>) -> Trust {
        Trust { keys, ..Trust::default() }
    }

    /// Reads a signed checkpoint and verifies its signatures.
    ///
    /// # Errors
    /// When it is no checkpoint, a trusted key's signature does not hold, none of the log's keys has
    /// signed, one that has is another log's, or too few witnesses have cosigned.
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
        // A key of one log says nothing about another, even if one file holds both.
        if let Some(other) = signed_by.iter().find(|key| key.name() != checkpoint.origin) {
            let key = if key.name() == checkpoint.origin { other } else { key };
            return Err(CheckpointError::Origin { origin: checkpoint.origin, key: key.name().to_owned() });
        }
        // One key under two names is one witness.
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
    use crate::transparency::note::SigningKey;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_seed(&[seed; 32]).unwrap()
    }

    fn checkpoint() -> Checkpoint {
        Checkpoint { origin: "example.com/log/1".into(), size: 20_852_163, root: [7; 32] }
    }

    #[test]
    fn checkpoints_are_written_and_read() {
        // C2SP `tlog-checkpoint`.
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
    fn it_takes_the_logs_key_and_a_quorum_of_witnesses() {
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
        // Witnesses alone are not enough.
        let unsigned = Note::new(text, signatures[2..].to_vec()).unwrap().to_string();
        assert_eq!(trust(1).open(&unsigned), Err(NoteError::Unsigned.into()));
    }

    #[test]
    fn a_key_of_one_log_is_not_believed_about_another() {
        let other = Checkpoint { origin: "example.com/log/2".into(), ..checkpoint() }.to_string();
        let note = Note::new(other.clone(), vec![key(1).sign("example.com/log/1", &other).unwrap()]).unwrap().to_string();
        let trust = Trust::in_keys(vec![key(1).verifier("example.com/log/1", Algorithm::Ed25519).unwrap()]);
        assert!(matches!(trust.open(&note), Err(CheckpointError::Origin { .. })));
    }
}
