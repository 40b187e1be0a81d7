//! The secret before a rotation, for the time that its owner has chosen. Deliveries are signed with it, too, until then.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::batch::Batch;
use crate::secrets::seal::{SealError, Secret};

/// Longest time for which the secret before a rotation stays valid, in hours.
pub const MAX_HOURS: i64 = 168;

/// A replaced secret, and the time up to which it signs deliveries.
#[derive(Clone, Debug)]
pub struct PreviousSecret {
    /// Unix seconds.
    pub until: i64,
    pub secret: Secret,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    until: i64,
    secret: String,
}

impl PreviousSecret {
    /// Returns the secret of a text, or `None` if it is not one of these texts.
    pub fn open(text: &Secret) -> Option<PreviousSecret> {
        let Stored { until, secret } = serde_json::from_str(text.expose()).ok()?;
        Some(PreviousSecret { until, secret: Secret::new(secret) })
    }
}

/// Keeps the secret that a rotation replaces for this many hours, or forgets the one that an earlier rotation has kept.
/// Returns the time up to which it is valid.
pub(super) fn keep(
    batch: &mut Batch,
    (kind, id): (&'static str, i64),
    replaced: Option<&Secret>,
    hours: Option<i64>,
) -> Result<Option<DateTime<Utc>>, SealError> {
    let kept = replaced.zip(hours).map(|(secret, hours)| (secret.expose(), batch.now + TimeDelta::hours(hours)));
    if kept.is_none() && batch.text(kind, id)?.is_none() {
        return Ok(None);
    }
    let (secret, until) = kept.map_or(("", 0), |(secret, until)| (secret, until.timestamp()));
    let stored = Stored { until, secret: secret.to_owned() };
    let text = serde_json::to_string(&stored).map_err(|_| SealError::Unreadable)?;
    batch.keep_text(kind, id, super::commands::new_salt(), &Secret::new(text))?;
    Ok(kept.map(|(_, until)| until))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_the_secret_and_its_end() {
        let text = Secret::new(r#"{"until":1800000000,"secret":"old"}"#);
        let opened = PreviousSecret::open(&text).unwrap();
        assert_eq!((opened.until, opened.secret.expose()), (1_800_000_000, "old"));
        assert!(PreviousSecret::open(&Secret::new("old")).is_none());
    }
}
