//! The idempotency keys of commands that are not decided yet: while a first one may still happen, nobody who came after
//! it under its key is told that nothing did.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::submission::Claim;

type KeyHash = [u8; 32];

/// The undecided commands of this node under each key, the first one first.
#[derive(Clone, Debug, Default)]
pub struct InFlight(Arc<Mutex<HashMap<KeyHash, Vec<Claim>>>>);

/// A command's place under its key. The command is decided when this is dropped.
#[derive(Debug)]
pub struct Place {
    in_flight: InFlight,
    key: KeyHash,
    claim: Claim,
}

impl InFlight {
    /// Gives a command its place, and tells which ones have been there before it.
    pub fn enter(&self, key: KeyHash, claim: &Claim) -> (Place, Vec<Claim>) {
        let mut keys = self.lock();
        let claims = keys.entry(key).or_default();
        let before = claims.clone();
        claims.push(claim.clone());
        (Place { in_flight: self.clone(), key, claim: claim.clone() }, before)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<KeyHash, Vec<Claim>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.claim.decide();
        if let Entry::Occupied(mut claims) = self.in_flight.lock().entry(self.key) {
            claims.get_mut().retain(Claim::is_undecided);
            if claims.get().is_empty() {
                claims.remove();
            }
        }
    }
}
