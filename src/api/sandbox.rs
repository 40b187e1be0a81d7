//! `/api/v1/sandbox`: operations that only a sandbox has. A node without `--sandbox` does not serve them.

use ledger_events::WalletId;
use poem_openapi::param::Path;
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use super::body::StrictJson;
use super::error::ApiError;
use super::fields::body;
use super::idempotency::IdempotencyKey;
use super::outcome::{respond, unrenderable};
use super::principal::{Caller, ClientOperator};
use super::readers::money;
use super::reply::{Data, Stored, render};
use super::scalars::Money;
use super::state::{self, State, Tag, amounts, origin};
use super::transactions::Transaction;
use crate::ledger::{CommandResult, StoredResponse, commands};

body! {
    /// Test money to add to a wallet.
    #[derive(Object, Serialize)]
    struct FundOwnWallet {
        /// Amount to add, greater than `0.00`.
        amount: Money = required(money(amounts())),
    }
}

fn funded(answer: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
    let CommandResult::Funding { transaction, .. } = answer else { return unrenderable() };
    Ok(StoredResponse { status: 201, body: render(&Transaction::from(transaction.clone()))?, is_secret: false })
}

pub struct Sandbox;

#[OpenApi(prefix_path = "/api/v1/sandbox", tag = "Tag::Sandbox")]
impl Sandbox {
    /// Fund your own wallet
    ///
    /// Adds test money to one of your wallets. It is available at once and has no real value. This operation exists in the
    /// sandbox only; elsewhere it returns 404.
    #[oai(path = "/wallets/:id/fund", method = "post", operation_id = "fund_own_wallet")]
    async fn fund(
        &self,
        caller: Caller<ClientOperator>,
        state: State<'_>,
        /// Unique identifier of the wallet.
        id: Path<i64>,
        /// Unique key that makes retries safe: a repeated request with the same key returns the first response.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        body: StrictJson<FundOwnWallet>,
    ) -> Result<Stored<Data<Transaction>, 201>, ApiError> {
        let (caller, request) = (caller.0, body.0);
        let path = format!("/api/v1/sandbox/wallets/{}/fund", id.0);
        let idempotency = key.of(&caller, &path, &request, funded)?;
        let command = commands::FundWallet {
            account_id: Some(caller.account_id),
            wallet_id: WalletId(id.0),
            amount: state::money("amount", request.amount.0)?,
            // A funding reference can be used only once, so each one is unique.
            reference: format!("SANDBOX-{}", uuid::Uuid::now_v7()),
            note: None,
        };
        let reply = state.ledger.submit(caller.shard_id, command, origin(caller.actor()), idempotency).await?;
        respond(reply, funded)
    }
}
