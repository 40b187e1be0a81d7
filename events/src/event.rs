//! The list of streams, from which [`StreamType`] and [`Event`] are made.

use crate::account::AccountEvent;
use crate::account::CredentialEvent;
use crate::api_version::ApiVersionEvent;
use crate::approval::ApprovalEvent;
use crate::beneficiary::BeneficiaryEvent;
use crate::catalogue::{CategoryEvent, ProductEvent};
use crate::codec::CodecError;
use crate::ip_block::IpBlockEvent;
use crate::log::LogEvent;
use crate::operator::OperatorEvent;
use crate::order::OrderEvent;
use crate::payout::PayoutEvent;
use crate::purchase::PurchaseEvent;
use crate::reconciliation::ReconciliationEvent;
use crate::replay::ReplayEvent;
use crate::shard::ShardEvent;
use crate::user::UserEvent;
use crate::verification::VerificationEvent;
use crate::wallet::WalletEvent;
use crate::webhook::WebhookEvent;

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
                event.ok_or_else(|| CodecError::UnknownType(event_type.to_owned(), stream.as_str()))
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
    Approval(ApprovalEvent) = "approval",
    Verification(VerificationEvent) = "verification",
    Purchase(PurchaseEvent) = "purchase",
    Shard(ShardEvent) = "shard",
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
    fn a_version_1_payment_belongs_to_an_order() {
        let golden = include_str!("../fixtures/wallet/WalletDebited.v1.json").trim_end();
        let event = Event::read(StreamType::Wallet, "WalletDebited", 1, golden).unwrap();
        let Event::Wallet(WalletEvent::WalletDebited(debited)) = &event else { panic!("{event:?}") };
        assert_eq!(debited.purpose, crate::wallet::Purpose::Order(crate::OrderId(42)));
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
