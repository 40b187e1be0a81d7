//! Retries, by the rules of the guide "Errors, retries and idempotency".

use std::time::Duration;

use reqwest::StatusCode;

/// Number of attempts at a request, and the pauses between them.
///
/// A request is repeated if nothing happened (429, 503, no connection), while an earlier attempt is being processed
/// (409 `E_IDEMPOTENCY_IN_PROGRESS`), and if its outcome is unknown (504, 502 of a proxy, no response) and repeating it
/// is safe. It is safe for GET, PUT and DELETE, and for a POST with an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in all, from 1.
    pub attempts: u32,
    /// Pause after the first attempt. It doubles from attempt to attempt, and a random part of up to half is taken off.
    pub first_pause: Duration,
    /// Longest pause. If the service asks for a longer one, its refusal is returned instead. A pause that it asks for is
    /// prolonged by a random part of the first pause, so that clients do not come back together.
    pub longest_pause: Duration,
}

impl Default for RetryPolicy {
    /// Five attempts, with pauses of up to 1, 2, 4 and 8 seconds, or as long as the service asks for up to a minute.
    fn default() -> RetryPolicy {
        RetryPolicy { attempts: 5, first_pause: Duration::from_secs(1), longest_pause: Duration::from_secs(60) }
    }
}

/// Outcome of an attempt, as far as it decides on a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Response { status: StatusCode, in_progress: bool, retry_after: Option<Duration> },
    NoConnection,
    NoResponse,
}

impl RetryPolicy {
    /// Sends each request once.
    pub const NEVER: RetryPolicy = RetryPolicy { attempts: 1, first_pause: Duration::ZERO, longest_pause: Duration::ZERO };

    /// Returns the pause before the next attempt, or none if there is none. `random` is from 0 to 1.
    pub(crate) fn pause(&self, attempt: u32, outcome: Outcome, is_repeatable: bool, random: f64) -> Option<Duration> {
        let (may_repeat, retry_after) = match outcome {
            Outcome::NoConnection => (true, None),
            Outcome::NoResponse => (is_repeatable, None),
            Outcome::Response { status, in_progress, retry_after } => {
                let may_repeat = match status {
                    StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => true,
                    StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => is_repeatable,
                    StatusCode::CONFLICT => in_progress,
                    _ => false,
                };
                (may_repeat, retry_after)
            }
        };
        if !may_repeat || attempt >= self.attempts || retry_after.is_some_and(|asked| asked > self.longest_pause) {
            return None;
        }
        if let Some(asked) = retry_after {
            return Some(asked + self.first_pause.mul_f64(random));
        }
        let doubled = self.first_pause.saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1)));
        Some(doubled.min(self.longest_pause).mul_f64(1.0 - random / 2.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy =
        RetryPolicy { attempts: 4, first_pause: Duration::from_secs(1), longest_pause: Duration::from_secs(3) };

    fn answered(status: u16) -> Outcome {
        Outcome::Response { status: StatusCode::from_u16(status).unwrap(), in_progress: false, retry_after: None }
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_the_last_attempt_has_none() {
        let pauses: Vec<_> = (1..=4).map(|attempt| POLICY.pause(attempt, answered(503), false, 0.0)).collect();
        assert_eq!(
            pauses,
            [1, 2, 3].map(|seconds| Some(Duration::from_secs(seconds))).into_iter().chain([None]).collect::<Vec<_>>()
        );
    }

    #[test]
    fn jitter_takes_off_up_to_half() {
        assert_eq!(POLICY.pause(2, answered(503), false, 1.0), Some(Duration::from_secs(1)));
        assert_eq!(POLICY.pause(2, answered(503), false, 0.5), Some(Duration::from_millis(1_500)));
    }

    #[test]
    fn a_pause_is_as_long_as_the_service_asks_and_a_little_longer() {
        let asked = |seconds| Outcome::Response {
            status: StatusCode::TOO_MANY_REQUESTS,
            in_progress: false,
            retry_after: Some(Duration::from_secs(seconds)),
        };
        assert_eq!(POLICY.pause(1, asked(3), false, 0.0), Some(Duration::from_secs(3)));
        assert_eq!(POLICY.pause(1, asked(2), false, 0.5), Some(Duration::from_millis(2_500)));
        assert_eq!(POLICY.pause(1, asked(4), false, 0.0), None, "longer than the longest pause");
    }

    #[test]
    fn only_outcomes_that_are_worth_it_are_repeated() {
        let repeated = |outcome, is_repeatable| POLICY.pause(1, outcome, is_repeatable, 0.0).is_some();
        for status in [200, 400, 401, 402, 403, 404, 409, 422, 500] {
            assert!(!repeated(answered(status), true), "{status}");
        }
        for status in [429, 503] {
            assert!(repeated(answered(status), false), "{status}: nothing happened");
        }
        assert!(repeated(Outcome::NoConnection, false), "nothing happened");
        let in_progress = Outcome::Response { status: StatusCode::CONFLICT, in_progress: true, retry_after: None };
        assert!(repeated(in_progress, true));
        for unknown in [answered(502), answered(504), Outcome::NoResponse] {
            assert!(repeated(unknown, true) && !repeated(unknown, false), "{unknown:?}");
        }
    }

    #[test]
    fn a_policy_of_one_attempt_never_repeats() {
        assert_eq!(RetryPolicy::NEVER.pause(1, answered(503), true, 0.0), None);
        let most = RetryPolicy { attempts: u32::MAX, ..POLICY };
        assert_eq!(most.pause(u32::MAX - 1, answered(503), true, 0.0), Some(Duration::from_secs(3)));
    }
}
