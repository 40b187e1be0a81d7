//! Counts of a node by minute, for the last hour.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};

/// Number of minutes that are kept.
const KEPT: usize = 60;

/// Counts of one minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Minute {
    /// Number of the minute since the Unix epoch.
    pub number: i64,
    pub requests: u64,
    /// Number of requests that were answered with a 5xx status.
    pub failures: u64,
    /// Number of requests that took longer than [`Minute::SLOW`].
    pub slow: u64,
    /// Number of events that the writers have appended.
    pub events: u64,
    /// Number of batches that the writers have appended.
    pub batches: u64,
    /// Number of batches that held the log's head longer than [`Minute::HELD`].
    pub held: u64,
    /// Number of orders that fulfilment has taken up.
    pub taken_up: u64,
    /// Number of delivery attempts that succeeded.
    pub delivered: u64,
    /// Number of delivery attempts that failed.
    pub failed: u64,
    /// Time of all delivery attempts.
    pub took: Duration,
    /// Time of the longest delivery attempt.
    pub longest: Duration,
}

impl Minute {
    /// Time after which a request counts as slow, as in the alert `LedgerRequestsSlow`.
    pub const SLOW: Duration = Duration::from_secs(1);
    /// Time after which the log's head counts as held, as in the alert `LedgerHeadHeld`.
    pub const HELD: Duration = Duration::from_millis(500);

    /// Creates an empty minute that begins at this time.
    pub fn starting_at(at: DateTime<Utc>) -> Minute {
        Minute { number: at.timestamp().div_euclid(60), ..Minute::default() }
    }

    /// Returns the beginning of the minute.
    pub fn at(&self) -> DateTime<Utc> {
        DateTime::from_timestamp(self.number * 60, 0).unwrap_or_default()
    }

    /// Returns whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        *self == Minute { number: self.number, ..Minute::default() }
    }

    /// Returns the number of delivery attempts.
    pub fn attempts(&self) -> u64 {
        self.delivered + self.failed
    }
}

/// The minutes in which something was counted, oldest first.
#[derive(Debug, Default)]
pub(super) struct Minutes(Mutex<VecDeque<Minute>>);

impl Minutes {
    /// Counts something in the current minute.
    pub fn count(&self, count: impl FnOnce(&mut Minute)) {
        self.count_at(Utc::now().timestamp().div_euclid(60), count);
    }

    fn count_at(&self, number: i64, count: impl FnOnce(&mut Minute)) {
        let mut minutes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // If the clock is set back, the last minute goes on.
        if minutes.back().is_none_or(|last| last.number < number) {
            minutes.push_back(Minute { number, ..Minute::default() });
            while minutes.front().is_some_and(|first| first.number <= number - KEPT as i64) {
                minutes.pop_front();
            }
        }
        if let Some(last) = minutes.back_mut() {
            count(last);
        }
    }

    /// Returns the last minutes up to the current one, oldest first. Minutes without a count are included.
    pub fn last(&self) -> Vec<Minute> {
        self.last_until(Utc::now().timestamp().div_euclid(60))
    }

    fn last_until(&self, number: i64) -> Vec<Minute> {
        let minutes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = minutes.back().map_or(number, |last| last.number.max(number));
        let minute = |number| minutes.iter().find(|minute| minute.number == number).copied();
        let all = number - KEPT as i64 + 1..=number;
        all.map(|number| minute(number).unwrap_or(Minute { number, ..Minute::default() })).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_kept_and_a_clock_that_is_set_back_loses_nothing() {
        let minutes = Minutes::default();
        for number in [100, 100, 130, 129] {
            minutes.count_at(number, |minute| minute.requests += 1);
        }
        let last = minutes.last_until(131);
        assert_eq!((last.len(), last[59].number, last[58].requests, last[57].requests), (60, 131, 2, 0));
        assert_eq!(last[28].requests, 2);
        minutes.count_at(160, |minute| minute.failures += 1);
        assert_eq!(minutes.0.lock().unwrap().len(), 2, "the first minute is over an hour ago");
        assert_eq!(minutes.last_until(100)[59].failures, 1);
    }
}
