//! A long run of the faults in `tests/faults`: each part of a highly available installation is killed, paused and silenced
//! under load, many times.
//!
//! `cargo bench --bench faults -- 500` sets the number of faults. `LEDGER_FAULT_SEED` repeats a run.

#![allow(dead_code, unused_imports)] // it uses only some of the tests' support
#![allow(clippy::unwrap_used)]

#[path = "../tests/faults/mod.rs"]
mod faults;
#[path = "../tests/support/mod.rs"]
mod support;

/// Number of faults of a run, if none is given.
const FAULTS: usize = 200;

fn main() {
    let given = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    faults::run(given.unwrap_or(FAULTS));
}
