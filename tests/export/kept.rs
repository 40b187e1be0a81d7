//! A ledger that was signed twice, the files that an auditor kept of it, and `verify` with only these files.

use std::path::{Path, PathBuf};

use rewards_ledger::export::tiles;
use serde_json::Value;
use transparency_log::quorum::Quorum;

use super::succeeds;
use crate::support::ledger::SHARD;
use crate::support::program::{program, run};
use crate::support::shop::Shop;
use crate::support::tree::{Tree, key};

/// A ledger that was signed twice, and the files that an auditor kept of it.
pub struct Kept {
    pub directory: tempfile::TempDir,
    pub shop: Shop,
    pub tree: Tree,
    /// Sizes of the two checkpoints.
    pub sizes: [u64; 2],
}

pub async fn kept() -> Kept {
    let (directory, shop) = (tempfile::tempdir().unwrap(), Shop::open().await);
    let tree = Tree::of(&shop.ledger, &shop.options, &shop.metrics);
    let mut sizes = [0; 2];
    for (size, name) in sizes.iter_mut().zip(["first.note", "second.note"]) {
        shop.orders(shop.customer.account_id, 20).await;
        *size = tree.grow().await;
        std::fs::write(directory.path().join(name), tree.newest().await.note).unwrap();
        if name == "first.note" {
            export(&shop, directory.path(), "first.ndjson").await;
        }
    }
    std::fs::write(directory.path().join("log.pub"), format!("# the log's key\n{}\n", key())).unwrap();
    let kept = Kept { directory, shop, tree, sizes };
    kept.export("kept.ndjson").await;
    tiles::copy(kept.shop.pool(), SHARD, &kept.path("tiles"), &Quorum::default(), |_| {}).await.unwrap();
    kept
}

pub async fn export(shop: &Shop, directory: &Path, name: &str) {
    succeeds(directory, &shop.options, &["events", "export", "--out", directory.join(name).to_str().unwrap()]).await;
}

impl Kept {
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub async fn export(&self, name: &str) {
        export(&self.shop, self.directory.path(), name).await;
    }

    /// Runs `verify` without a database or settings. Returns its report, and true if everything is proven.
    pub async fn verify(&self, arguments: &[&str]) -> (bool, Value) {
        let mut command = program(self.directory.path());
        command.current_dir(self.directory.path()).args(["verify", "--json", "--key", "log.pub"]).args(arguments);
        let output = run(&mut command).await;
        let text = String::from_utf8(output.stdout).unwrap();
        let report = serde_json::from_str(&text);
        let report = report.unwrap_or_else(|_| panic!("{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr)));
        assert!(matches!(output.status.code(), Some(0 | 1)));
        (output.status.success(), report)
    }

    /// Returns the human-readable output of a failing `verify`.
    pub async fn said(&self, arguments: &[&str]) -> String {
        let mut command = program(self.directory.path());
        command.current_dir(self.directory.path()).args(["verify", "--key", "log.pub"]).args(arguments);
        let output = run(&mut command).await;
        // Exit status 1 if something differs, 3 if the input could not be checked.
        let expected = if output.stdout.is_empty() { 3 } else { 1 };
        assert_eq!(output.status.code(), Some(expected), "{arguments:?}");
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr)
    }
}

/// Both checkpoints as they were published.
const NOTES: [&str; 4] = ["--checkpoint", "first.note", "--checkpoint", "second.note"];

/// Returns the arguments that verify an export against both checkpoints, with additional arguments.
pub fn with<'a>(export: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    ["--export", export].into_iter().chain(NOTES).chain(more.iter().copied()).collect()
}
