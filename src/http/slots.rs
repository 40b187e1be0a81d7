//! Connection limits of a listener, in total and per source address, and the eviction of connections.

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

/// Unit of the clock, and interval at which all connections are checked.
const TICK: Duration = Duration::from_secs(1);
/// Longest time that a new connection waits until the task of an evicted one drops it. It outlasts the pauses of a busy
/// machine.
const EVICTED_WITHIN: Duration = Duration::from_secs(5);
/// Minimum time between two warnings that the connection limit is reached, in ticks.
const WARN_EVERY: u64 = 60;

/// Connection slots of one listener.
#[derive(Debug)]
pub struct ConnectionSlots {
    shared: Arc<Shared>,
    /// One permit per served connection, held until its task has dropped it.
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

/// Source whose connections are counted together: an IPv4 address, an IPv6 /64, or one trusted proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Source {
    address: IpAddr,
    is_trusted: bool,
}

/// Slot of one connection. Dropping it frees the slot.
#[derive(Debug)]
pub struct ConnectionSlot {
    pub activity: Arc<Activity>,
    source: Source,
    shared: Arc<Shared>,
    free: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        remove(&mut self.shared.held(), self.source, &self.activity);
        self.shared.metrics.connection_closed();
    }
}

impl ConnectionSlot {
    /// Waits until the connection may be served. If another connection was evicted for it, waits until that one is dropped.
    ///
    /// Returns false if this takes too long, or if this connection is evicted in the meantime.
    pub async fn is_free(&mut self) -> bool {
        let activity = self.activity.clone();
        let cut = poll_fn(|cx| if activity.is_cut(cx) { Poll::Ready(()) } else { Poll::Pending });
        let acquired = tokio::select! {
            biased;
            () = cut => return false, // already counted as evicted
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

impl ConnectionSlots {
    pub fn new(limits: Limits, metrics: Metrics) -> ConnectionSlots {
        let shared = Arc::new(Shared { clock: Clock::default(), held: Mutex::default(), metrics });
        ConnectionSlots {
            free: Arc::new(Semaphore::new(limits.connections)),
            connections: limits.connections,
            // However small the total limit is, one address gets at most half of it.
            per_address: limits.per_address.min(limits.connections / 2).max(1),
            trusted_proxies: limits.trusted_proxies,
            warned_at: AtomicU64::new(0),
            _watching: AbortOnDropHandle::new(tokio::spawn(shared.clone().watch())),
            shared,
        }
    }

    /// Admits a connection from this address.
    ///
    /// At the limit of the address, it evicts a connection of that address; at the total limit, one of the source with the
    /// most connections. Returns `None` if all candidates have a request in progress.
    ///
    /// The call does not wait, so that no new connection delays the next. The connection's task waits in [`ConnectionSlot::is_free`].
    pub fn admit(&self, peer: IpAddr) -> Option<ConnectionSlot> {
        let slot = self.reserve(peer);
        match slot {
            Some(_) => self.shared.metrics.connection_opened(),
            None => self.shared.metrics.connection_ended("refused"),
        }
        slot
    }

    fn reserve(&self, peer: IpAddr) -> Option<ConnectionSlot> {
        let source = self.source(peer);
        let mut held = self.shared.held();
        let count = held.get(&source).map_or(0, Vec::len);
        if !source.is_trusted && count >= self.per_address && !self.evict_from(&mut held, source) {
            return None;
        }
        // Waiting connections count too, so there are never more than the limit.
        if held.values().map(Vec::len).sum::<usize>() >= self.connections {
            self.warn();
            if !self.evict_from_most(&mut held) {
                return None;
            }
        }
        let activity = Arc::new(Activity::new(self.shared.clock.clone()));
        held.entry(source).or_default().push(activity.clone());
        Some(ConnectionSlot { activity, source, shared: self.shared.clone(), free: self.free.clone(), permit: None })
    }

    /// Evicts a connection because the process has no file descriptor left for another.
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
        // A connection whose request has just become complete is not evicted. The new client can retry.
        let Some((_, evicted)) = ranked.min_by_key(|(rank, _)| *rank).filter(|(_, activity)| activity.evict()) else {
            return false;
        };
        let evicted = evicted.clone();
        remove(held, source, &evicted);
        self.shared.metrics.connection_ended("evicted");
        true
    }

    /// Evicts a connection of the source with the most connections; of a trusted proxy only if no other source has a
    /// candidate.
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
            tracing::warn!("connection limit reached; closing connections of the addresses with the most");
        }
    }
}

fn remove(held: &mut HashMap<Source, Vec<Arc<Activity>>>, source: Source, activity: &Arc<Activity>) {
    let Some(connections) = held.get_mut(&source) else { return };
    if let Some(index) = connections.iter().position(|other| Arc::ptr_eq(other, activity)) {
        connections.remove(index);
    }
    if connections.is_empty() {
        held.remove(&source);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn slots(connections: usize, per_address: usize) -> ConnectionSlots {
        let trusted_proxies = Arc::new(["10.0.0.0/8".parse().unwrap()]);
        ConnectionSlots::new(Limits { connections, per_address, trusted_proxies }, Metrics::default())
    }

    async fn admit(slots: &ConnectionSlots, address: &str) -> Option<ConnectionSlot> {
        let mut slot = slots.admit(address.parse().unwrap())?;
        slot.is_free().await.then_some(slot)
    }

    /// Drops evicted connections, as their tasks do. Returns their number.
    fn drop_evicted(held: &mut Vec<ConnectionSlot>) -> usize {
        let before = held.len();
        held.retain(|slot| !slot.activity.is_cut(&mut std::task::Context::from_waker(std::task::Waker::noop())));
        before - held.len()
    }

    #[tokio::test]
    async fn an_address_over_its_limit_evicts_its_own_connections() {
        let slots = slots(100, 3);
        let mut held = vec![];
        for _ in 0..5 {
            held.push(admit(&slots, "192.0.2.1").await.unwrap());
        }
        assert_eq!(drop_evicted(&mut held), 2);
        assert!(held.iter().all(|slot| slot.activity.begin_answer()));
        assert!(admit(&slots, "192.0.2.1").await.is_none(), "all of its connections have a request in progress");
        assert!(admit(&slots, "::ffff:192.0.2.1").await.is_none(), "its IPv4-mapped form counts with it");
        assert!(admit(&slots, "192.0.2.2").await.is_some(), "another address is not affected");
        held.pop();
        assert!(admit(&slots, "192.0.2.1").await.is_some());
    }

    /// Answers one request on the connection.
    fn answer(slot: &ConnectionSlot) {
        assert!(slot.activity.begin_answer());
        slot.activity.answer_ends();
        slot.activity.flushed();
    }

    #[tokio::test]
    async fn the_connection_that_is_idle_longest_is_evicted_first() {
        let slots = slots(100, 4);
        let mut held = vec![];
        for _ in 0..4 {
            let slot = admit(&slots, "192.0.2.1").await.unwrap();
            answer(&slot);
            held.push(slot);
        }
        // The first connection is used again in a later tick; the others are equal, so the oldest of them goes.
        slots.shared.clock.fetch_add(1, Ordering::Relaxed);
        answer(&held[0]);
        let kept: Vec<_> = [0, 2, 3].map(|n: usize| held[n].activity.clone()).into();
        let newcomer = admit(&slots, "192.0.2.1").await.unwrap();
        assert_eq!(drop_evicted(&mut held), 1);
        assert!(held.iter().zip(&kept).all(|(slot, kept)| Arc::ptr_eq(&slot.activity, kept)));
        answer(&newcomer);
        for _ in 0..2 {
            // These have sent nothing yet, and an idle connection goes before them.
            held.push(admit(&slots, "192.0.2.1").await.unwrap());
        }
        assert_eq!(drop_evicted(&mut held), 2);
        assert!(Arc::ptr_eq(&held[0].activity, &kept[0]), "the connection used last outlives the older idle ones");
    }

    #[tokio::test]
    async fn an_ipv6_64_counts_as_one_address_and_a_trusted_proxy_has_no_limit() {
        let slots = slots(100, 1);
        let first = admit(&slots, "2001:db8::1").await.unwrap();
        assert!(first.activity.begin_answer());
        assert!(admit(&slots, "2001:db8::ffff:2").await.is_none());
        assert!(admit(&slots, "2001:db8:0:1::1").await.is_some());
        for _ in 0..20 {
            let slot = admit(&slots, "10.1.2.3").await.unwrap();
            assert!(slot.activity.begin_answer());
        }
    }

    #[tokio::test]
    async fn the_source_with_the_most_connections_loses_one() {
        let slots = slots(8, 4);
        let mut most = vec![];
        for _ in 0..4 {
            most.push(admit(&slots, "192.0.2.1").await.unwrap());
        }
        let mut proxy = vec![];
        for _ in 0..3 {
            proxy.push(admit(&slots, "10.1.2.3").await.unwrap());
        }
        let mut few = vec![admit(&slots, "192.0.2.2").await.unwrap()];
        for newcomer in ["192.0.2.3", "192.0.2.4"] {
            let mut admitted = Box::pin(admit(&slots, newcomer));
            assert!((&mut admitted).now_or_never().is_none(), "it waits until the evicted one is dropped");
            assert_eq!(drop_evicted(&mut most), 1);
            few.push(admitted.await.unwrap());
        }
        assert_eq!((drop_evicted(&mut few), drop_evicted(&mut proxy)), (0, 0));
        for slot in most.iter().chain(&few) {
            assert!(slot.activity.begin_answer());
        }
        let mut admitted = Box::pin(admit(&slots, "192.0.2.5"));
        assert!((&mut admitted).now_or_never().is_none());
        assert_eq!(drop_evicted(&mut proxy), 1, "connections of a proxy are evicted last");
        assert!(admitted.await.is_some());
    }

    #[tokio::test]
    async fn waiting_connections_count_towards_the_limit() {
        let slots = slots(2, 1);
        let _slow = (admit(&slots, "192.0.2.1").await.unwrap(), admit(&slots, "192.0.2.2").await.unwrap());
        // The evicted connections are not dropped, so new ones can only wait.
        let mut newcomers: Vec<_> = (3..13).map(|n| slots.admit([192, 0, 2, n].into()).unwrap()).collect();
        assert_eq!(slots.shared.held().len(), 2);
        assert!(drop_evicted(&mut newcomers) >= 8, "new connections are evicted too");
        let waiting = futures::future::join_all(newcomers.iter_mut().map(ConnectionSlot::is_free));
        assert!(waiting.await.iter().all(|is_free| !is_free), "no slot becomes free");
    }
}
