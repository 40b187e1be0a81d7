//! `/client/api/wallets/{id}/notice` and `/client/api/wallets/notices`: notices of low balances, as the account's users set them.

use ledger_events::{Money as Amount, WalletId};
use ledger_projections::{low_balance, wallets};
use poem_openapi::param::Path;
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use super::body::StrictJson;
use super::error::ApiError;
use super::fields::{Fields, body};
use super::outcome::answered;
use super::principal::{Caller, PortalOperator, PortalUser};
use super::readers;
use super::reply::{Listed, Plural, Reply};
use super::scalars::Money;
use super::state::{State, Tag, amounts, money, not_found, origin};
use crate::ledger::{CommandResult, commands};

body! {
    /// Amount below which the account wants to be told about a wallet's balance.
    #[derive(Object)]
    struct SetNotice {
        /// Amount, greater than 0.00; null for no notices.
        below: Option<Option<Money>> = nullable(readers::money(amounts())),
    }
    check SetNotice::check
}

impl SetNotice {
    /// Checks that the amount is given, if only as null.
    fn check(&self, fields: &mut Fields<'_>) {
        if self.below.is_none() {
            fields.missing("below");
        }
    }
}

/// Notice of a low balance.
#[derive(Object, Serialize)]
struct LowBalanceNotice {
    /// Wallet that the notice is about.
    wallet_id: i64,
    /// Amount that the balance must fall below; null for no notices.
    below: Option<Money>,
}

impl Plural for LowBalanceNotice {
    const PLURAL: &'static str = "notices";
}

pub struct Notices;

#[OpenApi(prefix_path = "/client/api", tag = "Tag::Wallets")]
impl Notices {
    /// List low-balance notices
    ///
    /// Returns the notices of all wallets of the account that have an amount, by the ID of the wallet. A change shows within
    /// seconds.
    #[oai(path = "/wallets/notices", method = "get", operation_id = "list_low_balance_notices")]
    async fn list(&self, caller: Caller<PortalUser>, state: State<'_>) -> Result<Listed<LowBalanceNotice>, ApiError> {
        let caller = caller.0;
        let found = low_balance::of_account(state.ledger.pool(), caller.shard_id, caller.account_id).await?;
        let notice = |(wallet, below): (WalletId, Amount)| LowBalanceNotice { wallet_id: wallet.0, below: Some(below.into()) };
        Ok(Listed::whole(found.into_iter().map(notice).collect()))
    }

    /// Retrieve the low-balance notice of a wallet
    ///
    /// Returns the amount below which the account's owners are told about the balance. A change shows within seconds.
    #[oai(path = "/wallets/:id/notice", method = "get", operation_id = "get_low_balance_notice")]
    async fn get(
        &self,
        caller: Caller<PortalUser>,
        state: State<'_>,
        /// Unique identifier of the wallet.
        id: Path<i64>,
    ) -> Result<Reply<LowBalanceNotice>, ApiError> {
        let (pool, caller) = (state.ledger.pool(), caller.0);
        let wallet = wallets::find(pool, caller.shard_id, WalletId(id.0)).await?;
        let wallet = wallet.filter(|wallet| wallet.account_id == caller.account_id).ok_or_else(not_found)?;
        let below = low_balance::below(pool, caller.shard_id, caller.account_id, wallet.id).await?;
        Ok(Reply(LowBalanceNotice { wallet_id: wallet.id.0, below: below.map(Into::into) }))
    }

    /// Set the low-balance notice of a wallet
    ///
    /// A movement that takes the balance below the amount makes one notice to the account's owners. There is no further one
    /// until the balance has been at least the amount again. Requires the role operator.
    #[oai(path = "/wallets/:id/notice", method = "put", operation_id = "set_low_balance_notice")]
    async fn set(
        &self,
        caller: Caller<PortalOperator>,
        state: State<'_>,
        /// Unique identifier of the wallet.
        id: Path<i64>,
        body: StrictJson<SetNotice>,
    ) -> Result<Reply<LowBalanceNotice>, ApiError> {
        let caller = caller.0;
        let below = body.0.below.flatten().map(|below| money("below", below.0)).transpose()?;
        let command = commands::SetLowBalanceNotice { account_id: caller.account_id, wallet_id: WalletId(id.0), below };
        let answer = state.ledger.execute(caller.shard_id, command, origin(caller.actor())).await?;
        let wallet = answered!(answer, CommandResult::Wallet(wallet) => wallet)?;
        Ok(Reply(LowBalanceNotice { wallet_id: wallet.id.0, below: below.map(Into::into) }))
    }
}
