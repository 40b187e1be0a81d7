//! A model of a webhook's deliveries for the model checker `stateright`: workers claim, send and record, and each of them may
//! die between any two steps, lose its lease, or record under a lease that a failover has undone.
//!
//! The library does not declare this module. `tests/models` and `benches/models.rs` include it, and it calls the decisions of
//! the library where they are pure functions. Scheduling, which only says when a delivery is claimed, is left out: a claim may
//! come at any moment. Every attempt is due at once.

mod steps;

use ledger_events::webhook::MAX_ATTEMPTS;
use rewards_ledger::delivery::claim::MAX_UNKNOWN;
use stateright::{Model, Property};

use steps::decide_retry;

/// Numbers of faults and of people's requests that may still come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    pub deaths: u8,
    /// Leases that end although the worker is alive, because it was suspended or is slow.
    pub slow: u8,
    /// Answers of the database to a recording that are lost.
    pub lost_answers: u8,
    pub given_back: u8,
    pub failovers: u8,
    pub switched_off: u8,
    pub retries: u8,
    pub replays: u8,
}

/// Guards of the protocol. A test takes one out and expects the checker to find the harm.
#[derive(Clone, Copy, Debug)]
pub struct Guards {
    /// An expired lease can be taken over (`take` in `src/delivery/claim.rs`).
    pub takes_over: bool,
    /// The attempt is written with the claim (`take` in `src/delivery/claim.rs`).
    pub writes_ahead: bool,
    /// An outcome that stays unknown is repeated a limited number of times (`take` in `src/delivery/claim.rs`).
    pub limits_unknown: bool,
    /// A result needs the fencing token of its claim (`src/delivery/record.rs`).
    pub fence: bool,
    /// A result needs a lease (`src/delivery/record.rs`).
    pub leased: bool,
    /// A result needs the attempt that its claim wrote (`src/delivery/record.rs`).
    pub written: bool,
    /// Only a response with 2xx is a success (`succeeded` in `crates/webhook-client/src/sender.rs`).
    pub needs_2xx: bool,
    /// The fifth attempt is the last (`src/delivery/schedule.rs`).
    pub last_attempt: bool,
    /// Lost attempts count as one failed attempt (`fail_lost_attempts` in `src/delivery/record.rs`).
    pub lost_is_one: bool,
}

impl Guards {
    pub const ALL: Guards = Guards {
        takes_over: true,
        writes_ahead: true,
        limits_unknown: true,
        fence: true,
        leased: true,
        written: true,
        needs_2xx: true,
        last_attempt: true,
        lost_is_one: true,
    };
}

/// One event that one webhook receives, and its workers.
#[derive(Clone, Debug)]
pub struct DeliveryModel {
    pub workers: usize,
    pub budget: Budget,
    pub guards: Guards,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    Pending,
    Delivered,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lease {
    None,
    Live,
    Expired,
}

/// A row of `delivery_state`, with what is counted of its attempts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Delivery {
    pub status: Status,
    pub attempt_count: i16,
    pub unknown_count: i16,
    pub fence: u8,
    pub lease: Lease,
    /// Rows of `delivery_attempts` that a worker still refers to: request id, and whether it has a result.
    pub attempts: Vec<(u8, bool)>,
    /// Numbers of results, and of lost attempts that count as one.
    pub results: i16,
    pub written_off: i16,
    pub was_switched_off: bool,
}

/// An event in the log that the projection has not processed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Logged {
    Switched { on: bool },
    Retry(usize),
    Replay,
}

/// The tables of one server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tables {
    pub deliveries: Vec<Delivery>,
    pub is_active: bool,
    pub unprojected: Vec<Logged>,
}

/// A delivery that a worker has claimed (`Claimed` in `src/delivery/claim.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    pub delivery: usize,
    pub fence: u8,
    pub attempt: i16,
    pub request: u8,
    /// Whether the receiver answered with 2xx, once it was asked.
    pub succeeded: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub tables: Tables,
    /// Tables as the standby has them, once it has fallen behind.
    pub standby: Option<Tables>,
    pub workers: Vec<Option<Claim>>,
    /// Whether the receiver has accepted the event with 2xx.
    pub has_arrived: bool,
    pub left: Budget,
    pub has_sent_unwritten: bool,
    pub has_recorded_unwritten: bool,
    pub has_recorded_twice: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Accepted,
    Refused,
    /// The receiver accepts, and its answer is lost.
    Unheard,
}

/// A step of a worker, of the projector, of a person, or a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A worker leases a delivery and writes its attempt (`src/delivery/claim.rs`).
    Claim { worker: usize, delivery: usize },
    /// A worker sends its attempt (`src/delivery/worker.rs`, `crates/webhook-client/src/sender.rs`).
    Send(usize, Answer),
    /// A worker gives back what it has not sent (`give_back` in `src/delivery/record.rs`).
    GiveBack(usize),
    /// A worker records a result (`record` in `src/delivery/record.rs`).
    Record(usize),
    /// A result is recorded, and the worker does not learn it (`src/delivery/worker/recording.rs`).
    RecordUnanswered(usize),
    /// A worker dies, or is stopped and ends its lease (`end_leases` in `src/delivery/record.rs`).
    Die(usize),
    /// A lease ends by the database's clock (`src/delivery/claim.rs`).
    LeaseEnds(usize),
    /// Attempts that stay unknown count as one that failed (`fail_lost_attempts` in `src/delivery/record.rs`).
    FailLost(usize),
    /// The lease of a delivery that failed meanwhile is released (`end_dead_leases` in `src/delivery/record.rs`).
    EndDeadLease(usize),
    /// The projection processes the next event (`projections/src/deliveries/write.rs`).
    Project,
    /// A client switches the webhook off or on (`events/src/webhook.rs`).
    Switch { on: bool },
    /// A client asks for a failed delivery again (`events/src/webhook.rs`).
    RequestRetry(usize),
    /// A client replays what it missed (`src/delivery/replay.rs`).
    RequestReplay,
    /// The standby falls behind.
    FallBehind,
    /// The standby takes over, without what it lacks.
    Failover,
}

impl Action {
    /// Returns whether the service does it by itself, without a person's request and without a failover.
    fn is_work(&self) -> bool {
        let by_others = [Action::RequestReplay, Action::FallBehind, Action::Failover];
        !by_others.contains(self) && !matches!(self, Action::Switch { .. } | Action::RequestRetry(_))
    }
}

impl Model for DeliveryModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            tables: Tables { deliveries: vec![Delivery::new(true)], is_active: true, unprojected: vec![] },
            standby: None,
            workers: vec![None; self.workers],
            has_arrived: false,
            left: self.budget,
            has_sent_unwritten: false,
            has_recorded_unwritten: false,
            has_recorded_twice: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (worker, claim) in state.workers.iter().enumerate() {
            self.actions_of_worker(state, worker, *claim, actions);
        }
        for (number, delivery) in state.tables.deliveries.iter().enumerate() {
            let is_held = state.workers.iter().flatten().any(|claim| (claim.delivery, claim.fence) == (number, delivery.fence));
            if delivery.lease == Lease::Live && (!is_held || state.left.slow > 0) {
                actions.push(Action::LeaseEnds(number));
            }
            if delivery.lease == Lease::Expired && delivery.status != Status::Pending {
                actions.push(Action::EndDeadLease(number));
            }
            if delivery.lease == Lease::Expired && delivery.status == Status::Pending && delivery.unknown_count >= MAX_UNKNOWN {
                actions.push(Action::FailLost(number));
            }
            if state.left.retries > 0 && decide_retry(&state.tables, number).is_some() {
                actions.push(Action::RequestRetry(number));
            }
        }
        if !state.tables.unprojected.is_empty() {
            actions.push(Action::Project);
        }
        if state.left.switched_off > 0 || !state.tables.is_active {
            actions.push(Action::Switch { on: !state.tables.is_active });
        }
        if state.left.replays > 0 && state.tables.is_active {
            actions.push(Action::RequestReplay);
        }
        if state.left.failovers > 0 {
            actions.push(if state.standby.is_none() { Action::FallBehind } else { Action::Failover });
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.step(&mut state, action);
        state.normalize();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn each(state: &State, is_right: impl Fn(&Delivery) -> bool) -> bool {
            state.tables.deliveries.iter().all(is_right)
        }
        vec![
            Property::always("no delivery stays pending for ever", |model: &DeliveryModel, state: &State| {
                each(state, |delivery| delivery.status != Status::Pending) || {
                    let mut actions = vec![];
                    model.actions(state, &mut actions);
                    actions.iter().any(Action::is_work)
                }
            }),
            Property::always("a delivered event has arrived", |_, state: &State| {
                state.has_arrived || each(state, |delivery| delivery.status != Status::Delivered)
            }),
            Property::always("a delivery fails by five attempts or by its client", |_, state: &State| {
                let has_reason = |delivery: &Delivery| delivery.attempt_count >= MAX_ATTEMPTS || delivery.was_switched_off;
                each(state, |delivery| delivery.status != Status::Failed || has_reason(delivery))
            }),
            Property::always("at most five attempts are counted", |_, state: &State| {
                each(state, |delivery| delivery.attempt_count <= MAX_ATTEMPTS)
            }),
            Property::always("each counted attempt has one result", |_, state: &State| {
                each(state, |delivery| delivery.attempt_count == delivery.results + delivery.written_off)
            }),
            Property::always("no attempt has two results", |_, state: &State| !state.has_recorded_twice),
            Property::always("a result belongs to a written attempt", |_, state: &State| !state.has_recorded_unwritten),
            Property::always("an attempt is written before it is sent", |_, state: &State| !state.has_sent_unwritten),
            Property::always("an unknown outcome is repeated five times at most", |_, state: &State| {
                each(state, |delivery| delivery.unknown_count <= MAX_UNKNOWN)
            }),
            // Without these, a model that does nothing would have every property above.
            Property::sometimes("a delivery is delivered", |_, state: &State| {
                !each(state, |delivery| delivery.status != Status::Delivered)
            }),
            Property::sometimes("a delivery fails for good", |_, state: &State| {
                !each(state, |delivery| delivery.status != Status::Failed)
            }),
        ]
    }
}
