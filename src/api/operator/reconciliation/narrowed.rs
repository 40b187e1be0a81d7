//! Accounts whose events a reconciliation of a long period looks into.

use chrono::NaiveDate;
use poem_openapi::{Enum, Object};
use serde::Serialize;

use crate::reconciliation as figures;

/// Part of an account's events that was checked one by one.
///
/// - `PERIOD`: all events of the account in the period.
/// - `DAY`: the events of `day`, and of the days since the daily totals before it, because the period has too many.
/// - `NOT_CHECKED`: none, because that day has too many, too.
#[derive(Clone, Copy, Enum, Serialize)]
#[oai(rename_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum NarrowedTo {
    Period,
    Day,
    NotChecked,
}

/// An account with wallets whose totals differ.
#[derive(Object, Serialize)]
pub(super) struct NarrowedAccount {
    /// Shard of the account.
    shard_id: i16,
    /// Unique identifier of the account.
    account_id: i64,
    /// Part of the account's events that was checked one by one.
    checked: NarrowedTo,
    /// First UTC day on which a wallet of the account differs; null if the whole period was
    /// checked, or if no such day was found.
    day: Option<NaiveDate>,
    /// Number of events that were checked.
    checked_events: i64,
}

impl From<figures::NarrowedAccount> for NarrowedAccount {
    fn from(account: figures::NarrowedAccount) -> Self {
        Self {
            shard_id: account.shard_id,
            account_id: account.account_id.0,
            checked: match account.checked {
                figures::NarrowedTo::Period => NarrowedTo::Period,
                figures::NarrowedTo::Day => NarrowedTo::Day,
                figures::NarrowedTo::NotChecked => NarrowedTo::NotChecked,
            },
            day: account.day,
            checked_events: account.checked_events,
        }
    }
}
