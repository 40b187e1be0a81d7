use std::path::PathBuf;

pub mod clock;
pub mod documented;
pub mod failover;
pub mod history;
pub mod ledger;
pub mod node;
pub mod postgres;
pub mod program;
pub mod proxy;
pub mod relay;
pub mod shop;
pub mod tree;
pub mod wait;

/// A file of the repository, where cargo runs the tests: clones may share what was built, with the path of another in it.
pub fn repository(path: &str) -> PathBuf {
    std::env::current_dir().unwrap().join(path)
}
