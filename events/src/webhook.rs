//! The webhook stream: the subscriptions at every position of the log.
//!
//! The vault stores name, URL and token. The events commit to name and URL with salted hashes.

mod event_type;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::account::{Account, AccountStatus, Credential};
use crate::{AccountId, CredentialId, Moment, Rejection, ReplayId, WebhookId};
pub use event_type::WebhookEventType;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebhookRegistered {
    pub account_id: AccountId,
    /// Credential whose signing secret serves as the token. `None` for a standalone token.
    pub credential_id: Option<CredentialId>,
    /// Types of orders. The next field has the further types: see [`WebhookEventType::split`].
    pub events: Vec<WebhookEventType>,
    pub name_hash: String,
    pub url_hash: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further_events: Vec<WebhookEventType>,
    /// Salted hash of the custom headers, if there are some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers_hash: Option<String>,
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
    /// Types that are not of orders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub further_events: Option<Vec<WebhookEventType>>,
    /// Salted hash of the custom headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers_hash: Option<String>,
    /// Time up to which deliveries are signed with the replaced token, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_token_until: Option<DateTime<Utc>>,
    /// Reason, if the service itself switched the webhook off. `is_active` is false then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deactivation: Option<Deactivation>,
}

/// Reason why the service itself switched a webhook off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Deactivation {
    /// Every attempt since this time has failed.
    Failing { failing_since: DateTime<Utc> },
}

/// A deactivation of a webhook by the service, which lasts until somebody switches the webhook on again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deactivated {
    pub reason: Deactivation,
    pub at: DateTime<Utc>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebhookDeleted {}

/// A request for a test delivery with sample data. Its `event_id` is the id of this event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebhookTested {
    /// Id of the delivery. The request draws it, so that the response can name it.
    pub delivery_id: i64,
    /// Event type of the sample data, to which the webhook was subscribed.
    pub event_type: WebhookEventType,
    /// Version of the sample data. A rebuild needs it to give the bytes that were sent. `None` in events of releases that knew
    /// only the first version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_version: Option<i16>,
}

/// Version of the sample data of new test deliveries. Raise it with every change of the sample data, and keep the older versions.
pub const SAMPLE_VERSION: i16 = 2;

/// A request to retry a failed delivery, with its remaining attempts. The natural key names the delivery: the
/// webhook of this stream, the event and the replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeliveryRetryRequested {
    pub event_id: Uuid,
    /// Replay that made the delivery; [`NO_REPLAY`](crate::replay::NO_REPLAY) if the event itself made it.
    pub replay_id: ReplayId,
}

/// State of a webhook: the fold of its stream, and the row of the table `webhooks`.
#[derive(Clone, Debug, PartialEq)]
pub struct Webhook {
    pub id: WebhookId,
    pub version: i64,
    pub account_id: AccountId,
    pub credential_id: Option<CredentialId>,
    /// Types of orders, then the further ones.
    pub events: Vec<WebhookEventType>,
    pub is_active: bool,
    pub is_deleted: bool,
    /// `None` if the webhook is active, or if a person switched it off.
    pub deactivated: Option<Deactivated>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl Webhook {
    /// Maximum number of webhooks per account (contract, "Webhooks").
    pub const MAX_PER_ACCOUNT: usize = 20;

    /// Returns whether the webhook receives events of this type: it is active, not deleted, and subscribed to the type.
    pub fn hears(&self, event_type: WebhookEventType) -> bool {
        Hearing::of(Some(self), event_type) == Hearing::Heard
    }

    /// Returns the webhook if it can receive deliveries.
    ///
    /// # Errors
    /// Fails with [`Rejection::WebhookInactive`] if the webhook is inactive or deleted.
    pub fn listening(&self) -> Result<&Webhook, Rejection> {
        if self.is_active && !self.is_deleted { Ok(self) } else { Err(Rejection::WebhookInactive) }
    }
}

/// Whether a webhook receives an event, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hearing {
    Heard,
    /// The webhook did not exist yet.
    NotRegistered,
    Deleted,
    Inactive,
    NotSubscribed,
}

impl Hearing {
    /// Returns whether a webhook in this state receives events of a type. This is the only rule about the audience of an
    /// event. `webhook` is `None` before its registration.
    pub fn of(webhook: Option<&Webhook>, event_type: WebhookEventType) -> Hearing {
        match webhook {
            None => Self::NotRegistered,
            Some(webhook) if webhook.is_deleted => Self::Deleted,
            Some(webhook) if !webhook.is_active => Self::Inactive,
            Some(webhook) if !webhook.events.contains(&event_type) => Self::NotSubscribed,
            Some(_) => Self::Heard,
        }
    }
}

/// Maximum number of attempts per delivery (specification, "Webhook and signing limits"). When the last one fails, the
/// delivery has failed for good.
pub const MAX_ATTEMPTS: i16 = 5;

/// State of a delivery that the decision about a retry needs, from the worker's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retryable {
    pub event_id: Uuid,
    pub replay_id: ReplayId,
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

const CHANGED: &str = "the webhook was changed meanwhile";
const NOT_SUBSCRIBED: &str = "must be a type that the webhook is subscribed to";

#[derive(Clone, Debug, PartialEq)]
pub enum WebhookCommand {
    Update(WebhookUpdated),
    /// Replaces the standalone token. `token_hash` is the salted hash of the new one.
    RotateToken {
        token_hash: String,
        previous_until: Option<DateTime<Utc>>,
    },
    Delete,
    /// Switches the webhook off for a reason, if it is still at the version for which the reason was found.
    Deactivate {
        version: i64,
        reason: Deactivation,
    },
    /// Requests a test delivery with this id, of a type that the webhook is subscribed to. `None` means the first one.
    Test {
        delivery_id: i64,
        event_type: Option<WebhookEventType>,
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
    if alive >= Webhook::MAX_PER_ACCOUNT {
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
        WebhookCommand::Update(mut change) => {
            // A webhook that never had further types needs no event that says so.
            let has_further = webhook.events.iter().any(|event_type| !event_type.is_of_orders());
            change.further_events = change.further_events.filter(|further| has_further || !further.is_empty());
            Ok(change.into())
        }
        WebhookCommand::RotateToken { .. } if webhook.credential_id.is_some() => {
            Err(Rejection::Conflict("the webhook's token is the signing secret of its credential: rotate that secret instead"))
        }
        WebhookCommand::RotateToken { token_hash, previous_until: previous_token_until } => {
            let token_hash = Some(token_hash);
            Ok(WebhookUpdated { token_hash, previous_token_until, ..WebhookUpdated::default() }.into())
        }
        WebhookCommand::Delete => Ok(WebhookDeleted {}.into()),
        WebhookCommand::Deactivate { version, reason } => {
            if webhook.listening()?.version != version {
                return Err(Rejection::Conflict(CHANGED));
            }
            Ok(WebhookUpdated { is_active: Some(false), deactivation: Some(reason), ..WebhookUpdated::default() }.into())
        }
        WebhookCommand::Test { delivery_id, event_type } => {
            let subscribed = &webhook.listening()?.events;
            let event_type = match event_type {
                Some(wanted) if subscribed.contains(&wanted) => wanted,
                Some(_) => return Err(Rejection::InvalidField { field: "event_type", problem: NOT_SUBSCRIBED }),
                None => *subscribed.first().ok_or(Rejection::WebhookInactive)?,
            };
            Ok(WebhookTested { delivery_id, event_type, sample_version: Some(SAMPLE_VERSION) }.into())
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
            events: [&*e.events, &*e.further_events].concat(),
            is_active: true,
            is_deleted: false,
            deactivated: None,
            created_at: at.recorded_at,
            updated_at: at.recorded_at,
        },
        (None, _) => return None,
        (Some(webhook), _) => webhook,
    };
    match event {
        WebhookEvent::WebhookRegistered(_) => {}
        WebhookEvent::WebhookUpdated(e) => {
            let (of_orders, further) = WebhookEventType::split(webhook.events);
            webhook.events = e.events.clone().unwrap_or(of_orders);
            webhook.events.extend(e.further_events.clone().unwrap_or(further));
            webhook.is_active = e.is_active.unwrap_or(webhook.is_active);
            webhook.credential_id = e.credential_id.or(webhook.credential_id);
            if webhook.is_active {
                webhook.deactivated = None;
            }
            if let Some(reason) = e.deactivation {
                webhook.deactivated = Some(Deactivated { reason, at: at.recorded_at });
            }
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
mod tests;
