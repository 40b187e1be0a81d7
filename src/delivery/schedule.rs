//! Retry schedule of deliveries (specification, "Delivery outcome and retries"), and the clock that it follows.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use ledger_events::webhook::MAX_ATTEMPTS;

/// Clock of the delivery workers: the database's clock, which all nodes share. Tests set it ahead.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    milliseconds_ahead: Arc<AtomicI64>,
}

impl Clock {
    /// Returns the offset from the database's clock. Every statement of the worker that reads the time adds it.
    pub fn ahead(&self) -> TimeDelta {
        TimeDelta::milliseconds(self.milliseconds_ahead.load(Ordering::SeqCst))
    }

    /// Advances the clock, for all of its clones.
    pub fn advance(&self, by: TimeDelta) {
        self.milliseconds_ahead.fetch_add(by.num_milliseconds(), Ordering::SeqCst);
    }
}

/// Returns the due time of the attempt after a failed one (exponential backoff).
///
/// The attempt is due `base` × 1, 2, 4, 8 after the failed one started, and never before that one ended. `attempt` counts
/// from 1. Returns `None` after the last attempt.
pub fn next_attempt_at(
    attempt: i16,
    started_at: DateTime<Utc>,
    ended_at: DateTime<Utc>,
    base: Duration,
) -> Option<DateTime<Utc>> {
    if attempt >= MAX_ATTEMPTS {
        return None;
    }
    let doublings = u32::try_from(attempt - 1).unwrap_or_default();
    let delay = TimeDelta::from_std(base.saturating_mul(1 << doublings)).unwrap_or(TimeDelta::MAX);
    let due = started_at.checked_add_signed(delay).unwrap_or(DateTime::<Utc>::MAX_UTC);
    Some(due.max(ended_at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000 + seconds, 0).unwrap()
    }

    #[test]
    fn retries_follow_the_schedule_of_the_specification() {
        let minute = Duration::from_secs(60);
        let mut started = 0;
        let mut elapsed = vec![];
        for attempt in 1..MAX_ATTEMPTS {
            let due = next_attempt_at(attempt, at(started), at(started + 30), minute).unwrap();
            started = (due - at(0)).num_seconds();
            elapsed.push(started / 60);
        }
        assert_eq!(elapsed, [1, 3, 7, 15]);
        assert_eq!(next_attempt_at(MAX_ATTEMPTS, at(0), at(30), minute), None);
    }

    #[test]
    fn no_attempt_is_due_before_the_previous_one_ended() {
        let base = Duration::from_secs(10);
        assert_eq!(next_attempt_at(1, at(0), at(30), base), Some(at(30)));
        assert_eq!(next_attempt_at(3, at(0), at(30), base), Some(at(40)));
    }

    #[test]
    fn a_huge_base_does_not_overflow() {
        assert_eq!(next_attempt_at(4, at(0), at(1), Duration::MAX), Some(DateTime::<Utc>::MAX_UTC));
    }
}
