//! Kept histories: recorded ones, ones that show a fault, and good ones that are altered so that they show one.

use super::history::{Operation, Refusal, Request, Response, Status, kept, read};
use super::wallet::judge;

/// A history of two nodes, recorded by a run.
const RECORDED: &str = "tests/histories/kept/two_nodes.jsonl";

fn recorded() -> Vec<Operation> {
    read(&crate::support::repository(RECORDED)).1
}

#[test]
fn every_kept_history_is_still_judged_as_recorded() {
    let mut verdicts = vec![];
    for path in kept() {
        let (heading, operations) = read(&path);
        let judged = judge(&operations);
        assert_eq!(judged.is_ok(), heading.is_linearizable, "{}: {}\n{judged:?}", path.display(), heading.about);
        verdicts.push(heading.is_linearizable);
    }
    assert!(verdicts.contains(&true) && verdicts.contains(&false), "{verdicts:?}");
}

/// Alters one operation of the recorded history after the other. Each time it must be refused then.
fn refused(what: &str, alter: impl Fn(&mut Operation) -> bool) {
    let operations = recorded();
    let mut tried = 0;
    for index in 0..operations.len() {
        let mut altered = operations.clone();
        if alter(&mut altered[index]) {
            tried += 1;
            assert!(judge(&altered).is_err(), "{what}, and it is not noticed: {:?}", altered[index]);
        }
    }
    assert!(tried > 0, "{what}: nothing to alter");
}

/// Does the same to the reads at the end, when nothing else is in flight.
fn refused_at_the_end(what: &str, alter: impl Fn(&Operation, &mut Response) -> bool) {
    let updates = recorded().into_iter().filter(|operation| !operation.request.is_read());
    let last = updates.map(|update| update.answered.map_or(update.invoked, |(answered, _)| answered)).max().unwrap();
    refused(what, |operation| {
        let original = operation.clone();
        original.invoked > last && operation.answered.as_mut().is_some_and(|(_, response)| alter(&original, response))
    });
}

#[test]
fn a_lost_order_is_noticed() {
    for lost in 0..4 {
        refused_at_the_end("an order is lost", |_, response| match response {
            Response::Orders(orders) if orders.len() > lost => {
                orders.remove(lost);
                true
            }
            _ => false,
        });
    }
}

#[test]
fn a_doubled_order_is_noticed() {
    refused("an order is listed twice", |operation| match &mut operation.answered {
        Some((_, Response::Orders(orders))) if !orders.is_empty() => {
            let mut other = orders[0].clone();
            other.id += 1_000_000;
            orders.push(other);
            true
        }
        _ => false,
    });
    refused("a repeated request gets another order", |operation| match &mut operation.answered {
        Some((_, Response::Placed { is_replay: true, order, .. })) => {
            order.id += 1_000_000;
            true
        }
        _ => false,
    });
}

#[test]
fn a_wrong_balance_is_noticed() {
    // All amounts are whole units, so no other order of the operations explains a cent.
    refused("a cent is lost", |operation| match &mut operation.answered {
        Some((_, Response::Balance(balance) | Response::Funded { balance, .. })) => {
            *balance -= 1;
            true
        }
        _ => false,
    });
    refused_at_the_end("an order was debited twice", |_, response| match response {
        Response::Balance(balance) => {
            *balance -= 1_000;
            true
        }
        _ => false,
    });
}

#[test]
fn a_stale_read_is_noticed() {
    let operations = recorded();
    refused_at_the_end("the last balance is an earlier one", |read, response| match response {
        Response::Balance(balance) => {
            let of_wallet = operations.iter().rev().filter(|earlier| earlier.wallet == read.wallet);
            let mut balances = of_wallet.filter_map(|earlier| match &earlier.answered {
                Some((_, Response::Balance(balance))) => Some(*balance),
                _ => None,
            });
            *balance = balances.find(|earlier| earlier != balance).expect("the balance changed");
            true
        }
        _ => false,
    });
    refused_at_the_end("the last list shows a cancelled order as open", |_, response| match response {
        Response::Orders(orders) => {
            let cancelled = orders.iter_mut().find(|order| order.status == Status::Cancelled).expect("an order is cancelled");
            (cancelled.status, cancelled.refunded) = (Status::Pending, 0);
            true
        }
        _ => false,
    });
}

#[test]
fn an_untrue_refusal_is_noticed() {
    let operations = recorded();
    // An order that was sent only once, so that no other request explains it.
    let is_only = |wallet: usize, number: u32| {
        let of_number = |operation: &&Operation| match &operation.request {
            Request::Place(place) => (operation.wallet, place.number) == (wallet, number),
            _ => false,
        };
        operations.iter().filter(of_number).count() == 1
    };
    refused("a placed order was answered with 503", |operation| match (&operation.request, &mut operation.answered) {
        (Request::Place(place), Some((_, response @ Response::Placed { .. }))) if is_only(operation.wallet, place.number) => {
            *response = Response::Refused(Refusal::Unavailable);
            true
        }
        _ => false,
    });
    refused("an acknowledged order is not found", |operation| match &mut operation.answered {
        Some((_, response @ Response::Order(_))) => {
            *response = Response::Refused(Refusal::NotFound);
            true
        }
        _ => false,
    });
}
