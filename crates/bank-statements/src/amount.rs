//! Amounts of money: decimals with exactly two digits after the point. Their JSON form is a decimal string.

use rust_decimal::Decimal;
use serde::{Deserialize, Deserializer, Serializer, de};

/// Largest amount, in cents. ISO 20022 allows 18 digits.
const MAX_CENTS: i128 = 999_999_999_999_999_999;

/// Parses an amount exactly. Returns none for more than two decimals, and for more than 18 digits.
pub fn parse(text: &str) -> Option<Decimal> {
    let mut amount = Decimal::from_str_exact(text).ok()?.normalize();
    if amount.scale() > 2 {
        return None;
    }
    amount.rescale(2);
    (amount.scale() == 2 && amount.mantissa().abs() <= MAX_CENTS).then_some(amount)
}

pub fn serialize<S: Serializer>(amount: &Decimal, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(amount)
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Decimal, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).ok_or_else(|| de::Error::custom("is not an amount of at most two decimals"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_two_decimals_and_at_most_18_digits() {
        let read = |text: &str| parse(text).map(|amount| amount.to_string());
        assert_eq!(read("5").as_deref(), Some("5.00"));
        assert_eq!(read("5.100").as_deref(), Some("5.10"));
        assert_eq!(read("9999999999999999.99").as_deref(), Some("9999999999999999.99"));
        for wrong in ["", "5.101", "1e3", "99999999999999999", "five"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
