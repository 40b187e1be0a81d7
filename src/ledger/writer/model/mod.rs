//! A model of the log's head for the model checker `stateright`: several nodes write to one shard while connections break,
//! nodes and servers die, and callers lose patience.
//!
//! The library does not declare this module. `tests/models` and `benches/models.rs` include it, and it calls the decisions of
//! the library where they are pure functions. Everything that Postgres decides is modelled in [`database`].
//!
//! A caller's deadline, a fault and a statement's arrival may each come at any moment. What is left out: bisection of batches
//! that the database refuses, and the age limits of clocks and of statements, which only send a batch to the slower path.

mod database;
mod steps;

use rewards_ledger::ledger::WriteError;
use stateright::{Model, Property};

pub use database::{Database, Statement};

/// A command of a client, sent to one node.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub node: usize,
    pub kind: Kind,
    /// Idempotency key. A retry is another request with the same kind and key.
    pub key: Option<u8>,
}

/// Effect of a command on the one wallet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Debits 1.
    Pay,
    /// Credits 1.
    Fund,
    /// Succeeds without an event. Only its response is stored.
    Nothing,
}

/// Numbers of faults that may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    pub lost_answers: u8,
    pub failovers: u8,
    pub restarts: u8,
    pub crashes: u8,
    pub deadlines: u8,
    pub full_queues: u8,
}

/// Guards of the protocol. A test takes one out and expects the checker to find the harm.
#[derive(Clone, Copy, Debug)]
pub struct Guards {
    /// The statement's condition on the head's position (`src/ledger/head.rs`).
    pub position: bool,
    /// The statement's condition on the last event (`src/ledger/head.rs`).
    pub last_event: bool,
    /// The primary key of `idempotency_keys`.
    pub unique_keys: bool,
    /// A batch under the head lock uses memory only if it is exact at that head (`src/ledger/cache.rs`).
    pub exact_memory: bool,
    /// A batch whose answer is lost is looked for before it runs again (`look_for` in `src/ledger/writer.rs`).
    pub looks: bool,
    /// The look raises the epoch if it finds nothing (`is_in_log` in `src/ledger/writer.rs`).
    pub raises_epoch: bool,
    /// The look raises the epoch beyond the one that the batch was made for (`is_in_log` in `src/ledger/writer.rs`).
    pub raises_beyond: bool,
    /// A batch that was decided on a failed one runs again (`settle` in `src/ledger/writer/pipeline.rs`).
    pub reruns_open: bool,
    /// Callers are answered after the commit (`settle`), and not when the statement is sent.
    pub answers_late: bool,
    /// A batch that writes nothing is answered only once a synchronous standby has what it was decided on (`check` in
    /// `src/ledger/head.rs`).
    pub checks_wait: bool,
    /// A stored response is repeated only if it still exists (`statement` in `src/ledger/write.rs`).
    pub repeats_exist: bool,
    /// A caller gives up only what the writer has not taken (`src/ledger/in_flight.rs`).
    pub one_decides: bool,
    /// 503 becomes 409 while an earlier command under the key is undecided (`WriteError::beside`).
    pub earlier_keys: bool,
}

impl Guards {
    pub const ALL: Guards = Guards {
        position: true,
        last_event: true,
        unique_keys: true,
        exact_memory: true,
        looks: true,
        raises_epoch: true,
        raises_beyond: true,
        reruns_open: true,
        answers_late: true,
        checks_wait: true,
        repeats_exist: true,
        one_decides: true,
        earlier_keys: true,
    };
}

/// The head of one shard's log, and everybody who writes to it.
#[derive(Clone, Debug)]
pub struct HeadModel {
    pub nodes: usize,
    pub requests: Vec<Request>,
    /// Balance of the wallet at the start.
    pub balance: i64,
    /// Whether a commit waits for a standby. Otherwise a failover may lose up to two commits that were answered.
    pub is_synchronous: bool,
    pub faults: Faults,
    pub guards: Guards,
}

/// Outcome that a caller was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    /// 201 with the response of this request: another one's, if it is repeated under the same key.
    Created(u8),
    /// 402: the wallet does not cover it.
    Rejected,
    InProgress409,
    Unavailable503,
    Unknown504,
    /// The node died. The client sees its connection end.
    Cut,
}

impl From<WriteError> for Told {
    fn from(error: WriteError) -> Told {
        match error {
            WriteError::Rejected(_) | WriteError::Refused => Told::Rejected,
            WriteError::Unavailable => Told::Unavailable503,
            WriteError::InProgress => Told::InProgress409,
            WriteError::OutcomeUnknown => Told::Unknown504,
        }
    }
}

/// Phase of a command, as in `CommandState` of `src/ledger/in_flight.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Queued,
    Taken,
    GivenUp,
    Decided,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    pub told: Option<Told>,
    pub phase: Phase,
    /// Whether the command's deadline has passed.
    pub is_late: bool,
    /// Number of events that were drawn for the command so far. Each decision draws another `event_id`.
    pub drawn: u8,
    /// Undecided commands with the same key on the same node when the caller was told 503.
    pub beside: Vec<u8>,
}

/// Commands with the verdict that their callers get if the batch is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Batch {
    pub verdicts: Vec<(u8, Told)>,
    /// Ids of the events: `request * 16 + number`.
    pub events: Vec<u8>,
    /// Keys with the request whose response is stored under each.
    pub responses: Vec<(u8, u8)>,
    /// Keys whose stored responses are repeated.
    pub repeated: Vec<u8>,
}

/// State after a node's last batch (`WriterCache`), with what is not in the tables yet (`UnflushedState`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Memory {
    pub head: Head,
    /// Events that the cached rows are the fold of.
    pub log: Vec<u8>,
    pub unflushed: Vec<(u8, u8)>,
}

/// `HeadState` of `src/ledger/cache.rs`, in numbers that a state can be hashed by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Head {
    pub position: u8,
    pub last_event: Option<u8>,
    pub epoch: u8,
}

/// Stage of the one statement that a node has in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    OnItsWay,
    /// The database has executed it. The answer comes once the standby has this many records.
    Executed {
        is_written: bool,
        after: usize,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flight {
    pub statement: Statement,
    pub stage: Stage,
    /// Memory after a batch that ran under the head lock. A pipelined batch has left it with the node already.
    pub memory: Option<Memory>,
}

/// A node's writer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Node {
    pub queue: Vec<u8>,
    pub memory: Option<Memory>,
    pub open: Option<Statement>,
    pub flight: Option<Flight>,
    /// Batch whose answer is lost, and the epoch that it was made for.
    pub look: Option<(Batch, u8)>,
    /// Batches that run with the head locked, the first one first.
    pub rerun: Vec<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub database: Database,
    pub nodes: Vec<Node>,
    pub callers: Vec<Caller>,
    /// Statements whose connections are lost, and which may still arrive.
    pub late: Vec<Statement>,
    pub left: Faults,
    /// Whether a batch was accepted that was decided on another log than the one it was appended to.
    pub has_used_stale_memory: bool,
}

/// A step of a node, of the database, of a caller, or a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The writer decides a command ahead, on memory (`admit` in `src/ledger/writer/pipeline.rs`).
    TakeAhead(usize),
    /// The writer takes a command that needs the head lock (`take_up` in `src/ledger/writer/pipeline.rs`).
    TakeLocked(usize),
    /// The writer sends the open batch as one statement (`send_open` in `src/ledger/writer/pipeline.rs`).
    Send(usize),
    /// The statement reaches the database (`src/ledger/head.rs`, `statement` in `src/ledger/write.rs`).
    Arrive(usize),
    /// The answer reaches the node (`settle` in `src/ledger/writer/pipeline.rs`).
    Answer(usize),
    /// The writer locks the head, loads, decides and commits (`attempt` in `src/ledger/writer.rs`).
    RunLocked(usize),
    /// The writer looks for a batch after its answer was lost (`look_for` in `src/ledger/writer.rs`).
    Look(usize),
    /// The look happens, and its own answer is lost (`look_for` in `src/ledger/writer.rs`).
    LookInVain(usize),
    /// The node's connection breaks. What was on its way may still arrive (`unanswered` in `src/ledger/writer.rs`).
    LoseAnswer(usize),
    /// A statement arrives whose connection is lost (`is_in_log` in `src/ledger/writer.rs` says why that is harmless).
    ArriveLate(usize),
    /// The node dies, and starts again without memory (`src/node.rs`).
    Crash(usize),
    /// A caller's deadline passes (`submit` in `src/ledger/mod.rs`).
    Deadline(usize),
    /// The additional wait of a caller passes, too (`VERDICT_GRACE` in `src/ledger/mod.rs`).
    Grace(usize),
    /// The queue has no room for a command (`put` in `src/ledger/mod.rs`).
    FullQueue(usize),
    /// The synchronous standby receives everything.
    Replicate,
    /// The standby takes over. It lacks this many of the last records.
    Failover(usize),
    /// The primary recovers from a crash, or its waiting backends are terminated: commits become visible that no standby has.
    Restart,
}

impl Model for HeadModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let caller = Caller { told: None, phase: Phase::Queued, is_late: false, drawn: 0, beside: vec![] };
        let queue = |node: usize| {
            let own = self.requests.iter().zip(0..).filter(|(request, _)| request.node == node);
            own.map(|(_, number)| number).collect()
        };
        let start = Memory { head: Head::default(), log: vec![], unflushed: vec![] };
        vec![State {
            database: Database::default(),
            nodes: (0..self.nodes)
                .map(|node| Node { queue: queue(node), memory: Some(start.clone()), ..Node::default() })
                .collect(),
            callers: vec![caller; self.requests.len()],
            late: vec![],
            left: self.faults,
            has_used_stale_memory: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for node in 0..self.nodes {
            self.actions_of(state, node, actions);
        }
        self.actions_of_callers(state, actions);
        self.faults_of(state, actions);
        if !state.database.is_held(self.is_synchronous) {
            actions.extend((0..state.late.len()).map(Action::ArriveLate));
        }
        if self.is_synchronous && state.database.has_unreplicated() {
            actions.push(Action::Replicate);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.step(&mut state, action);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("positions are gapless", |_, state: &State| {
                state.database.positions().eq(1..=state.database.log().count() as u8)
            }),
            Property::always("no command happens twice", |_, state: &State| {
                (0..state.callers.len() as u8).all(|request| state.database.events_of(request) <= 1)
            }),
            Property::always("a key has one response", |model: &HeadModel, state: &State| model.keys_are_answered_once(state)),
            Property::always("503 means that nothing happened", |_, state: &State| {
                told(state, Told::Unavailable503).all(|(request, _)| state.database.events_of(request) == 0)
            }),
            Property::always("no 503 beside a command under its key that may happen", |_, state: &State| {
                let beside = told(state, Told::Unavailable503).flat_map(|(_, caller)| &caller.beside);
                beside.copied().all(|earlier| state.database.events_of(earlier) == 0)
            }),
            Property::always("a refused command did not happen", |_, state: &State| {
                told(state, Told::Rejected).all(|(request, _)| state.database.events_of(request) == 0)
            }),
            Property::always("no wallet is overdrawn", |model: &HeadModel, state: &State| {
                model.balances(state).all(|balance| balance >= 0)
            }),
            Property::always("memory is used only while the head stands", |_, state: &State| !state.has_used_stale_memory),
            Property::always("every caller is told an outcome", |_, state: &State| {
                state.nodes.iter().any(Node::is_busy) || state.callers.iter().all(|caller| caller.told.is_some())
            }),
            // Without these, a model that does nothing would have every property above.
            Property::sometimes("a key's response is repeated", |_, state: &State| {
                let callers = state.callers.iter().zip(0..);
                callers.into_iter().any(|(caller, own)| matches!(caller.told, Some(Told::Created(of)) if of != own))
            }),
        ];
        if self.is_synchronous {
            properties.push(Property::always("a refused payment found an empty wallet", |model: &HeadModel, state: &State| {
                let mut refused = told(state, Told::Rejected);
                refused.next().is_none() || model.balances(state).any(|balance| balance == 0)
            }));
            properties.push(Property::always("an answered command exists", |model: &HeadModel, state: &State| {
                let created = state.callers.iter().filter_map(|caller| match caller.told {
                    Some(Told::Created(of)) => Some(of),
                    _ => None,
                });
                created.into_iter().all(|of| match model.requests[usize::from(of)].kind {
                    Kind::Nothing => state.database.responses().any(|(_, stored)| stored == of),
                    Kind::Pay | Kind::Fund => state.database.events_of(of) > 0,
                })
            }));
        }
        properties
    }
}

fn told(state: &State, outcome: Told) -> impl Iterator<Item = (u8, &Caller)> {
    (0..).zip(&state.callers).filter(move |(_, caller)| caller.told == Some(outcome))
}

impl HeadModel {
    /// Returns the change of the balance by an event.
    fn change(&self, event: u8) -> i64 {
        match self.requests[usize::from(event / 16)].kind {
            Kind::Pay => -1,
            Kind::Fund => 1,
            Kind::Nothing => 0,
        }
    }

    /// Returns the balance of the wallet at the start, and after each event of the log.
    fn balances(&self, state: &State) -> impl Iterator<Item = i64> {
        let after = state.database.log().scan(self.balance, move |balance, event| {
            *balance += self.change(event);
            Some(*balance)
        });
        [self.balance].into_iter().chain(after)
    }

    /// Returns whether each key has at most one response, and everybody is told that one. After a failover that lost a response,
    /// the key may get another one.
    fn keys_are_answered_once(&self, state: &State) -> bool {
        let mut known: [Option<u8>; 4] = [None; 4];
        let stored = state.database.responses();
        let told = state.callers.iter().zip(&self.requests).filter_map(|(caller, request)| match caller.told {
            Some(Told::Created(of)) if self.is_synchronous => Some((request.key?, of)),
            _ => None,
        });
        let is_same = |(key, of): (u8, u8)| *known[usize::from(key)].get_or_insert(of) == of;
        let mut keys: Vec<u8> = state.database.responses().map(|(key, _)| key).collect();
        keys.sort_unstable();
        keys.windows(2).all(|pair| pair[0] != pair[1]) && stored.chain(told).all(is_same)
    }
}

impl Node {
    fn is_busy(&self) -> bool {
        let is_idle = self.queue.is_empty() && self.open.is_none() && self.flight.is_none() && self.look.is_none();
        !is_idle || !self.rerun.is_empty()
    }
}
