#![allow(clippy::unwrap_used)]

use ledger_events::OrderId;
use serde_json::json;
use transparency_log::checkpoint::Checkpoint;
use transparency_log::merkle::{Frontier, Node, inclusion_proof, leaf_hash};
use transparency_log::note::{Algorithm, Note, SigningKey};

use super::*;

const ORIGIN: &str = "example.com/log/1";

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32]).unwrap()
}

fn trust() -> Trust {
    Trust::in_keys(vec![key(1).verifier(ORIGIN, Algorithm::Ed25519).unwrap()])
}

/// A log of eight events: two orders, one of which is cancelled, and their wallet movements.
const LOG: [(&str, i64, i64, &str, &str); 8] = [
    ("account", 1, 1, "AccountCreated", r#"{}"#),
    ("order", 7, 1, "OrderPlaced", r#"{"transaction_id":70,"amount":"10.00"}"#),
    ("wallet", 5, 2, "WalletDebited", r#"{"transaction_id":70,"order_id":7}"#),
    ("order", 8, 1, "OrderPlaced", r#"{"transaction_id":80}"#),
    ("wallet", 5, 3, "WalletDebited", r#"{"transaction_id":80,"order_id":8}"#),
    ("order", 7, 2, "OrderQueued", r#"{}"#),
    ("order", 7, 3, "OrderCancelled", r#"{"transaction_id":71}"#),
    ("wallet", 5, 4, "WalletRefunded", r#"{"transaction_id":71,"order_id":7}"#),
];

fn leaf(position: i64) -> Leaf<'static> {
    let (stream_type, stream_id, version, event_type, data) = LOG[usize::try_from(position - 1).unwrap()];
    Leaf {
        shard_id: 1,
        position,
        event_id: Uuid::from_u128(position.try_into().unwrap()),
        stream_type,
        stream_id,
        version,
        event_type,
        schema_version: 1,
        data,
        metadata: r#"{"request_id":"r"}"#,
        recorded_at: DateTime::from_timestamp_millis(1_800_000_000_000 + position).unwrap(),
    }
}

/// Builds the receipt of order 7 with the events at these positions.
fn receipt(positions: &[i64]) -> Receipt {
    let hashes: Vec<Hash> = (1..=8).map(|position| leaf_hash(&leaf(position).to_bytes())).collect();
    let mut nodes = std::collections::HashMap::new();
    let mut frontier = Frontier::default();
    hashes.iter().for_each(|hash| frontier.append_noting(*hash, |node, hash| _ = nodes.insert(node, *hash)));
    let checkpoint = Checkpoint { origin: ORIGIN.into(), size: 8, root: frontier.root() }.to_string();
    let note = Note::new(checkpoint.clone(), vec![key(1).sign(ORIGIN, &checkpoint).unwrap()]).unwrap();
    let proved = |position: &i64| {
        let index = u64::try_from(position - 1).unwrap();
        let proof = inclusion_proof(index, 8, |node: Node| Ok::<_, MerkleError>(nodes[&node])).unwrap();
        ProvedEvent::new(&leaf(*position), &Inclusion { leaf_hash: hashes[index as usize], proof }).unwrap()
    };
    Receipt {
        format: FORMAT.into(),
        order_id: OrderId(7),
        shard_id: 1,
        checkpoint: note.to_string(),
        verifier_keys: vec![],
        events: positions.iter().map(proved).collect(),
    }
}

const WHOLE: [i64; 5] = [2, 3, 6, 7, 8];

#[test]
fn a_receipt_is_a_file_that_verifies() {
    let text = serde_json::to_string_pretty(&receipt(&WHOLE)).unwrap();
    let read: Receipt = serde_json::from_str(&text).unwrap();
    assert_eq!(read, receipt(&WHOLE));
    let checked = read.check(&trust()).unwrap();
    assert_eq!((checked.order_id, checked.events, checked.last, checked.opened.checkpoint.size), (OrderId(7), 5, 8, 8));
    // A shorter receipt shows the order before it was cancelled.
    assert_eq!(receipt(&WHOLE[..3]).check(&trust()).unwrap().last, 6);
}

/// A reader must not find anything in a receipt that was not verified.
#[test]
fn additional_or_duplicate_fields_are_refused() {
    let text = serde_json::to_string(&receipt(&WHOLE)).unwrap();
    for (place, addition, problem) in [
        ("{\"format\"", "{\"note\":\"paid\",\"format\"", "unknown field `note`"),
        ("{\"position\":2", "{\"note\":\"paid\",\"position\":2", "unknown field `note`"),
        ("{\"position\":2", "{\"position\":1,\"position\":2", "duplicate field `position`"),
        ("\"amount\":", "\"amount\":\"99.00\",\"amount\":", "\"amount\" is given more than once"),
        ("\"request_id\":\"r\"", "\"request_id\":[{\"a\":1,\"a\":1}],\"request_id\":\"r\"", "\"a\" is given more than once"),
    ] {
        let changed = text.replacen(place, addition, 1);
        assert_ne!(changed, text, "{place}");
        let error = serde_json::from_str::<Receipt>(&changed).unwrap_err().to_string();
        assert!(error.contains(problem), "{addition}: {error}");
    }
}

#[test]
fn missing_and_foreign_events_are_named() {
    for (positions, expected) in [
        (&[][..], ReceiptError::Empty),
        (&[3, 8], ReceiptError::Empty),
        (&[3, 6], ReceiptError::Version { position: 6, expected: 1 }),
        (&[2, 3, 7, 8], ReceiptError::Version { position: 7, expected: 2 }),
        (&[2, 6], ReceiptError::Movement(70)),
        (&[2, 3, 6, 7], ReceiptError::Movement(71)),
        (&[3, 2], ReceiptError::Order(2)),
        (&[2, 2], ReceiptError::Order(2)),
        (&[2, 3, 5], ReceiptError::Foreign(5)),
        (&[2, 3, 4], ReceiptError::Foreign(4)),
        (&[1, 2, 3], ReceiptError::Foreign(1)),
    ] {
        assert_eq!(receipt(positions).check(&trust()), Err(expected), "{positions:?}");
    }
}

#[test]
fn changed_events_are_named() {
    let check = |change: &dyn Fn(&mut Receipt)| {
        let mut receipt = receipt(&WHOLE);
        change(&mut receipt);
        receipt.check(&trust()).unwrap_err()
    };
    assert_eq!(
        check(&|r| r.events[1].event.data = json!({"transaction_id": 70, "order_id": 7, "amount": "1.00"})),
        ReceiptError::Readable(3)
    );
    assert_eq!(check(&|r| r.events[2].event.event_type = "OrderDelivered".into()), ReceiptError::Readable(6));
    // The leaf is changed as well, so it is not a leaf of the tree.
    let forged = |r: &mut Receipt| {
        let leaf = Leaf { event_type: "OrderDelivered", ..leaf(6) };
        r.events[2] = ProvedEvent {
            proof: r.events[2].proof.clone(),
            ..ProvedEvent::new(&leaf, &Inclusion { leaf_hash: [0; 32], proof: vec![] }).unwrap()
        };
    };
    assert_eq!(check(&forged), ReceiptError::Proof { position: 6, source: MerkleError::Root });
    assert!(matches!(check(&|r| r.events[2].proof.swap(0, 1)), ReceiptError::Proof { position: 6, .. }));
    assert!(matches!(check(&|r| _ = r.events[2].proof.pop()), ReceiptError::Proof { position: 6, source: MerkleError::Length }));
    assert_eq!(check(&|r| r.events[2].leaf.push('!')), ReceiptError::Encoding(6));
    assert_eq!(check(&|r| r.shard_id = 2), ReceiptError::Shard(2));
    assert_eq!(check(&|r| r.order_id = OrderId(9)), ReceiptError::Foreign(2));
    assert_eq!(check(&|r| r.format = "other/1".into()), ReceiptError::Format("other/1".into()));
    assert!(matches!(check(&|r| r.checkpoint = r.checkpoint.replacen("\n8\n", "\n9\n", 1)), ReceiptError::Checkpoint(_)));
    let stranger = Trust::in_keys(vec![key(2).verifier(ORIGIN, Algorithm::Ed25519).unwrap()]);
    assert!(matches!(receipt(&WHOLE).check(&stranger), Err(ReceiptError::Checkpoint(_))));
    let witnessed = Trust { quorum: 1, ..trust() };
    assert!(matches!(receipt(&WHOLE).check(&witnessed), Err(ReceiptError::Checkpoint(CheckpointError::Witnesses { .. }))));
}
