//! A line of an export: all columns of an event. `data` and `metadata` are the stored texts, byte for byte.

use std::borrow::Cow;
use std::io::Write;

use chrono::{DateTime, Utc};
use ledger_events::{Position, ShardId};
use ledger_projections::envelope::iso8601;
use serde::Deserialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::ExportError;
use crate::ledger::reader::Stored;

/// Reason why a text is not a line of an export.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("recorded_at is more precise than a millisecond")]
    Time,
}

/// An event as a line. `data` and `metadata` are raw JSON, so that their bytes are kept.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventLine<'a> {
    shard_id: ShardId,
    position: Position,
    event_id: Uuid,
    #[serde(borrow)]
    stream_type: Cow<'a, str>,
    stream_id: i64,
    version: i64,
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    schema_version: i16,
    recorded_at: DateTime<Utc>,
    #[serde(borrow)]
    data: &'a RawValue,
    #[serde(borrow)]
    metadata: &'a RawValue,
}

/// Appends an event to `out` as a line.
///
/// # Errors
/// Returns an error when one of its texts would not be read back as it is stored. This program never writes such a text.
/// The position shows where another program has.
pub fn write(stored: &Stored, out: &mut Vec<u8>) -> Result<(), ExportError> {
    let Stored { shard_id, position, event_id, stream_id, version, schema_version, .. } = stored;
    let refused = |problem| ExportError::NotALine { shard: *shard_id, position: *position, problem };
    for text in [&stored.data, &stored.metadata] {
        if text.as_bytes().contains(&b'\n') || text.as_bytes().contains(&b'\r') {
            return Err(refused("the stored text has a line break, which a line cannot contain"));
        }
        let is_kept = serde_json::from_str::<&RawValue>(text).is_ok_and(|raw| raw.get().len() == text.len());
        if !is_kept {
            return Err(refused("the stored text is not a single JSON value without surrounding white space"));
        }
    }
    if !stored.recorded_at.timestamp_subsec_nanos().is_multiple_of(1_000_000) {
        return Err(refused("its time is more precise than a millisecond"));
    }
    write!(out, r#"{{"shard_id":{shard_id},"position":{position},"event_id":"{event_id}","stream_type":"#)?;
    serde_json::to_writer(&mut *out, &stored.stream_type)?;
    write!(out, r#","stream_id":{stream_id},"version":{version},"type":"#)?;
    serde_json::to_writer(&mut *out, &stored.event_type)?;
    let (recorded_at, data, metadata) = (iso8601(stored.recorded_at), &stored.data, &stored.metadata);
    writeln!(out, r#","schema_version":{schema_version},"recorded_at":"{recorded_at}","data":{data},"metadata":{metadata}}}"#)?;
    Ok(())
}

/// Parses a line without its line break.
///
/// # Errors
/// Returns an error on everything that [`write`] cannot have written, including unknown fields.
pub fn read(line: &str) -> Result<Stored, LineError> {
    let line: EventLine<'_> = serde_json::from_str(line)?;
    if !line.recorded_at.timestamp_subsec_nanos().is_multiple_of(1_000_000) {
        return Err(LineError::Time);
    }
    Ok(Stored {
        shard_id: line.shard_id,
        position: line.position,
        event_id: line.event_id,
        stream_type: line.stream_type.into_owned(),
        stream_id: line.stream_id,
        version: line.version,
        event_type: line.r#type.into_owned(),
        schema_version: line.schema_version,
        data: line.data.get().to_owned(),
        metadata: line.metadata.get().to_owned(),
        recorded_at: line.recorded_at,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use chrono::TimeZone;

    use super::*;

    fn stored(data: &str) -> Stored {
        Stored {
            shard_id: 1,
            position: 7,
            event_id: Uuid::from_u128(5),
            stream_type: "order".into(),
            stream_id: 42,
            version: 2,
            event_type: "Order\"Queued".into(),
            schema_version: 1,
            data: data.into(),
            metadata: r#"{"request_id":"x"}"#.into(),
            recorded_at: Utc.timestamp_millis_opt(1_770_000_000_123).unwrap(),
        }
    }

    #[test]
    fn an_event_comes_back_byte_for_byte() {
        for data in ["{}", r#"{ "b":1.50,  "a":"é \ud83d\ude00 \n \u0000", "b":1e400 }"#, "null", "\"\""] {
            let mut line = vec![];
            write(&stored(data), &mut line).unwrap();
            let text = std::str::from_utf8(&line).unwrap();
            assert_eq!(text.matches('\n').count(), 1);
            assert_eq!(read(text.trim_end()).unwrap(), stored(data));
        }
    }

    #[test]
    fn the_format_is_the_documented_one() {
        let mut line = vec![];
        write(&Stored { event_type: "OrderQueued".into(), ..stored("{}") }, &mut line).unwrap();
        let expected = r#"{"shard_id":1,"position":7,"event_id":"00000000-0000-0000-0000-000000000005","stream_type":"order","stream_id":42,"version":2,"type":"OrderQueued","schema_version":1,"recorded_at":"2026-02-02T02:40:00.123Z","data":{},"metadata":{"request_id":"x"}}"#;
        assert_eq!(String::from_utf8(line).unwrap(), format!("{expected}\n"));
    }

    #[test]
    fn texts_that_would_change_are_refused_with_their_position() {
        for data in ["{\n}", "{}\r", " {}", "{} ", "{} {}", "", "{\"a\":\"\u{1}\"}"] {
            let error = write(&stored(data), &mut vec![]).unwrap_err().to_string();
            assert!(error.starts_with("shard 1, position 7: the stored text"), "{data:?}: {error}");
        }
        let fine = Stored { recorded_at: Utc.timestamp_micros(1).unwrap(), ..stored("{}") };
        assert!(write(&fine, &mut vec![]).is_err());
    }

    #[test]
    fn invalid_lines_are_refused() {
        let mut line = vec![];
        write(&stored("{}"), &mut line).unwrap();
        let line = String::from_utf8(line).unwrap();
        for (from, to) in [
            ("\"position\"", "\"place\""),
            ("{\"shard_id\":1", "{\"more\":1,\"shard_id\":1"),
            ("\"shard_id\":1", "\"shard_id\":1,\"shard_id\":1"),
            (".123Z", ".123456Z"),
            ("\"version\":2", "\"version\":2.5"),
            ("}}", "}"),
        ] {
            let other = line.replacen(from, to, 1);
            assert_ne!(other, line);
            assert!(read(&other).is_err(), "{other}");
        }
    }
}
