//! Versions of the client API, by their numbers: what was decided against what clients were promised (`VERSIONING.md`).

use chrono::NaiveDate;
use serde::{Deserialize, Serialize};

/// The version ends earlier than promised, or sooner after its deprecation. Whoever configures the service decided so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EmergencySunsetDeclared {
    pub deprecation_date: Option<NaiveDate>,
    pub sunset_date: NaiveDate,
    /// For whoever asks later why the promise was broken: so it stands in the log itself, where it cannot be erased.
    pub reason: String,
}

crate::codec::stream_events! {
    /// What can happen to a version of the client API.
    ApiVersionEvent {
        EmergencySunsetDeclared = 1,
    }
}
