//! Heartbeats of the node's loops. They show which loops make progress and which have stalled.
//!
//! A loop beats on every round, and rests while it waits for work that may never come. Every wait for the database is
//! shorter than [`STALLED_AFTER`]. So a loop without a beat for that long is stuck: either the program has a bug, or the
//! process gets no CPU time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// Time without a beat after which a loop counts as stalled.
pub const STALLED_AFTER: Duration = Duration::from_secs(45);
/// Interval at which the watcher logs loops that stall or recover.
const WATCH_EVERY: Duration = Duration::from_secs(5);

/// Heartbeats of all loops of a node. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Heartbeats(Arc<Mutex<Vec<Weak<Loop>>>>);

#[derive(Debug)]
struct Loop {
    name: String,
    /// Whether requests fail while the loop stalls.
    serves_requests: bool,
    /// Time of the last beat; `None` while the loop rests.
    beat_at: Mutex<Option<Instant>>,
}

/// Heartbeat of one loop. Dropping it unregisters the loop. The default value belongs to no loop and is not watched.
#[derive(Clone, Debug, Default)]
pub struct Heartbeat(Option<Arc<Loop>>);

/// State of one loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulse {
    pub name: String,
    /// Time since the last beat; zero while the loop rests.
    pub age: Duration,
    /// Whether requests fail while the loop stalls.
    pub serves_requests: bool,
}

impl Pulse {
    pub fn is_stalled(&self) -> bool {
        self.age > STALLED_AFTER
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Heartbeat {
    /// Notes that the loop begins a round.
    pub fn beat(&self) {
        self.set(Some(Instant::now()));
    }

    /// Notes that the loop waits for work.
    pub fn rest(&self) {
        self.set(None);
    }

    /// Lets the loop seem stalled.
    #[cfg(test)]
    pub fn stall(&self) {
        self.set(Instant::now().checked_sub(STALLED_AFTER + Duration::from_secs(1)));
    }

    fn set(&self, beat: Option<Instant>) {
        if let Some(heart) = &self.0 {
            *locked(&heart.beat_at) = beat;
        }
    }
}

impl Heartbeats {
    /// Registers a background loop. Requests are answered even if it stalls.
    pub fn background(&self, name: impl Into<String>) -> Heartbeat {
        self.add(name.into(), false)
    }

    /// Registers a loop without which requests fail.
    pub fn serving(&self, name: impl Into<String>) -> Heartbeat {
        self.add(name.into(), true)
    }

    fn add(&self, name: String, serves_requests: bool) -> Heartbeat {
        let added = Arc::new(Loop { name, serves_requests, beat_at: Mutex::new(Some(Instant::now())) });
        let mut loops = locked(&self.0);
        loops.retain(|other| other.strong_count() > 0);
        loops.push(Arc::downgrade(&added));
        Heartbeat(Some(added))
    }

    /// Returns the state of every loop, sorted by name. Of loops with the same name, returns the one with the oldest beat.
    pub fn pulses(&self) -> Vec<Pulse> {
        let loops = locked(&self.0);
        let mut pulses: Vec<Pulse> = loops.iter().filter_map(Weak::upgrade).map(|heart| heart.pulse()).collect();
        pulses.sort_by(|one, other| (&one.name, other.age).cmp(&(&other.name, one.age)));
        pulses.dedup_by(|later, first| later.name == first.name);
        pulses
    }

    /// Logs loops that stall or recover, until stopped.
    pub async fn watch(self, stop: CancellationToken) {
        let mut stalled: Vec<String> = vec![];
        while stop.run_until_cancelled(tokio::time::sleep(WATCH_EVERY)).await.is_some() {
            let pulses = self.pulses();
            for Pulse { name, age, .. } in pulses.iter().filter(|pulse| pulse.is_stalled() && !stalled.contains(&pulse.name)) {
                tracing::error!(r#loop = name, ?age, "a loop has stalled");
            }
            let now: Vec<String> = pulses.into_iter().filter(Pulse::is_stalled).map(|pulse| pulse.name).collect();
            for name in stalled.iter().filter(|name| !now.contains(name)) {
                tracing::info!(r#loop = name, "a stalled loop has recovered");
            }
            stalled = now;
        }
    }
}

impl Loop {
    fn pulse(&self) -> Pulse {
        let age = locked(&self.beat_at).map_or(Duration::ZERO, |beat| beat.elapsed());
        Pulse { name: self.name.clone(), age, serves_requests: self.serves_requests }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_without_beats_stalls_and_is_unregistered_when_it_ends() {
        let hearts = Heartbeats::default();
        let (busy, resting) = (hearts.serving("busy"), hearts.background("at rest"));
        resting.rest();
        busy.stall();
        let [at_rest, stalled] = &hearts.pulses()[..] else { panic!("two loops") };
        assert_eq!((at_rest.name.as_str(), at_rest.age, at_rest.is_stalled()), ("at rest", Duration::ZERO, false));
        assert_eq!((stalled.name.as_str(), stalled.serves_requests, stalled.is_stalled()), ("busy", true, true));
        busy.beat();
        assert!(!hearts.pulses().iter().any(Pulse::is_stalled));
        drop(busy);
        assert_eq!(hearts.pulses().len(), 1);
    }

    #[test]
    fn of_loops_with_the_same_name_the_one_that_stalls_is_shown() {
        let hearts = Heartbeats::default();
        let pages = [(); 3].map(|()| hearts.background("live pages"));
        pages[1].stall();
        let [shown] = &hearts.pulses()[..] else { panic!("one name") };
        assert!(shown.is_stalled());
    }
}
