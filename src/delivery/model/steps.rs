//! Steps of the workers, of the projection, of people, and faults.

use std::time::Duration;

use chrono::DateTime;
use ledger_events::webhook::{self, MAX_ATTEMPTS, Retryable, Webhook, WebhookCommand, WebhookEvent, WebhookUpdated};
use ledger_events::{AccountId, ReplayId, WebhookId};
use rewards_ledger::delivery::claim::MAX_UNKNOWN;
use rewards_ledger::delivery::schedule::next_attempt_at;
use uuid::Uuid;

use super::{Action, Answer, Claim, Delivery, DeliveryModel, Lease, Logged, State, Status, Tables};

impl Delivery {
    pub(super) fn new(is_active: bool) -> Delivery {
        Delivery {
            status: if is_active { Status::Pending } else { Status::Failed },
            attempt_count: 0,
            unknown_count: 0,
            fence: 0,
            lease: Lease::None,
            attempts: vec![],
            results: 0,
            written_off: 0,
            was_switched_off: !is_active,
        }
    }
}

impl DeliveryModel {
    pub(super) fn actions_of_worker(&self, state: &State, worker: usize, claim: Option<Claim>, actions: &mut Vec<Action>) {
        let Some(claim) = claim else {
            let is_claimable = |(_, delivery): &(usize, &Delivery)| self.is_claimable(delivery);
            let claimable = state.tables.deliveries.iter().enumerate().filter(is_claimable);
            return actions.extend(claimable.map(|(delivery, _)| Action::Claim { worker, delivery }));
        };
        if claim.succeeded.is_some() {
            actions.push(Action::Record(worker));
            if state.left.lost_answers > 0 {
                actions.push(Action::RecordUnanswered(worker));
            }
        } else {
            actions.extend([Answer::Accepted, Answer::Refused, Answer::Unheard].map(|answer| Action::Send(worker, answer)));
            if state.left.given_back > 0 {
                actions.push(Action::GiveBack(worker));
            }
        }
        if state.left.deaths > 0 {
            actions.push(Action::Die(worker));
        }
    }

    /// Returns whether a delivery can be claimed: the condition of `locked` in the statement of `take`.
    fn is_claimable(&self, delivery: &Delivery) -> bool {
        let is_limited = delivery.unknown_count < MAX_UNKNOWN || !self.guards.limits_unknown;
        let is_free = match delivery.lease {
            Lease::None => true,
            Lease::Live => false,
            Lease::Expired => self.guards.takes_over && is_limited,
        };
        delivery.status == Status::Pending && is_free
    }

    pub(super) fn step(&self, state: &mut State, action: Action) {
        let tables = &mut state.tables;
        match action {
            Action::Claim { worker, delivery } => state.claim(worker, delivery, self.guards.writes_ahead),
            Action::Send(worker, answer) => self.send(state, worker, answer),
            Action::GiveBack(worker) => state.give_back(worker),
            Action::Record(worker) => {
                self.record(state, worker);
                state.workers[worker] = None;
            }
            Action::RecordUnanswered(worker) => {
                state.left.lost_answers -= 1;
                self.record(state, worker);
            }
            Action::Die(worker) => {
                state.left.deaths -= 1;
                state.workers[worker] = None;
            }
            Action::LeaseEnds(number) => {
                let fence = tables.deliveries[number].fence;
                let is_held = state.workers.iter().flatten().any(|claim| (claim.delivery, claim.fence) == (number, fence));
                state.left.slow -= u8::from(is_held);
                tables.deliveries[number].lease = Lease::Expired;
            }
            Action::FailLost(number) => self.fail_lost(&mut tables.deliveries[number]),
            Action::EndDeadLease(number) => tables.deliveries[number].lease = Lease::None,
            Action::Project => tables.project(),
            Action::Switch { on } => {
                state.left.switched_off -= u8::from(!on);
                tables.is_active = on;
                tables.unprojected.push(Logged::Switched { on });
            }
            Action::RequestRetry(number) => {
                state.left.retries -= 1;
                tables.unprojected.push(Logged::Retry(number));
            }
            Action::RequestReplay => {
                state.left.replays -= 1;
                tables.unprojected.push(Logged::Replay);
            }
            Action::FallBehind => state.standby = Some(tables.clone()),
            Action::Failover => {
                state.left.failovers -= 1;
                state.tables = state.standby.take().expect("a standby that has fallen behind");
            }
        }
    }

    fn send(&self, state: &mut State, worker: usize, answer: Answer) {
        let Some(claim) = &mut state.workers[worker] else { return };
        let row = state.tables.deliveries.get(claim.delivery);
        let is_written = row.is_some_and(|row| row.attempts.iter().any(|(request, _)| *request == claim.request));
        // A failover may have lost the attempt between the claim and the send.
        state.has_sent_unwritten |= !is_written && state.left.failovers == self.budget.failovers;
        claim.succeeded = Some(answer == Answer::Accepted || !self.guards.needs_2xx);
        state.has_arrived |= answer != Answer::Refused;
    }

    fn record(&self, state: &mut State, worker: usize) {
        let Some(Claim { delivery, fence, attempt, request, succeeded: Some(succeeded) }) = state.workers[worker] else { return };
        let Some(row) = state.tables.deliveries.get_mut(delivery) else { return };
        let written = row.attempts.iter_mut().find(|(known, _)| *known == request);
        let is_missing = written.is_none();
        if self.guards.fence && row.fence != fence
            || self.guards.leased && row.lease == Lease::None
            || self.guards.written && is_missing
        {
            return;
        }
        if let Some((_, has_result)) = written {
            state.has_recorded_twice |= std::mem::replace(has_result, true);
        }
        state.has_recorded_unwritten |= is_missing;
        row.results += 1;
        row.attempt_count = attempt;
        row.unknown_count = 0;
        row.lease = Lease::None;
        row.status = match (succeeded, self.has_next(attempt)) {
            (true, _) => Status::Delivered,
            (false, false) => Status::Failed,
            (false, true) => row.status,
        };
    }

    /// Returns whether another attempt follows a failed one, by the schedule's own rule.
    fn has_next(&self, attempt: i16) -> bool {
        let at = DateTime::UNIX_EPOCH;
        !self.guards.last_attempt || next_attempt_at(attempt, at, at, Duration::from_secs(60)).is_some()
    }

    fn fail_lost(&self, row: &mut Delivery) {
        row.fence += 1;
        row.lease = Lease::None;
        row.unknown_count = 0;
        row.attempt_count += 1;
        row.written_off += 1;
        if row.attempt_count >= MAX_ATTEMPTS || !self.guards.lost_is_one {
            row.status = Status::Failed;
        }
    }
}

impl State {
    fn claim(&mut self, worker: usize, delivery: usize, writes_ahead: bool) {
        let known = self.workers.iter().flatten().map(|claim| claim.request + 1);
        let request = known.max().unwrap_or_default();
        let row = &mut self.tables.deliveries[delivery];
        row.fence += 1;
        row.unknown_count += i16::from(row.lease != Lease::None);
        row.lease = Lease::Live;
        if writes_ahead {
            row.attempts.push((request, false));
        }
        let attempt = row.attempt_count + 1;
        self.workers[worker] = Some(Claim { delivery, fence: row.fence, attempt, request, succeeded: None });
    }

    fn give_back(&mut self, worker: usize) {
        let Some(claim) = self.workers[worker].take() else { return };
        self.left.given_back -= 1;
        let Some(row) = self.tables.deliveries.get_mut(claim.delivery) else { return };
        let is_written = row.attempts.iter().any(|(request, _)| *request == claim.request);
        if row.fence == claim.fence && row.lease != Lease::None && is_written {
            row.lease = Lease::None;
        }
        row.attempts.retain(|(request, has_result)| *request != claim.request || *has_result);
    }

    /// Forgets attempts that no worker refers to, and counts fencing tokens and request ids from 0: only whether they are equal
    /// matters, and how far a failover sets them back.
    pub(super) fn normalize(&mut self) {
        let State { tables, standby, workers, .. } = self;
        let mut requests: Vec<u8> = workers.iter().flatten().map(|claim| claim.request).collect();
        requests.sort_unstable();
        let rank = |request: u8| requests.binary_search(&request).map(|rank| rank as u8);
        let servers = [Some(tables), standby.as_mut()].into_iter().flatten();
        let mut deliveries: Vec<&mut Delivery> = servers.flat_map(|tables| &mut tables.deliveries).collect();
        for row in &mut deliveries {
            row.attempts.retain_mut(|(request, _)| rank(*request).map(|rank| *request = rank).is_ok());
        }
        let lowest = deliveries.iter().map(|row| row.fence).chain(workers.iter().flatten().map(|claim| claim.fence)).min();
        let lowest = lowest.unwrap_or_default();
        deliveries.into_iter().for_each(|row| row.fence -= lowest);
        for claim in workers.iter_mut().flatten() {
            claim.fence -= lowest;
            claim.request = rank(claim.request).unwrap_or_default();
        }
    }
}

impl Tables {
    fn project(&mut self) {
        match self.unprojected.remove(0) {
            Logged::Switched { on: true } => {}
            Logged::Switched { on: false } => {
                for row in self.deliveries.iter_mut().filter(|row| row.status == Status::Pending) {
                    (row.status, row.was_switched_off) = (Status::Failed, true);
                }
            }
            Logged::Retry(number) => {
                let row = &mut self.deliveries[number];
                if row.status == Status::Failed && row.attempt_count < MAX_ATTEMPTS {
                    row.status = Status::Pending;
                }
            }
            // Only what no delivery of the event has, or may still have, is sent again.
            Logged::Replay if self.deliveries.iter().all(|row| row.status == Status::Failed) => {
                let is_active = self.is_active;
                self.deliveries.push(Delivery::new(is_active));
            }
            Logged::Replay => {}
        }
    }
}

/// Decides the retry of a delivery by the webhook's own rules, with what the projection has not processed yet.
pub(super) fn decide_retry(tables: &Tables, number: usize) -> Option<WebhookEvent> {
    let row = &tables.deliveries[number];
    let delivery = |number: usize| (Uuid::nil(), ReplayId(number as i64));
    let (event_id, replay_id) = delivery(number);
    let has_failed = row.status == Status::Failed;
    let known = Retryable { event_id, replay_id, has_failed, attempt_count: row.attempt_count };
    let unprojected: Vec<WebhookEvent> = tables
        .unprojected
        .iter()
        .filter_map(|logged| match logged {
            Logged::Switched { on } => Some(WebhookUpdated { is_active: Some(*on), ..WebhookUpdated::default() }.into()),
            Logged::Retry(of) => Some(webhook::DeliveryRetryRequested { event_id, replay_id: delivery(*of).1 }.into()),
            Logged::Replay => None,
        })
        .collect();
    let webhook = Webhook {
        id: WebhookId(1),
        version: 1,
        account_id: AccountId(1),
        credential_id: None,
        events: vec![],
        is_active: tables.is_active,
        is_deleted: false,
        deactivated: None,
        created_at: DateTime::UNIX_EPOCH,
        updated_at: DateTime::UNIX_EPOCH,
    };
    webhook::decide(&webhook, WebhookCommand::Retry(known.after(&unprojected))).ok()
}
