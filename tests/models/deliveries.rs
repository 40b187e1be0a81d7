//! Deliveries of webhooks: `src/delivery/model/mod.rs`.

use super::delivery_model::{Budget, DeliveryModel, Guards};
use super::{finds, holds};

const NONE: Budget =
    Budget { deaths: 0, slow: 0, lost_answers: 0, given_back: 0, failovers: 0, switched_off: 0, retries: 0, replays: 0 };

fn model(workers: usize, budget: Budget) -> DeliveryModel {
    DeliveryModel { workers, budget, guards: Guards::ALL }
}

fn without(guards: Guards, budget: Budget) -> DeliveryModel {
    DeliveryModel { guards, ..model(2, budget) }
}

#[test]
fn deliveries_hold_when_workers_die_or_lose_their_leases() {
    holds(model(2, Budget { deaths: 1, slow: 1, lost_answers: 1, given_back: 1, ..NONE }));
    // Every attempt of one worker may be lost.
    holds(model(1, Budget { deaths: 40, ..NONE }));
}

#[test]
fn deliveries_hold_when_webhooks_are_switched_off_and_deliveries_repeated() {
    holds(model(2, Budget { deaths: 1, slow: 1, switched_off: 1, retries: 1, ..NONE }));
    holds(model(1, Budget { slow: 1, switched_off: 1, replays: 1, ..NONE }));
}

#[test]
fn deliveries_hold_through_a_failover_that_loses_commits() {
    holds(model(2, Budget { slow: 1, failovers: 1, ..NONE }));
}

#[test]
fn without_a_takeover_a_delivery_stays_pending() {
    let guards = Guards { takes_over: false, ..Guards::ALL };
    finds("no delivery stays pending for ever", without(guards, Budget { deaths: 1, ..NONE }));
}

#[test]
fn without_the_last_attempt_a_sixth_is_counted() {
    let guards = Guards { last_attempt: false, ..Guards::ALL };
    finds("at most five attempts are counted", without(guards, NONE));
}

#[test]
fn without_the_fence_a_late_result_counts_in_the_place_of_another() {
    let guards = Guards { fence: false, ..Guards::ALL };
    finds("each counted attempt has one result", without(guards, Budget { slow: 1, ..NONE }));
}

#[test]
fn without_the_lease_a_result_counts_twice() {
    let guards = Guards { leased: false, ..Guards::ALL };
    finds("no attempt has two results", without(guards, Budget { lost_answers: 1, ..NONE }));
}

#[test]
fn without_the_written_attempt_a_lost_claim_records_after_a_failover() {
    let guards = Guards { written: false, ..Guards::ALL };
    finds("a result belongs to a written attempt", without(guards, Budget { failovers: 1, ..NONE }));
}

#[test]
fn without_2xx_an_event_counts_as_delivered_that_has_not_arrived() {
    let guards = Guards { needs_2xx: false, ..Guards::ALL };
    finds("a delivered event has arrived", without(guards, NONE));
}

#[test]
fn without_writing_ahead_something_is_sent_that_no_row_shows() {
    let guards = Guards { writes_ahead: false, ..Guards::ALL };
    finds("an attempt is written before it is sent", without(guards, NONE));
}

#[test]
fn without_a_limit_an_unknown_outcome_is_repeated_for_ever() {
    let guards = Guards { limits_unknown: false, ..Guards::ALL };
    finds("an unknown outcome is repeated five times at most", without(guards, Budget { deaths: 6, ..NONE }));
}

#[test]
fn without_counting_lost_attempts_as_one_a_delivery_fails_early() {
    let guards = Guards { lost_is_one: false, ..Guards::ALL };
    finds("a delivery fails by five attempts or by its client", without(guards, Budget { deaths: 6, ..NONE }));
}
