//! Scheduler of one worker: tracks which webhooks are due, which deliveries the worker holds and sends, and how fast each
//! webhook answers. It is pure: the current time is an argument.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ledger_events::{AccountId, ShardId, WebhookId};

use super::claim::{ClaimRequest, Claimed, Due, Target};
use super::share::{Candidate, Free, Responsiveness, share};
use crate::ledger::Addressee;

/// Default of [`Limits::fast_within`].
pub const FAST_WITHIN: Duration = Duration::from_secs(1);
/// Factor for slower webhooks: one counts as unresponsive after this many times the duration of its last send.
const PATIENCE: u32 = 2;
/// Number of deliveries claimed ahead, as a multiple of the sends allowed at once, so that sends do not wait for claims. It
/// applies to fast webhooks only.
const AHEAD: usize = 4;
/// Share of retries if a webhook has both kinds due: one claim in this many is a retry.
const RETRY_EVERY: u64 = 4;
/// Time without activity after which a webhook is evicted from the scheduler.
const FORGOTTEN: Duration = Duration::from_secs(300);

/// Concurrency limits of one worker, in deliveries.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of sends at once.
    pub in_flight: usize,
    /// Maximum number of sends to one webhook at once.
    pub per_webhook: usize,
    /// Allowance of a webhook that has not been sent anything yet.
    pub new: usize,
    /// Allowance of a webhook after its first answer.
    pub first: usize,
    /// Deliveries that may be claimed of a webhook of which this node holds none, whatever other nodes hold. Those nodes may
    /// have died.
    pub beside: usize,
    /// Duration below which a send counts as fast. Fast webhooks do not delay others.
    pub fast_within: Duration,
}

impl Limits {
    /// Creates limits with slow start: a new webhook gets one delivery, and after its first answer a quarter of
    /// `per_webhook`.
    pub fn new(in_flight: usize, per_webhook: usize) -> Limits {
        Limits { in_flight, per_webhook, new: 1, first: per_webhook.div_ceil(4), beside: 1, fast_within: FAST_WITHIN }
    }
}

/// Scheduling state of one webhook.
#[derive(Debug)]
struct EndpointState {
    shard: ShardId,
    account_id: AccountId,
    has_first_attempts: bool,
    has_retries: bool,
    /// Claimed deliveries that wait to be sent.
    waiting: VecDeque<Claimed>,
    sending: usize,
    /// Number of running sends that started while the webhook was fast.
    sent_while_fast: usize,
    /// Number of claimed deliveries that are not recorded or given back yet, including those that wait or are being sent.
    held: usize,
    /// Number of deliveries that a claim in progress may add.
    claiming: usize,
    /// Number of deliveries that may be claimed at once. It starts small, grows with fast answers and halves without any.
    allowance: usize,
    /// Copy of [`Limits::fast_within`].
    fast_within: Duration,
    /// Result of the last send that ended, if any.
    last: Option<Last>,
    /// Time since which sends are running and none has ended.
    no_response_since: Instant,
    claimed: u64,
    served: u64,
}

/// Result of a send, as far as scheduling needs it.
#[derive(Clone, Copy, Debug)]
enum Last {
    /// The send ended after this time, with an answer or with a fast error.
    After(Duration),
    /// The send was slow and got no answer.
    NoResponse,
}

impl EndpointState {
    fn responsiveness(&self, now: Instant) -> Responsiveness {
        let patience = match self.last {
            Some(Last::After(took)) => self.fast_within.max(took * PATIENCE),
            Some(Last::NoResponse) | None => self.fast_within,
        };
        let is_unresponsive = self.sending > 0 && now.saturating_duration_since(self.no_response_since) >= patience;
        match self.last {
            _ if is_unresponsive => Responsiveness::Unresponsive,
            Some(Last::NoResponse) => Responsiveness::Unresponsive,
            Some(Last::After(took)) if took < self.fast_within => Responsiveness::Fast,
            Some(Last::After(_)) | None => Responsiveness::Unknown,
        }
    }

    /// Returns how many deliveries may be claimed at once now. Only a fast webhook gets more than may be sent at once.
    fn allowance(&self, limits: Limits, now: Instant) -> usize {
        match self.responsiveness(now) {
            Responsiveness::Fast => self.allowance,
            Responsiveness::Unknown | Responsiveness::Unresponsive => self.allowance.min(limits.per_webhook),
        }
    }
}

/// Scheduler of one worker: the state of all of its webhooks.
#[derive(Debug)]
pub struct Scheduler {
    limits: Limits,
    endpoints: HashMap<WebhookId, EndpointState>,
    sending: usize,
    waiting: usize,
    held: usize,
    claiming: usize,
    turn: u64,
}

impl Scheduler {
    pub fn new(limits: Limits) -> Scheduler {
        Scheduler { limits, endpoints: HashMap::new(), sending: 0, waiting: 0, held: 0, claiming: 0, turn: 0 }
    }

    /// Updates the webhooks of a shard that have something due, and evicts inactive ones.
    pub fn found(&mut self, shard: ShardId, due: Vec<Due>, now: Instant) {
        self.endpoints.retain(|_, endpoint| {
            endpoint.held + endpoint.claiming > 0
                || endpoint.has_first_attempts
                || endpoint.has_retries
                || now.saturating_duration_since(endpoint.no_response_since) < FORGOTTEN
        });
        for due in due {
            let endpoint = self.endpoint(shard, due.webhook_id, due.account_id, now);
            endpoint.has_first_attempts = due.has_first_attempts;
            endpoint.has_retries = due.has_retries;
        }
    }

    /// Notes that a webhook has new deliveries.
    pub fn made(&mut self, addressee: &Addressee, now: Instant) {
        self.endpoint(addressee.shard, addressee.webhook_id, addressee.account_id, now).has_first_attempts = true;
    }

    fn endpoint(&mut self, shard: ShardId, webhook_id: WebhookId, account_id: AccountId, now: Instant) -> &mut EndpointState {
        self.endpoints.entry(webhook_id).or_insert_with(|| EndpointState {
            shard,
            account_id,
            has_first_attempts: false,
            has_retries: false,
            waiting: VecDeque::new(),
            sending: 0,
            sent_while_fast: 0,
            held: 0,
            claiming: 0,
            allowance: self.limits.new,
            fast_within: self.limits.fast_within,
            last: None,
            no_response_since: now,
            claimed: 0,
            served: 0,
        })
    }

    /// Returns the deliveries to claim now in this shard. Each claim leaves half of what is free to other shards, and a shard
    /// does not hold more than that: its claims may wait, and so may its results.
    pub fn wanted(&mut self, shard: ShardId, is_only_shard: bool, now: Instant) -> Vec<ClaimRequest> {
        let free = self.limits.in_flight.saturating_mul(AHEAD).saturating_sub(self.held + self.claiming);
        let (all, parts) = if is_only_shard { (free, 1) } else { (free.saturating_sub(self.held_in(shard)), 2) };
        self.wanted_of(shard, Free { all, ..self.most() }, parts, now)
    }

    /// Returns the number of deliveries that a shard holds, including those that a claim in progress may add.
    fn held_in(&self, shard: ShardId) -> usize {
        let own = self.endpoints.values().filter(|endpoint| endpoint.shard == shard);
        own.map(|endpoint| endpoint.held + endpoint.claiming).sum()
    }

    /// Returns the deliveries to claim now, at most one of `parts` equal parts of `most`. Deliveries held of webhooks that are
    /// not fast are deducted from the shares of their kind first.
    pub fn wanted_of(&mut self, shard: ShardId, most: Free, parts: usize, now: Instant) -> Vec<ClaimRequest> {
        let is_wanted =
            |endpoint: &EndpointState| endpoint.shard == shard && (endpoint.has_first_attempts || endpoint.has_retries);
        let limits = self.limits;
        self.shared(
            most,
            parts,
            now,
            |endpoint| endpoint.held + endpoint.claiming,
            |endpoint| match is_wanted(endpoint) {
                true => endpoint.allowance(limits, now).saturating_sub(endpoint.held),
                false => 0,
            },
        )
        .into_iter()
        .filter_map(|(webhook_id, count)| {
            let endpoint = self.endpoints.get_mut(&webhook_id)?;
            let before = endpoint.claimed;
            endpoint.claimed += count as u64;
            let retries = match (endpoint.has_first_attempts, endpoint.has_retries) {
                (true, true) => usize::try_from(endpoint.claimed / RETRY_EVERY - before / RETRY_EVERY).unwrap_or(count),
                (false, true) => count,
                (_, false) => 0,
            };
            // This limit is across all nodes, because another node may know the webhook better. A fast webhook needs none:
            // it soon frees what each node holds.
            let most = match endpoint.responsiveness(now) {
                Responsiveness::Fast => usize::MAX,
                Responsiveness::Unknown => limits.per_webhook,
                Responsiveness::Unresponsive => endpoint.allowance(limits, now),
            };
            let least = if endpoint.held == 0 { limits.beside } else { 0 };
            Some(ClaimRequest { webhook_id, first_attempts: count - retries, retries, least, most })
        })
        .collect()
    }

    /// Notes that a claim of these deliveries has begun. They count as held until it ends, for the claims of other shards.
    pub fn claim_begun(&mut self, requests: &[ClaimRequest]) {
        for request in requests {
            if let Some(endpoint) = self.endpoints.get_mut(&request.webhook_id) {
                endpoint.claiming += request.count();
                self.claiming += request.count();
            }
        }
    }

    /// Notes that a claim has ended.
    pub fn claim_ended(&mut self, requests: &[ClaimRequest]) {
        for request in requests {
            if let Some(endpoint) = self.endpoints.get_mut(&request.webhook_id) {
                endpoint.claiming = endpoint.claiming.saturating_sub(request.count());
                self.claiming = self.claiming.saturating_sub(request.count());
            }
        }
    }

    /// Adds the claimed deliveries to the scheduler. A webhook that yielded fewer than wanted has no more due for now.
    pub fn claimed(&mut self, requests: &[ClaimRequest], claimed: Vec<Claimed>) {
        let mut came: HashMap<WebhookId, (usize, usize)> = HashMap::new();
        for claimed in claimed {
            let came = came.entry(claimed.webhook_id).or_default();
            if claimed.attempt == 1 {
                came.0 += 1
            } else {
                came.1 += 1
            }
            if let Some(endpoint) = self.endpoints.get_mut(&claimed.webhook_id) {
                endpoint.held += 1;
                endpoint.waiting.push_back(claimed);
                self.held += 1;
                self.waiting += 1;
            }
        }
        for request in requests {
            let (first_attempts, retries) = came.get(&request.webhook_id).copied().unwrap_or_default();
            if let Some(endpoint) = self.endpoints.get_mut(&request.webhook_id) {
                endpoint.has_first_attempts &= first_attempts >= request.first_attempts;
                endpoint.has_retries &= retries >= request.retries;
            }
        }
    }

    /// Takes the deliveries to send now.
    pub fn next(&mut self, now: Instant) -> Vec<Claimed> {
        if self.waiting == 0 || self.sending >= self.limits.in_flight {
            return vec![];
        }
        let per_webhook = self.limits.per_webhook;
        let shares = self.shared(
            Free { all: self.limits.in_flight - self.sending, ..self.most() },
            1,
            now,
            |endpoint| endpoint.sending,
            |endpoint| endpoint.waiting.len().min(per_webhook.saturating_sub(endpoint.sending)),
        );
        let mut next = vec![];
        for (webhook_id, count) in shares {
            let Some(endpoint) = self.endpoints.get_mut(&webhook_id) else { continue };
            if endpoint.responsiveness(now) == Responsiveness::Fast {
                endpoint.sent_while_fast += count;
            }
            if endpoint.sending == 0 {
                endpoint.no_response_since = now;
            }
            endpoint.sending += count;
            next.extend(endpoint.waiting.drain(..count));
        }
        self.sending += next.len();
        self.waiting -= next.len();
        next
    }

    /// Records the end of a send: its duration and whether the webhook answered. `took` is `None` if the send was not made
    /// or was cancelled.
    pub fn ended(&mut self, webhook_id: WebhookId, took: Option<(Duration, bool)>, now: Instant) {
        let Some(endpoint) = self.endpoints.get_mut(&webhook_id) else { return };
        endpoint.sending = endpoint.sending.saturating_sub(1);
        endpoint.sent_while_fast = endpoint.sent_while_fast.min(endpoint.sending);
        self.sending = self.sending.saturating_sub(1);
        let Some((took, is_answered)) = took else { return };
        endpoint.no_response_since = now;
        let is_fast = took < self.limits.fast_within;
        let is_first = endpoint.last.is_none();
        endpoint.last = Some(if is_fast || is_answered { Last::After(took) } else { Last::NoResponse });
        endpoint.allowance = match (is_fast, is_answered) {
            (false, false) => (endpoint.allowance.min(self.limits.per_webhook) / 2).max(1),
            _ if is_first => self.limits.first,
            (true, true) => (endpoint.allowance + 1).min(self.limits.per_webhook.saturating_mul(AHEAD)),
            _ => endpoint.allowance.min(self.limits.per_webhook),
        };
    }

    /// Notes that one held delivery of a webhook was recorded or given back.
    pub fn left(&mut self, webhook_id: WebhookId) {
        if let Some(endpoint) = self.endpoints.get_mut(&webhook_id) {
            endpoint.held = endpoint.held.saturating_sub(1);
            self.held = self.held.saturating_sub(1);
        }
    }

    /// Removes deliveries of webhooks that are not fast and that have waited longer than `fresh`. The caller gives them
    /// back, because what they hold is not available to other webhooks.
    pub fn stale(&mut self, fresh: Duration, now: Instant) -> Vec<Claimed> {
        let mut stale = vec![];
        for endpoint in self
            .endpoints
            .values_mut()
            .filter(|endpoint| !endpoint.waiting.is_empty() && endpoint.responsiveness(now) != Responsiveness::Fast)
        {
            let is_stale = |claimed: &Claimed| now.saturating_duration_since(claimed.clock.ready) > fresh;
            let count = endpoint.waiting.iter().take_while(|claimed| is_stale(claimed)).count();
            stale.extend(endpoint.waiting.drain(..count));
        }
        self.waiting -= stale.len();
        stale
    }

    /// Returns the webhooks of a shard with deliveries that wait to be sent.
    pub fn waiting_for(&self, shard: ShardId) -> Vec<WebhookId> {
        let waits = |endpoint: &EndpointState| endpoint.shard == shard && !endpoint.waiting.is_empty();
        self.endpoints.iter().filter(|(_, endpoint)| waits(endpoint)).map(|(webhook_id, _)| *webhook_id).collect()
    }

    /// Removes waiting deliveries of a shard that are no longer due, or whose webhook has another URL or secret now. The
    /// caller gives them back. `targets` holds the current target of every webhook with waiting deliveries.
    pub fn outdated(&mut self, shard: ShardId, due: &[Due], targets: &HashMap<WebhookId, Arc<Target>>) -> Vec<Claimed> {
        let due: HashSet<WebhookId> = due.iter().map(|due| due.webhook_id).collect();
        let mut outdated = vec![];
        for (webhook_id, endpoint) in
            self.endpoints.iter_mut().filter(|(_, endpoint)| endpoint.shard == shard && !endpoint.waiting.is_empty())
        {
            let is_current = |claimed: &Claimed| due.contains(webhook_id) && claimed.target.as_ref() == targets.get(webhook_id);
            let (current, other) = endpoint.waiting.drain(..).partition(is_current);
            endpoint.waiting = current;
            outdated.extend::<VecDeque<Claimed>>(other);
        }
        self.waiting -= outdated.len();
        outdated
    }

    /// Returns all deliveries that still wait to be sent, for the caller to give back.
    pub fn into_waiting(self) -> Vec<Claimed> {
        self.endpoints.into_values().flat_map(|endpoint| endpoint.waiting).collect()
    }

    /// Returns the capacity and its shares. Webhooks that are not fast get at most half, and unresponsive ones among them at
    /// most a quarter. So half stays for fast webhooks, and a quarter for those that answer late or are unknown.
    fn most(&self) -> Free {
        let all = self.limits.in_flight;
        Free { all, not_fast: all.div_ceil(2), unresponsive: all.div_ceil(4) }
    }

    /// Distributes capacity among the webhooks, by what each has already.
    ///
    /// `most.all` is net of what the webhooks have; the shares by responsiveness are reduced here. Sends that started while their
    /// webhook was fast, but no longer is, count for no share: the shares are computed from the capacity without them. Only one
    /// of `parts` equal parts of the rest is distributed.
    fn shared(
        &mut self,
        most: Free,
        parts: usize,
        now: Instant,
        has: impl Fn(&EndpointState) -> usize,
        room: impl Fn(&EndpointState) -> usize,
    ) -> Vec<(WebhookId, usize)> {
        let mut accounts: HashMap<AccountId, usize> = HashMap::new();
        let (mut unresponsive, mut unknown, mut stuck) = (0, 0, 0);
        for endpoint in self.endpoints.values() {
            let (has, sent_while_fast) = (has(endpoint), endpoint.sent_while_fast.min(has(endpoint)));
            *accounts.entry(endpoint.account_id).or_default() += has;
            match endpoint.responsiveness(now) {
                Responsiveness::Fast => continue,
                Responsiveness::Unknown => unknown += has - sent_while_fast,
                Responsiveness::Unresponsive => unresponsive += has - sent_while_fast,
            }
            stuck += sent_while_fast;
        }
        let mut webhooks = vec![];
        let mut candidates = vec![];
        for (webhook_id, endpoint) in &self.endpoints {
            let room = room(endpoint);
            if room > 0 {
                webhooks.push(*webhook_id);
                candidates.push(Candidate {
                    account_id: endpoint.account_id,
                    account_has: accounts.get(&endpoint.account_id).copied().unwrap_or_default(),
                    has: has(endpoint),
                    room,
                    served: endpoint.served,
                    responsiveness: endpoint.responsiveness(now),
                });
            }
        }
        let free = Free {
            all: most.all.div_ceil(parts),
            not_fast: most.not_fast.saturating_sub(stuck / 2 + unresponsive + unknown).div_ceil(parts),
            unresponsive: most.unresponsive.saturating_sub(stuck / 4 + unresponsive).div_ceil(parts),
        };
        let given = share(&candidates, free);
        self.turn += 1;
        let shares: Vec<_> = webhooks.into_iter().zip(given).filter(|(_, count)| *count > 0).collect();
        for (webhook_id, _) in &shares {
            if let Some(endpoint) = self.endpoints.get_mut(webhook_id) {
                endpoint.served = self.turn;
            }
        }
        shares
    }
}

#[cfg(test)]
mod tests;
