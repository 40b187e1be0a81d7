//! The approval stream: a movement of money that waits for a second operator.
//!
//! A request expires by time, without an event. A granted one appends the movement in the same transaction.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::wallet::Direction;
use crate::{AccountId, Actor, ApprovalId, Currency, Moment, Money, PayoutId, Rejection, TransactionId, WalletId};

/// Time after which a request that nobody decided has expired.
pub const EXPIRES_AFTER: TimeDelta = TimeDelta::days(7);

/// A change that an operator asked for and another one must approve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRequested {
    pub account_id: AccountId,
    pub wallet_id: WalletId,
    pub amount: Money,
    pub currency: Currency,
    /// The field `action`, and the fields of that action.
    #[serde(flatten)]
    pub action: Action,
    /// SHA-256 (hex) over a salt and the operator's note or reason. The vault stores both.
    pub note_hash: Option<String>,
    pub requested_by: Actor,
    pub expires_at: DateTime<Utc>,
}

/// Kind of change that waits for approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Action {
    /// A funding of the wallet. Its reference is taken while the request is pending.
    Fund {
        reference: String,
    },
    Adjust {
        direction: Direction,
    },
    /// The settlement of a payout as paid.
    Payout {
        payout_id: PayoutId,
    },
}

impl Action {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Fund { .. } => "FUND",
            Self::Adjust { .. } => "ADJUST",
            Self::Payout { .. } => "PAYOUT",
        }
    }

    /// Returns the reference of a funding.
    pub fn reference(&self) -> Option<&str> {
        match self {
            Self::Fund { reference } => Some(reference),
            Self::Adjust { .. } | Self::Payout { .. } => None,
        }
    }

    /// Returns the payout to settle.
    pub fn payout_id(&self) -> Option<PayoutId> {
        match self {
            Self::Payout { payout_id } => Some(*payout_id),
            Self::Fund { .. } | Self::Adjust { .. } => None,
        }
    }
}

/// The approval by a second operator. The movement follows in the same transaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalGranted {
    pub granted_by: Actor,
    /// Id of the wallet movement. A settled payout makes none.
    pub transaction_id: Option<TransactionId>,
}

/// The refusal by a second operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRejected {
    pub rejected_by: Actor,
    /// SHA-256 (hex) over a salt and the reason. The vault stores both.
    pub reason_hash: Option<String>,
}

/// The withdrawal by the operator who made the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApprovalWithdrawn {
    pub withdrawn_by: Actor,
}

/// Status of an approval, without its expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApprovalStatus {
    Pending,
    Granted,
    Rejected,
    Withdrawn,
}

impl ApprovalStatus {
    pub const ALL: [ApprovalStatus; 4] = [Self::Pending, Self::Granted, Self::Rejected, Self::Withdrawn];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Granted => "GRANTED",
            Self::Rejected => "REJECTED",
            Self::Withdrawn => "WITHDRAWN",
        }
    }

    pub fn parse(text: &str) -> Option<ApprovalStatus> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// State of an approval: the fold of its stream, and the row of the table `approvals`.
#[derive(Clone, Debug, PartialEq)]
pub struct Approval {
    pub id: ApprovalId,
    pub version: i64,
    /// Event id of `ApprovalRequested`: the correlation id of all later events.
    pub requested_event_id: Uuid,
    pub last_event_id: Uuid,
    pub requested: ApprovalRequested,
    pub status: ApprovalStatus,
    pub decided_by: Option<Actor>,
    /// Id of the wallet movement, once granted.
    pub transaction_id: Option<TransactionId>,
    pub created_at: DateTime<Utc>,
    pub decided_at: Option<DateTime<Utc>>,
    pub updated_at: DateTime<Utc>,
}

impl Approval {
    /// Returns whether the request still waits for a decision.
    pub fn is_pending_at(&self, now: DateTime<Utc>) -> bool {
        self.status == ApprovalStatus::Pending && now < self.requested.expires_at
    }

    /// Checks that this actor may decide the request now.
    ///
    /// # Errors
    /// Rejects a request that is decided or expired, and the actor who made it.
    pub fn require_decision_by(&self, actor: Actor, now: DateTime<Utc>) -> Result<(), Rejection> {
        self.require_pending(now)?;
        match self.requested.requested_by == actor {
            true => Err(Rejection::SecondOperatorRequired),
            false => Ok(()),
        }
    }

    /// Checks that this actor may withdraw the request now.
    ///
    /// # Errors
    /// Rejects a request that is decided or expired, and every actor but the one who made it.
    pub fn require_withdrawal_by(&self, actor: Actor, now: DateTime<Utc>) -> Result<(), Rejection> {
        self.require_pending(now)?;
        match self.requested.requested_by == actor {
            true => Ok(()),
            false => Err(Rejection::RequesterRequired),
        }
    }

    fn require_pending(&self, now: DateTime<Utc>) -> Result<(), Rejection> {
        match self.status {
            ApprovalStatus::Granted => Err(Rejection::Conflict("the approval is granted already")),
            ApprovalStatus::Rejected => Err(Rejection::Conflict("the approval is rejected already")),
            ApprovalStatus::Withdrawn => Err(Rejection::Conflict("the approval is withdrawn already")),
            ApprovalStatus::Pending if !self.is_pending_at(now) => Err(Rejection::Conflict("the approval has expired")),
            ApprovalStatus::Pending => Ok(()),
        }
    }
}

/// Folds an event into the state. This is the only fold of the approval stream. Returns `None` only before
/// `ApprovalRequested`.
pub fn evolve(state: Option<Approval>, id: ApprovalId, event: &ApprovalEvent, at: &Moment) -> Option<Approval> {
    let mut approval = match (state, event) {
        (None, ApprovalEvent::ApprovalRequested(requested)) => {
            return Some(Approval {
                id,
                version: at.version,
                requested_event_id: at.event_id,
                last_event_id: at.event_id,
                requested: requested.clone(),
                status: ApprovalStatus::Pending,
                decided_by: None,
                transaction_id: None,
                created_at: at.recorded_at,
                decided_at: None,
                updated_at: at.recorded_at,
            });
        }
        (None, _) => return None,
        (Some(approval), _) => approval,
    };
    let (status, decided_by, transaction_id) = match event {
        ApprovalEvent::ApprovalRequested(_) => return Some(approval),
        ApprovalEvent::ApprovalGranted(e) => (ApprovalStatus::Granted, e.granted_by, e.transaction_id),
        ApprovalEvent::ApprovalRejected(e) => (ApprovalStatus::Rejected, e.rejected_by, None),
        ApprovalEvent::ApprovalWithdrawn(e) => (ApprovalStatus::Withdrawn, e.withdrawn_by, None),
    };
    approval.status = status;
    approval.decided_by = Some(decided_by);
    approval.transaction_id = transaction_id;
    approval.decided_at = Some(at.recorded_at);
    approval.version = at.version;
    approval.updated_at = at.recorded_at;
    approval.last_event_id = at.event_id;
    Some(approval)
}

crate::codec::stream_events! {
    /// Events of an approval.
    ApprovalEvent {
        ApprovalRequested = 1,
        ApprovalGranted = 1,
        ApprovalRejected = 1,
        ApprovalWithdrawn = 1,
    }
}

/// Amounts above which a second operator must approve. The default requires no approval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApprovalLimits {
    /// Limit of the currencies without one of their own.
    other: Option<Money>,
    by_currency: BTreeMap<Currency, Money>,
}

impl ApprovalLimits {
    /// Returns whether a movement of this amount needs an approval.
    pub fn require(&self, currency: Currency, amount: Money) -> bool {
        self.by_currency.get(&currency).or(self.other.as_ref()).is_some_and(|limit| amount > *limit)
    }
}

/// Parses `EUR=1000,USD=500.50`, one amount for every currency, or both: an amount without a currency is for the others.
impl FromStr for ApprovalLimits {
    type Err = String;

    fn from_str(text: &str) -> Result<ApprovalLimits, String> {
        let mut limits = ApprovalLimits::default();
        for entry in text.split(',').map(str::trim) {
            let (currency, amount) = match entry.split_once('=') {
                Some((currency, amount)) => (Some(currency.trim()), amount.trim()),
                None => (None, entry),
            };
            let amount: Money = amount.parse().map_err(|problem| format!("the amount {amount:?} {problem}"))?;
            if amount < Money::ZERO {
                return Err(format!("the amount {amount} is negative"));
            }
            let before = match currency {
                Some(code) => {
                    let currency: Currency = code.parse().map_err(|problem| format!("the currency {code:?} {problem}"))?;
                    limits.by_currency.insert(currency, amount)
                }
                None => limits.other.replace(amount),
            };
            if before.is_some() {
                return Err(format!("{} is given twice", currency.unwrap_or("the amount for other currencies")));
            }
        }
        Ok(limits)
    }
}

impl fmt::Display for ApprovalLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_currencies = self.by_currency.iter().map(|(currency, amount)| format!("{}={amount}", currency.as_str()));
        let all: Vec<String> = of_currencies.chain(self.other.map(|amount| amount.to_string())).collect();
        f.write_str(&all.join(","))
    }
}

#[cfg(test)]
mod tests;
