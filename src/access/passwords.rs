//! Passwords of users: argon2id, so much at a time.

use std::sync::Arc;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use tokio::sync::Semaphore;

use super::AccessError;
use super::seal::Private;

/// Most that may wait to be hashed; a further one is refused with 503. Each takes 19 MiB while it
/// is worked on, and some tens of milliseconds of a core.
const MOST_WAITING: usize = 64;

/// What a password is compared with where there is no user: as much work as with any other, and
/// nothing is equal to it.
const NOBODY: &str = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Hashes and verifies on threads that may block. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Passwords {
    waiting: Arc<Semaphore>,
    /// One for each core.
    working: Arc<Semaphore>,
}

impl Default for Passwords {
    fn default() -> Passwords {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Passwords { waiting: Arc::new(Semaphore::new(MOST_WAITING)), working: Arc::new(Semaphore::new(cores)) }
    }
}

impl Passwords {
    /// The PHC string of a password, under a salt of its own.
    pub async fn hash(&self, password: Private) -> Result<Private, AccessError> {
        self.work(move || {
            Argon2::default().hash_password(password.expose().as_bytes()).map(|hash| Private::new(hash.to_string()))
        })
        .await?
        .map_err(|error| {
            tracing::error!(%error, "a password cannot be hashed");
            AccessError::Unavailable
        })
    }

    /// Whether it is the password. Takes the same time where there is none.
    pub async fn verify(&self, password: Private, hash: Option<Private>) -> Result<bool, AccessError> {
        self.work(move || {
            let hash = PasswordHash::new(hash.as_ref().map_or(NOBODY, Private::expose));
            hash.is_ok_and(|hash| Argon2::default().verify_password(password.expose().as_bytes(), &hash).is_ok())
        })
        .await
    }

    /// Goes on when the caller stops waiting, and counts as long as it does.
    async fn work<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, AccessError> {
        let waiting = self.waiting.clone().try_acquire_owned().map_err(|_| AccessError::Unavailable)?;
        let working = self.working.clone().acquire_owned().await.map_err(|_| AccessError::Unavailable)?;
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop((working, waiting));
            done
        });
        done.await.map_err(|_| AccessError::Unavailable)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn a_password_is_known_by_its_hash() {
        let passwords = Passwords::default();
        let hash = passwords.hash(Private::new("correct horse")).await.unwrap();
        assert!(hash.expose().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{}", hash.expose());
        assert_ne!(hash, passwords.hash(Private::new("correct horse")).await.unwrap(), "salted");
        assert!(passwords.verify(Private::new("correct horse"), Some(hash.clone())).await.unwrap());
        assert!(!passwords.verify(Private::new("correct horse "), Some(hash)).await.unwrap());
    }

    #[tokio::test]
    async fn nobody_has_a_password_and_takes_as_much_work() {
        let passwords = Passwords::default();
        let hash = passwords.hash(Private::new("x")).await.unwrap();
        let parts = |phc: &str| phc.split('$').take(4).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(parts(NOBODY), parts(hash.expose()), "the same parameters");
        assert!(PasswordHash::new(NOBODY).is_ok(), "it is really computed");
        for password in ["", "password", NOBODY] {
            assert!(!passwords.verify(Private::new(password), None).await.unwrap());
        }
    }

    #[tokio::test]
    async fn too_many_at_once_are_refused() {
        let passwords = Passwords::default();
        let taken = passwords.waiting.clone().try_acquire_many_owned(MOST_WAITING as u32).unwrap();
        assert_eq!(passwords.verify(Private::new("x"), None).await, Err(AccessError::Unavailable));
        drop(taken);
        assert_eq!(passwords.verify(Private::new("x"), None).await, Ok(false));
    }
}
