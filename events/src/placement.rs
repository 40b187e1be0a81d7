//! Placing an order: one append over two streams, `OrderPlaced` and `WalletDebited`, or neither.

use crate::account::{Account, AccountStatus};
use crate::catalogue::Product;
use crate::order::OrderPlaced;
use crate::price::price;
use crate::wallet::{self, Wallet, WalletCommand, WalletEvent};
use crate::{Currency, Money, OrderId, ProductId, Rejection, TransactionId};

#[derive(Clone, Debug, PartialEq)]
pub struct PlaceOrder {
    pub product_id: ProductId,
    pub denomination: Money,
    pub quantity: i32,
    pub client_reference: Option<String>,
    pub metadata_hash: Option<String>,
}

/// The human-readable reference of an order: unique because the id is.
pub fn reference_code(order_id: OrderId) -> String {
    format!("ORD-{order_id:010}")
}

/// Decides an order. Refusals come in the order account, product, price, balance.
///
/// `wallet_in` finds the account's wallet of a currency.
pub fn place<'a>(
    account: &Account,
    product: Option<&Product>,
    wallet_in: impl FnOnce(Currency) -> Option<&'a Wallet>,
    order_id: OrderId,
    transaction_id: TransactionId,
    command: PlaceOrder,
) -> Result<(OrderPlaced, WalletEvent), Rejection> {
    if account.status == AccountStatus::Suspended {
        return Err(Rejection::AccountSuspended);
    }
    let product = product.ok_or(Rejection::ProductUnavailable)?;
    product.accepts(command.denomination, command.quantity)?;
    let details = &product.details;
    let discount = account.discount_on(product.id, details.category_id);
    let price = price(command.denomination, command.quantity, discount).map_err(|_| Rejection::InvalidDenomination)?;
    let wallet = wallet_in(details.currency).ok_or(Rejection::CurrencyMismatch)?;
    let reference_code = reference_code(order_id);
    let payment = WalletCommand::PayOrder { amount: price.amount, order_id, reference: reference_code.clone() };
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
