//! A linearizability checker: the search of Wing and Gong with Lowe's memory of visited states.
//!
//! It looks for an order of the operations that a sequential object allows, and that keeps the order of operations which did
//! not overlap. An operation whose outcome is unknown may take effect at any time after its invocation, or never.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

/// States after which a search gives up. A search that finds an order needs about one for each operation.
const MAX_STATES: usize = 200_000;

/// A sequential object.
pub trait Specification {
    type State: Clone + Debug + Eq + Hash;
    type Operation: Debug;

    /// Returns the state after the operation, or `None` if the object would have answered something else. If the outcome is
    /// unknown, any answer will do.
    fn step(state: &Self::State, operation: &Self::Operation) -> Option<Self::State>;

    /// Returns whether the operation's outcome is known.
    fn is_answered(operation: &Self::Operation) -> bool;

    /// Returns whether the first operation must come before the second one. It is false for a first operation with an unknown
    /// outcome.
    fn precedes(first: &Self::Operation, second: &Self::Operation) -> bool;

    /// Returns whether two operations with an unknown outcome have the same effect in every state. Then only one of them needs
    /// to be tried.
    fn are_alike(_first: &Self::Operation, _second: &Self::Operation) -> bool {
        false
    }
}

/// The end of a search.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// There is such an order.
    Linearizable { states: usize },
    /// There is none.
    Refused { explanation: String, states: usize },
    /// The search has visited too many states.
    Undecided { explanation: String },
}

impl Verdict {
    pub fn is_linearizable(&self) -> bool {
        matches!(self, Verdict::Linearizable { .. })
    }

    /// Returns the number of different states that the search visited.
    pub fn states(&self) -> usize {
        match self {
            Verdict::Linearizable { states } | Verdict::Refused { states, .. } => *states,
            Verdict::Undecided { .. } => MAX_STATES,
        }
    }
}

/// Looks for an order of the operations, from this state on.
pub fn check<S: Specification>(start: &S::State, operations: &[S::Operation]) -> Verdict {
    let before = |second| operations.iter().map(move |first| S::precedes(first, second));
    let predecessors = operations.iter().map(|second| Set::of(before(second))).collect();
    let answered = Set::of(operations.iter().map(S::is_answered));
    let mut search = Search::<S> {
        operations,
        predecessors,
        answered,
        done: Set::of(operations.iter().map(|_| false)),
        order: vec![],
        seen: HashSet::new(),
        longest: (vec![], start.clone()),
    };
    let is_found = search.run(start.clone());
    let states = search.seen.len();
    match is_found {
        true => Verdict::Linearizable { states },
        false if states >= MAX_STATES => Verdict::Undecided { explanation: search.explain() },
        false => Verdict::Refused { explanation: search.explain(), states },
    }
}

/// A set of operations, by index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Set(Vec<u64>);

impl Set {
    fn of(members: impl Iterator<Item = bool>) -> Set {
        let members: Vec<bool> = members.collect();
        let word = |bits: &[bool]| bits.iter().enumerate().fold(0, |word, (at, is_in)| word | (u64::from(*is_in) << at));
        Set(members.chunks(64).map(word).collect())
    }

    fn has(&self, index: usize) -> bool {
        self.0[index / 64] & (1 << (index % 64)) != 0
    }

    fn flip(&mut self, index: usize) {
        self.0[index / 64] ^= 1 << (index % 64);
    }

    fn is_within(&self, other: &Set) -> bool {
        self.0.iter().zip(&other.0).all(|(own, others)| own & !others == 0)
    }
}

struct Search<'a, S: Specification> {
    operations: &'a [S::Operation],
    predecessors: Vec<Set>,
    answered: Set,
    /// Operations of `order`.
    done: Set,
    order: Vec<usize>,
    seen: HashSet<(Set, S::State)>,
    /// Longest order that was found, with its state.
    longest: (Vec<usize>, S::State),
}

impl<S: Specification> Search<'_, S> {
    /// Returns the operations that may come next in this state, each with the state after it: those whose outcome is known, or
    /// the others.
    fn next<'s>(&'s self, state: &'s S::State, are_answered: bool) -> impl Iterator<Item = (usize, S::State)> + 's {
        let may_come = move |index: &usize| {
            self.answered.has(*index) == are_answered && !self.done.has(*index) && self.predecessors[*index].is_within(&self.done)
        };
        let steps = (0..self.operations.len()).filter(may_come);
        steps.filter_map(|index| Some((index, S::step(state, &self.operations[index])?)))
    }

    /// Returns an answered operation that may come next and leaves the state as it is.
    fn changing_nothing(&self, state: &S::State) -> Option<usize> {
        self.next(state, true).find(|(_, after)| after == state).map(|(index, _)| index)
    }

    fn push(&mut self, index: usize) {
        self.order.push(index);
        self.done.flip(index);
    }

    fn pop_to(&mut self, length: usize) {
        for index in self.order.split_off(length) {
            self.done.flip(index);
        }
    }

    /// Extends the order from this state until it has every answered operation. Returns whether that is possible.
    fn run(&mut self, state: S::State) -> bool {
        let length = self.order.len();
        // An answered operation that changes nothing can come at once: if it can come later, every order stays possible.
        while let Some(index) = self.changing_nothing(&state) {
            self.push(index);
        }
        if self.order.len() > self.longest.0.len() {
            self.longest = (self.order.clone(), state.clone());
        }
        if self.answered.is_within(&self.done) {
            return true;
        }
        if self.seen.len() < MAX_STATES && self.seen.insert((self.done.clone(), state.clone())) {
            // Operations with an unknown outcome come last, for they need not have happened.
            for are_answered in [true, false] {
                let next: Vec<_> = self.next(&state, are_answered).filter(|(_, after)| *after != state).collect();
                for (at, (index, after)) in next.iter().enumerate() {
                    let is_alike =
                        |(other, _): &(usize, S::State)| S::are_alike(&self.operations[*other], &self.operations[*index]);
                    if !are_answered && next[..at].iter().any(is_alike) {
                        continue;
                    }
                    self.push(*index);
                    if self.run(after.clone()) {
                        return true;
                    }
                    self.pop_to(self.order.len() - 1);
                }
            }
        }
        self.pop_to(length);
        false
    }

    /// Describes where the longest order ends.
    fn explain(&self) -> String {
        let (order, state) = &self.longest;
        let done = Set::of((0..self.operations.len()).map(|index| order.contains(&index)));
        let is_stuck =
            |index: &usize| self.answered.has(*index) && !done.has(*index) && self.predecessors[*index].is_within(&done);
        let stuck: Vec<String> =
            (0..self.operations.len()).filter(is_stuck).map(|index| format!("    {:?}", self.operations[index])).collect();
        let last: Vec<String> =
            order.iter().rev().take(5).rev().map(|index| format!("    {:?}", self.operations[*index])).collect();
        format!(
            "the longest order has {} of {} operations and ends with\n{}\n  in the state\n    {state:?}\n  in which none of these can come next\n{}",
            order.len(),
            self.operations.len(),
            last.join("\n"),
            stuck.join("\n")
        )
    }
}
