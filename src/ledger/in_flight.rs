//! Idempotency keys of commands that are not decided yet.
//!
//! While an earlier command under a key may still happen, no later caller under the key is told that nothing did.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type KeyHash = [u8; 32];

/// The undecided commands of this node under each key, in the order of arrival.
#[derive(Clone, Debug, Default)]
pub struct InFlight(Arc<Mutex<HashMap<KeyHash, Vec<CommandState>>>>);

/// Registration of a command under its key. Dropping it marks the command as decided.
#[derive(Debug)]
pub struct InFlightGuard {
    in_flight: InFlight,
    key: KeyHash,
    state: CommandState,
}

impl InFlight {
    /// Registers a command under its key. Returns the undecided commands that came before it.
    pub fn enter(&self, key: KeyHash, state: &CommandState) -> (InFlightGuard, Vec<CommandState>) {
        let mut keys = self.lock();
        let states = keys.entry(key).or_default();
        let before = states.clone();
        states.push(state.clone());
        (InFlightGuard { in_flight: self.clone(), key, state: state.clone() }, before)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<KeyHash, Vec<CommandState>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.state.decide();
        if let Entry::Occupied(mut states) = self.in_flight.lock().entry(self.key) {
            states.get_mut().retain(CommandState::is_undecided);
            if states.get().is_empty() {
                states.remove();
            }
        }
    }
}

/// The state of a queued command, shared by the writer and the caller.
///
/// The writer takes a command up, or the caller gives it up at its deadline. The first one decides.
#[derive(Clone, Debug, Default)]
pub struct CommandState(Arc<AtomicU8>);

impl CommandState {
    const QUEUED: u8 = 0;
    const TAKEN: u8 = 1;
    const GIVEN_UP: u8 = 2;
    const DECIDED: u8 = 3;

    /// Takes the command up, for the writer. Returns false if the caller gave it up, so that it must not run.
    pub fn take(&self) -> bool {
        self.settle(Self::TAKEN)
    }

    /// Gives the command up, for the caller. Returns false if the writer took it up, so that the caller must wait.
    pub fn give_up(&self) -> bool {
        self.settle(Self::GIVEN_UP)
    }

    /// Releases a command that the writer took up and did not run. Its caller may give it up again.
    pub fn release(&self) {
        _ = self.0.compare_exchange(Self::TAKEN, Self::QUEUED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Ends the command, for the writer. A command that was given up stays so.
    pub fn decide(&self) {
        _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| (state != Self::GIVEN_UP).then_some(Self::DECIDED));
    }

    /// Returns whether the command may still happen.
    pub fn is_undecided(&self) -> bool {
        ![Self::GIVEN_UP, Self::DECIDED].contains(&self.0.load(Ordering::Acquire))
    }

    /// Returns whether the command did not happen and never will.
    pub fn is_given_up(&self) -> bool {
        self.0.load(Ordering::Acquire) == Self::GIVEN_UP
    }

    fn settle(&self, wanted: u8) -> bool {
        match self.0.compare_exchange(Self::QUEUED, wanted, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(settled) => settled == wanted,
        }
    }
}
