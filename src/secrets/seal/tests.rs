//! Sealing and opening: rows, keys, data keys, rotation and debug output.

use super::*;

#[test]
fn a_sealed_value_opens_only_for_its_row_and_key() {
    let keyring = Keyring::from_base64(&Keyring::generate()).unwrap();
    let sealed = keyring.seal("webhook.token", 7, b"secret").unwrap();
    assert_eq!(keyring.open("webhook.token", 7, &sealed).unwrap().as_slice(), b"secret");
    assert_eq!(keyring.open("webhook.token", 8, &sealed), Err(SealError::Unreadable));
    assert_eq!(keyring.open("webhook.url", 7, &sealed), Err(SealError::Unreadable));
    let other = Keyring::from_base64(&Keyring::generate()).unwrap();
    assert_eq!(other.open("webhook.token", 7, &sealed), Err(SealError::UnknownKey));
    let mut changed = sealed.clone();
    *changed.last_mut().unwrap() ^= 1;
    assert_eq!(keyring.open("webhook.token", 7, &changed), Err(SealError::Unreadable));
    assert_eq!(keyring.open("webhook.token", 7, b"ab"), Err(SealError::Unreadable));
}

#[test]
fn a_value_under_a_data_key_opens_with_that_key_only() {
    let keyring = Keyring::from_base64(&Keyring::generate()).unwrap();
    let (key, kept) = keyring.new_data_key(3).unwrap();
    let sealed = key.seal("order.metadata", 7, b"text").unwrap();
    let again = keyring.open_data_key(3, &kept).unwrap();
    assert_eq!(keyring.open_text_under(Some(&again), "order.metadata", 7, &sealed), Ok(Secret::new("text")));
    assert_eq!(again.open("order.metadata", 8, &sealed), Err(SealError::Unreadable));
    assert_eq!(keyring.open_data_key(4, &kept).map(|key| key.id), Err(SealError::Unreadable));
    let (other, _) = keyring.new_data_key(3).unwrap();
    assert_eq!(other.open("order.metadata", 7, &sealed), Err(SealError::Unreadable));
    assert!(keyring.open("order.metadata", 7, &sealed).is_err(), "the master key opens the data key, not the value");
    let before = keyring.seal("order.metadata", 7, b"text").unwrap();
    assert_eq!(keyring.open_text_under(None, "order.metadata", 7, &before), Ok(Secret::new("text")));
    assert_eq!(format!("{key:?}"), "DataKey { id: 3, .. }");
}

#[test]
fn a_value_opens_under_any_configured_key_and_moves_to_the_first() {
    let (old, new) = (Keyring::generate(), Keyring::generate());
    let before = Keyring::from_base64(&old).unwrap();
    let both = Keyring::from_base64(&format!("# the new one first\n{}\n\n {} \n", *new, *old)).unwrap();
    let after = Keyring::from_base64(&new).unwrap();
    let sealed = before.seal("webhook.token", 7, b"secret").unwrap();
    assert_eq!(both.open("webhook.token", 7, &sealed).unwrap().as_slice(), b"secret");
    assert_eq!(after.open("webhook.token", 7, &sealed), Err(SealError::UnknownKey));
    let moved = both.reseal(both.first().unwrap(), "webhook.token", 7, &sealed).unwrap();
    assert_eq!(after.open("webhook.token", 7, &moved).unwrap().as_slice(), b"secret");
    both.seal_under(before.first());
    assert!(before.open("a", 1, &both.seal("a", 1, b"b").unwrap()).is_ok(), "the database says which key seals");
    both.seal_under(None);
    assert_eq!(both.seal("a", 1, b"b"), Err(SealError::NotCurrent));
    let twice = Keyring::from_base64(&format!("{}\n{}", *new, *new));
    assert_eq!(twice.map(|_| ()), Err(SealError::MasterKeys));
    assert_eq!(Keyring::from_base64("\n# none\n").map(|_| ()), Err(SealError::MasterKeys));
}

#[test]
fn fingerprints_survive_a_rotation_of_the_master_key() {
    let (old, new) = (Keyring::generate(), Keyring::generate());
    let before = Keyring::from_base64(&old).unwrap();
    let both = Keyring::from_base64(&format!("{}\n{}", *new, *old)).unwrap();
    let expected = before.fingerprint("user.email", "a@example.com");
    let roots = before.new_roots(before.first().unwrap()).unwrap();
    let check = before.seal_roots(before.first().unwrap(), &roots, true).unwrap();
    assert_ne!(both.fingerprint("user.email", "a@example.com"), expected);
    let (opened, requires_macs) = both.open_roots(before.first().unwrap(), &check).unwrap();
    assert!(both.use_roots(opened) && requires_macs);
    assert_eq!(both.fingerprint("user.email", "a@example.com"), expected);
    assert!(!both.use_roots(both.new_roots(both.first().unwrap()).unwrap()), "other roots are refused");
}

#[test]
fn debug_output_shows_no_secrets() {
    let keyring = Keyring::from_base64(&Keyring::generate()).unwrap();
    assert_eq!(format!("{:?}", Secret::new("secret")), "[private]");
    assert!(!format!("{keyring:?}").contains("cipher"));
    assert!(Keyring::from_base64("c2hvcnQ=").is_err());
}
