//! Steps of the writers, of their callers, and faults.

use chrono::DateTime;
use ledger_events::wallet::{self, Purpose, Wallet, WalletCommand};
use ledger_events::{AccountId, Money, OrderId, TransactionId, WalletId};
use rewards_ledger::ledger::WriteError;
use rewards_ledger::ledger::cache::{HeadState, StillExact};
use uuid::Uuid;

use super::{Action, Batch, Flight, Head, HeadModel, Kind, Memory, Node, Phase, Stage, State, Statement, Told};

/// Largest number of commits that an asynchronous failover loses.
const MAX_LOST: usize = 2;

impl HeadModel {
    pub(super) fn actions_of(&self, state: &State, number: usize, actions: &mut Vec<Action>) {
        let node = &state.nodes[number];
        let is_held = state.database.is_held(self.is_synchronous);
        if node.look.is_some() {
            if !is_held {
                actions.push(Action::Look(number));
                if state.left.lost_answers > 0 {
                    actions.push(Action::LookInVain(number));
                }
            }
        } else if let Some(flight) = &node.flight {
            match flight.stage {
                Stage::OnItsWay if !is_held => actions.push(Action::Arrive(number)),
                Stage::Executed { after, .. } if !self.is_synchronous || state.database.replicated() >= after => {
                    actions.push(Action::Answer(number));
                }
                _ => {}
            }
            if state.left.lost_answers > 0 {
                actions.push(Action::LoseAnswer(number));
            }
        } else if !node.rerun.is_empty() {
            if !is_held {
                actions.push(Action::RunLocked(number));
            }
            return;
        } else if node.open.is_some() {
            actions.push(Action::Send(number));
        }
        if node.look.is_none() && node.rerun.is_empty() && !node.queue.is_empty() {
            if node.memory.is_some() || node.open.is_some() {
                actions.push(Action::TakeAhead(number));
            }
            if node.flight.is_none() && node.open.is_none() {
                actions.push(Action::TakeLocked(number));
            }
        }
    }

    pub(super) fn actions_of_callers(&self, state: &State, actions: &mut Vec<Action>) {
        for (request, caller) in state.callers.iter().enumerate().filter(|(_, caller)| caller.told.is_none()) {
            match caller.is_late {
                false if state.left.deadlines > 0 => actions.push(Action::Deadline(request)),
                true => actions.push(Action::Grace(request)),
                false => {}
            }
            let queue = &state.nodes[self.requests[request].node].queue;
            if state.left.full_queues > 0 && queue.contains(&(request as u8)) {
                actions.push(Action::FullQueue(request));
            }
        }
    }

    pub(super) fn faults_of(&self, state: &State, actions: &mut Vec<Action>) {
        if state.left.crashes > 0 {
            actions.extend((0..self.nodes).filter(|node| state.nodes[*node].is_busy()).map(Action::Crash));
        }
        let (records, replicated) = (state.database.records(), state.database.replicated());
        if state.left.failovers > 0 {
            // A synchronous standby lacks at most what it has not confirmed. It may have more than it has confirmed.
            let most = if self.is_synchronous { records - replicated } else { records.min(MAX_LOST) };
            actions.extend((0..=most).map(Action::Failover));
        }
        if state.left.restarts > 0 {
            actions.push(Action::Restart);
        }
    }

    pub(super) fn step(&self, state: &mut State, action: Action) {
        match action {
            Action::TakeAhead(node) => self.take_ahead(state, node),
            Action::TakeLocked(node) => {
                let taken = state.nodes[node].queue.remove(0);
                state.nodes[node].rerun.push(vec![taken]);
            }
            Action::Send(node) => self.send(state, node),
            Action::Arrive(node) => self.arrive(state, node),
            Action::Answer(node) => self.answer(state, node),
            Action::RunLocked(node) => self.run_locked(state, node),
            Action::Look(node) => self.look(state, node),
            Action::LookInVain(node) => {
                state.left.lost_answers -= 1;
                self.search(state, node);
            }
            Action::LoseAnswer(node) => {
                state.left.lost_answers -= 1;
                self.lose(state, node, true);
            }
            Action::ArriveLate(number) => {
                let statement = state.late.remove(number);
                self.execute(state, &statement);
            }
            Action::Crash(node) => self.crash(state, node),
            Action::Deadline(request) => self.pass_deadline(state, request),
            Action::Grace(request) => state.callers[request].told = Some(Told::Unknown504),
            Action::FullQueue(request) => {
                state.left.full_queues -= 1;
                self.leave_queue(state, request);
                state.callers[request].phase = Phase::Decided;
                let before = self.undecided_before(state, request);
                self.refuse(state, request, before);
            }
            Action::Replicate => state.database.replicate(),
            Action::Failover(lost) => {
                state.left.failovers -= 1;
                state.database.fail_over(lost);
                // A statement reaches the new server only through a proxy that holds it back. Synchronous failover bears that.
                state.late.retain(|_| self.is_synchronous);
                self.lose_all(state);
            }
            Action::Restart => {
                state.left.restarts -= 1;
                state.database.restart();
                self.lose_all(state);
            }
        }
    }

    /// Decides the next command on the open batch, and opens one on memory first if there is none.
    fn take_ahead(&self, state: &mut State, number: usize) {
        let node = &mut state.nodes[number];
        let request = node.queue.remove(0);
        let open = node.open.take().or_else(|| node.memory.take().map(begin));
        let Some(mut open) = open else { return };
        if self.take(state, request) {
            // Read without a lock, while the batch before is in flight.
            let stored = state.database.visible_responses(self.is_synchronous);
            self.decide(state, &mut open, request, &stored);
        }
        if open.batch == Batch::default() {
            let Statement { from: head, basis: log, unflushed, .. } = open;
            state.nodes[number].memory = Some(Memory { head, log, unflushed });
        } else {
            state.nodes[number].open = Some(open);
        }
    }

    /// Takes a command up for the writer. Returns false if its caller gave it up, or its deadline has passed
    /// (`give_up_expired` in `src/ledger/writer.rs`).
    fn take(&self, state: &mut State, request: u8) -> bool {
        let caller = &mut state.callers[usize::from(request)];
        if caller.phase == Phase::GivenUp {
            return false;
        }
        caller.phase = Phase::Taken;
        if !caller.is_late {
            return true;
        }
        caller.phase = Phase::Decided;
        let before = self.before(request);
        self.refuse(state, usize::from(request), before);
        false
    }

    /// Decides a command (`src/ledger/decide.rs`).
    fn decide(&self, state: &mut State, open: &mut Statement, number: u8, stored: &[(u8, u8)]) {
        let request = self.requests[usize::from(number)];
        let known = open.batch.responses.iter().chain(&open.unflushed).chain(stored);
        let earlier = request.key.and_then(|key| known.into_iter().find(|response| response.0 == key)).copied();
        if let Some((key, of)) = earlier {
            if !open.batch.responses.contains(&(key, of)) {
                open.batch.repeated.push(key);
            }
            return open.batch.verdicts.push((number, Told::Created(of)));
        }
        let balance = self.balance + open.log().into_iter().map(|event| self.change(event)).sum::<i64>();
        if request.kind == Kind::Pay && !covers(balance) {
            return open.batch.verdicts.push((number, Told::Rejected));
        }
        if request.kind != Kind::Nothing {
            let caller = &mut state.callers[usize::from(number)];
            open.batch.events.push(number * 16 + caller.drawn);
            caller.drawn += 1;
        }
        open.batch.responses.extend(request.key.map(|key| (key, number)));
        open.batch.verdicts.push((number, Told::Created(number)));
    }

    fn send(&self, state: &mut State, number: usize) {
        let Some(open) = state.nodes[number].open.take() else { return };
        if !self.guards.answers_late {
            self.tell_all(state, &open.batch);
        }
        let node = &mut state.nodes[number];
        node.memory = Some(remember(&open));
        node.flight = Some(Flight { statement: open, stage: Stage::OnItsWay, memory: None });
    }

    fn arrive(&self, state: &mut State, number: usize) {
        let Some(mut flight) = state.nodes[number].flight.take() else { return };
        let is_written = self.execute(state, &flight.statement);
        let after = if is_written { self.answered_after(state, &flight.statement) } else { 0 };
        flight.stage = Stage::Executed { is_written, after };
        state.nodes[number].flight = Some(flight);
    }

    /// Executes a statement. Returns false if the head stands elsewhere, or a key has a response already: `HeadConflict`.
    fn execute(&self, state: &mut State, statement: &Statement) -> bool {
        if !state.database.accepts(statement, &self.guards) {
            return false;
        }
        state.has_used_stale_memory |= !state.database.log().eq(statement.basis.iter().copied());
        if !statement.is_empty() {
            state.database.append(statement);
        }
        true
    }

    /// Returns the number of records that the standby must have before the batch is answered.
    fn answered_after(&self, state: &State, statement: &Statement) -> usize {
        match !statement.is_empty() || self.guards.checks_wait {
            true => state.database.records(),
            false => 0,
        }
    }

    fn answer(&self, state: &mut State, number: usize) {
        let Some(Flight { statement, stage, memory }) = state.nodes[number].flight.take() else { return };
        if matches!(stage, Stage::Executed { is_written: true, .. }) {
            if memory.is_some() {
                state.nodes[number].memory = memory;
            }
            return self.tell_all(state, &statement.batch);
        }
        self.forget(state, number);
        state.nodes[number].rerun.insert(0, requests_of(&statement.batch));
    }

    /// Drops memory and the open batch, which was decided on a failed one. Its commands run again, unless their callers give
    /// them up first.
    fn forget(&self, state: &mut State, number: usize) {
        let node = &mut state.nodes[number];
        node.memory = None;
        let Some(open) = node.open.take() else { return };
        let after = requests_of(&open.batch);
        for request in &after {
            state.callers[usize::from(*request)].phase = Phase::Queued;
        }
        if self.guards.reruns_open {
            state.nodes[number].rerun.push(after);
        }
    }

    /// Runs a batch with the head locked. Nobody else can write between the lock and the commit, so it is one step. A
    /// connection that breaks before COMMIT leaves everything as it was.
    fn run_locked(&self, state: &mut State, number: usize) {
        let requests = state.nodes[number].rerun.remove(0);
        let live: Vec<u8> = requests.into_iter().filter(|request| self.take(state, *request)).collect();
        if live.is_empty() {
            return;
        }
        let head = state.database.head();
        let log = match state.nodes[number].memory.take() {
            Some(memory) if !self.guards.exact_memory || is_exact(memory.head, head) => memory.log,
            _ => state.database.log().collect(),
        };
        let mut statement = begin(Memory { head, log, unflushed: vec![] });
        let stored: Vec<(u8, u8)> = state.database.responses().collect();
        for request in live {
            self.decide(state, &mut statement, request, &stored);
        }
        let is_written = self.execute(state, &statement);
        let after = self.answered_after(state, &statement);
        let memory = Some(Memory { unflushed: vec![], ..remember(&statement) });
        state.nodes[number].flight = Some(Flight { statement, stage: Stage::Executed { is_written, after }, memory });
    }

    /// Handles a lost answer. If the statement may have been on its way still, it may arrive later.
    fn lose(&self, state: &mut State, number: usize, may_arrive: bool) {
        let Some(Flight { statement, stage, .. }) = state.nodes[number].flight.take() else { return };
        self.forget(state, number);
        let (batch, epoch) = (statement.batch.clone(), statement.from.epoch);
        if may_arrive && stage == Stage::OnItsWay && !statement.is_empty() {
            state.late.push(statement);
        }
        match batch.events.is_empty() || !self.guards.looks {
            // A batch without events cannot do anything twice.
            true => state.nodes[number].rerun.insert(0, requests_of(&batch)),
            false => state.nodes[number].look = Some((batch, epoch)),
        }
    }

    fn lose_all(&self, state: &mut State) {
        for node in 0..self.nodes {
            self.lose(state, node, self.is_synchronous);
        }
    }

    fn look(&self, state: &mut State, number: usize) {
        let found = self.search(state, number);
        let Some((batch, _)) = state.nodes[number].look.take() else { return };
        match found {
            true => self.tell_all(state, &batch),
            false => state.nodes[number].rerun.insert(0, requests_of(&batch)),
        }
    }

    /// Looks for a batch under the head lock. The look commits, so its answer comes once a synchronous standby has everything
    /// that it saw.
    fn search(&self, state: &mut State, number: usize) -> bool {
        let Some((batch, epoch)) = &state.nodes[number].look else { return false };
        let found = state.database.log().any(|event| Some(&event) == batch.events.first());
        if !found && self.guards.raises_epoch {
            state.database.raise_epoch(if self.guards.raises_beyond { *epoch } else { 0 });
        }
        state.database.replicate();
        found
    }

    fn crash(&self, state: &mut State, number: usize) {
        state.left.crashes -= 1;
        let Node { flight, .. } = std::mem::take(&mut state.nodes[number]);
        if let Some(Flight { statement, stage: Stage::OnItsWay, .. }) = flight
            && !statement.is_empty()
        {
            state.late.push(statement);
        }
        for (caller, request) in state.callers.iter_mut().zip(&self.requests) {
            if request.node == number && caller.told.is_none() {
                caller.told = Some(Told::Cut);
            }
        }
    }

    /// Passes a caller's deadline. It gives its command up, unless the writer has taken it.
    fn pass_deadline(&self, state: &mut State, number: usize) {
        state.left.deadlines -= 1;
        let caller = &mut state.callers[number];
        caller.is_late = true;
        if caller.phase == Phase::Queued || !self.guards.one_decides {
            caller.phase = if caller.phase == Phase::Queued { Phase::GivenUp } else { caller.phase };
            self.leave_queue(state, number);
            let before = self.before(number as u8);
            self.refuse(state, number, before);
        }
    }

    /// Tells a caller that nothing happened, unless a command that came before it under its key may still happen.
    fn refuse(&self, state: &mut State, number: usize, before: Vec<u8>) {
        if state.callers[number].told.is_some() {
            return;
        }
        let are_given_up = before.iter().all(|earlier| state.callers[usize::from(*earlier)].phase == Phase::GivenUp);
        let error = WriteError::Unavailable.beside(are_given_up || !self.guards.earlier_keys);
        state.callers[number].told = Some(error.into());
        state.callers[number].beside = before;
    }

    /// Returns the commands that came before one under its key, at its node.
    fn before(&self, request: u8) -> Vec<u8> {
        let own = self.requests[usize::from(request)];
        let is_before = |earlier: &u8| {
            let earlier = self.requests[usize::from(*earlier)];
            earlier.node == own.node && own.key.is_some() && earlier.key == own.key
        };
        (0..request).filter(is_before).collect()
    }

    fn undecided_before(&self, state: &State, request: usize) -> Vec<u8> {
        let mut before = self.before(request as u8);
        before.retain(|earlier| [Phase::Queued, Phase::Taken].contains(&state.callers[usize::from(*earlier)].phase));
        before
    }

    fn leave_queue(&self, state: &mut State, request: usize) {
        state.nodes[self.requests[request].node].queue.retain(|queued| usize::from(*queued) != request);
    }

    fn tell_all(&self, state: &mut State, batch: &Batch) {
        for (request, verdict) in &batch.verdicts {
            let caller = &mut state.callers[usize::from(*request)];
            caller.told.get_or_insert(*verdict);
            caller.phase = Phase::Decided;
        }
    }
}

/// Begins a batch on memory (`begin_open` in `src/ledger/writer/pipeline.rs`).
fn begin(memory: Memory) -> Statement {
    let Memory { head: from, log: basis, unflushed } = memory;
    Statement { from, basis, batch: Batch::default(), unflushed }
}

/// Returns the state that a batch leaves to the next one (`Batch::into_cache` in `src/ledger/batch.rs`).
fn remember(statement: &Statement) -> Memory {
    Memory { head: statement.end(), log: statement.log(), unflushed: statement.batch.responses.clone() }
}

fn requests_of(batch: &Batch) -> Vec<u8> {
    batch.verdicts.iter().map(|(request, _)| *request).collect()
}

/// Returns whether cached rows still count at the present head, by the writer's own rule.
fn is_exact(cached: Head, present: Head) -> bool {
    let head = |head: Head| HeadState {
        position: head.position.into(),
        last_event: head.last_event.map(|event| Uuid::from_u128(event.into())),
        epoch: head.epoch.into(),
        recorded_at: DateTime::UNIX_EPOCH,
    };
    head(cached).still_exact_at(&head(present)) == StillExact::Everything
}

/// Returns whether a balance covers a payment of 1, by the wallet's own rule.
fn covers(balance: i64) -> bool {
    let money = |units: i64| Money::from_cents(units * 100).expect("a small amount");
    let wallet = Wallet {
        id: WalletId(1),
        version: 1,
        account_id: AccountId(1),
        currency: "EUR".parse().expect("a currency"),
        balance: money(balance),
        created_at: DateTime::UNIX_EPOCH,
        updated_at: DateTime::UNIX_EPOCH,
    };
    let pay = WalletCommand::Pay { amount: money(1), purpose: Purpose::Order(OrderId(1)), reference: String::new() };
    wallet::decide(&wallet, TransactionId(1), pay).is_ok()
}
