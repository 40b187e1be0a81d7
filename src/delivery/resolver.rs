//! Names to addresses, behind the address filter. What is returned is what is dialled: there is no
//! second look-up that could answer otherwise.

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

/// A look-up that takes longer is slow.
const SLOW: Duration = Duration::from_secs(1);
/// Most addresses of a name that are dialled, one after the other.
const MOST_ADDRESSES: usize = 8;
/// Most names of which it is remembered how quick they are.
const REMEMBERED: usize = 10_000;

/// Why there is no address to dial.
#[derive(Debug, thiserror::Error)]
pub enum Unresolved {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("the name could not be resolved")]
    NotResolved,
}

/// How a name becomes addresses: as the system does it, but for tests.
pub type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

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
    pub fn new(filter: AddressFilter) -> Resolver {
        let system = |name: String| async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) }.boxed();
        Resolver::with(filter, Arc::new(system))
    }

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

    /// The first addresses of a host, every one of which is allowed: those beyond them, too.
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
        addresses.truncate(MOST_ADDRESSES);
        Ok(addresses)
    }
}

/// A look-up under way, for everybody who asks for its name meanwhile; none when there is no answer.
type Found = Shared<BoxFuture<'static, Option<Vec<SocketAddr>>>>;

/// Look-ups block a thread each, for as long as the name's servers let the system wait. So each name
/// has one at a time, and names have permits by how quick they were: those whose servers are dead
/// wait for each other, not the rest for them. All together are fewer than there are threads.
struct Lookups {
    lookup: Lookup,
    quick: Arc<Semaphore>,
    new: Arc<Semaphore>,
    slow: Arc<Semaphore>,
    names: Mutex<Names>,
}

#[derive(Default)]
struct Names {
    under_way: HashMap<String, Found>,
    /// Whether a name's last look-up was quick.
    is_quick: HashMap<String, bool>,
}

/// Its look-up is under way for as long as this is there, however it ends.
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

    fn ask(self: &Arc<Self>, name: &str) -> Found {
        let mut names = self.names();
        if let Some(found) = names.under_way.get(name) {
            return found.clone();
        }
        // A task of its own: the permit stays taken for as long as the look-up
        // holds its thread, even if every send that asked is given up before.
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
