//! Models of the protocols, explored exhaustively within small bounds. A test of each guard takes it out of the model, and
//! expects the harm to be found. `cargo bench --bench models` explores larger bounds. Neither needs a database.
#![allow(clippy::unwrap_used)]

mod deliveries;
#[path = "../../src/delivery/model/mod.rs"]
mod delivery_model;
mod head;
#[path = "../../src/ledger/writer/model/mod.rs"]
mod head_model;
#[path = "../../src/transparency/model/mod.rs"]
mod signer_model;
mod signers;

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, HasDiscoveries, Model};

/// Explores every state, and panics with a path if one of them lacks a property.
fn holds<M>(model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let checker = model.checker().spawn_bfs().join();
    if std::env::var_os("MODELS_VERBOSE").is_some() {
        eprintln!("{} states, {} different, depth {}", checker.state_count(), checker.unique_state_count(), checker.max_depth());
    }
    checker.assert_properties();
}

/// Explores until the checker has found that a property does not hold. Panics if it finds nothing.
fn finds<M>(property: &'static str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    _ = model.property(property);
    let checker = model.checker().finish_when(HasDiscoveries::AnyOf([property].into())).spawn_bfs().join();
    if std::env::var_os("MODELS_VERBOSE").is_some() {
        eprintln!("{} states, {} different, depth {}", checker.state_count(), checker.unique_state_count(), checker.max_depth());
        eprintln!("{property}: {:?}", checker.discovery(property).map(|path| path.into_actions()));
    }
    checker.assert_any_discovery(property);
}
