//! Published histories, on which the checker must agree with their authors.

use std::collections::VecDeque;

use super::checker::{Specification, check};

/// An operation of an example: its invocation, its answer if there is one, and what it does.
#[derive(Clone, Copy, Debug)]
struct Timed<T> {
    invoked: u64,
    answered: Option<u64>,
    does: T,
}

fn at<T>(invoked: u64, answered: u64, does: T) -> Timed<T> {
    Timed { invoked, answered: Some(answered), does }
}

/// An operation without an answer.
fn unknown<T>(invoked: u64, does: T) -> Timed<T> {
    Timed { invoked, answered: None, does }
}

fn is_before<T>(first: &Timed<T>, second: &Timed<T>) -> bool {
    first.answered.is_some_and(|answered| answered < second.invoked)
}

#[derive(Clone, Copy, Debug)]
enum Register {
    Write(i32),
    Read(i32),
    /// Replaces the first value by the second one.
    Swap(i32, i32),
}

impl Specification for Register {
    type State = i32;
    type Operation = Timed<Register>;

    fn step(state: &i32, operation: &Timed<Register>) -> Option<i32> {
        match operation.does {
            Register::Write(value) => Some(value),
            Register::Read(value) => (*state == value).then_some(value),
            Register::Swap(old, new) => (*state == old).then_some(new),
        }
    }

    fn is_answered(operation: &Timed<Register>) -> bool {
        operation.answered.is_some()
    }

    fn precedes(first: &Timed<Register>, second: &Timed<Register>) -> bool {
        is_before(first, second)
    }
}

#[derive(Clone, Copy, Debug)]
enum Queue {
    Enqueue(char),
    Dequeue(char),
}

impl Specification for Queue {
    type State = VecDeque<char>;
    type Operation = Timed<Queue>;

    fn step(state: &VecDeque<char>, operation: &Timed<Queue>) -> Option<VecDeque<char>> {
        let mut after = state.clone();
        match operation.does {
            Queue::Enqueue(item) => after.push_back(item),
            Queue::Dequeue(item) => return (after.pop_front() == Some(item)).then_some(after),
        }
        Some(after)
    }

    fn is_answered(operation: &Timed<Queue>) -> bool {
        operation.answered.is_some()
    }

    fn precedes(first: &Timed<Queue>, second: &Timed<Queue>) -> bool {
        is_before(first, second)
    }
}

fn register(history: &[Timed<Register>]) -> bool {
    check::<Register>(&0, history).is_linearizable()
}

fn queue(history: &[Timed<Queue>]) -> bool {
    check::<Queue>(&VecDeque::new(), history).is_linearizable()
}

/// Herlihy and Wing, "Linearizability: A Correctness Condition for Concurrent Objects" (1990), section 1.2, H1 to H4.
#[test]
fn the_checker_agrees_with_the_queues_of_herlihy_and_wing() {
    use Queue::{Dequeue, Enqueue};
    let overlapping = [at(1, 4, Enqueue('x')), at(2, 3, Enqueue('y')), at(5, 6, Dequeue('x')), at(7, 8, Dequeue('y'))];
    let still_open = [&overlapping[..], &[unknown(9, Enqueue('z'))]].concat();
    assert!(queue(&still_open), "H1");
    let out_of_order = [at(1, 2, Enqueue('x')), at(3, 5, Enqueue('y')), at(4, 6, Dequeue('y'))];
    assert!(!queue(&out_of_order), "H2");
    let unfinished = [unknown(1, Enqueue('x')), at(2, 3, Dequeue('x'))];
    assert!(queue(&unfinished), "H3");
    let twice = [at(1, 3, Enqueue('x')), at(2, 4, Enqueue('y')), at(5, 7, Dequeue('y')), at(6, 8, Dequeue('y'))];
    assert!(!queue(&twice), "H4");
}

/// The first example of porcupine's documentation: two histories of a register.
#[test]
fn the_checker_agrees_with_the_registers_of_porcupine() {
    use Register::{Read, Write};
    assert!(register(&[at(0, 100, Write(100)), at(25, 75, Read(100)), at(30, 60, Read(0))]));
    assert!(!register(&[at(0, 100, Write(200)), at(10, 30, Read(200)), at(40, 90, Read(0))]));
}

/// Knossos' treatment of crashed operations: each may take effect once, at any later time or never.
#[test]
fn an_operation_with_an_unknown_outcome_takes_effect_at_most_once_and_not_before_its_invocation() {
    use Register::{Read, Swap, Write};
    let lost = unknown(1, Write(1));
    assert!(register(&[lost, at(2, 3, Read(0)), at(4, 5, Read(0))]), "never");
    assert!(register(&[lost, at(2, 3, Read(0)), at(4, 5, Write(2)), at(6, 7, Read(2)), at(8, 9, Read(1))]), "late");
    assert!(!register(&[lost, at(2, 3, Read(1)), at(4, 5, Read(0))]), "taken back");
    assert!(!register(&[lost, at(2, 3, Read(1)), at(4, 5, Write(2)), at(6, 7, Read(1))]), "twice");
    assert!(!register(&[at(1, 2, Read(1)), unknown(3, Write(1))]), "early");
    let swaps = [at(1, 2, Write(1)), unknown(3, Swap(1, 2)), unknown(4, Swap(2, 1))];
    assert!(register(&[&swaps[..], &[at(5, 6, Read(2)), at(7, 8, Read(1))]].concat()));
    assert!(!register(&[&swaps[..], &[at(5, 6, Read(2)), at(7, 8, Read(1)), at(9, 10, Read(2))]].concat()));
}

/// Concurrent writers of which a reader sees each one: the checker remembers states instead of trying 10! orders.
#[test]
fn a_history_of_many_concurrent_operations_is_decided_in_few_states() {
    let writers = (0..10).map(|value| at(1, 100, Register::Write(value)));
    let good: Vec<_> = writers.clone().chain([at(101, 102, Register::Read(9))]).collect();
    let bad: Vec<_> = writers.chain([at(101, 102, Register::Read(10))]).collect();
    let verdicts = [good, bad].map(|history| check::<Register>(&0, &history));
    assert_eq!(verdicts.each_ref().map(super::checker::Verdict::is_linearizable), [true, false]);
    // At most each set of writers with each last one.
    assert!(verdicts.iter().all(|verdict| verdict.states() <= 10 * (1 << 10)), "{verdicts:?}");
}
