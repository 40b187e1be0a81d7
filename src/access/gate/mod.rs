//! The gate that every request passes: it checks the IP block, the API key and the rate limit.
//!
//! One statement serves all waiting requests and reads the current rows of the database. So a revocation, a rotated
//! secret or a block applies to the very next request, and a rate limit is exact across all nodes.

mod queue;
mod request;
mod statement;
pub mod windows;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use chrono::Utc;
use ledger_database::PgPool;
use tokio_util::task::TaskTracker;

use super::limits::{Block, Quota, Rule, source_network};
use super::rate_limits::RateLimits;
use super::{AccessError, ClientIdentity, Principal, blocks, key_uses::KeyUses};
use crate::heartbeat::Heartbeats;
use crate::ledger::connect::DedicatedConnection;
use crate::secrets::seal::Keyring;
use queue::GateQueue;
pub use request::{GateRequest, LoginBudget, PresentedCredentials};
use request::{subject_of_ip, subject_of_login};
pub use statement::answer;

/// Maximum number of callers whose last quota a node remembers.
const KNOWN_QUOTAS: usize = 16_384;

/// Result of the gate for one request.
#[derive(Clone, Debug)]
pub enum Verdict {
    Blocked(Block),
    Seen {
        /// Owner of the API key, or the reason why the request has none.
        client: Result<Client, AccessError>,
        /// State of the rate limit, if a rule governs the request.
        quota: Option<Quota>,
    },
}

/// Owner of a valid API key.
#[derive(Clone, Debug)]
pub struct Client {
    pub principal: Principal,
    /// Sealed secret of the request signature; `None` if the credential requires no signature.
    pub signing_secret: Option<Vec<u8>>,
}

/// Handle to the gate's task. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gate {
    queue: GateQueue,
    /// Pool for blocks. They are on disk before any caller is told of them.
    durable: PgPool,
    pub limits: RateLimits,
    uses: KeyUses,
    /// Quotas that callers were last told, used while the database does not answer.
    known: Arc<Mutex<HashMap<GateRequest, Quota>>>,
}

impl Gate {
    /// Starts the task that queries the database. The task ends when the last handle is dropped.
    ///
    /// Commits over `counting` may be asynchronous; commits over `durable` must be on disk.
    pub fn start(
        counting: DedicatedConnection,
        durable: PgPool,
        keyring: Arc<Keyring>,
        limits: RateLimits,
        tasks: &TaskTracker,
    ) -> Gate {
        Gate::watched(counting, durable, keyring, limits, &Heartbeats::default(), tasks)
    }

    /// Starts the task as [`Gate::start`] does, and reports the progress of its loops to heartbeats.
    pub fn watched(
        counting: DedicatedConnection,
        durable: PgPool,
        keyring: Arc<Keyring>,
        limits: RateLimits,
        heartbeats: &Heartbeats,
        tasks: &TaskTracker,
    ) -> Gate {
        let queue = GateQueue::start(counting, keyring, heartbeats.serving("gate"), tasks);
        let uses = KeyUses::start(durable.clone(), heartbeats.background("key uses"), tasks);
        Gate { queue, durable, limits, uses, known: Arc::default() }
    }

    /// Checks and charges a request. A login over the limit blocks the source network.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] if the database does not answer: no request passes uncounted.
    pub async fn ask(
        &self,
        ip: IpAddr,
        credentials: PresentedCredentials<'_>,
        rule: Option<Rule>,
    ) -> Result<Verdict, AccessError> {
        let request = GateRequest::new(ip, credentials, rule.map(|rule| (rule, rule.limit(&self.limits))));
        let verdict = self.queue.put(request).await?;
        if let Verdict::Seen { quota: Some(quota), .. } = verdict {
            self.remember(request, quota);
        }
        if let Verdict::Seen { client: Ok(client), .. } = &verdict
            && let ClientIdentity::Credential(id) = client.principal.identity
        {
            self.uses.note(id);
        }
        if rule == Some(Rule::Login)
            && let Verdict::Seen { quota: Some(Quota { is_exceeded: true, .. }), .. } = verdict
        {
            let block = blocks::start(&self.durable, source_network(ip)).await.map_err(|error| {
                tracing::warn!(%error, %ip, "failed to block an IP");
                AccessError::Unavailable
            })?;
            // None if an operator has lifted the block already.
            return Ok(block.map_or(verdict, Verdict::Blocked));
        }
        Ok(verdict)
    }

    fn remember(&self, request: GateRequest, quota: Quota) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_QUOTAS && !known.contains_key(&request) {
            let now = Utc::now().timestamp();
            known.retain(|_, quota| quota.resets_at > now);
            if known.len() >= KNOWN_QUOTAS {
                known.clear();
            }
        }
        known.insert(request, quota);
    }

    /// Returns a caller's quota without the database: the last one that this node told it, else that of a new window.
    pub fn last_known(&self, ip: IpAddr, credentials: PresentedCredentials<'_>, rule: Rule) -> Quota {
        let limit = rule.limit(&self.limits);
        let request = GateRequest::new(ip, credentials, Some((rule, limit)));
        let now = Utc::now().timestamp();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&request).copied();
        known.filter(|quota| quota.resets_at > now).unwrap_or_else(|| Quota::unused(limit, now))
    }

    /// Checks an anonymous request that is refused in any case, without charging it.
    ///
    /// # Errors
    /// Same as [`Gate::ask`].
    pub async fn look(&self, ip: IpAddr, rule: Option<Rule>) -> Result<Verdict, AccessError> {
        let charge = rule.map(|rule| (rule, rule.limit(&self.limits)));
        self.queue.put(GateRequest::new(ip, PresentedCredentials::Nobody, charge).free()).await
    }

    /// Checks a login of this user. The gate charges it as a failed login before the password is verified;
    /// [`Gate::refund_login`] takes the charge back.
    ///
    /// # Errors
    /// Same as [`Gate::ask`].
    pub async fn log_in(&self, ip: IpAddr, budget: LoginBudget) -> Result<Verdict, AccessError> {
        self.queue.put(GateRequest::of_budget(ip, Rule::UserLogin, Rule::UserLogin.limit(&self.limits), budget)).await
    }

    /// Charges a request for a mail that resets the password of this email.
    ///
    /// # Errors
    /// Same as [`Gate::ask`].
    pub async fn request_reset(&self, ip: IpAddr, budget: LoginBudget) -> Result<Verdict, AccessError> {
        self.queue.put(GateRequest::of_budget(ip, Rule::ResetMail, Rule::ResetMail.limit(&self.limits), budget)).await
    }

    /// Takes back the charge of a login that succeeded.
    ///
    /// # Errors
    /// Any error of the database.
    pub async fn refund_login(&self, budget: LoginBudget) -> Result<(), sqlx::Error> {
        let key = format!("{} {}", Rule::UserLogin.name(), subject_of_login(&budget));
        let refund = sqlx::query("UPDATE rate_windows SET used = used - 1 WHERE key = $1 AND used > 0");
        refund.bind(key).execute(&self.durable).await.map(drop)
    }

    /// Resets the login count of a source network, if the network is blocked.
    ///
    /// # Errors
    /// Any error of the database.
    pub async fn forget_logins(&self, network: IpAddr) -> Result<(), sqlx::Error> {
        if blocks::of(&self.durable, network).await?.is_some() {
            let key = format!("{} {}", Rule::Login.name(), subject_of_ip(network));
            sqlx::query("DELETE FROM rate_windows WHERE key = $1").bind(key).execute(&self.durable).await?;
        }
        Ok(())
    }
}
