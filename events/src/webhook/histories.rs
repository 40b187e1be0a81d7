//! Properties of all histories of a webhook.

use crate::{AccountId, CredentialId, ReplayId, WebhookId};
use proptest::prelude::*;

use super::*;

fn at(version: i64) -> Moment {
    let recorded_at = DateTime::from_timestamp(1_800_000_000 + version, 0).unwrap();
    Moment { position: 100 + version, event_id: Uuid::nil(), version, recorded_at }
}

fn types() -> impl Strategy<Value = Vec<WebhookEventType>> {
    prop::sample::subsequence(WebhookEventType::ALL.to_vec(), 1..=WebhookEventType::ALL.len())
}

fn registered() -> impl Strategy<Value = WebhookRegistered> {
    (types(), prop::option::of(1i64..5)).prop_map(|(events, credential_id)| {
        let (events, further_events) = WebhookEventType::split(events);
        WebhookRegistered {
            account_id: AccountId(7),
            credential_id: credential_id.map(CredentialId),
            events,
            name_hash: "n".into(),
            url_hash: "u".into(),
            further_events,
            headers_hash: None,
        }
    })
}

/// Puts the types of orders before the further ones.
fn of(events: &[WebhookEventType], further: &[WebhookEventType]) -> Vec<WebhookEventType> {
    [events, further].concat()
}

fn command() -> impl Strategy<Value = WebhookCommand> {
    let update = (prop::option::of(types()), prop::option::of(any::<bool>())).prop_map(|(events, is_active)| {
        let (events, further_events) = events.map(WebhookEventType::split).unzip();
        WebhookCommand::Update(WebhookUpdated { events, is_active, further_events, ..WebhookUpdated::default() })
    });
    let retry = (any::<bool>(), 0i16..7).prop_map(|(has_failed, attempt_count)| {
        WebhookCommand::Retry(Retryable { event_id: Uuid::nil(), replay_id: ReplayId(0), has_failed, attempt_count })
    });
    let reason = Deactivation::Failing { failing_since: at(0).recorded_at };
    prop_oneof![
        6 => update,
        1 => Just(WebhookCommand::Delete),
        2 => (1i64..21).prop_map(move |version| WebhookCommand::Deactivate { version, reason }),
        2 => (1i64..99).prop_map(|delivery_id| WebhookCommand::Test { delivery_id, event_type: None }),
        2 => retry,
    ]
}

proptest! {
    /// Applies any commands in any order. The state reflects the last change of each field.
    #[test]
    fn a_webhook_reflects_the_last_change_of_each_field(first in registered(), steps in prop::collection::vec(command(), 0..20)) {
        let mut history = vec![WebhookEvent::from(first.clone())];
        let mut state = evolve(None, WebhookId(3), &history[0], &at(1)).unwrap();
        // Expected state, tracked without `evolve`.
        let (mut events, mut is_active, mut is_deleted, mut changed_at) = (of(&first.events, &first.further_events), true, false, 1);
        let mut deactivated = None;
        for command in steps {
            let decided = decide(&state, command.clone());
            let Ok(event) = decided else {
                let is_late = |of| of != history.len() as i64;
                let is_fair = is_deleted || matches!(command, WebhookCommand::Retry(_))
                    || (matches!(command, WebhookCommand::Test { .. } | WebhookCommand::Deactivate { .. }) && !is_active)
                    || matches!(command, WebhookCommand::Deactivate { version, .. } if is_late(version));
                prop_assert!(is_fair, "{:?}: {:?}", command, decided);
                continue;
            };
            prop_assert!(!is_deleted, "no event follows the deletion");
            history.push(event.clone());
            let version = history.len() as i64;
            match &event {
                WebhookEvent::WebhookUpdated(change) => {
                    if let Some(changed) = &change.events {
                        events = of(changed, change.further_events.as_deref().unwrap_or_default());
                    }
                    if let Some(reason) = change.deactivation {
                        prop_assert!(is_active && change.is_active == Some(false));
                        deactivated = Some(Deactivated { reason, at: at(version).recorded_at });
                    }
                    is_active = change.is_active.unwrap_or(is_active);
                    deactivated = deactivated.filter(|_| !is_active);
                    changed_at = version;
                }
                WebhookEvent::WebhookDeleted(_) => (is_active, is_deleted, changed_at) = (false, true, version),
                _ => prop_assert!(is_active, "only an active webhook accepts a test or retry"),
            }
            state = evolve(Some(state), WebhookId(3), &event, &at(version)).unwrap();
        }
        let expected = Webhook {
            id: WebhookId(3),
            version: history.len() as i64,
            account_id: AccountId(7),
            credential_id: first.credential_id,
            events,
            is_active,
            is_deleted,
            deactivated,
            created_at: at(1).recorded_at,
            updated_at: at(changed_at).recorded_at,
        };
        for event_type in WebhookEventType::ALL {
            prop_assert_eq!(expected.hears(event_type), is_active && expected.events.contains(&event_type));
        }
        prop_assert_eq!(state, expected);
    }
}
