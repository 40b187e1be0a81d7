//! Incidents of the transparency log.

use ledger_events::log::{LogIncidentRecorded, SignedTree};

use crate::ledger::commands::prelude::*;
use crate::ledger::stream::Stream;
use crate::ledger::streams::TransparencyLog;
use crate::ledger::texts::LOG_INCIDENT_REASON;

/// Records that signed events of the shard's transparency log are lost, and that it goes on under another origin.
#[derive(Clone, Debug)]
pub struct RecordLogIncident {
    pub origin: String,
    pub next_origin: String,
    pub signed: Option<SignedTree>,
    pub kept: Option<SignedTree>,
    pub refusal: String,
    pub reason: Secret,
    /// Number of incidents that the operator knows of. Another one that was recorded meanwhile is a conflict.
    pub known: i64,
}

impl Handler for RecordLogIncident {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.logs.id(reads.shard.into());
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let id = i64::from(batch.shard);
        if batch.streams.logs.get(id).map_or(0, TransparencyLog::version) != self.known {
            return Err(Rejection::Conflict("another incident of this log was recorded meanwhile").into());
        }
        let position = batch.end() + 1;
        let reason_hash = batch.keep_text(LOG_INCIDENT_REASON, position, new_salt(), &self.reason)?;
        let RecordLogIncident { origin, next_origin, signed, kept, refusal, .. } = self.clone();
        let event = LogIncidentRecorded { origin, next_origin, signed, kept, refusal, reason_hash };
        batch.append::<TransparencyLog>(id, event, context);
        Ok(CommandResult::LogIncident { position })
    }
}
