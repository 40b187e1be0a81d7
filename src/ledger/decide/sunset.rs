//! The end of the client API's version.

use ledger_events::api_version::{ApiVersionEvent, EmergencySunsetDeclared};

use super::{Decided, Story};
use crate::ledger::answer::Answer;
use crate::ledger::batch::Batch;
use crate::ledger::sunset::V1;

pub(super) fn declare(batch: &mut Batch, sunset: &EmergencySunsetDeclared, story: Story<'_>) -> Decided {
    let version = match &batch.sunset {
        Some((_, last)) if last == sunset => return Ok(Answer::EmergencySunset),
        last => last.as_ref().map_or(0, |(version, _)| *version),
    };
    batch.append(V1, ApiVersionEvent::from(sunset.clone()), &story);
    batch.sunset = Some((version + 1, sunset.clone()));
    Ok(Answer::EmergencySunset)
}
