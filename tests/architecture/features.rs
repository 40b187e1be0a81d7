//! The features of every crate, which are the same for the program, the benchmarks and the tests.

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::repository;

/// Returns every crate with the features that it is built with.
fn features(edges: &str) -> BTreeSet<String> {
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--offline", "--locked", "--workspace", "--prefix", "none", "--format", "{p} [{f}]", "--edges", edges]);
    let told = tree.current_dir(repository("")).output().unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let text = String::from_utf8(told.stdout).unwrap();
    // A crate that was shown before is marked.
    text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

#[test]
fn the_program_and_its_tests_share_one_build_of_every_crate() {
    let (program, tests) = (features("normal,build"), features("normal,build,dev"));
    let again: Vec<_> = program.difference(&tests).collect();
    assert!(again.is_empty(), "the tests build these crates again, with other features: {again:#?}");
}
