//! The end of the client API's version.

use ledger_events::api_version::EmergencySunsetDeclared;

use crate::ledger::commands::prelude::*;
use crate::ledger::streams::{ApiVersion, V1};

/// Records why the client API's version ends earlier than promised.
#[derive(Clone, Debug)]
pub struct DeclareEmergencySunset(pub EmergencySunsetDeclared);

impl Handler for DeclareEmergencySunset {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.api_versions.id(V1);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        if batch.streams.api_versions.get(V1).is_none_or(|version| version.sunset != self.0) {
            batch.append::<ApiVersion>(V1, self.0.clone(), context);
        }
        Ok(CommandResult::EmergencySunset)
    }
}
