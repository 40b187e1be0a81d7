//! `/api/v1/sandbox`: what only a sandbox has. A node without `--sandbox` serves none of it.

use poem_openapi::param::Path;
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use super::body::StrictJson;
use super::error::ApiError;
use super::fields::{Fields, FromFields};
use super::idempotency::IdempotencyKey;
use super::outcome::{respond, unrenderable};
use super::principal::{Caller, ClientOperator};
use super::readers::money;
use super::reply::{Data, Stored, render};
use super::scalars::Money;
use super::state::{self, State, Tag, amounts, origin};
use super::transactions::Transaction;
use crate::ledger::{Answer, Command, Rendered};

/// Money to try things with.
#[derive(Object, Serialize)]
struct FundOwnWallet {
    /// More than "0.00".
    amount: Money,
}

impl FromFields for FundOwnWallet {
    fn from_fields(fields: &mut Fields<'_>) -> Self {
        Self { amount: fields.required("amount", money(amounts())) }
    }
}

fn funded(answer: &Answer) -> Result<Rendered, serde_json::Error> {
    let Answer::Funding { transaction, .. } = answer else { return unrenderable() };
    Ok(Rendered { status: 201, body: render(&Transaction::from(transaction.clone()))?, is_secret: false })
}

pub struct Sandbox;

#[OpenApi(prefix_path = "/api/v1/sandbox", tag = "Tag::Sandbox")]
impl Sandbox {
    /// Fund a wallet of your own
    ///
    /// In the sandbox only: elsewhere there is no such path, and the answer is 404. The money is
    /// there at once, and is none.
    #[oai(path = "/wallets/:id/fund", method = "post", operation_id = "fund_own_wallet")]
    async fn fund(
        &self,
        caller: Caller<ClientOperator>,
        state: State<'_>,
        /// The wallet's id.
        id: Path<i64>,
        /// A name for this request: the same one again is answered with the first answer.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        body: StrictJson<FundOwnWallet>,
    ) -> Result<Stored<Data<Transaction>, 201>, ApiError> {
        let (caller, request) = (caller.0, body.0);
        let path = format!("/api/v1/sandbox/wallets/{}/fund", id.0);
        let idempotency = key.of(&caller, &path, &request, funded)?;
        let command = Command::FundWallet {
            account_id: Some(caller.account_id),
            wallet_id: id.0,
            amount: state::money("amount", request.amount.0)?,
            // References are used once, by whomever.
            reference: format!("SANDBOX-{}", uuid::Uuid::now_v7()),
            note: None,
        };
        let reply = state.ledger.submit(caller.shard_id, command, origin(caller.actor()), idempotency).await?;
        respond(reply, funded)
    }
}
