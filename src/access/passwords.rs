//! Passwords of users: argon2id, so much at a time, and each source in its turn.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use tokio::sync::Semaphore;

use super::AccessError;
use crate::secrets::seal::Private;
use crate::secrets::strength;

/// Most passwords that may wait to be hashed, in all and of one lane. Each takes 19 MiB while it is worked on, and some tens of
/// milliseconds of a core; while it waits it takes next to nothing.
const MOST_WAITING: usize = 4_096;
const MOST_OF_A_LANE: usize = 128;
/// How long one may wait before it is refused with 503.
const DEADLINE: Duration = Duration::from_secs(30);

/// What a password is compared with where there is no user: as much work as with any other, and
/// nothing is equal to it.
const NOBODY: &str = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Who asks for a password to be hashed. Lanes take turns, so one that asks for much keeps no other waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Operators, who give users their passwords.
    Operators,
    /// The network that a login comes from.
    Source(IpAddr),
}

/// The permits of a lane: one that is at work or waits for a core, and those that wait behind it.
#[derive(Debug)]
struct Places {
    turn: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

/// Hashes and verifies on threads that may block. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Passwords {
    waiting: Arc<Semaphore>,
    lanes: Arc<Mutex<HashMap<Lane, Weak<Places>>>>,
    /// One for each core. It serves in the order of arrival, and of each lane one at a time arrives: so lanes take turns.
    working: Arc<Semaphore>,
}

/// Why a password cannot be a user's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewPasswordError {
    /// It is common, or close to one that is.
    Weak,
    /// It could not be hashed in time.
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
            waiting: Arc::new(Semaphore::new(MOST_WAITING)),
            lanes: Arc::default(),
            working: Arc::new(Semaphore::new(at_once)),
        }
    }

    /// Makes the PHC string of a new password, under a salt of its own. `about` is what is known of the user: a password made
    /// of it is as weak as a common one.
    ///
    /// # Errors
    /// [`NewPasswordError::Weak`] for one that is easy to guess.
    pub async fn hash(&self, password: Private, about: Vec<Private>) -> Result<Private, NewPasswordError> {
        let hashed = self.work(Lane::Operators, move || {
            let about: Vec<&str> = about.iter().map(Private::expose).collect();
            if strength::is_weak_password(password.expose(), &about) {
                return Err(NewPasswordError::Weak);
            }
            let hash = Argon2::default().hash_password(password.expose().as_bytes());
            hash.map(|hash| Private::new(hash.to_string())).map_err(|error| {
                tracing::error!(%error, "a password cannot be hashed");
                NewPasswordError::Unavailable
            })
        });
        hashed.await?
    }

    /// Whether it is the password. Takes the same time where there is none.
    pub async fn verify(&self, lane: Lane, password: Private, hash: Option<Private>) -> Result<bool, AccessError> {
        self.work(lane, move || {
            let hash = PasswordHash::new(hash.as_ref().map_or(NOBODY, Private::expose));
            hash.is_ok_and(|hash| Argon2::default().verify_password(password.expose().as_bytes(), &hash).is_ok())
        })
        .await
    }

    /// Goes on when the caller stops waiting, and counts as long as it does.
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
        // No more are in use than may wait: half of this many or more are forgotten.
        if lanes.len() >= 2 * MOST_WAITING {
            lanes.retain(|_, places| places.strong_count() > 0);
        }
        let places = Arc::new(Places { turn: Arc::new(Semaphore::new(1)), all: Arc::new(Semaphore::new(MOST_OF_A_LANE)) });
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
    async fn a_password_is_known_by_its_hash() {
        let passwords = Passwords::default();
        let hash = passwords.hash(Private::new("correct horse"), vec![]).await.unwrap();
        assert!(hash.expose().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{}", hash.expose());
        assert_ne!(hash, passwords.hash(Private::new("correct horse"), vec![]).await.unwrap(), "salted");
        assert!(passwords.verify(HERE, Private::new("correct horse"), Some(hash.clone())).await.unwrap());
        assert!(!passwords.verify(HERE, Private::new("correct horse "), Some(hash)).await.unwrap());
    }

    #[tokio::test]
    async fn nobody_has_a_password_and_takes_as_much_work() {
        let passwords = Passwords::default();
        let hash = passwords.hash(Private::new("correct horse"), vec![]).await.unwrap();
        let parts = |phc: &str| phc.split('$').take(4).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(parts(NOBODY), parts(hash.expose()), "the same parameters");
        assert!(PasswordHash::new(NOBODY).is_ok(), "it is really computed");
        for password in ["", "password", NOBODY] {
            assert!(!passwords.verify(HERE, Private::new(password), None).await.unwrap());
        }
    }

    #[tokio::test]
    async fn a_weak_password_is_nobodys() {
        let passwords = Passwords::default();
        for (password, about) in [("password1", vec![]), ("jo.doe@acme.example", vec![Private::new("jo.doe@acme.example")])] {
            assert_eq!(passwords.hash(Private::new(password), about).await, Err(NewPasswordError::Weak), "{password}");
        }
        assert!(passwords.hash(Private::new("jo.doe@acme.example"), vec![]).await.is_ok());
    }

    #[tokio::test]
    async fn too_many_of_one_lane_are_refused_and_no_other() {
        let passwords = Passwords::default();
        let lane = passwords.places(HERE);
        let taken = lane.all.clone().try_acquire_many_owned(MOST_OF_A_LANE as u32).unwrap();
        assert_eq!(passwords.verify(HERE, Private::new("x"), None).await, Err(AccessError::Unavailable));
        assert_eq!(passwords.verify(other(1), Private::new("x"), None).await, Ok(false));
        drop(taken);
        assert_eq!(passwords.verify(HERE, Private::new("x"), None).await, Ok(false));
        let all = passwords.waiting.clone().try_acquire_many_owned(MOST_WAITING as u32).unwrap();
        assert_eq!(passwords.verify(other(1), Private::new("x"), None).await, Err(AccessError::Unavailable));
        drop(all);
    }

    /// 90 of one source are before it, and the next source's is worked on after one of them.
    #[tokio::test]
    async fn lanes_take_turns() {
        let passwords = Passwords::working(1);
        let core = passwords.working.clone().acquire_owned().await.unwrap();
        let verify = |lane| {
            let passwords = passwords.clone();
            async move { passwords.verify(lane, Private::new("x"), None).await.map(|_| lane) }
        };
        let mut waiting: FuturesUnordered<_> = (0..90).map(|_| verify(HERE)).collect();
        assert!(futures::poll!(waiting.next()).is_pending());
        waiting.push(verify(other(1)));
        waiting.push(verify(other(2)));
        assert!(futures::poll!(waiting.next()).is_pending());
        drop(core);
        let order: Vec<Lane> = waiting.map(Result::unwrap).collect().await;
        let place = |lane| order.iter().position(|done| *done == lane).unwrap();
        assert!(place(other(1)) <= 2 && place(other(2)) <= 3, "{order:?}");
        assert_eq!(order.len(), 92, "nobody is refused");
    }

    #[tokio::test]
    async fn lanes_that_nobody_uses_are_forgotten() {
        let passwords = Passwords::default();
        for n in 0..(3 * MOST_WAITING as u32) {
            drop(passwords.places(Lane::Source(std::net::Ipv4Addr::from(n).into())));
        }
        assert!(passwords.lanes.lock().unwrap().len() <= 2 * MOST_WAITING);
    }
}
