//! Wallets: opened, funded and adjusted.

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
use crate::ledger::{self, Answer, Command, Rendered, history};
use crate::secrets::seal::Private;

/// A new wallet.
#[derive(Object)]
struct OpenWallet {
    /// ISO 4217, of a currency with at most two decimals.
    #[oai(validator(pattern = "^[A-Z]{3}$"))]
    currency: String,
}

impl FromFields for OpenWallet {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { currency: fields.required("currency", currency) }
    }
}

/// Money that came in.
#[derive(Object)]
struct FundWallet {
    /// More than "0.00".
    amount: Money,
    /// What the money came in under, used once: the same amount again under it is answered with
    /// the transaction that exists.
    #[oai(validator(min_length = 1, max_length = 100))]
    reference: String,
    /// For operators; sealed.
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

/// A correction of a balance.
#[derive(Object)]
struct AdjustWallet {
    /// Which way the money went.
    #[oai(rename = "type")]
    direction: TransactionType,
    /// More than "0.00".
    amount: Money,
    /// Why; sealed.
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

fn funded(answer: &Answer) -> Result<Rendered, serde_json::Error> {
    let Answer::Funding { transaction, is_new } = answer else { return unrenderable() };
    let status = if *is_new { 201 } else { 200 };
    Ok(Rendered { status, body: render(&Transaction::from(transaction.clone()))?, is_secret: false })
}

/// A wallet as it is or was, and whose it is.
#[derive(Object, Serialize)]
pub struct AnyWallet {
    /// Whose it is.
    account_id: i64,
    /// The position of the log that it is as of; null: as it is now.
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
    /// Find a wallet
    ///
    /// Any account's. With `as_of` as it was then; 404 if it was opened later, 400 for a position that the log has not
    /// reached.
    #[oai(path = "/wallets/:id", method = "get", operation_id = "get_any_wallet")]
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// The wallet's id.
        id: Path<i64>,
        /// As it was right after this position of the log, or at this time (RFC 3339, or a date: its midnight, UTC); by default as it is now.
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
    /// One per account and currency.
    #[oai(path = "/accounts/:id/wallets", method = "post", operation_id = "open_wallet")]
    async fn open(
        &self,
        caller: Caller<Admin>,
        state: State<'_>,
        /// The account's id.
        id: Path<i64>,
        body: StrictJson<OpenWallet>,
    ) -> Result<Created<Wallet>, ApiError> {
        let shard = state.shard_of(id.0).await?;
        let command = Command::OpenWallet { account_id: id.0, currency: parsed_currency(&body.0.currency)? };
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        Ok(Created(answered!(answer, Answer::Wallet(wallet) => wallet)?.into()))
    }

    /// Fund a wallet
    ///
    /// 201 with the new transaction; 200 with the one that exists, when the reference brought the
    /// same amount before; 409 when it brought another.
    #[oai(path = "/wallets/:id/fund", method = "post", operation_id = "fund_wallet")]
    async fn fund(
        &self,
        caller: Caller<Finance>,
        state: State<'_>,
        /// The wallet's id.
        id: Path<i64>,
        body: StrictJson<FundWallet>,
    ) -> Result<Stored<Data<Transaction>, 201, 200>, ApiError> {
        let shard = state.ledger.shard_of_wallet(id.0).await?.ok_or_else(not_found)?;
        let FundWallet { amount, reference, note } = body.0;
        let amount = crate::api::state::money("amount", amount.0)?;
        let command = Command::FundWallet { account_id: None, wallet_id: id.0, amount, reference, note: note.map(Private::new) };
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        respond(ledger::Reply::Answer(Box::new(answer)), funded)
    }

    /// Adjust a wallet
    ///
    /// A debit below zero is refused.
    #[oai(path = "/wallets/:id/adjust", method = "post", operation_id = "adjust_wallet")]
    async fn adjust(
        &self,
        caller: Caller<Finance>,
        state: State<'_>,
        /// The wallet's id.
        id: Path<i64>,
        body: StrictJson<AdjustWallet>,
    ) -> Result<Created<Transaction>, ApiError> {
        let shard = state.ledger.shard_of_wallet(id.0).await?.ok_or_else(not_found)?;
        let direction = match body.0.direction {
            TransactionType::Credit => Direction::Credit,
            TransactionType::Debit => Direction::Debit,
        };
        let amount = crate::api::state::money("amount", body.0.amount.0)?;
        let command = Command::AdjustWallet { wallet_id: id.0, direction, amount, reason: Private::new(body.0.reason) };
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        Ok(Created(answered!(answer, Answer::Transaction(transaction) => transaction)?.into()))
    }
}
