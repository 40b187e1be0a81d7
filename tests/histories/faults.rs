//! Faults that strike the nodes and the database of a run, in an order that depends on a seed.

use std::time::Duration;

use embedded_postgres::Server;
use ledger_database::PgConnectOptions;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::{Connection, PgConnection};

use super::load::Shared;
use crate::support::clock::set_ahead;
use crate::support::program::Program;
use crate::support::proxy::{NextCommit, Proxy};
use crate::support::random::Random;
use crate::support::replicas::Pair;
use crate::support::wait::until;

/// Connections of a node, one of which is silenced.
const CONNECTIONS: [&str; 4] =
    ["rewards-ledger writer", "rewards-ledger command", "rewards-ledger gate", "rewards-ledger notifier"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// SIGKILL of a node, and a new start.
    Kill,
    /// SIGSTOP of a node, and SIGCONT later.
    Pause,
    /// A node's connections to the database break, and it gets no new ones for a time.
    Cut,
    /// One of a node's connections carries nothing any more.
    Silence,
    /// A node's next commit happens, and its connection breaks.
    LoseAnswer,
    /// A node's next commit does not happen, and its connection breaks.
    LoseCommit,
    /// A node's next commit happens later, and its connection breaks at once.
    DelayCommit,
    /// SIGKILL of Postgres, which starts again.
    KillPostgres,
    /// The primary dies, and its synchronous standby is promoted. Then the dead server becomes the standby.
    FailOver,
    /// The database's clock jumps.
    MoveClock,
}

/// Faults of two nodes with one server, each of which a run has once.
pub const OF_ONE_SERVER: [Harm; 9] = [
    Harm::Kill,
    Harm::Pause,
    Harm::Cut,
    Harm::Silence,
    Harm::LoseAnswer,
    Harm::LoseCommit,
    Harm::DelayCommit,
    Harm::KillPostgres,
    Harm::MoveClock,
];
/// Faults of three nodes with a synchronous pair.
pub const OF_A_PAIR: [Harm; 7] =
    [Harm::Kill, Harm::Pause, Harm::Cut, Harm::Silence, Harm::DelayCommit, Harm::FailOver, Harm::FailOver];

/// A fault, of a node if it concerns one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub harm: Harm,
    pub node: usize,
    pub lasts: Duration,
}

/// Returns each fault once, in an order that depends on the seed.
pub fn schedule(seed: u64, harms: &[Harm], nodes: usize) -> Vec<Fault> {
    // The load uses the seed, too, and has other numbers.
    let mut random = Random(!seed);
    let mut left = harms.to_vec();
    let mut faults = vec![];
    while !left.is_empty() {
        let harm = left.swap_remove(random.below(left.len()));
        // Shorter and longer than an impatient client waits.
        let lasts = Duration::from_millis(100 + random.below(1_400) as u64);
        faults.push(Fault { harm, node: random.below(nodes), lasts });
    }
    faults
}

/// The database of a run.
#[derive(Debug)]
pub enum Database {
    One(Box<Server>),
    Pair(Box<Pair>),
}

/// A node, behind a proxy for each server.
#[derive(Debug)]
pub struct Node {
    pub program: Program,
    pub proxies: Vec<Proxy>,
}

impl Fault {
    /// Does the harm, waits, and ends it as far as it does not end by itself.
    pub async fn strike(self, database: &mut Database, nodes: &mut [Node], shared: &Shared) {
        let Node { program, proxies } = &mut nodes[self.node];
        match self.harm {
            Harm::Kill => {
                shared.urls.lock().unwrap()[self.node] = None;
                program.signal(Signal::SIGKILL);
                tokio::time::sleep(self.lasts).await;
                program.restart().await;
                shared.urls.lock().unwrap()[self.node] = Some(program.url());
            }
            Harm::Pause => {
                program.signal(Signal::SIGSTOP);
                tokio::time::sleep(self.lasts).await;
                program.signal(Signal::SIGCONT);
            }
            Harm::Cut => {
                proxies.iter().for_each(|proxy| proxy.set_away(true));
                tokio::time::sleep(self.lasts).await;
                proxies.iter().for_each(|proxy| proxy.set_away(false));
            }
            Harm::Silence => {
                let name = CONNECTIONS[self.lasts.as_millis() as usize % CONNECTIONS.len()];
                // The node finds out by itself.
                proxies.iter().for_each(|proxy| drop(proxy.silence(name)));
                tokio::time::sleep(self.lasts).await;
            }
            Harm::LoseAnswer => self.meddle(proxies, NextCommit::LosesItsAnswer).await,
            Harm::LoseCommit => self.meddle(proxies, NextCommit::IsLost).await,
            Harm::DelayCommit => {
                self.meddle(proxies, NextCommit::IsLate).await;
                for proxy in proxies {
                    proxy.deliver_late().await;
                }
            }
            Harm::KillPostgres => {
                let Database::One(server) = database else { panic!("no server to kill") };
                let pid = server.pid();
                kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
                let options: PgConnectOptions = server.url().parse().unwrap();
                until("Postgres is back", async || ![0, pid].contains(&server.pid()) && options.connect().await.is_ok()).await;
            }
            Harm::FailOver => {
                let Database::Pair(pair) = database else { panic!("no standby to promote") };
                pair.fail_over().await;
                tokio::time::sleep(self.lasts).await;
                pair.rejoin().await;
            }
            Harm::MoveClock => {
                let Database::One(server) = database else { panic!("no clock to move") };
                let mut admin = PgConnection::connect(&server.url()).await.unwrap();
                set_ahead(&mut admin, "20 minutes").await;
                tokio::time::sleep(self.lasts).await;
                set_ahead(&mut admin, "0").await;
            }
        }
    }

    /// Lets something happen to the node's next commit, if one comes in time.
    async fn meddle(&self, proxies: &[Proxy], next: NextCommit) {
        proxies.iter().for_each(|proxy| proxy.set(next));
        tokio::time::sleep(self.lasts).await;
        proxies.iter().for_each(|proxy| proxy.set(NextCommit::Passes));
    }
}

#[test]
fn a_seed_repeats_the_order_of_faults() {
    let faults = schedule(1, &OF_ONE_SERVER, 2);
    assert_eq!(faults, schedule(1, &OF_ONE_SERVER, 2));
    assert!(OF_ONE_SERVER.iter().all(|harm| faults.iter().any(|fault| fault.harm == *harm)));
    assert_ne!(faults, schedule(2, &OF_ONE_SERVER, 2));
}
