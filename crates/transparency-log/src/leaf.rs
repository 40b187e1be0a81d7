//! Canonical bytes of an event. The log hashes them, and auditors read them.
//!
//! The encoding is one version byte, then every column of the log in a fixed order. Integers are big-endian and of
//! fixed width. Each text is its UTF-8 bytes after a four-byte length. Two different events therefore never have
//! the same bytes. `data` and `metadata` are the stored texts, never parsed and serialized again.
//! `docs/transparency.md` documents the layout byte by byte. Any change of the layout needs another version.

use chrono::{DateTime, Utc};
use uuid::Uuid;

/// Version byte that this program writes.
const VERSION: u8 = 1;

/// An event as the transparency log commits to it. Leaf n of a shard's tree is the event at position n + 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf<'a> {
    /// Number of the log, if a service has several.
    pub shard_id: i16,
    /// Position in the log, from 1 without gaps.
    pub position: i64,
    pub event_id: Uuid,
    pub stream_type: &'a str,
    pub stream_id: i64,
    pub version: i64,
    pub event_type: &'a str,
    pub schema_version: i16,
    /// Stored text of the payload.
    pub data: &'a str,
    /// Stored text of the metadata.
    pub metadata: &'a str,
    /// Time of recording. Encoded to the microsecond; finer parts are dropped.
    pub recorded_at: DateTime<Utc>,
}

/// Reason why bytes are not a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeafError {
    #[error("the leaf has version {0}; this program supports version {VERSION}")]
    UnknownVersion(u8),
    #[error("the leaf is truncated")]
    Short,
    #[error("the leaf has extra bytes after its end")]
    Long,
    #[error("a text of the leaf is not valid UTF-8")]
    Text,
    #[error("the leaf's time is out of range")]
    Time,
}

impl<'a> Leaf<'a> {
    /// Encodes the leaf into the bytes that are hashed.
    pub fn to_bytes(&self) -> Vec<u8> {
        let texts = [self.stream_type, self.event_type, self.data, self.metadata];
        let mut bytes = Vec::with_capacity(69 + texts.iter().map(|text| text.len()).sum::<usize>());
        bytes.push(VERSION);
        bytes.extend(self.shard_id.to_be_bytes());
        bytes.extend(self.position.to_be_bytes());
        bytes.extend(self.event_id.as_bytes());
        put_text(&mut bytes, self.stream_type);
        bytes.extend(self.stream_id.to_be_bytes());
        bytes.extend(self.version.to_be_bytes());
        put_text(&mut bytes, self.event_type);
        bytes.extend(self.schema_version.to_be_bytes());
        put_text(&mut bytes, self.data);
        put_text(&mut bytes, self.metadata);
        bytes.extend(self.recorded_at.timestamp_micros().to_be_bytes());
        bytes
    }

    /// Decodes the output of [`Leaf::to_bytes`], and accepts nothing else.
    ///
    /// # Errors
    /// Fails on anything that `to_bytes` cannot have written.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Leaf<'a>, LeafError> {
        let mut rest = Rest(bytes);
        let [version] = rest.array()?;
        if version != VERSION {
            return Err(LeafError::UnknownVersion(version));
        }
        let leaf = Leaf {
            shard_id: i16::from_be_bytes(rest.array()?),
            position: i64::from_be_bytes(rest.array()?),
            event_id: Uuid::from_bytes(rest.array()?),
            stream_type: rest.text()?,
            stream_id: i64::from_be_bytes(rest.array()?),
            version: i64::from_be_bytes(rest.array()?),
            event_type: rest.text()?,
            schema_version: i16::from_be_bytes(rest.array()?),
            data: rest.text()?,
            metadata: rest.text()?,
            recorded_at: DateTime::from_timestamp_micros(i64::from_be_bytes(rest.array()?)).ok_or(LeafError::Time)?,
        };
        if rest.0.is_empty() { Ok(leaf) } else { Err(LeafError::Long) }
    }
}

/// Appends a text with its length. The database stores no text of 1 GiB or more, so the length always fits.
fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend(text.as_bytes());
}

/// Unread part of the input.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], LeafError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(LeafError::Short)?;
        self.0 = rest;
        Ok(*array)
    }

    fn text(&mut self) -> Result<&'a str, LeafError> {
        let length = usize::try_from(u32::from_be_bytes(self.array()?)).map_err(|_| LeafError::Short)?;
        let (text, rest) = self.0.split_at_checked(length).ok_or(LeafError::Short)?;
        self.0 = rest;
        std::str::from_utf8(text).map_err(|_| LeafError::Text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn leaf() -> Leaf<'static> {
        Leaf {
            shard_id: 1,
            position: 258,
            event_id: Uuid::from_u128(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f),
            stream_type: "order",
            stream_id: 7,
            version: 3,
            event_type: "OrderQueued",
            schema_version: 1,
            data: "{}",
            metadata: r#"{"a":"é"}"#,
            recorded_at: DateTime::from_timestamp_micros(1_800_000_000_123_000).unwrap(),
        }
    }

    /// Layout of `docs/transparency.md`. A change that breaks this test needs another version.
    #[test]
    fn the_bytes_match_the_documented_layout() {
        let mut expected = vec![1];
        expected.extend([0, 1]);
        expected.extend([0, 0, 0, 0, 0, 0, 1, 2]);
        expected.extend(0..16_u8);
        expected.extend(b"\0\0\0\x05order");
        expected.extend([0, 0, 0, 0, 0, 0, 0, 7]);
        expected.extend([0, 0, 0, 0, 0, 0, 0, 3]);
        expected.extend(b"\0\0\0\x0bOrderQueued");
        expected.extend([0, 1]);
        expected.extend(b"\0\0\0\x02{}");
        expected.extend(b"\0\0\0\x0a{\"a\":\"\xc3\xa9\"}");
        expected.extend(1_800_000_000_123_000_i64.to_be_bytes());
        assert_eq!(leaf().to_bytes(), expected);
    }

    #[test]
    fn malformed_leaves_are_refused() {
        let bytes = leaf().to_bytes();
        for length in 0..bytes.len() {
            assert_eq!(Leaf::from_bytes(&bytes[..length]), Err(LeafError::Short), "{length}");
        }
        let long = [&bytes[..], &[0]].concat();
        assert_eq!(Leaf::from_bytes(&long), Err(LeafError::Long));
        let mut other = bytes.clone();
        other[0] = 2;
        assert_eq!(Leaf::from_bytes(&other), Err(LeafError::UnknownVersion(2)));
        let mut other = bytes.clone();
        other[31] = 0xff; // the first letter of "order"
        assert_eq!(Leaf::from_bytes(&other), Err(LeafError::Text));
        let mut other = bytes.clone();
        let at = other.len() - 8;
        other[at..].copy_from_slice(&i64::MAX.to_be_bytes());
        assert_eq!(Leaf::from_bytes(&other), Err(LeafError::Time));
    }

    proptest! {
        #[test]
        fn every_leaf_round_trips_and_has_unique_bytes(
            (shard_id, position, id, stream_id, version, schema_version) in any::<(i16, i64, u128, i64, i64, i16)>(),
            (stream_type, event_type, data, metadata) in any::<(String, String, String, String)>(),
            micros in -1_000_000_000_000_000_i64..10_000_000_000_000_000,
        ) {
            let recorded_at = DateTime::from_timestamp_micros(micros).unwrap();
            let leaf = Leaf {
                shard_id, position, event_id: Uuid::from_u128(id), stream_type: &stream_type, stream_id, version,
                event_type: &event_type, schema_version, data: &data, metadata: &metadata, recorded_at,
            };
            let bytes = leaf.to_bytes();
            prop_assert_eq!(Leaf::from_bytes(&bytes).unwrap(), leaf);
            // Moving text from one field to the next gives another leaf.
            let joined = format!("{data}{metadata}");
            let moved = Leaf { data: &joined, metadata: "", ..leaf };
            prop_assert_eq!(moved.to_bytes() == bytes, metadata.is_empty());
        }

        #[test]
        fn accepted_bytes_encode_to_themselves(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), good in any::<bool>()) {
            if good {
                let whole = leaf().to_bytes();
                let at = bytes.len() % whole.len();
                let byte = bytes.first().copied().unwrap_or_default();
                bytes = whole;
                bytes[at] = byte;
            }
            if let Ok(leaf) = Leaf::from_bytes(&bytes) {
                prop_assert_eq!(leaf.to_bytes(), bytes);
            }
        }
    }
}
