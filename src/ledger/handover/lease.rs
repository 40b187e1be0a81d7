//! Leases on the writing of shards. The other nodes hand their commands to the node that holds the lease.
//!
//! A lease is only for speed. Several nodes that write the same shard make each other's caches invalid. The head of the log
//! decides who writes: two nodes that both believe that they lead, and nodes that know of no lease, lose nothing.
//!
//! A node hands nothing to a leader that has not just answered an empty request. So a wrong URL, a clock that differs, or a
//! network that one side cannot cross costs no command its outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use ledger_events::ShardId;
use reqwest::Url;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::leader::{Leader, Leaders};
use super::sender::{HandoverError, send};
use super::{FORMAT, Request};
use crate::ledger::connect::{self, DedicatedConnection};
use crate::ledger::{COMMAND_DEADLINE, Ledger, ShardWatch, VERDICT_GRACE};
use crate::secrets::seal::Keyring;
use crate::telemetry::Metrics;

/// Interval at which a node renews its leases, and learns of those of others.
pub const RENEW_EVERY: Duration = Duration::from_secs(1);
/// Time after its last renewal at which another node may take a lease.
const LEASE: Duration = Duration::from_secs(4);
/// Timeout of a connection to another node.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Timeout of a handover: as long as a caller waits.
const TIMEOUT: Duration = COMMAND_DEADLINE.saturating_add(VERDICT_GRACE);
/// Timeout of the empty request by which a leader proves itself.
const PROOF_TIMEOUT: Duration = Duration::from_millis(500);
/// Time without use after which a connection to another node is closed: less than the other node waits.
const IDLE: Duration = Duration::from_secs(5);

/// This node, as it competes for leases.
#[derive(Debug)]
pub struct Candidate {
    connection: DedicatedConnection,
    shards: ShardWatch,
    leaders: Leaders,
    keyring: Arc<Keyring>,
    metrics: Metrics,
    id: Uuid,
    /// URL at which other nodes reach this one.
    url: String,
    http: reqwest::Client,
    /// Leaders that did not answer, whose fault is in the log.
    unproven: BTreeSet<(ShardId, Uuid)>,
}

impl Candidate {
    /// # Errors
    /// If the HTTP client cannot be built.
    pub fn new(ledger: &Ledger, keyring: Arc<Keyring>, url: String, metrics: Metrics) -> Result<Candidate, reqwest::Error> {
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE)
            .timeout(TIMEOUT)
            .build()?;
        let (connection, shards) = (ledger.wake().notifier().clone(), ledger.shard_watch().clone());
        let (leaders, unproven) = (ledger.leaders().clone(), BTreeSet::new());
        Ok(Candidate { connection, shards, leaders, keyring, metrics, id: Uuid::now_v7(), url, http, unproven })
    }

    /// Returns the id that this node drew. Commands for it name it.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Renews leases until stopped, and then gives them back.
    pub async fn run(mut self, stop: CancellationToken) {
        let heartbeat = self.metrics.heartbeats().background("leases of shards");
        let mut due = tokio::time::interval(RENEW_EVERY);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut learned_at = Instant::now();
        loop {
            heartbeat.beat();
            if stop.run_until_cancelled(due.tick()).await.is_none() {
                break;
            }
            match connect::within(LEASE, self.renew()).await {
                Ok(()) => learned_at = Instant::now(),
                Err(error) => {
                    tracing::warn!(%error, "failed to renew the leases of shards; retrying");
                    if learned_at.elapsed() >= LEASE {
                        self.leads_none();
                    }
                }
            }
        }
        self.leads_none();
        if let Err(error) = connect::within(LEASE, self.give_back()).await {
            tracing::warn!(%error, "failed to give back the leases of shards; they will expire");
        }
    }

    /// Takes and renews the leases that nobody else holds, and learns who holds the others. A lease that ends long from now is
    /// older than a clock that was set back.
    async fn renew(&mut self) -> Result<(), sqlx::Error> {
        let shards = self.shards.current();
        let mut connection = self.connection.acquire().await?;
        let own: Vec<ShardId> = sqlx::query_scalar(
            "INSERT INTO shard_leaders AS held (shard_id, node_id, url, format, expires_at)
             SELECT shard_id, $2, $3, $4, clock_timestamp() + make_interval(secs => $5)
             FROM unnest($1::smallint[]) AS s (shard_id) ORDER BY shard_id
             ON CONFLICT (shard_id) DO UPDATE SET node_id = excluded.node_id, url = excluded.url, format = excluded.format,
                expires_at = excluded.expires_at
             WHERE held.node_id = excluded.node_id
                OR held.expires_at NOT BETWEEN clock_timestamp() AND clock_timestamp() + 2 * make_interval(secs => $5)
             RETURNING shard_id",
        )
        .bind(&shards)
        .bind(self.id)
        .bind(&self.url)
        .bind(FORMAT)
        .bind(LEASE.as_secs_f64())
        .fetch_all(&mut *connection)
        .await?;
        let others: Vec<(ShardId, Uuid, String)> = sqlx::query_as(
            "SELECT shard_id, node_id, url FROM shard_leaders
             WHERE node_id <> $1 AND format = $2 AND expires_at > clock_timestamp()",
        )
        .bind(self.id)
        .bind(FORMAT)
        .fetch_all(&mut *connection)
        .await?;
        connection.keep();
        let mut leaders = BTreeMap::new();
        let proofs = others.iter().map(|(shard, node_id, url)| self.prove(*shard, *node_id, url));
        let proven = join_all(proofs).await;
        for ((shard, node_id, url), proven) in others.iter().zip(proven) {
            match proven {
                Ok(leader) => {
                    self.unproven.remove(&(*shard, *node_id));
                    leaders.insert(*shard, leader);
                }
                Err(error) if self.unproven.insert((*shard, *node_id)) => {
                    tracing::warn!(shard, %url, %error, "the leader of a shard cannot be used; writing the shard here");
                }
                Err(_) => {}
            }
        }
        self.leaders.set(leaders);
        for shard in shards {
            self.metrics.leads(shard, own.contains(&shard));
        }
        Ok(())
    }

    /// Ends the leases of this node.
    async fn give_back(&self) -> Result<(), sqlx::Error> {
        let mut connection = self.connection.acquire().await?;
        sqlx::query("DELETE FROM shard_leaders WHERE node_id = $1").bind(self.id).execute(&mut *connection).await?;
        connection.keep();
        Ok(())
    }

    /// Returns the leader of a shard if it answers.
    async fn prove(&self, shard: ShardId, node_id: Uuid, url: &str) -> Result<Leader, HandoverError> {
        let url = Url::parse(url).map_err(|error| HandoverError::NotTaken(error.to_string()))?;
        let leader = Leader { node_id, url, http: self.http.clone() };
        let request = Request::new(shard, node_id, &[]);
        match tokio::time::timeout(PROOF_TIMEOUT, send(&leader, &self.keyring, &request)).await {
            Ok(answer) => answer.map(|_| leader),
            Err(_) => Err(HandoverError::Unanswered(format!("nothing within {PROOF_TIMEOUT:?}"))),
        }
    }

    /// Writes every shard here: this node leads none, and knows of no other leader.
    fn leads_none(&self) {
        self.leaders.set(BTreeMap::new());
        for shard in self.shards.current() {
            self.metrics.leads(shard, false);
        }
    }
}
