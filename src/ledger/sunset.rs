//! Emergency sunset of the client API's version, which breaks the promise to clients. The log records the reason.

use ledger_events::Actor;
use ledger_events::api_version::EmergencySunsetDeclared;

use super::commands::DeclareEmergencySunset;
use super::{FIRST_SHARD, Ledger, Origin, WriteError};

/// Records an emergency sunset, unless it equals the last recorded one, because every start of a node declares it again.
///
/// # Errors
/// Returns an error when the event cannot be appended.
pub async fn declare(ledger: &Ledger, sunset: EmergencySunsetDeclared) -> Result<(), WriteError> {
    let origin = Origin { actor: Actor::Operator(0), request_id: "start".to_owned() };
    ledger.execute(FIRST_SHARD, DeclareEmergencySunset(sunset), origin).await.map(drop)
}
