//! When a delivery is tried again (specification, "Delivery outcome and retries"), and what time it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

/// Attempts after which a delivery has failed for good.
pub const MAX_ATTEMPTS: i16 = 5;

/// What workers go by: the database's clock, which all nodes have in common. A test sets it ahead.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    milliseconds_ahead: Arc<AtomicI64>,
}

impl Clock {
    /// How far it is ahead of the database's: every statement of the worker that asks for the time adds this.
    pub fn ahead(&self) -> TimeDelta {
        TimeDelta::milliseconds(self.milliseconds_ahead.load(Ordering::SeqCst))
    }

    /// Sets it ahead, for whoever has it.
    pub fn advance(&self, by: TimeDelta) {
        self.milliseconds_ahead.fetch_add(by.num_milliseconds(), Ordering::SeqCst);
    }
}

/// When the attempt after a failed one is due: `base` × 1, 2, 4, 8 after that one started, and not
/// before it ended. `attempt` counts from 1; none after the last.
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
    fn the_specifications_schedule() {
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
    fn no_attempt_is_due_before_the_one_before_it_ended() {
        let base = Duration::from_secs(10);
        assert_eq!(next_attempt_at(1, at(0), at(30), base), Some(at(30)));
        assert_eq!(next_attempt_at(3, at(0), at(30), base), Some(at(40)));
    }

    #[test]
    fn an_absurd_base_does_not_overflow() {
        assert_eq!(next_attempt_at(4, at(0), at(1), Duration::MAX), Some(DateTime::<Utc>::MAX_UTC));
    }
}
