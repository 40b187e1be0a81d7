use std::str::FromStr;

use ledger_events::CredentialId;
use serde_json::json;

use super::*;

fn keyring() -> Keyring {
    Keyring::from_base64(&Keyring::generate()).unwrap()
}

fn request() -> Request {
    let command = Handed::PlaceOrder {
        account_id: AccountId(7),
        product_id: ProductId(1),
        denomination: Money::from_str("25.00").unwrap(),
        quantity: 2,
        client_reference: Some("basket".into()),
        metadata: Some(HandedSecret(Secret::new(r#"{"note":"for Ada"}"#))),
    };
    let idempotency = Some(HandedKey { key_hash: [1; 32], fingerprint: [2; 32], renderer: "placed order".into() });
    let (actor, request_id) = (Actor::Credential(CredentialId(3)), "request".to_owned());
    let command = HandedCommand { command, actor, request_id, idempotency, traceparent: None, within_ms: 10_000 };
    let (id, node_id) = (Uuid::from_u128(1), Uuid::from_u128(2));
    Request { id, node_id, shard: 1, sent_at: DateTime::UNIX_EPOCH, commands: vec![command] }
}

/// A node of an earlier build would read another text in another way. If this text changes, [`FORMAT`] must.
#[test]
fn the_text_of_a_request_stays_while_its_format_does() {
    let expected = json!({
        "id": "00000000-0000-0000-0000-000000000001", "node_id": "00000000-0000-0000-0000-000000000002", "shard": 1,
        "sent_at": "1970-01-01T00:00:00Z",
        "commands": [{
            "command": {"PlaceOrder": {"account_id": 7, "product_id": 1, "denomination": "25.00", "quantity": 2,
                "client_reference": "basket", "metadata": "{\"note\":\"for Ada\"}"}},
            "actor": request().commands[0].actor,
            "request_id": "request",
            "idempotency": {"key_hash": vec![1; 32], "fingerprint": vec![2; 32], "renderer": "placed order"},
            "traceparent": null,
            "within_ms": 10_000,
        }],
    });
    assert_eq!((serde_json::to_value(request()).unwrap(), FORMAT), (expected, "1"));
}

#[test]
fn a_request_opens_for_nodes_of_the_ledger_alone_and_shows_no_text() {
    let (keys, request) = (keyring(), request());
    let mut sealed = request.seal(&keys).unwrap();
    let opened = Request::open(&keys, &[2, 1], &sealed).unwrap();
    assert_eq!(serde_json::to_value(&opened).unwrap(), serde_json::to_value(&request).unwrap());
    assert!(!format!("{opened:?}").contains("Ada"));
    assert!(Request::open(&keyring(), &[1], &sealed).is_err(), "another ledger");
    assert!(Request::open(&keys, &[2], &sealed).is_err(), "another shard");
    *sealed.last_mut().unwrap() ^= 1;
    assert!(Request::open(&keys, &[1], &sealed).is_err(), "changed");
}

#[test]
fn an_answer_opens_for_its_request_alone_and_has_an_outcome_for_each_command() {
    let (keyring, one) = (keyring(), request());
    let answer = |outcomes| Answer { head: Some((9, Uuid::nil())), outcomes };
    let sealed = one.seal_answer(&keyring, &answer(vec![Outcome::Rejected(Rejection::InsufficientBalance)])).unwrap();
    let told = one.open_answer(&keyring, &sealed).unwrap().outcomes.remove(0).reply().unwrap().unwrap_err();
    assert!(matches!(told, WriteError::Rejected(Rejection::InsufficientBalance)), "{told}");
    let other = Request { id: Uuid::from_u128(3), ..request() };
    assert!(other.open_answer(&keyring, &sealed).is_err());
    let short = one.seal_answer(&keyring, &answer(vec![])).unwrap();
    assert!(one.open_answer(&keyring, &short).is_err());
}

/// Such a text is a part of the program, and no node believes the text of another one.
#[test]
fn a_rejection_with_a_text_is_decided_again_by_the_node_itself() {
    let declined = Outcome::from(Err(WriteError::Rejected(Rejection::Conflict("too many vouchers"))));
    assert!(matches!(declined, Outcome::Declined) && declined.reply().is_none());
}
