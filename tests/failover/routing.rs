//! The choice between a standby and the primary, read by read. The limits are so far apart that no pause of the machine
//! changes an outcome.

use std::sync::Arc;
use std::time::Duration;

use ledger_database::{PgConnectOptions, PgPool, PoolConnection};
use rewards_ledger::ledger::log_position::LogPosition;
use rewards_ledger::ledger::standby::{Standby, StandbyLimits};
use rewards_ledger::ledger::{Ledger, connect};
use rewards_ledger::telemetry::Metrics;
use uuid::Uuid;

use crate::support::ledger::{self, SHARD};
use crate::support::relay::Relay;
use crate::support::replicas::Pair;
use crate::support::wait::until;

/// Wait and suspension that no test reaches the end of.
const LONG: Duration = Duration::from_secs(3_600);
/// Wait whose end the tests see.
const SHORT: Duration = Duration::from_millis(300);

/// A ledger on a primary, and its standby.
struct Servers {
    pair: Pair,
    ledger: Ledger,
}

impl Servers {
    async fn start() -> Servers {
        let pair = Pair::start().await;
        let options: PgConnectOptions = pair.primary_url().parse().unwrap();
        rewards_ledger::ledger::migrate(&options).await.unwrap();
        let servers = Servers { pair, ledger: ledger::open(&options).await };
        servers.append().await;
        servers
    }

    /// Appends an event. Returns the position that includes it.
    async fn append(&self) -> LogPosition {
        ledger::product(&self.ledger, "Card").await;
        self.ledger.answered_at()
    }

    fn standby(&self, max_wait: Duration, suspension: Duration) -> Standby {
        standby_at(&self.pair.standby_url(), max_wait, suspension)
    }

    fn pool(&self, standby: &Standby, at_least: Option<&LogPosition>) -> PgPool {
        standby.read_pool(self.ledger.pool(), at_least.cloned(), Arc::default())
    }

    /// Returns whether the standby serves a read that needs this position.
    async fn is_served(&self, standby: &Standby, at_least: Option<&LogPosition>) -> bool {
        let pool = self.pool(standby, at_least);
        self.leads_to_standby(&mut pool.acquire().await.unwrap()).await
    }

    async fn leads_to_standby(&self, connection: &mut PoolConnection) -> bool {
        let port = port(connection).await;
        assert!(port == self.pair.primary_port() || port == self.pair.standby_port());
        port == self.pair.standby_port()
    }
}

fn standby_at(url: &str, max_wait: Duration, suspension: Duration) -> Standby {
    let pool = connect::standby(&url.parse().unwrap(), 4);
    Standby::new(pool, StandbyLimits { max_wait, suspension }, Metrics::default())
}

/// Returns the port of the server to which a connection leads.
async fn port(connection: &mut PoolConnection) -> u16 {
    let port: i32 = sqlx::query_scalar("SELECT inet_server_port()").fetch_one(&mut **connection).await.unwrap();
    port.try_into().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_serves_each_read_whose_position_it_has_or_reaches_in_time() {
    let servers = Servers::start().await;
    let (old, patient) = (servers.ledger.answered_at(), servers.standby(LONG, LONG));
    assert!(servers.is_served(&patient, None).await);
    servers.pair.hold_back(true).await;
    let new = servers.append().await;
    assert!(servers.is_served(&patient, Some(&old)).await);
    for position in [Some(&new), None] {
        let hasty = servers.standby(SHORT, LONG);
        assert!(!servers.is_served(&hasty, position).await);
        assert!(!servers.is_served(&hasty, Some(&old)).await, "the standby is suspended");
    }
    let (is_served, ()) = tokio::join!(servers.is_served(&patient, Some(&new)), servers.pair.hold_back(false));
    assert!(is_served);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_read_that_finds_the_standby_current_ends_a_suspension() {
    let servers = Servers::start().await;
    let old = servers.ledger.answered_at();
    servers.pair.hold_back(true).await;
    let new = servers.append().await;
    let standby = servers.standby(SHORT, Duration::ZERO);
    assert!(!servers.is_served(&standby, Some(&new)).await);
    // The suspension is over at once, so this read tries the standby.
    assert!(!servers.is_served(&standby, Some(&old)).await);
    servers.pair.hold_back(false).await;
    until("the standby serves reads again", async || servers.is_served(&standby, Some(&old)).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_that_a_failover_lost_is_read_from_the_primary_and_suspends_nothing() {
    let servers = Servers::start().await;
    let ours = servers.ledger.answered_at();
    // The log has another event at this position.
    let lost: LogPosition = [(SHARD, 1, Uuid::from_u128(7))].into_iter().collect();
    until("a read of the lost position suspends nothing", async || {
        let standby = servers.standby(SHORT, LONG);
        assert!(!servers.is_served(&standby, Some(&lost)).await);
        // A pause of the machine looks like a standby that does not answer, and suspends it.
        servers.is_served(&standby, Some(&ours)).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_reads_of_a_request_use_one_of_several_servers_behind_an_address() {
    let servers = Servers::start().await;
    let ports = [servers.pair.primary_port(), servers.pair.standby_port()];
    let relay = Relay::among(ports.map(|port| ([127, 0, 0, 1], port).into()).to_vec()).await;
    let url = servers.pair.primary_url().replace(&format!(":{}/", ports[0]), &format!(":{}/", relay.address().port()));
    let balanced = standby_at(&url, LONG, LONG);
    let pool = servers.pool(&balanced, None);
    // The second connection through the relay would lead to the other server.
    let (mut one, mut other) = (pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
    assert_eq!(port(&mut one).await, port(&mut other).await);
    assert!(relay.accepted() > 2);
    assert_eq!((one.name(), other.name()), ("rewards-ledger standby", "rewards-ledger standby"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_goes_on_at_the_primary_when_its_standby_is_lost() {
    let mut servers = Servers::start().await;
    let pool = servers.pool(&servers.standby(LONG, LONG), None);
    assert!(servers.leads_to_standby(&mut pool.acquire().await.unwrap()).await);
    servers.pair.lose_standby().await;
    for _ in 0..2 {
        assert!(!servers.leads_to_standby(&mut pool.acquire().await.unwrap()).await);
    }
}
