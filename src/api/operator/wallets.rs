//! `/admin/v1/wallets`: wallets of every account, and how operators open, fund and adjust them.

use ledger_events::wallet::{self, Direction};
use ledger_projections::wallets;
use poem_openapi::param::{Path, Query};
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use super::history::as_of_position;
use crate::access::Operator;
use crate::api::body::StrictJson;
use crate::api::error::ApiError;
use crate::api::fields::{Fields, FromFields};
use crate::api::outcome::{answered, respond, unrenderable};
use crate::api::principal::{Admin, Caller, Finance};
use crate::api::readers::{line, money, one_of, text};
use crate::api::reference::currency;
use crate::api::reply::{Created, Data, Reply, Stored, render};
use crate::api::scalars::Money;
use crate::api::state::{State, Tag, amounts, not_found, origin, parsed_currency};
use crate::api::transactions::{Transaction, TransactionType};
use crate::api::wallets::Wallet;
use crate::ledger::{self, CommandResult, StoredResponse, commands, history};
use crate::secrets::seal::Secret;

/// A new wallet.
#[derive(Object)]
struct OpenWallet {
    /// Currency of the wallet, as an ISO 4217 code. It must have at most two decimals.
    #[oai(validator(pattern = "^[A-Z]{3}$"))]
    currency: String,
}

impl FromFields for OpenWallet {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { currency: fields.required("currency", currency) }
    }
}

/// Money that came in for a wallet.
#[derive(Object)]
struct FundWallet {
    /// Amount to add, greater than 0.00.
    amount: Money,
    /// Unique reference of the incoming payment. Sending the same reference with the same amount again returns the
    /// existing transaction.
    #[oai(validator(min_length = 1, max_length = 100))]
    reference: String,
    /// Note for operators. Stored encrypted.
    #[oai(validator(min_length = 1, max_length = 500))]
    note: Option<String>,
}

impl FromFields for FundWallet {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self {
            amount: fields.required("amount", money(amounts())),
            reference: fields.required("reference", line(1..=100)),
            note: fields.optional("note", text(1..=500)),
        }
    }
}

/// Correction of a wallet's balance.
#[derive(Object)]
struct AdjustWallet {
    /// Direction of the correction.
    #[oai(rename = "type")]
    direction: TransactionType,
    /// Amount of the correction, greater than 0.00.
    amount: Money,
    /// Reason for the correction. Stored encrypted.
    #[oai(validator(min_length = 1, max_length = 500))]
    reason: String,
}

impl FromFields for AdjustWallet {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        let types = [("CREDIT", TransactionType::Credit), ("DEBIT", TransactionType::Debit)];
        Self {
            direction: fields.required("type", one_of(&types)),
            amount: fields.required("amount", money(amounts())),
            reason: fields.required("reason", text(1..=500)),
        }
    }
}

fn funded(answer: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
    let CommandResult::Funding { transaction, is_new } = answer else { return unrenderable() };
    let status = if *is_new { 201 } else { 200 };
    Ok(StoredResponse { status, body: render(&Transaction::from(transaction.clone()))?, is_secret: false })
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
        Self { account_id: wallet.account_id, as_of_position, wallet: wallet.into() }
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
        let pool = state.ledger.pool();
        let shard = state.ledger.shard_of_wallet(id.0).await?.ok_or_else(not_found)?;
        let as_of_position = as_of_position(pool, shard, as_of.0.as_deref()).await?;
        let wallet = match as_of_position {
            Some(position) => history::wallet_at(pool, shard, id.0, position).await?,
            None => wallets::find(pool, shard, id.0).await?,
        };
        let wallet = wallet.ok_or_else(not_found)?;
        Ok(Reply(AnyWallet::of(wallet, as_of_position)))
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
        let shard = state.shard_of(id.0).await?;
        let command = commands::OpenWallet { account_id: id.0, currency: parsed_currency(&body.0.currency)? };
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        Ok(Created(answered!(answer, CommandResult::Wallet(wallet) => wallet)?.into()))
    }

    /// Fund a wallet
    ///
    /// Adds incoming money to a wallet. Returns 201 with the new transaction, or 200 with the existing one if the
    /// reference and the amount are the same. Returns 409 if the reference was used with another amount.
    #[oai(path = "/wallets/:id/fund", method = "post", operation_id = "fund_wallet")]
    async fn fund(
        &self,
        caller: Caller<Finance>,
        state: State<'_>,
        /// Unique identifier of the wallet.
        id: Path<i64>,
        body: StrictJson<FundWallet>,
    ) -> Result<Stored<Data<Transaction>, 201, 200>, ApiError> {
        let shard = state.ledger.shard_of_wallet(id.0).await?.ok_or_else(not_found)?;
        let FundWallet { amount, reference, note } = body.0;
        let amount = crate::api::state::money("amount", amount.0)?;
        let command = commands::FundWallet { account_id: None, wallet_id: id.0, amount, reference, note: note.map(Secret::new) };
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        respond(ledger::Reply::Result(Box::new(answer)), funded)
    }

    /// Adjust a wallet
    ///
    /// Corrects a wallet's balance with a credit or a debit. A debit that exceeds the balance is refused.
    #[oai(path = "/wallets/:id/adjust", method = "post", operation_id = "adjust_wallet")]
    async fn adjust(
        &self,
        caller: Caller<Finance>,
        state: State<'_>,
        /// Unique identifier of the wallet.
        id: Path<i64>,
        body: StrictJson<AdjustWallet>,
    ) -> Result<Created<Transaction>, ApiError> {
        let shard = state.ledger.shard_of_wallet(id.0).await?.ok_or_else(not_found)?;
        let direction = match body.0.direction {
            TransactionType::Credit => Direction::Credit,
            TransactionType::Debit => Direction::Debit,
        };
        let amount = crate::api::state::money("amount", body.0.amount.0)?;
        let command = commands::AdjustWallet { wallet_id: id.0, direction, amount, reason: Secret::new(body.0.reason) };
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        Ok(Created(answered!(answer, CommandResult::Transaction(transaction) => transaction)?.into()))
    }
}
