//! The scalar types of the API, each with its schema: money, decimals, times and free-form JSON.

use std::borrow::Cow;

use chrono::{DateTime, SecondsFormat, Utc};
use poem_openapi::registry::{MetaSchema, MetaSchemaRef};
use poem_openapi::types::{ParseError, ParseFromJSON, ParseResult, ToJSON, Type};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// A decimal that a request writes as a JSON number. 25 and 25.00 serialize to the same text, so that they fingerprint
/// equally.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Number(pub Decimal);

/// An amount of money: a string with two decimals. Requests may also write it as a number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Money(pub Decimal);

/// A time in ISO 8601: UTC, with milliseconds and `Z`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timestamp(pub DateTime<Utc>);

/// The canonical text of a JSON object from a client: no spaces, sorted names, numbers as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonObject(pub String);

/// A long text: either plain text, or the JSON string as stored, which is sent without being decoded and encoded again.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Text {
    Read(String),
    Json(Box<RawValue>),
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::Read(text)
    }
}

impl From<Box<RawValue>> for Text {
    fn from(json: Box<RawValue>) -> Self {
        Self::Json(json)
    }
}

impl Default for JsonObject {
    fn default() -> Self {
        Self("{}".to_owned())
    }
}

impl From<ledger_events::Money> for Money {
    fn from(amount: ledger_events::Money) -> Self {
        Self(amount.decimal())
    }
}

impl From<ledger_events::Percent> for Money {
    fn from(percent: ledger_events::Percent) -> Self {
        Self(percent.decimal())
    }
}

impl From<DateTime<Utc>> for Timestamp {
    fn from(time: DateTime<Utc>) -> Self {
        Self(time)
    }
}

impl Number {
    fn value(&self) -> Value {
        self.0.to_f64().map_or(Value::Null, Value::from)
    }
}

impl Money {
    fn text(&self) -> String {
        format!("{:.2}", self.0)
    }

    fn value(&self) -> Value {
        self.text().into()
    }
}

impl Timestamp {
    fn text(&self) -> String {
        self.0.to_rfc3339_opts(SecondsFormat::Millis, true)
    }

    fn value(&self) -> Value {
        self.text().into()
    }
}

impl Text {
    fn value(&self) -> Value {
        match self {
            Self::Read(text) => text.as_str().into(),
            Self::Json(json) => serde_json::from_str(json.get()).unwrap_or_default(),
        }
    }
}

impl JsonObject {
    fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.normalize())
    }
}

impl Serialize for Money {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:.2}", self.0))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl Serialize for JsonObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// Implements the schema traits. poem-openapi requires a parser for every type in an object. It is never called, because
/// `Fields` parses the bodies.
macro_rules! schema {
    ($type:ident, $name:literal, $schema:expr) => {
        impl Type for $type {
            const IS_REQUIRED: bool = true;
            type RawValueType = Self;
            type RawElementValueType = Self;

            fn name() -> Cow<'static, str> {
                $name.into()
            }

            fn schema_ref() -> MetaSchemaRef {
                MetaSchemaRef::Inline(Box::new($schema))
            }

            fn as_raw_value(&self) -> Option<&Self> {
                Some(self)
            }

            fn raw_element_iter<'a>(&'a self) -> Box<dyn Iterator<Item = &'a Self> + 'a> {
                Box::new(std::iter::once(self))
            }
        }

        impl ToJSON for $type {
            fn to_json(&self) -> Option<Value> {
                Some(self.value())
            }
        }

        impl ParseFromJSON for $type {
            fn parse_from_json(_: Option<Value>) -> ParseResult<Self> {
                Err(ParseError::custom("bodies are read by Fields"))
            }
        }
    };
}

schema!(Number, "number_decimal", MetaSchema::new_with_format("number", "decimal"));
schema!(
    Money,
    "string_money",
    MetaSchema {
        example: Some("100.00".into()),
        pattern: Some(r"^-?\d+\.\d{2}$".to_owned()),
        ..MetaSchema::new_with_format("string", "decimal")
    }
);
schema!(
    Timestamp,
    "string_timestamp",
    MetaSchema { example: Some("2026-01-31T12:00:00.000Z".into()), ..MetaSchema::new_with_format("string", "date-time") }
);
schema!(Text, "string", MetaSchema::new("string"));
schema!(JsonObject, "object_json", MetaSchema::new("object"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scalar_has_one_json_form() {
        let decimal = |text: &str| text.parse::<Decimal>().unwrap();
        let json = |value: &dyn erased::Json| value.json();
        assert_eq!(json(&Money(decimal("25"))), r#""25.00""#);
        assert_eq!(json(&Number(decimal("25.00"))), r#""25""#);
        assert_eq!(json(&Timestamp(DateTime::UNIX_EPOCH)), r#""1970-01-01T00:00:00.000Z""#);
        assert_eq!(json(&JsonObject(r#"{"a":1.10}"#.to_owned())), r#"{"a":1.10}"#);
        assert_eq!(Money(decimal("25.5")).to_json(), Some("25.50".into()));
        let stored = serde_json::value::to_raw_value("a \"b\"\n\u{1f381}").unwrap();
        let read = Text::from("a \"b\"\n\u{1f381}".to_owned());
        assert_eq!(json(&Text::from(stored.clone())), json(&read));
        assert_eq!(Text::from(stored).to_json(), read.to_json());
    }

    mod erased {
        pub trait Json {
            fn json(&self) -> String;
        }
        impl<T: serde::Serialize> Json for T {
            fn json(&self) -> String {
                serde_json::to_string(self).unwrap()
            }
        }
    }
}
