//! The payout stream: from requested and debited to paid, failed or cancelled.
//!
//! A request debits the wallet. A failure or cancellation refunds the full amount. PAID, FAILED and CANCELLED are
//! final (contract, "Client API").

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::account::{Account, AccountStatus};
use crate::beneficiary::Beneficiary;
use crate::wallet::{self, Purpose, Wallet, WalletCommand, WalletEvent};
use crate::{AccountId, BeneficiaryId, Currency, Moment, Money, PayoutId, Rejection, TransactionId, WalletId};

/// A new payout. Its amount is debited from the wallet, to be sent to the beneficiary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PayoutRequested {
    pub account_id: AccountId,
    pub beneficiary_id: BeneficiaryId,
    pub wallet_id: WalletId,
    pub amount: Money,
    pub currency: Currency,
    pub client_reference: Option<String>,
    /// Id of the debit's wallet movement.
    pub transaction_id: TransactionId,
}

/// The arrival of the money at the beneficiary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PayoutPaid {}

/// A failure to send the money, with a refund.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PayoutFailed {
    pub refunded_amount: Money,
    /// Id of the refund's wallet movement.
    pub transaction_id: TransactionId,
    /// SHA-256 (hex) over a salt and the operator's reason. The vault stores both.
    pub reason_hash: Option<String>,
}

/// A cancellation by the client before settlement, with a refund.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PayoutCancelled {
    pub refunded_amount: Money,
    /// Id of the refund's wallet movement.
    pub transaction_id: TransactionId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PayoutStatus {
    Pending,
    Paid,
    Failed,
    Cancelled,
}

impl PayoutStatus {
    pub const ALL: [PayoutStatus; 4] = [Self::Pending, Self::Paid, Self::Failed, Self::Cancelled];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Paid => "PAID",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
        }
    }

    pub fn parse(text: &str) -> Option<PayoutStatus> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// State of a payout: the fold of its stream, and the row of the table `payouts`.
#[derive(Clone, Debug, PartialEq)]
pub struct Payout {
    pub id: PayoutId,
    pub version: i64,
    /// Event id of `PayoutRequested`: the correlation id of all later events.
    pub requested_event_id: Uuid,
    pub last_event_id: Uuid,
    pub requested: PayoutRequested,
    pub status: PayoutStatus,
    /// Id of the refund's wallet movement, if there is one.
    pub refund_transaction_id: Option<TransactionId>,
    pub created_at: DateTime<Utc>,
    /// Time at which the payout became final.
    pub settled_at: Option<DateTime<Utc>>,
    pub updated_at: DateTime<Utc>,
}

/// Returns the human-readable reference of a payout in the wallet's movements. It is unique because the id is.
pub fn reference_code(id: PayoutId) -> String {
    format!("PAY-{id:010}")
}

/// A client's request for a payout.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestPayout {
    pub amount: Money,
    pub client_reference: Option<String>,
}

/// Decides a new payout: one append to two streams, `PayoutRequested` and `WalletDebited`, or neither.
///
/// # Errors
/// Checks account, beneficiary, wallet, currency and balance in this order, and returns the first rejection.
pub fn request(
    account: &Account,
    beneficiary: Option<&Beneficiary>,
    wallet: Option<&Wallet>,
    payout_id: PayoutId,
    transaction_id: TransactionId,
    command: RequestPayout,
) -> Result<(PayoutRequested, WalletEvent), Rejection> {
    if account.status == AccountStatus::Suspended {
        return Err(Rejection::AccountSuspended);
    }
    let unknown = |field| Rejection::InvalidField { field, problem: "is unknown" };
    let beneficiary = beneficiary.filter(|b| b.account_id == account.id && !b.is_deleted).ok_or(unknown("beneficiary_id"))?;
    let wallet = wallet.filter(|wallet| wallet.account_id == account.id).ok_or(unknown("wallet_id"))?;
    if wallet.currency != beneficiary.currency {
        return Err(Rejection::CurrencyMismatch);
    }
    let RequestPayout { amount, client_reference } = command;
    let payment = WalletCommand::Pay { amount, purpose: Purpose::Payout(payout_id), reference: reference_code(payout_id) };
    let debited = wallet::decide(wallet, transaction_id, payment)?;
    let requested = PayoutRequested {
        account_id: account.id,
        beneficiary_id: beneficiary.id,
        wallet_id: wallet.id,
        amount,
        currency: wallet.currency,
        client_reference,
        transaction_id,
    };
    Ok((requested, debited))
}

/// Command on a pending payout. `refund_transaction_id` becomes the id of the refund's wallet movement.
#[derive(Clone, Debug, PartialEq)]
pub enum PayoutCommand {
    Pay,
    Fail { refund_transaction_id: TransactionId, reason_hash: Option<String> },
    Cancel { refund_transaction_id: TransactionId },
}

/// Decides a command on a payout. Returns the payout's event, and the wallet's event if the command refunds the
/// payment.
///
/// # Errors
/// Rejects a payout that is no longer pending, and a refund that does not fit into the wallet's balance.
pub fn decide(payout: &Payout, wallet: &Wallet, command: PayoutCommand) -> Result<(PayoutEvent, Option<WalletEvent>), Rejection> {
    if payout.status != PayoutStatus::Pending {
        return Err(match command {
            PayoutCommand::Cancel { .. } => Rejection::PayoutNotCancellable,
            _ => Rejection::Conflict("the payout is no longer pending"),
        });
    }
    let refunded_amount = payout.requested.amount;
    let refund = |transaction_id| {
        let (purpose, reference) = (Purpose::Payout(payout.id), reference_code(payout.id));
        wallet::decide(wallet, transaction_id, WalletCommand::Refund { amount: refunded_amount, purpose, reference }).map(Some)
    };
    Ok(match command {
        PayoutCommand::Pay => (PayoutPaid {}.into(), None),
        PayoutCommand::Fail { refund_transaction_id: transaction_id, reason_hash } => {
            (PayoutFailed { refunded_amount, transaction_id, reason_hash }.into(), refund(transaction_id)?)
        }
        PayoutCommand::Cancel { refund_transaction_id: transaction_id } => {
            (PayoutCancelled { refunded_amount, transaction_id }.into(), refund(transaction_id)?)
        }
    })
}

/// Folds an event into the state. This is the only fold of the payout stream. Returns `None` only before
/// `PayoutRequested`.
///
/// An event that cannot follow is folded like any other. The log is the source of truth, and `verify` reports such
/// a stream.
pub fn evolve(state: Option<Payout>, id: PayoutId, event: &PayoutEvent, at: &Moment) -> Option<Payout> {
    let mut payout = match (state, event) {
        (None, PayoutEvent::PayoutRequested(requested)) => {
            return Some(Payout {
                id,
                version: at.version,
                requested_event_id: at.event_id,
                last_event_id: at.event_id,
                requested: requested.clone(),
                status: PayoutStatus::Pending,
                refund_transaction_id: None,
                created_at: at.recorded_at,
                settled_at: None,
                updated_at: at.recorded_at,
            });
        }
        (None, _) => return None,
        (Some(payout), _) => payout,
    };
    let (status, refund) = match event {
        PayoutEvent::PayoutRequested(_) => return Some(payout),
        PayoutEvent::PayoutPaid(_) => (PayoutStatus::Paid, None),
        PayoutEvent::PayoutFailed(e) => (PayoutStatus::Failed, Some(e.transaction_id)),
        PayoutEvent::PayoutCancelled(e) => (PayoutStatus::Cancelled, Some(e.transaction_id)),
    };
    payout.status = status;
    payout.refund_transaction_id = refund;
    payout.settled_at = Some(at.recorded_at);
    payout.version = at.version;
    payout.updated_at = at.recorded_at;
    payout.last_event_id = at.event_id;
    Some(payout)
}

crate::codec::stream_events! {
    /// Events of a payout.
    PayoutEvent {
        PayoutRequested = 1,
        PayoutPaid = 1,
        PayoutFailed = 1,
        PayoutCancelled = 1,
    }
}

#[cfg(test)]
mod tests;
