//! Places for connections: how many there may be, in all and per source address, and who loses theirs.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use ipnet::IpNet;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::AbortOnDropHandle;

use super::Limits;
use super::activity::{Activity, Clock};
use crate::telemetry::Metrics;

/// The unit of the clock: how often connections are looked at.
const TICK: Duration = Duration::from_secs(1);
/// Time for an evicted connection's task to drop it.
const EVICTED_WITHIN: Duration = Duration::from_secs(1);
/// Least time between two warnings that all places are taken, in ticks.
const WARN_EVERY: u64 = 60;

/// The places of one listener.
#[derive(Debug)]
pub struct Places {
    shared: Arc<Shared>,
    /// A permit for each connection that is served, until its task has dropped it.
    free: Arc<Semaphore>,
    connections: usize,
    per_address: usize,
    trusted_proxies: Arc<[IpNet]>,
    warned_at: AtomicU64,
    _watching: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    held: Mutex<HashMap<Source, Vec<Arc<Activity>>>>,
    metrics: Metrics,
}

/// Where connections are counted together: an IPv4 address, a /64 of IPv6, or one trusted proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Source {
    address: IpAddr,
    is_trusted: bool,
}

/// A connection's place.
#[derive(Debug)]
pub struct Place {
    pub activity: Arc<Activity>,
    source: Source,
    shared: Arc<Shared>,
    free: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Place {
    fn drop(&mut self) {
        remove(&mut self.shared.held(), self.source, &self.activity);
        self.shared.metrics.connection_closed();
    }
}

impl Place {
    /// Waits until the connection may be served: if another was evicted for it, until that one is dropped. False if that
    /// takes too long, or if this one is evicted meanwhile.
    pub async fn is_free(&mut self) -> bool {
        let activity = self.activity.clone();
        let cut = poll_fn(|cx| if activity.is_cut(cx) { Poll::Ready(()) } else { Poll::Pending });
        let acquired = tokio::select! {
            biased;
            () = cut => return false, // counted as evicted
            acquired = tokio::time::timeout(EVICTED_WITHIN, self.free.clone().acquire_owned()) => acquired,
        };
        self.permit = acquired.ok().and_then(Result::ok);
        if self.permit.is_none() {
            self.shared.metrics.connection_ended("refused");
        }
        self.permit.is_some()
    }
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, HashMap<Source, Vec<Arc<Activity>>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn watch(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(TICK);
        loop {
            ticks.tick().await;
            self.clock.fetch_add(1, Ordering::Relaxed);
            for activity in self.held().values().flatten() {
                if let Some(overdue) = activity.look() {
                    self.metrics.connection_ended(overdue.as_str());
                }
            }
        }
    }
}

impl Places {
    pub fn new(limits: Limits, metrics: Metrics) -> Places {
        let shared = Arc::new(Shared { clock: Clock::default(), held: Mutex::default(), metrics });
        Places {
            free: Arc::new(Semaphore::new(limits.connections)),
            connections: limits.connections,
            // However few places there are, no address takes more than half.
            per_address: limits.per_address.min(limits.connections / 2).max(1),
            trusted_proxies: limits.trusted_proxies,
            warned_at: AtomicU64::new(0),
            _watching: AbortOnDropHandle::new(tokio::spawn(shared.clone().watch())),
            shared,
        }
    }

    /// A place for a connection from this address. If the address or the listener has none left, a connection of the
    /// address, or of the one that holds most, loses its own. None if all of them are being answered.
    ///
    /// It does not wait, so that no newcomer delays the next: the newcomer's task waits in [`Place::is_free`].
    pub fn admit(&self, peer: IpAddr) -> Option<Place> {
        let place = self.place(peer);
        match place {
            Some(_) => self.shared.metrics.connection_opened(),
            None => self.shared.metrics.connection_ended("refused"),
        }
        place
    }

    fn place(&self, peer: IpAddr) -> Option<Place> {
        let source = self.source(peer);
        let mut held = self.shared.held();
        let count = held.get(&source).map_or(0, Vec::len);
        if !source.is_trusted && count >= self.per_address && !self.evict_from(&mut held, source) {
            return None;
        }
        // Those who wait count, too: there are never more than places.
        if held.values().map(Vec::len).sum::<usize>() >= self.connections {
            self.warn();
            if !self.evict_from_most(&mut held) {
                return None;
            }
        }
        let activity = Arc::new(Activity::new(self.shared.clock.clone()));
        held.entry(source).or_default().push(activity.clone());
        Some(Place { activity, source, shared: self.shared.clone(), free: self.free.clone(), permit: None })
    }

    /// Evicts a connection because the system has no descriptor left for another.
    pub fn evict_one(&self) {
        self.evict_from_most(&mut self.shared.held());
    }

    fn source(&self, peer: IpAddr) -> Source {
        let address = peer.to_canonical();
        let is_trusted = self.trusted_proxies.iter().any(|network| network.contains(&address));
        let address = match address {
            IpAddr::V6(address) if !is_trusted => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address => address,
        };
        Source { address, is_trusted }
    }

    fn evict_from(&self, held: &mut HashMap<Source, Vec<Arc<Activity>>>, source: Source) -> bool {
        let Some(connections) = held.get(&source) else { return false };
        let ranked = connections.iter().filter_map(|activity| Some((activity.eviction_rank()?, activity)));
        // One whose request has become complete meanwhile is not evicted; the newcomer can come again.
        let Some((_, evicted)) = ranked.min_by_key(|(rank, _)| *rank).filter(|(_, activity)| activity.evict()) else {
            return false;
        };
        let evicted = evicted.clone();
        remove(held, source, &evicted);
        self.shared.metrics.connection_ended("evicted");
        true
    }

    /// Evicts from the address that holds most; from a trusted proxy only if nobody else has one to lose.
    fn evict_from_most(&self, held: &mut HashMap<Source, Vec<Arc<Activity>>>) -> bool {
        let holds = |(source, connections): (&Source, &Vec<Arc<Activity>>)| (!source.is_trusted, connections.len(), *source);
        let Some((.., most)) = held.iter().map(holds).max_by_key(|(is_untrusted, count, _)| (*is_untrusted, *count)) else {
            return false;
        };
        if self.evict_from(held, most) {
            return true;
        }
        let mut others: Vec<_> = held.iter().map(holds).collect();
        others.sort_unstable_by_key(|(is_untrusted, count, _)| std::cmp::Reverse((*is_untrusted, *count)));
        others.into_iter().any(|(.., source)| self.evict_from(held, source))
    }

    fn warn(&self) {
        let now = self.shared.clock.load(Ordering::Relaxed);
        let warned_at = self.warned_at.load(Ordering::Relaxed);
        if warned_at == 0 || now.saturating_sub(warned_at) >= WARN_EVERY {
            self.warned_at.store(now.max(1), Ordering::Relaxed);
            tracing::warn!("all places for clients' connections are taken; closing those of whoever holds most");
        }
    }
}

fn remove(held: &mut HashMap<Source, Vec<Arc<Activity>>>, source: Source, activity: &Arc<Activity>) {
    let Some(connections) = held.get_mut(&source) else { return };
    if let Some(place) = connections.iter().position(|other| Arc::ptr_eq(other, activity)) {
        connections.remove(place);
    }
    if connections.is_empty() {
        held.remove(&source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(connections: usize, per_address: usize) -> Places {
        let trusted_proxies = Arc::new(["10.0.0.0/8".parse().unwrap()]);
        Places::new(Limits { connections, per_address, trusted_proxies }, Metrics::default())
    }

    async fn admit(places: &Places, address: &str) -> Option<Place> {
        let mut place = places.admit(address.parse().unwrap())?;
        place.is_free().await.then_some(place)
    }

    /// Drops what was evicted, as its task does.
    fn drop_evicted(held: &mut Vec<Place>) -> usize {
        let before = held.len();
        held.retain(|place| !place.activity.is_cut(&mut std::task::Context::from_waker(std::task::Waker::noop())));
        before - held.len()
    }

    #[tokio::test]
    async fn an_address_has_so_many_connections_and_loses_its_own_for_more() {
        let places = places(100, 3);
        let mut held = vec![];
        for _ in 0..5 {
            held.push(admit(&places, "192.0.2.1").await.unwrap());
        }
        assert_eq!(drop_evicted(&mut held), 2);
        assert!(held.iter().all(|place| place.activity.begin_answer()));
        assert!(admit(&places, "192.0.2.1").await.is_none(), "all of its requests are being answered");
        assert!(admit(&places, "::ffff:192.0.2.1").await.is_none(), "in IPv6, too");
        assert!(admit(&places, "192.0.2.2").await.is_some(), "another address is not concerned");
        held.pop();
        assert!(admit(&places, "192.0.2.1").await.is_some());
    }

    #[tokio::test]
    async fn a_64_of_ipv6_counts_as_one_address_and_a_trusted_proxy_not_at_all() {
        let places = places(100, 1);
        let first = admit(&places, "2001:db8::1").await.unwrap();
        assert!(first.activity.begin_answer());
        assert!(admit(&places, "2001:db8::ffff:2").await.is_none());
        assert!(admit(&places, "2001:db8:0:1::1").await.is_some());
        for _ in 0..20 {
            let place = admit(&places, "10.1.2.3").await.unwrap();
            assert!(place.activity.begin_answer());
        }
    }

    #[tokio::test]
    async fn whoever_holds_most_makes_room() {
        let places = places(8, 4);
        let mut most = vec![];
        for _ in 0..4 {
            most.push(admit(&places, "192.0.2.1").await.unwrap());
        }
        let mut proxy = vec![];
        for _ in 0..3 {
            proxy.push(admit(&places, "10.1.2.3").await.unwrap());
        }
        let mut few = vec![admit(&places, "192.0.2.2").await.unwrap()];
        for newcomer in ["192.0.2.3", "192.0.2.4"] {
            let mut admitted = Box::pin(admit(&places, newcomer));
            let waiting = tokio::time::timeout(Duration::from_millis(20), &mut admitted).await;
            assert!(waiting.is_err(), "until the evicted one is dropped");
            assert_eq!(drop_evicted(&mut most), 1);
            few.push(admitted.await.unwrap());
        }
        assert_eq!((drop_evicted(&mut few), drop_evicted(&mut proxy)), (0, 0));
        for place in most.iter().chain(&few) {
            assert!(place.activity.begin_answer());
        }
        let mut admitted = Box::pin(admit(&places, "192.0.2.5"));
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut admitted).await.is_err());
        assert_eq!(drop_evicted(&mut proxy), 1, "the proxy's come last");
        assert!(admitted.await.is_some());
    }

    #[tokio::test]
    async fn newcomers_who_wait_for_a_place_are_bounded_too() {
        let places = places(2, 1);
        let _slow = (admit(&places, "192.0.2.1").await.unwrap(), admit(&places, "192.0.2.2").await.unwrap());
        // The evicted ones are not dropped: newcomers can only wait.
        let mut newcomers: Vec<_> = (3..13).map(|n| places.admit([192, 0, 2, n].into()).unwrap()).collect();
        assert_eq!(places.shared.held().len(), 2);
        assert!(drop_evicted(&mut newcomers) >= 8, "newcomers are evicted, too");
        for newcomer in &mut newcomers {
            assert!(!newcomer.is_free().await, "it waits in vain");
        }
    }
}
