//! Reads the erasures of personal data, the newest first.

use ledger_database::PgPool;
use ledger_events::account::AccountEvent;
use ledger_events::beneficiary::BeneficiaryEvent;
use ledger_events::erasure::PersonalDataErased;
use ledger_events::order::OrderEvent;
use ledger_events::reconciliation::ReconciliationEvent;
use ledger_events::user::UserEvent;
use ledger_events::{Event, Position, Recorded, ShardId};

use super::{ReadError, Stored, select_events};
use crate::ledger::texts::ERASURE_REASON;

/// A page of erasures, the newest first.
#[derive(Debug)]
pub struct Page {
    pub erasures: Vec<(Stored, PersonalDataErased)>,
    /// Position before which the next page begins; none at the end.
    pub next_before: Option<Position>,
}

/// Returns at most `limit` erasures before a position, or the newest ones.
///
/// The vault keeps the reason of each erasure under the position of its event, so an index finds them all.
///
/// # Errors
/// Any error of the database, and an event that cannot be read.
pub async fn page(pool: &PgPool, shard: ShardId, before: Option<Position>, limit: usize) -> Result<Page, ReadError> {
    let found: Vec<Stored> = sqlx::query_as(select_events!(
        "WHERE shard_id = $1 AND position = ANY (ARRAY(
            SELECT id FROM vault.texts WHERE shard_id = $1 AND kind = $2 AND id < $3 ORDER BY id DESC LIMIT $4))
         ORDER BY position DESC"
    ))
    .bind(shard)
    .bind(ERASURE_REASON)
    .bind(before.unwrap_or(Position::MAX))
    .bind(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))
    .fetch_all(pool)
    .await?;
    let has_more = found.len() > limit;
    let mut erasures = vec![];
    for stored in found.into_iter().take(limit) {
        if let Some(erased) = erasure(stored.decode()?) {
            erasures.push((stored, erased));
        }
    }
    let next_before = erasures.last().map(|(stored, _)| stored.position).filter(|_| has_more);
    Ok(Page { erasures, next_before })
}

fn erasure(recorded: Recorded) -> Option<PersonalDataErased> {
    match recorded.event {
        Event::Account(AccountEvent::PersonalDataErased(erased))
        | Event::Beneficiary(BeneficiaryEvent::PersonalDataErased(erased))
        | Event::Order(OrderEvent::PersonalDataErased(erased))
        | Event::User(UserEvent::PersonalDataErased(erased))
        | Event::Reconciliation(ReconciliationEvent::PersonalDataErased(erased)) => Some(erased),
        _ => None,
    }
}
