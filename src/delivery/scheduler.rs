//! Scheduler of one worker: tracks which webhooks are due, which deliveries the worker holds and sends, and how fast each
//! webhook answers. It is pure: the current time is an argument.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ledger_events::{AccountId, ShardId, WebhookId};

use super::claim::{ClaimRequest, Claimed, Due, Target};
use super::share::{Candidate, Free, Responsiveness, share};
use crate::ledger::Addressee;

/// Duration below which a send counts as quick. Quick webhooks do not delay others.
const QUICK: Duration = Duration::from_secs(1);
/// Factor for slower webhooks: one counts as silent after this many times the duration of its last send.
const PATIENCE: u32 = 2;
/// Number of deliveries claimed ahead, as a multiple of the sends allowed at once, so that sends do not wait for claims. It
/// applies to quick webhooks only.
const AHEAD: usize = 4;
/// Share of retries if a webhook has both kinds due: one claim in this many is a retry.
const RETRY_EVERY: u64 = 4;
/// Time without activity after which a webhook is evicted from the queue.
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
}

impl Limits {
    /// Creates limits with slow start: a new webhook gets one delivery, and after its first answer a quarter of
    /// `per_webhook`.
    pub fn new(in_flight: usize, per_webhook: usize) -> Limits {
        Limits { in_flight, per_webhook, new: 1, first: per_webhook.div_ceil(4), beside: 1 }
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
    /// Number of running sends that started while the webhook was quick.
    sent_quick: usize,
    /// Number of claimed deliveries that are not recorded or given back yet, including those that wait or are being sent.
    held: usize,
    /// Number of deliveries that may be claimed at once. It starts small, grows with quick answers and halves on silence.
    allowance: usize,
    /// Result of the last send that ended, if any.
    last: Option<Last>,
    /// Time since which sends are running and none has ended.
    silent_since: Instant,
    claimed: u64,
    served: u64,
}

/// Result of a send, as far as scheduling needs it.
#[derive(Clone, Copy, Debug)]
enum Last {
    /// The send ended after this time, with an answer or with a quick error.
    After(Duration),
    /// The send was slow and got no answer.
    Silence,
}

impl EndpointState {
    fn responsiveness(&self, now: Instant) -> Responsiveness {
        let patience = match self.last {
            Some(Last::After(took)) => QUICK.max(took * PATIENCE),
            Some(Last::Silence) | None => QUICK,
        };
        let is_silent = self.sending > 0 && now.saturating_duration_since(self.silent_since) >= patience;
        match self.last {
            _ if is_silent => Responsiveness::Unresponsive,
            Some(Last::Silence) => Responsiveness::Unresponsive,
            Some(Last::After(took)) if took < QUICK => Responsiveness::Fast,
            Some(Last::After(_)) | None => Responsiveness::Unknown,
        }
    }

    /// Returns how many deliveries may be claimed at once now. Only a quick webhook gets more than may be sent at once.
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
    lines: HashMap<WebhookId, EndpointState>,
    sending: usize,
    waiting: usize,
    held: usize,
    turn: u64,
}

impl Scheduler {
    pub fn new(limits: Limits) -> Scheduler {
        Scheduler { limits, lines: HashMap::new(), sending: 0, waiting: 0, held: 0, turn: 0 }
    }

    /// Updates the webhooks of a shard that have something due, and evicts inactive ones.
    pub fn found(&mut self, shard: ShardId, due: Vec<Due>, now: Instant) {
        self.lines.retain(|_, line| {
            line.held > 0
                || line.has_first_attempts
                || line.has_retries
                || now.saturating_duration_since(line.silent_since) < FORGOTTEN
        });
        for due in due {
            let line = self.line(shard, due.webhook_id, due.account_id, now);
            line.has_first_attempts = due.has_first_attempts;
            line.has_retries = due.has_retries;
        }
    }

    /// Notes that a webhook has new deliveries.
    pub fn made(&mut self, addressee: &Addressee, now: Instant) {
        self.line(addressee.shard, addressee.webhook_id, addressee.account_id, now).has_first_attempts = true;
    }

    fn line(&mut self, shard: ShardId, webhook_id: WebhookId, account_id: AccountId, now: Instant) -> &mut EndpointState {
        self.lines.entry(webhook_id).or_insert_with(|| EndpointState {
            shard,
            account_id,
            has_first_attempts: false,
            has_retries: false,
            waiting: VecDeque::new(),
            sending: 0,
            sent_quick: 0,
            held: 0,
            allowance: self.limits.new,
            last: None,
            silent_since: now,
            claimed: 0,
            served: 0,
        })
    }

    /// Returns the deliveries to claim now in this shard.
    pub fn wanted(&mut self, shard: ShardId, now: Instant) -> Vec<ClaimRequest> {
        let all = self.limits.in_flight.saturating_mul(AHEAD).saturating_sub(self.held);
        self.wanted_of(shard, Free { all, ..self.most() }, now)
    }

    /// Returns the deliveries to claim now, at most `most`. Deliveries held of webhooks that are not quick are deducted from
    /// the shares of their kind.
    pub fn wanted_of(&mut self, shard: ShardId, most: Free, now: Instant) -> Vec<ClaimRequest> {
        let is_wanted = |line: &EndpointState| line.shard == shard && (line.has_first_attempts || line.has_retries);
        let limits = self.limits;
        self.shared(
            most,
            now,
            |line| line.held,
            |line| match is_wanted(line) {
                true => line.allowance(limits, now).saturating_sub(line.held),
                false => 0,
            },
        )
        .into_iter()
        .filter_map(|(webhook_id, count)| {
            let line = self.lines.get_mut(&webhook_id)?;
            let before = line.claimed;
            line.claimed += count as u64;
            let retries = match (line.has_first_attempts, line.has_retries) {
                (true, true) => usize::try_from(line.claimed / RETRY_EVERY - before / RETRY_EVERY).unwrap_or(count),
                (false, true) => count,
                (_, false) => 0,
            };
            // This limit is across all nodes, because another node may know the webhook better. A quick webhook needs none:
            // it soon frees what each node holds.
            let most = match line.responsiveness(now) {
                Responsiveness::Fast => usize::MAX,
                Responsiveness::Unknown => limits.per_webhook,
                Responsiveness::Unresponsive => line.allowance(limits, now),
            };
            let least = if line.held == 0 { limits.beside } else { 0 };
            Some(ClaimRequest { webhook_id, first_attempts: count - retries, retries, least, most })
        })
        .collect()
    }

    /// Adds the claimed deliveries to the queue. A webhook that yielded fewer than wanted has no more due for now.
    pub fn claimed(&mut self, requests: &[ClaimRequest], claimed: Vec<Claimed>) {
        let mut came: HashMap<WebhookId, (usize, usize)> = HashMap::new();
        for claimed in claimed {
            let came = came.entry(claimed.webhook_id).or_default();
            if claimed.attempt == 1 {
                came.0 += 1
            } else {
                came.1 += 1
            }
            if let Some(line) = self.lines.get_mut(&claimed.webhook_id) {
                line.held += 1;
                line.waiting.push_back(claimed);
                self.held += 1;
                self.waiting += 1;
            }
        }
        for request in requests {
            let (first_attempts, retries) = came.get(&request.webhook_id).copied().unwrap_or_default();
            if let Some(line) = self.lines.get_mut(&request.webhook_id) {
                line.has_first_attempts &= first_attempts >= request.first_attempts;
                line.has_retries &= retries >= request.retries;
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
            now,
            |line| line.sending,
            |line| line.waiting.len().min(per_webhook.saturating_sub(line.sending)),
        );
        let mut next = vec![];
        for (webhook_id, count) in shares {
            let Some(line) = self.lines.get_mut(&webhook_id) else { continue };
            if line.responsiveness(now) == Responsiveness::Fast {
                line.sent_quick += count;
            }
            if line.sending == 0 {
                line.silent_since = now;
            }
            line.sending += count;
            next.extend(line.waiting.drain(..count));
        }
        self.sending += next.len();
        self.waiting -= next.len();
        next
    }

    /// Records the end of a send: its duration and whether the webhook answered. `took` is `None` if the send was not made
    /// or was cancelled.
    pub fn ended(&mut self, webhook_id: WebhookId, took: Option<(Duration, bool)>, now: Instant) {
        let Some(line) = self.lines.get_mut(&webhook_id) else { return };
        line.sending = line.sending.saturating_sub(1);
        line.sent_quick = line.sent_quick.min(line.sending);
        self.sending = self.sending.saturating_sub(1);
        let Some((took, is_answered)) = took else { return };
        line.silent_since = now;
        let is_quick = took < QUICK;
        let is_first = line.last.is_none();
        line.last = Some(if is_quick || is_answered { Last::After(took) } else { Last::Silence });
        line.allowance = match (is_quick, is_answered) {
            (false, false) => (line.allowance.min(self.limits.per_webhook) / 2).max(1),
            _ if is_first => self.limits.first,
            (true, true) => (line.allowance + 1).min(self.limits.per_webhook.saturating_mul(AHEAD)),
            _ => line.allowance.min(self.limits.per_webhook),
        };
    }

    /// Notes that one held delivery of a webhook was recorded or given back.
    pub fn left(&mut self, webhook_id: WebhookId) {
        if let Some(line) = self.lines.get_mut(&webhook_id) {
            line.held = line.held.saturating_sub(1);
            self.held = self.held.saturating_sub(1);
        }
    }

    /// Removes deliveries of webhooks that are not quick and that have waited longer than `fresh`. The caller gives them
    /// back, because what they hold is not available to other webhooks.
    pub fn stale(&mut self, fresh: Duration, now: Instant) -> Vec<Claimed> {
        let mut stale = vec![];
        for line in
            self.lines.values_mut().filter(|line| !line.waiting.is_empty() && line.responsiveness(now) != Responsiveness::Fast)
        {
            let is_stale = |claimed: &Claimed| now.saturating_duration_since(claimed.clock.ready) > fresh;
            let count = line.waiting.iter().take_while(|claimed| is_stale(claimed)).count();
            stale.extend(line.waiting.drain(..count));
        }
        self.waiting -= stale.len();
        stale
    }

    /// Returns the webhooks of a shard with deliveries that wait to be sent.
    pub fn waiting_for(&self, shard: ShardId) -> Vec<WebhookId> {
        let waits = |line: &EndpointState| line.shard == shard && !line.waiting.is_empty();
        self.lines.iter().filter(|(_, line)| waits(line)).map(|(webhook_id, _)| *webhook_id).collect()
    }

    /// Removes waiting deliveries of a shard that are no longer due, or whose webhook has another URL or secret now. The
    /// caller gives them back. `targets` holds the current target of every webhook with waiting deliveries.
    pub fn outdated(&mut self, shard: ShardId, due: &[Due], targets: &HashMap<WebhookId, Arc<Target>>) -> Vec<Claimed> {
        let due: HashSet<WebhookId> = due.iter().map(|due| due.webhook_id).collect();
        let mut outdated = vec![];
        for (webhook_id, line) in self.lines.iter_mut().filter(|(_, line)| line.shard == shard && !line.waiting.is_empty()) {
            let is_current = |claimed: &Claimed| due.contains(webhook_id) && claimed.target.as_ref() == targets.get(webhook_id);
            let (current, other) = line.waiting.drain(..).partition(is_current);
            line.waiting = current;
            outdated.extend::<VecDeque<Claimed>>(other);
        }
        self.waiting -= outdated.len();
        outdated
    }

    /// Returns all deliveries that still wait to be sent, for the caller to give back.
    pub fn into_waiting(self) -> Vec<Claimed> {
        self.lines.into_values().flat_map(|line| line.waiting).collect()
    }

    /// Returns the capacity and its shares. Webhooks that are not quick get at most half, and silent ones among them at most
    /// a quarter. So half stays for quick webhooks, and a quarter for those that answer late or are unknown.
    fn most(&self) -> Free {
        let all = self.limits.in_flight;
        Free { all, unproven: all.div_ceil(2), silent: all.div_ceil(4) }
    }

    /// Distributes capacity among the webhooks, by what each has already.
    ///
    /// `most.all` is net of what the webhooks have; the shares by responsiveness are reduced here. Sends that started while their
    /// webhook was quick, but no longer is, count for no share: the shares are computed from the capacity without them.
    fn shared(
        &mut self,
        most: Free,
        now: Instant,
        has: impl Fn(&EndpointState) -> usize,
        room: impl Fn(&EndpointState) -> usize,
    ) -> Vec<(WebhookId, usize)> {
        let mut accounts: HashMap<AccountId, usize> = HashMap::new();
        let (mut silent, mut unproven, mut stuck) = (0, 0, 0);
        for line in self.lines.values() {
            let (has, sent_quick) = (has(line), line.sent_quick.min(has(line)));
            *accounts.entry(line.account_id).or_default() += has;
            match line.responsiveness(now) {
                Responsiveness::Fast => continue,
                Responsiveness::Unknown => unproven += has - sent_quick,
                Responsiveness::Unresponsive => silent += has - sent_quick,
            }
            stuck += sent_quick;
        }
        let mut webhooks = vec![];
        let mut candidates = vec![];
        for (webhook_id, line) in &self.lines {
            let room = room(line);
            if room > 0 {
                webhooks.push(*webhook_id);
                candidates.push(Candidate {
                    account_id: line.account_id,
                    account_has: accounts.get(&line.account_id).copied().unwrap_or_default(),
                    has: has(line),
                    room,
                    served: line.served,
                    responsiveness: line.responsiveness(now),
                });
            }
        }
        let free = Free {
            all: most.all,
            unproven: most.unproven.saturating_sub(stuck / 2 + silent + unproven),
            silent: most.silent.saturating_sub(stuck / 4 + silent),
        };
        let given = share(&candidates, free);
        self.turn += 1;
        let shares: Vec<_> = webhooks.into_iter().zip(given).filter(|(_, count)| *count > 0).collect();
        for (webhook_id, _) in &shares {
            if let Some(line) = self.lines.get_mut(webhook_id) {
                line.served = self.turn;
            }
        }
        shares
    }
}

#[cfg(test)]
mod tests;
