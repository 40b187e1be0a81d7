//! Proofs that an auditor kept before an erasure. They must still hold for the log after it.

use ledger_events::OrderId;
use rewards_ledger::ledger::FIRST_SHARD;
use rewards_ledger::transparency::issue::order_receipt;
use rewards_ledger::transparency::proof::consistency;
use rewards_ledger::transparency::receipt::Receipt;
use sqlx::ConnectOptions;
use transparency_log::checkpoint::Opened;
use transparency_log::merkle::verify_consistency;
use transparency_log::quorum::Quorum;

use crate::support::node::Node;
use crate::support::program::{program, run};
use crate::support::tree::{self, Tree};

/// Files with a checkpoint, an order's receipt and an export.
#[derive(Debug)]
pub struct Proofs {
    directory: tempfile::TempDir,
    tree: Tree,
    order: i64,
    opened: Opened,
    receipt: Receipt,
}

impl Proofs {
    /// Signs the log as it is, and stores the proofs.
    pub async fn keep(node: &Node, order: i64) -> Proofs {
        let directory = tempfile::tempdir().unwrap();
        let tree = node.publish().await;
        let receipt = order_receipt(node.ledger.pool(), FIRST_SHARD, OrderId(order), &Quorum::default()).await.unwrap();
        std::fs::write(directory.path().join("log.pub"), tree::key().to_string()).unwrap();
        std::fs::write(directory.path().join("old.note"), tree.newest().await.note).unwrap();
        std::fs::write(directory.path().join("old.json"), serde_json::to_vec(&receipt).unwrap()).unwrap();
        let opened = tree.opened().await;
        let proofs = Proofs { directory, tree, order, opened, receipt };
        proofs.export(node, "old.ndjson").await;
        proofs
    }

    /// Checks that the stored proofs hold for the current log, which begins with the log that they were made for. New
    /// proofs must hold as well.
    pub async fn hold(&self, node: &Node) {
        self.tree.grow().await;
        let (old, new) = (&self.opened.checkpoint, self.tree.opened().await.checkpoint);
        assert!(new.size > old.size, "the erasure is a separate event");
        let path = consistency(node.ledger.pool(), FIRST_SHARD, old.size, new.size).await.unwrap();
        verify_consistency(old.size, &old.root, new.size, &new.root, &path).unwrap();
        self.holds(&["--receipt", "old.json"]).await;

        self.export(node, "new.ndjson").await;
        self.holds(&["--export", "new.ndjson", "--checkpoint", "old.note", "--earlier", "old.ndjson"]).await;
        let begins = std::fs::read(self.directory.path().join("old.ndjson")).unwrap();
        assert!(std::fs::read(self.directory.path().join("new.ndjson")).unwrap().starts_with(&begins), "byte for byte");

        let receipt = order_receipt(node.ledger.pool(), FIRST_SHARD, OrderId(self.order), &Quorum::default()).await.unwrap();
        std::fs::write(self.directory.path().join("new.json"), serde_json::to_vec(&receipt).unwrap()).unwrap();
        self.holds(&["--receipt", "new.json"]).await;
        let leaves = |receipt: &Receipt| receipt.events.iter().map(|proved| proved.leaf.clone()).collect::<Vec<_>>();
        assert!(leaves(&receipt).starts_with(&leaves(&self.receipt)), "the order's events are unchanged");
    }

    /// Runs `verify` with files and the public key, without a database.
    async fn holds(&self, arguments: &[&str]) {
        let mut command = program(self.directory.path());
        command.current_dir(self.directory.path()).args(["verify", "--key", "log.pub"]).args(arguments);
        let done = run(&mut command).await;
        let said = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(done.status.success(), "{arguments:?}: {said}");
    }

    async fn export(&self, node: &Node, name: &str) {
        let mut command = program(self.directory.path());
        command.current_dir(self.directory.path()).args(["events", "export", "--out", name]);
        let done = run(command.env("DATABASE_URL", node.options.hosts()[0].to_url_lossy().to_string())).await;
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}
