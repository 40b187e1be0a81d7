//! Encoding of events, `(type, schema_version, bytes) ⇄ event`, with upcasters.
//!
//! A written payload is never edited. When the shape of an event changes, raise its version in [`stream_events!`]
//! and add an [`Upcaster`] from the old version here. `fixtures/` holds one golden payload per type and version,
//! and a test reads every one.

use serde_json::Value;

#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    #[error("unknown event type {0:?} in stream {1}")]
    UnknownType(String, &'static str),
    #[error("unknown stream type {0:?}")]
    UnknownStream(String),
    #[error("{event_type} has schema version {found}; this program supports versions up to {known}")]
    UnknownVersion { event_type: String, found: i16, known: i16 },
    #[error("the payload of {event_type} version {schema_version} is not readable: {source}")]
    Payload { event_type: String, schema_version: i16, source: serde_json::Error },
}

/// Step that turns a payload of version n into one of version n + 1.
#[derive(Debug)]
pub struct Upcaster {
    pub event_type: &'static str,
    pub from_version: i16,
    pub upcast: fn(Value) -> Value,
}

/// All upcasters. Each type needs one for every version before its current one.
const UPCASTERS: &[Upcaster] = &[
    // Since version 2, a payment may belong to a payout. The payload of an order's payment is unchanged.
    Upcaster { event_type: "WalletDebited", from_version: 1, upcast: |payload| payload },
    Upcaster { event_type: "WalletRefunded", from_version: 1, upcast: |payload| payload },
];

fn upcast(upcasters: &[Upcaster], event_type: &str, found: i16, known: i16, payload: &str) -> Result<Value, CodecError> {
    let unreadable = |source| CodecError::Payload { event_type: event_type.to_owned(), schema_version: found, source };
    let mut value: Value = serde_json::from_str(payload).map_err(unreadable)?;
    for version in found..known {
        let step = upcasters.iter().find(|u| u.event_type == event_type && u.from_version == version);
        let step = step.ok_or_else(|| CodecError::UnknownVersion { event_type: event_type.to_owned(), found, known })?;
        value = (step.upcast)(value);
    }
    Ok(value)
}

/// Reads one payload, and upcasts it to the current version.
///
/// # Errors
/// Fails on a version without upcasters, a version from a newer program, or a malformed payload.
pub(crate) fn read<T: serde::de::DeserializeOwned>(
    event_type: &str,
    found: i16,
    known: i16,
    payload: &str,
) -> Result<T, CodecError> {
    let unreadable = |source| CodecError::Payload { event_type: event_type.to_owned(), schema_version: found, source };
    if found == known {
        serde_json::from_str(payload).map_err(unreadable)
    } else if (1..known).contains(&found) {
        serde_json::from_value(upcast(UPCASTERS, event_type, found, known, payload)?).map_err(unreadable)
    } else {
        Err(CodecError::UnknownVersion { event_type: event_type.to_owned(), found, known })
    }
}

/// Declares the event enum of a stream: one variant per payload struct of that name, with its schema version.
macro_rules! stream_events {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $version:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub enum $name { $($variant($variant)),* }

        impl $name {
            /// All event types of this stream, each with its current schema version.
            pub const TYPES: &'static [(&'static str, i16)] = &[$((stringify!($variant), $version)),*];

            /// Returns the name of the type in the log, and its current schema version.
            pub fn type_and_version(&self) -> (&'static str, i16) {
                match self { $(Self::$variant(_) => (stringify!($variant), $version)),* }
            }

            /// Serializes the payload to JSON text: the bytes that the log stores.
            pub fn payload(&self) -> Result<String, serde_json::Error> {
                match self { $(Self::$variant(payload) => serde_json::to_string(payload)),* }
            }

            pub(crate) fn read(event_type: &str, schema_version: i16, payload: &str) -> Result<Option<Self>, $crate::codec::CodecError> {
                match event_type {
                    $(stringify!($variant) => $crate::codec::read(event_type, schema_version, $version, payload).map(|p| Some(Self::$variant(p))),)*
                    _ => Ok(None),
                }
            }
        }

        $(impl From<$variant> for $name {
            fn from(payload: $variant) -> Self { Self::$variant(payload) }
        })*
    };
}
pub(crate) use stream_events;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn upcasters_lead_step_by_step_to_the_current_version() {
        let upcasters = [
            Upcaster {
                event_type: "Renamed",
                from_version: 1,
                upcast: |mut v| {
                    v["b"] = v["a"].take();
                    v
                },
            },
            Upcaster {
                event_type: "Renamed",
                from_version: 2,
                upcast: |mut v| {
                    v["c"] = json!(v["b"].as_i64().unwrap_or(0) * 100);
                    v
                },
            },
        ];
        assert_eq!(upcast(&upcasters, "Renamed", 1, 3, r#"{"a":5}"#).unwrap()["c"], 500);
        assert!(matches!(upcast(&upcasters, "Other", 1, 2, "{}"), Err(CodecError::UnknownVersion { .. })));
    }
}
