//! Signers of the transparency log: `src/transparency/model/mod.rs`.

use super::signer_model::{Budget, Guards, SignerModel};
use super::{finds, holds};

const CONTINUE: &str = "signed trees of an origin continue each other";
const FAILOVER: Budget = Budget { events: 3, epochs: 0, failovers: 1, deaths: 0, lost_files: 0, incidents: 0 };

fn model(is_synchronous: bool, budget: Budget) -> SignerModel {
    SignerModel { nodes: 2, is_synchronous, budget, guards: Guards::ALL }
}

fn without(guards: Guards, budget: Budget) -> SignerModel {
    SignerModel { guards, ..model(false, budget) }
}

#[test]
fn signers_fork_no_log_after_a_failover_that_loses_commits() {
    holds(model(false, Budget { events: 2, deaths: 1, ..FAILOVER }));
    holds(model(false, Budget { events: 2, epochs: 1, ..FAILOVER }));
}

#[test]
fn signers_fork_no_log_when_a_state_file_is_lost_after_a_refusal() {
    holds(model(false, Budget { events: 2, lost_files: 1, ..FAILOVER }));
}

#[test]
fn signers_fork_no_log_after_an_incident() {
    holds(model(false, Budget { events: 2, incidents: 1, ..FAILOVER }));
}

#[test]
fn signers_never_stop_after_a_synchronous_failover() {
    holds(model(true, Budget { events: 2, epochs: 1, failovers: 2, deaths: 1, ..FAILOVER }));
}

#[test]
fn without_waiting_for_the_standby_a_failover_stops_the_signers() {
    let guards = Guards { events_wait: false, ..Guards::ALL };
    let model = SignerModel { guards, ..model(true, FAILOVER) };
    finds("a failover that loses no event stops no signer", model);
}

#[test]
fn without_comparing_a_log_is_forked() {
    finds(CONTINUE, without(Guards { compares: false, ..Guards::ALL }, FAILOVER));
}

#[test]
fn without_waiting_a_node_that_remembers_less_forks_the_log() {
    finds(CONTINUE, without(Guards { waits: false, ..Guards::ALL }, FAILOVER));
}

#[test]
fn without_comparing_everything_first_a_node_that_remembers_more_is_not_waited_for() {
    finds(CONTINUE, without(Guards { appears_compared: false, ..Guards::ALL }, FAILOVER));
}

#[test]
fn without_keeping_first_a_node_forgets_what_it_has_signed() {
    finds(CONTINUE, without(Guards { keeps_first: false, ..Guards::ALL }, Budget { deaths: 1, ..FAILOVER }));
}

#[test]
fn without_a_stored_refusal_a_lost_state_file_lets_the_log_fork() {
    finds(CONTINUE, without(Guards { stores_refusals: false, ..Guards::ALL }, Budget { lost_files: 1, ..FAILOVER }));
}

#[test]
fn without_heeding_refusals_a_node_signs_while_another_refuses() {
    let guards = Guards { heeds_refusals: false, waits: false, ..Guards::ALL };
    finds("nothing is signed while a node refuses", without(guards, FAILOVER));
}

#[test]
fn without_a_new_origin_an_incident_forks_the_log() {
    let budget = Budget { incidents: 1, lost_files: 1, ..FAILOVER };
    finds(CONTINUE, without(Guards { new_origins: false, ..Guards::ALL }, budget));
}
