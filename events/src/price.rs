//! The only price function. Quotes and orders both use it.

use rust_decimal::Decimal;

use crate::{Money, MoneyError, Percent};

/// Price of an order, with its components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// denomination × quantity.
    pub face_value: Money,
    pub discount: Percent,
    /// face value − amount.
    pub discount_amount: Money,
    /// Charged amount: `round_half_up(denomination × quantity × (1 − discount/100), 2)`.
    pub amount: Money,
}

/// Computes the price of an order.
///
/// # Errors
/// Fails if an amount does not fit into [`Money`].
pub fn price(denomination: Money, quantity: i32, discount: Percent) -> Result<Price, MoneyError> {
    let face = denomination.decimal().checked_mul(Decimal::from(quantity)).ok_or(MoneyError::OutOfRange)?;
    let share = (Decimal::ONE_HUNDRED - discount.decimal()) / Decimal::ONE_HUNDRED;
    let face_value = Money::rounded(face)?;
    let amount = Money::rounded(face.checked_mul(share).ok_or(MoneyError::OutOfRange)?)?;
    Ok(Price { face_value, discount, discount_amount: face_value.checked_sub(amount)?, amount })
}

/// Computes the refund of a cancellation: `amount − round_half_up(amount × delivered / quantity, 2)`.
///
/// # Errors
/// Fails if `quantity` is not positive or an amount does not fit into [`Money`].
pub fn refund_due(amount: Money, delivered_quantity: i32, quantity: i32) -> Result<Money, MoneyError> {
    if quantity <= 0 {
        return Err(MoneyError::OutOfRange);
    }
    let delivered =
        amount.decimal().checked_mul(Decimal::from(delivered_quantity)).ok_or(MoneyError::OutOfRange)? / Decimal::from(quantity);
    amount.checked_sub(Money::rounded(delivered)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn money(text: &str) -> Money {
        text.parse().unwrap()
    }

    #[test]
    fn prices_round_half_up() {
        let price = price(money("10.05"), 1, Percent::try_from(money("50.00")).unwrap()).unwrap();
        assert_eq!((price.amount, price.discount_amount), (money("5.03"), money("5.02")));
    }

    #[test]
    fn a_refund_covers_the_undelivered_units() {
        assert_eq!(refund_due(money("10.00"), 1, 3).unwrap(), money("6.67"));
        assert_eq!(refund_due(money("10.00"), 0, 3).unwrap(), money("10.00"));
        assert_eq!(refund_due(money("10.00"), 3, 3).unwrap(), money("0.00"));
    }

    proptest! {
        #[test]
        fn a_price_never_exceeds_its_face_value(cents in 1i64..10_000_000, quantity in 1i32..10_000, discount in 0i64..10_000) {
            let price = price(Money::from_cents(cents).unwrap(), quantity, Money::from_cents(discount).unwrap().try_into().unwrap()).unwrap();
            prop_assert!(price.amount <= price.face_value && price.amount >= Money::ZERO);
            prop_assert_eq!(price.amount.checked_add(price.discount_amount).unwrap(), price.face_value);
        }

        #[test]
        fn a_refund_never_exceeds_the_amount(cents in 0i64..1_000_000_000, quantity in 1i32..1000, delivered in 0i32..1000) {
            let delivered = delivered.min(quantity);
            let amount = Money::from_cents(cents).unwrap();
            let refund = refund_due(amount, delivered, quantity).unwrap();
            prop_assert!(refund >= Money::ZERO && refund <= amount);
        }
    }
}
