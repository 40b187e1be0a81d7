//! Verifications that operators start. Their progress and their results stand beside the log.

use serde::{Deserialize, Serialize};

/// The start of a verification of all derived rows. The stream id is the id of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerificationStarted {}

/// The end of a verification by an operator, before it had a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerificationStopped {}

crate::codec::stream_events! {
    /// Events of a verification.
    VerificationEvent {
        VerificationStarted = 1,
        VerificationStopped = 1,
    }
}
