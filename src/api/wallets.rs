//! `/api/v1/wallets`: the wallets of an account and their balances.

use ledger_events::wallet;
use ledger_projections::wallets;
use poem_openapi::param::Query;
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use super::error::ApiError;
use super::page::Page;
use super::principal::Caller;
use super::reply::{Listed, Plural};
use super::scalars::{Money, Timestamp};
use super::state::{State, Tag, listed, rows_of};

/// A wallet. An account has at most one per currency.
#[derive(Object, Serialize)]
pub struct Wallet {
    /// Unique identifier of the wallet.
    id: i64,
    /// Currency of the wallet, as an ISO 4217 code.
    currency: String,
    /// Current balance, never negative.
    balance: Money,
    /// Time of the latest change of the balance.
    updated_at: Timestamp,
}

impl Plural for Wallet {
    const PLURAL: &'static str = "wallets";
}

impl From<wallet::Wallet> for Wallet {
    fn from(wallet: wallet::Wallet) -> Self {
        Self {
            id: wallet.id.0,
            currency: wallet.currency.as_str().to_owned(),
            balance: wallet.balance.into(),
            updated_at: wallet.updated_at.into(),
        }
    }
}

pub struct Wallets;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Wallets")]
impl Wallets {
    /// List wallets
    ///
    /// Returns the account's wallets, newest first.
    #[oai(path = "/wallets", method = "get", operation_id = "list_wallets")]
    async fn list(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Wallets per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<Wallet>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let found = wallets::list(&state.read_pool(), caller.0.shard_id, caller.0.account_id, rows_of(page)).await?;
        Ok(listed(found, page, Wallet::from))
    }
}
