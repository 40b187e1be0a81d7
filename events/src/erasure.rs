//! The event that records an erasure of personal data.
//!
//! All erasable data is stored outside the log, in the vault and in stored responses, so erasure changes no event.
//! The event goes to the stream that it concerns: an account, a beneficiary, an order, a user or a bank statement.

use serde::{Deserialize, Serialize};

/// A destruction of personal data and of the data keys that sealed it (crypto-shredding). Contains counts only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersonalDataErased {
    /// Number of deleted texts.
    pub texts: i64,
    /// Number of vouchers that lost their codes. Their references stay.
    pub vouchers: i64,
    /// Number of stored responses to requests that lost their personal content.
    pub answers: i64,
    /// Number of destroyed data keys.
    pub data_keys: i64,
    /// True for the last step of an erasure. A large erasure takes several steps, each with an event of its own.
    pub is_complete: bool,
    /// Number of the only affected line of a bank statement. `None` if the erasure concerns all lines, for other
    /// streams, and in older events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<i32>,
    /// SHA-256 (hex) over a salt and the reason. The vault stores both.
    pub reason_hash: String,
}
