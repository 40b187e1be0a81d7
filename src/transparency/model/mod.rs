//! A model of the signers of one log for the model checker `stateright`: several nodes sign its tree, and failovers lose the
//! end of the log, of the tree, and of what the nodes have told each other.
//!
//! The library does not declare this module. `tests/models` and `benches/models.rs` include it, and it calls the decisions of
//! the library where they are pure functions. A tree's root is modelled by the tree's events themselves, so two roots are
//! equal if and only if their events are. Each node has a state file of its own.
//!
//! The property holds under two conditions, which the model has: a node waits for the others until they have compared their
//! states with the new server, however long that takes, and every node was known to the others before the standby fell behind.
//! `docs/transparency.md` says what happens otherwise.

mod steps;

use stateright::{Model, Property};

/// Numbers of events and faults that may still come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    pub events: u8,
    pub epochs: u8,
    pub failovers: u8,
    pub deaths: u8,
    /// State files that are lost after their nodes have refused to sign.
    pub lost_files: u8,
    pub incidents: u8,
}

/// Guards of the protocol. A test takes one out and expects the checker to find the harm.
#[derive(Clone, Copy, Debug)]
pub struct Guards {
    /// A synchronous commit of an event waits for the standby (`src/ledger/connect.rs`).
    pub events_wait: bool,
    /// A node compares the log with its own state (`consistent` and `grow` in `src/transparency/projector.rs`).
    pub compares: bool,
    /// A node waits for the others on a new server (`has_heard` in `src/transparency/projector.rs`).
    pub waits: bool,
    /// A node tells the others only that it has compared everything that it remembers (`step_in` in
    /// `src/transparency/projector.rs`).
    pub appears_compared: bool,
    /// The tree is in the state file before it is published (`step_in` in `src/transparency/projector.rs`).
    pub keeps_first: bool,
    /// A refusal is stored (`refuse` in `src/transparency/peers.rs`).
    pub stores_refusals: bool,
    /// A stored refusal stops every node (`meet` in `src/transparency/projector.rs`, and the trigger `refuse_checkpoint`).
    pub heeds_refusals: bool,
    /// After an incident, the log continues under an origin that was never used (`src/cli/log/incident.rs`).
    pub new_origins: bool,
}

impl Guards {
    pub const ALL: Guards = Guards {
        events_wait: true,
        compares: true,
        waits: true,
        appears_compared: true,
        keeps_first: true,
        stores_refusals: true,
        heeds_refusals: true,
        new_origins: true,
    };
}

/// The signers of one log.
#[derive(Clone, Debug)]
pub struct SignerModel {
    pub nodes: usize,
    /// Whether a commit waits for a standby. Commits of the tree never do.
    pub is_synchronous: bool,
    pub budget: Budget,
    pub guards: Guards,
}

/// A signed tree: its origin and its events.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tree {
    pub origin: u8,
    pub events: Vec<u8>,
    pub epoch: u8,
}

/// A row of `log_refusals`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refused {
    pub node: usize,
    pub origin: u8,
    pub head: usize,
    pub remembered: Option<Tree>,
}

/// The tables of a server after a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tables {
    pub log: Vec<u8>,
    pub epoch: u8,
    /// Newest checkpoint.
    pub newest: Option<Tree>,
    /// Refusals that are not withdrawn.
    pub refusals: Vec<Refused>,
    /// Number of the server with which each node has compared its state.
    pub compared: Vec<u8>,
    /// Recorded incidents: position, former origin and next one.
    pub incidents: Vec<(u8, u8, u8)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub tables: Tables,
    /// Tables after each transaction that the standby may still lack, oldest first.
    pub before: Vec<Tables>,
    /// Number of the present server.
    pub server: u8,
    /// Trees in each node's state file, one for each origin.
    pub files: Vec<Vec<Tree>>,
    /// Every checkpoint that was ever published, sorted.
    pub signed: Vec<Tree>,
    /// Whether each node has ever refused to sign.
    pub have_refused: Vec<bool>,
    /// Whether a checkpoint was published while a refusal was open.
    pub has_signed_refused: bool,
    pub drawn: u8,
    pub origins: u8,
    pub left: Budget,
}

/// A step of a node, of an operator, or a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A node takes one step, and signs if nothing speaks against it (`step` in `src/transparency/projector.rs`).
    Step(usize),
    /// Takes such a step, but the node dies between its state file and the commit (`step` in `src/transparency/projector.rs`).
    StepAndDie(usize),
    /// A node takes a step while another one holds the tree (`hold` in `src/transparency/store.rs`).
    StepElsewhere(usize),
    /// A writer appends an event (`src/ledger/write.rs`).
    Append,
    /// A writer gives a batch up as lost (`is_in_log` in `src/ledger/writer.rs`).
    RaiseEpoch,
    /// An operator records an incident (`src/cli/log/incident.rs`, `src/transparency/incidents.rs`).
    RecordIncident,
    /// The standby has everything.
    Replicate,
    /// The standby takes over, and lacks this many transactions.
    Failover(usize),
    /// The state file of a node is lost after it has refused (`src/transparency/signer_state.rs`).
    LoseFile(usize),
}

impl Model for SignerModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            tables: Tables { compared: vec![0; self.nodes], ..Tables::default() },
            before: vec![],
            server: 0,
            files: vec![vec![]; self.nodes],
            signed: vec![],
            have_refused: vec![false; self.nodes],
            has_signed_refused: false,
            drawn: 0,
            origins: 0,
            left: self.budget,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for node in 0..self.nodes {
            actions.extend([Action::Step(node), Action::StepElsewhere(node)]);
            if state.left.deaths > 0 {
                actions.push(Action::StepAndDie(node));
            }
            // A refusal is not lost with the file if the standby has it.
            let is_stored = |tables: &Tables| tables.open_refusals().any(|refused| refused.node == node);
            let is_safe = !self.guards.stores_refusals || state.before.iter().chain([&state.tables]).all(is_stored);
            if state.left.lost_files > 0 && state.have_refused[node] && is_safe {
                actions.push(Action::LoseFile(node));
            }
        }
        if state.left.events > 0 {
            actions.push(Action::Append);
        }
        if state.left.epochs > 0 {
            actions.push(Action::RaiseEpoch);
        }
        if state.left.incidents > 0 && state.tables.open_refusals().next().is_some() {
            actions.push(Action::RecordIncident);
        }
        if !state.before.is_empty() {
            actions.push(Action::Replicate);
        }
        if state.left.failovers > 0 {
            actions.extend((0..=state.before.len()).map(Action::Failover));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Step(node) => self.step(&mut state, node, false),
            Action::StepAndDie(node) => {
                state.left.deaths -= 1;
                self.step(&mut state, node, true);
            }
            Action::StepElsewhere(node) => self.step_elsewhere(&mut state, node),
            Action::Append => {
                state.left.events -= 1;
                self.append(&mut state, |_| {});
            }
            Action::RaiseEpoch => {
                state.left.epochs -= 1;
                self.commit(&mut state, true, |tables| tables.epoch += 1);
            }
            Action::RecordIncident => self.record_incident(&mut state),
            Action::Replicate => state.before.clear(),
            Action::Failover(lost) => {
                state.left.failovers -= 1;
                state.server += 1;
                if lost > 0 {
                    state.tables = state.before.swap_remove(state.before.len() - lost);
                }
                state.before.clear();
            }
            Action::LoseFile(node) => {
                state.left.lost_files -= 1;
                state.files[node].clear();
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("signed trees of an origin continue each other", |_, state: &State| {
                let continues =
                    |one: &Tree, other: &Tree| one.events.starts_with(&other.events) || other.events.starts_with(&one.events);
                let pairs = state
                    .signed
                    .iter()
                    .enumerate()
                    .flat_map(|(at, one)| state.signed[..at].iter().map(move |other| (one, other)));
                pairs.into_iter().all(|(one, other)| one.origin != other.origin || continues(one, other))
            }),
            Property::always("nothing is signed while a node refuses", |_, state: &State| !state.has_signed_refused),
            // Without these, a model that does nothing would have every property above.
            Property::sometimes("a tree is continued", |_, state: &State| state.signed.len() > 1),
        ];
        match self.is_synchronous {
            true => properties.push(Property::always("a failover that loses no event stops no signer", |_, state: &State| {
                state.tables.refusals.is_empty()
            })),
            false => properties.push(Property::sometimes("a node refuses", |_, state: &State| !state.tables.refusals.is_empty())),
        }
        properties
    }
}
