use std::path::PathBuf;

pub mod browser;
pub mod clock;
pub mod collector;
pub mod documented;
pub mod failover;
pub mod history;
pub mod ledger;
pub mod lines;
pub mod mail;
#[path = "../../crates/webhook-client/tests/support/misbehave.rs"]
pub mod misbehave;
pub mod node;
pub mod open_id;
pub mod postgres;
pub mod program;
pub mod proxy;
pub mod random;
pub mod relay;
pub mod replicas;
pub mod shop;
pub mod statements;
pub mod supplier;
pub mod tampering;
pub mod tree;
pub mod wait;
pub mod workbook;

/// Returns the path of a file in the repository where cargo runs the tests. A compiled-in path would not do, because
/// clones may share build outputs.
pub fn repository(path: &str) -> PathBuf {
    std::env::current_dir().unwrap().join(path)
}
