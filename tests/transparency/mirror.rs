//! `log mirror` with logs that are not what they should be: the copy stays unchanged.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use poem::http::StatusCode;
use poem::listener::{Acceptor, Listener, TcpListener};
use poem::web::Data;
use poem::{EndpointExt, Request, Server, handler};
use rewards_ledger::access::Role;
use rewards_ledger::transparency::signer::Signer;
use serde_json::json;
use transparency_log::checkpoint::Checkpoint;
use transparency_log::note::Note;

use crate::support::ledger::LOG_KEY;
use crate::support::node::Node;
use crate::support::program::{OPERATOR_TOKEN, program, run};
use crate::support::tree;

pub(super) const STRANGER: &str = "bmV3IGtleSBuZXcga2V5IG5ldyBrZXkgbmV3IGtleS4=";

/// Every file below a directory, by its relative path.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

fn files(directory: &Path) -> Files {
    let mut files = Files::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).into_iter().flatten() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false => {
                    let place = path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
                    files.insert(place, std::fs::read(&path).unwrap());
                }
            }
        }
    }
    files
}

/// Mirrors the log at this address. Returns the message if the command refuses.
async fn mirror(url: &str, token: &str, copy: &Path, arguments: &[&str]) -> Result<(), String> {
    let mut command = program(copy.parent().unwrap());
    command.args(["log", "mirror"]).arg(copy).args(arguments);
    let done = run(command.env("LEDGER_URL", url).env("LEDGER_OPERATOR_TOKEN", token)).await;
    if done.status.success() { Ok(()) } else { Err(String::from_utf8(done.stderr).unwrap()) }
}

pub(super) async fn orders(node: &Node, count: usize) {
    for from in (0..count).step_by(50) {
        let setup = node.setup().await;
        let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
        for _ in from..count.min(from + 50) {
            node.client(&setup.client, "POST", "/orders", order.clone()).await.data(201);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_with_another_history_is_refused_and_the_copy_stays_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy");
    let node = Node::start().await;
    orders(&node, 3).await;
    let tree = node.publish().await;
    mirror(node.url(), "", &copy, &["--key", &tree::key().to_string()]).await.unwrap();
    let before = files(&copy);
    assert!(before.len() == 3 && before.contains_key("checkpoint"), "{:?}", before.keys());

    // Another log under the same name and key, like a rewritten one: equally long, longer, and with further tiles.
    let rewritten = Node::start().await;
    orders(&rewritten, 3).await;
    for more in [0, 1, 130] {
        if more > 0 {
            orders(&rewritten, more).await;
        }
        let size = rewritten.publish().await.newest().await.size;
        assert!(more > 0 || size == tree.newest().await.size);
        let refused = mirror(rewritten.url(), "", &copy, &[]).await.unwrap_err();
        assert!(refused.contains(&format!("is not consistent with the log's tree of {size}")), "{refused}");
        assert!(files(&copy) == before, "of {size} events");
    }
    // A shorter log, and one signed by another key.
    let short = Node::start().await;
    orders(&short, 1).await;
    short.publish().await;
    let refused = mirror(short.url(), "", &copy, &[]).await.unwrap_err();
    assert!(refused.contains("but the log's newest one has"), "{refused}");
    orders(&node, 1).await;
    tree.grow().await;
    let refused = mirror(node.url(), "", &copy, &["--key", &tree::key_of(STRANGER).to_string()]).await.unwrap_err();
    assert!(refused.contains("no trusted key has signed the note"), "{refused}");
    let witness = tree::witness(1).to_string();
    let alone = ["--witness", &witness, "--quorum", "1"];
    let refused = mirror(node.url(), "", &copy, &alone).await.unwrap_err();
    assert!(refused.contains("the log has no such checkpoint"), "{refused}");
    assert!(files(&copy) == before);

    // The original log, now longer, is continued.
    mirror(node.url(), "", &copy, &["--key", &tree::key().to_string()]).await.unwrap();
    assert!(before.iter().all(|(place, bytes)| place == "checkpoint" || files(&copy)[place] == *bytes));
    assert_eq!(files(&copy).len(), before.len() + 2);
}

/// Entries are for auditors. Other callers get the tiles and a message.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_who_is_no_auditor_is_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy");
    let node = Node::start().await;
    orders(&node, 1).await;
    node.publish().await;
    let finance = node.token(Role::Finance).await;
    let refused = mirror(node.url(), finance.expose(), &copy, &["--entries"]).await.unwrap_err();
    assert!(refused.contains("403 E_FORBIDDEN") && refused.contains("tile/entries/000.p/"), "{refused}");
    assert!(!files(&copy).keys().any(|place| place == "checkpoint" || place.contains("entries")));
    let auditor = node.token(Role::Auditor).await;
    mirror(node.url(), auditor.expose(), &copy, &["--entries"]).await.unwrap();
}

#[handler]
fn file(Data(files): Data<&Arc<Files>>, request: &Request) -> Result<Vec<u8>, StatusCode> {
    let place = request.uri().path().trim_start_matches("/log/1/");
    files.get(place).cloned().ok_or(StatusCode::NOT_FOUND)
}

/// Serves these files as a log, and returns its address.
pub(super) async fn serve(files: Files) -> String {
    let acceptor = TcpListener::bind("127.0.0.1:0").into_acceptor().await.unwrap();
    let url = format!("http://{}", acceptor.local_addr()[0].as_socket_addr().unwrap());
    tokio::spawn(Server::new_with_acceptor(acceptor).run(file.data(Arc::new(files))));
    url
}

/// A server returns data that is not in the tree. None of it enters the copy, so that the original log can be copied
/// there afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn data_outside_the_tree_does_not_enter_the_copy() {
    let directory = tempfile::tempdir().unwrap();
    let sound = directory.path().join("sound");
    let node = Node::start().await;
    orders(&node, 140).await;
    let size = node.publish().await.newest().await.size;
    let (token, key) = (node.token(Role::Auditor).await, tree::key().to_string());
    let arguments = ["--entries", "--key", &key];
    mirror(node.url(), token.expose(), &sound, &arguments).await.unwrap();
    let sound = files(&sound);
    let edge = size % 256;
    assert!(size > 256 && edge > 0);
    for (place, problem) in [
        ("tile/0/000".to_owned(), "tile/0/000 is not in the tree of the checkpoint"),
        (format!("tile/0/001.p/{edge}"), "the tiles do not hash to the root of the checkpoint"),
        ("tile/1/000.p/1".to_owned(), "the tiles do not hash to the root of the checkpoint"),
        ("tile/entries/000".to_owned(), "tile/entries/000 has an event that is not in the tree of the checkpoint"),
    ] {
        let mut changed = sound.clone();
        *changed.get_mut(&place).unwrap().last_mut().unwrap() ^= 1;
        let copy = directory.path().join(place.replace('/', "-"));
        let wrong = changed[&place].clone();
        let refused = mirror(&serve(changed).await, OPERATOR_TOKEN, &copy, &arguments).await.unwrap_err();
        assert!(refused.contains(problem), "{place}: {refused}");
        let copied = files(&copy);
        assert!(copied.iter().all(|(place, bytes)| sound[place] == *bytes), "{place}: {:?}", copied.keys());
        assert!(!copied.contains_key(&place) && !copied.contains_key("checkpoint"), "{:?}", copied.keys());
        mirror(node.url(), token.expose(), &copy, &arguments).await.unwrap();
        assert!(files(&copy) == sound, "{place}");

        // Existing files are verified as well, and fetched again once they are deleted.
        std::fs::write(copy.join(&place), wrong).unwrap();
        let refused = mirror(node.url(), token.expose(), &copy, &arguments).await.unwrap_err();
        assert!(refused.contains(problem), "{place}: {refused}");
        std::fs::remove_file(copy.join(&place)).unwrap();
        mirror(node.url(), token.expose(), &copy, &arguments).await.unwrap();
        assert!(files(&copy) == sound, "{place}");
    }
    // A checkpoint of a tree that does not exist, and one that another key has signed.
    let note = String::from_utf8(sound["checkpoint"].clone()).unwrap();
    let told = Checkpoint::parse(Note::parse(&note).unwrap().text()).unwrap();
    for (secret, root, problem) in [
        (LOG_KEY, [7; 32], "the tiles do not hash to the root of the checkpoint"),
        (STRANGER, told.root, "no trusted key has signed the note"),
    ] {
        let told = Checkpoint { root, ..told.clone() };
        let signed = Signer::from_text(secret).unwrap().sign(&told).unwrap().to_string();
        let changed = Files::from_iter(sound.clone().into_iter().chain([("checkpoint".to_owned(), signed.into_bytes())]));
        let copy = directory.path().join("none");
        let refused = mirror(&serve(changed).await, OPERATOR_TOKEN, &copy, &arguments).await.unwrap_err();
        assert!(refused.contains(problem) && files(&copy).is_empty(), "{refused}");
    }
}
