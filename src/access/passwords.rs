//! User passwords: argon2id with bounded concurrency and a fair queue across sources.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use tokio::sync::Semaphore;

use super::AccessError;
use crate::secrets::seal::Secret;
use crate::secrets::strength;

/// Maximum number of passwords that may wait to be hashed, in total and per lane. Hashing one takes 19 MiB and some tens
/// of milliseconds of a core; a waiting one takes almost nothing.
const MAX_WAITING: usize = 4_096;
const MAX_OF_A_LANE: usize = 128;
/// Longest time that a password waits for its turn before the request gets 503.
const DEADLINE: Duration = Duration::from_secs(30);

/// PHC string that a password is compared with if there is no such user. The comparison costs as much as a real one, and
/// no password matches it.
const NOBODY: &str = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Source of password work. Lanes take turns, so that a busy one does not delay the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Operators, who set the users' passwords.
    Operators,
    /// Source network of a login, or of a user who sets a password.
    Source(IpAddr),
}

/// Permits of a lane: `turn` for the one password that is hashed or waits for a core, `all` for every password of the lane.
#[derive(Debug)]
struct Places {
    turn: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

/// Hashes and verifies passwords on blocking threads. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Passwords {
    waiting: Arc<Semaphore>,
    lanes: Arc<Mutex<HashMap<Lane, Weak<Places>>>>,
    /// One permit per core, in order of arrival. Each lane has at most one password in this queue, so lanes take turns.
    working: Arc<Semaphore>,
}

/// Reason that a new password is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewPasswordError {
    /// The password is common, close to a common one, or made of the user's own data.
    Weak,
    /// The password could not be hashed in time.
    Unavailable,
}

impl From<AccessError> for NewPasswordError {
    fn from(_: AccessError) -> NewPasswordError {
        NewPasswordError::Unavailable
    }
}

impl Default for Passwords {
    fn default() -> Passwords {
        Passwords::working(std::thread::available_parallelism().map_or(1, usize::from))
    }
}

impl Passwords {
    fn working(at_once: usize) -> Passwords {
        Passwords {
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
            lanes: Arc::default(),
            working: Arc::new(Semaphore::new(at_once)),
        }
    }

    /// Returns the PHC string of a new password, with a random salt. `about` is known data of the user: a password made of
    /// it is as weak as a common one.
    ///
    /// # Errors
    /// [`NewPasswordError::Weak`] for a password that is easy to guess.
    pub async fn hash(&self, password: Secret, about: Vec<Secret>) -> Result<Secret, NewPasswordError> {
        self.hash_in(Lane::Operators, password, about).await
    }

    /// Hashes a new password like [`Passwords::hash`], in the turn of another source.
    ///
    /// # Errors
    /// [`NewPasswordError::Weak`] for a password that is easy to guess.
    pub async fn hash_in(&self, lane: Lane, password: Secret, about: Vec<Secret>) -> Result<Secret, NewPasswordError> {
        let hashed = self.work(lane, move || {
            let about: Vec<&str> = about.iter().map(Secret::expose).collect();
            if strength::is_weak_password(password.expose(), &about) {
                return Err(NewPasswordError::Weak);
            }
            let hash = Argon2::default().hash_password(password.expose().as_bytes());
            hash.map(|hash| Secret::new(hash.to_string())).map_err(|error| {
                tracing::error!(%error, "failed to hash a password");
                NewPasswordError::Unavailable
            })
        });
        hashed.await?
    }

    /// Returns whether the password matches the hash. Takes the same time without a hash.
    pub async fn verify(&self, lane: Lane, password: Secret, hash: Option<Secret>) -> Result<bool, AccessError> {
        self.work(lane, move || {
            let hash = PasswordHash::new(hash.as_ref().map_or(NOBODY, Secret::expose));
            hash.is_ok_and(|hash| Argon2::default().verify_password(password.expose().as_bytes(), &hash).is_ok())
        })
        .await
    }

    /// Runs `work` in the lane's turn. It runs on, and keeps its permits, even if the caller stops waiting.
    async fn work<T: Send + 'static>(&self, lane: Lane, work: impl FnOnce() -> T + Send + 'static) -> Result<T, AccessError> {
        let waiting = self.waiting.clone().try_acquire_owned().map_err(|_| AccessError::Unavailable)?;
        let places = self.places(lane);
        let place = places.all.clone().try_acquire_owned().map_err(|_| AccessError::Unavailable)?;
        let permits = tokio::time::timeout(DEADLINE, async {
            let turn = places.turn.clone().acquire_owned().await;
            (turn, self.working.clone().acquire_owned().await)
        });
        let permits = permits.await.map_err(|_| AccessError::Unavailable)?;
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop((permits, place, places, waiting));
            done
        });
        done.await.map_err(|_| AccessError::Unavailable)
    }

    fn places(&self, lane: Lane) -> Arc<Places> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = lanes.get(&lane).and_then(Weak::upgrade) {
            return places;
        }
        // At most `MAX_WAITING` lanes are in use, so this frees at least half of the entries.
        if lanes.len() >= 2 * MAX_WAITING {
            lanes.retain(|_, places| places.strong_count() > 0);
        }
        let places = Arc::new(Places { turn: Arc::new(Semaphore::new(1)), all: Arc::new(Semaphore::new(MAX_OF_A_LANE)) });
        lanes.insert(lane, Arc::downgrade(&places));
        places
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::StreamExt;
    use futures::stream::FuturesUnordered;

    use super::*;

    const HERE: Lane = Lane::Source(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

    fn other(last: u8) -> Lane {
        Lane::Source([192, 0, 2, last].into())
    }

    #[tokio::test]
    async fn a_password_matches_only_its_own_hash() {
        let passwords = Passwords::default();
        let hash = passwords.hash(Secret::new("correct horse"), vec![]).await.unwrap();
        assert!(hash.expose().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{}", hash.expose());
        assert_ne!(hash, passwords.hash(Secret::new("correct horse"), vec![]).await.unwrap(), "salted");
        assert!(passwords.verify(HERE, Secret::new("correct horse"), Some(hash.clone())).await.unwrap());
        assert!(!passwords.verify(HERE, Secret::new("correct horse "), Some(hash)).await.unwrap());
    }

    #[tokio::test]
    async fn an_unknown_user_costs_as_much_work_as_a_known_one() {
        let passwords = Passwords::default();
        let hash = passwords.hash(Secret::new("correct horse"), vec![]).await.unwrap();
        let parts = |phc: &str| phc.split('$').take(4).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(parts(NOBODY), parts(hash.expose()), "the same parameters");
        assert!(PasswordHash::new(NOBODY).is_ok(), "the hash is really computed");
        for password in ["", "password", NOBODY] {
            assert!(!passwords.verify(HERE, Secret::new(password), None).await.unwrap());
        }
    }

    #[tokio::test]
    async fn a_weak_password_is_refused() {
        let passwords = Passwords::default();
        for (password, about) in [("password1", vec![]), ("jo.doe@acme.example", vec![Secret::new("jo.doe@acme.example")])] {
            assert_eq!(passwords.hash(Secret::new(password), about).await, Err(NewPasswordError::Weak), "{password}");
        }
        assert!(passwords.hash(Secret::new("jo.doe@acme.example"), vec![]).await.is_ok());
    }

    #[tokio::test]
    async fn a_full_lane_is_refused_without_affecting_other_lanes() {
        let passwords = Passwords::default();
        let lane = passwords.places(HERE);
        let taken = lane.all.clone().try_acquire_many_owned(MAX_OF_A_LANE as u32).unwrap();
        assert_eq!(passwords.verify(HERE, Secret::new("x"), None).await, Err(AccessError::Unavailable));
        assert_eq!(passwords.verify(other(1), Secret::new("x"), None).await, Ok(false));
        drop(taken);
        assert_eq!(passwords.verify(HERE, Secret::new("x"), None).await, Ok(false));
        let all = passwords.waiting.clone().try_acquire_many_owned(MAX_WAITING as u32).unwrap();
        assert_eq!(passwords.verify(other(1), Secret::new("x"), None).await, Err(AccessError::Unavailable));
        drop(all);
    }

    /// 90 passwords of one source wait first; the next source's password is verified after one of them.
    #[tokio::test]
    async fn lanes_take_turns() {
        let passwords = Passwords::working(1);
        let core = passwords.working.clone().acquire_owned().await.unwrap();
        let verify = |lane| {
            let passwords = passwords.clone();
            async move { passwords.verify(lane, Secret::new("x"), None).await.map(|_| lane) }
        };
        let mut waiting: FuturesUnordered<_> = (0..20).map(|_| verify(HERE)).collect();
        assert!(futures::poll!(waiting.next()).is_pending());
        waiting.push(verify(other(1)));
        waiting.push(verify(other(2)));
        assert!(futures::poll!(waiting.next()).is_pending());
        drop(core);
        let order: Vec<Lane> = waiting.map(Result::unwrap).collect().await;
        let place = |lane| order.iter().position(|done| *done == lane).unwrap();
        assert!(place(other(1)) <= 2 && place(other(2)) <= 3, "{order:?}");
        assert_eq!(order.len(), 22, "nobody is refused");
    }

    #[tokio::test]
    async fn unused_lanes_are_evicted() {
        let passwords = Passwords::default();
        for n in 0..(3 * MAX_WAITING as u32) {
            drop(passwords.places(Lane::Source(std::net::Ipv4Addr::from(n).into())));
        }
        assert!(passwords.lanes.lock().unwrap().len() <= 2 * MAX_WAITING);
    }
}
