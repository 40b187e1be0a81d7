//! `log inclusion` and `log consistency`: a valid proof is not enough, because its tree must be the signed one.

use serde_json::Value;

use super::mirror::{Files, STRANGER, orders, serve};
use crate::support::node::Node;
use crate::support::program::{program, run};
use crate::support::tree;

/// Requests a proof from the service at this address. Returns the message if the command refuses.
async fn log(url: &str, arguments: &[&str]) -> Result<Value, String> {
    let directory = tempfile::tempdir().unwrap();
    let mut command = program(directory.path());
    let done = run(command.arg("log").args(arguments).arg("--json").env("LEDGER_URL", url)).await;
    match done.status.success() {
        true => Ok(serde_json::from_slice(&done.stdout).unwrap()),
        false => Err(String::from_utf8(done.stderr).unwrap()),
    }
}

const NOT_SIGNED: &str = "that differs from the signed checkpoint";

#[tokio::test(flavor = "multi_thread")]
async fn a_proof_of_another_history_contradicts_the_signed_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let kept = |name: &str, note: &str| {
        std::fs::write(directory.path().join(name), note).unwrap();
        directory.path().join(name).to_str().unwrap().to_owned()
    };
    let (node, key) = (Node::start().await, tree::key().to_string());
    orders(&node, 3).await;
    let tree = node.publish().await;
    let earlier = tree.newest().await;
    orders(&node, 2).await;
    tree.grow().await;
    let later = tree.newest().await;
    let (old, new) = (kept("old.note", &earlier.note), kept("new.note", &later.note));
    let (from, to) = (earlier.size.to_string(), later.size.to_string());
    let inclusion = ["inclusion", "3", "--key", &key];
    let of_old = [&inclusion[..], &["--checkpoint", &old]].concat();
    let of_new = [&inclusion[..], &["--checkpoint", &new]].concat();
    let consistency = ["consistency", &from, "--key", &key];
    let from_old = ["consistency", "--from-checkpoint", &old, "--key", &key];
    let to_new = [&consistency[..], &["--checkpoint", &new]].concat();
    let both = [&from_old[..], &["--checkpoint", &new]].concat();

    // The original log, for which the earlier checkpoint remains valid.
    for (arguments, size) in [(&inclusion[..], later.size), (&of_old[..], earlier.size), (&of_new[..], later.size)] {
        let told = log(node.url(), arguments).await.unwrap();
        assert_eq!((told["position"].as_u64(), told["size"].as_u64()), (Some(3), Some(size)), "{told}");
    }
    for arguments in [&consistency[..], &from_old, &to_new, &both] {
        let told = log(node.url(), arguments).await.unwrap();
        assert_eq!((told["from"].as_u64(), told["to"].as_u64()), (Some(earlier.size), Some(later.size)), "{told}");
    }

    // A rewritten history signed by the same key. It is consistent in itself, but differs from what was signed
    // before.
    let rewritten = Node::start().await;
    orders(&rewritten, 3).await;
    orders(&rewritten, 2).await;
    assert_eq!(rewritten.publish().await.newest().await.size, later.size);
    for arguments in [&["inclusion", "3"][..], &["consistency", &from, &to], &inclusion, &consistency] {
        log(rewritten.url(), arguments).await.unwrap();
    }
    for arguments in [&of_old[..], &of_new, &from_old, &to_new, &both] {
        let refused = log(rewritten.url(), arguments).await.unwrap_err();
        assert!(refused.contains(NOT_SIGNED), "{arguments:?}: {refused}");
    }

    // A server without the key that serves signed checkpoints together with forged proofs.
    let answer = async |of: &Node, path: &str| {
        let answer = reqwest::get(format!("{}/log/1/{path}", of.url())).await.unwrap().error_for_status().unwrap();
        answer.bytes().await.unwrap().to_vec()
    };
    let proofs = [
        ("proof/inclusion".to_owned(), answer(&rewritten, &format!("proof/inclusion?position=3&size={to}")).await),
        ("proof/consistency".to_owned(), answer(&rewritten, &format!("proof/consistency?from={from}&to={to}")).await),
    ];
    let signed = |note: &str| Files::from([("checkpoint".to_owned(), note.as_bytes().to_vec())]);
    let lying = serve(signed(&later.note).into_iter().chain(proofs.clone()).collect()).await;
    for arguments in [&["inclusion", "3"][..], &["consistency", &from]] {
        log(&lying, arguments).await.unwrap();
    }
    for arguments in [&inclusion[..], &consistency, &from_old, &both] {
        let refused = log(&lying, arguments).await.unwrap_err();
        assert!(refused.contains(NOT_SIGNED), "{arguments:?}: {refused}");
    }
    // The answer to another question is not accepted either, with or without a key.
    let questions =
        [&["inclusion", "4"][..], &["inclusion", "3", "--size", &from], &["consistency", "2"], &["consistency", &from, "6"]];
    for arguments in questions {
        let refused = log(&lying, arguments).await.unwrap_err();
        assert!(refused.contains("a different proof than requested"), "{arguments:?}: {refused}");
    }
    let refused = log(&lying, &of_old).await.unwrap_err();
    assert!(refused.contains("a different proof than requested"), "{refused}");
    // A true statement with a broken proof.
    let mut broken = proofs.clone();
    for (place, bytes) in &mut broken {
        let mut body: Value = serde_json::from_slice(bytes).unwrap();
        let proof = body["data"]["proof"].as_array_mut().unwrap();
        assert!(proof.pop().is_some(), "{place}");
        *bytes = body.to_string().into_bytes();
    }
    let broken = serve(signed(&later.note).into_iter().chain(broken).collect()).await;
    for arguments in [&["inclusion", "3"][..], &["consistency", &from]] {
        log(&broken, arguments).await.unwrap_err();
    }

    // Another key, and witnesses that have not cosigned, for served and for kept checkpoints.
    let (stranger, witness) = (tree::key_of(STRANGER).to_string(), tree::witness(1).to_string());
    for what in [&["inclusion", "3"][..], &["consistency", &from], &["consistency", "--from-checkpoint", &old]] {
        let refused = log(node.url(), &[what, &["--key", &stranger]].concat()).await.unwrap_err();
        assert!(refused.contains("no trusted key has signed the note"), "{what:?}: {refused}");
        let with_quorum = [what, &["--key", &key, "--witness", &witness, "--quorum", "1"]].concat();
        let refused = log(node.url(), &with_quorum).await.unwrap_err();
        assert!(refused.contains("No checkpoint has been cosigned by 1 of the witnesses"), "{what:?}: {refused}");
        let refused = log(node.url(), &[&with_quorum[..], &["--checkpoint", &new]].concat()).await.unwrap_err();
        assert!(refused.contains("trusted witnesses; it has 0"), "{what:?}: {refused}");
    }
}

/// Arguments that would have no effect are refused.
#[tokio::test]
async fn a_checkpoint_argument_needs_a_key_and_excludes_a_size() {
    let (directory, key) = (tempfile::tempdir().unwrap(), tree::key().to_string());
    for arguments in [
        &["inclusion", "3", "--checkpoint", "old.note"][..],
        &["inclusion", "3", "--size", "4", "--key", &key],
        &["inclusion", "3", "--quorum", "1"],
        &["consistency"],
        &["consistency", "2", "--checkpoint", "old.note"],
        &["consistency", "--from-checkpoint", "old.note"],
        &["consistency", "2", "--from-checkpoint", "old.note", "--key", &key],
        &["consistency", "2", "3", "--key", &key],
    ] {
        let mut command = program(directory.path());
        let done = run(command.arg("log").args(arguments)).await;
        assert_eq!(done.status.code(), Some(2), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
}
