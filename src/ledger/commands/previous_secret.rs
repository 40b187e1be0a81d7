//! The secret that a rotation replaces.

use chrono::{DateTime, TimeDelta, Utc};

use super::Salted;
use crate::ledger::batch::Batch;
use crate::ledger::previous_secret::PreviousSecret;
use crate::secrets::seal::{SealError, Secret};

/// Keeps the secret that a rotation replaces for this many hours, or forgets the one that an earlier rotation has kept.
/// Returns the time up to which it is valid.
pub(super) fn keep(
    batch: &mut Batch,
    (kind, id): (&'static str, i64),
    replaced: Option<Secret>,
    hours: Option<i64>,
) -> Result<Option<DateTime<Utc>>, SealError> {
    let kept = replaced.zip(hours).map(|(secret, hours)| (secret, batch.now + TimeDelta::hours(hours)));
    if kept.is_none() && batch.text(kind, id)?.is_none() {
        return Ok(None);
    }
    let valid_until = kept.as_ref().map(|(_, until)| *until);
    let previous = match kept {
        Some((secret, until)) => PreviousSecret { until: until.timestamp(), secret },
        None => PreviousSecret { until: 0, secret: Secret::new("") },
    };
    let text = previous.text().map_err(|_| SealError::Unreadable)?;
    Salted::new(&text).keep(batch, kind, id)?;
    Ok(valid_until)
}
