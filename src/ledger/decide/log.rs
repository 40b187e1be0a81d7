//! Incidents of the transparency log.

use ledger_events::Rejection;
use ledger_events::log::{LogEvent, LogIncidentRecorded};

use super::{Decided, Story, new_salt};
use crate::ledger::answer::Answer;
use crate::ledger::batch::Batch;
use crate::ledger::command::RecordLogIncident;
use crate::ledger::texts::LOG_INCIDENT_REASON;

pub(super) fn record_incident(batch: &mut Batch, incident: &RecordLogIncident, story: Story<'_>) -> Decided {
    if batch.log_version != incident.known {
        return Err(Rejection::Conflict("another incident of this log was recorded meanwhile").into());
    }
    let position = batch.end() + 1;
    let RecordLogIncident { origin, next_origin, signed, kept, refusal, reason, .. } = incident.clone();
    let reason_hash = batch.keep_text(LOG_INCIDENT_REASON, position, new_salt(), &reason)?;
    let event = LogIncidentRecorded { origin, next_origin, signed, kept, refusal, reason_hash };
    batch.append(batch.shard.into(), LogEvent::from(event), &story);
    Ok(Answer::LogIncident { position })
}
