//! Reasons and notes that people give for what they do. The vault has them, because they may name a person; their events have
//! only hashes.

use std::collections::HashMap;

use ledger_database::PgPool;
use ledger_events::account::AccountEvent;
use ledger_events::approval::ApprovalEvent;
use ledger_events::beneficiary::BeneficiaryEvent;
use ledger_events::catalogue::ProductEvent;
use ledger_events::log::LogEvent;
use ledger_events::order::OrderEvent;
use ledger_events::payout::PayoutEvent;
use ledger_events::reconciliation::ReconciliationEvent;
use ledger_events::user::UserEvent;
use ledger_events::wallet::WalletEvent;
use ledger_events::{Event, Position, Recorded, ShardId};

use super::texts::{
    self, APPROVAL_NOTE, APPROVAL_REASON, CANCEL_REASON, DECISION_REASON, ERASURE_REASON, FAILURE_REASON, LOG_INCIDENT_REASON,
    NOTE, REVOCATION_REASON, TRANSFER_REASON, VOID_REASON, VaultError,
};
use crate::secrets::seal::{Keyring, Secret};

/// Maximum number of characters of a reason or a note, in a request of the API and on a command line.
pub const MAX_REASON: usize = 500;

/// Reasons by the position of the event. An event without a reason, or whose reason was erased, is absent.
pub type Reasons = HashMap<Position, Secret>;

/// Loads the reasons of these events of a shard with one statement.
pub async fn load(pool: &PgPool, keyring: &Keyring, shard: ShardId, events: &[Recorded]) -> Result<Reasons, VaultError> {
    let places: Vec<_> = events.iter().filter_map(|recorded| Some((recorded.moment.position, place(recorded)?))).collect();
    let mut wanted: Vec<(&'static str, i64)> = places.iter().map(|(_, place)| *place).collect();
    // Both events of a transfer have the same reason.
    wanted.sort_unstable();
    wanted.dedup();
    let found = texts::load(pool, keyring, shard, &wanted).await?;
    Ok(places.into_iter().filter_map(|(position, place)| Some((position, found.get(&place)?.clone()))).collect())
}

/// Returns the kind and the id of an event's reason in the vault. Returns none for an event of a type without a reason.
fn place(recorded: &Recorded) -> Option<(&'static str, i64)> {
    let (id, position) = (recorded.stream_id, recorded.moment.position);
    match &recorded.event {
        Event::Order(OrderEvent::OrderCancelled(_)) => Some((CANCEL_REASON, id)),
        Event::Wallet(WalletEvent::WalletFunded(funded)) => Some((NOTE, funded.transaction_id.0)),
        Event::Wallet(WalletEvent::WalletAdjusted(adjusted)) => Some((NOTE, adjusted.transaction_id.0)),
        Event::Payout(PayoutEvent::PayoutFailed(_)) => Some((FAILURE_REASON, id)),
        Event::Approval(ApprovalEvent::ApprovalRequested(_)) => Some((APPROVAL_NOTE, id)),
        Event::Approval(ApprovalEvent::ApprovalRejected(_)) => Some((APPROVAL_REASON, id)),
        Event::Reconciliation(ReconciliationEvent::MatchDecided(decided)) => Some((DECISION_REASON, decided.decision_id.0)),
        Event::Reconciliation(ReconciliationEvent::MatchDecisionRevoked(revoked)) => {
            Some((REVOCATION_REASON, revoked.decision_id.0))
        }
        Event::Product(ProductEvent::VouchersVoided(_)) => Some((VOID_REASON, position)),
        Event::Product(ProductEvent::VouchersTransferredOut(_)) => Some((TRANSFER_REASON, position)),
        // The event before it is the other one of the transfer, under whose position the reason is.
        Event::Product(ProductEvent::VouchersTransferredIn(_)) => Some((TRANSFER_REASON, position - 1)),
        Event::Log(LogEvent::LogIncidentRecorded(_)) => Some((LOG_INCIDENT_REASON, position)),
        Event::Account(AccountEvent::PersonalDataErased(_))
        | Event::Beneficiary(BeneficiaryEvent::PersonalDataErased(_))
        | Event::Order(OrderEvent::PersonalDataErased(_))
        | Event::User(UserEvent::PersonalDataErased(_))
        | Event::Reconciliation(ReconciliationEvent::PersonalDataErased(_)) => Some((ERASURE_REASON, position)),
        _ => None,
    }
}
