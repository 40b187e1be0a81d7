//! `/admin/v1/wallets`: wallets of every account, and how operators open, fund and adjust them.

use chrono::{DateTime, Utc};
use ledger_events::wallet::{self, Direction};
use ledger_events::{AccountId, OrderId, WalletId};
use ledger_projections::wallets::{self, TransactionFilter};
use poem_openapi::param::{Path, Query};
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use super::approvals::{Approval, Supervised};
use super::history::as_of_position;
use crate::access::Operator;
use crate::api::body::StrictJson;
use crate::api::error::ApiError;
use crate::api::fields::body;
use crate::api::idempotency::IdempotencyKey;
use crate::api::outcome::{answered, respond, unrenderable};
use crate::api::page::Page;
use crate::api::principal::{Admin, Caller, Finance};
use crate::api::readers::{line, money, one_of, text};
use crate::api::reference::currency;
use crate::api::reply::{Created, Data, Listed, Reply, Stored, render};
use crate::api::scalars::Money;
use crate::api::state::{State, Tag, amounts, listed, not_found, origin, parsed_currency, rows_of, time};
use crate::api::transactions::{Transaction, TransactionCategory, TransactionType};
use crate::api::wallets::Wallet;
use crate::ledger::commands::{MoneyChange, Supervise};
use crate::ledger::reasons::MAX_REASON;
use crate::ledger::{self, CommandResult, StoredResponse, commands, history, reader};
use crate::secrets::seal::Secret;

body! {
    /// A new wallet.
    #[derive(Object)]
    struct OpenWallet {
        /// Currency of the wallet, as an ISO 4217 code. It must have at most two decimals.
        #[oai(validator(pattern = "^[A-Z]{3}$"))]
        currency: String = required(currency),
    }
}

body! {
    /// Money that came in for a wallet.
    #[derive(Object)]
    struct FundWallet {
        /// Amount to add, greater than 0.00.
        amount: Money = required(money(amounts())),
        /// Unique reference of the incoming payment. Sending the same reference with the same amount again returns the
        /// existing transaction.
        reference: String = required(line(1..=100)),
        /// Note for operators. Stored encrypted.
        note: Option<String> = optional(text(1..=MAX_REASON)),
    }
}

body! {
    /// Correction of a wallet's balance.
    #[derive(Object, Serialize)]
    struct AdjustWallet {
        /// Direction of the correction.
        #[oai(rename = "type")]
        direction as "type": TransactionType = required(one_of),
        /// Amount of the correction, greater than 0.00.
        amount: Money = required(money(amounts())),
        /// Reason for the correction. Stored encrypted.
        reason: String = required(text(1..=MAX_REASON)),
    }
}

fn funded(answer: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
    let CommandResult::Funding { transaction, is_new } = answer else { return unrenderable() };
    let status = if *is_new { 201 } else { 200 };
    Ok(StoredResponse { status, body: render(&Transaction::from(transaction.clone()))?, is_secret: false })
}

/// Renders a correction, or the approval that it waits for. An approval shows the operator's reason, so it is sealed at rest.
fn adjusted(answer: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
    match answer {
        CommandResult::Transaction(transaction) => {
            let body = render(&Transaction::from(transaction.clone()))?;
            Ok(StoredResponse { status: 201, body, is_secret: false })
        }
        CommandResult::Approval(view) => {
            let body = render(&Approval::from(view.clone()))?;
            Ok(StoredResponse { status: 202, body, is_secret: true })
        }
        _ => unrenderable(),
    }
}

/// A current or past state of a wallet, with the account that it belongs to.
#[derive(Object, Serialize)]
pub struct AnyWallet {
    /// Account that the wallet belongs to.
    account_id: i64,
    /// Position of the log that the state belongs to; null for the current state.
    as_of_position: Option<i64>,
    #[oai(flatten)]
    #[serde(flatten)]
    wallet: Wallet,
}

impl AnyWallet {
    pub fn of(wallet: wallet::Wallet, as_of_position: Option<i64>) -> Self {
        Self { account_id: wallet.account_id.0, as_of_position, wallet: wallet.into() }
    }
}

pub struct Wallets;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Wallets")]
impl Wallets {
    /// Retrieve a wallet
    ///
    /// Returns the wallet of any account, in its current state or, with `as_of`, in a past one. Returns 404 if the wallet
    /// was opened later than `as_of`, and 400 if the log has not reached the position.
    #[oai(path = "/wallets/:id", method = "get", operation_id = "get_any_wallet")]
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the wallet.
        id: Path<i64>,
        /// Point in time of the state: a position of the log, an RFC 3339 time, or a date (midnight UTC). A position
        /// means right after its event. Default: the current state.
        as_of: Query<Option<String>>,
    ) -> Result<Reply<AnyWallet>, ApiError> {
        let id = WalletId(id.0);
        let pool = state.ledger.pool();
        let shard = state.ledger.shard_of_wallet(id).await?.ok_or_else(not_found)?;
        let as_of_position = as_of_position(pool, shard, as_of.0.as_deref()).await?;
        let wallet = match as_of_position {
            Some(position) => history::wallet_at(pool, shard, id, position).await?,
            None => wallets::find(pool, shard, id).await?,
        };
        let wallet = wallet.ok_or_else(not_found)?;
        Ok(Reply(AnyWallet::of(wallet, as_of_position)))
    }

    /// List an account's wallets
    ///
    /// Returns the wallets of an account, newest first.
    #[oai(path = "/accounts/:id/wallets", method = "get", operation_id = "list_account_wallets")]
    async fn list(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the account.
        id: Path<i64>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Wallets per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<Wallet>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let shard = state.shard_of(AccountId(id.0)).await?;
        let found = wallets::list(&state.read_pool(), shard, AccountId(id.0), rows_of(page)).await?;
        Ok(listed(found, page, Wallet::from))
    }

    /// List a wallet's transactions
    ///
    /// Returns the transactions of the wallet of any account, newest first.
    #[oai(path = "/wallets/:id/transactions", method = "get", operation_id = "list_wallet_transactions")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn transactions(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the wallet.
        id: Path<i64>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Transactions per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
        /// Only transactions in this direction.
        #[oai(name = "type")]
        direction: Query<Option<TransactionType>>,
        /// Only transactions of this category.
        category: Query<Option<TransactionCategory>>,
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
        let (id, pool) = (WalletId(id.0), state.ledger.pool());
        let shard = state.ledger.shard_of_wallet(id).await?.ok_or_else(not_found)?;
        let wallet = wallets::find(pool, shard, id).await?.ok_or_else(not_found)?;
        let filter = TransactionFilter {
            account_id: wallet.account_id,
            wallet_id: Some(id),
            direction: direction.0.map(TransactionType::as_str),
            category: category.0.map(TransactionCategory::as_str),
            amount: None,
            balance_after: None,
            currency: None,
            order_id: order_id.0.map(OrderId),
            reference: reference.0,
            created_from: time("created_from", created_from.0)?,
            created_to: time("created_to", created_to.0)?,
        };
        let found = reader::list_transactions(pool, shard, &filter, rows_of(page)).await?;
        Ok(listed(found, page, Transaction::from))
    }

    /// Open a wallet
    ///
    /// Opens a wallet in a currency. An account can have one wallet per currency.
    #[oai(path = "/accounts/:id/wallets", method = "post", operation_id = "open_wallet")]
    async fn open(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// Unique identifier of the account.
        id: Path<i64>,
        body: StrictJson<OpenWallet>,
    ) -> Result<Created<Wallet>, ApiError> {
        let id = AccountId(id.0);
        let shard = state.shard_of(id).await?;
        let command = commands::OpenWallet { account_id: id, currency: parsed_currency(&body.0.currency)? };
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        Ok(Created(answered!(answer, CommandResult::Wallet(wallet) => wallet)?.into()))
    }

    /// Fund a wallet
    ///
    /// Adds incoming money to a wallet. Returns 201 with the new transaction, or 200 with the existing one if the
    /// reference and the amount are the same. Returns 409 if the reference was used with another amount. Above a configured
    /// amount, returns 202 with an approval, which another operator must grant. It takes the reference while it is pending.
    #[oai(path = "/wallets/:id/fund", method = "post", operation_id = "fund_wallet")]
    async fn fund(
        &self,
        caller: Caller<Finance>,
        state: State<'_>,
        /// Unique identifier of the wallet.
        id: Path<i64>,
        body: StrictJson<FundWallet>,
    ) -> Result<Supervised<Stored<Data<Transaction>, 201, 200>>, ApiError> {
        let id = WalletId(id.0);
        let shard = state.ledger.shard_of_wallet(id).await?.ok_or_else(not_found)?;
        let FundWallet { amount, reference, note } = body.0;
        let amount = crate::api::state::money("amount", amount.0)?;
        let fund = commands::FundWallet { account_id: None, wallet_id: id, amount, reference, note: note.map(Secret::new) };
        let command = Supervise { change: MoneyChange::Fund(fund), limits: state.approval_limits.clone() };
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        Supervised::of(answer, |answer| respond(ledger::Reply::Result(Box::new(answer)), funded))
    }

    /// Adjust a wallet
    ///
    /// Corrects a wallet's balance with a credit or a debit. A debit that exceeds the balance is refused. Above a configured
    /// amount, returns 202 with an approval, which another operator must grant. Send an `Idempotency-Key`: a correction has no
    /// reference, so a repeated request without a key is another correction.
    #[oai(path = "/wallets/:id/adjust", method = "post", operation_id = "adjust_wallet")]
    async fn adjust(
        &self,
        caller: Caller<Finance>,
        state: State<'_>,
        /// Unique identifier of the wallet.
        id: Path<i64>,
        /// Unique key that makes retries safe: a repeated request with the same key returns the first response.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        body: StrictJson<AdjustWallet>,
    ) -> Result<Supervised<Stored<Data<Transaction>, 201>, Stored<Data<Approval>, 202>>, ApiError> {
        let (id, caller) = (WalletId(id.0), caller.0.0);
        let shard = state.ledger.shard_of_wallet(id).await?.ok_or_else(not_found)?;
        let idempotency = key.of_operator(caller, &format!("/admin/v1/wallets/{}/adjust", id.0), &body.0, adjusted)?;
        let direction = match body.0.direction {
            TransactionType::Credit => Direction::Credit,
            TransactionType::Debit => Direction::Debit,
        };
        let amount = crate::api::state::money("amount", body.0.amount.0)?;
        let adjust = commands::AdjustWallet { wallet_id: id, direction, amount, reason: Secret::new(body.0.reason) };
        let command = Supervise { change: MoneyChange::Adjust(adjust), limits: state.approval_limits.clone() };
        let reply = state.ledger.submit(shard, command, origin(caller.actor()), idempotency).await?;
        // The stored response has the status and the body of either.
        respond(reply, adjusted).map(Supervised::Done)
    }
}
