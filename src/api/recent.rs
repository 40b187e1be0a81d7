//! Values that many callers ask for, and that a node computes for all of them at most once in a few seconds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::error::ApiError;

/// Longest time for which a value is returned again. The description of `GET /admin/v1/alerts` names it.
const MAX_AGE: Duration = Duration::from_secs(3);

/// A value that one caller at a time computes, and that the others wait for.
#[derive(Debug)]
pub struct Recent<T> {
    max_age: Duration,
    last: Mutex<Option<Last<T>>>,
}

/// Outcome of the last computation.
#[derive(Debug)]
struct Last<T> {
    began_at: Instant,
    ended_at: Instant,
    outcome: Result<Arc<T>, ApiError>,
}

impl<T> Last<T> {
    /// Returns whether the outcome counts for a caller who asked at this time. A failure counts only for those who have
    /// waited for it, so that they do not all try again one after the other.
    fn counts_for(&self, asked_at: Instant, max_age: Duration) -> bool {
        match self.outcome {
            Ok(_) => asked_at.saturating_duration_since(self.began_at) < max_age,
            Err(_) => asked_at < self.ended_at,
        }
    }
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Recent { max_age: MAX_AGE, last: Mutex::default() }
    }
}

impl<T> Recent<T> {
    /// Returns the value. Its computation began at most three seconds before the call.
    ///
    /// # Errors
    /// The error of the computation.
    pub async fn get<E: Into<ApiError>>(&self, compute: impl Future<Output = Result<T, E>>) -> Result<Arc<T>, ApiError> {
        let asked_at = Instant::now();
        let mut last = self.last.lock().await;
        if let Some(last) = &*last
            && last.counts_for(asked_at, self.max_age)
        {
            return last.outcome.clone();
        }
        let began_at = Instant::now();
        let outcome: Result<Arc<T>, ApiError> = compute.await.map(Arc::new).map_err(Into::into);
        *last = Some(Last { began_at, ended_at: Instant::now(), outcome: outcome.clone() });
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::api::error::Code;

    /// Computes a value once more, and lets others ask meanwhile.
    async fn compute(times: &Cell<u32>, fails: bool) -> Result<u32, ApiError> {
        times.set(times.get() + 1);
        tokio::task::yield_now().await;
        if fails { Err(ApiError::new(Code::Unavailable)) } else { Ok(times.get()) }
    }

    #[tokio::test]
    async fn callers_share_a_value_until_it_is_old_and_a_failure_if_they_waited_for_it() {
        let (recent, times) = (Recent { max_age: Duration::from_secs(3_600), ..Recent::default() }, Cell::new(0));
        let (one, other) = tokio::join!(recent.get(compute(&times, true)), recent.get(compute(&times, true)));
        assert_eq!((one.unwrap_err().code, other.unwrap_err().code, times.get()), (Code::Unavailable, Code::Unavailable, 1));
        let (one, other) = tokio::join!(recent.get(compute(&times, false)), recent.get(compute(&times, false)));
        assert_eq!((*one.unwrap(), *other.unwrap()), (2, 2), "a failure is not kept for those who ask later");
        assert_eq!(*recent.get(compute(&times, false)).await.unwrap(), 2);
        let recent = Recent { max_age: Duration::ZERO, ..recent };
        assert_eq!(*recent.get(compute(&times, false)).await.unwrap(), 3);
    }
}
