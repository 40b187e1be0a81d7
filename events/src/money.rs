use std::fmt;
use std::str::FromStr;

use rust_decimal::{Decimal, RoundingStrategy};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Amount of money with exactly two decimals, between ±9,999,999,999,999,999.99 (`numeric(18,2)`). Arithmetic is
/// checked, and no floats are involved.
///
/// The text and JSON form is a decimal string such as `"12.50"`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Money(Decimal);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    #[error("is not a decimal number")]
    Malformed,
    #[error("has more than two decimals")]
    TooPrecise,
    #[error("is out of range")]
    OutOfRange,
}

impl Money {
    pub const ZERO: Money = Money(Decimal::from_parts(0, 0, 0, false, 2));
    /// Largest amount, in cents: the limit of `numeric(18,2)`.
    const MAX_CENTS: i128 = 999_999_999_999_999_999;

    pub fn from_cents(cents: i64) -> Result<Money, MoneyError> {
        Money::checked(Decimal::new(cents, 2))
    }

    fn checked(value: Decimal) -> Result<Money, MoneyError> {
        if value.mantissa().abs() > Self::MAX_CENTS { Err(MoneyError::OutOfRange) } else { Ok(Money(value)) }
    }

    /// Rounds to the nearest amount, halves away from zero (`round_half_up` in the contract).
    pub fn rounded(value: Decimal) -> Result<Money, MoneyError> {
        let mut rounded = value.round_dp_with_strategy(2, RoundingStrategy::MidpointAwayFromZero);
        rounded.rescale(2);
        if rounded.scale() == 2 { Money::checked(rounded) } else { Err(MoneyError::OutOfRange) }
    }

    pub fn decimal(self) -> Decimal {
        self.0
    }

    pub fn is_zero(self) -> bool {
        self.0.is_zero()
    }

    pub fn is_positive(self) -> bool {
        self.0 > Decimal::ZERO
    }

    pub fn checked_add(self, other: Money) -> Result<Money, MoneyError> {
        Money::checked(self.0.checked_add(other.0).ok_or(MoneyError::OutOfRange)?)
    }

    pub fn checked_sub(self, other: Money) -> Result<Money, MoneyError> {
        Money::checked(self.0.checked_sub(other.0).ok_or(MoneyError::OutOfRange)?)
    }
}

impl TryFrom<Decimal> for Money {
    type Error = MoneyError;

    /// Converts exactly: rejects a value with more than two significant decimals, and never rounds.
    fn try_from(value: Decimal) -> Result<Money, MoneyError> {
        let normal = value.normalize();
        if normal.scale() > 2 {
            return Err(MoneyError::TooPrecise);
        }
        let mut value = normal;
        value.rescale(2);
        if value.scale() == 2 { Money::checked(value) } else { Err(MoneyError::OutOfRange) }
    }
}

impl FromStr for Money {
    type Err = MoneyError;

    fn from_str(text: &str) -> Result<Money, MoneyError> {
        Decimal::from_str_exact(text).map_err(|_| MoneyError::Malformed)?.try_into()
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Money {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Money {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Money, D::Error> {
        struct Text;

        impl de::Visitor<'_> for Text {
            type Value = Money;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a decimal string")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Money, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// Discount in percent, `"0.00"` to `"99.99"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Money", into = "Money")]
pub struct Percent(Money);

impl Percent {
    pub const ZERO: Percent = Percent(Money::ZERO);

    pub fn decimal(self) -> Decimal {
        self.0.decimal()
    }
}

impl TryFrom<Money> for Percent {
    type Error = MoneyError;

    fn try_from(value: Money) -> Result<Percent, MoneyError> {
        if value >= Money::ZERO && value.decimal() < Decimal::ONE_HUNDRED {
            Ok(Percent(value))
        } else {
            Err(MoneyError::OutOfRange)
        }
    }
}

impl TryFrom<Decimal> for Percent {
    type Error = MoneyError;

    fn try_from(value: Decimal) -> Result<Percent, MoneyError> {
        Money::try_from(value)?.try_into()
    }
}

impl From<Percent> for Money {
    fn from(percent: Percent) -> Money {
        percent.0
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// ISO 4217 code, in upper case, of a currency with at most two decimals.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Currency([u8; 3]);

impl Currency {
    /// ISO 4217 currencies whose minor unit has more than two digits. [`Money`] has only two.
    const FINER_THAN_CENTS: [&'static str; 9] = ["BHD", "CLF", "IQD", "JOD", "KWD", "LYD", "OMR", "TND", "UYW"];

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl FromStr for Currency {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Currency, &'static str> {
        match text.as_bytes() {
            &[a, b, c] if [a, b, c].iter().all(u8::is_ascii_uppercase) => {
                if Self::FINER_THAN_CENTS.contains(&text) {
                    return Err("has more than two decimals, which is not supported");
                }
                Ok(Currency([a, b, c]))
            }
            _ => Err("must be an ISO 4217 code of three capital letters"),
        }
    }
}

impl TryFrom<String> for Currency {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Currency, &'static str> {
        text.parse()
    }
}

impl From<Currency> for String {
    fn from(currency: Currency) -> String {
        currency.as_str().to_owned()
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_always_have_two_decimals() {
        assert_eq!("5".parse::<Money>().unwrap().to_string(), "5.00");
        assert_eq!("5.100".parse::<Money>().unwrap().to_string(), "5.10");
        assert_eq!("5.101".parse::<Money>(), Err(MoneyError::TooPrecise));
        assert_eq!("1e3".parse::<Money>(), Err(MoneyError::Malformed));
        assert_eq!("99999999999999999".parse::<Money>(), Err(MoneyError::OutOfRange));
        assert_eq!(serde_json::to_string(&Money::from_cents(-5).unwrap()).unwrap(), "\"-0.05\"");
    }

    #[test]
    fn halves_round_away_from_zero() {
        let cents = |text: &str| Money::rounded(text.parse().unwrap()).unwrap().to_string();
        assert_eq!(cents("0.005"), "0.01");
        assert_eq!(cents("0.0049"), "0.00");
        assert_eq!(cents("2"), "2.00");
    }

    #[test]
    fn sums_are_checked() {
        let most = Money(Decimal::from_i128_with_scale(Money::MAX_CENTS, 2));
        assert_eq!(most.checked_add(Money::from_cents(1).unwrap()), Err(MoneyError::OutOfRange));
    }

    #[test]
    fn currencies_finer_than_cents_are_refused() {
        assert!("KWD".parse::<Currency>().is_err());
        assert!("usd".parse::<Currency>().is_err());
        assert_eq!("EUR".parse::<Currency>().unwrap().to_string(), "EUR");
    }

    #[test]
    fn percents_stay_below_a_hundred() {
        assert!(Percent::try_from(Decimal::ONE_HUNDRED).is_err());
        assert!(Percent::try_from(Decimal::new(-1, 2)).is_err());
        assert_eq!(Percent::try_from(Decimal::new(25, 1)).unwrap().to_string(), "2.50");
    }
}
