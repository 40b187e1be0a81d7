//! `/admin/v1/payouts`: payouts of every account, and how operators settle them.

use chrono::{DateTime, Utc};
use ledger_events::{AccountId, BeneficiaryId, PayoutId, WalletId, payout};
use ledger_projections::payouts::{self, PayoutFilter};
use poem_openapi::param::{Path, Query};
use poem_openapi::{Enum, Object, OpenApi};
use serde::Serialize;

use super::approvals::Supervised;
use crate::access::Operator;
use crate::api::body::StrictJson;
use crate::api::error::ApiError;
use crate::api::fields::{Fields, body};
use crate::api::outcome::answered;
use crate::api::page::Page;
use crate::api::payouts::{Payout, PayoutStatus, texts_of};
use crate::api::principal::{Caller, Finance};
use crate::api::readers::{one_of, text};
use crate::api::reply::{Listed, Plural, Reply};
use crate::api::state::{State, Tag, newest, not_found, origin, rows_of_each, time};
use crate::ledger::commands::{MoneyChange, PayoutOutcome, Supervise};
use crate::ledger::reasons::MAX_REASON;
use crate::ledger::texts::Texts;
use crate::ledger::{CommandResult, commands};
use crate::secrets::seal::Secret;

/// A payout with the account that it belongs to.
#[derive(Object, Serialize)]
struct AccountPayout {
    /// Account that the payout belongs to.
    account_id: i64,
    #[oai(flatten)]
    #[serde(flatten)]
    payout: Payout,
}

impl Plural for AccountPayout {
    const PLURAL: &'static str = "payouts";
}

/// Outcome of a payout.
///
/// - `PAID`: the money was sent.
/// - `FAILED`: the money could not be sent and returns to the wallet.
#[derive(Clone, Copy, Default, PartialEq, Eq, Enum)]
#[oai(rename_all = "SCREAMING_SNAKE_CASE")]
enum SettledStatus {
    #[default]
    Paid,
    Failed,
}

body! {
    /// Outcome to record for a payout.
    #[derive(Object)]
    struct SettlePayout {
        /// Outcome of the payout.
        status: SettledStatus = required(one_of),
        /// Reason for the failure, shown to the client. Allowed with `FAILED` only. Stored encrypted.
        failure_reason: Option<String> = optional(text(1..=MAX_REASON)),
    }
    check SettlePayout::check
}

impl SettlePayout {
    /// Checks the rules between fields.
    fn check(&self, fields: &mut Fields<'_>) {
        if self.status == SettledStatus::Paid && self.failure_reason.is_some() {
            fields.problem("failure_reason", "is allowed with FAILED only");
        }
    }
}

pub struct Payouts;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Payouts")]
impl Payouts {
    /// List payouts
    ///
    /// Returns the payouts of all accounts, newest first.
    #[oai(path = "/payouts", method = "get", operation_id = "list_all_payouts")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn list(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Payouts per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
        /// Only payouts of this account.
        account_id: Query<Option<i64>>,
        /// Only payouts with this status.
        status: Query<Option<PayoutStatus>>,
        /// Only payouts to this beneficiary.
        beneficiary_id: Query<Option<i64>>,
        /// Only payouts from this wallet.
        wallet_id: Query<Option<i64>>,
        /// Only payouts with this client reference.
        client_reference: Query<Option<String>>,
        /// Only payouts requested at or after this time.
        created_from: Query<Option<DateTime<Utc>>>,
        /// Only payouts requested before this time.
        created_to: Query<Option<DateTime<Utc>>>,
    ) -> Result<Listed<AccountPayout>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let filter = PayoutFilter {
            account_id: account_id.0.map(AccountId),
            status: status.0.map(Into::into),
            beneficiary_id: beneficiary_id.0.map(BeneficiaryId),
            wallet_id: wallet_id.0.map(WalletId),
            client_reference: client_reference.0,
            created_from: time("created_from", created_from.0)?,
            created_to: time("created_to", created_to.0)?,
        };
        let shards = state.shards_of(filter.account_id).await?;
        let (pool, mut found, mut total) = (state.read_pool(), Vec::new(), 0);
        for shard in &shards {
            let part = payouts::list(&pool, *shard, &filter, rows_of_each(page, shards.len())).await?;
            found.push((*shard, part.rows));
            total += u64::try_from(part.total).unwrap_or_default();
        }
        let found = newest(found, page, |payout: &payout::Payout| payout.created_at);
        let mut texts = Texts::new();
        for shard in shards {
            let of_shard: Vec<payout::Payout> =
                found.iter().filter(|(at, _)| *at == shard).map(|(_, payout)| payout.clone()).collect();
            texts.extend(texts_of(&pool, &state.keyring, shard, &of_shard).await?);
        }
        let view = |payout: payout::Payout| AccountPayout {
            account_id: payout.requested.account_id.0,
            payout: Payout::with_texts(payout, &texts),
        };
        Ok(Listed::page(found.into_iter().map(|(_, payout)| view(payout)).collect(), page, total))
    }

    /// Retrieve any payout
    ///
    /// Returns the payout of any account as it is now.
    #[oai(path = "/payouts/:id", method = "get", operation_id = "get_any_payout")]
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the payout.
        id: Path<i64>,
    ) -> Result<Reply<AccountPayout>, ApiError> {
        let id = PayoutId(id.0);
        let shard = state.ledger.shard_of_payout(id).await?.ok_or_else(not_found)?;
        let payout = payouts::find_any(state.ledger.pool(), shard, id).await?.ok_or_else(not_found)?;
        let texts = texts_of(state.ledger.pool(), &state.keyring, shard, std::slice::from_ref(&payout)).await?;
        let account_id = payout.requested.account_id.0;
        Ok(Reply(AccountPayout { account_id, payout: Payout::with_texts(payout, &texts) }))
    }

    /// Settle a payout
    ///
    /// Records the outcome of a payout with the status `PENDING`: `PAID`, or `FAILED`, which returns the amount to the
    /// wallet. Repeating the same outcome returns the payout unchanged. Any other outcome for a settled payout returns
    /// 409. For `PAID` above a configured amount, returns 202 with an approval, which another operator must grant. While
    /// it is pending, the payout cannot be cancelled, and `FAILED` returns 409.
    #[oai(path = "/payouts/:id", method = "put", operation_id = "settle_payout")]
    async fn settle(
        &self,
        caller: Caller<Finance>,
        state: State<'_>,
        /// Unique identifier of the payout.
        id: Path<i64>,
        body: StrictJson<SettlePayout>,
    ) -> Result<Supervised<Reply<AccountPayout>>, ApiError> {
        let id = PayoutId(id.0);
        let shard = state.ledger.shard_of_payout(id).await?.ok_or_else(not_found)?;
        let outcome = match body.0.status {
            SettledStatus::Paid => PayoutOutcome::Paid,
            SettledStatus::Failed => PayoutOutcome::Failed { reason: body.0.failure_reason.map(Secret::new) },
        };
        let settle = commands::SettlePayout { payout_id: id, outcome };
        let command = Supervise { change: MoneyChange::Settle(settle), limits: state.approval_limits.clone() };
        let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
        Supervised::of(answer, |answer| {
            let view = answered!(answer, CommandResult::Payout(view) => view)?;
            let account_id = view.payout.requested.account_id;
            Ok(Reply(AccountPayout { account_id: account_id.0, payout: Payout::of(view.payout, view.failure_reason.as_ref()) }))
        })
    }
}
