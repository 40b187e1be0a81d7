//! Amounts of money and percentages, which are never floats.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use rust_decimal::Decimal;
use serde::de::{Unexpected, Visitor};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A decimal number that the API writes as a string, such as `"48.75"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(pub Decimal);

impl Deref for Amount {
    type Target = Decimal;

    fn deref(&self) -> &Decimal {
        &self.0
    }
}

impl From<Decimal> for Amount {
    fn from(decimal: Decimal) -> Amount {
        Amount(decimal)
    }
}

impl From<i64> for Amount {
    fn from(whole: i64) -> Amount {
        Amount(Decimal::from(whole))
    }
}

impl FromStr for Amount {
    type Err = rust_decimal::Error;

    fn from_str(text: &str) -> Result<Amount, rust_decimal::Error> {
        Decimal::from_str_exact(text).map(Amount)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Amount, D::Error> {
        deserializer.deserialize_str(AmountVisitor)
    }
}

struct AmountVisitor;

impl Visitor<'_> for AmountVisitor {
    type Value = Amount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a decimal number in a string")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Amount, E> {
        text.parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// Serializes an amount as a JSON number, with all its digits. A few request fields want one.
pub(crate) fn as_number<S: Serializer>(amount: &Amount, serializer: S) -> Result<S::Ok, S::Error> {
    let number = serde_json::value::RawValue::from_string(amount.0.to_string()).map_err(S::Error::custom)?;
    number.serialize(serializer)
}
