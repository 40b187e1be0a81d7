//! The webhook stream: the subscriptions at every position of the log.
//!
//! The vault stores name, URL and token. The events commit to name and URL with salted hashes.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::account::{Account, AccountStatus, Credential};
use crate::order::OrderEvent;
use crate::{AccountId, CredentialId, Moment, Rejection, WebhookId};

/// Event type that a webhook can subscribe to (specification, "Events").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum WebhookEventType {
    #[serde(rename = "order.created")]
    OrderCreated,
    #[serde(rename = "order.pending")]
    OrderPending,
    #[serde(rename = "order.delivered")]
    OrderDelivered,
    #[serde(rename = "order.partially_delivered")]
    OrderPartiallyDelivered,
    #[serde(rename = "order.cancelled")]
    OrderCancelled,
}

impl WebhookEventType {
    pub const ALL: [WebhookEventType; 5] =
        [Self::OrderCreated, Self::OrderPending, Self::OrderDelivered, Self::OrderPartiallyDelivered, Self::OrderCancelled];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::OrderCreated => "order.created",
            Self::OrderPending => "order.pending",
            Self::OrderDelivered => "order.delivered",
            Self::OrderPartiallyDelivered => "order.partially_delivered",
            Self::OrderCancelled => "order.cancelled",
        }
    }

    pub fn parse(text: &str) -> Option<WebhookEventType> {
        Self::ALL.into_iter().find(|known| known.as_str() == text)
    }

    /// Returns the type under which webhooks receive an order event; `None` if they do not receive it.
    pub fn announcing(event: &OrderEvent) -> Option<WebhookEventType> {
        match event {
            OrderEvent::OrderPlaced(_) => Some(Self::OrderCreated),
            OrderEvent::OrderQueued(_) => Some(Self::OrderPending),
            OrderEvent::OrderDelivered(_) => Some(Self::OrderDelivered),
            OrderEvent::OrderPartiallyDelivered(_) => Some(Self::OrderPartiallyDelivered),
            OrderEvent::OrderCancelled(_) => Some(Self::OrderCancelled),
            OrderEvent::OrderDelayed(_) | OrderEvent::VouchersRevealed(_) | OrderEvent::PersonalDataErased(_) => None,
        }
    }

    /// Returns the log's event type that webhooks receive under this type.
    pub fn announced(self) -> &'static str {
        match self {
            Self::OrderCreated => "OrderPlaced",
            Self::OrderPending => "OrderQueued",
            Self::OrderDelivered => "OrderDelivered",
            Self::OrderPartiallyDelivered => "OrderPartiallyDelivered",
            Self::OrderCancelled => "OrderCancelled",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebhookRegistered {
    pub account_id: AccountId,
    /// Credential whose signing secret serves as the token. `None` for a standalone token.
    pub credential_id: Option<CredentialId>,
    pub events: Vec<WebhookEventType>,
    pub name_hash: String,
    pub url_hash: String,
}

/// A change of a webhook. Absent fields stay unchanged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WebhookUpdated {
    pub events: Option<Vec<WebhookEventType>>,
    pub is_active: Option<bool>,
    pub name_hash: Option<String>,
    pub url_hash: Option<String>,
    /// Salted hash of a new standalone token. This field and the next are newer than the others. The payload omits
    /// them when absent, and programs that do not know them ignore them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_hash: Option<String>,
    /// Credential whose signing secret serves as the token from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_id: Option<CredentialId>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebhookDeleted {}

/// A request for a test delivery with sample data. Its `event_id` is the id of this event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebhookTested {
    /// Id of the delivery. The request draws it, so that the response can name it.
    pub delivery_id: i64,
    /// First event type that the webhook was subscribed to.
    pub event_type: WebhookEventType,
}

/// A request to retry a failed delivery, with its remaining attempts. The natural key names the delivery: the
/// webhook of this stream, the event and the replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeliveryRetryRequested {
    pub event_id: Uuid,
    /// Id of the replay that made the delivery; 0 if the event itself made it.
    pub replay_id: i64,
}

/// State of a webhook: the fold of its stream, and the row of the table `webhooks`.
#[derive(Clone, Debug, PartialEq)]
pub struct Webhook {
    pub id: WebhookId,
    pub version: i64,
    pub account_id: AccountId,
    pub credential_id: Option<CredentialId>,
    pub events: Vec<WebhookEventType>,
    pub is_active: bool,
    pub is_deleted: bool,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl Webhook {
    /// Maximum number of webhooks per account (contract, "Webhooks").
    pub const MOST_PER_ACCOUNT: usize = 20;

    /// Whether the webhook receives events of this type: it is active, not deleted, and subscribed to the type.
    pub fn hears(&self, event_type: WebhookEventType) -> bool {
        self.is_active && !self.is_deleted && self.events.contains(&event_type)
    }

    /// Returns the webhook if it can receive deliveries.
    ///
    /// # Errors
    /// Fails with [`Rejection::WebhookInactive`] if the webhook is inactive or deleted.
    pub fn listening(&self) -> Result<&Webhook, Rejection> {
        if self.is_active && !self.is_deleted { Ok(self) } else { Err(Rejection::WebhookInactive) }
    }
}

/// Maximum number of attempts per delivery (specification, "Webhook and signing limits"). When the last one fails, the
/// delivery has failed for good.
pub const MAX_ATTEMPTS: i16 = 5;

/// State of a delivery that the decision about a retry needs, from the worker's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retryable {
    pub event_id: Uuid,
    pub replay_id: i64,
    pub has_failed: bool,
    pub attempt_count: i16,
}

impl Retryable {
    /// Applies events of the webhook that the projection has not processed yet. A retry makes the delivery
    /// pending; switching off or deleting the webhook makes it failed again.
    pub fn after<'e>(self, events: impl IntoIterator<Item = &'e WebhookEvent>) -> Retryable {
        let mut has_failed = self.has_failed;
        for event in events {
            match event {
                WebhookEvent::DeliveryRetryRequested(e) if (e.event_id, e.replay_id) == (self.event_id, self.replay_id) => {
                    has_failed = false;
                }
                WebhookEvent::WebhookUpdated(e) if e.is_active == Some(false) => has_failed = self.has_failed,
                WebhookEvent::WebhookDeleted(_) => has_failed = self.has_failed,
                _ => {}
            }
        }
        Retryable { has_failed, ..self }
    }

    fn failed_with_attempts_left(self) -> Result<Retryable, Rejection> {
        if !self.has_failed {
            return Err(Rejection::DeliveryNotFailed);
        }
        if self.attempt_count >= MAX_ATTEMPTS {
            return Err(Rejection::DeliveryAttemptsExhausted);
        }
        Ok(self)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum WebhookCommand {
    Update(WebhookUpdated),
    /// Replaces the standalone token. `token_hash` is the salted hash of the new one.
    RotateToken {
        token_hash: String,
    },
    Delete,
    /// Requests a test delivery with this id.
    Test {
        delivery_id: i64,
    },
    /// Requests a retry of this delivery.
    Retry(Retryable),
}

/// Decides the registration of a webhook. `alive` is the number of webhooks that the account already has.
/// `credential` is the requested credential, if it exists.
///
/// # Errors
/// Checks account, limit and credential in this order, and returns the first rejection.
pub fn register(
    account: &Account,
    alive: usize,
    credential: Option<&Credential>,
    asked: WebhookRegistered,
) -> Result<WebhookEvent, Rejection> {
    if account.status == AccountStatus::Suspended {
        return Err(Rejection::AccountSuspended);
    }
    if alive >= Webhook::MOST_PER_ACCOUNT {
        return Err(Rejection::WebhookLimitReached);
    }
    if asked.credential_id.is_some() {
        linkable(account.id, credential)?;
    }
    Ok(asked.into())
}

/// Checks that a webhook of the account can link to the requested credential. `credential` is `None` if it does
/// not exist.
///
/// # Errors
/// Fails if the credential does not exist, is revoked, or belongs to another account.
pub fn linkable(account: AccountId, credential: Option<&Credential>) -> Result<(), Rejection> {
    match credential {
        Some(credential) if credential.account_id == account && !credential.is_revoked => Ok(()),
        _ => Err(Rejection::InvalidField { field: "credential_id", problem: "is unknown" }),
    }
}

/// Decides a command on a webhook. On a deleted webhook, changes fail with [`Rejection::NotFound`]. A test or
/// retry fails with [`Rejection::WebhookInactive`], because the history of the webhook still exists.
pub fn decide(webhook: &Webhook, command: WebhookCommand) -> Result<WebhookEvent, Rejection> {
    match command {
        WebhookCommand::Update(_) | WebhookCommand::RotateToken { .. } | WebhookCommand::Delete if webhook.is_deleted => {
            Err(Rejection::NotFound)
        }
        WebhookCommand::Update(change) => Ok(change.into()),
        WebhookCommand::RotateToken { .. } if webhook.credential_id.is_some() => {
            Err(Rejection::Conflict("the webhook's token is the signing secret of its credential: rotate that secret instead"))
        }
        WebhookCommand::RotateToken { token_hash } => {
            Ok(WebhookUpdated { token_hash: Some(token_hash), ..WebhookUpdated::default() }.into())
        }
        WebhookCommand::Delete => Ok(WebhookDeleted {}.into()),
        WebhookCommand::Test { delivery_id } => {
            let event_type = *webhook.listening()?.events.first().ok_or(Rejection::WebhookInactive)?;
            Ok(WebhookTested { delivery_id, event_type }.into())
        }
        WebhookCommand::Retry(delivery) => {
            let Retryable { event_id, replay_id, .. } = delivery.failed_with_attempts_left()?;
            webhook.listening()?;
            Ok(DeliveryRetryRequested { event_id, replay_id }.into())
        }
    }
}

/// Folds an event into the state. This is the only fold of the webhook stream. Returns `None` only before
/// `WebhookRegistered`.
pub fn evolve(state: Option<Webhook>, id: WebhookId, event: &WebhookEvent, at: &Moment) -> Option<Webhook> {
    let mut webhook = match (state, event) {
        (None, WebhookEvent::WebhookRegistered(e)) => Webhook {
            id,
            version: at.version,
            account_id: e.account_id,
            credential_id: e.credential_id,
            events: e.events.clone(),
            is_active: true,
            is_deleted: false,
            created_at: at.recorded_at,
            updated_at: at.recorded_at,
        },
        (None, _) => return None,
        (Some(webhook), _) => webhook,
    };
    match event {
        WebhookEvent::WebhookRegistered(_) => {}
        WebhookEvent::WebhookUpdated(e) => {
            webhook.events = e.events.clone().unwrap_or(webhook.events);
            webhook.is_active = e.is_active.unwrap_or(webhook.is_active);
            webhook.credential_id = e.credential_id.or(webhook.credential_id);
        }
        WebhookEvent::WebhookDeleted(_) => {
            webhook.is_active = false;
            webhook.is_deleted = true;
        }
        // Both request a delivery and change nothing about the webhook.
        WebhookEvent::WebhookTested(_) | WebhookEvent::DeliveryRetryRequested(_) => {
            webhook.version = at.version;
            return Some(webhook);
        }
    }
    webhook.version = at.version;
    webhook.updated_at = at.recorded_at;
    Some(webhook)
}

crate::codec::stream_events! {
    /// Events of a webhook.
    WebhookEvent {
        WebhookRegistered = 1,
        WebhookUpdated = 1,
        WebhookDeleted = 1,
        WebhookTested = 1,
        DeliveryRetryRequested = 1,
    }
}

#[cfg(test)]
mod histories;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn at(version: i64) -> Moment {
        let recorded_at = DateTime::from_timestamp(1_800_000_000 + version, 0).unwrap();
        Moment { position: version, event_id: Uuid::nil(), version, recorded_at }
    }

    fn webhook(changes: &[WebhookUpdated]) -> Webhook {
        let registered = WebhookRegistered {
            account_id: 7,
            credential_id: None,
            events: vec![WebhookEventType::OrderDelivered, WebhookEventType::OrderCreated],
            name_hash: String::new(),
            url_hash: String::new(),
        };
        let mut state = evolve(None, 1, &registered.into(), &at(1));
        for (change, version) in changes.iter().zip(2..) {
            state = evolve(state, 1, &change.clone().into(), &at(version));
        }
        state.unwrap()
    }

    fn switched(is_active: bool) -> WebhookUpdated {
        WebhookUpdated { is_active: Some(is_active), ..WebhookUpdated::default() }
    }

    #[test]
    fn only_a_standalone_token_can_be_rotated_through_the_webhook() {
        let rotate = || WebhookCommand::RotateToken { token_hash: "t".to_owned() };
        let before = webhook(&[switched(false)]);
        let rotated = decide(&before, rotate()).unwrap();
        let expected = WebhookUpdated { token_hash: Some("t".to_owned()), ..WebhookUpdated::default() };
        assert_eq!(rotated, expected.into());
        let after = evolve(Some(before.clone()), 1, &rotated, &at(3)).unwrap();
        assert_eq!(after, Webhook { version: 3, updated_at: at(3).recorded_at, ..before.clone() });

        let link = WebhookUpdated { credential_id: Some(9), ..WebhookUpdated::default() };
        let linked = evolve(Some(before.clone()), 1, &link.into(), &at(3)).unwrap();
        assert_eq!(linked, Webhook { credential_id: Some(9), ..after });
        assert!(matches!(decide(&linked, rotate()), Err(Rejection::Conflict(_))));
        let renamed = WebhookUpdated { name_hash: Some("n".to_owned()), ..WebhookUpdated::default() };
        assert_eq!(evolve(Some(linked), 1, &renamed.into(), &at(4)).unwrap().credential_id, Some(9), "absent fields stay");
    }

    #[test]
    fn an_update_omits_its_newer_fields_when_absent() {
        let earlier = r#"{"events":null,"is_active":true,"name_hash":null,"url_hash":null}"#;
        assert_eq!(serde_json::from_str::<WebhookUpdated>(earlier).unwrap(), switched(true));
        assert_eq!(serde_json::to_string(&switched(true)).unwrap(), earlier);
        let later = WebhookUpdated { token_hash: Some("t".to_owned()), credential_id: Some(9), ..switched(true) };
        assert_eq!(serde_json::from_str::<WebhookUpdated>(&serde_json::to_string(&later).unwrap()).unwrap(), later);
    }

    #[test]
    fn a_test_uses_the_first_subscribed_type_and_leaves_the_webhook_unchanged() {
        let before = webhook(&[]);
        let test = WebhookCommand::Test { delivery_id: 5 };
        let tested = decide(&before, test.clone()).unwrap();
        let expected = WebhookTested { delivery_id: 5, event_type: WebhookEventType::OrderDelivered };
        assert_eq!(tested, expected.into());
        let after = evolve(Some(before.clone()), 1, &tested, &at(2)).unwrap();
        assert_eq!(after, Webhook { version: 2, ..before });
        assert_eq!(decide(&webhook(&[switched(false)]), test.clone()), Err(Rejection::WebhookInactive));
        assert!(decide(&webhook(&[switched(false), switched(true)]), test).is_ok());
    }

    #[test]
    fn a_failed_delivery_with_attempts_left_can_be_retried() {
        let (on, off) = (webhook(&[]), webhook(&[switched(false)]));
        let delivery = |has_failed, attempt_count| Retryable { event_id: Uuid::nil(), replay_id: 3, has_failed, attempt_count };
        let requested = WebhookEvent::from(DeliveryRetryRequested { event_id: Uuid::nil(), replay_id: 3 });
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
        let deleted = evolve(Some(webhook(&[])), 1, &decide(&webhook(&[]), WebhookCommand::Delete).unwrap(), &at(2)).unwrap();
        for (command, expected) in [
            (WebhookCommand::Update(switched(true)), Rejection::NotFound),
            (WebhookCommand::Delete, Rejection::NotFound),
            (WebhookCommand::RotateToken { token_hash: String::new() }, Rejection::NotFound),
            (WebhookCommand::Test { delivery_id: 5 }, Rejection::WebhookInactive),
        ] {
            assert_eq!(decide(&deleted, command), Err(expected));
        }
        assert_eq!(decide(&webhook(&[]), WebhookCommand::Update(switched(true))), Ok(switched(true).into()));
    }

    #[test]
    fn registration_requires_an_active_account_below_its_limit_and_its_own_credential() {
        let created_at = at(1).recorded_at;
        let account = |status| Account {
            id: 7,
            version: 1,
            name: String::new(),
            status,
            discounts: vec![],
            created_at,
            updated_at: created_at,
        };
        let credential = |account_id, is_revoked| Credential {
            id: 3,
            version: 1,
            account_id,
            name: String::new(),
            key_prefix: String::new(),
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
            (&active, 0, Some(3), Some(credential(7, false)), None),
            (&suspended, 20, None, None, Some(Rejection::AccountSuspended)),
            (&active, 20, Some(3), None, Some(Rejection::WebhookLimitReached)),
            (&active, 0, Some(3), None, Some(unknown.clone())),
            (&active, 0, Some(3), Some(credential(8, false)), Some(unknown.clone())),
            (&active, 0, Some(3), Some(credential(7, true)), Some(unknown)),
        ] {
            let asked = WebhookRegistered {
                account_id: 7,
                credential_id,
                events: vec![WebhookEventType::OrderCreated],
                name_hash: String::new(),
                url_hash: String::new(),
            };
            let decided = register(account, alive, credential.as_ref(), asked.clone());
            assert_eq!(decided, expected.map_or(Ok(asked.into()), Err));
        }
    }

    #[test]
    fn an_unprocessed_retry_counts_until_the_webhook_is_switched_off() {
        let delivery = |has_failed| Retryable { event_id: Uuid::nil(), replay_id: 3, has_failed, attempt_count: 1 };
        let retry = |replay_id| WebhookEvent::from(DeliveryRetryRequested { event_id: Uuid::nil(), replay_id });
        let [on, off] = [true, false].map(|is_active| WebhookEvent::from(switched(is_active)));
        for (events, has_failed) in [
            (vec![], true),
            (vec![retry(3)], false),
            (vec![retry(0)], true),
            (vec![retry(3), off.clone(), on.clone()], true),
            (vec![off.clone(), on.clone(), retry(3)], false),
            (vec![retry(3), WebhookDeleted {}.into()], true),
        ] {
            assert_eq!(delivery(true).after(&events).has_failed, has_failed, "{events:?}");
            assert!(!delivery(false).after(&events).has_failed, "{events:?}");
        }
    }
}
