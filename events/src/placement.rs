//! Placing of orders: one append to two streams, `OrderPlaced` and `WalletDebited`, or neither.

use crate::account::{Account, AccountStatus};
use crate::catalogue::Product;
use crate::order::OrderPlaced;
use crate::price::{Price, price};
use crate::wallet::{self, Purpose, Wallet, WalletCommand, WalletEvent};
use crate::{Currency, Money, OrderId, ProductId, Rejection, TransactionId};

/// A client's request for an order.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceOrder {
    pub product_id: ProductId,
    pub denomination: Money,
    pub quantity: i32,
    pub client_reference: Option<String>,
    pub metadata_hash: Option<String>,
}

/// Returns the human-readable reference of an order. It is unique because the id is.
pub fn reference_code(order_id: OrderId) -> String {
    format!("ORD-{order_id:010}")
}

/// Returns the id of the order with this reference, or `None` if the text is not a well-formed reference.
pub fn order_of_reference(reference: &str) -> Option<OrderId> {
    let id = reference.strip_prefix("ORD-")?.parse().ok()?;
    (reference_code(id) == reference).then_some(id)
}

/// The price of a possible order, and the wallet that would pay it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quote<'a> {
    pub product: &'a Product,
    pub wallet: &'a Wallet,
    pub price: Price,
}

/// Prices an order. Does not check whether the balance covers the price. `wallet_in` finds the account's wallet in
/// a currency.
///
/// # Errors
/// Checks product, price and currency in this order, and returns the first rejection.
pub fn quote<'a>(
    account: &Account,
    product: Option<&'a Product>,
    wallet_in: impl FnOnce(Currency) -> Option<&'a Wallet>,
    denomination: Money,
    quantity: i32,
) -> Result<Quote<'a>, Rejection> {
    let product = product.ok_or(Rejection::ProductUnavailable)?;
    product.accepts(denomination, quantity)?;
    let discount = account.discount_on(product.id, product.details.category_id);
    let price = price(denomination, quantity, discount).map_err(|_| Rejection::InvalidDenomination)?;
    let wallet = wallet_in(product.details.currency).ok_or(Rejection::CurrencyMismatch)?;
    Ok(Quote { product, wallet, price })
}

/// Decides an order at the price from [`quote`].
///
/// # Errors
/// Checks account, product, price, currency and balance in this order, and returns the first rejection.
pub fn place<'a>(
    account: &Account,
    product: Option<&'a Product>,
    wallet_in: impl FnOnce(Currency) -> Option<&'a Wallet>,
    order_id: OrderId,
    transaction_id: TransactionId,
    command: PlaceOrder,
) -> Result<(OrderPlaced, WalletEvent), Rejection> {
    if account.status == AccountStatus::Suspended {
        return Err(Rejection::AccountSuspended);
    }
    let Quote { product, wallet, price } = quote(account, product, wallet_in, command.denomination, command.quantity)?;
    let details = &product.details;
    let reference_code = reference_code(order_id);
    let payment =
        WalletCommand::Pay { amount: price.amount, purpose: Purpose::Order(order_id), reference: reference_code.clone() };
    let debit = wallet::decide(wallet, transaction_id, payment)?;
    let placed = OrderPlaced {
        account_id: account.id,
        reference_code,
        client_reference: command.client_reference,
        product_id: product.id,
        product_name: details.name.clone(),
        currency: details.currency,
        denomination: command.denomination,
        quantity: command.quantity,
        face_value: price.face_value,
        discount: price.discount,
        discount_amount: price.discount_amount,
        amount: price.amount,
        wallet_id: wallet.id,
        transaction_id,
        metadata_hash: command.metadata_hash,
    };
    Ok((placed, debit))
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use proptest::prelude::*;

    use super::*;
    use crate::account::DiscountRule;
    use crate::catalogue::{Denominations, ProductDetails};
    use crate::{AccountId, CategoryId, WalletId};

    fn money(text: &str) -> Money {
        text.parse().unwrap()
    }

    fn account(status: AccountStatus, discounts: Vec<DiscountRule>) -> Account {
        let at = DateTime::UNIX_EPOCH;
        Account { id: AccountId(7), version: 1, name: "Example".into(), status, discounts, created_at: at, updated_at: at }
    }

    fn product(is_active: bool) -> Product {
        let details = ProductDetails {
            name: "Book voucher".into(),
            brand: "Bookshop".into(),
            category_id: Some(CategoryId(4)),
            country: "DE".into(),
            currency: "EUR".parse().unwrap(),
            denominations: Denominations::Fixed { values: vec![money("10.00")] },
            max_quantity: 5,
            description: String::new(),
            terms: String::new(),
            is_active,
            stock_thresholds: vec![],
            supplier: None,
        };
        Product {
            id: ProductId(3),
            version: 1,
            details,
            image: None,
            created_at: DateTime::UNIX_EPOCH,
            updated_at: DateTime::UNIX_EPOCH,
        }
    }

    fn wallet(balance: &str) -> Wallet {
        let at = DateTime::UNIX_EPOCH;
        Wallet {
            id: WalletId(5),
            version: 2,
            account_id: AccountId(7),
            currency: "EUR".parse().unwrap(),
            balance: money(balance),
            created_at: at,
            updated_at: at,
        }
    }

    fn order(denomination: &str, quantity: i32) -> PlaceOrder {
        PlaceOrder {
            product_id: ProductId(3),
            denomination: money(denomination),
            quantity,
            client_reference: None,
            metadata_hash: None,
        }
    }

    fn attempt(
        account: &Account,
        product: Option<&Product>,
        wallet: Option<&Wallet>,
        order: PlaceOrder,
    ) -> Result<(OrderPlaced, WalletEvent), Rejection> {
        place(account, product, |_| wallet, OrderId(42), TransactionId(1001), order)
    }

    #[test]
    fn an_order_appends_to_both_streams() {
        let (placed, debited) =
            attempt(&account(AccountStatus::Active, vec![]), Some(&product(true)), Some(&wallet("20.00")), order("10.00", 2))
                .unwrap();
        let WalletEvent::WalletDebited(debit) = debited else { panic!("not a debit") };
        assert_eq!((placed.amount, debit.amount, debit.balance_after), (money("20.00"), money("20.00"), money("0.00")));
        assert_eq!(
            (placed.transaction_id, debit.purpose, &debit.reference),
            (TransactionId(1001), Purpose::Order(OrderId(42)), &placed.reference_code)
        );
    }

    #[test]
    fn the_most_specific_discount_applies() {
        let rule = |product_id, category_id, percent: &str| DiscountRule {
            product_id,
            category_id,
            discount: money(percent).try_into().unwrap(),
        };
        let mut rules =
            vec![rule(None, None, "1.00"), rule(None, Some(CategoryId(4)), "2.00"), rule(Some(ProductId(3)), None, "3.00")];
        for expected in ["29.10", "29.40", "29.70", "30.00"] {
            let account = account(AccountStatus::Active, rules.clone());
            let (placed, _) = attempt(&account, Some(&product(true)), Some(&wallet("100.00")), order("10.00", 3)).unwrap();
            assert_eq!(placed.amount, money(expected));
            rules.pop();
        }
    }

    #[test]
    fn checks_run_in_the_documented_order() {
        let (active, suspended) = (account(AccountStatus::Active, vec![]), account(AccountStatus::Suspended, vec![]));
        let refused = |account, product: Option<&Product>, wallet: Option<&Wallet>, order| {
            attempt(account, product, wallet, order).unwrap_err()
        };
        assert_eq!(refused(&suspended, None, None, order("1.00", 9)), Rejection::AccountSuspended);
        assert_eq!(refused(&active, None, None, order("1.00", 9)), Rejection::ProductUnavailable);
        assert_eq!(refused(&active, Some(&product(false)), None, order("1.00", 9)), Rejection::ProductUnavailable);
        assert_eq!(refused(&active, Some(&product(true)), None, order("1.00", 9)), Rejection::InvalidDenomination);
        assert_eq!(
            refused(&active, Some(&product(true)), None, order("10.00", 9)),
            Rejection::QuantityLimitExceeded { max_quantity: 5 }
        );
        assert_eq!(refused(&active, Some(&product(true)), None, order("10.00", 2)), Rejection::CurrencyMismatch);
        assert_eq!(
            refused(&active, Some(&product(true)), Some(&wallet("19.99")), order("10.00", 2)),
            Rejection::InsufficientBalance
        );
    }

    proptest! {
        /// The order is charged the quoted price, and both reject for the same reason. Only the order checks the
        /// balance.
        #[test]
        fn a_quote_equals_the_charge(
            cents in 1i64..2_000_000, quantity in 1i32..8, discount in 0i64..10_000, balance in 0i64..10_000_000,
            is_active in any::<bool>(),
        ) {
            let percent = Money::from_cents(discount).unwrap().try_into().unwrap();
            let rule = DiscountRule { product_id: None, category_id: Some(CategoryId(4)), discount: percent };
            let account = account(AccountStatus::Active, vec![rule]);
            let mut product = product(is_active);
            product.details.denominations = Denominations::Range { min: money("0.01"), max: money("15000.00") };
            let wallet = Wallet { balance: Money::from_cents(balance).unwrap(), ..wallet("0.00") };
            let denomination = Money::from_cents(cents).unwrap();
            let order = PlaceOrder { denomination, ..order("1.00", quantity) };
            let placed = attempt(&account, Some(&product), Some(&wallet), order);
            match (quote(&account, Some(&product), |_| Some(&wallet), denomination, quantity), placed) {
                (Ok(quote), Ok((placed, WalletEvent::WalletDebited(debit)))) => {
                    let Price { face_value, discount, discount_amount, amount } = quote.price;
                    prop_assert_eq!(
                        (face_value, discount, discount_amount, amount),
                        (placed.face_value, placed.discount, placed.discount_amount, placed.amount)
                    );
                    prop_assert_eq!(debit.amount, amount);
                    prop_assert!(wallet.balance >= amount);
                }
                (Ok(quote), Err(refused)) => {
                    prop_assert_eq!(refused, Rejection::InsufficientBalance);
                    prop_assert!(wallet.balance < quote.price.amount);
                }
                (Err(quoted), placed) => prop_assert_eq!(Some(quoted), placed.err()),
                (quote, placed) => prop_assert!(false, "{:?} {:?}", quote, placed),
            }
        }

        /// Both ways to find a discount agree.
        #[test]
        fn both_discount_lookups_agree(rules in prop::collection::vec((0i64..4, 0i64..4, 0i64..10_000), 0..12)) {
            let mut discounts: Vec<DiscountRule> = Vec::new();
            for (product, category, cents) in rules {
                let product_id = (product > 0).then_some(product);
                let category_id = (category > 0 && product_id.is_none()).then_some(category);
                if discounts.iter().all(|rule| (rule.product_id, rule.category_id) != (product_id.map(ProductId), category_id.map(CategoryId))) {
                    let discount = Money::from_cents(cents).unwrap().try_into().unwrap();
                    discounts.push(DiscountRule { product_id: product_id.map(ProductId), category_id: category_id.map(CategoryId), discount });
                }
            }
            let account = account(AccountStatus::Active, discounts);
            let all = account.discounts();
            for product in 1..5 {
                for category in [None, Some(1), Some(2), Some(9)] {
                    prop_assert_eq!(all.on(ProductId(product), category.map(CategoryId)), account.discount_on(ProductId(product), category.map(CategoryId)));
                }
            }
        }
    }
}
