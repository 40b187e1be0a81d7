//! An independent implementation reads the published log: Go's `golang.org/x/mod/sumdb`, which verifies the checksum
//! database of all Go modules.

use std::path::Path;
use std::process::Output;

use rewards_ledger::access::Role;
use serde_json::json;
use tokio::process::Command;

use crate::support::node::Node;
use crate::support::{repository, tree};

/// GOPATH of Debian's package golang-golang-x-mod-dev.
const GOPATH: &str = "/usr/share/gocode";

/// Compiles the reader. Returns `None` if Go or the package is missing.
async fn reader(directory: &Path) -> Option<Command> {
    let is_there = Path::new(GOPATH).join("src/golang.org/x/mod/sumdb/tlog").exists();
    let version = Command::new("go").arg("version").output().await;
    if !is_there || version.is_err() {
        assert!(std::env::var_os("CI").is_none(), "Go and golang-golang-x-mod-dev are needed");
        eprintln!("SKIPPED: the log was not read by Go's sumdb, for there is no go or no golang-golang-x-mod-dev here");
        return None;
    }
    let (source, binary) = (repository("tests/transparency/tlog/main.go"), directory.join("tlog"));
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&binary).arg(source);
    build.env("GO111MODULE", "off").env("GOPATH", GOPATH).env("GOCACHE", directory.join("cache")).env("HOME", directory);
    let built = build.output().await.unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(Command::new(binary))
}

#[tokio::test(flavor = "multi_thread")]
async fn gos_checksum_database_verifier_reads_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let Some(reader) = reader(directory.path()).await else { return };
    let node = Node::start().await;
    let setup = node.setup().await;
    let wallet = format!("/wallets/{}/adjust", setup.wallet_id);
    let credit = json!({"type": "CREDIT", "amount": "1.00", "reason": "r"});
    for _ in 0..30 {
        futures::future::join_all((0..10).map(|_| node.operator("POST", &wallet, credit.clone()))).await;
    }
    let tree = node.publish().await;
    node.operator("POST", &wallet, credit).await.data(201);
    let size = tree.grow().await;
    assert!(size > 300, "a full tile and more");

    let token = node.token(Role::Auditor).await;
    let prefix = format!("{}/log/1", node.url());
    let read = async |key: String| -> Output {
        let mut command = Command::new(reader.as_std().get_program());
        command.args([prefix.as_str(), &key, token.expose()]);
        command.output().await.unwrap()
    };
    let done = read(tree::key().to_string()).await;
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(String::from_utf8(done.stdout).unwrap().trim(), size.to_string());

    // The reader really checks: it refuses another key, and a changed tile.
    let stranger = tree::key_of("bmV3IGtleSBuZXcga2V5IG5ldyBrZXkgbmV3IGtleS4=");
    let refused = read(stranger.to_string()).await;
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("no verifiable signatures"));
    let tamper = "ALTER TABLE log_tiles DISABLE TRIGGER ALL;
        UPDATE log_tiles SET hashes = set_byte(hashes, 100, (get_byte(hashes, 100) + 1) % 256)";
    sqlx::raw_sql(tamper).execute(&mut node.options.connect().await.unwrap()).await.unwrap();
    let refused = read(tree::key().to_string()).await;
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("by its tiles"), "{refused:?}");
}
