//! Cosignatures: the witnesses that are accepted, and the cosigned checkpoints that are served.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::Utc;
use poem::http::StatusCode;
use poem::listener::{Acceptor, Listener, TcpListener};
use poem::web::Data;
use poem::{EndpointExt, Route, handler, post};
use rewards_ledger::access::Role;
use rewards_ledger::transparency::receipt::Receipt;
use rewards_ledger::transparency::store;
use rewards_ledger::transparency::witness::WitnessCaller;
use serde_json::{Value, json};
use transparency_log::checkpoint::{Checkpoint, Trust};
use transparency_log::merkle::{Hash, empty_root, verify_consistency};
use transparency_log::note::{Algorithm, Note, Signature, VerifierKey};
use transparency_log::quorum::Quorum;

use crate::support::ledger::SHARD;
use crate::support::node::{Node, TestResponse};
use crate::support::program::{program, run};
use crate::support::tree::{self, witness_name, witness_secret};

async fn send(node: &Node, note: &str) -> TestResponse {
    node.send(node.request("POST", "/log/1/cosignatures").header("Content-Type", "text/plain").body(note.to_owned())).await
}

/// Makes the cosignature of a witness over a checkpoint's text, dated this many seconds from now.
fn cosignature(text: &str, witness: u8, seconds: i64) -> Signature {
    let time = u64::try_from(Utc::now().timestamp() + seconds).unwrap();
    witness_secret(witness).cosign(&witness_name(witness), text, time).unwrap()
}

fn cosigned(served: &str, signatures: Vec<Signature>) -> String {
    let note = Note::parse(served).unwrap();
    let signatures = [note.signatures.clone(), signatures].concat();
    Note::new(note.text().to_owned(), signatures).unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn cosignatures_of_configured_witnesses_are_served() {
    let node = Node::start().await;
    node.setup().await;
    let tree = node.publish().await;
    let served = || async { node.anyone("GET", "/log/1/checkpoint", Value::Null).await.text };
    let plain = served().await;
    let text = Note::parse(&plain).unwrap().text().to_owned();
    let trust = |quorum| Trust { keys: vec![tree::key()], witnesses: vec![tree::witness(1), tree::witness(2)], quorum };
    assert!(trust(1).open(&plain).is_err());

    // With an unknown witness's cosignature, which is dropped, and without the log's own signature, which the service
    // has.
    let first = cosignature(&text, 1, 0);
    let accepted = send(&node, &cosigned(&plain, vec![first.clone(), cosignature(&text, 9, 0)])).await.data(200);
    assert_eq!(accepted, json!({"witnesses": ["witness1.example.com"]}));
    let once = served().await;
    assert_eq!(once, format!("{plain}{first}\n"));
    assert_eq!(trust(1).open(&once).unwrap().cosigned_by.len(), 1);
    assert!(trust(2).open(&once).is_err());
    send(&node, &once).await.data(200);
    assert_eq!(served().await, once, "repeating the request changes nothing");
    let alone = Note::new(text.clone(), vec![cosignature(&text, 2, 0)]).unwrap().to_string();
    send(&node, &alone).await.data(200);
    assert_eq!(trust(2).open(&served().await).unwrap().cosigned_by.len(), 2);

    // A newer cosignature replaces an older one, and never the reverse.
    let newer = cosignature(&text, 1, 60);
    send(&node, &cosigned(&plain, vec![newer.clone()])).await.data(200);
    send(&node, &cosigned(&plain, vec![first.clone()])).await.data(200);
    let now = served().await;
    assert!(now.contains(&newer.to_string()) && !now.contains(&first.to_string()), "{now}");

    // The next checkpoint has no cosignature yet, and a late cosignature of an earlier one is still accepted.
    node.operator("POST", "/accounts", json!({"name": "More"})).await.data(201);
    tree.grow().await;
    let next = served().await;
    assert_eq!(Note::parse(&next).unwrap().signatures.len(), 1);
    send(&node, &cosigned(&plain, vec![cosignature(&text, 2, 120)])).await.data(200);
    assert_eq!(served().await, next);

    // Operators see both, the newest first.
    let listed = node.operator("GET", "/checkpoints?limit=1", Value::Null).await.data(200);
    let (newest, before) = (&listed["checkpoints"][0], &listed["next_before"]);
    assert_eq!((&newest["size"], &newest["cosignatures"]), (&json!(node.head().await), &json!([])));
    assert_eq!(before, &newest["size"]);
    let listed = node.operator("GET", &format!("/checkpoints?before={before}"), Value::Null).await.data(200);
    let older = &listed["checkpoints"][0];
    let (origin, rest) = text.split_once('\n').unwrap();
    assert_eq!((older["origin"].as_str(), older["root"].as_str()), (Some(origin), rest.lines().nth(1)));
    let witnesses: Vec<_> = older["cosignatures"].as_array().unwrap().iter().map(|one| &one["witness"]).collect();
    assert_eq!(witnesses, [&json!(tree::witness(1).to_string()), &json!(tree::witness(2).to_string())]);
    assert_eq!(listed["next_before"], Value::Null);
    node.operator("GET", "/checkpoints?before=0", Value::Null).await.refused(400, "E_VALIDATION_FAILURE");
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_or_foreign_cosignatures_are_refused() {
    let node = Node::start().await;
    node.setup().await;
    node.publish().await;
    let plain = node.anyone("GET", "/log/1/checkpoint", Value::Null).await.text;
    let text = Note::parse(&plain).unwrap().text().to_owned();
    send(&node, &plain).await.refused(403, "E_FORBIDDEN");
    send(&node, &cosigned(&plain, vec![cosignature(&text, 9, 0)])).await.refused(403, "E_FORBIDDEN");

    let mut forged = cosignature(&text, 1, 0);
    forged.bytes[20] ^= 1;
    send(&node, &cosigned(&plain, vec![forged])).await.refused(400, "E_VALIDATION_FAILURE");
    for seconds in [600, -100_000] {
        send(&node, &cosigned(&plain, vec![cosignature(&text, 1, seconds)])).await.refused(400, "E_VALIDATION_FAILURE");
    }
    // A split view: the witness saw a checkpoint that this log has not signed.
    let checkpoint = Checkpoint::parse(&text).unwrap();
    for other in [
        Checkpoint { root: [7; 32], ..checkpoint.clone() },
        Checkpoint { size: checkpoint.size + 1, ..checkpoint.clone() },
        Checkpoint { origin: "other.example.com/log/1".to_owned(), ..checkpoint.clone() },
    ] {
        let text = other.to_string();
        let note = Note::new(text.clone(), vec![cosignature(&text, 1, 0)]).unwrap().to_string();
        send(&node, &note).await.refused(404, "E_NOT_FOUND");
    }
    for wrong in ["", "nothing\n\n", "a\n1\nCsUY\n\n— a AAAAAAA=\n"] {
        send(&node, wrong).await.refused(400, "E_VALIDATION_FAILURE");
    }
    let large = "x".repeat(70 << 10);
    send(&node, &large).await.refused(413, "E_PAYLOAD_TOO_LARGE");
    let after = node.anyone("GET", "/log/1/checkpoint", Value::Null).await.text;
    assert_eq!(after, plain);
}

/// While the log grows, the newest checkpoint has no cosignature yet. A client that wants a quorum gets the newest
/// checkpoint that has one, and receipts bound to it.
#[tokio::test(flavor = "multi_thread")]
async fn the_newest_cosigned_checkpoint_is_served_while_the_log_grows() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = || json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let place = async || node.client(&setup.client, "POST", "/orders", order()).await.data(201)["id"].as_i64().unwrap();
    let placed = place().await;
    let tree = node.publish().await;
    let get = async |query: &str| node.anyone("GET", &format!("/log/1/checkpoint{query}"), Value::Null).await;
    let encoded = |key: &VerifierKey| url::form_urlencoded::byte_serialize(key.to_string().as_bytes()).collect::<String>();
    let by_second = format!("?quorum=1&witness={}", encoded(&tree::witness(2)));
    get("?quorum=1").await.refused(404, "E_NOT_FOUND");
    // Two cosignatures for the first checkpoint, one for the second, none for the third.
    let mut sizes = vec![];
    for witnesses in [&[1, 2][..], &[1], &[]] {
        let served = get("").await.text;
        let text = Note::parse(&served).unwrap().text().to_owned();
        for witness in witnesses {
            send(&node, &cosigned(&served, vec![cosignature(&text, *witness, 0)])).await.data(200);
        }
        sizes.push(Checkpoint::parse(&text).unwrap().size);
        if !witnesses.is_empty() {
            node.operator("POST", "/accounts", json!({"name": "More"})).await.data(201);
            tree.grow().await;
        }
    }
    let trust = |quorum| Trust { keys: vec![tree::key()], witnesses: vec![tree::witness(1), tree::witness(2)], quorum };
    for (query, quorum, expected) in [
        ("", 0, sizes[2]),
        ("?quorum=0", 0, sizes[2]),
        ("?quorum=1", 1, sizes[1]),
        ("?quorum=2", 2, sizes[0]),
        (&by_second, 1, sizes[0]),
    ] {
        let served = get(query).await;
        assert_eq!((served.status, served.header("content-type")), (200, "text/plain; charset=utf-8"), "{query}");
        assert_eq!(trust(quorum).open(&served.text).unwrap().checkpoint.size, expected, "{query}");
    }
    // A quorum larger than the number of witnesses is refused at once.
    let third = tree::witness(3);
    for query in ["?quorum=3".to_owned(), format!("?quorum=2&witness={}", encoded(&tree::witness(2)))] {
        get(&query).await.refused(400, "E_VALIDATION_FAILURE");
    }
    // A witness that is no longer configured counts for a client that names it.
    let newest = tree.newest().await;
    let text = Note::parse(&newest.note).unwrap().text().to_owned();
    store::cosign(node.ledger.pool(), SHARD, &newest, &third, &cosignature(&text, 3, 0).to_string(), Utc::now()).await.unwrap();
    for (query, expected) in [("?quorum=1".to_owned(), sizes[1]), (format!("?quorum=1&witness={}", encoded(&third)), sizes[2])] {
        let served = get(&query).await.text;
        assert_eq!(Checkpoint::parse(Note::parse(&served).unwrap().text()).unwrap().size, expected, "{query}");
    }
    get("?quorum=1&witness=nobody").await.refused(400, "E_VALIDATION_FAILURE");
    get("?quorum=-1").await.refused(400, "E_VALIDATION_FAILURE");

    // One key under two names counts as one witness.
    let twice = tree::witness_secret(1).verifier("again.example.com", Algorithm::CosignatureV1).unwrap();
    let newest = tree.newest().await;
    let text = Note::parse(&newest.note).unwrap().text().to_owned();
    for key in [&tree::witness(1), &twice] {
        let line =
            witness_secret(1).cosign(key.name(), &text, u64::try_from(Utc::now().timestamp()).unwrap()).unwrap().to_string();
        store::cosign(node.ledger.pool(), SHARD, &newest, key, &line, Utc::now()).await.unwrap();
    }
    let quorum = Quorum { count: 2, witnesses: vec![tree::witness(1), twice, tree::witness(2)] };
    assert_eq!(store::newest_cosigned(node.ledger.pool(), SHARD, &quorum).await.unwrap().unwrap().size, sizes[0]);

    let receipt =
        async |order: i64, query: &str| node.operator("GET", &format!("/orders/{order}/receipt{query}"), Value::Null).await;
    let bound: Receipt = serde_json::from_value(receipt(placed, "?quorum=2").await.data(200)).unwrap();
    assert_eq!(bound.check(&trust(2)).unwrap().opened.checkpoint.size, sizes[0]);
    let plain: Receipt = serde_json::from_value(receipt(placed, "").await.data(200)).unwrap();
    assert!(plain.check(&trust(0)).is_ok() && plain.check(&trust(2)).is_err());
    // A new order waits for the witnesses.
    let later = place().await;
    tree.grow().await;
    let served = get("").await.text;
    let text = Note::parse(&served).unwrap().text().to_owned();
    let signatures = vec![cosignature(&text, 1, 0), cosignature(&text, 2, 0)];
    let (waited, _) =
        tokio::join!(receipt(later, "?quorum=2"), async { send(&node, &cosigned(&served, signatures)).await.data(200) });
    let waited: Receipt = serde_json::from_value(waited.data(200)).unwrap();
    assert!(waited.check(&trust(2)).unwrap().opened.checkpoint.size > sizes[2]);
    receipt(later, "?quorum=1&witness=nobody").await.refused(400, "E_VALIDATION_FAILURE");
    receipt(later, "?quorum=3").await.refused(400, "E_VALIDATION_FAILURE");
}

/// Cosignatures under an old origin give no quorum for the log under a new one. An older quorum is found however many
/// newer checkpoints have single cosignatures.
#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_belongs_to_its_origin_and_is_found_behind_many_newer_checkpoints() {
    let node = Node::start().await;
    node.setup().await;
    let tree = node.publish().await;
    let opened = tree.opened().await.checkpoint;
    let (pool, witnesses) = (node.ledger.pool(), vec![tree::witness(1), tree::witness(2)]);
    let published = async |origin: &str, size: u64| {
        let checkpoint = Checkpoint { origin: origin.to_owned(), size, ..opened.clone() };
        let mut conn = pool.acquire().await.unwrap();
        store::publish(&mut conn, SHARD, &checkpoint, &checkpoint.to_string(), &[]).await.unwrap();
        store::checkpoint(pool, SHARD, origin, size).await.unwrap().unwrap()
    };
    let cosign = async |of: &store::Published, witness: u8| {
        store::cosign(pool, SHARD, of, &tree::witness(witness), "signature", Utc::now()).await.unwrap();
    };
    let found = async |count, witnesses: &[VerifierKey]| {
        let quorum = Quorum { count, witnesses: witnesses.to_vec() };
        store::newest_cosigned(pool, SHARD, &quorum).await.unwrap().map(|found| (found.origin, found.size))
    };
    let old = published("old.example.com/log/1", opened.size - 1).await;
    cosign(&old, 1).await;
    cosign(&old, 2).await;
    assert_eq!((found(1, &witnesses).await, found(1, &[]).await), (None, None));
    let own = tree.newest().await;
    cosign(&own, 1).await;
    cosign(&own, 2).await;
    for size in 1..=2_500 {
        cosign(&published(&own.origin, opened.size + size).await, 1).await;
    }
    assert_eq!(found(2, &witnesses).await, Some((own.origin.clone(), own.size)));
    assert_eq!(found(1, &witnesses).await, Some((own.origin, opened.size + 2_500)));
    assert_eq!(found(3, &witnesses).await, None);
    assert_eq!(found(1, &[]).await, None, "a witness that is not named does not count");
}

/// A witness in terms of C2SP `tlog-witness`: its last checkpoint, and the statuses of its responses.
#[derive(Default)]
pub struct Witness {
    /// Number of the witness. `None` stands for the first one.
    number: Option<u8>,
    size: u64,
    root: Option<Hash>,
    answered: VecDeque<u16>,
}

pub type Shared = Arc<Mutex<Witness>>;

#[handler]
fn add_checkpoint(Data(witness): Data<&Shared>, body: String) -> poem::Response {
    let mut witness = witness.lock().unwrap();
    let (status, text) = witness.add(&body);
    witness.answered.push_back(status.as_u16());
    poem::Response::builder().status(status).body(text)
}

impl Witness {
    fn add(&mut self, body: &str) -> (StatusCode, String) {
        let (head, note) = body.split_once("\n\n").unwrap();
        let mut lines = head.lines();
        let old: u64 = lines.next().unwrap().strip_prefix("old ").unwrap().parse().unwrap();
        let proof: Vec<Hash> = lines.map(|line| STANDARD.decode(line).unwrap().try_into().unwrap()).collect();
        let Ok(opened) = Trust::in_keys(vec![tree::key()]).open(note) else { return (StatusCode::FORBIDDEN, String::new()) };
        let new = opened.checkpoint;
        if old != self.size {
            return (StatusCode::CONFLICT, format!("{}\n", self.size));
        }
        let root = self.root.unwrap_or_else(empty_root);
        if verify_consistency(old, &root, new.size, &new.root, &proof).is_err() {
            return (StatusCode::UNPROCESSABLE_ENTITY, String::new());
        }
        (self.size, self.root) = (new.size, Some(new.root));
        let text = Note::parse(note).unwrap().text().to_owned();
        (StatusCode::OK, format!("{}\n{}\n", cosignature(&text, 9, 0), cosignature(&text, self.number.unwrap_or(1), 0)))
    }
}

pub async fn witness() -> (Shared, String) {
    let shared = Shared::default();
    let acceptor = TcpListener::bind("127.0.0.1:0").into_acceptor().await.unwrap();
    let address = acceptor.local_addr()[0].as_socket_addr().unwrap().to_string();
    let app = Route::new().at("/w/add-checkpoint", post(add_checkpoint)).data(shared.clone());
    tokio::spawn(poem::Server::new_with_acceptor(acceptor).run(app));
    (shared, format!("http://{address}/w"))
}

#[tokio::test(flavor = "multi_thread")]
async fn witnesses_are_asked_and_follow_the_log() {
    let node = Node::start().await;
    node.setup().await;
    let tree = node.publish().await;
    let (witness, url) = witness().await;
    let caller = || {
        let urls = vec![url.parse().unwrap()];
        WitnessCaller::new(node.ledger.pool().clone(), [SHARD].into(), urls, node.public_log.witnesses.clone()).unwrap()
    };
    let trust = Trust { keys: vec![tree::key()], witnesses: vec![tree::witness(1)], quorum: 1 };
    let is_witnessed = async || trust.open(&node.anyone("GET", "/log/1/checkpoint", Value::Null).await.text).is_ok();
    let answered = || witness.lock().unwrap().answered.drain(..).collect::<Vec<_>>();

    let mut asking = caller();
    assert!(!is_witnessed().await);
    assert_eq!(asking.once().await, 1);
    assert!(is_witnessed().await);
    assert_eq!(asking.once().await, 0, "there is no new checkpoint");
    node.operator("POST", "/accounts", json!({"name": "More"})).await.data(201);
    tree.grow().await;
    assert!(!is_witnessed().await);
    assert_eq!(asking.once().await, 1);
    assert!(is_witnessed().await);
    assert_eq!(answered(), [200, 200]);

    // Another node does not know the witness's last size, and learns it from the response.
    node.operator("POST", "/accounts", json!({"name": "More"})).await.data(201);
    tree.grow().await;
    assert_eq!(caller().once().await, 1);
    assert!(is_witnessed().await);
    assert_eq!(answered(), [409, 200]);

    // A witness that has seen another log does not cosign this one.
    node.operator("POST", "/accounts", json!({"name": "More"})).await.data(201);
    tree.grow().await;
    witness.lock().unwrap().root = Some([7; 32]);
    assert_eq!(caller().once().await, 0);
    assert_eq!(answered(), [409, 422]);
    witness.lock().unwrap().size = 1_000_000;
    assert_eq!(caller().once().await, 0);
    assert!(!is_witnessed().await);
}

/// Barrier that lets the log continue while a witness responds.
type Gate = Arc<tokio::sync::Barrier>;

#[handler]
async fn add_slowly(Data(witness): Data<&Shared>, Data(gate): Data<&Gate>, body: String) -> poem::Response {
    gate.wait().await;
    gate.wait().await;
    let (status, text) = witness.lock().unwrap().add(&body);
    poem::Response::builder().status(status).body(text)
}

/// All witnesses are asked about the same checkpoint, although the log continues before the first one has answered.
/// Otherwise no checkpoint of a busy log would get two cosignatures.
#[tokio::test(flavor = "multi_thread")]
async fn witnesses_are_asked_about_the_same_checkpoint() {
    let node = Node::start().await;
    node.setup().await;
    let tree = node.publish().await;
    let size = tree.newest().await.size;
    let (second, second_url) = witness().await;
    second.lock().unwrap().number = Some(2);
    let gate: Gate = Arc::new(tokio::sync::Barrier::new(2));
    let acceptor = TcpListener::bind("127.0.0.1:0").into_acceptor().await.unwrap();
    let address = acceptor.local_addr()[0].as_socket_addr().unwrap().to_string();
    let app = Route::new().at("/add-checkpoint", post(add_slowly)).data(Shared::default()).data(gate.clone());
    tokio::spawn(poem::Server::new_with_acceptor(acceptor).run(app));
    let urls = vec![format!("http://{address}").parse().unwrap(), second_url.parse().unwrap()];
    let mut asking =
        WitnessCaller::new(node.ledger.pool().clone(), [SHARD].into(), urls, node.public_log.witnesses.clone()).unwrap();
    let going_on = async {
        gate.wait().await;
        node.operator("POST", "/accounts", json!({"name": "More"})).await.data(201);
        tree.grow().await;
        gate.wait().await;
    };
    let (cosigned, ()) = tokio::join!(asking.once(), going_on);
    assert_eq!((cosigned, tree.newest().await.size > size), (2, true));
    let quorum = Quorum { count: 2, witnesses: vec![tree::witness(1), tree::witness(2)] };
    let found = store::newest_cosigned(node.ledger.pool(), SHARD, &quorum).await.unwrap();
    assert_eq!(found.map(|published| published.size), Some(size));
}

/// The program requests what it then requires: a cosigned checkpoint, copy and receipt.
#[tokio::test(flavor = "multi_thread")]
async fn the_program_takes_the_newest_that_is_cosigned() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].to_string();
    let tree = node.publish().await;
    let served = node.anyone("GET", "/log/1/checkpoint", Value::Null).await.text;
    let text = Note::parse(&served).unwrap().text().to_owned();
    send(&node, &cosigned(&served, vec![cosignature(&text, 1, 0)])).await.data(200);
    let size = tree.newest().await.size;
    node.operator("POST", "/accounts", json!({"name": "More"})).await.data(201);
    assert!(tree.grow().await > size);
    let directory = tempfile::tempdir().unwrap();
    let (token, copy, file) =
        (node.token(Role::Auditor).await, directory.path().join("copy"), directory.path().join("receipt.json"));
    let (key, witness) = (tree::key().to_string(), tree::witness(1).to_string());
    let by_one = ["--witness", &witness, "--quorum", "1"];
    let run = async |arguments: &[&str]| {
        let mut command = program(directory.path());
        command.args(arguments).args(by_one).env("LEDGER_URL", node.url()).env("LEDGER_OPERATOR_TOKEN", token.expose());
        let done = run(&mut command).await;
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    let trust = Trust { keys: vec![tree::key()], witnesses: vec![tree::witness(1)], quorum: 1 };
    let printed = run(&["log", "checkpoint", "--key", &key]).await;
    assert_eq!(trust.open(&printed).unwrap().checkpoint.size, size);
    run(&["log", "mirror", copy.to_str().unwrap()]).await;
    let mirrored = std::fs::read_to_string(copy.join("checkpoint")).unwrap();
    assert_eq!(trust.open(&mirrored).unwrap().checkpoint.size, size);
    run(&["receipt", "order", &order, "--out", file.to_str().unwrap()]).await;
    run(&["verify", "--key", &key, "--receipt", file.to_str().unwrap()]).await;
    run(&["verify", "--key", &key, "--tiles", copy.to_str().unwrap()]).await;
}
