//! `/api/v1/transactions`: the movements of money in wallets.

use chrono::{DateTime, Utc};
use ledger_events::Money as Amount;
use ledger_events::wallet::Direction;
use ledger_events::{OrderId, TransactionId, WalletId};
use ledger_projections::wallets::{self, TransactionFilter};
use poem_openapi::param::{Path, Query};
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;

use super::error::ApiError;
use super::page::Page;
use super::principal::Caller;
use super::reply::{Listed, Plural, Reply};
use super::scalars::{Money, Timestamp};
use super::state::{State, Tag, listed, not_found, rows_of, time};
use crate::ledger::reader;

/// Direction of a transaction.
///
/// - `CREDIT`: the amount was added to the wallet.
/// - `DEBIT`: the amount was taken from the wallet.
#[derive(Clone, Copy, Default, Enum, Serialize)]
#[oai(rename_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TransactionType {
    #[default]
    Credit,
    Debit,
}

impl TransactionType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Credit => "CREDIT",
            Self::Debit => "DEBIT",
        }
    }
}

/// Reason for a transaction.
///
/// - `FUNDING`: money added to the wallet.
/// - `ORDER`: payment of an order.
/// - `ORDER_REFUND`: refund of a cancelled order.
/// - `ADJUSTMENT`: correction by an operator.
/// - `PAYOUT`: payment to a beneficiary.
/// - `PAYOUT_REFUND`: refund of a failed or cancelled payout.
#[derive(Clone, Copy, Enum)]
#[oai(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TransactionCategory {
    Funding,
    Order,
    OrderRefund,
    Adjustment,
    Payout,
    PayoutRefund,
}

impl TransactionCategory {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Funding => "FUNDING",
            Self::Order => "ORDER",
            Self::OrderRefund => "ORDER_REFUND",
            Self::Adjustment => "ADJUSTMENT",
            Self::Payout => "PAYOUT",
            Self::PayoutRefund => "PAYOUT_REFUND",
        }
    }
}

/// A movement of money into or out of a wallet.
#[derive(Object, Serialize)]
pub struct Transaction {
    /// Unique identifier of the transaction.
    id: i64,
    /// Unique identifier of the wallet.
    wallet_id: i64,
    /// Direction of the transaction: `CREDIT` or `DEBIT`.
    #[oai(rename = "type")]
    #[serde(rename = "type")]
    direction: TransactionType,
    /// Reason for the transaction: `FUNDING`, `ORDER`, `ORDER_REFUND`, `ADJUSTMENT`, `PAYOUT` or `PAYOUT_REFUND`.
    category: String,
    /// Amount moved, always positive. `type` gives the direction.
    amount: Money,
    /// Balance of the wallet right after the transaction.
    balance_after: Money,
    /// Currency of the wallet, as an ISO 4217 code.
    currency: String,
    /// Unique identifier of the order that was paid or refunded; null for other categories.
    order_id: Option<i64>,
    /// The `reference_code` of the order, the reference of the funding, or `PAY-` followed by the payout's ID; null if none.
    reference: Option<String>,
    /// Description in plain English. Do not parse it.
    description: String,
    /// Time at which the money moved.
    created_at: Timestamp,
}

/// A transaction with the event that recorded it.
#[derive(Object, Serialize)]
struct RecordedTransaction {
    #[oai(flatten)]
    #[serde(flatten)]
    transaction: Transaction,
    /// Unique identifier of the event in the log that moved the money. Support finds the event by it. Webhooks about the order or
    /// the payout have an `event_id` of their own.
    event_id: String,
}

impl Plural for Transaction {
    const PLURAL: &'static str = "transactions";
}

impl From<wallets::Transaction> for Transaction {
    fn from(transaction: wallets::Transaction) -> Self {
        let description = description(&transaction);
        Self {
            id: transaction.id.0,
            wallet_id: transaction.wallet_id.0,
            direction: match transaction.direction {
                Direction::Credit => TransactionType::Credit,
                Direction::Debit => TransactionType::Debit,
            },
            category: transaction.category.to_owned(),
            amount: transaction.amount.into(),
            balance_after: transaction.balance_after.into(),
            currency: transaction.currency.as_str().to_owned(),
            order_id: transaction.order_id.map(|id| id.0),
            description,
            reference: transaction.reference,
            created_at: transaction.created_at.into(),
        }
    }
}

/// Returns the description of a transaction in plain English.
pub fn description(transaction: &wallets::Transaction) -> String {
    let reference = transaction.reference.as_deref().unwrap_or_default();
    match transaction.category {
        "FUNDING" => format!("Funding {reference}"),
        "ORDER" => format!("Payment of order {reference}"),
        "ORDER_REFUND" => format!("Refund of order {reference}"),
        "ADJUSTMENT" => "Adjustment by an operator".to_owned(),
        "PAYOUT" => format!("Payout {reference}"),
        "PAYOUT_REFUND" => format!("Refund of payout {reference}"),
        other => other.to_owned(),
    }
}

/// Parses an amount in a query, such as 100.00.
///
/// # Errors
/// 400 naming the parameter.
fn amount(name: &str, text: Option<String>) -> Result<Option<Amount>, ApiError> {
    let invalid = |_| ApiError::invalid(name, "must be an amount such as 100.00");
    text.map(|text| text.parse().map_err(invalid)).transpose()
}

pub struct Transactions;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Transactions")]
impl Transactions {
    /// List transactions
    ///
    /// Returns the transactions of all wallets of the account, newest first.
    #[oai(path = "/transactions", method = "get", operation_id = "list_transactions")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn list(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Transactions per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
        /// Only transactions of this wallet.
        wallet_id: Query<Option<i64>>,
        /// Only transactions in this direction.
        #[oai(name = "type")]
        direction: Query<Option<TransactionType>>,
        /// Only transactions of this category.
        category: Query<Option<TransactionCategory>>,
        /// Only transactions of exactly this amount.
        #[oai(validator(pattern = r"^[0-9]{1,16}(\.[0-9]{1,2})?$"))]
        amount: Query<Option<String>>,
        /// Only transactions after which the balance was exactly this amount.
        #[oai(validator(pattern = r"^[0-9]{1,16}(\.[0-9]{1,2})?$"))]
        balance_after: Query<Option<String>>,
        /// Only transactions in this currency, as an ISO 4217 code.
        currency: Query<Option<String>>,
        /// Only transactions for this order.
        order_id: Query<Option<i64>>,
        /// Only transactions with this reference.
        reference: Query<Option<String>>,
        /// Only transactions made at or after this time.
        created_from: Query<Option<DateTime<Utc>>>,
        /// Only transactions made before this time.
        created_to: Query<Option<DateTime<Utc>>>,
    ) -> Result<Listed<Transaction>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let filter = TransactionFilter {
            account_id: caller.0.account_id,
            wallet_id: wallet_id.0.map(WalletId),
            direction: direction.0.map(TransactionType::as_str),
            category: category.0.map(TransactionCategory::as_str),
            amount: self::amount("amount", amount.0)?,
            balance_after: self::amount("balance_after", balance_after.0)?,
            currency: currency.0,
            order_id: order_id.0.map(OrderId),
            reference: reference.0,
            created_from: time("created_from", created_from.0)?,
            created_to: time("created_to", created_to.0)?,
        };
        let found = reader::list_transactions(&state.read_pool(), caller.0.shard_id, &filter, rows_of(page)).await?;
        Ok(listed(found, page, Transaction::from))
    }

    /// Retrieve a transaction
    ///
    /// Returns one transaction of a wallet of the account, with the event that recorded it.
    #[oai(path = "/transactions/:id", method = "get", operation_id = "get_transaction")]
    async fn get(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Unique identifier of the transaction.
        id: Path<i64>,
    ) -> Result<Reply<RecordedTransaction>, ApiError> {
        let (caller, pool) = (caller.0, state.ledger.pool());
        let found = wallets::find_transaction(pool, caller.shard_id, caller.account_id, TransactionId(id.0)).await?;
        let found = found.ok_or_else(not_found)?;
        let event = reader::stored_at(pool, caller.shard_id, &[found.position]).await?.pop();
        let event = event.ok_or_else(|| ApiError::internal("the log lacks the event of a transaction"))?;
        Ok(Reply(RecordedTransaction { transaction: found.into(), event_id: event.event_id.to_string() }))
    }
}
