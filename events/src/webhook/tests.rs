//! Decisions about webhooks and their deliveries, and the fold.

use crate::{AccountId, CredentialId, ReplayId, WebhookId};

use super::*;
use crate::restrictions::Restrictions;

fn at(version: i64) -> Moment {
    let recorded_at = DateTime::from_timestamp(1_800_000_000 + version, 0).unwrap();
    Moment { position: version, event_id: Uuid::nil(), version, recorded_at }
}

fn webhook(changes: &[WebhookUpdated]) -> Webhook {
    let registered = WebhookRegistered {
        account_id: AccountId(7),
        credential_id: None,
        events: vec![WebhookEventType::OrderDelivered, WebhookEventType::OrderCreated],
        name_hash: String::new(),
        url_hash: String::new(),
        further_events: vec![],
        headers_hash: None,
    };
    let mut state = evolve(None, WebhookId(1), &registered.into(), &at(1));
    for (change, version) in changes.iter().zip(2..) {
        state = evolve(state, WebhookId(1), &change.clone().into(), &at(version));
    }
    state.unwrap()
}

fn switched(is_active: bool) -> WebhookUpdated {
    WebhookUpdated { is_active: Some(is_active), ..WebhookUpdated::default() }
}

#[test]
fn only_a_standalone_token_can_be_rotated_through_the_webhook() {
    let rotate = || WebhookCommand::RotateToken { token_hash: "t".to_owned(), previous_until: None };
    let before = webhook(&[switched(false)]);
    let rotated = decide(&before, rotate()).unwrap();
    let expected = WebhookUpdated { token_hash: Some("t".to_owned()), ..WebhookUpdated::default() };
    assert_eq!(rotated, expected.into());
    let after = evolve(Some(before.clone()), WebhookId(1), &rotated, &at(3)).unwrap();
    assert_eq!(after, Webhook { version: 3, updated_at: at(3).recorded_at, ..before.clone() });

    let link = WebhookUpdated { credential_id: Some(CredentialId(9)), ..WebhookUpdated::default() };
    let linked = evolve(Some(before.clone()), WebhookId(1), &link.into(), &at(3)).unwrap();
    assert_eq!(linked, Webhook { credential_id: Some(CredentialId(9)), ..after });
    assert!(matches!(decide(&linked, rotate()), Err(Rejection::Conflict(_))));
    let renamed = WebhookUpdated { name_hash: Some("n".to_owned()), ..WebhookUpdated::default() };
    assert_eq!(
        evolve(Some(linked), WebhookId(1), &renamed.into(), &at(4)).unwrap().credential_id,
        Some(CredentialId(9)),
        "absent fields stay"
    );
}

#[test]
fn an_update_omits_its_newer_fields_when_absent() {
    let earlier = r#"{"events":null,"is_active":true,"name_hash":null,"url_hash":null}"#;
    assert_eq!(serde_json::from_str::<WebhookUpdated>(earlier).unwrap(), switched(true));
    assert_eq!(serde_json::to_string(&switched(true)).unwrap(), earlier);
    let later = WebhookUpdated { token_hash: Some("t".to_owned()), credential_id: Some(CredentialId(9)), ..switched(true) };
    assert_eq!(serde_json::from_str::<WebhookUpdated>(&serde_json::to_string(&later).unwrap()).unwrap(), later);
}

#[test]
fn a_deactivation_needs_the_version_that_was_judged_and_ends_when_the_webhook_is_switched_on() {
    let reason = Deactivation::Failing { failing_since: at(0).recorded_at };
    let deactivate = |version| WebhookCommand::Deactivate { version, reason };
    let before = webhook(&[]);
    assert_eq!(decide(&before, deactivate(2)), Err(Rejection::Conflict(CHANGED)));
    assert_eq!(decide(&webhook(&[switched(false)]), deactivate(2)), Err(Rejection::WebhookInactive));
    let event = decide(&before, deactivate(1)).unwrap();
    let WebhookEvent::WebhookUpdated(change) = &event else { panic!("{event:?}") };
    let json = r#"{"events":null,"is_active":false,"name_hash":null,"url_hash":null,"deactivation":{"reason":"failing","failing_since":"2027-01-15T08:00:00Z"}}"#;
    assert_eq!(serde_json::to_string(change).unwrap(), json);
    assert_eq!(serde_json::from_str::<WebhookUpdated>(json).unwrap(), *change);

    let deactivated = Some(Deactivated { reason, at: at(2).recorded_at });
    let after = webhook(std::slice::from_ref(change));
    assert_eq!((after.is_active, after.deactivated), (false, deactivated));
    let renamed = WebhookUpdated { name_hash: Some("n".to_owned()), ..WebhookUpdated::default() };
    assert_eq!(webhook(&[change.clone(), renamed]).deactivated, deactivated);
    assert_eq!(webhook(&[change.clone(), switched(true)]).deactivated, None);
    assert_eq!(webhook(&[change.clone(), switched(true), switched(false)]).deactivated, None);
}

fn tested_with(event_type: WebhookEventType) -> WebhookTested {
    WebhookTested { delivery_id: 5, event_type, sample_version: Some(SAMPLE_VERSION) }
}

#[test]
fn a_test_uses_the_first_subscribed_type_and_leaves_the_webhook_unchanged() {
    let before = webhook(&[]);
    let test = WebhookCommand::Test { delivery_id: 5, event_type: None };
    let tested = decide(&before, test.clone()).unwrap();
    let expected = tested_with(WebhookEventType::OrderDelivered);
    assert_eq!(tested, expected.into());
    let payload = r#"{"delivery_id":5,"event_type":"order.delivered","sample_version":2}"#;
    assert_eq!(tested.payload().unwrap(), payload);
    let after = evolve(Some(before.clone()), WebhookId(1), &tested, &at(2)).unwrap();
    assert_eq!(after, Webhook { version: 2, ..before });
    assert_eq!(decide(&webhook(&[switched(false)]), test.clone()), Err(Rejection::WebhookInactive));
    assert!(decide(&webhook(&[switched(false), switched(true)]), test).is_ok());
}

#[test]
fn a_test_uses_the_requested_type_if_the_webhook_is_subscribed_to_it() {
    let subscribed = webhook(&[]);
    for event_type in WebhookEventType::ALL {
        let tested = decide(&subscribed, WebhookCommand::Test { delivery_id: 5, event_type: Some(event_type) });
        match subscribed.events.contains(&event_type) {
            true => assert_eq!(tested, Ok(tested_with(event_type).into())),
            false => assert!(matches!(tested, Err(Rejection::InvalidField { field: "event_type", .. })), "{tested:?}"),
        }
    }
}

#[test]
fn a_failed_delivery_with_attempts_left_can_be_retried() {
    let (on, off) = (webhook(&[]), webhook(&[switched(false)]));
    let delivery =
        |has_failed, attempt_count| Retryable { event_id: Uuid::nil(), replay_id: ReplayId(3), has_failed, attempt_count };
    let requested = WebhookEvent::from(DeliveryRetryRequested { event_id: Uuid::nil(), replay_id: ReplayId(3) });
    for (delivery, webhook, expected) in [
        (delivery(true, 0), &on, Ok(requested.clone())),
        (delivery(true, 4), &on, Ok(requested)),
        (delivery(true, 5), &on, Err(Rejection::DeliveryAttemptsExhausted)),
        (delivery(false, 1), &on, Err(Rejection::DeliveryNotFailed)),
        (delivery(true, 4), &off, Err(Rejection::WebhookInactive)),
    ] {
        assert_eq!(decide(webhook, WebhookCommand::Retry(delivery)), expected);
    }
}

#[test]
fn a_deleted_webhook_is_not_found_and_receives_nothing() {
    let deleted =
        evolve(Some(webhook(&[])), WebhookId(1), &decide(&webhook(&[]), WebhookCommand::Delete).unwrap(), &at(2)).unwrap();
    for (command, expected) in [
        (WebhookCommand::Update(switched(true)), Rejection::NotFound),
        (WebhookCommand::Delete, Rejection::NotFound),
        (WebhookCommand::RotateToken { token_hash: String::new(), previous_until: None }, Rejection::NotFound),
        (WebhookCommand::Test { delivery_id: 5, event_type: None }, Rejection::WebhookInactive),
    ] {
        assert_eq!(decide(&deleted, command), Err(expected));
    }
    assert_eq!(decide(&webhook(&[]), WebhookCommand::Update(switched(true))), Ok(switched(true).into()));
}

#[test]
fn registration_requires_an_active_account_below_its_limit_and_its_own_credential() {
    let created_at = at(1).recorded_at;
    let account = |status| Account {
        id: AccountId(7),
        version: 1,
        name: String::new(),
        status,
        discounts: vec![],
        created_at,
        updated_at: created_at,
    };
    let credential = |account_id, is_revoked| Credential {
        id: CredentialId(3),
        version: 1,
        account_id,
        name: String::new(),
        key_prefix: String::new(),
        restrictions: Restrictions::default(),
        has_signing_secret: true,
        hmac_required: false,
        is_revoked,
        created_at,
        updated_at: created_at,
    };
    let (active, suspended) = (account(AccountStatus::Active), account(AccountStatus::Suspended));
    let unknown = Rejection::InvalidField { field: "credential_id", problem: "is unknown" };
    for (account, alive, credential_id, credential, expected) in [
        (&active, 19, None, None, None),
        (&active, 0, Some(3), Some(credential(AccountId(7), false)), None),
        (&suspended, 20, None, None, Some(Rejection::AccountSuspended)),
        (&active, 20, Some(3), None, Some(Rejection::WebhookLimitReached)),
        (&active, 0, Some(3), None, Some(unknown.clone())),
        (&active, 0, Some(3), Some(credential(AccountId(8), false)), Some(unknown.clone())),
        (&active, 0, Some(3), Some(credential(AccountId(7), true)), Some(unknown)),
    ] {
        let asked = WebhookRegistered {
            account_id: AccountId(7),
            credential_id: credential_id.map(CredentialId),
            events: vec![WebhookEventType::OrderCreated],
            name_hash: String::new(),
            url_hash: String::new(),
            further_events: vec![],
            headers_hash: None,
        };
        let decided = register(account, alive, credential.as_ref(), asked.clone());
        assert_eq!(decided, expected.map_or(Ok(asked.into()), Err));
    }
}

#[test]
fn an_unprocessed_retry_counts_until_the_webhook_is_switched_off() {
    let delivery = |has_failed| Retryable { event_id: Uuid::nil(), replay_id: ReplayId(3), has_failed, attempt_count: 1 };
    let retry = |replay_id| WebhookEvent::from(DeliveryRetryRequested { event_id: Uuid::nil(), replay_id });
    let [on, off] = [true, false].map(|is_active| WebhookEvent::from(switched(is_active)));
    for (events, has_failed) in [
        (vec![], true),
        (vec![retry(ReplayId(3))], false),
        (vec![retry(ReplayId(0))], true),
        (vec![retry(ReplayId(3)), off.clone(), on.clone()], true),
        (vec![off.clone(), on.clone(), retry(ReplayId(3))], false),
        (vec![retry(ReplayId(3)), WebhookDeleted {}.into()], true),
    ] {
        assert_eq!(delivery(true).after(&events).has_failed, has_failed, "{events:?}");
        assert!(!delivery(false).after(&events).has_failed, "{events:?}");
    }
}

#[test]
fn types_of_orders_and_further_ones_change_separately() {
    use WebhookEventType::{OrderCancelled, OrderCreated, OrderDelivered, PayoutPaid};
    let change = |events, further_events| WebhookUpdated { events, further_events, ..WebhookUpdated::default() };
    let update = |webhook: &Webhook, events, further| decide(webhook, WebhookCommand::Update(change(events, further)));
    let before = webhook(&[]);
    // An event of a webhook without further types reads as it always did.
    let plain = update(&before, Some(vec![OrderCreated]), Some(vec![])).unwrap();
    assert!(!plain.payload().unwrap().contains("further_events"));
    let both = change(None, Some(vec![PayoutPaid]));
    assert_eq!(update(&before, None, Some(vec![PayoutPaid])), Ok(both.clone().into()));
    assert_eq!(webhook(std::slice::from_ref(&both)).events, [OrderDelivered, OrderCreated, PayoutPaid]);
    // A node that does not know the further types changes those of orders only.
    let of_orders = change(Some(vec![OrderCancelled]), None);
    assert_eq!(webhook(&[both.clone(), of_orders]).events, [OrderCancelled, PayoutPaid]);
    let none = update(&webhook(std::slice::from_ref(&both)), Some(vec![OrderCancelled]), Some(vec![])).unwrap();
    let WebhookEvent::WebhookUpdated(none) = none else { panic!("{none:?}") };
    assert_eq!(webhook(&[both, none]).events, [OrderCancelled]);
}

#[test]
fn every_type_has_a_text_and_a_type_of_the_log() {
    for event_type in WebhookEventType::ALL {
        assert_eq!(WebhookEventType::parse(event_type.as_str()), Some(event_type));
        assert_eq!(event_type.is_of_orders(), event_type.as_str().starts_with("order."));
        let known = crate::Event::types().filter(|(_, name, _)| *name == event_type.announced()).count();
        assert_eq!(known, 1, "{event_type:?}");
    }
}
