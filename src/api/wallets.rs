//! `/api/v1/wallets`: balances.

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

/// A wallet: one per currency.
#[derive(Object, Serialize)]
pub struct Wallet {
    /// Its id.
    id: i64,
    /// ISO 4217.
    currency: String,
    /// Never negative.
    balance: Money,
    /// When it last changed.
    updated_at: Timestamp,
}

impl Plural for Wallet {
    const PLURAL: &'static str = "wallets";
}

impl From<wallet::Wallet> for Wallet {
    fn from(wallet: wallet::Wallet) -> Self {
        Self {
            id: wallet.id,
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
    /// Newest first.
    #[oai(path = "/wallets", method = "get", operation_id = "list_wallets")]
    async fn list(
        &self,
        caller: Caller,
        state: State<'_>,
        /// From 1.
        page: Query<Option<i64>>,
        /// Wallets on a page: 1 to 100, by default 20.
        limit: Query<Option<i64>>,
    ) -> Result<Listed<Wallet>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let found = wallets::list(state.ledger.pool(), caller.0.shard_id, caller.0.account_id, rows_of(page)).await?;
        Ok(listed(found, page, Wallet::from))
    }
}
