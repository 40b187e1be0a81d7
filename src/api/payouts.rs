//! `/api/v1/payouts`: payments from a wallet to a beneficiary.

use chrono::{DateTime, Utc};
use ledger_database::PgPool;
use ledger_events::payout::{self, PayoutStatus as Status};
use ledger_events::{BeneficiaryId, PayoutId, ShardId, WalletId};
use ledger_projections::payouts::{self, PayoutFilter};
use poem_openapi::param::{Path, Query};
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;

use super::body::{NoFields, StrictJson};
use super::error::ApiError;
use super::fields::body;
use super::idempotency::IdempotencyKey;
use super::mirror::mirror;
use super::outcome::{respond, unrenderable};
use super::page::Page;
use super::principal::{Caller, ClientOwner};
use super::readers::{integer, line, money};
use super::reply::{Data, Listed, Plural, Reply, Stored, render};
use super::scalars::{Money, Timestamp};
use super::state::{self, State, Tag, amounts, listed, not_found, origin, rows_of, time};
use crate::ledger::command_result::PayoutView;
use crate::ledger::commands;
use crate::ledger::texts::{self, FAILURE_REASON, Texts};
use crate::ledger::{Command, CommandResult, StoredResponse};
use crate::secrets::seal::{Keyring, Secret};

body! {
    /// A payout to request. The wallet is debited at once; an operator sends the money.
    #[derive(Object, Serialize)]
    struct RequestPayout {
        /// Beneficiary that receives the money.
        beneficiary_id: i64 = required(integer(1..=i64::MAX)),
        /// Wallet to pay from. It must be in the beneficiary's currency.
        wallet_id: i64 = required(integer(1..=i64::MAX)),
        /// Amount to pay, greater than `0.00`.
        amount: Money = required(money(amounts())),
        /// Your own reference for the payout, unique within the account forever. Repeating the same request returns the
        /// existing payout with status 200. A different request with the same reference fails with 409
        /// `E_DUPLICATE_REFERENCE`.
        client_reference: Option<String> = optional(line(1..=100)),
    }
}

/// Status of a payout. `PAID`, `FAILED` and `CANCELLED` are final.
///
/// - `PENDING`: debited from the wallet and waiting for an operator to settle it.
/// - `PAID`: the money was sent.
/// - `FAILED`: the money could not be sent and was returned to the wallet.
/// - `CANCELLED`: cancelled by the client, and the money was returned to the wallet.
#[derive(Debug, Clone, Copy, Enum, Serialize)]
#[oai(rename_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PayoutStatus {
    /// Debited from the wallet and not settled yet.
    Pending,
    /// The money was sent.
    Paid,
    /// The money could not be sent and was returned to the wallet.
    Failed,
    /// Cancelled by the client, and the money was returned to the wallet.
    Cancelled,
}

mirror!(PayoutStatus, Status: Pending, Paid, Failed, Cancelled);

/// A payment from a wallet to a beneficiary.
#[derive(Object, Serialize)]
pub struct Payout {
    /// Unique identifier of the payout.
    id: i64,
    /// Unique identifier of the beneficiary that receives the money.
    beneficiary_id: i64,
    /// Unique identifier of the wallet that was debited.
    wallet_id: i64,
    /// Amount debited from the wallet.
    amount: Money,
    /// Currency of the amount, as an ISO 4217 code.
    currency: String,
    /// Your own reference for the payout, as sent when it was requested.
    client_reference: Option<String>,
    /// Current status of the payout.
    status: PayoutStatus,
    /// Reason given by the operator for a failed payout. Null if there is none or the data is erased.
    failure_reason: Option<String>,
    /// Time at which the payout was requested.
    created_at: Timestamp,
    /// Time at which the payout became `PAID`, `FAILED` or `CANCELLED`; null while it is `PENDING`.
    settled_at: Option<Timestamp>,
}

impl Plural for Payout {
    const PLURAL: &'static str = "payouts";
}

impl Payout {
    pub fn of(payout: payout::Payout, failure_reason: Option<&Secret>) -> Self {
        let requested = payout.requested;
        Self {
            id: payout.id.0,
            beneficiary_id: requested.beneficiary_id.0,
            wallet_id: requested.wallet_id.0,
            amount: requested.amount.into(),
            currency: requested.currency.as_str().to_owned(),
            client_reference: requested.client_reference,
            status: payout.status.into(),
            failure_reason: failure_reason.map(|text| text.expose().to_owned()),
            created_at: payout.created_at.into(),
            settled_at: payout.settled_at.map(Into::into),
        }
    }

    /// Builds a payout, taking its failure reason from the texts of a whole page.
    pub fn with_texts(payout: payout::Payout, texts: &Texts) -> Self {
        let reason = texts.get(&(FAILURE_REASON, payout.id.0));
        Self::of(payout, reason)
    }
}

/// Loads the failure reasons of one shard's payouts, in one query. Without failed payouts there is no query.
pub async fn texts_of(pool: &PgPool, keyring: &Keyring, shard: ShardId, payouts: &[payout::Payout]) -> Result<Texts, ApiError> {
    let failed = payouts.iter().filter(|payout| payout.status == Status::Failed);
    let wanted: Vec<_> = failed.map(|payout| (FAILURE_REASON, payout.id.0)).collect();
    Ok(texts::load(pool, keyring, shard, &wanted).await?)
}

fn requested(answer: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
    let CommandResult::Payout(view) = answer else { return unrenderable() };
    rendered(view, if view.is_new { 201 } else { 200 })
}

fn cancelled(answer: &CommandResult) -> Result<StoredResponse, serde_json::Error> {
    let CommandResult::Payout(view) = answer else { return unrenderable() };
    rendered(view, 200)
}

/// Renders a payout. The stored response is sealed if it contains free text from people, as such text is everywhere.
fn rendered(view: &PayoutView, status: u16) -> Result<StoredResponse, serde_json::Error> {
    let body = render(&Payout::of(view.payout.clone(), view.failure_reason.as_ref()))?;
    Ok(StoredResponse { status, body, is_secret: view.failure_reason.is_some() })
}

pub struct Payouts;

#[OpenApi(prefix_path = "/api/v1", tag = "Tag::Payouts")]
impl Payouts {
    /// Request a payout
    ///
    /// Debits the wallet and records the payout in one step. If either fails, nothing happens. Returns 201 with the new
    /// payout, which is `PENDING` until an operator settles it. Returns 200 with the existing payout if the same request
    /// was sent with the same `client_reference` before.
    #[oai(path = "/payouts", method = "post", operation_id = "request_payout")]
    async fn request(
        &self,
        caller: Caller<ClientOwner>,
        state: State<'_>,
        /// Unique key that makes retries safe: a repeated request with the same key returns the first response.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        body: StrictJson<RequestPayout>,
    ) -> Result<Stored<Data<Payout>, 201, 200>, ApiError> {
        let (caller, request) = (caller.0, body.0);
        let idempotency = key.of(&caller, "/api/v1/payouts", &request, requested)?;
        let command = Command::RequestPayout(commands::RequestPayout {
            account_id: caller.account_id,
            beneficiary_id: BeneficiaryId(request.beneficiary_id),
            wallet_id: WalletId(request.wallet_id),
            amount: state::money("amount", request.amount.0)?,
            client_reference: request.client_reference,
        });
        let reply = state.ledger.submit(caller.shard_id, command, origin(caller.actor()), idempotency).await?;
        respond(reply, requested)
    }

    /// List payouts
    ///
    /// Returns the account's payouts, newest first.
    #[oai(path = "/payouts", method = "get", operation_id = "list_payouts")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn list(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Payouts per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
        /// Only payouts with this status.
        status: Query<Option<PayoutStatus>>,
        /// Only payouts to this beneficiary.
        beneficiary_id: Query<Option<i64>>,
        /// Only payouts from this wallet.
        wallet_id: Query<Option<i64>>,
        /// Only the payout with this client reference.
        client_reference: Query<Option<String>>,
        /// Only payouts requested at or after this time.
        created_from: Query<Option<DateTime<Utc>>>,
        /// Only payouts requested before this time.
        created_to: Query<Option<DateTime<Utc>>>,
    ) -> Result<Listed<Payout>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let filter = PayoutFilter {
            account_id: Some(caller.0.account_id),
            status: status.0.map(Into::into),
            beneficiary_id: beneficiary_id.0.map(BeneficiaryId),
            wallet_id: wallet_id.0.map(WalletId),
            client_reference: client_reference.0,
            created_from: time("created_from", created_from.0)?,
            created_to: time("created_to", created_to.0)?,
        };
        let shard = caller.0.shard_id;
        let pool = state.read_pool();
        let found = payouts::list(&pool, shard, &filter, rows_of(page)).await?;
        let texts = texts_of(&pool, &state.keyring, shard, &found.rows).await?;
        Ok(listed(found, page, |payout| Payout::with_texts(payout, &texts)))
    }

    /// Retrieve a payout
    ///
    /// Returns the payout as it is now.
    #[oai(path = "/payouts/:id", method = "get", operation_id = "get_payout")]
    async fn get(
        &self,
        caller: Caller,
        state: State<'_>,
        /// Unique identifier of the payout.
        id: Path<i64>,
    ) -> Result<Reply<Payout>, ApiError> {
        let shard = caller.0.shard_id;
        let found = payouts::find(state.ledger.pool(), shard, caller.0.account_id, PayoutId(id.0)).await?;
        let payout = found.ok_or_else(not_found)?;
        let texts = texts_of(state.ledger.pool(), &state.keyring, shard, std::slice::from_ref(&payout)).await?;
        Ok(Reply(Payout::with_texts(payout, &texts)))
    }

    /// Cancel a payout
    ///
    /// Cancels a `PENDING` payout and returns its amount to the wallet. Fails with 409 `E_PAYOUT_NOT_CANCELLABLE` if the
    /// payout has any other status.
    #[oai(path = "/payouts/:id/cancel", method = "post", operation_id = "cancel_payout")]
    async fn cancel(
        &self,
        caller: Caller<ClientOwner>,
        state: State<'_>,
        /// Unique identifier of the payout.
        id: Path<i64>,
        /// Unique key that makes retries safe: a repeated request with the same key returns the first response.
        #[oai(name = "Idempotency-Key")]
        key: IdempotencyKey,
        _no_fields: NoFields,
    ) -> Result<Stored<Data<Payout>>, ApiError> {
        let caller = caller.0;
        let idempotency = key.of(&caller, &format!("/api/v1/payouts/{}/cancel", id.0), &(), cancelled)?;
        let command = commands::CancelPayout { account_id: caller.account_id, payout_id: PayoutId(id.0) };
        let reply = state.ledger.submit(caller.shard_id, command, origin(caller.actor()), idempotency).await?;
        respond(reply, cancelled)
    }
}
