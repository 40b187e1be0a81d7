//! Faults: which part, and what happens to it.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::cluster::Cluster;
use super::network::Machine;
use crate::support::random::Random;

/// Part of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Primary,
    /// Patroni beside the primary, without its Postgres.
    Patroni,
    Etcd,
    Proxy,
    Node(usize),
}

/// Harm to a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and SIGCONT later.
    Pause,
    /// Every packet is dropped, and forwarded again later.
    Silence,
}

/// A fault of a part, which lasts for a time. What Patroni repairs by itself ends when it is repaired.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub part: Part,
    pub harm: Harm,
    pub lasts: Duration,
}

/// Returns each fault once. Patroni has no address of its own that could be silenced apart from its Postgres.
fn all() -> Vec<(Part, Harm)> {
    let parts = [Part::Primary, Part::Patroni, Part::Etcd, Part::Proxy, Part::Node(0), Part::Node(1), Part::Node(2)];
    let harms = [Harm::Kill, Harm::Pause, Harm::Silence];
    let each = parts.into_iter().flat_map(|part| harms.map(|harm| (part, harm)));
    each.filter(|fault| *fault != (Part::Patroni, Harm::Silence)).collect()
}

/// Returns this many faults: rounds in each of which every fault comes once, in random order.
pub fn schedule(count: usize, random: &mut Random) -> Vec<Fault> {
    let mut faults: Vec<Fault> = vec![];
    while faults.len() < count {
        let mut round = all();
        while !round.is_empty() && faults.len() < count {
            let (part, harm) = round.swap_remove(random.below(round.len()));
            // Shorter and longer than the time after which Patroni replaces a primary, which is 6 s.
            let lasts = Duration::from_millis(1_500 + random.below(8_000) as u64);
            faults.push(Fault { part, harm, lasts });
        }
    }
    faults
}

impl Fault {
    /// Does the harm, waits, and ends it. Parts that were killed are started again by [`Cluster::recover`].
    pub async fn strike(self, cluster: &mut Cluster) {
        let primary = cluster.until_primary().await;
        match (self.part, self.harm) {
            (Part::Primary, Harm::Kill) => cluster.crash_postgres(primary),
            (Part::Patroni, Harm::Kill) => {
                // A primary that was demoted by the fault before, and has just started again, has no synchronous standby. Patroni
                // promotes none then.
                cluster.recover().await;
                let primary = cluster.until_primary().await;
                // The lock expires, and the standby is promoted while the old primary still runs.
                cluster.servers[primary].signal_named("patroni", Signal::SIGKILL);
                cluster.until_other_primary(primary).await;
            }
            (Part::Patroni, _) => {
                cluster.servers[primary].signal_named("bin/patroni", Signal::SIGSTOP);
                tokio::time::sleep(self.lasts).await;
                cluster.servers[primary].signal_named("bin/patroni", Signal::SIGCONT);
            }
            (part, Harm::Kill) => {
                machine(cluster, part, primary).signal(Signal::SIGKILL);
                tokio::time::sleep(self.lasts).await;
            }
            (part, Harm::Pause) => {
                machine(cluster, part, primary).signal(Signal::SIGSTOP);
                tokio::time::sleep(self.lasts).await;
                machine(cluster, part, primary).signal(Signal::SIGCONT);
            }
            (part, Harm::Silence) => {
                machine(cluster, part, primary).silence(true);
                tokio::time::sleep(self.lasts).await;
                machine(cluster, part, primary).silence(false);
            }
        }
    }
}

fn machine(cluster: &Cluster, part: Part, primary: usize) -> &Machine {
    match part {
        Part::Primary | Part::Patroni => &cluster.servers[primary],
        Part::Etcd => &cluster.etcd,
        Part::Proxy => &cluster.proxy,
        Part::Node(index) => &cluster.nodes[index],
    }
}
