//! Versions of the client API, identified by number: decisions that break the promise to clients in
//! `VERSIONING.md`.

use chrono::NaiveDate;
use serde::{Deserialize, Serialize};

/// An emergency sunset: the version ends before the promised date, or too soon after its deprecation. The
/// administrator who configures the service declares it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EmergencySunsetDeclared {
    pub deprecation_date: Option<NaiveDate>,
    pub sunset_date: NaiveDate,
    /// Reason for breaking the promise. The log itself holds it, so that nobody can erase it.
    pub reason: String,
}

crate::codec::stream_events! {
    /// Events of a version of the client API.
    ApiVersionEvent {
        EmergencySunsetDeclared = 1,
    }
}
