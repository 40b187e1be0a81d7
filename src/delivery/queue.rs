//! What one worker knows of the webhooks it works for: what is due, what it holds, what it is
//! sending, and how soon each of them answers. Pure: the moment is an argument.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ledger_events::{AccountId, ShardId, WebhookId};

use super::claim::{Claimed, Due, Target, Want};
use super::share::{Candidate, Free, Pace, share};
use crate::ledger::Addressee;

/// A webhook whose sends end sooner is quick: it is not in anybody's way.
const QUICK: Duration = Duration::from_secs(1);
/// One that takes longer is silent after so many times what it took last.
const PATIENCE: u32 = 2;
/// How many times what may be sent at once is claimed ahead, so that nobody waits for a claim; of
/// webhooks that are quick alone.
const AHEAD: usize = 4;
/// Every so many claims of a webhook that has both, one is a retry.
const RETRY_EVERY: u64 = 4;
/// A webhook of which nothing was heard for so long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(300);

/// How much may be under way.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most sends at once.
    pub in_flight: usize,
    /// Most to one webhook.
    pub per_webhook: usize,
    /// Most to one of which nothing is known yet.
    pub new: usize,
    /// Most to one when it has answered for the first time.
    pub first: usize,
    /// What may be claimed of one of which this node holds nothing, however much others hold: they may have died with it.
    pub beside: usize,
}

impl Limits {
    /// A webhook is sent one delivery, and when it has answered a quarter of what may be sent to it at once.
    pub fn new(in_flight: usize, per_webhook: usize) -> Limits {
        Limits { in_flight, per_webhook, new: 1, first: per_webhook.div_ceil(4), beside: 1 }
    }
}

/// One webhook.
#[derive(Debug)]
struct Line {
    shard: ShardId,
    account_id: AccountId,
    has_first_attempts: bool,
    has_retries: bool,
    /// Claimed, and to be sent when its turn comes.
    waiting: VecDeque<Claimed>,
    sending: usize,
    /// Of those, how many were sent while it was quick.
    sent_quick: usize,
    /// Claimed, and not recorded or given back yet: those that wait or are sent, too.
    held: usize,
    /// How many may be claimed at once: it begins small, grows with quick answers, and halves when none comes.
    allowance: usize,
    /// How its last send ended; none before one has.
    last: Option<Last>,
    /// Since when something is sent and nothing has ended.
    silent_since: Instant,
    claimed: u64,
    served: u64,
}

/// How a send ended.
#[derive(Clone, Copy, Debug)]
enum Last {
    /// After so long, with an answer or, quickly, without.
    After(Duration),
    /// It took its time, and there was no answer.
    Silence,
}

impl Line {
    fn pace(&self, now: Instant) -> Pace {
        let patience = match self.last {
            Some(Last::After(took)) => QUICK.max(took * PATIENCE),
            Some(Last::Silence) | None => QUICK,
        };
        let is_silent = self.sending > 0 && now.saturating_duration_since(self.silent_since) >= patience;
        match self.last {
            _ if is_silent => Pace::Silent,
            Some(Last::Silence) => Pace::Silent,
            Some(Last::After(took)) if took < QUICK => Pace::Quick,
            Some(Last::After(_)) | None => Pace::Unproven,
        }
    }

    /// How many may be claimed at once now: ahead only of one that gives them back soon.
    fn allowance(&self, limits: Limits, now: Instant) -> usize {
        match self.pace(now) {
            Pace::Quick => self.allowance,
            Pace::Unproven | Pace::Silent => self.allowance.min(limits.per_webhook),
        }
    }
}

/// The webhooks of one worker.
#[derive(Debug)]
pub struct Queue {
    limits: Limits,
    lines: HashMap<WebhookId, Line>,
    sending: usize,
    waiting: usize,
    held: usize,
    turn: u64,
}

impl Queue {
    pub fn new(limits: Limits) -> Queue {
        Queue { limits, lines: HashMap::new(), sending: 0, waiting: 0, held: 0, turn: 0 }
    }

    /// Takes note of the webhooks of a shard for which something is due.
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

    /// Takes note of a webhook that first attempts were made for.
    pub fn made(&mut self, addressee: &Addressee, now: Instant) {
        self.line(addressee.shard, addressee.webhook_id, addressee.account_id, now).has_first_attempts = true;
    }

    fn line(&mut self, shard: ShardId, webhook_id: WebhookId, account_id: AccountId, now: Instant) -> &mut Line {
        self.lines.entry(webhook_id).or_insert_with(|| Line {
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

    /// What to claim now, in this shard.
    pub fn wanted(&mut self, shard: ShardId, now: Instant) -> Vec<Want> {
        let all = self.limits.in_flight.saturating_mul(AHEAD).saturating_sub(self.held);
        self.wanted_of(shard, Free { all, ..self.most() }, now)
    }

    /// The same for no more than this, of which what is held already of webhooks that are not quick is taken off.
    pub fn wanted_of(&mut self, shard: ShardId, most: Free, now: Instant) -> Vec<Want> {
        let is_wanted = |line: &Line| line.shard == shard && (line.has_first_attempts || line.has_retries);
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
            // Over all nodes: another one may know it better. One that is quick gives back what each of them holds.
            let most = match line.pace(now) {
                Pace::Quick => usize::MAX,
                Pace::Unproven => limits.per_webhook,
                Pace::Silent => line.allowance(limits, now),
            };
            let least = if line.held == 0 { limits.beside } else { 0 };
            Some(Want { webhook_id, first_attempts: count - retries, retries, least, most })
        })
        .collect()
    }

    /// Takes what was claimed of what was wanted. Where less came, there is no more for now.
    pub fn claimed(&mut self, wants: &[Want], claimed: Vec<Claimed>) {
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
        for want in wants {
            let (first_attempts, retries) = came.get(&want.webhook_id).copied().unwrap_or_default();
            if let Some(line) = self.lines.get_mut(&want.webhook_id) {
                line.has_first_attempts &= first_attempts >= want.first_attempts;
                line.has_retries &= retries >= want.retries;
            }
        }
    }

    /// What is to be sent now.
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
            if line.pace(now) == Pace::Quick {
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

    /// A send has ended: after how long, and whether it was answered; none when it was not made, or
    /// cut off.
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

    /// What was held of a webhook is recorded or given back.
    pub fn left(&mut self, webhook_id: WebhookId) {
        if let Some(line) = self.lines.get_mut(&webhook_id) {
            line.held = line.held.saturating_sub(1);
            self.held = self.held.saturating_sub(1);
        }
    }

    /// What has waited for too long of webhooks that are not quick, to be given back: what they hold is not for others.
    pub fn stale(&mut self, fresh: Duration, now: Instant) -> Vec<Claimed> {
        let mut stale = vec![];
        for line in self.lines.values_mut().filter(|line| !line.waiting.is_empty() && line.pace(now) != Pace::Quick) {
            let is_stale = |claimed: &Claimed| now.saturating_duration_since(claimed.moment.ready) > fresh;
            let count = line.waiting.iter().take_while(|claimed| is_stale(claimed)).count();
            stale.extend(line.waiting.drain(..count));
        }
        self.waiting -= stale.len();
        stale
    }

    /// The webhooks of a shard of which something waits to be sent.
    pub fn waiting_for(&self, shard: ShardId) -> Vec<WebhookId> {
        let waits = |line: &Line| line.shard == shard && !line.waiting.is_empty();
        self.lines.iter().filter(|(_, line)| waits(line)).map(|(webhook_id, _)| *webhook_id).collect()
    }

    /// What waits in a shard and is not due any more, or would go elsewhere by now or be signed with another secret, to
    /// be given back. `targets` are those of all that wait.
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

    /// Everything that still waits to be sent, to be given back.
    pub fn into_waiting(self) -> Vec<Claimed> {
        self.lines.into_values().flat_map(|line| line.waiting).collect()
    }

    /// Of what may be in flight, half is for webhooks that are quick, and a quarter for those that answer late or
    /// have not shown yet what they do.
    fn most(&self) -> Free {
        let all = self.limits.in_flight;
        Free { all, unproven: all.div_ceil(2), silent: all.div_ceil(4) }
    }

    /// Shares out among the webhooks, by what each has already: what they have takes off what there is for their
    /// pace, and is off `most.all` already. What was sent to one while it was quick, and it is not any more, is
    /// nobody's part: the others share what is left as if there were no more.
    fn shared(
        &mut self,
        most: Free,
        now: Instant,
        has: impl Fn(&Line) -> usize,
        room: impl Fn(&Line) -> usize,
    ) -> Vec<(WebhookId, usize)> {
        let mut accounts: HashMap<AccountId, usize> = HashMap::new();
        let (mut silent, mut unproven, mut stuck) = (0, 0, 0);
        for line in self.lines.values() {
            let (has, sent_quick) = (has(line), line.sent_quick.min(has(line)));
            *accounts.entry(line.account_id).or_default() += has;
            match line.pace(now) {
                Pace::Quick => continue,
                Pace::Unproven => unproven += has - sent_quick,
                Pace::Silent => silent += has - sent_quick,
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
                    pace: line.pace(now),
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
