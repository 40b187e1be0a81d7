//! Erasing personal data: what the log says of it.
//!
//! What is erased stands outside the log (in the vault, and in stored answers), so no event is
//! touched. This one stands in the stream that it concerns: an account's, a beneficiary's, an
//! order's, a user's or a bank statement's.

use serde::{Deserialize, Serialize};

/// Personal data was destroyed, and the keys that it was sealed under. Counts only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersonalDataErased {
    /// Texts that were deleted.
    pub texts: i64,
    /// Vouchers that lost their codes; their references stay.
    pub vouchers: i64,
    /// Stored answers to requests that lost what was personal.
    pub answers: i64,
    /// Data keys that were destroyed.
    pub data_keys: i64,
    /// Nothing of it is left. What is very much is erased in several steps, each an event.
    pub is_complete: bool,
    /// Of a bank's statement: the only line that it concerns; none where it concerns all of them, and in
    /// events of versions that did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<i32>,
    /// SHA-256 (hex) over a salt and the reason; both stand in the vault.
    pub reason_hash: String,
}
