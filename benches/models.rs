//! The models of the protocols, explored exhaustively within large bounds. `cargo test --test models` explores small ones.
//! Needs no database, and about as much memory as the states of one model at a time.
//!
//! ```text
//! cargo bench --bench models           # every model
//! cargo bench --bench models -- head   # one of: head, deliveries, signers
//! ```

#[path = "../src/delivery/model/mod.rs"]
mod delivery_model;
#[path = "../src/ledger/writer/model/mod.rs"]
mod head_model;
#[path = "../src/transparency/model/mod.rs"]
mod signer_model;
mod support;

use std::fmt::Debug;
use std::hash::Hash;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use delivery_model::{Budget as DeliveryBudget, DeliveryModel};
use head_model::{Faults, HeadModel, Kind, Request};
use signer_model::{Budget as SignerBudget, SignerModel};
use stateright::{Checker, Expectation, Model};
use support::arguments;
use support::report::Report;
use support::table::thousands;

/// Explorations of one model: the bound in words, and the row of the table.
type Rows = Vec<Vec<String>>;

fn main() -> Result<()> {
    let mut report = Report::start("models");
    let wanted = |name: &str| arguments().is_empty() || arguments().iter().any(|argument| argument == name);
    let mut rows = vec![];
    if wanted("head") {
        heads(&mut rows)?;
    }
    if wanted("deliveries") {
        deliveries(&mut rows)?;
    }
    if wanted("signers") {
        signers(&mut rows)?;
    }
    ensure!(!rows.is_empty(), "unknown argument: name some of head, deliveries, signers");
    let note = "Every state within the bound was visited, and no property failed. A state that is reached in several ways counts \
                once as a different one. The depth is the number of steps of the longest shortest path.";
    let header = ["model", "bound", "properties", "states reached", "different states", "depth", "took"];
    report.table("States checked", note, &header, &rows);
    report.end_without_database()
}

fn heads(rows: &mut Rows) -> Result<()> {
    let request = |node, kind, key| Request { node, kind, key };
    let (pay, fund, nothing) = (Kind::Pay, Kind::Fund, Kind::Nothing);
    let two = vec![request(0, pay, Some(0)), request(1, pay, Some(0)), request(1, pay, None), request(0, fund, None)];
    let three = vec![request(0, pay, Some(0)), request(1, pay, Some(0)), request(2, pay, None)];
    let keys =
        vec![request(0, nothing, Some(0)), request(1, nothing, Some(0)), request(0, nothing, Some(0)), request(1, pay, Some(1))];
    let all = Faults { lost_answers: 1, failovers: 1, restarts: 1, crashes: 1, deadlines: 1, full_queues: 0 };
    let model = |nodes, requests: &[Request], is_synchronous, faults| HeadModel {
        nodes,
        requests: requests.to_vec(),
        balance: 1,
        is_synchronous,
        faults,
        guards: head_model::Guards::ALL,
    };
    let lost = Faults { lost_answers: 1, failovers: 0, restarts: 0, crashes: 0, deadlines: 1, full_queues: 1 };
    let failing = Faults { failovers: 1, restarts: 1, deadlines: 0, full_queues: 0, ..lost };
    for (bound, model) in [
        ("2 nodes, 4 commands; a lost answer, a deadline, a full queue", model(2, &two, true, lost)),
        ("2 nodes, 4 commands of 2 keys; the same faults", model(2, &keys, true, lost)),
        ("2 nodes, 3 commands; one of each fault, synchronous", model(2, &two[..3], true, all)),
        ("2 nodes, 4 commands; a lost answer, a restart, a synchronous failover", model(2, &two, true, failing)),
        (
            "2 nodes, 4 commands; a lost answer, a crash, 2 failovers that lose commits",
            model(2, &two, false, Faults { failovers: 2, restarts: 0, crashes: 1, ..failing }),
        ),
        ("3 nodes, 3 commands; a lost answer, a synchronous failover", model(3, &three, true, Faults { restarts: 0, ..failing })),
    ] {
        rows.push(explore("head of the log", bound, model)?);
    }
    Ok(())
}

fn deliveries(rows: &mut Rows) -> Result<()> {
    let model = |workers, budget| DeliveryModel { workers, budget, guards: delivery_model::Guards::ALL };
    let faults = DeliveryBudget {
        deaths: 2,
        slow: 2,
        lost_answers: 1,
        given_back: 1,
        failovers: 0,
        switched_off: 0,
        retries: 0,
        replays: 0,
    };
    let few = DeliveryBudget { deaths: 1, slow: 1, lost_answers: 0, given_back: 0, ..faults };
    for (bound, model) in [
        ("2 workers; 2 deaths, 2 lost leases, a lost answer, one given back", model(2, faults)),
        ("3 workers; a death, a lost lease", model(3, few)),
        (
            "2 workers; a death, a lost lease, switched off, a retry, a replay",
            model(2, DeliveryBudget { switched_off: 1, retries: 1, replays: 1, ..few }),
        ),
        (
            "2 workers; a failover that loses commits, a death, a lost lease, a lost answer",
            model(2, DeliveryBudget { failovers: 1, lost_answers: 1, ..few }),
        ),
        ("a worker, each attempt of which may be lost: 40 deaths", model(1, DeliveryBudget { deaths: 40, ..few })),
    ] {
        rows.push(explore("deliveries of an event", bound, model)?);
    }
    Ok(())
}

fn signers(rows: &mut Rows) -> Result<()> {
    let model = |nodes, is_synchronous, budget| SignerModel { nodes, is_synchronous, budget, guards: signer_model::Guards::ALL };
    let budget = SignerBudget { events: 3, epochs: 1, failovers: 1, deaths: 1, lost_files: 0, incidents: 0 };
    let two = SignerBudget { events: 2, epochs: 0, failovers: 2, deaths: 0, ..budget };
    for (bound, model) in [
        ("2 nodes, 3 events, an epoch; a failover that loses commits, a death", model(2, false, budget)),
        ("3 nodes, 2 events; a failover that loses commits", model(3, false, SignerBudget { failovers: 1, ..two })),
        (
            "2 nodes, 2 events; 2 failovers, an incident, a lost state file",
            model(2, false, SignerBudget { lost_files: 1, incidents: 1, ..two }),
        ),
        (
            "2 nodes, 3 events, an epoch; 2 synchronous failovers, a death",
            model(2, true, SignerBudget { failovers: 2, ..budget }),
        ),
    ] {
        rows.push(explore("signers of the log", bound, model)?);
    }
    Ok(())
}

/// Explores every state of a model with all processors. Fails if a property does not hold.
fn explore<M>(name: &str, bound: &str, model: M) -> Result<Vec<String>>
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let properties = model.properties().iter().filter(|property| property.expectation != Expectation::Sometimes).count();
    let started = Instant::now();
    let threads = available_parallelism()?.get();
    let checker = model.checker().threads(threads).spawn_bfs().join();
    let took = started.elapsed();
    checker.assert_properties();
    println!("{name}, {bound}: {} states, {took:?}", checker.unique_state_count());
    Ok(vec![
        name.to_owned(),
        bound.to_owned(),
        properties.to_string(),
        thousands(checker.state_count() as f64),
        thousands(checker.unique_state_count() as f64),
        checker.max_depth().to_string(),
        seconds(took),
    ])
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}
