//! Encoding of events, `(type, schema_version, bytes) ⇄ event`, with upcasters.
//!
//! A written payload is never edited. When the shape of an event changes, raise its version in [`stream_events!`]
//! and add an [`Upcaster`] from the old version here. `fixtures/` holds one golden payload per type and version,
//! and a test reads every one.

use serde_json::Value;

use crate::account::AccountEvent;
use crate::account::CredentialEvent;
use crate::api_version::ApiVersionEvent;
use crate::beneficiary::BeneficiaryEvent;
use crate::catalogue::{CategoryEvent, ProductEvent};
use crate::ip_block::IpBlockEvent;
use crate::log::LogEvent;
use crate::operator::OperatorEvent;
use crate::order::OrderEvent;
use crate::payout::PayoutEvent;
use crate::reconciliation::ReconciliationEvent;
use crate::replay::ReplayEvent;
use crate::user::UserEvent;
use crate::wallet::WalletEvent;
use crate::webhook::WebhookEvent;

#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    #[error("unknown event type {0:?} in stream {1}")]
    UnknownType(String, StreamType),
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

/// Declares [`StreamType`] and [`Event`] from the list of streams.
macro_rules! streams {
    ($($variant:ident($event:ty) = $name:literal),* $(,)?) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum StreamType { $($variant),* }

        impl StreamType {
            pub const ALL: &'static [StreamType] = &[$(StreamType::$variant),*];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }

        /// An event of any stream.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Event { $($variant($event)),* }

        impl Event {
            pub fn stream_type(&self) -> StreamType {
                match self { $(Self::$variant(_) => StreamType::$variant),* }
            }

            /// Returns the name of the type in the log, and its current schema version.
            pub fn type_and_version(&self) -> (&'static str, i16) {
                match self { $(Self::$variant(event) => event.type_and_version()),* }
            }

            /// Serializes the payload to JSON text: the bytes that the log stores.
            pub fn payload(&self) -> Result<String, serde_json::Error> {
                match self { $(Self::$variant(event) => event.payload()),* }
            }

            /// Reads a stored event, and upcasts it to the current version.
            ///
            /// # Errors
            /// Fails on a type or version that this program does not support, and on a malformed payload.
            pub fn read(stream: StreamType, event_type: &str, schema_version: i16, payload: &str) -> Result<Event, CodecError> {
                let event = match stream {
                    $(StreamType::$variant => <$event>::read(event_type, schema_version, payload)?.map(Event::$variant)),*
                };
                event.ok_or_else(|| CodecError::UnknownType(event_type.to_owned(), stream))
            }

            /// Iterates over all event types, each with its stream and current schema version.
            pub fn types() -> impl Iterator<Item = (StreamType, &'static str, i16)> {
                [$((StreamType::$variant, <$event>::TYPES)),*].into_iter().flat_map(|(stream, types)| types.iter().map(move |(name, version)| (stream, *name, *version)))
            }
        }

        $(impl From<$event> for Event {
            fn from(event: $event) -> Event { Event::$variant(event) }
        })*
    };
}

streams! {
    Order(OrderEvent) = "order",
    Wallet(WalletEvent) = "wallet",
    Webhook(WebhookEvent) = "webhook",
    Replay(ReplayEvent) = "replay",
    Account(AccountEvent) = "account",
    Credential(CredentialEvent) = "credential",
    User(UserEvent) = "user",
    Product(ProductEvent) = "product",
    Category(CategoryEvent) = "category",
    IpBlock(IpBlockEvent) = "ip_block",
    Operator(OperatorEvent) = "operator",
    Beneficiary(BeneficiaryEvent) = "beneficiary",
    Payout(PayoutEvent) = "payout",
    Reconciliation(ReconciliationEvent) = "reconciliation",
    ApiVersion(ApiVersionEvent) = "api_version",
    Log(LogEvent) = "log",
}

impl std::fmt::Display for StreamType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for StreamType {
    type Err = CodecError;

    fn from_str(text: &str) -> Result<StreamType, CodecError> {
        Self::ALL.iter().copied().find(|s| s.as_str() == text).ok_or_else(|| CodecError::UnknownStream(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::json;

    use super::*;

    /// Golden payloads: `fixtures/<stream>/<Type>.v<n>.json`, one for every type and version up to the current
    /// one.
    #[test]
    fn every_golden_payload_is_still_readable() {
        for (stream, event_type, known) in Event::types() {
            for version in 1..=known {
                let path = PathBuf::from(format!("fixtures/{stream}/{event_type}.v{version}.json"));
                let golden = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                let event = Event::read(stream, event_type, version, golden.trim_end()).unwrap();
                assert_eq!(event.type_and_version(), (event_type, known));
                if version == known {
                    assert_eq!(event.payload().unwrap(), golden.trim_end(), "{} no longer round-trips", path.display());
                }
            }
        }
    }

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

    #[test]
    fn a_version_1_payment_belongs_to_an_order() {
        let golden = include_str!("../fixtures/wallet/WalletDebited.v1.json").trim_end();
        let event = Event::read(StreamType::Wallet, "WalletDebited", 1, golden).unwrap();
        let Event::Wallet(WalletEvent::WalletDebited(debited)) = &event else { panic!("{event:?}") };
        assert_eq!(debited.purpose, crate::wallet::Purpose::Order(42));
        assert_eq!(event.payload().unwrap(), golden, "the payload of an order's payment is unchanged");
        let nothing = r#"{"transaction_id":1,"amount":"1.00","balance_after":"1.00","reference":"r"}"#;
        assert!(matches!(Event::read(StreamType::Wallet, "WalletDebited", 2, nothing), Err(CodecError::Payload { .. })));
    }

    #[test]
    fn unknown_types_versions_and_streams_are_errors() {
        assert!(matches!(Event::read(StreamType::Order, "OrderEaten", 1, "{}"), Err(CodecError::UnknownType(..))));
        assert!(matches!(Event::read(StreamType::Order, "OrderQueued", 9, "{}"), Err(CodecError::UnknownVersion { .. })));
        assert!(matches!(Event::read(StreamType::Order, "OrderPlaced", 1, "{}"), Err(CodecError::Payload { .. })));
        assert!("pony".parse::<StreamType>().is_err());
    }
}
