//! Name resolution behind the SSRF filter. The sender dials exactly the returned addresses: there is no second lookup that
//! could answer differently (DNS rebinding).

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::sync::Semaphore;
use url::Host;

use super::address::{AddressFilter, Refused};

/// Duration above which a lookup counts as slow.
const SLOW: Duration = Duration::from_secs(1);
/// Maximum number of addresses of a name that are dialled.
const MAX_ADDRESSES: usize = 8;
/// Maximum number of names whose lookup speed is remembered.
const REMEMBERED: usize = 10_000;

/// Reason that there is no address to dial.
#[derive(Debug, thiserror::Error)]
pub enum Unresolved {
    /// The filter refuses an address.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The lookup failed.
    #[error("the name could not be resolved")]
    NotResolved,
}

/// Function that resolves a name to addresses, with any port. A lookup blocks no thread of the async runtime.
pub type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// Resolver of names, behind the filter.
pub struct Resolver {
    filter: AddressFilter,
    lookups: Arc<Lookups>,
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("filter", &self.filter).finish_non_exhaustive()
    }
}

impl Resolver {
    /// Creates a resolver that asks the system.
    pub fn new(filter: AddressFilter) -> Resolver {
        let system = |name: String| async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) }.boxed();
        Resolver::with(filter, Arc::new(system))
    }

    /// Creates a resolver that asks another source of names.
    pub fn with(filter: AddressFilter, lookup: Lookup) -> Resolver {
        let lookups = Lookups {
            lookup,
            quick: Arc::new(Semaphore::new(64)),
            new: Arc::new(Semaphore::new(64)),
            slow: Arc::new(Semaphore::new(128)),
            names: Mutex::default(),
        };
        Resolver { filter, lookups: Arc::new(lookups) }
    }

    /// Resolves a host and returns its first eight addresses. The filter has to allow all of the
    /// host's addresses, including those that are not returned.
    ///
    /// # Errors
    /// See [`Unresolved`].
    pub async fn resolve(&self, host: &Host<String>, port: u16) -> Result<Vec<SocketAddr>, Unresolved> {
        let addresses = match host {
            Host::Ipv4(v4) => vec![SocketAddr::from((*v4, port))],
            Host::Ipv6(v6) => vec![SocketAddr::from((*v6, port))],
            Host::Domain(name) => {
                let found = self.lookups.ask(name).await.ok_or(Unresolved::NotResolved)?;
                found.into_iter().map(|address| SocketAddr::new(address.ip(), port)).collect()
            }
        };
        let mut addresses = self.filter.check_all(addresses)?;
        addresses.truncate(MAX_ADDRESSES);
        Ok(addresses)
    }
}

/// Lookup in progress, shared by all callers that ask for the same name. Resolves to `None` on failure.
type PendingLookup = Shared<BoxFuture<'static, Option<Vec<SocketAddr>>>>;

/// Lookups in progress and their permits.
///
/// A lookup blocks a thread for as long as the name's servers keep the system waiting. So each name has at most one lookup
/// at a time. Names get their permits from separate pools by past speed, so that names with dead servers delay only each
/// other. All permits together are fewer than the blocking threads.
struct Lookups {
    lookup: Lookup,
    quick: Arc<Semaphore>,
    new: Arc<Semaphore>,
    slow: Arc<Semaphore>,
    names: Mutex<Names>,
}

#[derive(Default)]
struct Names {
    under_way: HashMap<String, PendingLookup>,
    /// Whether the last lookup of a name was fast.
    is_quick: HashMap<String, bool>,
}

/// Marks a lookup as in progress. Dropping it removes the mark, however the lookup ends.
struct UnderWay {
    lookups: Arc<Lookups>,
    name: String,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.lookups.names().under_way.remove(&self.name);
    }
}

impl Lookups {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(self: &Arc<Self>, name: &str) -> PendingLookup {
        let mut names = self.names();
        if let Some(found) = names.under_way.get(name) {
            return found.clone();
        }
        // The lookup runs in its own task. It keeps its permit while it blocks a thread, even if every send that waits for
        // it is cancelled.
        let looking = tokio::spawn(self.clone().look_up(UnderWay { lookups: self.clone(), name: name.to_owned() }));
        let found = looking.map(|found| found.ok().flatten()).boxed().shared();
        names.under_way.insert(name.to_owned(), found.clone());
        found
    }

    async fn look_up(self: Arc<Self>, under_way: UnderWay) -> Option<Vec<SocketAddr>> {
        let name = &under_way.name;
        let permits = match self.names().is_quick.get(name) {
            Some(true) => &self.quick,
            None => &self.new,
            Some(false) => &self.slow,
        };
        let mut permit = permits.clone().acquire_owned().await.ok()?;
        let mut looking = (self.lookup)(name.clone());
        let in_time = tokio::time::timeout(SLOW, &mut looking).await;
        self.remember(name, in_time.is_ok());
        let found = match in_time {
            Ok(found) => found,
            Err(_) => {
                if let Ok(other) = self.slow.clone().try_acquire_owned() {
                    permit = other;
                }
                looking.await
            }
        };
        drop(permit);
        found.ok()
    }

    fn remember(&self, name: &str, is_quick: bool) {
        let known = &mut self.names().is_quick;
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(name.to_owned(), is_quick);
    }
}
