//! `/admin/v1/approvals`: movements of money that wait for a second operator.

use chrono::{DateTime, Utc};
use ledger_events::approval::{self, Action, ApprovalStatus as Stored};
use ledger_events::wallet::Direction;
use ledger_events::{Actor, ApprovalId, PayoutId, WalletId};
use ledger_projections::approvals::{self, ApprovalFilter, ListedStatus};
use poem::{IntoResponse, Response};
use poem_openapi::param::{Path, Query};
use poem_openapi::registry::{MetaResponses, Registry};
use poem_openapi::{ApiResponse, Enum, Object, OpenApi};
use serde::Serialize;

use crate::access::Operator;
use crate::api::body::{NoFields, OptionalJson};
use crate::api::error::ApiError;
use crate::api::fields::body;
use crate::api::outcome::answered;
use crate::api::page::Page;
use crate::api::principal::{Caller, Finance};
use crate::api::readers::text;
use crate::api::reply::{Accepted, Listed, Plural, Reply};
use crate::api::scalars::{Money, Timestamp};
use crate::api::state::{ApiState, State, Tag, newest, not_found, origin, rows_of_each};
use crate::api::transactions::TransactionType;
use crate::ledger::command_result::ApprovalView;
use crate::ledger::reasons::MAX_REASON;
use crate::ledger::texts::{self, APPROVAL_NOTE, APPROVAL_REASON, Texts};
use crate::ledger::{CommandResult, commands};
use crate::secrets::seal::Secret;

/// Change that waits for approval.
///
/// - `FUND`: a funding of the wallet.
/// - `ADJUST`: a correction of the wallet's balance.
/// - `PAYOUT`: the settlement of a payout as `PAID`.
#[derive(Clone, Copy, Enum, Serialize)]
#[oai(rename_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum ApprovalAction {
    Fund,
    Adjust,
    Payout,
}

/// Status of an approval. All but `PENDING` are final.
///
/// - `PENDING`: waiting for a second operator.
/// - `GRANTED`: approved, and the change was made.
/// - `REJECTED`: refused by a second operator.
/// - `EXPIRED`: nobody decided it in time.
/// - `WITHDRAWN`: taken back by the operator who requested it.
#[derive(Clone, Copy, Enum, Serialize)]
#[oai(rename_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum ApprovalStatus {
    Pending,
    Granted,
    Rejected,
    Expired,
    Withdrawn,
}

impl ApprovalStatus {
    fn of(approval: &approval::Approval, now: DateTime<Utc>) -> ApprovalStatus {
        match approval.status {
            Stored::Granted => Self::Granted,
            Stored::Rejected => Self::Rejected,
            Stored::Withdrawn => Self::Withdrawn,
            Stored::Pending if approval.is_pending_at(now) => Self::Pending,
            Stored::Pending => Self::Expired,
        }
    }
}

impl From<ApprovalStatus> for ListedStatus {
    fn from(status: ApprovalStatus) -> Self {
        match status {
            ApprovalStatus::Pending => Self::Pending,
            ApprovalStatus::Granted => Self::Granted,
            ApprovalStatus::Rejected => Self::Rejected,
            ApprovalStatus::Expired => Self::Expired,
            ApprovalStatus::Withdrawn => Self::Withdrawn,
        }
    }
}

/// A movement of money that an operator requested and another operator must approve.
#[derive(Object, Serialize)]
pub struct Approval {
    /// Unique identifier of the approval.
    id: i64,
    /// Change that waits for approval.
    action: ApprovalAction,
    /// Status of the approval.
    status: ApprovalStatus,
    /// Account that the wallet belongs to.
    account_id: i64,
    /// Wallet whose balance changes, or that the payout was debited from.
    wallet_id: i64,
    /// Payout to settle; null for other actions.
    payout_id: Option<i64>,
    /// Direction of a correction; null for other actions.
    #[oai(rename = "type")]
    #[serde(rename = "type")]
    direction: Option<TransactionType>,
    /// Amount of the movement.
    amount: Money,
    /// Currency of the wallet.
    currency: String,
    /// Unique reference of a funding; null for other actions. No other funding can use it while the approval is pending.
    reference: Option<String>,
    /// Note of a funding, or reason for a correction.
    note: Option<String>,
    /// Operator who requested the change, such as `operator 3`.
    requested_by: String,
    /// Operator who granted, rejected or withdrew it; null until then.
    decided_by: Option<String>,
    /// Reason of the operator who rejected it, if there is one.
    rejection_reason: Option<String>,
    /// Transaction that the approval led to; null until it is granted, and for payouts.
    transaction_id: Option<i64>,
    /// Time of the request.
    created_at: Timestamp,
    /// Time from which on nobody can decide it.
    expires_at: Timestamp,
    /// Time of the decision or withdrawal; null until then.
    decided_at: Option<Timestamp>,
}

impl Plural for Approval {
    const PLURAL: &'static str = "approvals";
}

impl Approval {
    fn of(approval: approval::Approval, note: Option<&Secret>, reason: Option<&Secret>, now: DateTime<Utc>) -> Self {
        let status = ApprovalStatus::of(&approval, now);
        let requested = approval.requested;
        let shown = |text: Option<&Secret>| text.map(|text| text.expose().to_owned());
        let (action, direction) = match &requested.action {
            Action::Fund { .. } => (ApprovalAction::Fund, None),
            Action::Adjust { direction: Direction::Credit } => (ApprovalAction::Adjust, Some(TransactionType::Credit)),
            Action::Adjust { direction: Direction::Debit } => (ApprovalAction::Adjust, Some(TransactionType::Debit)),
            Action::Payout { .. } => (ApprovalAction::Payout, None),
        };
        Self {
            id: approval.id.0,
            action,
            status,
            account_id: requested.account_id.0,
            wallet_id: requested.wallet_id.0,
            payout_id: requested.action.payout_id().map(|id| id.0),
            direction,
            amount: requested.amount.into(),
            currency: requested.currency.as_str().to_owned(),
            reference: requested.action.reference().map(str::to_owned),
            note: shown(note),
            requested_by: requested.requested_by.to_string(),
            decided_by: approval.decided_by.map(|actor: Actor| actor.to_string()),
            rejection_reason: shown(reason),
            transaction_id: approval.transaction_id.map(|id| id.0),
            created_at: approval.created_at.into(),
            expires_at: requested.expires_at.into(),
            decided_at: approval.decided_at.map(Into::into),
        }
    }

    fn with_texts(approval: approval::Approval, texts: &Texts, now: DateTime<Utc>) -> Self {
        let text = |kind| texts.get(&(kind, approval.id.0));
        let (note, reason) = (text(APPROVAL_NOTE), text(APPROVAL_REASON));
        Self::of(approval, note, reason, now)
    }
}

impl From<ApprovalView> for Approval {
    /// The writer has just decided on the approval, so this node's clock decides only about a few milliseconds.
    fn from(view: ApprovalView) -> Self {
        Self::of(view.approval, view.note.as_ref(), view.rejection_reason.as_ref(), Utc::now())
    }
}

/// Response of an operation that may need approval: its own, or a 202 with the pending approval.
pub enum Supervised<R, P = Accepted<Approval>> {
    Done(R),
    Pending(Box<P>),
}

impl<R> Supervised<R> {
    /// Returns the response to a result, which `done` makes of any result but an approval.
    ///
    /// # Errors
    /// Those of `done`.
    pub fn of(result: CommandResult, done: impl FnOnce(CommandResult) -> Result<R, ApiError>) -> Result<Self, ApiError> {
        match result {
            CommandResult::Approval(view) => Ok(Self::Pending(Box::new(Accepted(view.into())))),
            result => done(result).map(Self::Done),
        }
    }
}

impl<R: IntoResponse, P: IntoResponse> IntoResponse for Supervised<R, P> {
    fn into_response(self) -> Response {
        match self {
            Self::Done(response) => response.into_response(),
            Self::Pending(approval) => approval.into_response(),
        }
    }
}

impl<R: ApiResponse, P: ApiResponse> ApiResponse for Supervised<R, P> {
    fn meta() -> MetaResponses {
        let mut meta = R::meta();
        meta.responses.extend(P::meta().responses);
        meta
    }

    fn register(registry: &mut Registry) {
        R::register(registry);
        P::register(registry);
    }
}

body! {
    /// Rejection of an approval.
    #[derive(Default, Object)]
    struct RejectApproval {
        /// Reason for the rejection. Stored encrypted.
        reason: Option<String> = optional(text(1..=MAX_REASON)),
    }
}

pub struct Approvals;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Approvals")]
impl Approvals {
    /// List approvals
    ///
    /// Returns the approvals of all accounts, newest first.
    #[oai(path = "/approvals", method = "get", operation_id = "list_approvals")]
    #[allow(clippy::too_many_arguments)] // each is a parameter
    async fn list(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Page number, from 1. Default: 1.
        page: Query<Option<i64>>,
        /// Approvals per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
        /// Only approvals with this status.
        status: Query<Option<ApprovalStatus>>,
        /// Only approvals of movements of this wallet, and of payouts from it.
        wallet_id: Query<Option<i64>>,
        /// Only approvals of the settlement of this payout.
        payout_id: Query<Option<i64>>,
    ) -> Result<Listed<Approval>, ApiError> {
        let page = Page::of(page.0, limit.0, 20, 100)?;
        let filter = ApprovalFilter {
            status: status.0.map(Into::into),
            wallet_id: wallet_id.0.map(WalletId),
            payout_id: payout_id.0.map(PayoutId),
        };
        let (pool, now) = (&state.read_pool(), Utc::now());
        let shards = state.ledger.shards();
        let (mut found, mut total) = (Vec::new(), 0);
        for shard in &shards {
            let part = approvals::list(pool, *shard, filter, now, rows_of_each(page, shards.len())).await?;
            found.push((*shard, part.rows));
            total += u64::try_from(part.total).unwrap_or_default();
        }
        let found = newest(found, page, |approval: &approval::Approval| approval.created_at);
        let mut texts = Texts::new();
        for shard in shards {
            let of_shard = found.iter().filter(|(at, _)| *at == shard);
            let wanted: Vec<_> =
                of_shard.flat_map(|(_, approval)| [(APPROVAL_NOTE, approval.id.0), (APPROVAL_REASON, approval.id.0)]).collect();
            texts.extend(texts::load(pool, &state.keyring, shard, &wanted).await?);
        }
        let view = |(_, approval)| Approval::with_texts(approval, &texts, now);
        Ok(Listed::page(found.into_iter().map(view).collect(), page, total))
    }

    /// Retrieve an approval
    ///
    /// Returns the approval of any account as it is now.
    #[oai(path = "/approvals/:id", method = "get", operation_id = "get_approval")]
    async fn get(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Unique identifier of the approval.
        id: Path<i64>,
    ) -> Result<Reply<Approval>, ApiError> {
        let (id, pool) = (ApprovalId(id.0), state.ledger.pool());
        let shard = state.ledger.shard_of_approval(id).await?.ok_or_else(not_found)?;
        let approval = approvals::find(pool, shard, id).await?.ok_or_else(not_found)?;
        let wanted = [(APPROVAL_NOTE, id.0), (APPROVAL_REASON, id.0)];
        let texts = texts::load(pool, &state.keyring, shard, &wanted).await?;
        Ok(Reply(Approval::with_texts(approval, &texts, Utc::now())))
    }

    /// Approve a movement of money
    ///
    /// Makes the change that another operator requested. Both are recorded at once, or neither. Returns 403 to the operator
    /// who requested it, and 409 if it was decided before or has expired.
    #[oai(path = "/approvals/:id/approve", method = "post", operation_id = "approve")]
    async fn approve(
        &self,
        caller: Caller<Finance>,
        state: State<'_>,
        /// Unique identifier of the approval.
        id: Path<i64>,
        _no_fields: NoFields,
    ) -> Result<Reply<Approval>, ApiError> {
        let id = ApprovalId(id.0);
        decide(&state, &caller, id, commands::GrantApproval { approval_id: id }).await
    }

    /// Reject a movement of money
    ///
    /// Refuses the change that another operator requested. A funding's reference can be used again. Returns 403 to the
    /// operator who requested it, and 409 if it was decided before or has expired.
    #[oai(path = "/approvals/:id/reject", method = "post", operation_id = "reject")]
    async fn reject(
        &self,
        caller: Caller<Finance>,
        state: State<'_>,
        /// Unique identifier of the approval.
        id: Path<i64>,
        body: OptionalJson<RejectApproval>,
    ) -> Result<Reply<Approval>, ApiError> {
        let reason = body.0.reason.map(Secret::new);
        let id = ApprovalId(id.0);
        decide(&state, &caller, id, commands::RejectApproval { approval_id: id, reason }).await
    }

    /// Withdraw a request for approval
    ///
    /// Takes back the change that you requested. A funding's reference can be used again. Returns 403 to every other operator,
    /// and 409 if it was decided before or has expired.
    #[oai(path = "/approvals/:id/withdraw", method = "post", operation_id = "withdraw_approval")]
    async fn withdraw(
        &self,
        caller: Caller<Finance>,
        state: State<'_>,
        /// Unique identifier of the approval.
        id: Path<i64>,
        _no_fields: NoFields,
    ) -> Result<Reply<Approval>, ApiError> {
        let id = ApprovalId(id.0);
        decide(&state, &caller, id, commands::WithdrawApproval { approval_id: id }).await
    }
}

async fn decide(
    state: &ApiState,
    caller: &Caller<Finance>,
    id: ApprovalId,
    command: impl Into<commands::Command>,
) -> Result<Reply<Approval>, ApiError> {
    let shard = state.ledger.shard_of_approval(id).await?.ok_or_else(not_found)?;
    let answer = state.ledger.execute(shard, command, origin(caller.0.0.actor())).await?;
    Ok(Reply(answered!(answer, CommandResult::Approval(view) => view)?.into()))
}
