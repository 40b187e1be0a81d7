//! Names to addresses, behind the address filter. What is returned is what is dialled: there is no
//! second look-up that could answer otherwise.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use url::Host;

use super::address::{AddressFilter, Refused};

/// Name look-ups block a thread each. Names whose servers are dead must not take
/// all the threads that the rest of the process needs.
const MAX_LOOKUPS_IN_FLIGHT: usize = 128;

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
    lookups: Arc<Semaphore>,
    lookup: Lookup,
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
        Resolver { filter, lookups: Arc::new(Semaphore::new(MAX_LOOKUPS_IN_FLIGHT)), lookup }
    }

    /// Every address of a host, each one allowed.
    pub async fn resolve(&self, host: &Host<String>, port: u16) -> Result<Vec<SocketAddr>, Unresolved> {
        let addresses = match host {
            Host::Ipv4(v4) => vec![SocketAddr::from((*v4, port))],
            Host::Ipv6(v6) => vec![SocketAddr::from((*v6, port))],
            Host::Domain(name) => {
                let permit = self.lookups.clone().acquire_owned().await.map_err(|_| Unresolved::NotResolved)?;
                let lookup = (self.lookup)(name.clone());
                // A task of its own: the permit stays taken for as long as the look-up
                // holds its thread, even if the send is given up before.
                let found = tokio::spawn(async move {
                    let found = lookup.await;
                    drop(permit);
                    found
                });
                let found = found.await.map_err(|_| Unresolved::NotResolved)?.map_err(|_| Unresolved::NotResolved)?;
                found.into_iter().map(|address| SocketAddr::new(address.ip(), port)).collect()
            }
        };
        Ok(self.filter.check_all(addresses)?)
    }
}
