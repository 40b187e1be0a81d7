//! The head of the log: `src/ledger/writer/model/mod.rs`.

use super::head_model::{Faults, Guards, HeadModel, Kind, Request};
use super::{finds, holds};

fn request(node: usize, kind: Kind, key: Option<u8>) -> Request {
    Request { node, kind, key }
}

/// Two nodes, of which one has a payment and the other its retry under the same key and a payment of its own. The wallet
/// covers one payment.
fn two_nodes(is_synchronous: bool, faults: Faults) -> HeadModel {
    let requests = vec![request(0, Kind::Pay, Some(0)), request(1, Kind::Pay, Some(0)), request(1, Kind::Pay, None)];
    HeadModel { nodes: 2, requests, balance: 1, is_synchronous, faults, guards: Guards::ALL }
}

/// One node has a command and its retry under the same key.
fn same_key(kind: Kind, faults: Faults) -> HeadModel {
    let requests = vec![request(0, kind, Some(0)), request(0, kind, Some(0))];
    HeadModel { nodes: 1, requests, balance: 2, is_synchronous: true, faults, guards: Guards::ALL }
}

const LOST: Faults = Faults { lost_answers: 1, failovers: 0, restarts: 0, crashes: 0, deadlines: 0, full_queues: 0 };

#[test]
fn the_head_holds_while_answers_are_lost_and_callers_give_up() {
    holds(two_nodes(true, Faults { deadlines: 1, ..LOST }));
    holds(same_key(Kind::Pay, Faults { deadlines: 2, full_queues: 1, ..LOST }));
}

#[test]
fn the_head_holds_through_a_synchronous_failover() {
    holds(two_nodes(true, Faults { failovers: 1, restarts: 1, ..LOST }));
}

#[test]
fn the_head_holds_through_an_asynchronous_failover_but_for_what_is_lost() {
    holds(two_nodes(false, Faults { failovers: 1, ..LOST }));
}

#[test]
fn the_head_holds_when_nodes_die() {
    holds(two_nodes(true, Faults { crashes: 1, ..LOST }));
}

#[test]
fn a_key_of_a_command_without_an_event_has_one_response() {
    let mut model = two_nodes(true, LOST);
    model.requests[0].kind = Kind::Nothing;
    model.requests[1].kind = Kind::Nothing;
    holds(model);
}

#[test]
fn without_the_position_two_nodes_write_the_same_one() {
    let guards = Guards { position: false, ..Guards::ALL };
    finds("positions are gapless", HeadModel { guards, balance: 2, ..two_nodes(true, Faults::default()) });
}

#[test]
fn without_the_look_a_command_happens_twice() {
    let guards = Guards { looks: false, ..Guards::ALL };
    let mut model = HeadModel { guards, balance: 2, ..two_nodes(true, LOST) };
    model.requests.remove(0);
    model.requests[0].key = None;
    finds("no command happens twice", model);
}

#[test]
fn without_the_epoch_a_late_statement_makes_a_503_untrue() {
    let guards = Guards { raises_epoch: false, ..Guards::ALL };
    let model = HeadModel { guards, ..two_nodes(true, Faults { deadlines: 1, ..LOST }) };
    finds("503 means that nothing happened", model.clone());
    finds("no command happens twice", HeadModel { balance: 2, ..model });
}

/// One node: an answer is lost and its caller gives up, a refused command brings the node to the raised epoch, and a failover loses
/// it before the next answer is lost.
fn lost_epoch(guards: Guards) -> HeadModel {
    let requests = vec![request(0, Kind::Fund, None), request(0, Kind::Pay, None), request(0, Kind::Fund, None)];
    let faults = Faults { lost_answers: 2, failovers: 1, deadlines: 1, ..LOST };
    HeadModel { nodes: 1, requests, balance: 0, is_synchronous: false, faults, guards }
}

/// Gives two requests one key, so that a response is repeated.
fn with_key(mut requests: Vec<Request>) -> Vec<Request> {
    requests[0].key = Some(0);
    requests[2].key = Some(0);
    requests
}

#[test]
fn without_the_batchs_epoch_a_lost_raise_lets_a_late_statement_in() {
    holds(HeadModel { requests: with_key(lost_epoch(Guards::ALL).requests), ..lost_epoch(Guards::ALL) });
    finds("no command happens twice", lost_epoch(Guards { raises_beyond: false, ..Guards::ALL }));
}

#[test]
fn without_one_decider_a_command_happens_after_its_503() {
    let guards = Guards { one_decides: false, ..Guards::ALL };
    finds(
        "503 means that nothing happened",
        HeadModel { guards, ..two_nodes(true, Faults { deadlines: 1, ..Faults::default() }) },
    );
}

#[test]
fn without_earlier_keys_a_retry_gets_503_beside_a_command_that_happens() {
    let guards = Guards { earlier_keys: false, ..Guards::ALL };
    let model = |faults| HeadModel { guards, ..same_key(Kind::Pay, faults) };
    finds("no 503 beside a command under its key that may happen", model(Faults { deadlines: 1, ..Faults::default() }));
    finds("no 503 beside a command under its key that may happen", model(Faults { full_queues: 1, ..Faults::default() }));
}

#[test]
fn without_unique_keys_a_key_has_two_responses() {
    let guards = Guards { unique_keys: false, ..Guards::ALL };
    let mut model = HeadModel { guards, ..two_nodes(true, Faults::default()) };
    model.requests[0].kind = Kind::Nothing;
    model.requests[1].kind = Kind::Nothing;
    finds("a key has one response", model);
}

#[test]
fn without_the_last_event_a_wallet_is_overdrawn_after_a_failover() {
    let guards = Guards { last_event: false, ..Guards::ALL };
    let requests = vec![request(0, Kind::Fund, None), request(1, Kind::Pay, None), request(0, Kind::Pay, None)];
    let faults = Faults { failovers: 1, ..Faults::default() };
    finds("no wallet is overdrawn", HeadModel { guards, requests, ..two_nodes(false, faults) });
}

#[test]
fn without_exact_memory_a_batch_is_decided_on_an_old_log() {
    let guards = Guards { exact_memory: false, ..Guards::ALL };
    let model = HeadModel { guards, ..two_nodes(true, Faults::default()) };
    finds("memory is used only while the head stands", model.clone());
    finds("no wallet is overdrawn", model);
}

#[test]
fn without_the_commit_an_answered_command_does_not_exist() {
    let guards = Guards { answers_late: false, ..Guards::ALL };
    finds("an answered command exists", HeadModel { guards, ..two_nodes(true, LOST) });
}

#[test]
fn without_the_commit_a_refused_command_happens() {
    let guards = Guards { answers_late: false, ..Guards::ALL };
    let requests = vec![request(0, Kind::Fund, None), request(1, Kind::Pay, None)];
    let model = HeadModel { guards, requests, balance: 0, ..two_nodes(true, Faults::default()) };
    finds("a refused command did not happen", model);
}

/// The primary was started again before its standby had a commit. A retry finds the commit, and a failover loses it.
#[test]
fn without_a_wait_a_repeated_response_outlives_its_command() {
    let guards = Guards { checks_wait: false, ..Guards::ALL };
    let faults = Faults { failovers: 1, restarts: 1, ..Faults::default() };
    finds("an answered command exists", HeadModel { guards, ..two_nodes(true, faults) });
}

/// A payment is refused because of such a commit, and a failover loses it.
#[test]
fn without_a_wait_a_payment_is_refused_that_the_wallet_covers() {
    let guards = Guards { checks_wait: false, ..Guards::ALL };
    let faults = Faults { failovers: 1, restarts: 1, ..Faults::default() };
    finds("a refused payment found an empty wallet", HeadModel { guards, ..two_nodes(true, faults) });
}

/// A retry finds such a commit, the failover loses it, and the head stands where the retry's node had left it.
#[test]
fn without_a_second_look_a_response_is_repeated_that_a_failover_has_lost() {
    let guards = Guards { repeats_exist: false, ..Guards::ALL };
    let faults = Faults { failovers: 1, restarts: 1, ..Faults::default() };
    finds("an answered command exists", HeadModel { guards, ..two_nodes(true, faults) });
}

#[test]
fn without_a_rerun_a_caller_is_told_nothing() {
    let guards = Guards { reruns_open: false, ..Guards::ALL };
    finds("every caller is told an outcome", HeadModel { guards, ..two_nodes(true, Faults::default()) });
}
